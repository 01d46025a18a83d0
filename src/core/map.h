/*
 * map.h - a hash map from text to a 64-bit value, in insertion order.
 *
 * Keys are borrowed: they must outlive the map. Hashing is keyed per process, so that a hostile file cannot choose
 * colliding names. A zeroed msp_map is an empty one. Not thread-safe.
 */
#ifndef MSP_CORE_MAP_H
#define MSP_CORE_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include "core/str.h"

typedef struct msp_map_entry {
    msp_str key;
    uint64_t hash;
    int64_t value;
} msp_map_entry;

typedef struct msp_map {
    msp_map_entry *entries; /* in insertion order; read them freely, change value only */
    size_t count, cap;
    uint32_t *slots; /* index + 1 into entries, 0: free; nslots is a power of two */
    size_t nslots;
} msp_map;

uint64_t msp_str_hash(msp_str s);

/* The entry with this key, or NULL. Valid until the next put. */
msp_map_entry *msp_map_get(const msp_map *m, msp_str key);

/*
 * The entry with this key, made with value when there was none; *added (may be NULL) says which. NULL when there is no
 * memory, or at 2^32 - 2 entries.
 */
msp_map_entry *msp_map_put(msp_map *m, msp_str key, int64_t value, bool *added);

void msp_map_release(msp_map *m);

#endif
