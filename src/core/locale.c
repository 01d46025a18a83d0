/* locale.c - see locale.h. */
#include "core/locale.h"

#include <locale.h>
#include <stdatomic.h>
#include <stdio.h>

/* It is built into the C library, which always gives out one object and allocates nothing; but looking takes time. */
static locale_t
c_locale(void)
{
    static _Atomic(locale_t) kept;
    locale_t c = atomic_load_explicit(&kept, memory_order_relaxed);

    if (c == (locale_t)0) {
        c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        atomic_store(&kept, c);
    }
    return c;
}

int
msp_vsnprintf(char *buf, size_t size, const char *fmt, va_list args)
{
    locale_t before = uselocale(c_locale());
    int n = vsnprintf(buf, size, fmt, args);

    uselocale(before);
    return n;
}

int
msp_snprintf(char *buf, size_t size, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = msp_vsnprintf(buf, size, fmt, args);
    va_end(args);
    return n;
}

const char *
msp_errno_text(int errnum)
{
    return strerror_l(errnum, c_locale());
}

static unsigned char
lower_case(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

bool
msp_str_eq_nocase(msp_str a, msp_str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (lower_case(a.p[i]) != lower_case(b.p[i]))
            return false;
    return true;
}
