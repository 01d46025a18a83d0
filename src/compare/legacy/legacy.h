/*
 * legacy.h - dumps of ptdbg_ascend and torch_npu.hooks in the pipeline.
 *
 * A file becomes rows (rows.c), operators find their partners by the tools' own rule (match.c), rows are
 * judged (judge.c) and shown (show.c) as those tools did. What lies between, the walk of the matcher, the
 * kernels, the blocks, the tables and the advisor, is the engine's own.
 */
#ifndef MSP_COMPARE_LEGACY_H
#define MSP_COMPARE_LEGACY_H

#include "compare/judge/judge.h"
#include "compare/match/match.h"
#include "compare/judge/show.h"
#include "core/file.h"
#include "dump/legacy.h"

/* ---- one file ---------------------------------------------------------------------------------------------------- */

/*
 * rows->apis are groups of lines, as the tools form them: what one operator took and gave, as far as the order of the
 * lines tells. A zeroed one is empty.
 */
typedef struct msp_legacy_file {
    msp_mapping map; /* empty when the text is the caller's */
    msp_rows rows;
    msp_buf stack_text;
    msp_stack *stack; /* NULL: the file has none */
    bool hooks;       /* lines of torch_npu.hooks: a row's "file" is the text of its values */
    bool numbered;    /* its 2023 form: names begin with a running number */
    bool has_stats;   /* the first tensor line has statistics */
    bool has_norm;    /* four of them: 5.0 and 6.0 */
    bool has_md5;     /* some line has a checksum */
    bool cut;
    size_t left_out; /* lines at the end that belong to an operator without output */
} msp_legacy_file;

/* Map and read; errors name file, line and reason. out is to be released in any case. */
MSP_CHECK msp_status msp_legacy_open(msp_legacy_file *out, const char *path, msp_error *err);
MSP_CHECK msp_status msp_legacy_open_text(msp_legacy_file *out, const char *text, size_t size, const char *path,
                                          msp_error *err);
void msp_legacy_release(msp_legacy_file *f);

/* ---- partners ---------------------------------------------------------------------------------------------------- */

typedef struct msp_legacy_match_rule {
    bool fuzzy;       /* the call's number does not count */
    bool shapes;      /* types and shapes must agree too; 16- and 32-bit floats are one type */
    bool numbered[2]; /* NPU, bench: names begin with a running number */
} msp_legacy_match_rule;

/*
 * Two groups match when the names of all their lines are equal, in order; then line meets line. Which groups meet is
 * msp_match_walk()'s rule. MSP_E_NOMEM; out is to be released in any case.
 */
MSP_CHECK msp_status msp_legacy_match(msp_match *out, const msp_rows *npu, const msp_rows *bench,
                                      const msp_legacy_match_rule *rule, msp_error *err);

/* ---- verdicts and cells ------------------------------------------------------------------------------------------ */

/* How a pair is judged and shown. */
typedef struct msp_legacy_look {
    msp_legacy_form form;        /* not AUTO */
    bool stats[2];               /* NPU, bench: columns of its statistics */
    bool norm;                   /* with the norm among them */
    bool numbered;               /* torch_npu.hooks: both names are shown */
    const msp_rows *npu, *bench; /* the rows' tables, for their shapes: set by who has them */
} msp_legacy_look;

/*
 * Choose form and mode for two files: real data where there are values or a folder of .npy files (has_dir), else
 * checksums, else statistics. MSP_E_INVALID when the files are of two tools, MSP_E_NOT_FOUND when there is nothing to
 * compare by.
 */
MSP_CHECK msp_status msp_legacy_choose(msp_legacy_look *out, msp_compare_mode *mode, const msp_legacy_file files[2],
                                       bool has_dir, msp_legacy_form wanted, msp_error *err);

/* The folder of a .pkl's .npy files: its path without the ending; msp_free(). NULL when there is no memory. */
char *msp_legacy_data_dir(const char *path);

/* Where the metrics of torch_npu.hooks stand in msp_judged, which has no places for them. */
enum { METRIC_RMSE = METRIC_EUC_DIST, METRIC_MAPE = METRIC_MAX_REL };

/* As msp_judge_row(), by the rules of look. Words may come with their number in v. */
void msp_legacy_judge(msp_judged *j, msp_compare_mode mode, const msp_legacy_look *look, const msp_measurer *m,
                      bool fuzzy);

/* Fills out and returns how many columns there are. */
size_t msp_legacy_columns(msp_column out[SHOW_MAX_COLUMNS], msp_compare_mode mode, const msp_legacy_look *look,
                          bool stack);

/* As msp_show_row(), with rule->legacy set. */
void msp_legacy_show(msp_shown *out, const msp_show_rule *rule, const msp_judged *j, const msp_json *frames);

/* The cells of an operator of torch_npu.hooks that only the bench has. */
void msp_legacy_show_bench(msp_shown *out, const msp_show_rule *rule, const msp_row *b);

/* is_print_compare_log: the two lines of ptdbg_ascend, as info messages. */
void msp_legacy_log_row(const msp_legacy_look *look, const msp_judged *j);

/* "%.6f"; returns the length, at most 320. */
enum { MSP_FIXED_MAX = 328 };
size_t msp_legacy_fixed(char buf[MSP_FIXED_MAX], double v);

/* A frame of a stack as text: msprobe's own are text already, ptdbg_ascend's are [path, line, function, code]. */
void msp_legacy_frame(msp_buf *out, const msp_json *frame);

/* ---- parse ------------------------------------------------------------------------------------------------------- */

/* msp_legacy_parse() from memory; path stands in messages. */
MSP_CHECK msp_status msp_legacy_parse_text(const char *text, size_t size, const char *path, msp_str prefix,
                                           msp_legacy_sink *sink, void *payload, msp_error *err);

#endif
