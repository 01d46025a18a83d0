/* xlsx_book.c - see xlsx_book.h. */
#include "report/write/xlsx_book.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <xlsxwriter.h>
#include "core/alloc.h"
#include "core/locale.h"
#include "core/path.h"
#include "io/zip.h"
#include "report/text.h"

enum {
    NAME_UNITS = 31,        /* Excel's limit for a sheet name, in UTF-16 units */
    PART_LIMIT = 256 << 20, /* bytes of one part; the list of sheets is the only one that grows */
    BOOK_ROOM = 64 << 10,   /* three times what a book of one sheet takes, its temporary files included */
    SHEET_ROOM = 4 << 10
};

/* ---- sheet names ------------------------------------------------------------------------------------------------ */

static size_t
utf16_units(uint32_t c)
{
    return c > 0xFFFF ? 2 : 1;
}

/* s with forbidden characters replaced, cut to this many UTF-16 units. */
static void
put_allowed(msp_buf *out, msp_str s, size_t units)
{
    const char *p = s.p, *end = s.p + s.len;
    size_t start = out->len, used = 0, len;

    for (; p < end; p += len) {
        uint32_t c = msp_text_next(p, end, &len);

        used += utf16_units(c);
        if (used > units)
            break;
        if (c < 0x20 || c == 0x7F || (c < 0x80 && strchr("[]:*?/\\", (int)c) != NULL))
            c = '_';
        if (c == '\'' && (out->len == start || p + len == end || used == units))
            c = '_';
        msp_text_put(out, c);
    }
}

static bool
is_taken(const char *name, char *const *names, size_t count)
{
    if (msp_str_eq_nocase(msp_str_of(name), MSP_STR("History")))
        return true;
    for (size_t i = 0; i < count; i++)
        if (msp_str_eq_nocase(msp_str_of(name), msp_str_of(names[i])))
            return true;
    return false;
}

void
msp_xlsx_sheet_name(msp_buf *out, msp_str wanted, const char *suffix, char *const *names, size_t count)
{
    size_t start = out->len;
    char tail[64];

    if (wanted.len == 0)
        wanted = MSP_STR("Sheet");
    snprintf(tail, sizeof(tail), "%.16s", suffix);
    for (unsigned n = 2;; n++) {
        out->len = start;
        put_allowed(out, wanted, NAME_UNITS - strlen(tail));
        msp_buf_text(out, tail);
        if (out->failed || !is_taken(out->p + start, names, count))
            return;
        snprintf(tail, sizeof(tail), "%.16s_%u", suffix, n);
    }
}

/* ---- the book --------------------------------------------------------------------------------------------------- */

static lxw_format *
add_fill(lxw_workbook *book, lxw_color_t colour)
{
    lxw_format *f = workbook_add_format(book);

    if (f != NULL) {
        format_set_pattern(f, LXW_PATTERN_SOLID);
        format_set_bg_color(f, colour);
    }
    return f;
}

static lxw_format *
add_header(lxw_workbook *book)
{
    lxw_format *f = workbook_add_format(book);

    if (f != NULL) {
        format_set_bold(f);
        format_set_border(f, LXW_BORDER_THIN);
        format_set_align(f, LXW_ALIGN_CENTER);
        format_set_align(f, LXW_ALIGN_VERTICAL_TOP);
    }
    return f;
}

/* libxlsxwriter numbers styles by first use: one cell of each, in the order of msp_xlsx_style, fixes the numbers. */
static bool
use_styles(lxw_workbook *book, lxw_worksheet *sheet)
{
    lxw_format *styles[] = {add_header(book), add_fill(book, 0xFF0000), add_fill(book, 0xFFFF00)};
    bool ok = true;

    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++)
        ok = ok && styles[i] != NULL && worksheet_write_blank(sheet, 0, (lxw_col_t)i, styles[i]) == LXW_NO_ERROR;
    return ok;
}

/* libxlsxwriter asks gmtime() for the date, whose answer all threads share: one book at a time. */
static pthread_mutex_t one_book = PTHREAD_MUTEX_INITIALIZER;

static msp_status
make_book(const char *path, const char *dir, char *const *names, size_t count, msp_error *err)
{
    lxw_workbook_options opt = {.tmpdir = (char *)dir};
    lxw_workbook *book = workbook_new_opt(path, &opt);
    bool ok = book != NULL;
    lxw_error e;

    for (size_t i = 0; i < count && ok; i++) {
        lxw_worksheet *sheet = workbook_add_worksheet(book, names[i]);

        ok = sheet != NULL && (i > 0 || use_styles(book, sheet));
    }
    if (!ok) {
        lxw_workbook_free(book);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory for the workbook");
    }
    pthread_mutex_lock(&one_book);
    e = workbook_close(book); /* frees it */
    pthread_mutex_unlock(&one_book);
    if (e != LXW_NO_ERROR)
        return msp_error_set(err, e == LXW_ERROR_MEMORY_MALLOC_FAILED ? MSP_E_NOMEM : MSP_E_IO,
                             "cannot write the workbook: %s", lxw_strerror(e));
    return MSP_OK;
}

/* The original tool's yellow has an alpha of 0, which spreadsheets ignore and programs that compare results do not. */
static void
set_yellow(char *text, size_t size)
{
    const msp_str ours = MSP_STR("rgb=\"FFFFFF00\""), theirs = MSP_STR("rgb=\"00FFFF00\"");
    char *at;

    while ((at = (char *)msp_str_find((msp_str){text, size}, ours)) != NULL) {
        memcpy(at, theirs.p, theirs.len);
        size -= (size_t)(at + theirs.len - text);
        text = at + theirs.len;
    }
}

static msp_status
copy_part(msp_zip_out *z, const msp_zip *book, const msp_zip_entry *e, msp_error *err)
{
    msp_buf name = {0};
    char *text = NULL;
    msp_status st;

    msp_buf_str(&name, msp_zip_name(e));
    st = msp_buf_status(&name, err);
    if (st == MSP_OK)
        st = msp_zip_read(&text, book, e, PART_LIMIT, err);
    if (st == MSP_OK && msp_str_eq(msp_zip_name(e), MSP_STR("xl/styles.xml")))
        set_yellow(text, (size_t)e->size);
    if (st == MSP_OK)
        st = msp_zip_out_begin(z, name.p, err);
    if (st == MSP_OK)
        st = msp_zip_out_write(z, text, (size_t)e->size, err);
    if (st == MSP_OK)
        st = msp_zip_out_end(z, err);
    msp_free(text);
    msp_buf_release(&name);
    return st;
}

static msp_status
copy_parts(msp_zip_out *z, const char *path, msp_error *err)
{
    msp_mapping map = {0};
    msp_zip book = {0};
    msp_status st = msp_map_open(&map, path, err);

    if (st == MSP_OK)
        st = msp_zip_open(&book, map.addr, map.size, err);
    for (size_t i = 0; i < book.count && st == MSP_OK; i++)
        if (!msp_str_starts(msp_zip_name(&book.entries[i]), MSP_STR("xl/worksheets/")))
            st = copy_part(z, &book, &book.entries[i], err);
    msp_zip_close(&book);
    msp_map_close(&map);
    return st;
}

/* libxlsxwriter meets a full disk with a line on stderr, which is not ours to write on: find out before it does. */
static msp_status
reserve_room(msp_file *book, size_t sheets, msp_error *err)
{
    int e = msp_file_allocate(book->fd, BOOK_ROOM + sheets * SHEET_ROOM);

    if (e == 0 || e == EOPNOTSUPP || e == EINVAL)
        return MSP_OK;
    return msp_file_cannot_write(book->path, e, err);
}

msp_status
msp_xlsx_book_write(msp_zip_out *z, const char *path, char *const *names, size_t count, msp_error *err)
{
    msp_file book = MSP_FILE_NONE; /* for its name, which nobody else has, and for its removal */
    msp_buf dir = {0};
    msp_status st;

    msp_buf_str(&dir, msp_path_dir(path));
    st = msp_buf_status(&dir, err);
    if (st == MSP_OK)
        st = msp_file_create(&book, path, 0640, err);
    if (st == MSP_OK)
        st = reserve_room(&book, count, err);
    if (st == MSP_OK)
        st = make_book(book.temp, dir.p, names, count, err);
    if (st == MSP_OK)
        st = copy_parts(z, book.temp, err);
    msp_file_abandon(&book);
    msp_buf_release(&dir);
    return st;
}
