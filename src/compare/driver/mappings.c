/* mappings.c - see mappings.h. */
#include "compare/driver/mappings.h"

#include "core/cpu.h"

void
msp_run_begin(msp_run *run, msp_run_mappings *m, const msp_compare_options *opt)
{
    *m = (msp_run_mappings){.cross = NULL};
    *run = (msp_run){.opt = opt, .threads = opt->threads > 0 ? opt->threads : msp_cpu_count()};
    pthread_mutex_init(&run->lock, NULL);
    run->progress.phase = "read";
    run->progress.rank = "";
}

void
msp_run_end(msp_run *run, msp_run_mappings *m)
{
    msp_layout_release(&m->layout);
    msp_cross_close(m->cross);
    msp_name_map_release(&m->names);
    pthread_mutex_destroy(&run->lock);
}

msp_status
msp_run_read_mappings(msp_run *run, msp_run_mappings *m, msp_error *err)
{
    msp_status st = MSP_OK;

    if (run->opt->data_mapping != NULL) {
        st = msp_name_map_load(&m->names, run->opt->data_mapping, err);
        run->names = &m->names;
    }
    if (st == MSP_OK)
        st = msp_cross_open(&m->cross, run->opt, err);
    run->cross = m->cross;
    return st;
}
