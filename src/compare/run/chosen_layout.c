/* chosen_layout.c - the layout that --layout names: of DTensors alone, a yaml, or one that is proposed and written. */
#include "compare/run/chosen_layout.h"

#include "compare/layout/propose.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"

msp_status
msp_run_open_layout(msp_run *run, msp_layout *layout, const char *proposed, msp_error *err)
{
    const msp_compare_options *opt = run->opt;

    if (opt->layout == NULL)
        return MSP_OK;
    run->layout = layout;
    if (strcmp(opt->layout, "records") == 0 || (strcmp(opt->layout, "auto") == 0 && proposed == NULL))
        return MSP_OK;
    return msp_layout_load(layout, proposed != NULL ? proposed : opt->layout, err);
}

char *
msp_run_proposed_path(const msp_run *run, const char *output_dir)
{
    bool wanted = run->opt->layout != NULL && strcmp(run->opt->layout, "auto") == 0;

    return wanted ? msp_plan_file(output_dir, "layout", run->timestamp, "yaml") : NULL;
}

msp_status
msp_run_propose_layout(msp_run *run, msp_layout *layout, const char *output_dir, msp_compare_result *out,
                       msp_error *err)
{
    const msp_plan_pair *p = run->plan->npairs > 0 ? &run->plan->pairs[0] : NULL;
    char *path = msp_run_proposed_path(run, output_dir);
    msp_buf text = {0};
    msp_status st = MSP_OK;

    if (path == NULL)
        return MSP_OK;
    if (p == NULL || p->npu == NULL || p->bench == NULL || (p->nnpu < 2 && p->nbench < 2))
        st = msp_error_set(err, MSP_E_INVALID,
                           "--layout auto needs several ranks on one side; here are %zu on the NPU side and %zu on the "
                           "bench side",
                           p != NULL ? p->nnpu : 0, p != NULL ? p->nbench : 0);
    if (st == MSP_OK)
        st = msp_layout_propose(&text, (const msp_dump_place *const[2]){p->npu, p->bench},
                                (const size_t[2]){p->nnpu, p->nbench}, err);
    if (st == MSP_OK)
        st = msp_path_make_dirs(output_dir, err);
    if (st == MSP_OK)
        st = msp_file_save(path, text.p, text.len, 0640, err);
    if (st == MSP_OK)
        st = msp_run_open_layout(run, layout, path, err);
    if (st == MSP_OK && !msp_result_add(&out->files, &out->nfiles, msp_str_of(path)))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    msp_buf_release(&text);
    msp_free(path);
    return st;
}
