/* cmd_merge_result.c - msprobe merge_result: the results of all ranks in one workbook. */
#include "cli.h"
#include "jsonout.h"
#include "messages.h"
#include "progress.h"
#include "shell.h"
#include "terminal.h"
#include "msprobe/merge.h"

enum { MAX_THREADS = 1024 };

static msp_status
check_usage(const msp_args *args, msp_error *err)
{
    static const struct {
        msp_opt_id id;
        const char *usage, *what;
    } needed[] = {{MSP_OPT_INPUT, "-i DIR", "the output directory of a comparison"},
                  {MSP_OPT_OUTPUT, "-o DIR", "where the result goes"},
                  {MSP_OPT_CONFIG, "-config YAML", "which APIs and which columns"}};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!msp_args_has(args, needed[i].id))
            return msp_error_set(err, MSP_E_INVALID, "%s is missing: %s", needed[i].usage, needed[i].what);
    return MSP_OK;
}

static void
print_result(const msp_merge_result *r)
{
    char rows[32];

    printf("\n  %s row%s, %zu rank%s, %zu sheet%s", msp_format_count(rows, (int64_t)r->rows), r->rows == 1 ? "" : "s",
           r->ranks, r->ranks == 1 ? "" : "s", r->metrics, r->metrics == 1 ? "" : "s");
    if (r->left_out + r->failed > 0) {
        fputs(", ", stdout);
        msp_term_put(stdout, MSP_STYLE_RED, "%zu rank%s left out", r->left_out + r->failed,
                     r->left_out + r->failed == 1 ? "" : "s");
    }
    fputs("\n  Written  ", stdout);
    msp_shell_put(stdout, r->path);
    fputc('\n', stdout);
}

msp_exit_code
msp_cmd_merge_result(const msp_args *args)
{
    msp_merge_options opt = {.input_dir = msp_args_get(args, MSP_OPT_INPUT, NULL),
                             .output_dir = msp_args_get(args, MSP_OPT_OUTPUT, NULL),
                             .config_path = msp_args_get(args, MSP_OPT_CONFIG, NULL)};
    msp_merge_result result = {0};
    msp_exit_code code = MSP_EXIT_OK;
    msp_status st;
    msp_error err;

    if (check_usage(args, &err) != MSP_OK ||
        msp_args_number(&opt.threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, &err) != MSP_OK)
        return msp_cli_usage(args->command, &err);
    st = msp_merge_run(&result, &opt, &err);
    if (st != MSP_OK)
        code = msp_cli_fail(st, &err);
    else if (!msp_args_has(args, MSP_OPT_QUIET))
        print_result(&result);
    /* the ranks were named in warnings */
    if (result.failed > 0)
        code = MSP_EXIT_FAILED;
    msp_merge_result_release(&result);
    return code;
}
