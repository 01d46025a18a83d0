/*
 * gather.h - a tensor's elements in row-major order, a block at a time, however they lie in memory.
 *
 * Kernels read blocks of consecutive elements. A contiguous tensor hands them out in place; of a strided one each block
 * is copied into the caller's buffer, so that no kernel knows strides and no tensor is copied as a whole.
 */
#ifndef MSP_KERNELS_GATHER_H
#define MSP_KERNELS_GATHER_H

#include "msprobe/tensor.h"

/* A tensor's layout with sizes of 1 dropped and dimensions that continue each other merged. Read-only once made. */
typedef struct msp_gather {
    const char *data;
    size_t size;  /* bytes per element */
    int32_t ndim; /* 0: contiguous */
    int64_t shape[MSP_MAX_NDIM];
    int64_t strides[MSP_MAX_NDIM]; /* in bytes */
} msp_gather;

void msp_gather_init(msp_gather *g, const msp_tensor *t);

/*
 * The address of count elements from row-major index start on, without gaps: in place where they lie so, else copied to
 * buf, which has room for them. start + count is at most the tensor's numel.
 */
const void *msp_gather_block(const msp_gather *g, int64_t start, int64_t count, void *buf);

#endif
