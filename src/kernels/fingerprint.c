/* fingerprint.c - see fingerprint.h. */
#include "kernels/fingerprint.h"

#include <string.h>
#include "core/cpu.h"
#include "kernels/gather.h"
#include "msprobe/stats.h"

/* The fractional parts of the square roots of the first 18 primes. */
static const uint64_t KEYS[MSP_FP_CHAINS + 2] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                                 0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                                 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179, 0xcbbb9d5dc1059ed8,
                                                 0x629a292a367cd507, 0x9159015a3070dd17, 0x152fecd8f70e5939,
                                                 0x67332667ffc00b31, 0x8eb44a8768581511, 0xdb0c2e0d64f98fa7,
                                                 0x47b5481dbefa4fa4, 0xae5f9156e7b6d99b, 0xcf6c85d39d1a1e15};

static uint64_t
load_le64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static void
absorb_scalar(msp_fp_state *s, const uint8_t *p, size_t stripes)
{
    msp_fp_state t = *s;

    for (; stripes > 0; stripes--, p += MSP_FP_STRIPE) {
        for (int i = 0; i < MSP_FP_CHAINS; i++) {
            uint64_t x = t.a[i] + load_le64(p + 8 * i);

            t.a[i] = (x ^ x >> 29) * MSP_FP_MULTIPLIER;
            t.b[i] += (x & 0xffffffff) * (x >> 32);
        }
    }
    *s = t;
}

static msp_fp_fn *
best_absorb(void)
{
#if defined(__x86_64__)
    if (msp_cpu_best() >= MSP_CPU_AVX2)
        return msp_fp_absorb_avx2;
#endif
    return absorb_scalar; /* NEON multiplies no wider than the scalar unit does, and shifts more */
}

static uint64_t
mix_bits(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9e3779b97f4a7c15; /* 2^64 / golden ratio */
    x ^= x >> 29;
    x *= 0x2f73477d6a4563cb; /* square root of the 19th prime, as above */
    x ^= x >> 32;
    return x;
}

static void
fold_word(msp_fingerprint *f, uint64_t w)
{
    f->lo = mix_bits(f->lo + w);
    f->hi = mix_bits(f->hi ^ ((f->lo << 32 | f->lo >> 32) + w * 0x6d1826cafd82e1ed)); /* of the 20th */
}

static msp_fingerprint
finish_fingerprint(const msp_fp_state *s, const msp_tensor *t)
{
    msp_fingerprint f = {KEYS[MSP_FP_CHAINS], KEYS[MSP_FP_CHAINS + 1]};

    fold_word(&f, (uint64_t)t->dtype);
    fold_word(&f, (uint64_t)t->ndim);
    for (int32_t i = 0; i < t->ndim; i++)
        fold_word(&f, (uint64_t)t->shape[i]);
    for (int i = 0; i < MSP_FP_CHAINS; i++) {
        fold_word(&f, s->a[i]);
        fold_word(&f, s->b[i]);
    }
    return f;
}

/* Whole stripes, then what is left of n padded with zeros. Only the last call may leave something over. */
static void
absorb_bytes(msp_fp_state *s, msp_fp_fn *absorb, const uint8_t *p, size_t n)
{
    size_t rest = n % MSP_FP_STRIPE;

    absorb(s, p, n / MSP_FP_STRIPE);
    if (rest > 0) {
        uint8_t last[MSP_FP_STRIPE] = {0};

        memcpy(last, p + (n - rest), rest);
        absorb(s, last, 1);
    }
}

msp_fingerprint
msp_fingerprint_of(const msp_tensor *t)
{
    enum { BLOCK_BYTES = 64 * MSP_FP_STRIPE }; /* elements of every size fill it exactly */
    char buf[BLOCK_BYTES];
    msp_fp_fn *absorb = best_absorb();
    int64_t size = (int64_t)msp_dtype_size(t->dtype), block;
    msp_fp_state s = {{0}, {0}};
    msp_gather g;

    memcpy(s.a, KEYS, sizeof(s.a));
    if (t->numel > 0 && size > 0) {
        msp_gather_init(&g, t);
        block = g.ndim == 0 ? t->numel : BLOCK_BYTES / size;
        for (int64_t i = 0; i < t->numel; i += block) {
            int64_t count = t->numel - i < block ? t->numel - i : block;

            absorb_bytes(&s, absorb, msp_gather_block(&g, i, count, buf), (size_t)(count * size));
        }
    }
    return finish_fingerprint(&s, t);
}

void
msp_fingerprint_format(char buf[33], msp_fingerprint f)
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 16; i++) {
        buf[i] = digits[f.hi >> (60 - 4 * i) & 15];
        buf[16 + i] = digits[f.lo >> (60 - 4 * i) & 15];
    }
    buf[32] = '\0';
}
