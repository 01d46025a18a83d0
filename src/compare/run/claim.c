/* claim.c - where the results of a run go: no link leads out of the output directory, and nothing is written over. */
#include "compare/run/claim.h"

#include <sys/stat.h>
#include "core/alloc.h"

static bool
file_exists(const char *dir, const char *stem, const char *timestamp, const char *ext)
{
    char *path = msp_plan_file(dir, stem, timestamp, ext);
    struct stat st;
    bool there = path != NULL && lstat(path, &st) == 0;

    msp_free(path);
    return there;
}

/* Where the results of a run go. */
typedef struct places {
    const msp_plan *plan;
    const char *output_dir; /* the page's */
} places;

/* The msp_stamp_taken of a plan: no result is ever written over. */
static bool
is_taken(const char *timestamp, void *payload)
{
    const places *to = payload;
    const msp_plan *plan = to->plan;
    static const char *const exts[] = {"xlsx", "csv", "json"};

    for (size_t k = 0; k < 3; k++)
        if (file_exists(to->output_dir, "job_table", timestamp, exts[k]))
            return true;
    if (file_exists(to->output_dir, "compare_result", timestamp, "html"))
        return true;
    for (size_t i = 0; i < plan->npairs; i++) {
        const msp_plan_pair *p = &plan->pairs[i];

        for (size_t k = 0; k < 3; k++)
            if (file_exists(p->out_dir, p->stem, timestamp, exts[k]))
                return true;
        if (file_exists(p->out_dir, p->advisor_stem, timestamp, "txt"))
            return true;
    }
    return false;
}

/* Below the output directory nothing may lead out of it. */
static msp_status
check_out_dir(const char *output_dir, const char *out_dir, msp_error *err)
{
    size_t base = strlen(output_dir);
    char *path = msp_result_text(msp_str_of(out_dir));
    msp_status st = MSP_OK;
    struct stat info;

    if (path == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = base + 1; i <= strlen(out_dir) && st == MSP_OK; i++) {
        char c = out_dir[i];

        if (c != '/' && c != '\0')
            continue;
        path[i] = '\0';
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
            st = msp_error_set(err, MSP_E_INVALID, "%s: a symbolic link inside the output directory is not followed",
                               path);
        path[i] = c;
    }
    msp_free(path);
    return st;
}

msp_status
msp_run_check_out_dirs(const msp_plan *plan, const char *output_dir, msp_error *err)
{
    msp_status st = MSP_OK;

    for (size_t i = 0; i < plan->npairs && st == MSP_OK; i++)
        st = check_out_dir(output_dir, plan->pairs[i].out_dir, err);
    return st;
}

msp_status
msp_run_claim_stamp(msp_stamp *out, const char *output_dir, const char *given, msp_plan *plan, msp_error *err)
{
    enum { MOST = 256 }; /* a descriptor is needed for each */
    places to = {plan, output_dir};
    const char *dirs[MOST];
    size_t n = 0, k;

    dirs[n++] = output_dir;
    for (size_t i = 0; i < plan->npairs && n < MOST; i++) {
        const char *dir = plan->pairs[i].out_dir;

        for (k = n; k > 0 && strcmp(dirs[k - 1], dir) != 0; k--) /* the last is the most likely */
            ;
        if (k == 0)
            dirs[n++] = dir;
    }
    return msp_stamp_claim(out, dirs, n, given, is_taken, &to, err);
}
