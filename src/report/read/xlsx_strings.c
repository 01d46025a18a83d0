/* xlsx_strings.c - see xlsx_strings.h. */
#include "report/read/xlsx_strings.h"

#include "core/alloc.h"
#include "core/vec.h"
#include "report/text.h"
#include "report/read/xlsx_parts.h"

static int
hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* "_x0041_" at p: the character it stands for, or -1. */
static int32_t
escaped_char(const char *p, const char *end)
{
    int32_t c = 0;

    if (end - p < 7 || p[0] != '_' || p[1] != 'x' || p[6] != '_')
        return -1;
    for (int i = 2; i < 6; i++) {
        int h = hex_value(p[i]);

        if (h < 0)
            return -1;
        c = c * 16 + h;
    }
    return c;
}

void
msp_xlsx_unescape(msp_buf *s)
{
    const char *p = s->p, *end;
    msp_buf out = {0};

    if (s->len < 7 || memchr(p, '_', s->len) == NULL || msp_str_find(msp_buf_view(s), MSP_STR("_x")) == NULL)
        return;
    for (end = p + s->len; p < end;) {
        int32_t c = escaped_char(p, end);

        if (c >= 0)
            msp_text_put(&out, (uint32_t)c);
        else
            msp_buf_char(&out, *p);
        p += c >= 0 ? 7 : 1;
    }
    out.failed |= s->failed;
    msp_buf_release(s);
    *s = out;
}

msp_status
msp_xlsx_text_add(msp_buf *to, msp_str text, msp_error *err)
{
    if (to->len + text.len > MSP_XLSX_MAX_CELL)
        return msp_error_set(err, MSP_E_LIMIT, "a text of more than %d bytes", MSP_XLSX_MAX_CELL);
    msp_buf_str(to, text);
    return msp_buf_status(to, err);
}

typedef struct reader {
    msp_xlsx_strings *out;
    size_t limit;
    msp_buf text; /* of the item being read */
    bool in_text; /* inside <t> of an item, and not of its phonetic reading */
    int phonetic; /* depth of <rPh> */
} reader;

static msp_status
end_item(reader *r, msp_error *err)
{
    msp_xlsx_strings *s = r->out;
    msp_str item;

    msp_xlsx_unescape(&r->text);
    item.len = r->text.len;
    if (s->arena.reserved + item.len + (s->count + 1) * sizeof(*s->items) > r->limit)
        return msp_error_set(err, MSP_E_LIMIT, "more than %zu bytes of shared strings", r->limit);
    item.p = r->text.failed ? NULL : msp_arena_text(&s->arena, r->text.p, item.len);
    if (item.p == NULL || !msp_vec_grow((void **)&s->items, &s->cap, s->count + 1, sizeof(*s->items)))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    s->items[s->count++] = item;
    msp_buf_clear(&r->text);
    return MSP_OK;
}

static msp_status
read_event(msp_xml *x, msp_xml_event event, void *payload, msp_error *err)
{
    reader *r = payload;

    if (event == MSP_XML_TEXT)
        return r->in_text ? msp_xlsx_text_add(&r->text, x->text, err) : MSP_OK;
    if (msp_str_eq(x->name, MSP_STR("rPh")))
        r->phonetic += event == MSP_XML_START ? 1 : -1;
    else if (msp_str_eq(x->name, MSP_STR("t")))
        r->in_text = event == MSP_XML_START && r->phonetic == 0;
    else if (msp_str_eq(x->name, MSP_STR("si")) && event == MSP_XML_END)
        return end_item(r, err);
    return MSP_OK;
}

msp_status
msp_xlsx_strings_read(msp_xlsx_strings *out, const msp_zip *zip, size_t limit, msp_error *err)
{
    reader r = {.out = out, .limit = limit};
    msp_buf part = {0};
    msp_status st;

    *out = (msp_xlsx_strings){0};
    st = msp_xlsx_part_of_kind(&part, zip, "/sharedStrings", err);
    if (st == MSP_OK && part.len > 0)
        st = msp_xlsx_walk(zip, msp_buf_view(&part), read_event, &r, err);
    msp_buf_release(&part);
    msp_buf_release(&r.text);
    return st;
}

void
msp_xlsx_strings_release(msp_xlsx_strings *s)
{
    msp_arena_release(&s->arena);
    msp_free(s->items);
    *s = (msp_xlsx_strings){0};
}
