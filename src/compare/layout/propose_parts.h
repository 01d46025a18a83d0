/*
 * propose_parts.h - what the makers of a proposed layout share: propose.c looks at one rank against several,
 * propose_both.c at several on both sides, propose_yaml.c writes what they found.
 */
#ifndef MSP_COMPARE_PROPOSE_PARTS_H
#define MSP_COMPARE_PROPOSE_PARTS_H

#include "compare/layout/propose.h"
#include "compare/layout/whole_parts.h"

/* How far statistics may be apart to agree: two runs differ by their own noise, and what is wrong is for the
 * comparison. */
#define MSP_PROPOSE_AGREES 0.1
/* Sums that are nowhere whole: little enough that unlike ones seldom agree. */
#define MSP_PROPOSE_ADDS_UP 0.01

/* The rows of one rank. */
typedef struct msp_propose_rows {
    int64_t rank;
    msp_dump *dump;
    msp_rows rows;
    msp_map names; /* to the first row that has it */
} msp_propose_rows;

/* What the shapes and statistics of one name say. */
typedef struct msp_proposal {
    msp_str name;
    uint32_t pattern; /* index */
    msp_layout_how how;
    int axis;
    bool is_mean; /* each part counts by its share, as of a loss that is a mean over the ranks' parts of a batch */
    bool agrees;
    bool is_open; /* several readings agree: those that are alike decide */
} msp_proposal;

/* Names that are alike but for the number of the call. */
typedef struct msp_pattern {
    msp_str text;
    size_t rows, agreeing;
    msp_layout_how how;
    int axis;
    bool is_mean, is_decided, is_mixed, is_written; /* is_decided: a row leaves no other reading */
} msp_pattern;

typedef struct msp_proposer {
    msp_propose_rows *all; /* the parts, and at last the whole */
    size_t whole;          /* its number */
    size_t n;              /* parts */
    bool are_meshes;       /* each part is what the ranks of a mesh put together; all[].rank is the first of them */
    size_t nstages;        /* of a pipeline, with as many parts each */
    int64_t micro_batches;
    size_t seen, fitting; /* rows that the stages have in common with the whole, and those that agree with it */
    msp_proposal *items;
    size_t count, cap;
    msp_pattern *patterns;
    size_t npatterns, cap_patterns;
    msp_map known;
    msp_map placed; /* lines about DTensors */
    msp_arena arena;
} msp_proposer;

msp_status msp_propose_no_memory(msp_error *err);
msp_status msp_propose_open(msp_propose_rows *d, const msp_dump_place *place, msp_error *err);
void msp_propose_release(msp_proposer *p);

/* The functions that return a bool say false where there is no memory. */
bool msp_propose_name_rows(msp_propose_rows *d);
/* Keep what the records say of their DTensors, a line for all that are alike. */
bool msp_propose_note_dtensors(msp_proposer *p, const msp_rows *t);
/* Count an item of p among those of its pattern. */
bool msp_propose_count(msp_proposer *p, msp_proposal *item, msp_buf *scratch);

bool msp_propose_is_within(double a, double b, double share);
/* Has every part the same number as statistic stat? */
bool msp_propose_are_equal(const msp_row *const *parts, size_t n, int stat);

/* Write a part of the yaml; those with rules return how many. */
void msp_propose_write_stages(msp_buf *out, const msp_proposer *p, int side);
void msp_propose_write_dtensors(msp_buf *out, const msp_proposer *p);
size_t msp_propose_write_rules(msp_buf *out, msp_proposer *p, int side);
size_t msp_propose_write_skipped(msp_buf *out, const msp_proposer *p);

/* The layout of two sides that both are several ranks. */
msp_status msp_propose_both(msp_buf *out, const msp_dump_place *const places[2], const size_t n[2], msp_error *err);

#endif
