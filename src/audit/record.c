/* record.c - see record.h. */
#include "audit/record.h"

#include <math.h>

msp_str
msp_audit_keep(msp_audit_rank *r, msp_str s)
{
    char *p = s.len == 0 ? NULL : msp_arena_text(&r->arena, s.p, s.len);

    return (msp_str){p, p == NULL ? 0 : s.len};
}

bool
msp_audit_is_tensor(const msp_json *v)
{
    return msp_json_kind_of(v) == MSP_JSON_OBJECT && msp_json_get(v, "dtype") != NULL &&
           msp_json_kind_of(msp_json_get(v, "shape")) == MSP_JSON_ARRAY;
}

void
msp_audit_read_tensor(msp_audit_rank *r, msp_audit_tensor *t, const msp_json *v)
{
    static const char *const names[MSP_AUDIT_NSTATS] = {"Max", "Min", "Mean", "Norm"};
    const msp_json *shape = msp_json_get(v, "shape");
    msp_str dtype = msp_json_string(msp_json_get(v, "dtype"));

    *t = (msp_audit_tensor){.dtype = msp_dtype_parse(dtype.p, dtype.len), .numel = 1, .has_stats = true};
    for (size_t i = 0; i < msp_json_count(shape); i++) {
        int64_t n = 0;

        if (!msp_json_to_i64(msp_json_at(shape, i), &n) || n < 0 || (n > 0 && t->numel > INT64_MAX / n))
            n = 0;
        t->numel *= n;
        if (i < MSP_AUDIT_MAX_DIM)
            t->shape[t->ndim++] = n;
    }
    for (int i = 0; i < MSP_AUDIT_NSTATS; i++)
        if (!msp_json_to_f64(msp_json_get(v, names[i]), &t->stat[i])) {
            t->stat[i] = NAN;
            t->has_stats = t->has_stats && i > 1; /* integers have no Mean and Norm in some generations */
        }
    t->md5 = msp_audit_keep(r, msp_json_string(msp_json_get(v, "md5")));
    t->data_name = msp_audit_keep(r, msp_json_string(msp_json_get(v, "data_name")));
}

/* How many tensors there are in v, which is one, or lists of them. */
static size_t
count_tensors(const msp_json *v)
{
    size_t n = 0;

    if (msp_audit_is_tensor(v))
        return 1;
    if (msp_json_kind_of(v) == MSP_JSON_ARRAY)
        for (size_t i = 0; i < msp_json_count(v); i++)
            n += count_tensors(msp_json_at(v, i));
    return n;
}

static void
fill_tensors(msp_audit_rank *r, msp_audit_list *l, const msp_json *v)
{
    if (msp_audit_is_tensor(v))
        msp_audit_read_tensor(r, &l->items[l->count++], v);
    else if (msp_json_kind_of(v) == MSP_JSON_ARRAY)
        for (size_t i = 0; i < msp_json_count(v); i++)
            fill_tensors(r, l, msp_json_at(v, i));
}

bool
msp_audit_read_tensors(msp_audit_rank *r, msp_audit_list *l, const msp_json *v)
{
    size_t n = count_tensors(v);

    *l = (msp_audit_list){0};
    if (n == 0)
        return true;
    l->items = msp_arena_alloc_zero(&r->arena, n, sizeof(*l->items));
    if (l->items == NULL)
        return false;
    fill_tensors(r, l, v);
    return true;
}

/* A plain number, or a record of one. */
bool
msp_audit_read_int(const msp_json *v, int64_t *out)
{
    return msp_json_to_i64(v, out) || msp_json_to_i64(msp_json_get(v, "value"), out);
}

int64_t *
msp_audit_read_ints(msp_audit_rank *r, const msp_json *v, size_t *n)
{
    const msp_json *list = msp_json_kind_of(v) == MSP_JSON_OBJECT ? msp_json_get(v, "value") : v;
    size_t count = msp_json_kind_of(list) == MSP_JSON_ARRAY ? msp_json_count(list) : 0;
    int64_t *all = count == 0 ? NULL : msp_arena_alloc_zero(&r->arena, count, sizeof(*all));

    *n = 0;
    for (size_t i = 0; all != NULL && i < count; i++)
        if (!msp_audit_read_int(msp_json_at(list, i), &all[(*n)++])) {
            *n = 0;
            return NULL;
        }
    return all;
}
