/* failures.c - pairs that were not compared, or not to their end: each is named, and one stands for the run. */
#include "compare/run/run.h"
#include "core/log.h"

/* What stands before a pair's error: its label, unless there is none or the error begins with it already. */
static const char *
label_before(const msp_compare_pair *pair)
{
    const char *label = pair->label != NULL ? pair->label : "";

    return pair->error != NULL && strncmp(pair->error, label, strlen(label)) == 0 ? "" : label;
}

/* Pairs side by side in the list of which the same side is not there. */
static size_t
count_lacking(const msp_compare_result *out, size_t from)
{
    const msp_compare_pair *p = &out->pairs[from];
    size_t n = 1;

    if ((p->npu_path == NULL) == (p->bench_path == NULL))
        return 1;
    while (from + n < out->npairs && (out->pairs[from + n].npu_path == NULL) == (p->npu_path == NULL) &&
           (out->pairs[from + n].bench_path == NULL) == (p->bench_path == NULL) &&
           out->pairs[from + n].status == p->status)
        n++;
    return n;
}

void
msp_run_log_failures(const msp_compare_result *out)
{
    for (size_t i = 0, n; i < out->npairs && out->npairs > 1; i += n) {
        const msp_compare_pair *p = &out->pairs[i];
        const char *label = label_before(p);

        n = count_lacking(out, i);
        if (p->status == MSP_OK || p->error == NULL)
            continue;
        if (n > 2)
            msp_log(MSP_LOG_ERROR,
                    "%s to %s: there are no such dumps (%zu) on the %s side; the first of the other is %s", p->label,
                    out->pairs[i + n - 1].label, n, p->npu_path == NULL ? "NPU" : "bench",
                    p->npu_path != NULL ? p->npu_path : p->bench_path);
        else
            msp_log(MSP_LOG_ERROR, "%s%s%s", label, label[0] != '\0' ? ": " : "", p->error);
        n = n > 2 ? n : 1;
    }
}

/* What is missing at the end of a file was not compared, and that is no success. */
static msp_status
cut_off(msp_compare_result *out, msp_error *err)
{
    const msp_compare_pair *first = NULL;
    int side;

    for (size_t i = 0; i < out->npairs; i++)
        if (out->pairs[i].cut[0].found || out->pairs[i].cut[1].found) {
            out->ncut++;
            if (first == NULL)
                first = &out->pairs[i];
        }
    if (first == NULL)
        return MSP_OK;
    side = first->cut[0].found ? 0 : 1;
    msp_error_set(err, MSP_E_FORMAT,
                  "%s: cut off at byte %lld: only the %lld complete records before it were compared; collect it again, "
                  "or copy it again",
                  side == 0 ? first->npu_path : first->bench_path, (long long)first->cut[side].at,
                  (long long)first->cut[side].records);
    return out->ncut == 1
               ? MSP_E_FORMAT
               : msp_error_prefix(err, MSP_E_FORMAT, "%zu pairs have a file that is cut off; the first: ", out->ncut);
}

msp_status
msp_run_sum_up(msp_compare_result *out, const msp_run *run, msp_error *err)
{
    const msp_compare_pair *failed = NULL;
    const char *label;

    for (size_t i = 0; i < out->npairs; i++) {
        out->bytes += out->pairs[i].tensor_bytes;
        if (out->pairs[i].status == MSP_OK)
            continue;
        out->nfailed++;
        if (failed == NULL)
            failed = &out->pairs[i];
    }
    out->bytes += run->progress.json_total;
    if (failed == NULL)
        return cut_off(out, err);
    if (run->cancelled)
        return msp_error_set(err, MSP_E_CANCELLED, "cancelled");
    if (out->npairs == 1)
        return msp_error_set(err, failed->status, "%s", failed->error != NULL ? failed->error : "out of memory");
    label = label_before(failed);
    return msp_error_set(err, failed->status, "%zu of %zu could not be compared; the first: %s%s%s", out->nfailed,
                         out->npairs, label, label[0] != '\0' ? ": " : "",
                         failed->error != NULL ? failed->error : "out of memory");
}
