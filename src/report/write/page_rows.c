/* page_rows.c - see page_rows.h. */
#include "report/write/page_rows.h"

#include <math.h>
#include <string.h>
#include "core/alloc.h"
#include "core/number.h"
#include "report/write/page_block.h"
#include "text/json.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static int
kept_of(const msp_page_rows *r, int role)
{
    for (size_t i = 0; i < r->nkept; i++)
        if (r->roles.column[role] >= 0 && r->kept[i] == (size_t)r->roles.column[role])
            return (int)i;
    return -1;
}

/* The bench's statistics are nearly the NPU's, and differences and relative errors follow from both. */
static void
take_guesses(msp_page_rows *r)
{
    for (int i = 0; i < 4; i++) {
        int n = kept_of(r, PAGE_ROLE_STAT + i), b = kept_of(r, PAGE_ROLE_BENCH_STAT + i);
        int d = kept_of(r, PAGE_ROLE_DIFF + i), rel = kept_of(r, PAGE_ROLE_REL + i);

        if (n < 0 || b < 0)
            continue;
        r->guess[b] = (struct msp_page_guess){'b', {(int8_t)n, (int8_t)n}};
        if (d >= 0)
            r->guess[d] = (struct msp_page_guess){'d', {(int8_t)n, (int8_t)b}};
        if (d >= 0 && rel >= 0)
            r->guess[rel] = (struct msp_page_guess){'r', {(int8_t)n, (int8_t)b}};
    }
}

static void
take_columns(msp_page_rows *r, const msp_column *columns, size_t n)
{
    msp_json_writer w;

    for (int i = 0; i < PAGE_NROLES; i++)
        r->roles.column[i] = -1;
    msp_json_writer_init(&w, &r->titles, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n; i++) {
        msp_page_role role = msp_page_role_of(columns[i].title);

        if (role != PAGE_ROLE_VALUE && r->roles.column[role] < 0)
            r->roles.column[role] = (int)i;
        if (role == PAGE_ROLE_NAME || role == PAGE_ROLE_LEFT_OUT || r->nkept == PAGE_MAX_COLUMNS)
            continue;
        r->kept[r->nkept++] = i;
        msp_json_write_string(&w, msp_str_of(columns[i].title));
    }
    msp_json_end_array(&w);
    take_guesses(r);
}

bool
msp_page_rows_init(msp_page_rows *r, const msp_column *columns, size_t n)
{
    uint32_t id;

    *r = (msp_page_rows){0};
    take_columns(r, columns, n);
    r->call = msp_alloc(PAGE_CHUNK, sizeof(*r->call));
    r->name = msp_alloc(PAGE_CHUNK, sizeof(*r->name));
    r->values = msp_alloc(PAGE_CHUNK * (r->nkept + 1), sizeof(*r->values));
    r->is_text = msp_alloc(PAGE_CHUNK * (r->nkept + 1), 1);
    r->guessed = msp_alloc(PAGE_CHUNK, sizeof(*r->guessed));
    return r->call != NULL && r->name != NULL && r->values != NULL && r->is_text != NULL && r->guessed != NULL &&
           msp_page_texts_add(&r->texts, MSP_STR(""), PAGE_MAX_TEXT, &id);
}

void
msp_page_rows_release(msp_page_rows *r)
{
    msp_free(r->call);
    msp_free(r->name);
    msp_free(r->values);
    msp_free(r->is_text);
    msp_free(r->guessed);
    msp_buf_release(&r->titles);
    msp_page_texts_release(&r->texts);
    *r = (msp_page_rows){0};
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

/* "12.5%": there may be one for each row, and so they are kept as numbers. */
static bool
is_percent(const msp_cell *c, double *out)
{
    msp_str s = msp_page_cell_text(c);

    return s.len > 1 && s.p[s.len - 1] == '%' && msp_f64_parse((msp_str){s.p, s.len - 1}, out) && isfinite(*out);
}

static bool
keep_cell(msp_page_rows *r, size_t column, const msp_cell *c, bool same_name)
{
    size_t at = column * PAGE_CHUNK + r->filled;
    uint32_t id = 0;

    r->is_text[at] = 0;
    switch (c->kind) {
    case MSP_CELL_FLOAT:
        r->values[at] = isnan(c->as.f) ? (double)NAN : c->as.f;
        return true;
    case MSP_CELL_INT:
        r->values[at] = (double)c->as.i;
        return true;
    case MSP_CELL_BOOL:
        if (!msp_page_texts_add(&r->texts, c->as.b ? MSP_STR("True") : MSP_STR("False"), PAGE_MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_TEXT:
        if (!same_name && is_percent(c, &r->values[at])) {
            r->percent[column] = true;
            return true;
        }
        /* the bench's name is nearly always the same, and there are as many as rows */
        if (!same_name && !msp_page_texts_add(&r->texts, msp_page_cell_text(c), PAGE_MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_EMPTY:
        break;
    }
    r->is_text[at] = 1;
    r->values[at] = id;
    return true;
}

bool
msp_page_rows_add(msp_page_rows *r, uint32_t call, msp_str rest, const msp_cell *cells)
{
    msp_str name = msp_page_cell_text(msp_page_cell(&r->roles, cells, PAGE_ROLE_NAME));
    msp_str bench = msp_page_cell_text(msp_page_cell(&r->roles, cells, PAGE_ROLE_BENCH_NAME));

    r->call[r->filled] = call;
    if (!msp_page_texts_add(&r->texts, rest, PAGE_MAX_TEXT, &r->name[r->filled]))
        return false;
    for (size_t i = 0; i < r->nkept; i++) {
        bool same = (int)r->kept[i] == r->roles.column[PAGE_ROLE_BENCH_NAME] && msp_str_eq(name, bench);

        if (!keep_cell(r, i, &cells[r->kept[i]], same))
            return false;
    }
    r->filled++;
    return true;
}

/* ---- a chunk ----------------------------------------------------------------------------------------------------- */

/* Only numbers, none of them NaN, whose bits another machine may choose, or infinite. */
static bool
is_finite_column(const msp_page_rows *r, size_t column)
{
    for (size_t i = 0; i < r->filled; i++)
        if (r->is_text[column * PAGE_CHUNK + i] || !isfinite(r->values[column * PAGE_CHUNK + i]))
            return false;
    return true;
}

/* The column against its guess, bit by bit: mostly zeros, which take no room. False: it must be written as it is. */
static bool
add_guessed(msp_page_rows *r, size_t column, msp_buf *out)
{
    const struct msp_page_guess *g = &r->guess[column];
    const double *v = &r->values[column * PAGE_CHUNK], *n, *b;

    if (g->kind == 0 || !is_finite_column(r, column) || !is_finite_column(r, (size_t)g->of[0]) ||
        !is_finite_column(r, (size_t)g->of[1]))
        return false;
    n = &r->values[(size_t)g->of[0] * PAGE_CHUNK];
    b = &r->values[(size_t)g->of[1] * PAGE_CHUNK];
    for (size_t i = 0; i < r->filled; i++) {
        double guess = g->kind == 'b' ? n[i] : g->kind == 'd' ? n[i] - b[i] : fabs((n[i] - b[i]) / b[i] * 100);
        uint64_t x, y;

        if (!isfinite(guess))
            guess = 0;
        memcpy(&x, &v[i], sizeof(x));
        memcpy(&y, &guess, sizeof(y));
        x ^= y;
        memcpy(&r->guessed[i], &x, sizeof(x));
    }
    msp_buf_char(out, g->kind);
    msp_buf_char(out, (char)g->of[0]);
    msp_buf_char(out, (char)g->of[1]);
    msp_page_add_planes(out, r->guessed, r->filled, sizeof(double));
    return true;
}

static void
add_column(msp_page_rows *r, size_t column, msp_buf *out)
{
    double *v = &r->values[column * PAGE_CHUNK];
    const uint8_t *text = &r->is_text[column * PAGE_CHUNK];
    size_t n = r->filled, texts = 0;

    if (add_guessed(r, column, out))
        return;
    for (size_t i = 0; i < n; i++)
        texts += text[i];
    msp_buf_char(out, texts == n ? 't' : texts == 0 ? 'n' : 'x');
    if (texts == n) {
        uint32_t *ids = msp_alloc(n, sizeof(*ids));

        if (ids == NULL) {
            out->failed = true;
            return;
        }
        for (size_t i = 0; i < n; i++)
            ids[i] = (uint32_t)v[i];
        msp_page_add_planes(out, ids, n, sizeof(*ids));
        msp_free(ids);
        return;
    }
    for (size_t i = 0; i < n && texts > 0; i++)
        if (text[i]) {
            uint64_t box = UINT64_C(0x7ff8000100000000) | (uint32_t)v[i];

            memcpy(&v[i], &box, sizeof(box));
        }
    msp_page_add_planes(out, v, n, sizeof(*v));
}

void
msp_page_rows_take(msp_page_rows *r, msp_buf *out)
{
    msp_page_add_planes(out, r->call, r->filled, sizeof(*r->call));
    msp_page_add_planes(out, r->name, r->filled, sizeof(*r->name));
    for (size_t i = 0; i < r->nkept; i++)
        add_column(r, i, out);
    r->filled = 0;
}

void
msp_page_rows_write_percent(const msp_page_rows *r, msp_buf *out)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < r->nkept; i++)
        msp_json_write_bool(&w, r->percent[i]);
    msp_json_end_array(&w);
}
