/* eight.h - text looked at eight bytes at a time, as one number. */
#ifndef MSP_CORE_EIGHT_H
#define MSP_CORE_EIGHT_H

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

#endif
