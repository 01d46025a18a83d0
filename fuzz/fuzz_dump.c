/*
 * fuzz_dump.c - any bytes as a dump.json and as a stack.json: read, flattened, matched with itself by name and by
 * order, judged by its statistics, coloured and shown. A record becomes the rows that it becomes without those before
 * it. Nothing is read from files.
 */
#include <stdint.h>
#include <stdlib.h>
#include "check.h"
#include "compare/judge/highlight.h"
#include "compare/match/match.h"
#include "compare/judge/measure.h"
#include "compare/judge/show.h"
#include "../tests/unit/rows_equal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
touch_text(msp_str s)
{
    volatile unsigned sum = 0;

    for (size_t i = 0; i < s.len; i++)
        sum += (unsigned char)s.p[i];
    (void)sum;
}

static void
show_call(const msp_rows *rows, const msp_row_api *api, const msp_match *match)
{
    msp_show_rule rule = {MSP_MODE_STATISTICS, rows, rows, true};
    msp_judged *judged = calloc(api->count + 1, sizeof(*judged));
    msp_shown shown = {0};

    for (size_t i = 0; i < api->count; i++) {
        uint32_t b = match->bench[api->first + i];

        judged[i].n = &rows->rows[api->first + i];
        judged[i].b = b == MATCH_NONE ? NULL : &rows->rows[b];
        if (judged[i].b != NULL)
            msp_measure_stats(&judged[i]);
    }
    msp_highlight_api(judged, api->count, MSP_MODE_STATISTICS);
    for (size_t i = 0; i < api->count; i++) {
        msp_show_row(&shown, &rule, &judged[i], NULL);
        CHECK(!shown.failed);
        for (size_t k = 0; k < SHOW_MAX_COLUMNS; k++)
            if (shown.cells[k].kind == MSP_CELL_TEXT)
                touch_text((msp_str){shown.cells[k].as.text.p, shown.cells[k].as.text.len});
        msp_buf_release(&judged[i].message);
    }
    msp_shown_release(&shown);
    free(judged);
}

static void
check_rows(const msp_rows *rows)
{
    msp_match_rule rule = {0};
    msp_match by_name, by_order;

    CHECK(msp_match_rows(&by_name, rows, rows, &rule, NULL) == MSP_OK);
    CHECK(by_name.matched == rows->count && by_name.bench_only == 0); /* everybody is its own namesake */
    CHECK(msp_match_rows_fuzzy(&by_order, rows, rows, &rule, NULL) == MSP_OK);
    CHECK(by_order.matched == rows->count);
    for (size_t i = 0; i < rows->napis; i++)
        show_call(rows, &rows->apis[i], &by_order);
    msp_match_release(&by_name);
    msp_match_release(&by_order);
}

/* The i-th record becomes the rows that it becomes without those before it. A name is written as it was in the text. */
static void
check_alone(const msp_dump *d, const msp_rows *rows, size_t i)
{
    msp_str name, record = msp_dump_record_text(d, i);
    msp_rows alone;
    msp_buf text = {0};
    msp_dump *one;

    name.p = msp_dump_name(d, i, &name.len);
    if (name.len > 0 && (memchr(name.p, '"', name.len) != NULL || memchr(name.p, '\\', name.len) != NULL))
        return; /* there it had escapes */
    msp_buf_text(&text, "{\"task\": \"tensor\", \"data\": {\"");
    msp_buf_str(&text, name);
    msp_buf_text(&text, "\": ");
    msp_buf_str(&text, record);
    msp_buf_text(&text, "}}");
    CHECK(!text.failed);
    CHECK(msp_dump_open_text(&one, text.p, text.len, "dump.json", NULL) == MSP_OK);
    CHECK(msp_rows_flatten(&alone, one, NULL, NULL, NULL) == MSP_OK);
    CHECK(same_call(rows, &rows->apis[i], &alone, &alone.apis[0]));
    msp_rows_release(&alone);
    msp_dump_close(one);
    msp_buf_release(&text);
}

static void
check_dump(const char *text, size_t size)
{
    msp_dump *d;
    msp_rows rows;
    msp_error err = {0};

    if (msp_dump_open_text(&d, text, size, "dump.json", &err) != MSP_OK) {
        CHECK(d == NULL && err.message[0] != '\0');
        return;
    }
    if (msp_rows_flatten(&rows, d, NULL, NULL, &err) == MSP_OK) {
        check_rows(&rows);
        for (size_t i = 1; i < rows.napis; i++)
            check_alone(d, &rows, i);
    } else {
        CHECK(err.message[0] != '\0');
    }
    msp_rows_release(&rows);
    msp_dump_close(d);
}

static void
check_stack(const char *text, size_t size)
{
    msp_stack *s;
    size_t len;

    if (msp_stack_open_text(&s, text, size, NULL) != MSP_OK)
        return;
    for (int64_t i = 0; i < msp_stack_depth(s, "a", 1); i++) {
        const char *frame = msp_stack_frame(s, "a", 1, (size_t)i, &len);

        touch_text((msp_str){frame, len});
    }
    msp_stack_close(s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_dump((const char *)data, size);
    check_stack((const char *)data, size);
    return 0;
}
