/* rank.c - one rank's dump.json: its communication calls, its weights and their gradients; its tensor files. */
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

static bool
read_weights(msp_audit_rank *r, msp_str name, size_t at, const msp_json *parameters)
{
    for (size_t i = 0; i < msp_json_count(parameters); i++) {
        const msp_json *v = msp_json_at(parameters, i);
        msp_audit_tensor t;
        msp_buf text = {0};

        if (!msp_audit_is_tensor(v))
            continue;
        msp_audit_read_tensor(r, &t, v);
        if (!t.has_stats && t.md5.len == 0 && t.data_name.len == 0)
            continue;
        if (!msp_vec_grow((void **)&r->weights, &r->weights_cap, r->nweights + 1, sizeof(*r->weights)) ||
            !msp_vec_grow((void **)&r->weight_names, &r->names_cap, r->nweights + 1, sizeof(*r->weight_names)))
            return false;
        msp_buf_str(&text, name);
        msp_buf_char(&text, '.');
        msp_buf_str(&text, msp_json_key(parameters, i));
        r->weight_names[r->nweights] = msp_audit_keep(r, msp_buf_view(&text));
        msp_buf_release(&text);
        r->weights[r->nweights++] = (msp_audit_weight){.digest = digest_of(r, &t), .numel = t.numel, .record = at};
    }
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static msp_status
read_record(msp_audit_rank *r, const msp_dump *d, size_t i, msp_error *err)
{
    char room[16384];
    msp_json_doc doc = {0};
    msp_str name = {0}, rest, kind;
    bool ok = true;
    msp_status st;

    name.p = msp_dump_name(d, i, &name.len);
    rest = name;
    kind = msp_str_shift(&rest);
    if (!msp_str_eq(kind, MSP_STR("Distributed")) &&
        msp_str_find(msp_dump_record_text(d, i), MSP_STR("\"parameters\"")) == NULL)
        return MSP_OK;
    st = msp_dump_record(d, i, &doc, room, sizeof(room), err);
    if (st == MSP_OK && msp_str_eq(kind, MSP_STR("Distributed")))
        ok = msp_audit_read_calls(r, name, msp_str_shift(&rest), i, doc.root);
    else if (st == MSP_OK)
        ok = read_weights(r, name, i, msp_json_get(doc.root, "parameters"));
    msp_json_doc_release(&doc);
    return ok ? st : msp_error_set(err, MSP_E_NOMEM, "no memory for the calls of rank %lld", (long long)r->rank);
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
    r->is_stuck = r->ncalls > 0 && !r->calls[r->ncalls - 1].is_finished;
    if (r->records > 0)
        last.p = msp_dump_name(d, r->records - 1, &last.len);
    r->last = msp_audit_keep(r, last);
    if (st == MSP_OK && r->lost.len > 0)
        st = msp_audit_cut_error(r, r->lost, err);
    if (msp_dump_check(d, err) != MSP_OK)
        st = MSP_E_CHANGED;
    msp_dump_close(d);
    return st;
}

void
msp_audit_rank_release(msp_audit_rank *r)
{
    msp_free(r->calls);
    msp_free(r->weights);
    msp_free(r->weight_names);
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
