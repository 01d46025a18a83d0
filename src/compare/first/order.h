/*
 * order.h - the order that communication gives to the calls of all ranks of a step.
 *
 * Calls of different ranks that belong together happen at the same time and are one group. A group's layer is the
 * longest chain of groups that some member had to wait for.
 */
#ifndef MSP_COMPARE_ORDER_H
#define MSP_COMPARE_ORDER_H

#include "compare/first/comm.h"

#define MSP_ORDER_NONE ((size_t)-1)

/* The communication calls of one rank, which lie stride bytes apart, in the order of the rank. */
typedef struct msp_order_rank {
    int64_t rank;
    const msp_comm_call *first;
    size_t stride, count;
} msp_order_rank;

static inline const msp_comm_call *
msp_order_call(const msp_order_rank *r, size_t i)
{
    return (const msp_comm_call *)((const char *)r->first + i * r->stride);
}

/* Call i of the rank with index k has the number base[k] + i in all the other arrays. A zeroed one is empty. */
typedef struct msp_order {
    size_t nranks, total;
    size_t *base; /* one more than there are ranks */
    size_t *rank; /* index of the rank whose call it is */
    size_t *group;
    int *layer;
    size_t *head, *next_member; /* head[group], next_member[...]: the calls of a group; MSP_ORDER_NONE ends */
    size_t *sequence;           /* groups, none before one that it waits for */
    size_t nsequence;
    void *memory[2];
} msp_order;

/* ranks are sorted by number. MSP_E_NOMEM; out is to be released in any case. */
MSP_CHECK msp_status msp_order_make(msp_order *out, const msp_order_rank *ranks, size_t nranks, msp_error *err);
void msp_order_release(msp_order *o);

#endif
