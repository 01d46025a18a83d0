/* name_map.c - see name_map.h. */
#include "compare/match/name_map.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "dump/dump_read.h"
#include "text/yaml.h"

enum { MAX_BYTES = 64 << 20 };

static msp_status
read_names(msp_name_map *m, msp_error *err)
{
    const msp_json *root = m->doc.root;
    size_t n = msp_json_count(root);

    if (msp_json_kind_of(root) != MSP_JSON_OBJECT || n == 0)
        return msp_error_set(err, MSP_E_INVALID,
                             "must hold lines \"NPU name: bench name\", such as "
                             "Functional.relu.0.forward.input.0: Functional.relu.1.forward.input.0");
    for (size_t i = 0; i < n; i++) {
        msp_str key = msp_json_key(root, i);
        msp_map_entry *e;

        if (msp_json_kind_of(msp_json_at(root, i)) != MSP_JSON_STRING)
            return msp_error_set(err, MSP_E_INVALID, "the value of %.*s must be the name of a bench row", (int)key.len,
                                 key.p);
        e = msp_map_put(&m->names, key, (int64_t)i, NULL);
        if (e == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
        e->value = (int64_t)i;
    }
    m->use = msp_alloc_zero(m->names.count, sizeof(*m->use));
    return m->use == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

msp_status
msp_name_map_load(msp_name_map *out, const char *path, msp_error *err)
{
    size_t size;
    msp_status st;

    *out = (msp_name_map){0};
    st = msp_dump_check_owner(path, err);
    if (st == MSP_OK)
        st = msp_file_read(&out->text, &size, path, MAX_BYTES, err);
    if (st != MSP_OK)
        return st;
    st = msp_yaml_parse(&out->doc, out->text, size, err);
    if (st == MSP_OK)
        st = read_names(out, err);
    if (st != MSP_OK) {
        msp_error_prefix(err, st, "%s: ", path);
        msp_name_map_release(out);
    }
    return st;
}

void
msp_name_map_release(msp_name_map *m)
{
    msp_map_release(&m->names);
    msp_json_doc_release(&m->doc);
    msp_free(m->text);
    msp_free(m->use);
    *m = (msp_name_map){0};
}

msp_str
msp_name_map_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx)
{
    const msp_name_map *m = ctx;
    msp_str name = msp_row_name(row);
    msp_map_entry *e = msp_map_get(&m->names, name);

    (void)npu;
    (void)scratch;
    return e == NULL ? name : msp_json_string(msp_json_at(m->doc.root, (size_t)e->value));
}

/* ---- lines without effect ---------------------------------------------------------------------------------------- */

typedef enum line_use { LINE_UNUSED = 0, LINE_ALONE, LINE_PAIRED } line_use;

void
msp_name_map_note(msp_name_map *m, const msp_rows *npu, const msp_match *match)
{
    atomic_store(&m->is_used, true);
    for (size_t i = 0; i < match->count; i++) {
        const msp_map_entry *e = msp_map_get(&m->names, msp_row_name(&npu->rows[i]));
        unsigned char found = match->bench[i] == MATCH_NONE ? LINE_ALONE : LINE_PAIRED, known;

        if (e == NULL)
            continue;
        known = atomic_load(&m->use[e - m->names.entries]);
        while (known < found && !atomic_compare_exchange_weak(&m->use[e - m->names.entries], &known, found))
            ;
    }
}

static void
warn_line(const msp_name_map *m, const msp_compare_options *opt, const msp_map_entry *e, line_use use)
{
    msp_str bench = msp_json_string(msp_json_at(m->doc.root, (size_t)e->value));

    if (use == LINE_UNUSED)
        msp_warning("%s: %.*s is no row of %s: its line has no effect", opt->data_mapping, (int)e->key.len, e->key.p,
                    opt->npu_path);
    else
        msp_warning("%s: %.*s is no row of %s: %.*s stays without partner", opt->data_mapping, (int)bench.len, bench.p,
                    opt->bench_path, (int)e->key.len, e->key.p);
}

/* N/A is what -lm writes for a row that has none. */
static bool
wants_partner(const msp_name_map *m, const msp_map_entry *e)
{
    return !msp_str_eq(msp_json_string(msp_json_at(m->doc.root, (size_t)e->value)), MSP_STR("N/A"));
}

void
msp_name_map_warn(const msp_name_map *m, const msp_compare_options *opt)
{
    enum { SHOWN = 5 };
    size_t wrong = 0;

    for (size_t i = 0; m->is_used && i < m->names.count; i++)
        if (m->use[i] != LINE_PAIRED && wants_partner(m, &m->names.entries[i]) && wrong++ < SHOWN)
            warn_line(m, opt, &m->names.entries[i], m->use[i]);
    if (wrong > SHOWN)
        msp_warning("%s: %zu more lines name rows that are not there", opt->data_mapping, wrong - SHOWN);
}
