/*
 * cmd_run_ut.c - msprobe run_ut, multi_run_ut, run_overflow_check and api_precision_compare.
 *
 * Running an API needs torch: msprobe.precheck does it in the environment's interpreter and leaves two csv files, which
 * are read back here for the screen. Without -api_info the config file says which training processes to wait for
 * (is_online); each of their steps and ranks has two files of its own then. api_precision_compare compares two files
 * and needs no Python.
 */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "cli.h"
#include "interpreter.h"
#include "jsonout.h"
#include "msprobe/precheck.h"
#include "shell.h"
#include "terminal.h"

enum { PATH_SIZE = 4096, MAX_WORDS = 32 };

/* How msprobe.precheck ends beside 0: it has said on the screen why it could do nothing; or it has done what could be
 * done, and named what was wrong with its input. */
enum { SAID = 3, INCOMPLETE = 4 };

/* What is run, and where its results go. */
typedef struct job {
    char result[PATH_SIZE], details[PATH_SIZE], errors[PATH_SIZE]; /* online: patterns, with * for numbers */
    char workers[16], devices[512], stamp[16];
    const char *dir, *words[MAX_WORDS];
    bool resume, online;
} job;

static void
stamp_now(char out[16])
{
    time_t now = time(NULL);
    struct tm t;

    localtime_r(&now, &t);
    strftime(out, 16, "%Y%m%d%H%M%S", &t);
}

/* more: where else calls may come from. */
static msp_status
check_dump(const msp_args *args, const char *more, msp_error *err)
{
    const char *dump = msp_args_get(args, MSP_OPT_API_INFO, NULL);
    const char *framework = msp_args_get(args, MSP_OPT_FRAMEWORK, "pytorch");

    if (strcmp(framework, "pytorch") != 0)
        return msp_error_set(err, MSP_E_INVALID, "APIs of %s cannot be run again: this is for dumps of PyTorch",
                             framework);
    if (dump == NULL && msp_args_has(args, MSP_OPT_CONFIG))
        return MSP_OK; /* which says where calls come from */
    if (dump == NULL)
        return msp_error_set(err, MSP_E_INVALID, "which dump? -api_info dump.json%s", more);
    if (access(dump, R_OK) != 0)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: cannot be read", dump);
    return MSP_OK;
}

/* "0,1,2": none twice. */
static msp_status
check_devices(const char *list, msp_error *err)
{
    for (const char *a = list; a != NULL; a = strchr(a, ',') != NULL ? strchr(a, ',') + 1 : NULL)
        for (const char *b = strchr(a, ','); b != NULL; b = strchr(b + 1, ','))
            if (strtol(a, NULL, 10) == strtol(b + 1, NULL, 10))
                return msp_error_set(err, MSP_E_INVALID, "-d has device %ld twice", strtol(a, NULL, 10));
    return MSP_OK;
}

/* -d 0 1 2: what follows the first number are operands to the parser. */
static msp_status
read_devices(char *out, size_t size, const msp_args *args, msp_error *err)
{
    size_t len = (size_t)snprintf(out, size, "%s", msp_args_get(args, MSP_OPT_DEVICE, "0"));

    for (size_t i = 0; i < args->noperands && len < size; i++)
        len += (size_t)snprintf(out + len, size - len, ",%s", args->operands[i]);
    if (len >= size || strspn(out, "0123456789,") != len || out[0] == ',' || out[len - 1] == ',')
        return msp_error_set(err, MSP_E_INVALID, "-d takes numbers of devices, such as -d 0 1, not '%.60s'", out);
    if (args->noperands > 0 && !msp_args_has(args, MSP_OPT_DEVICE))
        return msp_error_set(err, MSP_E_INVALID, "'%.60s' belongs to no option", args->operands[0]);
    return check_devices(out, err);
}

/* A result file to be continued: accuracy_checking_result_<14 digits>.csv, with its details beside it. */
static msp_status
name_resumed(job *j, const char *path, msp_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    static const char begin[] = "accuracy_checking_result_";

    if (strncmp(name, begin, sizeof(begin) - 1) != 0 || strspn(name + sizeof(begin) - 1, "0123456789") != 14 ||
        strcmp(name + sizeof(begin) - 1 + 14, ".csv") != 0)
        return msp_error_set(err, MSP_E_INVALID,
                             "-csv_path takes an accuracy_checking_result_{time}.csv of an earlier run, not %s", path);
    snprintf(j->result, sizeof(j->result), "%s", path);
    snprintf(j->details, sizeof(j->details), "%.*saccuracy_checking_details_%s", (int)(name - path), path,
             name + sizeof(begin) - 1);
    snprintf(j->errors, sizeof(j->errors), "%.*sut_error_data%.14s", (int)(name - path), path,
             name + sizeof(begin) - 1);
    j->resume = true;
    return MSP_OK;
}

static msp_status
name_online(job *j, const char *dir, const char *stamp, const msp_args *args, msp_error *err)
{
    if (msp_args_has(args, MSP_OPT_CSV_PATH) || msp_args_has(args, MSP_OPT_FUZZY))
        return msp_error_set(err, MSP_E_INVALID, "%s needs a whole dump: -api_info dump.json",
                             msp_args_has(args, MSP_OPT_FUZZY) ? "-f" : "-csv_path");
    j->dir = dir;
    snprintf(j->stamp, sizeof(j->stamp), "%s", stamp);
    snprintf(j->errors, sizeof(j->errors), "%s/ut_error_data%s", dir, stamp);
    snprintf(j->result, sizeof(j->result), "%s/step*/accuracy_checking_result_%s_rank*.csv", dir, stamp);
    snprintf(j->details, sizeof(j->details), "%s/step*/accuracy_checking_details_%s_rank*.csv", dir, stamp);
    return MSP_OK;
}

static msp_status
name_results(job *j, const msp_args *args, msp_error *err)
{
    const char *dir = msp_args_get(args, MSP_OPT_OUTPUT, ".");
    char stamp[16];

    stamp_now(stamp);
    j->online = !msp_args_has(args, MSP_OPT_API_INFO);
    if (j->online)
        return name_online(j, dir, stamp, args, err);
    if (msp_args_has(args, MSP_OPT_CSV_PATH))
        return name_resumed(j, msp_args_get(args, MSP_OPT_CSV_PATH, ""), err);
    for (;;) { /* a second in which nobody else writes there */
        snprintf(j->result, sizeof(j->result), "%s/accuracy_checking_result_%s.csv", dir, stamp);
        if (access(j->result, F_OK) != 0)
            break;
        sleep(1);
        stamp_now(stamp);
    }
    snprintf(j->details, sizeof(j->details), "%s/accuracy_checking_details_%s.csv", dir, stamp);
    snprintf(j->errors, sizeof(j->errors), "%s/ut_error_data%s", dir, stamp);
    return MSP_OK;
}

/* As many processes as are asked for, or one per processor. */
static void
put_workers(char out[16], int asked)
{
    snprintf(out, 16, "%d", asked > 0 ? asked : (int)sysconf(_SC_NPROCESSORS_ONLN));
}

static msp_status
name_words(job *j, const msp_args *args, msp_error *err)
{
    size_t n = 1;
    int workers = 0;
    msp_status st = msp_args_number(&workers, args, MSP_OPT_NUM, "-n", 64, err);

    if (st == MSP_OK)
        st = read_devices(j->devices, sizeof(j->devices), args, err);
    if (st != MSP_OK)
        return st;
    put_workers(j->workers, workers);
    j->words[n++] = "-m";
    j->words[n++] = "msprobe.precheck";
    if (j->online) {
        j->words[n++] = j->dir;
        j->words[n++] = "--online";
        j->words[n++] = j->stamp;
    } else {
        j->words[n++] = msp_args_get(args, MSP_OPT_API_INFO, NULL);
        j->words[n++] = j->result;
        j->words[n++] = j->details;
    }
    j->words[n++] = "--workers";
    j->words[n++] = j->workers;
    j->words[n++] = "--devices";
    j->words[n++] = j->devices;
    if (msp_args_has(args, MSP_OPT_FUZZY)) /* -f, which is --filter_api here */
        j->words[n++] = "--filter";
    if (msp_args_has(args, MSP_OPT_CONFIG)) {
        j->words[n++] = "--config";
        j->words[n++] = msp_args_get(args, MSP_OPT_CONFIG, "");
    }
    if (msp_args_has(args, MSP_OPT_SAVE_ERROR)) {
        j->words[n++] = "--error-data";
        j->words[n++] = j->errors;
    }
    if (j->resume)
        j->words[n++] = "--resume";
    j->words[n] = NULL;
    return MSP_OK;
}

/* What stands before the patterns' first * is a path, whatever signs are in it. */
static void
escape_pattern(char *out, size_t size, const char *pattern)
{
    const size_t plain = (size_t)(strstr(pattern, "/step*/") - pattern);
    size_t n = 0;

    for (size_t i = 0; pattern[i] != '\0' && n + 2 < size; i++) {
        if (i < plain && strchr("*?[]\\", pattern[i]) != NULL)
            out[n++] = '\\';
        out[n++] = pattern[i];
    }
    out[n] = '\0';
}

/* Sum up all pairs of files of an online run. *any: there is one. */
static msp_status
summarise_online(msp_precheck_summary *sum, bool *any, const job *j, msp_error *err)
{
    static char pattern[2 * PATH_SIZE];
    glob_t results = {0}, details = {0};
    msp_status st = MSP_OK;

    *any = false;
    escape_pattern(pattern, sizeof(pattern), j->result);
    if (glob(pattern, 0, NULL, &results) != 0)
        return MSP_OK;
    escape_pattern(pattern, sizeof(pattern), j->details);
    if (glob(pattern, 0, NULL, &details) == 0 && details.gl_pathc == results.gl_pathc) {
        *any = results.gl_pathc > 0;
        for (size_t i = 0; i < results.gl_pathc && st == MSP_OK; i++)
            st = msp_precheck_summarise(sum, results.gl_pathv[i], details.gl_pathv[i], err);
    }
    globfree(&results);
    globfree(&details);
    return st;
}

/* ---- the screen ------------------------------------------------------------------------------------------------- */

static void
print_number(const char *title, double v)
{
    if (!isnan(v))
        printf("  %s %.6g", title, v);
}

/* The worst result's call as a script, and how it is on another device. */
static void
print_next(const msp_precheck_summary *s, const job *j, const char *dump)
{
    const char *name = s->worst[0].name, *end = strstr(name, ".forward.output");
    char call[256];

    if (end == NULL)
        end = strstr(name, ".backward.output");
    snprintf(call, sizeof(call), "%.*s", (int)(end != NULL ? (size_t)(end - name) : strlen(name)), name);
    printf("  Next          msprobe repro ");
    msp_shell_put(stdout, dump);
    printf(" ");
    msp_shell_put(stdout, call);
    printf(" -o repro\n                run it on another device, then: msprobe api_precision_compare -npu ");
    msp_shell_put(stdout, j->details);
    printf(" -gpu ...\n");
}

static void
print_summary(const msp_precheck_summary *s, const job *j, const char *dump)
{
    size_t judged = s->apis - s->count[MSP_PRECHECK_SKIP];
    char safe[320];

    printf("\n  Checked       %zu APIs of %s\n", judged, j->online ? "running trainings" : dump);
    printf("  Passed        %zu", s->count[MSP_PRECHECK_PASS]);
    msp_term_put(stdout, s->count[MSP_PRECHECK_WARNING] > 0 ? MSP_STYLE_YELLOW : MSP_STYLE_PLAIN, ", %zu warnings",
                 s->count[MSP_PRECHECK_WARNING]);
    msp_term_put(stdout, s->count[MSP_PRECHECK_ERROR] > 0 ? MSP_STYLE_RED : MSP_STYLE_PLAIN, ", %zu errors",
                 s->count[MSP_PRECHECK_ERROR]);
    printf("\n  Not checked   %zu", s->count[MSP_PRECHECK_SKIP]);
    if (s->failed > 0)
        msp_term_put(stdout, MSP_STYLE_RED, ", %zu failed", s->failed);
    printf("\n");
    if (s->skipped[0] != '\0')
        printf("                %s\n", msp_text_safe(safe, sizeof(safe), s->skipped));
    for (size_t i = 0; i < s->nworst; i++) {
        printf("%s%s: %s", i == 0 ? "\n  Worst         " : "                ",
               msp_text_safe(safe, sizeof(safe), s->worst[i].name), msp_precheck_status_text(s->worst[i].status));
        print_number("cosine", s->worst[i].cosine);
        print_number("max abs", s->worst[i].max_abs);
        print_number("max rel", s->worst[i].max_rel);
        printf("\n");
    }
    printf("\n  Written       %s\n                %s\n", j->result, j->details);
    if (s->nworst > 0 && !j->online)
        print_next(s, j, dump);
}

static void
print_json(const msp_precheck_summary *s, const job *j)
{
    msp_jsonout out = {.out = stdout};

    msp_jsonout_open(&out, NULL, '{');
    msp_jsonout_int(&out, "apis", (int64_t)s->apis);
    msp_jsonout_int(&out, "pass", (int64_t)s->count[MSP_PRECHECK_PASS]);
    msp_jsonout_int(&out, "warning", (int64_t)s->count[MSP_PRECHECK_WARNING]);
    msp_jsonout_int(&out, "error", (int64_t)s->count[MSP_PRECHECK_ERROR]);
    msp_jsonout_int(&out, "skip", (int64_t)s->count[MSP_PRECHECK_SKIP]);
    msp_jsonout_int(&out, "failed", (int64_t)s->failed);
    msp_jsonout_open(&out, "worst", '[');
    for (size_t i = 0; i < s->nworst; i++) {
        msp_jsonout_open(&out, NULL, '{');
        msp_jsonout_text(&out, "name", s->worst[i].name);
        msp_jsonout_text(&out, "status", msp_precheck_status_text(s->worst[i].status));
        msp_jsonout_float(&out, "cosine", s->worst[i].cosine);
        msp_jsonout_float(&out, "max_abs", s->worst[i].max_abs);
        msp_jsonout_float(&out, "max_rel", s->worst[i].max_rel);
        msp_jsonout_close(&out, '}');
    }
    msp_jsonout_close(&out, ']');
    msp_jsonout_text(&out, "result", j->result);
    msp_jsonout_text(&out, "details", j->details);
    msp_jsonout_close(&out, '}');
    printf("\n");
}

static msp_exit_code
exit_code(const msp_precheck_summary *s, const msp_args *args)
{
    const char *when = msp_args_get(args, MSP_OPT_FAIL_ON, "");

    if (s->failed > 0)
        return MSP_EXIT_FAILED;
    if (s->count[MSP_PRECHECK_ERROR] > 0 && *when != '\0')
        return MSP_EXIT_DIFFERENT;
    return s->count[MSP_PRECHECK_WARNING] > 0 && strcmp(when, "warning") == 0 ? MSP_EXIT_DIFFERENT : MSP_EXIT_OK;
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

msp_exit_code
msp_cmd_run_ut(const msp_args *args)
{
    msp_precheck_summary summary = {0};
    static job j;
    char safe[320];
    bool any = true;
    int code = 0;
    msp_error err;
    msp_status st = check_dump(args, ", or -config with is_online true", &err);

    j = (job){.resume = false};
    if (st == MSP_OK)
        st = name_results(&j, args, &err);
    if (st == MSP_OK)
        st = name_words(&j, args, &err);
    if (st == MSP_E_INVALID)
        return msp_cli_usage(args->command, &err);
    if (st == MSP_OK)
        st = msp_interpreter_run(&code, j.words, &err);
    if (st == MSP_OK && code == SAID)
        return MSP_EXIT_FAILED;
    if (st == MSP_OK && code != 0 && code != INCOMPLETE)
        st = msp_error_set(&err, MSP_E_IO,
                           "%s could not check the dump (exit status %d). It needs torch and msprobe; set "
                           "MSPROBE_PYTHON to an interpreter that has them",
                           j.words[0], code);
    if (st == MSP_OK)
        st = j.online ? summarise_online(&summary, &any, &j, &err)
                      : msp_precheck_summarise(&summary, j.result, j.details, &err);
    if (st != MSP_OK)
        return msp_cli_fail(st, &err);
    if (!any && code == INCOMPLETE)
        return MSP_EXIT_FAILED; /* what was wrong is told already */
    if (msp_args_has(args, MSP_OPT_JSON))
        print_json(&summary, &j);
    else if (!msp_args_has(args, MSP_OPT_QUIET))
        print_summary(&summary, &j, msp_args_get(args, MSP_OPT_API_INFO, ""));
    else if (summary.failed > 0)
        fprintf(stderr, "error: %zu APIs could not be checked, the first: %s\n", summary.failed,
                msp_text_safe(safe, sizeof(safe), summary.skipped));
    return code == INCOMPLETE ? MSP_EXIT_FAILED : exit_code(&summary, args);
}

msp_exit_code
msp_cmd_run_overflow_check(const msp_args *args)
{
    char devices[512], workers[16];
    const char *words[] = {NULL,        "-m",    "msprobe.precheck", "--overflow", NULL,
                           "--devices", devices, "--workers",        workers,      NULL};
    int code = 0;
    msp_error err;
    msp_status st = check_dump(args, "", &err);

    if (st == MSP_OK)
        st = read_devices(devices, sizeof(devices), args, &err);
    if (st == MSP_E_INVALID)
        return msp_cli_usage(args->command, &err);
    words[4] = msp_args_get(args, MSP_OPT_API_INFO, NULL);
    put_workers(workers, 0);
    if (st == MSP_OK)
        st = msp_interpreter_run(&code, words, &err);
    if (st != MSP_OK)
        return msp_cli_fail(st, &err);
    return code == 0 ? MSP_EXIT_OK : MSP_EXIT_FAILED;
}

static void
print_versus(const msp_precheck_versus *v)
{
    char safe[320];

    printf("\n  Judged        %zu APIs: %zu pass, %zu errors, %zu not judged%s\n", v->apis, v->count[MSP_PRECHECK_PASS],
           v->count[MSP_PRECHECK_ERROR], v->count[MSP_PRECHECK_SKIP],
           v->missing > 0 ? "; rows without a partner were left out" : "");
    for (size_t i = 0; i < v->nerrors; i++)
        printf("  %-14s%s\n", i == 0 ? "First errors" : "", msp_text_safe(safe, sizeof(safe), v->errors[i]));
    printf("  Written       %s\n                %s\n", v->result, v->details);
}

static void
print_versus_json(const msp_precheck_versus *v)
{
    msp_jsonout out = {.out = stdout};

    msp_jsonout_open(&out, NULL, '{');
    msp_jsonout_int(&out, "apis", (int64_t)v->apis);
    msp_jsonout_int(&out, "pass", (int64_t)v->count[MSP_PRECHECK_PASS]);
    msp_jsonout_int(&out, "error", (int64_t)v->count[MSP_PRECHECK_ERROR]);
    msp_jsonout_int(&out, "skip", (int64_t)v->count[MSP_PRECHECK_SKIP]);
    msp_jsonout_int(&out, "missing", (int64_t)v->missing);
    msp_jsonout_open(&out, "first_errors", '[');
    for (size_t i = 0; i < v->nerrors; i++)
        msp_jsonout_text(&out, NULL, v->errors[i]);
    msp_jsonout_close(&out, ']');
    msp_jsonout_text(&out, "result", v->result);
    msp_jsonout_text(&out, "details", v->details);
    msp_jsonout_close(&out, '}');
    printf("\n");
}

msp_exit_code
msp_cmd_api_precision_compare(const msp_args *args)
{
    const char *npu = msp_args_get(args, MSP_OPT_NPU, NULL), *gpu = msp_args_get(args, MSP_OPT_GPU, NULL);
    const char *dir = msp_args_get(args, MSP_OPT_OUTPUT, ".");
    static msp_precheck_versus v;
    char stamp[16];
    msp_error err;
    msp_status st;

    if (npu == NULL || gpu == NULL) {
        msp_error_set(&err, MSP_E_INVALID, "which details? -npu DETAILS.csv -gpu DETAILS.csv");
        return msp_cli_usage(args->command, &err);
    }
    stamp_now(stamp);
    st = msp_precheck_compare(&v, npu, gpu, dir, stamp, &err);
    if (st != MSP_OK)
        return msp_cli_fail(st, &err);
    if (msp_args_has(args, MSP_OPT_JSON))
        print_versus_json(&v);
    else if (!msp_args_has(args, MSP_OPT_QUIET))
        print_versus(&v);
    return v.count[MSP_PRECHECK_ERROR] > 0 && msp_args_has(args, MSP_OPT_FAIL_ON) ? MSP_EXIT_DIFFERENT : MSP_EXIT_OK;
}
