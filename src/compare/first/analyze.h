/*
 * analyze.h - first-difference analysis (-da): which call differs first, over all ranks.
 *
 * The pipeline opens one msp_da_rank per pair of files, hands it every row of the table in order, and finishes it; that
 * writes compare_result_rank<N>_<time>.json as the rows come. When all pairs are through, msp_da_run() looks at the
 * ranks together and writes diff_analyze_<ns>.json. Real-data dumps are compared by their statistics here: no tensor
 * file is read.
 *
 * A rank keeps its calls' names and flags, what connects communication calls, and where in the file each call lies:
 * about 100 bytes per call. Not thread-safe; ranks may run in parallel, each in one thread.
 */
#ifndef MSP_COMPARE_FIRST_ANALYZE_H
#define MSP_COMPARE_FIRST_ANALYZE_H

#include <stdbool.h>
#include "core/str.h"
#include "msprobe/compare.h"
#include "msprobe/table.h"

/* One row of the table. All text is borrowed for the call. */
typedef struct msp_da_row {
    msp_str api;           /* the record's name: "Functional.relu.0.forward"; rows of one record follow each other */
    msp_str state;         /* "input", "output", "parameters", "parameters_grad" or "debug" */
    const msp_cell *cells; /* one per column */
    msp_str p2p_op[2];     /* NPU, bench: torch.distributed.P2POp's op as its row shows it; empty: none */
    msp_str p2p_peer[2];
    const msp_str *stack; /* the call's frames, on its first row; NULL: none (the cell is then "N/A") */
    size_t nstack;
} msp_da_row;

typedef struct msp_da_rank msp_da_rank;

/*
 * Begin the JSON file at path. columns are those of the statistics or md5 table, in its order, NPU_Stack_Info
 * included where there is one (its cell is taken from row.stack). rank is MSP_DUMP_NO_NUMBER where there is none.
 */
MSP_CHECK msp_status msp_da_rank_open(msp_da_rank **out, const char *path, msp_compare_mode mode, int64_t rank,
                                      const msp_column *columns, size_t ncolumns, msp_error *err);

MSP_CHECK msp_status msp_da_rank_row(msp_da_rank *r, const msp_da_row *row, msp_error *err);

/* Write what is left and put the file in its place. The object stays: msp_da_run() needs it. */
MSP_CHECK msp_status msp_da_rank_finish(msp_da_rank *r, msp_error *err);

/* Accepts NULL; a file that was not finished is removed. */
void msp_da_rank_close(msp_da_rank *r);

/*
 * Find the first calls that differ over all finished ranks (NULL entries are left out) and write
 * <output_dir>/diff_analyze_<ns>.json; nothing is written when no call differs. The file's path is added to
 * out->files, the calls to out->first; out->first_stage is set. One set of ranks is one step: call it once per step.
 */
MSP_CHECK msp_status msp_da_run(msp_compare_result *out, msp_da_rank *const *ranks, size_t nranks,
                                const char *output_dir, msp_error *err);

#endif
