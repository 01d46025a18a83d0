/*
 * bench_metrics.c - pair metrics against plain reading of both tensors.
 *
 * Targets (float32, float16, bfloat16; one tensor the other with errors of a thousandth): in memory, 10^7 and 10^8
 * elements, at least 70 % of the speed at which the same number of threads just reads the same bytes; 10^3 elements in
 * at most 1 microsecond. Other types and other data are shown for information.
 */
#include <math.h>
#include "bench.h"
#include "dtype/convert.h"
#include "msprobe/metrics.h"

enum { AREA = 400000000, PATTERN = 999983 /* elements, a prime: no two blocks see the same data */ };

static int misses;

typedef enum kind { NEAR, APART, RELU, EQUAL, SOME_NAN } kind;

static const char *const kind_names[] = {"", ", unrelated", ", ReLU outputs", ", equal", ", a NaN in 10^5"};

static uint64_t state = 88172645463325252;

static float
random_value(void)
{
    float v = 0;

    for (int i = 0; i < 4; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        v += (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
    return v;
}

static void
random_pair(float *n, float *b, kind k)
{
    *b = random_value();
    *n = k == APART ? random_value() : *b * (1 + 1e-3f * random_value());
    if (k == RELU) {
        *n = *n > 0 ? *n : 0;
        *b = *b > 0 ? *b : 0;
    } else if (k == EQUAL) {
        *n = *b;
    } else if (k == SOME_NAN && (state >> 20) % 100000 == 0) {
        *n = *b = NAN;
    }
}

static void
encode(void *p, msp_dtype t, float v)
{
    double d = v;
    int64_t i = (int64_t)(v * 30);
    uint16_t h = t == MSP_F16 ? msp_f32_to_f16(v) : msp_f32_to_bf16(v);

    if (t == MSP_F64)
        memcpy(p, &d, 8);
    else if (t == MSP_F32)
        memcpy(p, &v, 4);
    else if (t == MSP_F16 || t == MSP_BF16)
        memcpy(p, &h, 2);
    else
        memcpy(p, &i, msp_dtype_size(t));
}

static void
repeat(char *area, size_t pattern)
{
    for (size_t done = pattern; done < AREA; done += pattern)
        memcpy(area + done, area, pattern < AREA - done ? pattern : AREA - done);
}

static void
fill(char *n, char *b, msp_dtype tn, msp_dtype tb, kind k)
{
    for (size_t i = 0; i < PATTERN; i++) {
        float x, y;

        random_pair(&x, &y, k);
        encode(n + i * msp_dtype_size(tn), tn, x);
        encode(b + i * msp_dtype_size(tb), tb, y);
    }
    repeat(n, PATTERN * msp_dtype_size(tn));
    repeat(b, PATTERN * msp_dtype_size(tb));
}

static void
compute(const msp_tensor *n, const msp_tensor *b, int threads)
{
    msp_metrics m;

    if (msp_metrics_compute_mt(&m, n, b, threads, NULL) != MSP_OK)
        exit(1);
    bench_keep(&m);
}

/* Reading and comparing take turns in windows of the areas that were not touched lately. */
static void
large(const char *n, const char *b, msp_dtype tn, msp_dtype tb, kind k, size_t count, int threads, bool has_target)
{
    double (*now)(void) = threads == 1 ? bench_thread_now : bench_now;
    size_t bytes_n = count * msp_dtype_size(tn), bytes_b = count * msp_dtype_size(tb);
    double read = 1e99, metrics = 1e99, bytes = (double)(bytes_n + bytes_b), since = bench_now();
    char types[64];
    unsigned turn = 0;

    if (bytes_n > AREA || bytes_b > AREA)
        return;
    for (int r = 0; bench_go_on(r, since); r++) {
        msp_tensor x, y;
        double start = now();

        bench_read_mt(bench_window(n, AREA, bytes_n, turn), bytes_n, threads);
        bench_read_mt(bench_window(b, AREA, bytes_b, turn), bytes_b, threads);
        read = bench_min(read, now() - start);
        turn++;
        x = bench_view(bench_window(n, AREA, bytes_n, turn), tn, count);
        y = bench_view(bench_window(b, AREA, bytes_b, turn), tb, count);
        turn++;
        start = now();
        compute(&x, &y, threads);
        metrics = bench_min(metrics, now() - start);
    }
    snprintf(types, sizeof(types), tn == tb ? "%s" : "%s, %s", msp_dtype_torch_name(tn) + 6,
             msp_dtype_torch_name(tb) + 6);
    bench_row("%s%s|%.0e|%d|%.1f|%.1f|%.0f %%|%s", types, kind_names[k], (double)count, threads, bytes / read * 1e-9,
              bytes / metrics * 1e-9, 100 * read / metrics,
              has_target ? bench_verdict(read / metrics >= 0.7, &misses) : "");
}

static void
small(const char *n, const char *b, msp_dtype t, size_t count, bool has_target)
{
    msp_tensor x = bench_view(n, t, count), y = bench_view(b, t, count);
    double best;

    BENCH_BEST(best, 100, 200, compute(&x, &y, 1));
    bench_row("%s|%zu|%.0f ns|%s", msp_dtype_torch_name(t) + 6, count, 1e9 * best,
              has_target ? bench_verdict(best <= 1e-6, &misses) : "");
}

int
main(void)
{
    static const msp_dtype wanted[] = {MSP_F32, MSP_F16, MSP_BF16};
    static const msp_dtype others[][2] = {{MSP_F64, MSP_F64},
                                          {MSP_F16, MSP_F32},
                                          {MSP_I32, MSP_I32},
                                          {MSP_I64, MSP_I64}};
    char *n = bench_memory(AREA), *b = bench_memory(AREA);

    bench_row("pair metrics|elements|time|");
    for (int t = 0; t < 3; t++) {
        fill(n, b, wanted[t], wanted[t], NEAR);
        small(n, b, wanted[t], 10, false);
        small(n, b, wanted[t], 1000, true);
    }
    bench_row("\npair metrics in memory|elements|threads|read GB/s|GB/s|ratio|");
    for (int t = 0; t < 3; t++) {
        fill(n, b, wanted[t], wanted[t], NEAR);
        for (int threads = 1; threads <= 2 && threads <= msp_cpu_count(); threads++) {
            large(n, b, wanted[t], wanted[t], NEAR, 10000000, threads, true);
            large(n, b, wanted[t], wanted[t], NEAR, 100000000, threads, true);
        }
    }
    for (int t = 0; t < 3; t++)
        for (int k = APART; k <= SOME_NAN; k++) {
            fill(n, b, wanted[t], wanted[t], (kind)k);
            large(n, b, wanted[t], wanted[t], (kind)k, 10000000, 1, false);
        }
    for (int t = 0; t < 4; t++) {
        fill(n, b, others[t][0], others[t][1], NEAR);
        large(n, b, others[t][0], others[t][1], NEAR, 10000000, 1, false);
    }
    return misses > 0;
}
