/*
 * live.h - what recording a running training program needs beside msprobe/collect.h.
 *
 * Records whose values come late, from another device or with a collective's handle; small tensors measured on the way;
 * and a writer that is told to hurry. python/ext is the only caller outside this room, and this header the only one
 * that it sees of it.
 */
#ifndef MSP_COLLECT_LIVE_H
#define MSP_COLLECT_LIVE_H

#include "msprobe/collect.h"

/* ---- building a record ---------------------------------------------------------------------------------------------
 */

/* Append the tokens of part, which was built without msp_record_begin(). */
void msp_record_append(msp_record *r, const msp_record *part);

/*
 * Add msp_record_site()'s note to the call's own record: between the end of that and commit. For units of JSON files,
 * and not with msp_record_fill().
 */
void msp_record_place(msp_record *r, uint32_t stack, const char *parent, size_t parent_len);

/* ---- small tensors -------------------------------------------------------------------------------------------------
 */

/* A tensor without gaps. */
typedef struct msp_small {
    msp_dtype dtype;
    int32_t ndim;
    const int64_t *shape; /* lent, as data is */
    const void *data;
    int64_t numel;
    bool requires_grad;
    bool has_crc; /* its checksum is recorded, too */
} msp_small;

/*
 * Measure a tensor and put its record, as msp_record_tensor() would: for small ones, of which there are many. False,
 * and nothing was put: it is not small, is of another type than float32, float16 or bfloat16, or holds NaN or infinity.
 */
bool msp_record_small(msp_record *r, const msp_small *t);

/* As msp_record_tensor(), left open: further fields (keys and values) may follow, then msp_record_end(). */
void msp_record_tensor_open(msp_record *r, const msp_tensor_note *note);

/* ---- records and values that come late -----------------------------------------------------------------------------
 */

/*
 * Some records come late and belong where their call stood: a collective's, whose data is there when its handle was
 * waited for. msp_record_hole() begins a note, committed like a record, that keeps a place; msp_record_fill(), called
 * between begin and commit, says that the record belongs there. number is the caller's and not 0. A place is kept for
 * two seconds, or in a debug unit until the next flush; what comes later stands at the end.
 */
void msp_record_hole(msp_record *r, uint32_t unit, uint32_t number);
void msp_record_fill(msp_record *r, uint32_t number);

/*
 * Statistics that were not known when the record was built: values on their way from another device. find is called for
 * every tensor with a ticket and says whether *out holds them now, they will never come (they become null), or the
 * record has to wait. Returns whether nothing is left to wait for. A record with tickets must be settled before it is
 * committed, whatever the answer; parts of it may have been appended to others before.
 */
typedef enum msp_settled { MSP_SETTLED_LATER, MSP_SETTLED_NOW, MSP_SETTLED_NEVER } msp_settled;
typedef msp_settled msp_settle_find(msp_stats *out, uint64_t ticket, void *payload);

bool msp_record_settle(msp_record *r, msp_settle_find *find, void *payload);

/*
 * A record that has to wait is committed like any other, so that it is not lost with this process: it keeps its place
 * in the ring, and everything behind it waits with it. Until its statistics come, the files show it, and what is behind
 * it, with nulls and a note, and so they stay when they never come. This puts into the ring what find knows by now. May
 * be called from any thread, and does not wait for another one that does. Records that still wait at
 * msp_collect_flush() get no statistics.
 */
void msp_collect_settle(msp_collect *c, msp_settle_find *find, void *payload);

/* Whether what waits holds up so much that it had better be settled now. */
bool msp_collect_is_held_up(msp_collect *c);

/* ---- the writer ----------------------------------------------------------------------------------------------------
 */

/* Append text to the unit's dump_error_info.log. */
MSP_CHECK msp_status msp_collect_note_error(msp_collect *c, uint32_t unit, const char *text, msp_error *err);

/*
 * Have everything that is committed so far published soon, without waiting for it: a flush that comes next has less to
 * wait for. Places that were kept are given up, as by a flush. Does nothing when another thread is at work on c, or
 * when much waits for the writer anyway.
 */
void msp_collect_hurry(msp_collect *c);

#endif
