/* kernel_row.h - one row of a comparison of static graphs: measured (kernel_measure.c), then shown (kernel_show.c). */
#ifndef MSP_COMPARE_KERNEL_ROW_H
#define MSP_COMPARE_KERNEL_ROW_H

#include "compare/judged.h"
#include "compare/kernel.h"

typedef struct msp_kernel_row {
    const msp_kernel_item *side[2]; /* NULL: this side has none */
    msp_judged j;
    msp_row stats_row[2]; /* statistic.csv: the numbers, for the measurer */
    msp_buf dtype[2], shape[2];
    msp_cell stats[2][MSP_NSTATS];
    char percent[MSP_NSTATS][40];
    msp_buf name, files;
} msp_kernel_row;

/* A row is zeroed once, begun for each pair of tensors, and released at the end. */
void msp_kernel_row_begin(msp_kernel_row *r, const msp_kernel_item *const sides[2]);
void msp_kernel_row_release(msp_kernel_row *r);

/* Measure and judge, by the two files or by what statistic.csv says of them. common: plain folders. */
void msp_kernel_judge_files(msp_kernel_row *r, bool common);
void msp_kernel_judge_statistics(msp_kernel_row *r);

enum { MSP_KERNEL_COLUMNS = 26 }; /* at most */

/* Fills out and returns how many columns there are. */
size_t msp_kernel_columns(msp_column out[MSP_KERNEL_COLUMNS], bool common, bool statistics);

/* The row's cells, which point into it; false when there is no memory. */
MSP_CHECK bool msp_kernel_show(msp_cell out[MSP_KERNEL_COLUMNS], msp_kernel_row *r, bool common, bool statistics);

/* As the table calls it; empty for NULL. */
msp_str msp_kernel_item_name(const msp_kernel_item *item, bool statistics);

#endif
