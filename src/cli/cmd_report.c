/* cmd_report.c - msprobe report: the page of an earlier comparison. */
#include <stdio.h>
#include "cli.h"
#include "msprobe/report.h"
#include "jsonout.h"
#include "summary_parts.h"

static void
print_result(const msp_report_result *r)
{
    char rows[32], wrong[32];

    putchar('\n');
    print_label(stdout, "Rows");
    printf("%s of %zu table%s, %s beyond the manual's limits\n", msp_format_count(rows, (int64_t)r->rows), r->tables,
           plural_ending((int64_t)r->tables), msp_format_count(wrong, (int64_t)r->wrong));
    if (r->sentence != NULL)
        put_sentence(stdout, "Verdict", msp_summary_style(r->level), r->sentence);
    print_label(stdout, "Written");
    msp_shell_put(stdout, r->path);
    putchar('\n');
}

static void
print_json(const msp_report_result *r)
{
    msp_jsonout j = {stdout, 0, true};

    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_int(&j, "version", 1);
    msp_jsonout_text(&j, "page", r->path);
    msp_jsonout_int(&j, "tables", (int64_t)r->tables);
    msp_jsonout_int(&j, "rows", (int64_t)r->rows);
    msp_jsonout_int(&j, "beyond_limits", (int64_t)r->wrong);
    msp_jsonout_text(&j, "level", r->sentence != NULL ? msp_answer_level_text(r->level) : NULL);
    msp_jsonout_text(&j, "sentence", r->sentence);
    msp_jsonout_close(&j, '}');
    putchar('\n');
}

msp_exit_code
msp_cmd_report(const msp_args *args)
{
    msp_report_options opt = {.output_dir = msp_args_get(args, MSP_OPT_OUTPUT, NULL)};
    msp_report_result result = {0};
    msp_exit_code code = MSP_EXIT_OK;
    msp_error err = {.status = MSP_OK};
    msp_status st;

    if (args->noperands == 0) {
        msp_error_set(&err, MSP_E_INVALID, "of which result? give a table that compare wrote, or the folder of them");
        return msp_cli_usage(args->command, &err);
    }
    opt.result = args->operands[0];
    opt.dump = args->noperands > 1 ? args->operands[1] : NULL;
    st = msp_report_run(&result, &opt, &err);
    if (st != MSP_OK)
        code = msp_cli_fail(st, &err);
    else if (msp_args_has(args, MSP_OPT_JSON))
        print_json(&result);
    else if (!msp_args_has(args, MSP_OPT_QUIET))
        print_result(&result);
    msp_report_result_release(&result);
    return code;
}
