/* follow.c - see follow.h. */
#include "online/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/vec.h"
#include "msprobe/dump.h"
#include "text/json.h"

enum { LINE_MOST = MSP_SHARE_PATH + 64, DEPTH_MOST = 64, REASON = 300 };

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void
free_call(msp_sent *c)
{
    for (size_t i = 0; i < c->nfiles; i++)
        msp_free(c->names[i]);
    msp_free(c->names);
    msp_free(c->files);
    msp_free(c->forward);
    msp_free(c->backward);
    msp_free(c->lacks);
    c->names = NULL;
    c->files = NULL;
    c->forward = c->backward = c->lacks = NULL;
    c->nfiles = c->files_cap = c->forward_len = c->backward_len = 0;
}

static void
free_unit(msp_unit_calls *u)
{
    for (size_t i = 0; i < u->count; i++) {
        free_call(u->list[i]);
        msp_free(u->list[i]);
    }
    msp_free(u->list);
    msp_free(u->dir);
    msp_map_release(&u->records);
    msp_map_release(&u->calls);
    msp_arena_release(&u->names);
    msp_results_close(&u->results);
    msp_free(u);
}

static char *
copy_text(const char *p, size_t len)
{
    char *out = msp_alloc(len + 1, 1);

    if (out != NULL) {
        memcpy(out, p, len);
        out[len] = '\0';
    }
    return out;
}

static void
forget_bytes(msp_share *s, uint64_t n)
{
    uint64_t there = atomic_load(&s->bytes);

    while (!atomic_compare_exchange_weak(&s->bytes, &there, there > n ? there - n : 0))
        ;
    atomic_fetch_add(&s->freed, 1);
}

/* ---- a record ---------------------------------------------------------------------------------------------------- */

/* What a record says of tensors. */
typedef struct record_facts {
    msp_sent *call; /* gets the files; NULL: they are removed at once */
    const char *dir;
    msp_share *share;
    bool wants_gradient, failed;
    size_t missing;
    char why[120];
} record_facts;

static uint64_t
bytes_of(const msp_json *tensor)
{
    const msp_json *shape = msp_json_get(tensor, "shape");
    msp_str dtype = msp_json_string(msp_json_get(tensor, "dtype"));
    uint64_t n = msp_dtype_size(msp_dtype_parse(dtype.p, dtype.len));
    int64_t d;

    for (size_t i = 0; i < msp_json_count(shape); i++)
        n = msp_json_to_i64(msp_json_at(shape, i), &d) && d >= 0 ? n * (uint64_t)d : 0;
    return n;
}

static bool
remove_file(const char *dir, const char *name)
{
    char path[2 * MSP_SHARE_PATH];

    return (size_t)snprintf(path, sizeof(path), "%s/dump_tensor_data/%s", dir, name) < sizeof(path) &&
           unlink(path) == 0;
}

static void
take_file(record_facts *f, msp_str name, uint64_t bytes)
{
    msp_sent *c = f->call;
    size_t cap = c != NULL ? c->files_cap : 0;
    char *text = copy_text(name.p, name.len);

    if (text == NULL) {
        f->failed = true;
    } else if (c == NULL) {
        if (remove_file(f->dir, text)) /* an earlier sender may have done so, and counted it */
            forget_bytes(f->share, bytes);
        msp_free(text);
    } else if (!msp_vec_grow((void **)&c->files, &c->files_cap, c->nfiles + 1, sizeof(*c->files)) ||
               !msp_vec_grow((void **)&c->names, &cap, c->nfiles + 1, sizeof(*c->names))) {
        f->failed = true;
        msp_free(text);
    } else {
        c->names[c->nfiles] = text;
        c->files[c->nfiles++] = (msp_str){text, name.len};
        c->bytes += bytes;
    }
}

static void
note_tensor(record_facts *f, const msp_json *v)
{
    msp_str name = msp_json_string(msp_json_get(v, "data_name")), why = msp_json_string(msp_json_get(v, "note"));

    f->wants_gradient |= msp_json_kind_of(msp_json_get(v, "requires_grad")) == MSP_JSON_TRUE;
    if (name.len > 0 && memchr(name.p, '/', name.len) == NULL && memchr(name.p, '\0', name.len) == NULL) {
        take_file(f, name, bytes_of(v));
        return;
    }
    if (f->missing++ == 0)
        snprintf(f->why, sizeof(f->why), "%.*s", (int)why.len, why.p);
}

static void
walk(record_facts *f, const msp_json *v, int depth)
{
    if (depth > DEPTH_MOST)
        return;
    if (msp_json_kind_of(v) == MSP_JSON_OBJECT && msp_json_get(v, "shape") != NULL && msp_json_get(v, "dtype") != NULL)
        note_tensor(f, v);
    else if (msp_json_kind_of(v) == MSP_JSON_OBJECT || msp_json_kind_of(v) == MSP_JSON_ARRAY)
        for (size_t i = 0; i < msp_json_count(v); i++)
            walk(f, msp_json_at(v, i), depth + 1);
}

static msp_status
read_record(record_facts *f, const char *text, size_t len, msp_error *err)
{
    msp_json_doc doc;
    msp_status st = msp_json_parse(&doc, text, len, err);

    if (st != MSP_OK)
        return st;
    walk(f, doc.root, 0);
    msp_json_doc_release(&doc);
    return f->failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

/* "Functional.linear.0" of "Functional.linear.0.forward"; empty: no call of one function. */
static msp_str
stem_of(msp_str name, bool *backward)
{
    const msp_str forward = MSP_STR(".forward"), back = MSP_STR(".backward");
    int dots = 0;

    *backward = msp_str_ends(name, back);
    if ((!*backward && !msp_str_ends(name, forward)) || msp_str_starts(name, MSP_STR("Module.")) ||
        msp_str_starts(name, MSP_STR("Cell.")))
        return (msp_str){"", 0};
    name.len -= *backward ? back.len : forward.len;
    for (size_t i = 0; i < name.len; i++)
        dots += name.p[i] == '.';
    return dots >= 2 ? name : (msp_str){"", 0};
}

/* Makes the call when it is new. NULL: no memory. */
static msp_sent *
call_of(msp_follow *f, msp_unit_calls *u, msp_str stem)
{
    const msp_map_entry *there = msp_map_get(&u->calls, stem);
    msp_sent *c;
    char *name;
    bool added;

    if (there != NULL)
        return u->list[there->value];
    c = msp_alloc_zero(1, sizeof(*c));
    name = c != NULL ? msp_arena_text(&u->names, stem.p, stem.len) : NULL;
    if (name == NULL || !msp_vec_grow((void **)&u->list, &u->cap, u->count + 1, sizeof(*u->list)) ||
        msp_map_put(&u->calls, (msp_str){name, stem.len}, (int64_t)u->count, &added) == NULL) {
        msp_free(c);
        return NULL;
    }
    c->name = (msp_str){name, stem.len};
    c->number = u->serial << 32 | u->count;
    u->list[u->count++] = c;
    atomic_fetch_add(&f->share->found, 1);
    return c;
}

static msp_status
no_memory(msp_error *err)
{
    return msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

static void
make_ready(msp_follow *f, msp_sent *c)
{
    c->state = MSP_CALL_READY;
    atomic_fetch_add(&f->share->on_the_way, c->bytes);
}

/* Communication is not run again: nobody needs its tensors. */
static bool
is_sent_whole(const msp_sent *c)
{
    return !msp_str_starts(c->name, MSP_STR("Distributed."));
}

static msp_status
take_call(msp_follow *f, msp_unit_calls *u, msp_str stem, bool backward, const char *text, size_t len, msp_error *err)
{
    msp_sent *c = call_of(f, u, stem);
    record_facts facts = {.dir = u->dir, .share = f->share};
    char why[REASON];
    msp_status st;

    if (c == NULL)
        return no_memory(err);
    facts.call = c->state == MSP_CALL_HELD && is_sent_whole(c) ? c : NULL;
    st = read_record(&facts, text, len, err);
    if (st == MSP_E_FORMAT) {
        snprintf(why, sizeof(why), "its record cannot be read: %.200s", err->message);
        msp_free(c->lacks);
        c->lacks = copy_text(why, strlen(why));
        st = MSP_OK;
    }
    if (st != MSP_OK || c->state != MSP_CALL_HELD)
        return st;
    if (facts.missing > 0 && c->lacks == NULL && is_sent_whole(c)) {
        snprintf(why, sizeof(why), "%zu of its tensors %s left out: %s", facts.missing,
                 facts.missing == 1 ? "was" : "were",
                 facts.why[0] != '\0' ? facts.why
                                      : "no room in time for what waited to be sent (online_limit, online_wait)");
        c->lacks = copy_text(why, strlen(why));
    }
    if (backward) {
        c->backward = copy_text(text, len);
        c->backward_len = len;
    } else {
        c->forward = copy_text(text, len);
        c->forward_len = len;
    }
    if ((backward ? c->backward : c->forward) == NULL)
        return no_memory(err);
    if (u->read_last || (c->forward != NULL && (backward || f->share->forward_only || !facts.wants_gradient)))
        make_ready(f, c);
    return MSP_OK;
}

static msp_status
take_record(msp_follow *f, msp_unit_calls *u, const msp_dump *d, size_t i, msp_error *err)
{
    record_facts facts = {.dir = u->dir, .share = f->share};
    size_t name_len, len;
    const char *name = msp_dump_name(d, i, &name_len), *text = msp_dump_text(d, i, &len), *copy;
    bool backward;
    msp_str stem;

    if (msp_map_get(&u->records, (msp_str){name, name_len}) != NULL)
        return MSP_OK;
    copy = msp_arena_text(&u->names, name, name_len);
    if (copy == NULL || msp_map_put(&u->records, (msp_str){copy, name_len}, 0, NULL) == NULL)
        return no_memory(err);
    stem = stem_of((msp_str){copy, name_len}, &backward);
    if (stem.len > 0)
        return take_call(f, u, stem, backward, text, len, err);
    /* a module, a parameter's gradient: nothing to check; its files take room all the same */
    return read_record(&facts, text, len, err) == MSP_E_NOMEM ? no_memory(err) : MSP_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static bool
has_changed(msp_unit_calls *u, const char *path)
{
    struct stat sb;
    int64_t inode, size, when;

    if (stat(path, &sb) != 0)
        return false;
    inode = (int64_t)sb.st_ino;
    size = (int64_t)sb.st_size;
    when = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
    if (u->seen_inode == inode && u->seen_size == size && u->seen_time == when)
        return false;
    u->seen_inode = inode;
    u->seen_size = size;
    u->seen_time = when;
    return true;
}

static msp_status
read_dump(msp_follow *f, msp_unit_calls *u, const char *path, msp_error *err)
{
    msp_dump *d;
    msp_status st = msp_dump_open(&d, path, err);

    if (st != MSP_OK)
        return st;
    for (size_t i = 0; i < msp_dump_count(d) && st == MSP_OK; i++)
        st = take_record(f, u, d, i, err);
    msp_dump_close(d);
    return st;
}

static msp_status
look_at(msp_follow *f, msp_unit_calls *u, bool all, msp_error *err)
{
    const bool last = (u->over || all) && !u->read_last;
    char *path = msp_path_join(u->dir, "dump.json");
    msp_status st = MSP_OK;

    if (path == NULL)
        return no_memory(err);
    if (has_changed(u, path))
        st = read_dump(f, u, path, err);
    msp_free(path);
    if (st == MSP_E_NOMEM)
        return st;
    if (st != MSP_OK) { /* the next look may find it whole */
        u->seen_inode = 0;
        if (!last)
            return MSP_OK;
    }
    if (!last)
        return MSP_OK;
    u->read_last = true;
    for (size_t i = 0; i < u->count; i++)
        if (u->list[i]->state == MSP_CALL_HELD)
            make_ready(f, u->list[i]);
    return MSP_OK;
}

/* Calls that an earlier sender has written down are done. */
static void
know_call(const char *name, size_t len, void *payload)
{
    msp_unit_calls *u = payload;
    const char *copy = msp_arena_text(&u->names, name, len);
    msp_sent *c = msp_alloc_zero(1, sizeof(*c));
    bool added = false;

    if (c == NULL || copy == NULL || !msp_vec_grow((void **)&u->list, &u->cap, u->count + 1, sizeof(*u->list)) ||
        msp_map_put(&u->calls, (msp_str){copy, len}, (int64_t)u->count, &added) == NULL || !added) {
        msp_free(c); /* it is checked once more */
        return;
    }
    c->name = (msp_str){copy, len};
    c->number = UINT64_MAX;
    c->state = MSP_CALL_DONE;
    u->list[u->count++] = c;
    u->done++;
}

static msp_status
begin_unit(msp_follow *f, uint64_t step, const char *dir, msp_error *err)
{
    msp_unit_calls *u = msp_alloc_zero(1, sizeof(*u));
    msp_status st = MSP_OK;

    if (u == NULL || !msp_vec_grow((void **)&f->units, &f->cap, f->nunits + 1, sizeof(*f->units))) {
        msp_free(u);
        return no_memory(err);
    }
    u->results = MSP_RESULTS_NONE;
    u->serial = ++f->serials;
    u->step = step;
    u->dir = copy_text(dir, strlen(dir));
    if (u->dir == NULL)
        st = no_memory(err);
    if (st == MSP_OK)
        st = msp_results_open(&u->results, dir, f->share->stamp, "", know_call, u, err);
    atomic_fetch_add(&f->share->found, u->count);
    if (st != MSP_OK) {
        free_unit(u);
        return st;
    }
    f->units[f->nunits++] = u;
    return MSP_OK;
}

/* One line of the journal, which is this tool's own; what cannot be understood is an error all the same. */
static msp_status
read_line(msp_follow *f, char *line, msp_error *err)
{
    char *end;
    unsigned long long step;

    if (strcmp(line, "end") == 0) {
        for (size_t i = 0; i < f->nunits; i++)
            f->units[i]->over = true;
        return MSP_OK;
    }
    if (strncmp(line, "begin ", 6) != 0 || line[6] < '0' || line[6] > '9')
        return msp_error_set(err, MSP_E_FORMAT, "%s: a damaged line: %.60s", f->share->journal, line);
    step = strtoull(line + 6, &end, 10);
    if (*end != ' ' || end[1] != '/')
        return msp_error_set(err, MSP_E_FORMAT, "%s: a damaged line: %.60s", f->share->journal, line);
    for (size_t i = 0; i < f->nunits; i++)
        f->units[i]->over = true;
    return begin_unit(f, step, end + 1, err);
}

static msp_status
read_journal(msp_follow *f, msp_error *err)
{
    msp_status st = MSP_OK;
    char *newline, *line;
    size_t used = 0;
    ssize_t n;

    for (;;) {
        char *room = msp_buf_room(&f->rest, LINE_MOST);

        if (room == NULL)
            return no_memory(err);
        n = read(f->journal, room, LINE_MOST);
        if (n <= 0)
            break;
        f->rest.len += (size_t)n;
    }
    while (st == MSP_OK && used < f->rest.len &&
           (newline = memchr(f->rest.p + used, '\n', f->rest.len - used)) != NULL) {
        line = f->rest.p + used;
        *newline = '\0';
        used = (size_t)(newline - f->rest.p) + 1;
        st = read_line(f, line, err);
    }
    memmove(f->rest.p, f->rest.p + used, f->rest.len - used);
    f->rest.len -= used;
    return st;
}

msp_status
msp_follow_open(msp_follow *out, msp_share *share, msp_error *err)
{
    *out = (msp_follow){.share = share, .journal = -1};
    out->journal = open(share->journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (out->journal < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s", share->journal);
    /* an earlier sender's counts come again with its calls */
    atomic_store(&share->found, 0);
    atomic_store(&share->on_the_way, 0);
    return MSP_OK;
}

void
msp_follow_close(msp_follow *f)
{
    for (size_t i = 0; i < f->nunits; i++)
        free_unit(f->units[i]);
    msp_free(f->units);
    msp_buf_release(&f->rest);
    if (f->journal >= 0)
        close(f->journal);
    *f = (msp_follow){.journal = -1};
}

msp_status
msp_follow_look(msp_follow *f, bool all, msp_error *err)
{
    msp_status st = read_journal(f, err);

    for (size_t i = 0; i < f->nunits && st == MSP_OK; i++)
        st = look_at(f, f->units[i], all, err);
    return st;
}

msp_sent *
msp_follow_first(const msp_follow *f, msp_sent_state state, msp_unit_calls **unit)
{
    for (size_t i = 0; i < f->nunits; i++)
        for (size_t k = 0; k < f->units[i]->count; k++)
            if (f->units[i]->list[k]->state == state) {
                *unit = f->units[i];
                return f->units[i]->list[k];
            }
    return NULL;
}

msp_sent *
msp_follow_find(const msp_follow *f, uint64_t number, msp_unit_calls **unit)
{
    for (size_t i = 0; i < f->nunits; i++) {
        size_t at = (size_t)(number & UINT32_MAX);

        if (f->units[i]->serial == number >> 32 && at < f->units[i]->count && f->units[i]->list[at]->number == number) {
            *unit = f->units[i];
            return f->units[i]->list[at];
        }
    }
    return NULL;
}

msp_status
msp_follow_done(msp_follow *f, msp_unit_calls *u, msp_sent *call, msp_str result, msp_str details, msp_error *err)
{
    msp_status st = msp_results_add(&u->results, call->number, result, details, err);

    for (size_t i = 0; i < call->nfiles; i++)
        remove_file(u->dir, call->names[i]);
    if (call->state == MSP_CALL_READY || call->state == MSP_CALL_SENT)
        atomic_fetch_sub(&f->share->on_the_way, call->bytes);
    forget_bytes(f->share, call->bytes);
    free_call(call);
    call->state = MSP_CALL_DONE;
    u->done++;
    return st;
}

bool
msp_follow_finish(msp_follow *f, uint64_t *step, msp_status *st, msp_error *err)
{
    for (size_t i = 0; i < f->nunits; i++) {
        msp_unit_calls *u = f->units[i];

        if (!u->read_last || u->done < u->count)
            continue;
        *step = u->step;
        *st = msp_results_finish(&u->results, err);
        free_unit(u);
        memmove(f->units + i, f->units + i + 1, (f->nunits - i - 1) * sizeof(*f->units));
        f->nunits--;
        return true;
    }
    return false;
}
