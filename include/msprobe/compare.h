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

    unsigned formats; /* MSP_COMPARE_* together; 0: xlsx, for dumps of the older tools csv. A table too long for Excel's
                         sheets gets more sheets */
    bool html;        /* also one page for the whole run: <output_dir>/compare_result_<time>.html */
    int threads;      /* 0: one per processor */
    bool log_rows;    /* is_print_compare_log: one info line per compared row */
    const char *timestamp; /* 14 digits in the names of result files; NULL: the local time now. Where a result is there
                              already, the next second is taken for which there is none */
    const msp_legacy_options *legacy;  /* for dumps of ptdbg_ascend and torch_npu.hooks; NULL: their defaults */
    msp_compare_progress_fn *progress; /* NULL: none */
    void *progress_payload;
} msp_compare_options;

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
 * is missing or has the wrong type; the message names it).
 */
MSP_API MSP_CHECK msp_status msp_compare_config_load(msp_compare_config *out, const char *path, msp_error *err);
MSP_API void msp_compare_config_release(msp_compare_config *c);

/* Let opt borrow everything that c holds; its other fields stay as they are. */
MSP_API void msp_compare_config_apply(msp_compare_options *opt, const msp_compare_config *c);

/* ---- what came out ----------------------------------------------------------------------------------------------- */

typedef enum msp_compare_mode { MSP_MODE_REAL = 0, MSP_MODE_STATISTICS, MSP_MODE_MD5 } msp_compare_mode;

/* "real data", "statistics", "md5". */
MSP_API const char *msp_compare_mode_text(msp_compare_mode m);

typedef enum msp_inputs_state {
    MSP_INPUTS_UNKNOWN = 0, /* the call has no input that could be judged */
    MSP_INPUTS_FINE,        /* none of them was wrong: the call itself made the difference */
    MSP_INPUTS_WRONG        /* the row is an input itself, or an input of the call was wrong */
} msp_inputs_state;

/*
 * The first wrong row of a pair: one whose verdict is No, Warning or Different, that is not finite on the NPU side
 * only, or (with highlight) that is red. The advisor looks at the verdicts alone.
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
    int64_t nonfinite;                      /* rows whose maximum or minimum is NaN or infinite on one side only */
    int64_t unreadable;                     /* rows whose tensor file could not be read */
} msp_compare_counts;

/* A JSON file that ends inside a record: its writer was killed, the disk was full, or a copy was interrupted. */
typedef struct msp_compare_cut {
    bool found;
    int64_t records; /* complete ones before the end: these were compared */
    int64_t at;      /* nothing was used from this byte on */
} msp_compare_cut;

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
    msp_pair_verdict verdict; /* the tool's own, apart from the table's limits; not for md5 and older dumps */
    char **files;             /* results written, tables first, then the advisor's text */
    size_t nfiles;
    char *advice;  /* the advisor's "Expert Advice" text; NULL with compare_only */
    char *advised; /* the row that it speaks of, and its line in the advisor's text; NULL: none */
    int64_t advised_line;
    int64_t tensor_bytes; /* read from tensor files, both sides */
    double seconds;
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
    size_t ncut;    /* pairs that were compared, but of which a file is cut off */
    char **files;   /* results that belong to no single pair: diff_analyze_<ns>.json */
    size_t nfiles;
    msp_compare_first *first; /* with diff_analyze; none: no call differs */
    size_t nfirst;
    const char *first_stage; /* that of the first of them; NULL: none */
    int64_t bytes;           /* of JSON and tensor files, both sides */
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

/* Accepts an empty (zeroed) result and leaves it empty. */
MSP_API void msp_compare_result_release(msp_compare_result *r);

#ifdef __cplusplus
}
#endif
#endif
