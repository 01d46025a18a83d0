/*
 * tensor.h - values of the program as tokens of a record.
 *
 *     torch.c   tensors of PyTorch, without linking to it: the one reader of them
 *     memory.c  a tensor as the collector sees it
 *     record.c  a tensor's record: measured, and saved where that is wanted
 *     device.c  tensors on another device: reduced there, fetched in batches
 *     keep.c    overflow_check: inputs as they were before their call
 *     value.c   Python values
 *     single.c  values that scripts save by name
 */
#ifndef MSP_PY_TENSOR_H
#define MSP_PY_TENSOR_H

#include "recording/recording.h"

/* The longest name of a module ("Module.a.Linear"; longer ones are made shorter when they are told to us, by
 * pytorch/modules.py), and a buffer for it with direction and numbers. */
enum { PROBE_MODULE_NAME = 1000, PROBE_NAME_SIZE = PROBE_MODULE_NAME + 72 };

/* Where in a record we are, for names of tensor files ("Torch.cat.0.forward.input.0.1"; text is appended and cut back),
 * and how what stands there is read. */
typedef struct probe_path {
    char text[PROBE_NAME_SIZE + 128];
    size_t len;
    bool files;            /* tensors go to files, where the rules say so */
    bool saving;           /* overflow_check: elements are written to files now, and nothing else is done */
    kept_tensor **keep;    /* overflow_check: the list that elements which are read are copied to; NULL: they are not */
    const char *no_values; /* why the values of what is read mean nothing, as the record says; NULL: they do */
} probe_path;

/* Begin one with this text; nothing but reading is to be done. */
void msp_probe_path_begin(probe_path *path, const char *text, size_t len);

/* The number in decimal, at most 20 characters and no end mark; returns how many. (printf takes 100 ns for it.) */
static inline size_t
msp_probe_digits(char *out, uint64_t n)
{
    char text[20];
    size_t at = sizeof(text);

    do
        text[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    memcpy(out, text + at, sizeof(text) - at);
    return sizeof(text) - at;
}

void msp_probe_path_push(probe_path *path, const char *part, size_t len);
void msp_probe_path_push_index(probe_path *path, Py_ssize_t i);

/* One value, whatever it is; one that cannot be read is marked as such. */
void msp_probe_value(msp_record *r, PyObject *v, probe_path *path, int depth);

/* Arguments, or a result: the items of a tuple, the fields of a named one, anything else, a list too, as the only item.
 */
void msp_probe_sequence(msp_record *r, const char *key, PyObject *v, probe_path *path);

/* Several: the items of a tuple or list (numbered from first), the members of a dict. */
void msp_probe_values(msp_record *r, PyObject *seq, probe_path *path, Py_ssize_t first, int depth);
void msp_probe_members(msp_record *r, PyObject *dict, probe_path *path, int depth);

/* A value that only Python can describe; and a structure of plain values, written as it is. */
int msp_probe_odd(msp_record *r, PyObject *v, probe_path *path, int depth);
int msp_probe_plain(msp_record *r, PyObject *v, int depth);
int msp_probe_plain_members(msp_record *r, PyObject *dict, int depth);

/*
 * The record of tensor t with another type's text (NULL: the usual), requires_grad of grad_of, further plain fields (a
 * dict, NULL: none), and another shape (a tuple of int, NULL: its own).
 */
int msp_probe_tensor_as(msp_record *r, PyObject *t, probe_path *path, const char *type, PyObject *grad_of,
                        PyObject *extra, PyObject *shape);

/* The memory of a tensor, lent; false: it has none that can be read plainly, and Python describes it. own: of one that
 * Python has made for us, outside of every transform. */
bool msp_probe_tensor_view(msp_tensor *view, PyObject *t);
bool msp_probe_own_view(msp_tensor *view, PyObject *t);

/* Its requires_grad, or -1 with an exception set. */
int msp_probe_requires_grad(PyObject *t, bool *yes);

/* How many numbers there are in a tuple of at most MSP_MAX_NDIM, -1: it is something else. Takes the reference over. */
int msp_probe_numbers(int64_t *out, PyObject *tuple);

/* The record of memory that stands for a tensor without requires_grad, or -1 with an exception set. */
int msp_probe_memory(msp_record *r, const msp_tensor *view, probe_path *path);

/* A tensor on another device: what describe() says about v in the form ("waiting", ...), or -1 with an exception set.
 */
int msp_probe_device_put(msp_record *r, PyObject *v, PyObject *said, probe_path *path);

/* Its record: elements of copy (may be NULL) are kept where inputs are, and further plain fields (NULL: none) follow.
 */
int msp_probe_tensor_note(msp_record *r, PyObject *v, probe_path *path, msp_tensor_note *note, PyObject *copy,
                          PyObject *extra);

/* Shape (a tuple) and type (torch.float32) of a tensor without memory here, or -1 with an exception set. */
int msp_probe_tensor_shape(msp_tensor *view, PyObject *shape, PyObject *dtype);

/* Put into a record what of its statistics has come; and after it was committed, see whether the rest is to be fetched.
 */
void msp_probe_device_settle(msp_record *r);
void msp_probe_device_look(void);

/* Fetch everything and put it into the records that wait; do so at the end of a step; and forget everything. */
void msp_probe_device_flush(void);
void msp_probe_device_end(void);
void msp_probe_device_reset(void);

/* overflow_check: whether a tensor on a device that was read since that ticket holds inf or NaN; its results are not
 * wanted. */
bool msp_probe_device_saw_overflow(uint64_t since);
void msp_probe_device_forget(uint64_t since);

/* Write elements to a file of that name in dump_tensor_data, or -1 with an exception set; and remove it again. */
int msp_probe_save_tensor(const msp_tensor *t, const char *file);
void msp_probe_remove_file(const char *file);

/*
 * Keep a tensor's elements under the name of their file until they are saved or dropped; both empty the list. -1 with
 * an exception set: they can be held neither in memory nor on disk.
 */
int msp_probe_keep(kept_tensor **list, const msp_tensor *t, const char *file);

/* Keep a tensor that is on another device; it stays there until it is saved. */
int msp_probe_keep_object(kept_tensor **list, PyObject *tensor, size_t bytes, const probe_path *path);
void msp_probe_keep_save(kept_tensor **list);
void msp_probe_keep_drop(kept_tensor **list);

/* The statistics of a tensor, and its checksum (NULL: not wanted); a large one is read without the interpreter lock. */
void msp_probe_measure(const msp_tensor *t, msp_stats *stats, uint32_t *crc);

/* A tensor, or -1 with an exception set. */
int msp_probe_tensor(msp_record *r, PyObject *t, probe_path *path);

/* True when v is a tensor of torch, subclasses included. */
static inline bool
msp_probe_is_tensor(PyObject *v)
{
    return Py_TYPE(v) == msp_probe.tensor_type || Py_TYPE(v) == msp_probe.parameter_type ||
           (msp_probe.tensor_type != NULL && PyObject_TypeCheck(v, msp_probe.tensor_type));
}

/* True for a plain tensor, whose memory may be read the fast way. */
static inline bool
msp_probe_is_plain_tensor(PyObject *v)
{
    return Py_TYPE(v) == msp_probe.tensor_type || Py_TYPE(v) == msp_probe.parameter_type;
}

/* The elements of a value whose record names their files already (task overflow_check). */
void msp_probe_save_elements(PyObject *value, probe_path *path);

/* A value that was turned into tokens earlier (snapshot()): appended; false when v is none. */
bool msp_probe_put_snapshot(msp_record *r, PyObject *v);

/* One member of a file beside dump.json: an object of what members, a dict, holds. */
void msp_probe_write_aside(uint32_t unit, PyObject *name, PyObject *members);

int msp_probe_view_setup(PyObject *module);

/* Functions for Python: see single.c and record.c. */
PyObject *msp_probe_write(PyObject *self, PyObject *all);
PyObject *msp_probe_reserve(PyObject *self, PyObject *unused);
PyObject *msp_probe_snapshot(PyObject *self, PyObject *all);
PyObject *msp_probe_file(PyObject *self, PyObject *all);
PyObject *msp_probe_wanted(PyObject *self, PyObject *path);

#endif
