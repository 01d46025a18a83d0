/*
 * compare_files.c - how far two tensors are apart, and where they differ most.
 *
 *     compare_files FILE REFERENCE      exit status 0: equal, 3: different
 */
#include <inttypes.h>
#include <stdio.h>
#include "msprobe/metrics.h"

static void
print_worst(const msp_tensor *a, const msp_tensor *b, int64_t index)
{
    int64_t at[MSP_MAX_NDIM];
    char left[80], right[80];

    msp_tensor_unravel(a, index, at);
    msp_dtype_format(left, a->dtype, msp_tensor_at(a, index));
    msp_dtype_format(right, b->dtype, msp_tensor_at(b, index));
    printf("worst element [");
    for (int32_t i = 0; i < a->ndim; i++)
        printf("%s%" PRId64, i > 0 ? ", " : "", at[i]);
    printf("]: %s, and %s in the reference\n", left, right);
}

int
main(int argc, char **argv)
{
    msp_tensor a = {0}, b = {0};
    msp_metrics m = {0};
    msp_error err;
    msp_status st;

    if (argc != 3) {
        fprintf(stderr, "usage: compare_files FILE REFERENCE\n");
        return 2;
    }
    st = msp_tensor_open(&a, argv[1], &err);
    if (st == MSP_OK)
        st = msp_tensor_open(&b, argv[2], &err);
    if (st == MSP_OK)
        st = msp_metrics_compute_mt(&m, &a, &b, 0, &err); /* shapes must agree, types need not */
    if (st == MSP_OK) {
        printf("cosine %.9g  max abs err %.9g  max rel err %.9g  rmse %.9g\n", m.cosine, m.max_abs_err, m.max_rel_err,
               m.rmse);
        printf("%" PRId64 " of %" PRId64 " elements are within 1/1000, %" PRId64 " finite on one side only\n",
               m.below_1e3, m.count, m.mismatches);
        if (m.max_abs_err > 0)
            print_worst(&a, &b, m.max_abs_index);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    msp_tensor_release(&a); /* an empty tensor may be released too */
    msp_tensor_release(&b);
    if (st != MSP_OK)
        return 1;
    return m.max_abs_err == 0 && m.mismatches == 0 && m.inf_sign == 0 ? 0 : 3;
}
