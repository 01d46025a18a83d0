/* result.c - the result of a run: what it owns and how that is given back. */
#include "compare/verdict/verdict.h"
#include "compare/run/run.h"
#include "core/alloc.h"

char *
msp_result_text(msp_str s)
{
    char *copy = msp_alloc(s.len + 1, 1);

    if (copy == NULL)
        return NULL;
    if (s.len > 0)
        memcpy(copy, s.p, s.len);
    copy[s.len] = '\0';
    return copy;
}

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
release_pair(msp_compare_pair *p)
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
}

void
msp_compare_result_release(msp_compare_result *r)
{
    for (size_t i = 0; i < r->npairs; i++)
        release_pair(&r->pairs[i]);
    for (size_t i = 0; i < r->nfirst; i++) {
        msp_free(r->first[i].op_name);
        free_list(r->first[i].stack, r->first[i].nstack);
    }
    msp_free(r->first);
    msp_free(r->pairs);
    free_list(r->files, r->nfiles);
    *r = (msp_compare_result){0};
}

const char *
msp_compare_mode_text(msp_compare_mode m)
{
    return m == MSP_MODE_REAL ? "real data" : m == MSP_MODE_STATISTICS ? "statistics" : "md5";
}
