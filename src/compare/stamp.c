/*
 * stamp.c - see stamp.h.
 *
 * A claim is a file that only one process can create. It is looked for before the results are: a run that has finished
 * has given its claim back, but then its results are there.
 */
#include "compare/stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/path.h"
#include "core/str.h"

enum { MAX_TRIES = 86400 };

msp_status
msp_stamp_advise(msp_error *err, msp_status st)
{
    char text[sizeof(err->message)];

    if (err == NULL || st != MSP_E_IO)
        return st;
    memcpy(text, err->message, sizeof(text));
    return msp_error_set(err, st, "%.900s; choose another folder for the results with -o", text);
}

msp_status
msp_stamp_check(const char *given, msp_error *err)
{
    unsigned long long digits;

    if (given == NULL || (strlen(given) == 14 && msp_str_to_u64(msp_str_of(given), &digits)))
        return MSP_OK;
    return msp_error_set(err, MSP_E_INVALID, "the time stamp \"%s\" does not have 14 digits", given);
}

static void
begin(char text[16], const char *given)
{
    time_t now = time(NULL);
    struct tm tm;

    if (given != NULL) {
        memcpy(text, given, 15);
        return;
    }
    localtime_r(&now, &tm);
    strftime(text, 16, "%Y%m%d%H%M%S", &tm);
}

static void
next_second(char text[16])
{
    struct tm tm = {.tm_isdst = -1};
    time_t t;

    if (sscanf(text, "%4d%2d%2d%2d%2d%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec) !=
        6)
        return;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    tm.tm_sec += 1;
    t = mktime(&tm);
    localtime_r(&t, &tm);
    strftime(text, 16, "%Y%m%d%H%M%S", &tm);
}

/* MSP_E_LIMIT: another run has it. */
static msp_status
claim(msp_stamp *s, const char *dir, msp_error *err)
{
    msp_buf path = {0};
    int fd;

    msp_buf_printf(&path, "%s/.msprobe_%s", dir, s->text);
    if (path.failed) {
        msp_buf_release(&path);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    fd = open(path.p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        int why = errno;

        msp_buf_release(&path);
        if (why == EEXIST)
            return msp_error_set(err, MSP_E_LIMIT, "%s: no free time stamp for the results near %s", dir, s->text);
        return msp_stamp_advise(err, msp_error_set_errno(err, MSP_E_IO, why, "%s: cannot write there", dir));
    }
    close(fd);
    s->claim = path.p;
    return MSP_OK;
}

static void
give_back(msp_stamp *s)
{
    if (s->claim != NULL)
        unlink(s->claim);
    msp_free(s->claim);
    s->claim = NULL;
}

static msp_status
make_dir(msp_stamp *s, const char *dir, msp_error *err)
{
    msp_status st;

    if (msp_path_kind_of(dir) == MSP_PATH_DIR)
        return MSP_OK;
    st = msp_path_make_dirs(dir, err);
    if (st != MSP_OK)
        return msp_stamp_advise(err, st);
    s->made = msp_path_join(dir, "");
    return s->made == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

msp_status
msp_stamp_claim(msp_stamp *out, const char *dir, const char *given, msp_stamp_taken *taken, void *payload,
                msp_error *err)
{
    msp_status st;

    *out = (msp_stamp){0};
    st = msp_stamp_check(given, err);
    if (st == MSP_OK)
        st = make_dir(out, dir, err);
    if (st != MSP_OK)
        return st;
    begin(out->text, given);
    for (int i = 0; i < MAX_TRIES; i++, next_second(out->text)) {
        st = claim(out, dir, err);
        if (st == MSP_OK && !taken(out->text, payload))
            return MSP_OK;
        if (st != MSP_OK && st != MSP_E_LIMIT)
            return st;
        give_back(out);
    }
    return msp_error_set(err, MSP_E_LIMIT, "%s: no free time stamp for the results near %s", dir, out->text);
}

void
msp_stamp_release(msp_stamp *s)
{
    give_back(s);
    if (s->made != NULL)
        rmdir(s->made); /* fails, as it should, when there is a result */
    msp_free(s->made);
    *s = (msp_stamp){0};
}
