/*
 * stamp.c - see stamp.h.
 *
 * A claim is a hidden file that one process has locked. It is looked for before the results are: a run that has
 * finished has given its claim back, but then its results are there. A claim that nobody has locked was left by a run
 * that was killed. Where a file system has no locks the file alone counts, and such a leftover stays.
 */
#include "compare/run/stamp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
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
first_stamp(char text[16], const char *given)
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

/* Is the open file still the one at path? Another run may have taken it away before it was locked here. */
static bool
is_still_there(int fd, const char *path)
{
    struct stat open_one, named;

    return fstat(fd, &open_one) == 0 && lstat(path, &named) == 0 && open_one.st_dev == named.st_dev &&
           open_one.st_ino == named.st_ino;
}

/* Lock the claim that is open; false when another run has it. A file system without locks leaves it to who made it. */
static bool
lock_claim(int fd, const char *path, bool made)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return made && errno != EWOULDBLOCK;
    return is_still_there(fd, path);
}

/* MSP_E_LIMIT: another run has it. */
static msp_status
claim_place(msp_stamp_place *p, const char *dir, const char *text, msp_error *err)
{
    msp_buf path = {0};
    bool made = true;
    int why, fd;

    msp_buf_printf(&path, "%s/.msprobe_%s", dir, text);
    if (path.failed) {
        msp_buf_release(&path);
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    fd = open(path.p, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
    why = errno;
    if (fd < 0 && why == EEXIST) {
        made = false;
        fd = open(path.p, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    }
    if (fd >= 0 && lock_claim(fd, path.p, made)) {
        p->claim = path.p;
        p->fd = fd;
        return MSP_OK;
    }
    if (fd >= 0)
        close(fd);
    msp_buf_release(&path);
    if (fd >= 0 || !made)
        return msp_error_set(err, MSP_E_LIMIT, "%s: no free time stamp for the results near %s", dir, text);
    return msp_stamp_advise(err, msp_error_set_errno(err, MSP_E_IO, why, "%s: cannot write there", dir));
}

static void
give_back(msp_stamp *s)
{
    for (size_t i = 0; i < s->n; i++) {
        msp_stamp_place *p = &s->places[i];

        if (p->claim == NULL)
            continue;
        unlink(p->claim); /* before the lock goes: who gets it then sees that the file is gone */
        close(p->fd);
        msp_free(p->claim);
        p->claim = NULL;
    }
}

static bool
is_claim(const char *name)
{
    msp_str s = msp_str_of(name), prefix = MSP_STR(".msprobe_");
    unsigned long long digits;

    return s.len == prefix.len + 14 && msp_str_starts(s, prefix) &&
           msp_str_to_u64((msp_str){s.p + prefix.len, 14}, &digits);
}

/* Take away what killed runs have left in dir: empty claims that nobody has locked. */
static void
sweep_claims(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        struct stat st;
        int fd = is_claim(e->d_name) ? openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;

        if (fd < 0)
            continue;
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(d), e->d_name, 0);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
}

static msp_status
make_dir(msp_stamp_place *p, const char *dir, msp_error *err)
{
    msp_status st;

    if (msp_path_kind_of(dir) == MSP_PATH_DIR) {
        sweep_claims(dir);
        return MSP_OK;
    }
    st = msp_path_make_dirs(dir, err);
    if (st != MSP_OK)
        return msp_stamp_advise(err, st);
    p->made = msp_str_copy(msp_str_of(dir));
    return p->made == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

/* Is the i-th folder one of those before it? "out" and "out/" are one. */
static bool
is_named_twice(const msp_stamp *s, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (s->places[k].dev == s->places[i].dev && s->places[k].ino == s->places[i].ino)
            return true;
    return false;
}

static msp_status
identify_place(msp_stamp_place *p, const char *dir, msp_error *err)
{
    struct stat st;

    if (stat(dir, &st) != 0)
        return msp_stamp_advise(err, msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot be reached", dir));
    p->dev = st.st_dev;
    p->ino = st.st_ino;
    return MSP_OK;
}

static msp_status
prepare_places(msp_stamp *s, const char *const *dirs, size_t n, msp_error *err)
{
    msp_status st = MSP_OK;

    s->places = msp_alloc_zero(n, sizeof(*s->places));
    if (s->places == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    s->n = n;
    for (size_t i = 0; i < n && st == MSP_OK; i++) {
        st = make_dir(&s->places[i], dirs[i], err);
        if (st == MSP_OK)
            st = identify_place(&s->places[i], dirs[i], err);
    }
    return st;
}

msp_status
msp_stamp_claim(msp_stamp *out, const char *const *dirs, size_t n, const char *given, msp_stamp_taken *taken,
                void *payload, msp_error *err)
{
    msp_status st;

    *out = (msp_stamp){0};
    st = msp_stamp_check(given, err);
    if (st == MSP_OK)
        st = prepare_places(out, dirs, n, err);
    if (st != MSP_OK)
        return st;
    first_stamp(out->text, given);
    for (int i = 0; i < MAX_TRIES; i++, next_second(out->text)) {
        for (size_t k = 0; k < n && st == MSP_OK; k++)
            st = is_named_twice(out, k) ? MSP_OK : claim_place(&out->places[k], dirs[k], out->text, err);
        if (st == MSP_OK && !taken(out->text, payload))
            return MSP_OK;
        if (st != MSP_OK && st != MSP_E_LIMIT)
            return st;
        give_back(out);
        st = MSP_OK;
    }
    return msp_error_set(err, MSP_E_LIMIT, "%s: no free time stamp for the results near %s", dirs[0], out->text);
}

void
msp_stamp_release(msp_stamp *s)
{
    give_back(s);
    while (s->n > 0) {
        char *made = s->places[--s->n].made; /* the last first: folders stand before those within them */

        if (made != NULL)
            rmdir(made); /* fails, as it should, when there is a result */
        msp_free(made);
    }
    msp_free(s->places);
    *s = (msp_stamp){0};
}
