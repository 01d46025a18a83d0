/* summary_json.c - the summary for programs. Keys are added at will, never renamed: "version" says when one was. */
#include <string.h>
#include "jsonout.h"
#include "summary.h"

static void
put_counts(msp_jsonout *j, const msp_compare_counts *c)
{
    const struct {
        const char *key;
        int64_t n;
    } all[] = {{"rows", c->rows},
               {"matched", c->matched},
               {"unmatched", c->unmatched},
               {"bench_only", c->bench_only},
               {"apis", c->apis},
               {"wrong", c->wrong},
               {"yes", c->yes},
               {"no", c->no},
               {"none", c->none},
               {"shape_unmatched", c->shape_unmatched},
               {"warning", c->warning},
               {"clean", c->clean},
               {"pass", c->pass},
               {"different", c->different},
               {"red", c->red},
               {"yellow", c->yellow},
               {"differ", c->differ},
               {"other_type", c->other_type},
               {"nonfinite", c->nonfinite},
               {"unreadable", c->unreadable}};

    msp_jsonout_open(j, "counts", '{');
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        msp_jsonout_int(j, all[i].key, all[i].n);
    msp_jsonout_close(j, '}');
}

static void
put_metrics(msp_jsonout *j, const msp_metrics *m)
{
    double n = m->count > 0 ? (double)m->count : 1;

    msp_jsonout_open(j, "metrics", '{');
    msp_jsonout_float(j, "cosine", m->cosine);
    msp_jsonout_float(j, "euc_dist", m->euc_dist);
    msp_jsonout_float(j, "max_abs_err", m->max_abs_err);
    msp_jsonout_float(j, "max_relative_err", m->max_rel_err);
    msp_jsonout_float(j, "one_thousandth_err_ratio", (double)m->below_1e3 / n);
    msp_jsonout_float(j, "five_thousandths_err_ratio", (double)m->below_5e3 / n);
    msp_jsonout_int(j, "elements", m->count);
    msp_jsonout_int(j, "nan_or_inf_mismatches", m->mismatches);
    msp_jsonout_close(j, '}');
}

static void
put_worst(msp_jsonout *j, const msp_compare_suspect *s)
{
    msp_jsonout_open(j, "worst_element", '{');
    msp_jsonout_ints(j, "index", s->worst_coords, (size_t)s->worst_ndim);
    msp_jsonout_text(j, "npu", s->worst_value[0]);
    msp_jsonout_text(j, "bench", s->worst_value[1]);
    msp_jsonout_close(j, '}');
}

static void
put_statistics(msp_jsonout *j, const msp_compare_suspect *s)
{
    static const char *const names[MSP_NSTATS] = {"max", "min", "mean", "l2norm"};

    msp_jsonout_open(j, "statistics", '{');
    for (int i = 0; i < MSP_NSTATS; i++) {
        msp_jsonout_open(j, names[i], '{');
        msp_jsonout_text(j, "npu", s->stats[0][i]);
        msp_jsonout_text(j, "bench", s->stats[1][i]);
        if (s->diff[i] != NULL) {
            msp_jsonout_text(j, "diff", s->diff[i]);
            msp_jsonout_text(j, "relative", s->rel[i]);
        }
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, '}');
}

static void
put_suspect(msp_jsonout *j, const char *key, const msp_compare_pair *p, const msp_compare_suspect *s)
{
    int64_t sheet;

    if (!s->found) {
        msp_jsonout_text(j, key, NULL);
        return;
    }
    msp_jsonout_open(j, key, '{');
    msp_jsonout_int(j, "row", msp_summary_row(p, s->row, &sheet));
    if (sheet >= 0)
        msp_jsonout_int(j, "sheet_part", sheet);
    msp_jsonout_text(j, "npu_name", s->npu_name);
    msp_jsonout_text(j, "bench_name", s->bench_name);
    msp_jsonout_text(j, "api", s->api);
    msp_jsonout_text(j, "verdict", s->verdict);
    msp_jsonout_text(j, "message", s->message);
    msp_jsonout_text(j, "npu_dtype", s->dtype[0]);
    msp_jsonout_text(j, "bench_dtype", s->dtype[1]);
    msp_jsonout_text(j, "npu_shape", s->shape[0]);
    msp_jsonout_text(j, "bench_shape", s->shape[1]);
    if (s->has_metrics)
        put_metrics(j, &s->metrics);
    if (s->stats[0][0] != NULL)
        put_statistics(j, s);
    if (s->md5[0] != NULL) {
        msp_jsonout_text(j, "npu_md5", s->md5[0]);
        msp_jsonout_text(j, "bench_md5", s->md5[1]);
    }
    if (s->has_worst)
        put_worst(j, s);
    msp_jsonout_text(j, "inputs", msp_inputs_state_text(s->inputs));
    msp_jsonout_float(j, "error", s->error);
    msp_jsonout_float(j, "input_error", s->input_error);
    msp_jsonout_text(j, "worst_input", s->input);
    msp_jsonout_text(j, "argument", s->argument);
    msp_jsonout_text(j, "code_frame", msp_summary_code_frame(s->stack, s->nstack));
    msp_jsonout_text(j, "user_frame", msp_summary_user_frame(s->stack, s->nstack));
    msp_jsonout_texts(j, "stack", s->stack, s->nstack);
    msp_jsonout_close(j, '}');
}

static void
put_cuts(msp_jsonout *j, const msp_compare_pair *p)
{
    msp_jsonout_open(j, "cut_off", '[');
    for (int i = 0; i < 2; i++)
        if (p->cut[i].found) {
            msp_jsonout_open(j, NULL, '{');
            msp_jsonout_text(j, "path", i == 0 ? p->npu_path : p->bench_path);
            msp_jsonout_int(j, "records_read", p->cut[i].records);
            msp_jsonout_int(j, "at_byte", p->cut[i].at);
            msp_jsonout_close(j, '}');
        }
    msp_jsonout_close(j, ']');
}

static void
put_verdict_texts(msp_jsonout *j, const char *key, const msp_verdict_texts *t)
{
    msp_jsonout_texts(j, key, t->items, t->count);
}

static void
put_verdict_suspects(msp_jsonout *j, const msp_pair_verdict *v)
{
    msp_jsonout_open(j, "suspects", '[');
    for (size_t i = 0; i < v->nsuspects; i++) {
        const msp_verdict_suspect *s = &v->suspects[i];

        msp_jsonout_open(j, NULL, '{');
        msp_jsonout_text(j, "api", s->api);
        msp_jsonout_text(j, "bench_api", s->bench_api);
        msp_jsonout_text(j, "at", s->at);
        msp_jsonout_text(j, "reason", s->reason);
        put_verdict_texts(j, "reasons", &s->reasons);
        msp_jsonout_text(j, "shape", s->shape_text);
        msp_jsonout_text(j, "confidence", msp_confidence_text(s->confidence));
        msp_jsonout_float(j, "ratio", s->ratio);
        msp_jsonout_float(j, "times", s->times);
        msp_jsonout_float(j, "local", s->local);
        msp_jsonout_float(j, "local_bench", s->local_bench);
        msp_jsonout_float(j, "inherited", s->inherited);
        msp_jsonout_float(j, "difference_in", s->diff_in);
        msp_jsonout_float(j, "difference_out", s->diff_out);
        msp_jsonout_float(j, "expected", s->expected);
        msp_jsonout_bool(j, "nonfinite", s->nonfinite);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

/* What the verdict rests on; checksums, saved points and older dumps have none of it. */
static void
put_evidence(msp_jsonout *j, const msp_pair_verdict *v)
{
    msp_jsonout_text(j, "basis", msp_verdict_basis_text(v->basis));
    msp_jsonout_text(j, "kind", msp_verdict_kind_text(v->kind));
    msp_jsonout_int(j, "judged", v->judged);
    msp_jsonout_int(j, "judged_calls", v->judged_calls);
    msp_jsonout_int(j, "not_judged", v->not_judged);
    msp_jsonout_open(j, "why_not", '[');
    for (size_t i = 0; i < v->nunjudged; i++) {
        msp_jsonout_open(j, NULL, '{');
        msp_jsonout_text(j, "reason", v->unjudged[i].reason);
        msp_jsonout_int(j, "results", v->unjudged[i].results);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
    msp_jsonout_int(j, "suspicious", v->suspicious);
    msp_jsonout_int(j, "other_type", v->other_type);
    msp_jsonout_text(j, "types", v->types);
    msp_jsonout_float(j, "largest", v->largest);
    msp_jsonout_text(j, "largest_at", v->largest_at);
    msp_jsonout_text(j, "first_different", v->first_different);
    put_verdict_texts(j, "start", &v->start);
    put_verdict_texts(j, "facts", &v->facts);
    put_verdict_texts(j, "flips", &v->flips);
    put_verdict_texts(j, "alignment", &v->alignment);
    msp_jsonout_int(j, "realigned", v->realigned);
    put_verdict_texts(j, "untold", &v->untold);
    msp_jsonout_int(j, "replayed", v->replayed);
    msp_jsonout_float(j, "replay_seconds", v->replay_seconds);
    msp_jsonout_text(j, "no_replay", v->no_replay);
    msp_jsonout_float(j, "false_alarms", v->false_alarms);
}

static void
put_verdict(msp_jsonout *j, const msp_compare_pair *p)
{
    msp_jsonout_open(j, "verdict", '{');
    msp_jsonout_text(j, "level", msp_answer_level_text(p->answer.level));
    msp_jsonout_text(j, "sentence", p->answer.sentence);
    msp_jsonout_texts(j, "notes", p->answer.notes, p->answer.nnotes);
    put_suspect(j, "blamed", p, &p->answer.blamed);
    if (p->verdict.given)
        put_evidence(j, &p->verdict);
    put_verdict_suspects(j, &p->verdict);
    msp_jsonout_close(j, '}');
}

static void
put_pair(msp_jsonout *j, const msp_compare_pair *p)
{
    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "label", p->label);
    msp_jsonout_text(j, "group", p->group);
    msp_jsonout_number(j, "step", p->step);
    msp_jsonout_number(j, "rank", p->rank);
    msp_jsonout_text(j, "file", msp_dump_kind_file(p->kind));
    msp_jsonout_text(j, "npu_path", p->npu_path);
    msp_jsonout_text(j, "bench_path", p->bench_path);
    msp_jsonout_text(j, "npu_framework", msp_framework_name(p->framework[0]));
    msp_jsonout_text(j, "bench_framework", msp_framework_name(p->framework[1]));
    msp_jsonout_text(j, "mode", msp_compare_mode_text(p->mode));
    msp_jsonout_text(j, "status", p->status == MSP_OK ? "ok" : "error");
    msp_jsonout_text(j, "error", p->error);
    put_counts(j, &p->counts);
    put_cuts(j, p);
    msp_jsonout_text(j, "unreadable", p->unreadable);
    put_suspect(j, "first_wrong", p, p->suspect.found || p->verdict.given ? &p->suspect : &p->answer.blamed);
    msp_jsonout_text(j, "first_differs", p->first_differs);
    if (p->answer.sentence != NULL)
        put_verdict(j, p);
    msp_jsonout_text(j, "advice", p->advice);
    msp_jsonout_texts(j, "files", p->files, p->nfiles);
    msp_jsonout_float(j, "seconds", p->seconds);
    msp_jsonout_close(j, '}');
}

static void
put_first_differences(msp_jsonout *j, const msp_compare_result *r)
{
    msp_jsonout_text(j, "first_stage", r->first_stage);
    msp_jsonout_open(j, "first_to_differ", '[');
    for (size_t i = 0; i < r->nfirst; i++) {
        msp_jsonout_open(j, NULL, '{');
        msp_jsonout_number(j, "step", r->first[i].step);
        msp_jsonout_number(j, "rank", r->first[i].rank);
        msp_jsonout_text(j, "stage", r->first[i].stage);
        msp_jsonout_text(j, "op_name", r->first[i].op_name);
        msp_jsonout_texts(j, "stack", r->first[i].stack, r->first[i].nstack);
        msp_jsonout_close(j, '}');
    }
    msp_jsonout_close(j, ']');
}

/* The verdict on the whole run, and the suspects of all pairs in their order; nothing where nothing was compared. */
static void
put_run_verdict(msp_jsonout *j, const msp_compare_result *r)
{
    int64_t judged = 0;

    for (size_t i = 0; i < r->npairs; i++)
        judged += r->pairs[i].verdict.judged;
    if (r->sentence == NULL)
        return;
    msp_jsonout_open(j, "verdict", '{');
    msp_jsonout_text(j, "level", msp_answer_level_text(r->level));
    msp_jsonout_text(j, "sentence", r->sentence);
    msp_jsonout_text(j, "pair", r->pairs[r->told].label);
    msp_jsonout_int(j, "judged", judged);
    msp_jsonout_open(j, "suspects", '[');
    for (size_t i = 0; i < r->npairs; i++)
        for (size_t k = 0; k < r->pairs[i].verdict.nsuspects; k++) {
            const msp_verdict_suspect *s = &r->pairs[i].verdict.suspects[k];

            msp_jsonout_open(j, NULL, '{');
            msp_jsonout_text(j, "pair", r->pairs[i].label);
            msp_jsonout_text(j, "api", s->api);
            msp_jsonout_text(j, "reason", s->reason);
            msp_jsonout_close(j, '}');
        }
    msp_jsonout_close(j, ']');
    msp_jsonout_close(j, '}');
}

void
msp_summary_print_json(FILE *out, const msp_summary *s)
{
    const msp_compare_result *r = s->result;
    msp_jsonout j = {.out = out};

    msp_jsonout_open(&j, NULL, '{');
    msp_jsonout_int(&j, "version", 1);
    msp_jsonout_text(&j, "status", s->status == MSP_OK ? "ok" : "error");
    msp_jsonout_text(&j, "error", s->status == MSP_OK ? NULL : s->err->message);
    msp_jsonout_open(&j, "pairs", '[');
    for (size_t i = 0; i < r->npairs; i++)
        put_pair(&j, &r->pairs[i]);
    msp_jsonout_close(&j, ']');
    put_run_verdict(&j, r);
    msp_summary_job_json(&j, r);
    if (s->options->diff_analyze)
        put_first_differences(&j, r);
    msp_jsonout_texts(&j, "files", r->files, r->nfiles);
    msp_jsonout_int(&j, "bytes", r->bytes);
    msp_jsonout_float(&j, "seconds", r->seconds);
    msp_jsonout_close(&j, '}');
}
