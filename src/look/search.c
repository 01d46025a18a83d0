/* search.c - which calls a name means. */
#include <ctype.h>
#include "core/alloc.h"
#include "core/locale.h"
#include "core/vec.h"
#include "look/look_parts.h"

typedef struct hits {
    size_t *calls;
    size_t n, cap;
} hits;

typedef bool match(const msp_look *l, size_t call, msp_str name);

static bool
is_call(const msp_look *l, size_t call, msp_str name)
{
    return msp_str_eq(l->rows->apis[call].name, name);
}

static bool
has_row(const msp_look *l, size_t call, msp_str name)
{
    const msp_row_api *api = &l->rows->apis[call];

    for (size_t i = api->first; i < api->first + api->count; i++)
        if (msp_str_eq(msp_row_name(&l->rows->rows[i]), name) ||
            (l->rows->rows[i].file != NULL && !l->legacy.hooks && msp_str_eq(msp_row_file(&l->rows->rows[i]), name)))
            return true;
    return false;
}

/* "Functional.linear.1" does not mean linear.10. */
static bool
continues_name(const msp_look *l, size_t call, msp_str name)
{
    msp_str whole = l->rows->apis[call].name;

    return msp_str_starts(whole, name) &&
           (whole.len == name.len || whole.p[name.len] == '.' || whole.p[name.len] == '_');
}

static bool
starts_with_name(const msp_look *l, size_t call, msp_str name)
{
    return msp_str_starts(l->rows->apis[call].name, name);
}

static bool
contains_name(const msp_look *l, size_t call, msp_str name)
{
    msp_str whole = l->rows->apis[call].name;

    for (size_t at = 0; at + name.len <= whole.len; at++)
        if (msp_str_eq_nocase((msp_str){whole.p + at, name.len}, name))
            return true;
    return false;
}

static bool
collect_matches(hits *h, const msp_look *l, msp_str name, match *matches)
{
    for (size_t i = 0; i < l->rows->napis; i++) {
        if (!matches(l, i, name))
            continue;
        if (!msp_vec_grow((void **)&h->calls, &h->cap, h->n + 1, sizeof(*h->calls)))
            return false;
        h->calls[h->n++] = i;
    }
    return true;
}

msp_status
msp_look_search(size_t **out, size_t *n, const msp_look *l, const char *name, msp_error *err)
{
    static match *const tried[] = {is_call, has_row, continues_name, starts_with_name, contains_name};
    hits h = {0};
    bool ok = true;

    for (size_t i = 0; i < sizeof(tried) / sizeof(tried[0]) && ok && h.n == 0 && name[0] != '\0'; i++)
        ok = collect_matches(&h, l, msp_str_of(name), tried[i]);
    *out = h.calls;
    *n = h.n;
    if (ok)
        return MSP_OK;
    msp_free(h.calls);
    *out = NULL;
    *n = 0;
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
