/* cpu.c - see cpu.h. */
#include "core/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static _Atomic int limit = -1; /* -1: not read from the environment yet */
static _Atomic int chosen =
    -1; /* -1: not found yet. It is asked for each tensor, and finding it takes 60 instructions */

#if defined(__x86_64__)
/* On top of what AVX2 takes. */
static bool
has_avx512(void)
{
#ifdef MSP_AVX512_EMULATED
    return true;
#else
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
}
#endif

static msp_cpu_level
best_there(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    /* every CPU with AVX2 and FMA has F16C; gcc 12 cannot ask for it by name */
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
        return MSP_CPU_SCALAR;
    return has_avx512() ? MSP_CPU_AVX512 : MSP_CPU_AVX2;
#elif defined(__aarch64__)
    return MSP_CPU_NEON;
#else
    return MSP_CPU_SCALAR;
#endif
}

static int
limit_from_environment(void)
{
    const char *text = getenv("MSPROBE_CPU");

    if (text != NULL)
        for (int level = 0; level < MSP_CPU_LEVELS; level++)
            if (strcmp(text, msp_cpu_level_name((msp_cpu_level)level)) == 0)
                return level;
    return MSP_CPU_LEVELS;
}

static int
current_limit(void)
{
    int l = atomic_load_explicit(&limit, memory_order_relaxed);

    if (l < 0) {
        l = limit_from_environment();
        atomic_store(&limit, l);
    }
    return l;
}

int
msp_cpu_has(msp_cpu_level level)
{
    msp_cpu_level best = best_there();

    if (level == MSP_CPU_SCALAR)
        return 1;
    if (level == MSP_CPU_NEON || best == MSP_CPU_NEON)
        return level == best;
    return level <= best;
}

static int
find_best(void)
{
    int level = MSP_CPU_LEVELS - 1, l = current_limit();

    while (level > l || !msp_cpu_has((msp_cpu_level)level))
        level--;
    return level;
}

msp_cpu_level
msp_cpu_best(void)
{
    int level = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (level < 0) {
        level = find_best();
        atomic_store(&chosen, level);
    }
    return (msp_cpu_level)level;
}

void
msp_cpu_limit(msp_cpu_level level)
{
    atomic_store(&limit, (int)level);
    atomic_store(&chosen, -1);
}

const char *
msp_cpu_level_name(msp_cpu_level level)
{
    static const char *const names[] = {"scalar", "neon", "avx2", "avx512"};

    return (unsigned)level < MSP_CPU_LEVELS ? names[level] : "any";
}

int
msp_cpu_count(void)
{
    cpu_set_t set;
    int n;

    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    n = CPU_COUNT(&set);
    return n < 1 ? 1 : n;
}

int
msp_cpu_has_clmul(void)
{
    if (current_limit() == MSP_CPU_SCALAR)
        return 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & (HWCAP_PMULL | HWCAP_CRC32)) == (HWCAP_PMULL | HWCAP_CRC32);
#else
    return 0;
#endif
}
