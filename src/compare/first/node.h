/* node.h - what one rank knows about its calls, shared by the files of the first-difference analysis. */
#ifndef MSP_COMPARE_FIRST_NODE_H
#define MSP_COMPARE_FIRST_NODE_H

#include <limits.h>
#include "compare/first/analyze.h"
#include "compare/first/comm.h"
#include "core/arena.h"
#include "core/file.h"
#include "text/json.h"

enum { MSP_DA_LAST_IN_LAYER = INT_MAX };

/* A call, and where in the rank's file its value lies. len 0: none. */
typedef struct msp_da_op {
    msp_str name;
    size_t offset, len;
    int sub_layer;
} msp_da_op;

/* A communication call, and the first differing compute call since the one before it. */
typedef struct msp_da_node {
    msp_da_op op, before;
    bool same;
    msp_comm_call comm;
} msp_da_node;

struct msp_da_rank {
    msp_compare_mode mode;
    int64_t rank;  /* a rank without a number counts as 0 */
    int64_t given; /* as it was given */
    char *path;
    msp_file file;
    size_t written; /* bytes that have left the buffer */
    msp_buf buf, rows;
    msp_json_writer json, items;
    msp_arena arena;

    char **titles; /* copies, in the arena */
    size_t ncolumns;
    int result, npu_name, stack, md5, rel[MSP_NSTATS], stat[MSP_NSTATS];

    /* the call whose rows are coming */
    msp_str api;
    bool open, wanted, same, comm, ignored;
    int output_rows;
    msp_comm_peers peers;

    /* what is known so far */
    msp_da_node *nodes;
    size_t nnodes, cap;
    msp_da_op gap; /* first differing compute call since the last communication */
    int ordinal;
};

/* Links the ranks, gives communication its layers and finds what differs first; items are in the order of the ranks. */
typedef struct msp_da_found {
    size_t rank; /* index */
    const msp_da_op *op;
    int layer;
} msp_da_found;

typedef struct msp_da_findings {
    msp_da_found *items;
    size_t count, cap;
} msp_da_findings;

/*
 * What differs first over the ranks, which are sorted; *stage says where ("before", "during" or "after"
 * communication). count 0: nothing differs. Release with msp_free(f->items), also after a failure.
 */
MSP_CHECK msp_status msp_da_search(msp_da_findings *f, const char **stage, msp_da_rank *const *ranks, size_t n,
                                   msp_error *err);

#endif
