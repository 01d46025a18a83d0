/*
 * pair_half.h - the sums of a block of float16 or bfloat16; a part of pair_template.h.
 *
 * All in float32, which holds the squares of these numbers exactly: eight lanes add up chains of CHAIN elements, and
 * those are added up over the block. The product n*b has no sum of its own, since it is (n*n + b*b - d*d) / 2. What
 * that costs in digits stands in metrics.h; where it would cost more, precise() in pair.c says so.
 *
 * Sixteen elements are two vectors: for float16 the lower and the upper eight, for bfloat16 the even and the odd ones,
 * which takes one instruction each. Two bfloat16 that differ do so by at least 1/256 of b, unless b is 0: what is below
 * 0.001 is equal.
 */

typedef struct half_state {
    vf sq_n, sq_b, sq_d, rel; /* of this chain */
    vf max_abs, max_rel;
    vfc above_1e3, above_5e3, zeros;
    vsc same;      /* bfloat16 in the loop without zeros: numbers are equal where their bits are */
    vf pending[2]; /* relative errors that were not looked at yet: see half_step() */
} half_state;

typedef struct half_totals {
    vf sq_n, sq_b, sq_d, rel;
} half_totals;

/* The i-th vector, 0 or 1. */
INLINE vf
half_load(const char *p, int i, msp_pair_kind kind)
{
    if (kind == MSP_PAIR_F16)
        return vf_load_f16(p + i * LANES * 2);
    return i == 0 ? vf_load_bf16_even(p) : vf_load_bf16_odd(p);
}

/* Eight relative errors: q is what is limited, rel what goes into the mean. */
INLINE void
half_errors(half_state *s, vf q, vf rel, msp_pair_kind kind, bool zeros, const limits *k)
{
    s->rel = vf_add(s->rel, rel);
    pin(s->rel);
    s->max_rel = vf_max(s->max_rel, q);
    if (kind == MSP_PAIR_F16 || zeros)
        s->above_1e3 = vfc_count(s->above_1e3, vf_lt(k->at_1e3, q));
    s->above_5e3 = vfc_count(s->above_5e3, vf_lt(k->at_5e3, q));
    pin(s->above_1e3);
    pin(s->above_5e3);
}

INLINE void
half_differences(half_state *s, vf n, vf b, vf d)
{
    s->sq_n = vf_madd(n, n, s->sq_n);
    s->sq_b = vf_madd(b, b, s->sq_b);
    s->sq_d = vf_madd(d, d, s->sq_d);
    s->max_abs = vf_max(s->max_abs, vf_abs(d));
    pin(s->sq_n);
    pin(s->sq_b);
    pin(s->sq_d);
    pin(s->max_abs);
}

/*
 * Sixteen elements. Relative errors are used one step later than they are made: a division takes long, and what waits
 * for it would fill the queues of the CPU.
 */
INLINE void
half_step(half_state *s, const char *n, const char *b, msp_pair_kind kind, const limits *k)
{
    if (kind == MSP_PAIR_BF16)
        s->same = vsc_count_same(s->same, n, b);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        vf vn, vb, d;

        half_errors(s, s->pending[i], s->pending[i], kind, false, k);
        vn = half_load(n, i, kind);
        vb = half_load(b, i, kind);
        d = vf_sub(vn, vb);
        s->pending[i] = quotient(vn, vb, d, vf_eq(vb, vb), false);
        half_differences(s, vn, vb, d);
        pin(s->pending[i]);
    }
}

/* half_step() where b may hold zeros, which leaves no register for errors that wait. */
INLINE void
half_step_zeros(half_state *s, const char *n, const char *b, msp_pair_kind kind, const limits *k)
{
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        vf vn = half_load(n, i, kind), vb = half_load(b, i, kind), d = vf_sub(vn, vb), q;
        vfm zero = vf_eq(vb, vf_set(0));

        q = quotient(vn, vb, d, zero, true);
        s->zeros = vfc_count(s->zeros, zero);
        pin(s->zeros);
        half_differences(s, vn, vb, d);
        half_errors(s, q, vf_drop(zero, q), kind, true, k);
    }
}

INLINE void
half_end_chain(half_totals *t, half_state *s)
{
    t->sq_n = vf_add(t->sq_n, s->sq_n);
    t->sq_b = vf_add(t->sq_b, s->sq_b);
    t->sq_d = vf_add(t->sq_d, s->sq_d);
    t->rel = vf_add(t->rel, s->rel);
    s->sq_n = s->sq_b = s->sq_d = s->rel = vf_set(0);
    __asm__ volatile("" : "+m"(*t)); /* the totals stay in memory: registers are for the chains */
}

/* rest: elements after the last whole chain, where nobody counts what looks the same. */
INLINE void
half_result(msp_pair_sums *out, const half_state *s, const half_totals *t, size_t count, size_t rest, bool by_same)
{
    int64_t padding = (STEP - rest % STEP) % STEP, same = by_same ? vsc_total(s->same) + (int64_t)rest : (int64_t)count;

    *out = (msp_pair_sums){.sq_n = vd_total(vd_widen(t->sq_n)),
                           .sq_b = vd_total(vd_widen(t->sq_b)),
                           .sq_d = vd_total(vd_widen(t->sq_d)),
                           .rel = vd_total(vd_widen(t->rel)),
                           .max_abs = vf_top(s->max_abs),
                           .max_rel = vf_top(s->max_rel),
                           .below_1e3 = same - vfc_total(s->above_1e3),
                           .below_5e3 = (int64_t)count - vfc_total(s->above_5e3),
                           .zeros = vfc_total(s->zeros) - padding};
    out->dot = (out->sq_n + out->sq_b - out->sq_d) / 2;
}

INLINE void
half_chain(half_state *s, const char *n, const char *b, msp_pair_kind kind, bool zeros, const limits *k)
{
#pragma GCC unroll 1
    for (int i = 0; i < 2 * CHAIN; i += 4 * STEP) {
        prefetch(n + i, AHEAD);
        prefetch(b + i, AHEAD);
        again(k);
#pragma GCC unroll 2
        for (int j = i; j < i + 4 * STEP; j += 2 * STEP) {
            if (zeros)
                half_step_zeros(s, n + j, b + j, kind, k);
            else
                half_step(s, n + j, b + j, kind, k);
        }
    }
}

INLINE void
half_sums(msp_pair_sums *out, const char *n, const char *b, size_t count, msp_pair_kind kind, bool zeros)
{
    const vf z = vf_set(0);
    const limits k = limits_of(kind == MSP_PAIR_F16);
    size_t rest = count % CHAIN, whole = count - rest;
    half_totals t = {z, z, z, z};
    half_state s = {z, z, z, z, z, z, vfc_zero(), vfc_zero(), vfc_zero(), vsc_zero(), {z, z}};

    for (size_t i = 0; i < whole; i += CHAIN) {
        half_chain(&s, n + 2 * i, b + 2 * i, kind, zeros, &k);
        half_end_chain(&t, &s);
    }
    if (!zeros) {
        half_errors(&s, s.pending[0], s.pending[0], kind, false, &k);
        half_errors(&s, s.pending[1], s.pending[1], kind, false, &k);
    }
    for (size_t i = whole; i < count; i += STEP) {
        size_t left = count - i < STEP ? count - i : STEP;
        char last[2][2 * STEP] = {{0}, {0}};

        memcpy(last[0], n + 2 * i, 2 * left);
        memcpy(last[1], b + 2 * i, 2 * left);
        half_step_zeros(&s, last[0], last[1], kind, &k);
    }
    half_end_chain(&t, &s);
    half_result(out, &s, &t, count, rest, kind == MSP_PAIR_BF16 && !zeros);
}

#define HALF_SUMS(name, kind)                                                                               \
    OUTLINED void name##_zeros(msp_pair_sums *out, const void *n, const void *b, size_t count)              \
    {                                                                                                       \
        half_sums(out, n, b, count, kind, true);                                                            \
    }                                                                                                       \
                                                                                                            \
    TARGET static void name(msp_pair_sums *out, const void *n, const void *b, size_t count, unsigned flags) \
    {                                                                                                       \
        if ((flags & MSP_PAIR_ZEROS) != 0)                                                                  \
            name##_zeros(out, n, b, count);                                                                 \
        else                                                                                                \
            half_sums(out, n, b, count, kind, false);                                                       \
    }

HALF_SUMS(sums_f16, MSP_PAIR_F16)
HALF_SUMS(sums_bf16, MSP_PAIR_BF16)
