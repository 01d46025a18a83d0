/* tensor_file.c - msprobe.TensorFile: the tensors of a .safetensors or .pt file by name, in file order. */
#include "types/types.h"

typedef struct file_object {
    PyObject_HEAD msp_tensor_file *file;
    PyObject *index; /* dict: name -> position, in file order */
    PyTypeObject *tensor_type;
} file_object;

static void
file_dealloc(PyObject *obj)
{
    file_object *self = (file_object *)obj;
    PyTypeObject *type = Py_TYPE(obj);

    msp_tensor_file_close(self->file);
    Py_XDECREF(self->index);
    Py_XDECREF(self->tensor_type);
    type->tp_free(obj);
    Py_DECREF(type);
}

/* Names come from the file: bytes that are not UTF-8 survive as surrogates. Of equal names the first one counts. */
static PyObject *
index_of(const msp_tensor_file *file)
{
    size_t count = msp_tensor_file_count(file);
    PyObject *index = PyDict_New();

    for (size_t i = 0; index != NULL && i < count; i++) {
        const char *name = msp_tensor_file_name(file, i);
        PyObject *key = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "surrogateescape");
        PyObject *value = PyLong_FromSize_t(i);

        if (key == NULL || value == NULL || PyDict_SetDefault(index, key, value) == NULL)
            Py_CLEAR(index);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return index;
}

static Py_ssize_t
file_length(PyObject *obj)
{
    return PyDict_Size(((file_object *)obj)->index);
}

static PyObject *
file_keys(PyObject *obj, PyObject *unused)
{
    (void)unused;
    return PyDict_Keys(((file_object *)obj)->index);
}

static PyObject *
file_iter(PyObject *obj)
{
    return PyObject_GetIter(((file_object *)obj)->index);
}

static PyObject *
file_getitem(PyObject *obj, PyObject *key)
{
    file_object *self = (file_object *)obj;
    PyObject *position = PyDict_GetItemWithError(self->index, key);
    msp_tensor t;

    if (position == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetObject(PyExc_KeyError, key);
        return NULL;
    }
    t = *msp_tensor_file_at(self->file, PyLong_AsSize_t(position));
    t.owner = NULL; /* the memory is the file's, so the tensor that goes out keeps the file alive */
    t.release_owner = NULL;
    return msp_py_tensor_take(self->tensor_type, &t, obj);
}

static int
file_contains(PyObject *obj, PyObject *key)
{
    return PyDict_Contains(((file_object *)obj)->index, key);
}

static PyObject *
file_repr(PyObject *obj)
{
    return PyUnicode_FromFormat("<msprobe.TensorFile with %zd tensors>", file_length(obj));
}

static PyMethodDef file_methods[] = {
    {"keys", file_keys, METH_NOARGS, "Names of all tensors, in file order."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(file_doc, "The tensors of a file by name, in file order: len(f), f.keys(), f['weight'].\n\n"
                       "Names of nested values are joined with dots; a single tensor has the name ''. Made by\n"
                       "msprobe.open().");

static PyType_Slot file_slots[] = {
    {Py_tp_doc, (void *)file_doc},   {Py_tp_dealloc, file_dealloc},   {Py_tp_repr, file_repr},
    {Py_tp_methods, file_methods},   {Py_tp_iter, file_iter},         {Py_mp_length, file_length},
    {Py_mp_subscript, file_getitem}, {Py_sq_contains, file_contains}, {0, NULL},
};

static PyType_Spec file_spec = {"msprobe._core.TensorFile", sizeof(file_object), 0, Py_TPFLAGS_DEFAULT, file_slots};

PyTypeObject *
msp_py_file_type(PyObject *module)
{
    return msp_py_add_type(module, &file_spec);
}

PyObject *
msp_py_open_file(PyObject *module, PyObject *path)
{
    msp_py_state *state = msp_py_state_of(module);
    msp_tensor_file *file;
    file_object *self;
    PyObject *bytes;
    msp_error err;
    msp_status st;

    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    Py_BEGIN_ALLOW_THREADS st = msp_tensor_file_open(&file, PyBytes_AS_STRING(bytes), &err);
    Py_END_ALLOW_THREADS Py_DECREF(bytes);
    if (st != MSP_OK)
        return msp_py_raise(state, st, &err);
    self = (file_object *)state->file_type->tp_alloc(state->file_type, 0);
    if (self == NULL) {
        msp_tensor_file_close(file);
        return NULL;
    }
    self->file = file;
    Py_INCREF(state->tensor_type);
    self->tensor_type = state->tensor_type;
    self->index = index_of(file);
    if (self->index == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}
