/* read.c - one dump.json or debug.json: its top level now, its records when asked for. */
#include "core/alloc.h"
#include "core/file.h"
#include "core/log.h"
#include "dump/dump_read.h"
#include "dump/scan.h"

struct msp_dump {
    msp_mapping map; /* empty when the text is the caller's */
    msp_str text;
    msp_dump_scan scan;
    char *path, *task, *level;
    msp_dump_task kind;
    msp_framework framework;
};

const char *
msp_framework_name(msp_framework f)
{
    return f == MSP_PYTORCH ? "pytorch" : f == MSP_MINDSPORE ? "mindspore" : "unknown";
}

const char *
msp_dump_kind_file(msp_dump_kind k)
{
    return k == MSP_DUMP_DEBUG ? "debug.json" : k == MSP_DUMP_LEGACY ? ".pkl" : "dump.json";
}

enum { MEMBER_MAX = 64 << 10 }; /* bytes of a task, level or framework: none that is known is near it */

/* The text of a JSON string that stands at s, or "" when it is something else; NULL when there is no memory. */
static char *
string_member(msp_str s)
{
    msp_json_doc doc;
    msp_str text;
    char *copy;

    if (s.len == 0 || s.len > MEMBER_MAX || msp_json_parse(&doc, s.p, s.len, NULL) != MSP_OK)
        doc = (msp_json_doc){0};
    text = msp_json_string(doc.root);
    copy = msp_alloc(text.len + 1, 1);
    if (copy != NULL) {
        if (text.len > 0)
            memcpy(copy, text.p, text.len);
        copy[text.len] = '\0';
    }
    msp_json_doc_release(&doc);
    return copy;
}

/* Older files have no framework key: the first type that names a framework tells. */
static msp_framework
framework_of_types(msp_str text)
{
    const msp_str key = MSP_STR("\"type\"");
    const char *at, *end;

    if (text.len == 0)
        return MSP_FRAMEWORK_UNKNOWN;
    end = text.p + text.len;
    while ((at = msp_str_find(text, key)) != NULL) {
        const char *p = at + key.len;

        while (p < end && (*p == ' ' || *p == ':'))
            p++;
        text = (msp_str){p, (size_t)(end - p)};
        if (msp_str_starts(text, MSP_STR("\"mindspore")))
            return MSP_MINDSPORE;
        if (msp_str_starts(text, MSP_STR("\"torch")))
            return MSP_PYTORCH;
    }
    return MSP_FRAMEWORK_UNKNOWN;
}

static msp_status
read_top_level(msp_dump *d, msp_error *err)
{
    char *framework;

    d->task = string_member(d->scan.task);
    d->level = string_member(d->scan.level);
    framework = string_member(d->scan.framework);
    if (d->task == NULL || d->level == NULL || framework == NULL) {
        msp_free(framework);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    d->framework = strcmp(framework, "pytorch") == 0     ? MSP_PYTORCH
                   : strcmp(framework, "mindspore") == 0 ? MSP_MINDSPORE
                                                         : framework_of_types(d->scan.data);
    msp_free(framework);
    d->kind = strcmp(d->task, "tensor") == 0       ? MSP_TASK_TENSOR
              : strcmp(d->task, "statistics") == 0 ? MSP_TASK_STATISTICS
              : strcmp(d->task, "structure") == 0  ? MSP_TASK_STRUCTURE
                                                   : MSP_TASK_OTHER;
    if (d->task[0] == '\0')
        return msp_error_set(err, MSP_E_FORMAT,
                             "has no \"task\"%s: this is no dump of msprobe, or its writing was interrupted",
                             d->scan.cut ? " before it is cut off" : "");
    if (d->scan.data.len == 0)
        return msp_error_set(err, MSP_E_FORMAT, "has no \"data\"%s", d->scan.cut ? " before it is cut off" : "");
    if (!d->scan.data_is_object)
        return msp_error_set(err, MSP_E_FORMAT, "\"data\" must be an object of records");
    return MSP_OK;
}

/* The parser says where and what; it is asked only when the scan has already failed. */
static msp_status
explain_failure(const msp_dump *d, msp_error *err)
{
    msp_json_doc doc;
    msp_error why;
    msp_status st = msp_json_parse(&doc, d->text.p, d->text.len, &why);

    if (st == MSP_OK) {
        msp_json_doc_release(&doc);
        return msp_error_set(err, MSP_E_FORMAT, "must be a JSON object, as msprobe's collector writes it");
    }
    if (st != MSP_E_FORMAT)
        return msp_error_set(err, st, "%s", why.message);
    return msp_error_set(err, st, "%.800s; the file is damaged: collect it again, or copy it again", why.message);
}

static msp_status
open_parts(msp_dump *d, msp_error *err)
{
    msp_status st;

    if (d->text.len == 0)
        return msp_error_set(err, MSP_E_FORMAT, "the file is empty: was the process stopped before it wrote the dump?");
    st = msp_dump_scan_text(&d->scan, d->text.p, d->text.len, err);
    if (st == MSP_E_FORMAT)
        return explain_failure(d, err);
    if (st != MSP_OK)
        return st;
    st = read_top_level(d, err);
    if (st == MSP_OK && d->scan.cut)
        msp_warning("%s: cut off at byte %zu of %zu; the %zu complete records before it are used", d->path,
                    d->scan.cut_at, d->text.len, d->scan.count);
    return st;
}

/* An empty object that knows its name; NULL when there is no memory. */
static msp_dump *
new_dump(const char *path)
{
    msp_dump *d = msp_alloc_zero(1, sizeof(*d));

    if (d == NULL || (d->path = msp_str_copy(msp_str_of(path))) == NULL) {
        msp_dump_close(d);
        return NULL;
    }
    return d;
}

/* With d->text set. d is closed on failure. */
static msp_status
open_text(msp_dump **out, msp_dump *d, msp_error *err)
{
    msp_status st = open_parts(d, err);

    if (st != MSP_OK) {
        msp_error_prefix(err, st, "%s: ", d->path);
        st = msp_map_blame(&d->map, AT_FDCWD, d->path, st, err);
        msp_dump_close(d);
        return st;
    }
    *out = d;
    return MSP_OK;
}

msp_status
msp_dump_open_text(msp_dump **out, const char *text, size_t size, const char *name, msp_error *err)
{
    msp_dump *d = new_dump(name);

    *out = NULL;
    if (d == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", name);
    d->text = (msp_str){text, size};
    return open_text(out, d, err);
}

msp_status
msp_dump_open(msp_dump **out, const char *path, msp_error *err)
{
    msp_dump *d = new_dump(path);
    msp_status st;

    *out = NULL;
    if (d == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    st = msp_dump_check_owner(path, err);
    if (st == MSP_OK)
        st = msp_map_open(&d->map, path, err);
    if (st != MSP_OK) {
        msp_dump_close(d);
        return st;
    }
    d->text = (msp_str){d->map.addr, d->map.size};
    return open_text(out, d, err);
}

msp_status
msp_dump_check(const msp_dump *d, msp_error *err)
{
    return d == NULL ? MSP_OK : msp_map_check(&d->map, AT_FDCWD, d->path, err);
}

void
msp_dump_close(msp_dump *d)
{
    if (d == NULL)
        return;
    msp_dump_scan_release(&d->scan);
    msp_map_close(&d->map);
    msp_free(d->path);
    msp_free(d->task);
    msp_free(d->level);
    msp_free(d);
}

msp_dump_task
msp_dump_task_of(const msp_dump *d)
{
    return d->kind;
}

const char *
msp_dump_task_text(const msp_dump *d)
{
    return d->task;
}

const char *
msp_dump_level(const msp_dump *d)
{
    return d->level;
}

msp_framework
msp_dump_framework(const msp_dump *d)
{
    return d->framework;
}

bool
msp_dump_cut(const msp_dump *d, size_t *at)
{
    if (at != NULL)
        *at = d->scan.cut_at;
    return d->scan.cut;
}

size_t
msp_dump_size(const msp_dump *d)
{
    return d->text.len;
}

size_t
msp_dump_count(const msp_dump *d)
{
    return d->scan.count;
}

const char *
msp_dump_name(const msp_dump *d, size_t i, size_t *len)
{
    *len = d->scan.spans[i].name.len;
    return d->scan.spans[i].name.p;
}

msp_status
msp_dump_record(const msp_dump *d, size_t i, msp_json_doc *doc, void *room, size_t room_size, msp_error *err)
{
    msp_str text = d->scan.spans[i].value;
    msp_status st = msp_json_parse_in(doc, room, room_size, text.p, text.len, err);

    if (st != MSP_E_FORMAT && st != MSP_E_LIMIT)
        return st;
    st = explain_failure(d, err);
    return msp_error_prefix(err, st, "%s: ", d->path);
}

bool
msp_dump_owns(const msp_dump *d, const void *p)
{
    const char *q = p;

    return q >= d->text.p && q <= d->text.p + d->text.len;
}

msp_str
msp_dump_record_text(const msp_dump *d, size_t i)
{
    return d->scan.spans[i].value;
}

const char *
msp_dump_text(const msp_dump *d, size_t i, size_t *len)
{
    msp_str text = msp_dump_record_text(d, i);

    *len = text.len;
    return text.p;
}
