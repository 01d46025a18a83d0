/* gather.c - see gather.h. */
#include "kernels/gather.h"

#include <string.h>

/* Append a dimension, or widen the last one when the new one continues it. */
static void
push_dimension(msp_gather *g, int64_t shape, int64_t stride)
{
    int32_t last = g->ndim - 1;

    if (last >= 0 && g->strides[last] == shape * stride) {
        g->shape[last] *= shape;
        g->strides[last] = stride;
        return;
    }
    g->shape[g->ndim] = shape;
    g->strides[g->ndim] = stride;
    g->ndim++;
}

void
msp_gather_init(msp_gather *g, const msp_tensor *t)
{
    g->data = t->data;
    g->size = msp_dtype_size(t->dtype);
    g->ndim = 0;
    if (msp_tensor_is_contiguous(t))
        return;
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->shape[i] != 1)
            push_dimension(g, t->shape[i], t->strides[i] * (int64_t)g->size);
}

#define COPY_LOOP(bytes)                                 \
    for (int64_t i = 0; i < count; i++, src += stride) { \
        memcpy(dst, src, bytes);                         \
        dst += bytes;                                    \
    }                                                    \
    return

/* Copy count elements that lie stride bytes apart. A constant size makes each memcpy one load and one store. */
static void
copy_run(char *dst, const char *src, int64_t stride, int64_t count, size_t size)
{
    if (stride == (int64_t)size) {
        memcpy(dst, src, (size_t)count * size);
        return;
    }
    switch (size) {
    case 1:
        COPY_LOOP(1);
    case 2:
        COPY_LOOP(2);
    case 4:
        COPY_LOOP(4);
    case 8:
        COPY_LOOP(8);
    default:
        COPY_LOOP(16);
    }
}

/* Coordinates of a row-major index; returns the byte offset of its element. */
static int64_t
locate_element(const msp_gather *g, int64_t index, int64_t coords[MSP_MAX_NDIM])
{
    int64_t offset = 0;

    for (int32_t i = g->ndim - 1; i >= 0; i--) {
        coords[i] = index % g->shape[i];
        index /= g->shape[i];
        offset += coords[i] * g->strides[i];
    }
    return offset;
}

/* Step to the start of the next row of the last dimension; returns its byte offset. */
static int64_t
next_row(const msp_gather *g, int64_t coords[MSP_MAX_NDIM])
{
    int64_t offset = 0;
    int32_t i = g->ndim - 1;

    coords[i] = 0;
    for (i--; i >= 0 && ++coords[i] == g->shape[i]; i--)
        coords[i] = 0;
    for (i = 0; i < g->ndim; i++)
        offset += coords[i] * g->strides[i];
    return offset;
}

const void *
msp_gather_block(const msp_gather *g, int64_t start, int64_t count, void *buf)
{
    int64_t coords[MSP_MAX_NDIM], offset, done = 0;
    int32_t last = g->ndim - 1;

    if (g->ndim == 0)
        return g->data + start * (int64_t)g->size;
    offset = locate_element(g, start, coords);
    if (g->strides[last] == (int64_t)g->size && g->shape[last] - coords[last] >= count)
        return g->data + offset;
    for (;;) {
        int64_t run = g->shape[last] - coords[last];

        if (run > count - done)
            run = count - done;
        copy_run((char *)buf + done * (int64_t)g->size, g->data + offset, g->strides[last], run, g->size);
        done += run;
        if (done == count)
            return buf;
        offset = next_row(g, coords);
    }
}
