/* rows_equal.h - whether two rows, of any two dumps, say the same. */
#ifndef MSP_TESTS_ROWS_EQUAL_H
#define MSP_TESTS_ROWS_EQUAL_H

#include "compare/rows/rows.h"

static inline bool
same_value(const msp_val *a, const msp_val *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == VAL_TEXT)
        return msp_str_eq((msp_str){a->as.p, a->len}, (msp_str){b->as.p, b->len});
    return a->kind == VAL_NONE || memcmp(&a->as, &b->as, sizeof(a->as)) == 0;
}

static inline bool
same_text(const msp_rows *ta, uint32_t a, const msp_rows *tb, uint32_t b)
{
    const msp_row_text *x = &ta->texts[a], *y = &tb->texts[b];

    return msp_str_eq(x->text, y->text) && x->numel == y->numel && x->dtype == y->dtype;
}

static inline bool
same_p2p(const msp_rows *ta, uint32_t a, const msp_rows *tb, uint32_t b)
{
    if (a == 0 || b == 0)
        return a == b;
    return msp_str_eq(ta->p2p[a - 1].op, tb->p2p[b - 1].op) && msp_str_eq(ta->p2p[a - 1].peer, tb->p2p[b - 1].peer);
}

static inline bool
same_row(const msp_rows *ta, const msp_row *a, const msp_rows *tb, const msp_row *b)
{
    for (int i = 0; i < MSP_NSTATS; i++)
        if (!same_value(&a->stats[i], &b->stats[i]))
            return false;
    return msp_str_eq(msp_row_name(a), msp_row_name(b)) && (a->file == NULL) == (b->file == NULL) &&
           msp_str_eq(msp_row_file(a), msp_row_file(b)) && same_text(ta, a->dtype, tb, b->dtype) &&
           same_text(ta, a->shape, tb, b->shape) && same_p2p(ta, a->p2p, tb, b->p2p) && a->state == b->state &&
           a->requires_grad == b->requires_grad && same_value(&a->md5, &b->md5);
}

/* All rows of two calls. */
static inline bool
same_call(const msp_rows *ta, const msp_row_api *a, const msp_rows *tb, const msp_row_api *b)
{
    if (!msp_str_eq(a->name, b->name) || a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same_row(ta, &ta->rows[a->first + i], tb, &tb->rows[b->first + i]) ||
            &ta->apis[ta->rows[a->first + i].api] != a)
            return false;
    return true;
}

#endif
