/*
 * filter.c - which calls the older tools write: by prefixes, by a range of names, by functions.
 */
#include "call/call.h"
#include "legacy/legacy.h"
#include <ctype.h>
#include <string.h>

static bool begun, ended; /* the range */
static int64_t matched;   /* how many calls the filters have let pass */

bool
msp_legacy_begins_with(const char *name, size_t len, PyObject *prefix)
{
    Py_ssize_t n;
    const char *p = prefix == NULL ? NULL : PyUnicode_AsUTF8AndSize(prefix, &n);

    if (prefix != NULL && p == NULL)
        msp_probe_expect(PyExc_UnicodeEncodeError, "reading a prefix");
    return p != NULL && (size_t)n <= len && memcmp(name, p, (size_t)n) == 0;
}

static bool
begins_with_any(const char *name, size_t len, PyObject *prefixes)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(prefixes); i++)
        if (msp_legacy_begins_with(name, len, PyTuple_GET_ITEM(prefixes, i)))
            return true;
    return false;
}

/* "Tensor___add___0_forward" -> "add": what stands between the prefix and the number, without underscores around it */
static size_t
bare_name(const char *name, size_t len, char *out, size_t size)
{
    const char *from = memchr(name, '_', len), *end = name + len;
    size_t n = 0;

    /* the number and the direction stand behind it, and the number of a further backward pass behind them */
    for (int parts = len > 0 && isdigit((unsigned char)name[len - 1]) ? 3 : 2; from != NULL && parts > 0; parts--)
        while (end > from && *--end != '_')
            ;
    while (from != NULL && from < end && *from == '_')
        from++;
    while (from != NULL && end > from && end[-1] == '_')
        end--;
    for (; from != NULL && from < end && n + 1 < size; from++)
        out[n++] = (char)Py_TOLOWER(*from);
    out[n] = '\0';
    return n;
}

static bool
is_op(const char *name, size_t len)
{
    char bare[256];

    bare_name(name, len, bare, sizeof(bare));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(msp_legacy.ops); i++)
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(msp_legacy.ops, i), bare) == 0)
            return true;
    return false;
}

/* From the first call that begins with the one prefix to the first that begins with the other, in the order in which
 * calls end; once only. */
static bool
in_range(const char *name, size_t len)
{
    bool first = msp_legacy_begins_with(name, len, PyTuple_GET_ITEM(msp_legacy.range, 0));
    bool last = msp_legacy_begins_with(name, len, PyTuple_GET_ITEM(msp_legacy.range, 1)), in;

    begun |= first;
    in = (begun && !ended) || first || last;
    ended |= last;
    return in;
}

bool
msp_legacy_wants(const char *name, size_t len, bool forward)
{
    if (msp_legacy.muted || (msp_legacy.range != NULL && !in_range(name, len)) ||
        (msp_legacy.prefixes != NULL && !begins_with_any(name, len, msp_legacy.prefixes)) ||
        (msp_legacy.ops != NULL && !is_op(name, len)))
        return false;
    matched++;
    return forward ? msp_legacy.forward : msp_legacy.backward;
}

int64_t
msp_legacy_count(void)
{
    return matched;
}
