/*
 * suggest.c - which names were probably meant.
 *
 * Somebody types a whole name with a slip in it, or the beginning of one: so a name is compared with as many parts of
 * each call's name as it has itself. A name comes once however many calls begin with it.
 */
#include <string.h>
#include "core/alloc.h"
#include "core/map.h"
#include "core/path.h"
#include "look/look_parts.h"

enum { LONGEST = 255, MAX_HITS = 8 };

/* The first dots + 1 parts of name. */
static msp_str
first_parts(msp_str name, size_t dots)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.p[i] == '.' && dots-- == 0)
            return (msp_str){name.p, i};
    return name;
}

static unsigned
min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;

    return m < c ? m : c;
}

/* Letters inserted, deleted or replaced; limit + 1 when they are more. Both are at most LONGEST long. */
static unsigned
edit_distance(msp_str a, msp_str b, unsigned limit)
{
    unsigned row[LONGEST + 1];

    if ((a.len > b.len ? a.len - b.len : b.len - a.len) > limit)
        return limit + 1;
    for (size_t k = 0; k <= b.len; k++)
        row[k] = (unsigned)k;
    for (size_t i = 1; i <= a.len; i++) {
        unsigned diagonal = row[0], best = row[0] = (unsigned)i;

        for (size_t k = 1; k <= b.len; k++) {
            unsigned up = row[k];

            row[k] = min3(up + 1, row[k - 1] + 1, diagonal + (a.p[i - 1] != b.p[k - 1]));
            diagonal = up;
            best = row[k] < best ? row[k] : best;
        }
        if (best > limit)
            return limit + 1;
    }
    return row[b.len];
}

typedef struct near {
    msp_str name;
    unsigned distance;
} near;

static void
offer_name(near *list, size_t *n, size_t max, msp_str name, unsigned d)
{
    size_t i;

    if (*n == max && d >= list[max - 1].distance)
        return;
    i = *n < max ? (*n)++ : max - 1;
    for (; i > 0 && list[i - 1].distance > d; i--)
        list[i] = list[i - 1];
    list[i] = (near){name, d};
}

/* "softmx" has no dot: it may be the operator's name alone. */
static void
offer_kinds(near *best, size_t *n, size_t max, const msp_look *l, msp_str word, unsigned limit)
{
    for (size_t i = 0; i < l->summary.nkinds && max > 0; i++) {
        msp_str kind = {l->summary.kinds[i].name.p, l->summary.kinds[i].name.len}, last = kind;
        unsigned d;

        for (const char *dot; (dot = memchr(last.p, '.', last.len)) != NULL;)
            last = (msp_str){dot + 1, last.len - (size_t)(dot + 1 - last.p)};
        d = last.len > LONGEST ? limit + 1 : edit_distance(word, last, limit);
        if (d <= limit)
            offer_name(best, n, max, kind, d);
    }
}

size_t
msp_look_suggest(msp_look_text *out, size_t max, const msp_look *l, const char *name)
{
    msp_str word = msp_str_of(name);
    size_t dots = msp_str_count(word, '.'), n = 0;
    unsigned limit = (unsigned)(word.len < 8 ? 2 : word.len / 4);
    near best[MAX_HITS];
    msp_map seen = {0};
    bool added = true;

    max = max > MAX_HITS ? MAX_HITS : max;
    for (size_t i = 0; i < l->rows->napis && word.len <= LONGEST && max > 0; i++) {
        msp_str candidate = first_parts(l->rows->apis[i].name, dots);
        unsigned d;

        if (candidate.len > LONGEST || msp_map_put(&seen, candidate, 0, &added) == NULL || !added)
            continue;
        d = edit_distance(word, candidate, limit);
        if (d <= limit)
            offer_name(best, &n, max, candidate, d);
    }
    if (dots == 0 && word.len <= LONGEST)
        offer_kinds(best, &n, max, l, word, limit);
    msp_map_release(&seen);
    while (n > 0 && best[n - 1].distance > best[0].distance + 1)
        n--;
    for (size_t i = 0; i < n; i++)
        out[i] = msp_look_text_of(best[i].name);
    return n;
}

bool
msp_look_is_dump(const char *path)
{
    msp_mapping map;
    bool is;

    if (msp_path_kind_of(path) == MSP_PATH_DIR || msp_str_ends(msp_str_of(path), MSP_STR(".json")))
        return true;
    if (msp_map_open(&map, path, NULL) != MSP_OK)
        return false;
    is = msp_legacy_is_text(map.addr, map.size);
    msp_map_close(&map);
    return is;
}
