/*
 * fuzz_xlsx.c - any bytes as a workbook.
 *
 * Input that begins with "PK" is an archive. Anything else is the XML of its parts, separated by zero bytes: sheet,
 * shared strings, workbook, relations (the last two have a default). It is stored in an archive without checksums, so
 * that the fuzzer reaches the XML without having to compress it.
 */
#include <stdint.h>
#include <string.h>
#include "core/str.h"
#include "touch_cells.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARTS = 4 };

static void
put(msp_buf *b, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        msp_buf_char(b, (char)(v >> (8 * i)));
}

/* What a local header and a central one share, from the version on. */
static void
put_common(msp_buf *b, const char *name, msp_str data)
{
    put(b, 20, 2);
    put(b, 0, 6); /* flags, method 0, time */
    put(b, 0x21, 2);
    put(b, 0, 4); /* no checksum */
    put(b, (uint32_t)data.len, 4);
    put(b, (uint32_t)data.len, 4);
    put(b, (uint32_t)strlen(name), 2);
    put(b, 0, 2);
}

static void
store(msp_buf *archive, msp_buf *directory, const char *name, msp_str data)
{
    put(directory, 0x02014B50, 4);
    put(directory, 20, 2);
    put_common(directory, name, data);
    put(directory, 0, 8);
    put(directory, 0, 2);
    put(directory, (uint32_t)archive->len, 4);
    msp_buf_text(directory, name);

    put(archive, 0x04034B50, 4);
    put_common(archive, name, data);
    msp_buf_text(archive, name);
    msp_buf_str(archive, data);
}

static msp_str
next_part(const uint8_t **at, const uint8_t *end, const char *otherwise)
{
    const uint8_t *zero = *at < end ? memchr(*at, 0, (size_t)(end - *at)) : NULL;
    msp_str part = {(const char *)*at, (size_t)((zero != NULL ? zero : end) - *at)};

    *at = zero != NULL ? zero + 1 : end;
    return part.len > 0 ? part : msp_str_of(otherwise);
}

static void
make_archive(msp_buf *out, const uint8_t *data, size_t size)
{
    static const char *const names[PARTS] = {"xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/workbook.xml",
                                             "xl/_rels/workbook.xml.rels"};
    static const char relations[] =
        "<Relationships><Relationship Id=\"a\" Type=\"/worksheet\" Target=\"worksheets/sheet1.xml\"/>"
        "<Relationship Id=\"b\" Type=\"/sharedStrings\" Target=\"/xl/sharedStrings.xml\"/></Relationships>";
    static const char *const defaults[PARTS] =
        {"<worksheet/>", "<sst/>", "<workbook><sheets><sheet name=\"part_0\" r:id=\"a\"/></sheets></workbook>",
         relations};
    const uint8_t *at = data, *end = data + size;
    msp_buf directory = {0};
    uint32_t start;

    for (int i = 0; i < PARTS; i++)
        store(out, &directory, names[i], next_part(&at, end, defaults[i]));
    start = (uint32_t)out->len;
    msp_buf_str(out, msp_buf_view(&directory));
    put(out, 0x06054B50, 4);
    put(out, 0, 4);
    put(out, PARTS, 2);
    put(out, PARTS, 2);
    put(out, (uint32_t)directory.len, 4);
    put(out, start, 4);
    put(out, 0, 2);
    msp_buf_release(&directory);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned sum = 0;
    const msp_table_sink sink = {touch_cells, touch_cells, &sum};
    msp_buf archive = {0};
    msp_error err;
    msp_status st;

    if (size >= 2 && memcmp(data, "PK", 2) == 0) {
        st = msp_xlsx_read(data, size, &sink, &err);
    } else {
        make_archive(&archive, data, size);
        st = msp_xlsx_read(archive.p, archive.len, &sink, &err);
    }
    if (st != MSP_OK && err.message[0] == '\0')
        __builtin_trap();
    msp_buf_release(&archive);
    return 0;
}
