/* evidence.c - writes measurements of calls: one JSON object a line (msprobe/local.h says which). */
#include <errno.h>
#include <stdio.h>
#include "core/alloc.h"
#include "text/json.h"
#include "msprobe/local.h"

enum { FLUSH_BYTES = 1 << 16 };

struct msp_evidence_writer {
    FILE *file;
    msp_buf text;
    msp_json_writer json;
    bool open; /* a call's list of results waits for more */
};

msp_status
msp_evidence_create(msp_evidence_writer **out, const char *path, msp_error *err)
{
    msp_evidence_writer *w = msp_alloc_zero(1, sizeof(*w));

    *out = NULL;
    if (w == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    w->file = fopen(path, "wbe");
    if (w->file == NULL) {
        msp_free(w);
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot be written", path);
    }
    msp_buf_text(&w->text, "{\"msprobe_evidence\": 1}\n");
    *out = w;
    return MSP_OK;
}

static msp_status
flush_lines(msp_evidence_writer *w, size_t limit, msp_error *err)
{
    if (w->text.failed)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (w->text.len <= limit)
        return MSP_OK;
    if (fwrite(w->text.p, 1, w->text.len, w->file) != w->text.len)
        return msp_error_set_errno(err, MSP_E_IO, errno, "the measurements cannot be written");
    msp_buf_clear(&w->text);
    return MSP_OK;
}

static void
end_call(msp_evidence_writer *w)
{
    if (!w->open)
        return;
    msp_json_end_array(&w->json);
    msp_json_end_object(&w->json);
    msp_buf_char(&w->text, '\n');
    w->open = false;
}

msp_status
msp_evidence_call(msp_evidence_writer *w, const char *name, const char *reason, msp_error *err)
{
    msp_status st;

    end_call(w);
    st = flush_lines(w, FLUSH_BYTES, err);
    if (st != MSP_OK)
        return st;
    msp_json_writer_init(&w->json, &w->text, -1);
    msp_json_begin_object(&w->json);
    msp_json_write_key(&w->json, MSP_STR("call"));
    msp_json_write_string(&w->json, msp_str_of(name));
    msp_json_write_key(&w->json, MSP_STR("reason"));
    if (reason != NULL)
        msp_json_write_string(&w->json, msp_str_of(reason));
    else
        msp_json_write_null(&w->json);
    msp_json_write_key(&w->json, MSP_STR("results"));
    msp_json_begin_array(&w->json);
    w->open = true;
    return MSP_OK;
}

static void
write_int(msp_json_writer *w, const char *key, int64_t v)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_write_i64(w, v);
}

static void
write_number(msp_json_writer *w, const char *key, double v)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_write_f64(w, v);
}

static void
write_side(msp_json_writer *j, const char *key, const msp_local *l)
{
    msp_json_write_key(j, msp_str_of(key));
    if (l == NULL) {
        msp_json_write_null(j);
        return;
    }
    msp_json_begin_object(j);
    msp_json_write_key(j, MSP_STR("dtype"));
    msp_json_write_string(j, msp_str_of(msp_dtype_torch_name(l->dtype)));
    write_int(j, "count", l->count);
    write_int(j, "differ", l->differ);
    write_int(j, "bad", l->bad);
    write_number(j, "rms", l->rms);
    write_number(j, "max", l->max);
    write_number(j, "tight", l->tight);
    write_int(j, "max_index", l->max_index);
    write_number(j, "bias", l->bias);
    write_number(j, "spread", l->spread);
    write_int(j, "biased", l->biased);
    write_number(j, "away", l->away);
    write_number(j, "toward", l->toward);
    write_number(j, "slope", l->slope);
    write_number(j, "value_rms", l->value_rms);
    write_number(j, "error_rms", l->error_rms);
    write_number(j, "scale_rms", l->scale_rms);
    write_number(j, "inverse_rms", l->inverse_rms);
    write_int(j, "shape", l->shape);
    write_int(j, "first", l->first);
    write_int(j, "last", l->last);
    write_int(j, "wrong", l->wrong);
    write_int(j, "period", l->period);
    write_number(j, "value", l->value);
    msp_json_end_object(j);
}

msp_status
msp_evidence_result(msp_evidence_writer *w, const char *at, const msp_local *const side[2], double inherited,
                    msp_error *err)
{
    msp_json_writer *j = &w->json;

    if (!w->open)
        return msp_error_set(err, MSP_E_INVALID, "a result without a call");
    msp_json_begin_object(j);
    msp_json_write_key(j, MSP_STR("at"));
    msp_json_write_string(j, msp_str_of(at));
    write_number(j, "inherited", inherited);
    write_side(j, "npu", side[0]);
    write_side(j, "bench", side[1]);
    msp_json_end_object(j);
    return MSP_OK;
}

msp_status
msp_evidence_close(msp_evidence_writer *w, msp_error *err)
{
    msp_status st;

    if (w == NULL)
        return MSP_OK;
    end_call(w);
    st = flush_lines(w, 0, err);
    if (fclose(w->file) != 0 && st == MSP_OK)
        st = msp_error_set_errno(err, MSP_E_IO, errno, "the measurements cannot be written");
    msp_buf_release(&w->text);
    msp_free(w);
    return st;
}
