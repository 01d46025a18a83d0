/*
 * fpmode.h - the floating-point mode that kernels compute in.
 *
 * Training processes flush subnormals to zero (torch.set_flush_denormal) or, rarely, round differently or trap; results
 * must not depend on it. The mode is set where a thread enters a kernel and put back where it leaves.
 */
#ifndef MSP_KERNELS_FPMODE_H
#define MSP_KERNELS_FPMODE_H

#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct msp_fpmode {
    uint64_t saved;
    int changed;
} msp_fpmode;

#if defined(__x86_64__)

enum {
    MSP_MXCSR_FLUSH_AND_ROUND = 0xe040, /* FTZ, the two bits of the rounding mode, DAZ */
    MSP_MXCSR_MASKS = 0x1f80            /* all exceptions masked */
};

static inline void
msp_fpmode_enter(msp_fpmode *m)
{
    unsigned now = _mm_getcsr();

    m->saved = now;
    m->changed = (now & (MSP_MXCSR_FLUSH_AND_ROUND | MSP_MXCSR_MASKS)) != MSP_MXCSR_MASKS;
    if (m->changed)
        _mm_setcsr((now & ~(unsigned)MSP_MXCSR_FLUSH_AND_ROUND) | MSP_MXCSR_MASKS);
}

static inline void
msp_fpmode_leave(const msp_fpmode *m)
{
    if (m->changed)
        _mm_setcsr((unsigned)m->saved);
}

#elif defined(__aarch64__)

static inline void
msp_fpmode_enter(msp_fpmode *m)
{
    uint64_t zero = 0; /* round to nearest, no flushing, no default NaN, no traps */

    __asm__ volatile("mrs %0, fpcr" : "=r"(m->saved));
    m->changed = m->saved != 0;
    if (m->changed)
        __asm__ volatile("msr fpcr, %0" : : "r"(zero));
}

static inline void
msp_fpmode_leave(const msp_fpmode *m)
{
    if (m->changed)
        __asm__ volatile("msr fpcr, %0" : : "r"(m->saved));
}

#else

static inline void
msp_fpmode_enter(msp_fpmode *m)
{
    m->changed = 0;
}

static inline void
msp_fpmode_leave(const msp_fpmode *m)
{
    (void)m;
}

#endif
#endif
