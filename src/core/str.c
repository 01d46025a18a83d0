/* str.c - see str.h. */
#include "core/str.h"

#include <limits.h>
#include <stdint.h>
#include "core/alloc.h"
#include "core/locale.h"

bool
msp_str_starts(msp_str s, msp_str prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.p, prefix.p, prefix.len) == 0);
}

bool
msp_str_ends(msp_str s, msp_str suffix)
{
    return s.len >= suffix.len && (suffix.len == 0 || memcmp(s.p + s.len - suffix.len, suffix.p, suffix.len) == 0);
}

/* Of at least four bytes, in a text that is not shorter. */
static const char *
find_in_name(msp_str s, msp_str needle)
{
    uint32_t here, wanted;

    memcpy(&wanted, needle.p, sizeof(wanted));
    for (const char *p = s.p, *last = s.p + s.len - needle.len; p <= last; p++) {
        memcpy(&here, p, sizeof(here));
        if (here == wanted && memcmp(p, needle.p, needle.len) == 0)
            return p;
    }
    return NULL;
}

const char *
msp_str_find(msp_str s, msp_str needle)
{
    enum { NAME = 128 }; /* memmem() makes a table first, which takes longer than a walk along a name */

    if (needle.len == 0)
        return s.p;
    if (needle.len > s.len)
        return NULL;
    return needle.len >= 4 && s.len <= NAME ? find_in_name(s, needle) : memmem(s.p, s.len, needle.p, needle.len);
}

bool
msp_str_has(msp_str s, const char *part)
{
    return msp_str_find(s, msp_str_of(part)) != NULL;
}

bool
msp_str_is_one_of(msp_str s, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (msp_str_eq(s, msp_str_of(list[i])))
            return true;
    return false;
}

bool
msp_str_is_digits(msp_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return s.len > 0;
}

size_t
msp_str_count(msp_str s, char c)
{
    size_t n = 0;

    for (size_t i = 0; i < s.len; i++)
        n += s.p[i] == c;
    return n;
}

msp_str
msp_str_shift(msp_str *s)
{
    const char *dot = msp_str_find(*s, MSP_STR("."));
    msp_str part = {s->p, dot != NULL ? (size_t)(dot - s->p) : s->len};
    size_t used = part.len + (dot != NULL);

    s->p += used;
    s->len -= used;
    return part;
}

msp_str
msp_str_pop(msp_str *s)
{
    const char *end = s->p + s->len, *p = end;

    while (p > s->p && p[-1] != '.')
        p--;
    s->len = p > s->p ? (size_t)(p - s->p) - 1 : 0;
    return (msp_str){p, (size_t)(end - p)};
}

char *
msp_str_copy(msp_str s)
{
    char *copy = s.len == SIZE_MAX ? NULL : msp_alloc(s.len + 1, 1);

    if (copy == NULL)
        return NULL;
    if (s.len > 0)
        memcpy(copy, s.p, s.len);
    copy[s.len] = '\0';
    return copy;
}

int
msp_str_cmp(msp_str a, msp_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.p, b.p, n);

    return c != 0 ? c : (a.len > b.len) - (a.len < b.len);
}

bool
msp_str_to_u64(msp_str s, unsigned long long *out)
{
    unsigned long long v = 0;

    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, 10ULL, &v) || __builtin_add_overflow(v, (unsigned)(s.p[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

char *
msp_buf_room(msp_buf *b, size_t n)
{
    size_t need, cap;
    char *p;

    if (b->failed)
        return NULL;
    if (n < b->cap - b->len) /* one byte stays for the terminator */
        return b->p + b->len;
    if (__builtin_add_overflow(b->len, n, &need) || need > SIZE_MAX / 2) {
        b->failed = true;
        return NULL;
    }
    cap = b->cap < 64 ? 64 : b->cap;
    while (cap <= need)
        cap += cap / 2;
    p = msp_realloc(b->p, cap, 1);
    if (p == NULL) {
        b->failed = true;
        return NULL;
    }
    b->p = p;
    b->cap = cap;
    return p + b->len;
}

void
msp_buf_add_slowly(msp_buf *b, const void *p, size_t n)
{
    char *at = msp_buf_room(b, n);

    if (at == NULL)
        return;
    if (n > 0)
        memcpy(at, p, n);
    at[n] = '\0';
    b->len += n;
}

void
msp_buf_vprintf(msp_buf *b, const char *fmt, va_list args)
{
    va_list again;
    char *at = msp_buf_room(b, 128);
    int n;

    if (at == NULL)
        return;
    va_copy(again, args);
    n = msp_vsnprintf(at, 128, fmt, args);
    if (n >= 128) {
        at = msp_buf_room(b, (size_t)n + 1);
        if (at != NULL)
            n = msp_vsnprintf(at, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    if (n < 0)
        b->failed = true;
    else if (at != NULL)
        b->len += (size_t)n;
}

void
msp_buf_printf(msp_buf *b, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    msp_buf_vprintf(b, fmt, args);
    va_end(args);
}

void
msp_buf_clear(msp_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->p != NULL)
        b->p[0] = '\0';
}

void
msp_buf_release(msp_buf *b)
{
    msp_free(b->p);
    *b = (msp_buf){0};
}

msp_status
msp_buf_status(const msp_buf *b, msp_error *err)
{
    return b->failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}
