/* input.h - what merge_result is asked for, and the files it is given. */
#ifndef MSP_COMPARE_MERGE_INPUT_H
#define MSP_COMPARE_MERGE_INPUT_H

#include "core/str.h"
#include "text/json.h"

/* The yaml: which calls, which metrics. Text belongs to the document. */
typedef struct msp_merge_config {
    msp_json_doc doc;
    msp_str *apis; /* each with a dot at its end: what a row's name must contain */
    size_t napis;
    msp_str *metrics; /* empty: all that the tables have; spelled as the tables spell them */
    size_t nmetrics;
} msp_merge_config;

MSP_CHECK msp_status msp_merge_config_load(msp_merge_config *out, const char *path, msp_error *err);
void msp_merge_config_release(msp_merge_config *c);

/* The name of a metric as tables have it: another spelling that manuals use is replaced, all else is left alone. */
msp_str msp_merge_metric_name(msp_str name);

/* One rank's result. */
typedef struct msp_merge_file {
    char *path;
    unsigned long long rank;
    char stamp[32]; /* its time stamp, and a number behind it: later ones are greater */
} msp_merge_file;

typedef struct msp_merge_files {
    msp_merge_file *items; /* by rank, each rank once */
    size_t count;
} msp_merge_files;

/*
 * The results in a directory, the newest of each rank. Results without a rank's number, and other files that compare
 * and merge_result write, are left out with a warning; a workbook with any other name is MSP_E_INVALID; fewer than two
 * ranks are MSP_E_NOT_FOUND.
 */
MSP_CHECK msp_status msp_merge_files_find(msp_merge_files *out, const char *dir, msp_error *err);
void msp_merge_files_release(msp_merge_files *f);

#endif
