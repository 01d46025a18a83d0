/*
 * look.h - looking at one dump, at one call of it, at one tensor, and at two tensors side by side.
 *
 * Everything here may be called from any thread; one object must not be used by two threads at the same time. Text that
 * comes as pointer and length is not terminated and lives as long as the msp_look that it comes from.
 */
#ifndef MSPROBE_LOOK_H
#define MSPROBE_LOOK_H

#include "msprobe/dump.h"
#include "msprobe/metrics.h"
#include "msprobe/stats.h"
#include "msprobe/table.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one dump ---------------------------------------------------------------------------------------------------- */

typedef struct msp_look msp_look;

typedef struct msp_look_text {
    const char *p; /* NULL: there is none */
    size_t len;
} msp_look_text;

/* One tensor, number, text or None that a call took or gave. */
typedef struct msp_look_row {
    msp_look_text name, dtype, shape, file;
    const char *section;        /* "input", "output", "parameters", "parameters_grad" or "debug" */
    const char *grad;           /* "True", "False"; NULL: not recorded */
    msp_cell stats[MSP_NSTATS]; /* of a number its value, four times; empty: not recorded */
    msp_cell checksum;          /* that the dump has; empty: none */
    int64_t bytes;              /* of the tensor, by type and shape; -1: it is none, or they do not say */
    bool tensor, nan, inf;      /* nan, inf: among its elements, as maximum and minimum tell */
} msp_look_row;

/* A record of dump.json; of the older tools' files the lines of one operator. */
typedef struct msp_look_call {
    msp_look_text name;
    size_t first, rows; /* its rows */
    bool module, backward;
    int64_t tensors, bytes;   /* tensors, and their bytes as far as they are known */
    double norm_in, norm_out; /* the largest of its finite tensors of floats; NaN: none was recorded */
    bool nan, inf;            /* in any of its tensors */
    bool bad_in, bad_out;     /* NaN or inf in what it took, in what it gave */
} msp_look_call;

/* A name and how often it comes: an element type with its tensors, a kind of call ("Functional.linear") with its calls.
 */
typedef struct msp_look_count {
    msp_look_text name;
    int64_t count;
    int64_t elements, bytes; /* of an element type */
    bool module;             /* name is a module's class */
} msp_look_count;

/* Where NaN, or inf, comes first. */
typedef enum msp_look_origin {
    MSP_LOOK_NOWHERE = 0,
    MSP_LOOK_MADE,   /* the call's inputs have neither NaN nor inf */
    MSP_LOOK_TAKEN,  /* it stands among the call's inputs or parameters already, and no earlier call gave it */
    MSP_LOOK_UNCLEAR /* the call took no tensor, or its inputs have the other one of NaN and inf */
} msp_look_origin;

typedef struct msp_look_find {
    msp_look_origin origin;
    size_t call, row;
    int64_t rows; /* how many tensors have it */
} msp_look_find;

typedef struct msp_look_growth {
    size_t call;
    double in, out; /* norms; out is larger */
} msp_look_growth;

enum { MSP_LOOK_TOP = 5 };

typedef struct msp_look_summary {
    const char *path, *task, *level; /* "" where the file has none */
    msp_framework framework;
    msp_dump_kind kind;
    size_t size; /* bytes of the file */
    bool cut;    /* it ends too early: what is complete is shown */
    size_t cut_at;
    int64_t calls, backward, modules; /* calls of both directions; those of backward; those of modules */
    int64_t rows, tensors, elements, bytes;
    int64_t files, missing; /* tensors with a file; those of them whose file is not there */
    bool has_stats, has_checksums, has_stack;
    msp_look_count *types, *kinds; /* most tensors, most calls first */
    size_t ntypes, nkinds;
    msp_look_find nan, inf;
    msp_look_growth growth[MSP_LOOK_TOP]; /* largest factor first */
    size_t ngrowth;
    size_t largest[MSP_LOOK_TOP]; /* rows of the largest tensors */
    size_t nlargest;
} msp_look_summary;

/*
 * Read the dump at place (msp_dump_find() finds them): dump.json or debug.json of any generation, or a .pkl of the
 * older tools; with it stack.json and construct.json where they are there. Memory: about 140 bytes for each tensor, and
 * twice the size of stack.json.
 *
 * Returns what msp_dump_open() does; MSP_E_FORMAT for a record that is wrong (the message names it); the place's own
 * error.
 */
MSP_API MSP_CHECK msp_status msp_look_open(msp_look **out, const msp_dump_place *place, msp_error *err);

/* MSP_E_CHANGED when one of the files was cut short since: what was said of it may be wrong. */
MSP_API MSP_CHECK msp_status msp_look_check(const msp_look *l, msp_error *err);

/* Accepts NULL. */
MSP_API void msp_look_close(msp_look *l);

/* Counted when the dump was opened; lives as long as l. */
MSP_API const msp_look_summary *msp_look_summary_of(const msp_look *l);

/* The call, or row, of this number, which must be less than the summary's calls, or rows. Texts live as long as l. */
MSP_API void msp_look_call_at(msp_look_call *out, const msp_look *l, size_t call);
MSP_API void msp_look_row_at(msp_look_row *out, const msp_look *l, size_t row);

/* Frames of a call's stack, innermost first; -1: no stack was recorded for it. */
MSP_API int64_t msp_look_depth(const msp_look *l, size_t call);

/* The i-th frame, terminated; lives until the next call of this function. NULL when there is no memory. */
MSP_API const char *msp_look_frame(msp_look *l, size_t call, size_t i);

/*
 * The calls that a name means, in the order of the dump: the call of that name, or the one with a tensor of that name;
 * else those whose names begin with it; else those that have it in them, whatever the case of the letters. *out is
 * given back with msp_look_free(); *n is 0 when there is none.
 */
MSP_API MSP_CHECK msp_status msp_look_search(size_t **out, size_t *n, const msp_look *l, const char *name,
                                             msp_error *err);

/* Give back what msp_look_search() gave out. Accepts NULL. */
MSP_API void msp_look_free(void *p);

/* Names of calls, or beginnings of them, that are near to name; the nearest first. Returns how many, up to max. */
MSP_API size_t msp_look_suggest(msp_look_text *out, size_t max, const msp_look *l, const char *name);

/* Is path a dump, by its kind, its name or its first bytes? Otherwise it may be a file of tensors. */
MSP_API bool msp_look_is_dump(const char *path);

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

enum {
    MSP_LOOK_BINS = 16,
    MSP_LOOK_DECADES = 34, /* |x| below 1e-16, a decade each up to 1e16, and above */
    MSP_LOOK_FIRST_DECADE = -16
};

typedef struct msp_look_values {
    msp_stats stats;
    double low, high;                  /* of the finite elements; NaN when there are none */
    int64_t bins[MSP_LOOK_BINS];       /* equal parts from low to high */
    int64_t decades[MSP_LOOK_DECADES]; /* finite elements that are not 0, by magnitude */
} msp_look_values;

/* Statistics and histograms; complex numbers by their moduli. Never fails, never allocates. */
MSP_API void msp_look_at_tensor(msp_look_values *out, const msp_tensor *t, int nthreads);

/* ---- two tensors ------------------------------------------------------------------------------------------------- */

enum {
    MSP_LOOK_WORST = 8,
    MSP_LOOK_ERROR_BINS = 42, /* |a - b| below 1e-12, half a decade each up to 1e8, and above */
    MSP_LOOK_MAP_ROWS = 32,
    MSP_LOOK_MAP_COLUMNS = 64
};

typedef struct msp_look_difference {
    /* As 'msprobe compare' shows and judges them: numbers, or the word that stands where there is none. */
    msp_cell cosine, euc_dist, max_abs, max_rel, one_thousandth, five_thousandths;
    const char *verdict; /* Accuracy Reached or Not: "Yes", "No", "None", "Unmatched" */
    char message[512];   /* Err_message */
    bool same_shape, same_type;
    bool identical; /* type, shape and every byte */
    /* the rest only where shapes are the same */
    msp_metrics metrics;
    int64_t differ;     /* elements whose values differ */
    int64_t bits;       /* elements whose bytes differ; -1: the types differ */
    int64_t mismatches; /* NaN or inf on one side, or infinities of different sign */
    int64_t first;      /* row-major index of the first that differs, -1: none */
    struct {
        int64_t at;
        double error; /* infinite where one side is not finite */
    } worst[MSP_LOOK_WORST];
    size_t nworst;
    int64_t errors[MSP_LOOK_ERROR_BINS]; /* elements by the size of their error; equal ones and mismatches left out */
    int64_t rows, columns;               /* the tensor as the map sees it: the last dimension lies across */
    int64_t map_rows, map_columns;
    double map[MSP_LOOK_MAP_ROWS * MSP_LOOK_MAP_COLUMNS]; /* largest error, row by row, MAP_COLUMNS places each */
    char pattern[256]; /* what the errors look like ("the last 4 of every 20 elements are zero"), or "" */
} msp_look_difference;

/*
 * Compare tensor a with the reference b. The pattern is looked for in up to 2^22 elements of a floating type, and needs
 * 40 bytes for each; everything else takes no memory. Returns MSP_E_NOMEM.
 */
MSP_API MSP_CHECK msp_status msp_look_at_two(msp_look_difference *out, const msp_tensor *a, const msp_tensor *b,
                                             int nthreads, msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
