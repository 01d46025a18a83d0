/*
 * pt.c - files that torch.save() wrote.
 *
 * Since torch 1.6 they are archives with one directory of any name: data.pkl, the pickle; data/<key>, the bytes of each
 * storage; byteorder, "little" or "big" (little when absent); version and others that matter to torch alone. The format
 * before, which torch.save(..., _use_new_zipfile_serialization=False) still writes, is a row of pickles (magic number,
 * protocol version, sizes of the writer's types, the object, the list of storage keys), then for every key the number
 * of elements as 8 bytes and the bytes themselves, always little-endian.
 */
#include "io/tensor_file.h"

#include "core/alloc.h"
#include "io/bytes.h"
#include "io/torch_one.h"
#include "io/torch_pickle.h"
#include "io/zip.h"

enum {
    DEPTH_MAX = 100,            /* dicts within lists within ... */
    NAME_MAX_BYTES = 64 * 1024, /* of a name joined from all of them */
    NAME_USUAL_BYTES = 64,      /* of a key; longer ones count as several steps */
    LEGACY_VERSION = 1001,
    TAR_MAGIC_AT = 257,
    STEPS_CONSTANT = 1 << 20
};

/* 0x1950a86a20f9469cfc6c, as LONG1 writes it */
static const unsigned char LEGACY_MAGIC[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

static bool
host_is_big_endian(void)
{
    const uint16_t one = 1;

    return *(const unsigned char *)&one == 0;
}

static bool
is_zip(const void *bytes, size_t size)
{
    return size >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

static bool
is_pickle(const void *bytes, size_t size)
{
    const unsigned char *p = bytes;

    return size >= 2 && p[0] == 0x80 && p[1] <= 5;
}

static bool
is_tar(const void *bytes, size_t size)
{
    return size > TAR_MAGIC_AT + 5 && memcmp((const char *)bytes + TAR_MAGIC_AT, "ustar", 5) == 0;
}

bool
msp_pt_is(const void *bytes, size_t size)
{
    return is_zip(bytes, size) || is_pickle(bytes, size) || is_tar(bytes, size);
}

/* ---- from the tree to named views ------------------------------------------------------------------------------- */

typedef struct walk {
    msp_tensor_file *file;
    msp_buf name;
    size_t steps; /* left; a list that is in a list twice is walked twice: this ends doublings of doublings */
    msp_error *err;
} walk;

static msp_status
make_view(msp_torch_tensor *t, msp_tensor_file *f, msp_error *err)
{
    msp_tensor *v;
    msp_status st = msp_tensor_file_new_view(&v, f, err);

    if (st != MSP_OK)
        return st;
    v->data = t->numel > 0 ? (const char *)t->blob->data + t->offset : NULL;
    v->dtype = t->dtype;
    v->ndim = t->ndim;
    v->requires_grad = t->requires_grad;
    v->numel = t->numel;
    if (t->ndim > 0) {
        memcpy(v->shape, t->shape, (size_t)t->ndim * sizeof(*t->shape));
        memcpy(v->strides, t->strides, (size_t)t->ndim * sizeof(*t->strides));
    }
    t->view = v;
    return MSP_OK;
}

static msp_status
add_tensor(walk *w, msp_torch_tensor *t)
{
    msp_status st = msp_buf_status(&w->name, w->err);

    if (st == MSP_OK && t->view == NULL)
        st = make_view(t, w->file, w->err);
    return st == MSP_OK ? msp_tensor_file_add(w->file, msp_buf_view(&w->name), t->view, w->err) : st;
}

static msp_status walk_value(walk *w, msp_pickle_value v, int depth);

/* The value with ".key" added to the name. Keys that are neither text nor number are known by their position. */
static msp_status
walk_child(walk *w, const msp_pickle_value *key, size_t index, msp_pickle_value v, int depth)
{
    size_t len = w->name.len, cost;
    msp_status st;

    if (len > 0)
        msp_buf_char(&w->name, '.');
    if (key == NULL)
        msp_buf_printf(&w->name, "%zu", index);
    else if (key->kind == MSP_PICKLE_TEXT)
        msp_buf_add(&w->name, key->as.text, key->len > NAME_MAX_BYTES ? NAME_MAX_BYTES + 1 : key->len);
    else if (key->kind == MSP_PICKLE_INT)
        msp_buf_printf(&w->name, "%lld", (long long)key->as.integer);
    else
        msp_buf_printf(&w->name, "#%zu", index);
    if (w->name.len > NAME_MAX_BYTES)
        return msp_error_set(w->err, MSP_E_LIMIT, "a tensor's name of more than %d bytes", NAME_MAX_BYTES);
    cost = 1 + (w->name.len - len) / NAME_USUAL_BYTES;
    if (w->steps < cost)
        return msp_error_set(w->err, MSP_E_LIMIT, "lists within lists unfold to more values than the file has bytes");
    w->steps -= cost;
    st = walk_value(w, v, depth + 1);
    if (w->name.p != NULL)
        w->name.p[w->name.len = len] = '\0';
    return st;
}

static msp_status
walk_value(walk *w, msp_pickle_value v, int depth)
{
    msp_torch_tensor *t = msp_torch_tensor_of(v);
    msp_status st = MSP_OK;

    if (t != NULL)
        return add_tensor(w, t);
    if (v.kind != MSP_PICKLE_TUPLE && v.kind != MSP_PICKLE_LIST && v.kind != MSP_PICKLE_DICT)
        return MSP_OK;
    if (depth >= DEPTH_MAX)
        return msp_error_set(w->err, MSP_E_LIMIT, "dicts and lists nested deeper than %d, or within themselves",
                             DEPTH_MAX);
    if (v.kind == MSP_PICKLE_TUPLE) {
        for (size_t i = 0; st == MSP_OK && i < v.len; i++)
            st = walk_child(w, NULL, i, v.as.items[i], depth);
    } else if (v.kind == MSP_PICKLE_LIST) {
        for (size_t i = 0; st == MSP_OK && i < v.as.sequence->count; i++)
            st = walk_child(w, NULL, i, v.as.sequence->items[i], depth);
    } else {
        for (size_t i = 0; st == MSP_OK && i + 1 < v.as.sequence->count; i += 2)
            st = walk_child(w, &v.as.sequence->items[i], i / 2, v.as.sequence->items[i + 1], depth);
    }
    return st;
}

static msp_status
add_all(msp_tensor_file *f, msp_pickle_value root, size_t size, msp_error *err)
{
    walk w = {.file = f, .steps = size + STEPS_CONSTANT, .err = err};
    msp_status st = walk_value(&w, root, 0);

    msp_buf_release(&w.name);
    return st;
}

/* ---- archives --------------------------------------------------------------------------------------------------- */

typedef struct archive {
    msp_tensor_file *file;
    msp_zip zip;
    msp_str prefix; /* "archive/" or whatever the directory is called */
    bool swap;
    const msp_zip_entry *pickle_entry;
    msp_str pickle;
    char *inflated; /* where pickle stands when it was stored compressed */
} archive;

/* The entry of this name beside the pickle, NULL when there is none. */
static const msp_zip_entry *
find_beside(const archive *a, msp_str folder, msp_str name)
{
    return msp_zip_find_parts(&a->zip, (const msp_str[]){a->prefix, folder, name}, 3);
}

static msp_status
find_pickle(archive *a, msp_error *err)
{
    const msp_str name = MSP_STR("data.pkl");
    bool npz = false;

    for (size_t i = 0; i < a->zip.count; i++) {
        const msp_zip_entry *e = &a->zip.entries[i];
        msp_str full = msp_zip_name(e);

        npz |= msp_str_ends(full, MSP_STR(".npy"));
        if (!msp_str_ends(full, name) || (full.len > name.len && full.p[full.len - name.len - 1] != '/'))
            continue;
        a->prefix = (msp_str){full.p, full.len - name.len};
        a->pickle_entry = e;
        return MSP_OK;
    }
    if (npz)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "an .npz archive: save each array with numpy.save()");
    return msp_error_set(err, MSP_E_FORMAT, "an archive without data.pkl: torch.save() did not write it");
}

static msp_status
refuse_torchscript(const archive *a, msp_error *err)
{
    if (find_beside(a, MSP_STR(""), MSP_STR("constants.pkl")) == NULL)
        return MSP_OK;
    return msp_error_set(err, MSP_E_UNSUPPORTED,
                         "a TorchScript program: save its state_dict() with torch.save() instead");
}

/* The bytes of a record, in place when it is stored as it is; otherwise *inflated has them, for the caller to free. */
static msp_status
read_record(msp_str *out, char **inflated, archive *a, const msp_zip_entry *e, msp_error *err)
{
    msp_status st;

    *inflated = NULL;
    if (e->method == 0) {
        st = msp_zip_packed(out, &a->zip, e, err);
        return st == MSP_OK ? msp_zip_check_crc(e, out->p, err) : st;
    }
    st = msp_budget_spend(&a->file->budget, e->size, 1, err);
    if (st == MSP_OK)
        st = msp_zip_read(inflated, &a->zip, e, SIZE_MAX - 1, err);
    *out = (msp_str){*inflated, e->size};
    return st;
}

static msp_status
read_byte_order(archive *a, msp_error *err)
{
    const msp_zip_entry *e = find_beside(a, MSP_STR(""), MSP_STR("byteorder"));
    msp_str text = MSP_STR("little");
    msp_status st = MSP_OK;
    char *inflated = NULL;

    if (e != NULL)
        st = read_record(&text, &inflated, a, e, err);
    if (st == MSP_OK) {
        bool big = msp_str_eq(text, MSP_STR("big"));

        if (!big && !msp_str_eq(text, MSP_STR("little")))
            st = msp_error_set(err, MSP_E_FORMAT, "the record 'byteorder' says neither little nor big");
        a->swap = big != host_is_big_endian();
    }
    msp_free(inflated);
    return st;
}

/* The bytes of a compressed storage, in a copy that the file keeps. */
static msp_status
inflate_blob(archive *a, msp_torch_blob *b, const msp_zip_entry *e, msp_error *err)
{
    void *room;
    msp_status st = msp_zip_check(&a->zip, e, SIZE_MAX, err);

    if (st == MSP_OK)
        st = msp_tensor_file_copy_room(&room, a->file, e->size, err);
    if (st == MSP_OK)
        st = msp_zip_read_into(room, &a->zip, e, err);
    if (st != MSP_OK)
        return st;
    b->data = room;
    b->size = e->size;
    return MSP_OK;
}

static msp_status
find_blob(archive *a, msp_torch_blob *b, msp_error *err)
{
    const msp_zip_entry *e = find_beside(a, MSP_STR("data/"), b->key);
    msp_status st;
    msp_str data;

    if (e == NULL)
        return msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' is not in the archive", (int)b->key.len, b->key.p);
    if (e->method == 0) {
        st = msp_zip_packed(&data, &a->zip, e, err);
        b->data = data.p;
        b->size = data.len;
    } else {
        st = inflate_blob(a, b, e, err);
    }
    if (st == MSP_OK && b->size < b->need)
        st = msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' has %zu bytes and should have %llu", (int)b->key.len,
                           b->key.p, b->size, (unsigned long long)b->need);
    return st;
}

/* Storages of the other byte order become copies. */
static msp_status
swap_blob(msp_tensor_file *f, msp_torch_blob *b, msp_error *err)
{
    msp_status st;
    void *room;

    if (b->swap_width <= 1)
        return MSP_OK;
    if (b->swap_width > 8)
        return msp_error_set(err, MSP_E_UNSUPPORTED,
                             "storage '%.*s' is big-endian and has tensors of different element sizes", (int)b->key.len,
                             b->key.p);
    st = msp_tensor_file_copy_room(&room, f, b->size, err);
    if (st != MSP_OK)
        return st;
    msp_swap_copy(room, b->data, b->size, b->swap_width);
    b->data = room;
    return MSP_OK;
}

static msp_status
load_blob(archive *a, msp_torch_blob *b, msp_error *err)
{
    msp_status st = find_blob(a, b, err);

    return st == MSP_OK && a->swap ? swap_blob(a->file, b, err) : st;
}

/* What both formats end with, and the memory that only reading needs, at the expense of the file's budget. */
typedef struct reading {
    msp_budget budget;
    msp_torch_model model;
    msp_pickle_value root;
    _Alignas(16) char lent[2048]; /* enough for one tensor, so that small files cost no allocation */
} reading;

static void
reading_init(reading *r, msp_tensor_file *f)
{
    msp_budget_join(&r->budget, &f->budget);
    r->root = (msp_pickle_value){0};
    msp_arena_lend(&r->budget.arena, r->lent, sizeof(r->lent));
    msp_torch_model_init(&r->model, &r->budget);
}

static void
reading_release(reading *r)
{
    msp_torch_model_release(&r->model);
    msp_budget_release(&r->budget);
}

/* The archive of one tensor, which needs no tree. */
static msp_status
add_one(archive *a, msp_torch_one *one, msp_error *err)
{
    msp_status st = load_blob(a, &one->blob, err);

    if (st == MSP_OK)
        st = make_view(&one->tensor, a->file, err);
    return st == MSP_OK ? msp_tensor_file_add(a->file, MSP_STR(""), one->tensor.view, err) : st;
}

static msp_status
add_tree(archive *a, reading *r, msp_error *err)
{
    msp_status st = msp_torch_unpickle(&r->root, NULL, &r->model, a->pickle.p, a->pickle.len, err);

    if (st != MSP_OK)
        return msp_error_prefix(err, st, "data.pkl: ");
    for (msp_torch_blob *b = r->model.blobs; st == MSP_OK && b != NULL; b = b->next)
        st = load_blob(a, b, err);
    return st == MSP_OK ? add_all(a->file, r->root, a->zip.size, err) : st;
}

static msp_status
parse_archive(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    archive a = {.file = f};
    msp_torch_one one;
    msp_status st;
    reading r;

    reading_init(&r, f);
    st = msp_zip_open_in(&a.zip, &r.budget.arena, bytes, size, err);
    if (st == MSP_OK)
        st = msp_budget_spend(&r.budget, a.zip.count, MSP_ZIP_ENTRY_COST, err);
    if (st == MSP_OK)
        st = find_pickle(&a, err);
    if (st == MSP_OK)
        st = refuse_torchscript(&a, err);
    if (st == MSP_OK)
        st = read_byte_order(&a, err);
    if (st == MSP_OK)
        st = read_record(&a.pickle, &a.inflated, &a, a.pickle_entry, err);
    if (st == MSP_OK)
        st = msp_torch_one_read(&one, a.pickle.p, a.pickle.len) ? add_one(&a, &one, err) : add_tree(&a, &r, err);
    msp_zip_close(&a.zip);
    reading_release(&r);
    msp_free(a.inflated);
    return st;
}

/* ---- legacy files ----------------------------------------------------------------------------------------------- */

typedef struct legacy {
    const unsigned char *p;
    size_t size, at;
    reading r;
} legacy;

/* The next pickle of the row. */
static msp_status
next_pickle(msp_pickle_value *out, legacy *l, msp_error *err)
{
    size_t used;
    msp_status st = msp_torch_unpickle(out, &used, &l->r.model, l->p + l->at, l->size - l->at, err);

    if (st != MSP_OK)
        return msp_error_prefix(err, st, "the pickle at byte %zu: ", l->at);
    l->at += used;
    return MSP_OK;
}

static msp_status
read_legacy_head(legacy *l, msp_error *err)
{
    msp_pickle_value magic, version, info;
    msp_status st = next_pickle(&magic, l, err);

    if (st != MSP_OK)
        return st;
    if (magic.kind != MSP_PICKLE_BIGINT || magic.len != sizeof(LEGACY_MAGIC) ||
        memcmp(magic.as.text, LEGACY_MAGIC, sizeof(LEGACY_MAGIC)) != 0)
        return msp_error_set(err, MSP_E_FORMAT, "a pickle, but not one that torch.save() wrote");
    st = next_pickle(&version, l, err);
    if (st == MSP_OK && (version.kind != MSP_PICKLE_INT || version.as.integer != LEGACY_VERSION))
        return msp_error_set(err, MSP_E_UNSUPPORTED, "a legacy torch file of a version other than %d", LEGACY_VERSION);
    return st == MSP_OK ? next_pickle(&info, l, err) : st;
}

/* One storage: the number of elements and the bytes. */
static msp_status
read_legacy_blob(legacy *l, msp_str key, msp_error *err)
{
    msp_torch_blob *b = msp_torch_blob_of(&l->r.model, key);
    uint64_t bytes;

    if (b == NULL || b->data != NULL)
        return msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' is listed, but %s", (int)key.len, key.p,
                             b == NULL ? "nothing uses it" : "was there already");
    if (l->size - l->at < 8 || __builtin_mul_overflow(load_u64(l->p + l->at), msp_dtype_size(b->dtype), &bytes) ||
        bytes > l->size - l->at - 8)
        return msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' is cut short at byte %zu", (int)key.len, key.p, l->at);
    if (bytes < b->need)
        return msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' at byte %zu has %llu bytes and should have %llu",
                             (int)key.len, key.p, l->at, (unsigned long long)bytes, (unsigned long long)b->need);
    b->data = l->p + l->at + 8;
    b->size = bytes;
    l->at += 8 + bytes;
    return MSP_OK;
}

static msp_status
read_legacy_blobs(legacy *l, msp_tensor_file *f, msp_error *err)
{
    msp_pickle_value keys;
    msp_status st = next_pickle(&keys, l, err);

    if (st == MSP_OK && keys.kind != MSP_PICKLE_LIST)
        return msp_error_set(err, MSP_E_FORMAT, "the pickle before byte %zu should list the storages", l->at);
    for (size_t i = 0; st == MSP_OK && i < keys.as.sequence->count; i++)
        st = read_legacy_blob(l, msp_pickle_text(keys.as.sequence->items[i]), err);
    for (msp_torch_blob *b = l->r.model.blobs; st == MSP_OK && b != NULL; b = b->next) {
        if (b->data == NULL)
            st = msp_error_set(err, MSP_E_FORMAT, "storage '%.*s' is not in the file", (int)b->key.len, b->key.p);
        else if (host_is_big_endian())
            st = swap_blob(f, b, err);
    }
    return st;
}

static msp_status
parse_legacy(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    msp_status st;
    legacy l;

    l.p = bytes;
    l.size = size;
    l.at = 0;
    reading_init(&l.r, f);
    st = read_legacy_head(&l, err);
    if (st == MSP_OK)
        st = next_pickle(&l.r.root, &l, err);
    if (st == MSP_OK)
        st = read_legacy_blobs(&l, f, err);
    if (st == MSP_OK)
        st = add_all(f, l.r.root, size, err);
    reading_release(&l.r);
    return st;
}

msp_status
msp_pt_parse(msp_tensor_file *f, const void *bytes, size_t size, msp_error *err)
{
    if (is_zip(bytes, size))
        return parse_archive(f, bytes, size, err);
    if (is_pickle(bytes, size))
        return parse_legacy(f, bytes, size, err);
    if (is_tar(bytes, size))
        return msp_error_set(err, MSP_E_UNSUPPORTED,
                             "a torch file from before 0.1.10: load and save it again with torch 1.x");
    return msp_error_set(err, MSP_E_FORMAT, "not a .pt file: the first bytes are neither an archive nor a pickle");
}
