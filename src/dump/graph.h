/* graph.h - the tensors of a static graph's dump: folders of .npy files, or of statistic.csv. */
#ifndef MSP_DUMP_GRAPH_H
#define MSP_DUMP_GRAPH_H

#include "core/arena.h"
#include "core/str.h"
#include "msprobe/dump.h"
#include "msprobe/table.h"

/* One tensor on one side. */
typedef struct msp_graph_item {
    msp_str key;
    msp_str name; /* the key as its own side calls it, which map_dict does not change */
    int64_t time;
    size_t place;     /* in what was read: in a statistic.csv, the order in which kernels ran */
    size_t index;     /* how many of the same key come before it */
    const char *path; /* its .npy, or the statistic.csv that lists it */
    msp_str dtype, shape;
    msp_cell stats[MSP_NSTATS]; /* of statistic.csv */
} msp_graph_item;

typedef struct msp_graph_items {
    msp_arena arena;
    msp_graph_item *items; /* sorted by key, then time */
    size_t count, cap;
    bool statistics; /* from statistic.csv */
} msp_graph_items;

/* The items of n folders. */
MSP_CHECK msp_status msp_graph_read(msp_graph_items *out, const msp_dump_place *places, size_t n, bool common,
                                    msp_error *err);
void msp_graph_items_release(msp_graph_items *t);

/* Put the items in order again after keys were changed, and count those of each key. */
void msp_graph_sort(msp_graph_items *t);

/*
 * "MatMul.Default_x-op0.0.0.1794790643130200.input.0.DefaultFormat.Float32.npy": the key in scratch and the time.
 * False when the name is none of these.
 */
bool msp_graph_name(msp_str name, msp_buf *scratch, int64_t *time);

#endif
