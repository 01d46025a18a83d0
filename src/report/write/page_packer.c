/* page_packer.c - see page_packer.h. */
#include "report/write/page_packer.h"

#include <math.h>
#include <string.h>
#include "core/alloc.h"
#include "core/number.h"
#include "report/write/page_block.h"
#include "text/json.h"

/* ---- columns ----------------------------------------------------------------------------------------------------- */

static int
kept_of(const msp_page_packer *p, int role)
{
    for (size_t i = 0; i < p->nkept; i++)
        if (p->roles.column[role] >= 0 && p->kept[i] == (size_t)p->roles.column[role])
            return (int)i;
    return -1;
}

/* The bench's statistics are nearly the NPU's, and differences and relative errors follow from both. */
static void
take_guesses(msp_page_packer *p)
{
    for (int i = 0; i < 4; i++) {
        int n = kept_of(p, PAGE_ROLE_STAT + i), b = kept_of(p, PAGE_ROLE_BENCH_STAT + i);
        int d = kept_of(p, PAGE_ROLE_DIFF + i), rel = kept_of(p, PAGE_ROLE_REL + i);

        if (n < 0 || b < 0)
            continue;
        p->guess[b] = (struct msp_page_guess){'b', {(int8_t)n, (int8_t)n}};
        if (d >= 0)
            p->guess[d] = (struct msp_page_guess){'d', {(int8_t)n, (int8_t)b}};
        if (d >= 0 && rel >= 0)
            p->guess[rel] = (struct msp_page_guess){'r', {(int8_t)n, (int8_t)b}};
    }
}

static void
take_columns(msp_page_packer *p, const msp_column *columns, size_t n)
{
    msp_json_writer w;

    for (int i = 0; i < PAGE_NROLES; i++)
        p->roles.column[i] = -1;
    msp_json_writer_init(&w, &p->titles, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n; i++) {
        msp_page_role role = msp_page_role_of(columns[i].title);

        if (role != PAGE_ROLE_VALUE && p->roles.column[role] < 0)
            p->roles.column[role] = (int)i;
        if (role == PAGE_ROLE_NAME || role == PAGE_ROLE_LEFT_OUT || p->nkept == PAGE_MAX_COLUMNS)
            continue;
        p->kept[p->nkept++] = i;
        msp_json_write_string(&w, msp_str_of(columns[i].title));
    }
    msp_json_end_array(&w);
    take_guesses(p);
}

bool
msp_page_packer_init(msp_page_packer *p, const msp_column *columns, size_t n)
{
    uint32_t id;

    *p = (msp_page_packer){0};
    take_columns(p, columns, n);
    p->call = msp_alloc(PAGE_CHUNK, sizeof(*p->call));
    p->name = msp_alloc(PAGE_CHUNK, sizeof(*p->name));
    p->values = msp_alloc(PAGE_CHUNK * (p->nkept + 1), sizeof(*p->values));
    p->is_text = msp_alloc(PAGE_CHUNK * (p->nkept + 1), 1);
    p->guessed = msp_alloc(PAGE_CHUNK, sizeof(*p->guessed));
    return p->call != NULL && p->name != NULL && p->values != NULL && p->is_text != NULL && p->guessed != NULL &&
           msp_page_texts_add(&p->texts, MSP_STR(""), PAGE_MAX_TEXT, &id);
}

void
msp_page_packer_release(msp_page_packer *p)
{
    msp_free(p->call);
    msp_free(p->name);
    msp_free(p->values);
    msp_free(p->is_text);
    msp_free(p->guessed);
    msp_buf_release(&p->titles);
    msp_page_texts_release(&p->texts);
    *p = (msp_page_packer){0};
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
keep_cell(msp_page_packer *p, size_t column, const msp_cell *c, bool same_name)
{
    size_t at = column * PAGE_CHUNK + p->filled;
    uint32_t id = 0;

    p->is_text[at] = 0;
    switch (c->kind) {
    case MSP_CELL_FLOAT:
        p->values[at] = isnan(c->as.f) ? (double)NAN : c->as.f;
        return true;
    case MSP_CELL_INT:
        p->values[at] = (double)c->as.i;
        return true;
    case MSP_CELL_BOOL:
        if (!msp_page_texts_add(&p->texts, c->as.b ? MSP_STR("True") : MSP_STR("False"), PAGE_MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_TEXT:
        if (!same_name && is_percent(c, &p->values[at])) {
            p->percent[column] = true;
            return true;
        }
        /* the bench's name is nearly always the same, and there are as many as rows */
        if (!same_name && !msp_page_texts_add(&p->texts, msp_page_cell_text(c), PAGE_MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_EMPTY:
        break;
    }
    p->is_text[at] = 1;
    p->values[at] = id;
    return true;
}

bool
msp_page_packer_add_row(msp_page_packer *p, uint32_t call, msp_str rest, const msp_cell *cells)
{
    msp_str name = msp_page_cell_text(msp_page_cell(&p->roles, cells, PAGE_ROLE_NAME));
    msp_str bench = msp_page_cell_text(msp_page_cell(&p->roles, cells, PAGE_ROLE_BENCH_NAME));

    p->call[p->filled] = call;
    if (!msp_page_texts_add(&p->texts, rest, PAGE_MAX_TEXT, &p->name[p->filled]))
        return false;
    for (size_t i = 0; i < p->nkept; i++) {
        bool same = (int)p->kept[i] == p->roles.column[PAGE_ROLE_BENCH_NAME] && msp_str_eq(name, bench);

        if (!keep_cell(p, i, &cells[p->kept[i]], same))
            return false;
    }
    p->filled++;
    return true;
}

/* ---- a chunk ----------------------------------------------------------------------------------------------------- */

/* Only numbers, none of them NaN, whose bits another machine may choose, or infinite. */
static bool
is_finite_column(const msp_page_packer *p, size_t column)
{
    for (size_t i = 0; i < p->filled; i++)
        if (p->is_text[column * PAGE_CHUNK + i] || !isfinite(p->values[column * PAGE_CHUNK + i]))
            return false;
    return true;
}

/* The column against its guess, bit by bit: mostly zeros, which take no room. False: it must be written as it is. */
static bool
add_guessed(msp_page_packer *p, size_t column, msp_buf *out)
{
    const struct msp_page_guess *g = &p->guess[column];
    const double *v = &p->values[column * PAGE_CHUNK], *n, *b;

    if (g->kind == 0 || !is_finite_column(p, column) || !is_finite_column(p, (size_t)g->of[0]) ||
        !is_finite_column(p, (size_t)g->of[1]))
        return false;
    n = &p->values[(size_t)g->of[0] * PAGE_CHUNK];
    b = &p->values[(size_t)g->of[1] * PAGE_CHUNK];
    for (size_t i = 0; i < p->filled; i++) {
        double guess = g->kind == 'b' ? n[i] : g->kind == 'd' ? n[i] - b[i] : fabs((n[i] - b[i]) / b[i] * 100);
        uint64_t x, y;

        if (!isfinite(guess))
            guess = 0;
        memcpy(&x, &v[i], sizeof(x));
        memcpy(&y, &guess, sizeof(y));
        x ^= y;
        memcpy(&p->guessed[i], &x, sizeof(x));
    }
    msp_buf_char(out, g->kind);
    msp_buf_char(out, (char)g->of[0]);
    msp_buf_char(out, (char)g->of[1]);
    msp_page_add_planes(out, p->guessed, p->filled, sizeof(double));
    return true;
}

static void
add_column(msp_page_packer *p, size_t column, msp_buf *out)
{
    double *v = &p->values[column * PAGE_CHUNK];
    const uint8_t *text = &p->is_text[column * PAGE_CHUNK];
    size_t n = p->filled, texts = 0;

    if (add_guessed(p, column, out))
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
msp_page_packer_pack(msp_page_packer *p, msp_buf *out)
{
    msp_page_add_planes(out, p->call, p->filled, sizeof(*p->call));
    msp_page_add_planes(out, p->name, p->filled, sizeof(*p->name));
    for (size_t i = 0; i < p->nkept; i++)
        add_column(p, i, out);
    p->filled = 0;
}

void
msp_page_packer_write_percent(const msp_page_packer *p, msp_buf *out)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->nkept; i++)
        msp_json_write_bool(&w, p->percent[i]);
    msp_json_end_array(&w);
}
