/*
 * bench_crc.c - CRC-32 and fingerprint against plain reading and against zlib.
 *
 * Targets: the CRC at 10 GB/s or half of what reading takes, whichever is less, in memory; the fingerprint at 70 % of
 * plain reading, in memory.
 */
#include <zlib.h>
#include "bench.h"
#include "msprobe/stats.h"

static int misses;

typedef struct times {
    double read, zlib, crc, fingerprint; /* seconds */
} times;

static double
seconds_since(double *t)
{
    double now = bench_now(), s = now - *t;

    *t = now;
    return s;
}

/* One round of each in turn over the same number of bytes, so that a busy machine slows all of them. */
static void
one_round(times *best, const char *area, size_t area_bytes, size_t bytes, int calls)
{
    times sum = {0};
    unsigned turn = 0;

    for (int c = 0; c < calls; c++) {
        int64_t shape = (int64_t)bytes;
        msp_fingerprint f;
        msp_tensor t;
        uint32_t crc;
        double clock;

        if (msp_tensor_view(&t, bench_window(area, area_bytes, bytes, turn++), MSP_U8, 1, &shape, NULL) != MSP_OK)
            exit(1);
        clock = bench_now();
        bench_read(bench_window(area, area_bytes, bytes, turn++), bytes);
        sum.read += seconds_since(&clock);
        crc = msp_crc32(&t);
        bench_keep(&crc);
        sum.crc += seconds_since(&clock);
        t.data = bench_window(area, area_bytes, bytes, turn++);
        f = msp_fingerprint_of(&t);
        bench_keep(&f);
        sum.fingerprint += seconds_since(&clock);
        crc = (uint32_t)crc32(0, bench_window(area, area_bytes, bytes, turn++), (uInt)bytes);
        bench_keep(&crc);
        sum.zlib += seconds_since(&clock);
    }
    best->read = bench_min(best->read, sum.read / calls);
    best->crc = bench_min(best->crc, sum.crc / calls);
    best->fingerprint = bench_min(best->fingerprint, sum.fingerprint / calls);
    best->zlib = bench_min(best->zlib, sum.zlib / calls);
}

static void
bench_size(const char *area, size_t area_bytes, size_t bytes, int in_memory)
{
    double gb = 1e-9 * (double)bytes;
    times best = {1e99, 1e99, 1e99, 1e99};
    double read;

    for (int r = 0; r < 9; r++)
        one_round(&best, area, area_bytes, bytes, bytes < 1 << 20 ? 2000 : 1);
    read = gb / best.read;
    bench_row("crc32, %zu bytes|%.1f GB/s|%.0f %%|%.1f x zlib|%s", bytes, gb / best.crc, 100 * best.read / best.crc,
              best.zlib / best.crc, in_memory ? bench_verdict(gb / best.crc >= bench_min(10, read / 2), &misses) : "");
    bench_row("fingerprint, %zu bytes|%.1f GB/s|%.0f %%||%s", bytes, gb / best.fingerprint,
              100 * best.read / best.fingerprint,
              in_memory ? bench_verdict(best.read / best.fingerprint >= 0.7, &misses) : "");
}

int
main(void)
{
    size_t area_bytes = (size_t)800 << 20;
    char *area = bench_memory(area_bytes);

    for (size_t i = 0; i < area_bytes; i++)
        area[i] = (char)(i * 2654435761u >> 13);
    bench_row("one thread|speed|of reading||");
    bench_size(area, 8192, 4000, 0);
    bench_size(area, area_bytes, 40000000, 1);
    bench_size(area, area_bytes, 400000000, 1);
    return misses > 0;
}
