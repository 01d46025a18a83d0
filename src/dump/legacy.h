/*
 * legacy.h - the text files of ptdbg_ascend and torch_npu.hooks, line by line.
 *
 * Each line is one JSON array; blank lines are skipped. Which one it is shows in its elements:
 *
 *   [name, step, [], dtype, shape, [max, min, mean]]         ptdbg_ascend up to 4.0; step is at most 100
 *   [name, step, crc, dtype, shape, [max, min, mean, norm]]  5.0 and 6.0; crc: [] or 8 hex digits; 6.0: dots in names
 *   [name, 101, [], dtype, shape]                            an overflow's tensor: no statistics
 *   [name + "_stack_info", [[path, line, function, code], ...]]
 *   [name, [values...], dtype, shape]                        torch_npu.hooks: all values of the tensor, row-major;
 *                                                            what follows in other forms is passed over
 *
 * dtype is text, shape a list or the text "[]" (a Python number). The value list of torch_npu.hooks may be most of a
 * large file: it is kept as text here and read when it is wanted.
 *
 * The last line may be torn by a crash: when it has no end and is no JSON it is left out, and cut is set.
 */
#ifndef MSP_DUMP_LEGACY_H
#define MSP_DUMP_LEGACY_H

#include "text/json.h"
#include "msprobe/tensor.h"
#include "msprobe/legacy.h"

typedef enum msp_legacy_kind { LEGACY_TENSOR, LEGACY_VALUES, LEGACY_STACK } msp_legacy_kind;

#define LEGACY_NONE SIZE_MAX

enum { LEGACY_STATS = 4, LEGACY_KNOWN = 256 };

/* One line. JSON values live until the next call of msp_legacy_next(); text without escapes as long as the file. */
typedef struct msp_legacy_line {
    msp_legacy_kind kind;
    size_t number; /* 1-based */
    msp_str text;  /* the whole line */
    msp_str name;
    int64_t step;                  /* TENSOR: above 100 means that there are no statistics */
    const msp_json *checksum;      /* TENSOR: element 2, of any kind */
    const msp_json *dtype, *shape; /* TENSOR, VALUES */
    const msp_json *stats;         /* TENSOR: element 5 where it is an array, else NULL */
    const msp_json *frames;        /* STACK: an array */
    msp_str values;                /* VALUES: the list's text, brackets included; not checked yet */
    /* LEGACY_NONE, or which line of a tensor, counted from 0, differs from this one in its name and its numbers only:
     * JSON values and step are not set then */
    size_t like;
    double numbers[LEGACY_STATS]; /* TENSOR that is like another: its statistics, all of them floats */
    size_t nnumbers;
} msp_legacy_line;

/* What stands in a line beside its name and its numbers, and in which line of a tensor that was. */
typedef struct msp_legacy_known {
    msp_str rest;
    size_t line;
} msp_legacy_known;

/* Zero it and set text, size and path (for messages; "" for none), then call msp_legacy_next() until it is done. */
typedef struct msp_legacy_reader {
    const char *text;
    size_t size;
    const char *path;
    size_t at, line; /* byte and number of the line that comes next, both from 0 */
    msp_json_doc doc;
    _Alignas(16) char room[2048]; /* of the document: most lines need no other memory */
    msp_buf scratch;
    bool cut;   /* the last line is torn and was left out */
    bool quiet; /* no warnings */
    /* NULL, or LEGACY_KNOWN zeroed places: most lines differ from one before them in name and numbers only, and what
     * else stands in them is then read once */
    msp_legacy_known *known;
    size_t tensors; /* lines that were no stacks */
} msp_legacy_reader;

/*
 * The next line that is not blank; *more is false and nothing else is set when there is none. MSP_E_FORMAT says line
 * and reason ("dump.pkl: line 3: ..."); MSP_E_UNSUPPORTED for a real pickle; MSP_E_LIMIT, MSP_E_NOMEM.
 */
MSP_CHECK msp_status msp_legacy_next(msp_legacy_reader *r, msp_legacy_line *out, bool *more, msp_error *err);

/* Give back what the reader holds. */
void msp_legacy_reader_release(msp_legacy_reader *r);

/* Does the text begin like a line of these files? */
bool msp_legacy_is_text(const char *text, size_t size);

/* "Torch_relu_0_forward" of "Torch_relu_0_forward_input.0", "..._stack_info"; the name itself where it has no such end.
 */
msp_str msp_legacy_call(msp_str name);

/*
 * The numbers of a values list, in memory that msp_free() gives back; *out may be NULL when there are none.
 * MSP_E_FORMAT says which of them is wrong, MSP_E_LIMIT that they are too many for the size of their text
 * (msp_reader_extra()).
 */
MSP_CHECK msp_status msp_legacy_values(double **out, size_t *count, msp_str list, msp_error *err);

/* The tensor whose values stand in a line of torch_npu.hooks, here the text of the list; *out owns them. */
MSP_CHECK msp_status msp_legacy_open_values(msp_tensor *out, msp_str text, msp_error *err);

#endif
