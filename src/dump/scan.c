/* scan.c - see scan.h. */
#include "dump/scan.h"

#include <stdint.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include "core/alloc.h"
#include "core/map.h"
#include "core/vec.h"
#include "text/json.h"

typedef enum step { STEP_OK, STEP_END, STEP_BAD, STEP_LIMIT, STEP_NOMEM } step;

enum { RECORD_COST = 80 };

typedef struct cursor {
    const char *p, *end;
} cursor;

static bool
is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void
skip_space(cursor *c)
{
    while (c->p < c->end && is_space(*c->p))
        c->p++;
}

/* The next character after white space is want, and is passed. */
static step
expect_char(cursor *c, char want)
{
    skip_space(c);
    if (c->p == c->end)
        return STEP_END;
    if (*c->p != want)
        return STEP_BAD;
    c->p++;
    return STEP_OK;
}

/* c stands on the opening quote; out gets what is between the quotes. */
static step
pass_string(cursor *c, msp_str *out)
{
    const char *start = c->p + 1, *q = start;

    for (;;) {
        const char *back;

        q = memchr(q, '"', (size_t)(c->end - q));
        if (q == NULL)
            return STEP_END;
        for (back = q; back > start && back[-1] == '\\';)
            back--;
        if ((q - back) % 2 == 0)
            break;
        q++;
    }
    *out = (msp_str){start, (size_t)(q - start)};
    c->p = q + 1;
    return STEP_OK;
}

/* What a byte means between strings: 1 opens, 2 closes, 3 a quote. Everything else is passed over. */
static const uint8_t meaning[256] = {['{'] = 1, ['['] = 1, ['}'] = 2, [']'] = 2, ['"'] = 3};

enum { BLOCK = 64 };

#if defined(__SSE2__)

/* One bit for each of the 64 bytes at p that is c once the bits in fold are set. */
static uint64_t
bits_of(const char *p, char c, char fold)
{
    uint64_t bits = 0;

    for (int i = 0; i < 4; i++) {
        __m128i v = _mm_or_si128(_mm_loadu_si128((const __m128i *)(p + 16 * i)), _mm_set1_epi8(fold));

        bits |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c))) << 16 * i;
    }
    return bits;
}

/* Each bit becomes the parity of itself and all lower ones: from quotes, what is inside them. */
static uint64_t
parity_below(uint64_t bits)
{
    for (int shift = 1; shift < 64; shift *= 2)
        bits ^= bits << shift;
    return bits;
}

/* Not every x86-64 has an instruction for this, and a call costs more than these steps. */
static size_t
count_bits(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    return ((x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f)) * UINT64_C(0x0101010101010101) >> 56;
}

/* The bit, among the brackets of one block, at which the container closes; -1: it does not, and *depth is what follows.
 */
static int
closing_bit(uint64_t opens, uint64_t closes, size_t *depth)
{
    size_t ends = count_bits(closes);

    if (ends < *depth) {
        *depth += count_bits(opens) - ends;
        return -1;
    }
    for (uint64_t all = opens | closes; all != 0; all &= all - 1) {
        uint64_t lowest = all & -all;

        *depth += (opens & lowest) != 0 ? 1 : SIZE_MAX;
        if (*depth == 0)
            return __builtin_ctzll(lowest);
    }
    return -1;
}

/*
 * From a place between strings: pass blocks of 64 bytes that have no backslash. '{' and '[' differ in one bit, as do
 * '}' and ']'. STEP_OK: the container ended; STEP_BAD: not yet; STEP_END: the text ends inside a string.
 */
static step
pass_blocks(cursor *c, size_t *depth)
{
    bool inside = false;
    msp_str s;

    while (c->end - c->p >= BLOCK && bits_of(c->p, '\\', 0) == 0) {
        uint64_t within = parity_below(bits_of(c->p, '"', 0)) ^ (inside ? ~UINT64_C(0) : 0);
        int end = closing_bit(bits_of(c->p, '{', 0x20) & ~within, bits_of(c->p, '}', 0x20) & ~within, depth);

        if (end >= 0) {
            c->p += end + 1;
            return STEP_OK;
        }
        inside = within >> 63 != 0;
        c->p += BLOCK;
    }
    if (!inside)
        return STEP_BAD;
    c->p--; /* as if the string began here: nothing before it matters */
    return pass_string(c, &s) == STEP_OK ? STEP_BAD : STEP_END;
}

#else

static step
pass_blocks(cursor *c, size_t *depth)
{
    (void)c;
    (void)depth;
    return STEP_BAD;
}

#endif

/* Byte by byte up to limit; STEP_BAD stands for "not closed yet". */
static step
pass_bytes(cursor *c, const char *limit, size_t *depth)
{
    msp_str s;

    while (c->p < limit) {
        switch (meaning[(uint8_t)*c->p]) {
        case 1:
            ++*depth;
            break;
        case 2:
            if (--*depth == 0) {
                c->p++;
                return STEP_OK;
            }
            break;
        case 3:
            if (pass_string(c, &s) != STEP_OK)
                return STEP_END;
            continue;
        }
        c->p++;
    }
    return STEP_BAD;
}

/* c stands on the opening bracket. */
static step
pass_container(cursor *c)
{
    size_t depth = 1;

    c->p++;
    while (c->p < c->end) {
        step st = pass_blocks(c, &depth);

        if (st == STEP_BAD)
            st = pass_bytes(c, c->end - c->p > BLOCK ? c->p + BLOCK : c->end, &depth);
        if (st != STEP_BAD)
            return st;
    }
    return STEP_END;
}

static step
pass_value(cursor *c, msp_str *out)
{
    const char *start;
    msp_str s;
    step st;

    skip_space(c);
    if (c->p == c->end)
        return STEP_END;
    start = c->p;
    if (meaning[(uint8_t)*c->p] == 1) {
        st = pass_container(c);
    } else if (*c->p == '"') {
        st = pass_string(c, &s);
    } else {
        while (c->p < c->end && !is_space(*c->p) && *c->p != ',' && meaning[(uint8_t)*c->p] == 0)
            c->p++;
        st = c->p == c->end ? STEP_END : c->p == start ? STEP_BAD : STEP_OK;
    }
    *out = (msp_str){start, (size_t)(c->p - start)};
    return st;
}

/*
 * Passes "key": and stands before the value. STEP_OK with *last set when the object ended instead. first says that no
 * comma is due yet.
 */
static step
pass_key(cursor *c, bool first, msp_str *key, bool *last)
{
    step st;

    *last = false;
    skip_space(c);
    if (c->p == c->end)
        return STEP_END;
    if (*c->p == '}') {
        c->p++;
        *last = true;
        return STEP_OK;
    }
    if (!first) {
        st = expect_char(c, ',');
        if (st != STEP_OK)
            return st;
        skip_space(c);
        if (c->p == c->end)
            return STEP_END;
    }
    if (*c->p != '"')
        return STEP_BAD;
    st = pass_string(c, key);
    return st == STEP_OK ? expect_char(c, ':') : st;
}

/* A key with escapes is resolved by the JSON parser itself. */
static step
resolve_name(msp_dump_scan *s, msp_str raw, msp_str *out)
{
    msp_json_doc doc;
    msp_str text;
    char *copy;

    *out = raw;
    if (raw.len == 0 || memchr(raw.p, '\\', raw.len) == NULL)
        return STEP_OK;
    if (msp_json_parse(&doc, raw.p - 1, raw.len + 2, NULL) != MSP_OK)
        return STEP_BAD;
    text = msp_json_string(doc.root);
    copy = msp_arena_text(&s->arena, text.p, text.len);
    *out = (msp_str){copy, text.len};
    msp_json_doc_release(&doc);
    return copy == NULL ? STEP_NOMEM : STEP_OK;
}

/* Does the record's text outweigh what it costs, or is the excess still bearable? A name with escapes is copied. */
static step
charge_record(msp_dump_scan *s, msp_str raw, msp_str value)
{
    bool escaped = raw.len > 0 && memchr(raw.p, '\\', raw.len) != NULL;
    size_t cost = RECORD_COST + (escaped ? raw.len : 0), text = raw.len + value.len;

    if (text < cost)
        s->excess += cost - text;
    return s->excess > msp_reader_extra() / 4 ? STEP_LIMIT : STEP_OK;
}

static step
add_span(msp_dump_scan *s, msp_str raw, msp_str value)
{
    msp_str name;
    step st = charge_record(s, raw, value);

    if (st == STEP_OK)
        st = resolve_name(s, raw, &name);
    if (st != STEP_OK)
        return st;
    if (!msp_vec_grow((void **)&s->spans, &s->cap, s->count + 1, sizeof(*s->spans)))
        return STEP_NOMEM;
    s->spans[s->count++] = (msp_dump_span){name, value};
    return STEP_OK;
}

/*
 * A name that comes twice keeps its first place and its last value, as in a Python dict. Done when all names are known:
 * a table that grows with them costs as much as finding them.
 */
static step
join_repeated(msp_dump_scan *s)
{
    size_t nslots = 16, kept = 0;
    uint32_t *slots; /* where in spans a name is, and 1; 0: free */

    if (s->count >= UINT32_MAX)
        return STEP_NOMEM;
    while (nslots < 2 * s->count)
        nslots *= 2;
    slots = msp_alloc_zero(nslots, sizeof(*slots));
    if (slots == NULL)
        return STEP_NOMEM;
    for (size_t i = 0; i < s->count; i++) {
        size_t at = msp_str_hash(s->spans[i].name) & (nslots - 1);

        while (slots[at] != 0 && !msp_str_eq(s->spans[slots[at] - 1].name, s->spans[i].name))
            at = (at + 1) & (nslots - 1);
        if (slots[at] != 0) {
            s->spans[slots[at] - 1].value = s->spans[i].value;
        } else {
            s->spans[kept++] = s->spans[i];
            slots[at] = (uint32_t)kept;
        }
    }
    s->count = kept;
    msp_free(slots);
    return STEP_OK;
}

/* c stands on the brace of "data". */
static step
scan_records(msp_dump_scan *s, cursor *c, const char *text)
{
    msp_str key, value;
    bool last = false, first = true;
    step st = STEP_OK, joined;

    s->data_is_object = true;
    c->p++;
    s->cut_at = (size_t)(c->p - text);
    while (st == STEP_OK) {
        st = pass_key(c, first, &key, &last);
        if (st != STEP_OK || last)
            break;
        st = pass_value(c, &value);
        if (st == STEP_OK)
            st = add_span(s, key, value);
        s->cut_at = st == STEP_OK ? (size_t)(c->p - text) : s->cut_at;
        first = false;
    }
    joined = st == STEP_OK || st == STEP_END ? join_repeated(s) : STEP_OK;
    return joined == STEP_OK ? st : joined;
}

static step
scan_member(msp_dump_scan *s, cursor *c, msp_str key, const char *text)
{
    static const struct {
        const char *name;
        size_t offset;
    } wanted[] = {{"task", offsetof(msp_dump_scan, task)},
                  {"level", offsetof(msp_dump_scan, level)},
                  {"framework", offsetof(msp_dump_scan, framework)},
                  {"data", offsetof(msp_dump_scan, data)}};
    msp_str value;
    step st;

    skip_space(c);
    if (msp_str_eq(key, MSP_STR("data")) && c->p < c->end && *c->p == '{') {
        const char *start = c->p;

        s->count = 0;
        st = scan_records(s, c, text);
        s->data = (msp_str){start, (size_t)(c->p - start)};
        return st;
    }
    st = pass_value(c, &value);
    for (size_t i = 0; st == STEP_OK && i < sizeof(wanted) / sizeof(wanted[0]); i++)
        if (msp_str_eq(key, msp_str_of(wanted[i].name)))
            *(msp_str *)((char *)s + wanted[i].offset) = value;
    return st;
}

static step
scan_top(msp_dump_scan *s, const char *text, size_t size)
{
    cursor c = {text, text + size};
    bool last = false, first = true;
    step st = expect_char(&c, '{');
    msp_str key;

    while (st == STEP_OK) {
        st = pass_key(&c, first, &key, &last);
        if (st != STEP_OK || last)
            break;
        st = scan_member(s, &c, key, text);
        if (st == STEP_OK)
            s->cut_at = (size_t)(c.p - text);
        first = false;
    }
    skip_space(&c);
    return st == STEP_OK && c.p != c.end ? STEP_BAD : st;
}

msp_status
msp_dump_scan_text(msp_dump_scan *out, const char *text, size_t size, msp_error *err)
{
    size_t all = size, cut_at;
    step st;

    *out = (msp_dump_scan){0};
    /* a crash leaves blocks that were allocated and never written: zeroes at the end */
    while (size > 0 && text[size - 1] == '\0')
        size--;
    st = scan_top(out, text, size);
    if (st == STEP_OK && size == all)
        return MSP_OK;
    if (st == STEP_OK || st == STEP_END) {
        out->cut = true;
        return MSP_OK;
    }
    cut_at = out->cut_at;
    msp_dump_scan_release(out);
    if (st == STEP_NOMEM)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == STEP_LIMIT)
        return msp_error_set(err, MSP_E_LIMIT,
                             "byte %zu: more records of a few bytes each than a dump can have; is this a dump.json?",
                             cut_at);
    return msp_error_set(err, MSP_E_FORMAT, "not a JSON object");
}

void
msp_dump_scan_release(msp_dump_scan *s)
{
    msp_arena_release(&s->arena);
    msp_free(s->spans);
    *s = (msp_dump_scan){0};
}
