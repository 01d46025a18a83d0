/* cmd_explain.c - msprobe explain: everything that two dumps know of one call. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli.h"
#include "find_call.h"
#include "jsonout.h"
#include "messages.h"
#include "replay.h"
#include "summary_parts.h"

enum { MAX_THREADS = 1024 };

/* ---- for a person ------------------------------------------------------------------------------------------------ */

/* "3.1e-05", or "-" where it is not known. */
static const char *
short_number(char buf[32], double v)
{
    if (isnan(v))
        return "-";
    snprintf(buf, 32, "%.3g", v);
    return buf;
}

/* The page's words: what the call adds is wrong, or what it took was already, or neither. */
static const char *
word_of(const msp_verdict_result *r)
{
    double inherited = isnan(r->local) ? r->diff_in : r->inherited;

    if (r->not_judged != NULL)
        return "not judged";
    if (r->ratio > 1)
        return "wrong";
    return inherited > r->expected && r->diff_out > r->expected ? "inherited" : "fine";
}

static void
put_result(FILE *out, const msp_verdict_result *r, bool first)
{
    char a[32], b[32], c[32], d[32], text[600];

    if (r->not_judged != NULL) {
        snprintf(text, sizeof(text), "%s: not judged: %s", r->at, r->not_judged);
    } else if (!isnan(r->local)) {
        snprintf(text, sizeof(text),
                 "%s: this call adds %s (in the bench %s), it inherited %s; %s is expected of such a call: %s", r->at,
                 short_number(a, r->local), short_number(b, r->local_bench), short_number(c, r->inherited),
                 short_number(d, r->expected), word_of(r));
    } else {
        snprintf(text, sizeof(text), "%s: differs by %s, its inputs by %s; rounding explains %s: %s", r->at,
                 short_number(a, r->diff_out), short_number(b, r->diff_in), short_number(c, r->expected), word_of(r));
    }
    put_sentence(out, first ? "Judged" : "", r->ratio > 1 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, text);
    if (r->nonfinite)
        put_sentence(out, "", MSP_STYLE_RED, "NaN or inf on one side only");
    if (r->shape_text != NULL)
        put_sentence(out, "", MSP_STYLE_PLAIN, r->shape_text);
    if (r->note != NULL)
        put_sentence(out, "", MSP_STYLE_PLAIN, r->note);
}

static void
put_plain(FILE *out, const msp_explained_row *r)
{
    const char *n = r->about.stats[0][0], *b = r->about.stats[1][0];

    if (n == NULL || b == NULL)
        fputs("a plain value", out);
    else if (strcmp(n, b) == 0)
        put_safe(out, MSP_STYLE_PLAIN, n);
    else {
        fputs("NPU ", out);
        put_safe(out, MSP_STYLE_YELLOW, n);
        fputs(", bench ", out);
        put_safe(out, MSP_STYLE_YELLOW, b);
    }
}

static void
put_elements(FILE *out, const msp_explained_row *r)
{
    for (size_t i = 0; i < r->nworst; i++) {
        print_label(out, "");
        fputs("  [", out);
        for (int32_t k = 0; k < r->ndim; k++)
            fprintf(out, "%s%lld", k > 0 ? ", " : "", (long long)r->worst[i].coords[k]);
        fprintf(out, "]: NPU %s, bench %s\n", r->worst[i].value[0], r->worst[i].value[1]);
    }
}

static bool
has_partner(const msp_explained_row *r)
{
    return r->about.bench_name != NULL && strcmp(r->about.bench_name, "N/A") != 0;
}

static void
put_row(FILE *out, const msp_compare_pair *p, const msp_explained_row *r, bool first)
{
    const msp_compare_suspect *s = &r->about;
    char a[32];

    print_label(out, first ? r->is_input ? "Took" : "Gave" : "");
    put_safe(out, MSP_STYLE_BOLD, r->at);
    fputs(": ", out);
    if (r->is_plain) {
        put_plain(out, r);
        fputc('\n', out);
        return;
    }
    put_safe(out, MSP_STYLE_PLAIN, s->dtype[0]);
    fputc(' ', out);
    put_safe(out, MSP_STYLE_PLAIN, s->shape[0]);
    if (has_partner(r) && strcmp(s->dtype[0], s->dtype[1]) != 0) {
        fputs(" (bench ", out);
        put_safe(out, MSP_STYLE_YELLOW, s->dtype[1]);
        fputc(')', out);
    }
    if (!has_partner(r))
        msp_term_put(out, MSP_STYLE_YELLOW, ", no partner");
    else if (s->error == 0)
        fputs(p->mode == MSP_MODE_REAL ? ", equal to the bit" : ", equal", out);
    else if (p->mode == MSP_MODE_MD5)
        msp_term_put(out, MSP_STYLE_YELLOW, ", another checksum");
    else if (isinf(s->error))
        msp_term_put(out, MSP_STYLE_RED, ", NaN or inf on one side only");
    else
        fprintf(out, ", differs by %s", short_number(a, s->error));
    fputc('\n', out);
    if (s->has_metrics && s->error != 0) {
        print_label(out, "");
        fprintf(out, "  Cosine %.6g, MaxAbsErr %.6g, MaxRelativeErr %.6g\n", s->metrics.cosine, s->metrics.max_abs_err,
                s->metrics.max_rel_err);
    }
    put_elements(out, r);
}

static void
put_rows(FILE *out, const msp_compare_pair *p, bool inputs)
{
    const msp_compare_explained *e = &p->explained;
    bool first = true;

    for (size_t i = 0; i < e->nrows; i++)
        if (e->rows[i].is_input == inputs) {
            put_row(out, p, &e->rows[i], first);
            first = false;
        }
}

static void
put_neighbours(FILE *out, const msp_compare_explained *e, bool before)
{
    bool first = true;

    for (size_t i = 0; i < e->nneighbours; i++) {
        const msp_explained_neighbour *n = &e->neighbours[i];

        if (n->before != before)
            continue;
        print_label(out, first ? before ? "Comes from" : "Goes to" : "");
        put_safe(out, MSP_STYLE_PLAIN, n->here);
        fputs(before ? " from " : " to ", out);
        put_safe(out, MSP_STYLE_PLAIN, n->there);
        fputs(" of ", out);
        put_safe(out, MSP_STYLE_PLAIN, n->api);
        fputc('\n', out);
        first = false;
    }
}

static void
put_next(FILE *out, const msp_compare_pair *p)
{
    if (!p->has_tensors)
        return;
    print_label(out, "Next");
    fputs("msprobe repro ", out);
    msp_shell_put(out, p->npu_path);
    fputc(' ', out);
    msp_shell_put(out, p->explained.api);
    fputs(" -o repro\n", out);
}

static void
print_pair(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_explained *e = &p->explained;

    fputc('\n', out);
    print_label(out, "Call");
    put_safe(out, MSP_STYLE_BOLD, e->api);
    fputc('\n', out);
    print_label(out, "of");
    put_safe(out, MSP_STYLE_PLAIN, p->npu_path);
    fputc('\n', out);
    print_label(out, "with");
    put_safe(out, MSP_STYLE_PLAIN, e->bench_api != NULL ? e->bench_api : "no partner");
    fputs(" of ", out);
    put_safe(out, MSP_STYLE_PLAIN, p->bench_path);
    fputc('\n', out);
    fputc('\n', out);
    for (size_t i = 0; i < e->nresults; i++)
        put_result(out, &e->results[i], i == 0);
    if (p->answer.sentence != NULL)
        put_sentence(out, "All calls", msp_summary_style(p->answer.level), p->answer.sentence);
    fputc('\n', out);
    put_rows(out, p, true);
    put_rows(out, p, false);
    fputc('\n', out);
    if (e->nrows > 0)
        msp_summary_frames(out, e->rows[0].about.stack, e->rows[0].about.nstack);
    put_neighbours(out, e, true);
    put_neighbours(out, e, false);
    put_next(out, p);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void
json_result(msp_jsonout *j, const msp_verdict_result *r)
{
    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "at", r->at);
    msp_jsonout_text(j, "class", msp_call_class_text(r->cls));
    msp_jsonout_text(j, "basis", msp_verdict_basis_text(r->basis));
    msp_jsonout_float(j, "difference_in", r->diff_in);
    msp_jsonout_float(j, "difference_out", r->diff_out);
    msp_jsonout_float(j, "local", r->local);
    msp_jsonout_float(j, "local_bench", r->local_bench);
    msp_jsonout_float(j, "inherited", r->inherited);
    msp_jsonout_float(j, "expected", r->expected);
    msp_jsonout_float(j, "times", r->times);
    msp_jsonout_float(j, "ratio", r->ratio);
    msp_jsonout_text(j, "verdict", word_of(r));
    msp_jsonout_bool(j, "nonfinite", r->nonfinite);
    msp_jsonout_text(j, "shape", r->shape_text);
    msp_jsonout_text(j, "note", r->note);
    msp_jsonout_text(j, "not_judged", r->not_judged);
    msp_jsonout_close(j, '}');
}

static void
json_elements(msp_jsonout *j, const msp_explained_row *r)
{
    msp_jsonout_open(j, "worst_elements", '[');
    for (size_t i = 0; i < r->nworst; i++) {
        msp_jsonout_open(j, NULL, '{');
        msp_jsonout_ints(j, "index", r->worst[i].coords, (size_t)r->ndim);
        msp_jsonout_text(j, "npu", r->worst[i].value[0]);
        msp_jsonout_text(j, "bench", r->worst[i].value[1]);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

static void
json_row(msp_jsonout *j, const msp_explained_row *r)
{
    static const char *const stats[MSP_NSTATS] = {"max", "min", "mean", "l2norm"};
    const msp_compare_suspect *s = &r->about;

    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "at", r->at);
    msp_jsonout_text(j, "kind", r->is_plain ? "value" : r->is_input ? "input" : "output");
    msp_jsonout_bool(j, "is_input", r->is_input);
    msp_jsonout_text(j, "bench_name", has_partner(r) ? s->bench_name : NULL);
    for (int side = 0; side < 2; side++) {
        msp_jsonout_open(j, side == 0 ? "npu" : "bench", '{');
        msp_jsonout_text(j, "dtype", s->dtype[side]);
        msp_jsonout_text(j, "shape", s->shape[side]);
        for (int i = 0; i < MSP_NSTATS; i++)
            msp_jsonout_text(j, stats[i], s->stats[side][i]);
        msp_jsonout_text(j, "md5", s->md5[side]);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_float(j, "error", s->error);
    if (s->has_metrics) {
        msp_jsonout_float(j, "cosine", s->metrics.cosine);
        msp_jsonout_float(j, "max_abs_err", s->metrics.max_abs_err);
        msp_jsonout_float(j, "max_relative_err", s->metrics.max_rel_err);
    }
    json_elements(j, r);
    msp_jsonout_close(j, '}');
}

static void
json_neighbours(msp_jsonout *j, const msp_compare_explained *e, const char *key, bool before)
{
    msp_jsonout_open(j, key, '[');
    for (size_t i = 0; i < e->nneighbours; i++)
        if (e->neighbours[i].before == before) {
            msp_jsonout_open(j, NULL, '{');
            msp_jsonout_text(j, "here", e->neighbours[i].here);
            msp_jsonout_text(j, "api", e->neighbours[i].api);
            msp_jsonout_text(j, "there", e->neighbours[i].there);
            msp_jsonout_close(j, '}');
        }
    msp_jsonout_close(j, ']');
}

static void
print_json(FILE *out, const msp_compare_pair *p)
{
    const msp_compare_explained *e = &p->explained;
    const msp_compare_suspect *any = e->nrows > 0 ? &e->rows[0].about : NULL;
    msp_jsonout j = {.out = out};

    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_int(&j, "version", 1);
    msp_jsonout_text(&j, "call", e->api);
    msp_jsonout_text(&j, "bench_call", e->bench_api);
    msp_jsonout_text(&j, "npu_path", p->npu_path);
    msp_jsonout_text(&j, "bench_path", p->bench_path);
    msp_jsonout_text(&j, "mode", msp_compare_mode_text(p->mode));
    msp_jsonout_text(&j, "level", msp_answer_level_text(p->answer.level));
    msp_jsonout_text(&j, "sentence", p->answer.sentence);
    msp_jsonout_open(&j, "results", '[');
    for (size_t i = 0; i < e->nresults; i++)
        json_result(&j, &e->results[i]);
    msp_jsonout_close(&j, ']');
    msp_jsonout_open(&j, "rows", '[');
    for (size_t i = 0; i < e->nrows; i++)
        json_row(&j, &e->rows[i]);
    msp_jsonout_close(&j, ']');
    json_neighbours(&j, e, "before", true);
    json_neighbours(&j, e, "after", false);
    msp_jsonout_texts(&j, "stack", any != NULL ? any->stack : NULL, any != NULL ? any->nstack : 0);
    msp_jsonout_close(&j, '}');
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Of the pairs that have the call the first that is wrong, else the first. */
static const msp_compare_pair *
choose_pair(const msp_compare_result *r)
{
    const msp_compare_pair *best = NULL;

    for (size_t i = 0; i < r->npairs; i++) {
        const msp_compare_pair *p = &r->pairs[i];

        if (p->explained.found && (best == NULL || p->answer.level > best->answer.level))
            best = p;
    }
    return best;
}

static msp_exit_code
explain_call(const msp_args *args, const msp_compare_options *opt)
{
    msp_compare_result result = {0};
    const msp_compare_pair *p;
    msp_exit_code code = MSP_EXIT_OK;
    msp_error err;
    msp_status st = msp_compare_run(&result, opt, &err);

    p = choose_pair(&result);
    if (p == NULL) {
        if (st == MSP_OK)
            st = msp_error_set(&err, MSP_E_NOT_FOUND, "%s is in no pair that could be compared", opt->explain);
        code = msp_cli_fail(st, &err);
    } else if (msp_args_has(args, MSP_OPT_JSON)) {
        print_json(stdout, p);
    } else {
        print_pair(stdout, p);
    }
    msp_compare_result_release(&result);
    return code;
}

msp_exit_code
msp_cmd_explain(const msp_args *args)
{
    msp_replay_job job = {0};
    msp_compare_options opt;
    msp_found_call found = {0};
    msp_exit_code code;
    msp_status st = MSP_OK;
    msp_error err;

    msp_compare_options_init(&opt);
    opt.framework = MSP_FRAMEWORK_UNKNOWN;
    opt.compare_only = opt.no_failure_log = true;
    opt.html = false;
    opt.fuzzy = msp_args_has(args, MSP_OPT_FUZZY);
    if (args->noperands < 3)
        st = msp_error_set(&err, MSP_E_INVALID, "give two dumps, the NPU's and the bench's, and the name of a call");
    if (st == MSP_OK)
        st = msp_args_number(&opt.threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, &err);
    if (st != MSP_OK)
        return msp_cli_usage(args->command, &err);
    opt.npu_path = args->operands[0];
    opt.bench_path = args->operands[1];
    job.threads = opt.threads;
    if (!msp_args_has(args, MSP_OPT_NO_REPLAY)) {
        opt.replay = msp_replay_run;
        opt.replay_payload = &job;
    }
    st = msp_find_call(&found, opt.npu_path, args->operands[2], &err);
    opt.explain = found.name;
    code = st == MSP_OK ? explain_call(args, &opt) : msp_cli_fail(st, &err);
    msp_found_call_release(&found);
    return code;
}
