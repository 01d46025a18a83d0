/*
 * locale.h - text that does not depend on the locale of the program that we are a guest of.
 *
 * After setlocale() printf() writes 1,5 in half of Europe, which a csv file takes for two cells, and strcasecmp() holds
 * in Turkish that I and i are different letters, so that Infinity is no number. The library therefore calls none of
 * the functions that ask for the locale; tools/check_locale sees to it. All of these may be called from any thread.
 */
#ifndef MSP_CORE_LOCALE_H
#define MSP_CORE_LOCALE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "core/str.h"
#include "msprobe/error.h"

/* snprintf() and vsnprintf() as in the C locale. */
int msp_snprintf(char *buf, size_t size, const char *fmt, ...) MSP_PRINTF(3, 4);
int msp_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) MSP_PRINTF(3, 0);

/* What errno's number means, in English. Belongs to the C library, until the thread's next call. */
const char *msp_errno_text(int errnum);

/* Are the texts equal, where A to Z are a to z? Other letters are equal to themselves only. */
bool msp_str_eq_nocase(msp_str a, msp_str b);

#endif
