/* unit.c - see unit.h. */
#include "collect/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "core/vec.h"

static const msp_str DATA_TAIL = {"\n }\n}", 5};
static const msp_str PLAIN_TAIL = {"\n}", 2};

enum { PREPARE_FROM = 1 << 16 };

static record_reader
body_of(const frame_header *h)
{
    const unsigned char *p = (const unsigned char *)h;

    return (record_reader){p + sizeof(*h), p + h->size, false};
}

static bool
is_file_name(msp_str s)
{
    return s.len > 0 && memchr(s.p, '/', s.len) == NULL && memchr(s.p, '\0', s.len) == NULL;
}

/* {"task": ..., "data": {   in the form that json.dump(indent=1) gives it */
static void
make_head(msp_buf *out, msp_str task, msp_str level, msp_str framework, msp_str data_dir, bool no_dir)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, 1);
    msp_json_begin_object(&w);
    msp_json_write_key(&w, MSP_STR("task"));
    msp_json_write_string(&w, task);
    msp_json_write_key(&w, MSP_STR("level"));
    msp_json_write_string(&w, level);
    msp_json_write_key(&w, MSP_STR("framework"));
    msp_json_write_string(&w, framework);
    msp_json_write_key(&w, MSP_STR("dump_data_dir"));
    no_dir ? msp_json_write_null(&w) : msp_json_write_string(&w, data_dir);
    msp_json_write_key(&w, MSP_STR("data"));
    msp_json_begin_object(&w); /* left open: the tail closes both */
}

/* The next number for stack.json when an earlier writer has begun it. */
static msp_status
count_keys(uint64_t *out, const char *path, msp_error *err)
{
    msp_json_doc doc;
    msp_mapping map;
    msp_status st = msp_map_open(&map, path, err);

    *out = 0;
    if (st != MSP_OK)
        return st;
    st = msp_json_parse(&doc, map.addr, map.size, err);
    if (st == MSP_OK) {
        *out = msp_json_count(doc.root);
        msp_json_doc_release(&doc);
    }
    msp_map_close(&map);
    return st;
}

static msp_status
open_file(msp_publish *out, const char *dir, const char *name, msp_str head, msp_str tail, bool again, msp_error *err)
{
    char *path = msp_path_join(dir, name);
    msp_status st;

    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", dir);
    if (again && msp_path_kind_of(path) == MSP_PATH_FILE)
        st = msp_publish_reopen(out, path, tail, err);
    else
        st = msp_publish_create(out, path, head, tail, err);
    msp_free(path);
    return st;
}

/* own: a debug unit's name of its file, empty: the usual */
static msp_status
open_files(msp_unit *u, msp_str own, msp_str head, bool again, msp_error *err)
{
    char name[64] = "dump.json";
    msp_status st;

    if (own.len >= sizeof(name) || (own.len > 0 && !is_file_name(own)))
        return msp_error_set(err, MSP_E_FORMAT, "the description of a dump file is damaged");
    if (u->debug)
        snprintf(name, sizeof(name), "%.*s", own.len > 0 ? (int)own.len : 10, own.len > 0 ? own.p : "debug.json");
    st = open_file(&u->data, u->dir, name, head, DATA_TAIL, again, err);
    if (st != MSP_OK || u->debug)
        return st;
    st = open_file(&u->stack, u->dir, "stack.json", MSP_STR("{"), PLAIN_TAIL, again, err);
    if (st == MSP_OK)
        st = open_file(&u->construct, u->dir, "construct.json", MSP_STR("{"), PLAIN_TAIL, again, err);
    if (st == MSP_OK && u->stack.any)
        st = count_keys(&u->stack_keys, u->stack.path, err);
    return st;
}

/* Whether the path leads nowhere but down. */
static bool
goes_down(msp_str path)
{
    for (size_t at = 0, end; at <= path.len; at = end + 1) {
        const char *slash = at == path.len ? NULL : memchr(path.p + at, '/', path.len - at);

        end = slash == NULL ? path.len : (size_t)(slash - path.p);
        if (end - at == 2 && memcmp(path.p + at, "..", 2) == 0)
            return false;
    }
    return path.len > 0 && path.p[0] != '/';
}

/* The folder that a unit names, to be given back with msp_free(). */
static msp_status
find_folder(char **out, msp_str path, bool at_home, const msp_ring *ring, msp_error *err)
{
    const msp_str home = at_home ? msp_path_dir(ring->path) : (msp_str){0};
    char *text;

    *out = NULL;
    if (path.len == 0 || memchr(path.p, '\0', path.len) != NULL || (at_home && !goes_down(path)))
        return msp_error_set(err, MSP_E_FORMAT, "the description of a dump folder is damaged");
    if (!at_home && ring->foreign)
        return msp_error_set(err, MSP_E_INVALID,
                             "%s: it belongs to %.*s, and who recovers it writes nowhere but below its own folder",
                             ring->path, (int)path.len, path.p);
    text = msp_alloc(home.len + 1 + path.len + 1, 1);
    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    snprintf(text, home.len + 1 + path.len + 1, "%.*s%s%.*s", (int)home.len, home.p, at_home ? "/" : "", (int)path.len,
             path.p);
    *out = text;
    return MSP_OK;
}

/* r stands behind what all kinds of units have. data_dir may be NULL. */
static msp_status
open_lines(msp_unit *u, msp_unit_kind kind, const char *data_dir, record_reader *r, msp_error *err)
{
    msp_str file = msp_record_read_text(r), mark = msp_record_read_text(r);
    char number[24] = "";

    if (r->bad || kind > MSP_UNIT_HOOKS || !is_file_name(file) || mark.len >= sizeof(number))
        return msp_error_set(err, MSP_E_FORMAT, "the description of a dump file is damaged");
    memcpy(number, mark.p, mark.len);
    return msp_lines_open(&u->lines, kind, u->dir, file, msp_str_of(data_dir == NULL ? "" : data_dir),
                          strtoll(number, NULL, 10), err);
}

msp_unit
msp_unit_without_files(bool debug)
{
    return (msp_unit){.debug = debug,
                      .data = MSP_PUBLISH_NONE,
                      .stack = MSP_PUBLISH_NONE,
                      .construct = MSP_PUBLISH_NONE,
                      .lines = MSP_LINES_NONE};
}

msp_status
msp_unit_open(msp_unit *u, const frame_header *h, const msp_ring *ring, bool again, msp_error *err)
{
    record_reader r = body_of(h);
    msp_str dir = msp_record_read_text(&r), task = msp_record_read_text(&r), level = msp_record_read_text(&r);
    msp_str framework = msp_record_read_text(&r), data_dir = msp_record_read_text(&r);
    const msp_unit_kind kind = (msp_unit_kind)(h->arg & UNIT_KIND);
    const bool at_home = (h->arg & UNIT_AT_HOME) != 0, lines = kind != MSP_UNIT_DUMP && kind != MSP_UNIT_DEBUG;
    char *data_folder = NULL;
    msp_buf head = {0};
    msp_status st;

    *u = msp_unit_without_files(kind == MSP_UNIT_DEBUG);
    st = find_folder(&u->dir, r.bad ? (msp_str){0} : dir, at_home, ring, err);
    if (st == MSP_OK && lines && data_dir.len > 0)
        st = find_folder(&data_folder, data_dir, at_home, ring, err);
    if (st == MSP_OK)
        st = msp_path_make_dirs(u->dir, err);
    if (st == MSP_OK && lines) {
        st = open_lines(u, kind, data_folder, &r, err);
    } else if (st == MSP_OK) {
        make_head(&head, task, level, framework, data_dir, (h->arg & UNIT_NO_DATA_DIR) != 0);
        st = msp_buf_status(&head, err);
        if (st == MSP_OK)
            st = open_files(u, msp_record_read_text(&r), msp_buf_view(&head), again, err);
    }
    msp_buf_release(&head);
    msp_free(data_folder);
    if (st != MSP_OK)
        msp_unit_close(u);
    return st;
}

/* A writer that stands inside an object of this depth, so that the next key gets its comma, newline and indentation. */
static msp_json_writer
member_writer(msp_buf *out, int depth)
{
    msp_json_writer w;

    msp_json_writer_init(&w, out, 1);
    w.depth = depth;
    w.first = false;
    return w;
}

/* The members as they are appended: the first one of a file has no comma before it. */
static msp_str
members_of(const msp_buf *text, bool any)
{
    msp_str s = msp_buf_view(text);

    return any || s.len == 0 ? s : (msp_str){s.p + 1, s.len - 1};
}

static msp_status
add_hole(msp_unit *u, uint32_t number, msp_error *err)
{
    if (!msp_vec_grow((void **)&u->holes, &u->holes_cap, u->nholes + 1, sizeof(*u->holes)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (u->nholes == 0)
        clock_gettime(CLOCK_MONOTONIC, &u->hole_since);
    u->holes[u->nholes++] = (unit_hole){number, u->data_text.len};
    return MSP_OK;
}

/* Move the text behind `from`, which was just written, to the place that was kept for it; it may be gone already. */
static msp_status
fill_hole(msp_unit *u, uint32_t number, size_t from, msp_error *err)
{
    size_t i = 0, len = u->data_text.len - from, at;
    char *text;

    while (i < u->nholes && u->holes[i].number != number)
        i++;
    if (i == u->nholes)
        return MSP_OK;
    text = msp_alloc(len, 1);
    if (text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    at = u->holes[i].at;
    memcpy(text, u->data_text.p + from, len);
    memmove(u->data_text.p + at + len, u->data_text.p + at, from - at);
    memcpy(u->data_text.p + at, text, len);
    msp_free(text);
    memmove(u->holes + i, u->holes + i + 1, (u->nholes - i - 1) * sizeof(*u->holes));
    u->nholes--;
    for (; i < u->nholes; i++)
        u->holes[i].at += len;
    return MSP_OK;
}

static msp_status
add_value(msp_unit *u, msp_str name, uint32_t hole, bool is_call, record_reader *r, int64_t *damaged, msp_error *err)
{
    msp_json_writer w = member_writer(&u->data_text, 2);
    size_t before = u->data_text.len;
    msp_status st;

    msp_json_write_key(&w, name);
    if (!msp_record_to_json(r, &w) || (is_call ? msp_record_read_byte(r) != TOKEN_SITE : r->p != r->end)) {
        (*damaged)++;
        u->data_text.len = before;
    }
    st = msp_buf_status(&u->data_text, err);
    return st == MSP_OK && hole != 0 ? fill_hole(u, hole, before, err) : st;
}

static msp_status
add_site(msp_unit *u, msp_str name, uint32_t stack, record_reader *r, int64_t *damaged, msp_error *err)
{
    bool has_parent = msp_record_read_byte(r) != 0;
    msp_str parent = msp_record_read_text(r);
    char *copy;

    if (r->bad) {
        (*damaged)++;
        return MSP_OK;
    }
    if (has_parent) {
        msp_json_writer w = member_writer(&u->construct_text, 1);

        msp_json_write_key(&w, name);
        parent.len > 0 ? msp_json_write_string(&w, parent) : msp_json_write_null(&w);
    }
    if (stack != 0) {
        copy = msp_arena_text(&u->names, name.p, name.len);
        if (copy == NULL || !msp_vec_grow((void **)&u->sites, &u->sites_cap, u->nsites + 1, sizeof(*u->sites)))
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
        u->sites[u->nsites] = (unit_site){stack, (uint32_t)u->nsites, {copy, name.len}};
        u->nsites++;
    }
    return msp_buf_status(&u->construct_text, err);
}

/* A value and where it belongs. */
static msp_status
add_call(msp_unit *u, msp_str name, uint32_t stack, record_reader *r, int64_t *damaged, msp_error *err)
{
    const int64_t before = *damaged;
    msp_status st = add_value(u, name, 0, true, r, damaged, err);

    if (st != MSP_OK || *damaged != before)
        return st;
    return add_site(u, name, stack, r, damaged, err);
}

static msp_status
add_error(const msp_unit *u, record_reader *r, msp_error *err)
{
    msp_str text = msp_record_read_text(r);
    char *path = msp_path_join(u->dir, "dump_error_info.log");
    msp_status st = MSP_OK;
    int fd;

    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0 || write(fd, text.p, text.len) != (ssize_t)text.len)
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot write", path);
    if (fd >= 0)
        close(fd);
    msp_free(path);
    return st;
}

static bool
is_lines(const msp_unit *u)
{
    return u->lines.fd >= 0;
}

/* A unit of lines has calls and nothing else. */
static msp_status
add_lines(msp_unit *u, const frame_header *h, const unit_stack *stack, int64_t *damaged, msp_error *err)
{
    record_reader r = body_of(h);
    bool bad = false;
    msp_status st = MSP_OK;

    msp_record_read_text(&r); /* the call's name: each line has one of its own */
    if (h->kind == FRAME_VALUE)
        st = msp_lines_add(&u->lines, &u->data_text, &r, stack, &bad, err);
    *damaged += bad;
    return st;
}

msp_status
msp_unit_add(msp_unit *u, const frame_header *h, const unit_stack *stacks, size_t nstacks, int64_t *damaged,
             msp_error *err)
{
    record_reader r = body_of(h);
    msp_str name;

    if (is_lines(u))
        return add_lines(u, h, h->arg > 0 && h->arg <= nstacks ? &stacks[h->arg - 1] : NULL, damaged, err);
    if (h->kind == FRAME_HOLE)
        return add_hole(u, h->arg, err);
    if (h->kind == FRAME_ERROR)
        return add_error(u, &r, err);
    name = msp_record_read_text(&r);
    if (h->kind == FRAME_VALUE)
        return add_value(u, name, h->arg, false, &r, damaged, err);
    if (h->kind == FRAME_CALL && !u->debug)
        return add_call(u, name, h->arg, &r, damaged, err);
    if (h->kind == FRAME_SITE && !u->debug)
        return add_site(u, name, h->arg, &r, damaged, err);
    return MSP_OK;
}

size_t
msp_unit_pending(const msp_unit *u)
{
    return u->data_text.len + u->construct_text.len + u->nsites * sizeof(*u->sites);
}

bool
msp_unit_is_published(const msp_unit *u)
{
    return msp_unit_pending(u) == 0 && (is_lines(u) || u->data.fd >= 0);
}

static int
by_stack(const void *a, const void *b)
{
    const unit_site *x = a, *y = b;

    if (x->stack != y->stack)
        return x->stack < y->stack ? -1 : 1;
    return x->seq < y->seq ? -1 : 1;
}

static void
write_frames(msp_json_writer *w, const unit_stack *s)
{
    record_reader r = msp_stack_texts(s);

    while (!r.bad && r.p < r.end) {
        msp_str frame = msp_record_read_text(&r);

        if (!r.bad)
            msp_json_write_string(w, frame);
    }
}

/*
 * "3": [["Functional.relu.0.forward", ...], ["File a.py, line 3, in f, ...", ...]]. A stack that is met again after a
 * publishing gets another entry: readers look names up, and appending is what keeps the cost linear.
 */
static void
make_stack_text(msp_unit *u, msp_buf *out, const unit_stack *stacks, size_t nstacks)
{
    msp_json_writer w = member_writer(out, 1);
    char number[32];

    if (u->nsites > 1)
        qsort(u->sites, u->nsites, sizeof(*u->sites), by_stack);
    for (size_t i = 0; i < u->nsites;) {
        uint32_t id = u->sites[i].stack;
        int n = snprintf(number, sizeof(number), "%llu", (unsigned long long)u->stack_keys++);

        msp_json_write_key(&w, (msp_str){number, (size_t)n});
        msp_json_begin_array(&w);
        msp_json_begin_array(&w);
        for (; i < u->nsites && u->sites[i].stack == id; i++)
            msp_json_write_string(&w, u->sites[i].name);
        msp_json_end_array(&w);
        msp_json_begin_array(&w);
        if (id <= nstacks)
            write_frames(&w, &stacks[id - 1]);
        msp_json_end_array(&w);
        msp_json_end_array(&w);
    }
}

/* The file of a new unit is made with the first text there is: to make one takes longer than to fill it. */
static void
prepare_file(msp_publish *p, const msp_buf *text)
{
    if ((text->len > 0 && p->fd < 0 && p->twin_fd < 0) || text->len >= p->prepared + PREPARE_FROM)
        msp_publish_prepare(p, members_of(text, p->any));
}

void
msp_unit_prepare(msp_unit *u)
{
    if (is_lines(u))
        return;
    /* what stands behind a hole will move when it is filled; what was prepared stands before it */
    if (u->nholes == 0)
        prepare_file(&u->data, &u->data_text);
    if (!u->debug)
        prepare_file(&u->construct, &u->construct_text);
    if (!u->debug && u->nsites > 0 && u->stack.fd < 0 && u->stack.twin_fd < 0)
        msp_publish_prepare(&u->stack, (msp_str){0}); /* its text is sorted at the end */
}

/* On a disk that is too full for the first records there may be room for empty files, which are valid. */
static void
make_files(msp_unit *u)
{
    msp_publish *files[] = {&u->data, &u->stack, &u->construct};

    for (size_t i = 0; i < (u->debug ? 1 : 3); i++)
        (void)!msp_publish_append(files[i], (msp_str){0}, NULL);
}

msp_status
msp_unit_publish(msp_unit *u, const unit_stack *stacks, size_t nstacks, msp_error *err)
{
    msp_buf stack_text = {0};
    msp_status st;

    if (msp_unit_is_published(u))
        return MSP_OK;
    if (is_lines(u)) {
        st = msp_lines_append(&u->lines, msp_buf_view(&u->data_text), err);
        msp_buf_clear(&u->data_text);
        return st;
    }
    make_stack_text(u, &stack_text, stacks, nstacks);
    st = msp_buf_status(&stack_text, err);
    if (st == MSP_OK)
        st = msp_publish_append(&u->data, members_of(&u->data_text, u->data.any), err);
    if (st == MSP_OK && !u->debug)
        st = msp_publish_append(&u->stack, members_of(&stack_text, u->stack.any), err);
    if (st == MSP_OK && !u->debug)
        st = msp_publish_append(&u->construct, members_of(&u->construct_text, u->construct.any), err);
    msp_buf_release(&stack_text);
    if (st != MSP_OK) {
        make_files(u);
        return st;
    }
    msp_buf_clear(&u->data_text);
    msp_buf_clear(&u->construct_text);
    u->nsites = u->nholes = 0;
    msp_arena_release(&u->names);
    return MSP_OK;
}

static msp_status
preview_file(msp_publish *to, msp_buf *text, msp_error *err)
{
    msp_status st = msp_buf_status(text, err);

    if (st == MSP_OK)
        st = msp_publish_preview(to, members_of(text, to->any), err);
    msp_buf_clear(text);
    return st;
}

msp_status
msp_unit_preview(msp_unit *u, msp_unit *more, const unit_stack *stacks, size_t nstacks, msp_error *err)
{
    uint64_t keys = u->stack_keys;
    msp_buf text = {0};
    msp_status st;

    if (is_lines(u))
        return MSP_OK;
    msp_buf_str(&text, msp_buf_view(&u->data_text));
    msp_buf_str(&text, msp_buf_view(&more->data_text));
    st = preview_file(&u->data, &text, err);
    if (st == MSP_OK && !u->debug) {
        make_stack_text(u, &text, stacks, nstacks);
        more->stack_keys = u->stack_keys;
        make_stack_text(more, &text, stacks, nstacks);
        u->stack_keys = keys;
        st = preview_file(&u->stack, &text, err);
    }
    if (st == MSP_OK && !u->debug) {
        msp_buf_str(&text, msp_buf_view(&u->construct_text));
        msp_buf_str(&text, msp_buf_view(&more->construct_text));
        st = preview_file(&u->construct, &text, err);
    }
    msp_buf_release(&text);
    return st;
}

void
msp_unit_close(msp_unit *u)
{
    msp_lines_close(&u->lines);
    msp_publish_close(&u->data);
    msp_publish_close(&u->stack);
    msp_publish_close(&u->construct);
    msp_buf_release(&u->data_text);
    msp_buf_release(&u->construct_text);
    msp_free(u->sites);
    msp_free(u->holes);
    msp_free(u->dir);
    msp_arena_release(&u->names);
    *u = msp_unit_without_files(false);
}
