/* benchmark.c - what task free_benchmark needs of the C library: inputs changed, results compared, rows written. */
#include "checks/checks.h"
#include "msprobe/benchmark.h"

/* ---- changing --------------------------------------------------------------------------------------------------- */

/* The view's memory is the object's own and may be written to: no copy, nothing fetched, no constant. */
static bool
is_writable(const msp_py_view *v)
{
    return v->owner == NULL && v->copy == NULL && !(v->has_buffer && v->buffer.readonly);
}

/* perturb(tensor, mode, salt=0, dtype=None) -> how many elements are others now; dtype: what the bytes are */
PyObject *
msp_py_perturb(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    const char *mode, *dtype = NULL;
    msp_perturbation how;
    int64_t changed = 0;
    unsigned salt = 0;
    PyObject *tensor, *out = NULL;
    msp_status st;
    msp_error err;
    msp_py_view v;

    if (!PyArg_ParseTuple(args, "Os|Iz:perturb", &tensor, &mode, &salt, &dtype))
        return NULL;
    if (!msp_perturbation_parse(&how, mode)) {
        PyErr_Format(PyExc_ValueError, "mode is '%s'; allowed: add_noise, bit_noise, change_value, one_ulp", mode);
        return NULL;
    }
    if (msp_py_view_acquire(&v, state, tensor) != 0)
        return NULL;
    if (dtype != NULL)
        v.t.dtype = msp_dtype_size(msp_dtype_parse(dtype, strlen(dtype))) == msp_dtype_size(v.t.dtype)
                        ? msp_dtype_parse(dtype, strlen(dtype))
                        : MSP_DTYPE_NONE;
    if (!is_writable(&v)) {
        PyErr_SetString(PyExc_ValueError, "the tensor's memory cannot be written to where it lies");
    } else {
        Py_BEGIN_ALLOW_THREADS;
        st = msp_perturb(&v.t, how, (uint32_t)salt, &changed, &err);
        Py_END_ALLOW_THREADS;
        out = st == MSP_OK ? PyLong_FromLongLong(changed) : msp_py_raise(state, st, &err);
    }
    msp_py_view_release(&v);
    return out;
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

typedef struct pair {
    msp_py_view a, b;
} pair;

static int
acquire_pair(pair *p, msp_py_state *state, PyObject *first, PyObject *second)
{
    if (msp_py_view_acquire(&p->a, state, first) != 0)
        return -1;
    if (msp_py_view_acquire(&p->b, state, second) == 0)
        return 0;
    msp_py_view_release(&p->a);
    return -1;
}

static void
release_pair(pair *p)
{
    msp_py_view_release(&p->a);
    msp_py_view_release(&p->b);
}

/* What the bytes of a view are, for an array whose own type says less; false, with an exception: they cannot be. */
static bool
reinterpret(msp_py_view *v, const char *dtype)
{
    msp_dtype t = dtype != NULL ? msp_dtype_parse(dtype, strlen(dtype)) : v->t.dtype;

    if (t == MSP_DTYPE_NONE || msp_dtype_size(t) != msp_dtype_size(v->t.dtype)) {
        PyErr_Format(PyExc_ValueError, "dtype is '%s'; the elements are of another size", dtype);
        return false;
    }
    v->t.dtype = t;
    return true;
}

/* benchmark_compare(first, second, backward=False, dtype=None) -> (ratio, flips, index); dtype: what the bytes are */
PyObject *
msp_py_benchmark_compare(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *first, *second;
    msp_benchmark_ratio r;
    const char *dtype = NULL;
    int backward = 0;
    msp_status st;
    msp_error err;
    pair p;

    if (!PyArg_ParseTuple(args, "OO|pz:benchmark_compare", &first, &second, &backward, &dtype) ||
        acquire_pair(&p, state, first, second) != 0)
        return NULL;
    if (dtype != NULL && (!reinterpret(&p.a, dtype) || !reinterpret(&p.b, dtype))) {
        release_pair(&p);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    st = msp_benchmark_compare(&r, &p.a.t, &p.b.t, msp_benchmark_floor(p.b.t.dtype, backward), &err);
    Py_END_ALLOW_THREADS;
    release_pair(&p);
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    return Py_BuildValue("(dOL)", r.ratio, r.flips ? Py_True : Py_False, (long long)r.index);
}

/* benchmark_judge_cpu(actual, golden) -> bool */
PyObject *
msp_py_benchmark_judge_cpu(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *actual, *golden;
    bool consistent;
    msp_status st;
    msp_error err;
    pair p;

    if (!PyArg_ParseTuple(args, "OO:benchmark_judge_cpu", &actual, &golden) ||
        acquire_pair(&p, state, actual, golden) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = msp_benchmark_judge_cpu(&consistent, &p.a.t, &p.b.t, &err);
    Py_END_ALLOW_THREADS;
    release_pair(&p);
    return st == MSP_OK ? PyBool_FromLong(consistent) : msp_py_raise(state, st, &err);
}

/* benchmark_bits(first, second) -> (kept, worst, type) */
PyObject *
msp_py_benchmark_bits(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *first, *second;
    msp_benchmark_bits bits;
    msp_status st;
    msp_error err;
    pair p;

    if (!PyArg_ParseTuple(args, "OO:benchmark_bits", &first, &second) || acquire_pair(&p, state, first, second) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    st = msp_benchmark_bits_kept(&bits, &p.a.t, &p.b.t, &err);
    Py_END_ALLOW_THREADS;
    release_pair(&p);
    return st == MSP_OK ? Py_BuildValue("(ddi)", bits.kept, bits.worst, bits.type) : msp_py_raise(state, st, &err);
}

static msp_dtype
dtype_of(const char *text)
{
    return msp_dtype_parse(text, strlen(text));
}

/* benchmark_limit(dtype, noisy=None, inputs=0) -> the largest ratio that is no finding */
PyObject *
msp_py_benchmark_limit(PyObject *module, PyObject *args)
{
    const char *dtype, *noisy = NULL;
    int inputs = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "s|zi:benchmark_limit", &dtype, &noisy, &inputs))
        return NULL;
    return PyFloat_FromDouble(noisy == NULL ? msp_benchmark_limit(dtype_of(dtype))
                                            : msp_benchmark_noise_limit(dtype_of(dtype), dtype_of(noisy), inputs));
}

/* benchmark_floor(dtype, backward) -> what elements are raised to before they are divided */
PyObject *
msp_py_benchmark_floor(PyObject *module, PyObject *args)
{
    const char *text;
    int backward;

    (void)module;
    if (!PyArg_ParseTuple(args, "sp:benchmark_floor", &text, &backward))
        return NULL;
    return PyFloat_FromDouble(msp_benchmark_floor(dtype_of(text), backward));
}

/* ---- preheating: what is known is a tuple (threshold, learned, max_good, min_bad) ---------------------------------
 */

static PyObject *
preheat_tuple(const msp_preheat *p)
{
    return Py_BuildValue("(dOdd)", p->threshold, p->learned ? Py_True : Py_False, p->max_good, p->min_bad);
}

/* preheat_samples(total, preheat_step, max_sample, step, k) -> (k is sampled, how many are) */
PyObject *
msp_py_preheat_samples(PyObject *module, PyObject *args)
{
    long long total, steps, most, step, k;

    (void)module;
    if (!PyArg_ParseTuple(args, "LLLLL:preheat_samples", &total, &steps, &most, &step, &k))
        return NULL;
    return Py_BuildValue("(OL)", msp_preheat_samples(total, steps, most, step, k) ? Py_True : Py_False,
                         (long long)msp_preheat_quota(total, steps, most));
}

/* preheat_note(known or None, ratio, consistent) -> what is known then */
PyObject *
msp_py_preheat_note(PyObject *module, PyObject *args)
{
    msp_preheat p = {.threshold = MSP_PREHEAT_FIRST};
    int learned = 0, consistent;
    PyObject *known;
    double ratio;

    (void)module;
    if (!PyArg_ParseTuple(args, "Odp:preheat_note", &known, &ratio, &consistent) ||
        (known != Py_None && !PyArg_ParseTuple(known, "dpdd", &p.threshold, &learned, &p.max_good, &p.min_bad)))
        return NULL;
    p.learned = learned;
    msp_preheat_note(&p, ratio, consistent);
    return preheat_tuple(&p);
}

/* preheat_adjust(known, dtype) -> what is known then */
PyObject *
msp_py_preheat_adjust(PyObject *module, PyObject *args)
{
    msp_preheat p = {0};
    const char *dtype;
    int learned;

    (void)module;
    if (!PyArg_ParseTuple(args, "(dpdd)s:preheat_adjust", &p.threshold, &learned, &p.max_good, &p.min_bad, &dtype))
        return NULL;
    p.learned = learned;
    msp_preheat_adjust(&p, msp_benchmark_limit(dtype_of(dtype)));
    return preheat_tuple(&p);
}

/* ---- findings --------------------------------------------------------------------------------------------------- */

/* Type and shape of a tensor that need not be here. */
static int
describe(msp_tensor *t, const char *dtype, PyObject *shape)
{
    t->dtype = dtype_of(dtype);
    t->ndim = (int32_t)PyTuple_GET_SIZE(shape);
    if (PyTuple_GET_SIZE(shape) > MSP_MAX_NDIM) {
        PyErr_SetString(PyExc_ValueError, "more dimensions than a tensor has");
        return -1;
    }
    for (int32_t d = 0; d < t->ndim; d++)
        t->shape[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
    return PyErr_Occurred() ? -1 : 0;
}

/* finding_write(path, rank, mode, stage, step, api, dtype, shape, output_index, ratio, flips, bits_path=None,
 * bits=None)
 */
PyObject *
msp_py_finding_write(PyObject *module, PyObject *args)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *path = NULL, *bits_path = NULL, *shape;
    msp_benchmark_bits bits;
    msp_finding f = {0};
    const char *dtype;
    msp_tensor t = {0};
    long long index;
    msp_status st;
    msp_error err;
    int flips;

    if (!PyArg_ParseTuple(args, "O&lsslssO!Ldp|O&(ddi):finding_write", PyUnicode_FSConverter, &path, &f.rank, &f.mode,
                          &f.stage, &f.step, &f.api, &dtype, &PyTuple_Type, &shape, &index, &f.ratio.ratio, &flips,
                          PyUnicode_FSConverter, &bits_path, &bits.kept, &bits.worst, &bits.type))
        return NULL; /* which gives back what the converters made */
    f.ratio.flips = flips;
    f.output = &t;
    f.output_index = index;
    f.bits = bits_path == NULL ? NULL : &bits;
    st = describe(&t, dtype, shape) != 0 ? MSP_E_INVALID : msp_finding_write(PyBytes_AS_STRING(path), &f, &err);
    if (st == MSP_OK && bits_path != NULL)
        st = msp_finding_write_bits(PyBytes_AS_STRING(bits_path), &f, &err);
    Py_DECREF(path);
    Py_XDECREF(bits_path);
    if (PyErr_Occurred())
        return NULL;
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    Py_RETURN_NONE;
}
