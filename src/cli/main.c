/* main.c - the way in and out of the process: find the command, run it, tell the shell how it went. */
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "launcher.h"
#include "messages.h"
#include "terminal.h"

/* ---- wrong usage --------------------------------------------------------------------------------------------- */

/* Tasks of the collection, and what people call collecting: they belong into the training script. */
static const char *
hint_of(const char *word)
{
    static const struct {
        const char *word, *hint;
    } hints[] = {
        {"statistics", "it is a task: {\"task\": \"statistics\"} in config.json"},
        {"tensor", "it is a task: {\"task\": \"tensor\"} in config.json; 'msprobe show FILE' shows a tensor file"},
        {"structure", "it is a task: {\"task\": \"structure\"} in config.json"},
        {"free_benchmark", "it is a task: {\"task\": \"free_benchmark\"} in config.json"},
        {"overflow_check", "it is a task: {\"task\": \"overflow_check\"} in config.json; 'msprobe "
                           "run_overflow_check' looks at what it recorded"},
        {"grad_probe", "mindstudio-probe has a task of that name, msprobe has not: the task statistics records the "
                       "gradients of parameters at level L0 or mix"},
        {"exception_dump", "mindstudio-probe has a task of that name, msprobe has not: where an exception ends a run, "
                           "all that was recorded before it is complete"},
        {"monitor", "mindstudio-probe has a tool of that name, msprobe has not: the task statistics records the "
                    "gradients of parameters at level L0 or mix"},
        {"dump", "dumps are recorded by the training script; 'msprobe show DUMP' shows one"},
        {"collect", "recording is done by the training script"},
        {"record", "recording is done by the training script"},
    };

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
        if (strcmp(word, hints[i].word) == 0)
            return hints[i].hint;
    return NULL;
}

static msp_exit_code
unknown_command(const char *word)
{
    const char *hint = hint_of(word);
    msp_nearest n = {.word = word};
    msp_error err;

    if (hint != NULL) {
        msp_error_set(&err, MSP_E_INVALID,
                      "'%s' is no command: %s. In the script: from msprobe.pytorch import PrecisionDebugger; "
                      "debugger = PrecisionDebugger(\"config.json\"); debugger.start(), .stop(), .step()",
                      word, hint);
        return msp_cli_usage(NULL, &err);
    }
    for (size_t i = 0; i < msp_command_count; i++)
        if (msp_command_available(&msp_commands[i]))
            msp_nearest_offer(&n, msp_commands[i].name);
    msp_nearest_offer(&n, "help");
    if (n.best == NULL) {
        msp_error_set(&err, MSP_E_INVALID, "there is no command '%.60s'", word);
        return msp_cli_usage(NULL, &err);
    }
    msp_error_set(&err, MSP_E_INVALID, "there is no command '%.60s'; did you mean '%s'?", word, n.best);
    return msp_cli_usage(msp_command_find(n.best), &err);
}

static msp_exit_code
unavailable_command(const msp_command *c)
{
    msp_error err;

    msp_error_set(&err, MSP_E_UNSUPPORTED, "'%s' (%s) is not available yet; %s", c->name, c->summary, c->instead);
    return msp_cli_usage(NULL, &err);
}

static msp_exit_code
too_many_operands(const msp_command *c, const msp_args *args)
{
    msp_error err;

    msp_error_set(&err, MSP_E_INVALID, "'%s' takes %s, but there is '%.60s'", c->name,
                  c->run == msp_cmd_parse     ? "a file and a prefix"
                  : c->run == msp_cmd_show    ? "a dump or file and a name"
                  : c->run == msp_cmd_explain ? "two dumps and the name of a call"
                  : c->run == msp_cmd_repro   ? "a dump and the name of a call"
                  : c->run == msp_cmd_diff    ? "two files and a name"
                  : c->max_operands == 2      ? "two paths"
                                              : "options only",
                  args->operands[c->max_operands]);
    return msp_cli_usage(c, &err);
}

/* ---- commands that are about commands ------------------------------------------------------------------------ */

static msp_exit_code
show_help(const char *word)
{
    const msp_command *c = word != NULL ? msp_command_find(word) : NULL;

    if (word == NULL || strcmp(word, "help") == 0)
        msp_help_print(stdout);
    else if (c == NULL)
        return unknown_command(word);
    else if (!msp_command_available(c))
        return unavailable_command(c);
    else
        msp_help_print_command(stdout, c);
    return MSP_EXIT_OK;
}

/* For the build: shell completions and the manual page come from the same tables. */
static msp_exit_code
generate_file(const msp_args *args)
{
    msp_error err;

    if (args->noperands == 1 && msp_generate(stdout, args->operands[0]))
        return MSP_EXIT_OK;
    msp_error_set(&err, MSP_E_INVALID, "__generate takes one of bash, zsh, fish, man");
    return msp_cli_usage(NULL, &err);
}

/* ---- dispatch ------------------------------------------------------------------------------------------------ */

static msp_exit_code
run_command(const msp_line *line, const msp_args *args)
{
    const msp_command *c = line->command;

    if (!msp_command_available(c))
        return unavailable_command(c);
    if (msp_args_has(args, MSP_OPT_HELP)) {
        msp_help_print_command(stdout, c);
        return MSP_EXIT_OK;
    }
    if (args->noperands > c->max_operands)
        return too_many_operands(c, args);
    return c->run(args);
}

static msp_exit_code
dispatch_command(const msp_line *line, const msp_args *args)
{
    const char *word = line->command_word;

    if (msp_args_has(args, MSP_OPT_VERSION)) {
        printf("msprobe %s\n", MSP_VERSION);
        return MSP_EXIT_OK;
    }
    if (line->command != NULL)
        return run_command(line, args);
    if (word == NULL)
        return show_help(NULL);
    if (strcmp(word, "help") == 0)
        return show_help(args->noperands > 0 ? args->operands[0] : NULL);
    if (strcmp(word, "__generate") == 0)
        return generate_file(args);
    if (strcmp(word, "__write") == 0)
        return msp_cmd_write(args);
    if (strcmp(word, "__online") == 0)
        return msp_cmd_online(args);
    return unknown_command(word);
}

/* A word that is neither a command nor one of those below: its options cannot be judged, so it is named first. */
static bool
is_known_word(const msp_line *line)
{
    const char *w = line->command_word;

    return w == NULL || line->command != NULL || strcmp(w, "help") == 0 || strcmp(w, "__generate") == 0 ||
           strcmp(w, "__write") == 0 || strcmp(w, "__online") == 0;
}

static bool
asks_no_colour(const msp_line *line)
{
    for (size_t i = 0; i < line->nwords; i++)
        if (strcmp(line->words[i], "--no-color") == 0 || strcmp(line->words[i], "--no_color") == 0)
            return true;
    return false;
}

static msp_exit_code
run_line(const msp_line *line, const char **operands)
{
    msp_args args;
    msp_error err;

    if (!is_known_word(line))
        return unknown_command(line->command_word);
    if (line->command != NULL && !msp_command_available(line->command))
        return unavailable_command(line->command);
    if (msp_args_parse(&args, line, operands, &err) != MSP_OK)
        return msp_cli_usage(line->command, &err);
    msp_messages_start(msp_args_has(&args, MSP_OPT_QUIET), msp_args_has(&args, MSP_OPT_VERBOSE));
    return dispatch_command(line, &args);
}

int
main(int argc, char **argv)
{
    char **words = calloc((size_t)argc + 1, sizeof(*words));
    const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
    msp_exit_code code;
    msp_error err;
    msp_line line;

    if (words == NULL || operands == NULL) {
        free(words);
        free(operands);
        return MSP_EXIT_FAILED;
    }
    msp_line_split(&line, argc, argv, words);
    /* launchers give their processes a terminal, whatever they write to themselves */
    msp_term_init(asks_no_colour(&line) || msp_launcher_size() > 1);
    code = run_line(&line, operands);
    free(words);
    free(operands);
    /* a full disk or a closed pipe behind stdout: what was printed did not arrive */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == MSP_EXIT_OK)
        code = msp_cli_fail(msp_error_set(&err, MSP_E_IO, "cannot write to standard output"), &err);
    return code;
}
