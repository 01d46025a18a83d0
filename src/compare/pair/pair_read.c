/* pair_read.c - see pair.h. */
#include "compare/pair/pair.h"

#include "core/pool.h"

/* ---- one side ---------------------------------------------------------------------------------------------------- */

static bool
tick_read(size_t bytes, void *payload)
{
    msp_pair_side *s = payload;

    s->told += bytes;
    return msp_run_json(s->owner->run, s->owner->plan->label, (int64_t)bytes);
}

static void
open_side(size_t i, void *payload)
{
    msp_pair *p = payload;
    msp_pair_side *s = &p->sides[i];

    s->status = msp_dump_open(&s->dump, s->path, &s->err);
}

static void
flatten_side(size_t i, void *payload)
{
    msp_pair *p = payload;
    msp_pair_side *s = &p->sides[i];

    s->status = msp_rows_flatten(&s->rows, s->dump, tick_read, s, &s->err);
    if (s->status == MSP_OK) /* names and what stands around the records */
        (void)tick_read(msp_dump_size(s->dump) - s->told, s);
    if (s->status != MSP_OK && s->status != MSP_E_CANCELLED)
        msp_error_prefix(&s->err, s->status, "%s: ", s->path);
}

/* Both sides at the same time; the first error in the order NPU, bench. */
static msp_status
both_sides(msp_pair *p, msp_pool_task *task)
{
    msp_pool_run(2, p->run->row_threads, task, p);
    for (int i = 0; i < 2; i++)
        if (p->sides[i].status != MSP_OK) {
            if (p->err != NULL)
                *p->err = p->sides[i].err;
            return p->sides[i].status;
        }
    return MSP_OK;
}

static msp_status
check_tasks(msp_pair *p)
{
    const msp_dump *n = p->sides[0].dump, *b = p->sides[1].dump;
    msp_dump_task task = msp_dump_task_of(n);

    if (strcmp(msp_dump_task_text(n), msp_dump_task_text(b)) != 0)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "the tasks differ: \"%s\" in %s, \"%s\" in %s; collect both with the same task",
                             msp_dump_task_text(n), p->sides[0].path, msp_dump_task_text(b), p->sides[1].path);
    if (task == MSP_TASK_STRUCTURE)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "%s: a dump of task \"structure\" holds no values; collect with task tensor or statistics",
                             p->sides[0].path);
    if (task == MSP_TASK_OTHER)
        return msp_error_set(p->err, MSP_E_INVALID,
                             "%s: Compare applies only to task is tensor or statistics, this is \"%s\"",
                             p->sides[0].path, msp_dump_task_text(n));
    return MSP_OK;
}

static msp_status
choose_mode(msp_pair *p)
{
    bool n = p->sides[0].rows.has_md5, b = p->sides[1].rows.has_md5;
    bool real = msp_dump_task_of(p->sides[0].dump) == MSP_TASK_TENSOR;

    p->out->has_tensors = real;
    p->out->mode = real && !p->run->opt->diff_analyze ? MSP_MODE_REAL
                   : n && b && !real                  ? MSP_MODE_MD5
                                                      : MSP_MODE_STATISTICS;
    if (!real && n != b && p->sides[0].rows.count > 0 && p->sides[1].rows.count > 0)
        return msp_error_set(
            p->err, MSP_E_INVALID,
            "%s has checksums (summary_mode md5) and %s has not; collect both with the same summary_mode",
            p->sides[n ? 0 : 1].path, p->sides[n ? 1 : 0].path);
    return MSP_OK;
}

/* ---- files of ptdbg_ascend and torch_npu.hooks ------------------------------------------------------------------- */

static void
open_legacy_side(size_t i, void *payload)
{
    msp_pair *p = payload;
    msp_pair_side *s = &p->sides[i];
    msp_legacy_file *f = &p->legacy[i];

    s->status = msp_legacy_open(f, s->path, &s->err);
    s->rows = f->rows;
    f->rows = (msp_rows){0};
    if (s->status == MSP_OK && !tick_read(f->map.size, s))
        s->status = msp_error_set(&s->err, MSP_E_CANCELLED, "cancelled");
}

static msp_status
read_legacy_sides(msp_pair *p)
{
    const msp_legacy_options *opt = msp_pair_legacy_options(p);
    bool has_dir = opt->npu_dir != NULL || opt->bench_dir != NULL || p->measurer.fds[0] >= 0 || p->measurer.fds[1] >= 0;
    msp_status st;

    if (p->run->opt->diff_analyze || p->run->names != NULL || p->run->cross != NULL)
        return msp_error_set(p->err, MSP_E_INVALID, "%s: -da and mappings are not for dumps of the older tools",
                             p->sides[0].path);
    st = both_sides(p, open_legacy_side);
    if (st != MSP_OK)
        return st;
    st = msp_legacy_choose(&p->look, &p->out->mode, p->legacy, has_dir, opt->form, p->err);
    if (st != MSP_OK)
        return msp_error_prefix(p->err, st, "%s and %s: ", p->sides[0].path, p->sides[1].path);
    p->look.npu = &p->sides[0].rows;
    p->look.bench = &p->sides[1].rows;
    p->measurer.values = p->look.form == MSP_LEGACY_HOOKS;
    p->out->has_tensors = p->out->mode == MSP_MODE_REAL;
    p->out->framework[0] = p->out->framework[1] = MSP_PYTORCH;
    p->out->counts.apis = (int64_t)p->sides[0].rows.napis;
    if (p->sides[0].rows.count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND, "%s: holds no tensors: was anything dumped?", p->sides[0].path);
    return MSP_OK;
}

/* ---- sides of several ranks ---------------------------------------------------------------------------------------
 */

/* The rows become those of the whole. */
static void
join_side(size_t i, void *payload)
{
    msp_pair *p = payload;
    msp_pair_side *s = &p->sides[i];
    const msp_dump_place *places = i == 0 ? p->plan->npu : p->plan->bench;
    size_t n = i == 0 ? p->plan->nnpu : p->plan->nbench;

    s->status = msp_whole_open(&p->whole[i], p->run->layout, (int)i, places, n, s->dump, &s->rows, &s->err);
    p->measurer.whole[i] = p->whole[i];
}

/* ---- both kinds -------------------------------------------------------------------------------------------------- */

msp_status
msp_pair_read(msp_pair *p)
{
    msp_status st;

    if (msp_pair_is_legacy(p))
        return read_legacy_sides(p);
    st = both_sides(p, open_side);
    if (st == MSP_OK)
        st = check_tasks(p);
    if (st != MSP_OK)
        return st;
    st = both_sides(p, flatten_side);
    if (st == MSP_OK && p->run->layout != NULL && p->plan->npu->kind == MSP_DUMP_API)
        st = both_sides(p, join_side);
    if (st == MSP_OK)
        st = choose_mode(p);
    for (int i = 0; i < 2; i++)
        p->out->framework[i] = msp_dump_framework(p->sides[i].dump);
    if (st != MSP_OK)
        return st;
    for (int i = 0; i < 2; i++) {
        size_t at;

        p->out->cut[i].found = msp_dump_cut(p->sides[i].dump, &at);
        p->out->cut[i].at = (int64_t)at;
        p->out->cut[i].records = (int64_t)msp_dump_count(p->sides[i].dump);
    }
    p->out->counts.apis = (int64_t)p->sides[0].rows.napis;
    if (p->sides[0].rows.count == 0)
        return msp_error_set(p->err, MSP_E_NOT_FOUND,
                             "%s: \"data\" holds no inputs or outputs: was anything collected? Check step, rank, list "
                             "and scope of the collection",
                             p->sides[0].path);
    return MSP_OK;
}
