/* rows_of.h - rows for tests: from the records of a dump.json, given as text. */
#ifndef MSP_TESTS_ROWS_OF_H
#define MSP_TESTS_ROWS_OF_H

#include "unit.h"
#include "compare/rows/rows.h"
#include "compare/judge/show.h"

typedef struct test_rows {
    msp_dump *dump;
    msp_rows rows;
} test_rows;

/* The rows of {"task": "statistics", "data": {<records>}}; the status of flattening in *st when that is not NULL. */
static inline test_rows
rows_of_checked(const char *records, msp_status *st, msp_error *err)
{
    static int serial;
    test_rows t = {0};
    char name[32], *text = malloc(strlen(records) + 64);
    msp_error local;

    sprintf(text, "{\"task\": \"statistics\", \"data\": {%s}}", records);
    snprintf(name, sizeof(name), "%d.dump.json", serial++);
    if (msp_dump_open(&t.dump, write_file(name, text, strlen(text)), &local) != MSP_OK)
        fail_msg("%s", local.message);
    *st = msp_rows_flatten(&t.rows, t.dump, NULL, NULL, err);
    free(text);
    return t;
}

static inline test_rows
rows_of(const char *records)
{
    msp_status st;
    msp_error err;
    test_rows t = rows_of_checked(records, &st, &err);

    if (st != MSP_OK)
        fail_msg("%s", err.message);
    return t;
}

static inline void
rows_free(test_rows *t)
{
    msp_rows_release(&t->rows);
    msp_dump_close(t->dump);
}

/* A tensor's leaf with this maximum, and 0 for the other statistics. */
#define TENSOR(max)                                                                             \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2], \"Max\": " #max \
    ", \"Min\": 0, \"Mean\": 0, \"Norm\": 0}"

/* A cell's text: numbers as Python writes them. */
static inline const char *
cell_of(const msp_val *v)
{
    static char texts[8][256];
    static unsigned next;
    char *out = texts[next++ % 8];
    msp_cell c = msp_show_value(v);

    switch (c.kind) {
    case MSP_CELL_TEXT:
        snprintf(out, 256, "%.*s", (int)c.as.text.len, c.as.text.p);
        break;
    case MSP_CELL_INT:
        snprintf(out, 256, "%lld", (long long)c.as.i);
        break;
    case MSP_CELL_FLOAT:
        msp_f64_repr(out, c.as.f);
        break;
    case MSP_CELL_BOOL:
        snprintf(out, 256, "%s", c.as.b ? "TRUE" : "FALSE");
        break;
    default:
        out[0] = '\0';
    }
    return out;
}

#endif
