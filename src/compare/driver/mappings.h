/* mappings.h - what every process of a run reads besides the dumps: who stands for whom. */
#ifndef MSP_COMPARE_DRIVER_MAPPINGS_H
#define MSP_COMPARE_DRIVER_MAPPINGS_H

#include "compare/layout/layout.h"
#include "compare/run/run.h"

typedef struct msp_run_mappings {
    msp_name_map names;
    msp_cross *cross;
    msp_layout layout; /* opened by msp_run_open_layout(), closed here */
} msp_run_mappings;

/* A run that has read nothing yet: its lock and its progress. To be ended in any case; m becomes empty. */
void msp_run_begin(msp_run *run, msp_run_mappings *m, const msp_compare_options *opt);
void msp_run_end(msp_run *run, msp_run_mappings *m);

/* Read the mappings that the run's options name. MSP_E_NOMEM, or what the mapping's reader says. */
MSP_CHECK msp_status msp_run_read_mappings(msp_run *run, msp_run_mappings *m, msp_error *err);

#endif
