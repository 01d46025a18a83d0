/*
 * sequence.c - see sequence.h. Items that only one side has are taken out first: they are nobody's partner, and would
 * only cost time. What remains is divided where a path with the fewest differences crosses its middle, which walking
 * from both ends at the same time finds (E. Myers, An O(ND) Difference Algorithm and Its Variations, 1986, section 4b).
 */
#include "compare/match/sequence.h"

#include "core/alloc.h"

enum { STEPS_PER_ITEM = 1024 };

bool
msp_sequence_room_init(msp_sequence_room *r, size_t most, size_t nkeys)
{
    *r = (msp_sequence_room){.room = most, .nkeys = nkeys};
    r->ahead = msp_alloc(2 * most + 3, sizeof(*r->ahead));
    r->back = msp_alloc(2 * most + 3, sizeof(*r->back));
    r->there = msp_alloc_zero(nkeys + 1, 1);
    for (int i = 0; i < 2; i++) {
        r->kept[i] = msp_alloc(most + 1, sizeof(uint32_t));
        r->places[i] = msp_alloc(most + 1, sizeof(uint32_t));
    }
    return r->ahead != NULL && r->back != NULL && r->there != NULL && r->kept[0] != NULL && r->kept[1] != NULL &&
           r->places[0] != NULL && r->places[1] != NULL;
}

void
msp_sequence_room_release(msp_sequence_room *r)
{
    msp_free(r->ahead);
    msp_free(r->back);
    msp_free(r->there);
    for (int i = 0; i < 2; i++) {
        msp_free(r->kept[i]);
        msp_free(r->places[i]);
    }
    *r = (msp_sequence_room){0};
}

typedef struct aligner {
    const uint32_t *a, *b;   /* what both sides have */
    const uint32_t *at, *bt; /* where it stood */
    int64_t *ahead, *back;   /* by diagonal (x - y): how far the paths from the start, from the end, have come */
    int64_t steps;           /* that are left */
    uint32_t *partner;
} aligner;

typedef struct box {
    int64_t x0, x1, y0, y1; /* items of a and of b */
} box;

/* The diagonals that a walk is on: every other one from low to high. */
typedef struct front {
    int64_t low, high;
} front;

/* One more difference: a diagonal more on either side, as long as the box has them. outside: less than any path. */
static void
widen_front(front *f, int64_t *reach, int64_t least, int64_t most, int64_t outside)
{
    if (f->low > least)
        reach[--f->low - 1] = outside;
    else
        f->low++;
    if (f->high < most)
        reach[++f->high + 1] = outside;
    else
        f->high--;
}

static bool
is_on(const front *f, int64_t d)
{
    return d >= f->low && d <= f->high && ((d - f->low) & 1) == 0;
}

/* Where the paths from both ends meet. False: the steps are used up. */
static bool
find_middle(aligner *s, const box *o, int64_t *mx, int64_t *my)
{
    int64_t least = o->x0 - o->y1, most = o->x1 - o->y0, start = o->x0 - o->y0, end = o->x1 - o->y1;
    front f = {start, start}, b = {end, end};
    bool odd = ((start - end) & 1) != 0;

    s->ahead[start] = o->x0;
    s->back[end] = o->x1;
    while (s->steps > 0) {
        widen_front(&f, s->ahead, least, most, -1);
        for (int64_t d = f.high; d >= f.low; d -= 2) {
            int64_t down = s->ahead[d + 1], right = s->ahead[d - 1] + 1, x = down > right - 1 ? down : right;

            for (; x < o->x1 && x - d < o->y1 && s->a[x] == s->b[x - d]; x++)
                s->steps--;
            s->steps--;
            s->ahead[d] = x;
            if (odd && is_on(&b, d) && s->back[d] <= x) {
                *mx = x;
                *my = x - d;
                return true;
            }
        }
        widen_front(&b, s->back, least, most, INT64_MAX);
        for (int64_t d = b.high; d >= b.low; d -= 2) {
            int64_t up = s->back[d - 1], left = s->back[d + 1], x = up < left ? up : left - 1;

            for (; x > o->x0 && x - d > o->y0 && s->a[x - 1] == s->b[x - d - 1]; x--)
                s->steps--;
            s->steps--;
            s->back[d] = x;
            if (!odd && is_on(&f, d) && x <= s->ahead[d]) {
                *mx = x;
                *my = x - d;
                return true;
            }
        }
    }
    return false;
}

static bool
align_box(aligner *s, box o)
{
    for (;;) {
        int64_t mx, my;

        for (; o.x0 < o.x1 && o.y0 < o.y1 && s->a[o.x0] == s->b[o.y0]; o.x0++, o.y0++)
            s->partner[s->at[o.x0]] = s->bt[o.y0];
        for (; o.x0 < o.x1 && o.y0 < o.y1 && s->a[o.x1 - 1] == s->b[o.y1 - 1]; o.x1--, o.y1--)
            s->partner[s->at[o.x1 - 1]] = s->bt[o.y1 - 1];
        if (o.x0 == o.x1 || o.y0 == o.y1)
            return true;
        if (!find_middle(s, &o, &mx, &my) || !align_box(s, (box){o.x0, mx, o.y0, my}))
            return false;
        o.x0 = mx;
        o.y0 = my;
    }
}

/* Items of s whose key the other side has, and where they stood. */
static size_t
keep_common(uint32_t *kept, uint32_t *places, const msp_sequence *s, const msp_sequence *other, uint8_t *there)
{
    size_t n = 0;

    for (size_t i = 0; i < other->count; i++)
        there[other->keys[i]] = 1;
    for (size_t i = 0; i < s->count; i++)
        if (there[s->keys[i]]) {
            kept[n] = s->keys[i];
            places[n++] = (uint32_t)i;
        }
    for (size_t i = 0; i < other->count; i++)
        there[other->keys[i]] = 0;
    return n;
}

bool
msp_sequence_align(uint32_t *partner, const msp_sequence *a, const msp_sequence *b, msp_sequence_room *r)
{
    size_t n = keep_common(r->kept[0], r->places[0], a, b, r->there);
    size_t m = keep_common(r->kept[1], r->places[1], b, a, r->there);
    aligner s = {.a = r->kept[0],
                 .b = r->kept[1],
                 .at = r->places[0],
                 .bt = r->places[1],
                 .ahead = r->ahead + m + 1,
                 .back = r->back + m + 1,
                 .steps = (int64_t)(n + m) * STEPS_PER_ITEM,
                 .partner = partner};

    for (size_t i = 0; i < a->count; i++)
        partner[i] = MATCH_NONE;
    return align_box(&s, (box){0, (int64_t)n, 0, (int64_t)m});
}
