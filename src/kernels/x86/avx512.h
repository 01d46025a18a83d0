/* avx512.h - the instructions that the AVX-512 kernels are compiled for. */
#ifndef MSP_KERNELS_X86_AVX512_H
#define MSP_KERNELS_X86_AVX512_H

#include <immintrin.h>

#ifdef MSP_AVX512_EMULATED /* by functions in C, which must not become those instructions again */
#define AVX512_SET ""
#else
#define AVX512_SET "avx512f,avx512bw,avx512dq,avx512vl,"
#endif

#endif
