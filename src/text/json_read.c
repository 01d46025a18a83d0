/*
 * json_read.c - text to tree, in one pass and without recursion: see json.h.
 *
 * Strict: what Python's json.load refuses is refused here, with one exception, a byte order mark, which is skipped.
 * Strings must be UTF-8, so that nothing behind this door has to wonder.
 */
#include "text/json_build.h"

#include "core/alloc.h"
#include "text/json_skip.h"
#include "text/utf8.h"

/* Half of the tokens of a dump are strings: a call for each is a tenth of the time. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef struct parser {
    const char *text, *at, *end; /* at: the token that is next, or being read */
    msp_json_builder build;
    msp_status status;
    const char *wrong, *problem; /* with status: where, and what was expected there */
} parser;

/* ---- failing ------------------------------------------------------------------------------------ */

static bool
fail_at(parser *p, const char *at, const char *problem)
{
    p->status = MSP_E_FORMAT;
    p->wrong = at;
    p->problem = problem;
    return false;
}

/* The builder could not take a value: there is no memory, or the text has had its share. */
static bool
fail_memory(parser *p)
{
    p->status = p->build.over ? MSP_E_LIMIT : MSP_E_NOMEM;
    p->wrong = p->at;
    return false;
}

static msp_status
report_failure(const parser *p, msp_error *err)
{
    size_t line, column, byte;
    unsigned char c;

    if (p->status == MSP_E_NOMEM)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory while reading JSON of %zu bytes",
                             (size_t)(p->end - p->text));
    byte = (size_t)(p->wrong - p->text);
    msp_utf8_locate(p->text, byte, &line, &column);
    if (p->build.over)
        return msp_error_set(err, p->status, "line %zu, column %zu (byte %zu): " MSP_JSON_OVER_TEXT, line, column, byte,
                             (size_t)(p->end - p->text), msp_json_extra() >> 20);
    if (p->wrong == p->end)
        return msp_error_set(err, p->status, "line %zu, column %zu (byte %zu): %s, but the text ends here", line,
                             column, byte, p->problem);
    c = (unsigned char)*p->wrong;
    return msp_error_set(err, p->status,
                         c > ' ' && c < 0x7F ? "line %zu, column %zu (byte %zu): %s, not '%c'"
                                             : "line %zu, column %zu (byte %zu): %s, not byte 0x%02x",
                         line, column, byte, p->problem, c);
}

/* ---- strings ------------------------------------------------------------------------------------ */

static int
hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits, or what is there of them: *at is left behind the last one. */
static uint32_t
hex4(const char **at, const char *end)
{
    uint32_t v = 0;

    for (int i = 0; i < 4 && *at < end && hex_digit(**at) >= 0; i++)
        v = v << 4 | (uint32_t)hex_digit(*(*at)++);
    return v;
}

/* Is the escape right whose backslash is at *at? Then move behind it. */
static bool
check_escape(parser *p, const char **at)
{
    const char *digits, *q = *at + 1;

    if (q == p->end || memchr("\"\\/bfnrtu", *q, 9) == NULL)
        return fail_at(p, q, "expected one of \"\\/bfnrtu after a backslash");
    if (*q++ == 'u') {
        digits = q;
        hex4(&q, p->end);
        if (q - digits != 4)
            return fail_at(p, q, "expected four hexadecimal digits after \\u");
    }
    *at = q;
    return true;
}

static uint32_t
unescaped_char(const char **at, const char *end)
{
    uint32_t c, low;
    const char *next;

    switch (*(*at)++) {
    case 'b':
        return '\b';
    case 'f':
        return '\f';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'u':
        break;
    default:
        return (unsigned char)(*at)[-1];
    }
    c = hex4(at, end);
    if (c < 0xD800 || c > 0xDBFF || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
        return c;
    next = *at + 2;
    low = hex4(&next, end);
    if (low < 0xDC00 || low > 0xDFFF)
        return c;
    *at = next;
    return 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
}

/* The text between two quotes, which is known to be right, with its escapes resolved. It only becomes shorter. */
static bool
push_unescaped(parser *p, const char *from, const char *to)
{
    msp_json node =
        msp_json_copied(&p->build, MSP_JSON_STRING, (uint64_t)(from - 1 - p->text), from, (size_t)(to - from));
    char *out = (char *)node.u.text;

    if (out == NULL)
        return fail_memory(p);
    while (from < to) {
        const char *next = memchr(from, '\\', (size_t)(to - from));
        size_t plain = (size_t)((next == NULL ? to : next) - from);

        memcpy(out, from, plain);
        out += plain;
        from += plain;
        if (next == NULL)
            break;
        from++;
        out += msp_utf8_encode(out, unescaped_char(&from, to));
    }
    node = node_of_text(MSP_JSON_STRING, node.u.text, (size_t)(out - node.u.text));
    node.word |= NODE_FLAG;
    return json_push(&p->build, node) || fail_memory(p);
}

ALWAYS_INLINE bool
read_string(parser *p)
{
    const char *from = p->at + 1, *at = from;
    bool escaped = false;
    uint32_t c;
    int n;

    for (;;) {
        at = json_skip_plain(at, p->end);
        if (at == p->end)
            return fail_at(p, at, "expected '\"' at the end of a string");
        if (*at == '"')
            break;
        if (*at == '\\') {
            escaped = true;
            if (!check_escape(p, &at))
                return false;
        } else if ((unsigned char)*at < 0x20) {
            return fail_at(p, at, "a control character in a string must be escaped: expected \\u00xx");
        } else {
            n = msp_utf8_decode(&c, at, (size_t)(p->end - at));
            if (n <= 0)
                return fail_at(p, n < 0 ? p->end : at, "a string is not UTF-8: expected a complete character");
            at += n;
        }
    }
    p->at = at + 1;
    if (escaped)
        return push_unescaped(p, from, at);
    return json_push(&p->build, node_of_text(MSP_JSON_STRING, from, (size_t)(at - from))) || fail_memory(p);
}

/* ---- other scalars ------------------------------------------------------------------------------ */

static bool
expect_word(parser *p, const char *word)
{
    const char *at = p->at;

    for (; *word != '\0'; word++, at++)
        if (at == p->end || *at != *word)
            return fail_at(p, at, "expected null, true, false, NaN, Infinity or -Infinity");
    p->at = at;
    return true;
}

static bool
read_literal(parser *p, const char *word, msp_json_kind kind)
{
    msp_json node = node_at(kind, (uint64_t)(p->at - p->text));

    return expect_word(p, word) && (json_push(&p->build, node) || fail_memory(p));
}

static bool
read_special_float(parser *p, const char *word)
{
    msp_json node = node_of_text(MSP_JSON_FLOAT, p->at, strlen(word));

    return expect_word(p, word) && (json_push(&p->build, node) || fail_memory(p));
}

/* At least one digit at *at; moves behind them. */
static inline bool
skip_digits(parser *p, const char **at)
{
    const char *from = *at;

    *at = json_skip_digits(from, p->end);
    return *at > from || fail_at(p, from, "expected a digit");
}

static bool
read_number(parser *p)
{
    const char *from = p->at, *at = from;
    msp_json_kind kind = MSP_JSON_INT;

    at += *at == '-';
    if (at < p->end && *at == 'I' && at > from)
        return read_special_float(p, "-Infinity");
    if (at < p->end && *at == '0')
        at++; /* and no digit may follow */
    else if (!skip_digits(p, &at))
        return false;
    if (at < p->end && *at == '.') {
        kind = MSP_JSON_FLOAT;
        at++;
        if (!skip_digits(p, &at))
            return false;
    }
    if (at < p->end && (*at | 0x20) == 'e') {
        kind = MSP_JSON_FLOAT;
        at++;
        if (at < p->end && (*at == '+' || *at == '-'))
            at++;
        if (!skip_digits(p, &at))
            return false;
    }
    p->at = at;
    return json_push(&p->build, node_of_text(kind, from, (size_t)(at - from))) || fail_memory(p);
}

/* ---- structure ---------------------------------------------------------------------------------- */

static inline bool
in_object(const parser *p)
{
    return node_kind(json_innermost(&p->build)) == MSP_JSON_OBJECT;
}

static bool
open_container(parser *p, msp_json_kind kind)
{
    if (p->build.depth == MSP_JSON_MAX_DEPTH) {
        fail_at(p, p->at, "nested too deeply (the limit is 1024): expected a simple value");
        p->status = MSP_E_LIMIT;
        return false;
    }
    return json_open(&p->build, node_at(kind, (uint64_t)(p->at++ - p->text))) || fail_memory(p);
}

/* A value that begins at `at`: a whole scalar, or the opening bracket of a container. */
static bool
read_value(parser *p)
{
    p->at = json_skip_space(p->at, p->end);
    if (p->at == p->end)
        return fail_at(p, p->at, "expected a value");
    switch (*p->at) {
    case '"':
        return read_string(p);
    case '{':
        return open_container(p, MSP_JSON_OBJECT);
    case '[':
        return open_container(p, MSP_JSON_ARRAY);
    case 'n':
        return read_literal(p, "null", MSP_JSON_NULL);
    case 't':
        return read_literal(p, "true", MSP_JSON_TRUE);
    case 'f':
        return read_literal(p, "false", MSP_JSON_FALSE);
    case 'N':
        return read_special_float(p, "NaN");
    case 'I':
        return read_special_float(p, "Infinity");
    case '-':
    case '0' ... '9':
        return read_number(p);
    default:
        return fail_at(p, p->at, "expected a value");
    }
}

/* A key and its colon, at the beginning of a member. */
ALWAYS_INLINE bool
read_key(parser *p)
{
    p->at = json_skip_space(p->at, p->end);
    if (p->at == p->end || *p->at != '"')
        return fail_at(p, p->at, "expected a key in double quotes");
    if (!read_string(p))
        return false;
    p->at = json_skip_space(p->at, p->end);
    if (p->at == p->end || *p->at != ':')
        return fail_at(p, p->at, "expected ':' after a key");
    p->at++;
    return true;
}

/* If the innermost container ends here, close it and say so in *closed. */
static bool
try_close(parser *p, bool *closed)
{
    p->at = json_skip_space(p->at, p->end);
    *closed = p->at < p->end && *p->at == (in_object(p) ? '}' : ']');
    if (!*closed)
        return true;
    p->at++;
    return msp_json_builder_close(&p->build) || fail_memory(p);
}

/* Behind a complete value: close what ends here and stop in front of the next value, or at the end of the root. */
static bool
find_next(parser *p)
{
    bool closed = true;

    while (closed && p->build.depth > 0)
        if (!try_close(p, &closed))
            return false;
    if (p->build.depth == 0)
        return true;
    if (p->at == p->end || *p->at != ',')
        return fail_at(p, p->at,
                       in_object(p) ? "expected ',' or '}' after a member" : "expected ',' or ']' after an element");
    p->at++;
    return !in_object(p) || read_key(p);
}

static bool
read_root(parser *p)
{
    bool closed;

    do {
        int depth = p->build.depth;

        if (!read_value(p))
            return false;
        if (p->build.depth > depth) { /* the first item of a container has no comma before it */
            if (!try_close(p, &closed))
                return false;
            if (!closed) {
                if (in_object(p) && !read_key(p))
                    return false;
                continue;
            }
        }
        if (!find_next(p))
            return false;
    } while (p->build.depth > 0);
    return true;
}

static bool
read_document(parser *p)
{
    size_t size = (size_t)(p->end - p->at);

    if (size > 0 && size < 3 && memcmp(p->at, "\xEF\xBB", size) == 0)
        return fail_at(p, p->end, "expected the rest of a byte order mark");
    p->at += msp_utf8_bom(p->at, size);
    if (!read_root(p))
        return false;
    p->at = json_skip_space(p->at, p->end);
    return p->at == p->end || fail_at(p, p->at, "expected nothing after the end of the value");
}

/* ---- recovery ----------------------------------------------------------------------------------- */

static bool
ends_in_digit(const msp_json *v)
{
    msp_str text = msp_json_number_text(v);

    return text.len > 0 && text.p[text.len - 1] >= '0' && text.p[text.len - 1] <= '9';
}

/*
 * The text ended too early. Drop what is incomplete, and what keep_depth says may not be kept in part; close the rest.
 * *cut_at becomes the byte from which on nothing is used.
 */
static bool
close_cut(parser *p, int keep_depth, size_t *cut_at)
{
    msp_json_builder *b = &p->build;
    msp_json *last;

    *cut_at = (size_t)(p->at - p->text);
    if (b->depth == 0) {
        *cut_at = 0;
        return true;
    }
    last = &b->nodes[b->n - 1];
    if (keep_depth > 0 && b->depth > keep_depth) {
        b->n = b->first[keep_depth] - 1;
        b->depth = keep_depth;
        *cut_at = node_offset(&b->nodes[b->n], p->text);
    } else if (ends_in_digit(last) && last->u.text + node_len(last) == p->end) {
        b->n--; /* more of them may have followed */
        *cut_at = node_offset(last, p->text);
    }
    if (in_object(p) && (b->n - b->first[b->depth - 1]) % 2 != 0) {
        b->n--; /* a key without its value */
        *cut_at = node_offset(&b->nodes[b->n], p->text);
    }
    while (b->depth > 0)
        if (!msp_json_builder_close(b))
            return fail_memory(p);
    return true;
}

static msp_status
finish_document(msp_json_doc *out, parser *p, msp_error *err)
{
    if (p->status == MSP_OK && p->build.n > 0) {
        out->root = msp_json_builder_root(&p->build);
        if (out->root == NULL)
            fail_memory(p);
    }
    if (p->status == MSP_OK) {
        out->arena = p->build.arena;
        p->build.arena = (msp_arena){0};
    } else {
        *out = (msp_json_doc){0};
        report_failure(p, err);
    }
    msp_json_builder_release(&p->build);
    return p->status;
}

enum { LENT_NODES = 64 }; /* one record's worth: most texts never take memory for the stack */

static void
begin_parser(parser *p, const char *text, const char *end, msp_json room[LENT_NODES])
{
    p->text = p->at = text;
    p->end = end;
    json_builder_lend(&p->build, room, LENT_NODES);
    p->status = MSP_OK;
    p->wrong = p->problem = NULL;
}

msp_status
msp_json_parse(msp_json_doc *out, const char *text, size_t size, msp_error *err)
{
    return msp_json_parse_in(out, NULL, 0, text, size, err);
}

msp_status
msp_json_parse_in(msp_json_doc *out, void *room, size_t room_size, const char *text, size_t size, msp_error *err)
{
    msp_json stack[LENT_NODES];
    parser p;

    begin_parser(&p, text, text + size, stack);
    if (room != NULL)
        msp_arena_lend(&p.build.arena, room, room_size);
    *out = (msp_json_doc){0};
    msp_json_builder_init(&p.build, size);
    read_document(&p);
    return finish_document(out, &p, err);
}

msp_status
msp_json_parse_recover(msp_json_doc *out, const char *text, size_t size, int keep_depth, msp_error *err)
{
    msp_json room[LENT_NODES];
    parser p;

    while (size > 0 && text[size - 1] == '\0') /* space that a crashed file system gave to a file but never filled */
        size--;
    begin_parser(&p, text, text + size, room);
    *out = (msp_json_doc){0};
    msp_json_builder_init(&p.build, size);
    if (!read_document(&p) && p.status == MSP_E_FORMAT && p.wrong == p.end) {
        p.status = MSP_OK;
        out->cut = true;
        close_cut(&p, keep_depth, &out->cut_at);
    }
    return finish_document(out, &p, err);
}

void
msp_json_doc_release(msp_json_doc *doc)
{
    msp_arena_release(&doc->arena);
    *doc = (msp_json_doc){0};
}
