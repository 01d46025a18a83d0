/*
 * match.h - which bench row stands beside which NPU row.
 *
 * All three ways cost time and memory linear in the rows.
 */
#ifndef MSP_COMPARE_MATCH_H
#define MSP_COMPARE_MATCH_H

#include "compare/rows/rows.h"

#define MATCH_NONE UINT32_MAX

typedef struct msp_match {
    uint32_t *bench; /* for every NPU row its partner's index, or MATCH_NONE */
    size_t count;
    size_t matched;
    size_t bench_only; /* bench rows that are nobody's partner */
} msp_match;

/*
 * The name under which an NPU row is looked up on the bench side: text that lives in the rows, in ctx or in scratch
 * (which is empty at the call, and valid until the next one). A zero length: the row has no partner.
 */
typedef msp_str msp_match_key(const msp_rows *npu, const msp_row *row, msp_buf *scratch, void *ctx);

typedef struct msp_match_rule {
    msp_match_key *key; /* NULL: the row's own name; with it one bench row may serve several */
    void *key_ctx;
    bool ignore_shape;    /* the name alone decides */
    bool ignore_dtype;    /* else the types must be equal, or both be 16- or 32-bit floats */
    bool cross_framework; /* then types are compared by class: int, float, bool, complex */
} msp_match_rule;

/*
 * Row by row: equal name (after rule->key), equal shape, types that go together. Of several rows with one name and
 * shape the k-th meets the k-th. "X.parameters_grad" and "X.parameters_grad.0" are the same where only one of them is
 * there. MSP_E_NOMEM; out is to be released in any case.
 */
MSP_CHECK msp_status msp_match_rows(msp_match *out, const msp_rows *npu, const msp_rows *bench,
                                    const msp_match_rule *rule, msp_error *err);

/*
 * By name without the call number (msp_match_fuzzy_name) and by order: both sides are walked together, and at the first
 * pair that goes together everything before it is left behind. Rows left behind then meet their k-th namesake among
 * those left behind on the other side, so that a changed order loses nobody.
 */
MSP_CHECK msp_status msp_match_rows_fuzzy(msp_match *out, const msp_rows *npu, const msp_rows *bench,
                                          const msp_match_rule *rule, msp_error *err);

void msp_match_release(msp_match *m);

/* Things in a row that are told apart by a number below nkeys. */
typedef struct msp_match_sequence {
    const uint32_t *keys;
    size_t count;
} msp_match_sequence;

/*
 * The walk alone: both sequences are walked together, and at the first pair with equal keys everything before it is
 * left behind, so that operators which only one side has are skipped. Of several with one key the oldest on both sides
 * meet. partner (npu->count entries) gets an index into bench, or MATCH_NONE.
 */
MSP_CHECK msp_status msp_match_walk(uint32_t *partner, const msp_match_sequence *npu, const msp_match_sequence *bench,
                                    size_t nkeys, msp_error *err);

/* "Functional.relu.3.forward.input.0" gives "Functional.relu.forward.input.0", in out or name itself. */
msp_str msp_match_fuzzy_name(msp_str name, msp_buf *out);

/* True when values of these types may be compared with each other. */
bool msp_match_dtypes(msp_str npu, msp_str bench, bool cross_framework);

#endif
