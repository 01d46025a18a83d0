/* results.c - see results.h. */
#include "online/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "core/vec.h"

static char *
name_file(const char *dir, const char *kind, const char *stamp, const char *suffix)
{
    char name[128];

    snprintf(name, sizeof(name), "accuracy_checking_%s_%.20s%.40s.csv", kind, stamp, suffix);
    return msp_path_join(dir, name);
}

static msp_status
append(int fd, const char *path, msp_str text, msp_error *err)
{
    struct iovec part = {(void *)text.p, text.len};
    int e = text.len > 0 ? msp_file_put(fd, &part, 1, -1) : 0;

    return e == 0 ? MSP_OK : msp_file_cannot_write(path, e, err);
}

/* *there: the file was not made now. */
static msp_status
open_file(int *fd, bool *there, const char *path, const char *header, msp_error *err)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
    *there = *fd < 0 && errno == EEXIST;
    if (*there)
        *fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0)
        return msp_file_cannot_write(path, errno, err);
    return *there ? MSP_OK : append(*fd, path, msp_str_of(header), err);
}

msp_status
msp_results_open(msp_results *out, const char *dir, const char *stamp, const char *suffix, msp_precheck_name_fn *known,
                 void *payload, msp_error *err)
{
    msp_status st = msp_path_make_dirs(dir, err);
    bool there[2] = {false, false};

    *out = MSP_RESULTS_NONE;
    out->result = name_file(dir, "result", stamp, suffix);
    out->details = name_file(dir, "details", stamp, suffix);
    if (st == MSP_OK && (out->result == NULL || out->details == NULL))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK)
        st = open_file(&out->result_fd, &there[0], out->result, msp_precheck_result_header(), err);
    if (st == MSP_OK)
        st = open_file(&out->details_fd, &there[1], out->details, msp_precheck_details_header(), err);
    out->continued = there[0];
    if (st == MSP_OK && there[0])
        st = msp_precheck_resume(out->result, out->details, known, payload, err);
    if (st != MSP_OK)
        msp_results_close(out);
    return st;
}

msp_status
msp_results_add(msp_results *r, uint64_t number, msp_str result, msp_str details, msp_error *err)
{
    char *text = msp_alloc(result.len + details.len + 1, 1);
    msp_status st;

    if (text == NULL || !msp_vec_grow((void **)&r->rows, &r->cap, r->nrows + 1, sizeof(*r->rows))) {
        msp_free(text);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    memcpy(text, result.p, result.len);
    if (details.len > 0)
        memcpy(text + result.len, details.p, details.len);
    r->rows[r->nrows++] = (struct results_row){number, text, result.len, details.len};
    st = append(r->details_fd, r->details, details, err);
    return st == MSP_OK ? append(r->result_fd, r->result, result, err) : st;
}

static int
by_number(const void *a, const void *b)
{
    const struct results_row *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static bool
is_sorted(const msp_results *r)
{
    for (size_t i = 1; i < r->nrows; i++)
        if (r->rows[i - 1].number > r->rows[i].number)
            return false;
    return true;
}

static msp_status
write_sorted(const msp_results *r, bool details, msp_error *err)
{
    const char *header = details ? msp_precheck_details_header() : msp_precheck_result_header();
    msp_file f = MSP_FILE_NONE;
    msp_status st = msp_file_create(&f, details ? r->details : r->result, 0640, err);

    if (st == MSP_OK)
        st = msp_file_write(&f, header, strlen(header), err);
    for (size_t i = 0; i < r->nrows && st == MSP_OK; i++) {
        const struct results_row *row = &r->rows[i];

        if (details && row->details_len > 0)
            st = msp_file_write(&f, row->text + row->result_len, row->details_len, err);
        else if (!details)
            st = msp_file_write(&f, row->text, row->result_len, err);
    }
    if (st == MSP_OK)
        return msp_file_commit(&f, err);
    msp_file_abandon(&f);
    return st;
}

msp_status
msp_results_finish(msp_results *r, msp_error *err)
{
    msp_status st = MSP_OK;

    if (r->result_fd >= 0 && !r->continued && !is_sorted(r)) {
        qsort(r->rows, r->nrows, sizeof(*r->rows), by_number);
        st = write_sorted(r, true, err);
        if (st == MSP_OK)
            st = write_sorted(r, false, err);
    }
    msp_results_close(r);
    return st;
}

void
msp_results_close(msp_results *r)
{
    if (r->result_fd >= 0)
        close(r->result_fd);
    if (r->details_fd >= 0)
        close(r->details_fd);
    for (size_t i = 0; i < r->nrows; i++)
        msp_free(r->rows[i].text);
    msp_free(r->rows);
    msp_free(r->result);
    msp_free(r->details);
    *r = MSP_RESULTS_NONE;
}
