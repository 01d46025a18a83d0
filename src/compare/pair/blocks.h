/*
 * blocks.h - all rows of a pair, measured and judged by the pool and handed on in order.
 *
 * Rows go through in blocks of whole calls. While a block is judged the one before it is handed on, so that the order
 * is the NPU's and the consumer is never waited for by more than one block. Memory does not grow with the rows.
 */
#ifndef MSP_COMPARE_BLOCKS_H
#define MSP_COMPARE_BLOCKS_H

#include "compare/judge/judge.h"
#include "compare/match/match.h"
#include "compare/run/run.h"
#include "compare/judge/show.h"

/* One row, in order, one call at a time, from any thread. What it points to lives until the call returns. s is NULL
 * where only texts are wanted. */
typedef msp_status msp_blocks_consumer(const msp_judged *j, const msp_shown *s, size_t row, void *payload,
                                       msp_error *err);

/* The text of a row, appended by the thread that judged it, so that whoever hands on has only to copy. */
typedef void msp_blocks_formatter(const msp_shown *s, msp_buf *out, void *payload);

/* The texts of rows that the consumer has had, in order. */
typedef msp_status msp_blocks_text(msp_str text, void *payload, msp_error *err);

typedef struct msp_blocks_job {
    msp_run *run; /* its row_threads, cancellation and progress */
    const char *label;
    const msp_match *match;
    const msp_stack *stack;
    msp_show_rule show; /* both sides' rows, the mode */
    msp_measurer measurer;
    bool colour; /* mark rows red and yellow */
    bool fuzzy;
    msp_blocks_consumer *consumer;
    msp_blocks_formatter *formatter; /* NULL: no texts */
    msp_blocks_text *take_text;
    bool only_texts; /* the consumer needs no cells, and so none are kept */
    void *payload;
} msp_blocks_job;

/* MSP_E_CANCELLED, MSP_E_NOMEM, or what the consumer returned. */
MSP_CHECK msp_status msp_blocks_run(const msp_blocks_job *job, msp_error *err);

#endif
