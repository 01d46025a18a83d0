/*
 * rows.h - a dump as a list of rows: one per tensor, number, text or None that a call took or gave.
 *
 * Rows are what is matched, measured and judged. They hold views into the mapped dump.json wherever they can, and short
 * texts that repeat (types, shapes) are kept once: about 140 bytes a row, whatever the JSON around it weighs.
 */
#ifndef MSP_COMPARE_ROWS_H
#define MSP_COMPARE_ROWS_H

#include "core/arena.h"
#include "core/map.h"
#include "dump/dump_read.h"
#include "msprobe/compare.h"
#include "msprobe/dtype.h"

/* A value as the dump holds it. */
typedef enum msp_val_kind { VAL_NONE = 0, VAL_TEXT, VAL_INT, VAL_FLOAT, VAL_BOOL } msp_val_kind;

typedef struct msp_val {
    uint8_t kind;
    uint32_t len; /* of text */
    union {
        const char *p;
        int64_t i; /* VAL_INT and VAL_BOOL */
        double f;
    } as;
} msp_val;

/* The order is that of the rows of one call. */
typedef enum msp_row_state {
    STATE_INPUT = 0,
    STATE_DEBUG,
    STATE_PARAMETERS,
    STATE_OUTPUT,
    STATE_PARAMETERS_GRAD
} msp_row_state;

/* "input", "debug", "parameters", "output", "parameters_grad". */
const char *msp_row_state_text(msp_row_state s);

typedef enum msp_flag { FLAG_ABSENT = 0, FLAG_FALSE, FLAG_TRUE } msp_flag;

enum { ROW_NO_TEXT = 0 }; /* index 0 of msp_rows.texts is no text: the cell says None */

typedef struct msp_row {
    const char *name;
    const char *file; /* data_name, NULL when there is none */
    uint32_t name_len, file_len;
    uint32_t api;          /* index into msp_rows.apis */
    uint32_t dtype, shape; /* indexes into msp_rows.texts */
    uint32_t p2p;          /* 1 + index into msp_rows.p2p, 0: this row is no P2POp */
    uint8_t state;         /* msp_row_state */
    uint8_t requires_grad; /* msp_flag */
    bool plain;            /* no tensor: a number, a text, None; the value itself stands in the dump */
    uint16_t dtensor;      /* 1 + index into msp_rows.dtensors, 0: none */
    uint32_t whole;        /* 1 + number of its parts in a msp_whole, 0: it has none */
    msp_val stats[MSP_NSTATS];
    msp_val md5; /* VAL_NONE: the cell says N/A */
} msp_row;

/* One text that many rows share, and what is known about it as a type or a shape. */
typedef struct msp_row_text {
    msp_str text;
    int64_t numel;   /* of a shape of integers, else -1 */
    msp_dtype dtype; /* of a type's name, else MSP_DTYPE_NONE */
} msp_row_text;

typedef struct msp_row_p2p {
    msp_str op, peer; /* as text */
} msp_row_p2p;

/* How a rank's part of a DTensor belongs to the whole: over each dimension of the mesh. */
enum { DTENSOR_MAX_DIM = 8 };

typedef enum msp_placement_kind { DTENSOR_REPLICATE = 0, DTENSOR_SHARD, DTENSOR_SUM, DTENSOR_OTHER } msp_placement_kind;

typedef struct msp_row_dtensor {
    int64_t *ranks; /* of the mesh, in row-major order */
    size_t nranks;
    int ndim;
    int64_t sizes[DTENSOR_MAX_DIM];
    struct {
        msp_placement_kind kind;
        int64_t dim; /* of the tensor, for shards */
    } placements[DTENSOR_MAX_DIM];
} msp_row_dtensor;

typedef struct msp_row_api {
    msp_str name;
    size_t first, count; /* its rows */
    msp_str recorded;    /* its name in its own dump, where a msp_whole has given it another one; else empty */
    uint32_t member;     /* of a msp_whole: whose call it is */
} msp_row_api;

typedef struct msp_rows {
    msp_arena arena;
    msp_row *rows;
    size_t count, cap;
    msp_row_api *apis; /* in file order; calls without rows too */
    size_t napis;
    msp_row_text *texts;
    size_t ntexts, cap_texts;
    msp_map text_ids;
    msp_row_p2p *p2p;
    size_t np2p, cap_p2p;
    msp_row_dtensor *dtensors;
    size_t ndtensors, cap_dtensors;
    bool has_md5; /* some leaf has a checksum of its own */
} msp_rows;

static inline msp_str
msp_row_name(const msp_row *r)
{
    return (msp_str){r->name, r->name_len};
}

static inline msp_str
msp_row_file(const msp_row *r)
{
    return (msp_str){r->file, r->file_len};
}

static inline msp_str
msp_row_dtype(const msp_rows *t, const msp_row *r)
{
    return t->texts[r->dtype].text;
}

static inline msp_str
msp_row_shape(const msp_rows *t, const msp_row *r)
{
    return t->texts[r->shape].text;
}

/* How large the row's tensor is, by its type and shape; -1: they do not say. */
static inline int64_t
msp_row_bytes(const msp_rows *t, const msp_row *r)
{
    int64_t numel = t->texts[r->shape].numel, size = (int64_t)msp_dtype_size(t->texts[r->dtype].dtype);

    return numel < 0 || size <= 0 || numel > INT64_MAX / size ? -1 : numel * size;
}

/* Called now and then while a dump is read; false cancels. */
typedef bool msp_rows_tick(size_t bytes, void *payload);

/*
 * Flatten all records of d, which must stay open as long as the rows are used. MSP_E_FORMAT names the call and the key
 * that is wrong; MSP_E_LIMIT when values nest deeper than 400; MSP_E_CANCELLED when tick (may be NULL) said so. out is
 * to be released in any case.
 */
MSP_CHECK msp_status msp_rows_flatten(msp_rows *out, const msp_dump *d, msp_rows_tick *tick, void *payload,
                                      msp_error *err);
void msp_rows_release(msp_rows *t);

/* The number of a DTensor's placement in t, from its leaf; 0: it has none that can be read. False: no memory. */
bool msp_rows_dtensor(msp_rows *t, uint16_t *out, const msp_json *mesh, const msp_json *placements);

/* The row has a file, and is called like it, without the extension. file lives as long as the rows, and is not empty.
 */
void msp_row_set_file(msp_row *r, msp_str file);

/* The number of a text in msp_rows.texts, a new one where it was not there. False: there is no memory. */
bool msp_rows_intern(msp_rows *t, msp_str s, uint32_t *id);

/* CRC-32 of a value's text: what stands for a checksum where the dump has none. False: there is no memory. */
bool msp_row_set_checksum(msp_rows *t, msp_row *r, msp_str value);

/*
 * For readers of other files. Each is false (or NULL) when there is no memory. A new row is the reader's until it
 * raises t->count; dtype is text; lists among the values become their text.
 */
bool msp_rows_begin(msp_rows *t);
msp_row *msp_rows_new(msp_rows *t);
bool msp_rows_texts(msp_rows *t, msp_row *r, const msp_json *dtype, const msp_json *shape);
bool msp_rows_value(msp_rows *t, msp_val *out, const msp_json *v);

/* The number that a value stands for: numbers, NaN, and text that is one. False for everything else, True included. */
bool msp_val_number(const msp_val *v, double *out);

#endif
