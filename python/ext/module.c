/*
 * module.c - the extension msprobe._core: what Python reaches of the C library. The package msprobe names it for users.
 */
#include "checks/checks.h"
#include "recording/recording.h"
#include "types/types.h"

/* ---- functions without a type of their own ---------------------------------------------------------------------- */

static PyObject *
py_crc32(PyObject *module, PyObject *obj)
{
    msp_py_view v;
    uint32_t crc;

    if (msp_py_view_acquire(&v, msp_py_state_of(module), obj) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS crc = msp_crc32(&v.t);
    Py_END_ALLOW_THREADS msp_py_view_release(&v);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *
py_fingerprint(PyObject *module, PyObject *obj)
{
    msp_fingerprint f;
    msp_py_view v;
    char text[33];

    if (msp_py_view_acquire(&v, msp_py_state_of(module), obj) != 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS f = msp_fingerprint_of(&v.t);
    Py_END_ALLOW_THREADS msp_py_view_release(&v);
    msp_fingerprint_format(text, f);
    return PyUnicode_FromString(text);
}

typedef msp_status save_function(const char *path, const msp_tensor *t, msp_error *err);

static PyObject *
save(PyObject *module, PyObject *args, const char *format, save_function *function)
{
    msp_py_state *state = msp_py_state_of(module);
    PyObject *path, *obj;
    msp_py_view v;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTuple(args, format, PyUnicode_FSConverter, &path, &obj))
        return NULL;
    if (msp_py_view_acquire(&v, state, obj) != 0) {
        Py_DECREF(path);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS st = function(PyBytes_AS_STRING(path), &v.t, &err);
    Py_END_ALLOW_THREADS msp_py_view_release(&v);
    Py_DECREF(path);
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    Py_RETURN_NONE;
}

static PyObject *
py_save_pt(PyObject *module, PyObject *args)
{
    return save(module, args, "O&O:save_pt", msp_pt_save);
}

static PyObject *
py_save_npy(PyObject *module, PyObject *args)
{
    return save(module, args, "O&O:save_npy", msp_npy_save);
}

/* ---- helpers that several files use ----------------------------------------------------------------------------- */

int
msp_py_threads_arg(int *threads, const char *function, Py_ssize_t npos, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames)
{
    Py_ssize_t nkw = kwnames != NULL ? PyTuple_GET_SIZE(kwnames) : 0;
    long value;

    *threads = 0;
    if (nargs != npos || nkw > 1 ||
        (nkw == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "threads") != 0)) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd tensor%s and the optional keyword threads", function, npos,
                     npos == 1 ? "" : "s");
        return -1;
    }
    if (nkw == 0)
        return 0;
    value = PyLong_AsLong(args[nargs]);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value > 1024) {
        PyErr_SetString(PyExc_ValueError, "threads must be 0 (one per core) to 1024");
        return -1;
    }
    *threads = (int)value;
    return 0;
}

PyTypeObject *
msp_py_add_type(PyObject *module, PyType_Spec *spec)
{
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);
    const char *name = strrchr(spec->name, '.') + 1;

    if (type == NULL)
        return NULL;
    type->tp_new = NULL; /* only functions of this module make objects of it */
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, (PyObject *)type) != 0) {
        Py_DECREF(type);
        Py_CLEAR(type);
    }
    return type;
}

/* ---- the module ------------------------------------------------------------------------------------------------- */

#define FASTCALL(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"stats", FASTCALL(msp_py_stats),
     "stats(tensor, *, threads=0)\n--\n\n"
     "Statistics of a tensor in one pass: max, min, mean, norm and counts.\n\n"
     "tensor is a torch.Tensor, an msprobe.Tensor or an object with the buffer protocol (numpy.ndarray). Large\n"
     "tensors are shared among threads (0: one per core); the result has the same bits for any number."},
    {"metrics", FASTCALL(msp_py_metrics),
     "metrics(n, b, *, threads=0)\n--\n\n"
     "How far n, the examined tensor, is from b, the reference. Shapes must be equal, types need not."},
    {"crc32", py_crc32, METH_O, "crc32(tensor)\n--\n\nCRC-32 (zlib's) of the elements' bytes in row-major order."},
    {"fingerprint", py_fingerprint, METH_O,
     "fingerprint(tensor)\n--\n\n32 hex digits that tell type, shape and elements apart; not cryptographic."},
    {"load", msp_py_load, METH_O,
     "load(path)\n--\n\nThe one tensor in a .pt, .npy or .safetensors file, mapped and not copied. No pickle is "
     "executed."},
    {"open", msp_py_open_file, METH_O,
     "open(path)\n--\n\nA file with any number of tensors as a TensorFile. No pickle is executed."},
    {"save_pt", py_save_pt, METH_VARARGS,
     "save_pt(path, tensor)\n--\n\nWrite a file that torch.load(path, weights_only=True) reads."},
    {"save_npy", py_save_npy, METH_VARARGS, "save_npy(path, tensor)\n--\n\nWrite a file that numpy.load(path) reads."},
    {"open_table", (PyCFunction)(void (*)(void))msp_py_open_table, METH_VARARGS | METH_KEYWORDS,
     "open_table(path, columns)\n--\n\nBegin a table; the name's ending (.csv, .xlsx, .json) is its format."},
    {"compare", (PyCFunction)(void (*)(void))msp_py_compare, METH_VARARGS | METH_KEYWORDS,
     "compare(npu, bench, output='./output', *, npu_dir=None, bench_dir=None, output_file=None, stack=True,\n"
     "        advisor=True, suffix=None, fuzzy=False, shapes=False, highlight=False, log_rows=False, formats='',\n"
     "        form='', timestamp=None, threads=0, log=None, stack_path=None, data_mapping=None, analyze=False,\n"
     "        html=False, replay=None)\n--\n\n"
     "Compare two dumps and write tables: what `msprobe compare` does. npu and bench are files or folders of any\n"
     "generation. For .pkl files of ptdbg_ascend and torch_npu.hooks: npu_dir and bench_dir hold the .npy files,\n"
     "output_file is the very csv to write, form ('2.3', '3.2', '6.0', 'hooks') the table's, shapes is shape_flag.\n"
     "log(level, text) gets messages, from any thread; html adds the page; replay(npu, bench, calls, out, log) runs\n"
     "calls again (python -m msprobe.replay takes the first four). Returns a list of dicts, one for each pair of\n"
     "files, and the paths of the results that belong to no single pair."},
    {"parse", msp_py_parse, METH_VARARGS,
     "parse(path, prefix)\n--\n\nStack and statistics of calls in a .pkl of ptdbg_ascend, as text."},
    {"open_dump", (PyCFunction)(void (*)(void))msp_py_open_dump, METH_VARARGS | METH_KEYWORDS,
     "open_dump(dir, writer, tensor_type, dtype_type, dtypes, by_pointer)\n--\n\nBegin a dump; see Dump."},
    {"dump_records", msp_py_dump_records, METH_O,
     "dump_records(path)\n--\n\n(task, framework, [(name, text), ...], cut) of a dump.json; texts are the records' own "
     "JSON."},
    {"local_error", (PyCFunction)(void (*)(void))msp_py_local_error, METH_FASTCALL,
     "local_error(recorded, reference, *near)\n--\n\nWhat a call adds: its result against one in higher precision "
     "from\n"
     "the same inputs, in units that two references from slightly changed inputs give. A dict."},
    {"evidence_open", msp_py_evidence_open, METH_O, "evidence_open(path)\n--\n\nBegin a file of measurements."},
    {"evidence_call", msp_py_evidence_call, METH_VARARGS,
     "evidence_call(evidence, name, reason)\n--\n\nBegin a call; reason (or None) is why it was not replayed."},
    {"evidence_result", (PyCFunction)(void (*)(void))msp_py_evidence_result, METH_FASTCALL,
     "evidence_result(evidence, at, npu, bench)\n--\n\nMeasure a result on both sides, each None or (recorded, "
     "reference, "
     "*near) as in local_error(), and write it."},
    {"evidence_close", msp_py_evidence_close, METH_O, "evidence_close(evidence)\n--\n\nWrite what is left, and close."},
    {"precheck_output", msp_py_precheck_output, METH_VARARGS,
     "precheck_output(name, api, device, bench)\n--\n\nMeasure and judge one result: (status, line of the details)."},
    {"precheck_result", msp_py_precheck_result, METH_VARARGS,
     "precheck_result(api, forward, backward, message)\n--\n\nThe line of an API in the result file."},
    {"precheck_no_output", msp_py_precheck_no_output, METH_VARARGS,
     "precheck_no_output(name, message)\n--\n\nThe line of the details for a result that could not be had."},
    {"precheck_name", msp_py_precheck_name, METH_O,
     "precheck_name(name)\n--\n\nThe name as it is written, without quotes around it: what precheck_resume() gives."},
    {"end_with", msp_py_end_with, METH_O,
     "end_with(pid)\n--\n\nLet this process be killed when its parent, which is pid, ends."},
    {"precheck_headers", msp_py_precheck_headers, METH_NOARGS,
     "precheck_headers()\n--\n\nThe first lines of the result and the details file."},
    {"precheck_resume", msp_py_precheck_resume, METH_VARARGS,
     "precheck_resume(result, details)\n--\n\nMake two files ready to be continued: the set of names that are done, as "
     "precheck_name() writes them."},
    {"online_open", (PyCFunction)(void (*)(void))msp_py_online_open, METH_VARARGS | METH_KEYWORDS,
     "online_open(dir, program, rank, folder, host, port, tls, limit, wait_ms, linger_ms, forward_only)\n--\n\n"
     "Start the sender of online run_ut."},
    {"online_begin", msp_py_online_begin, METH_VARARGS, "online_begin(dir, step)\n--\n\nA step's records go to dir."},
    {"online_end", msp_py_online_end, METH_NOARGS, "online_end()\n--\n\nThe step's records are complete."},
    {"online_counts", msp_py_online_counts, METH_NOARGS, "online_counts()\n--\n\nA dict, or None when it is off."},
    {"online_close", msp_py_online_close, METH_NOARGS,
     "online_close()\n--\n\nWait for the answers as long as the bound allows; the last counts."},
    {"online_serve", (PyCFunction)(void (*)(void))msp_py_online_serve, METH_VARARGS | METH_KEYWORDS,
     "online_serve(dir, stamp, ranks, folder, host, port, tls, limit, idle_ms)\n--\n\nBegin to take calls."},
    {"online_next", msp_py_online_next, METH_VARARGS,
     "online_next(server, ms)\n--\n\nA call to check: (id, name, path); None: none came; False: it is over."},
    {"online_answer", msp_py_online_answer, METH_VARARGS,
     "online_answer(server, id, status, result, details)\n--\n\nThe verdict on a call."},
    {"online_served", msp_py_online_served, METH_O, "online_served(server)\n--\n\nCounts, news and result files."},
    {"online_stop", msp_py_online_stop, METH_O, "online_stop(server)\n--\n\nEnd the server."},
    {"online_call", msp_py_online_call, METH_O,
     "online_call(path)\n--\n\n(name, step, rank, reason, forward, backward, {name: Tensor}) of a call that was sent."},
    {"perturb", msp_py_perturb, METH_VARARGS,
     "perturb(tensor, mode, salt=0, dtype=None)\n--\n\nChange the elements where they lie: how many are others now."},
    {"benchmark_compare", msp_py_benchmark_compare, METH_VARARGS,
     "benchmark_compare(first, second, backward=False, dtype=None)\n--\n\nHow far two results are apart: (ratio, "
     "flips, index)."},
    {"benchmark_judge_cpu", msp_py_benchmark_judge_cpu, METH_VARARGS,
     "benchmark_judge_cpu(actual, golden)\n--\n\nWhether a result is right beside the CPU's."},
    {"benchmark_bits", msp_py_benchmark_bits, METH_VARARGS,
     "benchmark_bits(first, second)\n--\n\nSignificant bits that are left: (kept, worst, type)."},
    {"benchmark_limit", msp_py_benchmark_limit, METH_VARARGS,
     "benchmark_limit(dtype, noisy=None, inputs=0)\n--\n\nThe largest ratio allowed; noisy: the type that noise was "
     "added to."},
    {"benchmark_floor", msp_py_benchmark_floor, METH_VARARGS,
     "benchmark_floor(dtype, backward)\n--\n\nWhat elements are raised to before they are divided."},
    {"preheat_samples", msp_py_preheat_samples, METH_VARARGS,
     "preheat_samples(total, preheat_step, max_sample, step, k)\n--\n\n(Whether the k-th call is sampled, how many)."},
    {"preheat_note", msp_py_preheat_note, METH_VARARGS, "preheat_note(known, ratio, consistent)\n--\n\nNote a call."},
    {"preheat_adjust", msp_py_preheat_adjust, METH_VARARGS, "preheat_adjust(known, dtype)\n--\n\nLearn from them."},
    {"finding_write", msp_py_finding_write, METH_VARARGS,
     "finding_write(path, rank, mode, stage, step, api, dtype, shape, output_index, ratio, flips, bits_path, "
     "bits)\n--\n\n"
     "Append a row to free_benchmark.csv, and to the file of bits."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(format_error_doc, "A file is not what its format says, or holds something that is not supported.");
PyDoc_STRVAR(not_found_error_doc, "There is no such file, or no tensor in it.");

/* Make an exception class and add it to the module; *out gets a reference of its own. bases is taken over. */
static int
add_exception(PyObject **out, PyObject *module, const char *name, const char *doc, PyObject *bases)
{
    if (bases == NULL)
        return -1;
    *out = PyErr_NewExceptionWithDoc(name, doc, bases, NULL);
    Py_DECREF(bases);
    if (*out == NULL)
        return -1;
    Py_INCREF(*out);
    if (PyModule_AddObject(module, strrchr(name, '.') + 1, *out) != 0) {
        Py_DECREF(*out);
        return -1;
    }
    return 0;
}

static int
add_exceptions(msp_py_state *state, PyObject *module)
{
    if (add_exception(&state->format_error, module, "msprobe.FormatError", format_error_doc,
                      PyTuple_Pack(1, PyExc_ValueError)) != 0)
        return -1;
    return add_exception(&state->not_found_error, module, "msprobe.NotFoundError", not_found_error_doc,
                         PyTuple_Pack(2, PyExc_FileNotFoundError, PyExc_LookupError));
}

static int
module_exec(PyObject *module)
{
    msp_py_state *state = msp_py_state_of(module);

    state->str_dlpack_api = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    state->str_is_neg = PyUnicode_InternFromString("is_neg");
    state->str_is_conj = PyUnicode_InternFromString("is_conj");
    state->str_layout = PyUnicode_InternFromString("layout");
    state->str_is_cpu = PyUnicode_InternFromString("is_cpu");
    if (PyErr_Occurred() || add_exceptions(state, module) != 0)
        return -1;
    state->tensor_type = msp_py_tensor_type(module);
    state->file_type = msp_py_file_type(module);
    state->stats_type = msp_py_stats_type(module);
    state->metrics_type = msp_py_metrics_type(module);
    state->table_type = msp_py_table_type(module);
    state->dump_type = msp_py_dump_type(module);
    if (PyErr_Occurred() || msp_probe_add(module) != 0)
        return -1;
    return PyModule_AddStringConstant(module, "__version__", MSP_VERSION);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    msp_py_state *state = msp_py_state_of(module);

    if (state == NULL)
        return 0;
    Py_VISIT(state->format_error);
    Py_VISIT(state->not_found_error);
    Py_VISIT(state->tensor_type);
    Py_VISIT(state->file_type);
    Py_VISIT(state->stats_type);
    Py_VISIT(state->metrics_type);
    Py_VISIT(state->table_type);
    Py_VISIT(state->dump_type);
    for (int i = 0; i < MSP_PY_KNOWN_TYPES; i++)
        Py_VISIT(state->dlpack_types[i]);
    Py_VISIT(state->strided);
    return 0;
}

static int
module_clear(PyObject *module)
{
    msp_py_state *state = msp_py_state_of(module);

    if (state == NULL)
        return 0;
    Py_CLEAR(state->format_error);
    Py_CLEAR(state->not_found_error);
    Py_CLEAR(state->tensor_type);
    Py_CLEAR(state->file_type);
    Py_CLEAR(state->stats_type);
    Py_CLEAR(state->metrics_type);
    Py_CLEAR(state->table_type);
    Py_CLEAR(state->dump_type);
    for (int i = 0; i < MSP_PY_KNOWN_TYPES; i++)
        Py_CLEAR(state->dlpack_types[i]);
    Py_CLEAR(state->strided);
    Py_CLEAR(state->str_dlpack_api);
    Py_CLEAR(state->str_is_neg);
    Py_CLEAR(state->str_is_conj);
    Py_CLEAR(state->str_layout);
    Py_CLEAR(state->str_is_cpu);
    return 0;
}

static void
module_free(void *module)
{
    module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,          .m_name = "msprobe._core", .m_doc = "The C core of msprobe.",
    .m_size = sizeof(msp_py_state), .m_methods = functions,    .m_slots = slots,
    .m_traverse = module_traverse,  .m_clear = module_clear,   .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
