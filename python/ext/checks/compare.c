/* compare.c - msprobe._core.compare() and parse(): two dumps side by side, and one call of an old one. */
#include "checks/checks.h"
#include "msprobe/compare.h"
#include "msprobe/log.h"

/* ---- messages and Ctrl-C ---------------------------------------------------------------------------------------- */

static void
tell(msp_log_level level, const char *text, void *payload)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR", ""};
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *message = PyErr_Occurred() ? NULL : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    PyObject *result = NULL;

    if (message != NULL) {
        result = PyObject_CallFunction(payload, "sO", names[level], message);
        if (result == NULL)
            PyErr_WriteUnraisable(payload);
    }
    Py_XDECREF(result);
    Py_XDECREF(message);
    PyGILState_Release(gil);
}

/* The calling thread takes part in the work, so that a signal is seen sooner or later. */
static bool
go_on(const msp_compare_progress *p, void *payload)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    bool ok = !PyErr_Occurred() && PyErr_CheckSignals() == 0;

    (void)p;
    (void)payload;
    PyGILState_Release(gil);
    return ok;
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

/* Text of the library as a str; None for NULL. Names of files need not be UTF-8. */
static PyObject *
text_of(const char *s)
{
    if (s == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(s);
}

static PyObject *
list_of(char *const *texts, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);

    for (size_t i = 0; list != NULL && i < n; i++) {
        PyObject *item = text_of(texts[i]);

        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *
counts_of(const msp_compare_counts *c)
{
    return Py_BuildValue("{sL sL sL sL sL sL sL sL sL sL sL sL}", "rows", (long long)c->rows, "matched",
                         (long long)c->matched, "unmatched", (long long)c->unmatched, "bench_only",
                         (long long)c->bench_only, "wrong", (long long)c->wrong, "yes", (long long)c->yes, "no",
                         (long long)c->no, "none", (long long)c->none, "shape_unmatched", (long long)c->shape_unmatched,
                         "warning", (long long)c->warning, "different", (long long)c->different, "unreadable",
                         (long long)c->unreadable);
}

static PyObject *
suspect_of(const msp_compare_suspect *s)
{
    if (!s->found)
        Py_RETURN_NONE;
    return Py_BuildValue("{sL sN sN sN sN sN sN}", "row", (long long)s->row, "npu_name", text_of(s->npu_name),
                         "bench_name", text_of(s->bench_name), "api", text_of(s->api), "verdict", text_of(s->verdict),
                         "message", text_of(s->message), "stack", list_of(s->stack, s->nstack));
}

static PyObject *
answer_of(const msp_compare_answer *a)
{
    if (a->sentence == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("{sN sN}", "level", text_of(msp_answer_level_text(a->level)), "sentence",
                         text_of(a->sentence));
}

static PyObject *
pair_of(const msp_compare_pair *p)
{
    return Py_BuildValue("{sN sN sN sN sN sN sN sL sN sN sN sN}", "label", text_of(p->label), "npu_path",
                         text_of(p->npu_path), "bench_path", text_of(p->bench_path), "mode",
                         text_of(msp_compare_mode_text(p->mode)), "error",
                         text_of(p->status == MSP_OK ? NULL : p->error), "files", list_of(p->files, p->nfiles),
                         "advised", text_of(p->advised), "advised_line", (long long)p->advised_line, "advice",
                         text_of(p->advice), "counts", counts_of(&p->counts), "suspect", suspect_of(&p->suspect),
                         "verdict", answer_of(&p->answer));
}

static PyObject *
pairs_of(const msp_compare_result *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->npairs);

    for (size_t i = 0; list != NULL && i < r->npairs; i++) {
        PyObject *item = pair_of(&r->pairs[i]);

        if (item == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* The pairs, and the results that belong to none of them: page, job table, analysis. */
static PyObject *
result_of(const msp_compare_result *r)
{
    return Py_BuildValue("(NN)", pairs_of(r), list_of(r->files, r->nfiles));
}

/* ---- calls run again --------------------------------------------------------------------------------------------- */

/* Python's replay(npu, bench, calls, out, log) runs them; what it raises is the reason why they were not. */
static msp_status
run_again(const msp_replay_request *r, void *payload, msp_error *err)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *done = NULL, *kind, *value, *trace, *text;
    const char *why;
    msp_status st = MSP_OK;

    if (!PyErr_Occurred())
        done = PyObject_CallFunction(payload, "NNNNN", text_of(r->npu_path), text_of(r->bench_path), text_of(r->calls),
                                     text_of(r->out), text_of(r->log));
    if (done == NULL && !PyErr_ExceptionMatches(PyExc_Exception)) {
        st = msp_error_set(err, MSP_E_CANCELLED, "cancelled"); /* an interrupt, which stays set for the caller */
    } else if (done == NULL) {
        PyErr_Fetch(&kind, &value, &trace);
        text = value != NULL ? PyObject_Str(value) : NULL;
        why = text != NULL ? PyUnicode_AsUTF8(text) : NULL;
        st = msp_error_set(err, MSP_E_IO, "%s", why != NULL ? why : "Python failed without a word");
        Py_XDECREF(text);
        Py_XDECREF(kind);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        PyErr_Clear();
    }
    Py_XDECREF(done);
    PyGILState_Release(gil);
    return st;
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

enum { PATH_NPU, PATH_BENCH, PATH_OUTPUT, PATH_NPU_DIR, PATH_BENCH_DIR, PATH_FILE, PATH_STACK, PATH_MAPPING, NPATHS };

typedef struct arguments {
    PyObject *paths[NPATHS]; /* bytes; NULL: not given */
    PyObject *log, *replay;
    msp_compare_options opt;
    msp_legacy_options legacy;
} arguments;

/* PyUnicode_FSConverter that also takes None. */
static int
path_or_none(PyObject *obj, void *out)
{
    if (obj == NULL || obj == Py_None) {
        Py_CLEAR(*(PyObject **)out);
        return 1;
    }
    return PyUnicode_FSConverter(obj, out);
}

static const char *
path_at(const arguments *a, int i)
{
    return a->paths[i] == NULL ? NULL : PyBytes_AS_STRING(a->paths[i]);
}

static int
formats_of(unsigned *out, const char *list)
{
    static const struct {
        const char *name;
        unsigned bit;
    } all[] = {{"xlsx", MSP_COMPARE_XLSX}, {"csv", MSP_COMPARE_CSV}, {"json", MSP_COMPARE_JSON}};

    *out = 0;
    while (*list != '\0') {
        size_t n = strcspn(list, ","), k = 0;

        while (k < 3 && (strlen(all[k].name) != n || memcmp(all[k].name, list, n) != 0))
            k++;
        if (k == 3) {
            PyErr_Format(PyExc_ValueError, "formats are xlsx, csv and json, separated by commas; there is '%s'", list);
            return -1;
        }
        *out |= all[k].bit;
        list += n + (list[n] == ',');
    }
    return 0;
}

static int
form_of(msp_legacy_form *out, const char *version)
{
    static const struct {
        const char *name;
        msp_legacy_form form;
    } all[] = {{"", MSP_LEGACY_AUTO},
               {"2.3", MSP_LEGACY_PTDBG_2},
               {"3.2", MSP_LEGACY_PTDBG_3},
               {"6.0", MSP_LEGACY_PTDBG_6},
               {"hooks", MSP_LEGACY_HOOKS}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, version) == 0) {
            *out = all[i].form;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "form is one of '2.3', '3.2', '6.0' and 'hooks', not '%s'", version);
    return -1;
}

static int
parse_arguments(arguments *a, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"npu",        "bench",        "output",  "npu_dir",   "bench_dir", "output_file",
                            "stack",      "advisor",      "suffix",  "fuzzy",     "shapes",    "highlight",
                            "log_rows",   "formats",      "form",    "timestamp", "threads",   "log",
                            "stack_path", "data_mapping", "analyze", "html",      "replay",    NULL};
    const char *suffix = NULL, *formats = "", *form = "", *timestamp = NULL;
    int stack = 1, advisor = 1, fuzzy = 0, shapes = 0, highlight = 0, log_rows = 0, threads = 0, analyze = 0;
    int html = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O&|O&$O&O&O&ppzppppssziOO&O&ppO:compare", names,
                                     PyUnicode_FSConverter, &a->paths[PATH_NPU], PyUnicode_FSConverter,
                                     &a->paths[PATH_BENCH], path_or_none, &a->paths[PATH_OUTPUT], path_or_none,
                                     &a->paths[PATH_NPU_DIR], path_or_none, &a->paths[PATH_BENCH_DIR], path_or_none,
                                     &a->paths[PATH_FILE], &stack, &advisor, &suffix, &fuzzy, &shapes, &highlight,
                                     &log_rows, &formats, &form, &timestamp, &threads, &a->log, path_or_none,
                                     &a->paths[PATH_STACK], path_or_none, &a->paths[PATH_MAPPING], &analyze, &html,
                                     &a->replay))
        return -1;
    msp_compare_options_init(&a->opt);
    a->opt.npu_path = path_at(a, PATH_NPU);
    a->opt.bench_path = path_at(a, PATH_BENCH);
    a->opt.output_dir = path_at(a, PATH_OUTPUT);
    a->opt.stack_mode = stack != 0;
    a->opt.stack_path = path_at(a, PATH_STACK);
    a->opt.data_mapping = path_at(a, PATH_MAPPING);
    a->opt.diff_analyze = analyze != 0;
    a->opt.compare_only = !advisor;
    a->opt.fuzzy = fuzzy != 0;
    a->opt.highlight = highlight != 0;
    a->opt.log_rows = log_rows != 0;
    a->opt.html = html != 0;
    if (a->replay != NULL && a->replay != Py_None) {
        a->opt.replay = run_again;
        a->opt.replay_payload = a->replay;
    }
    a->opt.timestamp = timestamp;
    a->opt.threads = threads;
    a->opt.legacy = &a->legacy;
    a->opt.progress = go_on;
    a->legacy = (msp_legacy_options){.npu_dir = path_at(a, PATH_NPU_DIR),
                                     .bench_dir = path_at(a, PATH_BENCH_DIR),
                                     .suffix = suffix,
                                     .output_file = path_at(a, PATH_FILE),
                                     .no_stack = !stack,
                                     .shape_flag = shapes != 0};
    if (formats_of(&a->opt.formats, formats) != 0)
        return -1;
    return form_of(&a->legacy.form, form);
}

PyObject *
msp_py_compare(PyObject *module, PyObject *args, PyObject *kwargs)
{
    arguments a = {0};
    msp_compare_result r = {0};
    PyObject *result = NULL;
    msp_error err = {MSP_OK, ""};
    msp_status st;

    if (parse_arguments(&a, args, kwargs) == 0) {
        bool logs = a.log != NULL && a.log != Py_None;

        if (logs)
            msp_log_set_sink(MSP_LOG_INFO, tell, a.log);
        Py_BEGIN_ALLOW_THREADS st = msp_compare_run(&r, &a.opt, &err);
        Py_END_ALLOW_THREADS;
        if (logs)
            msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
        if (st != MSP_OK)
            msp_py_raise(msp_py_state_of(module), st, &err);
        else if (!PyErr_Occurred())
            result = result_of(&r);
        msp_compare_result_release(&r);
    }
    for (int i = 0; i < NPATHS; i++)
        Py_XDECREF(a.paths[i]);
    return result;
}

/* ---- parse ------------------------------------------------------------------------------------------------------- */

typedef struct text_list {
    char *p;
    size_t len, cap;
} text_list;

static bool
collect(const char *text, size_t len, void *payload)
{
    text_list *t = payload;

    if (t->cap - t->len < len) {
        size_t cap = (t->len + len) * 2;
        char *p = PyMem_RawRealloc(t->p, cap);

        if (p == NULL)
            return false;
        t->p = p;
        t->cap = cap;
    }
    memcpy(t->p + t->len, text, len);
    t->len += len;
    return true;
}

PyObject *
msp_py_parse(PyObject *module, PyObject *args)
{
    PyObject *path, *result = NULL;
    text_list text = {0};
    const char *prefix;
    msp_error err;
    msp_status st;

    if (!PyArg_ParseTuple(args, "O&s:parse", PyUnicode_FSConverter, &path, &prefix))
        return NULL;
    Py_BEGIN_ALLOW_THREADS st = msp_legacy_parse(PyBytes_AS_STRING(path), prefix, collect, &text, &err);
    Py_END_ALLOW_THREADS;
    if (st == MSP_OK)
        result = PyUnicode_DecodeUTF8(text.p != NULL ? text.p : "", (Py_ssize_t)text.len, "replace");
    else if (st == MSP_E_CANCELLED) /* collect() had no room */
        PyErr_NoMemory();
    else
        msp_py_raise(msp_py_state_of(module), st, &err);
    PyMem_RawFree(text.p);
    Py_DECREF(path);
    return result;
}
