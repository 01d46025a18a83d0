/*
 * statistics.c - one pass over a tensor: extremes, mean, norm, and what is not finite; then its checksums.
 *
 *     statistics FILE
 */
#include <inttypes.h>
#include <stdio.h>
#include "msprobe/stats.h"

static void
print_first_bad(const msp_tensor *t, int64_t index)
{
    int64_t at[MSP_MAX_NDIM];
    char text[80];

    msp_tensor_unravel(t, index, at);
    msp_dtype_format(text, t->dtype, msp_tensor_at(t, index));
    printf("first of them at [");
    for (int32_t i = 0; i < t->ndim; i++)
        printf("%s%" PRId64, i > 0 ? ", " : "", at[i]);
    printf("]: %s\n", text);
}

int
main(int argc, char **argv)
{
    msp_tensor t;
    msp_stats s;
    msp_error err;
    char fingerprint[33];

    if (argc != 2) {
        fprintf(stderr, "usage: statistics FILE\n");
        return 2;
    }
    if (msp_tensor_open(&t, argv[1], &err) != MSP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    msp_stats_compute_mt(&s, &t, 0); /* the same bits with any number of threads; 0: one per processor */
    printf("max %.9g  min %.9g  mean %.9g  norm %.9g\n", s.max, s.min, s.mean, s.norm);
    printf("%" PRId64 " elements: %" PRId64 " zero, %" PRId64 " subnormal, %" PRId64 " nan, %" PRId64 " inf, %" PRId64
           " -inf\n",
           s.count, s.zero, s.subnormal, s.nan, s.pos_inf, s.neg_inf);
    if (s.first_bad >= 0)
        print_first_bad(&t, s.first_bad);
    msp_fingerprint_format(fingerprint, msp_fingerprint_of(&t));
    printf("crc32 %08" PRIx32 "  fingerprint %s\n", msp_crc32(&t), fingerprint);
    msp_tensor_release(&t);
    return 0;
}
