/* judged.h - one row of the result while it is being worked on: what was measured, the verdict, and why. */
#ifndef MSP_COMPARE_JUDGED_H
#define MSP_COMPARE_JUDGED_H

#include "compare/rows/rows.h"
#include "msprobe/table.h"

/* A number, or one of the few words that stand where there is none: "N/A", "Nan", "unsupported", ... */
typedef struct msp_num {
    const char *word; /* static text, NULL: v counts */
    double v;
} msp_num;

enum {
    METRIC_COSINE = 0,
    METRIC_EUC_DIST,
    METRIC_MAX_ABS,
    METRIC_MAX_REL,
    METRIC_ONE_THOUSANDTH,
    METRIC_FIVE_THOUSANDTHS,
    NMETRICS
};

typedef enum msp_verdict {
    VERDICT_NA = 0, /* statistics, md5: no partner */
    VERDICT_YES,    /* real data: Accuracy Reached or Not */
    VERDICT_NO,
    VERDICT_NONE,
    VERDICT_UNMATCHED,
    VERDICT_CLEAN, /* statistics: an empty Result */
    VERDICT_WARNING,
    VERDICT_PASS, /* md5 */
    VERDICT_DIFFERENT
} msp_verdict;

typedef struct msp_judged {
    const msp_row *n, *b;     /* b NULL: no partner */
    msp_num metric[NMETRICS]; /* real data */
    msp_num diff[MSP_NSTATS]; /* statistics: NPU - bench */
    msp_num rel[MSP_NSTATS];  /* statistics: relative error in percent */
    bool consistent;          /* Requires_grad Consistent */
    bool unreadable;          /* a tensor file could not be read */
    bool equal;               /* older tools: no element differs, also where NaN makes every metric NaN */
    const msp_row *cut;       /* whose file was cut short while it was read; NULL: no file was */
    double norm;              /* real data: the larger norm, of what is finite on both sides */
    msp_verdict verdict;
    msp_row_colour colour;
    msp_buf message;  /* Err_message */
    msp_str ahead[2]; /* the bytes of both files where they have been read already, see ahead.h */
    int64_t bytes;    /* of the tensors that were read */
} msp_judged;

/* "Yes", "Warning", "", ...: the cell's text. */
const char *msp_verdict_text(msp_verdict v);

/* No, Warning or Different. */
bool msp_verdict_wrong(msp_verdict v);

/* True and the number when a cell would be read as one: numbers and "Nan". */
static inline bool
msp_num_value(const msp_num *c, double *out)
{
    if (c->word == NULL)
        *out = c->v;
    else if (c->word[0] == 'N' && c->word[1] == 'a')
        *out = __builtin_nan("");
    else
        return false;
    return true;
}

#endif
