/*
 * cpu.h - which instruction sets this process may use.
 *
 * MSPROBE_CPU in the environment, or msp_cpu_limit(), switches features off: "scalar" leaves nothing, "avx2" leaves
 * AVX2 and what is below it. Tests run every kernel at every level and demand the same bits.
 */
#ifndef MSP_CORE_CPU_H
#define MSP_CORE_CPU_H

/* Levels, each including the ones before it on its own architecture. */
typedef enum msp_cpu_level {
    MSP_CPU_SCALAR = 0,
    MSP_CPU_NEON,   /* aarch64: Advanced SIMD, always there */
    MSP_CPU_AVX2,   /* AVX2, FMA, F16C, BMI */
    MSP_CPU_AVX512, /* AVX-512 F, BW, DQ, VL */
    MSP_CPU_LEVELS
} msp_cpu_level;

/* The best level that is both there and allowed. */
msp_cpu_level msp_cpu_best(void);

/* True when this machine has the level at all. */
int msp_cpu_has(msp_cpu_level level);

/* Allow no more than this level from now on; MSP_CPU_LEVELS lifts the limit. For tests and benchmarks. */
void msp_cpu_limit(msp_cpu_level level);

/* "scalar", "neon", "avx2", "avx512". */
const char *msp_cpu_level_name(msp_cpu_level level);

/* Processors that this process may run on (its affinity mask), at least 1. */
int msp_cpu_count(void);

/* True when the carry-less multiply that the CRC uses is there and allowed (PCLMULQDQ, or PMULL and CRC32 on Arm). */
int msp_cpu_has_clmul(void);

#endif
