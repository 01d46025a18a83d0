/*
 * cli.h - what the files of the command share: options, commands, the terminal, and the one way out.
 *
 * Every sub-command is one row of a table (main.c) and one table of options (options.c); parsing, help, shell
 * completions and the manual page are all made from those tables. This room sees the public headers only, and is the
 * only one that prints or ends the process.
 */
#ifndef MSP_CLI_CLI_H
#define MSP_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "msprobe/error.h"

#ifndef MSP_VERSION
#define MSP_VERSION "unknown"
#endif

typedef enum msp_exit_code {
    MSP_EXIT_OK = 0,
    MSP_EXIT_FAILED = 1,   /* a run-time error: nothing compared, unreadable input, a rank left out */
    MSP_EXIT_USAGE = 2,    /* wrong usage */
    MSP_EXIT_DIFFERENT = 3 /* --fail-on was given and what it names was found */
} msp_exit_code;

/* ---- options ------------------------------------------------------------------------------------------------- */

typedef enum msp_opt_id {
    MSP_OPT_FRAMEWORK = 0,
    MSP_OPT_HELP,
    MSP_OPT_VERSION,
    MSP_OPT_QUIET,
    MSP_OPT_VERBOSE,
    MSP_OPT_NO_COLOR,
    MSP_OPT_THREADS,
    MSP_OPT_JSON,
    MSP_OPT_INPUT,
    MSP_OPT_OUTPUT,
    MSP_OPT_STACK,
    MSP_OPT_COMPARE_ONLY,
    MSP_OPT_FUZZY,
    MSP_OPT_HIGHLIGHT,
    MSP_OPT_DATA_MAPPING,
    MSP_OPT_LAYOUT,
    MSP_OPT_DIFF_ANALYZE,
    MSP_OPT_CELL_MAPPING,
    MSP_OPT_API_MAPPING,
    MSP_OPT_LAYER_MAPPING,
    MSP_OPT_FORMAT,
    MSP_OPT_FAIL_ON,
    MSP_OPT_SUFFIX,
    MSP_OPT_SHAPE,
    MSP_OPT_CONFIG,
    MSP_OPT_NO_HTML,
    MSP_OPT_NO_REPLAY,
    MSP_OPT_REPLAY_ONLY,
    MSP_OPT_API_INFO,
    MSP_OPT_SAVE_ERROR,
    MSP_OPT_CSV_PATH,
    MSP_OPT_DEVICE,
    MSP_OPT_JIT,
    MSP_OPT_NUM,
    MSP_OPT_NPU,
    MSP_OPT_GPU,
    MSP_OPT_ALL,
    MSP_OPT_TARGET,
    MSP_OPT_GOLDEN,
    MSP_OPT_MODE,
    MSP_OPT_XLSX,
    MSP_OPT_LOG_ROWS,
    MSP_OPT_RANK,
    MSP_OPT_STEP,
    MSP_OPT_COUNT
} msp_opt_id;

typedef enum msp_opt_kind {
    MSP_OPT_FLAG,
    MSP_OPT_VALUE, /* a value must follow */
    MSP_OPT_MAYBE  /* a value may follow: the bare option means its default */
} msp_opt_kind;

/* What a shell offers after the option. */
typedef enum msp_opt_operand {
    MSP_OPERAND_NONE,
    MSP_OPERAND_FILE,
    MSP_OPERAND_DIR,
    MSP_OPERAND_CHOICE
} msp_opt_operand;

typedef struct msp_opt {
    msp_opt_id id;
    msp_opt_kind kind;
    bool original; /* the original tools have it too: it wins when an abbreviation fits several */
    msp_opt_operand operand;
    const char *brief;   /* "-hl", or NULL */
    const char *name;    /* "--highlight" */
    const char *alias;   /* another spelling, "-fm" or "--name", or NULL */
    const char *metavar; /* what help calls the value */
    const char *choices; /* "no,warning,any": the only values there are, or NULL */
    bool many;           /* several choices, separated by commas */
    const char *help;    /* one sentence or two, without line breaks */
} msp_opt;

typedef struct msp_opt_table {
    const msp_opt *opts;
    size_t count;
} msp_opt_table;

/* The value of a flag that was given, and of an MSP_OPT_MAYBE without value: compare the pointer. */
extern const char msp_opt_bare[];

struct msp_command;

typedef struct msp_args {
    const struct msp_command *command; /* NULL: none was named */
    const char *value[MSP_OPT_COUNT];  /* NULL: not given */
    const char **operands;             /* what is no option and no value of one */
    size_t noperands;
} msp_args;

extern const msp_opt_table msp_opts_global;
extern const msp_opt_table msp_opts_compare;
extern const msp_opt_table msp_opts_merge;
extern const msp_opt_table msp_opts_audit;
extern const msp_opt_table msp_opts_diff;
extern const msp_opt_table msp_opts_explain;
extern const msp_opt_table msp_opts_report;
extern const msp_opt_table msp_opts_repro;
extern const msp_opt_table msp_opts_run_ut;
extern const msp_opt_table msp_opts_multi_run_ut;
extern const msp_opt_table msp_opts_overflow_check;
extern const msp_opt_table msp_opts_precision_compare;
extern const msp_opt_table msp_opts_show;
extern const msp_opt_table msp_opts_none; /* the global ones only */

/* A line of argv, split: which command, and its words with the command's name taken out. */
typedef struct msp_line {
    const struct msp_command *command; /* NULL: none was named */
    const char *command_word;          /* as written, also when there is no such command */
    char **words;
    size_t nwords;
    size_t before; /* how many of the words stood before the command's name */
} msp_line;

/*
 * Find the command among the words; options may stand on both sides of it. line->words is argv's memory reordered in
 * words (argc pointers of the caller).
 */
void msp_line_split(msp_line *line, int argc, char **argv, char **words);

/*
 * Parse the words of line with the global options and the command's own. args->operands is operands, room for
 * line->nwords pointers. On wrong usage err says what and what was probably meant, in one line.
 */
MSP_CHECK msp_status msp_args_parse(msp_args *args, const msp_line *line, const char **operands, msp_error *err);

bool msp_args_has(const msp_args *args, msp_opt_id id);

/* The option's value; fallback when it was not given or given without one. */
const char *msp_args_get(const msp_args *args, msp_opt_id id, const char *fallback);

/* The number 1..max that the option has, 0 when it was not given; err, which calls it name, otherwise. */
MSP_CHECK msp_status msp_args_number(int *out, const msp_args *args, msp_opt_id id, const char *name, int max,
                                     msp_error *err);

/*
 * The numbers of the option's list, "0,1", in *out (for free(), NULL: it was not given) and how many in *n; err, which
 * calls the option name, otherwise.
 */
MSP_CHECK msp_status msp_args_numbers(int64_t **out, size_t *n, const msp_args *args, msp_opt_id id, const char *name,
                                      msp_error *err);

/* True when word is one of the comma-separated choices. */
bool msp_choice_has(const char *choices, const char *word, size_t len);

/* ---- commands ------------------------------------------------------------------------------------------------ */

typedef struct msp_command {
    const char *name;
    const char *summary;          /* one line */
    const char *usage;            /* the rest of the usage line after "msprobe <name>" */
    const msp_opt_table *options; /* NULL: this name of the originals is known, but not available */
    size_t max_operands;
    const char *about;   /* a paragraph, lines broken by hand at 78 columns */
    const char *notes;   /* what help and the manual page show after the options: examples, columns, next steps */
    const char *instead; /* for a command that is not available: what there is */
    msp_exit_code (*run)(const msp_args *args);
} msp_command;

extern const msp_command msp_commands[];
extern const size_t msp_command_count;

/* The command with this name, or NULL. */
const msp_command *msp_command_find(const char *name);

/* False for a command of the originals that is known by name only. */
bool msp_command_available(const msp_command *c);

msp_exit_code msp_cmd_audit(const msp_args *args);
msp_exit_code msp_cmd_compare(const msp_args *args);
msp_exit_code msp_cmd_diff(const msp_args *args);
msp_exit_code msp_cmd_explain(const msp_args *args);
msp_exit_code msp_cmd_merge_result(const msp_args *args);
msp_exit_code msp_cmd_parse(const msp_args *args);
msp_exit_code msp_cmd_report(const msp_args *args);
msp_exit_code msp_cmd_repro(const msp_args *args);
msp_exit_code msp_cmd_run_ut(const msp_args *args);
msp_exit_code msp_cmd_run_overflow_check(const msp_args *args);
msp_exit_code msp_cmd_api_precision_compare(const msp_args *args);
msp_exit_code msp_cmd_show(const msp_args *args);
msp_exit_code msp_cmd_write(const msp_args *args);
msp_exit_code msp_cmd_online(const msp_args *args);

/* ---- words --------------------------------------------------------------------------------------------------- */

/* The distance between two words in edits (insert, delete, replace, swap of neighbours), at most limit + 1. */
size_t msp_word_distance(const char *a, const char *b, size_t limit);

/* Keeps the nearest of the words offered to it; one too far to be a slip of the fingers is not kept. */
typedef struct msp_nearest {
    const char *word;
    const char *best; /* NULL: nothing near */
    size_t distance;
} msp_nearest;

void msp_nearest_offer(msp_nearest *n, const char *candidate);

/* ---- help ---------------------------------------------------------------------------------------------------- */

void msp_help_print(FILE *out);
void msp_help_print_command(FILE *out, const msp_command *command);

/* Text for a shell or man: kind is "bash", "zsh", "fish" or "man". False when it is none of these. */
bool msp_generate(FILE *out, const char *kind);

/* ---- the way out --------------------------------------------------------------------------------------------- */

/* Say what failed on stderr and give the exit code that belongs to the status. */
msp_exit_code msp_cli_fail(msp_status status, const msp_error *err);

/* Wrong usage: one line that says what, one with the next command to run. command may be NULL. */
msp_exit_code msp_cli_usage(const msp_command *command, const msp_error *err);

#endif
