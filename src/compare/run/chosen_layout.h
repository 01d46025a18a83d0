/* chosen_layout.h - the layout that a run's options name. */
#ifndef MSP_COMPARE_CHOSEN_LAYOUT_H
#define MSP_COMPARE_CHOSEN_LAYOUT_H

#include "compare/layout/layout.h"
#include "compare/run/run.h"

/*
 * "records" is the layout of DTensors alone, "auto" is read from proposed, which is NULL until the pairs are known;
 * else the name is a yaml's. run->layout is set when there is one. Errors as of msp_layout_load().
 */
MSP_CHECK msp_status msp_run_open_layout(msp_run *run, msp_layout *layout, const char *proposed, msp_error *err);

/* "<dir>/layout_<time>.yaml", what --layout auto uses, to be freed; NULL: it was not asked for. */
char *msp_run_proposed_path(const msp_run *run, const char *output_dir);

/* --layout auto: the first pair stands for all, as a model's parts are the same in every step. */
MSP_CHECK msp_status msp_run_propose_layout(msp_run *run, msp_layout *layout, const char *output_dir,
                                            msp_compare_result *out, msp_error *err);

#endif
