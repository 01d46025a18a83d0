/*
 * yaml.c - libyaml's events to the tree of json.h: see yaml.h.
 *
 * Which plain scalars are numbers is decided by the patterns of YAML 1.1 as PyYAML has them, quirks included: 1e5 and
 * 0o17 are strings, 1.5e+3 is a number, 010 is eight, 1:30 is ninety.
 */
#include <yaml.h>

#include "text/json_build.h"
#include "text/utf8.h"
#include "text/yaml.h"

enum { DEPTH_MAX = 64, SIZE_MAX_MIB = 64, DIRECTIVES_MAX = 100 };

#define CORE_TAG "tag:yaml.org,2002:"

typedef struct reader {
    yaml_parser_t parser;
    msp_json_builder build;
    const char *text;
    size_t size;
    size_t byte, chars; /* how far bytes and characters of the text were matched */
    msp_buf scratch;    /* a number without its underscores */
    msp_error *err;
} reader;

/* ---- failing ------------------------------------------------------------------------------------ */

static msp_status
fail_memory(reader *r)
{
    return msp_error_set(r->err, MSP_E_NOMEM, "out of memory while reading YAML of %zu bytes", r->size);
}

/* The builder could not take what was read up to mark. */
static msp_status
fail_build(reader *r, yaml_mark_t mark)
{
    if (r->build.over)
        return msp_error_set(r->err, MSP_E_LIMIT, "line %zu, column %zu: " MSP_JSON_OVER_TEXT, mark.line + 1,
                             mark.column + 1, r->size, msp_json_extra() >> 20);
    return fail_memory(r);
}

static msp_status
fail_at(reader *r, yaml_mark_t mark, msp_status status, const char *problem)
{
    return msp_error_set(r->err, status, "line %zu, column %zu: %s", mark.line + 1, mark.column + 1, problem);
}

static msp_status
fail_syntax(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    size_t line, column;

    if (p->error == YAML_MEMORY_ERROR)
        return fail_memory(r);
    if (p->error == YAML_READER_ERROR) {
        msp_utf8_locate(r->text, p->problem_offset < r->size ? p->problem_offset : r->size, &line, &column);
        return msp_error_set(r->err, MSP_E_FORMAT, "line %zu, column %zu (byte %zu): %s", line, column,
                             p->problem_offset, p->problem);
    }
    if (p->context != NULL)
        return msp_error_set(r->err, MSP_E_FORMAT, "line %zu, column %zu: %s %s", p->problem_mark.line + 1,
                             p->problem_mark.column + 1, p->problem, p->context);
    return fail_at(r, p->problem_mark, MSP_E_FORMAT, p->problem);
}

/* ---- the patterns of numbers -------------------------------------------------------------------- */

#define DIGITS "0123456789"

static const char *
skip_sign(const char *s)
{
    return *s == '-' || *s == '+' ? s + 1 : s;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* All of s, at least one character, is of this set. */
static bool
only_chars(const char *s, const char *set)
{
    return *s != '\0' && s[strspn(s, set)] == '\0';
}

/* Behind (:[0-5]?[0-9])+ at s, or NULL. */
static const char *
skip_sixties(const char *s)
{
    if (*s != ':')
        return NULL;
    while (*s == ':') {
        if (!is_digit(s[1]))
            return NULL;
        s += s[1] <= '5' && is_digit(s[2]) ? 3 : 2;
    }
    return s;
}

static bool
looks_like_int(const char *s)
{
    s = skip_sign(s);
    if (s[0] == '0') {
        if (s[1] == 'b')
            return only_chars(s + 2, "01_");
        if (s[1] == 'x')
            return only_chars(s + 2, DIGITS "abcdefABCDEF_");
        return s[1] == '\0' || only_chars(s + 1, "01234567_");
    }
    if (!is_digit(*s))
        return false;
    s += strspn(s, DIGITS "_");
    if (*s == ':')
        s = skip_sixties(s);
    return s != NULL && *s == '\0';
}

static bool
is_exponent_or_end(const char *s)
{
    if (*s == '\0')
        return true;
    return (*s == 'e' || *s == 'E') && (s[1] == '-' || s[1] == '+') && only_chars(s + 2, DIGITS);
}

static bool
is_word(const char *s, const char *const words[])
{
    for (; *words != NULL; words++)
        if (strcmp(s, *words) == 0)
            return true;
    return false;
}

static bool
looks_like_float(const char *s)
{
    static const char *const infinities[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const nans[] = {".nan", ".NaN", ".NAN", NULL};
    const char *p = skip_sign(s);

    if (is_digit(*p)) {
        p += strspn(p, DIGITS "_");
        if (*p == '.')
            return is_exponent_or_end(p + 1 + strspn(p + 1, DIGITS "_"));
        p = skip_sixties(p);
        return p != NULL && *p == '.' && p[1 + strspn(p + 1, DIGITS "_")] == '\0';
    }
    if (s[0] == '.' && is_digit(s[1]))
        return is_exponent_or_end(s + 1 + strspn(s + 1, DIGITS "_"));
    return is_word(p, infinities) || is_word(s, nans);
}

static msp_json_kind
kind_of_plain(const char *s)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", NULL};
    static const char *const no[] = {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", NULL};

    if (is_word(s, nulls))
        return MSP_JSON_NULL;
    if (is_word(s, yes))
        return MSP_JSON_TRUE;
    if (is_word(s, no))
        return MSP_JSON_FALSE;
    if (looks_like_float(s))
        return MSP_JSON_FLOAT;
    return looks_like_int(s) ? MSP_JSON_INT : MSP_JSON_STRING;
}

/* ---- the values of numbers ---------------------------------------------------------------------- */

static bool
copy_without_underscores(msp_buf *out, const char *s)
{
    msp_buf_clear(out);
    for (; *s != '\0'; s++)
        if (*s != '_')
            msp_buf_char(out, *s);
    return !out->failed;
}

/* Whole number in this base, all of s; false when it does not fit or there is no digit. */
static bool
to_u64(const char *s, unsigned base, uint64_t *out)
{
    *out = 0;
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        unsigned digit = is_digit(*s) ? (unsigned)(*s - '0') : (unsigned)((*s | 0x20) - 'a' + 10);

        if (__builtin_mul_overflow(*out, base, out) || __builtin_add_overflow(*out, digit, out))
            return false;
    }
    return true;
}

/* 1:30:00 and its like: each part counts sixty of the next. */
static bool
sixties_to_u64(const char *s, uint64_t *out)
{
    uint64_t part = 0;

    *out = 0;
    for (;; s++) {
        if (is_digit(*s)) {
            if (__builtin_mul_overflow(part, 10u, &part) || __builtin_add_overflow(part, (unsigned)(*s - '0'), &part))
                return false;
            continue;
        }
        if (__builtin_mul_overflow(*out, 60u, out) || __builtin_add_overflow(*out, part, out))
            return false;
        if (*s == '\0')
            return true;
        part = 0;
    }
}

/*
 * Turn the scratch buffer, which looks like an integer, into plain decimal digits. False when it has another base than
 * ten and does not fit 64 bits: such a scalar stays a string.
 */
static bool
normalise_int(msp_buf *b)
{
    const char *s = skip_sign(b->p);
    bool negative = b->p[0] == '-', fits;
    char text[MSP_INT_TEXT_MAX];
    uint64_t v;

    if (s[0] == '0' && s[1] == 'b')
        fits = to_u64(s + 2, 2, &v);
    else if (s[0] == '0' && s[1] == 'x')
        fits = to_u64(s + 2, 16, &v);
    else if (s[0] == '0')
        fits = to_u64(s, 8, &v);
    else if (strchr(s, ':') != NULL)
        fits = sixties_to_u64(s, &v);
    else {
        if (b->p[0] == '+') {
            memmove(b->p, b->p + 1, b->len); /* with its terminator */
            b->len--;
        }
        return true;
    }
    if (!fits)
        return false;
    msp_u64_text(text, v);
    msp_buf_clear(b);
    if (negative && v != 0)
        msp_buf_char(b, '-');
    msp_buf_text(b, text);
    return true;
}

/* From the last part to the first, as PyYAML sums them up: the roundings are then the same. */
static double
sixties_to_f64(const char *s)
{
    const char *end = s + strlen(s), *from = end;
    double sum = 0, base = 1, part;

    while (from > s) {
        while (from > s && from[-1] != ':')
            from--;
        part = 0;
        msp_f64_parse((msp_str){from, (size_t)(end - from)}, &part);
        sum += part * base;
        base *= 60;
        if (from > s)
            end = --from;
    }
    return sum;
}

/* The number that looks like a float in *b as text that JSON has, too: Python's repr, or JSON's words for what is not
 * finite. */
static void
normalise_float(msp_buf *b)
{
    const char *s = skip_sign(b->p);
    bool negative = b->p[0] == '-';
    char text[32];
    double v = 0;

    if (s[0] == '.' && !is_digit(s[1]))
        v = (s[1] | 0x20) == 'i' ? __builtin_inf() : __builtin_nan("");
    else if (strchr(s, ':') != NULL)
        v = sixties_to_f64(s);
    else
        msp_f64_parse((msp_str){s, strlen(s)}, &v);
    msp_f64_repr(text, negative ? -v : v);
    msp_buf_clear(b);
    if (v != v)
        msp_buf_text(b, "NaN");
    else if (v - v != 0)
        msp_buf_text(b, negative ? "-Infinity" : "Infinity");
    else
        msp_buf_text(b, text);
}

/* ---- scalars ------------------------------------------------------------------------------------ */

/* The byte at which a mark stands: libyaml counts characters. Marks come in order, so each byte is passed once. */
static uint64_t
byte_of(reader *r, yaml_mark_t mark)
{
    while (r->chars < mark.index && r->byte < r->size) {
        r->byte++;
        while (r->byte < r->size && ((unsigned char)r->text[r->byte] & 0xC0) == 0x80)
            r->byte++;
        r->chars++;
    }
    return r->byte;
}

static msp_status
push_node(reader *r, msp_json node)
{
    return json_push(&r->build, node) ? MSP_OK : fail_build(r, r->parser.mark);
}

static msp_status
push_text(reader *r, msp_json_kind kind, uint64_t offset, const char *text, size_t len)
{
    msp_json node = msp_json_copied(&r->build, kind, offset, text, len);

    return node.u.text == NULL ? fail_build(r, r->parser.mark) : push_node(r, node);
}

static msp_status
push_number(reader *r, msp_json_kind kind, uint64_t offset, const char *text, size_t len)
{
    if (!copy_without_underscores(&r->scratch, text))
        return fail_memory(r);
    if (kind == MSP_JSON_FLOAT)
        normalise_float(&r->scratch);
    else if (!normalise_int(&r->scratch))
        return push_text(r, MSP_JSON_STRING, offset, text, len);
    if (r->scratch.failed)
        return fail_memory(r);
    return push_text(r, kind, offset, r->scratch.p, r->scratch.len);
}

/* The kind that a tag asks for; the text must be fit for it. */
static msp_status
kind_of_tagged(reader *r, const yaml_event_t *e, msp_json_kind *out)
{
    const char *tag = (const char *)e->data.scalar.tag, *text = (const char *)e->data.scalar.value;
    msp_json_kind plain = kind_of_plain(text);
    bool fits;

    if (strcmp(tag, CORE_TAG "str") == 0) {
        *out = MSP_JSON_STRING;
        fits = true;
    } else if (strcmp(tag, CORE_TAG "null") == 0) {
        *out = MSP_JSON_NULL;
        fits = true;
    } else if (strcmp(tag, CORE_TAG "bool") == 0) {
        *out = plain;
        fits = plain == MSP_JSON_TRUE || plain == MSP_JSON_FALSE;
    } else if (strcmp(tag, CORE_TAG "int") == 0) {
        *out = MSP_JSON_INT;
        fits = plain == MSP_JSON_INT;
    } else if (strcmp(tag, CORE_TAG "float") == 0) {
        double v;

        *out = MSP_JSON_FLOAT;
        fits = plain == MSP_JSON_FLOAT || msp_f64_parse((msp_str){text, e->data.scalar.length}, &v);
    } else {
        return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED,
                       "only the tags !!str, !!int, !!float, !!bool, !!null, !!seq and !!map are understood");
    }
    return fits ? MSP_OK : fail_at(r, e->start_mark, MSP_E_FORMAT, "the value does not fit its tag");
}

static bool
key_is_next(const reader *r)
{
    const msp_json_builder *b = &r->build;

    return b->depth > 0 && node_kind(json_innermost(b)) == MSP_JSON_OBJECT && (b->n - b->first[b->depth - 1]) % 2 == 0;
}

static msp_status
add_scalar(reader *r, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    uint64_t offset = byte_of(r, e->start_mark);
    msp_json_kind kind = MSP_JSON_STRING;
    msp_status st;

    if (key_is_next(r)) {
        if (e->data.scalar.plain_implicit && strcmp(text, "<<") == 0)
            return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED,
                           "merge keys (<<) are not understood: write the members out");
        return push_text(r, MSP_JSON_STRING, offset, text, len);
    }
    if (e->data.scalar.plain_implicit) {
        kind = kind_of_plain(text);
    } else if (e->data.scalar.tag != NULL) {
        st = kind_of_tagged(r, e, &kind);
        if (st != MSP_OK)
            return st;
    }
    switch (kind) {
    case MSP_JSON_INT:
    case MSP_JSON_FLOAT:
        return push_number(r, kind, offset, text, len);
    case MSP_JSON_STRING:
        return push_text(r, kind, offset, text, len);
    default:
        return push_node(r, node_at(kind, offset));
    }
}

/* ---- structure ---------------------------------------------------------------------------------- */

static msp_status
open_container(reader *r, const yaml_event_t *e, msp_json_kind kind, const yaml_char_t *tag, const char *usual_tag)
{
    msp_json node = node_at(kind, byte_of(r, e->start_mark));

    if (key_is_next(r))
        return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED, "a key must be a scalar, not a list or a mapping");
    if (tag != NULL && strcmp((const char *)tag, "!") != 0 && strcmp((const char *)tag, usual_tag) != 0)
        return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED,
                       "lists and mappings with a tag of their own are not understood");
    if (r->build.depth == DEPTH_MAX)
        return fail_at(r, e->start_mark, MSP_E_LIMIT, "nested too deeply: the limit is 64");
    return json_open(&r->build, node) ? MSP_OK : fail_build(r, e->start_mark);
}

static msp_status
close_container(reader *r)
{
    msp_json *container = json_innermost(&r->build);

    if (!msp_json_builder_close(&r->build))
        return fail_build(r, r->parser.mark);
    if (node_len(container) > 0)
        container->word |= NODE_FLAG; /* it begins where its first item does */
    return MSP_OK;
}

static msp_status
take_event(reader *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return add_scalar(r, e);
    case YAML_SEQUENCE_START_EVENT:
        return open_container(r, e, MSP_JSON_ARRAY, e->data.sequence_start.tag, CORE_TAG "seq");
    case YAML_MAPPING_START_EVENT:
        return open_container(r, e, MSP_JSON_OBJECT, e->data.mapping_start.tag, CORE_TAG "map");
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_container(r);
    case YAML_ALIAS_EVENT:
        return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED, "aliases (*name) are not understood: write the value out");
    case YAML_DOCUMENT_START_EVENT:
        if (r->build.n > 0)
            return fail_at(r, e->start_mark, MSP_E_UNSUPPORTED, "a second document begins; only one is expected");
        return MSP_OK;
    default: /* begin and end of the stream, end of the document */
        return MSP_OK;
    }
}

static msp_status
read_events(reader *r)
{
    yaml_event_t e;
    bool end;
    msp_status st;

    do {
        if (!yaml_parser_parse(&r->parser, &e))
            return fail_syntax(r);
        st = take_event(r, &e);
        end = e.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    } while (st == MSP_OK && !end);
    return st;
}

/*
 * libyaml compares every %TAG directive with all before it: 600 KB of them take it seconds, 64 MiB hours. Counted
 * wherever they stand, because what stands between documents is processed before anybody hears of a second one.
 */
static msp_status
check_directives(reader *r)
{
    const msp_str tag = MSP_STR("%TAG");
    msp_str rest = {r->text, r->size};
    const char *at;
    size_t line, column;

    for (int n = 0; (at = msp_str_find(rest, tag)) != NULL; n++) {
        if (n == DIRECTIVES_MAX) {
            msp_utf8_locate(r->text, (size_t)(at - r->text), &line, &column);
            return msp_error_set(r->err, MSP_E_LIMIT, "line %zu, column %zu: more than %d %%TAG directives", line,
                                 column, DIRECTIVES_MAX);
        }
        rest = (msp_str){at + tag.len, (size_t)(r->text + r->size - at) - tag.len};
    }
    return MSP_OK;
}

msp_status
msp_yaml_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err)
{
    reader r = {.text = text, .size = size, .err = err};
    msp_status st;

    *out = (msp_json_doc){0};
    if (size > (size_t)SIZE_MAX_MIB << 20)
        return msp_error_set(err, MSP_E_LIMIT, "a YAML text of %zu bytes is too large: the limit is %d MiB", size,
                             SIZE_MAX_MIB);
    st = check_directives(&r);
    if (st != MSP_OK)
        return st;
    msp_json_builder_init(&r.build, size);
    if (!yaml_parser_initialize(&r.parser))
        return fail_memory(&r);
    /* not guessed: then marks count the characters that byte_of() counts, and a byte order mark is one of them */
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, size);
    st = read_events(&r);
    if (st == MSP_OK && r.build.n > 0) {
        out->root = msp_json_builder_root(&r.build);
        if (out->root == NULL)
            st = fail_memory(&r);
    }
    if (st == MSP_OK) {
        out->arena = r.build.arena;
        r.build.arena = (msp_arena){0};
    }
    msp_json_builder_release(&r.build);
    msp_buf_release(&r.scratch);
    yaml_parser_delete(&r.parser);
    return st;
}
