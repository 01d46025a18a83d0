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
    FLAG(MSP_OPT_VERSION, false, "-V", "--version", "Show the version and leave."),
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
    {.id = MSP_OPT_FUZZY,
     .kind = MSP_OPT_FLAG,
     .original = true,
     .brief = "-f",
     .name = "--fuzzy_match",
     .alias = "-fm",
     .help = "Match APIs whose names differ in the number of the call only. Followed by pytorch or mindspore, -f means "
             "--framework. -fm is the same, as msprobe 26 spells it."},
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
    {.id = MSP_OPT_LAYOUT,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_FILE,
     .name = "--layout",
     .metavar = "YAML",
     .help = "Runs with unequal parallelism: how the parts of tensors on several ranks make the whole, which is then "
             "compared. \"records\": as DTensors say it themselves; \"auto\": proposed from shapes and statistics, "
             "and written to layout_{time}.yaml."},
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
    FLAG(MSP_OPT_NO_REPLAY, false, NULL, "--no-replay",
         "Do not run calls again for the verdict. Without it calls that differ are, in higher precision, where both "
         "dumps hold tensors and Python has torch."),
    {.id = MSP_OPT_REPLAY_ONLY,
     .kind = MSP_OPT_VALUE,
     .name = "--replay-only",
     .metavar = "NAME",
     .help = "Run only this call again, such as Functional.linear.3; several with commas."},
    {.id = MSP_OPT_FAIL_ON,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--fail-on",
     .metavar = "WHAT",
     .choices = "no,warning,any",
     .help = "For CI, exit with 3 when the verdict is wrong (no); also when something could not be judged: another "
             "shape, a file that cannot be read (warning); also when a row has no partner (any)."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the summary as JSON."),
    {.id = MSP_OPT_SUFFIX,
     .kind = MSP_OPT_VALUE,
     .name = "--suffix",
     .metavar = "TEXT",
     .help = "Dumps of ptdbg_ascend and torch_npu.hooks: a mark in the table's name, compare_result_TEXT_{time}.csv."},
    FLAG(MSP_OPT_SHAPE, false, NULL, "--shape",
         "Dumps of torch_npu.hooks: operators match only where their types and shapes agree."),
    {.id = MSP_OPT_TARGET,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_FILE,
     .brief = "-tp",
     .name = "--target_path",
     .metavar = "NPU",
     .help = "The same as the first path, as msprobe 26 spells it. The table is csv then, as there."},
    {.id = MSP_OPT_GOLDEN,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_FILE,
     .brief = "-gp",
     .name = "--golden_path",
     .metavar = "BENCH",
     .help = "The same as the second path, as msprobe 26 spells it."},
    FLAG(MSP_OPT_XLSX, false, NULL, "--xlsx", "The same as --format xlsx, as msprobe 26 spells it."),
    FLAG(MSP_OPT_LOG_ROWS, false, "-tensor_log", "--is_print_compare_log",
         "Print a line for each row that is compared, as -v does."),
    {.id = MSP_OPT_MODE,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .brief = "-m",
     .name = "--mode",
     .metavar = "MODE",
     .choices = "auto",
     .help = "Accepted for scripts of msprobe 26: dumps are told apart by what is in them."},
    {.id = MSP_OPT_RANK,
     .kind = MSP_OPT_VALUE,
     .name = "--rank",
     .metavar = "LIST",
     .help = "MindSpore's static graphs: which ranks, such as 0,1. Without it all of them."},
    {.id = MSP_OPT_STEP,
     .kind = MSP_OPT_VALUE,
     .name = "--step",
     .metavar = "LIST",
     .help = "MindSpore's static graphs: which steps."},
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
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print where the page is, and the verdict, as JSON."),
};

static const msp_opt explain_options[] = {
    FLAG(MSP_OPT_FUZZY, true, "-f", "--fuzzy_match", "Match calls whose names differ in their number, as in compare."),
    FLAG(MSP_OPT_NO_REPLAY, false, NULL, "--no-replay", "Do not run calls again for the verdict, as in compare."),
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print all of it as JSON."),
};

static const msp_opt repro_options[] = {
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--output_dir",
     .metavar = "DIR",
     .help = "Where the script and its tensors go; made when it is not there."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the names of both files as JSON."),
};

static const msp_opt audit_options[] = {
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the findings as JSON."),
};

static const msp_opt show_options[] = {
    FLAG(MSP_OPT_ALL, false, NULL, "--all", "List every call or tensor, not only the first ones."),
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print everything as JSON; docs/schema describes it."),
};

static const msp_opt diff_options[] = {
    FLAG(MSP_OPT_ALL, false, NULL, "--all", "Files of many tensors: list all of them."),
    {.id = MSP_OPT_FAIL_ON,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--fail-on",
     .metavar = "WHAT",
     .choices = "no,any",
     .help = "Exit with 3 when a tensor is No by the limits of compare, of another shape, or NaN or inf on one side "
             "only (no); when anything differs at all (any)."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print everything as JSON; docs/schema describes it."),
};

/*
 * Three commands run the APIs of a dump again: run_overflow_check has the first three options, run_ut all but the last,
 * multi_run_ut all.
 */
static const msp_opt run_ut_options[] = {
    {.id = MSP_OPT_API_INFO,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-api_info",
     .name = "--api_info_file",
     .metavar = "dump.json",
     .help = "The dump whose APIs are run again: level L1 or mix, task statistics or tensor."},
    {.id = MSP_OPT_DEVICE,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .brief = "-d",
     .name = "--device",
     .metavar = "ID",
     .help = "Which devices, such as -d 0 1. An NPU where there is one, else CUDA, else this CPU. Default: 0."},
    FLAG(MSP_OPT_JIT, true, "-j", "--jit_compile",
         "Accepted for scripts that have it; kernels are run as torch runs them."),
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--out_path",
     .metavar = "DIR",
     .help = "Where the two csv files go. Default: the folder you are in."},
    FLAG(MSP_OPT_SAVE_ERROR, true, "-save_error_data", "--save_error_data",
         "Save inputs and results of APIs with errors as .pt files, in ut_error_data{time} there."),
    {.id = MSP_OPT_CSV_PATH,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-csv_path",
     .name = "--result_csv_path",
     .metavar = "RESULT.csv",
     .help = "Go on where an earlier run stopped: its accuracy_checking_result_{time}.csv."},
    FLAG(MSP_OPT_FUZZY, true, "-f", "--filter_api", "Leave out calls that are like an earlier one of the same API."),
    {.id = MSP_OPT_CONFIG,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-config",
     .name = "--config_path",
     .metavar = "JSON",
     .help = "White and black list: the keys white_list, black_list and error_data_path, at the top or in run_ut."},
    {.id = MSP_OPT_FAIL_ON,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--fail-on",
     .metavar = "WHAT",
     .choices = "error,warning",
     .help = "For CI, exit with 3 when an API has an error (error), or a warning too (warning)."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the summary as JSON."),
    {.id = MSP_OPT_NUM,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .brief = "-n",
     .name = "--num_splits",
     .metavar = "N",
     .help = "How many processes, 1 to 64. Default: one per processor."},
};

static const msp_opt precision_compare_options[] = {
    {.id = MSP_OPT_NPU,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-npu",
     .name = "--npu_csv_path",
     .metavar = "DETAILS.csv",
     .help = "accuracy_checking_details_{time}.csv of the examined device."},
    {.id = MSP_OPT_GPU,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_FILE,
     .brief = "-gpu",
     .name = "--gpu_csv_path",
     .metavar = "DETAILS.csv",
     .help = "That of the device to trust."},
    {.id = MSP_OPT_OUTPUT,
     .kind = MSP_OPT_VALUE,
     .original = true,
     .operand = MSP_OPERAND_DIR,
     .brief = "-o",
     .name = "--out_path",
     .metavar = "DIR",
     .help = "Where the two csv files go. Default: the folder you are in."},
    {.id = MSP_OPT_FAIL_ON,
     .kind = MSP_OPT_VALUE,
     .operand = MSP_OPERAND_CHOICE,
     .name = "--fail-on",
     .metavar = "WHAT",
     .choices = "error",
     .help = "For CI, exit with 3 when an API has an error."},
    FLAG(MSP_OPT_JSON, false, NULL, "--json", "Print the summary as JSON."),
};

#define COUNT(a) (sizeof(a) / sizeof(a[0]))
#define TABLE(a)    \
    {               \
        a, COUNT(a) \
    }

const msp_opt_table msp_opts_global = TABLE(global_options);
const msp_opt_table msp_opts_compare = TABLE(compare_options);
const msp_opt_table msp_opts_merge = TABLE(merge_options);
const msp_opt_table msp_opts_report = TABLE(report_options);
const msp_opt_table msp_opts_audit = TABLE(audit_options);
const msp_opt_table msp_opts_diff = TABLE(diff_options);
const msp_opt_table msp_opts_explain = TABLE(explain_options);
const msp_opt_table msp_opts_repro = TABLE(repro_options);
const msp_opt_table msp_opts_show = TABLE(show_options);
const msp_opt_table msp_opts_run_ut = {run_ut_options, COUNT(run_ut_options) - 1};
const msp_opt_table msp_opts_multi_run_ut = TABLE(run_ut_options);
const msp_opt_table msp_opts_overflow_check = {run_ut_options, 3};
const msp_opt_table msp_opts_precision_compare = TABLE(precision_compare_options);
const msp_opt_table msp_opts_none = {NULL, 0};
