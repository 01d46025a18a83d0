/*
 * claim.h - what check.c claims of the tensors of a set, and the two ways to check a claim.
 *
 * A claim says "this part of that output is the copy, or the reduction, of these parts of those inputs". Elements
 * decide where the files are there (elements.c), else what the records say of whole tensors (summary.c).
 */
#ifndef MSP_AUDIT_CLAIM_H
#define MSP_AUDIT_CLAIM_H

#include "audit/audit_parts.h"
#include "kernels/gather.h"

enum { MSP_CLAIM_COPY = -1 };

/* count elements of a rank's tensor, from at on; count -1: all of it. */
typedef struct msp_claim_part {
    size_t rank; /* index in the set */
    const msp_audit_tensor *tensor;
    int64_t at, count;
    double factor; /* that a reduction multiplies it by: 1 but for PREMUL_SUM */
} msp_claim_part;

typedef struct msp_claim {
    msp_claim_part out;
    const msp_claim_part *in;
    size_t n;
    int reduce; /* MSP_CLAIM_COPY or msp_audit_reduce */
} msp_claim;

/* A file of the set, by the record that names it. */
typedef struct msp_claim_file {
    const msp_audit_tensor *tensor;
    const msp_audit_rank *rank;
    msp_tensor view;
    bool ok;
} msp_claim_file;

typedef struct msp_checker {
    msp_audit_set *set; /* what, of size MSP_AUDIT_WHAT, says how a claim is refuted */
    msp_claim_file *files;
    size_t nfiles, cap;
    msp_gather *inputs; /* one per rank: those of the claim that is being checked */
} msp_checker;

msp_claim_part msp_claim_part_of(size_t rank, const msp_audit_tensor *t, int64_t at, int64_t count);
msp_claim_part msp_claim_whole_of(size_t rank, const msp_audit_tensor *t);

/* The smallest normal number of the type: below it results may be flushed to zero. */
double msp_claim_smallest(msp_dtype t);
double msp_claim_largest(msp_dtype t);

/* Each returns false when it cannot tell; *wrong: the claim is refuted, and set->what says how. */
bool msp_claim_by_elements(msp_checker *k, const msp_claim *c, bool *wrong);
bool msp_claim_copy_by_summary(const msp_checker *k, const msp_claim *c, bool *wrong);
bool msp_claim_reduced_by_summary(const msp_checker *k, const msp_claim *c, bool *wrong);

/* The parts behind each other as one tensor, by what is recorded of them. False: of one nothing is. */
bool msp_claim_join(msp_audit_tensor *out, const msp_claim_part *parts, size_t n);

/* Do two tensors hold the same elements, in any order, by their statistics? */
bool msp_claim_same_elements(const msp_checker *k, const msp_audit_tensor *out, const msp_audit_tensor *in,
                             bool *wrong);

/* Is the tensor the concatenation of the parts, by its checksum? False: checksums are missing. */
bool msp_claim_joined_checksum(const msp_checker *k, const msp_audit_tensor *out, const msp_claim_part *parts, size_t n,
                               bool *wrong);

/*
 * Where a refuted result is what stood in its place before the call, the call did nothing there. On all ranks so, in a
 * dump that does not say which calls were done: they were recorded before anybody waited for them, which is no fault.
 */
void msp_claim_look_for_nothing_done(msp_checker *k, const msp_audit_call *any);

#endif
