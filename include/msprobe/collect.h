/*
 * collect.h - from calls in a training process to a dump on disk.
 *
 * The training process only builds binary records and copies them into a ring: a file in the dump folder, mapped
 * shared. A small writer process turns them into dump.json, stack.json and construct.json. It is not a child that the
 * program could wait for by mistake, inherits nothing, lives in a session of its own, and goes on after the training
 * process was killed until the ring is empty. Whenever anything is killed, the JSON files are valid: a file is
 * published by exchanging it with its twin, which has the new records appended (docs/collector.md).
 *
 * Life of a collection:
 *     msp_collect_open      ring and writer
 *       msp_collect_unit    one folder step<N>/rank<R>, its files created
 *         msp_record_begin ... tokens ... msp_collect_commit     once per call
 *       msp_collect_flush   everything committed is on disk and readable when it returns
 *       msp_collect_unit_close
 *     msp_collect_close
 */
#ifndef MSPROBE_COLLECT_H
#define MSPROBE_COLLECT_H

#include "msprobe/stats.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msp_collect msp_collect;

typedef struct msp_collect_options {
    const char *dir;   /* where the ring lives: the dump folder, created when missing */
    size_t ring_bytes; /* 0: 32 MiB. Reserved on disk at once, so that a full disk is told here and not by a signal */
    const char *writer_path; /* the msprobe command; NULL: no process, a thread of this process writes instead */
    int stall_ms; /* 0: 60 s. Who waits for a writer that stands still waits no longer; then recording has failed */
} msp_collect_options;

/*
 * Create the ring and start the writer. MSP_E_IO when the folder, the ring or the process cannot be made. One thread at
 * a time may call the functions of one msp_collect, unless said otherwise.
 */
MSP_API MSP_CHECK msp_status msp_collect_open(msp_collect **out, const msp_collect_options *opt, msp_error *err);

typedef enum msp_unit_kind {
    MSP_UNIT_DUMP = 0, /* dump.json, stack.json, construct.json */
    MSP_UNIT_DEBUG,    /* debug.json */
    MSP_UNIT_PTDBG,    /* ptdbg_ascend: one JSON array per line in file, elements as data_dir/<name>.npy */
    MSP_UNIT_HOOKS     /* torch_npu.hooks: one JSON array per line in file, elements included */
} msp_unit_kind;

typedef struct msp_unit_info {
    const char *dir; /* .../step0/rank0, created when missing */
    msp_unit_kind kind;
    const char *task, *level, *framework;
    const char *data_dir; /* dump_data_dir as text, NULL: null */
    const char *file;     /* MSP_UNIT_PTDBG and _HOOKS: name of the file in dir */
    int64_t mark;         /* MSP_UNIT_PTDBG: the second element of a line; above 100 there are no statistics */
} msp_unit_info;

/*
 * Open a unit; its files exist, valid and empty, when the next flush returns. Earlier files of the same name are
 * replaced, but lines (MSP_UNIT_PTDBG, MSP_UNIT_HOOKS) are appended.
 *
 * A record of a unit of lines is an object. Each member is one line, named by its key: a tensor (with its values, see
 * msp_tensor_note), a number or boolean, or null for the call stack whose id was given by msp_record_fill().
 */
MSP_API MSP_CHECK msp_status msp_collect_unit(msp_collect *c, uint32_t *unit, const msp_unit_info *info,
                                              msp_error *err);

/* No more records for this unit: its files get their final form. */
MSP_API MSP_CHECK msp_status msp_collect_unit_close(msp_collect *c, uint32_t unit, msp_error *err);

/* ---- records ----------------------------------------------------------------------------------------------------- */

/*
 * A record under construction: tokens in a buffer that is kept from call to call. Zeroed is empty. A failed allocation
 * is remembered and reported by msp_collect_commit().
 */
typedef struct msp_record {
    unsigned char *p;
    size_t len, cap;
    bool failed;
} msp_record;

/* Free its memory and leave it empty. Accepts an empty record. */
MSP_API void msp_record_release(msp_record *r);

/* n more bytes, which are the caller's to fill in: for whoever keeps bytes of another kind in such a buffer. False
 * without memory. */
MSP_API MSP_CHECK bool msp_record_reserve(msp_record *r, size_t n);

/* Append the tokens of part, which was built without msp_record_begin(). */
MSP_API void msp_record_append(msp_record *r, const msp_record *part);

/* Begin a member `name` of the unit's "data" object; exactly one value (tokens below) follows. */
MSP_API void msp_record_begin(msp_record *r, uint32_t unit, const char *name, size_t len);

/*
 * Some records come late and belong where their call stood: a collective's, whose data is there when its handle was
 * waited for. msp_record_hole() begins a note, committed like a record, that keeps a place; msp_record_fill(), called
 * between begin and commit, says that the record belongs there. number is the caller's and not 0. A place is kept for
 * two seconds, or in a debug unit until the next flush; what comes later stands at the end.
 */
MSP_API void msp_record_hole(msp_record *r, uint32_t unit, uint32_t number);
MSP_API void msp_record_fill(msp_record *r, uint32_t number);

/*
 * Begin a note about a call: where it was called from (stack, an id given by msp_collect_stack(), 0: none) and which
 * module it belongs to. It is committed like a record but has no value. parent NULL: no entry in construct.json; "" :
 * null.
 */
MSP_API void msp_record_site(msp_record *r, uint32_t unit, const char *name, size_t len, uint32_t stack,
                             const char *parent, size_t parent_len);

/*
 * The same in one with the call's value: between the end of that and commit. For units of JSON files, and not with
 * msp_record_fill().
 */
MSP_API void msp_record_place(msp_record *r, uint32_t stack, const char *parent, size_t parent_len);

/* Values. Containers hold what is put between begin and end; in an object every value follows a key. */
MSP_API void msp_record_object(msp_record *r);
MSP_API void msp_record_array(msp_record *r);
MSP_API void msp_record_end(msp_record *r);
MSP_API void msp_record_key(msp_record *r, const char *key, size_t len);
MSP_API void msp_record_null(msp_record *r);
MSP_API void msp_record_bool(msp_record *r, bool v);
MSP_API void msp_record_int(msp_record *r, int64_t v);
MSP_API void msp_record_float(msp_record *r, double v);
MSP_API void msp_record_text(msp_record *r, const char *p, size_t len);

/* What is known of a tensor. Fields that do not apply are left zero. */
typedef struct msp_tensor_note {
    const char *type;           /* NULL: "torch.Tensor" */
    const char *dtype;          /* NULL: the torch name of tensor->dtype */
    const msp_tensor *shape_of; /* ndim, shape, dtype are read; data may be NULL */
    bool requires_grad;
    const msp_stats *stats; /* NULL: Max, Min, Mean, Norm are null */
    uint64_t ticket;        /* not 0: statistics come later, by msp_record_settle(); stats is ignored */
    bool has_crc;           /* then "md5" follows */
    uint32_t crc;
    const char *data_name;     /* NULL: none */
    const char *why_no_values; /* NULL, or why there are no values ("meta tensor"): an extra field "note" */
    const msp_tensor *values;  /* NULL, or whose elements travel with the record: for units of lines */
} msp_tensor_note;

/*
 * One tensor's record with its fields in the order of the format, statistics as msprobe writes them: booleans for bool
 * tensors, integers for 0-d integer tensors, floats otherwise.
 */
MSP_API void msp_record_tensor(msp_record *r, const msp_tensor_note *note);

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
 * The same of a tensor that is measured here: for small ones, of which there are many. False, and nothing was put: it
 * is not small, is of another type than float32, float16 or bfloat16, or holds NaN or infinity.
 */
MSP_API bool msp_record_small(msp_record *r, const msp_small *t);

/* The same, left open: further fields (keys and values) may follow, then msp_record_end(). */
MSP_API void msp_record_tensor_open(msp_record *r, const msp_tensor_note *note);

/*
 * Statistics that were not known when the record was built: values on their way from another device. find is called for
 * every tensor with a ticket and says whether *out holds them now, they will never come (they become null), or the
 * record has to wait. Returns whether nothing is left to wait for. A record with tickets must be settled before it is
 * committed, whatever the answer; parts of it may have been appended to others before.
 */
typedef enum msp_settled { MSP_SETTLED_LATER, MSP_SETTLED_NOW, MSP_SETTLED_NEVER } msp_settled;
typedef msp_settled msp_settle_find(msp_stats *out, uint64_t ticket, void *payload);

MSP_API bool msp_record_settle(msp_record *r, msp_settle_find *find, void *payload);

/*
 * Hand the record over; r is empty and reusable afterwards. When the ring is full this waits for the writer: wait (may
 * be NULL) is called once before and once after, so that a caller can let go of its interpreter lock.
 *
 * MSP_E_IO: the writer reported that it cannot go on (full disk, ...); nothing more will be recorded and err says why.
 */
MSP_API MSP_CHECK msp_status msp_collect_commit(msp_collect *c, msp_record *r, void (*wait)(bool begin, void *payload),
                                                void *payload, msp_error *err);

/*
 * A record that has to wait is committed like any other, so that it is not lost with this process: it keeps its place
 * in the ring, and everything behind it waits with it. Until its statistics come, the files show it, and what is behind
 * it, with nulls and a note, and so they stay when they never come. This puts into the ring what find knows by now. May
 * be called from any thread, and does not wait for another one that does.
 */
MSP_API void msp_collect_settle(msp_collect *c, msp_settle_find *find, void *payload);

/* Whether what waits holds up so much that it had better be settled now. */
MSP_API bool msp_collect_is_held_up(msp_collect *c);

/* A call stack as text, innermost frame first. Returns its id through *id; the caller caches it. */
MSP_API MSP_CHECK msp_status msp_collect_stack(msp_collect *c, uint32_t *id, const char *const *frames, size_t nframes,
                                               msp_error *err);

/* Append text to the unit's dump_error_info.log. */
MSP_API MSP_CHECK msp_status msp_collect_note_error(msp_collect *c, uint32_t unit, const char *text, msp_error *err);

/*
 * Wait until everything committed so far is published, or the writer has failed. wait as in msp_collect_commit().
 * Records that still wait for statistics get none: settle them before.
 */
MSP_API MSP_CHECK msp_status msp_collect_flush(msp_collect *c, void (*wait)(bool begin, void *payload), void *payload,
                                               msp_error *err);

/*
 * Have everything that is committed so far published soon, without waiting for it: a flush that comes next has less to
 * wait for. Places that were kept are given up, as by a flush. Does nothing when another thread is at work on c, or
 * when much waits for the writer anyway.
 */
MSP_API void msp_collect_hurry(msp_collect *c);

/*
 * Flush, end the writer and free c. Accepts NULL. In a child made by fork() it frees memory only: the ring belongs to
 * the parent.
 */
MSP_API void msp_collect_close(msp_collect *c);

/* ---- the other side ---------------------------------------------------------------------------------------------- */

/* What the writer process runs: drain the ring at path until its producer has closed it or is gone. */
MSP_API MSP_CHECK msp_status msp_collect_write(const char *ring_path, msp_error *err);

/*
 * Bring a dump up to date from rings that nobody serves any more (everything was killed). path is the dump folder, or
 * anything in it: the folder of a step or rank, a dump.json. Returns through *recovered how many records were taken
 * from them, of which the files may have shown some already; rings whose process still runs are left alone. A path that
 * does not exist has nothing to recover and is no error; a ring that cannot be used (damaged, a read-only folder) is a
 * warning.
 */
MSP_API MSP_CHECK msp_status msp_collect_recover(const char *path, int64_t *recovered, msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
