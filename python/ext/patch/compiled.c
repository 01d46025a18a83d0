/*
 * compiled.c - code that torch.compile has compiled runs as it does without us.
 *
 * Compiled code asks at each of its calls whether the functions that it was made from are still the same, their code
 * and attributes included, and is compiled anew when they are not. So while it is entered, and while it runs, nothing
 * of ours may be in them. torch sets a callback on the thread where that begins, and takes it away where it ends, both
 * by the built-in function set_eval_frame; between start() and stop() that one is patched in place like the functions
 * that are recorded. From the call that sets a callback to the one by which the same frame takes it away is a region.
 * Inside it no function is recorded; of modules the outermost one is, so that a compiled module has a record at its
 * borders. What compiles or scripts without that callback (PROBE_APART) is a region from its call to its return.
 *
 * What is put back while a region is open is put back for all threads: the Python functions that another thread calls
 * meanwhile are not recorded.
 */
#include "call/call.h"

static PyCFunctionObject *function; /* set_eval_frame; NULL: regions are not told */
static PyMethodDef *original;
static PyMethodDef patched;
static int64_t trials;
static Py_ssize_t open_regions; /* of this recording, in all threads */

/* ---- in and out -------------------------------------------------------------------------------------------------- */

static void
tell_python(bool inside)
{
    PyObject *done;

    if (msp_probe.on_compiled == NULL)
        return;
    done = msp_probe_ask(msp_probe.on_compiled, inside ? Py_True : Py_False, NULL);
    Py_XDECREF(done);
    if (done == NULL)
        msp_probe_swallow("making way for compiled code", "torch.compile");
}

/* The frame that asks; torch's helper, where it has one, asks for its caller. NULL: none, or one that sets a callback
 * for other frames than those that it calls. */
static PyFrameObject *
asking_frame(void)
{
    PyFrameObject *frame = msp_frame_of_thread();
    PyCodeObject *code = frame == NULL ? NULL : msp_frame_code(frame);

    if (code != NULL && PyUnicode_CompareWithASCIIString(code->co_name, "_maybe_set_eval_frame") == 0)
        frame = msp_frame_leave(frame);
    if (code != NULL && PyUnicode_CompareWithASCIIString(code->co_name, "__enter__") == 0)
        Py_CLEAR(frame);
    Py_XDECREF(code);
    return frame;
}

static void
enter_region(PyFrameObject *frame)
{
    probe_thread *thread = msp_probe_here();

    Py_XINCREF(frame);
    Py_XSETREF(thread->region_frame, (PyObject *)frame);
    thread->region = msp_probe.session;
    if (open_regions++ > 0)
        return;
    msp_probe_functions_out();
    tell_python(true);
}

/* An exception that is set stays. */
static void
leave_region(void)
{
    probe_thread *thread = msp_probe_here();
    PyObject *type, *value, *trace;

    thread->region = 0;
    Py_CLEAR(thread->region_frame);
    if (--open_regions > 0)
        return;
    PyErr_Fetch(&type, &value, &trace);
    tell_python(false);
    msp_probe_functions_in();
    PyErr_Restore(type, value, trace);
}

/* A frame that is gone has left its region without a word: recording was stopped and started again inside it. */
bool
msp_compiled_goes_on(void)
{
    PyObject *wanted = msp_probe_thread.region_frame;
    PyFrameObject *frame = msp_frame_of_thread();

    while (frame != NULL && (PyObject *)frame != wanted)
        frame = msp_frame_leave(frame);
    if (frame == NULL)
        leave_region();
    Py_XDECREF(frame);
    return frame != NULL;
}

/* set_eval_frame(callback) -> the one before; None: code runs as it is, False: what is compiled is used and no more. */
static PyObject *
set_eval_frame(PyObject *self, PyObject *callback)
{
    PyObject *before;
    PyFrameObject *frame;

    trials++;
    if (callback != Py_None && msp_probe.on && !msp_compiled_is_inside() && (frame = asking_frame()) != NULL) {
        enter_region(frame);
        Py_DECREF(frame);
    }
    before = original->ml_meth(self, callback);
    if (callback == Py_None && before != NULL && msp_probe_thread.region == msp_probe.session) {
        frame = asking_frame(); /* another one: of a function inside that is compiled by itself, or kept from it */
        if ((PyObject *)frame == msp_probe_thread.region_frame)
            leave_region();
        Py_XDECREF(frame);
    }
    return before;
}

PyObject *
msp_compiled_apart(probe_api *api, PyObject *self, PyObject *args, PyObject *kwargs)
{
    const bool enters = msp_probe.on && !msp_compiled_is_inside();
    const uint64_t session = msp_probe.session;
    PyObject *result;

    if (enters)
        enter_region(PyEval_GetFrame());
    result = msp_probe_invoke(api, self, args, kwargs);
    if (enters && msp_probe.session == session && msp_probe_thread.region == session)
        leave_region();
    return result;
}

PyObject *
msp_compiled_set_callback(PyObject *callback)
{
    if (function != NULL)
        return original->ml_meth(PyCFunction_GET_SELF((PyObject *)function), callback);
    return msp_probe.set_eval_frame == NULL ? NULL
                                            : PyObject_CallFunctionObjArgs(msp_probe.set_eval_frame, callback, NULL);
}

static bool
is_wrapper(PyFrameObject *frame)
{
    PyCodeObject *code = msp_frame_code(frame);
    const bool yes = PyUnicode_CompareWithASCIIString(code->co_name, "compile_wrapper") == 0;

    Py_DECREF(code);
    return yes;
}

/* Recording is begun by what runs in compiled code: the region is that of the outermost function that was compiled. */
static void
enter_open_region(void)
{
    PyFrameObject *frame = msp_frame_of_thread(), *found = NULL;

    for (; frame != NULL; frame = msp_frame_leave(frame))
        if (is_wrapper(frame)) {
            Py_INCREF(frame);
            Py_XSETREF(found, frame);
        }
    if (found != NULL)
        enter_region(found);
    Py_XDECREF(found);
}

void
msp_compiled_start(void)
{
    msp_probe.session++;
    open_regions = 0;
    if (function == NULL || function->m_ml != original)
        return;
    function->m_ml = &patched;
    enter_open_region();
}

void
msp_compiled_stop(void)
{
    msp_probe.session++; /* regions that are open are no longer ours */
    if (function != NULL && function->m_ml == &patched)
        function->m_ml = original;
}

/*
 * compiled_function(function, call, expected) -> bool: whether function, torch's set_eval_frame, is gone through so
 * often when call() runs; then it tells of compiled code from now on.
 */
PyObject *
msp_compiled_function(PyObject *self, PyObject *all)
{
    PyObject *target, *call, *done;
    long expected;

    (void)self;
    if (!PyArg_ParseTuple(all, "OOl", &target, &call, &expected))
        return NULL;
    msp_compiled_stop();
    Py_CLEAR(function);
    if (!PyCFunction_CheckExact(target) || PyCFunction_GET_FLAGS(target) != METH_O)
        Py_RETURN_FALSE;
    Py_INCREF(target);
    function = (PyCFunctionObject *)target;
    original = function->m_ml;
    patched = *original;
    patched.ml_meth = set_eval_frame;
    trials = 0;
    msp_compiled_start();
    done = PyObject_CallNoArgs(call);
    msp_compiled_stop();
    if (done != NULL && trials == expected) {
        Py_DECREF(done);
        Py_RETURN_TRUE;
    }
    Py_CLEAR(function);
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    Py_RETURN_FALSE;
}
