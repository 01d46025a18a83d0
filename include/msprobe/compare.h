/*
 * compare.h - two dumps side by side: which call is the first that goes wrong.
 *
 * One call finds the dumps below two paths, pairs their steps and ranks, compares every pair and writes its tables:
 *
 *     msp_compare_options opt;
 *     msp_compare_result res = {0};
 *     msp_compare_options_init(&opt);
 *     opt.npu_path = "npu/step0";
 *     opt.bench_path = "gpu/step0";
 *     st = msp_compare_run(&res, &opt, &err);
 *     ... res.pairs[i] holds what there is to say about each pair, also when st is an error ...
 *     msp_compare_result_release(&res);
 *
 * Nothing is printed: warnings and notes go to msp_log(), everything that a summary needs is in the result.
 */
#ifndef MSPROBE_COMPARE_H
#define MSPROBE_COMPARE_H

#include "msprobe/dump.h"
#include "msprobe/legacy.h"
#include "msprobe/link.h"
#include "msprobe/metrics.h"
#include "msprobe/verdict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what to do -------------------------------------------------------------------------------------------------- */

enum { MSP_COMPARE_XLSX = 1, MSP_COMPARE_CSV = 2, MSP_COMPARE_JSON = 4 };

/* How far the whole run is. Numbers grow; totals are 0 until known. */
typedef struct msp_compare_progress {
    const char *phase; /* "read", "compare" or "analyse"; static text */
    const char *rank;  /* the rank whose rows moved last ("rank0"), "" outside rank folders */
    size_t pairs_done, pairs_total;
    int64_t rows_done, rows_total;
    int64_t bytes_done, bytes_total; /* of JSON and tensor files, both sides */
    /* JSON files alone: read, in all, and those of the pairs whose rows and tensor files are in the totals */
    int64_t json_done, json_total, json_known;
} msp_compare_progress;

/*
 * Return false to cancel: the run then ends with MSP_E_CANCELLED and leaves no result file of an unfinished pair.
 * Called from any thread, one call at a time, about ten times a second.
 */
typedef bool msp_compare_progress_fn(const msp_compare_progress *p, void *payload);

/* Calls that are to be run again on both sides, in higher precision and on each side's own inputs. */
typedef struct msp_replay_request {
    const char *npu_path, *bench_path; /* both dump.json */
    const char
        *calls; /* a file: a line for each call, its names in both runs with a tab between them, without .forward */
    const char *out; /* the measurements go to out.0, out.1, ... (msprobe/local.h says what is in them) */
    const char *log; /* what programs have to say may go there; removed afterwards */
    size_t ncalls;
} msp_replay_request;

/*
 * MSP_OK: the measurements are there. MSP_E_CANCELLED and MSP_E_NOMEM end the run; with anything else the verdict goes
 * without them, and err's message says why. Called from any thread, for several pairs at a time.
 */
typedef msp_status msp_replay_fn(const msp_replay_request *r, void *payload, msp_error *err);

/*
 * All text is borrowed until msp_compare_run() returns. msp_compare_options_init() gives every field its default.
 */
typedef struct msp_compare_options {
    msp_framework framework; /* MSP_PYTORCH; MindSpore's rules with MSP_MINDSPORE; UNKNOWN: as the NPU dump says */
    const char *npu_path;    /* each a dump.json, a debug.json, a .pkl of the older tools (msprobe/legacy.h), or the
                                folder of a rank, a step or a whole dump */
    const char *bench_path;
    const char *output_dir; /* NULL: "./output"; made (0750) when it is not there */

    /* Given: the stack column appears when stack_mode is set, and a missing file is an error. NULL: it appears when a
     * stack.json lies beside the NPU file, whatever stack_mode says. For a pair of files only. */
    const char *stack_path;
    bool stack_mode;

    bool fuzzy;               /* match calls whose names differ in their call number only; ignored with data_mapping */
    bool highlight;           /* colour suspicious rows, and say why in Err_message */
    bool compare_only;        /* no advisor */
    bool diff_analyze;        /* first-difference analysis: two kinds of JSON instead of tables */
    const char *data_mapping; /* yaml of NPU row name: bench row name; NULL: none */

    /* MindSpore against PyTorch. NULL: not given; "": the built-in rules; else a yaml file. MSP_E_INVALID for the first
     * two with PyTorch. */
    const char *api_mapping, *cell_mapping, *layer_mapping;

    /* MindSpore's static graphs (compare.json's rank_id, step_id, common, map_dict). has_rank_id or has_step_id: the
     * kernel comparison. */
    bool has_rank_id, has_step_id, common;
    const int64_t *rank_id, *step_id;
    size_t nrank_id, nstep_id;
    const char *const (*map_dict)[2]; /* pairs of names */
    size_t nmap_dict;

    /* How the parts of a tensor on several ranks make the whole (docs/many-ranks.md): a yaml file; "records": only
     * DTensors, which say it themselves; "auto": proposed from the dumps, and written to layout_<time>.yaml. All ranks
     * of a step, or those of each of the yaml's groups, are then one pair. NULL: every rank is compared by itself. */
    const char *layout;

    unsigned formats; /* MSP_COMPARE_* together; 0: xlsx, for dumps of the older tools csv. A table too long for Excel's
                         sheets gets more sheets */
    bool html;        /* also one page for the whole run: <output_dir>/compare_result_<time>.html */
    int threads;      /* 0: one per processor */
    const char *explain; /* a call of the NPU side by its whole name: pairs[i].explained tells all about it, and no file
                            is written. NULL: none */
    bool no_failure_log; /* the errors of single pairs are not logged: the caller shows them */
    bool log_rows;       /* is_print_compare_log: one info line per compared row */
    const char *timestamp; /* 14 digits in the names of result files; NULL: the local time now. Where a result is there
                              already, the next second is taken for which there is none */
    const msp_legacy_options *legacy;  /* for dumps of ptdbg_ascend and torch_npu.hooks; NULL: their defaults */
    msp_compare_progress_fn *progress; /* NULL: none */
    void *progress_payload;
    msp_link
        *link; /* processes that share the pairs, all of which call msp_compare_run() with the same options; NULL:
                  this one alone. In all but process 0 the result is empty, and MSP_OK says that its work is done */

    msp_replay_fn *replay; /* NULL: calls are not run again, and the verdict says so. For real data only */
    void *replay_payload;
    const char *const *replay_only; /* names of calls, with or without .forward; none: all that differ */
    size_t nreplay_only;
} msp_compare_options;

/* All options off, and PyTorch; the two paths are the caller's to set. */
MSP_API void msp_compare_options_init(msp_compare_options *opt);

/*
 * compare.json, as the manual describes it. Keys: npu_path, bench_path (required), stack_path, is_print_compare_log,
 * rank_id, step_id, common, map_dict; unknown ones are a warning. Lines may carry # comments, as the manual's own
 * example does. Relative paths are relative to the current directory.
 */
typedef struct msp_compare_config {
    char *npu_path, *bench_path;
    char *stack_path; /* NULL: no such key */
    bool is_print_compare_log;
    bool has_rank_id, has_step_id, common;
    int64_t *rank_id, *step_id;
    size_t nrank_id, nstep_id;
    char *(*map_dict)[2];
    size_t nmap_dict;
} msp_compare_config;

/*
 * Returns MSP_E_NOT_FOUND or MSP_E_IO (no such file, unreadable), MSP_E_FORMAT (no JSON object), MSP_E_INVALID (a key
 * is missing or has the wrong type; the message names it), MSP_E_NOMEM. On failure *out is empty.
 */
MSP_API MSP_CHECK msp_status msp_compare_config_load(msp_compare_config *out, const char *path, msp_error *err);

/* Accepts an empty one, and leaves it empty; what borrowed from it goes first. */
MSP_API void msp_compare_config_release(msp_compare_config *c);

/* Let opt borrow everything that c holds; its other fields stay as they are. */
MSP_API void msp_compare_config_apply(msp_compare_options *opt, const msp_compare_config *c);

/* ---- what came out ----------------------------------------------------------------------------------------------- */

typedef enum msp_compare_mode { MSP_MODE_REAL = 0, MSP_MODE_STATISTICS, MSP_MODE_MD5 } msp_compare_mode;

/* "real data", "statistics", "md5". */
MSP_API const char *msp_compare_mode_text(msp_compare_mode m);

/*
 * What was found about the inputs of a row's call, by the same measure as the row: the norm of the difference over that
 * of the larger side (real data), the scaled difference of statistics, or checksums.
 */
typedef enum msp_inputs_state {
    MSP_INPUTS_UNKNOWN = 0, /* there are none, or one of them could not be compared */
    MSP_INPUTS_EQUAL,       /* all of them: the tensors, their statistics, or their checksums */
    MSP_INPUTS_FINE,        /* all were compared, and none differs by a tenth of what the row does */
    MSP_INPUTS_WRONG        /* the row is an input itself, or one of the inputs differs by more than that */
} msp_inputs_state;

/* "unknown", "equal", "fine", "wrong". */
MSP_API const char *msp_inputs_state_text(msp_inputs_state s);

/*
 * A row of a pair, and everything there is to say about it. The first that is beyond the manual's limits (No, Warning,
 * Different, or NaN and inf on one side only), or the one that the tool's own verdict names.
 */
typedef struct msp_compare_suspect {
    bool found;  /* false: there was none and nothing below is set */
    int64_t row; /* 0-based, the header not counted */
    char *npu_name, *bench_name;
    char *api;                 /* the call it belongs to: "Functional.relu.0.forward" */
    char *verdict;             /* "No", "Warning", "Different", or "red" */
    char *message;             /* its Err_message, may be "" */
    char *dtype[2], *shape[2]; /* NPU, bench: as in the table */

    /* real data: what was measured */
    bool has_metrics;
    msp_metrics metrics;

    /* real data and statistics: the four statistics as their cells show them */
    char *stats[2][MSP_NSTATS];
    /* statistics: differences and relative errors as their cells show them */
    char *diff[MSP_NSTATS], *rel[MSP_NSTATS];
    /* md5: the checksums */
    char *md5[2];

    /* real data: the element with the largest absolute error, or the first that is NaN or inf on one side only */
    bool has_worst;
    int64_t worst_index; /* row-major */
    int32_t worst_ndim;
    int64_t worst_coords[MSP_MAX_NDIM];
    char worst_value[2][80]; /* NPU, bench: as Python prints them */

    msp_inputs_state inputs;
    double error, input_error; /* of the row and the largest of its call's inputs; NaN: not measured */
    char *input;               /* the input that differs most, "input.0"; NULL: none differs */
    char *argument; /* the first number, text or other plain argument of the call that is not the same on both sides:
                       "input.1: NPU 0.1, bench 0.0"; else the first of an earlier call that is no text, with its whole
                       name; NULL: there is none */
    bool argument_before; /* it is of an earlier call */
    char **stack;         /* frames, innermost first */
    size_t nstack;
} msp_compare_suspect;

typedef struct msp_compare_counts {
    int64_t rows;       /* in the table: all of the NPU side */
    int64_t matched;    /* with a partner */
    int64_t unmatched;  /* without: their bench cells are N/A */
    int64_t bench_only; /* bench rows that no NPU row met; not in the table */
    int64_t apis;       /* calls on the NPU side */
    int64_t wrong;      /* No, Warning or Different */
    /* by verdict: those of the mode, the others 0 */
    int64_t yes, no, none, shape_unmatched; /* real data: Yes, No, None, Unmatched */
    int64_t warning, clean;                 /* statistics: Warning, empty */
    int64_t pass, different;                /* md5: Pass, Different */
    int64_t red, yellow;                    /* highlighted rows */
    int64_t differ;                         /* rows with any difference at all */
    int64_t other_type;                     /* rows whose element types are not the same on both sides */
    int64_t nonfinite;                      /* rows whose maximum or minimum is NaN or infinite on one side only */
    int64_t unreadable;                     /* rows whose tensor file could not be read */
} msp_compare_counts;

/* The tool's one vocabulary for what a comparison came to: screen, --json, page, advisor and --fail-on use it. */
typedef enum msp_answer_level {
    MSP_ANSWER_NOT_JUDGED = 0, /* nothing was compared, or what was says nothing */
    MSP_ANSWER_IDENTICAL,
    MSP_ANSWER_WITHIN, /* differences, all of them within rounding */
    MSP_ANSWER_WRONG
} msp_answer_level;

/* "not judged", "identical", "nothing wrong", "wrong". */
MSP_API const char *msp_answer_level_text(msp_answer_level l);

typedef struct msp_compare_answer {
    msp_answer_level level;
    char *sentence; /* without a full stop; NULL: the pair was not compared */
    char **notes;   /* more that must be known: rows without partner, other types; a sentence each */
    size_t nnotes;
    size_t npartners;           /* the last so many of them are about rows without partner */
    msp_compare_suspect blamed; /* the row that the sentence names */
} msp_compare_answer;

/* A row of a call that is explained. */
enum { MSP_EXPLAINED_WORST = 5 };
typedef struct msp_explained_row {
    char *at; /* "input.0" */
    bool is_input, is_plain;
    msp_compare_suspect about;
    struct {
        int64_t coords[MSP_MAX_NDIM];
        char value[2][80];        /* NPU, bench */
    } worst[MSP_EXPLAINED_WORST]; /* real data: the elements that are off most, largest error first */
    size_t nworst;
    int32_t ndim;
} msp_explained_row;

/* Where what a call took comes from, or what it gave goes to: the same type, shape and statistics. */
typedef struct msp_explained_neighbour {
    bool before;
    char *here;        /* "input.0" of the call itself */
    char *api, *there; /* the other call, and which of its values: "output.0" */
} msp_explained_neighbour;

typedef struct msp_compare_explained {
    bool found; /* false: the NPU side has no such call, and nothing below is set */
    char *api;
    char *bench_api; /* NULL: no row has a partner */
    msp_explained_row *rows;
    size_t nrows;
    msp_verdict_result *results; /* the verdict's, of this call; api and bench_api are NULL */
    size_t nresults;
    msp_explained_neighbour *neighbours;
    size_t nneighbours;
} msp_compare_explained;

/* A JSON file that ends inside a record: its writer was killed, the disk was full, or a copy was interrupted. */
typedef struct msp_compare_cut {
    bool found;
    int64_t records; /* complete ones before the end: these were compared */
    int64_t at;      /* nothing was used from this byte on */
} msp_compare_cut;

/* What a (step, rank) is in its job. */
typedef enum msp_job_role {
    MSP_JOB_NOT_COMPARED = 0,
    MSP_JOB_CLEAN,    /* no wrong call */
    MSP_JOB_FIRST,    /* its first wrong call is the earliest of all */
    MSP_JOB_OWN,      /* wrong, and nothing that another rank got wrong reached it before */
    MSP_JOB_INHERITED /* wrong after communication brought it what another rank, or an earlier step, got wrong */
} msp_job_role;

/* "not compared", "clean", "first", "own", "inherited". */
MSP_API const char *msp_job_role_text(msp_job_role r);

/* A pair's place among all (step, rank). The wrong call is the tool's own verdict's where there is one. */
typedef struct msp_compare_place {
    int64_t calls[2]; /* NPU, bench */
    char *wrong;      /* the first wrong call, NULL: none */
    char *why;        /* one sentence, or the verdict of the row */
    char **stack;     /* of that call, innermost first */
    size_t nstack;
    char *nonfinite; /* the first call with NaN or inf on one side only, NULL: none */
    char *after;     /* the communication call that the rank had waited for last before the wrong one; NULL: none */
    char *note;      /* it stopped early, has another number of calls, or was not compared; NULL: nothing to say */
    /* known when all pairs are */
    msp_job_role role;
    int64_t
        order; /* of the wrong call among those of all pairs, from 1; ranks that go wrong together share it; 0: none */
    char *through; /* inherited: the communication call through which it came; NULL: an earlier step */
} msp_compare_place;

/* One answer for all pairs of a run. */
typedef struct msp_compare_job {
    bool given;       /* there are several (step, rank), and this says something about them */
    int64_t first;    /* the pair with the earliest wrong call, -1: none is wrong */
    size_t inherited; /* other ranks of its step that only inherited it */
    size_t alike;     /* other ranks of its step of which the same call is wrong all by itself */
    size_t own;       /* other ranks of its step that go wrong somewhere else by themselves */
    char **notes;     /* ranks that are missing, stopped early or made other calls, one line each */
    size_t nnotes;
} msp_compare_job;

/* One pair of files. */
typedef struct msp_compare_pair {
    msp_dump_kind kind;
    int64_t step, rank; /* of the NPU side; MSP_DUMP_NO_NUMBER: none */
    int64_t bench_step, bench_rank;
    char *group;      /* "graph", "pynative" or "" */
    char *label;      /* for messages: "rank0", "step1 rank0", "" for two files */
    char *npu_path;   /* NULL when this side lacks the rank */
    char *bench_path; /* NULL when this side lacks the rank */
    msp_compare_mode mode;
    msp_framework framework[2]; /* of NPU and bench, as far as their files were read */
    msp_status status;          /* MSP_OK: compared; else error says why, and the other fields hold what was reached */
    char *error;                /* one line, NULL when there is none */
    msp_compare_cut cut[2];     /* NPU, bench */
    char *unreadable;           /* the first tensor file that could not be read, and why; NULL: all could */
    msp_compare_counts counts;
    msp_compare_suspect suspect;
    msp_pair_verdict verdict;  /* the tool's own, apart from the table's limits; not for md5 and older dumps */
    msp_compare_answer answer; /* what is said of the pair: the verdict, or where there is none the table's limits */
    msp_compare_explained explained;
    char *first_differs;       /* the first row with any difference at all, NULL: none */
    int64_t first_differs_row; /* 0-based */
    char **files;              /* results written, tables first, then the advisor's text */
    size_t nfiles;
    char *advice;  /* the advisor's "Expert Advice" text; NULL with compare_only */
    char *advised; /* the row that it speaks of, and its line in the advisor's text; NULL: none */
    int64_t advised_line;
    int64_t tensor_bytes; /* read from tensor files, both sides */
    double seconds;
    msp_compare_place place;
    bool has_tensors; /* the dumps hold real data, even where mode says that only their statistics were compared */
} msp_compare_pair;

/* First-difference analysis: a call that differs before all others. Ties on several ranks are all reported. */
typedef struct msp_compare_first {
    int64_t step, rank; /* as in the pair */
    const char *stage;  /* where it stands: "before", "during" or "after" communication; static */
    char *op_name;
    char **stack; /* frames, innermost first; empty when there is no stack.json */
    size_t nstack;
} msp_compare_first;

typedef struct msp_compare_result {
    msp_compare_pair *pairs; /* in the order of group, step and rank */
    size_t npairs;
    size_t nfailed; /* pairs whose status is not MSP_OK */
    size_t lost;    /* processes that died or fell silent; what they had was done by others, or its pair says not */
    size_t ncut;    /* pairs that were compared, but of which a file is cut off */
    char **files;   /* results that belong to no single pair: diff_analyze_<ns>.json, job_table_<time>, the page */
    size_t nfiles;
    msp_compare_first *first; /* with diff_analyze; none: no call differs */
    size_t nfirst;
    const char *first_stage; /* that of the first of them; NULL: none */
    msp_answer_level level;  /* of the whole run: the worst of its pairs */
    char *sentence;          /* the verdict on the whole run, NULL: nothing was compared */
    size_t told;             /* the pair that the sentence speaks of */
    msp_compare_job job;
    int64_t bytes; /* of JSON and tensor files, both sides */
    double seconds;
} msp_compare_result;

/*
 * Compare everything. Ranks run in parallel where that helps, and one that fails does not stop the others.
 *
 * Returns MSP_OK when every pair was compared and had at least one matched row, whatever the rows say. Otherwise the
 * status of the first failure and its text in err; *out is filled as far as the run came, so that the ranks that went
 * well can be shown, and must be released in every case. A file that is cut off is compared as far as it goes, and then
 * is such a failure (MSP_E_FORMAT), and so is a pair of which no tensor file at all could be read. Where only some of
 * them cannot be read, their rows say so, as the manual has it, and the pair is compared: see counts.unreadable.
 * MSP_E_INVALID means that opt (or compare.json, or a yaml) is wrong, MSP_E_NOT_FOUND that a path or any dump in it is
 * missing, MSP_E_CANCELLED that the progress function asked to stop.
 */
MSP_API MSP_CHECK msp_status msp_compare_run(msp_compare_result *out, const msp_compare_options *opt, msp_error *err);

/* For process 0 of several when it does not come to msp_compare_run(): let the others go. Fills out->lost. */
MSP_API void msp_compare_dismiss(msp_link *link, msp_compare_result *out);

/* Accepts an empty (zeroed) result and leaves it empty. */
MSP_API void msp_compare_result_release(msp_compare_result *r);

#ifdef __cplusplus
}
#endif
#endif
