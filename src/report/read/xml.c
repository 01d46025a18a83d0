/* xml.c - see xml.h. */
#include "report/read/xml.h"

#include <inttypes.h>
#include "core/alloc.h"
#include "core/locale.h"
#include "report/text.h"

static msp_status
error_at(const msp_xml *x, size_t at, const char *what, msp_error *err)
{
    return msp_error_set(err, MSP_E_FORMAT, "%s at byte %" PRIu64 " of the XML", what, x->consumed + at);
}

msp_status
msp_xml_open(msp_xml *x, msp_xml_source *source, void *payload, msp_error *err)
{
    *x = (msp_xml){.source = source, .payload = payload, .buffer = msp_alloc(MSP_XML_MAX_MARKUP, 1)};
    return x->buffer != NULL ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}

void
msp_xml_close(msp_xml *x)
{
    msp_free(x->buffer);
    msp_buf_release(&x->decoded);
    msp_buf_release(&x->open);
    *x = (msp_xml){0};
}

/* ---- the buffer ------------------------------------------------------------------------------------------------- */

/* Move what is unread to the front and read more behind it. */
static msp_status
refill_buffer(msp_xml *x, msp_error *err)
{
    size_t got = 0;
    msp_status st;

    if (x->at > 0)
        memmove(x->buffer, x->buffer + x->at, x->len - x->at);
    x->consumed += x->at;
    x->len -= x->at;
    x->at = 0;
    if (x->at_end)
        return MSP_OK;
    if (x->len == MSP_XML_MAX_MARKUP)
        return msp_error_set(err, MSP_E_LIMIT, "more than %d bytes without an end at byte %" PRIu64 " of the XML",
                             MSP_XML_MAX_MARKUP, x->consumed);
    st = x->source(x->buffer + x->len, MSP_XML_MAX_MARKUP - x->len, &got, x->payload, err);
    x->len += got;
    x->at_end = got == 0;
    return st;
}

/* Have the terminator in the buffer, from `from` bytes after at on: *end is where it stands, counted from at. */
static msp_status
find_terminator(msp_xml *x, size_t from, const char *terminator, size_t *end, msp_error *err)
{
    size_t size = strlen(terminator), seen = from;

    for (;;) {
        msp_str rest = {x->buffer + x->at + seen, x->len - x->at - seen};
        const char *p = msp_str_find(rest, (msp_str){terminator, size});
        msp_status st;

        if (p != NULL) {
            *end = (size_t)(p - x->buffer) - x->at;
            return MSP_OK;
        }
        if (x->at_end)
            return error_at(x, x->len, "markup without its end", err);
        if (x->len - x->at >= from + size)
            seen = x->len - x->at - size + 1; /* what was searched needs no second look */
        st = refill_buffer(x, err);
        if (st != MSP_OK)
            return st;
    }
}

/* Have at least n bytes, or all that there are. */
static msp_status
have_bytes(msp_xml *x, size_t n, msp_error *err)
{
    msp_status st = MSP_OK;

    while (st == MSP_OK && x->len - x->at < n && !x->at_end)
        st = refill_buffer(x, err);
    return st;
}

static bool
next_is(const msp_xml *x, const char *text)
{
    size_t n = strlen(text);

    return x->len - x->at >= n && memcmp(x->buffer + x->at, text, n) == 0;
}

/* ---- characters ------------------------------------------------------------------------------------------------- */

static bool
is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Letters, digits, and all that is not ASCII: enough to find where a name ends. */
static bool
is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
           c == '-' || c == '.' || (unsigned char)c >= 0x80;
}

static size_t
name_length(msp_str s)
{
    size_t n = 0;

    while (n < s.len && is_name(s.p[n]))
        n++;
    return n;
}

static msp_str
local_name(msp_str name)
{
    const char *colon = name.len == 0 ? NULL : memchr(name.p, ':', name.len);

    return colon == NULL ? name : (msp_str){colon + 1, (size_t)(name.p + name.len - colon) - 1};
}

static int
digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return 99;
}

/* The character of "#65" or "#x41", what stands between & and ;. 0 when it is none that XML has. */
static uint32_t
numeric_reference(msp_str s)
{
    int base = s.len > 1 && s.p[1] == 'x' ? 16 : 10;
    uint32_t c = 0;
    size_t i = base == 16 ? 2 : 1;

    if (i == s.len)
        return 0;
    for (; i < s.len; i++) {
        int d = digit_value(s.p[i]);

        if (d >= base)
            return 0;
        c = c * (uint32_t)base + (uint32_t)d;
        if (c > 0x10FFFF)
            return 0;
    }
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || (c >= 0xD800 && c < 0xE000) || c == 0xFFFE || c == 0xFFFF)
        return 0;
    return c;
}

static bool
is_plain(char c, bool literal)
{
    return (unsigned char)c >= 0x20 ? c != '&' || literal : c == '\t' || c == '\n';
}

static uint32_t
resolve_reference(msp_str s)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};

    if (s.len > 0 && s.p[0] == '#')
        return numeric_reference(s);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (msp_str_eq(s, msp_str_of(known[i].name)))
            return (uint32_t)known[i].c;
    return 0;
}

/*
 * Append s decoded: line ends made "\n", and references resolved unless it is literal. Returns the place of the first
 * character that may not be there, or s.len.
 */
static size_t
decode_text(msp_buf *out, msp_str s, bool literal)
{
    size_t at = 0;

    while (at < s.len) {
        size_t run = at;
        const char *semicolon;
        uint32_t c;

        while (at < s.len && is_plain(s.p[at], literal))
            at++;
        msp_buf_add(out, s.p + run, at - run);
        if (at == s.len)
            break;
        if (s.p[at] == '\r') {
            msp_buf_char(out, '\n');
            at += at + 1 < s.len && s.p[at + 1] == '\n' ? 2 : 1;
            continue;
        }
        semicolon = s.p[at] == '&' ? memchr(s.p + at, ';', s.len - at) : NULL;
        c = semicolon == NULL ? 0 : resolve_reference((msp_str){s.p + at + 1, (size_t)(semicolon - s.p) - at - 1});
        if (c == 0)
            return at;
        msp_text_put(out, c);
        at = (size_t)(semicolon - s.p) + 1;
    }
    return s.len;
}

/* ---- markup ----------------------------------------------------------------------------------------------------- */

/* Where the tag that begins at x->at ends: a '>' outside quotes, counted from at. */
static msp_status
find_tag_end(msp_xml *x, size_t *end, msp_error *err)
{
    char quote = '\0';

    for (size_t i = 1;; i++) {
        char c;

        if (x->at + i == x->len) {
            msp_status st = refill_buffer(x, err);

            if (st != MSP_OK)
                return st;
            if (x->at + i == x->len)
                return error_at(x, x->len, "a tag without its end", err);
        }
        c = x->buffer[x->at + i];
        if (quote != '\0')
            quote = c == quote ? '\0' : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == '<')
            return error_at(x, x->at + i, "a '<' inside a tag", err);
        else if (c == '>') {
            *end = i;
            return MSP_OK;
        }
    }
}

/* One attribute at the start of *rest: its name and its raw value. False when it is malformed. */
static bool
take_attribute(msp_str *rest, msp_str *name, msp_str *value)
{
    const char *p = rest->p, *end = rest->p + rest->len, *close;
    size_t n = name_length(*rest);

    *name = (msp_str){p, n};
    p += n;
    while (p < end && is_space(*p))
        p++;
    if (n == 0 || p == end || *p++ != '=')
        return false;
    while (p < end && is_space(*p))
        p++;
    if (p == end || (*p != '"' && *p != '\''))
        return false;
    close = memchr(p + 1, *p, (size_t)(end - p) - 1);
    if (close == NULL)
        return false;
    *value = (msp_str){p + 1, (size_t)(close - p) - 1};
    p = close + 1;
    *rest = (msp_str){p, (size_t)(end - p)};
    return p == end || is_space(*p);
}

static msp_str
skip_space(msp_str s)
{
    while (s.len > 0 && is_space(s.p[0])) {
        s.p++;
        s.len--;
    }
    return s;
}

/* Every attribute is looked at once, so that a malformed one is an error though nobody asks for it. */
static msp_status
check_attributes(msp_xml *x, msp_error *err)
{
    msp_str rest = skip_space(x->attributes), name, value;

    while (rest.len > 0) {
        const char *start = rest.p;
        size_t bad;

        if (!take_attribute(&rest, &name, &value))
            return error_at(x, (size_t)(start - x->buffer), "a malformed attribute", err);
        msp_buf_clear(&x->decoded);
        bad = decode_text(&x->decoded, value, false);
        if (bad < value.len)
            return error_at(x, (size_t)(value.p - x->buffer) + bad, "a character or reference that XML does not have",
                            err);
        rest = skip_space(rest);
    }
    return msp_buf_status(&x->decoded, err);
}

bool
msp_xml_attribute(msp_xml *x, const char *wanted, msp_str *out)
{
    msp_str rest = skip_space(x->attributes), name, value;

    while (rest.len > 0 && take_attribute(&rest, &name, &value)) {
        if (msp_str_eq(local_name(name), msp_str_of(wanted))) {
            msp_buf_clear(&x->decoded);
            decode_text(&x->decoded, value, false);
            *out = msp_buf_view(&x->decoded);
            return !x->decoded.failed;
        }
        rest = skip_space(rest);
    }
    return false;
}

static msp_status
push_name(msp_xml *x, msp_str name, msp_error *err)
{
    if (x->depth == MSP_XML_MAX_DEPTH)
        return msp_error_set(err, MSP_E_LIMIT, "elements nested more than %d deep at byte %" PRIu64 " of the XML",
                             MSP_XML_MAX_DEPTH, x->consumed + x->at);
    x->name_at[x->depth++] = x->open.len;
    msp_buf_str(&x->open, name);
    return msp_buf_status(&x->open, err);
}

static msp_str
top_name(const msp_xml *x)
{
    size_t from = x->name_at[x->depth - 1];

    return (msp_str){x->open.p + from, x->open.len - from};
}

static void
pop_name(msp_xml *x)
{
    x->name = local_name(top_name(x)); /* its bytes stay until the next name is pushed */
    x->open.len = x->name_at[--x->depth];
    x->ended = x->depth == 0;
}

/* <name attribute="value" ... > or <name ... /> of `end` bytes, the '>' not counted. */
static msp_status
start_tag(msp_xml *x, size_t end, msp_error *err)
{
    msp_str inside = {x->buffer + x->at + 1, end - 1}, name;
    msp_status st;

    if (x->ended)
        return error_at(x, x->at, "a second root element", err);
    x->empty_element = inside.len > 0 && inside.p[inside.len - 1] == '/';
    inside.len -= x->empty_element;
    name = (msp_str){inside.p, name_length(inside)};
    if (name.len == 0 || (name.len < inside.len && !is_space(inside.p[name.len])))
        return error_at(x, x->at, "a malformed tag", err);
    st = push_name(x, name, err);
    if (st != MSP_OK)
        return st;
    x->started = true;
    x->name = local_name(name);
    x->attributes = (msp_str){inside.p + name.len, inside.len - name.len};
    st = check_attributes(x, err);
    x->at += end + 1; /* the tag's bytes stay where they are until the next event */
    return st;
}

static msp_status
end_tag(msp_xml *x, size_t end, msp_error *err)
{
    msp_str inside = {x->buffer + x->at + 2, end - 2};
    msp_str name = {inside.p, name_length(inside)};

    if (skip_space((msp_str){inside.p + name.len, inside.len - name.len}).len > 0)
        return error_at(x, x->at, "a malformed end tag", err);
    if (x->depth == 0 || !msp_str_eq(top_name(x), name))
        return error_at(x, x->at, "an end tag that closes nothing", err);
    pop_name(x);
    x->at += end + 1;
    return MSP_OK;
}

static msp_status
read_tag(msp_xml *x, msp_xml_event *event, msp_error *err)
{
    msp_status st;
    size_t end = 0; /* set with MSP_OK, which gcc does not see in every build */

    st = find_tag_end(x, &end, err);
    if (st != MSP_OK)
        return st;
    if (x->buffer[x->at + 1] == '/') {
        *event = MSP_XML_END;
        return end_tag(x, end, err);
    }
    *event = MSP_XML_START;
    return start_tag(x, end, err);
}

/* Skip something that begins with `start` bytes of opening and ends with this text. */
static msp_status
skip_markup(msp_xml *x, size_t start, const char *terminator, msp_error *err)
{
    size_t end;
    msp_status st = find_terminator(x, start, terminator, &end, err);

    if (st == MSP_OK)
        x->at += end + strlen(terminator);
    return st;
}

/* <?xml version="1.0" encoding="UTF-8"?> or any other instruction, which is skipped. */
static msp_status
read_instruction(msp_xml *x, msp_error *err)
{
    msp_str rest, name, value;
    msp_status st;
    size_t end;

    st = find_terminator(x, 2, "?>", &end, err);
    if (st != MSP_OK)
        return st;
    rest = (msp_str){x->buffer + x->at + 2, end - 2};
    if (msp_str_starts(rest, MSP_STR("xml ")) && x->consumed + x->at <= 3) {
        rest = skip_space((msp_str){rest.p + 4, rest.len - 4});
        while (rest.len > 0 && take_attribute(&rest, &name, &value)) {
            if (msp_str_eq(name, MSP_STR("encoding")) && !msp_str_eq_nocase(value, MSP_STR("utf-8")) &&
                !msp_str_eq_nocase(value, MSP_STR("us-ascii")))
                return msp_error_set(err, MSP_E_UNSUPPORTED, "the XML has the encoding %.*s, and only UTF-8 is read",
                                     (int)(value.len < 40 ? value.len : 40), value.p);
            rest = skip_space(rest);
        }
    }
    x->at += end + 2;
    return MSP_OK;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* How much of the buffer from at on is text that can be decoded now: up to a tag, and no half reference or line end. */
static size_t
text_length(const msp_xml *x)
{
    const char *p = x->buffer + x->at, *tag_at;
    size_t n = x->len - x->at;

    tag_at = n == 0 ? NULL : memchr(p, '<', n);
    if (tag_at != NULL)
        return (size_t)(tag_at - p);
    if (x->at_end)
        return n;
    for (size_t back = 1; back <= 16 && back <= n; back++)
        if (p[n - back] == '&')
            return n - back; /* no reference that we know is longer */
        else if (p[n - back] == ';')
            break;
    return n > 0 && p[n - 1] == '\r' ? n - 1 : n;
}

static bool
is_blank(msp_str s)
{
    return skip_space(s).len == 0;
}

static msp_status
text_event(msp_xml *x, msp_str raw, bool literal, msp_error *err)
{
    size_t bad;

    if (x->depth == 0 && !is_blank(raw))
        return error_at(x, x->at, "text outside the root element", err);
    msp_buf_clear(&x->decoded);
    bad = decode_text(&x->decoded, raw, literal);
    if (bad < raw.len)
        return error_at(x, (size_t)(raw.p - x->buffer) + bad, "a character or reference that XML does not have", err);
    x->text = msp_buf_view(&x->decoded);
    return msp_buf_status(&x->decoded, err);
}

static msp_status
read_text(msp_xml *x, msp_error *err)
{
    msp_status st = MSP_OK;
    size_t n;

    while (st == MSP_OK && (n = text_length(x)) == 0 && !x->at_end)
        st = refill_buffer(x, err);
    if (st != MSP_OK)
        return st;
    if (n == 0) /* half a reference at the end of the document */
        return error_at(x, x->at, "a character or reference that XML does not have", err);
    st = text_event(x, (msp_str){x->buffer + x->at, n}, false, err);
    x->at += n;
    return st;
}

static msp_status
read_cdata(msp_xml *x, msp_error *err)
{
    const size_t start = sizeof("<![CDATA[") - 1;
    msp_status st;
    size_t end;

    st = find_terminator(x, start, "]]>", &end, err);
    if (st != MSP_OK)
        return st;
    st = text_event(x, (msp_str){x->buffer + x->at + start, end - start}, true, err);
    x->at += end + 3;
    return st;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static msp_status
begin_document(msp_xml *x, msp_error *err)
{
    msp_status st = have_bytes(x, 3, err);

    if (st != MSP_OK)
        return st;
    if (next_is(x, "\xFE\xFF") || next_is(x, "\xFF\xFE"))
        return msp_error_set(err, MSP_E_UNSUPPORTED, "the XML is UTF-16, and only UTF-8 is read");
    if (next_is(x, "\xEF\xBB\xBF"))
        x->at += 3;
    return MSP_OK;
}

/* One event, or nothing (*event unchanged, *none set) after what is only skipped. */
static msp_status
next_token(msp_xml *x, msp_xml_event *event, bool *none, msp_error *err)
{
    *none = false;
    if (!next_is(x, "<")) {
        *event = MSP_XML_TEXT;
        return read_text(x, err);
    }
    if (next_is(x, "<![CDATA[")) {
        *event = MSP_XML_TEXT;
        return read_cdata(x, err);
    }
    if (next_is(x, "<!--") || next_is(x, "<?")) {
        *none = true;
        return next_is(x, "<?") ? read_instruction(x, err) : skip_markup(x, 4, "-->", err);
    }
    if (next_is(x, "<!"))
        return msp_error_set(err, MSP_E_UNSUPPORTED, "a document type declaration at byte %" PRIu64 " of the XML",
                             x->consumed + x->at);
    return read_tag(x, event, err);
}

msp_status
msp_xml_next(msp_xml *x, msp_xml_event *event, msp_error *err)
{
    msp_status st = MSP_OK;
    bool none = true;

    x->attributes = (msp_str){0};
    if (x->empty_element) {
        x->empty_element = false;
        pop_name(x);
        *event = MSP_XML_END;
        return MSP_OK;
    }
    if (!x->started && x->consumed == 0 && x->at == 0)
        st = begin_document(x, err);
    while (st == MSP_OK && none) {
        st = have_bytes(x, sizeof("<![CDATA[") - 1, err);
        if (st != MSP_OK)
            break;
        if (x->at == x->len) {
            *event = MSP_XML_DONE;
            return x->ended ? MSP_OK : error_at(x, x->len, "the document ends before its root element does", err);
        }
        st = next_token(x, event, &none, err);
    }
    return st;
}
