/* evidence_read.c - see evidence_read.h. One line at a time, each a JSON document of its own. */
#include "dump/evidence_read.h"

#include <math.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/vec.h"
#include "text/json.h"

static bool
keep_text(msp_str *out, msp_measurements *m, const msp_json *v)
{
    msp_str s = msp_json_string(v);
    char *p = s.len == 0 ? NULL : msp_arena_text(&m->arena, s.p, s.len);

    *out = (msp_str){p, p == NULL ? 0 : s.len};
    return s.len == 0 || p != NULL;
}

static double
number_of(const msp_json *side, const char *key)
{
    double v;

    return msp_json_to_f64(msp_json_get(side, key), &v) ? v : NAN;
}

static int64_t
integer_of(const msp_json *side, const char *key, int64_t least)
{
    int64_t v;

    return msp_json_to_i64(msp_json_get(side, key), &v) && v >= least ? v : least;
}

/* False for a side that is no measurement. */
static bool
read_side(msp_local *l, const msp_json *v)
{
    msp_str type = msp_json_string(msp_json_get(v, "dtype"));
    int64_t shape = integer_of(v, "shape", 0);

    if (msp_json_kind_of(v) != MSP_JSON_OBJECT || shape >= MSP_SHAPE_COUNT)
        return false;
    *l = (msp_local){.dtype = msp_dtype_parse(type.p, type.len),
                     .count = integer_of(v, "count", 0),
                     .differ = integer_of(v, "differ", 0),
                     .bad = integer_of(v, "bad", 0),
                     .rms = number_of(v, "rms"),
                     .max = number_of(v, "max"),
                     .tight = number_of(v, "tight"),
                     .max_index = integer_of(v, "max_index", -1),
                     .bias = number_of(v, "bias"),
                     .spread = number_of(v, "spread"),
                     .biased = integer_of(v, "biased", 0),
                     .away = number_of(v, "away"),
                     .toward = number_of(v, "toward"),
                     .slope = number_of(v, "slope"),
                     .value_rms = number_of(v, "value_rms"),
                     .error_rms = number_of(v, "error_rms"),
                     .scale_rms = number_of(v, "scale_rms"),
                     .inverse_rms = number_of(v, "inverse_rms"),
                     .shape = (msp_error_shape)shape,
                     .first = integer_of(v, "first", -1),
                     .last = integer_of(v, "last", -1),
                     .wrong = integer_of(v, "wrong", 0),
                     .period = integer_of(v, "period", 0),
                     .value = number_of(v, "value")};
    return true;
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static msp_status
read_results(msp_measurements *m, msp_measured_call *call, const msp_json *list, msp_error *err)
{
    for (size_t i = 0; i < msp_json_count(list); i++) {
        const msp_json *v = msp_json_at(list, i);
        msp_measured *r;

        if (!msp_vec_grow((void **)&m->results, &m->cap_results, m->nresults + 1, sizeof(*r)))
            return no_memory(err);
        r = &m->results[m->nresults];
        *r = (msp_measured){.inherited = number_of(v, "inherited")};
        r->has[0] = read_side(&r->side[0], msp_json_get(v, "npu"));
        r->has[1] = read_side(&r->side[1], msp_json_get(v, "bench"));
        if (!keep_text(&r->at, m, msp_json_get(v, "at")))
            return no_memory(err);
        if (r->at.len == 0 || (!r->has[0] && !r->has[1]))
            return msp_error_set(err, MSP_E_FORMAT, "a result without a place or a measurement");
        m->nresults++;
        call->count++;
    }
    return MSP_OK;
}

static msp_status
read_call(msp_measurements *m, const msp_json *v, msp_error *err)
{
    msp_measured_call call = {.first = m->nresults};
    msp_status st;

    if (msp_json_kind_of(msp_json_get(v, "call")) != MSP_JSON_STRING ||
        msp_json_kind_of(msp_json_get(v, "results")) != MSP_JSON_ARRAY)
        return msp_error_set(err, MSP_E_FORMAT, "no record of a call");
    if (!keep_text(&call.name, m, msp_json_get(v, "call")) || !keep_text(&call.reason, m, msp_json_get(v, "reason")) ||
        !msp_vec_grow((void **)&m->calls, &m->cap_calls, m->ncalls + 1, sizeof(call)))
        return no_memory(err);
    st = read_results(m, &call, msp_json_get(v, "results"), err);
    if (st == MSP_OK)
        m->calls[m->ncalls++] = call;
    return st;
}

static msp_status
read_head(const msp_json *v, msp_error *err)
{
    int64_t version;

    if (!msp_json_to_i64(msp_json_get(v, "msprobe_evidence"), &version))
        return msp_error_set(err, MSP_E_FORMAT, "no file of measurements: it has no msprobe_evidence");
    if (version != 1)
        return msp_error_set(err, MSP_E_FORMAT, "measurements of version %lld; this program reads version 1",
                             (long long)version);
    return MSP_OK;
}

msp_status
msp_measurements_parse(msp_measurements *m, const char *text, size_t size, msp_error *err)
{
    msp_status st = size == 0 ? msp_error_set(err, MSP_E_FORMAT, "an empty file of measurements") : MSP_OK;
    int64_t line = 0;
    size_t at = 0;

    while (st == MSP_OK && at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end == NULL ? size - at : (size_t)(end - (text + at));
        msp_json_doc doc;

        line++;
        st = msp_json_parse(&doc, text + at, len, err);
        if (st == MSP_OK) {
            st = line == 1 ? read_head(doc.root, err) : read_call(m, doc.root, err);
            msp_json_doc_release(&doc);
        }
        if (st != MSP_OK)
            st = msp_error_prefix(err, st, "measurement %lld: ", (long long)line);
        at += len + 1;
    }
    return st;
}

msp_status
msp_measurements_read(msp_measurements *m, const char *path, msp_error *err)
{
    msp_mapping map = {0};
    msp_status st = msp_map_open(&map, path, err);

    if (st != MSP_OK)
        return st;
    st = msp_measurements_parse(m, map.addr, map.size, err);
    msp_map_close(&map);
    return st == MSP_OK ? st : msp_error_prefix(err, st, "%s: ", path);
}

void
msp_measurements_release(msp_measurements *m)
{
    msp_arena_release(&m->arena);
    msp_free(m->calls);
    msp_free(m->results);
    *m = (msp_measurements){0};
}
