/* pieces.c - see pieces.h. */
#include "io/pieces.h"

#include <string.h>
#include "core/alloc.h"

enum { BUFFER_SIZE = 256 * 1024 };

typedef struct gather {
    const msp_tensor *t;
    size_t element;
    size_t run;    /* bytes that lie together: the innermost dimensions, as far as they have no gaps */
    int32_t outer; /* how many dimensions are left outside of a run */
    char *buffer;
    size_t fill;
    msp_pieces_sink *sink;
    void *payload;
    msp_error *err;
} gather;

static void
find_run(gather *g)
{
    const msp_tensor *t = g->t;
    int64_t together = 1;

    g->element = msp_dtype_size(t->dtype);
    g->outer = t->ndim;
    while (g->outer > 0 && (t->shape[g->outer - 1] == 1 || t->strides[g->outer - 1] == together)) {
        together *= t->shape[g->outer - 1];
        g->outer--;
    }
    g->run = (size_t)together * g->element;
}

static msp_status
flush_piece(gather *g)
{
    msp_status st = g->fill > 0 ? g->sink(g->buffer, g->fill, g->payload, g->err) : MSP_OK;

    g->fill = 0;
    return st;
}

static msp_status
add_run(gather *g, const char *p)
{
    msp_status st = MSP_OK;

    if (g->run > BUFFER_SIZE - g->fill)
        st = flush_piece(g);
    if (st != MSP_OK)
        return st;
    if (g->run >= BUFFER_SIZE) /* long enough to need no buffer */
        return g->sink(p, g->run, g->payload, g->err);
    memcpy(g->buffer + g->fill, p, g->run);
    g->fill += g->run;
    return MSP_OK;
}

/* n single elements that are step bytes apart; sizes known to the compiler make the copies single instructions. */
static void
copy_elements(char *to, const char *from, int64_t step, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++, to += size, from += step) {
        switch (size) {
        case 1:
            *to = *from;
            break;
        case 2:
            memcpy(to, from, 2);
            break;
        case 4:
            memcpy(to, from, 4);
            break;
        case 8:
            memcpy(to, from, 8);
            break;
        default:
            memcpy(to, from, size);
        }
    }
}

/* The innermost dimension that is not part of a run. */
static msp_status
add_row(gather *g, const char *p)
{
    int64_t count = g->t->shape[g->outer - 1];
    int64_t step = g->t->strides[g->outer - 1] * (int64_t)g->element;
    msp_status st = MSP_OK;

    if (g->run > g->element) {
        for (int64_t i = 0; st == MSP_OK && i < count; i++)
            st = add_run(g, p + i * step);
        return st;
    }
    while (st == MSP_OK && count > 0) {
        size_t room = (BUFFER_SIZE - g->fill) / g->element;
        size_t n = (uint64_t)count < room ? (size_t)count : room;

        copy_elements(g->buffer + g->fill, p, step, n, g->element);
        g->fill += n * g->element;
        p += (int64_t)n * step;
        count -= (int64_t)n;
        if (count > 0)
            st = flush_piece(g);
    }
    return st;
}

static msp_status
add_all(gather *g)
{
    int64_t index[MSP_MAX_NDIM] = {0};
    const char *p = g->t->data;

    for (;;) {
        int32_t d = g->outer - 2;
        msp_status st = add_row(g, p);

        if (st != MSP_OK)
            return st;
        for (; d >= 0; d--) { /* count on, as an odometer does */
            int64_t step = g->t->strides[d] * (int64_t)g->element;

            p += step;
            if (++index[d] < g->t->shape[d])
                break;
            p -= step * index[d];
            index[d] = 0;
        }
        if (d < 0)
            return flush_piece(g);
    }
}

msp_status
msp_tensor_pieces(const msp_tensor *t, msp_pieces_sink *sink, void *payload, msp_error *err)
{
    gather g = {.t = t, .sink = sink, .payload = payload, .err = err};
    msp_status st;

    if (t->numel == 0)
        return MSP_OK;
    find_run(&g);
    if (g.outer == 0)
        return sink(t->data, g.run, payload, err);
    g.buffer = msp_alloc(BUFFER_SIZE, 1);
    if (g.buffer == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = add_all(&g);
    msp_free(g.buffer);
    return st;
}
