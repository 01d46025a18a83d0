/* summary.c - what a dump holds, in numbers: one pass over its rows. */
#include <math.h>
#include <stdlib.h>
#include "core/alloc.h"
#include "core/map.h"
#include "core/path.h"
#include "core/vec.h"
#include "look/look_parts.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

static bool
is_module_prefix(msp_str name)
{
    return msp_str_starts(name, MSP_STR("Module.")) || msp_str_starts(name, MSP_STR("Cell."));
}

bool
msp_look_is_module(msp_str name)
{
    return is_module_prefix(name);
}

bool
msp_look_is_backward(msp_str name)
{
    return msp_str_find(name, MSP_STR(".backward")) != NULL || msp_str_find(name, MSP_STR("_backward")) != NULL ||
           msp_str_find(name, MSP_STR(".parameters_grad")) != NULL;
}

/* The part behind the last separator: dots, or underscores in the older tools' names. */
static msp_str
last_part(msp_str name, char separator)
{
    size_t at = name.len;

    while (at > 0 && name.p[at - 1] != separator)
        at--;
    return (msp_str){name.p + at, name.len - at};
}

static bool
says_which(msp_str part)
{
    return msp_str_is_digits(part) || msp_str_eq(part, MSP_STR("forward")) || msp_str_eq(part, MSP_STR("backward")) ||
           msp_str_eq(part, MSP_STR("parameters_grad")) || msp_str_eq(part, MSP_STR("debug"));
}

/* What kind of call it is: "Functional.linear", or a module's class. */
static msp_str
kind_of_call(msp_str name)
{
    char separator = name.len > 0 && memchr(name.p, '.', name.len) != NULL ? '.' : '_';
    bool module = is_module_prefix(name);
    msp_str part;

    while ((part = last_part(name, separator)).len < name.len && says_which(part))
        name.len -= part.len + 1;
    return module ? part : name;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

typedef struct counts {
    msp_map places; /* name -> index in list */
    msp_look_count *list;
    size_t n, cap;
} counts;

static msp_look_count *
count_of(counts *c, msp_str name)
{
    bool added;
    msp_map_entry *e = msp_map_put(&c->places, name, (int64_t)c->n, &added);

    if (e == NULL || (added && !msp_vec_grow((void **)&c->list, &c->cap, c->n + 1, sizeof(*c->list))))
        return NULL;
    if (added)
        c->list[c->n++] = (msp_look_count){.name = msp_look_text_of(name)};
    return &c->list[e->value];
}

static int
by_count(const void *a, const void *b)
{
    const msp_look_count *x = a, *y = b;
    int order = msp_str_cmp((msp_str){x->name.p, x->name.len}, (msp_str){y->name.p, y->name.len});

    return x->count != y->count ? (x->count < y->count ? 1 : -1) : order != 0 ? order : x->module - y->module;
}

/* The list, most first, is the caller's. */
static size_t
take_counts(msp_look_count **out, counts *c)
{
    if (c->n > 1)
        qsort(c->list, c->n, sizeof(*c->list), by_count);
    *out = c->list;
    msp_map_release(&c->places);
    return c->n;
}

/* ---- the largest ------------------------------------------------------------------------------------------------- */

static void
note_large(msp_look_summary *s, const msp_look *l, size_t row, int64_t bytes)
{
    size_t i;

    if (bytes <= 0)
        return;
    if (s->nlargest == MSP_LOOK_TOP && bytes <= msp_row_bytes(l->rows, &l->rows->rows[s->largest[MSP_LOOK_TOP - 1]]))
        return;
    i = s->nlargest < MSP_LOOK_TOP ? s->nlargest++ : MSP_LOOK_TOP - 1;
    for (; i > 0 && msp_row_bytes(l->rows, &l->rows->rows[s->largest[i - 1]]) < bytes; i--)
        s->largest[i] = s->largest[i - 1];
    s->largest[i] = row;
}

static void
note_growth(msp_look_summary *s, size_t call, double in, double out)
{
    size_t i;

    if (!(in > 0) || !(out > in))
        return;
    for (i = 0; i < s->ngrowth; i++) /* a module around one call grows as that does */
        if (s->growth[i].in == in && s->growth[i].out == out)
            return;
    if (s->ngrowth == MSP_LOOK_TOP && out / in <= s->growth[MSP_LOOK_TOP - 1].out / s->growth[MSP_LOOK_TOP - 1].in)
        return;
    i = s->ngrowth < MSP_LOOK_TOP ? s->ngrowth++ : MSP_LOOK_TOP - 1;
    for (; i > 0 && s->growth[i - 1].out / s->growth[i - 1].in < out / in; i--)
        s->growth[i] = s->growth[i - 1];
    s->growth[i] = (msp_look_growth){call, in, out};
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The folder of the tensors; msp_free(). NULL when there is no memory. */
static char *
data_dir(const msp_look *l)
{
    msp_str dir = msp_path_dir(l->path);
    msp_buf path = {0};

    if (l->dump == NULL)
        return msp_legacy_data_dir(l->path);
    msp_buf_str(&path, dir);
    msp_buf_text(&path, "/dump_tensor_data");
    if (path.failed)
        msp_buf_release(&path);
    return path.p;
}

/* Names are looked up in one listing: asking for each costs as much as reading it. */
static msp_status
count_missing(msp_look *l, msp_error *err)
{
    msp_look_summary *s = &l->summary;
    char *dir = s->files > 0 ? data_dir(l) : NULL;
    msp_dir_list names = {0};
    msp_map there = {0};
    bool ok = true;

    if (s->files == 0)
        return MSP_OK;
    if (dir == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (msp_path_kind_of(dir) == MSP_PATH_DIR && msp_dir_list_read(&names, dir, NULL) != MSP_OK)
        names = (msp_dir_list){0};
    for (size_t i = 0; i < names.count && ok; i++)
        ok = msp_map_put(&there, msp_str_of(names.names[i]), 1, NULL) != NULL;
    for (size_t i = 0; i < l->rows->count && ok; i++)
        s->missing += l->rows->rows[i].file != NULL && msp_map_get(&there, msp_row_file(&l->rows->rows[i])) == NULL;
    msp_map_release(&there);
    msp_dir_list_release(&names);
    msp_free(dir);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

static bool
add_row(msp_look *l, counts *types, size_t i)
{
    msp_look_summary *s = &l->summary;
    const msp_row *r = &l->rows->rows[i];
    int64_t numel = l->rows->texts[r->shape].numel;
    msp_look_count *type;
    msp_look_row row;

    msp_look_row_at(&row, l, i);
    s->files += row.file.p != NULL;
    if (!row.tensor)
        return true;
    type = count_of(types, msp_row_dtype(l->rows, r));
    if (type == NULL)
        return false;
    type->count++;
    type->elements += numel > 0 ? numel : 0;
    type->bytes += row.bytes > 0 ? row.bytes : 0;
    s->tensors++;
    s->elements += numel > 0 ? numel : 0;
    s->bytes += row.bytes > 0 ? row.bytes : 0;
    s->has_stats |= row.stats[MSP_STAT_MAX].kind == MSP_CELL_FLOAT || row.stats[MSP_STAT_NORM].kind == MSP_CELL_FLOAT;
    s->nan.rows += row.nan;
    s->inf.rows += row.inf;
    note_large(s, l, i, row.bytes);
    return true;
}

static bool
add_call(msp_look *l, counts *kinds, size_t i)
{
    msp_str name = l->rows->apis[i].name;
    msp_look_summary *s = &l->summary;
    msp_look_count *kind;
    msp_look_call call;

    msp_look_call_at(&call, l, i);
    s->calls++;
    s->backward += call.backward;
    s->modules += call.module;
    note_growth(s, i, call.norm_in, call.norm_out);
    kind = count_of(kinds, kind_of_call(name));
    if (kind == NULL)
        return false;
    kind->count++;
    kind->module |= call.module;
    return true;
}

msp_status
msp_look_sum_up(msp_look *l, msp_error *err)
{
    msp_look_summary *s = &l->summary;
    counts types = {0}, kinds = {0};
    bool ok = true;

    s->rows = (int64_t)l->rows->count;
    s->has_checksums = l->rows->has_md5;
    for (size_t i = 0; i < l->rows->count && ok; i++)
        ok = add_row(l, &types, i);
    for (size_t i = 0; i < l->rows->napis && ok; i++)
        ok = add_call(l, &kinds, i);
    s->ntypes = take_counts(&s->types, &types);
    s->nkinds = take_counts(&s->kinds, &kinds);
    if (!ok)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return l->legacy.hooks ? MSP_OK : count_missing(l, err);
}
