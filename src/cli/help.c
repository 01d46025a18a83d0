/* help.c - help on the screen, made from the tables of commands and options. */
#include <string.h>
#include "cli.h"
#include "terminal.h"

enum { NAME_COLUMN = 28, WIDEST = 100 };

static int
help_width(FILE *out)
{
    int w = msp_term_width(out);

    return w > WIDEST ? WIDEST : w;
}

static void
print_heading(FILE *out, const char *text)
{
    fputc('\n', out);
    msp_term_put(out, MSP_STYLE_BOLD, "%s", text);
    fputc('\n', out);
}

/* "-o, --output_path [DIR]" */
static void
option_synopsis(char *buf, size_t size, const msp_opt *o)
{
    const char *open = o->kind == MSP_OPT_MAYBE ? "[" : "", *close = o->kind == MSP_OPT_MAYBE ? "]" : "";

    snprintf(buf, size, "%s%s%s%s%s%s%s", o->brief != NULL ? o->brief : "", o->brief != NULL ? ", " : "", o->name,
             o->kind == MSP_OPT_FLAG ? "" : " ", open, o->kind == MSP_OPT_FLAG ? "" : o->metavar, close);
}

/* A left column of names, the text beside it or, where the name is too long, below it. */
static void
print_entry(FILE *out, const char *name, const char *text)
{
    size_t width = msp_text_width(name, strlen(name));

    fputs("  ", out);
    msp_term_put(out, MSP_STYLE_CYAN, "%s", name);
    if (width + 4 > NAME_COLUMN)
        fprintf(out, "\n%*s", NAME_COLUMN, "");
    else
        fprintf(out, "%*s", (int)(NAME_COLUMN - 2 - width), "");
    msp_text_wrap(out, text, NAME_COLUMN, help_width(out));
}

static void
print_options(FILE *out, const char *title, const msp_opt_table *t)
{
    char name[80];

    if (t->count > 0)
        print_heading(out, title);
    for (size_t i = 0; i < t->count; i++) {
        option_synopsis(name, sizeof(name), &t->opts[i]);
        print_entry(out, name, t->opts[i].help);
    }
}

void
msp_help_print(FILE *out)
{
    fputs("msprobe finds the first call of a training run that goes wrong: it compares two\n"
          "dumps of the same model, call by call, and names where they part.\n",
          out);
    print_heading(out, "Usage");
    fputs("  msprobe [-f pytorch|mindspore] COMMAND [options]\n", out);
    print_heading(out, "Start here");
    fputs("  In the training script: from msprobe.pytorch import PrecisionDebugger\n", out);
    print_entry(out, "msprobe compare NPU BENCH",
                "Where do two runs part? Dumps, or folders of a rank, a step or all steps.");
    print_entry(out, "msprobe show DUMP", "What was recorded; the first NaN and inf, with the line of code.");
    print_entry(out, "msprobe show DUMP CALL", "One call: its tensors with their statistics, and its stack.");
    print_entry(out, "msprobe show FILE", "One tensor file: statistics, histograms, first values.");
    print_entry(out, "msprobe diff A B", "Where do two tensor files differ?");
    print_entry(out, "msprobe audit DUMP", "Do the collectives of all ranks do what they mean? One run is enough.");
    print_entry(out, "msprobe run_ut -api_info F", "Is each recorded API right by itself? F is a dump.json.");
    print_entry(out, "msprobe report RESULT", "The page of an earlier comparison, in any browser.");
    print_entry(out, "msprobe help compare", "Every option of a command, what its results mean, what to do next.");
    print_heading(out, "Commands");
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_commands[i].options != NULL)
            print_entry(out, msp_commands[i].name, msp_commands[i].summary);
    print_entry(out, "help [COMMAND]", "Show this text, or a command's.");
    print_options(out, "Options of every command", &msp_opts_global);
    print_heading(out, "Exit status");
    fputs("  0 done, 1 something could not be compared or read, 2 wrong usage, 3 what\n"
          "  --fail-on names was found.\n",
          out);
}

void
msp_help_print_command(FILE *out, const msp_command *command)
{
    fprintf(out, "%s\n", command->about);
    print_heading(out, "Usage");
    for (const char *line = command->usage; *line != '\0';) {
        size_t n = strcspn(line, "\n");

        fprintf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    print_options(out, "Options", command->options);
    print_options(out, "Options of every command", &msp_opts_global);
    fputs(command->notes, out);
}
