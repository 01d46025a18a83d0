/*
 * flatten.c - from records to rows.
 *
 * A record is {"input_args": [...], "input_kwargs": {...}, "output": [...], ...}; its lists and objects are walked, and
 * every leaf (an object with a text "type") and every null becomes a row whose name is the path that led there.
 */
#include <stdio.h>
#include "compare/rows/alike.h"
#include "text/pytext.h"
#include "core/alloc.h"
#include "core/vec.h"

enum { MAX_DEPTH = 400, TICK_BYTES = 1 << 20, ROOM = 16384 };

typedef struct flattener {
    msp_rows *out;
    const msp_dump *dump;
    msp_alike *alike; /* what is known from the records before; only with a dump */
    void *room;       /* for the tree of one record: most need no other memory */
    msp_buf name;     /* of the place that the walk has reached */
    msp_buf scratch;  /* short texts being put together */
    uint32_t api;
    msp_row_state state;
    bool skip_indices; /* lists add nothing to the name: parameters_grad */
    msp_error *err;
} flattener;

static msp_status
no_memory(flattener *f)
{
    return msp_error_set(f->err, MSP_E_NOMEM, "out of memory while reading the records");
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Text that lives as long as the rows: a view of the file, or a copy. */
static const char *
keep_text(flattener *f, msp_str s)
{
    return s.len > 0 && f->dump != NULL && msp_dump_owns(f->dump, s.p) ? s.p
                                                                       : msp_arena_text(&f->out->arena, s.p, s.len);
}

static bool
val_text(flattener *f, msp_val *out, msp_str s)
{
    const char *p = s.len > UINT32_MAX ? NULL : keep_text(f, s);

    if (p == NULL)
        return false;
    *out = (msp_val){VAL_TEXT, (uint32_t)s.len, {.p = p}};
    return true;
}

/* str() of v as a text value. */
static bool
val_str(flattener *f, msp_val *out, const msp_json *v)
{
    msp_buf_clear(&f->scratch);
    msp_py_str(&f->scratch, v);
    return !f->scratch.failed && val_text(f, out, msp_buf_view(&f->scratch));
}

static msp_val
val_of_bool(bool b)
{
    return (msp_val){VAL_BOOL, 0, {.i = b}};
}

/* A value as it is; lists and objects as their text. */
static bool
val_of(flattener *f, msp_val *out, const msp_json *v)
{
    *out = (msp_val){0};
    switch (msp_json_kind_of(v)) {
    case MSP_JSON_NULL:
        return true;
    case MSP_JSON_FALSE:
    case MSP_JSON_TRUE:
        *out = val_of_bool(msp_json_kind_of(v) == MSP_JSON_TRUE);
        return true;
    case MSP_JSON_INT:
        if (msp_json_to_i64(v, &out->as.i)) {
            out->kind = VAL_INT;
            return true;
        }
        /* fall through */
    case MSP_JSON_FLOAT:
        out->kind = VAL_FLOAT;
        return msp_json_to_f64(v, &out->as.f);
    case MSP_JSON_STRING:
        return val_text(f, out, msp_json_string(v));
    default:
        return val_str(f, out, v);
    }
}

/* A statistic of a tensor: as it is, but True and False are text there. */
static bool
stat_of(flattener *f, msp_val *out, const msp_json *v)
{
    if (!val_of(f, out, v))
        return false;
    return out->kind != VAL_BOOL || val_text(f, out, out->as.i ? MSP_STR("True") : MSP_STR("False"));
}

/* ---- texts that repeat ------------------------------------------------------------------------------------------- */

/* A text of the file stays where it is while the rows are made; others do not. */
static bool
can_recall(const flattener *f, msp_str raw)
{
    return raw.len > 0 && f->dump != NULL && msp_dump_owns(f->dump, raw.p);
}

/* In records like this one the part of the row may be different. */
static void
note_part(flattener *f, msp_alike_part part, msp_str raw)
{
    if (can_recall(f, raw))
        msp_alike_note(f->alike, f->out->count - f->out->apis[f->api].first, part, raw);
}

static bool
intern_dtype(flattener *f, const msp_json *dtype, uint32_t *id)
{
    msp_str raw = msp_json_string(dtype);
    msp_recent *r = can_recall(f, raw) ? msp_recent_of(f->alike->dtypes, raw) : NULL;
    size_t before = f->out->ntexts;
    msp_str text;

    note_part(f, ALIKE_DTYPE, raw);
    if (r != NULL && msp_str_eq(r->raw, raw)) {
        *id = r->id;
        return true;
    }
    msp_buf_clear(&f->scratch);
    msp_py_str(&f->scratch, dtype);
    text = msp_buf_view(&f->scratch);
    if (f->scratch.failed || !msp_rows_intern(f->out, text, id))
        return false;
    if (f->out->ntexts > before)
        f->out->texts[*id].dtype = msp_dtype_parse(text.p, text.len);
    if (r != NULL)
        *r = (msp_recent){raw, *id};
    return true;
}

/* What stands between the brackets of a list of whole numbers; empty when it is something else. */
static msp_str
list_text(const msp_json *list)
{
    size_t n = msp_json_count(list);
    msp_str first, last;

    for (size_t i = 0; i < n; i++)
        if (msp_json_kind_of(msp_json_at(list, i)) != MSP_JSON_INT)
            return (msp_str){0};
    if (n == 0)
        return (msp_str){0};
    first = msp_json_number_text(msp_json_at(list, 0));
    last = msp_json_number_text(msp_json_at(list, n - 1));
    return (msp_str){first.p, (size_t)(last.p + last.len - first.p)};
}

/* "[2, 3]", and how many elements that is. */
static bool
intern_shape(flattener *f, const msp_json *shape, uint32_t *id)
{
    size_t n = msp_json_count(shape);
    msp_str raw = f->dump != NULL ? list_text(shape) : (msp_str){0};
    msp_recent *r = can_recall(f, raw) ? msp_recent_of(f->alike->shapes, raw) : NULL;
    int64_t numel = 1, size;

    note_part(f, ALIKE_SHAPE, raw);
    if (r != NULL && msp_str_eq(r->raw, raw)) {
        *id = r->id;
        return true;
    }
    msp_buf_clear(&f->scratch);
    msp_py_str(&f->scratch, shape);
    if (f->scratch.failed || !msp_rows_intern(f->out, msp_buf_view(&f->scratch), id))
        return false;
    if (r != NULL)
        *r = (msp_recent){raw, *id};
    if (f->out->texts[*id].numel >= 0)
        return true;
    for (size_t i = 0; i < n && numel >= 0; i++)
        if (!msp_json_to_i64(msp_json_at(shape, i), &size) || size < 0 || __builtin_mul_overflow(numel, size, &numel))
            numel = -1;
    f->out->texts[*id].numel = numel;
    return true;
}

/* ---- leaves ------------------------------------------------------------------------------------------------------ */

/* The members of a leaf that are looked at, found in one walk over it. */
typedef struct leaf_parts {
    const msp_json *type, *class_type, *value, *group_ranks, *dtype, *shape, *stats[MSP_NSTATS], *requires_grad,
        *data_name, *md5, *device_mesh, *placements;
} leaf_parts;

static leaf_parts
parts_of(const msp_json *leaf)
{
    static const struct {
        msp_str key;
        size_t offset;
    } wanted[] = {{MSP_STR("type"), offsetof(leaf_parts, type)},
                  {MSP_STR("value"), offsetof(leaf_parts, value)},
                  {MSP_STR("dtype"), offsetof(leaf_parts, dtype)},
                  {MSP_STR("shape"), offsetof(leaf_parts, shape)},
                  {MSP_STR("Max"), offsetof(leaf_parts, stats[MSP_STAT_MAX])},
                  {MSP_STR("Min"), offsetof(leaf_parts, stats[MSP_STAT_MIN])},
                  {MSP_STR("Mean"), offsetof(leaf_parts, stats[MSP_STAT_MEAN])},
                  {MSP_STR("Norm"), offsetof(leaf_parts, stats[MSP_STAT_NORM])},
                  {MSP_STR("requires_grad"), offsetof(leaf_parts, requires_grad)},
                  {MSP_STR("data_name"), offsetof(leaf_parts, data_name)},
                  {MSP_STR("md5"), offsetof(leaf_parts, md5)},
                  {MSP_STR("class_type"), offsetof(leaf_parts, class_type)},
                  {MSP_STR("group_ranks"), offsetof(leaf_parts, group_ranks)},
                  {MSP_STR("device_mesh"), offsetof(leaf_parts, device_mesh)},
                  {MSP_STR("placements"), offsetof(leaf_parts, placements)}};
    enum { WANTED = sizeof(wanted) / sizeof(wanted[0]) };
    leaf_parts p = {0};
    size_t n = msp_json_count(leaf), k = 0;

    for (size_t i = 0; i < n; i++) {
        msp_str key = msp_json_key(leaf, i);
        size_t tried = 0;

        /* most come in this order: the search goes on where the last one was found */
        for (; tried < WANTED && !msp_str_eq(key, wanted[k].key); tried++)
            k = k + 1 < WANTED ? k + 1 : 0;
        if (tried < WANTED)
            *(const msp_json **)((char *)&p + wanted[k].offset) = msp_json_at(leaf, i);
    }
    return p;
}

static msp_row *
new_row(flattener *f)
{
    msp_row *r = msp_rows_new(f->out);

    if (r != NULL) {
        r->api = f->api;
        r->state = (uint8_t)f->state;
    }
    return r;
}

static msp_status
name_row(flattener *f, msp_row *r)
{
    r->name = f->name.len > UINT32_MAX ? NULL : msp_arena_text(&f->out->arena, f->name.p, f->name.len);
    r->name_len = (uint32_t)f->name.len;
    return f->name.failed || r->name == NULL ? no_memory(f) : MSP_OK;
}

static msp_status
name_row_by_file(flattener *f, msp_row *r, msp_str file)
{
    if (file.len == 0)
        return name_row(f, r);
    file.p = file.len > UINT32_MAX ? NULL : keep_text(f, file);
    if (file.p == NULL)
        return no_memory(f);
    msp_row_set_file(r, file);
    return MSP_OK;
}

static msp_status
add_null(flattener *f)
{
    msp_row *r = new_row(f);
    msp_status st = r == NULL ? no_memory(f) : name_row(f, r);

    if (st == MSP_OK) {
        r->plain = true;
        f->out->count++;
    }
    return st;
}

static msp_str
last_part(msp_str name)
{
    size_t i = name.len;

    while (i > 0 && name.p[i - 1] != '.')
        i--;
    return (msp_str){name.p + i, name.len - i};
}

/* The arguments that name a rank in point-to-point and rooted communication. */
static bool
names_a_rank(msp_str name)
{
    msp_str last = last_part(name);

    return msp_str_eq(last, MSP_STR("src")) || msp_str_eq(last, MSP_STR("dst")) ||
           msp_str_eq(last, MSP_STR("group_src")) || msp_str_eq(last, MSP_STR("group_dst"));
}

static bool
set_stats(msp_row *r, msp_val v)
{
    for (int i = 0; i < MSP_NSTATS; i++)
        r->stats[i] = v;
    return true;
}

/* A missing value is empty text. */
static bool
set_value_crc(flattener *f, msp_row *r, const msp_json *value, bool there)
{
    r->md5 = (msp_val){VAL_TEXT, 8, {.p = "00000000"}};
    if (!there)
        return true;
    msp_buf_clear(&f->scratch);
    msp_py_str(&f->scratch, value);
    return !f->scratch.failed && msp_row_set_checksum(f->out, r, msp_buf_view(&f->scratch));
}

static bool
fill_texts(flattener *f, msp_row *r, msp_str dtype, msp_str shape)
{
    return msp_rows_intern(f->out, dtype, &r->dtype) && msp_rows_intern(f->out, shape, &r->shape);
}

/* numpy.shape() of a slice's [start, stop, step]. */
static bool
fill_slice(flattener *f, msp_row *r, const msp_json *value)
{
    char shape[32];
    int n = msp_json_kind_of(value) == MSP_JSON_ARRAY ? snprintf(shape, sizeof(shape), "(%zu,)", msp_json_count(value))
                                                      : snprintf(shape, sizeof(shape), "()");

    return fill_texts(f, r, MSP_STR("slice"), (msp_str){shape, (size_t)n});
}

/* A leaf without dtype: a number, a text, a group, a slice, ... */
static bool
fill_plain(flattener *f, msp_row *r, const leaf_parts *p)
{
    const msp_json *value = p->value;
    msp_str type = msp_json_string(p->type);
    msp_val text = {0};

    r->plain = r->file == NULL; /* a tensor that has lost its type may still have its file */
    if (!set_value_crc(f, r, value, value != NULL))
        return false;
    if (msp_str_eq(type, MSP_STR("torch.Size"))) {
        msp_buf_clear(&f->scratch);
        msp_py_str(&f->scratch, value);
        return !f->scratch.failed && fill_texts(f, r, type, msp_buf_view(&f->scratch));
    }
    if (msp_str_eq(type, MSP_STR("slice")))
        return fill_slice(f, r, value);
    if (msp_str_eq(type, MSP_STR("ellipsis")))
        return val_of(f, &text, value) && set_stats(r, text) && fill_texts(f, r, type, MSP_STR("[]"));
    if (names_a_rank(msp_row_name(r)) || msp_str_eq(type, MSP_STR("torch.ProcessGroup"))) {
        if (!names_a_rank(msp_row_name(r)))
            value = p->group_ranks;
        if (!val_str(f, &text, value))
            return false;
        r->md5 = text;
        return set_stats(r, text) && fill_texts(f, r, type, MSP_STR("[]"));
    }
    if (!val_of(f, &text, value))
        return false;
    if (text.kind == VAL_INT && p->md5 == NULL) /* a checksum of its own, wherever it stands, counts more than ours */
        note_part(f, ALIKE_VALUE, msp_json_number_text(value));
    return set_stats(r, text) && fill_texts(f, r, msp_str_of(msp_py_class(value)), MSP_STR("[]"));
}

static msp_status
wrong_leaf(flattener *f, const char *key, const char *must)
{
    msp_str api = f->out->apis[f->api].name;

    return msp_error_set(f->err, MSP_E_FORMAT, "%.*s: \"%s\" of %.*s must be %s", (int)api.len, api.p, key,
                         (int)f->name.len, f->name.p == NULL ? "" : f->name.p, must);
}

static msp_status
check_leaf(flattener *f, const leaf_parts *p)
{
    msp_json_kind shape = msp_json_kind_of(p->shape), grad = msp_json_kind_of(p->requires_grad);

    if (shape != MSP_JSON_ARRAY && shape != MSP_JSON_NULL)
        return wrong_leaf(f, "shape", "a list");
    if (grad != MSP_JSON_TRUE && grad != MSP_JSON_FALSE && grad != MSP_JSON_NULL)
        return wrong_leaf(f, "requires_grad", "true or false");
    return MSP_OK;
}

static bool
fill_tensor(flattener *f, msp_row *r, const leaf_parts *p)
{
    if (!intern_dtype(f, p->dtype, &r->dtype))
        return false;
    if (p->shape != NULL && msp_json_kind_of(p->shape) == MSP_JSON_ARRAY && !intern_shape(f, p->shape, &r->shape))
        return false;
    for (int i = 0; i < MSP_NSTATS; i++) {
        note_part(f, (msp_alike_part)i, msp_json_number_text(p->stats[i]));
        if (!stat_of(f, &r->stats[i], p->stats[i]))
            return false;
    }
    note_part(f, ALIKE_FILE, msp_json_string(p->data_name));
    return p->md5 != NULL || set_value_crc(f, r, NULL, false);
}

static bool
fill_leaf(flattener *f, msp_row *r, const leaf_parts *p)
{
    msp_json_kind grad = msp_json_kind_of(p->requires_grad), md5 = msp_json_kind_of(p->md5);

    if (!(msp_json_kind_of(p->dtype) != MSP_JSON_NULL ? fill_tensor(f, r, p) : fill_plain(f, r, p)))
        return false;
    r->requires_grad = grad == MSP_JSON_TRUE ? FLAG_TRUE : grad == MSP_JSON_FALSE ? FLAG_FALSE : FLAG_ABSENT;
    if (p->md5 == NULL)
        return true;
    f->out->has_md5 |= md5 != MSP_JSON_NULL;
    note_part(f, ALIKE_MD5, msp_json_string(p->md5));
    return md5 == MSP_JSON_NULL || val_str(f, &r->md5, p->md5);
}

static msp_status
add_leaf(flattener *f, const leaf_parts *p, uint32_t p2p)
{
    msp_status st = check_leaf(f, p);
    msp_row *r;

    if (st != MSP_OK)
        return st;
    r = new_row(f);
    if (r == NULL)
        return no_memory(f);
    r->p2p = p2p;
    st = name_row_by_file(f, r, msp_json_string(p->data_name));
    if (st == MSP_OK && !fill_leaf(f, r, p))
        st = no_memory(f);
    if (st == MSP_OK && p->placements != NULL && !msp_rows_dtensor(f->out, &r->dtensor, p->device_mesh, p->placements))
        st = no_memory(f);
    if (st == MSP_OK)
        f->out->count++;
    return st;
}

/* {"class_type": "torch.distributed.P2POp", "tensor": leaf, "op": "isend", "peer": 1, ...} */
static msp_status
add_p2p(flattener *f, const msp_json *v)
{
    leaf_parts tensor = parts_of(msp_json_get(v, "tensor"));
    msp_rows *t = f->out;
    msp_val op, peer;

    if (!msp_vec_grow((void **)&t->p2p, &t->cap_p2p, t->np2p + 1, sizeof(*t->p2p)) ||
        !val_str(f, &op, msp_json_get(v, "op")) || !val_str(f, &peer, msp_json_get(v, "peer")))
        return no_memory(f);
    t->p2p[t->np2p++] = (msp_row_p2p){{op.as.p, op.len}, {peer.as.p, peer.len}};
    return add_leaf(f, &tensor, (uint32_t)t->np2p);
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static msp_status flatten_value(flattener *f, const msp_json *v, int depth);

static void
add_number(msp_buf *out, size_t n)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    msp_buf_add(out, digits + at, sizeof(digits) - at);
}

static msp_status
walk_children(flattener *f, const msp_json *v, int depth)
{
    bool object = msp_json_kind_of(v) == MSP_JSON_OBJECT;
    size_t n = msp_json_count(v), at = f->name.len;
    msp_status st = MSP_OK;

    for (size_t i = 0; i < n && st == MSP_OK; i++) {
        if (object) {
            msp_buf_char(&f->name, '.');
            msp_buf_str(&f->name, msp_json_key(v, i));
        } else if (!f->skip_indices) {
            msp_buf_char(&f->name, '.');
            add_number(&f->name, i);
        }
        st = f->name.failed ? no_memory(f) : flatten_value(f, msp_json_at(v, i), depth + 1);
        f->name.len = at;
    }
    return st;
}

static msp_status
flatten_value(flattener *f, const msp_json *v, int depth)
{
    leaf_parts parts;

    if (depth > MAX_DEPTH)
        return msp_error_set(f->err, MSP_E_LIMIT, "%.60s...: values nest deeper than %d", f->name.p, MAX_DEPTH);
    switch (msp_json_kind_of(v)) {
    case MSP_JSON_NULL:
        return add_null(f);
    case MSP_JSON_ARRAY:
        return walk_children(f, v, depth);
    case MSP_JSON_OBJECT:
        parts = parts_of(v);
        if (msp_str_eq(msp_json_string(parts.class_type), MSP_STR("torch.distributed.P2POp")))
            return add_p2p(f, v);
        return msp_json_kind_of(parts.type) == MSP_JSON_STRING ? add_leaf(f, &parts, 0) : walk_children(f, v, depth);
    default:
        return MSP_OK; /* a bare number or text is no row */
    }
}

static msp_status
walk_as(flattener *f, const msp_json *v, msp_row_state state, msp_str suffix)
{
    size_t at = f->name.len;
    msp_status st;

    f->state = state;
    msp_buf_str(&f->name, suffix);
    st = f->name.failed ? no_memory(f) : flatten_value(f, v, 0);
    f->name.len = at;
    return st;
}

/* How a record is walked, which its name says. */
typedef enum walk_kind { WALK_CALL, WALK_DEBUG, WALK_GRADS } walk_kind;

static walk_kind
kind_of(msp_str name)
{
    const msp_str grads = MSP_STR("parameters_grad");
    msp_str last = last_part(name);

    if (msp_str_eq(last, MSP_STR("debug")))
        return WALK_DEBUG;
    if (msp_str_eq(last, grads))
        return WALK_GRADS;
    if (last.len == name.len)
        return WALK_CALL;
    return msp_str_eq(last_part((msp_str){name.p, name.len - last.len - 1}), grads) ? WALK_GRADS : WALK_CALL;
}

static msp_status
walk_record(flattener *f, const msp_json *record, walk_kind kind)
{
    static const struct {
        const char *key;
        msp_row_state state;
        msp_str suffix;
    } sections[] = {{"input_args", STATE_INPUT, MSP_STR(".input")},
                    {"input_kwargs", STATE_INPUT, MSP_STR(".input")},
                    {"input", STATE_INPUT, MSP_STR(".input")},
                    {"parameters", STATE_PARAMETERS, MSP_STR(".parameters")},
                    {"output", STATE_OUTPUT, MSP_STR(".output")}};
    msp_status st = MSP_OK;

    msp_buf_clear(&f->name);
    msp_buf_str(&f->name, f->out->apis[f->api].name);
    f->skip_indices = kind == WALK_GRADS;
    if (kind != WALK_CALL)
        return walk_as(f, record, kind == WALK_DEBUG ? STATE_DEBUG : STATE_PARAMETERS_GRAD, MSP_STR(""));
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]) && st == MSP_OK; i++) {
        const msp_json *v = msp_json_get(record, sections[i].key);

        if (v != NULL)
            st = walk_as(f, v, sections[i].state, sections[i].suffix);
    }
    return st;
}

/* By its tree. It is a model for those that follow. */
static msp_status
add_by_tree(flattener *f, walk_kind kind, msp_str text)
{
    msp_json_doc doc;
    msp_status st = msp_dump_record(f->dump, f->api, &doc, f->room, ROOM, f->err);

    if (st != MSP_OK)
        return st;
    st = walk_record(f, doc.root, kind);
    if (st == MSP_OK)
        msp_alike_learn(f->alike, f->out, f->api, kind, text);
    msp_json_doc_release(&doc);
    return st;
}

static msp_status
add_record(flattener *f, size_t i)
{
    msp_row_api *api = &f->out->apis[i];
    msp_str text = msp_dump_record_text(f->dump, i);
    msp_status st = MSP_OK;
    walk_kind kind;

    api->name.p = msp_dump_name(f->dump, i, &api->name.len);
    api->first = f->out->count;
    f->api = (uint32_t)i;
    f->out->napis = i + 1;
    kind = kind_of(api->name);
    if (!msp_alike_read(f->alike, f->out, f->api, kind, text))
        st = add_by_tree(f, kind, text);
    api->count = f->out->count - api->first;
    return st;
}

msp_status
msp_rows_flatten(msp_rows *out, const msp_dump *d, msp_rows_tick *tick, void *payload, msp_error *err)
{
    _Alignas(16) char room[ROOM];
    flattener f = {.out = out, .dump = d, .room = room, .err = err};
    size_t n = msp_dump_count(d), bytes = 0;
    msp_status st = MSP_OK;

    if (!msp_rows_begin(out) || n >= UINT32_MAX || (out->apis = msp_alloc_zero(n, sizeof(*out->apis))) == NULL ||
        (f.alike = msp_alloc_zero(1, sizeof(*f.alike))) == NULL)
        return no_memory(&f);
    for (size_t i = 0; i < n && st == MSP_OK; i++) {
        st = add_record(&f, i);
        bytes += msp_dump_record_text(d, i).len;
        if (st == MSP_OK && tick != NULL && (bytes >= TICK_BYTES || i + 1 == n)) {
            if (!tick(bytes, payload))
                st = msp_error_set(err, MSP_E_CANCELLED, "cancelled");
            bytes = 0;
        }
    }
    msp_free(f.alike);
    msp_buf_release(&f.name);
    msp_buf_release(&f.scratch);
    return st;
}

/* ---- for readers of other files ---------------------------------------------------------------------------------- */

bool
msp_rows_texts(msp_rows *t, msp_row *r, const msp_json *dtype, const msp_json *shape)
{
    flattener f = {.out = t};
    bool ok = intern_dtype(&f, dtype, &r->dtype) && intern_shape(&f, shape, &r->shape);

    msp_buf_release(&f.scratch);
    return ok;
}

bool
msp_rows_value(msp_rows *t, msp_val *out, const msp_json *v)
{
    flattener f = {.out = t};
    bool ok = val_of(&f, out, v);

    msp_buf_release(&f.scratch);
    return ok;
}
