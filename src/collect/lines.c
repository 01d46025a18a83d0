/* lines.c - see lines.h. */
#include "collect/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "io/npy.h"

enum { MODE = 0640, CUT_MAX = 1 << 16, MARK_WITHOUT_STATISTICS = 100 };

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* A writer that was killed in the middle of a line has left a piece of it. */
static msp_status
drop_cut_line(msp_lines *l, msp_error *err)
{
    char piece[CUT_MAX];
    off_t end = lseek(l->fd, 0, SEEK_END), keep = 0;

    while (end > 0 && keep == 0) {
        off_t from = end > CUT_MAX ? end - CUT_MAX : 0;
        ssize_t n = pread(l->fd, piece, (size_t)(end - from), from);

        if (n != (ssize_t)(end - from))
            return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read", l->path);
        while (n > 0 && piece[n - 1] != '\n')
            n--;
        keep = from + n;
        if (n > 0 || from == 0)
            break;
        end = from;
        keep = 0;
    }
    if (end >= 0 && keep < lseek(l->fd, 0, SEEK_END) && ftruncate(l->fd, keep) != 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", l->path);
    return MSP_OK;
}

static msp_status
open_data(msp_lines *l, msp_str data_dir, msp_error *err)
{
    msp_status st;

    l->data_dir = msp_alloc(data_dir.len + 1, 1);
    if (l->data_dir == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    memcpy(l->data_dir, data_dir.p, data_dir.len);
    l->data_dir[data_dir.len] = '\0';
    st = msp_path_make_dirs(l->data_dir, err);
    if (st != MSP_OK)
        return st;
    l->data_fd = open(l->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->data_fd < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot open", l->data_dir);
    return MSP_OK;
}

msp_status
msp_lines_open(msp_lines *l, msp_unit_kind kind, const char *dir, msp_str file, msp_str data_dir, int64_t mark,
               msp_error *err)
{
    msp_buf name = {0};
    msp_status st;

    *l = MSP_LINES_NONE;
    l->kind = kind;
    l->mark = mark;
    msp_buf_str(&name, file);
    msp_buf_char(&name, '\0');
    st = msp_buf_status(&name, err);
    if (st == MSP_OK) {
        l->path = msp_path_join(dir, name.p);
        if (l->path == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    msp_buf_release(&name);
    if (st == MSP_OK) {
        l->fd = open(l->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, MODE);
        st = l->fd < 0 ? msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", l->path) : drop_cut_line(l, err);
    }
    if (st == MSP_OK && data_dir.len > 0)
        st = open_data(l, data_dir, err);
    if (st != MSP_OK)
        msp_lines_close(l);
    return st;
}

msp_status
msp_lines_append(msp_lines *l, msp_str text, msp_error *err)
{
    int e = msp_file_put(l->fd, &(struct iovec){(void *)text.p, text.len}, 1, -1);

    return e == 0 ? MSP_OK : msp_file_cannot_write(l->path, e, err);
}

void
msp_lines_close(msp_lines *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->data_fd >= 0)
        close(l->data_fd);
    msp_free(l->path);
    msp_free(l->data_dir);
    msp_buf_release(&l->scratch);
    *l = MSP_LINES_NONE;
}

/* ---- .npy files -------------------------------------------------------------------------------------------------- */

/*
 * One file of the dump. No temporary file and no rename: the record stays in the ring until its line is written, so
 * that a file that a killed writer left half done is written again.
 */
static msp_status
write_file(const msp_lines *l, const char *name, msp_str head, const void *data, size_t size, msp_error *err)
{
    struct iovec parts[] = {{(void *)head.p, head.len}, {(void *)data, size}};
    int fd = openat(l->data_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, MODE);
    int e = fd < 0 ? errno : msp_file_put(fd, parts, 2, -1);

    if (fd >= 0 && close(fd) != 0 && e == 0)
        e = errno;
    return e == 0 ? MSP_OK : msp_file_cannot_write(name, e, err);
}

/* NumPy has no bfloat16 and no float8: these are stored as float32, and the line keeps the type's name. */
static const void *
widen_elements(msp_buf *out, msp_tensor *t)
{
    float *to = (float *)msp_buf_room(out, (size_t)t->numel * sizeof(float));
    const size_t size = msp_dtype_size(t->dtype);

    for (int64_t i = 0; to != NULL && i < t->numel; i++)
        to[i] = (float)msp_dtype_load_f64(t->dtype, (const char *)t->data + (size_t)i * size);
    t->dtype = MSP_F32;
    return to;
}

static msp_status
write_npy(msp_lines *l, msp_str name, msp_tensor *t, msp_error *err)
{
    const void *data = t->data;
    char file[NAME_MAX + 1];
    msp_buf wide = {0};
    msp_status st;

    if (name.len + sizeof(".npy") > sizeof(file) || memchr(name.p, '/', name.len) != NULL)
        return MSP_OK; /* the line is there; no file system takes such a name */
    snprintf(file, sizeof(file), "%.*s.npy", (int)name.len, name.p);
    if (msp_npy_code(t->dtype) == NULL)
        data = widen_elements(&wide, t);
    msp_buf_clear(&l->scratch);
    msp_npy_header(&l->scratch, t);
    st = wide.failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : msp_buf_status(&l->scratch, err);
    if (st == MSP_OK)
        st = write_file(l, file, msp_buf_view(&l->scratch), data, (size_t)t->numel * msp_dtype_size(t->dtype), err);
    msp_buf_release(&wide);
    return st;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void
write_empty(msp_json_writer *w)
{
    msp_json_begin_array(w);
    msp_json_end_array(w);
}

/* Integers are shown as floats. Means of types up to float32 are shown with the precision of float32, as they were. */
static void
write_statistics(msp_json_writer *w, const record_tensor *t)
{
    const bool none = t->head.form == STATS_NONE || t->head.form == STATS_BOOL || t->head.form == STATS_LOST;
    const bool narrow = t->head.dtype != MSP_F64 && t->head.dtype != MSP_C128 && t->head.form != STATS_SIGNED &&
                        t->head.form != STATS_UNSIGNED;
    record_reader r = t->stats;
    double mean;

    msp_json_begin_array(w);
    for (int i = 0; i < 2; i++) {
        if (none)
            write_empty(w);
        else if (t->head.form == STATS_SIGNED)
            msp_json_write_f64(w, (double)msp_record_read_i64(&r));
        else if (t->head.form == STATS_UNSIGNED)
            msp_json_write_f64(w, (double)(uint64_t)msp_record_read_i64(&r));
        else
            msp_json_write_f64(w, msp_record_read_f64(&r));
    }
    if (none) {
        write_empty(w);
    } else {
        mean = msp_record_read_f64(&r);
        msp_json_write_f64(w, narrow ? (double)(float)mean : mean);
    }
    msp_json_end_array(w);
}

static void
write_shape(msp_json_writer *w, const record_tensor *t)
{
    record_reader r = t->shape;

    msp_json_begin_array(w);
    for (int i = 0; i < t->head.ndim; i++)
        msp_json_write_i64(w, msp_record_read_i64(&r));
    msp_json_end_array(w);
}

/* A complex number counts by its real part, as a conversion to float takes it. */
static void
write_elements(msp_json_writer *w, const msp_tensor *t)
{
    const msp_dtype part = t->dtype == MSP_C64 ? MSP_F32 : t->dtype == MSP_C128 ? MSP_F64 : t->dtype;
    const size_t size = msp_dtype_size(t->dtype);

    msp_json_begin_array(w);
    for (int64_t i = 0; i < t->numel; i++)
        msp_json_write_f64(w, (float)msp_dtype_load_f64(part, (const char *)t->data + (size_t)i * size));
    msp_json_end_array(w);
}

/* The elements as a tensor; false when their number and the shape do not fit each other. */
static bool
elements_of(const record_tensor *t, msp_tensor *out)
{
    record_reader r = t->shape;
    int64_t shape[MSP_MAX_NDIM] = {0};
    msp_dtype dtype = (msp_dtype)t->head.dtype;

    if (t->head.ndim > MSP_MAX_NDIM)
        return false;
    for (int i = 0; i < t->head.ndim; i++)
        shape[i] = msp_record_read_i64(&r);
    return msp_tensor_view(out, t->values, dtype, t->head.ndim, shape, NULL) == MSP_OK &&
           (uint64_t)out->numel * msp_dtype_size(dtype) == t->nbytes;
}

static msp_status
add_tensor(msp_lines *l, msp_json_writer *w, msp_str name, record_reader *r, msp_error *err)
{
    msp_tensor elements = {0};
    record_tensor t;

    if (!msp_record_read_tensor(r, &t) || (t.values != NULL && !elements_of(&t, &elements))) {
        r->bad = true;
        return MSP_OK;
    }
    msp_json_begin_array(w);
    msp_json_write_string(w, name);
    if (l->kind == MSP_UNIT_HOOKS) {
        write_elements(w, &elements);
    } else {
        msp_json_write_i64(w, l->mark);
        write_empty(w);
    }
    msp_json_write_string(w, t.dtype);
    write_shape(w, &t);
    if (l->kind == MSP_UNIT_PTDBG && l->mark <= MARK_WITHOUT_STATISTICS)
        write_statistics(w, &t);
    msp_json_end_array(w);
    return l->kind == MSP_UNIT_PTDBG && t.values != NULL && l->data_fd >= 0 ? write_npy(l, name, &elements, err)
                                                                            : MSP_OK;
}

/* A number of Python's: the value stands for all three statistics. */
static msp_status
add_number(msp_lines *l, msp_json_writer *w, msp_str name, int tok, record_reader *r, msp_error *err)
{
    const msp_dtype dtype = tok == TOKEN_INT ? MSP_I64 : tok == TOKEN_FLOAT ? MSP_F64 : MSP_BOOL;
    const bool yes = tok == TOKEN_TRUE;
    const void *at = dtype == MSP_BOOL ? (const void *)&yes : r->p;
    record_reader value = *r;
    msp_tensor t;

    if (dtype != MSP_BOOL)
        msp_record_read_i64(r);
    if (r->bad || l->kind != MSP_UNIT_PTDBG)
        return MSP_OK;
    msp_json_begin_array(w);
    msp_json_write_string(w, name);
    msp_json_write_i64(w, l->mark);
    write_empty(w);
    msp_json_write_string(w, msp_str_of(dtype == MSP_I64   ? "<class 'int'>"
                                        : dtype == MSP_F64 ? "<class 'float'>"
                                                           : "<class 'bool'>"));
    msp_json_write_string(w, MSP_STR("[]"));
    msp_json_begin_array(w);
    for (int i = 0; i < 3; i++) {
        record_reader again = value;

        if (dtype == MSP_BOOL)
            msp_json_write_bool(w, yes);
        else if (dtype == MSP_I64)
            msp_json_write_i64(w, msp_record_read_i64(&again));
        else
            msp_json_write_f64(w, msp_record_read_f64(&again));
    }
    msp_json_end_array(w);
    msp_json_end_array(w);
    if (l->data_fd < 0 || msp_tensor_view(&t, at, dtype, 0, NULL, NULL) != MSP_OK)
        return MSP_OK;
    return write_npy(l, name, &t, err);
}

static void
add_stack(msp_json_writer *w, msp_str name, const unit_stack *stack)
{
    record_reader r = msp_stack_texts(stack);

    msp_json_begin_array(w);
    msp_json_write_string(w, name);
    msp_json_begin_array(w);
    while (!r.bad && r.p < r.end) {
        msp_json_begin_array(w);
        for (int i = 0; i < 4; i++) {
            msp_str part = msp_record_read_text(&r);

            if (i == 3 && part.len == 0)
                msp_json_write_null(w); /* no source at hand */
            else
                msp_json_write_string(w, part);
        }
        msp_json_end_array(w);
    }
    msp_json_end_array(w);
    msp_json_end_array(w);
}

static msp_status
add_member(msp_lines *l, msp_buf *text, record_reader *r, const unit_stack *stack, msp_error *err)
{
    msp_str name = msp_record_read_text(r);
    int tok = msp_record_read_byte(r);
    size_t before = text->len;
    msp_status st = MSP_OK;
    msp_json_writer w;

    msp_json_writer_init(&w, text, -1);
    if (tok == TOKEN_TENSOR)
        st = add_tensor(l, &w, name, r, err);
    else if (tok == TOKEN_INT || tok == TOKEN_FLOAT || tok == TOKEN_TRUE || tok == TOKEN_FALSE)
        st = add_number(l, &w, name, tok, r, err);
    else if (tok != TOKEN_NULL)
        r->bad = true;
    else if (stack != NULL)
        add_stack(&w, name, stack);
    if (text->len > before)
        msp_buf_char(text, '\n');
    return st;
}

msp_status
msp_lines_add(msp_lines *l, msp_buf *text, record_reader *r, const unit_stack *stack, bool *damaged, msp_error *err)
{
    const size_t before = text->len;
    msp_status st = MSP_OK;
    int tok;

    *damaged = msp_record_read_byte(r) != TOKEN_OBJECT;
    while (st == MSP_OK && !*damaged && (tok = msp_record_read_byte(r)) != TOKEN_END) {
        if (tok == TOKEN_KEY)
            st = add_member(l, text, r, stack, err);
        *damaged = tok != TOKEN_KEY || r->bad;
    }
    *damaged = st == MSP_OK && (*damaged || r->bad || r->p != r->end);
    if (*damaged)
        text->len = before;
    return st != MSP_OK || *damaged ? st : msp_buf_status(text, err);
}
