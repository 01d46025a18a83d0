/* advisor.h - what the first wrong row suggests, as advisor_<time>.txt says it. */
#ifndef MSP_COMPARE_ADVISOR_H
#define MSP_COMPARE_ADVISOR_H

#include <stdint.h>
#include "core/str.h"
#include "msprobe/error.h"
#include "msprobe/verdict.h"

/* Where no row is named: what the whole pair came to. */
typedef enum msp_advisor_pair {
    MSP_ADVISOR_NOT_JUDGED = 0,
    MSP_ADVISOR_FINE,   /* no row is beyond the manual's limits either */
    MSP_ADVISOR_WITHIN, /* rows are beyond the manual's limits, and the tool's own verdict finds nothing wrong */
    MSP_ADVISOR_WRONG   /* and what is wrong is no row: other weights, other data */
} msp_advisor_pair;

/* The advice for the wrong row of this name; an empty name: there is none, and pair speaks. Static text. */
const char *msp_advisor_text(msp_str name, msp_advisor_pair pair);

/* The advice of ptdbg_ascend up to 4.0, which knew nothing of operators whose results vary. */
const char *msp_advisor_text_ptdbg(msp_str name, msp_advisor_pair pair);

typedef struct msp_advisor_words {
    int64_t line;
    msp_str name; /* of the row; empty: NA */
    const char *advice;
    const char *verdict;            /* the tool's sentence, in a line of its own; NULL: none */
    const msp_verdict_texts *calls; /* that one run alone makes, likewise; NULL: none */
} msp_advisor_words;

/* Write "Line", "Suspect Nodes", "Expert Advice", and "Verdict" with the calls to path (0640). */
MSP_CHECK msp_status msp_advisor_write(const char *path, const msp_advisor_words *words, msp_error *err);

#endif
