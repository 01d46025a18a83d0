/*
 * lines.c - the csv lines of run_ut, and files that are continued.
 *
 * One process writes both files, an API's details before its result: what a kill leaves behind is a result file whose
 * last line may be cut, and details of at most a few APIs that the result file does not have. Both are cut off.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/locale.h"
#include "core/map.h"
#include "precheck/lines.h"
#include "msprobe/precheck.h"

#define BOM "\xef\xbb\xbf"

const char *
msp_precheck_status_text(msp_precheck_status s)
{
    static const char *const texts[] = {"SKIP", "pass", "Warning", "error"};

    return texts[s];
}

const char *
msp_precheck_result_header(void)
{
    return BOM "API name,Forward Test Success,Backward Test Success,Message\r\n";
}

const char *
msp_precheck_details_header(void)
{
    return BOM "API Name,Bench Dtype,DEVICE Dtype,Shape,余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,"
               "二进制一致错误率,误差均衡性,均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,inf/nan错误率,"
               "相对误差错误率,绝对误差错误率,ULP误差最大值,ULP误差平均值,ULP误差大于阈值占比,Status,Message\r\n";
}

static void
write_char(msp_precheck_text *l, char c)
{
    if (l->len + 1 < l->size)
        l->buf[l->len] = c;
    l->len++;
}

static void
write_text(msp_precheck_text *l, const char *text)
{
    for (; *text != '\0'; text++)
        write_char(l, *text);
}

static void
write_inside(msp_precheck_text *l, const char *text)
{
    if (text[0] != '\0' && strchr("=+-@\t\r", text[0]) != NULL)
        write_char(l, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '"')
            write_char(l, '"');
        write_char(l, (unsigned char)*text < ' ' && *text != '\n' ? ' ' : *text);
    }
}

void
msp_precheck_text_field(msp_precheck_text *l, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;

    if (quoted)
        write_char(l, '"');
    write_inside(l, text);
    if (quoted)
        write_char(l, '"');
}

static size_t
terminate(msp_precheck_text *l)
{
    if (l->size > 0)
        l->buf[l->len < l->size ? l->len : l->size - 1] = '\0';
    return l->len;
}

/* CR LF and the terminator; returns the length of the whole line. */
static size_t
end_line(msp_precheck_text *l)
{
    write_text(l, "\r\n");
    return terminate(l);
}

size_t
msp_precheck_name_written(char *buf, size_t size, const char *name)
{
    msp_precheck_text l = {buf, size, 0};

    write_inside(&l, name);
    return terminate(&l);
}

static const char *
type_text(msp_dtype t)
{
    return t == MSP_DTYPE_NONE ? " " : msp_dtype_torch_name(t);
}

size_t
msp_precheck_details_line(char *buf, size_t size, const char *name, const msp_precheck_row *row)
{
    msp_precheck_text l = {buf, size, 0};
    char number[400];

    msp_precheck_text_field(&l, name);
    write_char(&l, ',');
    msp_precheck_text_field(&l, type_text(row->bench));
    write_char(&l, ',');
    msp_precheck_text_field(&l, type_text(row->device));
    write_char(&l, ',');
    msp_precheck_text_field(&l, row->shape[0] != '\0' ? row->shape : " ");
    for (int i = 0; i < MSP_PRECHECK_NUMBERS; i++) {
        msp_snprintf(number, sizeof(number), "%.14f", row->v[i]);
        write_char(&l, ',');
        write_text(&l, row->has[i] ? number : " ");
    }
    write_char(&l, ',');
    msp_precheck_text_field(&l, msp_precheck_status_text(row->status));
    write_char(&l, ',');
    msp_precheck_text_field(&l, row->message);
    return end_line(&l);
}

size_t
msp_precheck_result_line(char *buf, size_t size, const char *api, msp_precheck_status forward,
                         const msp_precheck_status *backward, const char *message)
{
    msp_precheck_text l = {buf, size, 0};

    msp_precheck_text_field(&l, api);
    write_char(&l, ',');
    write_text(&l, msp_precheck_status_text(forward));
    write_char(&l, ',');
    write_text(&l, backward == NULL ? " " : msp_precheck_status_text(*backward));
    write_char(&l, ',');
    msp_precheck_text_field(&l, message);
    return end_line(&l);
}

/* ---- continuing ------------------------------------------------------------------------------------------------- */

enum { MAX_FILE = 1 << 30 };

/* The record that begins at *at: where it ends, and its first field as msp_precheck_name_written() has it. False: it is
 * cut off. */
static bool
next_record(const char *text, size_t size, size_t *at, msp_str *first)
{
    size_t begin = *at, i = begin, comma = 0;
    bool quoted = false;

    for (; i < size; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (text[i] == ',' && !quoted && comma == 0)
            comma = i;
        else if (text[i] == '\n' && !quoted)
            break;
    }
    if (i >= size)
        return false;
    *first = (msp_str){text + begin, (comma > 0 ? comma : i) - begin};
    if (first->len >= 2 && first->p[0] == '"')
        *first = (msp_str){first->p + 1, first->len - 2};
    *at = i + 1;
    return true;
}

static msp_status
cut_file(const char *path, size_t keep, msp_error *err)
{
    if (truncate(path, (off_t)keep) != 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot cut off its last line", path);
    return MSP_OK;
}

static msp_status
check_header(const char *path, const char *text, size_t size, const char *header, size_t *at, msp_error *err)
{
    size_t skip = size >= 3 && memcmp(text, BOM, 3) == 0 ? 3 : 0;
    size_t len = strcspn(header + 3, ",");

    if (size < skip + len || !msp_str_eq_nocase((msp_str){text + skip, len}, (msp_str){header + 3, len}))
        return msp_error_set(err, MSP_E_FORMAT, "%s: not a table of run_ut: it begins otherwise", path);
    *at = 0;
    return MSP_OK;
}

static msp_status
read_names(msp_map *done, const char *text, size_t *keep, const char *path, size_t size, msp_precheck_name_fn *name,
           void *payload, msp_error *err)
{
    msp_str first;
    msp_status st = check_header(path, text, size, msp_precheck_result_header(), keep, err);

    if (st != MSP_OK || !next_record(text, size, keep, &first))
        return st;
    while (next_record(text, size, keep, &first)) {
        bool fresh;

        if (msp_map_put(done, first, 0, &fresh) == NULL)
            return msp_error_set(err, MSP_E_NOMEM, "out of memory");
        name(first.p, first.len, payload);
    }
    return MSP_OK;
}

msp_str
msp_precheck_api_of(msp_str name)
{
    const char *forward = msp_str_find(name, MSP_STR(".forward.output"));
    const char *backward = msp_str_find(name, MSP_STR(".backward.output"));
    const char *end = backward == NULL || (forward != NULL && forward < backward) ? forward : backward;

    return end == NULL ? name : (msp_str){name.p, (size_t)(end - name.p)};
}

static size_t
details_to_keep(const msp_map *done, const char *text, size_t size)
{
    size_t at = 0, keep = 0;
    msp_str first;

    if (!next_record(text, size, &at, &first))
        return 0;
    keep = at;
    while (next_record(text, size, &at, &first) && msp_map_get(done, msp_precheck_api_of(first)) != NULL)
        keep = at;
    return keep;
}

msp_status
msp_precheck_resume(const char *result_path, const char *details_path, msp_precheck_name_fn *name, void *payload,
                    msp_error *err)
{
    char *result = NULL, *details = NULL;
    size_t size, details_size, keep = 0;
    msp_map done = {0};
    msp_status st = msp_file_read(&result, &size, result_path, MAX_FILE, err);

    if (st == MSP_OK)
        st = msp_file_read(&details, &details_size, details_path, MAX_FILE, err);
    if (st == MSP_OK)
        st = read_names(&done, result, &keep, result_path, size, name, payload, err);
    if (st == MSP_OK && keep < size)
        st = cut_file(result_path, keep, err);
    if (st == MSP_OK)
        st = cut_file(details_path, details_to_keep(&done, details, details_size), err);
    msp_map_release(&done);
    msp_free(result);
    msp_free(details);
    return st;
}
