/*
 * str.h - borrowed text (msp_str) and a growing buffer of bytes (msp_buf).
 *
 * msp_buf remembers a failed allocation: after it every append is a no-op and failed is set, so that a writer checks
 * once at the end.
 */
#ifndef MSP_CORE_STR_H
#define MSP_CORE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include "core/eight.h"
#include "msprobe/error.h"

typedef struct msp_str {
    const char *p; /* not terminated by promise; NULL only with len 0 */
    size_t len;
} msp_str;

#define MSP_STR(literal) ((msp_str){(literal), sizeof(literal) - 1})

static inline msp_str
msp_str_of(const char *text)
{
    return (msp_str){text, text == NULL ? 0 : strlen(text)};
}

/* Keys and names are short: up to 16 bytes are two loads that may overlap, where memcmp() would be a call. */
static inline bool
msp_str_eq(msp_str a, msp_str b)
{
    size_t n = a.len;
    uint32_t x[2], y[2];

    if (n != b.len)
        return false;
    if (n > 16)
        return memcmp(a.p, b.p, n) == 0;
    if (n >= 8)
        return msp_load8(a.p) == msp_load8(b.p) && msp_load8(a.p + n - 8) == msp_load8(b.p + n - 8);
    if (n < 4) /* the first, the one in the middle, the last */
        return n == 0 || (a.p[0] == b.p[0] && a.p[n / 2] == b.p[n / 2] && a.p[n - 1] == b.p[n - 1]);
    memcpy(&x[0], a.p, 4);
    memcpy(&x[1], a.p + n - 4, 4);
    memcpy(&y[0], b.p, 4);
    memcpy(&y[1], b.p + n - 4, 4);
    return x[0] == y[0] && x[1] == y[1];
}

bool msp_str_starts(msp_str s, msp_str prefix);
bool msp_str_ends(msp_str s, msp_str suffix);

/* Where needle first stands in s, or NULL. An empty needle is found at the start. */
const char *msp_str_find(msp_str s, msp_str needle);

/* Does part stand anywhere in s? */
bool msp_str_has(msp_str s, const char *part);

/* Is s one of the n texts of the list? MSP_STR_IS_ONE_OF() takes an array. */
bool msp_str_is_one_of(msp_str s, const char *const *list, size_t n);

#define MSP_STR_IS_ONE_OF(s, array) msp_str_is_one_of(s, array, sizeof(array) / sizeof((array)[0]))

/* At least one character, and decimal digits alone. */
bool msp_str_is_digits(msp_str s);

/* How often the character stands in s. */
size_t msp_str_count(msp_str s, char c);

/* Cut the part up to the first dot off s, and the dot, and return it; the whole of s when there is no dot. */
msp_str msp_str_shift(msp_str *s);

/* Cut the part behind the last dot off s, and the dot, and return it; the whole of s when there is no dot. */
msp_str msp_str_pop(msp_str *s);

/* A copy of s with a terminator, which msp_free() gives back; NULL when there is no memory. */
char *msp_str_copy(msp_str s);

/* Byte order, shorter first: <0, 0, >0. */
int msp_str_cmp(msp_str a, msp_str b);

/* True and *out when all of s is decimal digits (at least one) and fits. */
bool msp_str_to_u64(msp_str s, unsigned long long *out);

typedef struct msp_buf {
    char *p; /* terminated whenever it is not NULL */
    size_t len, cap;
    bool failed;
} msp_buf;

void msp_buf_add_slowly(msp_buf *b, const void *p, size_t n); /* where there may be no room */

static inline void
msp_buf_add(msp_buf *b, const void *p, size_t n)
{
    if (b->failed || n >= b->cap - b->len) {
        msp_buf_add_slowly(b, p, n);
        return;
    }
    if (n > 0)
        memcpy(b->p + b->len, p, n);
    b->len += n;
    b->p[b->len] = '\0';
}

static inline void
msp_buf_str(msp_buf *b, msp_str s)
{
    msp_buf_add(b, s.p, s.len);
}

static inline void
msp_buf_text(msp_buf *b, const char *text)
{
    msp_buf_add(b, text, strlen(text));
}

static inline void
msp_buf_char(msp_buf *b, char c)
{
    msp_buf_add(b, &c, 1);
}

void msp_buf_printf(msp_buf *b, const char *fmt, ...) MSP_PRINTF(2, 3);
void msp_buf_vprintf(msp_buf *b, const char *fmt, va_list args);

/* Room for n more bytes at p + len, or NULL; the caller then raises len itself. */
char *msp_buf_room(msp_buf *b, size_t n);

/* Empty, keeping the memory. */
void msp_buf_clear(msp_buf *b);
void msp_buf_release(msp_buf *b);

/* MSP_E_NOMEM when an append failed, else MSP_OK. */
msp_status msp_buf_status(const msp_buf *b, msp_error *err);

static inline msp_str
msp_buf_view(const msp_buf *b)
{
    return (msp_str){b->p, b->len};
}

#endif
