/*
 * crc32.h - the variants behind msp_crc32_bytes().
 *
 * All work on the register as it stands between two bytes: the CRC before its final inversion. They give the same
 * result for the same bytes.
 */
#ifndef MSP_KERNELS_CRC32_H
#define MSP_KERNELS_CRC32_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t msp_crc32_fn(uint32_t reg, const uint8_t *p, size_t n);

/* Eight bytes per step through tables; the reference, and what the others do for the bytes they leave over. */
uint32_t msp_crc32_table(uint32_t reg, const uint8_t *p, size_t n);

#if defined(__x86_64__)
uint32_t msp_crc32_clmul(uint32_t reg, const uint8_t *p, size_t n);   /* PCLMULQDQ and SSE4.1 */
uint32_t msp_crc32_vpclmul(uint32_t reg, const uint8_t *p, size_t n); /* VPCLMULQDQ and AVX2 */
#elif defined(__aarch64__)
uint32_t msp_crc32_pmull(uint32_t reg, const uint8_t *p, size_t n); /* PMULL */
#endif

/* The variant that msp_crc32_bytes() uses now. */
msp_crc32_fn *msp_crc32_best(void);

#endif
