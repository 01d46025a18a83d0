/*
 * bench_stats.c - statistics against plain reading.
 *
 * Targets (float32, float16, bfloat16): in memory, 10^7 and 10^8 elements, at least 70 % of the speed at which the same
 * number of threads just reads the same bytes; 10^3 elements in at most 1 microsecond. The other types, data with many
 * zeros and data with NaN are shown for information.
 */
#include <math.h>
#include "bench.h"
#include "dtype/convert.h"
#include "msprobe/stats.h"

enum { AREA = 400000000 };

static int misses;

typedef enum kind { NORMAL, RELU, POSITIVE, SOME_NAN, MANY_INF } kind;

static const char *const kind_names[] = {"", ", ReLU output", ", positive", ", a NaN in 10^5", ", half -inf"};

static uint64_t state = 88172645463325252;

static uint32_t
random32(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* Sum of four uniform numbers: near enough to a normal distribution of width 1. */
static float
random_value(kind k)
{
    float v = 0;

    for (int i = 0; i < 4; i++)
        v += (float)(int32_t)random32() * 0x1p-31f;
    v *= 0.87f;
    switch (k) {
    case RELU:
        return v > 0 ? v : 0;
    case POSITIVE:
        return fabsf(v) + 1e-3f;
    case SOME_NAN:
        return random32() % 100000 == 0 ? NAN : v;
    case MANY_INF:
        return random32() % 2 ? -INFINITY : v;
    default:
        return v;
    }
}

static void
encode(void *p, msp_dtype t, float v)
{
    double d = v;
    int64_t i = (int64_t)(v * 30);
    uint16_t h = t == MSP_F16 ? msp_f32_to_f16(v) : msp_f32_to_bf16(v);

    if (t >= MSP_F8_E4M3FN && t <= MSP_F8_E5M2FNUZ)
        i = (i & 0xbb) | 1; /* no NaN in any of them */

    switch (t) {
    case MSP_F64:
    case MSP_C128:
        memcpy(p, &d, 8);
        break;
    case MSP_F32:
    case MSP_C64:
        memcpy(p, &v, 4);
        break;
    case MSP_F16:
    case MSP_BF16:
        memcpy(p, &h, 2);
        break;
    default:
        memcpy(p, &i, msp_dtype_size(t));
        break;
    }
}

/* Fill the area with a pattern of a million elements, whose length is prime so that no block sees the same data. */
static void
fill(char *area, msp_dtype t, kind k)
{
    bool is_complex = msp_dtype_class_of(t) == MSP_CLASS_COMPLEX;
    size_t size = msp_dtype_size(t) / (is_complex ? 2 : 1), pattern = 999983 * size;

    for (size_t i = 0; i < pattern; i += size)
        encode(area + i, t, random_value(k));
    for (size_t done = pattern; done < AREA; done += pattern)
        memcpy(area + done, area, pattern < AREA - done ? pattern : AREA - done);
}

/* Reading and statistics take turns in windows of the area that were not touched lately. */
static void
large(const char *area, msp_dtype t, kind k, size_t n, int threads, bool has_target)
{
    double (*now)(void) = threads == 1 ? bench_thread_now : bench_now;
    size_t bytes = n * msp_dtype_size(t);
    double read = 1e99, stats = 1e99, since = bench_now(), ratio;
    unsigned turn = 0;

    if (bytes > AREA)
        return;
    for (int r = 0; bench_go_on(r, since); r++) {
        msp_tensor x;
        msp_stats s;
        double start = now();

        bench_read_mt(bench_window(area, AREA, bytes, turn++), bytes, threads);
        read = bench_min(read, now() - start);
        x = bench_view(bench_window(area, AREA, bytes, turn++), t, n);
        start = now();
        msp_stats_compute_mt(&s, &x, threads);
        stats = bench_min(stats, now() - start);
        bench_keep(&s);
    }
    ratio = read / stats;
    bench_row("%s%s|%.0e|%d|%.1f|%.1f|%.0f %%|%s", msp_dtype_torch_name(t) + 6, kind_names[k], (double)n, threads,
              (double)bytes / read * 1e-9, (double)bytes / stats * 1e-9, 100 * ratio,
              has_target ? bench_verdict(ratio >= 0.7, &misses) : "");
}

/* Every element on another cache line than the one before it. */
static void
transposed(const char *area, msp_dtype t)
{
    int64_t shape[] = {3162, 3162};
    size_t bytes = (size_t)(shape[0] * shape[1]) * msp_dtype_size(t);
    double best = 1e99;

    for (unsigned turn = 0; turn < 4; turn++) {
        msp_tensor x;
        msp_stats s;
        double start;

        if (msp_tensor_view(&x, bench_window(area, AREA, bytes, turn), t, 2, shape, NULL) != MSP_OK)
            exit(1);
        x.strides[0] = 1;
        x.strides[1] = shape[0];
        start = bench_thread_now();
        msp_stats_compute(&s, &x);
        best = bench_min(best, bench_thread_now() - start);
        bench_keep(&s);
    }
    bench_row("%s, transposed|%.0e|1||%.1f", msp_dtype_torch_name(t) + 6, 1e7, (double)bytes / best * 1e-9);
}

static void
small(const char *area, msp_dtype t, size_t n, bool has_target)
{
    msp_tensor x = bench_view(area, t, n);
    double best;
    msp_stats s;

    BENCH_BEST(best, 30, 2000, msp_stats_compute(&s, &x); bench_keep(&s));
    bench_row("%s|%zu|%.0f ns|%s", msp_dtype_torch_name(t) + 6, n, 1e9 * best,
              has_target ? bench_verdict(best <= 1e-6, &misses) : "");
}

int
main(void)
{
    static const msp_dtype wanted[] = {MSP_F32, MSP_F16, MSP_BF16};
    char *area = bench_memory(AREA);

    printf("statistics in memory (%s): GB/s and share of plain reading\n", msp_cpu_level_name(msp_cpu_best()));
    bench_row("type|elements|threads|read|statistics|share|target 70 %%");
    for (size_t i = 0; i < 3; i++)
        for (int k = NORMAL; k <= MANY_INF; k++) {
            fill(area, wanted[i], (kind)k);
            for (size_t n = 10000000; n <= 100000000; n *= 10)
                for (int threads = 1; threads <= 2; threads++)
                    if (k <= RELU || (n == 10000000 && threads == 1))
                        large(area, wanted[i], (kind)k, n, threads, k <= RELU);
        }
    for (int t = 1; t < MSP_DTYPE_COUNT; t++)
        if (t != MSP_F32 && t != MSP_F16 && t != MSP_BF16) {
            fill(area, (msp_dtype)t, NORMAL);
            large(area, (msp_dtype)t, NORMAL, 10000000, 1, false);
        }
    fill(area, MSP_F32, NORMAL);
    transposed(area, MSP_F32);

    printf("\none call, data in the cache\n");
    bench_row("type|elements|time|target 1 us");
    for (size_t i = 0; i < 3; i++) {
        fill(area, wanted[i], NORMAL);
        small(area, wanted[i], 10, false);
        small(area, wanted[i], 100, false);
        small(area, wanted[i], 1000, true);
    }
    fill(area, MSP_I64, NORMAL);
    small(area, MSP_I64, 1000, false);
    printf("%d of the targets missed\n", misses);
    return 0;
}
