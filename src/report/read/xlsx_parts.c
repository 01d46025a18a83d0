/* xlsx_parts.c - see xlsx_parts.h. */
#include "report/read/xlsx_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <zlib.h>
#include "core/alloc.h"
#include "report/zlib_memory.h"

enum { MAX_NAME = 1024 }; /* bytes of a relation's id and of a part's name */

/* ---- a part of the archive as a source of XML ------------------------------------------------------------------- */

typedef struct stream {
    const msp_zip_entry *entry;
    z_stream inflate;
    msp_str left; /* of its bytes in the archive */
    bool compressed, finished;
    uint64_t size;
    uint32_t crc;
} stream;

static msp_status
stream_open(stream *s, const msp_zip *zip, const msp_zip_entry *e, msp_error *err)
{
    msp_status st;
    msp_str packed;

    *s = (stream){.entry = e};
    st = msp_zip_packed(&packed, zip, e, err);
    if (st != MSP_OK)
        return st;
    s->left = packed;
    if (e->method == 0)
        return MSP_OK;
    if (e->method != Z_DEFLATED)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "compression method %u, and only deflate is read", e->method);
    s->inflate = (z_stream){.zalloc = msp_zlib_alloc, .zfree = msp_zlib_free};
    if (inflateInit2(&s->inflate, -MAX_WBITS) != Z_OK)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    s->compressed = true;
    return MSP_OK;
}

static void
stream_close(stream *s)
{
    if (s->compressed)
        inflateEnd(&s->inflate);
    *s = (stream){0};
}

static size_t
copy_stored(stream *s, char *to, size_t room)
{
    size_t n = s->left.len < room ? s->left.len : room;

    memcpy(to, s->left.p, n);
    s->left.p += n;
    s->left.len -= n;
    s->finished = s->left.len == 0;
    return n;
}

static msp_status
inflate_some(stream *s, char *to, size_t room, size_t *got, msp_error *err)
{
    z_stream *z = &s->inflate;
    int result;

    z->next_out = (unsigned char *)to;
    z->avail_out = (uInt)room;
    do {
        uInt give = s->left.len < UINT32_MAX ? (uInt)s->left.len : UINT32_MAX;

        z->next_in = (unsigned char *)s->left.p;
        z->avail_in = give;
        result = inflate(z, Z_NO_FLUSH);
        s->left.p += give - z->avail_in;
        s->left.len -= give - z->avail_in;
    } while (result == Z_OK && z->avail_out > 0 && s->left.len > 0);
    *got = room - z->avail_out;
    s->finished = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (!s->finished && (result != Z_OK || *got == 0))
        return msp_error_set(err, MSP_E_FORMAT, "its compressed data is %s",
                             s->left.len == 0 ? "cut short" : "corrupt");
    return MSP_OK;
}

static msp_status
stream_source(char *to, size_t room, size_t *got, void *payload, msp_error *err)
{
    stream *s = payload;
    msp_status st = MSP_OK;

    *got = 0;
    if (s->finished)
        return MSP_OK;
    if (s->compressed)
        st = inflate_some(s, to, room, got, err);
    else
        *got = copy_stored(s, to, room);
    s->size += *got;
    s->crc = (uint32_t)crc32(s->crc, (const unsigned char *)to, (uInt)*got);
    if (st == MSP_OK && (s->size > s->entry->size || (s->finished && s->size != s->entry->size)))
        return msp_error_set(err, MSP_E_FORMAT, "it does not have the %" PRIu64 " bytes that the archive promises",
                             s->entry->size);
    if (st != MSP_OK || !s->finished)
        return st;
    if (s->entry->crc != 0 && s->crc != s->entry->crc)
        return msp_error_set(err, MSP_E_FORMAT, "its checksum is wrong: the file is damaged");
    return MSP_OK;
}

/* ---- walking ---------------------------------------------------------------------------------------------------- */

msp_status
msp_xlsx_walk(const msp_zip *zip, msp_str name, msp_xlsx_event *on_event, void *payload, msp_error *err)
{
    const msp_zip_entry *e = msp_zip_find(zip, name);
    msp_xml_event event = MSP_XML_START;
    msp_xml xml = {0};
    stream s = {0};
    msp_status st;

    if (e == NULL)
        return msp_error_set(err, MSP_E_FORMAT, "the workbook has no part %.*s", (int)name.len, name.p);
    st = stream_open(&s, zip, e, err);
    if (st == MSP_OK)
        st = msp_xml_open(&xml, stream_source, &s, err);
    while (st == MSP_OK && event != MSP_XML_DONE) {
        st = msp_xml_next(&xml, &event, err);
        if (st == MSP_OK && event != MSP_XML_DONE)
            st = on_event(&xml, event, payload, err);
    }
    msp_xml_close(&xml);
    stream_close(&s);
    return st == MSP_OK ? st : msp_error_prefix(err, st, "%.*s: ", (int)name.len, name.p);
}

/* ---- which part is what ----------------------------------------------------------------------------------------- */

typedef struct sheet_search {
    msp_str name; /* of the sheet wanted; empty: the first one */
    msp_buf id;   /* its relation */
    char found[64];
    bool done;
} sheet_search;

static bool
is_start_of(const msp_xml *x, msp_xml_event event, const char *name)
{
    return event == MSP_XML_START && msp_str_eq(x->name, msp_str_of(name));
}

static msp_status
find_sheet(msp_xml *x, msp_xml_event event, void *payload, msp_error *err)
{
    sheet_search *s = payload;
    msp_str value = {0};
    size_t keep;

    if (s->done || !is_start_of(x, event, "sheet"))
        return MSP_OK;
    if (!msp_xml_attribute(x, "name", &value) || value.len == 0)
        return msp_error_set(err, MSP_E_FORMAT, "a sheet without a name");
    if (s->name.len > 0 && !msp_str_eq(value, s->name))
        return MSP_OK;
    s->done = true;
    keep = value.len < sizeof(s->found) ? value.len : sizeof(s->found) - 1;
    memcpy(s->found, value.p, keep);
    if (!msp_xml_attribute(x, "id", &value) || value.len > MAX_NAME)
        return msp_error_set(err, MSP_E_FORMAT, "the sheet %s has no relation", s->found);
    msp_buf_str(&s->id, value);
    return msp_buf_status(&s->id, err);
}

typedef struct target_search {
    msp_str id;   /* the relation with this id, or ... */
    msp_str kind; /* ... the one whose type ends so, when this is not empty */
    msp_buf *part;
    bool done;
} target_search;

/* A target is relative to the folder of the workbook, or absolute from the root of the archive. */
static msp_status
take_target(msp_buf *part, msp_str value, msp_error *err)
{
    if (value.len > MAX_NAME)
        return msp_error_set(err, MSP_E_FORMAT, "a relation whose target has %zu bytes", value.len);
    if (msp_str_starts(value, MSP_STR("/")))
        value = (msp_str){value.p + 1, value.len - 1};
    else
        msp_buf_text(part, "xl/");
    msp_buf_str(part, value);
    return msp_buf_status(part, err);
}

static msp_status
find_target(msp_xml *x, msp_xml_event event, void *payload, msp_error *err)
{
    target_search *s = payload;
    msp_str value = {0};
    bool wanted;

    if (s->done || !is_start_of(x, event, "Relationship"))
        return MSP_OK;
    if (s->kind.len > 0)
        wanted = msp_xml_attribute(x, "Type", &value) && msp_str_ends(value, s->kind);
    else
        wanted = msp_xml_attribute(x, "Id", &value) && msp_str_eq(value, s->id);
    if (!wanted || !msp_xml_attribute(x, "Target", &value) || value.len == 0)
        return MSP_OK;
    s->done = true;
    return take_target(s->part, value, err);
}

static msp_status
search_target(target_search *s, const msp_zip *zip, msp_error *err)
{
    return msp_xlsx_walk(zip, MSP_STR("xl/_rels/workbook.xml.rels"), find_target, s, err);
}

msp_status
msp_xlsx_sheet_part(msp_buf *part, char found[64], const msp_zip *zip, const char *name, msp_error *err)
{
    sheet_search sheet = {.name = msp_str_of(name)};
    target_search target = {.part = part};
    size_t before = part->len;
    msp_status st = msp_xlsx_walk(zip, MSP_STR("xl/workbook.xml"), find_sheet, &sheet, err);

    memcpy(found, sheet.found, sizeof(sheet.found));
    if (st == MSP_OK && sheet.done) {
        target.id = msp_buf_view(&sheet.id);
        st = search_target(&target, zip, err);
        if (st == MSP_OK && part->len == before)
            st = msp_error_set(err, MSP_E_FORMAT, "the workbook does not say which part its sheet %s is", found);
    }
    msp_buf_release(&sheet.id);
    return st;
}

msp_status
msp_xlsx_part_of_kind(msp_buf *part, const msp_zip *zip, const char *kind, msp_error *err)
{
    target_search target = {.part = part, .kind = msp_str_of(kind)};

    return search_target(&target, zip, err);
}
