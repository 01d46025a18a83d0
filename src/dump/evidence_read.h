/* evidence_read.h - reads measurements of calls; msprobe/local.h says what such a file holds. */
#ifndef MSP_DUMP_EVIDENCE_READ_H
#define MSP_DUMP_EVIDENCE_READ_H

#include "core/arena.h"
#include "core/str.h"
#include "msprobe/local.h"

/* One result of a record, on both sides. */
typedef struct msp_measured {
    msp_str at;       /* "output.0" */
    double inherited; /* NaN: not known */
    bool has[2];      /* measured on the NPU's side, on the bench's */
    msp_local side[2];
} msp_measured;

typedef struct msp_measured_call {
    msp_str name, reason; /* a reason: why it was not replayed; then there are no results */
    size_t first, count;  /* its results */
} msp_measured_call;

typedef struct msp_measurements {
    msp_arena arena; /* of the texts */
    msp_measured_call *calls;
    size_t ncalls, cap_calls;
    msp_measured *results;
    size_t nresults, cap_results;
} msp_measurements;

/*
 * Add what size bytes at text hold; the text is not needed any more afterwards. MSP_E_FORMAT names the line, and what
 * stood before it has been added; MSP_E_NOMEM. An empty msp_measurements is all zeros.
 */
MSP_CHECK msp_status msp_measurements_parse(msp_measurements *m, const char *text, size_t size, msp_error *err);

/* Likewise of a file. MSP_E_NOT_FOUND, MSP_E_IO. */
MSP_CHECK msp_status msp_measurements_read(msp_measurements *m, const char *path, msp_error *err);

void msp_measurements_release(msp_measurements *m);

#endif
