/* path.c - see path.h. */
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/vec.h"

msp_path_kind
msp_path_kind_of(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return MSP_PATH_NONE;
    return S_ISREG(st.st_mode) ? MSP_PATH_FILE : S_ISDIR(st.st_mode) ? MSP_PATH_DIR : MSP_PATH_OTHER;
}

static size_t
trimmed_len(const char *path)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        len--;
    return len;
}

msp_str
msp_path_base(const char *path)
{
    size_t end = trimmed_len(path), start = end;

    while (start > 0 && path[start - 1] != '/')
        start--;
    return (msp_str){path + start, end - start};
}

msp_str
msp_path_dir(const char *path)
{
    size_t end = trimmed_len(path);

    while (end > 0 && path[end - 1] != '/')
        end--;
    if (end == 0)
        return MSP_STR(".");
    while (end > 1 && path[end - 1] == '/')
        end--;
    return (msp_str){path, end};
}

char *
msp_path_join(const char *dir, const char *name)
{
    msp_buf b = {0};

    msp_buf_text(&b, dir);
    if (name[0] != '\0' && b.len > 0 && b.p != NULL && b.p[b.len - 1] != '/')
        msp_buf_char(&b, '/');
    msp_buf_text(&b, name);
    if (b.failed)
        msp_buf_release(&b);
    return b.p;
}

char *
msp_path_beside(const char *path, const char *name)
{
    msp_str dir = msp_path_dir(path);
    msp_buf b = {0};

    msp_buf_str(&b, dir);
    if (dir.p[dir.len - 1] != '/')
        msp_buf_char(&b, '/');
    msp_buf_text(&b, name);
    if (b.failed)
        msp_buf_release(&b);
    return b.p;
}

static msp_status
make_one(const char *path, msp_error *err)
{
    if (mkdir(path, 0750) == 0)
        return MSP_OK;
    if (errno == EEXIST && msp_path_kind_of(path) == MSP_PATH_DIR)
        return MSP_OK;
    return msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot create the directory", path);
}

msp_status
msp_path_make_dirs(const char *path, msp_error *err)
{
    msp_status st = MSP_OK;
    msp_buf b = {0};

    msp_buf_text(&b, path);
    if (b.failed)
        return msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 1; i < b.len && st == MSP_OK; i++)
        if (b.p[i] == '/' && b.p[i - 1] != '/') {
            b.p[i] = '\0';
            st = make_one(b.p, err);
            b.p[i] = '/';
        }
    if (st == MSP_OK)
        st = make_one(b.p, err);
    msp_buf_release(&b);
    return st;
}

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int
msp_str_cmp_natural(msp_str a, msp_str b)
{
    size_t i = 0, j = 0;

    while (i < a.len && j < b.len) {
        if (is_digit(a.p[i]) && is_digit(b.p[j])) {
            size_t si, sj;

            while (i < a.len && a.p[i] == '0')
                i++;
            while (j < b.len && b.p[j] == '0')
                j++;
            for (si = i; i < a.len && is_digit(a.p[i]);)
                i++;
            for (sj = j; j < b.len && is_digit(b.p[j]);)
                j++;
            if (i - si != j - sj)
                return i - si < j - sj ? -1 : 1;
            if (i > si && memcmp(a.p + si, b.p + sj, i - si) != 0)
                return memcmp(a.p + si, b.p + sj, i - si);
        } else if (a.p[i] != b.p[j]) {
            return (unsigned char)a.p[i] < (unsigned char)b.p[j] ? -1 : 1;
        } else {
            i++;
            j++;
        }
    }
    if (i < a.len || j < b.len)
        return i < a.len ? 1 : -1;
    return msp_str_cmp(a, b); /* "rank01" and "rank1" */
}

static int
compare_names(const void *a, const void *b)
{
    return msp_str_cmp_natural(msp_str_of(*(char *const *)a), msp_str_of(*(char *const *)b));
}

msp_status
msp_dir_list_read(msp_dir_list *out, const char *path, msp_error *err)
{
    msp_status st = MSP_OK;
    struct dirent *e;
    size_t cap = 0;
    DIR *d = opendir(path);

    *out = (msp_dir_list){0};
    if (d == NULL)
        return msp_error_set_errno(err, errno == ENOENT ? MSP_E_NOT_FOUND : MSP_E_IO, errno,
                                   "%s: cannot read the directory", path);
    while (st == MSP_OK && (errno = 0, e = readdir(d)) != NULL) {
        char *name;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        name = msp_str_copy(msp_str_of(e->d_name));
        if (name == NULL || !msp_vec_grow((void **)&out->names, &cap, out->count + 1, sizeof(char *))) {
            msp_free(name);
            st = msp_error_set(err, MSP_E_NOMEM, "%s: out of memory", path);
            break;
        }
        out->names[out->count++] = name;
    }
    if (st == MSP_OK && errno != 0)
        st = msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot read the directory", path);
    closedir(d);
    if (st != MSP_OK)
        msp_dir_list_release(out);
    else if (out->count > 1)
        qsort(out->names, out->count, sizeof(char *), compare_names);
    return st;
}

void
msp_dir_list_release(msp_dir_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        msp_free(l->names[i]);
    msp_free(l->names);
    *l = (msp_dir_list){0};
}
