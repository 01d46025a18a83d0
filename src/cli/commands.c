/* commands.c - the table of commands, and what help says about each. */
#include <string.h>
#include "cli.h"

static const char compare_notes[] = "\nExamples\n"
                                    "  msprobe compare npu_dump/step0 gpu_dump/step0 -o out\n"
                                    "      every rank of step 0; results in out/\n"
                                    "  msprobe -f pytorch compare -i compare.json -o out -hl\n"
                                    "      as a compare file says, with suspicious rows in colour\n"
                                    "  msprobe compare npu_dump gpu_dump -da\n"
                                    "      only the first call that differs, over all ranks\n"
                                    "  mpirun -n 8 msprobe compare npu_dump gpu_dump -o out\n"
                                    "      many ranks shared out among 8 processes, on one machine or several\n"
                                    "  msprobe compare a b --json --fail-on no -q\n"
                                    "      for CI: a summary for programs, exit status 3 when the verdict is wrong\n"
                                    "\nThe compare file\n"
                                    "  {\"npu_path\": \"./npu_dump/step0\", \"bench_path\": \"./gpu_dump/step0\"}\n"
                                    "      both a dump.json, both a debug.json, or both a folder\n"
                                    "\nWhat the columns mean\n"
                                    "  Cosine                    1 is the same direction; below 0.99 is suspicious\n"
                                    "  EucDist, MaxAbsErr        distance of the tensors, largest error of an element\n"
                                    "  MaxRelativeErr            largest error of an element, relative to the bench\n"
                                    "  One Thousandth Err Ratio  share of elements with a relative error below 0.001\n"
                                    "  Max diff ... L2norm diff  difference of the statistics, NPU minus bench\n"
                                    "  Accuracy Reached or Not   real data: No when Cosine < 0.99 and MaxAbsErr >\n"
                                    "                            0.001, Cosine < 0.9, MaxAbsErr > 1, or NaN and inf\n"
                                    "                            stand in different places\n"
                                    "  Result                    statistics: Warning when a relative error exceeds\n"
                                    "                            0.5; md5: Pass or Different\n"
                                    "  Err_message               why a row is marked or could not be compared\n"
                                    "\nWhat to do next\n"
                                    "  Rows without partner: -f matches calls whose numbers differ, -dm pairs names.\n"
                                    "  Wrong, and its inputs are equal: that call is the suspect. Dump it with task\n"
                                    "  \"tensor\" on both sides and compare again to see which elements differ.\n"
                                    "  Wrong, and an input differs: look upstream; -da looks over all ranks.\n"
                                    "\nVerdict and table\n"
                                    "  The verdict is the tool's own: it weighs each difference against inputs and\n"
                                    "  rounding; --json, the page, the advisor and --fail-on say the same. The\n"
                                    "  table keeps the manual's limits.\n"
                                    "\nExit status\n"
                                    "  0 compared, whatever the rows say; 1 something could not be: nothing matched,\n"
                                    "  a rank missing or unreadable, a dump.json that is cut off, no tensor file that\n"
                                    "  can be read (the rest is compared and written); 2 wrong usage; 3 --fail-on.\n"
                                    "  Single tensor files that cannot be read are counted, named in Err_message,\n"
                                    "  and meet --fail-on warning.\n";

static const char merge_notes[] = "\nExample\n"
                                  "  msprobe -f pytorch merge_result -i out -o merged -config config.yaml\n"
                                  "\nThe yaml file\n"
                                  "  api:                      which calls; a type, a name, with or without number\n"
                                  "  - Distributed.all_reduce  and direction\n"
                                  "  compare_index:            which columns, one sheet each; without it all\n"
                                  "  - Max diff\n"
                                  "\nWhat the table shows\n"
                                  "  One row per name, one column per rank; empty where a rank has no such row. A\n"
                                  "  value that could not be computed shows both maxima instead: NPU:1  Bench:1.\n";

static const char audit_notes[] = "\nExample\n"
                                  "  msprobe audit npu_dump\n"
                                  "\nExit status\n"
                                  "  0 clean as far as it was recorded; 1 a rank could not be read; 2 wrong usage;\n"
                                  "  3 something was found.\n";

static const char show_notes[] = "\nExamples\n"
                                 "  msprobe show npu_dump/step0/rank0\n"
                                 "      what was recorded, the first NaN and inf with the line of code, calls\n"
                                 "  msprobe show npu_dump\n"
                                 "      the same for all steps and ranks, a line each\n"
                                 "  msprobe show npu_dump/step0/rank0 Functional.softmax.2.forward\n"
                                 "      one call: its tensors with their statistics, and its stack\n"
                                 "  msprobe show dump_tensor_data/Functional.softmax.2.forward.output.0.pt\n"
                                 "      one tensor: statistics, histograms, first values\n"
                                 "\nExit status\n"
                                 "  0 shown; 1 something cannot be read, or there is no such call; 2 wrong usage.\n";

static const char diff_notes[] = "\nExamples\n"
                                 "  msprobe diff npu/softmax.pt gpu/softmax.npy\n"
                                 "  msprobe diff a.safetensors b.safetensors model.layers.0.weight\n"
                                 "\nExit status\n"
                                 "  0 compared, whatever was found; 1 a file cannot be read; 2 wrong usage; 3 what\n"
                                 "  --fail-on names was found.\n";

static const char parse_notes[] = "\nExample\n"
                                  "  msprobe parse npu_dump/tag_v2.3/rank0/api_stack_dump.pkl Torch_relu_0_forward\n";

static const char report_notes[] =
    "\nExample\n"
    "  msprobe report output/compare_result_rank0_20261118120000.xlsx npu_dump/step0/rank0\n";

static const char explain_notes[] =
    "\nExample\n"
    "  msprobe explain npu_dump/step0 gpu_dump/step0 Functional.softmax.2.forward\n"
    "\nWhat it says\n"
    "  Judged        the verdict on each result: what the call adds itself and what it\n"
    "                inherited, or how far the runs are apart, and what is expected\n"
    "  Took, Gave    every input and output: the norm of the difference over that of the\n"
    "                larger side (statistics: the scaled difference), and the worst elements\n"
    "  Comes from    the calls that gave its inputs, and those that take its outputs:\n"
    "                equal type, shape and statistics\n";

static const char repro_notes[] = "\nExample\n"
                                  "  msprobe repro npu_dump/step0/rank0 Functional.softmax.2 -o repro\n"
                                  "  python repro/repro_Functional.softmax.2.py --device npu\n"
                                  "\nExit status\n"
                                  "  0 written; 1 the call cannot be run again (communication, random numbers, inputs\n"
                                  "  that were not recorded), which is said, or no Python with torch; 2 wrong usage.\n";

static const char run_ut_about[] =
    "Run every API that a dump has recorded on the device under test (an NPU, else CUDA,\n"
    "else this CPU) and, in higher precision, on the CPU, forward and backward, and judge\n"
    "the results. Inputs are the recorded tensors or, where only statistics were recorded,\n"
    "made from them. Needs torch: MSPROBE_PYTHON names the interpreter to use.";
static const char run_ut_notes[] =
    "An API that cannot be run again, such as communication, is a row with the reason.\n"
    "Results: accuracy_checking_result_{time}.csv and accuracy_checking_details_{time}.csv.\n\n"
    "Without -api_info, and with is_online in the -config file, it waits for the calls of\n"
    "trainings that run with online_run_ut, on this or another machine: host and port, or\n"
    "nfs_path, rank_list, tls_path. Results are in DIR/step{N}/..._rank{R}.csv then.\n\n"
    "  msprobe -f pytorch run_ut -api_info dump/step0/rank0/dump.json -o out\n"
    "  msprobe -f pytorch run_ut -config online.json -o out\n"
    "  msprobe run_ut -api_info dump.json -csv_path out/accuracy_checking_result_20260101120000.csv\n";
static const char overflow_about[] =
    "Run each API of a dump of task overflow_check again on the device and on the CPU in\n"
    "higher precision. Where both overflow the numbers themselves are too large (normal);\n"
    "where only the device does, the device is at fault (abnormal).";
static const char overflow_notes[] = "  msprobe -f pytorch run_overflow_check -api_info dump.json\n";
static const char versus_about[] =
    "Judge what run_ut measured on one device by what it measured on another, row by row,\n"
    "with the rule of each API: errors relative to the other device's, units in the last\n"
    "place, equal bits, absolute bounds, or the share of elements within 0.1 %.";
static const char versus_notes[] =
    "  msprobe api_precision_compare -npu npu/accuracy_checking_details_20260101120000.csv \\\n"
    "      -gpu gpu/accuracy_checking_details_20260101120000.csv -o out\n";

#define NOT_AVAILABLE(name_, summary_, instead_)                \
    {                                                           \
        .name = name_, .summary = summary_, .instead = instead_ \
    }

const msp_command msp_commands[] = {
    {.name = "compare",
     .summary = "Compare two dumps, call by call.",
     .usage = "msprobe compare NPU BENCH [-o DIR] [options]\n"
              "msprobe -f pytorch|mindspore compare -i compare.json [-o DIR] [options]\n"
              "msprobe compare -tp NPU -gp BENCH [-o DIR] [options]",
     .options = &msp_opts_compare,
     .max_operands = 2,
     .about = "Compare the dumps of two runs of the same model, call by call, and name the\n"
              "first call that goes wrong. NPU is the run under examination, BENCH the one to\n"
              "trust; each is a dump.json, a debug.json, or the folder of a rank, a step or a\n"
              "whole dump. Steps and ranks are found and paired. Dumps of ptdbg_ascend and\n"
              "torch_npu.hooks (a .pkl, a rank's folder, a TAG_vVERSION) are recognised by\n"
              "content and give the tables of those tools, as csv.",
     .notes = compare_notes,
     .run = msp_cmd_compare},
    {.name = "show",
     .summary = "Look at one dump, one call or one tensor file.",
     .usage = "msprobe show DUMP [CALL] [--all] [--json]\n"
              "msprobe show FILE [TENSOR] [--all] [--json]",
     .options = &msp_opts_show,
     .max_operands = 2,
     .about = "Look at what was recorded, without a second run. DUMP is a dump.json, a debug.json,\n"
              "a .pkl of the older tools, or the folder of a rank, a step or a whole dump; CALL is\n"
              "the name of a call or of a tensor of it, or a part of it. FILE is a .pt, .npy or\n"
              ".safetensors; TENSOR is one of those in it.",
     .notes = show_notes,
     .run = msp_cmd_show},
    {.name = "diff",
     .summary = "Compare two tensor files, element by element.",
     .usage = "msprobe diff A B [TENSOR] [--fail-on no|any] [--json]",
     .options = &msp_opts_diff,
     .max_operands = 3,
     .about = "Compare tensor file A with the reference B: the metrics and limits of compare, the\n"
              "first element that differs, the worst ones, and where in the tensor the errors are.\n"
              "Both are .pt, .npy or .safetensors, in any combination. Of files with several\n"
              "tensors those of the same name are compared.",
     .notes = diff_notes,
     .run = msp_cmd_diff},
    {.name = "merge_result",
     .summary = "Collect communication calls of all ranks from compare results in one table.",
     .usage = "msprobe -f pytorch merge_result -i DIR -o DIR -config YAML",
     .options = &msp_opts_merge,
     .about = "Collect the rows of chosen calls, such as the communication between ranks,\n"
              "from the compare results of all ranks into one table: a sheet per metric, a\n"
              "column per rank. Results of md5 dumps have no metrics and are left out.",
     .notes = merge_notes,
     .run = msp_cmd_merge_result},
    {.name = "audit",
     .summary = "Check the collectives of one job, over all its ranks; no second run needed.",
     .usage = "msprobe audit DUMP [--json]",
     .options = &msp_opts_audit,
     .max_operands = 1,
     .about = "Match the communication calls of all ranks by group and order, and check what\n"
              "they mean: all_reduce gives every rank the same bits and the sum of the inputs,\n"
              "all_gather their concatenation, and so on. Names calls that are missing, extra,\n"
              "in another order or of another shape or type, and replicas whose weights part.",
     .notes = audit_notes,
     .run = msp_cmd_audit},
    {.name = "parse",
     .summary = "Show stack and statistics of calls in a .pkl of ptdbg_ascend.",
     .usage = "msprobe parse FILE PREFIX",
     .options = &msp_opts_none,
     .max_operands = 2,
     .about = "Print, in the order of FILE, the stack and the statistics of every call whose\n"
              "name begins with PREFIX. FILE is a .pkl that ptdbg_ascend wrote: text, one JSON\n"
              "array per line. A real Python pickle is refused and never loaded.",
     .notes = parse_notes,
     .run = msp_cmd_parse},
    {.name = "report",
     .summary = "Make the HTML page of an earlier comparison.",
     .usage = "msprobe report RESULT [DUMP] [-o DIR]",
     .options = &msp_opts_report,
     .max_operands = 2,
     .about = "Make the page that 'msprobe compare' writes by itself from tables that it, or the\n"
              "original tools, wrote earlier. RESULT is a compare_result_*.xlsx, .csv or .json, or\n"
              "the folder with one for each rank. DUMP, the NPU side's dump.json or the folder of its\n"
              "rank or step, adds stacks and the model's tree. Pictures of single elements need the\n"
              "tensors: compare again for those.",
     .notes = report_notes,
     .run = msp_cmd_report},
    {.name = "explain",
     .summary = "Everything that two dumps know of one call.",
     .usage = "msprobe explain NPU BENCH CALL [-f] [--no-replay] [--json]",
     .options = &msp_opts_explain,
     .max_operands = 3,
     .about = "Compare two dumps and tell all about one call: the errors of its inputs and outputs,\n"
              "what it adds and what it inherited, what is expected of such a call, how the errors\n"
              "lie, the worst elements, its stack, and its neighbours up and down the data flow.\n"
              "Nothing is written. The name may be a part that only one call has.",
     .notes = explain_notes,
     .run = msp_cmd_explain},
    {.name = "repro",
     .summary = "Write one recorded call as a script that anybody can run.",
     .usage = "msprobe repro DUMP CALL -o DIR",
     .options = &msp_opts_repro,
     .max_operands = 2,
     .about = "Write a call and its recorded tensors as a Python script of its own, for a bug report\n"
              "to the authors of a kernel: it needs PyTorch and nothing of msprobe, runs the call on\n"
              "any device, forward and backward, and prints how far the results, and those that\n"
              "were recorded, are from float64. Needs torch here too: MSPROBE_PYTHON names the\n"
              "interpreter to use.",
     .notes = repro_notes,
     .run = msp_cmd_repro},
    {.name = "run_ut",
     .summary = "Run each API of a dump again and check its accuracy.",
     .usage = "msprobe run_ut -api_info dump.json [-o DIR] [options]\n"
              "msprobe run_ut -config online.json [-o DIR] [options]",
     .options = &msp_opts_run_ut,
     .max_operands = 64,
     .about = run_ut_about,
     .notes = run_ut_notes,
     .run = msp_cmd_run_ut},
    {.name = "multi_run_ut",
     .summary = "run_ut with a choice of how many processes.",
     .usage = "msprobe multi_run_ut -api_info dump.json [-o DIR] [options]\n"
              "msprobe multi_run_ut -config online.json [-o DIR] [options]",
     .options = &msp_opts_multi_run_ut,
     .max_operands = 64,
     .about = run_ut_about,
     .notes = run_ut_notes,
     .run = msp_cmd_run_ut},
    {.name = "acc_check",
     .summary = "The newer name of run_ut.",
     .usage = "msprobe acc_check -api_info dump.json [-o DIR] [options]\n"
              "msprobe acc_check -config online.json [-o DIR] [options]",
     .options = &msp_opts_run_ut,
     .max_operands = 64,
     .about = run_ut_about,
     .notes = run_ut_notes,
     .run = msp_cmd_run_ut},
    {.name = "multi_acc_check",
     .summary = "The newer name of multi_run_ut.",
     .usage = "msprobe multi_acc_check -api_info dump.json [-o DIR] [options]\n"
              "msprobe multi_acc_check -config online.json [-o DIR] [options]",
     .options = &msp_opts_multi_run_ut,
     .max_operands = 64,
     .about = run_ut_about,
     .notes = run_ut_notes,
     .run = msp_cmd_run_ut},
    {.name = "api_precision_compare",
     .summary = "Judge the details of run_ut by those of another device.",
     .usage = "msprobe api_precision_compare -npu DETAILS.csv -gpu DETAILS.csv [-o DIR]",
     .options = &msp_opts_precision_compare,
     .max_operands = 0,
     .about = versus_about,
     .notes = versus_notes,
     .run = msp_cmd_api_precision_compare},
    {.name = "run_overflow_check",
     .summary = "Say which overflows of a dump are the numbers' own.",
     .usage = "msprobe run_overflow_check -api_info dump.json [-d ID]",
     .options = &msp_opts_overflow_check,
     .max_operands = 64,
     .about = overflow_about,
     .notes = overflow_notes,
     .run = msp_cmd_run_overflow_check},
    NOT_AVAILABLE("code_mapping", "map graph nodes to code lines", "'msprobe show DUMP CALL' shows each call's stack"),
    NOT_AVAILABLE("graph", "show the model as a graph",
                  "'msprobe compare NPU BENCH' writes a page with the model's tree"),
    NOT_AVAILABLE("op_generate", "write a script for one API",
                  "'msprobe repro DUMP CALL -o DIR' writes a recorded call as a script"),
    NOT_AVAILABLE("config_check", "compare environments and checkpoints",
                  "'msprobe diff A B' compares two checkpoints tensor by tensor"),
    NOT_AVAILABLE("nan_analyze", "find the first NaN over all ranks",
                  "'msprobe show DUMP' names the first NaN and inf of each rank"),
    /* msprobe 26's */
    NOT_AVAILABLE("graph_visualize", "show the model as a graph",
                  "'msprobe compare NPU BENCH' writes a page with the model's tree"),
    NOT_AVAILABLE("data2db", "put dumps into a database", "'msprobe show DUMP --json' prints a dump for programs"),
    NOT_AVAILABLE("offline_dump", "dump an offline model's inference", "training is recorded by PrecisionDebugger"),
    NOT_AVAILABLE("install_deps", "install what tools of CANN need", "msprobe needs nothing more than itself"),
};

const size_t msp_command_count = sizeof(msp_commands) / sizeof(msp_commands[0]);

const msp_command *
msp_command_find(const char *name)
{
    for (size_t i = 0; i < msp_command_count; i++)
        if (strcmp(msp_commands[i].name, name) == 0)
            return &msp_commands[i];
    return NULL;
}

bool
msp_command_available(const msp_command *c)
{
    return c->options != NULL;
}
