/*
 * fuzz_legacy.c - any bytes as a .pkl of ptdbg_ascend or torch_npu.hooks: read, grouped, matched with itself by every
 * rule, judged and shown in every form, and parsed for every call. Nothing is read from files: values stand in the
 * lines, and .npy files are not there.
 */
#include <stdint.h>
#include <stdlib.h>
#include "check.h"
#include "compare/legacy/legacy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
touch(const char *text, size_t len, void *payload)
{
    unsigned char sum = 0;

    for (size_t i = 0; i < len; i++)
        sum = (unsigned char)(sum + (unsigned char)text[i]);
    *(unsigned char *)payload = sum;
    return true;
}

static void
touch_cells(const msp_shown *s, size_t n)
{
    unsigned char sum;

    CHECK(!s->failed);
    for (size_t i = 0; i < n; i++)
        if (s->cells[i].kind == MSP_CELL_TEXT)
            touch(s->cells[i].as.text.p, s->cells[i].as.text.len, &sum);
}

static void
show_rows(const msp_legacy_file *f, const msp_match *match, const msp_legacy_look *look, msp_compare_mode mode)
{
    msp_show_rule rule = {mode, &f->rows, &f->rows, f->stack != NULL, look};
    msp_measurer m = {.dirs = {"npu", "bench"}, .fds = {-1, -1}, .values = f->hooks, .threads = 1};
    msp_column columns[SHOW_MAX_COLUMNS];
    size_t n = msp_legacy_columns(columns, mode, look, f->stack != NULL);
    msp_shown shown = {0};
    msp_judged j = {0};

    CHECK(n <= SHOW_MAX_COLUMNS);
    for (size_t i = 0; i < f->rows.count && i < 64; i++) {
        uint32_t b = match->bench[i];
        msp_str api = f->rows.apis[f->rows.rows[i].api].name;

        msp_buf_clear(&j.message);
        j.n = &f->rows.rows[i];
        j.b = b == MATCH_NONE || i % 7 == 6 ? NULL : &f->rows.rows[b];
        msp_legacy_judge(&j, mode, look, &m, i % 2 == 0);
        msp_legacy_show(&shown, &rule, &j, msp_stack_frames(f->stack, api));
        touch_cells(&shown, n);
    }
    msp_buf_release(&j.message);
    msp_shown_release(&shown);
}

static void
match_and_show(const msp_legacy_file *f, bool fuzzy, bool shapes, msp_legacy_form form)
{
    msp_legacy_match_rule rule = {.fuzzy = fuzzy, .shapes = shapes, .numbered = {f->numbered, f->numbered}};
    const msp_legacy_file both[2] = {*f, *f};
    msp_compare_mode mode;
    msp_legacy_look look;
    msp_match match;

    CHECK(msp_legacy_match(&match, &f->rows, &f->rows, &rule, NULL) == MSP_OK);
    CHECK(match.matched == f->rows.count && match.bench_only == 0); /* with itself everybody has a partner */
    for (int has_dir = 0; has_dir < 2; has_dir++)
        if (msp_legacy_choose(&look, &mode, both, has_dir != 0, form, NULL) == MSP_OK) {
            look.npu = look.bench = &f->rows;
            show_rows(f, &match, &look, mode);
        }
    msp_match_release(&match);
}

/* A line that is like another says what its own JSON says. */
static void
check_like(const msp_legacy_line *brief, const msp_legacy_line *whole)
{
    double v;

    CHECK(brief->kind == whole->kind && brief->number == whole->number && msp_str_eq(brief->name, whole->name));
    if (brief->like == LEGACY_NONE)
        return;
    CHECK(brief->kind != LEGACY_STACK);
    if (brief->kind == LEGACY_VALUES) {
        CHECK(msp_str_eq(brief->values, whole->values) && brief->nnumbers == 0);
        return;
    }
    CHECK(whole->step <= 100 && brief->nnumbers == msp_json_count(whole->stats));
    for (size_t i = 0; i < brief->nnumbers; i++) {
        CHECK(msp_json_kind_of(msp_json_at(whole->stats, i)) == MSP_JSON_FLOAT);
        CHECK(msp_json_to_f64(msp_json_at(whole->stats, i), &v) && memcmp(&v, &brief->numbers[i], sizeof(v)) == 0);
    }
}

/* Lines are the same whether those before them are remembered or not. */
static void
check_lines(const char *text, size_t size)
{
    msp_legacy_known known[LEGACY_KNOWN] = {{{0}, 0}};
    msp_legacy_reader a = {.text = text, .size = size, .path = "dump.pkl", .quiet = true, .known = known};
    msp_legacy_reader b = {.text = text, .size = size, .path = "dump.pkl", .quiet = true};
    msp_legacy_line brief, whole;
    bool more[2] = {true, true};

    while (more[0]) {
        msp_status st = msp_legacy_next(&a, &brief, &more[0], NULL);

        CHECK(msp_legacy_next(&b, &whole, &more[1], NULL) == st && more[0] == more[1] && a.cut == b.cut);
        if (more[0])
            check_like(&brief, &whole);
    }
    msp_legacy_reader_release(&a);
    msp_legacy_reader_release(&b);
}

static void
check_file(const char *text, size_t size)
{
    msp_legacy_file f = {0};
    msp_error err = {0};
    msp_status st = msp_legacy_open_text(&f, text, size, "dump.pkl", &err);
    size_t rows = 0;

    if (st == MSP_OK) {
        for (size_t i = 0; i < f.rows.napis; i++) {
            CHECK(f.rows.apis[i].first == rows && f.rows.apis[i].count > 0);
            rows += f.rows.apis[i].count;
        }
        CHECK(rows == f.rows.count);
        match_and_show(&f, false, false, MSP_LEGACY_AUTO);
        match_and_show(&f, true, false, MSP_LEGACY_PTDBG_3);
        match_and_show(&f, false, true, MSP_LEGACY_PTDBG_6);
    } else {
        CHECK(err.message[0] != '\0' && err.status == st);
    }
    msp_legacy_release(&f);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char sum;
    msp_error err = {0};

    check_lines((const char *)data, size);
    check_file((const char *)data, size);
    if (msp_legacy_parse_text((const char *)data, size, "dump.pkl", MSP_STR("T"), touch, &sum, &err) != MSP_OK)
        CHECK(err.message[0] != '\0');
    return 0;
}
