/*
 * collect.h - from calls in a training process to a dump on disk.
 *
 * The training process only builds binary records and copies them into a ring: a file in the dump folder, mapped
 * shared. A small writer process turns them into dump.json, stack.json and construct.json. It is not a child that the
 * program could wait for by mistake, inherits nothing, lives in a session of its own, and goes on after the training
 * process was killed until the ring is empty. Whenever anything is killed, the JSON files are valid: a file is
 * published by exchanging it with its twin, which has the new records appended (docs/design/collector.md).
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
    MSP_UNIT_DEBUG,    /* debug.json, or another file of its form */
    MSP_UNIT_PTDBG,    /* ptdbg_ascend: one JSON array per line in file, elements as data_dir/<name>.npy */
    MSP_UNIT_HOOKS     /* torch_npu.hooks: one JSON array per line in file, elements included */
} msp_unit_kind;

typedef struct msp_unit_info {
    const char *dir; /* .../step0/rank0, created when missing */
    msp_unit_kind kind;
    const char *task, *level, *framework;
    const char *data_dir; /* dump_data_dir as text, NULL: null */
    const char *file;     /* MSP_UNIT_PTDBG and _HOOKS: name of the file in dir; _DEBUG: NULL, or its name instead */
    int64_t mark;         /* MSP_UNIT_PTDBG: the second element of a line; above 100 there are no statistics */
} msp_unit_info;

/*
 * Open a unit; its files exist, valid and empty, when the next flush returns. Earlier files of the same name are
 * replaced, but lines (MSP_UNIT_PTDBG, MSP_UNIT_HOOKS) are appended.
 *
 * A record of a unit of lines is an object. Each member is one line, named by its key: a tensor (with its values, see
 * msp_tensor_note), a number or boolean, or null for the call stack.
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

/* Begin a member `name` of the unit's "data" object; exactly one value (tokens below) follows. */
MSP_API void msp_record_begin(msp_record *r, uint32_t unit, const char *name, size_t len);

/*
 * Begin a note about a call: where it was called from (stack, an id given by msp_collect_stack(), 0: none) and which
 * module it belongs to. It is committed like a record but has no value. parent NULL: no entry in construct.json; "" :
 * null.
 */
MSP_API void msp_record_site(msp_record *r, uint32_t unit, const char *name, size_t len, uint32_t stack,
                             const char *parent, size_t parent_len);

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
    uint64_t ticket;        /* 0; for who records values of another device: src/collect/live.h */
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

/*
 * Hand the record over; r is empty and reusable afterwards. When the ring is full this waits for the writer: wait (may
 * be NULL) is called once before and once after, so that a caller can let go of its interpreter lock.
 *
 * MSP_E_IO: the writer reported that it cannot go on (full disk, ...); nothing more will be recorded and err says why.
 */
MSP_API MSP_CHECK msp_status msp_collect_commit(msp_collect *c, msp_record *r, void (*wait)(bool begin, void *payload),
                                                void *payload, msp_error *err);

/* A call stack as text, innermost frame first. Returns its id through *id; the caller caches it. */
MSP_API MSP_CHECK msp_status msp_collect_stack(msp_collect *c, uint32_t *id, const char *const *frames, size_t nframes,
                                               msp_error *err);

/*
 * Wait until everything committed so far is published, or the writer has failed. wait as in msp_collect_commit().
 */
MSP_API MSP_CHECK msp_status msp_collect_flush(msp_collect *c, void (*wait)(bool begin, void *payload), void *payload,
                                               msp_error *err);

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
