/* rank.h - what merge_result needs of one rank's table: the rows asked for, and their metrics. */
#ifndef MSP_COMPARE_MERGE_RANK_H
#define MSP_COMPARE_MERGE_RANK_H

#include "compare/merge/input.h"
#include "core/map.h"
#include "msprobe/table.h"

enum { MSP_MERGE_MAX_METRICS = 9 }; /* statistics have eight of their own, real data six; both have one more */

typedef enum msp_merge_use {
    MSP_MERGE_USED = 0,
    MSP_MERGE_UNKNOWN, /* no table of compare */
    MSP_MERGE_MD5,     /* one without metrics */
    MSP_MERGE_EMPTY,   /* one without rows */
    MSP_MERGE_FAILED   /* it could not be read: see error */
} msp_merge_use;

typedef struct msp_merge_row {
    msp_str name;
    size_t api;             /* the first of the configuration that it belongs to */
    const msp_cell *values; /* one per metric of the rank */
} msp_merge_row;

typedef struct msp_merge_rank {
    const msp_merge_config *config;
    msp_merge_use use;
    msp_error error;
    msp_str metrics[MSP_MERGE_MAX_METRICS]; /* that the table has, in the manual's order; static text */
    size_t nmetrics;

    msp_merge_row *rows; /* in the configuration's order, and within one of its names in the table's */
    size_t count;
    msp_map by_name; /* index into rows */
    bool *found;     /* per API of the configuration: some row belongs to it */

    msp_arena arena;
    size_t cap;
    size_t table_rows;
    size_t name_column, max_column[2], metric_column[MSP_MERGE_MAX_METRICS];
} msp_merge_rank;

/* Read the table at path. Whatever happens is told in out->use, and out must be released. */
void msp_merge_rank_read(msp_merge_rank *out, const msp_merge_config *config, const char *path);
void msp_merge_rank_release(msp_merge_rank *r);

/* The place of this metric among the rank's own, or nmetrics. */
size_t msp_merge_rank_metric(const msp_merge_rank *r, msp_str name);

#endif
