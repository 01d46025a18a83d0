/* map.c - open addressing with linear probing over 32-bit slots; at most three quarters full. */
#include "core/map.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <time.h>
#include "core/alloc.h"
#include "core/vec.h"

static uint64_t
mix_hash(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static uint64_t
process_key(void)
{
    static _Atomic uint64_t key;
    uint64_t k = atomic_load_explicit(&key, memory_order_relaxed), zero = 0;

    if (k != 0)
        return k;
    if (getrandom(&k, sizeof(k), GRND_NONBLOCK) != sizeof(k))
        k = (uint64_t)time(NULL) * 0x9E3779B97F4A7C15u ^ (uintptr_t)&key;
    k |= 1;
    return atomic_compare_exchange_strong(&key, &zero, k) ? k : zero;
}

uint64_t
msp_str_hash(msp_str s)
{
    uint64_t h = process_key() ^ s.len, word;
    size_t i = 0;

    for (; i + 8 <= s.len; i += 8) {
        memcpy(&word, s.p + i, 8);
        h = mix_hash(h ^ word, 0x9FB21C651E98DF25u);
    }
    word = 0;
    if (i < s.len)
        memcpy(&word, s.p + i, s.len - i);
    return mix_hash(h ^ word, 0xD6E8FEB86659FD93u ^ process_key());
}

static uint32_t *
find_slot(const msp_map *m, msp_str key, uint64_t hash)
{
    size_t mask = m->nslots - 1;

    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        uint32_t *slot = &m->slots[i];

        if (*slot == 0)
            return slot;
        if (m->entries[*slot - 1].hash == hash && msp_str_eq(m->entries[*slot - 1].key, key))
            return slot;
    }
}

msp_map_entry *
msp_map_get(const msp_map *m, msp_str key)
{
    uint32_t slot;

    if (m->nslots == 0)
        return NULL;
    slot = *find_slot(m, key, msp_str_hash(key));
    return slot == 0 ? NULL : &m->entries[slot - 1];
}

static bool
grow_slots(msp_map *m)
{
    size_t n = m->nslots == 0 ? 16 : m->nslots * 2;
    uint32_t *slots = msp_alloc_zero(n, sizeof(*slots));

    if (slots == NULL)
        return false;
    msp_free(m->slots);
    m->slots = slots;
    m->nslots = n;
    for (size_t i = 0; i < m->count; i++)
        *find_slot(m, m->entries[i].key, m->entries[i].hash) = (uint32_t)(i + 1);
    return true;
}

msp_map_entry *
msp_map_put(msp_map *m, msp_str key, int64_t value, bool *added)
{
    uint64_t hash = msp_str_hash(key);
    uint32_t *slot;

    if (m->count >= UINT32_MAX - 1)
        return NULL;
    if ((m->count + 1) * 4 > m->nslots * 3 && !grow_slots(m))
        return NULL;
    slot = find_slot(m, key, hash);
    if (added != NULL)
        *added = *slot == 0;
    if (*slot == 0) {
        if (!msp_vec_grow((void **)&m->entries, &m->cap, m->count + 1, sizeof(*m->entries)))
            return NULL;
        m->entries[m->count] = (msp_map_entry){key, hash, value};
        *slot = (uint32_t)++m->count;
    }
    return &m->entries[*slot - 1];
}

void
msp_map_release(msp_map *m)
{
    msp_free(m->entries);
    msp_free(m->slots);
    *m = (msp_map){0};
}
