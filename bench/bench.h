/*
 * bench.h - what the C benchmarks share: a clock, the best of several runs, the machine's plain read bandwidth as the
 * baseline, and aligned tables.
 *
 * Figures are ratios against a baseline measured in the same run, interleaved with what is measured, so that a busy
 * machine slows both. "In memory" means not in a cache: see bench_window().
 */
#ifndef MSP_BENCH_H
#define MSP_BENCH_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "core/cpu.h"
#include "core/pool.h"
#include "msprobe/tensor.h"

static inline double
bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Seconds that this thread has run. For what one thread does this is the fairer clock: on a busy machine the other one
 * also counts the time in which somebody else ran.
 */
static inline double
bench_thread_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Keep the compiler from dropping a computation whose result is at p, or from moving it out of a loop. */
static inline void
bench_keep(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

/* Seconds per call of statement: the best of repeats rounds of calls each. Assigns to out. */
#define BENCH_BEST(out, repeats, calls, statement)                       \
    do {                                                                 \
        (out) = 1e99;                                                    \
        for (int bench_r = 0; bench_r < (repeats); bench_r++) {          \
            double bench_t = bench_now();                                \
                                                                         \
            for (long bench_c = 0; bench_c < (long)(calls); bench_c++) { \
                statement;                                               \
            }                                                            \
            bench_t = (bench_now() - bench_t) / (double)(calls);         \
            if (bench_t < (out))                                         \
                (out) = bench_t;                                         \
        }                                                                \
    } while (0)

/* Whether to measure once more: at least six rounds and half a second, so that some are likely to be undisturbed. */
static inline bool
bench_go_on(int rounds, double since)
{
    return rounds < 6 || bench_now() - since < 0.5;
}

static inline msp_tensor
bench_view(const void *p, msp_dtype t, size_t n)
{
    int64_t shape = (int64_t)n;
    msp_tensor out;

    if (msp_tensor_view(&out, p, t, 1, &shape, NULL) != MSP_OK)
        exit(1);
    return out;
}

static inline double
bench_min(double a, double b)
{
    return a < b ? a : b;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Page-aligned memory, touched once so that every page is there; huge pages where the system gives them. */
static inline void *
bench_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        fprintf(stderr, "bench: no memory for %zu MB\n", bytes >> 20);
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

/*
 * The turn-th window of bytes in an area of area bytes, aligned to 64 and never overlapping the window before it when
 * the area has room for two: with an area much larger than the last-level cache each window comes from memory.
 */
static inline const void *
bench_window(const void *area, size_t area_bytes, size_t bytes, unsigned turn)
{
    size_t step = (bytes + 63) & ~(size_t)63;
    size_t windows = step == 0 || area_bytes < step ? 1 : area_bytes / step;

    return (const char *)area + turn % windows * step;
}

typedef uint64_t bench_v2 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t bench_v4 __attribute__((vector_size(32), aligned(1), may_alias));

#define BENCH_READ_LOOP(vector)                                   \
    const vector *v = p;                                          \
    vector a = {0}, b = {0}, c = {0}, d = {0};                    \
                                                                  \
    for (size_t i = 0; i + 4 <= bytes / sizeof(vector); i += 4) { \
        a += v[i];                                                \
        b += v[i + 1];                                            \
        c += v[i + 2];                                            \
        d += v[i + 3];                                            \
    }                                                             \
    a += b + c + d;                                               \
    bench_keep(&a)

static inline void
bench_read_plain(const void *p, size_t bytes)
{
    BENCH_READ_LOOP(bench_v2);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static inline void
bench_read_avx2(const void *p, size_t bytes)
{
    BENCH_READ_LOOP(bench_v4);
}
#endif

/* Load every byte once and add it up as 64-bit words: nothing that looks at data can be faster. */
static inline void
bench_read(const void *p, size_t bytes)
{
#if defined(__x86_64__)
    if (msp_cpu_has(MSP_CPU_AVX2)) {
        bench_read_avx2(p, bytes);
        return;
    }
#endif
    bench_read_plain(p, bytes);
}

typedef struct bench_area {
    const char *p;
    size_t bytes, piece;
} bench_area;

static inline void
bench_read_piece(size_t index, void *payload)
{
    const bench_area *area = payload;
    size_t from = index * area->piece;

    bench_read(area->p + from, from + area->piece < area->bytes ? area->piece : area->bytes - from);
}

/* The same with threads of the library's pool, in pieces of 256 KB. */
static inline void
bench_read_mt(const void *p, size_t bytes, int threads)
{
    bench_area area = {p, bytes, 256 << 10};

    if (threads == 1)
        bench_read(p, bytes);
    else
        msp_pool_run((bytes + area.piece - 1) / area.piece, threads, bench_read_piece, &area);
}

/* ---- output ---------------------------------------------------------------------------------------------------- */

/* One line of a table: cells of 12 characters, the first of 28. bench_row(format, ...) takes "a|b|c". */
static inline void MSP_PRINTF(1, 2) bench_row(const char *format, ...)
{
    char line[512], *cell = line, *bar;
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    for (int column = 0; cell != NULL; column++) {
        bar = strchr(cell, '|');
        if (bar != NULL)
            *bar++ = '\0';
        printf(column == 0 ? "%-28s" : "%12s", cell);
        cell = bar;
    }
    printf("\n");
    fflush(stdout);
}

/* The verdict that stands at the end of a line with a target; counts the misses in *misses. */
static inline const char *
bench_verdict(int reached, int *misses)
{
    if (!reached)
        ++*misses;
    return reached ? "ok" : "MISSED";
}

#endif
