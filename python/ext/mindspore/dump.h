/*
 * dump.h - what the files of _core.Dump share; see dump.c.
 */
#ifndef MSP_PY_MINDSPORE_DUMP_H
#define MSP_PY_MINDSPORE_DUMP_H

#include "module.h"
#include "collect/live.h"

#define MAX_FILE_NAME 240 /* bytes, of a tensor's file without its folder */
#define MAX_DTYPES    32

typedef struct dtype_entry {
    PyObject *object; /* mindspore.float32, ...: one object per type */
    msp_dtype dtype;
} dtype_entry;

/* What one Dump holds. */
typedef struct dump_object {
    PyObject_HEAD msp_collect *collect;
    msp_py_state *state;
    PyObject *module;
    PyTypeObject *tensor_type, *dtype_type; /* TensorPy and typing.Type */
    dtype_entry dtypes[MAX_DTYPES];
    int ndtypes;
    bool by_pointer; /* data_ptr() is there for every tensor; otherwise asnumpy(), which shares its memory */
    bool has_unit, has_crc, wants_values;
    uint32_t unit;
    uint32_t places; /* the last number given to msp_record_hole() */
    char *data_dir;  /* where tensors' files go; NULL: none are written */
    int64_t values;  /* tensors measured */
    PyObject *s_shape, *s_stride, *s_dtype, *s_data_ptr, *s_asnumpy, *s_interface;
} dump_object;

/* What one call of part() walks with. */
typedef struct walk {
    dump_object *dump;
    msp_record r;
    char name[MAX_FILE_NAME + 64]; /* of the file of the tensor at hand; grows and shrinks with the way to it */
    size_t len;
    bool save;
    bool is_bad; /* a tensor held NaN or infinity */
    int depth;
} walk;

/* tensor.c: put the record of a tensor, measured now; its file is written when w->save. False: an exception is set. */
bool msp_py_walk_tensor(walk *w, PyObject *obj);

/* tensor.c: the type that stands for object (mindspore.float32, ...), MSP_DTYPE_NONE for one that is not read. */
msp_dtype msp_py_dtype_of(dump_object *d, PyObject *object);

/* value.c: put the tokens of any value: tensors, what Python's own types hold, null for the rest. */
bool msp_py_walk_value(walk *w, PyObject *v);

#endif
