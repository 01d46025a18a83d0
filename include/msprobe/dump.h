/*
 * dump.h - reading dumps: where they lie, what they are, which calls they hold.
 *
 * A dump is what a collector leaves behind for one step of one rank: dump.json (or debug.json for single values that a
 * script saved), stack.json, construct.json and a folder dump_tensor_data. Every generation of the format is read:
 * files without a framework key, either form of stack.json, rank folders named rank, rank<N> or proc<pid>, and files
 * that were cut off while they were written (what is complete is used, with a warning).
 *
 * Everything here may be called from any thread; one object must not be used by two threads at the same time.
 */
#ifndef MSPROBE_DUMP_H
#define MSPROBE_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum msp_framework { MSP_FRAMEWORK_UNKNOWN = 0, MSP_PYTORCH, MSP_MINDSPORE } msp_framework;

/* "pytorch", "mindspore", "unknown". */
MSP_API const char *msp_framework_name(msp_framework f);

typedef enum msp_dump_task {
    MSP_TASK_OTHER = 0, /* overflow_check, free_benchmark, ...: msp_dump_task_text() has the word */
    MSP_TASK_TENSOR,
    MSP_TASK_STATISTICS,
    MSP_TASK_STRUCTURE
} msp_dump_task;

typedef enum msp_dump_kind {
    MSP_DUMP_API = 0,
    MSP_DUMP_DEBUG,
    MSP_DUMP_LEGACY /* a .pkl of ptdbg_ascend or torch_npu.hooks: msprobe/legacy.h */
} msp_dump_kind;

/* "dump.json", "debug.json" or ".pkl". */
MSP_API const char *msp_dump_kind_file(msp_dump_kind k);

/* The four statistics of a tensor, in the order of the tables. */
enum { MSP_STAT_MAX = 0, MSP_STAT_MIN, MSP_STAT_MEAN, MSP_STAT_NORM, MSP_NSTATS };

/* ---- where dumps lie --------------------------------------------------------------------------------------------- */

enum { MSP_DUMP_NO_NUMBER = -1 };

/* One dump.json, debug.json or .pkl of the older tools, or a folder where one should be. */
typedef struct msp_dump_place {
    char *path;  /* of that file or folder */
    char *group; /* "graph" or "pynative" in the mixed layout, else "" */
    int64_t step;
    int64_t rank;    /* MSP_DUMP_NO_NUMBER for a folder "rank" without a number, a proc<pid>, or a file by itself */
    char *step_name; /* the folder's name ("step0"), "" when none was walked through */
    char *rank_name; /* "rank0", "rank", "proc4711", or "" */
    msp_dump_kind kind;
    char *error; /* NULL, or why the folder has nothing to read; it begins with the path */
} msp_dump_place;

/*
 * All dumps below a path, sorted by group, step, rank number (unnumbered first, then by name) and kind.
 */
typedef struct msp_dump_layout {
    msp_dump_place *places;
    size_t count;
    char **strays; /* names in the walked folders that are no part of a dump: worth a warning */
    size_t nstrays;
} msp_dump_layout;

/*
 * Find the dumps at path: a dump.json or debug.json itself, or the folder of a rank, a step (with ranks in it), or a
 * whole dump (with steps in it, or graph/ and pynative/ with steps in them). A step's or numbered rank's folder below
 * path that cannot be read, or a rank's that holds no dump, is a place with its error: others may still be used.
 *
 * Returns MSP_E_NOT_FOUND when there is no such path, or no dump below it (the message says what was there instead),
 * MSP_E_IO, MSP_E_NOMEM, and MSP_E_INVALID for a world-writable file or folder that belongs to somebody else.
 */
MSP_API MSP_CHECK msp_status msp_dump_find(msp_dump_layout *out, const char *path, msp_error *err);

/* Accepts an empty (zeroed) layout and leaves it empty. */
MSP_API void msp_dump_layout_release(msp_dump_layout *l);

/* ---- one dump.json or debug.json --------------------------------------------------------------------------------- */

typedef struct msp_dump msp_dump;

/*
 * Map the file and look at its top level and where its records lie; the records themselves are read when asked for.
 *
 * Returns MSP_E_IO, MSP_E_NOMEM; MSP_E_FORMAT when it is no JSON (with line, column and byte), has no task, or its data
 * is no object. A file that ends too early is used up to its last complete record: msp_dump_cut() then says so.
 */
MSP_API MSP_CHECK msp_status msp_dump_open(msp_dump **out, const char *path, msp_error *err);

/*
 * MSP_E_CHANGED when the file was cut short while it was open: what was read of it may be zeros, names included. Ask
 * when the work is done, and whenever it fails: then this is why. Accepts NULL.
 */
MSP_API MSP_CHECK msp_status msp_dump_check(const msp_dump *d, msp_error *err);

/* Accepts NULL. */
MSP_API void msp_dump_close(msp_dump *d);

/* What was recorded, and the word for it in the file, "" when there is none; both live as long as d. */
MSP_API msp_dump_task msp_dump_task_of(const msp_dump *d);
MSP_API const char *msp_dump_task_text(const msp_dump *d);

/* The level as written ("L0", "L1", "mix", "debug", ...), "" when there is none. */
MSP_API const char *msp_dump_level(const msp_dump *d);

/* From the framework key or, in files of older generations, the first record's types. */
MSP_API msp_framework msp_dump_framework(const msp_dump *d);

/* True when the file was cut off; *at (may be NULL) is the byte from which on nothing was used. */
MSP_API bool msp_dump_cut(const msp_dump *d, size_t *at);

/* Bytes of the file. */
MSP_API size_t msp_dump_size(const msp_dump *d);

/* Calls (records under "data") in file order. */
MSP_API size_t msp_dump_count(const msp_dump *d);

/* The i-th record's name; not terminated, *len bytes, lives as long as d. */
MSP_API const char *msp_dump_name(const msp_dump *d, size_t i, size_t *len);

/* The i-th record as it stands in the file, which need not be JSON; not terminated, *len bytes, lives as long as d. */
MSP_API const char *msp_dump_text(const msp_dump *d, size_t i, size_t *len);

/* ---- stack.json -------------------------------------------------------------------------------------------------- */

typedef struct msp_stack msp_stack;

/* Read either form of stack.json. Returns MSP_E_IO, MSP_E_NOMEM or MSP_E_FORMAT. */
MSP_API MSP_CHECK msp_status msp_stack_open(msp_stack **out, const char *path, msp_error *err);

/* How many frames are recorded for this call; -1 when there is no entry for it. s may be NULL. */
MSP_API int64_t msp_stack_depth(const msp_stack *s, const char *name, size_t len);

/* The i-th frame, innermost first; not terminated, *frame_len bytes, lives as long as s. */
MSP_API const char *msp_stack_frame(const msp_stack *s, const char *name, size_t len, size_t i, size_t *frame_len);

/* Is this a frame of torch, MindSpore or what stands around them? Its line says no more than the call's name. */
MSP_API bool msp_frame_is_machinery(const char *frame, size_t len);

/* Does its file stand in an installed package? */
MSP_API bool msp_frame_is_installed(const char *frame, size_t len);

/* As msp_dump_check(). */
MSP_API MSP_CHECK msp_status msp_stack_check(const msp_stack *s, msp_error *err);

/* Accepts NULL. */
MSP_API void msp_stack_close(msp_stack *s);

#ifdef __cplusplus
}
#endif
#endif
