/* json_write.c - the writer: see json.h. */
#include <assert.h>

#include "core/eight.h"
#include "text/json_node.h"
#include "text/utf8.h"

void
msp_json_writer_init(msp_json_writer *w, msp_buf *out, int indent)
{
    *w = (msp_json_writer){.out = out, .indent = indent, .first = true};
}

static void
new_line(msp_json_writer *w)
{
    size_t n = 1 + (size_t)w->depth * (size_t)w->indent;
    char *p = msp_buf_room(w->out, n);

    if (p == NULL)
        return;
    p[0] = '\n';
    memset(p + 1, ' ', n - 1);
    p[n] = '\0';
    w->out->len += n;
}

/* What stands between the last thing and the next key or element. */
static void
write_separator(msp_json_writer *w)
{
    if (w->depth == 0) {
        assert(w->first); /* one value only */
    } else if (w->indent >= 0) {
        if (!w->first)
            msp_buf_char(w->out, ',');
        new_line(w);
    } else if (!w->first) {
        msp_buf_add(w->out, ", ", 2);
    }
    w->first = false;
}

static void
before_value(msp_json_writer *w)
{
    if (w->after_key)
        w->after_key = false;
    else
        write_separator(w);
}

static void
begin_container(msp_json_writer *w, char bracket)
{
    before_value(w);
    msp_buf_char(w->out, bracket);
    w->depth++;
    w->first = true;
}

static void
end_container(msp_json_writer *w, char bracket)
{
    assert(w->depth > 0 && !w->after_key);
    w->depth--;
    if (!w->first && w->indent >= 0)
        new_line(w);
    msp_buf_char(w->out, bracket);
    w->first = false;
}

void
msp_json_begin_object(msp_json_writer *w)
{
    begin_container(w, '{');
}

void
msp_json_end_object(msp_json_writer *w)
{
    end_container(w, '}');
}

void
msp_json_begin_array(msp_json_writer *w)
{
    begin_container(w, '[');
}

void
msp_json_end_array(msp_json_writer *w)
{
    end_container(w, ']');
}

static char *
put_u16(char *p, uint32_t unit)
{
    static const char hex[] = "0123456789abcdef";

    *p++ = '\\';
    *p++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *p++ = hex[unit >> shift & 15];
    return p;
}

enum { ESCAPE_MAX = 12 }; /* two \uXXXX */

static char *
put_escaped(char *p, uint32_t c)
{
    static const char shorts[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *s = c > 0 && c < 0x80 ? strchr(shorts, (int)c) : NULL;

    if (s != NULL) {
        *p++ = '\\';
        *p++ = letters[s - shorts];
        return p;
    }
    if (c < 0x10000)
        return put_u16(p, c);
    c -= 0x10000;
    return put_u16(put_u16(p, 0xD800 | c >> 10), 0xDC00 | (c & 0x3FF));
}

static bool
is_plain(char c)
{
    return c >= ' ' && c < 0x7F && c != '"' && c != '\\';
}

static void
put_with_escapes(msp_buf *out, msp_str s)
{
    const char *at = s.p, *end_of = s.p + s.len;

    msp_buf_char(out, '"');
    while (at < end_of) {
        const char *from = at;
        char *p;
        uint32_t c;
        int n;

        while (at < end_of && is_plain(*at))
            at++;
        msp_buf_add(out, from, (size_t)(at - from));
        if (at == end_of)
            break;
        n = msp_utf8_decode(&c, at, (size_t)(end_of - at));
        if (n <= 0) {
            c = MSP_UTF8_REPLACEMENT;
            n = 1;
        }
        at += n;
        p = msp_buf_room(out, ESCAPE_MAX);
        if (p == NULL)
            return;
        out->len += (size_t)(put_escaped(p, c) - p);
        out->p[out->len] = '\0';
    }
    msp_buf_char(out, '"');
}

/* How many characters, from the first on, stand for themselves: mostly all of them. To look at them one by one was a
 * fifth of what a dump's text cost. */
static size_t
plain_length(msp_str s)
{
    size_t n = 0;

    while (s.len - n >= 8 && msp_are_plain8(s.p + n, '"'))
        n += 8;
    while (n < s.len && is_plain(s.p[n]))
        n++;
    return n;
}

static void
put_string(msp_buf *out, msp_str s)
{
    const size_t plain = plain_length(s);
    char *all = plain == s.len ? msp_buf_room(out, plain + 2) : NULL;

    if (plain < s.len) {
        put_with_escapes(out, s);
    } else if (all != NULL) {
        all[0] = '"';
        if (plain > 0)
            memcpy(all + 1, s.p, plain);
        all[plain + 1] = '"';
        out->len += plain + 2;
        out->p[out->len] = '\0';
    }
}

void
msp_json_write_key(msp_json_writer *w, msp_str key)
{
    assert(w->depth > 0 && !w->after_key);
    write_separator(w);
    put_string(w->out, key);
    msp_buf_add(w->out, ": ", 2);
    w->after_key = true;
}

static void
write_text(msp_json_writer *w, msp_str text)
{
    before_value(w);
    msp_buf_str(w->out, text);
}

void
msp_json_write_null(msp_json_writer *w)
{
    write_text(w, MSP_STR("null"));
}

void
msp_json_write_bool(msp_json_writer *w, bool v)
{
    write_text(w, v ? MSP_STR("true") : MSP_STR("false"));
}

void
msp_json_write_i64(msp_json_writer *w, int64_t v)
{
    char text[MSP_INT_TEXT_MAX];

    write_text(w, (msp_str){text, msp_i64_text(text, v)});
}

void
msp_json_write_u64(msp_json_writer *w, uint64_t v)
{
    char text[MSP_INT_TEXT_MAX];

    write_text(w, (msp_str){text, msp_u64_text(text, v)});
}

void
msp_json_write_f64(msp_json_writer *w, double v)
{
    char text[32];

    if (v != v)
        write_text(w, MSP_STR("NaN"));
    else if (v - v != 0)
        write_text(w, v > 0 ? MSP_STR("Infinity") : MSP_STR("-Infinity"));
    else
        write_text(w, (msp_str){text, msp_f64_repr(text, v)});
}

void
msp_json_write_string(msp_json_writer *w, msp_str v)
{
    before_value(w);
    put_string(w->out, v);
}

/* The recursion is as deep as the value, which the parsers bound. */
static void
write_items(msp_json_writer *w, const msp_json *v)
{
    bool object = node_kind(v) == MSP_JSON_OBJECT;

    begin_container(w, object ? '{' : '[');
    for (size_t i = 0; i < node_len(v); i++) {
        if (object)
            msp_json_write_key(w, msp_json_key(v, i));
        msp_json_write_value(w, msp_json_at(v, i));
    }
    end_container(w, object ? '}' : ']');
}

void
msp_json_write_value(msp_json_writer *w, const msp_json *v)
{
    switch (msp_json_kind_of(v)) {
    case MSP_JSON_NULL:
        msp_json_write_null(w);
        break;
    case MSP_JSON_FALSE:
    case MSP_JSON_TRUE:
        msp_json_write_bool(w, node_kind(v) == MSP_JSON_TRUE);
        break;
    case MSP_JSON_INT:
    case MSP_JSON_FLOAT:
        write_text(w, node_text(v));
        break;
    case MSP_JSON_STRING:
        msp_json_write_string(w, node_text(v));
        break;
    case MSP_JSON_ARRAY:
    case MSP_JSON_OBJECT:
        write_items(w, v);
        break;
    }
}
