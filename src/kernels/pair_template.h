/*
 * pair_template.h - the pair metrics of one block; a template over vectors of eight elements.
 *
 * Eight lanes, whatever the instruction set: element i of a block goes to lane i % 8, and the lanes are added up at the
 * end of the block in a fixed order. A product that double holds exactly may be fused with its addition, since the
 * result is the same; no other may. A block whose count is no multiple of eight is padded with zeros on both sides,
 * which add nothing to any sum and are taken back out of the counts.
 *
 * The including file defines TARGET, the attributes of every function here; SET, the name of the msp_pair_set; and
 *   vf, vd, vh        eight floats, eight doubles, four doubles
 *   vfm, vdm          the outcome of comparing floats, doubles
 *   vfc, vdc          eight counters of such outcomes
 *   vsc               sixteen counters of 16-bit numbers that look the same
 *   vf_load_f32 vf_load_bf16 vf_load_f16(p), vf_store(p, v), vd_load(p), vd_load_f32(p): unaligned
 *   vf_load_bf16_even(p) vf_load_bf16_odd(p): eight out of sixteen
 *   vf_set vf_add vf_sub vf_mul vf_div vf_abs vf_eq vf_select(m, yes, no) vf_any(m)
 *   vf_keep(m, v): v or 0; vf_drop(m, v): 0 or v
 *   vf_max vf_lt: of floats that are not negative
 *   vf_madd(a, b, c): a * b + c, rounded once
 *   pin(v): have v computed here. gcc would mix the steps of a loop, for which there are not enough registers
 *   again(p): have what p points to read again, for the same reason: it would be kept in registers, and sums in memory
 *   vf_round_f16(v): to the nearest float16 and back; vd_widen(v)
 *   vd_set vd_add vd_sub vd_mul vd_div vd_max vd_abs vd_lt vd_eq vd_select(m, yes, no) vd_first(m): lane, or 8
 *   vd_madd(a, b, c): a * b + c where a double holds a * b exactly
 *   vd_fold_add(v) vd_fold_max(v): a vh of lanes i and i + 4; vh_set vh_add vh_max
 *   vf_top(v) vh_top(v): largest lane; vh_total(v): (0+2) + (1+3)
 *   vfc_zero() vfc_count(c, m) vfc_total(c), vdc_..., vsc_zero() vsc_count_same(c, p, q) vsc_total(c)
 */
#include "kernels/pair.h"

#include <math.h>
#include <string.h>

#define INLINE   OP
#define OUTLINED static __attribute__((noinline)) TARGET /* a loop that needs all registers for itself */

enum {
    LANES = 8,
    STEP = 2 * LANES,   /* 16-bit floats: see half_step() */
    CHAIN = 16 * LANES, /* of them, to be added up in one register: see half_end_chain() */
    PIECE = 512,        /* elements that go through one loop after the other: see small_piece() */
    GROUP = 4 * LANES,  /* elements whose relative errors share a division: see rel_group() */
    AHEAD = 2048        /* bytes to prefetch, a piece of float32: the second loop over one asks for none */
};

INLINE double
vd_total(vd v)
{
    return vh_total(vd_fold_add(v));
}

INLINE double
vd_top(vd v)
{
    return vh_top(vd_fold_max(v));
}

/* ---- what the loops over floats share ------------------------------------------------------------------------- */

/*
 * Relative errors above these do not count as small. For float32 they are the numbers before 0.001 and 0.005 rounded to
 * float32, as NumPy rounds them. float16 would round the quotient first; the float16 next to 0.001 and 0.005 both have
 * an odd last bit, so that all quotients count up to and including the middle between that and the float16 below.
 */
typedef struct limits {
    vf at_1e3, at_5e3;
} limits;

INLINE limits
limits_of(bool half)
{
    limits k = {vf_set(half ? 0x1.062p-10f : 0x1.0624dcp-10f), vf_set(half ? 0x1.47ap-8f : 0x1.47ae12p-8f)};

    return k;
}

/* Relative errors of eight elements. d is n - b; zero is where b is 0, if there are zeros. */
INLINE vf
quotient(vf n, vf b, vf d, vfm zero, bool zeros)
{
    if (zeros) {
        vf eps = vf_keep(zero, vf_set((float)MSP_PAIR_EPS)), under = vf_add(b, eps);

        return vf_abs(vf_div(vf_sub(vf_add(n, eps), under), under));
    }
    return vf_abs(vf_div(d, b));
}

#include "kernels/pair_half.h"

/* ---- float32 ----------------------------------------------------------------------------------------------------- */

/*
 * Where all relative errors of a piece are below this, |n| is between half and one and a half of |b|, or b is 0. Then
 * d = n - b is exact in float32, all products of d and b are exact in double, and
 *     n*n = b*b + 2*d*b + d*d    and    n*b = b*b + d*b
 * need no sums of their own: adding these three up brings at most nine times the rounding error of one sum into n*n,
 * three times into n*b.
 */
#define NEAR_LIMIT 0.5f

/* What is gathered over a block. */
typedef struct small_state {
    vd near_sq_b, near_db, near_sq_d; /* in pieces below NEAR_LIMIT */
    vf near_max_abs;
    vd far_dot, far_sq_n, far_sq_b; /* in all others */
    vh far_sq_d, far_max_sq_d;
    vd rel;
    vf max_rel;
    vfc above_1e3, above_5e3, zeros;
} small_state;

/* What the first loop over a piece leaves for the second. */
typedef struct small_buffer {
    _Alignas(64) float d[PIECE]; /* n - b */
    float rel[PIECE];            /* |d| / |b|, 0 where b is 0 */
} small_buffer;

/* Eight elements: differences and relative errors. max_rel is the piece's. */
INLINE void
small_compare(small_state *s, vf *max_rel, small_buffer *w, size_t i, vf n, vf b, bool zeros, limits k)
{
    vfm zero = vf_eq(b, vf_set(0));
    vf d = vf_sub(n, b), q = quotient(n, b, d, zero, zeros);

    vf_store(w->d + i, d);
    vf_store(w->rel + i, zeros ? vf_drop(zero, q) : q);
    *max_rel = vf_max(*max_rel, q);
    s->above_1e3 = vfc_count(s->above_1e3, vf_lt(k.at_1e3, q));
    s->above_5e3 = vfc_count(s->above_5e3, vf_lt(k.at_5e3, q));
    if (zeros)
        s->zeros = vfc_count(s->zeros, zero);
}

/* The sums of a piece below NEAR_LIMIT. */
OUTLINED void
small_near(small_state *s, const small_buffer *w, const float *b, size_t count)
{
    vd sq_b = s->near_sq_b, db = s->near_db, sq_d = s->near_sq_d, rel = s->rel;
    vf max_abs = s->near_max_abs;
    const vd one = vd_set(1);

#pragma GCC unroll 1
    for (size_t i = 0; i < count; i += LANES) {
        vd vb = vd_load_f32(b + i), d = vd_load_f32(w->d + i);

        sq_b = vd_madd(vb, vb, sq_b);
        db = vd_madd(d, vb, db);
        sq_d = vd_madd(d, d, sq_d);
        rel = vd_madd(vd_load_f32(w->rel + i), one, rel); /* where AVX2 has units to spare */
        max_abs = vf_max(max_abs, vf_abs(vf_load_f32(w->d + i)));
    }
    s->near_sq_b = sq_b;
    s->near_db = db;
    s->near_sq_d = sq_d;
    s->near_max_abs = max_abs;
    s->rel = rel;
}

/*
 * The sums of any piece. The root of the largest d*d is the largest |d| to the last bit: in binary arithmetic without
 * overflow or underflow, sqrt(d * d) rounds to |d|.
 */
OUTLINED void
small_far(small_state *s, const small_buffer *w, const float *n, const float *b, size_t count)
{
    vd dot = s->far_dot, sq_n = s->far_sq_n, sq_b = s->far_sq_b, rel = s->rel;
    vh sq_d = s->far_sq_d, max_sq_d = s->far_max_sq_d;

#pragma GCC unroll 1
    for (size_t i = 0; i < count; i += LANES) {
        vd vn = vd_load_f32(n + i), vb = vd_load_f32(b + i), d = vd_sub(vn, vb);

        dot = vd_madd(vn, vb, dot);
        sq_n = vd_madd(vn, vn, sq_n);
        sq_b = vd_madd(vb, vb, sq_b);
        d = vd_mul(d, d);
        sq_d = vh_add(sq_d, vd_fold_add(d));
        max_sq_d = vh_max(max_sq_d, vd_fold_max(d));
        rel = vd_add(rel, vd_load_f32(w->rel + i));
    }
    s->far_dot = dot;
    s->far_sq_n = sq_n;
    s->far_sq_b = sq_b;
    s->far_sq_d = sq_d;
    s->far_max_sq_d = max_sq_d;
    s->rel = rel;
}

/*
 * A piece of a block: differences and relative errors in one loop, sums in another. In one loop they need more
 * registers than AVX2 has; and what the second loop reads from memory costs one instruction to convert to double.
 */
INLINE void
small_piece(small_state *s, const float *n, const float *b, size_t count, bool zeros, limits k)
{
    vf max_rel = vf_set(0);
    small_buffer w;

#pragma GCC unroll 2
    for (size_t i = 0; i < count; i += LANES) {
        prefetch(n + i, AHEAD);
        prefetch(b + i, AHEAD);
        small_compare(s, &max_rel, &w, i, vf_load_f32(n + i), vf_load_f32(b + i), zeros, k);
    }
    s->max_rel = vf_max(s->max_rel, max_rel);
    if (vf_top(max_rel) < NEAR_LIMIT)
        small_near(s, &w, b, count);
    else
        small_far(s, &w, n, b, count);
}

INLINE small_state
small_start(void)
{
    const vd z = vd_set(0);
    const vh zh = vh_set(0);
    small_state s = {z, z, z, vf_set(0), z, z, z, zh, zh, z, vf_set(0), vfc_zero(), vfc_zero(), vfc_zero()};

    return s;
}

/* lanes: the elements with the padding. */
INLINE void
small_result(msp_pair_sums *out, const small_state *s, size_t count, size_t lanes)
{
    vd sq_b = s->near_sq_b, db = s->near_db, sq_d = s->near_sq_d;
    vd sq_n = vd_add(vd_add(sq_b, vd_add(db, db)), sq_d);
    int64_t padding = (int64_t)(lanes - count);

    *out = (msp_pair_sums){.dot = vd_total(vd_add(vd_add(sq_b, db), s->far_dot)),
                           .sq_n = vd_total(vd_add(sq_n, s->far_sq_n)),
                           .sq_b = vd_total(vd_add(sq_b, s->far_sq_b)),
                           .sq_d = vh_total(vh_add(vd_fold_add(sq_d), s->far_sq_d)),
                           .rel = vd_total(s->rel),
                           .max_abs = fmax(vf_top(s->near_max_abs), sqrt(vh_top(s->far_max_sq_d))),
                           .max_rel = vf_top(s->max_rel),
                           .below_1e3 = (int64_t)count - vfc_total(s->above_1e3),
                           .below_5e3 = (int64_t)count - vfc_total(s->above_5e3),
                           .zeros = vfc_total(s->zeros) - padding};
}

INLINE void
small_sums(msp_pair_sums *out, const float *n, const float *b, size_t count, bool zeros, bool half)
{
    const limits k = limits_of(half);
    small_state s = small_start();
    size_t whole = count / LANES * LANES, rest = count - whole;

    for (size_t i = 0; i < whole; i += PIECE)
        small_piece(&s, n + i, b + i, whole - i < PIECE ? whole - i : PIECE, zeros, k);
    if (rest > 0) {
        float last[2][LANES] = {{0}, {0}};

        memcpy(last[0], n + whole, rest * sizeof(float));
        memcpy(last[1], b + whole, rest * sizeof(float));
        small_piece(&s, last[0], last[1], LANES, true, k);
    }
    small_result(out, &s, count, whole + (rest > 0 ? LANES : 0));
}

TARGET static void
sums_f32(msp_pair_sums *out, const void *n, const void *b, size_t count, unsigned flags)
{
    bool half = (flags & MSP_PAIR_HALF) != 0;

    if ((flags & MSP_PAIR_ZEROS) != 0)
        small_sums(out, n, b, count, true, half);
    else
        small_sums(out, n, b, count, false, half);
}

/* ---- the sum of relative errors in double ------------------------------------------------------------------------ */

/*
 * Four steps share one division, since a double division takes longer than all the rest:
 *     d0/b0 + d1/b1 = (d0*b1 + d1*b0) / (b0*b1)
 * and the same once more for two such sums, all terms positive. Products of four numbers of float32's range neither
 * overflow nor underflow a double.
 */
typedef struct fraction {
    vd over, under;
} fraction;

INLINE fraction
rel_fraction(const float *n, const float *b)
{
    vd under = vd_load_f32(b), over = vd_sub(vd_load_f32(n), under);
    vdm zero = vd_eq(under, vd_set(0));
    fraction f = {vd_select(zero, vd_set(0), vd_abs(over)), vd_select(zero, vd_set(1), vd_abs(under))};

    return f;
}

INLINE fraction
fraction_add(fraction f, fraction g)
{
    fraction sum = {vd_add(vd_mul(f.over, g.under), vd_mul(g.over, f.under)), vd_mul(f.under, g.under)};

    return sum;
}

INLINE vd
rel_group(const float *n, const float *b)
{
    fraction f = fraction_add(rel_fraction(n, b), rel_fraction(n + LANES, b + LANES));
    fraction g = fraction_add(rel_fraction(n + 2 * LANES, b + 2 * LANES), rel_fraction(n + 3 * LANES, b + 3 * LANES));

    f = fraction_add(f, g);
    return vd_div(f.over, f.under);
}

TARGET static double
rel_sum(const float *n, const float *b, size_t count)
{
    vd sum = vd_set(0);

    for (; count >= GROUP; count -= GROUP, n += GROUP, b += GROUP)
        sum = vd_add(sum, rel_group(n, b));
    if (count > 0) {
        float last[2][GROUP] = {{0}};

        memcpy(last[0], n, count * sizeof(float));
        memcpy(last[1], b, count * sizeof(float));
        sum = vd_add(sum, rel_group(last[0], last[1]));
    }
    return vd_total(sum);
}

/* ---- exact maxima ------------------------------------------------------------------------------------------------ */

INLINE vd
rel_f64(vd n, vd b)
{
    vdm zero = vd_eq(b, vd_set(0));
    vd eps = vd_set(MSP_PAIR_EPS);
    vd over = vd_select(zero, vd_sub(vd_add(n, eps), eps), vd_sub(n, b));

    return vd_abs(vd_div(over, vd_select(zero, eps, b)));
}

/*
 * The relative error as metrics.h defines it. In float16 a difference from 0 is always beyond the largest number, since
 * it is divided by 2^-52: those go the way of all that overflow.
 */
INLINE vd
rel_small(vf n, vf b, bool half)
{
    const vf infinite = vf_set(INFINITY), eps = vf_set((float)MSP_PAIR_EPS), fz = vf_set(0);
    vfm zero = vf_eq(b, fz);
    vf q;
    vd r;

    if (half) {
        q = vf_round_f16(vf_div(vf_round_f16(vf_sub(n, b)), b));
        q = vf_select(zero, vf_select(vf_eq(n, fz), fz, infinite), q);
    } else {
        q = vf_div(vf_select(zero, vf_sub(vf_add(n, eps), eps), vf_sub(n, b)), vf_select(zero, eps, b));
    }
    q = vf_abs(q);
    r = vd_widen(q);
    if (vf_any(vf_eq(q, infinite)))
        r = vd_select(vd_eq(r, vd_set(INFINITY)), rel_f64(vd_widen(n), vd_widen(b)), r);
    return r;
}

INLINE vd
abs_small(vf n, vf b)
{
    return vd_abs(vd_sub(vd_widen(n), vd_widen(b)));
}

/* The next eight elements, or those that are left and zeros. */
INLINE vf
load_some(const float *p, size_t count)
{
    float last[LANES] = {0};

    if (count >= LANES)
        return vf_load_f32(p);
    memcpy(last, p, count * sizeof(float));
    return vf_load_f32(last);
}

TARGET static double
max_abs(const float *n, const float *b, size_t count)
{
    vd max = vd_set(0);

    for (size_t i = 0; i < count; i += LANES)
        max = vd_max(max, abs_small(load_some(n + i, count - i), load_some(b + i, count - i)));
    return vd_top(max);
}

INLINE double
max_rel_of(const float *n, const float *b, size_t count, bool half)
{
    vd max = vd_set(0);

    for (size_t i = 0; i < count; i += LANES)
        max = vd_max(max, rel_small(load_some(n + i, count - i), load_some(b + i, count - i), half));
    return vd_top(max);
}

TARGET static double
max_rel(const float *n, const float *b, size_t count, bool half)
{
    return half ? max_rel_of(n, b, count, true) : max_rel_of(n, b, count, false);
}

/* ---- the place of a maximum -------------------------------------------------------------------------------------- */

/*
 * Groups are passed over in float32: what does not come near the maximum there cannot have it. The limits leave room
 * for the rounding of float32, and of float16 for relative errors.
 */
INLINE bool
abs_comes_near(const float *n, const float *b, vf limit)
{
    vfc near = vfc_zero();

    for (int i = 0; i < GROUP; i += LANES)
        near = vfc_count(near, vf_lt(limit, vf_abs(vf_sub(vf_load_f32(n + i), vf_load_f32(b + i)))));
    return vfc_total(near) > 0;
}

INLINE bool
rel_comes_near(const float *n, const float *b, vf limit)
{
    vfc near = vfc_zero();

    for (int i = 0; i < GROUP; i += LANES) {
        vf vb = vf_load_f32(b + i), d = vf_abs(vf_sub(vf_load_f32(n + i), vb));

        near = vfc_count(near, vf_lt(vf_mul(limit, vf_abs(vb)), d));
    }
    return vfc_total(near) > 0;
}

TARGET static size_t
find_abs(const float *n, const float *b, size_t count, double abs)
{
    const vf limit = vf_set((float)(abs * (1 - 0x1p-20)));

    for (size_t i = 0; i < count && abs > 0; i += LANES) {
        size_t lane;

        if (i % GROUP == 0)
            while (count - i > GROUP && !abs_comes_near(n + i, b + i, limit))
                i += GROUP;
        lane = vd_first(vd_eq(abs_small(load_some(n + i, count - i), load_some(b + i, count - i)), vd_set(abs)));
        if (lane < LANES)
            return i + lane;
    }
    return 0; /* only where all are equal */
}

INLINE size_t
find_rel_of(const float *n, const float *b, size_t count, double rel, bool half)
{
    const vf limit = vf_set((float)fmin(rel * (1 - 0x1p-8), 0x1p100));

    for (size_t i = 0; i < count && rel > 0; i += LANES) {
        size_t lane;

        if (i % GROUP == 0)
            while (count - i > GROUP && !rel_comes_near(n + i, b + i, limit))
                i += GROUP;
        lane = vd_first(vd_eq(rel_small(load_some(n + i, count - i), load_some(b + i, count - i), half), vd_set(rel)));
        if (lane < LANES)
            return i + lane;
    }
    return 0;
}

TARGET static size_t
find_rel(const float *n, const float *b, size_t count, double rel, bool half)
{
    return half ? find_rel_of(n, b, count, rel, true) : find_rel_of(n, b, count, rel, false);
}

/* ---- float64 ----------------------------------------------------------------------------------------------------- */

typedef struct wide_state {
    vd dot, sq_n, sq_b, sq_d, rel, max_abs, max_rel;
    vdc below_1e3, below_5e3, zeros;
} wide_state;

/* Products are not exact here, so none is fused. */
INLINE void
wide_step(wide_state *s, vd n, vd b, bool zeros)
{
    vd d = vd_sub(n, b), q;

    if (zeros) {
        vdm zero = vd_eq(b, vd_set(0));

        q = rel_f64(n, b);
        s->rel = vd_add(s->rel, vd_select(zero, vd_set(0), q));
        s->zeros = vdc_count(s->zeros, zero);
    } else {
        q = vd_abs(vd_div(d, b));
        s->rel = vd_add(s->rel, q);
    }
    s->max_rel = vd_max(s->max_rel, q);
    s->max_abs = vd_max(s->max_abs, vd_abs(d));
    s->below_1e3 = vdc_count(s->below_1e3, vd_lt(q, vd_set(0.001)));
    s->below_5e3 = vdc_count(s->below_5e3, vd_lt(q, vd_set(0.005)));
    s->dot = vd_add(s->dot, vd_mul(n, b));
    s->sq_n = vd_add(s->sq_n, vd_mul(n, n));
    s->sq_b = vd_add(s->sq_b, vd_mul(b, b));
    s->sq_d = vd_add(s->sq_d, vd_mul(d, d));
}

INLINE vd
load_some_f64(const double *p, size_t count)
{
    double last[LANES] = {0};

    if (count >= LANES)
        return vd_load(p);
    memcpy(last, p, count * sizeof(double));
    return vd_load(last);
}

INLINE void
wide_sums(msp_pair_sums *out, const double *n, const double *b, size_t count, bool zeros)
{
    const vd z = vd_set(0);
    wide_state s = {z, z, z, z, z, z, z, vdc_zero(), vdc_zero(), vdc_zero()};
    size_t whole = count / LANES * LANES, padding = 0;

    for (size_t i = 0; i < whole; i += LANES) {
        prefetch(n + i, AHEAD);
        prefetch(b + i, AHEAD);
        wide_step(&s, vd_load(n + i), vd_load(b + i), zeros);
    }
    if (whole < count) {
        padding = LANES - (count - whole);
        wide_step(&s, load_some_f64(n + whole, count - whole), load_some_f64(b + whole, count - whole), true);
    }
    *out = (msp_pair_sums){.dot = vd_total(s.dot),
                           .sq_n = vd_total(s.sq_n),
                           .sq_b = vd_total(s.sq_b),
                           .sq_d = vd_total(s.sq_d),
                           .rel = vd_total(s.rel),
                           .max_abs = vd_top(s.max_abs),
                           .max_rel = vd_top(s.max_rel),
                           .below_1e3 = vdc_total(s.below_1e3) - (int64_t)padding,
                           .below_5e3 = vdc_total(s.below_5e3) - (int64_t)padding,
                           .zeros = vdc_total(s.zeros) - (int64_t)padding};
}

TARGET static void
sums_f64(msp_pair_sums *out, const void *n, const void *b, size_t count, unsigned flags)
{
    if ((flags & MSP_PAIR_ZEROS) != 0)
        wide_sums(out, n, b, count, true);
    else
        wide_sums(out, n, b, count, false);
}

TARGET static size_t
find_abs_f64(const double *n, const double *b, size_t count, double abs)
{
    for (size_t i = 0; i < count; i += LANES) {
        vd d = vd_sub(load_some_f64(n + i, count - i), load_some_f64(b + i, count - i));
        size_t lane = vd_first(vd_eq(vd_abs(d), vd_set(abs)));

        if (lane < LANES)
            return i + lane;
    }
    return count;
}

TARGET static size_t
find_rel_f64(const double *n, const double *b, size_t count, double rel)
{
    for (size_t i = 0; i < count; i += LANES) {
        vd r = rel_f64(load_some_f64(n + i, count - i), load_some_f64(b + i, count - i));
        size_t lane = vd_first(vd_eq(r, vd_set(rel)));

        if (lane < LANES)
            return i + lane;
    }
    return count;
}

/* ---- conversion -------------------------------------------------------------------------------------------------- */

#define TO_F32(name, load)                                             \
    TARGET static void name(float *dst, const void *src, size_t count) \
    {                                                                  \
        const char *p = src;                                           \
        uint16_t last[LANES] = {0};                                    \
        float wide[LANES];                                             \
                                                                       \
        for (; count >= LANES; count -= LANES, dst += LANES, p += 16)  \
            vf_store(dst, load(p));                                    \
        memcpy(last, p, count * 2);                                    \
        vf_store(wide, load(last));                                    \
        memcpy(dst, wide, count * sizeof(float));                      \
    }

TO_F32(f16_to_f32, vf_load_f16)
TO_F32(bf16_to_f32, vf_load_bf16)

const msp_pair_set SET = {
    .sums =
        {[MSP_PAIR_F16] = sums_f16, [MSP_PAIR_BF16] = sums_bf16, [MSP_PAIR_F32] = sums_f32, [MSP_PAIR_F64] = sums_f64},
    .rel_sum = rel_sum,
    .max_abs = max_abs,
    .max_rel = max_rel,
    .find_abs = find_abs,
    .find_rel = find_rel,
    .find_abs_f64 = find_abs_f64,
    .find_rel_f64 = find_rel_f64,
    .f16_to_f32 = f16_to_f32,
    .bf16_to_f32 = bf16_to_f32,
};
