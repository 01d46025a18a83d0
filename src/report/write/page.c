/* page.c - the file around the parts: style, head, program, blocks. See page.h. */
#include "report/write/page.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "core/file.h"
#include "text/utf8.h"
#include "report/write/page_bundle.h"
#include "report/write/page_part.h"

static const char page_top[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    /* nothing is fetched, and no script runs but the one below: it carries the nonce */
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'nonce-msprobe'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>msprobe</title>\n<style>";
static const char after_style[] =
    "</style>\n</head>\n<body>\n<div id=\"app\"></div>\n<noscript>This page needs JavaScript. "
    "The tables beside it hold the same rows.</noscript>\n"
    "<script type=\"application/json\" id=\"head\">";
static const char after_head[] = "</script>\n<script nonce=\"msprobe\">";
static const char after_program[] = "</script>\n";
static const char page_end[] = "</body>\n</html>\n";

/* JSON as text of an element: no character that HTML, or a JavaScript of before 2019, would take for its own. */
static void
add_escaped(msp_buf *out, msp_str json)
{
    size_t at = 0;

    while (at < json.len) {
        uint32_t c = (unsigned char)json.p[at];
        int n = 1;

        if (c >= 0x80 && (n = msp_utf8_decode(&c, json.p + at, json.len - at)) <= 0) {
            c = MSP_UTF8_REPLACEMENT;
            n = 1;
        }
        if (c == '<' || c == '>' || c == '&' || (c >= 0x7f && c < 0x10000))
            msp_buf_printf(out, "\\u%04x", (unsigned)c);
        else if (c >= 0x10000)
            msp_buf_printf(out, "\\u%04x\\u%04x", 0xd800u + ((unsigned)(c - 0x10000) >> 10),
                           0xdc00u + ((unsigned)(c - 0x10000) & 0x3ff));
        else
            msp_buf_char(out, (char)c);
        at += (size_t)n;
    }
}

static msp_status
copy_part(msp_file *to, const msp_page_part *p, msp_error *err)
{
    const char *path = msp_page_part_path(p);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    msp_status st = MSP_OK;
    char buf[64 * 1024];
    ssize_t n = fd < 0 ? -1 : 1;

    while (n > 0 && st == MSP_OK) {
        n = read(fd, buf, sizeof(buf));
        if (n > 0)
            st = msp_file_write(to, buf, (size_t)n, err);
    }
    if (fd >= 0)
        close(fd);
    return n < 0 ? msp_error_set(err, MSP_E_IO, "%s: cannot be read back", path) : st;
}

static msp_status
write_all(msp_file *f, msp_str head, msp_page_part *const *parts, size_t nparts, msp_error *err)
{
    msp_buf top = {0};
    msp_status st;

    msp_buf_text(&top, page_top);
    msp_buf_add(&top, msp_page_style, msp_page_style_size);
    msp_buf_text(&top, after_style);
    add_escaped(&top, head);
    msp_buf_text(&top, after_head);
    msp_buf_add(&top, msp_page_program, msp_page_program_size);
    msp_buf_text(&top, after_program);
    st = msp_buf_status(&top, err);
    if (st == MSP_OK)
        st = msp_file_write(f, top.p, top.len, err);
    msp_buf_release(&top);
    for (size_t i = 0; i < nparts && st == MSP_OK; i++) {
        char open[64];
        int n = snprintf(open, sizeof(open), "<div hidden data-part=\"%zu\">\n", i);

        if (parts[i] == NULL)
            continue;
        st = msp_file_write(f, open, (size_t)n, err);
        if (st == MSP_OK)
            st = copy_part(f, parts[i], err);
        if (st == MSP_OK)
            st = msp_file_write(f, "</div>\n", 7, err);
    }
    return st == MSP_OK ? msp_file_write(f, page_end, sizeof(page_end) - 1, err) : st;
}

msp_status
msp_page_write(const char *path, msp_str head, msp_page_part *const *parts, size_t nparts, msp_error *err)
{
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_file_create(&f, path, 0640, err);

    if (st == MSP_OK)
        st = write_all(&f, head, parts, nparts, err);
    if (st == MSP_OK)
        st = msp_file_commit(&f, err);
    msp_file_abandon(&f);
    return st;
}
