/*
 * dump.h - _core.Dump, a dump in the making for a framework whose calls Python sees.
 *
 *     dump.c    the object: units, records, stacks, and the end
 *     value.c   arguments and results as tokens
 *     tensor.c  tensors: measured where they lie, and written to their files
 *
 * The recorder is msprobe/mindspore/recorder.py. A Dump is told nothing of MindSpore but the types that it knows
 * tensors by; it has no state beside its own, so that it could serve another framework whose tensors give their
 * address.
 */
#ifndef MSP_PY_MINDSPORE_DUMP_H
#define MSP_PY_MINDSPORE_DUMP_H

#include "module.h"
#include "collect/live.h"

#define MAX_FILE_NAME 240 /* bytes, of a tensor's file without its folder */
#define MAX_DTYPES    32

/* How elements of one type are stored. */
typedef struct dtype_entry {
    PyObject *object; /* mindspore.float32, ...: one object per type */
    msp_dtype dtype;
} dtype_entry;

/* What one Dump holds. */
typedef struct dump_object {
    PyObject_HEAD msp_collect *collect; /* ring and writer; NULL: the dump is closed */
    msp_py_state *state;                /* of the module, which the dump keeps alive */
    PyObject *module;
    PyTypeObject *tensor_type;      /* what tensors are known by: mindspore's TensorPy */
    PyTypeObject *dtype_type;       /* what types of elements are known by: mindspore's typing.Type */
    dtype_entry dtypes[MAX_DTYPES]; /* all that are read */
    int ndtypes;
    bool by_pointer;   /* every tensor gives its address by data_ptr(); otherwise asnumpy() shares its memory */
    bool has_unit;     /* a folder step<N>/rank<R> is open: the one with this number */
    bool has_crc;      /* summary_mode md5: a tensor's record has its checksum */
    bool wants_values; /* false in task structure: records hold types and shapes alone */
    uint32_t unit;
    uint32_t places; /* the last number given to msp_record_hole(): places kept for records that come late */
    char *data_dir;  /* where tensors' files go; NULL: none are written */
    int64_t values;  /* how many tensors were measured */
    PyObject *s_shape, *s_stride, *s_dtype, *s_data_ptr, *s_asnumpy, *s_interface; /* names of attributes */
} dump_object;

/* What one call of part() walks with. */
typedef struct walk {
    dump_object *dump;
    msp_record r;                  /* the tokens so far */
    char name[MAX_FILE_NAME + 64]; /* of the file of the tensor at hand; grows and shrinks with the way to it */
    size_t len;                    /* of that name */
    bool save;                     /* tensors are written to files */
    bool is_bad;                   /* a tensor held NaN or infinity */
    int depth;                     /* how many containers the value at hand is in */
} walk;

/* tensor.c: put the record of a tensor, measured now; its file is written when w->save. False: an exception is set. */
bool msp_py_walk_tensor(walk *w, PyObject *obj);

/* tensor.c: the type that stands for object (mindspore.float32, ...), MSP_DTYPE_NONE for one that is not read. */
msp_dtype msp_py_dtype_of(dump_object *d, PyObject *object);

/* value.c: put the tokens of any value: tensors, what Python's own types hold, null for the rest. */
bool msp_py_walk_value(walk *w, PyObject *v);

#endif
