/*
 * tables.c - every option of every command. Parsing, help, completions and the manual page are made from these tables.
 */
#include "cli.h"

#define FLAG(id_, orig_, brief_, name_, help_)                                                            \
    {                                                                                                     \
        .id = id_, .kind = MSP_OPT_FLAG, .original = orig_, .brief = brief_, .name = name_, .help = help_ \
    }

const char msp_opt_bare[] = "";

static const msp_opt global_options[] = {
    {.id = MSP_OPT_FRAMEWORK,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .brief = "-f",
     .name = "--framework",
     .metavar = "NAME",
     .choices = "pytorch,mindspore",
     .help = "Framework of the examined run. Without it the dump itself says which one it is."},
    FLAG(MSP_OPT_HELP, true, "-h", "--help", "Show help and leave."),
    FLAG(MSP_OPT_VERSION, false, NULL, "--version", "Show the version and leave."),
    FLAG(MSP_OPT_QUIET, false, "-q", "--quiet", "Print errors and warnings only."),
    FLAG(MSP_OPT_VERBOSE, false, "-v", "--verbose", "Print what is being done, row by row."),
    FLAG(MSP_OPT_NO_COLOR, false, NULL, "--no-color", "No colours (NO_COLOR and CLICOLOR are honoured too)."),
    {.id = MSP_OPT_THREADS,
     .kind = MSP_OPT_VALUE,
     .name = "--threads",
     .metavar = "N",
     .help = "Use at most N threads. Default: one per processor."},
};

static const msp_opt compare_options[] = {
    {.id = MSP_OPT_INPUT,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-i",
     .name = "--input_path",
     .metavar = "compare.json",
     .help = "The compare file: npu_path, bench_path and, where wanted, stack_path and is_print_compare_log."},
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_MAYBE,
     .original = true,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--output_path",
     .metavar = "DIR",
     .help = "Where the results go; made when it is not there. Default: ./output."},
    FLAG(MSP_OPT_STACK, true, "-s", "--stack_mode",
         "Show the call stack of each API. Needed only when the compare file has stack_path; otherwise a stack.json "
         "beside the dump is found by itself."),
    FLAG(MSP_OPT_COMPARE_ONLY, true, "-c", "--compare_only", "Write the table only, no advisor file."),
    FLAG(MSP_OPT_FUZZY, true, "-f", "--fuzzy_match",
         "Match APIs whose names differ in the number of the call only. Followed by pytorch or mindspore, -f means "
         "--framework."),
    FLAG(MSP_OPT_HIGHLIGHT, true, "-hl", "--highlight",
         "Mark suspicious rows red or yellow, with the reason in Err_message."),
    {.id = MSP_OPT_DATA_MAPPING,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-dm",
     .name = "--data_mapping",
     .metavar = "YAML",
     .help = "Pairs of names that belong together, for APIs and modules that do not match by themselves."},
    FLAG(MSP_OPT_DIFF_ANALYZE, true, "-da", "--diff_analyze",
         "Find the first call that differs, over all ranks; writes compare_result_*.json and diff_analyze_*.json."),
    {.id = MSP_OPT_CELL_MAPPING,
     .kind = MSP_OPT_MAYBE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-cm",
     .name = "--cell_mapping",
     .metavar = "YAML",
     .help = "MindSpore against PyTorch: compare cells with modules; the yaml names classes that differ."},
    {.id = MSP_OPT_API_MAPPING,
     .kind = MSP_OPT_MAYBE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-am",
     .name = "--api_mapping",
     .metavar = "YAML",
     .help = "MindSpore against PyTorch: compare APIs by the built-in table; the yaml adds to it."},
    {.id = MSP_OPT_LAYER_MAPPING,
     .kind = MSP_OPT_MAYBE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-lm",
     .name = "--layer_mapping",
     .metavar = "YAML",
     .help = "MindSpore against PyTorch: compare by the layer a call stands in; the yaml names layers that differ."},
    {.id = MSP_OPT_FORMAT,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--format",
     .metavar = "LIST",
     .choices = "xlsx,csv,json",
     .many = true,
     .help = "Result files to write: xlsx, csv, json, or several with commas. Default: xlsx; for dumps of "
             "ptdbg_ascend and torch_npu.hooks csv."},
    FLAG(MSP_OPT_NO_HTML, false, NULL, "--no-html", "Do not write the page, compare_result_{time}.html."),
    {.id = MSP_OPT_FAIL_ON,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--fail-on",
     .metavar = "WHAT",
     .choices = "no,warning,any",
     .help = "For CI, exit with 3 when there is a row No or Different (no); also when one is Warning, marked or of "
             "another shape (warning); also when one has no partner (any)."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the summary as JSON."),
    {.id = MSP_OPT_SUFFIX,
     .kind = MSP_OPT_VALUE,
     .name = "--suffix",
     .metavar = "TEXT",
     .help = "Dumps of ptdbg_ascend and torch_npu.hooks: a mark in the table's name, compare_result_TEXT_{time}.csv."},
    FLAG(MSP_OPT_SHAPE, false, NULL, "--shape",
         "Dumps of torch_npu.hooks: operators match only where their types and shapes agree."),
};

static const msp_opt merge_options[] = {
    {.id = MSP_OPT_INPUT,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_DIR,
     .brief = "-i",
     .name = "--input_dir",
     .metavar = "DIR",
     .help = "The output directory of a comparison over several ranks."},
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--output_dir",
     .metavar = "DIR",
     .help = "Where multi_ranks_compare_merge_{time}.xlsx goes."},
    {.id = MSP_OPT_CONFIG,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-config",
     .name = "--config-path",
     .metavar = "YAML",
     .help = "Which APIs and which columns: the keys api and compare_index."},
};

static const msp_opt report_options[] = {
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--output_dir",
     .metavar = "DIR",
     .help = "Where the page goes. Default: beside the result."},
};

#define TABLE(a)                    \
    {                               \
        a, sizeof(a) / sizeof(a[0]) \
    }

const msp_opt_table msp_opts_global = TABLE(global_options);
const msp_opt_table msp_opts_compare = TABLE(compare_options);
const msp_opt_table msp_opts_merge = TABLE(merge_options);
const msp_opt_table msp_opts_report = TABLE(report_options);
const msp_opt_table msp_opts_none = {NULL, 0};
