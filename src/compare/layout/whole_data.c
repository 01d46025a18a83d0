/* whole_data.c - the elements of a whole: see whole.h. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include "compare/layout/whole_parts.h"
#include "core/alloc.h"
#include "dtype/convert.h"
#include "dump/dump_read.h"
#include "io/tensor_file.h"
#include "kernels/gather.h"

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static msp_status
path_of(msp_buf *out, const msp_whole *w, const msp_whole_part *p, msp_error *err)
{
    if (p->file.len == 0 || p->file.len > NAME_MAX || memchr(p->file.p, '/', p->file.len) != NULL)
        return msp_error_set(err, MSP_E_INVALID, "%.*s: no name of a file in dump_tensor_data", (int)p->file.len,
                             p->file.len > 0 ? p->file.p : "");
    msp_buf_printf(out, "%s/%.*s", w->members[p->member].dir, (int)p->file.len, p->file.p);
    return msp_buf_status(out, err);
}

/* By its path: threads that read have tables of descriptors of their own, in which no folder of ours is open. */
static msp_status
open_part(msp_tensor *out, const msp_whole *w, const msp_whole_part *p, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    *out = (msp_tensor){0};
    st = path_of(&path, w, p, err);
    if (st == MSP_OK)
        st = msp_dump_check_owner(path.p, err);
    if (st == MSP_OK)
        st = msp_tensor_open(out, path.p, err);
    msp_buf_release(&path);
    return st;
}

/* The parts' tensors, all open. */
typedef struct open_parts {
    msp_tensor *tensors;
    size_t n;
    msp_tensor like; /* the whole's type and shape; no data */
} open_parts;

static void
close_parts(open_parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        msp_tensor_release(&p->tensors[i]);
    msp_free(p->tensors);
}

static msp_status
join_like(open_parts *p, const msp_whole *w, const msp_whole_row *r, msp_error *err)
{
    const msp_tensor *first = &p->tensors[0];
    int64_t shape[MSP_MAX_NDIM] = {0}, numel = 0, end;
    bool ok = true;
    msp_status st;

    for (size_t i = 0; i < p->n && ok; i++) {
        const msp_whole_part *part = &w->parts[r->first + i];
        const msp_tensor *t = &p->tensors[i];

        ok = t->ndim == first->ndim && t->dtype == first->dtype && t->numel == part->numel &&
             !__builtin_add_overflow(numel, t->numel, &numel);
        for (int d = 0; ok && d < t->ndim; d++) {
            ok = !__builtin_add_overflow(part->start[d], t->shape[d], &end) &&
                 (r->how == LAYOUT_CONCAT || t->shape[d] == first->shape[d]);
            shape[d] = ok && end > shape[d] ? end : shape[d];
        }
    }
    if (!ok)
        return msp_error_set(err, MSP_E_INVALID, "the files of its parts do not go together");
    st = msp_tensor_view(&p->like, NULL, first->dtype, first->ndim, shape, err);
    if (st == MSP_OK && r->how == LAYOUT_CONCAT && p->like.numel != numel / (int64_t)r->sums)
        st = msp_error_set(err, MSP_E_INVALID, "the files of its parts do not go together");
    return st;
}

static msp_status
open_all(open_parts *p, const msp_whole *w, const msp_whole_row *r, msp_error *err)
{
    msp_status st = MSP_OK;

    *p = (open_parts){.tensors = msp_alloc_zero(r->n, sizeof(*p->tensors))};
    if (p->tensors == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (; p->n < r->n && st == MSP_OK; p->n++)
        st = open_part(&p->tensors[p->n], w, &w->parts[r->first + p->n], err);
    return st == MSP_OK ? join_like(p, w, r, err) : st;
}

/* MSP_E_CHANGED when a file was cut short while it was read. */
static msp_status
check_parts(const open_parts *p, const msp_whole *w, const msp_whole_row *r, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < p->n && st == MSP_OK; i++) {
        msp_buf path = {0};

        st = path_of(&path, w, &w->parts[r->first + i], err);
        if (st == MSP_OK)
            st = msp_tensor_check_at(&p->tensors[i], AT_FDCWD, path.p, err);
        msp_buf_release(&path);
    }
    return st;
}

/* ---- one tensor out of them -------------------------------------------------------------------------------------- */

/* Where run number i of a part begins in the whole, counted in elements; a run goes over all dimensions from `last` on.
 */
static int64_t
place_of_run(const msp_tensor *whole, const msp_tensor *part, const int64_t *start, int last, int64_t i)
{
    int64_t place = 0, behind = 1;

    for (int d = whole->ndim - 1; d >= 0; d--) {
        int64_t index = start[d];

        if (d < last) {
            index += i % part->shape[d];
            i /= part->shape[d];
        }
        place += index * behind;
        behind *= whole->shape[d];
    }
    return place;
}

/* The elements of a part in their places of the whole, in runs that lie together in both. */
static void
put_slice(char *to, const open_parts *p, size_t part, const int64_t *start)
{
    const msp_tensor *t = &p->tensors[part];
    size_t size = msp_dtype_size(t->dtype);
    int64_t run = 1;
    int last = t->ndim;
    msp_gather g;

    while (last > 0 && (last == t->ndim || t->shape[last] == p->like.shape[last]))
        run *= t->shape[--last];
    msp_gather_init(&g, t);
    for (int64_t i = 0; t->numel > 0 && i < t->numel / run; i++) {
        char *at = to + (size_t)place_of_run(&p->like, t, start, last, i) * size;
        const void *from = msp_gather_block(&g, i * run, run, at);

        if (from != at)
            memcpy(at, from, (size_t)run * size);
    }
}

static double
as_double(msp_dtype t, const void *p)
{
    return msp_dtype_load_f64(t, p);
}

static void
store(msp_dtype t, void *to, double v)
{
    float f = (float)v;
    uint16_t h;

    switch (t) {
    case MSP_F64:
        memcpy(to, &v, sizeof(v));
        break;
    case MSP_F32:
        memcpy(to, &f, sizeof(f));
        break;
    default:
        h = t == MSP_F16 ? msp_f32_to_f16(f) : msp_f32_to_bf16(f);
        memcpy(to, &h, sizeof(h));
    }
}

static bool
is_added_up(msp_dtype t)
{
    return t == MSP_F64 || t == MSP_F32 || t == MSP_F16 || t == MSP_BF16;
}

static void
multiply(char *elements, const open_parts *p, double factor)
{
    size_t size = msp_dtype_size(p->like.dtype);

    for (int64_t i = 0; i < p->like.numel; i++, elements += size)
        store(p->like.dtype, elements, factor * as_double(p->like.dtype, elements));
}

/* Added up in double and rounded once. */
static void
put_sum(char *to, const open_parts *p, double factor)
{
    enum { BLOCK = 512 };
    msp_dtype type = p->like.dtype;
    size_t size = msp_dtype_size(type);
    double sums[BLOCK];
    char room[BLOCK * 8];

    for (int64_t at = 0; at < p->like.numel; at += BLOCK) {
        int64_t n = p->like.numel - at < BLOCK ? p->like.numel - at : BLOCK;

        for (size_t i = 0; i < p->n; i++) {
            msp_gather g;
            const char *from;

            msp_gather_init(&g, &p->tensors[i]);
            from = msp_gather_block(&g, at, n, room);
            for (int64_t k = 0; k < n; k++)
                sums[k] = (i > 0 ? sums[k] : 0) + as_double(type, from + (size_t)k * size);
        }
        for (int64_t k = 0; k < n; k++)
            store(type, to + (size_t)(at + k) * size, factor * sums[k]);
    }
}

/* Several concatenations, added up in double and rounded once. */
static msp_status
put_sum_of_slices(char *to, const open_parts *p, const msp_whole *w, const msp_whole_row *r, msp_error *err)
{
    double *sums = msp_alloc_zero((size_t)p->like.numel, sizeof(*sums));
    size_t size = msp_dtype_size(p->like.dtype), each = p->n / r->sums;

    if (sums == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < p->n; i++) {
        put_slice(to, p, i, w->parts[r->first + i].start);
        for (int64_t k = 0; (i + 1) % each == 0 && k < p->like.numel; k++)
            sums[k] += as_double(p->like.dtype, to + (size_t)k * size);
    }
    for (int64_t k = 0; k < p->like.numel; k++)
        store(p->like.dtype, to + (size_t)k * size, r->factor * sums[k]);
    msp_free(sums);
    return MSP_OK;
}

static msp_status
join(msp_tensor *out, const open_parts *p, const msp_whole *w, const msp_whole_row *r, msp_error *err)
{
    msp_dtype type = p->like.dtype;
    msp_status st = MSP_OK;
    char *data;

    if ((r->how == LAYOUT_SUM || r->factor != 1 || r->sums > 1) && !is_added_up(type))
        return msp_error_set(err, MSP_E_UNSUPPORTED, "parts of %s are not added up or multiplied",
                             msp_dtype_torch_name(type));
    data = msp_alloc((size_t)p->like.numel + 1, msp_dtype_size(type));
    if (data == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (r->how == LAYOUT_SUM)
        put_sum(data, p, r->factor);
    else if (r->sums > 1)
        st = put_sum_of_slices(data, p, w, r, err);
    for (size_t i = 0; i < p->n && r->how == LAYOUT_CONCAT && r->sums == 1; i++)
        put_slice(data, p, i, w->parts[r->first + i].start);
    if (r->how == LAYOUT_CONCAT && r->sums == 1 && r->factor != 1)
        multiply(data, p, r->factor);
    if (st != MSP_OK) {
        msp_free(data);
        return st;
    }
    *out = p->like;
    out->data = data;
    out->owner = data;
    out->release_owner = msp_free;
    return MSP_OK;
}

msp_status
msp_whole_tensor(msp_tensor *out, const msp_whole *w, const msp_row *row, msp_error *err)
{
    const msp_whole_row *r = &w->rows[row->whole - 1];
    open_parts p;
    msp_status st;

    *out = (msp_tensor){0};
    if (r->n == 1)
        return open_part(out, w, &w->parts[r->first], err);
    st = open_all(&p, w, r, err);
    if (st == MSP_OK)
        st = join(out, &p, w, r, err);
    if (st == MSP_OK && (st = check_parts(&p, w, r, err)) != MSP_OK)
        msp_tensor_release(out);
    close_parts(&p);
    return st;
}

bool
msp_whole_has_slices(const msp_whole *w, const msp_row *row)
{
    const msp_whole_row *r = row->whole != 0 ? &w->rows[row->whole - 1] : NULL;

    return r != NULL && r->n > 1 && r->how == LAYOUT_CONCAT && r->factor == 1 && r->sums == 1;
}

/* ---- part by part ------------------------------------------------------------------------------------------------ */

/* The place of a part in the other side's tensor: a view. */
static msp_tensor
slice_of(const msp_tensor *t, const int64_t *start, const msp_tensor *part)
{
    msp_tensor s = *t;
    int64_t offset = 0;

    for (int d = 0; d < t->ndim; d++) {
        offset += start[d] * t->strides[d];
        s.shape[d] = part->shape[d];
    }
    s.data = (const char *)t->data + offset * (int64_t)msp_dtype_size(t->dtype);
    s.numel = part->numel;
    s.owner = NULL;
    s.release_owner = NULL;
    return s;
}

static void
add_metrics(msp_metrics *all, const msp_metrics *m)
{
    all->count += m->count;
    all->dot += m->dot;
    all->sq_n += m->sq_n;
    all->sq_b += m->sq_b;
    all->euc_dist += m->euc_dist * m->euc_dist; /* of squares, until the end */
    all->max_abs_err = m->max_abs_err > all->max_abs_err || isnan(m->max_abs_err) ? m->max_abs_err : all->max_abs_err;
    all->max_rel_err = m->max_rel_err > all->max_rel_err || isnan(m->max_rel_err) ? m->max_rel_err : all->max_rel_err;
    all->below_1e3 += m->below_1e3;
    all->below_5e3 += m->below_5e3;
    all->inf_sign += m->inf_sign;
    all->mismatches += m->mismatches;
    all->nonfinite += m->nonfinite;
}

/* 1 - (d^2 - (|n| - |b|)^2) / (2 |n| |b|) is the cosine too, and keeps its digits where both sides are nearly equal. */
static double
cosine_of(const msp_metrics *m)
{
    static const double eps = 2.220446049250313e-16;
    double n = sqrt(m->sq_n), b = sqrt(m->sq_b), d = m->euc_dist;

    if (n <= eps || b <= eps)
        return n <= eps && b <= eps ? 1 : NAN;
    if (m->dot < 0.5 * n * b)
        return m->dot / (n * b);
    return 1 - (d * d - (n - b) * (n - b)) / (2 * n * b);
}

msp_status
msp_whole_metrics(msp_metrics *out, msp_tensor *like, const msp_whole *w, const msp_row *row, int side,
                  const msp_tensor *other, int threads, msp_error *err)
{
    const msp_whole_row *r = &w->rows[row->whole - 1];
    open_parts p;
    msp_status st = open_all(&p, w, r, err);

    *out = (msp_metrics){.max_abs_index = -1, .max_rel_index = -1, .first_mismatch = -1, .rmse = NAN, .mape = NAN};
    if (st == MSP_OK) {
        *like = p.like;
        if (!msp_tensor_same_shape(like, other))
            st = msp_error_set(err, MSP_E_INVALID, "the shapes differ");
    }
    for (size_t i = 0; i < p.n && st == MSP_OK; i++) {
        const msp_tensor *part = &p.tensors[i];
        msp_tensor slice;
        msp_metrics m;

        if (part->numel == 0)
            continue;
        slice = slice_of(other, w->parts[r->first + i].start, part);
        st = msp_metrics_brief(&m, side == 0 ? part : &slice, side == 0 ? &slice : part, threads, err);
        if (st == MSP_OK)
            add_metrics(out, &m);
    }
    if (st == MSP_OK)
        st = check_parts(&p, w, r, err);
    out->euc_dist = sqrt(out->euc_dist);
    out->cosine = cosine_of(out);
    close_parts(&p);
    return st;
}
