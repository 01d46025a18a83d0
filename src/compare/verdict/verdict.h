/*
 * verdict.h - evidence and its ranking. statistics.c measures every result by what the rows say of it, replay.c adds
 * what came of running calls again, calibrate.c finds the device's own noise, limits.c says how far beyond it each
 * result is, rank.c makes a verdict of it and words.c its sentences.
 */
#ifndef MSP_COMPARE_VERDICT_H
#define MSP_COMPARE_VERDICT_H

#include "compare/match/match.h"
#include "compare/rows/rows.h"
#include "compare/verdict/decisions.h"
#include "msprobe/verdict.h"

/* ---- kinds of calls (classes.c) -----------------------------------------------------------------------------------
 */

/* Kernels that a device may compute in different precisions. */
typedef enum msp_call_family {
    MSP_FAMILY_NONE = 0,
    MSP_FAMILY_PRODUCT,
    MSP_FAMILY_CONVOLUTION,
    MSP_FAMILY_ATTENTION,
    MSP_FAMILY_RECURRENT
} msp_call_family;

typedef struct msp_call_nature {
    msp_call_class cls;
    msp_call_family family;
    bool backward;
    bool rounds_once; /* +, -, *: IEEE 754 leaves no choice */
    bool chance;      /* dropout, random numbers */
    bool hands_on;    /* may give back the very tensor that it took, and with it the gradients of who made that */
    bool sums;        /* adds up terms that may cancel */
    bool from_result; /* its gradient is computed from its result, and has that one's error, too */
} msp_call_nature;

/* By the API's name and which result it is ("output.2"). */
msp_call_nature msp_verdict_nature(msp_str api, msp_str at);
msp_call_class msp_verdict_class(msp_str api);

/* Copies, views, gathers, choices: no element of the result is computed. */
bool msp_verdict_is_move(msp_str op);

/* "add" of "Tensor.__add__.0.forward". */
msp_str msp_verdict_operation(msp_str api);

/* ---- evidence -----------------------------------------------------------------------------------------------------
 */

/* What gave a result away. */
typedef enum msp_sign {
    MSP_SIGN_NONE = 0,
    MSP_SIGN_GROWTH,    /* no replay: differs by more than its inputs' difference explains */
    MSP_SIGN_NONFINITE, /* NaN or inf where there should be none */
    MSP_SIGN_BENCH_NONFINITE,
    MSP_SIGN_BENCH,   /* the bench's result is the one that is off */
    MSP_SIGN_INEXACT, /* a copy, a choice or an integer is not what it must be */
    MSP_SIGN_ERROR,   /* the error as a whole */
    MSP_SIGN_ELEMENT, /* single elements */
    MSP_SIGN_BIAS,
    MSP_SIGN_CUT,      /* cut off instead of rounded */
    MSP_SIGN_ROUNDING, /* an operation that IEEE 754 defines is not rounded as it says */
    MSP_SIGN_FACTOR,   /* a small factor on everything */
    MSP_SIGN_OPERANDS, /* likewise too small: what it took was cut off instead of rounded */
    MSP_SIGN_UNLIKE,   /* rounds unlike all other calls of its kind */
    MSP_SIGN_CHOICE,   /* no replay: what it chose differs by more than what it chose from */
    MSP_SIGN_SAVED,    /* its own gradients show it: what it kept for them is off */
    MSP_SIGN_LAW,      /* no replay: its sum is not what its inputs' sums give */
    MSP_SIGN_ORDER,    /* no replay: who takes it shows that its elements must stand elsewhere */
    MSP_SIGN_START     /* it takes weights or data that the runs do not share */
} msp_sign;

enum { MSP_NO_CALL = UINT32_MAX };

/*
 * What the four statistics of a result say (flow.c, laws.c). Noise is that of one element, relative to the tensor's
 * largest magnitude: independent errors of that size in all elements move a maximum by about as much, the norm by that
 * times the largest magnitude, and the sum by that times the norm.
 */
typedef struct msp_seen {
    bool known;
    bool chosen;              /* a choice before it fell the other way: indices, masks or shapes differ */
    bool normed;              /* a mean was taken off, and a deviation divided by */
    bool broken;              /* what it took is NaN or inf on one side only */
    double noise[MSP_NSTATS]; /* that each statistic shows */
    double taken;             /* the largest among what the call took, seen or known from where it was made */
    double big, norm;
    double law;     /* how far its sum is from what its inputs' sums give, over what rounding explains; < 0: no law */
    double law_off; /* that distance, relative to the norm */
    bool holds;     /* the law holds, and more sharply than the result differs: only the order of elements is left */
    uint32_t maker; /* the call that made what it took; MSP_NO_CALL: not known */
    double gain;    /* times the relative noise that it takes: where terms cancel, or near a pole; 0 and 1: as it is */
    double turned;  /* noise of its result, relative, where that follows from the absolute noise of what it took */
    bool corner;    /* a gradient near a corner or a tie, which takes another way altogether */
} msp_seen;

/* One result of one call. Differences and errors are relative to the result's own scale. */
typedef struct msp_evidence {
    const char *name; /* of the call, borrowed: "Functional.relu.0.forward"; not terminated */
    size_t name_len;
    msp_str bench, at;   /* the partner's name (empty: none) and the result's ("output.0"), borrowed */
    uint32_t call, slot; /* position of the call in the run, of the result in the call */
    size_t row;          /* of the NPU side */
    msp_call_nature nature;
    msp_dtype dtype, types[2]; /* the coarser of both sides; each side's */
    msp_dtype coarsest;        /* of what the call and its forward call took and gave */
    int64_t n;                 /* elements, -1: unknown */
    double length;             /* of a product: about how many terms an element sums up; 0: not known */
    double norm_in;            /* the largest norm among what the call, or a parameter's module, took */
    double terms;              /* elements that go in for each that comes out, where a sum may be taken over them */
    double diff_in;            /* largest difference among what the call took */
    double diff_out;           /* of the result between the runs */
    bool tensors;              /* diff_out was measured on elements, not on statistics */
    bool nonfinite;            /* NaN or inf on one side only */
    bool one_type;             /* both sides have the same element type */
    bool casts;                /* it takes a finer type than it gives: autocast rounds that first */
    bool half_known;           /* a gradient whose forward call was not recorded: part of what it depends on */
    const char *not_judged;    /* why; borrowed, NULL: judged */
    msp_seen seen;

    /* replay: what the call adds in either run, borrowed; NULL: not replayed */
    const msp_local *local[2];
    double inherited;

    /* it is what comes out of calls that stand for others on the bench (alignment.h): the first of them on either side,
     * and how many there are; else empty and 0. name and bench are the last of them */
    msp_str instead[2];
    size_t steps;

    const msp_flip
        *flip;  /* of a choice that fell the other way, measured; NULL: none. All results of the call have it */
    bool chose; /* this result is what was chosen */

    /* filled on the way to the verdict */
    double added, noise; /* calibrate.c, in unit roundoffs: beyond the bench's error; what the device may add */
    double kept;         /* limits.c, likewise: what the result of the forward call explains in its gradient */
    double peer_share, peer_slope; /* largest among other calls of its kind; -1: there are too few */
    double expected, times, ratio; /* limits.c, as in msp_verdict_result */
    msp_sign sign;
    int told;                         /* MSP_SIGN_GROWTH: the statistic, an msp_stat; -1: the elements */
    const struct msp_evidence *shown; /* MSP_SIGN_ORDER: the result that shows it */
} msp_evidence;

/* Beyond any limit, where there is no number: a choice, an integer, a copy. Clear, see rank.c. */
#define MSP_VERDICT_CERTAIN 10.0
/* So large a share of results without a partner is another model, or another level. */
#define MSP_OTHER_MODEL 0.6

/* Something that a call took, that no recorded call has made, and that the runs do not share (start.c). */
typedef struct msp_start {
    uint32_t call; /* the first that takes it */
    msp_str api, bench, at;
    double diff, others; /* how far the runs are apart in it, and in three quarters of what else they begin with */
    bool weights;        /* it has a gradient */
    msp_str changed;     /* the result that it is in the bench's run, where that was changed; else empty */
} msp_start;

typedef struct msp_evidence_list {
    msp_evidence *items; /* in the order of the run */
    size_t count;
    msp_start *starts; /* likewise */
    size_t nstarts;
} msp_evidence_list;

/* A choice that fell the other way: a result of the NPU run. */
typedef struct msp_row_flip {
    uint32_t row;
    msp_flip flip;
} msp_row_flip;

/* What is known of both sides. diffs: a relative difference for each NPU row that was measured on elements, else NaN;
 * NULL: none was. replaced (may be NULL): calls that stand for others. */
typedef struct msp_evidence_source {
    const msp_rows *npu, *bench;
    const msp_match *match;
    const double *diffs;
    const struct msp_replaced *replaced;
    const msp_row_flip *flips; /* in the order of the rows */
    size_t nflips;
} msp_evidence_source;

/*
 * One entry for each output row of the NPU side (statistics.c). Names point into the rows, which must outlive the list.
 * MSP_E_NOMEM; the list is to be released in any case.
 */
MSP_CHECK msp_status msp_evidence_from_rows(msp_evidence_list *out, const msp_evidence_source *src, msp_error *err);
void msp_evidence_release(msp_evidence_list *list);

/* The relative difference of an NPU row and its partner: INFINITY where one side alone is not finite, NaN where it is
 * not known. */
double msp_evidence_difference(const msp_evidence_source *src, size_t row);

/* How far the statistics of two rows are apart, scaled by what each can resolve. Infinite: not finite on one side only;
 * NaN: there are none. */
double msp_verdict_row_difference(const msp_rows *npu, const msp_row *n, const msp_row *b);

/* The forward call of the backward call of this name; NULL: it is none, or its forward call was not recorded, or
 * scratch has no memory. calls: the number of every call of the NPU side by its name. */
const msp_row_api *msp_evidence_forward(const msp_evidence_source *src, const msp_map *calls, msp_str name,
                                        msp_buf *scratch);

/* The key of a value: its four statistics and its type. Views have that of what they show. False: it has none. */
bool msp_verdict_value_key(msp_buf *out, const msp_row *row);

/* Fill `seen` of every result. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_evidence_see(msp_evidence_list *list, const msp_evidence_source *src, msp_error *err);

/* What the runs do not begin with alike (start.c): weights, statistics of a norm, data. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_evidence_find_start(msp_evidence_list *list, const msp_evidence_source *src, msp_error *err);

/* ---- from evidence to verdict --------------------------------------------------------------------------------------
 */

/* Fill added, noise, peer_share and peer_slope of what was replayed. until: the last call that says something about the
 * device's noise, where enough do. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_verdict_calibrate(msp_evidence_list *list, uint32_t until, msp_error *err);

/* Judge what was not replayed: by the growth of noise from what a call takes to what it gives (growth.c). room: for as
 * many as the list has. False: out of memory. */
MSP_CHECK bool msp_verdict_judge_growth(msp_evidence_list *list, double noise[MSP_CALL_NCLASSES], double *room);

/* Fill expected, times, ratio and sign. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_verdict_limits(msp_evidence_list *list, double noise[MSP_CALL_NCLASSES], msp_error *err);

/* All of it, and the verdict. MSP_E_NOMEM. */
MSP_CHECK msp_status msp_verdict_rank(msp_pair_verdict *out, msp_evidence_list *list, msp_error *err);
void msp_verdict_release(msp_pair_verdict *v);
void msp_verdict_forget_results(msp_pair_verdict *v); /* a run of many ranks need not keep all of them */

/* The sentences (words.c). False: out of memory. */
MSP_CHECK bool msp_verdict_words_suspect(msp_verdict_suspect *s, const msp_evidence *e);
MSP_CHECK bool msp_verdict_words_result(msp_verdict_result *r, const msp_evidence *e);
MSP_CHECK bool msp_verdict_words_start(msp_verdict_suspect *s, const msp_start *start);
MSP_CHECK bool msp_verdict_words_sentence(msp_pair_verdict *v);
MSP_CHECK bool msp_verdict_words_facts(msp_pair_verdict *v, const msp_evidence_list *list);
MSP_CHECK bool msp_verdict_words_flips(msp_pair_verdict *v, const msp_evidence_list *list);

/* ---- memory --------------------------------------------------------------------------------------------------------
 */

/* The text of b, which is empty then; NULL: out of memory. */
char *msp_verdict_take(msp_buf *b);

/* A list of owned texts grows by one, a copy of text or what stood in b. False: out of memory. */
MSP_CHECK bool msp_verdict_add_text(msp_verdict_texts *list, msp_str text);
MSP_CHECK bool msp_verdict_add_take(msp_verdict_texts *list, msp_buf *b);
void msp_verdict_texts_release(msp_verdict_texts *list);

/* For each result of a forward call the largest ratio among its call's gradients; out has room for as many as the list
 * has. False: out of memory. */
MSP_CHECK bool msp_evidence_worst_gradients(double *out, const msp_evidence_list *list);

static inline msp_str
msp_evidence_name(const msp_evidence *e)
{
    return (msp_str){e->name, e->name_len};
}

/* A whole module, whatever it calls inside. */
static inline bool
msp_evidence_is_module(const msp_evidence *e)
{
    msp_str name = msp_evidence_name(e);

    return msp_str_starts(name, MSP_STR("Module.")) || msp_str_starts(name, MSP_STR("Cell."));
}

/* How many of the elements are not correctly rounded. Zeros, of which gradients may have many, are no elements here. */
static inline double
msp_evidence_share(const msp_local *l)
{
    int64_t n = l->biased > 0 ? l->biased : l->count;

    return n == 0 ? 0 : l->differ < n ? (double)l->differ / (double)n : 1;
}

/* Only the NPU run makes this call. */
static inline bool
msp_evidence_is_alone(const msp_evidence *e)
{
    return e->bench.len == 0;
}

static inline bool
msp_evidence_replayed(const msp_evidence *e)
{
    return e->local[0] != NULL && e->local[1] != NULL;
}

#endif
