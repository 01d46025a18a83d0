/* cmd_compare.c - msprobe compare: options to the library's, progress while it runs, the answer at the end. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli.h"
#include "launcher.h"
#include "messages.h"
#include "replay.h"
#include "msprobe/collect.h"
#include "summary.h"

enum { MAX_THREADS = 1024 };

static volatile sig_atomic_t interrupted;

static void
on_interrupt(int number)
{
    interrupted = number;
}

/* The first signal lets the library remove what is half written; the second ends the process at once. */
static void
watch_interrupt(void)
{
    struct sigaction act;

    memset(&act, 0, sizeof(act));
    act.sa_handler = on_interrupt;
    act.sa_flags = (int)SA_RESETHAND;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

/* Measured with statistics: csv takes 0.7 times as long as reading the JSON, a workbook 6 times with one thread. */
static double
row_cost(unsigned formats)
{
    return formats == 0 || (formats & MSP_COMPARE_XLSX) != 0 ? 6 : 0.7;
}

static bool
on_progress(const msp_compare_progress *p, void *payload)
{
    const msp_compare_options *opt = payload;
    msp_progress_state s = {.what = p->rank[0] != '\0' ? p->rank : NULL,
                            .is_reading = strcmp(p->phase, "read") == 0,
                            .rows = p->rows_done,
                            .total_rows = p->rows_total,
                            .bytes = p->bytes_done,
                            .total_bytes = p->bytes_total,
                            .json = p->json_done,
                            .total_json = p->json_total,
                            .known_json = p->json_known,
                            .row_cost = row_cost(opt->formats)};

    msp_messages_progress(&s);
    return !interrupted;
}

static bool
is_interrupted(void)
{
    return interrupted != 0;
}

/* ---- options ------------------------------------------------------------------------------------------------- */

static unsigned
formats_of(const char *list)
{
    static const struct {
        const char *name;
        unsigned bit;
    } all[] = {{"xlsx", MSP_COMPARE_XLSX}, {"csv", MSP_COMPARE_CSV}, {"json", MSP_COMPARE_JSON}};
    unsigned bits = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (msp_choice_has(list, all[i].name, strlen(all[i].name)))
            bits |= all[i].bit;
    return bits;
}

static msp_framework
framework_of(const char *name)
{
    if (name == NULL)
        return MSP_FRAMEWORK_UNKNOWN;
    return strcmp(name, "mindspore") == 0 ? MSP_MINDSPORE : MSP_PYTORCH;
}

static bool
has_target(const msp_args *args)
{
    return msp_args_has(args, MSP_OPT_TARGET) || msp_args_has(args, MSP_OPT_GOLDEN);
}

/* msprobe 26, whose scripts give -tp, writes csv unless --xlsx asks for a workbook. */
static unsigned
wanted_formats(const msp_args *args)
{
    unsigned bits = formats_of(msp_args_get(args, MSP_OPT_FORMAT, ""));

    if (msp_args_has(args, MSP_OPT_XLSX))
        bits |= MSP_COMPARE_XLSX;
    return bits == 0 && has_target(args) ? MSP_COMPARE_CSV : bits;
}

/* NULL when not given, "" for the bare option: what the library wants. */
static const char *
mapping_of(const msp_args *args, msp_opt_id id)
{
    return msp_args_has(args, id) ? msp_args_get(args, id, "") : NULL;
}

/* What the options' lists name, split at their commas. */
typedef struct wanted_parts {
    char *text; /* --replay-only */
    const char *names[64];
    int64_t *ranks, *steps; /* --rank, --step */
} wanted_parts;

static void
release_wanted(wanted_parts *w)
{
    free(w->text);
    free(w->ranks);
    free(w->steps);
}

static msp_status
split_wanted(msp_compare_options *opt, wanted_parts *w, const msp_args *args, msp_error *err)
{
    const char *list = msp_args_get(args, MSP_OPT_REPLAY_ONLY, NULL);
    msp_status st = msp_args_numbers(&w->ranks, &opt->nrank_id, args, MSP_OPT_RANK, "--rank", err);
    char *rest;

    if (st == MSP_OK)
        st = msp_args_numbers(&w->steps, &opt->nstep_id, args, MSP_OPT_STEP, "--step", err);
    opt->rank_id = w->ranks;
    opt->step_id = w->steps;
    opt->has_rank_id = w->ranks != NULL;
    opt->has_step_id = w->steps != NULL;
    if (list == NULL || st != MSP_OK)
        return st;
    if (msp_args_has(args, MSP_OPT_NO_REPLAY))
        return msp_error_set(err, MSP_E_INVALID, "--replay-only and --no-replay: give one of them");
    w->text = strdup(list);
    if (w->text == NULL)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (char *name = strtok_r(w->text, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if (opt->nreplay_only == sizeof(w->names) / sizeof(*w->names))
            return msp_error_set(err, MSP_E_INVALID, "--replay-only: up to %zu names", opt->nreplay_only);
        w->names[opt->nreplay_only++] = name;
    }
    opt->replay_only = w->names;
    if (opt->nreplay_only == 0)
        return msp_error_set(err, MSP_E_INVALID, "--replay-only: the name of a call is missing");
    return MSP_OK;
}

/* MSPROBE_NO_REPLAY is the option for all comparisons of a shell or a job. */
static bool
wants_replay(const msp_args *args)
{
    const char *off = getenv("MSPROBE_NO_REPLAY");

    return !msp_args_has(args, MSP_OPT_NO_REPLAY) && (off == NULL || off[0] == '\0' || strcmp(off, "0") == 0);
}

/* -tp and -gp, the paths as msprobe 26 wants them, stand alone. */
static msp_status
check_target(const msp_args *args, msp_error *err)
{
    const char *target = msp_args_get(args, MSP_OPT_TARGET, NULL), *golden = msp_args_get(args, MSP_OPT_GOLDEN, NULL);

    if (msp_args_has(args, MSP_OPT_INPUT) || args->noperands > 0)
        return msp_error_set(err, MSP_E_INVALID, "%s is one way to say what to compare, and '%.60s' another",
                             target != NULL ? "-tp" : "-gp",
                             args->noperands > 0 ? args->operands[0] : msp_args_get(args, MSP_OPT_INPUT, ""));
    if (target == NULL || golden == NULL)
        return msp_error_set(err, MSP_E_INVALID, "%s is missing: compare -tp NPU -gp BENCH",
                             target == NULL ? "-tp" : "-gp");
    return MSP_OK;
}

static msp_status
check_usage(const msp_args *args, msp_error *err)
{
    const char *framework = msp_args_get(args, MSP_OPT_FRAMEWORK, "");
    bool input = msp_args_has(args, MSP_OPT_INPUT), target = has_target(args);
    msp_status st = target ? check_target(args, err) : MSP_OK;

    if (st != MSP_OK)
        return st;
    if (input && args->noperands > 0)
        return msp_error_set(err, MSP_E_INVALID, "give either -i compare.json or two paths, not both ('%.60s')",
                             args->operands[0]);
    if (!input && !target && args->noperands == 0)
        return msp_error_set(err, MSP_E_INVALID, "what to compare? give two paths, or -i compare.json");
    if (!input && args->noperands == 1)
        return msp_error_set(err, MSP_E_INVALID, "the bench to compare '%.200s' with is missing", args->operands[0]);
    if ((msp_args_has(args, MSP_OPT_RANK) || msp_args_has(args, MSP_OPT_STEP)) &&
        (input || strcmp(framework, "pytorch") == 0))
        return msp_error_set(err, MSP_E_INVALID, "--rank and --step choose among MindSpore's static graphs%s",
                             input ? "; in a compare file they are the keys rank_id and step_id" : "");
    if (strcmp(framework, "pytorch") == 0 &&
        (msp_args_has(args, MSP_OPT_CELL_MAPPING) || msp_args_has(args, MSP_OPT_API_MAPPING)))
        return msp_error_set(err, MSP_E_INVALID,
                             "Argument -cm or -am is not supported in PyTorch framework; use -dm, or -f mindspore");
    return MSP_OK;
}

static msp_status
options_from_args(msp_compare_options *opt, msp_legacy_options *legacy, const msp_args *args, msp_error *err)
{
    msp_status st = check_usage(args, err);

    if (st != MSP_OK)
        return st;
    msp_compare_options_init(opt);
    opt->framework = framework_of(msp_args_get(args, MSP_OPT_FRAMEWORK, NULL));
    if (args->noperands == 2) {
        opt->npu_path = args->operands[0];
        opt->bench_path = args->operands[1];
    } else if (has_target(args)) {
        opt->npu_path = msp_args_get(args, MSP_OPT_TARGET, NULL);
        opt->bench_path = msp_args_get(args, MSP_OPT_GOLDEN, NULL);
    }
    opt->output_dir = msp_args_get(args, MSP_OPT_OUTPUT, "./output");
    opt->stack_mode = msp_args_has(args, MSP_OPT_STACK);
    opt->fuzzy = msp_args_has(args, MSP_OPT_FUZZY);
    opt->highlight = msp_args_has(args, MSP_OPT_HIGHLIGHT);
    opt->compare_only = msp_args_has(args, MSP_OPT_COMPARE_ONLY);
    opt->diff_analyze = msp_args_has(args, MSP_OPT_DIFF_ANALYZE);
    opt->data_mapping = msp_args_get(args, MSP_OPT_DATA_MAPPING, NULL);
    opt->layout = msp_args_get(args, MSP_OPT_LAYOUT, NULL);
    opt->cell_mapping = mapping_of(args, MSP_OPT_CELL_MAPPING);
    opt->api_mapping = mapping_of(args, MSP_OPT_API_MAPPING);
    opt->layer_mapping = mapping_of(args, MSP_OPT_LAYER_MAPPING);
    opt->formats = wanted_formats(args);
    opt->html = !msp_args_has(args, MSP_OPT_NO_HTML);
    *legacy = (msp_legacy_options){.suffix = msp_args_get(args, MSP_OPT_SUFFIX, NULL),
                                   .shape_flag = msp_args_has(args, MSP_OPT_SHAPE)};
    opt->legacy = legacy;
    /* a compare file decides for itself */
    opt->log_rows = msp_args_has(args, MSP_OPT_VERBOSE) || msp_args_has(args, MSP_OPT_LOG_ROWS);
    opt->no_failure_log = !msp_args_has(args, MSP_OPT_JSON) && !msp_args_has(args, MSP_OPT_QUIET);
    opt->progress = on_progress;
    opt->progress_payload = opt;
    return msp_args_number(&opt->threads, args, MSP_OPT_THREADS, "--threads", MAX_THREADS, err);
}

/* ---- verdict for CI ------------------------------------------------------------------------------------------ */

/* no: the verdict is "wrong"; warning: what could not be judged too; any: rows without partner too. */
static bool
pair_meets(const msp_compare_pair *p, const char *what)
{
    const msp_compare_counts *c = &p->counts;
    bool open = p->answer.level == MSP_ANSWER_NOT_JUDGED || c->shape_unmatched > 0 || c->unreadable > 0;

    if (p->status != MSP_OK)
        return false; /* an error, and has an exit status of its own */
    if (p->answer.level == MSP_ANSWER_WRONG)
        return true;
    if (strcmp(what, "no") == 0)
        return false;
    return open || (strcmp(what, "any") == 0 && (c->unmatched > 0 || c->bench_only > 0));
}

static bool
result_meets(const msp_compare_result *r, const char *what)
{
    if (what == NULL)
        return false;
    for (size_t i = 0; i < r->npairs; i++)
        if (pair_meets(&r->pairs[i], what))
            return true;
    return false;
}

/* ---- a file against a folder --------------------------------------------------------------------------------- */

enum { PATH_ROOM = 4096 };

static bool
is_kind(const char *path, mode_t kind)
{
    struct stat st;

    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

/* The path of folder's file that has the name of file; false when there is none. */
static bool
find_namesake(char out[PATH_ROOM], const char *file, const char *folder)
{
    const char *slash = strrchr(file, '/');
    int n;

    if (!is_kind(file, S_IFREG) || !is_kind(folder, S_IFDIR))
        return false;
    n = snprintf(out, PATH_ROOM, "%s/%s", folder, slash != NULL ? slash + 1 : file);
    return n > 0 && n < PATH_ROOM && is_kind(out, S_IFREG);
}

/* "a/rank0/dump.json b/rank0" means the file on both sides. In a compare file the two must be of the same type. */
static void
pair_file_with_folder(msp_compare_options *opt, char room[PATH_ROOM])
{
    if (find_namesake(room, opt->npu_path, opt->bench_path))
        opt->bench_path = room;
    else if (find_namesake(room, opt->bench_path, opt->npu_path))
        opt->npu_path = room;
}

/* ---- the command --------------------------------------------------------------------------------------------- */

/* A collection that was killed with its writer left its newest records in a ring beside the dump. */
static msp_status
recover_dumps(const msp_compare_options *opt, msp_error *err)
{
    int64_t n;
    msp_status st = opt->npu_path == NULL ? MSP_OK : msp_collect_recover(opt->npu_path, &n, err);

    return st != MSP_OK || opt->bench_path == NULL ? st : msp_collect_recover(opt->bench_path, &n, err);
}

static msp_status
run_compare(msp_compare_result *result, const msp_compare_options *opt, bool quiet, msp_error *err)
{
    msp_progress progress;
    bool follows = opt->link != NULL && opt->link->rank > 0;
    msp_status st = follows ? MSP_OK : recover_dumps(opt, err);

    if (st != MSP_OK) {
        if (opt->link != NULL)
            msp_compare_dismiss(opt->link, result);
        return st;
    }
    watch_interrupt();
    msp_progress_start(&progress, stderr, quiet || follows);
    msp_messages_share(&progress);
    st = msp_compare_run(result, opt, err);
    msp_messages_share(NULL);
    return st;
}

/* Which of several pairs failed, and why, was said when they did. */
static msp_exit_code
report_failure(const msp_summary *s)
{
    msp_error err;

    if (s->result->npairs < 2 || s->result->nfailed == 0)
        return msp_cli_fail(s->status, s->err);
    msp_error_set(&err, s->status, "%zu of %zu pairs could not be compared", s->result->nfailed, s->result->npairs);
    return msp_cli_fail(s->status, &err);
}

static msp_exit_code
report_result(const msp_summary *s)
{
    const char *fail_on = msp_args_get(s->args, MSP_OPT_FAIL_ON, NULL);
    bool quiet = msp_args_has(s->args, MSP_OPT_QUIET);

    if (msp_args_has(s->args, MSP_OPT_JSON))
        msp_summary_print_json(stdout, s);
    else if (!quiet)
        msp_summary_print(stdout, s);
    fflush(stdout); /* the error, on stderr, stands below the summary */
    if (s->status != MSP_OK)
        return report_failure(s);
    return result_meets(s->result, fail_on) ? MSP_EXIT_DIFFERENT : MSP_EXIT_OK;
}

/* Process 0 says what is wrong for all; only why this one could not go on is not known there. */
static msp_exit_code
report_follower(const msp_summary *s, bool joined)
{
    if (s->status == MSP_OK || interrupted)
        return MSP_EXIT_OK;
    return joined ? msp_cli_fail(s->status, s->err) : MSP_EXIT_FAILED;
}

/* A process that died is no success, also where others have done its work. */
static msp_exit_code
leave_job(msp_link *link, const msp_compare_result *r, msp_exit_code code)
{
    msp_error err;

    if (r->lost > 0 && link->rank == 0 && code == MSP_EXIT_OK)
        code = msp_cli_fail(msp_error_set(&err, MSP_E_IO,
                                          "%zu of %d processes died; everything was compared by the others", r->lost,
                                          link->size),
                            &err);
    fflush(stdout);
    fflush(stderr);
    link->close(link, r->lost == 0, code);
    return code;
}

/* As the shell wants it: die of the signal, after everything was tidied up. */
static void
die_of_interrupt(void)
{
    signal(interrupted, SIG_DFL);
    raise(interrupted);
}

/* Who gives -i a dump's folder wants its two paths: the manual has -i in each of its examples. */
static msp_status
load_config(msp_compare_config *out, const char *path, msp_error *err)
{
    struct stat about;

    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return msp_error_set(err, MSP_E_INVALID,
                             "%s: is a folder; -i takes a compare file, such as {\"npu_path\": \"%s\", \"bench_path\": "
                             "...}. Two folders are compared with: msprobe compare NPU BENCH",
                             path, path);
    return msp_compare_config_load(out, path, err);
}

msp_exit_code
msp_cmd_compare(const msp_args *args)
{
    msp_compare_options opt;
    msp_legacy_options legacy;
    wanted_parts wanted = {0};
    msp_replay_job job = {.is_cancelled = is_interrupted};
    msp_compare_config config = {0};
    msp_compare_result result = {0};
    const char *input = msp_args_get(args, MSP_OPT_INPUT, NULL);
    msp_summary summary = {.options = &opt, .result = &result, .args = args};
    msp_exit_code code;
    msp_error err = {.status = MSP_OK};
    char completed[PATH_ROOM];
    msp_link link;
    bool joined = false;

    summary.err = &err;
    if (options_from_args(&opt, &legacy, args, &err) != MSP_OK || split_wanted(&opt, &wanted, args, &err) != MSP_OK) {
        release_wanted(&wanted);
        /* of many processes one says so */
        return msp_launcher_rank() > 0 ? MSP_EXIT_USAGE : msp_cli_usage(args->command, &err);
    }
    job.threads = opt.threads;
    opt.replay = wants_replay(args) ? msp_replay_run : NULL;
    opt.replay_payload = &job;
    if (input != NULL) {
        summary.status = load_config(&config, input, &err);
        if (summary.status == MSP_OK) {
            msp_compare_config_apply(&opt, &config);
            if (config.is_print_compare_log)
                msp_messages_show_info();
        }
    } else {
        pair_file_with_folder(&opt, completed);
        if (msp_args_has(args, MSP_OPT_LOG_ROWS))
            msp_messages_show_info();
    }
    if (summary.status == MSP_OK)
        summary.status = msp_launcher_join(&link, &joined, &err);
    if (joined)
        opt.link = &link;
    if (summary.status == MSP_OK)
        summary.status = run_compare(&result, &opt, msp_args_has(args, MSP_OPT_QUIET), &err);
    code = msp_launcher_rank() > 0 ? report_follower(&summary, joined) : report_result(&summary);
    if (joined && !interrupted) /* else the launcher ends everybody */
        code = leave_job(&link, &result, code);
    msp_compare_result_release(&result);
    msp_compare_config_release(&config);
    release_wanted(&wanted);
    if (interrupted)
        die_of_interrupt();
    return code;
}
