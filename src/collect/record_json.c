/*
 * record_json.c - a record's value as JSON text: the writer's half of the binary form.
 *
 * Fields and their order are those of msprobe 8.3's tensor records: type, dtype, shape, Max, Min, Mean, Norm,
 * requires_grad, data_name, md5.
 */
#include <stdio.h>
#include "collect/record.h"
#include "core/alloc.h"

/* A call has no text argument of 16 MiB; in JSON each of its bytes may become six. */
enum { MAX_DEPTH = 512, TEXT_MAX = 16 << 20, TENSOR_TEXTS_MAX = 1 << 20 };

static const void *
take_bytes(record_reader *r, size_t n)
{
    const unsigned char *p = r->p;

    if (r->bad || n > (size_t)(r->end - r->p)) {
        r->bad = true;
        return NULL;
    }
    r->p += n;
    return p;
}

/* A number, which is 0 already, behind any byte. */
static void
read_number(record_reader *r, void *out, size_t size)
{
    const void *p = take_bytes(r, size);

    if (p != NULL)
        memcpy(out, p, size);
}

uint8_t
msp_record_read_byte(record_reader *r)
{
    uint8_t v = 0;

    read_number(r, &v, sizeof(v));
    return v;
}

int64_t
msp_record_read_i64(record_reader *r)
{
    int64_t v = 0;

    read_number(r, &v, sizeof(v));
    return v;
}

double
msp_record_read_f64(record_reader *r)
{
    double v = 0;

    read_number(r, &v, sizeof(v));
    return v;
}

msp_str
msp_record_read_text(record_reader *r)
{
    const void *p;
    uint32_t n = 0;

    read_number(r, &n, sizeof(n));
    if (n > TEXT_MAX)
        r->bad = true;
    p = take_bytes(r, n);
    return p == NULL ? (msp_str){"", 0} : (msp_str){p, n};
}

static void
write_key(msp_json_writer *w, const char *name)
{
    msp_json_write_key(w, msp_str_of(name));
}

/*
 * The original passes integers through float32 and prints them with ".0". We print the same text where a double holds
 * the number, and the digits themselves where it does not.
 */
static void
write_extreme(msp_json_writer *w, tensor_stats_form form, int64_t v, bool scalar)
{
    const int64_t exact = (int64_t)1 << 53;
    bool wide = form == STATS_UNSIGNED ? (uint64_t)v > (uint64_t)exact : v > exact || v < -exact;

    if (form == STATS_UNSIGNED && (scalar || wide))
        msp_json_write_u64(w, (uint64_t)v);
    else if (scalar || wide)
        msp_json_write_i64(w, v);
    else
        msp_json_write_f64(w, (double)v);
}

static void
write_int_stats(record_reader *r, msp_json_writer *w, tensor_stats_form form, bool scalar)
{
    int64_t max = msp_record_read_i64(r), min = msp_record_read_i64(r);
    double mean = msp_record_read_f64(r), norm = msp_record_read_f64(r);

    write_key(w, "Max");
    write_extreme(w, form, max, scalar);
    write_key(w, "Min");
    write_extreme(w, form, min, scalar);
    write_key(w, "Mean");
    scalar ? write_extreme(w, form, max, true) : msp_json_write_f64(w, mean);
    write_key(w, "Norm");
    scalar ? write_extreme(w, form, max, true) : msp_json_write_f64(w, norm);
}

static void
write_float_stats(record_reader *r, msp_json_writer *w, tensor_stats_form form, bool scalar)
{
    double max = msp_record_read_f64(r), min = msp_record_read_f64(r), mean = msp_record_read_f64(r),
           norm = msp_record_read_f64(r);

    write_key(w, "Max");
    msp_json_write_f64(w, max);
    write_key(w, "Min");
    msp_json_write_f64(w, min);
    write_key(w, "Mean");
    msp_json_write_f64(w, mean);
    write_key(w, "Norm");
    if (form == STATS_COMPLEX)
        msp_json_write_null(w);
    else
        msp_json_write_f64(w, scalar ? max : norm); /* a 0-d tensor repeats its value: no absolute value for Norm */
}

static void
write_bool_stats(record_reader *r, msp_json_writer *w)
{
    int64_t max = msp_record_read_i64(r), min = msp_record_read_i64(r);

    msp_record_read_f64(r);
    msp_record_read_f64(r);
    write_key(w, "Max");
    msp_json_write_bool(w, max != 0);
    write_key(w, "Min");
    msp_json_write_bool(w, min != 0);
    write_key(w, "Mean");
    msp_json_write_null(w);
    write_key(w, "Norm");
    msp_json_write_null(w);
}

static void
write_stats(record_reader *r, msp_json_writer *w, tensor_stats_form form, bool scalar)
{
    static const char *const names[] = {"Max", "Min", "Mean", "Norm"};

    if (form == STATS_BOOL) {
        write_bool_stats(r, w);
    } else if (form == STATS_SIGNED || form == STATS_UNSIGNED) {
        write_int_stats(r, w, form, scalar);
    } else if (form == STATS_FLOAT || form == STATS_COMPLEX) {
        write_float_stats(r, w, form, scalar);
    } else {
        for (int i = 0; i < 4; i++) {
            write_key(w, names[i]);
            msp_json_write_null(w);
        }
    }
}

/* What follows the statistics in the frame, but is partly written before them. */
static void
read_texts(record_reader *r, record_tensor *t)
{
    const uint32_t flags = t->head.flags;

    t->type = flags & TENSOR_TYPE ? msp_record_read_text(r) : MSP_STR("torch.Tensor");
    t->dtype =
        flags & TENSOR_DTYPE ? msp_record_read_text(r) : msp_str_of(msp_dtype_torch_name((msp_dtype)t->head.dtype));
    t->file = flags & TENSOR_FILE ? msp_record_read_text(r) : (msp_str){0};
    t->why = flags & TENSOR_WHY ? msp_record_read_text(r) : (msp_str){0};
    if (t->type.len + t->dtype.len + t->file.len + t->why.len > TENSOR_TEXTS_MAX)
        r->bad = true;
}

static void
read_values(record_reader *r, record_tensor *t)
{
    int64_t n = t->head.flags & TENSOR_VALUES ? msp_record_read_i64(r) : 0;

    t->nbytes = (size_t)n;
    t->values = t->head.flags & TENSOR_VALUES ? take_bytes(r, (size_t)n) : NULL;
}

bool
msp_record_read_tensor(record_reader *r, record_tensor *t)
{
    const void *p;

    r->p--; /* the token byte is part of the head */
    p = take_bytes(r, sizeof(t->head));
    if (p == NULL)
        return false;
    memcpy(&t->head, p, sizeof(t->head));
    t->shape = *r;
    take_bytes(r, (size_t)t->head.ndim * 8);
    t->stats = *r;
    take_bytes(r, t->head.form == STATS_NONE ? 0 : 4 * 8);
    if (t->head.dtype >= MSP_DTYPE_COUNT || t->head.form > STATS_LOST)
        r->bad = true;
    if ((t->head.flags & TENSOR_WAITS) && t->head.form != STATS_NONE)
        t->head.form = STATS_LOST; /* what stands there is a ticket */
    if (r->bad)
        return false;
    read_texts(r, t);
    read_values(r, t);
    return !r->bad;
}

static void
write_notes(msp_json_writer *w, const record_tensor *t)
{
    if (t->head.flags & TENSOR_WHY) {
        write_key(w, "note");
        msp_json_write_string(w, t->why);
    } else if (t->head.flags & TENSOR_WAITS) {
        write_key(w, "note");
        msp_json_write_string(w, MSP_STR("statistics not fetched from the device"));
    }
}

static bool
write_tensor(record_reader *r, msp_json_writer *w, bool *open)
{
    record_tensor t;
    char crc[9];

    if (!msp_record_read_tensor(r, &t))
        return false;
    msp_json_begin_object(w);
    write_key(w, "type");
    msp_json_write_string(w, t.type);
    write_key(w, "dtype");
    msp_json_write_string(w, t.dtype);
    write_key(w, "shape");
    msp_json_begin_array(w);
    for (int i = 0; i < t.head.ndim; i++)
        msp_json_write_i64(w, msp_record_read_i64(&t.shape));
    msp_json_end_array(w);
    write_stats(&t.stats, w, (tensor_stats_form)t.head.form, t.head.ndim == 0);
    if (!msp_str_starts(t.type, MSP_STR("mindspore."))) { /* its tensors have no such attribute */
        write_key(w, "requires_grad");
        msp_json_write_bool(w, (t.head.flags & TENSOR_GRAD) != 0);
    }
    if (t.head.flags & TENSOR_FILE) {
        write_key(w, "data_name");
        msp_json_write_string(w, t.file);
    }
    if (t.head.flags & TENSOR_CRC) {
        snprintf(crc, sizeof(crc), "%08x", t.head.crc);
        write_key(w, "md5");
        msp_json_write_string(w, msp_str_of(crc));
    }
    write_notes(w, &t);
    *open = (t.head.flags & TENSOR_OPEN) != 0;
    if (!*open)
        msp_json_end_object(w);
    return true;
}

/* A scalar value for the token t; false when it is none. */
static bool
write_scalar(record_reader *r, msp_json_writer *w, int t)
{
    switch (t) {
    case TOKEN_NULL:
        msp_json_write_null(w);
        return true;
    case TOKEN_TRUE:
    case TOKEN_FALSE:
        msp_json_write_bool(w, t == TOKEN_TRUE);
        return true;
    case TOKEN_INT:
        msp_json_write_i64(w, msp_record_read_i64(r));
        return true;
    case TOKEN_FLOAT:
        msp_json_write_f64(w, msp_record_read_f64(r));
        return true;
    case TOKEN_TEXT:
        msp_json_write_string(w, msp_record_read_text(r));
        return true;
    default:
        return false;
    }
}

bool
msp_record_to_json(record_reader *r, msp_json_writer *w)
{
    char is_object[MAX_DEPTH];
    /* a byte of a damaged record can become hundreds of characters; a buffer takes half as much again as its text */
    const size_t limit = w->out->len + (size_t)(r->end - r->p) / 2 + msp_reader_extra() / 4;
    bool want_key = false; /* in an object, and no key has been read */
    int depth = 0;

    do {
        int t = msp_record_read_byte(r);
        bool open = false;

        if (r->bad || w->out->len > limit)
            return false;
        if (t == TOKEN_END) {
            if (depth == 0 || (is_object[depth - 1] && !want_key))
                return false;
            is_object[--depth] ? msp_json_end_object(w) : msp_json_end_array(w);
        } else if (t == TOKEN_KEY) {
            if (!want_key)
                return false;
            msp_json_write_key(w, msp_record_read_text(r));
            want_key = false;
            continue;
        } else if (want_key) {
            return false;
        } else if (t == TOKEN_OBJECT || t == TOKEN_ARRAY) {
            if (depth == MAX_DEPTH)
                return false;
            is_object[depth++] = t == TOKEN_OBJECT;
            t == TOKEN_OBJECT ? msp_json_begin_object(w) : msp_json_begin_array(w);
        } else if (t == TOKEN_TENSOR) {
            if (!write_tensor(r, w, &open) || (open && depth == MAX_DEPTH))
                return false;
            if (open)
                is_object[depth++] = 1;
        } else if (!write_scalar(r, w, t)) {
            return false;
        }
        want_key = depth > 0 && is_object[depth - 1];
    } while (depth > 0);
    return !r->bad;
}
