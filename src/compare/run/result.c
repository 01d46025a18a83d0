/* result.c - the result of a run: what it owns and how that is given back. */
#include "compare/verdict/verdict.h"
#include "compare/run/run.h"
#include "core/alloc.h"

bool
msp_result_add(char ***list, size_t *count, msp_str text)
{
    char *copy = msp_result_text(text);
    char **grown = copy == NULL ? NULL : msp_realloc(*list, *count + 1, sizeof(char *));

    if (grown == NULL) {
        msp_free(copy);
        return false;
    }
    grown[(*count)++] = copy;
    *list = grown;
    return true;
}

static void
free_list(char **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        msp_free(list[i]);
    msp_free(list);
}

static void
release_suspect(msp_compare_suspect *s)
{
    msp_free(s->npu_name);
    msp_free(s->bench_name);
    msp_free(s->api);
    msp_free(s->verdict);
    msp_free(s->message);
    msp_free(s->argument);
    msp_free(s->input);
    for (int side = 0; side < 2; side++) {
        msp_free(s->dtype[side]);
        msp_free(s->shape[side]);
        msp_free(s->md5[side]);
        for (int i = 0; i < MSP_NSTATS; i++)
            msp_free(s->stats[side][i]);
    }
    for (int i = 0; i < MSP_NSTATS; i++) {
        msp_free(s->diff[i]);
        msp_free(s->rel[i]);
    }
    free_list(s->stack, s->nstack);
}

static void
release_place(msp_compare_place *p)
{
    msp_free(p->wrong);
    msp_free(p->why);
    free_list(p->stack, p->nstack);
    msp_free(p->nonfinite);
    msp_free(p->after);
    msp_free(p->note);
    msp_free(p->through);
}

static void
release_explained(msp_compare_explained *e)
{
    for (size_t i = 0; i < e->nrows; i++) {
        msp_free(e->rows[i].at);
        release_suspect(&e->rows[i].about);
    }
    for (size_t i = 0; i < e->nresults; i++) {
        msp_free(e->results[i].at);
        msp_free(e->results[i].shape_text);
        msp_free(e->results[i].note);
    }
    for (size_t i = 0; i < e->nneighbours; i++) {
        msp_free(e->neighbours[i].here);
        msp_free(e->neighbours[i].api);
        msp_free(e->neighbours[i].there);
    }
    msp_free(e->rows);
    msp_free(e->results);
    msp_free(e->neighbours);
    msp_free(e->api);
    msp_free(e->bench_api);
}

void
msp_result_release_pair(msp_compare_pair *p)
{
    msp_free(p->group);
    msp_free(p->label);
    msp_free(p->npu_path);
    msp_free(p->bench_path);
    msp_free(p->error);
    msp_free(p->advice);
    msp_free(p->unreadable);
    msp_free(p->advised);
    free_list(p->files, p->nfiles);
    release_suspect(&p->suspect);
    msp_verdict_release(&p->verdict);
    msp_free(p->answer.sentence);
    free_list(p->answer.notes, p->answer.nnotes);
    release_suspect(&p->answer.blamed);
    msp_free(p->first_differs);
    release_explained(&p->explained);
    release_place(&p->place);
    *p = (msp_compare_pair){0};
}

void
msp_compare_result_release(msp_compare_result *r)
{
    for (size_t i = 0; i < r->npairs; i++)
        msp_result_release_pair(&r->pairs[i]);
    for (size_t i = 0; i < r->nfirst; i++) {
        msp_free(r->first[i].op_name);
        free_list(r->first[i].stack, r->first[i].nstack);
    }
    msp_free(r->first);
    msp_free(r->sentence);
    free_list(r->job.notes, r->job.nnotes);
    msp_free(r->pairs);
    free_list(r->files, r->nfiles);
    *r = (msp_compare_result){0};
}

const char *
msp_compare_mode_text(msp_compare_mode m)
{
    return m == MSP_MODE_REAL ? "real data" : m == MSP_MODE_STATISTICS ? "statistics" : "md5";
}
