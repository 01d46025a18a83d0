/*
 * summary_job.c - the answer for all ranks, before that of any single one: what is missing, whose wrong call came
 * first, and which other ranks only inherited it.
 */
#include "summary_parts.h"

enum { NOTES_SHOWN = 6 };

static void
put_notes(FILE *out, const msp_compare_job *job)
{
    for (size_t i = 0; i < job->nnotes && i < NOTES_SHOWN; i++) {
        put_sentence(out, i == 0 ? "Ranks" : "", MSP_STYLE_YELLOW, job->notes[i]);
    }
    if (job->nnotes > NOTES_SHOWN) {
        print_label(out, "");
        fprintf(out, "and %zu more; the job table names all of them\n", job->nnotes - NOTES_SHOWN);
    }
}

static void
put_others(FILE *out, const msp_compare_job *job)
{
    const struct {
        size_t n;
        const char *what;
    } all[] = {{job->inherited, "only inherited it"},
               {job->alike, "went wrong in the same call by itself"},
               {job->own, "went wrong elsewhere by itself"}};
    bool any = false;

    print_label(out, "Other ranks");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i].n > 0) {
            fprintf(out, "%s%zu %s", any ? ", " : "", all[i].n, all[i].what);
            any = true;
        }
    fputs(any ? "\n" : "none is wrong or beyond the limits of the table\n", out);
}

static void
put_first(FILE *out, const msp_compare_result *r)
{
    const msp_compare_pair *p = &r->pairs[r->job.first];
    print_label(out, "Wrong first");
    put_safe(out, MSP_STYLE_BOLD, p->label);
    fputs(": ", out);
    put_safe(out, MSP_STYLE_BOLD, p->place.wrong);
    fputc('\n', out);
    if (p->place.why != NULL) {
        put_sentence(out, "", MSP_STYLE_PLAIN, p->place.why);
    }
    if (!p->answer.blamed.found) /* else its lines stand below */
        msp_summary_frames(out, p->place.stack, p->place.nstack);
    if (p->place.after != NULL) {
        print_label(out, "It waited for");
        put_safe(out, MSP_STYLE_PLAIN, p->place.after);
        fputc('\n', out);
    }
    put_others(out, &r->job);
}

void
msp_summary_job(FILE *out, const msp_compare_result *r)
{
    if (!r->job.given)
        return;
    if (r->job.nnotes > 0 || r->job.first >= 0)
        fputc('\n', out);
    put_notes(out, &r->job);
    if (r->job.first >= 0)
        put_first(out, r);
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

static void
put_row(msp_jsonout *j, const msp_compare_pair *p)
{
    const msp_compare_place *place = &p->place;

    msp_jsonout_open(j, NULL, '{');
    msp_jsonout_text(j, "label", p->label);
    msp_jsonout_number(j, "step", p->step != MSP_DUMP_NO_NUMBER ? p->step : p->bench_step);
    msp_jsonout_number(j, "rank", p->rank != MSP_DUMP_NO_NUMBER ? p->rank : p->bench_rank);
    msp_jsonout_text(j, "role", msp_job_role_text(place->role));
    msp_jsonout_number(j, "order", place->order > 0 ? place->order : MSP_DUMP_NO_NUMBER);
    msp_jsonout_int(j, "matched", p->counts.matched);
    msp_jsonout_int(j, "wrong", p->counts.wrong);
    msp_jsonout_text(j, "first_wrong", place->wrong);
    msp_jsonout_text(j, "reason", place->why);
    msp_jsonout_text(j, "first_nonfinite", place->nonfinite);
    msp_jsonout_text(j, "waited_for", place->after);
    msp_jsonout_text(j, "inherited_through", place->through);
    msp_jsonout_int(j, "npu_calls", place->calls[0]);
    msp_jsonout_int(j, "bench_calls", place->calls[1]);
    msp_jsonout_text(j, "note", place->note);
    msp_jsonout_texts(j, "stack", place->stack, place->nstack);
    msp_jsonout_close(j, '}');
}

void
msp_summary_job_json(msp_jsonout *j, const msp_compare_result *r)
{
    const msp_compare_job *job = &r->job;

    if (!job->given)
        return;
    msp_jsonout_open(j, "job", '{');
    msp_jsonout_texts(j, "notes", job->notes, job->nnotes);
    if (r->lost > 0)
        msp_jsonout_int(j, "processes_lost", (int64_t)r->lost);
    if (job->first >= 0) {
        msp_jsonout_int(j, "first", job->first);
        msp_jsonout_int(j, "inherited", (int64_t)job->inherited);
        msp_jsonout_int(j, "alike", (int64_t)job->alike);
        msp_jsonout_int(j, "own", (int64_t)job->own);
    } else {
        msp_jsonout_text(j, "first", NULL);
    }
    msp_jsonout_open(j, "table", '[');
    for (size_t i = 0; i < r->npairs; i++)
        put_row(j, &r->pairs[i]);
    msp_jsonout_close(j, ']');
    msp_jsonout_close(j, '}');
}
