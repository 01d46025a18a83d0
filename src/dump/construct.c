/* construct.c - see construct.h. */
#include "dump/construct.h"

#include <fcntl.h>
#include "core/alloc.h"
#include "core/path.h"

static msp_status
read_members(msp_construct *c, msp_error *err)
{
    msp_status st = msp_json_parse(&c->doc, c->map.addr, c->map.size, err);

    if (st == MSP_OK && msp_json_kind_of(c->doc.root) == MSP_JSON_OBJECT)
        c->count = msp_json_count(c->doc.root);
    for (size_t i = 0; st == MSP_OK && i < c->count; i++)
        if (msp_map_put(&c->members, msp_json_key(c->doc.root, i), (int64_t)i, NULL) == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return st;
}

msp_status
msp_construct_open(msp_construct *out, const char *dump_path, msp_error *err)
{
    char *path = msp_path_beside(dump_path, "construct.json");
    msp_status st;

    *out = (msp_construct){0};
    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = msp_map_open(&out->map, path, err);
    if (st == MSP_OK) {
        st = read_members(out, err);
        if (st != MSP_OK)
            msp_error_prefix(err, st, "%s: ", path);
        st = msp_map_blame(&out->map, AT_FDCWD, path, st, err);
    }
    msp_free(path);
    return st;
}

bool
msp_construct_open_if_any(msp_construct *out, const char *dump_path)
{
    msp_status st = msp_construct_open(out, dump_path, NULL);

    if (st != MSP_OK)
        msp_construct_close(out);
    return st != MSP_E_NOMEM;
}

msp_str
msp_construct_name(const msp_construct *c, size_t i)
{
    return msp_json_key(c->doc.root, i);
}

/* A parent is a name, [name, micro step] or null. */
msp_str
msp_construct_parent_at(const msp_construct *c, size_t i)
{
    const msp_json *v = msp_json_at(c->doc.root, i);

    if (msp_json_kind_of(v) == MSP_JSON_ARRAY && msp_json_count(v) > 0)
        v = msp_json_at(v, 0);
    return msp_json_kind_of(v) == MSP_JSON_STRING ? msp_json_string(v) : MSP_STR("");
}

msp_str
msp_construct_parent(const msp_construct *c, msp_str name)
{
    const msp_map_entry *e = msp_map_get(&c->members, name);

    return e == NULL ? MSP_STR("") : msp_construct_parent_at(c, (size_t)e->value);
}

void
msp_construct_close(msp_construct *c)
{
    msp_map_release(&c->members);
    msp_json_doc_release(&c->doc);
    msp_map_close(&c->map);
    *c = (msp_construct){0};
}
