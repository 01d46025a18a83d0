/* find_call.c - see find_call.h. */
#include "find_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "msprobe/look.h"

enum { NSUGGESTIONS = 3 };

static bool
keep_call(msp_found_call *out, const char *path, msp_look_text name, msp_error *err)
{
    out->path = strdup(path);
    out->name = strndup(name.p, name.len);
    if (out->path != NULL && out->name != NULL)
        return true;
    msp_error_set(err, MSP_E_NOMEM, "out of memory");
    return false;
}

static bool
is_call(msp_look_text call, const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return call.len == n + k && memcmp(call.p, name, n) == 0 && memcmp(call.p + n, end, k) == 0;
}

/* Forward and backward of the same call: forward stands first. */
static bool
are_one(const msp_look *l, const size_t *calls)
{
    static const char forward[] = ".forward", backward[] = ".backward";
    msp_look_call a, b;
    size_t stem;

    msp_look_call_at(&a, l, calls[0]);
    msp_look_call_at(&b, l, calls[1]);
    stem = a.name.len >= sizeof(forward) - 1 ? a.name.len - (sizeof(forward) - 1) : 0;
    return b.name.len == stem + sizeof(backward) - 1 && memcmp(a.name.p, b.name.p, stem) == 0 &&
           memcmp(a.name.p + stem, forward, sizeof(forward) - 1) == 0 &&
           memcmp(b.name.p + stem, backward, sizeof(backward) - 1) == 0;
}

/* Of the calls that a name means the one of exactly that name, with .forward added, or the only one. */
static bool
choose_call(msp_look_text *out, const msp_look *l, const size_t *calls, size_t n, const char *name)
{
    static const char *const ends[] = {"", ".forward", ".backward"};
    msp_look_call call;

    for (size_t e = 0; e < sizeof(ends) / sizeof(ends[0]); e++)
        for (size_t i = 0; i < n; i++) {
            msp_look_call_at(&call, l, calls[i]);
            if (is_call(call.name, name, ends[e])) {
                *out = call.name;
                return true;
            }
        }
    if (n != 1 && !(n == 2 && are_one(l, calls)))
        return false;
    msp_look_call_at(&call, l, calls[0]);
    *out = call.name;
    return true;
}

static msp_status
several_calls(const msp_look *l, const char *dump, const char *name, const size_t *calls, size_t n, msp_error *err)
{
    msp_look_call first, second;

    msp_look_call_at(&first, l, calls[0]);
    msp_look_call_at(&second, l, calls[1]);
    return msp_error_set(err, MSP_E_NOT_FOUND,
                         "%s: %zu calls have '%.200s' in their names, such as %.*s and %.*s: which one?", dump, n, name,
                         (int)first.name.len, first.name.p, (int)second.name.len, second.name.p);
}

static msp_status
not_found(const msp_look *l, const char *dump, const char *name, msp_error *err)
{
    msp_look_text near[NSUGGESTIONS];
    size_t n = l != NULL ? msp_look_suggest(near, NSUGGESTIONS, l, name) : 0;
    char text[512] = "";
    size_t used = 0;

    for (size_t i = 0; i < n && used < sizeof(text) - 160; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s'%.*s'", i > 0 ? ", " : "",
                                 (int)(near[i].len < 150 ? near[i].len : 150), near[i].p);
    if (n > 0)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no call '%.200s'; did you mean %s?", dump, name, text);
    return msp_error_set(err, MSP_E_NOT_FOUND, "%s: no call has '%.200s' in its name; msprobe show %s --all lists them",
                         dump, name, dump);
}

/* One dump: MSP_E_NOT_FOUND where the name means nothing there. */
static msp_status
look_in(msp_found_call *out, const msp_dump_place *place, const char *dump, const char *name, msp_error *err)
{
    msp_look *l = NULL;
    size_t *calls = NULL, n = 0;
    msp_look_text found;
    msp_status st = msp_look_open(&l, place, err);

    if (st == MSP_OK)
        st = msp_look_search(&calls, &n, l, name, err);
    if (st == MSP_OK) {
        if (choose_call(&found, l, calls, n, name))
            st = keep_call(out, place->path, found, err) ? MSP_OK : MSP_E_NOMEM;
        else
            st = n > 1 ? several_calls(l, dump, name, calls, n, err) : not_found(l, dump, name, err);
    }
    msp_look_free(calls);
    msp_look_close(l);
    return st;
}

msp_status
msp_find_call(msp_found_call *out, const char *dump, const char *name, msp_error *err)
{
    msp_dump_layout layout;
    msp_error later;
    msp_status st = msp_dump_find(&layout, dump, err);

    *out = (msp_found_call){0};
    if (st != MSP_OK)
        return st;
    if (layout.count == 0)
        st = msp_error_set(err, MSP_E_NOT_FOUND, "%s: holds no dump", dump);
    for (size_t i = 0; i < layout.count; i++) {
        st = look_in(out, &layout.places[i], dump, name, i == 0 ? err : &later); /* the first one's error is told */
        if (st != MSP_E_NOT_FOUND)
            break;
    }
    msp_dump_layout_release(&layout);
    return st;
}

void
msp_found_call_release(msp_found_call *f)
{
    free(f->path);
    free(f->name);
    *f = (msp_found_call){0};
}
