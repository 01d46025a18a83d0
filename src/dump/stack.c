/* stack.c - stack.json: who called which API, in the form of either generation. */
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "core/map.h"
#include "core/path.h"
#include "dump/dump_read.h"

struct msp_stack {
    msp_mapping map; /* empty when the text is the caller's */
    char *path;      /* then NULL too */
    msp_json_doc doc;
    msp_map by_name; /* value: index into lists */
    const msp_json **lists;
};

enum { NAME_COST = 2 * sizeof(msp_map_entry) + sizeof(msp_json *) }; /* of an entry and its slot, with room to grow */

/* May so many names be indexed, beside the tree, for a text of this size? */
static msp_status
check_names(const msp_stack *s, size_t names, size_t size, msp_error *err)
{
    size_t left = size + msp_reader_extra() - s->doc.arena.reserved; /* the tree's own limit is below this */

    if (names > left / NAME_COST)
        return msp_error_set(err, MSP_E_LIMIT, "%zu names in %zu bytes are more than a stack.json can have", names,
                             size);
    return MSP_OK;
}

static bool
put_frames(msp_stack *s, msp_str name, const msp_json *frames, size_t *n)
{
    bool added;
    msp_map_entry *e = msp_map_put(&s->by_name, name, (int64_t)*n, &added);

    if (e == NULL)
        return false;
    if (added)
        (*n)++;
    s->lists[e->value] = frames;
    return true;
}

/* {"0": [[name, ...], [frame, ...]], ...} */
static bool
is_grouped(const msp_json *root)
{
    return msp_json_count(msp_json_get(root, "0")) > 0;
}

static size_t
count_names(const msp_json *root)
{
    size_t count = msp_json_count(root), names = 0;

    if (!is_grouped(root))
        return count;
    for (size_t i = 0; i < count; i++)
        names += msp_json_count(msp_json_at(msp_json_at(root, i), 0));
    return names;
}

/* A value of another form than a group's is passed over. */
static bool
index_groups(msp_stack *s, size_t names)
{
    const msp_json *root = s->doc.root;
    size_t groups = msp_json_count(root), n = 0;

    s->lists = msp_alloc(names, sizeof(*s->lists));
    if (s->lists == NULL)
        return false;
    for (size_t i = 0; i < groups; i++) {
        const msp_json *group = msp_json_at(root, i), *list = msp_json_at(group, 0), *frames = msp_json_at(group, 1);

        if (msp_json_kind_of(group) != MSP_JSON_ARRAY || msp_json_count(group) != 2 ||
            msp_json_kind_of(list) != MSP_JSON_ARRAY || msp_json_kind_of(frames) != MSP_JSON_ARRAY)
            continue;
        for (size_t k = 0; k < msp_json_count(list); k++)
            if (!put_frames(s, msp_json_string(msp_json_at(list, k)), frames, &n))
                return false;
    }
    return true;
}

/* {name: [frame, ...], ...} */
static bool
index_names(msp_stack *s)
{
    const msp_json *root = s->doc.root;
    size_t count = msp_json_count(root), n = 0;

    s->lists = msp_alloc(count, sizeof(*s->lists));
    if (s->lists == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        if (msp_json_kind_of(msp_json_at(root, i)) == MSP_JSON_ARRAY &&
            !put_frames(s, msp_json_key(root, i), msp_json_at(root, i), &n))
            return false;
    return true;
}

static msp_status
open_parts(msp_stack *s, const char *text, size_t size, msp_error *err)
{
    const msp_json *root;
    msp_status st = MSP_OK;
    size_t names;

    if (size > 0)
        st = msp_json_parse_recover(&s->doc, text, size, 1, err);
    if (st != MSP_OK)
        return st;
    root = s->doc.root;
    if (root != NULL && msp_json_kind_of(root) != MSP_JSON_OBJECT)
        return msp_error_set(err, MSP_E_FORMAT, "must be a JSON object");
    names = count_names(root);
    st = check_names(s, names, size, err);
    if (st == MSP_OK && !(is_grouped(root) ? index_groups(s, names) : index_names(s)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return st;
}

msp_status
msp_stack_open(msp_stack **out, const char *path, msp_error *err)
{
    msp_stack *s = msp_alloc_zero(1, sizeof(*s));
    msp_status st;

    *out = NULL;
    if (s == NULL || (s->path = msp_str_copy(msp_str_of(path))) == NULL) {
        msp_stack_close(s);
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    }
    st = msp_dump_check_owner(path, err);
    if (st == MSP_OK)
        st = msp_map_open(&s->map, path, err);
    if (st == MSP_OK) {
        st = open_parts(s, s->map.addr, s->map.size, err);
        if (st != MSP_OK)
            st = msp_map_blame(&s->map, AT_FDCWD, path, msp_error_prefix(err, st, "%s: ", path), err);
        else if (s->doc.cut || s->map.size == 0)
            msp_warning("%s: cut off at byte %zu of %zu; the calls after it have no stack", path, s->doc.cut_at,
                        s->map.size);
    }
    if (st != MSP_OK) {
        msp_stack_close(s);
        return st;
    }
    *out = s;
    return MSP_OK;
}

msp_status
msp_stack_open_text(msp_stack **out, const char *text, size_t size, msp_error *err)
{
    msp_stack *s = msp_alloc_zero(1, sizeof(*s));
    msp_status st;

    *out = NULL;
    if (s == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    st = open_parts(s, text, size, err);
    if (st != MSP_OK) {
        msp_stack_close(s);
        return st;
    }
    *out = s;
    return MSP_OK;
}

msp_status
msp_stack_gather(msp_stack **out, size_t names, msp_error *err)
{
    msp_stack *s = *out = msp_alloc_zero(1, sizeof(*s));

    if (s != NULL)
        s->lists = msp_alloc(names, sizeof(*s->lists));
    if (s != NULL && s->lists != NULL)
        return MSP_OK;
    msp_stack_close(s);
    *out = NULL;
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

bool
msp_stack_put(msp_stack *s, msp_str name, const msp_stack *from, msp_str recorded)
{
    const msp_json *frames = msp_stack_frames(from, recorded);
    size_t n = s->by_name.count;

    return frames == NULL || put_frames(s, name, frames, &n);
}

bool
msp_stack_is_grouped(const msp_stack *s)
{
    return is_grouped(s->doc.root);
}

const msp_json *
msp_stack_frames(const msp_stack *s, msp_str name)
{
    msp_map_entry *e = s == NULL ? NULL : msp_map_get(&s->by_name, name);

    return e == NULL ? NULL : s->lists[e->value];
}

int64_t
msp_stack_depth(const msp_stack *s, const char *name, size_t len)
{
    const msp_json *frames = msp_stack_frames(s, (msp_str){name, len});

    return frames == NULL ? -1 : (int64_t)msp_json_count(frames);
}

const char *
msp_stack_frame(const msp_stack *s, const char *name, size_t len, size_t i, size_t *frame_len)
{
    msp_str frame = msp_json_string(msp_json_at(msp_stack_frames(s, (msp_str){name, len}), i));

    *frame_len = frame.len;
    return frame.p;
}

/* In the name of the file: the line of code below it may hold anything. */
static bool
file_has(msp_str frame, const char *mark)
{
    const char *at = msp_str_find(frame, msp_str_of(mark)), *end = msp_str_find(frame, MSP_STR(", line "));

    return at != NULL && (end == NULL || at < end);
}

bool
msp_frame_is_installed(const char *frame, size_t len)
{
    msp_str text = {frame, len};

    return file_has(text, "site-packages/") || file_has(text, "dist-packages/");
}

bool
msp_frame_is_machinery(const char *frame, size_t len)
{
    static const char *const marks[] = {"packages/torch/",
                                        "packages/torch_npu/",
                                        "packages/mindspore/",
                                        "packages/msprobe/",
                                        "/python/msprobe/",
                                        "packages/ptdbg_ascend/",
                                        "/python/ptdbg_ascend/",
                                        "/torch/nn/",
                                        "/torch/_",
                                        "/torch/utils/",
                                        "/torch/optim/",
                                        "/torch/autograd/",
                                        "/torch/functional.py",
                                        "/mindspore/ops/",
                                        "/mindspore/nn/",
                                        "/mindspore/common/",
                                        "<frozen ",
                                        "<string>"};
    msp_str text = {frame, len};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (file_has(text, marks[i]))
            return true;
    return file_has(text, "/lib/python") && !msp_frame_is_installed(frame, len);
}

msp_status
msp_stack_check(const msp_stack *s, msp_error *err)
{
    return s == NULL || s->path == NULL ? MSP_OK : msp_map_check(&s->map, AT_FDCWD, s->path, err);
}

void
msp_stack_close(msp_stack *s)
{
    if (s == NULL)
        return;
    msp_map_release(&s->by_name);
    msp_free(s->lists);
    msp_json_doc_release(&s->doc);
    msp_map_close(&s->map);
    msp_free(s->path);
    msp_free(s);
}
