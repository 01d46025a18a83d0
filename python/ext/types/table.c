/* table.c - msprobe.Table: rows of Python values into a .csv, .xlsx or .json file. */
#include "types/types.h"

typedef struct table_object {
    PyObject_HEAD msp_table *table; /* NULL once closed */
    PyObject *module;
    Py_ssize_t ncolumns;
    msp_cell *cells; /* one row */
} table_object;

static void
table_dealloc(PyObject *obj)
{
    table_object *self = (table_object *)obj;
    PyTypeObject *type = Py_TYPE(obj);

    msp_table_close(self->table);
    PyMem_Free(self->cells);
    Py_XDECREF(self->module);
    type->tp_free(obj);
    Py_DECREF(type);
}

static bool
is_open(const table_object *self)
{
    if (self->table == NULL)
        PyErr_SetString(PyExc_ValueError, "the table is closed");
    return self->table != NULL;
}

/* ---- columns and cells ------------------------------------------------------------------------------------------ */

/* The titles in a list of str, borrowed from it; NULL on error. Free with PyMem_Free(). */
static msp_column *
columns_from(PyObject *list)
{
    Py_ssize_t n = PyList_GET_SIZE(list);
    msp_column *columns = PyMem_Calloc(n > 0 ? (size_t)n : 1, sizeof(*columns));

    if (columns == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; columns != NULL && i < n; i++) {
        columns[i].title = PyUnicode_AsUTF8(PyList_GET_ITEM(list, i));
        if (columns[i].title == NULL) {
            PyMem_Free(columns);
            columns = NULL;
        }
    }
    return columns;
}

static int
cell_from(msp_cell *out, PyObject *value)
{
    if (value == Py_None) {
        *out = (msp_cell){MSP_CELL_EMPTY, {{NULL, 0}}};
    } else if (PyUnicode_Check(value)) {
        Py_ssize_t len;
        const char *text = PyUnicode_AsUTF8AndSize(value, &len);

        if (text == NULL)
            return -1;
        *out = msp_cell_text(text, (size_t)len);
    } else if (PyBool_Check(value)) {
        *out = msp_cell_bool(value == Py_True);
    } else if (PyLong_Check(value)) {
        *out = msp_cell_int(PyLong_AsLongLong(value));
    } else {
        *out = msp_cell_float(PyFloat_AsDouble(value));
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
colour_from(msp_row_colour *out, const char *name)
{
    static const char *const names[] = {"plain", "red", "yellow"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (msp_row_colour)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "a row is plain, red or yellow, not %s", name);
    return -1;
}

/* ---- methods ---------------------------------------------------------------------------------------------------- */

static PyObject *
table_row(PyObject *obj, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"cells", "colour", NULL};
    table_object *self = (table_object *)obj;
    const char *name = "plain";
    PyObject *values, *row;
    msp_row_colour colour;
    msp_error err;
    msp_status st = MSP_OK;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|s:row", keywords, &values, &name) || !is_open(self) ||
        colour_from(&colour, name) != 0)
        return NULL;
    row = PySequence_Fast(values, "a row is a sequence of cells");
    if (row == NULL)
        return NULL;
    if (PySequence_Fast_GET_SIZE(row) != self->ncolumns)
        PyErr_Format(PyExc_ValueError, "%zd cells for %zd columns", PySequence_Fast_GET_SIZE(row), self->ncolumns);
    for (Py_ssize_t i = 0; i < self->ncolumns && !PyErr_Occurred(); i++)
        cell_from(&self->cells[i], PySequence_Fast_GET_ITEM(row, i));
    if (!PyErr_Occurred())
        st = msp_table_row(self->table, self->cells, colour, &err);
    Py_DECREF(row);
    if (st != MSP_OK)
        return msp_py_raise(msp_py_state_of(self->module), st, &err);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
table_finish(PyObject *obj, PyObject *unused)
{
    table_object *self = (table_object *)obj;
    msp_table *table = self->table;
    msp_error err;
    msp_status st;

    (void)unused;
    if (!is_open(self))
        return NULL;
    self->table = NULL;
    Py_BEGIN_ALLOW_THREADS st = msp_table_finish(table, &err);
    msp_table_close(table);
    Py_END_ALLOW_THREADS if (st != MSP_OK) return msp_py_raise(msp_py_state_of(self->module), st, &err);
    Py_RETURN_NONE;
}

static PyObject *
table_enter(PyObject *obj, PyObject *unused)
{
    (void)unused;
    Py_INCREF(obj);
    return obj;
}

/* Left without an exception the table is finished; otherwise nothing remains of it. */
static PyObject *
table_exit(PyObject *obj, PyObject *args)
{
    table_object *self = (table_object *)obj;

    if (self->table != NULL && PyTuple_GET_SIZE(args) > 0 && PyTuple_GET_ITEM(args, 0) == Py_None)
        return table_finish(obj, NULL);
    msp_table_close(self->table);
    self->table = NULL;
    Py_RETURN_NONE;
}

static PyMethodDef table_methods[] = {
    {"row", (PyCFunction)(void (*)(void))table_row, METH_VARARGS | METH_KEYWORDS,
     "row(cells, colour='plain')\n--\n\nAdd a row: str, int, float, bool or None for each column."},
    {"finish", table_finish, METH_NOARGS, "Write what is left and put the file in its place."},
    {"__enter__", table_enter, METH_NOARGS, NULL},
    {"__exit__", table_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(table_doc, "A table that is being written, one row at a time. Made by msprobe.open_table(); as a context\n"
                        "manager it is finished at the end, and leaves no file when an exception passes.");

static PyType_Slot table_slots[] = {
    {Py_tp_doc, (void *)table_doc},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_methods, table_methods},
    {0, NULL},
};

static PyType_Spec table_spec = {"msprobe._core.Table", sizeof(table_object), 0, Py_TPFLAGS_DEFAULT, table_slots};

PyTypeObject *
msp_py_table_type(PyObject *module)
{
    return msp_py_add_type(module, &table_spec);
}

/* ---- msprobe.open_table() --------------------------------------------------------------------------------------- */

static int
format_from(msp_table_format *out, const char *path)
{
    const char *dot = strrchr(path, '.');

    if (dot != NULL && strcmp(dot, ".csv") == 0)
        *out = MSP_TABLE_CSV;
    else if (dot != NULL && strcmp(dot, ".xlsx") == 0)
        *out = MSP_TABLE_XLSX;
    else if (dot != NULL && strcmp(dot, ".json") == 0)
        *out = MSP_TABLE_JSON;
    else {
        PyErr_SetString(PyExc_ValueError, "a table's name ends in .csv, .xlsx or .json");
        return -1;
    }
    return 0;
}

static PyObject *
open_at(PyObject *module, const char *path, PyObject *titles)
{
    msp_py_state *state = msp_py_state_of(module);
    table_object *self = (table_object *)state->table_type->tp_alloc(state->table_type, 0);
    msp_table_format format;
    msp_column *columns;
    msp_error err;
    msp_status st;

    if (self == NULL)
        return NULL;
    Py_INCREF(module);
    self->module = module;
    self->ncolumns = PyList_GET_SIZE(titles);
    self->cells = PyMem_Calloc(self->ncolumns > 0 ? (size_t)self->ncolumns : 1, sizeof(*self->cells));
    columns = columns_from(titles);
    if (self->cells == NULL && columns != NULL)
        PyErr_NoMemory();
    if (self->cells != NULL && columns != NULL && format_from(&format, path) == 0) {
        st = msp_table_open(&self->table, path, format, columns, (size_t)self->ncolumns, NULL, &err);
        if (st != MSP_OK)
            msp_py_raise(state, st, &err);
    }
    PyMem_Free(columns);
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

PyObject *
msp_py_open_table(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"path", "columns", NULL};
    PyObject *path, *columns, *titles, *result;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&O:open_table", keywords, PyUnicode_FSConverter, &path, &columns))
        return NULL;
    titles = PySequence_List(columns);
    result = titles != NULL ? open_at(module, PyBytes_AS_STRING(path), titles) : NULL;
    Py_XDECREF(titles);
    Py_DECREF(path);
    return result;
}
