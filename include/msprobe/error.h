/* error.h - what every function that can fail returns, and the one line that says what went wrong. */
#ifndef MSPROBE_ERROR_H
#define MSPROBE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSP_API            __attribute__((visibility("default")))
#define MSP_CHECK          __attribute__((warn_unused_result))
#define MSP_PRINTF(fmt, a) __attribute__((format(printf, fmt, a)))

/*
 * The kinds of failure that a caller may want to tell apart. The message says the rest.
 */
typedef enum msp_status {
    MSP_OK = 0,
    MSP_E_NOMEM,       /* an allocation failed */
    MSP_E_IO,          /* the operating system refused: open, read, write, map, rename */
    MSP_E_FORMAT,      /* the bytes are not what the format says: cut short, corrupt, contradictory */
    MSP_E_UNSUPPORTED, /* well-formed, but something this library does not handle (and says which) */
    MSP_E_LIMIT,       /* a bound that protects us was reached: depth, count, size */
    MSP_E_INVALID,     /* the caller's value is wrong: an option, a key, a shape that does not fit */
    MSP_E_NOT_FOUND,   /* the thing asked for is not there */
    MSP_E_CANCELLED,   /* the caller's own callback asked to stop */
    MSP_E_CHANGED      /* a file was cut short while it was read: what was read of it means nothing */
} msp_status;

/*
 * An error that the caller places, usually on the stack. Every function that takes one accepts NULL. It is written only
 * when the function fails; message is then one line without a newline at its end, in UTF-8, never empty.
 */
typedef struct msp_error {
    msp_status status;
    char message[1024];
} msp_error;

/* A short fixed text for a status: "out of memory", "I/O error", ... Never NULL. */
MSP_API const char *msp_status_text(msp_status status);

/*
 * Put status and a formatted message into err (if not NULL) and return status, so that one line both reports and
 * leaves: `return msp_error_set(err, MSP_E_FORMAT, "header cut short at byte %zu", n);`. A message that does not fit is
 * cut at a character boundary.
 */
MSP_API msp_status msp_error_set(msp_error *err, msp_status status, const char *fmt, ...) MSP_PRINTF(3, 4);

/* As msp_error_set(), with ": " and the text of errno at the end. */
MSP_API msp_status msp_error_set_errno(msp_error *err, msp_status status, int errnum, const char *fmt, ...)
    MSP_PRINTF(4, 5);

/*
 * Put formatted text in front of the message: who knows the file name adds it, once. Returns err->status, or status
 * when err is NULL.
 */
MSP_API msp_status msp_error_prefix(msp_error *err, msp_status status, const char *fmt, ...) MSP_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
