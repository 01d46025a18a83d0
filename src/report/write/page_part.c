/* page_part.c - the rows of one pair as blocks of a page. See page.h for the format. */
#include "report/write/page_part.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>
#include <zlib.h>
#include "core/alloc.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/map.h"
#include "core/number.h"
#include "text/json.h"
#include "report/zlib_memory.h"

enum {
    PAGE_CHUNK = 8192,            /* rows: what a browser unpacks to show one of them, some 200 KB */
    MAX_COLUMNS = 64,             /* of a table; further ones are left out */
    MAX_TEXT = 512,               /* bytes of a text that is kept; names of calls are kept whole */
    MAX_TEXTS = 64 * 1024 * 1024, /* bytes of all texts together */
    FINGERPRINT_STATS = 4
};

/* What is known of a column by its title. */
typedef enum role {
    ROLE_VALUE = 0,
    ROLE_NAME,
    ROLE_BENCH_NAME,
    ROLE_DTYPE,
    ROLE_SHAPE,
    ROLE_COSINE,
    ROLE_EUC,
    ROLE_MAX_ABS,
    ROLE_DIFF,                /* four */
    ROLE_REL = ROLE_DIFF + 4, /* of statistics, as percent */
    ROLE_STAT = ROLE_REL + 4,
    ROLE_BENCH_STAT = ROLE_STAT + 4,
    ROLE_MD5 = ROLE_BENCH_STAT + 4,
    ROLE_BENCH_MD5,
    ROLE_VERDICT,
    ROLE_LEFT_OUT, /* told in another way */
    NROLES
} role;

static const struct {
    const char *title;
    role role;
} known_titles[] = {{"NPU Name", ROLE_NAME},
                    {"Bench Name", ROLE_BENCH_NAME},
                    {"NPU Dtype", ROLE_DTYPE},
                    {"NPU Tensor Shape", ROLE_SHAPE},
                    {"NPU Shape", ROLE_SHAPE},
                    {"Cosine", ROLE_COSINE},
                    {"EucDist", ROLE_EUC},
                    {"MaxAbsErr", ROLE_MAX_ABS},
                    {"Max diff", ROLE_DIFF},
                    {"Min diff", ROLE_DIFF + 1},
                    {"Mean diff", ROLE_DIFF + 2},
                    {"L2norm diff", ROLE_DIFF + 3},
                    {"MaxRelativeErr", ROLE_REL},
                    {"MinRelativeErr", ROLE_REL + 1},
                    {"MeanRelativeErr", ROLE_REL + 2},
                    {"NormRelativeErr", ROLE_REL + 3},
                    {"NPU max", ROLE_STAT},
                    {"NPU min", ROLE_STAT + 1},
                    {"NPU mean", ROLE_STAT + 2},
                    {"NPU l2norm", ROLE_STAT + 3},
                    {"Bench max", ROLE_BENCH_STAT},
                    {"Bench min", ROLE_BENCH_STAT + 1},
                    {"Bench mean", ROLE_BENCH_STAT + 2},
                    {"Bench l2norm", ROLE_BENCH_STAT + 3},
                    {"NPU MD5", ROLE_MD5},
                    {"BENCH MD5", ROLE_BENCH_MD5},
                    {"Accuracy Reached or Not", ROLE_VERDICT},
                    {"Result", ROLE_VERDICT},
                    {"NPU_Stack_Info", ROLE_LEFT_OUT},
                    {"Data_Name", ROLE_LEFT_OUT},
                    {"Data_name", ROLE_LEFT_OUT}};

typedef struct page_call {
    uint32_t first, rows, stack;
    int32_t parent;           /* -1: none */
    float error, input_error; /* -1: none was measured */
    uint8_t verdict, marks;
} page_call;

typedef struct producer {
    uint64_t key; /* 0: free */
    uint32_t call;
} producer;

struct msp_page_part {
    msp_file file;
    msp_page_rest rest;
    msp_arena arena;
    int column_of[NROLES];           /* -1: the table has no such column */
    size_t kept[MAX_COLUMNS], nkept; /* columns that are in the page */
    bool percent[MAX_COLUMNS];       /* cells that end in %: the number alone is kept */
    struct guess {
        char kind;    /* 0: none; see page.h */
        int8_t of[2]; /* columns of the page */
    } guess[MAX_COLUMNS];
    msp_buf titles; /* JSON */
    int64_t max_rows;
    size_t ncolumns;

    page_call *calls;
    size_t ncalls, cap_calls;
    msp_map names; /* of calls, then of nodes; value: its number */
    msp_str *call_names;
    int32_t *node_parents;
    msp_map nodes;
    size_t cap_nodes;
    msp_map stacks, texts;
    size_t text_bytes;
    size_t rows;

    /* the chunk that is being filled */
    size_t filled, chunk;
    uint32_t *row_call, *row_name;
    uint8_t *row_verdict, *row_marks;
    double *values; /* nkept columns of PAGE_CHUNK */
    uint8_t *is_text;
    double *guessed; /* a column's values against what others let expect */

    producer *producers;
    size_t nproducers, cap_producers; /* cap is a power of two */
    msp_buf edges;
    uint32_t last_edge[2];

    msp_buf raw, packed, out;
};

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

const char *
msp_page_part_path(const msp_page_part *p)
{
    return p->rest.file != NULL ? p->rest.file : p->file.temp;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void
add_base64(msp_buf *out, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = (n + 2) / 3 * 4, i;
    char *at = msp_buf_room(out, len);

    if (at == NULL)
        return;
    for (i = 0; i + 2 < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)p[i + 1] << 8 | p[i + 2];

        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = digits[v >> 6 & 63];
        *at++ = digits[v & 63];
    }
    if (i < n) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0);

        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *at++ = '=';
    }
    out->len += len;
    out->p[out->len] = '\0';
}

static msp_status
pack(msp_buf *out, msp_str bytes, msp_error *err)
{
    z_stream s = {.zalloc = msp_zlib_alloc, .zfree = msp_zlib_free};
    uLong most;
    char *room;
    int r;

    if (bytes.len > UINT32_MAX / 2)
        return msp_error_set(err, MSP_E_LIMIT, "a block of %zu bytes is too large for a page", bytes.len);
    /* level 1: a fifth larger than 6 and four times as fast */
    if (deflateInit2(&s, 1, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return no_memory(err);
    most = deflateBound(&s, (uLong)bytes.len);
    msp_buf_clear(out);
    room = msp_buf_room(out, most);
    if (room == NULL) {
        deflateEnd(&s);
        return no_memory(err);
    }
    s.next_in = (Bytef *)(uintptr_t)bytes.p;
    s.avail_in = (uInt)bytes.len;
    s.next_out = (Bytef *)room;
    s.avail_out = (uInt)most;
    r = deflate(&s, Z_FINISH);
    out->len = s.total_out;
    deflateEnd(&s);
    return r == Z_STREAM_END ? MSP_OK : no_memory(err);
}

msp_status
msp_page_part_block(msp_page_part *p, const char *name, msp_str bytes, msp_error *err)
{
    msp_status st = pack(&p->packed, bytes, err);

    if (st != MSP_OK)
        return st;
    msp_buf_clear(&p->out);
    msp_buf_printf(&p->out, "<script type=\"text/plain\" data-block=\"%s\">", name);
    add_base64(&p->out, (const unsigned char *)p->packed.p, p->packed.len);
    msp_buf_text(&p->out, "</script>\n");
    st = msp_buf_status(&p->out, err);
    return st == MSP_OK ? msp_file_write(&p->file, p->out.p, p->out.len, err) : st;
}

/* size bytes wide values, one byte plane behind the other: planes of signs and exponents hardly change. */
static void
add_planes(msp_buf *out, const void *values, size_t n, size_t size)
{
    const unsigned char *v = values;
    char *at = msp_buf_room(out, n * size);

    if (at == NULL)
        return;
    for (size_t b = 0; b < size; b++)
        for (size_t i = 0; i < n; i++)
            *at++ = (char)v[i * size + b];
    out->len += n * size;
    out->p[out->len] = '\0';
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* The text's number in the map; what is too much is not kept: its number is that of "". */
static bool
intern(msp_page_part *p, msp_map *map, msp_str s, size_t most, uint32_t *id)
{
    msp_map_entry *e;
    char *copy;
    bool cut = s.len > most;

    if (cut)
        s.len = most;
    while (cut && s.len > 0 && ((unsigned char)s.p[s.len] & 0xc0) == 0x80)
        s.len--; /* not inside a character */
    e = msp_map_get(map, s);
    if (e == NULL) {
        if (p->text_bytes + s.len > MAX_TEXTS) {
            *id = 0;
            return true;
        }
        copy = msp_arena_text(&p->arena, s.len > 0 ? s.p : "", s.len);
        if (copy == NULL)
            return false;
        e = msp_map_put(map, (msp_str){copy, s.len}, (int64_t)map->count, NULL);
        p->text_bytes += s.len;
    }
    if (e != NULL)
        *id = (uint32_t)e->value;
    return e != NULL;
}

static void
write_names(msp_buf *out, const msp_map *map)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < map->count; i++)
        msp_json_write_string(&w, map->entries[i].key);
    msp_json_end_array(&w);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int
kept_of(const msp_page_part *p, int r)
{
    for (size_t i = 0; i < p->nkept; i++)
        if (p->column_of[r] >= 0 && p->kept[i] == (size_t)p->column_of[r])
            return (int)i;
    return -1;
}

/* The bench's statistics are nearly the NPU's, and differences and relative errors follow from both. */
static void
take_guesses(msp_page_part *p)
{
    for (int i = 0; i < 4; i++) {
        int n = kept_of(p, ROLE_STAT + i), b = kept_of(p, ROLE_BENCH_STAT + i);
        int d = kept_of(p, ROLE_DIFF + i), r = kept_of(p, ROLE_REL + i);

        if (n < 0 || b < 0)
            continue;
        p->guess[b] = (struct guess){'b', {(int8_t)n, (int8_t)n}};
        if (d >= 0)
            p->guess[d] = (struct guess){'d', {(int8_t)n, (int8_t)b}};
        if (d >= 0 && r >= 0)
            p->guess[r] = (struct guess){'r', {(int8_t)n, (int8_t)b}};
    }
}

static void
take_columns(msp_page_part *p, const msp_column *columns, size_t n)
{
    msp_json_writer w;

    for (int i = 0; i < NROLES; i++)
        p->column_of[i] = -1;
    msp_json_writer_init(&w, &p->titles, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n; i++) {
        role r = ROLE_VALUE;

        for (size_t k = 0; k < sizeof(known_titles) / sizeof(known_titles[0]); k++)
            if (strcmp(columns[i].title, known_titles[k].title) == 0)
                r = known_titles[k].role;
        if (r != ROLE_VALUE && p->column_of[r] < 0)
            p->column_of[r] = (int)i;
        if (r == ROLE_NAME || r == ROLE_LEFT_OUT || p->nkept == MAX_COLUMNS)
            continue;
        p->kept[p->nkept++] = i;
        msp_json_write_string(&w, msp_str_of(columns[i].title));
    }
    msp_json_end_array(&w);
    take_guesses(p);
}

msp_status
msp_page_part_open(msp_page_part **out, const char *beside, const msp_column *columns, size_t ncolumns,
                   int64_t max_rows, msp_error *err)
{
    msp_page_part *p = msp_alloc_zero(1, sizeof(*p));
    uint32_t id;
    msp_status st;

    *out = NULL;
    if (p == NULL)
        return no_memory(err);
    p->file = MSP_FILE_NONE;
    p->max_rows = max_rows;
    p->ncolumns = ncolumns;
    p->last_edge[0] = p->last_edge[1] = UINT32_MAX;
    take_columns(p, columns, ncolumns);
    p->row_call = msp_alloc(PAGE_CHUNK, sizeof(*p->row_call));
    p->row_name = msp_alloc(PAGE_CHUNK, sizeof(*p->row_name));
    p->row_verdict = msp_alloc(PAGE_CHUNK, 1);
    p->row_marks = msp_alloc(PAGE_CHUNK, 1);
    p->values = msp_alloc(PAGE_CHUNK * (p->nkept + 1), sizeof(*p->values));
    p->is_text = msp_alloc(PAGE_CHUNK * (p->nkept + 1), 1);
    p->guessed = msp_alloc(PAGE_CHUNK, sizeof(*p->guessed));
    st = p->row_call == NULL || p->row_name == NULL || p->row_verdict == NULL || p->row_marks == NULL ||
                 p->values == NULL || p->is_text == NULL || p->guessed == NULL ||
                 !intern(p, &p->texts, MSP_STR(""), MAX_TEXT, &id) ||
                 !intern(p, &p->stacks, MSP_STR("[]"), MAX_TEXT, &id)
             ? no_memory(err)
             : msp_file_create(&p->file, beside, 0640, err);
    if (st == MSP_OK)
        *out = p;
    else
        msp_page_part_close(p);
    return st;
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

static const msp_cell *
cell_of(const msp_page_part *p, const msp_cell *cells, role r)
{
    return p->column_of[r] < 0 ? NULL : &cells[p->column_of[r]];
}

static msp_str
text_of(const msp_cell *c)
{
    return c == NULL || c->kind != MSP_CELL_TEXT ? (msp_str){"", 0} : (msp_str){c->as.text.p, c->as.text.len};
}

/* The cell as a number: infinities, and NaN where it says so. False for every other word. */
static bool
number_of(const msp_cell *c, double *out)
{
    static const struct {
        const char *word;
        double v;
    } words[] = {{"nan", NAN}, {"Nan", NAN}, {"NaN", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};
    msp_str s = text_of(c);

    if (c == NULL)
        return false;
    if (c->kind == MSP_CELL_FLOAT)
        *out = c->as.f;
    else if (c->kind == MSP_CELL_INT)
        *out = (double)c->as.i;
    else if (c->kind == MSP_CELL_TEXT) {
        while (s.len > 0 && s.p[s.len - 1] == '\t')
            s.len--;
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (msp_str_eq(s, msp_str_of(words[i].word))) {
                *out = words[i].v;
                return true;
            }
        return false;
    } else
        return false;
    return true;
}

static bool
is_nonfinite(const msp_page_part *p, const msp_cell *cells, role first)
{
    double v;

    for (int i = 0; i < 2; i++) /* maximum and minimum */
        if (number_of(cell_of(p, cells, first + (role)i), &v) && !isfinite(v))
            return true;
    return false;
}

/*
 * How far a row is off, whatever its scale: the distance of the tensors over the bench's norm; for statistics the
 * largest difference over the largest bench value. -1: nothing was measured; infinite: NaN or inf on one side.
 */
static float
error_of(const msp_page_part *p, const msp_cell *cells, bool nonfinite)
{
    double euc, norm, scale = 0, worst = -1, v, b;

    if (nonfinite)
        return INFINITY;
    if (number_of(cell_of(p, cells, ROLE_EUC), &euc) && isfinite(euc)) {
        if (number_of(cell_of(p, cells, ROLE_BENCH_STAT + 3), &norm) && isfinite(norm) && norm > 0)
            return (float)(euc / norm);
        return (float)euc;
    }
    if (number_of(cell_of(p, cells, ROLE_MAX_ABS), &euc) && isfinite(euc)) {
        if (number_of(cell_of(p, cells, ROLE_BENCH_STAT), &norm) && isfinite(norm) && norm != 0)
            return (float)(euc / fabs(norm));
        return (float)euc;
    }
    for (int i = 0; i < 4; i++) {
        if (!number_of(cell_of(p, cells, ROLE_DIFF + (role)i), &v) ||
            !number_of(cell_of(p, cells, ROLE_BENCH_STAT + (role)i), &b))
            continue;
        if (!isfinite(v) || !isfinite(b))
            continue;
        if (i < 3) { /* a mean near 0 is no scale of its own */
            double m;

            scale = 0;
            for (int k = 0; k < 3; k++)
                if (number_of(cell_of(p, cells, ROLE_BENCH_STAT + (role)k), &m) && isfinite(m) && fabs(m) > scale)
                    scale = fabs(m);
        } else {
            scale = fabs(b);
        }
        v = fabs(v);
        v = scale > 0 ? v / scale : v;
        if (v > worst)
            worst = v;
    }
    if (worst < 0 && p->column_of[ROLE_MD5] >= 0) {
        msp_str a = text_of(cell_of(p, cells, ROLE_MD5)), c = text_of(cell_of(p, cells, ROLE_BENCH_MD5));

        return a.len == 0 || c.len == 0 || msp_str_eq(c, MSP_STR("N/A")) ? -1 : msp_str_eq(a, c) ? 0 : 1;
    }
    return (float)worst;
}

static msp_page_verdict
verdict_of(const msp_page_part *p, const msp_cell *cells, msp_row_colour colour, bool nonfinite)
{
    msp_str v = text_of(cell_of(p, cells, ROLE_VERDICT)), bench = text_of(cell_of(p, cells, ROLE_BENCH_NAME));
    const msp_cell *c = cell_of(p, cells, ROLE_VERDICT);

    if (msp_str_eq(bench, MSP_STR("N/A")))
        return PAGE_UNMATCHED;
    if (nonfinite || msp_str_eq(v, MSP_STR("No")) || msp_str_eq(v, MSP_STR("Warning")) ||
        msp_str_eq(v, MSP_STR("Different")) || msp_str_eq(v, MSP_STR("error")))
        return PAGE_WRONG;
    if (msp_str_eq(v, MSP_STR("Unmatched")))
        return PAGE_UNMATCHED;
    if (colour != MSP_ROW_PLAIN)
        return PAGE_SUSPICIOUS;
    if (c == NULL || msp_str_eq(v, MSP_STR("None")) || msp_str_eq(v, MSP_STR("N/A")))
        return PAGE_NOT_JUDGED;
    return PAGE_FINE;
}

/* The part of a row's name behind the call's. */
static msp_str
rest_of(msp_str name, msp_str call)
{
    if (msp_str_starts(name, call) && name.len > call.len + 1)
        return (msp_str){name.p + call.len + 1, name.len - call.len - 1};
    return name;
}

/* ---- who made what ----------------------------------------------------------------------------------------------- */

static uint64_t
mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/*
 * A tensor by what is recorded of it: type, shape and statistics, or its checksum. 0: nothing to know it by. A tensor
 * of zeros, or of one value, is like too many others.
 */
static uint64_t
fingerprint(const msp_page_part *p, const msp_cell *cells)
{
    uint64_t h = msp_str_hash(text_of(cell_of(p, cells, ROLE_SHAPE)));
    double v[FINGERPRINT_STATS];
    msp_str md5 = text_of(cell_of(p, cells, ROLE_MD5));

    h = mix(h, msp_str_hash(text_of(cell_of(p, cells, ROLE_DTYPE))));
    if (md5.len > 0)
        return msp_str_eq(md5, MSP_STR("N/A")) ? 0 : mix(h, msp_str_hash(md5)) | 1;
    for (int i = 0; i < FINGERPRINT_STATS; i++) {
        uint64_t bits;

        if (!number_of(cell_of(p, cells, ROLE_STAT + (role)i), &v[i]))
            return 0;
        memcpy(&bits, &v[i], sizeof(bits));
        h = mix(h, bits);
    }
    return v[0] == v[1] || v[3] == 0 ? 0 : h | 1;
}

static producer *
slot_of(producer *table, size_t cap, uint64_t key)
{
    size_t i = (size_t)(key >> 7) & (cap - 1);

    while (table[i].key != 0 && table[i].key != key)
        i = (i + 1) & (cap - 1);
    return &table[i];
}

static bool
grow_producers(msp_page_part *p)
{
    size_t cap = p->cap_producers == 0 ? 1024 : p->cap_producers * 2;
    producer *table;

    if (p->nproducers * 4 < p->cap_producers * 3)
        return true;
    table = msp_alloc_zero(cap, sizeof(*table));
    if (table == NULL)
        return false;
    for (size_t i = 0; i < p->cap_producers; i++)
        if (p->producers[i].key != 0)
            *slot_of(table, cap, p->producers[i].key) = p->producers[i];
    msp_free(p->producers);
    p->producers = table;
    p->cap_producers = cap;
    return true;
}

/* An output is remembered; an input that looks like one is an edge from the call that gave it last. */
static bool
follow_data(msp_page_part *p, const msp_cell *cells, bool output)
{
    uint64_t key = fingerprint(p, cells);
    uint32_t now = (uint32_t)p->ncalls - 1, edge[2];
    producer *s;

    if (key == 0)
        return true;
    if (!grow_producers(p))
        return false;
    s = slot_of(p->producers, p->cap_producers, key);
    if (output) {
        p->nproducers += s->key == 0;
        *s = (producer){key, now};
    } else if (s->key == key && s->call != now) {
        edge[0] = s->call;
        edge[1] = now;
        if (memcmp(edge, p->last_edge, sizeof(edge)) != 0)
            msp_buf_add(&p->edges, edge, sizeof(edge));
        memcpy(p->last_edge, edge, sizeof(edge));
    }
    return !p->edges.failed;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

/* Only numbers, none of them NaN, whose bits another machine may choose, or infinite. */
static bool
is_finite_column(const msp_page_part *p, size_t column)
{
    for (size_t i = 0; i < p->filled; i++)
        if (p->is_text[column * PAGE_CHUNK + i] || !isfinite(p->values[column * PAGE_CHUNK + i]))
            return false;
    return true;
}

/* The column against its guess, bit by bit: mostly zeros, which take no room. False: it must be written as it is. */
static bool
add_guessed(msp_page_part *p, size_t column)
{
    const struct guess *g = &p->guess[column];
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
    msp_buf_char(&p->raw, g->kind);
    msp_buf_char(&p->raw, (char)g->of[0]);
    msp_buf_char(&p->raw, (char)g->of[1]);
    add_planes(&p->raw, p->guessed, p->filled, sizeof(double));
    return true;
}

static void
add_column(msp_page_part *p, size_t column)
{
    double *v = &p->values[column * PAGE_CHUNK];
    const uint8_t *text = &p->is_text[column * PAGE_CHUNK];
    size_t n = p->filled, texts = 0;

    if (add_guessed(p, column))
        return;
    for (size_t i = 0; i < n; i++)
        texts += text[i];
    msp_buf_char(&p->raw, texts == n ? 't' : texts == 0 ? 'n' : 'x');
    if (texts == n) {
        uint32_t *ids = msp_alloc(n, sizeof(*ids));

        if (ids == NULL) {
            p->raw.failed = true;
            return;
        }
        for (size_t i = 0; i < n; i++)
            ids[i] = (uint32_t)v[i];
        add_planes(&p->raw, ids, n, sizeof(*ids));
        msp_free(ids);
        return;
    }
    for (size_t i = 0; i < n && texts > 0; i++)
        if (text[i]) {
            uint64_t box = UINT64_C(0x7ff8000100000000) | (uint32_t)v[i];

            memcpy(&v[i], &box, sizeof(box));
        }
    add_planes(&p->raw, v, n, sizeof(*v));
}

static msp_status
flush_chunk(msp_page_part *p, msp_error *err)
{
    char name[32];
    msp_status st;

    if (p->filled == 0)
        return MSP_OK;
    msp_buf_clear(&p->raw);
    add_planes(&p->raw, p->row_call, p->filled, sizeof(*p->row_call));
    add_planes(&p->raw, p->row_name, p->filled, sizeof(*p->row_name));
    msp_buf_add(&p->raw, p->row_verdict, p->filled);
    msp_buf_add(&p->raw, p->row_marks, p->filled);
    for (size_t i = 0; i < p->nkept; i++)
        add_column(p, i);
    st = msp_buf_status(&p->raw, err);
    if (st != MSP_OK)
        return st;
    snprintf(name, sizeof(name), "rows%zu", p->chunk++);
    p->filled = 0;
    return msp_page_part_block(p, name, msp_buf_view(&p->raw), err);
}

/* "12.5%": there may be one for each row, and so they are kept as numbers. */
static bool
is_percent(const msp_cell *c, double *out)
{
    msp_str s = text_of(c);

    return s.len > 1 && s.p[s.len - 1] == '%' && msp_f64_parse((msp_str){s.p, s.len - 1}, out) && isfinite(*out);
}

static bool
keep_cell(msp_page_part *p, size_t column, const msp_cell *c, bool same_name)
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
        if (!intern(p, &p->texts, c->as.b ? MSP_STR("True") : MSP_STR("False"), MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_TEXT:
        if (!same_name && is_percent(c, &p->values[at])) {
            p->percent[column] = true;
            return true;
        }
        /* the bench's name is nearly always the same, and there are as many as rows */
        if (!same_name && !intern(p, &p->texts, text_of(c), MAX_TEXT, &id))
            return false;
        break;
    case MSP_CELL_EMPTY:
        break;
    }
    p->is_text[at] = 1;
    p->values[at] = id;
    return true;
}

static bool
keep_row(msp_page_part *p, msp_str rest, const msp_cell *cells, uint8_t verdict, uint8_t marks)
{
    msp_str name = text_of(cell_of(p, cells, ROLE_NAME)), bench = text_of(cell_of(p, cells, ROLE_BENCH_NAME));
    size_t at = p->filled;

    p->row_call[at] = (uint32_t)p->ncalls - 1;
    if (!intern(p, &p->texts, rest, MAX_TEXT, &p->row_name[at]))
        return false;
    p->row_verdict[at] = verdict;
    p->row_marks[at] = marks;
    for (size_t i = 0; i < p->nkept; i++) {
        bool same = (int)p->kept[i] == p->column_of[ROLE_BENCH_NAME] && msp_str_eq(name, bench);

        if (!keep_cell(p, i, &cells[p->kept[i]], same))
            return false;
    }
    p->filled++;
    p->rows++;
    p->calls[p->ncalls - 1].rows++;
    return true;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static bool
begin_call(msp_page_part *p, msp_str name)
{
    msp_map_entry *e;
    char *copy;

    if (p->ncalls > 0 && msp_str_eq(p->call_names[p->ncalls - 1], name))
        return true;
    if (p->ncalls == p->cap_calls) {
        size_t cap = p->cap_calls == 0 ? 256 : p->cap_calls * 2;
        page_call *calls = msp_realloc(p->calls, cap, sizeof(*calls));
        msp_str *names = NULL;

        if (calls != NULL) {
            p->calls = calls;
            names = msp_realloc(p->call_names, cap, sizeof(*names));
        }
        if (names == NULL)
            return false;
        p->call_names = names;
        p->cap_calls = cap;
    }
    copy = msp_arena_text(&p->arena, name.len > 0 ? name.p : "", name.len);
    if (copy == NULL)
        return false;
    p->call_names[p->ncalls] = (msp_str){copy, name.len};
    p->calls[p->ncalls] = (page_call){.first = (uint32_t)p->rows, .parent = -1, .error = -1, .input_error = -1};
    e = msp_map_put(&p->names, p->call_names[p->ncalls], (int64_t)p->ncalls, NULL);
    p->ncalls++;
    return e != NULL;
}

static void
note_row(page_call *c, float error, uint8_t verdict, uint8_t marks)
{
    bool output = (marks & PAGE_MARK_OUTPUT) != 0;
    float *to = output ? &c->error : &c->input_error;

    if (error > *to)
        *to = error;
    if (verdict > c->verdict)
        c->verdict = verdict;
    c->marks |= marks;
    if (verdict == PAGE_WRONG)
        c->marks |= output ? PAGE_MARK_OUTPUT_WRONG : PAGE_MARK_INPUT_WRONG;
}

msp_status
msp_page_part_row(msp_page_part *p, msp_str name, const msp_cell *cells, msp_row_colour colour, msp_error *err)
{
    msp_str rest = rest_of(text_of(cell_of(p, cells, ROLE_NAME)), name);
    bool output = msp_str_starts(rest, MSP_STR("output")) || msp_str_starts(rest, MSP_STR("parameters_grad")) ||
                  msp_str_ends(name, MSP_STR(".parameters_grad"));
    bool nonfinite = is_nonfinite(p, cells, ROLE_STAT) != is_nonfinite(p, cells, ROLE_BENCH_STAT) &&
                     !msp_str_eq(text_of(cell_of(p, cells, ROLE_BENCH_NAME)), MSP_STR("N/A"));
    uint8_t verdict = (uint8_t)verdict_of(p, cells, colour, nonfinite), marks = 0;

    marks = (uint8_t)((nonfinite ? PAGE_MARK_NONFINITE : 0) | (output ? PAGE_MARK_OUTPUT : 0) |
                      (colour == MSP_ROW_RED      ? PAGE_MARK_RED
                       : colour == MSP_ROW_YELLOW ? PAGE_MARK_YELLOW
                                                  : 0));
    if (!begin_call(p, name) || !follow_data(p, cells, output))
        return no_memory(err);
    note_row(&p->calls[p->ncalls - 1], verdict == PAGE_UNMATCHED ? -1 : error_of(p, cells, nonfinite), verdict, marks);
    if (p->rows >= (size_t)p->max_rows && (verdict < PAGE_SUSPICIOUS || p->rows >= 2 * (size_t)p->max_rows)) {
        p->calls[p->ncalls - 1].marks |= PAGE_MARK_NO_ROWS;
        return MSP_OK;
    }
    if (!keep_row(p, rest, cells, verdict, marks))
        return no_memory(err);
    return p->filled == PAGE_CHUNK ? flush_chunk(p, err) : MSP_OK;
}

size_t
msp_page_part_calls(const msp_page_part *p)
{
    return p->ncalls;
}

msp_str
msp_page_part_call_name(const msp_page_part *p, size_t i)
{
    return p->call_names[i];
}

msp_status
msp_page_part_stack(msp_page_part *p, const msp_str *frames, size_t n, msp_error *err)
{
    msp_json_writer w;

    if (n == 0 || p->ncalls == 0)
        return MSP_OK;
    msp_buf_clear(&p->raw);
    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < n; i++)
        msp_json_write_string(&w, frames[i]);
    msp_json_end_array(&w);
    if (p->raw.failed || p->raw.len > 64 * 1024) /* such a stack is no stack */
        return msp_buf_status(&p->raw, err);
    return intern(p, &p->stacks, msp_buf_view(&p->raw), SIZE_MAX, &p->calls[p->ncalls - 1].stack) ? MSP_OK
                                                                                                  : no_memory(err);
}

/* The number of a call or node, a new node where there is none; -1: no memory. */
static int32_t
node_of(msp_page_part *p, msp_str name)
{
    msp_map_entry *e = msp_map_get(&p->names, name);
    uint32_t id;

    if (e != NULL)
        return (int32_t)e->value;
    if (p->nodes.count == p->cap_nodes) {
        size_t cap = p->cap_nodes == 0 ? 64 : p->cap_nodes * 2;
        int32_t *parents = msp_realloc(p->node_parents, cap, sizeof(*parents));

        if (parents == NULL)
            return -1;
        p->node_parents = parents;
        p->cap_nodes = cap;
    }
    if (!intern(p, &p->nodes, name, SIZE_MAX, &id))
        return -1;
    if (id + 1 == p->nodes.count)
        p->node_parents[id] = -1;
    e = msp_map_put(&p->names, p->nodes.entries[id].key, (int64_t)(p->ncalls + id), NULL);
    return e == NULL ? -1 : (int32_t)(p->ncalls + id);
}

msp_status
msp_page_part_parent(msp_page_part *p, msp_str name, msp_str parent, msp_error *err)
{
    int32_t child = node_of(p, name), up;

    if (child < 0)
        return no_memory(err);
    if (parent.len == 0)
        return MSP_OK;
    up = node_of(p, parent);
    if (up < 0)
        return no_memory(err);
    if ((size_t)child < p->ncalls)
        p->calls[child].parent = up;
    else
        p->node_parents[child - (int32_t)p->ncalls] = up;
    return MSP_OK;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

#define ADD_FIELD(type, field)                              \
    do {                                                    \
        type *all = msp_alloc(p->ncalls + 1, sizeof(type)); \
        if (all == NULL) {                                  \
            p->raw.failed = true;                           \
            break;                                          \
        }                                                   \
        for (size_t i = 0; i < p->ncalls; i++)              \
            all[i] = p->calls[i].field;                     \
        add_planes(&p->raw, all, p->ncalls, sizeof(type));  \
        msp_free(all);                                      \
    } while (0)

static msp_status
write_calls(msp_page_part *p, msp_error *err)
{
    msp_status st;

    msp_buf_clear(&p->raw);
    ADD_FIELD(uint32_t, first);
    ADD_FIELD(uint32_t, rows);
    ADD_FIELD(float, error);
    ADD_FIELD(float, input_error);
    ADD_FIELD(uint32_t, stack);
    ADD_FIELD(int32_t, parent);
    ADD_FIELD(uint8_t, verdict);
    ADD_FIELD(uint8_t, marks);
    st = msp_buf_status(&p->raw, err);
    return st == MSP_OK ? msp_page_part_block(p, "calls", msp_buf_view(&p->raw), err) : st;
}

static msp_status
write_call_names(msp_page_part *p, msp_error *err)
{
    msp_json_writer w;
    msp_status st;

    msp_buf_clear(&p->raw);
    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->ncalls; i++)
        msp_json_write_string(&w, p->call_names[i]);
    msp_json_end_array(&w);
    st = msp_buf_status(&p->raw, err);
    return st == MSP_OK ? msp_page_part_block(p, "names", msp_buf_view(&p->raw), err) : st;
}

static msp_status
write_map(msp_page_part *p, const char *name, const msp_map *map, msp_error *err)
{
    msp_status st;

    msp_buf_clear(&p->raw);
    write_names(&p->raw, map);
    st = msp_buf_status(&p->raw, err);
    return st == MSP_OK ? msp_page_part_block(p, name, msp_buf_view(&p->raw), err) : st;
}

static msp_status
write_percent(msp_page_part *p, msp_error *err)
{
    msp_json_writer w;
    msp_status st;

    msp_buf_clear(&p->raw);
    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->nkept; i++)
        msp_json_write_bool(&w, p->percent[i]);
    msp_json_end_array(&w);
    st = msp_buf_status(&p->raw, err);
    return st == MSP_OK ? msp_page_part_block(p, "percent", msp_buf_view(&p->raw), err) : st;
}

/* {"names": [...], "parents": [...]} */
static msp_status
write_nodes(msp_page_part *p, msp_error *err)
{
    msp_json_writer w;
    msp_status st;

    msp_buf_clear(&p->raw);
    msp_json_writer_init(&w, &p->raw, -1);
    msp_json_begin_object(&w);
    msp_json_write_key(&w, MSP_STR("names"));
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->nodes.count; i++)
        msp_json_write_string(&w, p->nodes.entries[i].key);
    msp_json_end_array(&w);
    msp_json_write_key(&w, MSP_STR("parents"));
    msp_json_begin_array(&w);
    for (size_t i = 0; i < p->nodes.count; i++)
        msp_json_write_i64(&w, p->node_parents[i]);
    msp_json_end_array(&w);
    msp_json_end_object(&w);
    st = msp_buf_status(&p->raw, err);
    return st == MSP_OK ? msp_page_part_block(p, "nodes", msp_buf_view(&p->raw), err) : st;
}

/* What only rows need: a run may have a part for each of a thousand ranks before the page is written. */
static void
release_work(msp_page_part *p)
{
    void **all[] = {(void **)&p->row_call, (void **)&p->row_name, (void **)&p->row_verdict, (void **)&p->row_marks,
                    (void **)&p->values,   (void **)&p->is_text,  (void **)&p->producers,   (void **)&p->guessed};
    msp_buf *bufs[] = {&p->titles, &p->edges, &p->raw, &p->packed, &p->out};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        msp_free(*all[i]);
        *all[i] = NULL;
    }
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++)
        msp_buf_release(bufs[i]);
    msp_map_release(&p->names);
    msp_map_release(&p->stacks);
    msp_map_release(&p->texts);
}

static void
take_bins(msp_page_part *p)
{
    msp_page_bin *bins = p->rest.bins;

    for (size_t i = 0; i < PAGE_BINS; i++)
        bins[i] = (msp_page_bin){.error = -1};
    for (size_t i = 0; i < p->ncalls; i++) {
        const page_call *c = &p->calls[i];
        msp_page_bin *b = &bins[i * PAGE_BINS / p->ncalls];

        if (c->error > b->error)
            b->error = c->error;
        if (c->verdict > b->verdict)
            b->verdict = c->verdict;
        b->marks |= c->marks;
    }
}

static char *
copy_text(const char *s, size_t len)
{
    char *copy = msp_alloc(len + 1, 1);

    if (copy != NULL) {
        memcpy(copy, s, len);
        copy[len] = '\0';
    }
    return copy;
}

/* Take out what the page's head says of the part, and give everything else back. */
static msp_status
reduce(msp_page_part *p, msp_error *err)
{
    msp_page_rest *r = &p->rest;
    const msp_str *name = NULL;

    take_bins(p);
    r->rows = (int64_t)p->rows;
    r->calls = p->ncalls;
    r->largest = -1;
    for (size_t i = 0; i < p->ncalls; i++)
        if (p->calls[i].error > r->largest) {
            r->largest = p->calls[i].error;
            name = &p->call_names[i];
        }
    if (name != NULL && (r->largest_call = copy_text(name->p, name->len)) == NULL)
        return no_memory(err);
    r->file = copy_text(p->file.temp, strlen(p->file.temp));
    if (r->file == NULL)
        return no_memory(err);
    msp_map_release(&p->nodes);
    msp_arena_release(&p->arena);
    msp_free(p->calls);
    msp_free(p->call_names);
    msp_free(p->node_parents);
    p->calls = NULL;
    p->call_names = NULL;
    p->node_parents = NULL;
    return MSP_OK;
}

msp_status
msp_page_part_finish(msp_page_part *p, msp_error *err)
{
    msp_status st = flush_chunk(p, err);

    if (st == MSP_OK)
        st = write_calls(p, err);
    if (st == MSP_OK)
        st = write_call_names(p, err);
    if (st == MSP_OK)
        st = write_nodes(p, err);
    if (st == MSP_OK)
        st = msp_page_part_block(p, "columns", msp_buf_view(&p->titles), err);
    if (st == MSP_OK)
        st = write_percent(p, err);
    if (st == MSP_OK)
        st = write_map(p, "texts", &p->texts, err);
    if (st == MSP_OK)
        st = write_map(p, "stacks", &p->stacks, err);
    if (st == MSP_OK)
        st = msp_page_part_block(p, "edges", msp_buf_view(&p->edges), err);
    if (st == MSP_OK) {
        int failed = close(p->file.fd);

        p->file.fd = -1;
        if (failed != 0)
            st = msp_file_cannot_write(p->file.path, errno, err);
    }
    release_work(p);
    return st == MSP_OK ? reduce(p, err) : st;
}

const msp_page_rest *
msp_page_part_rest(const msp_page_part *p)
{
    return &p->rest;
}

msp_status
msp_page_part_adopt(msp_page_part **out, msp_page_rest *rest_take, msp_error *err)
{
    msp_page_part *p = *out = msp_alloc_zero(1, sizeof(*p));

    if (p == NULL)
        return no_memory(err);
    p->file = MSP_FILE_NONE;
    p->rest = *rest_take;
    *rest_take = (msp_page_rest){0};
    p->rows = (size_t)p->rest.rows;
    return MSP_OK;
}

static void
release_rest(msp_page_rest *r)
{
    msp_free(r->file);
    msp_free(r->largest_call);
    *r = (msp_page_rest){0};
}

void
msp_page_part_leave(msp_page_part *p)
{
    if (p == NULL)
        return;
    release_rest(&p->rest);
    msp_free(p->file.path);
    p->file = MSP_FILE_NONE;
    msp_page_part_close(p);
}

int64_t
msp_page_part_rows(const msp_page_part *p)
{
    return (int64_t)p->rows;
}

void
msp_page_part_close(msp_page_part *p)
{
    if (p == NULL)
        return;
    release_work(p);
    if (p->file.path == NULL && p->rest.file != NULL)
        unlink(p->rest.file); /* adopted */
    msp_file_abandon(&p->file);
    release_rest(&p->rest);
    msp_map_release(&p->nodes);
    msp_arena_release(&p->arena);
    msp_free(p->calls);
    msp_free(p->call_names);
    msp_free(p->node_parents);
    msp_free(p);
}
