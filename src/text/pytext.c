/* pytext.c - see pytext.h. */
#include "text/pytext.h"

#include "core/eight.h"
#include "text/utf8.h"

/* Length of the character at p and its code point; 1 and the byte itself where it is no UTF-8. */
static size_t
decode_char(const char *p, size_t n, uint32_t *cp)
{
    int len = msp_utf8_decode(cp, p, n);

    if (len > 0)
        return (size_t)len;
    *cp = (unsigned char)*p;
    return 1;
}

/* Python escapes what Unicode calls not printable. These ranges are those that turn up in source lines and names. */
static bool
is_printable(uint32_t cp)
{
    if (cp < 0x20 || (cp >= 0x7f && cp <= 0xa0) || cp == 0xad)
        return false;
    if ((cp >= 0x2000 && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202f) || (cp >= 0x205f && cp <= 0x206f))
        return false;
    return cp != 0x3000 && cp != 0xfeff && cp != 0x1680 && !(cp >= 0xd800 && cp <= 0xf8ff);
}

static void
write_escape(msp_buf *out, uint32_t cp)
{
    if (cp == '\n')
        msp_buf_text(out, "\\n");
    else if (cp == '\r')
        msp_buf_text(out, "\\r");
    else if (cp == '\t')
        msp_buf_text(out, "\\t");
    else if (cp <= 0xff)
        msp_buf_printf(out, "\\x%02x", (unsigned)cp);
    else if (cp <= 0xffff)
        msp_buf_printf(out, "\\u%04x", (unsigned)cp);
    else
        msp_buf_printf(out, "\\U%08x", (unsigned)cp);
}

static bool
has_char(msp_str s, char c)
{
    return s.len > 0 && memchr(s.p, c, s.len) != NULL;
}

void
msp_py_repr_text(msp_buf *out, msp_str s)
{
    char quote = has_char(s, '\'') && !has_char(s, '"') ? '"' : '\'';
    size_t run = 0, i = 0;

    msp_buf_char(out, quote);
    while (s.len - i >= 8 && msp_are_plain8(s.p + i, quote))
        i += 8;
    while (i < s.len && s.p[i] >= ' ' && s.p[i] < 0x7f && s.p[i] != quote && s.p[i] != '\\')
        i++; /* all of it, most times */
    while (i < s.len) {
        uint32_t cp;
        size_t n = decode_char(s.p + i, s.len - i, &cp);
        bool plain = cp != (unsigned char)quote && cp != '\\' && is_printable(cp);

        if (!plain) {
            msp_buf_add(out, s.p + run, i - run);
            if (cp == (unsigned char)quote || cp == '\\') {
                msp_buf_char(out, '\\');
                msp_buf_char(out, (char)cp);
            } else {
                write_escape(out, cp);
            }
            run = i + n;
        }
        i += n;
    }
    if (run < s.len)
        msp_buf_add(out, s.p + run, s.len - run);
    msp_buf_char(out, quote);
}

static void
add_float(msp_buf *out, const msp_json *v)
{
    char text[32];
    double d = 0;

    (void)msp_json_to_f64(v, &d);
    msp_buf_add(out, text, msp_f64_repr(text, d));
}

static void
add_repr(msp_buf *out, const msp_json *v)
{
    size_t n = msp_json_count(v);
    bool object = msp_json_kind_of(v) == MSP_JSON_OBJECT;

    switch (msp_json_kind_of(v)) {
    case MSP_JSON_NULL:
        msp_buf_text(out, "None");
        break;
    case MSP_JSON_FALSE:
        msp_buf_text(out, "False");
        break;
    case MSP_JSON_TRUE:
        msp_buf_text(out, "True");
        break;
    case MSP_JSON_INT:
        msp_buf_str(out, msp_json_number_text(v));
        break;
    case MSP_JSON_FLOAT:
        add_float(out, v);
        break;
    case MSP_JSON_STRING:
        msp_py_repr_text(out, msp_json_string(v));
        break;
    case MSP_JSON_ARRAY:
    case MSP_JSON_OBJECT:
        msp_buf_char(out, object ? '{' : '[');
        for (size_t i = 0; i < n; i++) {
            if (i > 0)
                msp_buf_text(out, ", ");
            if (object) {
                msp_py_repr_text(out, msp_json_key(v, i));
                msp_buf_text(out, ": ");
            }
            add_repr(out, msp_json_at(v, i));
        }
        msp_buf_char(out, object ? '}' : ']');
        break;
    }
}

void
msp_py_str(msp_buf *out, const msp_json *v)
{
    if (msp_json_kind_of(v) == MSP_JSON_STRING)
        msp_buf_str(out, msp_json_string(v));
    else
        add_repr(out, v);
}

const char *
msp_py_class(const msp_json *v)
{
    switch (msp_json_kind_of(v)) {
    case MSP_JSON_FALSE:
    case MSP_JSON_TRUE:
        return "<class 'bool'>";
    case MSP_JSON_INT:
        return "<class 'int'>";
    case MSP_JSON_FLOAT:
        return "<class 'float'>";
    case MSP_JSON_STRING:
        return "<class 'str'>";
    case MSP_JSON_ARRAY:
        return "<class 'list'>";
    case MSP_JSON_OBJECT:
        return "<class 'dict'>";
    default:
        return "<class 'NoneType'>";
    }
}
