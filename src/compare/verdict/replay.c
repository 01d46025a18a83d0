/* replay.c - see replay.h. */
#include "compare/verdict/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "core/alloc.h"
#include "core/clock.h"
#include "compare/verdict/ordinary.h"
#include "core/file.h"

/* "Functional.relu.0" of "Functional.relu.0.forward"; empty for what is no call of a function. */
static msp_str
stem_of(msp_str api)
{
    static const char *const ends[] = {".forward", ".backward"};

    if (memchr(api.p, '\t', api.len) != NULL || memchr(api.p, '\n', api.len) != NULL ||
        msp_str_starts(api, MSP_STR("Module.")) || msp_str_starts(api, MSP_STR("Cell.")))
        return (msp_str){NULL, 0};
    for (size_t i = 0; i < 2; i++)
        if (msp_str_ends(api, msp_str_of(ends[i])))
            return (msp_str){api.p, api.len - strlen(ends[i])};
    return (msp_str){NULL, 0};
}

/* Whether the user asked for it; without a wish everything is. */
static bool
is_wanted(msp_str api, msp_str stem, const msp_compare_options *opt)
{
    for (size_t i = 0; i < opt->nreplay_only; i++) {
        msp_str name = msp_str_of(opt->replay_only[i]);

        if (msp_str_eq(name, api) || msp_str_eq(name, stem))
            return true;
    }
    return opt->nreplay_only == 0;
}

/* Nothing about it differs: it need not be run again. NaN, not known, is a difference. */
static bool
is_equal(const msp_evidence *e)
{
    return e->diff_in == 0 && e->diff_out == 0;
}

/*
 * Calls that only the NPU run makes are judged by themselves, with what this machine makes of them in the bench's
 * place; not those of another model.
 */
static bool
runs_alone(const msp_evidence_list *list)
{
    size_t alone = 0;

    for (size_t i = 0; i < list->count; i++)
        alone += msp_evidence_is_alone(&list->items[i]);
    return (double)alone <= MSP_OTHER_MODEL * (double)list->count;
}

/* A line for each call that is to be run: its names in both runs, the second empty where it is alone. Zero calls: text
 * stays empty. */
static msp_status
list_calls(msp_buf *text, size_t *ncalls, const msp_evidence_list *list, const msp_compare_options *opt, msp_error *err)
{
    msp_map seen = {0};
    bool added, ok = true, alone = runs_alone(list);

    *ncalls = 0;
    for (size_t i = 0; i < list->count && ok; i++) {
        const msp_evidence *e = &list->items[i];
        msp_str stem = stem_of(msp_evidence_name(e)), bench = stem_of(e->bench);

        if (e->steps > 0 || is_equal(e) || stem.len == 0 || (bench.len == 0 && !(alone && msp_evidence_is_alone(e))) ||
            !is_wanted(msp_evidence_name(e), stem, opt))
            continue;
        ok = msp_map_put(&seen, stem, 0, &added) != NULL;
        if (!ok || !added)
            continue;
        msp_buf_printf(text, "%.*s\t%.*s\n", (int)stem.len, stem.p, (int)bench.len, bench.p);
        ++*ncalls;
    }
    msp_map_release(&seen);
    return !ok || text->failed ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

/* ---- the folder that both sides talk through --------------------------------------------------------------------- */

enum { PATH_ROOM = 4096 };

static msp_status
make_folder(char out[PATH_ROOM], msp_error *err)
{
    const char *base = getenv("TMPDIR");

    if (base == NULL || base[0] != '/' || strlen(base) > PATH_ROOM / 2)
        base = "/tmp";
    snprintf(out, PATH_ROOM, "%s/msprobe-replay-XXXXXX", base);
    if (mkdtemp(out) == NULL)
        return msp_error_set_errno(err, MSP_E_IO, errno, "%s: no folder for the measurements can be made", base);
    return MSP_OK;
}

static msp_status
write_calls(const char *path, const msp_buf *text, msp_error *err)
{
    FILE *f = fopen(path, "wxe");
    bool ok = f != NULL && fwrite(text->p, 1, text->len, f) == text->len;

    if (f != NULL && fclose(f) != 0)
        ok = false;
    return ok ? MSP_OK : msp_error_set_errno(err, MSP_E_IO, errno, "%s: cannot be written", path);
}

/* out.0, out.1, ... up to the first that is not there; each is removed. */
static msp_status
read_measurements(msp_measurements *m, const char *folder, msp_error *err)
{
    char path[PATH_ROOM + 32];
    msp_status st = MSP_OK;

    for (unsigned i = 0;; i++) {
        snprintf(path, sizeof(path), "%s/out.%u", folder, i);
        if (access(path, F_OK) != 0)
            return st;
        if (st == MSP_OK)
            st = msp_measurements_read(m, path, err);
        unlink(path);
    }
}

static void
remove_folder(const char *folder)
{
    static const char *const names[] = {"calls", "log"};
    char path[PATH_ROOM + 32];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static msp_status
run_in_folder(msp_measurements *m, const msp_buf *text, size_t ncalls, const msp_compare_options *opt,
              const char *const paths[2], msp_error *err)
{
    char folder[PATH_ROOM], calls[PATH_ROOM + 32], out[PATH_ROOM + 32], log[PATH_ROOM + 32];
    msp_replay_request r =
        {.npu_path = paths[0], .bench_path = paths[1], .calls = calls, .out = out, .log = log, .ncalls = ncalls};
    msp_status st = make_folder(folder, err), read;

    if (st != MSP_OK)
        return st;
    snprintf(calls, sizeof(calls), "%s/calls", folder);
    snprintf(out, sizeof(out), "%s/out", folder);
    snprintf(log, sizeof(log), "%s/log", folder);
    st = write_calls(calls, text, err);
    if (st == MSP_OK)
        st = opt->replay(&r, opt->replay_payload, err);
    /* in any case: what was begun is to be removed */
    read = read_measurements(m, folder, st == MSP_OK ? err : NULL);
    remove_folder(folder);
    return st == MSP_OK ? read : st;
}

static msp_status attach_measured(msp_evidence_list *list, const msp_measurements *measured, msp_error *err);

msp_status
msp_verdict_run_again(msp_verdict_replay *out, msp_evidence_list *list, const msp_compare_options *opt,
                      const char *const paths[2], msp_error *err)
{
    double start = msp_clock_seconds();
    msp_buf text = {0};
    msp_error why;
    msp_status st = list_calls(&text, &out->calls, list, opt, err);

    if (st == MSP_OK && out->calls > 0) {
        st = run_in_folder(&out->measured, &text, out->calls, opt, paths, &why);
        if (st == MSP_E_NOMEM || st == MSP_E_CANCELLED) {
            st = msp_error_set(err, st, "%s", why.message);
        } else if (st != MSP_OK) {
            out->why_not = msp_str_copy(msp_str_of(why.message));
            st = out->why_not == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
            msp_measurements_release(&out->measured);
        } else {
            st = attach_measured(list, &out->measured, err);
        }
    }
    for (size_t i = 0; i < out->measured.ncalls; i++)
        out->done += out->measured.calls[i].reason.len == 0;
    msp_buf_release(&text);
    out->seconds = out->calls > 0 ? msp_clock_seconds() - start : 0;
    return st;
}

void
msp_verdict_replay_release(msp_verdict_replay *r)
{
    msp_measurements_release(&r->measured);
    msp_free(r->why_not);
    *r = (msp_verdict_replay){0};
}

/* ---- measurements to evidence ------------------------------------------------------------------------------------ */

/* Calls of which only chance or other processes know the result: no difference says anything about them. */
static bool
is_chance(msp_str reason)
{
    return msp_str_starts(reason, MSP_STR("random")) || msp_str_starts(reason, MSP_STR("communication")) ||
           msp_str_starts(reason, MSP_STR("its result is memory"));
}

/*
 * A result may have a finer type than its call computes in. Gradients of products are computed in the type of what came
 * in, and so are handed to weights of float32; of other calls the bench tells: where it is further off than any device
 * is in the result's type, the coarser type is the measure.
 */
static void
find_type(msp_evidence *e)
{
    double u = msp_local_roundoff(e->dtype);
    bool product = e->nature.backward && msp_verdict_class(msp_evidence_name(e)) == MSP_CALL_MATMUL;
    double most = u * msp_ordinary_of(MSP_CALL_VECTOR, e->dtype).cap;

    if (e->nature.cls != MSP_CALL_MOVE && msp_local_roundoff(e->coarsest) > u && (product || e->local[1]->rms > most))
        e->dtype = e->coarsest;
}

static void
take_measured(msp_evidence *e, const msp_measured *r)
{
    if (!r->has[0] || !r->has[1])
        return;
    e->local[0] = &r->side[0];
    e->local[1] = &r->side[1];
    e->inherited = r->inherited;
    find_type(e);
    e->not_judged = NULL; /* statistics could not tell, or chance was read off the result */
}

static void
take_call(msp_evidence_list *list, size_t first, const msp_measurements *m, const msp_measured_call *call)
{
    uint32_t number = list->items[first].call;

    for (size_t i = first; i < list->count && list->items[i].call == number; i++) {
        msp_evidence *e = &list->items[i];

        if (e->steps > 0) /* it came out of several calls */
            continue;
        /* As long as nothing is found: it was run again, and gave no such result. Where all that it took is equal to
         * the bit, the difference is its own all the same. */
        if (call->reason.len == 0 &&
            (msp_evidence_is_alone(e) || (e->not_judged == NULL && !(e->tensors && e->diff_in == 0))))
            e->not_judged = "running the call again gives no such result";
        if (is_chance(call->reason) && e->not_judged == NULL)
            e->not_judged = call->reason.p;
        for (size_t k = call->first; k < call->first + call->count; k++)
            if (msp_str_eq(m->results[k].at, e->at))
                take_measured(e, &m->results[k]);
    }
}

static msp_status
attach_measured(msp_evidence_list *list, const msp_measurements *measured, msp_error *err)
{
    msp_map calls = {0};
    bool ok = true;

    for (size_t i = 0; i < list->count && ok; i++)
        ok = msp_map_put(&calls, msp_evidence_name(&list->items[i]), (int64_t)i, NULL) != NULL;
    for (size_t i = 0; i < measured->ncalls && ok; i++) {
        msp_map_entry *first = msp_map_get(&calls, measured->calls[i].name);

        if (first != NULL)
            take_call(list, (size_t)first->value, measured, &measured->calls[i]);
    }
    msp_map_release(&calls);
    return ok ? MSP_OK : msp_error_set(err, MSP_E_NOMEM, "out of memory");
}
