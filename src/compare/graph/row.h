/* row.h - one row of a comparison of static graphs: measured (measure.c), then shown (show.c). */
#ifndef MSP_COMPARE_GRAPH_ROW_H
#define MSP_COMPARE_GRAPH_ROW_H

#include "compare/judge/judged.h"
#include "compare/graph/graph.h"

typedef struct msp_graph_row {
    const msp_graph_item *side[2]; /* NULL: this side has none */
    msp_judged j;
    bool cut;             /* a file was cut short while it was read */
    msp_row stats_row[2]; /* statistic.csv: the numbers, for the measurer */
    msp_buf dtype[2], shape[2];
    msp_cell stats[2][MSP_NSTATS];
    char percent[MSP_NSTATS][40];
    msp_buf name, files;
} msp_graph_row;

/* A row is zeroed once, begun for each pair of tensors, and released at the end. */
void msp_graph_row_begin(msp_graph_row *r, const msp_graph_item *const sides[2]);
void msp_graph_row_release(msp_graph_row *r);

/* Measure and judge, by the two files or by what statistic.csv says of them. common: plain folders. */
void msp_graph_judge_files(msp_graph_row *r, bool common);
void msp_graph_judge_statistics(msp_graph_row *r);

enum { MSP_GRAPH_COLUMNS = 26 }; /* at most */

/* Fills out and returns how many columns there are. */
size_t msp_graph_columns(msp_column out[MSP_GRAPH_COLUMNS], bool common, bool statistics);

/* The row's cells, which point into it; false when there is no memory. */
MSP_CHECK bool msp_graph_show(msp_cell out[MSP_GRAPH_COLUMNS], msp_graph_row *r, bool common, bool statistics);

/* As the table calls it; empty for NULL. */
msp_str msp_graph_item_name(const msp_graph_item *item, bool statistics);

#endif
