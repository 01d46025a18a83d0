/* bytes.h - little-endian integers at any address, and bounds. */
#ifndef MSP_IO_BYTES_H
#define MSP_IO_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t
load_u16(const void *p)
{
    const unsigned char *b = p;

    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t
load_u32(const void *p)
{
    return load_u16(p) | (uint32_t)load_u16((const unsigned char *)p + 2) << 16;
}

static inline uint64_t
load_u64(const void *p)
{
    return load_u32(p) | (uint64_t)load_u32((const unsigned char *)p + 4) << 32;
}

static inline void
store_u16(void *p, uint16_t v)
{
    unsigned char *b = p;

    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

static inline void
store_u32(void *p, uint32_t v)
{
    store_u16(p, (uint16_t)v);
    store_u16((unsigned char *)p + 2, (uint16_t)(v >> 16));
}

static inline void
store_u64(void *p, uint64_t v)
{
    store_u32(p, (uint32_t)v);
    store_u32((unsigned char *)p + 4, (uint32_t)(v >> 32));
}

/* True when [at, at + len) lies within [0, end), without overflow. */
static inline bool
within(uint64_t at, uint64_t len, uint64_t end)
{
    return at <= end && len <= end - at;
}

#endif
