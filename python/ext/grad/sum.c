/*
 * sum.c - several gradients that make one.
 *
 * Where several nodes of a call contribute to one input, autograd accumulates what they send, and the record says what
 * that comes to. A result that its own module uses, too, gets both parts in one from autograd: there the module's part
 * is taken out again. The order of additions is autograd's, from zero on, so that the bits are.
 */
#include "grad/gradient.h"
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
        ok = msp_probe_tensor_view(&next, PyList_GET_ITEM(list, k)) && add_to(sum, &next);
    return ok;
}

/* A sign is the top bit of a number, or of both parts of a complex one. */
static void
negate_elements(const msp_tensor *t)
{
    const size_t bytes = (size_t)t->numel * msp_dtype_size(t->dtype);
    const size_t step = msp_dtype_size(t->dtype) / (msp_dtype_class_of(t->dtype) == MSP_CLASS_COMPLEX ? 2 : 1);
    unsigned char *data = (unsigned char *)(uintptr_t)t->data;

    for (size_t i = step - 1; i < bytes; i += step)
        data[i] ^= 0x80;
}

/* ---- what comes -------------------------------------------------------------------------------------------------- */

static void
hold_in(PyObject **list, PyObject *v)
{
    if (*list == NULL)
        *list = PyList_New(0);
    if (*list == NULL || PyList_Append(*list, v) != 0)
        msp_probe_swallow("keeping a gradient", "");
}

void
msp_sum_add(grad_sum *s, PyObject *v)
{
    hold_in(&s->parts, v);
}

void
msp_sum_subtract(grad_sum *s, PyObject *v)
{
    hold_in(&s->less, v);
}

void
msp_sum_share(grad_sum *to, const grad_sum *from)
{
    Py_XINCREF(from->parts);
    Py_XSETREF(to->parts, from->parts);
}

void
msp_sum_clear(grad_sum *s)
{
    Py_CLEAR(s->parts);
    Py_CLEAR(s->less);
}

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Where only torch can add: on another device, sparse, ... False: it could not. */
static bool
put_by_torch(msp_record *r, const grad_sum *s, probe_path *path)
{
    PyObject *sum = msp_probe.total == NULL ? NULL : msp_probe_ask_again(msp_probe.total, s->parts, s->less);

    if (sum != NULL)
        msp_probe_value(r, sum, path, 0);
    else if (PyErr_Occurred())
        msp_probe_swallow("adding gradients", path->text);
    Py_XDECREF(sum);
    return sum != NULL;
}

/* sum is zeros. */
static bool
add_up(const msp_tensor *sum, const grad_sum *s)
{
    if (s->less != NULL && !add_all(sum, s->less))
        return false;
    if (s->less != NULL)
        negate_elements(sum);
    return add_all(sum, s->parts);
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

    if (!msp_probe_tensor_view(&first, PyList_GET_ITEM(s->parts, 0)))
        return put_by_torch(r, s, path);
    n = (size_t)first.numel;
    size = msp_dtype_size(first.dtype);
    data = n <= sizeof(small) / size ? memset(small, 0, n * size) : PyMem_Calloc(n, size);
    ok = data != NULL && msp_tensor_view(&sum, data, first.dtype, first.ndim, first.shape, NULL) == MSP_OK &&
         add_up(&sum, s);
    if (ok && msp_probe_memory(r, &sum, path) != 0)
        msp_probe_swallow("reading a gradient", path->text);
    if (data != small)
        PyMem_Free(data);
    return ok;
}

void
msp_sum_put(msp_record *r, const grad_sum *s, probe_path *path)
{
    if (s->less == NULL && PyList_GET_SIZE(s->parts) == 1)
        msp_probe_value(r, PyList_GET_ITEM(s->parts, 0), path, 0);
    else if (!put_several(r, s, path))
        msp_record_null(r);
}
