/* eight.h - text looked at eight bytes at a time, as one number. */
#ifndef MSP_CORE_EIGHT_H
#define MSP_CORE_EIGHT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A number whose eight bytes are all b. */
#define MSP_EACH_BYTE(b) (0x0101010101010101ULL * (unsigned char)(b))

/* The eight bytes at p, which may be anywhere in memory, in the machine's order. */
static inline uint64_t
msp_load8(const char *p)
{
    uint64_t w;

    memcpy(&w, p, sizeof(w));
    return w;
}

/* Eight printable characters of ASCII, none of which is a backslash or this quote. */
static inline bool
msp_are_plain8(const char *p, char quote)
{
    uint64_t w = msp_load8(p), low, plain;

    low = w & MSP_EACH_BYTE(0x7F); /* so that no sum carries into the next byte */
    plain = (low + MSP_EACH_BYTE(0x80 - ' ')) & ~(low + MSP_EACH_BYTE(0x80 - 0x7F)) &
            ((low ^ MSP_EACH_BYTE(quote)) + MSP_EACH_BYTE(0x7F)) & ((low ^ MSP_EACH_BYTE('\\')) + MSP_EACH_BYTE(0x7F)) &
            ~w;
    return (plain & MSP_EACH_BYTE(0x80)) == MSP_EACH_BYTE(0x80);
}

#endif
