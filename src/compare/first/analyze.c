/* analyze.c - the report of the first-difference analysis: see analyze.h. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "compare/first/node.h"
#include "core/alloc.h"
#include "core/log.h"
#include "core/path.h"

/* ---- the report ---------------------------------------------------------------------------------------------- */

static void
write_item(msp_json_writer *w, const msp_json *item, msp_compare_mode mode)
{
    static const char *const stats[] = {"NPU max", "NPU min", "NPU mean", "NPU l2norm", "NPU P2POp peer"};
    static const char *const md5[] = {"NPU MD5", "NPU P2POp peer"};
    const char *const *keys = mode == MSP_MODE_MD5 ? md5 : stats;
    size_t n = mode == MSP_MODE_MD5 ? 2 : 5;

    msp_json_write_key(w, msp_json_string(msp_json_get(item, "NPU Name")));
    msp_json_begin_object(w);
    for (size_t i = 0; i < n; i++) {
        msp_json_write_key(w, msp_str_of(keys[i]));
        msp_json_write_value(w, msp_json_get(item, keys[i]));
    }
    msp_json_end_object(w);
}

static void
write_state(msp_json_writer *w, const msp_json *items, const char *state, msp_compare_mode mode)
{
    msp_json_write_key(w, msp_str_of(state));
    msp_json_begin_object(w);
    for (size_t i = 0; i < msp_json_count(items); i++) {
        const msp_json *item = msp_json_at(items, i);

        if (msp_str_eq(msp_json_string(msp_json_get(item, "state")), msp_str_of(state)))
            write_item(w, item, mode);
    }
    msp_json_end_object(w);
}

/* The call in the result that callers see. */
static msp_status
add_first(msp_compare_result *out, const msp_da_rank *r, msp_str name, const msp_json *stack, msp_error *err)
{
    size_t n = msp_json_kind_of(stack) == MSP_JSON_ARRAY ? msp_json_count(stack) : 0;
    msp_compare_first *grown = msp_realloc(out->first, out->nfirst + 1, sizeof(*grown)), *f;

    if (grown == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    out->first = grown;
    f = &grown[out->nfirst++];
    *f = (msp_compare_first){.step = MSP_DUMP_NO_NUMBER, .rank = r->given, .op_name = msp_str_copy(name)};
    f->stack = msp_alloc_zero(n, sizeof(*f->stack));
    if (f->op_name == NULL || f->stack == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (; f->nstack < n; f->nstack++) {
        f->stack[f->nstack] = msp_str_copy(msp_json_string(msp_json_at(stack, f->nstack)));
        if (f->stack[f->nstack] == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    return MSP_OK;
}

/* The call's rows are read back from the rank's file: keeping them all in memory would cost more than this saves. */
static msp_status
write_call(msp_json_writer *w, msp_compare_result *out, const msp_da_rank *r, const msp_da_op *op,
           const msp_mapping *map, msp_error *err)
{
    msp_json_doc doc;
    const msp_json *items, *stack;
    msp_status st;

    if (op->offset > map->size || op->len > map->size - op->offset)
        return msp_error_set(err, MSP_E_FORMAT, "%s: changed while it was read", r->path);
    st = msp_json_parse(&doc, (const char *)map->addr + op->offset, op->len, err);
    if (st != MSP_OK)
        return msp_error_prefix(err, st, "%s: ", r->path);
    items = msp_json_get(doc.root, "op_items");
    stack = msp_json_get(msp_json_at(items, 0), "NPU_Stack_Info");
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("op_name"));
    msp_json_write_string(w, op->name);
    msp_json_write_key(w, MSP_STR("data_info"));
    msp_json_begin_object(w);
    write_state(w, items, "input", r->mode);
    write_state(w, items, "output", r->mode);
    msp_json_end_object(w);
    msp_json_write_key(w, MSP_STR("stack_info"));
    if (msp_json_kind_of(stack) == MSP_JSON_ARRAY)
        msp_json_write_value(w, stack);
    else
        msp_json_write_null(w);
    msp_json_end_object(w);
    st = add_first(out, r, op->name, stack, err);
    msp_json_doc_release(&doc);
    return st;
}

/* The findings of one rank, which stand together in f. */
static msp_status
write_rank(msp_json_writer *w, msp_compare_result *out, const msp_da_rank *r, const msp_da_found *items, size_t n,
           msp_error *err)
{
    msp_mapping map = {0};
    char key[32];
    msp_status st = msp_map_open(&map, r->path, err);

    snprintf(key, sizeof(key), "rank_%lld", (long long)r->rank);
    msp_json_write_key(w, msp_str_of(key));
    msp_json_begin_array(w);
    for (size_t i = 0; st == MSP_OK && i < n; i++)
        st = write_call(w, out, r, items[i].op, &map, err);
    msp_json_end_array(w);
    msp_map_close(&map);
    return st;
}

static msp_status
write_findings(msp_buf *buf, msp_compare_result *out, msp_da_rank *const *ranks, const msp_da_findings *f,
               msp_error *err)
{
    msp_json_writer w;
    msp_status st = MSP_OK;

    msp_json_writer_init(&w, buf, 2);
    msp_json_begin_object(&w);
    for (size_t i = 0; st == MSP_OK && i < f->count;) {
        size_t n = 1;

        while (i + n < f->count && f->items[i + n].rank == f->items[i].rank)
            n++;
        st = write_rank(&w, out, ranks[f->items[i].rank], &f->items[i], n, err);
        i += n;
    }
    msp_json_end_object(&w);
    return st == MSP_OK ? msp_buf_status(buf, err) : st;
}

/* diff_analyze_<nanoseconds>.json; a name that is taken counts on. */
static char *
report_path(const char *dir)
{
    struct timespec t;
    long long ns;
    char name[64];

    clock_gettime(CLOCK_REALTIME, &t);
    ns = (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
    for (;; ns++) {
        char *path;

        snprintf(name, sizeof(name), "diff_analyze_%lld.json", ns);
        path = msp_path_join(dir, name);
        if (path == NULL || msp_path_kind_of(path) == MSP_PATH_NONE)
            return path;
        msp_free(path);
    }
}

static msp_status
add_file(msp_compare_result *out, char *path_take, msp_error *err)
{
    char **grown = msp_realloc(out->files, out->nfiles + 1, sizeof(*grown));

    if (grown == NULL) {
        msp_free(path_take);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    out->files = grown;
    out->files[out->nfiles++] = path_take;
    return MSP_OK;
}

static msp_status
write_report(msp_compare_result *out, msp_da_rank *const *ranks, const msp_da_findings *f, const char *dir,
             msp_error *err)
{
    msp_buf buf = {0};
    char *path = report_path(dir);
    msp_status st = path == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;

    if (st == MSP_OK)
        st = write_findings(&buf, out, ranks, f, err);
    if (st == MSP_OK)
        st = msp_file_save(path, buf.p, buf.len, 0640, err);
    if (st == MSP_OK) {
        st = add_file(out, path, err);
        path = NULL;
    }
    msp_buf_release(&buf);
    msp_free(path);
    return st;
}

static int
by_rank(const void *a, const void *b)
{
    const msp_da_rank *x = *(msp_da_rank *const *)a, *y = *(msp_da_rank *const *)b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

msp_status
msp_da_run(msp_compare_result *out, msp_da_rank *const *ranks, size_t nranks, const char *output_dir, msp_error *err)
{
    msp_da_rank **sorted = msp_alloc(nranks, sizeof(*sorted));
    msp_da_findings f = {0};
    const char *stage = NULL;
    size_t n = 0;
    msp_status st;

    if (sorted == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < nranks; i++)
        if (ranks[i] != NULL)
            sorted[n++] = ranks[i];
    qsort(sorted, n, sizeof(*sorted), by_rank);
    st = msp_da_search(&f, &stage, sorted, n, err);
    if (st == MSP_OK && f.count == 0)
        msp_info("Cannot find any diff node, no need to generate analyze file.");
    if (st == MSP_OK && f.count > 0) {
        size_t before = out->nfirst;

        st = write_report(out, sorted, &f, output_dir, err);
        for (size_t i = before; i < out->nfirst; i++)
            out->first[i].stage = stage;
        if (out->first_stage == NULL)
            out->first_stage = stage;
    }
    msp_free(f.items);
    msp_free(sorted);
    return st;
}
