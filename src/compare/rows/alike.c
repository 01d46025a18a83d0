/* alike.c - see alike.h. */
#include "compare/rows/alike.h"

#include "core/vec.h"
#include "text/json_skip.h"

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* Where the model for calls of this name is: layers and calls are numbered, so that all digits count as the same. */
static msp_alike_model *
model_of(msp_alike *a, msp_str name)
{
    uint64_t h = name.len;

    for (size_t i = 0; i < name.len && name.len >= 8; i += 8) {
        uint64_t w = msp_load8(name.p + (i + 8 <= name.len ? i : name.len - 8));
        uint64_t digits = ~json_not_digits(w) & MSP_EACH_BYTE(0x80);

        h = (h ^ (w & ~((digits >> 7) * 0x0F))) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return &a->models[h % ALIKE_MODELS];
}

void
msp_alike_note(msp_alike *a, size_t row, msp_alike_part part, msp_str text)
{
    size_t at = a->nplaces;

    if (at >= ALIKE_PLACES || row > UINT16_MAX || text.len > UINT32_MAX) {
        a->nplaces = ALIKE_PLACES + 1;
        return;
    }
    for (; at > 0 && a->places[at - 1].p > text.p; at--)
        a->places[at] = a->places[at - 1];
    a->places[at] = (msp_alike_place){text.p, (uint32_t)text.len, (uint16_t)row, (uint8_t)part};
    a->nplaces++;
}

/* Is the name of every row without a file its call's and more? What its last part means is then in the text. */
static bool
names_go_on(const msp_rows *rows, const msp_row_api *call)
{
    for (size_t i = call->first; i < rows->count; i++)
        if (rows->rows[i].file == NULL && rows->rows[i].name_len <= call->name.len)
            return false;
    return true;
}

void
msp_alike_learn(msp_alike *a, const msp_rows *rows, uint32_t api, int how, msp_str text)
{
    const msp_row_api *call = &rows->apis[api];
    msp_alike_model *m = model_of(a, call->name);

    if (a->nplaces <= ALIKE_PLACES && names_go_on(rows, call)) {
        m->text = text;
        m->how = how;
        m->name_len = call->name.len;
        m->first = call->first;
        m->count = rows->count - call->first;
        m->nplaces = a->nplaces;
        memcpy(m->places, a->places, a->nplaces * sizeof(*m->places));
    }
    a->nplaces = 0;
}

/* ---- reading: each returns where the value ends, or NULL when the tree is needed --------------------------------- */

/* A number with an exponent, or of many digits: what characters of numbers there are, as the parser reads them. */
static const char *
read_odd_number(msp_rows *rows, msp_val *out, const char *at, const char *end)
{
    _Alignas(16) char room[64];
    const char *to = at;
    msp_json_doc doc;
    bool read;

    while (to < end && ((unsigned)(*to - '0') < 10 || *to == '.' || *to == '-' || *to == '+' || (*to | 0x20) == 'e'))
        to++;
    if (msp_json_parse_in(&doc, room, sizeof(room), at, (size_t)(to - at), NULL) != MSP_OK)
        return NULL;
    read = msp_rows_value(rows, out, doc.root);
    msp_json_doc_release(&doc);
    return read ? to : NULL;
}

static const char *
read_number(msp_rows *rows, msp_val *out, const char *at, const char *end)
{
    const char *to = msp_f64_scan(at, end, &out->as.f), *digits, *point;

    if (to == NULL)
        return read_odd_number(rows, out, at, end);
    digits = point = at + (*at == '-');
    while (point < to && *point != '.')
        point++;
    if (point == digits || (*digits == '0' && point - digits > 1) || to - point == 1)
        return NULL; /* no JSON: .5 or 05 or 5. */
    out->kind = point == to && msp_i64_parse((msp_str){at, (size_t)(to - at)}, &out->as.i) ? VAL_INT : VAL_FLOAT;
    return to;
}

/* It stands for all statistics. */
static const char *
read_value(msp_rows *rows, msp_row *r, const char *at, const char *end)
{
    const char *to = read_number(rows, &r->stats[0], at, end);

    if (to == NULL || r->stats[0].kind != VAL_INT)
        return NULL;
    for (int i = 1; i < MSP_NSTATS; i++)
        r->stats[i] = r->stats[0];
    return msp_row_set_checksum(rows, r, (msp_str){at, (size_t)(to - at)}) ? to : NULL;
}

static const char *
read_text(msp_str *out, const char *at, const char *end)
{
    const char *to = json_skip_plain(at, end);

    *out = (msp_str){at, (size_t)(to - at)};
    return to > at && to < end && *to == '"' && out->len <= UINT32_MAX ? to : NULL;
}

/* Most of what is the same is some tens of bytes. */
static inline bool
same_bytes(const char *a, const char *b, size_t n)
{
    if (n < 8)
        return memcmp(a, b, n) == 0;
    for (size_t i = 0; i + 8 < n; i += 8)
        if (msp_load8(a + i) != msp_load8(b + i))
            return false;
    return msp_load8(a + n - 8) == msp_load8(b + n - 8);
}

/* What stands there must have been met before, so that nothing has to be known about it here. */
static const char *
recall_part(msp_recent *all, uint32_t *id, msp_str raw)
{
    const msp_recent *r = raw.len > 0 ? msp_recent_of(all, raw) : NULL;

    if (r == NULL || !msp_str_eq(r->raw, raw))
        return NULL;
    *id = r->id;
    return raw.p + raw.len;
}

/* Is it the model's own, up to what follows it? Most are, and the row has its number already. */
static bool
is_models(const msp_alike_place *place, const char *at, const char *end)
{
    return (size_t)(end - at) > place->len && same_bytes(at, place->p, place->len + 1);
}

static const char *
read_dtype(msp_alike *a, uint32_t *id, const msp_alike_place *place, const char *at, const char *end)
{
    msp_str text;

    if (is_models(place, at, end))
        return at + place->len;
    return read_text(&text, at, end) == NULL ? NULL : recall_part(a->dtypes, id, text);
}

static const char *
read_shape(msp_alike *a, uint32_t *id, const msp_alike_place *place, const char *at, const char *end)
{
    const char *to;

    if (is_models(place, at, end))
        return at + place->len;
    to = memchr(at, ']', (size_t)(end - at));
    while (to != NULL && to > at && json_is_space(to[-1]))
        to--;
    return to == NULL ? NULL : recall_part(a->shapes, id, (msp_str){at, (size_t)(to - at)});
}

static const char *
read_part(msp_alike *a, msp_rows *rows, msp_row *r, const msp_alike_place *place, const char *at, const char *end)
{
    msp_str text;
    const char *to;

    if (place->part < MSP_NSTATS)
        return read_number(rows, &r->stats[place->part], at, end);
    if (place->part == ALIKE_DTYPE)
        return read_dtype(a, &r->dtype, place, at, end);
    if (place->part == ALIKE_SHAPE)
        return read_shape(a, &r->shape, place, at, end);
    if (place->part == ALIKE_VALUE)
        return read_value(rows, r, at, end);
    to = read_text(&text, at, end);
    if (to == NULL)
        return NULL;
    if (place->part == ALIKE_FILE)
        msp_row_set_file(r, text);
    else
        r->md5 = (msp_val){VAL_TEXT, (uint32_t)text.len, {.p = text.p}};
    return to;
}

static bool
read_values(msp_alike *a, const msp_alike_model *m, msp_rows *rows, msp_row *new_rows, msp_str text)
{
    const char *at = text.p, *end = text.p + text.len, *from = m->text.p;

    for (size_t i = 0; at != NULL && i <= m->nplaces; i++) {
        const char *to = i < m->nplaces ? m->places[i].p : m->text.p + m->text.len;
        size_t n = (size_t)(to - from);

        if ((size_t)(end - at) < n || !same_bytes(at, from, n))
            return false;
        at += n;
        if (i == m->nplaces)
            break;
        at = read_part(a, rows, &new_rows[m->places[i].row], &m->places[i], at, end);
        from = to + m->places[i].len;
    }
    return at == end;
}

/* A row without a file is called like its call, and what follows in the model. */
static bool
set_names(const msp_alike_model *m, msp_rows *rows, msp_row *new_rows, uint32_t api)
{
    for (size_t i = 0; i < m->count; i++) {
        msp_row *r = &new_rows[i];
        char *name;

        r->api = api;
        if (r->file != NULL)
            continue;
        name = msp_arena_text(&rows->arena, r->name, r->name_len);
        if (name == NULL)
            return false;
        memcpy(name, rows->apis[api].name.p, m->name_len);
        r->name = name;
    }
    return true;
}

bool
msp_alike_read(msp_alike *a, msp_rows *rows, uint32_t api, int how, msp_str text)
{
    msp_str name = rows->apis[api].name;
    const msp_alike_model *m = model_of(a, name);
    msp_row *new_rows;

    if (m->count == 0 || m->how != how || m->name_len != name.len || rows->count + m->count >= UINT32_MAX - 1 ||
        !msp_vec_grow((void **)&rows->rows, &rows->cap, rows->count + m->count, sizeof(*rows->rows)))
        return false;
    new_rows = &rows->rows[rows->count];
    memcpy(new_rows, &rows->rows[m->first], m->count * sizeof(*new_rows));
    if (!read_values(a, m, rows, new_rows, text) || !set_names(m, rows, new_rows, api))
        return false;
    rows->count += m->count;
    return true;
}
