/*
 * precheck.h - one API run on a device beside the same API in higher precision: numbers, verdict, csv lines.
 *
 * This is what run_ut decides. An API has a standard, chosen by its name and type, which says what is measured; the
 * verdict on a result follows from cosine, largest error and the shares of elements within 1 %, 0.1 % and 0.01 %. The
 * csv files are those of the original tool: UTF-8 with a byte order mark, lines ended by CR LF, cells without a number
 * hold one space.
 */
#ifndef MSPROBE_PRECHECK_H
#define MSPROBE_PRECHECK_H

#include <stdbool.h>
#include <stddef.h>
#include "msprobe/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum msp_precheck_standard {
    MSP_PRECHECK_BENCHMARK = 0, /* relative to another device's error: api_precision_compare decides */
    MSP_PRECHECK_ABSOLUTE,      /* shares of elements outside absolute and relative bounds */
    MSP_PRECHECK_BINARY,        /* equal, element by element */
    MSP_PRECHECK_ULP,           /* errors in units of the last place */
    MSP_PRECHECK_THOUSANDTH     /* share of elements within 0.1 % */
} msp_precheck_standard;

/* In the order of severity: an API's status is the worst of its results'. */
typedef enum msp_precheck_status {
    MSP_PRECHECK_SKIP = 0,
    MSP_PRECHECK_PASS,
    MSP_PRECHECK_WARNING,
    MSP_PRECHECK_ERROR
} msp_precheck_status;

/* The columns that hold numbers, in the order of the details file. */
typedef enum msp_precheck_column {
    MSP_PRECHECK_COSINE = 0,
    MSP_PRECHECK_MAX_ABS,
    MSP_PRECHECK_HUNDREDTH,
    MSP_PRECHECK_THOUSANDTH_SHARE,
    MSP_PRECHECK_TEN_THOUSANDTH,
    MSP_PRECHECK_ERROR_RATE,
    MSP_PRECHECK_BALANCE,
    MSP_PRECHECK_RMSE,
    MSP_PRECHECK_SMALL_RATE,
    MSP_PRECHECK_MAX_REL,
    MSP_PRECHECK_MEAN_REL,
    MSP_PRECHECK_INF_NAN_RATE,
    MSP_PRECHECK_REL_RATE,
    MSP_PRECHECK_ABS_RATE,
    MSP_PRECHECK_ULP_MAX,
    MSP_PRECHECK_ULP_MEAN,
    MSP_PRECHECK_ULP_RATE,
    MSP_PRECHECK_NUMBERS
} msp_precheck_column;

/* One result, measured. */
typedef struct msp_precheck_row {
    msp_precheck_standard standard;
    msp_precheck_status status;
    bool has[MSP_PRECHECK_NUMBERS]; /* which numbers there are */
    double v[MSP_PRECHECK_NUMBERS];
    msp_dtype bench, device;
    char shape[160];   /* "(4, 3)" */
    char message[320]; /* may hold line breaks, as the original's do */
} msp_precheck_row;    /* without types and shape: a result that could not be had; message says why */

/* "pass", "Warning", "error", "SKIP". */
MSP_API const char *msp_precheck_status_text(msp_precheck_status s);

/* Which standard judges results of this type of the API ("linear", "__add__"). */
MSP_API msp_precheck_standard msp_precheck_standard_of(const char *api, msp_dtype dtype);

/*
 * Measure and judge what the device computed against the bench, which usually has a wider type. Shapes that differ, and
 * types that cannot be compared, are rows with the status error and the reason. MSP_E_NOMEM. Any thread.
 */
MSP_API MSP_CHECK msp_status msp_precheck_measure(msp_precheck_row *out, const char *api, const msp_tensor *device,
                                                  const msp_tensor *bench, msp_error *err);

/*
 * Lines of the two files, each with its line end, as snprintf() would write them: the result is the length that is
 * needed, and buf is terminated. Results have the name <api>.<n>.<forward|backward>.output.<i>.
 */
MSP_API const char *msp_precheck_result_header(void);
MSP_API const char *msp_precheck_details_header(void);
MSP_API size_t msp_precheck_details_line(char *buf, size_t size, const char *name, const msp_precheck_row *row);
MSP_API size_t msp_precheck_result_line(char *buf, size_t size, const char *api, msp_precheck_status forward,
                                        const msp_precheck_status *backward, const char *message);

/* An API's name as it stands in a line, without quotes around it. */
MSP_API size_t msp_precheck_name_written(char *buf, size_t size, const char *name);

/*
 * Prepare two files to be continued: cut off a line that was not written to its end, and details of APIs that the
 * result file does not have yet. name is called for each API that is done, as it is written there. MSP_E_IO,
 * MSP_E_NOT_FOUND, MSP_E_FORMAT (not such a file).
 */
typedef void msp_precheck_name_fn(const char *name, size_t len, void *payload);
MSP_API MSP_CHECK msp_status msp_precheck_resume(const char *result_path, const char *details_path,
                                                 msp_precheck_name_fn *name, void *payload, msp_error *err);

enum { MSP_PRECHECK_WORST = 5 };

/* What two files say together. A zeroed one is empty. */
typedef struct msp_precheck_summary {
    size_t apis, count[MSP_PRECHECK_ERROR + 1]; /* by the worse of forward and backward */
    size_t failed;                              /* what could not be run or read, backward alone included */
    struct {
        char name[256];
        msp_precheck_status status;
        double cosine, max_abs, max_rel; /* NAN: not measured */
        double badness;                  /* what they are sorted by */
    } worst[MSP_PRECHECK_WORST];
    size_t nworst;
    char skipped[256]; /* the first API that failed, or else that was skipped although no list asked for it; and why */
} msp_precheck_summary;

/* Add what a pair of files says to *sum. */
MSP_API MSP_CHECK msp_status msp_precheck_summarise(msp_precheck_summary *sum, const char *result_path,
                                                    const char *details_path, msp_error *err);

/*
 * api_precision_compare: judge the details of one device by those of another, row by row, and write
 * api_precision_compare_result_<stamp>.csv and ..._details_<stamp>.csv into dir. Counts are those of APIs, as above;
 * missing is the number of rows that the bench does not have.
 */
typedef struct msp_precheck_versus {
    size_t apis, count[MSP_PRECHECK_ERROR + 1], missing;
    char errors[MSP_PRECHECK_WORST][256]; /* the first APIs with an error */
    size_t nerrors;
    char result[1024], details[1024]; /* paths of what was written */
} msp_precheck_versus;

MSP_API MSP_CHECK msp_status msp_precheck_compare(msp_precheck_versus *out, const char *npu_details,
                                                  const char *gpu_details, const char *dir, const char *stamp,
                                                  msp_error *err);

#ifdef __cplusplus
}
#endif
#endif
