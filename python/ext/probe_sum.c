/*
 * probe_sum.c - several gradients that make one.
 *
 * Where several nodes of a call contribute to one input, autograd accumulates what they send, and the record says what
 * that comes to. A result that its own module uses, too, gets both parts in one from autograd: there the module's part
 * is taken out again. The order of additions is autograd's, from zero on, so that the bits are.
 */
#include "probe_grad.h"
#include <stdint.h>
#include <string.h>

/* ---- adding ------------------------------------------------------------------------------------------------------ */

enum { PIECE = 8 };

/* In pieces of a length that compilers know, which they make few instructions of. */
static void
add_floats(float *restrict sum, const float *restrict next, int64_t n)
{
    int64_t i = 0;

    for (; i + PIECE <= n; i += PIECE)
        for (int k = 0; k < PIECE; k++)
            sum[i + k] += next[i + k];
    for (; i < n; i++)
        sum[i] += next[i];
}

/* sum += next, element by element; false: it cannot be had. */
static bool
add_to(const msp_tensor *sum, const msp_tensor *next)
{
    const size_t size = msp_dtype_size(sum->dtype);
    char *data = (char *)(uintptr_t)sum->data;
    bool ok = next->dtype == sum->dtype && msp_tensor_same_shape(sum, next);

    if (ok && sum->dtype == MSP_F32 && msp_tensor_is_contiguous(next)) {
        add_floats((float *)(void *)data, next->data, next->numel);
        return true;
    }
    for (int64_t i = 0; ok && i < next->numel; i++)
        ok = msp_dtype_add(sum->dtype, data + (size_t)i * size, msp_tensor_at(next, i));
    return ok;
}

static bool
add_all(const msp_tensor *sum, PyObject *list)
{
    msp_tensor next;
    bool ok = true;

    for (Py_ssize_t k = 0; ok && k < PyList_GET_SIZE(list); k++)
        ok = msp_probe_tensor_view(&next, PyList_GET_ITEM(list, k)) == 1 && add_to(sum, &next);
    return ok;
}

/* A sign is the top bit of a number, or of both parts of a complex one. */
static void
negate(const msp_tensor *t)
{
    const size_t bytes = (size_t)t->numel * msp_dtype_size(t->dtype);
    const size_t step = msp_dtype_size(t->dtype) / (msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? 2 : 1);
    unsigned char *data = (unsigned char *)(uintptr_t)t->data;

    for (size_t i = step - 1; i < bytes; i += step)
        data[i] ^= 0x80;
}

static bool
view_copy(msp_tensor *view, const probe_copy *copy)
{
    return msp_tensor_view(view, copy + 1, copy->dtype, copy->ndim, copy->shape, NULL) == MSP_OK;
}

/* ---- what comes -------------------------------------------------------------------------------------------------- */

static void
hold_in(PyObject **list, const probe_lent *v)
{
    PyObject *object = msp_probe_lent_object(v);

    if (object != NULL && *list == NULL)
        *list = PyList_New(0);
    if (object == NULL || *list == NULL || PyList_Append(*list, object) != 0)
        PyErr_Clear();
    Py_XDECREF(object);
}

/* The first copy is kept as it is: it may stay the only one, and -0 is not 0 + -0. */
static void
keep_first(grad_sum *s, const probe_copy *copy)
{
    s->copy = PyMem_Malloc(copy->size);
    if (s->copy == NULL)
        return;
    memcpy(s->copy, copy, copy->size);
    s->copies = 1;
}

/* It becomes the sum of zero and itself. */
static void
begin_adding(const msp_tensor *first)
{
    static const float zeros_f32[PIECE];
    static const double zero[2];
    msp_tensor zeros = *first;

    for (int64_t i = 0; first->dtype == MSP_F32 && i < first->numel; i += PIECE)
        add_floats((float *)(uintptr_t)first->data + i, zeros_f32,
                   i + PIECE <= first->numel ? PIECE : first->numel - i);
    if (first->dtype == MSP_F32)
        return;
    zeros.data = zero;
    memset(zeros.strides, 0, sizeof(zeros.strides));
    add_to(first, &zeros);
}

static void
add_copy(grad_sum *s, const probe_copy *copy)
{
    msp_tensor sum, next;

    if (s->copy == NULL) {
        keep_first(s, copy);
        return;
    }
    if (s->copy->size != copy->size || !view_copy(&sum, s->copy) || !view_copy(&next, copy))
        return;
    if (s->copies++ == 1)
        begin_adding(&sum);
    add_to(&sum, &next);
}

void
msp_sum_add(grad_sum *s, const probe_lent *v)
{
    if (v->copy != NULL)
        add_copy(s, v->copy);
    else
        hold_in(&s->held, v);
}

void
msp_sum_subtract(grad_sum *s, const probe_lent *v)
{
    hold_in(&s->less, v);
}

void
msp_sum_share(grad_sum *to, const grad_sum *from)
{
    Py_XINCREF(from->held);
    Py_XSETREF(to->held, from->held);
}

void
msp_sum_clear(grad_sum *s)
{
    Py_CLEAR(s->held);
    Py_CLEAR(s->less);
    PyMem_Free(s->copy);
    s->copy = NULL;
    s->copies = 0;
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Memory of ours that stands for a gradient, without gaps. */
static void
put_memory(msp_record *r, const msp_tensor *t, bool requires_grad, probe_path *path)
{
    const msp_small small = {t->dtype, t->ndim, t->shape, t->data, t->numel, requires_grad, msp_probe.rules.checksum};

    if (msp_probe.quick && msp_record_small(r, &small))
        return; /* as most are */
    if (msp_probe_memory(r, t, path) != 0)
        msp_probe_swallow("reading a gradient", path->text);
}

/* Where only torch can add: on another device, sparse, ... False: it could not. */
static bool
put_by_torch(msp_record *r, const grad_sum *s, probe_path *path)
{
    PyObject *sum = msp_probe.total == NULL ? NULL : msp_probe_ask_own(msp_probe.total, s->held, s->less);

    if (sum == NULL)
        msp_probe_drop_error();
    else
        msp_probe_value(r, sum, path, 0);
    Py_XDECREF(sum);
    return sum != NULL;
}

/* What the sum looks like: the first of its parts; false: only torch can read it. */
static bool
view_first(msp_tensor *first, const grad_sum *s)
{
    if (s->copy != NULL)
        return view_copy(first, s->copy);
    return msp_probe_tensor_view(first, PyList_GET_ITEM(s->held, 0)) == 1;
}

/* sum is zeros. */
static bool
add_up(const msp_tensor *sum, const grad_sum *s)
{
    msp_tensor first;
    bool ok = true;

    if (s->less != NULL) {
        ok = add_all(sum, s->less);
        negate(sum);
    }
    if (ok && s->copy != NULL)
        ok = view_copy(&first, s->copy) && add_to(sum, &first);
    return ok && (s->held == NULL || add_all(sum, s->held));
}

/* False when it cannot be had. */
static bool
put_several(msp_record *r, const grad_sum *s, probe_path *path)
{
    _Alignas(16) char small[4096]; /* the heap's own lists are cold here: a block from it costs more than the sum */
    msp_tensor first, sum;
    size_t n, size;
    char *data;
    bool ok;

    if (!view_first(&first, s))
        return put_by_torch(r, s, path);
    n = (size_t)first.numel;
    size = msp_dtype_size(first.dtype);
    data = n <= sizeof(small) / size ? memset(small, 0, n * size) : PyMem_Calloc(n, size);
    ok = data != NULL && msp_tensor_view(&sum, data, first.dtype, first.ndim, first.shape, NULL) == MSP_OK &&
         add_up(&sum, s);
    if (ok)
        put_memory(r, &sum, false, path);
    if (data != small)
        PyMem_Free(data);
    PyErr_Clear();
    return ok;
}

void
msp_sum_put(msp_record *r, const grad_sum *s, probe_path *path)
{
    msp_tensor only;

    if (s->less == NULL && s->copy == NULL && PyList_GET_SIZE(s->held) == 1)
        msp_probe_value(r, PyList_GET_ITEM(s->held, 0), path, 0);
    else if (s->less == NULL && s->held == NULL && s->copies == 1 && view_copy(&only, s->copy))
        put_memory(r, &only, s->copy->requires_grad, path);
    else if (!put_several(r, s, path))
        msp_record_null(r);
}
