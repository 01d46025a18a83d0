/*
 * recording.c - the recording as Python sees it: functions of msprobe._core.probe, one recording per process.
 *
 * Python decides what is recorded and where it goes; everything per call happens in the folders beside this file.
 */
#include "call/machine.h"
#include "legacy/legacy.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "msprobe/log.h"

probe_state msp_probe = {.session = 1};

static PyObject *
raise_error(msp_status st, const msp_error *err)
{
    PyObject *text = msp_probe_text(err->message); /* with the name of a file, which need not be UTF-8 */

    if (text != NULL)
        PyErr_SetObject(st == MSP_E_NOMEM ? PyExc_MemoryError : PyExc_OSError, text);
    Py_XDECREF(text);
    return NULL;
}

/*
 * add(target, name, flags=0) -> bool: True when target is new, False when it has a name already and this becomes its
 * second one (the first second one stays).
 */
static PyObject *
py_add(PyObject *self, PyObject *args)
{
    PyObject *target;
    Py_ssize_t len;
    const char *text;
    unsigned flags = 0;
    probe_name *name;
    probe_api *api;

    (void)self;
    if (!PyArg_ParseTuple(args, "Os#|I", &target, &text, &len, &flags))
        return NULL;
    name = msp_probe_name(text, (size_t)len);
    api = name == NULL ? NULL : msp_probe_prepare(target, name, flags);
    if (api == NULL)
        return NULL;
    if (api->name == name)
        Py_RETURN_TRUE;
    if (api->other == NULL)
        api->other = name;
    Py_RETURN_FALSE;
}

/*
 * What the collector has to say while the program waits for it. It may say so in a thread that has neither the GIL nor
 * may wait for it, so that the line goes to standard error without the interpreter.
 */
static void
tell_user(msp_log_level level, const char *text, void *payload)
{
    char line[2300], when[32];
    const time_t now = time(NULL);
    struct tm local;
    int n;

    (void)payload;
    if (localtime_r(&now, &local) == NULL || strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &local) == 0)
        when[0] = '\0';
    n = snprintf(line, sizeof(line), "%s (%ld) [%s] %s\n", when, (long)getpid(),
                 level >= MSP_LOG_ERROR ? "ERROR" : "WARNING", text);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1) < 0)
        return; /* nobody listens */
}

static PyObject *
py_open(PyObject *self, PyObject *args)
{
    msp_collect_options opt = {0};
    PyObject *dir; /* as bytes: a path need not be text */
    Py_ssize_t ring = 0;
    msp_error err;
    msp_status st;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&z|ni", PyUnicode_FSConverter, &dir, &opt.writer_path, &ring, &opt.stall_ms))
        return NULL;
    if (msp_probe.collect != NULL) {
        Py_DECREF(dir);
        PyErr_SetString(PyExc_RuntimeError, "a recording is open already");
        return NULL;
    }
    opt.dir = PyBytes_AS_STRING(dir);
    opt.ring_bytes = ring > 0 ? (size_t)ring : 0;
    msp_log_set_sink(MSP_LOG_WARNING, tell_user, NULL);
    Py_BEGIN_ALLOW_THREADS;
    st = msp_collect_open(&msp_probe.collect, &opt, &err);
    Py_END_ALLOW_THREADS;
    Py_DECREF(dir);
    if (st != MSP_OK)
        return raise_error(st, &err);
    msp_probe_stack_reset(); /* stacks seen before have no number in this collection */
    Py_RETURN_NONE;
}

PyObject *
msp_probe_open_unit(const msp_unit_info *info, const char *data_dir)
{
    msp_error err;
    msp_status st;

    if (msp_probe.collect == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "no recording is open");
        return NULL;
    }
    st = msp_collect_unit(msp_probe.collect, &msp_probe.unit, info, &err);
    if (st != MSP_OK)
        return raise_error(st, &err);
    PyMem_Free(msp_probe.data_dir);
    msp_probe.data_dir = NULL;
    if (data_dir != NULL) {
        msp_probe.data_dir = PyMem_Malloc(strlen(data_dir) + 1);
        if (msp_probe.data_dir == NULL)
            return PyErr_NoMemory();
        strcpy(msp_probe.data_dir, data_dir);
    }
    msp_probe.has_unit = msp_probe.live = true;
    Py_RETURN_NONE;
}

/* unit(dir, task, level, framework, shown_dir, data_dir, debug): the folder that records go to from now on; data_dir
 * may be empty, for none, and shown_dir is how its name stands in dump.json */
static PyObject *
py_unit(PyObject *self, PyObject *args)
{
    msp_unit_info info = {0};
    PyObject *dir = NULL, *data_dir = NULL, *done;
    int debug;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ssszO&p", PyUnicode_FSConverter, &dir, &info.task, &info.level, &info.framework,
                          &info.data_dir, PyUnicode_FSConverter, &data_dir, &debug))
        return NULL; /* which gives back what the converter made */
    info.dir = PyBytes_AS_STRING(dir);
    info.kind = debug ? MSP_UNIT_DEBUG : MSP_UNIT_DUMP;
    done = msp_probe_open_unit(&info, PyBytes_GET_SIZE(data_dir) > 0 ? PyBytes_AS_STRING(data_dir) : NULL);
    Py_DECREF(dir);
    Py_DECREF(data_dir);
    return done;
}

/* aside(dir, task, level, framework, file, {name: dict}): a file beside dump.json and of its form, at once complete */
static PyObject *
py_aside(PyObject *self, PyObject *args)
{
    msp_unit_info info = {.kind = MSP_UNIT_DEBUG};
    PyObject *dir = NULL, *all, *name, *members;
    Py_ssize_t pos = 0;
    uint32_t number;
    probe_quiet q;
    msp_status st;
    msp_error err;

    (void)self;
    if (!PyArg_ParseTuple(args, "O&ssssO!", PyUnicode_FSConverter, &dir, &info.task, &info.level, &info.framework,
                          &info.file, &PyDict_Type, &all))
        return NULL;
    info.dir = PyBytes_AS_STRING(dir);
    st = msp_probe.collect == NULL ? msp_error_set(&err, MSP_E_INVALID, "no recording is open")
                                   : msp_collect_unit(msp_probe.collect, &number, &info, &err);
    Py_DECREF(dir);
    if (st != MSP_OK)
        return raise_error(st, &err);
    msp_probe_enter(&q);
    while (PyDict_Next(all, &pos, &name, &members))
        msp_probe_write_aside(number, name, members);
    msp_probe_leave(&q);
    Py_BEGIN_ALLOW_THREADS;
    (void)!msp_collect_unit_close(msp_probe.collect, number, &err);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *
py_start(PyObject *self, PyObject *arg)
{
    int apis = PyObject_IsTrue(arg);

    (void)self;
    if (apis < 0)
        return NULL;
    /* an NPU writes its kernels' data itself, and the older tools count calls before they write any */
    if (!msp_probe.has_unit && msp_probe.rules.kernel < 0 && msp_probe.before == NULL && !msp_probe_is_legacy()) {
        PyErr_SetString(PyExc_RuntimeError, "no folder to record into");
        return NULL;
    }
    msp_probe.calls = apis != 0;
    msp_probe_patch_all(apis);
    msp_probe_modules_start();
    msp_probe.on = msp_probe.live = true;
    msp_compiled_start();
    Py_RETURN_NONE;
}

static PyObject *
py_stop(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    msp_probe.on = false;
    msp_compiled_stop();
    msp_probe_unpatch_all();
    msp_probe_modules_stop();
    Py_RETURN_NONE;
}

/* step(): gradients of this step are over, counters begin anew */
static PyObject *
py_step(PyObject *self, PyObject *unused)
{
    msp_error err;

    (void)self;
    (void)unused;
    msp_probe_grad_flush();
    msp_probe_hooks_step();
    msp_probe_pending_flush();
    msp_probe_device_end();
    msp_probe.live = false;
    msp_probe.generation++;
    Py_CLEAR(msp_probe.owners);
    for (probe_name *n = msp_probe.names; n != NULL; n = n->next)
        n->count = 0;
    if (msp_probe.has_unit && msp_probe.collect != NULL) {
        msp_probe.has_unit = false;
        Py_BEGIN_ALLOW_THREADS;
        (void)!msp_collect_unit_close(msp_probe.collect, msp_probe.unit, &err);
        Py_END_ALLOW_THREADS;
    }
    Py_RETURN_NONE;
}

static PyObject *
py_flush(PyObject *self, PyObject *unused)
{
    PyThreadState *saved = NULL;
    msp_error err;
    msp_status st = MSP_OK;

    (void)self;
    (void)unused;
    msp_probe_grad_flush();
    msp_probe_device_flush();
    if (msp_probe.collect == NULL)
        Py_RETURN_NONE;
    st = msp_collect_flush(msp_probe.collect, msp_probe_while_waiting, &saved,
                           &err); /* no other thread records before it waits */
    if (st != MSP_OK)
        return raise_error(st, &err);
    Py_RETURN_NONE;
}

static PyObject *
py_close(PyObject *self, PyObject *unused)
{
    msp_collect *c = msp_probe.collect;

    (void)self;
    (void)unused;
    msp_probe.on = msp_probe.live = msp_probe.has_unit = false;
    msp_compiled_stop();
    msp_probe_unpatch_all();
    msp_probe_device_flush();
    msp_probe_device_reset();
    msp_probe_modules_stop();
    msp_probe.collect = NULL;
    msp_probe_stack_reset();
    Py_BEGIN_ALLOW_THREADS;
    msp_collect_close(c);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *
py_note_error(PyObject *self, PyObject *args)
{
    const char *text;
    msp_error err;

    (void)self;
    if (!PyArg_ParseTuple(args, "s", &text))
        return NULL;
    if (msp_probe.collect != NULL && msp_probe.has_unit) { /* in a full ring it waits for who may need the lock */
        Py_BEGIN_ALLOW_THREADS;
        (void)!msp_collect_note_error(msp_probe.collect, msp_probe.unit, text, &err);
        Py_END_ALLOW_THREADS;
    }
    Py_RETURN_NONE;
}

/* Data-loader workers inherit the patched functions: there nothing is recorded. */
static PyObject *
py_forked(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    msp_probe.on = msp_probe.live = false;
    msp_compiled_stop();
    msp_probe_unpatch_all();
    msp_probe_device_reset();
    msp_probe_modules_stop();
    Py_RETURN_NONE;
}

static PyObject *
py_counts(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:O,s:O}", "made", (long long)msp_probe.made, "records",
                         (long long)msp_probe.records, "values", (long long)msp_probe.values, "errors",
                         (long long)msp_probe.errors, "open", msp_probe.collect != NULL ? Py_True : Py_False, "unit",
                         msp_probe.has_unit ? Py_True : Py_False);
}

/* called() -> ["Functional.relu.0.forward", ...]: a name for everything that was called in this step */
static PyObject *
py_called(PyObject *self, PyObject *unused)
{
    PyObject *list = PyList_New(0), *text;

    (void)self;
    (void)unused;
    for (probe_name *n = msp_probe.names; list != NULL && n != NULL; n = n->next) {
        if (n->count == 0)
            continue;
        text = PyUnicode_FromFormat("%s.0.forward", n->text);
        if (text == NULL || PyList_Append(list, text) != 0)
            Py_CLEAR(list);
        Py_XDECREF(text);
    }
    return list;
}

/* stack() -> the number of the caller's call stack, 0: it has none */
static PyObject *
py_stack(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLong(msp_probe.collect == NULL ? 0 : msp_probe_stack(0).stack);
}

/* quiet(flag): while true, nothing called on this thread is recorded */
static PyObject *
py_quiet(PyObject *self, PyObject *flag)
{
    (void)self;
    msp_probe_thread.depth += PyObject_IsTrue(flag) ? 1 : -1;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"setup", (PyCFunction)(void (*)(void))msp_probe_setup, METH_VARARGS | METH_KEYWORDS,
     "setup(tensor, parameter, **callbacks)"},
    {"add", py_add, METH_VARARGS, "add(target, name, flags=0)"},
    {"open", py_open, METH_VARARGS, "open(dir, writer, ring_bytes=0)"},
    {"unit", py_unit, METH_VARARGS, "unit(dir, task, level, framework, data_dir_text, data_dir, debug)"},
    {"rules", (PyCFunction)(void (*)(void))msp_probe_set_rules, METH_VARARGS | METH_KEYWORDS, "rules(**settings)"},
    {"start", py_start, METH_O, "start(apis)"},
    {"stop", py_stop, METH_NOARGS, "stop()"},
    {"step", py_step, METH_NOARGS, "step()"},
    {"flush", py_flush, METH_NOARGS, "flush()"},
    {"close", py_close, METH_NOARGS, "close()"},
    {"note_error", py_note_error, METH_VARARGS, "note_error(text)"},
    {"forked", py_forked, METH_NOARGS, "forked()"},
    {"snapshot", msp_probe_snapshot, METH_VARARGS, "snapshot(value, path, files=True)"},
    {"aside", py_aside, METH_VARARGS, "aside(dir, task, level, framework, file, members)"},
    {"counts", py_counts, METH_NOARGS, "counts()"},
    {"quiet", py_quiet, METH_O, "quiet(flag)"},
    {"stack", py_stack, METH_NOARGS, "stack()"},
    {"called", py_called, METH_NOARGS, "called()"},
    {"file", msp_probe_file, METH_VARARGS, "file(tensor, path)"},
    {"wanted", msp_probe_wanted, METH_O, "wanted(path)"},
    {"module_begin", msp_probe_module_begin, METH_VARARGS, "module_begin(module, args, kwargs)"},
    {"module_end", msp_probe_module_end, METH_VARARGS, "module_end(call, output, raised)"},
    {"made", msp_call_made, METH_VARARGS, "made(put_off, handles)"},
    {"write", msp_probe_write, METH_VARARGS, "write(name, value, path, place=0)"},
    {"reserve", msp_probe_reserve, METH_NOARGS, "reserve()"},
    {"wrapper", msp_probe_wrapper, METH_VARARGS, "wrapper(target, name, flags=0)"},
    {"module_function", msp_probe_module_function, METH_VARARGS, "module_function(function, call, expected)"},
    {"modules_begin", msp_probe_modules_begin, METH_VARARGS, "modules_begin(models, how)"},
    {"modules_end", msp_probe_modules_end, METH_NOARGS, "modules_end()"},
    {"modules_forget", msp_probe_modules_forget, METH_NOARGS, "modules_forget()"},
    {"modules_called", msp_probe_modules_called, METH_NOARGS, "modules_called()"},
    {"modules_step", msp_probe_modules_step, METH_NOARGS, "modules_step()"},
    {"module_add", msp_probe_module_add, METH_VARARGS, "module_add(module, name, hooked, only_compiled=False)"},
    {"module_remove", msp_probe_module_remove, METH_O, "module_remove(module)"},
    {"module_known", msp_probe_module_known, METH_O, "module_known(module)"},
    {"parameter_add", msp_probe_parameter_add, METH_VARARGS, "parameter_add(parameter, module, own)"},
    {"parameter_done", msp_probe_py_parameter_done, METH_VARARGS, "parameter_done(parameter, gradient=None)"},
    {"compiled_function", msp_compiled_function, METH_VARARGS, "compiled_function(function, call, expected)"},
    {"around", msp_probe_set_around, METH_VARARGS, "around(before, after)"},
    {"trial", msp_probe_trial, METH_VARARGS, "trial(target, call)"},
    {"legacy_rules", (PyCFunction)(void (*)(void))msp_probe_legacy_rules, METH_VARARGS | METH_KEYWORDS,
     "legacy_rules(form, **settings)"},
    {"legacy_unit", msp_probe_legacy_unit, METH_VARARGS, "legacy_unit(form, dir, file, data_dir, mark)"},
    {"legacy_module", msp_probe_legacy_module, METH_VARARGS, "legacy_module(name, args, output)"},
    {"legacy_matched", msp_probe_legacy_matched, METH_NOARGS, "legacy_matched()"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "msprobe._core.probe", "Recording calls.", -1,
                                        functions};

int
msp_probe_add(PyObject *module)
{
    PyObject *probe = PyModule_Create(&definition);

    if (probe == NULL || msp_probe_grad_setup() != 0 || msp_probe_view_setup(module) != 0 ||
        msp_probe_module_setup() != 0 || msp_probe_tree_setup() != 0 || msp_probe_patch_setup(probe) != 0 ||
        PyModule_AddObject(module, "probe", probe) != 0) {
        Py_XDECREF(probe);
        return -1;
    }
    return 0;
}
