/* cmd_audit.c - msprobe audit: one dump of a job, checked against what its collectives mean. */
#include <stdlib.h>
#include "cli.h"
#include "jsonout.h"
#include "msprobe/audit.h"
#include "terminal.h"

enum { MAX_THREADS = 1024, MAX_FRAMES = 8, MAX_LINES = 40 };

static void
put_line(FILE *out, msp_style style, const char *text)
{
    char safe[1024];

    msp_term_put(out, style, "%s", msp_text_safe(safe, sizeof(safe), text));
}

static void
print_finding(const msp_audit_finding *f, bool whole)
{
    if (f->step != MSP_DUMP_NO_NUMBER)
        printf("  step %lld ", (long long)f->step);
    else
        fputs("  ", stdout);
    printf("%-8s ", msp_audit_kind_text(f->kind));
    put_line(stdout, whole ? MSP_STYLE_RED : MSP_STYLE_PLAIN, f->what);
    fputc('\n', stdout);
    if (f->call[0] != '\0') {
        fputs("      call   ", stdout);
        put_line(stdout, MSP_STYLE_PLAIN, f->call);
        fputc('\n', stdout);
    }
    if (f->group[0] != '\0' && whole) {
        fputs("      group  ", stdout);
        put_line(stdout, MSP_STYLE_PLAIN, f->group);
        fputc('\n', stdout);
    }
    for (size_t i = 0; i < f->nstack && i < (whole ? MAX_FRAMES : 1); i++) {
        fputs("      ", stdout);
        put_line(stdout, MSP_STYLE_DIM, f->stack[i]);
        fputc('\n', stdout);
    }
}

static void
print_result(const msp_audit_result *r, bool is_whole)
{
    printf("\n  %zu step%s, %zu rank%s, %zu group%s, %lld communication calls\n", r->steps, r->steps == 1 ? "" : "s",
           r->ranks, r->ranks == 1 ? "" : "s", r->groups, r->groups == 1 ? "" : "s", (long long)r->calls);
    printf("  %lld matched: %lld checked by tensors, %lld by statistics, %lld by checksums, %lld not\n",
           (long long)r->matched, (long long)r->by_tensors, (long long)r->by_statistics, (long long)r->by_checksums,
           (long long)r->unchecked);
    if (r->weights == 0)
        puts("  No weights were compared between replicas: none are recorded, or no two ranks hold the same.");
    else
        printf("  %lld weights and %lld gradients compared between replicas\n", (long long)r->weights,
               (long long)r->gradients);
    if (r->replicated > 0)
        printf("  %lld replicated DTensors compared between the ranks that hold them\n", (long long)r->replicated);
    if (!r->has_order && r->calls > 0)
        puts("  The dump does not say the group of each call: a call without the argument is of all ranks.");
    if (r->nfindings == 0) {
        fputs("\n  ", stdout);
        if (is_whole)
            msp_term_put(stdout, MSP_STYLE_GREEN, "Clean.");
        else
            fputs("Nothing was found in what could be read.", stdout);
        fputc('\n', stdout);
        return;
    }
    printf("\n  %zu finding%s, the first:\n", r->nfindings, r->nfindings == 1 ? "" : "s");
    print_finding(&r->findings[0], true);
    if (r->nfindings > 1)
        puts("\n  then:");
    for (size_t i = 1; i < r->nfindings && i <= MAX_LINES; i++)
        print_finding(&r->findings[i], false);
    if (r->nfindings > MAX_LINES + 1)
        printf("  ... and %zu more (--json has all)\n", r->nfindings - MAX_LINES - 1);
}

static void
print_json(const msp_audit_result *r)
{
    msp_jsonout j = {.out = stdout, .first = true};

    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_int(&j, "steps", (int64_t)r->steps);
    msp_jsonout_int(&j, "ranks", (int64_t)r->ranks);
    msp_jsonout_int(&j, "groups", (int64_t)r->groups);
    msp_jsonout_int(&j, "calls", r->calls);
    msp_jsonout_int(&j, "matched", r->matched);
    msp_jsonout_int(&j, "by_tensors", r->by_tensors);
    msp_jsonout_int(&j, "by_statistics", r->by_statistics);
    msp_jsonout_int(&j, "by_checksums", r->by_checksums);
    msp_jsonout_int(&j, "unchecked", r->unchecked);
    msp_jsonout_int(&j, "weights", r->weights);
    msp_jsonout_int(&j, "gradients", r->gradients);
    msp_jsonout_int(&j, "replicated", r->replicated);
    msp_jsonout_bool(&j, "has_order", r->has_order);
    msp_jsonout_open(&j, "findings", '[');
    for (size_t i = 0; i < r->nfindings; i++) {
        const msp_audit_finding *f = &r->findings[i];

        msp_jsonout_open(&j, NULL, '{');
        msp_jsonout_text(&j, "kind", msp_audit_kind_text(f->kind));
        msp_jsonout_int(&j, "step", f->step);
        msp_jsonout_int(&j, "rank", f->rank);
        msp_jsonout_text(&j, "call", f->call);
        msp_jsonout_text(&j, "group", f->group);
        msp_jsonout_text(&j, "what", f->what);
        msp_jsonout_open(&j, "stack", '[');
        for (size_t k = 0; k < f->nstack; k++)
            msp_jsonout_text(&j, NULL, f->stack[k]);
        msp_jsonout_close(&j, ']');
        msp_jsonout_close(&j, '}');
    }
    msp_jsonout_close(&j, ']');
    msp_jsonout_close(&j, '}');
    fputc('\n', stdout);
}

msp_exit_code
msp_cmd_audit(const msp_args *args)
{
    msp_audit_options opt = {.path = args->noperands > 0 ? args->operands[0] : NULL};
    msp_audit_result result = {0};
    msp_exit_code code = MSP_EXIT_OK;
    msp_status st;
    msp_error err;

    if (opt.path == NULL)
        st =
            msp_error_set(&err, MSP_E_INVALID, "DUMP is missing: the dump of a job, or the folder of one of its steps");
    else
        st = msp_args_number(&opt.threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, &err);
    if (st != MSP_OK)
        return msp_cli_usage(args->command, &err);
    st = msp_audit_run(&result, &opt, &err);
    if (st == MSP_OK || result.ranks > 0) {
        if (msp_args_has(args, MSP_OPT_JSON))
            print_json(&result);
        else if (!msp_args_has(args, MSP_OPT_QUIET))
            print_result(&result, st == MSP_OK);
        code = result.nfindings > 0 ? MSP_EXIT_DIFFERENT : MSP_EXIT_OK;
    }
    if (st != MSP_OK)
        code = msp_cli_fail(st, &err);
    msp_audit_result_release(&result);
    return code;
}
