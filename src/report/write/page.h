/*
 * page.h - the report as one HTML file that a browser opens from disk.
 *
 * A page holds a head (JSON: what was compared and the verdict), the program that draws it (web/, embedded when this
 * library is built), and one part for each pair of dumps. A part takes the rows of a result table, cell by cell, as the
 * table's other writers do, and spills them to a temporary file at once: memory grows with the calls, not the rows.
 *
 * What a part leaves in the file is a list of blocks
 *
 *     <script type="text/plain" data-block="rows3">base64 of raw deflate</script>
 *
 * The browser never runs such an element, and base64 has no character that could end it. The head is JSON in
 * which every '<', '>', '&' and every character beyond ASCII is written \uXXXX, so that no name of a dump can
 * close its element.
 *
 * Blocks of a part, little-endian; values of 8 and 4 bytes are stored byte plane by byte plane:
 *
 * - columns: JSON, the titles of the value columns, in the order of the rows' columns below
 * - percent: JSON, for each of them whether a percent sign belongs behind its numbers
 * - names: JSON, the name of each call
 * - stacks: JSON, each distinct stack as the text of a JSON list, frames innermost first; number 0 is "[]"
 * - texts: JSON, every other text, each once; number 0 is ""
 * - nodes: JSON, modules that are parents but no calls ("names", "parents"); they are numbered behind the calls
 * - calls: u32 first row, u32 rows, f32 error of its outputs, f32 error of its inputs, u32 stack, i32 parent,
 *   u8 verdict, u8 marks: one array behind the other
 * - judged: u8 verdict, u8 marks of every row, likewise
 * - results: what the tool measured for its own verdict, likewise: u32 row, f32 ratio, local, local of the bench,
 *   inherited, diff_in, diff_out, expected (see msp_verdict_result), u32 text
 * - edges: u32 pairs (producer, consumer), not in planes: a call whose output the other took
 * - rows<k>: PAGE_CHUNK rows: u32 call, u32 name behind the call's, then for each column a letter and its values.
 *   't': u32 text numbers. 'n': f64. 'x': f64, texts as NaN with the text's number in the low 32 bits and 0x7ff80001
 *   above. 'b', 'd', 'r': a column that others let expect, namely the value of column n, n - b, or |(n - b) / b * 100|
 *   (0 where that is not finite); the numbers of columns n and b, a byte each, then each value's bits, exclusive-or
 *   those of the expected value.
 * - elements: JSON, written by the caller: see msp_page_part_block()
 */
#ifndef MSP_REPORT_PAGE_H
#define MSP_REPORT_PAGE_H

#include "core/str.h"
#include "msprobe/table.h"

/* The worst of a call's rows is the call's. */
typedef enum msp_page_verdict {
    PAGE_NOT_JUDGED = 0, /* not tensors, or not readable */
    PAGE_FINE,
    PAGE_UNMATCHED, /* no partner, or one of another shape */
    PAGE_INHERITED, /* differs because something before it is wrong */
    PAGE_WRONG
} msp_page_verdict;

enum {
    PAGE_MARK_NONFINITE = 1, /* NaN or infinite on one side only */
    PAGE_MARK_OUTPUT = 2,    /* of a row: something that the call gave; of a call: it has some */
    PAGE_MARK_RED = 4,       /* -hl */
    PAGE_MARK_YELLOW = 8,
    PAGE_MARK_LIMIT = 16,    /* beyond the manual's limits */
    PAGE_MARK_BACKWARD = 32, /* of a call: a gradient, which depends on what its forward call has kept */
    PAGE_MARK_NO_ROWS = 64   /* of a call: its rows were left out, for the page has a limit */
};

typedef struct msp_page_part msp_page_part;

/*
 * Begin a part with the columns of a result table. beside: the page's path, next to which the part spills. max_rows:
 * rows beyond so many are kept only where something is wrong with them, and beyond twice as many not at all.
 */
MSP_CHECK msp_status msp_page_part_open(msp_page_part **out, const char *beside, const msp_column *columns,
                                        size_t ncolumns, int64_t max_rows, msp_error *err);

/* A row of the table; rows of a call come one after the other. Text is borrowed for the call. */
MSP_CHECK msp_status msp_page_part_row(msp_page_part *p, msp_str call, const msp_cell *cells, msp_row_colour colour,
                                       msp_error *err);

size_t msp_page_part_calls(const msp_page_part *p);

/* The stack of the newest call; frames innermost first. */
MSP_CHECK msp_status msp_page_part_stack(msp_page_part *p, const msp_str *frames, size_t n, msp_error *err);

/* The name of the call's or module's parent; "" for none. Names that are no calls become nodes. */
MSP_CHECK msp_status msp_page_part_parent(msp_page_part *p, msp_str name, msp_str parent, msp_error *err);

/* A block of the caller's own: any bytes, usually JSON. */
MSP_CHECK msp_status msp_page_part_block(msp_page_part *p, const char *name, msp_str bytes, msp_error *err);

/*
 * From here on the verdict is the tool's own, for which rows are known by their number in the order in which they came,
 * those that the page does not keep counted too. Without this it is that of the manual's limits.
 */
void msp_page_part_own_verdict(msp_page_part *p);
void msp_page_part_judge(msp_page_part *p, size_t row, msp_page_verdict verdict);

/* What the verdict of a result rests on, as in msp_verdict_result. text: how the error lies, or why it is not judged.
 */
typedef struct msp_page_result {
    double ratio, local, local_bench, inherited, diff_in, diff_out, expected;
    msp_str text;
} msp_page_result;

MSP_CHECK msp_status msp_page_part_result(msp_page_part *p, size_t row, const msp_page_result *r, msp_error *err);

/* The number in the page of the row, -1: it was not kept. */
int64_t msp_page_part_shown(const msp_page_part *p, size_t row);

/* Write what is left. Only what msp_page_part_rest() says is known then: a page of many parts keeps little of each. */
MSP_CHECK msp_status msp_page_part_finish(msp_page_part *p, msp_error *err);

enum { PAGE_BINS = 240 };

typedef struct msp_page_bin {
    float error; /* of outputs; -1: no call here has one */
    uint8_t verdict, marks;
} msp_page_bin;

/* What is left of a finished part. */
typedef struct msp_page_rest {
    char *file; /* where its blocks are */
    int64_t rows;
    size_t calls;
    float largest;                /* error of the call whose outputs are off most; -1: none was measured */
    char *largest_call;           /* its name; NULL: none */
    msp_page_bin bins[PAGE_BINS]; /* the largest error and the worst verdict over equal shares of the calls */
} msp_page_rest;

const msp_page_rest *msp_page_part_rest(const msp_page_part *p);

/* A part that another process has finished; rest is left empty, and the file is now this part's. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_page_part_adopt(msp_page_part **out, msp_page_rest *rest_take, msp_error *err);

/* Free a finished part and leave its file to whoever adopts it. */
void msp_page_part_leave(msp_page_part *p);

int64_t msp_page_part_rows(const msp_page_part *p); /* that are in the page */

/* Accepts NULL; the temporary file is removed. */
void msp_page_part_close(msp_page_part *p);

/* The whole page: head is JSON; parts may hold NULL. The file appears whole or not at all. */
MSP_CHECK msp_status msp_page_write(const char *path, msp_str head, msp_page_part *const *parts, size_t nparts,
                                    msp_error *err);

#endif
