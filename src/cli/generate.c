/*
 * generate.c - shell completions and the manual page from the tables of commands and options.
 *
 * The results are kept under completions/ and man/, so that packagers need not run the program; a test compares them
 * with what the program writes.
 */
#include <string.h>
#include "cli.h"

typedef void put_option(FILE *out, const msp_command *c, const msp_opt *o);

static void
each_option(FILE *out, const msp_command *c, put_option *put)
{
    for (size_t i = 0; c != NULL && i < c->options->count; i++)
        put(out, c, &c->options->opts[i]);
    for (size_t i = 0; i < msp_opts_global.count; i++)
        put(out, c, &msp_opts_global.opts[i]);
}

/* After the command's name -f belongs to fuzzy_match. */
static const char *
brief_in(const msp_command *c, const msp_opt *o)
{
    if (o->id == MSP_OPT_FRAMEWORK && c != NULL && c->options == &msp_opts_compare)
        return NULL;
    return o->brief;
}

/* Text between single quotes: a quote inside it ends them, stands escaped, and begins them again. */
static void
put_quoted(FILE *out, const char *text, const char *escape)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr(escape, *text) != NULL)
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void
put_spaced(FILE *out, const char *choices)
{
    for (; *choices != '\0'; choices++)
        fputc(*choices == ',' ? ' ' : *choices, out);
}

/* ---- bash ---------------------------------------------------------------------------------------------------- */

static void
bash_name(FILE *out, const msp_command *c, const msp_opt *o)
{
    const char *brief = brief_in(c, o);

    if (brief != NULL)
        fprintf(out, " %s", brief);
    fprintf(out, " %s", o->name);
    if (o->alias != NULL)
        fprintf(out, " %s", o->alias);
}

static void
bash_value(FILE *out, const msp_command *c, const msp_opt *o)
{
    const char *name = c != NULL ? c->name : "", *brief = brief_in(c, o);

    if (o->kind == MSP_OPT_FLAG)
        return;
    fprintf(out, "    %s:%s", name, o->name);
    if (brief != NULL)
        fprintf(out, "|%s:%s", name, brief);
    if (o->alias != NULL)
        fprintf(out, "|%s:%s", name, o->alias);
    fputs(")\n", out);
    if (o->choices != NULL) {
        fputs("        mapfile -t COMPREPLY < <(compgen -W '", out);
        put_spaced(out, o->choices);
        fputs("' -- \"$cur\")\n", out);
    } else if (o->operand != MSP_OPERAND_NONE) {
        fputs("        compopt -o filenames\n", out);
        fprintf(out, "        mapfile -t COMPREPLY < <(compgen -%c -- \"$cur\")\n",
                o->operand == MSP_OPERAND_DIR ? 'd' : 'f');
    }
    fputs("        return ;;\n", out);
}

static void
bash_commands(FILE *out, const char *separator)
{
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_command_available(&msp_commands[i]))
            fprintf(out, "%s%s", msp_commands[i].name, separator);
    fputs("help", out);
}

/* Those that take files: "compare|parse". */
static void
bash_file_commands(FILE *out)
{
    const char *separator = "";

    for (size_t i = 0; i < msp_command_count; i++) {
        if (!msp_command_available(&msp_commands[i]) || msp_commands[i].max_operands == 0)
            continue;
        fprintf(out, "%s%s", separator, msp_commands[i].name);
        separator = "|";
    }
}

static void
generate_bash(FILE *out)
{
    fputs("# bash completion for msprobe. Made by 'msprobe __generate bash'.\n"
          "_msprobe()\n{\n"
          "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD - 1]}\" command=\"\" i\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case \"${COMP_WORDS[i]}\" in\n        ",
          out);
    bash_commands(out, "|");
    fputs(")\n            command=\"${COMP_WORDS[i]}\"\n            break ;;\n        esac\n    done\n"
          "    case \"$command:$prev\" in\n",
          out);
    each_option(out, NULL, bash_value);
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_command_available(&msp_commands[i]))
            each_option(out, &msp_commands[i], bash_value);
    fputs("    help:*)\n        mapfile -t COMPREPLY < <(compgen -W '", out);
    bash_commands(out, " ");
    fputs(
        "' -- \"$cur\")\n        return ;;\n    esac\n    local words=\"\"\n    case \"$command\" in\n    '') words=\"",
        out);
    bash_commands(out, " ");
    each_option(out, NULL, bash_name);
    fputs("\" ;;\n", out);
    for (size_t i = 0; i < msp_command_count; i++) {
        if (!msp_command_available(&msp_commands[i]))
            continue;
        fprintf(out, "    %s) words=\"", msp_commands[i].name);
        each_option(out, &msp_commands[i], bash_name);
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n    if [[ $cur != -* && $command == @(", out);
    bash_file_commands(out);
    fputs(") ]]; then\n"
          "        compopt -o filenames\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
          "    fi\n}\n"
          "complete -F _msprobe msprobe\n",
          out);
}

/* ---- zsh ----------------------------------------------------------------------------------------------------- */

static void
zsh_operand(FILE *out, const msp_opt *o)
{
    if (o->kind == MSP_OPT_FLAG)
        return;
    fputs(o->kind == MSP_OPT_MAYBE ? "::" : ":", out);
    put_quoted(out, o->metavar, ":");
    fputc(':', out);
    if (o->choices != NULL) {
        fputc('(', out);
        put_spaced(out, o->choices);
        fputc(')', out);
    } else if (o->operand != MSP_OPERAND_NONE) {
        fputs(o->operand == MSP_OPERAND_DIR ? "_files -/" : "_files", out);
    }
}

static void
zsh_spec(FILE *out, const char *name, const msp_opt *o)
{
    fprintf(out, "        '%s[", name);
    put_quoted(out, o->help, "[]:\\");
    fputc(']', out);
    zsh_operand(out, o);
    fputs("' \\\n", out);
}

static void
zsh_option(FILE *out, const msp_command *c, const msp_opt *o)
{
    const char *brief = brief_in(c, o);

    if (brief != NULL)
        zsh_spec(out, brief, o);
    zsh_spec(out, o->name, o);
    if (o->alias != NULL)
        zsh_spec(out, o->alias, o);
}

static void
generate_zsh(FILE *out)
{
    fputs("#compdef msprobe\n# zsh completion for msprobe. Made by 'msprobe __generate zsh'.\n"
          "_msprobe() {\n"
          "    local command=${words[(r)(",
          out);
    bash_commands(out, "|");
    fputs(")]}\n    case $command in\n", out);
    for (size_t i = 0; i < msp_command_count; i++) {
        const msp_command *c = &msp_commands[i];

        if (!msp_command_available(c))
            continue;
        fprintf(out, "    %s)\n        _arguments \\\n", c->name);
        each_option(out, c, zsh_option);
        fputs(c->max_operands > 0 ? "        '*:dump:_files' ;;\n" : "        && return 0 ;;\n", out);
    }
    fputs("    help)\n        _arguments '2:command:(", out);
    bash_commands(out, " ");
    fputs(")' ;;\n    *)\n        _arguments \\\n", out);
    each_option(out, NULL, zsh_option);
    fputs("        '1:command:((", out);
    for (size_t i = 0; i < msp_command_count; i++) {
        if (!msp_command_available(&msp_commands[i]))
            continue;
        fprintf(out, "%s\\:\"", msp_commands[i].name);
        put_quoted(out, msp_commands[i].summary, ":\"");
        fputs("\" ", out);
    }
    fputs("help\\:\"Show help.\"))' ;;\n    esac\n}\n_msprobe \"$@\"\n", out);
}

/* ---- fish ---------------------------------------------------------------------------------------------------- */

static void
fish_option(FILE *out, const msp_command *c, const msp_opt *o)
{
    const char *brief = brief_in(c, o);

    fputs("complete -c msprobe", out);
    if (c != NULL)
        fprintf(out, " -n '__fish_seen_subcommand_from %s'", c->name);
    else
        fputs(" -n '__msprobe_no_command'", out);
    if (brief != NULL)
        fprintf(out, " -%c %s", strlen(brief) == 2 ? 's' : 'o', brief + 1);
    fprintf(out, " -l %s", o->name + 2);
    if (o->alias != NULL)
        fprintf(out, " -%c %s", o->alias[1] == '-' ? 'l' : 'o', o->alias + (o->alias[1] == '-' ? 2 : 1));
    if (o->kind == MSP_OPT_VALUE)
        fputs(" -r", out);
    if (o->choices != NULL) {
        fputs(" -f -a '", out);
        put_spaced(out, o->choices);
        fputc('\'', out);
    } else if (o->operand == MSP_OPERAND_DIR) {
        fputs(" -f -a '(__fish_complete_directories)'", out);
    } else if (o->operand == MSP_OPERAND_FILE) {
        fputs(" -F", out);
    } else if (o->kind == MSP_OPT_VALUE) {
        fputs(" -f", out);
    }
    fputs(" -d '", out);
    put_quoted(out, o->help, "");
    fputs("'\n", out);
}

static void
generate_fish(FILE *out)
{
    fputs("# fish completion for msprobe. Made by 'msprobe __generate fish'.\n"
          "function __msprobe_no_command\n    not __fish_seen_subcommand_from ",
          out);
    bash_commands(out, " ");
    fputs("\nend\n", out);
    for (size_t i = 0; i < msp_command_count; i++) {
        if (!msp_command_available(&msp_commands[i]))
            continue;
        fprintf(out, "complete -c msprobe -n __msprobe_no_command -f -a %s -d '", msp_commands[i].name);
        put_quoted(out, msp_commands[i].summary, "");
        fputs("'\n", out);
    }
    fputs("complete -c msprobe -n __msprobe_no_command -f -a help -d 'Show help.'\n"
          "complete -c msprobe -n '__fish_seen_subcommand_from help' -f -a '",
          out);
    bash_commands(out, " ");
    fputs("'\n", out);
    each_option(out, NULL, fish_option);
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_command_available(&msp_commands[i]))
            each_option(out, &msp_commands[i], fish_option);
}

/* ---- man ----------------------------------------------------------------------------------------------------- */

/* roff reads a dot or quote at the start of a line as a request, and a dash as a hyphen. */
static void
put_roff(FILE *out, const char *text)
{
    bool start = true;

    for (; *text != '\0'; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
        start = *text == '\n';
    }
}

static void
man_option(FILE *out, const msp_command *c, const msp_opt *o)
{
    bool maybe = o->kind == MSP_OPT_MAYBE;

    (void)c;
    fputs(".TP\n", out);
    if (o->brief != NULL) {
        fputs("\\fB", out);
        put_roff(out, o->brief);
        fputs("\\fR, ", out);
    }
    fputs("\\fB", out);
    put_roff(out, o->name);
    fputs("\\fR", out);
    if (o->kind != MSP_OPT_FLAG)
        fprintf(out, " %s\\fI%s\\fR%s", maybe ? "[" : "", o->choices != NULL ? o->choices : o->metavar,
                maybe ? "]" : "");
    fputc('\n', out);
    put_roff(out, o->help);
    fputc('\n', out);
}

/* The notes are laid out by hand: headings in the first column, the rest as it stands. */
static void
man_notes(FILE *out, const char *notes)
{
    bool open = false;

    while (*notes != '\0') {
        size_t n = strcspn(notes, "\n");
        char line[256];

        snprintf(line, sizeof(line), "%.*s", (int)n, notes);
        notes += n + (notes[n] == '\n');
        if (line[0] == '\0')
            continue;
        if (line[0] != ' ') {
            fputs(open ? ".fi\n" : "", out);
            fprintf(out, ".PP\n\\fB%s\\fR\n.nf\n", line);
            open = true;
            continue;
        }
        put_roff(out, line);
        fputc('\n', out);
    }
    fputs(open ? ".fi\n" : "", out);
}

static void
man_command(FILE *out, const msp_command *c)
{
    fprintf(out, ".SS %s\n", c->name);
    put_roff(out, c->about);
    fputs("\n.PP\n.nf\n", out);
    put_roff(out, c->usage);
    fputs("\n.fi\n", out);
    for (size_t i = 0; i < c->options->count; i++)
        man_option(out, c, &c->options->opts[i]);
    man_notes(out, c->notes);
}

static const char man_head[] =
    ".\\\" Made by 'msprobe __generate man'.\n"
    ".TH MSPROBE 1 \"\" \"msprobe " MSP_VERSION "\" \"User Commands\"\n"
    ".SH NAME\nmsprobe \\- find the first call of a training run that goes wrong\n"
    ".SH SYNOPSIS\n\\fBmsprobe\\fR [\\fB\\-f\\fR \\fIpytorch\\fR|\\fImindspore\\fR] \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
    ".br\n\\fBmsprobe compare\\fR \\fINPU\\fR \\fIBENCH\\fR [\\fB\\-o\\fR \\fIDIR\\fR]\n"
    ".SH DESCRIPTION\n"
    "msprobe compares two dumps of the same model, call by call, and names where they part. Dumps are made by its\n"
    "Python package while a model trains.\n"
    ".PP\nOptions may stand before or after the command. Long options may be abbreviated as long as they stay\n"
    "unambiguous, and be written with dashes or underscores.\n";

static const char man_tail[] =
    ".SH EXIT STATUS\n"
    ".TP\n0\nDone, whatever the rows say.\n"
    ".TP\n1\nA run\\-time error: nothing could be compared, an input is unreadable, or a rank was left out.\n"
    ".TP\n2\nWrong usage.\n"
    ".TP\n3\nWhat \\fB\\-\\-fail\\-on\\fR names was found.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBMSPROBE_LOG_LEVEL\\fR\n0 debug, 1 info, 2 warning, 3 error, 4 nothing: messages on standard error.\n"
    ".TP\n\\fBNO_COLOR\\fR, \\fBCLICOLOR\\fR, \\fBCLICOLOR_FORCE\\fR\n"
    "No colours when the first is not empty or the second is 0; colours in pipes when the third is not 0.\n"
    ".TP\n\\fBMSPROBE_MPI\\fR\n"
    "0: compare takes no notice of mpirun or srun, and each process that they start compares everything.\n"
    ".TP\n\\fBMSPROBE_MPI_SILENCE\\fR\n"
    "Seconds without a word after which another process of mpirun is taken for dead (60).\n"
    ".SH FILES\n"
    ".TP\n\\fIcompare_result_{time}.xlsx\\fR, \\fIcompare_result_rank{N}_{time}.xlsx\\fR\nThe table of a comparison.\n"
    ".TP\n\\fIjob_table_{time}.xlsx\\fR\nOne row for each step and rank.\n"
    ".TP\n\\fIadvisor_{time}.txt\\fR\nThe first wrong row and advice.\n"
    ".TP\n\\fIcompare_result_rank{N}_{time}.json\\fR, \\fIdiff_analyze_{time}.json\\fR\n"
    "With \\fB\\-da\\fR: every call of a rank, and the first that differ.\n"
    ".TP\n\\fImulti_ranks_compare_merge_{time}.xlsx\\fR\nThe result of merge_result.\n";

static void
generate_man(FILE *out)
{
    fputs(man_head, out);
    fputs(".SH OPTIONS OF EVERY COMMAND\n", out);
    each_option(out, NULL, man_option);
    fputs(".SH COMMANDS\n", out);
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_command_available(&msp_commands[i]))
            man_command(out, &msp_commands[i]);
    fputs(man_tail, out);
}

bool
msp_generate(FILE *out, const char *kind)
{
    static const struct {
        const char *kind;
        void (*make)(FILE *out);
    } all[] = {{"bash", generate_bash}, {"zsh", generate_zsh}, {"fish", generate_fish}, {"man", generate_man}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i].kind, kind) == 0) {
            all[i].make(out);
            return true;
        }
    }
    return false;
}
