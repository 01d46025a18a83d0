/*
 * whole.h - the dumps of several ranks of one side as the dump of one: tensors of which each rank has a part are put
 * together as the layout says, or as their own records do (DTensor).
 *
 * The rows of the first rank become those of the whole: shapes, statistics and checksums are the whole's as far as they
 * follow from those of the parts, and else "N/A". Elements stay where they are: a whole is compared part by part, each
 * with its place in the other side's tensor. A sum has to be made.
 *
 * - concat: Max, Min and Norm are exact, the mean is that of the parts' means by their numbers of elements. The
 * checksum follows where the parts lie behind each other in memory.
 * - sum: the mean is the sum of the parts' means.
 * - replicate: the first rank that has it; the others must be equal.
 */
#ifndef MSP_COMPARE_WHOLE_H
#define MSP_COMPARE_WHOLE_H

#include "compare/layout/layout.h"
#include "compare/rows/rows.h"
#include "msprobe/metrics.h"

typedef struct msp_whole msp_whole;

/*
 * Read the dumps at places[1] to places[n - 1] and put them together with rows, which are those of places[0],
 * flattened. n may be 1: rows that the layout skips are left out. side: 0 NPU, 1 bench. Errors as of
 * msp_rows_flatten(); MSP_E_INVALID where a dump has another task.
 */
MSP_CHECK msp_status msp_whole_open(msp_whole **out, const msp_layout *layout, int side, const msp_dump_place *places,
                                    size_t n, const msp_dump *lead, msp_rows *rows, msp_error *err);

/* Accepts NULL. The rows may still be there, but nothing of them may be looked at. */
void msp_whole_close(msp_whole *w);

/*
 * The call stacks of t, the rows of w: each call's from the stack.json beside its own rank's dump. *out is NULL where
 * no rank has one; close it with msp_stack_close(), and ask nothing of it once w is closed.
 */
MSP_CHECK msp_status msp_whole_stacks(msp_stack **out, msp_whole *w, const msp_rows *t, msp_error *err);

/* As msp_dump_check(), for all files that w has open. Accepts NULL. */
MSP_CHECK msp_status msp_whole_check(const msp_whole *w, msp_error *err);

/* What must be known about how the row was put together, for its Err_message; NULL: nothing. */
const char *msp_whole_note(const msp_whole *w, const msp_row *r);

/* The row's tensor as one, for a look at single elements: a copy where it has several parts. */
MSP_CHECK msp_status msp_whole_tensor(msp_tensor *out, const msp_whole *w, const msp_row *r, msp_error *err);

/* May this row's tensor be compared part by part? */
bool msp_whole_has_slices(const msp_whole *w, const msp_row *r);

/*
 * As msp_metrics_brief() with the row's tensor, part by part, on side 0 or 1 and other on the other side. *like has the
 * whole's type and shape and no data. MSP_E_INVALID when the shapes differ; errors of files.
 */
MSP_CHECK msp_status msp_whole_metrics(msp_metrics *out, msp_tensor *like, const msp_whole *w, const msp_row *r,
                                       int side, const msp_tensor *other, int threads, msp_error *err);

#endif
