/*
 * layout.h - how the parts of a tensor on several ranks make the whole: the yaml of --layout.
 *
 *     groups:                 # which ranks of either side are compared with each other; without it all with all
 *       - npu: [0, 1]
 *         bench: [0]
 *     parts:                  # the first that fits a row's name counts
 *       - name: "*.q_proj.*.output.*"
 *         how: concat         # or sum, replicate, skip
 *         axis: -1            # of concat; negative ones count from the end
 *         factor: 0.5         # of concat and sum: by which each part is multiplied; without it 1
 *         ranks: [0, 1]       # in the order of the parts; without it those of the group
 *         side: npu           # or bench; without it npu
 *     stages:                 # of a pipeline, each with its ranks: their calls are counted as those of one run
 *       npu: [[0], [1]]       # and bench; a side that is left out has one stage
 *       micro_batches: 4      # without it 1
 *
 * In a name * stands for any text and ? for one character. skip leaves the rows out on both sides.
 */
#ifndef MSP_COMPARE_LAYOUT_H
#define MSP_COMPARE_LAYOUT_H

#include <stdatomic.h>
#include "core/arena.h"
#include "core/map.h"
#include "core/str.h"

typedef enum msp_layout_how { LAYOUT_REPLICATE = 0, LAYOUT_CONCAT, LAYOUT_SUM, LAYOUT_SKIP } msp_layout_how;

/* "replicate", "concat", "sum", "skip". */
const char *msp_layout_how_text(msp_layout_how how);

typedef struct msp_layout_rule {
    int side; /* 0: NPU, 1: bench */
    msp_str pattern;
    msp_layout_how how;
    int axis;
    double factor;
    int64_t *ranks;
    size_t nranks; /* 0: those of the group */
} msp_layout_rule;

typedef struct msp_layout_group {
    int64_t *ranks[2]; /* of NPU and bench, none of them empty */
    size_t n[2];
} msp_layout_group;

typedef struct msp_layout_stage {
    int64_t *ranks;
    size_t n;
} msp_layout_stage;

typedef struct msp_layout {
    msp_arena arena;
    msp_layout_rule *rules;
    size_t nrules;
    atomic_uchar *used; /* by number of the rule: 1 when it was found for a row */
    msp_map exact;      /* names without * and ?, to the first rule that has it: there may be one for every row */
    size_t *others;     /* numbers of the rules with * or ?, in their order */
    size_t nothers;
    msp_layout_group *groups;
    size_t ngroups;              /* 0: all with all */
    msp_layout_stage *stages[2]; /* of NPU and bench */
    size_t nstages[2];           /* 0: there is one */
    int64_t micro_batches;
} msp_layout;

/*
 * MSP_E_FORMAT (no yaml), MSP_E_INVALID (a key or value that means nothing; the message says where), MSP_E_LIMIT,
 * MSP_E_NOMEM. out is to be released in any case.
 */
MSP_CHECK msp_status msp_layout_parse(msp_layout *out, const char *text, size_t size, msp_error *err);

/* Parse a file, whose path stands before the message; MSP_E_NOT_FOUND, MSP_E_IO, or what msp_layout_parse() says. */
MSP_CHECK msp_status msp_layout_load(msp_layout *out, const char *path, msp_error *err);
void msp_layout_release(msp_layout *l);

/* The stage of a rank; nstages where it is in none. */
size_t msp_layout_stage_of(const msp_layout *l, int side, int64_t rank);

/* The rule for a row of a side, or NULL. skip applies to both sides. */
const msp_layout_rule *msp_layout_find(const msp_layout *l, int side, msp_str name);

/* Name the rules that were found for no row, after all rows; path is the yaml's. */
void msp_layout_warn(const msp_layout *l, const char *path);

#endif
