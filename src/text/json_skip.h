/*
 * json_skip.h - runs of white space, of ordinary characters and of digits, crossed eight bytes at a time with plain
 * integer arithmetic: dumps are indented, and most of their bytes are one of these.
 */
#ifndef MSP_JSON_JSON_SKIP_H
#define MSP_JSON_JSON_SKIP_H

#include <stdbool.h>
#include "core/eight.h"

/* How many bytes of memory come before the first one of w that is not zero; w itself is not. */
static inline int
json_leading(uint64_t w)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_ctzll(w) / 8;
#else
    return __builtin_clzll(w) / 8;
#endif
}

/*
 * The next three have the top bit of each byte set that is not (a space, a plain character of a string, a digit). No
 * sum carries into the next byte: seven bits plus at most 0x7F.
 */
static inline uint64_t
json_not_spaces(uint64_t w)
{
    return w ^ MSP_EACH_BYTE(' '); /* any bit will do here */
}

static inline uint64_t
json_not_plain(uint64_t w)
{
    uint64_t low = w & MSP_EACH_BYTE(0x7F);
    uint64_t no_control = low + MSP_EACH_BYTE(0x80 - ' ');
    uint64_t no_quote = (low ^ MSP_EACH_BYTE('"')) + MSP_EACH_BYTE(0x7F);
    uint64_t no_backslash = (low ^ MSP_EACH_BYTE('\\')) + MSP_EACH_BYTE(0x7F);

    return ~(no_control & no_quote & no_backslash & ~w) & MSP_EACH_BYTE(0x80);
}

static inline uint64_t
json_not_digits(uint64_t w)
{
    uint64_t v = w ^ MSP_EACH_BYTE('0'); /* digits become 0 to 9 */

    return (((v & MSP_EACH_BYTE(0x7F)) + MSP_EACH_BYTE(0x80 - 10)) | v) & MSP_EACH_BYTE(0x80);
}

static inline bool
json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline const char *
json_skip_space(const char *at, const char *end)
{
    while (at < end && json_is_space(*at)) {
        at++;
        while (end - at >= 8) { /* indentation */
            uint64_t stop = json_not_spaces(msp_load8(at));

            if (stop != 0) {
                at += json_leading(stop);
                break;
            }
            at += 8;
        }
    }
    return at;
}

/* To the first byte of a string that needs a look: a quote, backslash, control character or a byte above 0x7F. */
static inline const char *
json_skip_plain(const char *at, const char *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t stop = json_not_plain(msp_load8(at));

        if (stop != 0)
            return at + json_leading(stop);
    }
    while (at < end && *at != '"' && *at != '\\' && (unsigned char)*at >= 0x20 && (unsigned char)*at < 0x80)
        at++;
    return at;
}

static inline const char *
json_skip_digits(const char *at, const char *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t stop = json_not_digits(msp_load8(at));

        if (stop != 0)
            return at + json_leading(stop);
    }
    while (at < end && (unsigned)(*at - '0') < 10)
        at++;
    return at;
}

#endif
