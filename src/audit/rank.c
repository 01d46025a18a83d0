/* rank.c - one rank's dump.json and replicas.json: its communication calls, weights and gradients; its tensor files. */
#include "audit/record.h"

#include <stdio.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "dump/dump_read.h"
#include "io/tensor_file.h"
#include "msprobe/stats.h"

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static uint64_t
absorb(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;

    for (size_t i = 0; i < n; i++) /* FNV-1a: equal values, equal digest; nobody gains by a collision here */
        h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

static uint64_t
digest_of(msp_audit_rank *r, const msp_audit_tensor *t)
{
    uint64_t h = 0xcbf29ce484222325u;
    msp_tensor whole;
    msp_error err;

    h = absorb(h, &t->dtype, sizeof(t->dtype));
    h = absorb(h, t->shape, sizeof(t->shape[0]) * (size_t)t->ndim);
    h = absorb(h, t->md5.p, t->md5.len);
    h = t->has_stats ? absorb(h, t->stat, sizeof(t->stat)) : h;
    if (t->data_name.len > 0 && msp_audit_open_tensor(&whole, r, t, &err) == MSP_OK) {
        msp_fingerprint f = msp_fingerprint_of(&whole);

        h = absorb(h, &f, sizeof(f));
        if (msp_audit_is_cut(&whole, r, t))
            r->lost = msp_audit_keep(r, t->data_name);
        msp_tensor_release(&whole);
    }
    return h;
}

bool
msp_audit_add_weight(msp_audit_rank *r, msp_audit_weights *to, msp_str name, size_t at, const msp_json *v)
{
    msp_audit_tensor t;

    if (!msp_audit_is_tensor(v))
        return true;
    msp_audit_read_tensor(r, &t, v);
    if (!t.has_stats && t.md5.len == 0 && t.data_name.len == 0)
        return true;
    if (!msp_vec_grow((void **)&to->items, &to->cap, to->n + 1, sizeof(*to->items)) ||
        !msp_vec_grow((void **)&to->names, &to->names_cap, to->n + 1, sizeof(*to->names)))
        return false;
    to->names[to->n] = msp_audit_keep(r, name);
    to->items[to->n++] =
        (msp_audit_weight){.digest = digest_of(r, &t),
                           .numel = t.numel,
                           .record = at,
                           .is_constant = t.has_stats && t.stat[MSP_AUDIT_MAX] == t.stat[MSP_AUDIT_MIN],
                           .is_zero = t.has_stats && t.stat[MSP_AUDIT_MAX] == 0 && t.stat[MSP_AUDIT_MIN] == 0};
    return true;
}

/* {"weight": {...}} of a module's call, or {"weight": [{...}]} of its gradients. */
static bool
read_weights(msp_audit_rank *r, msp_audit_weights *to, msp_str name, size_t at, const msp_json *parameters)
{
    bool ok = true;

    if (msp_json_kind_of(parameters) != MSP_JSON_OBJECT)
        return true;
    for (size_t i = 0; i < msp_json_count(parameters) && ok; i++) {
        const msp_json *v = msp_json_at(parameters, i);
        msp_buf text = {0};

        msp_buf_str(&text, name);
        msp_buf_char(&text, '.');
        msp_buf_str(&text, msp_json_key(parameters, i));
        ok = !text.failed && msp_audit_add_weight(r, to, msp_buf_view(&text), at,
                                                  msp_json_kind_of(v) == MSP_JSON_ARRAY ? msp_json_at(v, 0) : v);
        msp_buf_release(&text);
    }
    return ok;
}

/* A parameter as an optimizer's step found it, and its gradient. DTensors say themselves who holds them too. */
bool
msp_audit_read_parameter(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record)
{
    static const char *const keys[] = {"parameter", "grad"};
    const bool is_applied = msp_json_kind_of(msp_json_get(record, "applied")) == MSP_JSON_TRUE;
    const msp_str group = msp_audit_keep(r, msp_json_string(msp_json_get(record, "group")));

    for (int i = 0; i < 2; i++) {
        msp_audit_weights *to = i == 0 ? &r->held : &r->applied;
        const msp_json *v = msp_json_get(record, keys[i]);
        const size_t n = to->n;

        if (msp_json_get(v, "placements") != NULL)
            continue;
        if (!msp_audit_add_weight(r, to, name, at, v))
            return false;
        if (to->n > n) {
            to->items[n].group = group;
            to->items[n].is_applied = is_applied;
        }
    }
    return !is_applied || msp_audit_read_dtensors(r, name, at, record);
}

bool
msp_audit_read_record(msp_audit_rank *r, msp_str name, size_t at, const msp_json *record)
{
    msp_str rest = name;

    if (!msp_audit_read_dtensors(r, name, at, record))
        return false;
    if (msp_str_eq(msp_str_shift(&rest), MSP_STR("Distributed")))
        return msp_audit_read_calls(r, name, msp_str_shift(&rest), at, record);
    if (msp_str_find(name, MSP_STR(".parameters_grad")) != NULL)
        return read_weights(r, &r->gradients, name, at, record);
    return read_weights(r, &r->weights, name, at, msp_json_get(record, "parameters"));
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool
is_of_interest(msp_str name, msp_str record)
{
    msp_str rest = name;

    return msp_str_eq(msp_str_shift(&rest), MSP_STR("Distributed")) ||
           msp_str_find(name, MSP_STR(".parameters_grad")) != NULL ||
           msp_str_find(record, MSP_STR("\"parameters\"")) != NULL ||
           msp_str_find(record, MSP_STR("\"Replicate\"")) != NULL;
}

static msp_status
read_record(msp_audit_rank *r, const msp_dump *d, size_t i, msp_error *err)
{
    char room[16384];
    msp_json_doc doc = {0};
    msp_str name = {0};
    bool ok = true;
    msp_status st;

    name.p = msp_dump_name(d, i, &name.len);
    if (!is_of_interest(name, msp_dump_record_text(d, i)))
        return MSP_OK;
    st = msp_dump_record(d, i, &doc, room, sizeof(room), err);
    if (st == MSP_OK)
        ok = msp_audit_read_record(r, name, i, doc.root);
    msp_json_doc_release(&doc);
    return ok ? st : msp_error_set(err, MSP_E_NOMEM, "no memory for the calls of rank %lld", (long long)r->rank);
}

/* What stands beside dump.json about the optimizer's step, where that was recorded. */
static msp_status
read_replicas(msp_audit_rank *r, msp_error *err)
{
    msp_str dir = msp_path_dir(r->place->path);
    msp_dump *d = NULL;
    msp_buf path = {0};
    msp_status st;
    bool ok = true;

    msp_buf_str(&path, dir);
    msp_buf_text(&path, "/replicas.json");
    st = msp_buf_status(&path, err);
    if (st == MSP_OK && msp_path_kind_of(path.p) == MSP_PATH_FILE)
        st = msp_dump_open(&d, path.p, err);
    for (size_t i = 0; d != NULL && st == MSP_OK && i < msp_dump_count(d); i++) {
        char room[16384];
        msp_json_doc doc = {0};
        msp_str name = {0};

        name.p = msp_dump_name(d, i, &name.len);
        st = msp_dump_record(d, i, &doc, room, sizeof(room), err);
        if (st == MSP_OK)
            ok = msp_audit_read_parameter(r, name, i, doc.root);
        msp_json_doc_release(&doc);
        if (!ok)
            st = msp_error_set(err, MSP_E_NOMEM, "no memory for the parameters of rank %lld", (long long)r->rank);
    }
    if (d != NULL && msp_dump_check(d, err) != MSP_OK)
        st = MSP_E_CHANGED;
    msp_dump_close(d);
    msp_buf_release(&path);
    return st;
}

msp_status
msp_audit_rank_read(msp_audit_rank *r, msp_error *err)
{
    msp_dump *d = NULL;
    msp_status st = msp_dump_open(&d, r->place->path, err);
    msp_str last = {0};

    if (st != MSP_OK)
        return st;
    r->records = msp_dump_count(d);
    r->cut = msp_dump_cut(d, NULL);
    for (size_t i = 0; st == MSP_OK && i < r->records; i++)
        st = read_record(r, d, i, err);
    if (r->records > 0)
        last.p = msp_dump_name(d, r->records - 1, &last.len);
    r->last = msp_audit_keep(r, last);
    if (st == MSP_OK && r->lost.len > 0)
        st = msp_audit_cut_error(r, r->lost, err);
    if (msp_dump_check(d, err) != MSP_OK)
        st = MSP_E_CHANGED;
    msp_dump_close(d);
    return st == MSP_OK ? read_replicas(r, err) : st;
}

static void
release_weights(msp_audit_weights *w)
{
    msp_free(w->items);
    msp_free(w->names);
}

void
msp_audit_rank_release(msp_audit_rank *r)
{
    msp_free(r->calls);
    msp_free(r->groups);
    release_weights(&r->weights);
    release_weights(&r->gradients);
    release_weights(&r->held);
    release_weights(&r->applied);
    release_weights(&r->replicated);
    msp_arena_release(&r->arena);
    *r = (msp_audit_rank){0};
}

static void
path_of(msp_buf *path, const msp_audit_rank *r, msp_str file)
{
    msp_str dir = msp_path_dir(r->place->path);

    msp_buf_str(path, dir);
    msp_buf_text(path, "/dump_tensor_data/");
    msp_buf_str(path, file);
}

bool
msp_audit_is_cut(const msp_tensor *view, const msp_audit_rank *r, const msp_audit_tensor *t)
{
    msp_buf path = {0};
    bool cut;

    path_of(&path, r, t->data_name);
    cut = !path.failed && msp_tensor_check_at(view, AT_FDCWD, path.p, NULL) != MSP_OK;
    msp_buf_release(&path);
    return cut;
}

msp_status
msp_audit_cut_error(const msp_audit_rank *r, msp_str file, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    path_of(&path, r, file);
    st = msp_error_set(err, MSP_E_CHANGED, "%s: was cut short while it was read: is it still being written or copied?",
                       path.failed ? "" : path.p);
    msp_buf_release(&path);
    return st;
}

msp_status
msp_audit_open_tensor(msp_tensor *out, const msp_audit_rank *r, const msp_audit_tensor *t, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    *out = (msp_tensor){0};
    if (t->data_name.len == 0 || memchr(t->data_name.p, '/', t->data_name.len) != NULL)
        return msp_error_set(err, MSP_E_NOT_FOUND, "no file is recorded");
    path_of(&path, r, t->data_name);
    st = msp_buf_status(&path, err);
    if (st == MSP_OK)
        st = msp_tensor_open(out, path.p, err);
    msp_buf_release(&path);
    return st;
}
