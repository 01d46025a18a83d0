/*
 * audit.h - one dump of a job with several ranks, checked against what its collectives mean. No second run is needed.
 *
 *     msp_audit_result res = {0};
 *     st = msp_audit_run(&res, &(msp_audit_options){.path = "dump"}, &err);
 *     ... res.findings, the earliest first; none: the job is clean as far as it was recorded ...
 *     msp_audit_result_release(&res);
 *
 * The calls of each group are matched in their order over its ranks. Calls that do not meet are findings (that is also
 * why a job hangs), and so are results that are not what the operation makes of the inputs. Weights that are equal on
 * several ranks in the first step belong to replicas and must stay equal, and so must those and their gradients of
 * which replicas.json says who holds them too.
 */
#ifndef MSPROBE_AUDIT_H
#define MSPROBE_AUDIT_H

#include "msprobe/dump.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct msp_audit_options {
    const char *path; /* a whole dump, or the folder of a step */
    int threads;      /* 0: one per processor */
} msp_audit_options;

/* In this order findings of one step are told. */
typedef enum msp_audit_kind {
    MSP_AUDIT_RANK = 0, /* a rank left no dump, or its dump ends early */
    MSP_AUDIT_CALLS,    /* a call is missing, extra, in another order, or of another shape, type or operation */
    MSP_AUDIT_VALUES,   /* a result is not what the operation makes of the inputs */
    MSP_AUDIT_REPLICAS  /* weights or gradients of data-parallel replicas part */
} msp_audit_kind;

/* "rank", "calls", "values", "replicas". */
MSP_API const char *msp_audit_kind_text(msp_audit_kind k);

typedef struct msp_audit_finding {
    msp_audit_kind kind;
    int64_t step;   /* MSP_DUMP_NO_NUMBER: none */
    int64_t rank;   /* the one to look at */
    int64_t record; /* place of the call in that rank's dump.json, from 0; -1: there is none */
    int64_t place;  /* by which findings of one step and kind are told: where in the job the call belongs */
    bool inherited; /* the rank waits in a call that others do not make: told only where nothing else is found */
    char *call;     /* "Distributed.all_reduce.3.forward", a module's name, or "" */
    char *group;    /* "[0, 1]", or "" */
    char *what;     /* one line */
    char **stack;   /* the call's frames, innermost first; empty without stack.json */
    size_t nstack;
} msp_audit_finding;

typedef struct msp_audit_result {
    msp_audit_finding *findings; /* by step, kind and place */
    size_t nfindings, cap;
    size_t steps, ranks, groups; /* groups: sets of ranks that communicate */
    int64_t calls;               /* communication calls, over all ranks */
    int64_t matched;             /* collectives and messages that all ranks concerned took part in */
    int64_t by_tensors, by_statistics, by_checksums; /* of these: how their results were checked */
    int64_t unchecked;                               /* matched, but nothing was recorded by which to check them */
    int64_t weights, gradients;                      /* that were compared between replicas */
    int64_t replicated;                              /* DTensors that were compared between the ranks that hold them */
    bool has_order; /* the dump says which group each call belongs to and its place there */
} msp_audit_result;

/*
 * Returns MSP_OK when everything could be read, whatever was found; MSP_E_NOT_FOUND when there is no dump at the path,
 * MSP_E_INVALID when it is of one rank only or of the older tools, or holds nothing to check; the first error of a rank
 * that could not be read otherwise, the others are then audited. *out must be released in every case.
 */
MSP_API MSP_CHECK msp_status msp_audit_run(msp_audit_result *out, const msp_audit_options *opt, msp_error *err);

/* Accepts an empty (zeroed) result and leaves it empty. */
MSP_API void msp_audit_result_release(msp_audit_result *r);

#ifdef __cplusplus
}
#endif
#endif
