/* result.c - a verdict's memory, and its words for enums. */
#include "compare/verdict/verdict.h"

#include "core/alloc.h"

const char *
msp_call_class_text(msp_call_class c)
{
    static const char *const texts[MSP_CALL_NCLASSES] = {"matmul", "vector", "move"};

    return texts[c];
}

const char *
msp_verdict_kind_text(msp_verdict_kind k)
{
    static const char *const texts[] = {"none",    "identical",       "within rounding",
                                        "suspect", "different start", "different models"};

    return texts[k];
}

const char *
msp_verdict_basis_text(msp_verdict_basis b)
{
    static const char *const texts[] = {"statistics", "tensors", "replay"};

    return texts[b];
}

const char *
msp_confidence_text(msp_confidence c)
{
    static const char *const texts[] = {"low", "medium", "high"};

    return texts[c];
}

char *
msp_verdict_take(msp_buf *b)
{
    char *t = b->failed ? NULL : msp_str_copy(msp_buf_view(b));

    msp_buf_release(b);
    return t;
}

bool
msp_verdict_add_text(msp_verdict_texts *list, msp_str text)
{
    char *copy = msp_str_copy(text);
    char **grown = copy == NULL ? NULL : msp_realloc(list->items, list->count + 1, sizeof(char *));

    if (grown == NULL) {
        msp_free(copy);
        return false;
    }
    grown[list->count++] = copy;
    list->items = grown;
    return true;
}

bool
msp_verdict_add_take(msp_verdict_texts *list, msp_buf *b)
{
    bool ok = !b->failed && msp_verdict_add_text(list, msp_buf_view(b));

    msp_buf_release(b);
    return ok;
}

void
msp_verdict_texts_release(msp_verdict_texts *list)
{
    for (size_t i = 0; i < list->count; i++)
        msp_free(list->items[i]);
    msp_free(list->items);
    *list = (msp_verdict_texts){0};
}

static void
release_suspect(msp_verdict_suspect *s)
{
    msp_free(s->api);
    msp_free(s->bench_api);
    msp_free(s->at);
    msp_free(s->reason);
    msp_free(s->shape_text);
    msp_verdict_texts_release(&s->reasons);
}

static void
release_result(msp_verdict_result *r)
{
    msp_free(r->api);
    msp_free(r->bench_api);
    msp_free(r->at);
    msp_free(r->shape_text);
    msp_free(r->note);
}

void
msp_verdict_forget_results(msp_pair_verdict *v)
{
    for (size_t i = 0; i < v->nresults; i++)
        release_result(&v->results[i]);
    msp_free(v->results);
    v->results = NULL;
    v->nresults = 0;
}

void
msp_verdict_release(msp_pair_verdict *v)
{
    for (size_t i = 0; i < v->nsuspects; i++)
        release_suspect(&v->suspects[i]);
    for (size_t i = 0; i < v->nunjudged; i++)
        msp_free(v->unjudged[i].reason);
    msp_verdict_forget_results(v);
    msp_verdict_texts_release(&v->start);
    msp_verdict_texts_release(&v->facts);
    msp_verdict_texts_release(&v->flips);
    msp_verdict_texts_release(&v->alignment);
    msp_verdict_texts_release(&v->untold);
    msp_free(v->unjudged);
    msp_free(v->sentence);
    msp_free(v->types);
    msp_free(v->largest_at);
    msp_free(v->first_different);
    msp_free(v->no_replay);
    *v = (msp_pair_verdict){0};
}
