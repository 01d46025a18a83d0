/* error.c - see msprobe/error.h. */
#include "msprobe/error.h"

#include <stdio.h>
#include <string.h>
#include "core/locale.h"

const char *
msp_status_text(msp_status status)
{
    static const char *const text[] = {"ok",
                                       "out of memory",
                                       "I/O error",
                                       "malformed data",
                                       "not supported",
                                       "limit reached",
                                       "invalid value",
                                       "not found",
                                       "cancelled",
                                       "changed while it was read"};

    return (unsigned)status < sizeof(text) / sizeof(text[0]) ? text[status] : "unknown status";
}

/* vsnprintf() may have cut a UTF-8 sequence in two: drop the half, and turn line ends into spaces. */
static void
tidy_message(char *s, size_t size)
{
    size_t len = strlen(s);

    if (len + 1 == size) {
        size_t i = len;

        while (i > 0 && ((unsigned char)s[i - 1] & 0xC0) == 0x80)
            i--;
        if (i > 0 && (unsigned char)s[i - 1] >= 0xC0)
            s[i - 1] = '\0';
    }
    for (; *s != '\0'; s++)
        if (*s == '\n' || *s == '\r')
            *s = ' ';
}

static void
set_message(msp_error *err, msp_status status, const char *fmt, va_list args)
{
    err->status = status;
    if (msp_vsnprintf(err->message, sizeof(err->message), fmt, args) <= 0)
        snprintf(err->message, sizeof(err->message), "%s", msp_status_text(status));
    tidy_message(err->message, sizeof(err->message));
}

msp_status
msp_error_set(msp_error *err, msp_status status, const char *fmt, ...)
{
    va_list args;

    if (err == NULL)
        return status;
    va_start(args, fmt);
    set_message(err, status, fmt, args);
    va_end(args);
    return status;
}

msp_status
msp_error_set_errno(msp_error *err, msp_status status, int errnum, const char *fmt, ...)
{
    va_list args;
    size_t len;

    if (err == NULL)
        return status;
    va_start(args, fmt);
    set_message(err, status, fmt, args);
    va_end(args);
    len = strlen(err->message);
    snprintf(err->message + len, sizeof(err->message) - len, ": %s", msp_errno_text(errnum));
    tidy_message(err->message, sizeof(err->message));
    return status;
}

msp_status
msp_error_prefix(msp_error *err, msp_status status, const char *fmt, ...)
{
    char old[sizeof(err->message)];
    va_list args;
    size_t len;

    if (err == NULL)
        return status;
    memcpy(old, err->message, sizeof(old));
    va_start(args, fmt);
    msp_vsnprintf(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    len = strlen(err->message);
    snprintf(err->message + len, sizeof(err->message) - len, "%s", old);
    tidy_message(err->message, sizeof(err->message));
    return err->status;
}
