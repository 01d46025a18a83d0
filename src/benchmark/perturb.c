/*
 * perturb.c - a tensor's elements, changed a little where they lie.
 *
 * Numbers are moved by whole units in the last place, as integers: float16 and narrower types always, float32 and
 * float64 where adding the constant would round away. So noise is never lost, whatever the size of the numbers.
 */
#include <math.h>
#include <string.h>
#include "benchmark/form.h"
#include "dtype/convert.h"
#include "msprobe/benchmark.h"

/* ---- one element ------------------------------------------------------------------------------------------------ */

static inline uint32_t
goes_up(uint32_t salt, uint64_t i)
{
    uint32_t h = ((uint32_t)i + salt) * 0x9E3779B1u ^ salt * 0x85EBCA77u;

    h ^= h >> 15;
    h *= 0x2C1B3C6Du;
    return h >> 31;
}

/* ---- a run of elements without gaps: v[0..n), of which v[0] is the tensor's number `at` ----------------------------
 */

typedef struct run {
    const float_form *form;
    uint32_t salt;
    uint64_t at;
} run;

/* c ? a : b without a branch: which of the two it is nobody can predict. */
#define SELECT(bits, c, a, b) ((uint##bits##_t)((b) ^ (((a) ^ (b)) & (uint##bits##_t) - (uint##bits##_t)(c))))

/*
 * For each width the type of the bits, and loops without branches, in which everything that does not change is a local:
 * MOVED(m, away, units) is a magnitude some units in the last place away from zero or towards it, and towards it where
 * there is no number further away.
 */
#define MOVED(m, away, units) ((away) && (m) + (units) < nonfinite ? (m) + (units) : (m) - (units))

#define LOCALS(bits, from)                                                                               \
    typedef uint##bits##_t word __attribute__((aligned(1), may_alias));                                  \
    const uint##bits##_t sign = (uint##bits##_t)((uint##bits##_t)1 << (bits - 1));                       \
    const uint##bits##_t nonfinite = (uint##bits##_t)r->form->nonfinite, least = (uint##bits##_t)(from); \
    const uint32_t salt = r->salt;                                                                       \
    const uint64_t at = r->at;                                                                           \
    const uint32_t always_up = salt == 0;                                                                \
    word *v = p;                                                                                         \
    int64_t changed = 0

#define ELEMENT(bits)                                               \
    const uint##bits##_t x = v[i], m = (uint##bits##_t)(x & ~sign); \
    const bool is_number = m > least && m < nonfinite

#define DEFINE(bits)                                                                                               \
    static int64_t ulp_##bits(void *p, int64_t n, const run *r)                                                    \
    {                                                                                                              \
        LOCALS(bits, 0);                                                                                           \
        (void)always_up;                                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                                          \
            ELEMENT(bits);                                                                                         \
            const bool away = goes_up(salt, at + (uint64_t)i);                                                     \
            const uint##bits##_t other = (uint##bits##_t)((x & sign) | MOVED(m, away, 1));                         \
                                                                                                                   \
            v[i] = is_number ? other : x;                                                                          \
            changed += is_number;                                                                                  \
        }                                                                                                          \
        return changed;                                                                                            \
    }                                                                                                              \
                                                                                                                   \
    static int64_t flip_##bits(void *p, int64_t n, const run *r)                                                   \
    {                                                                                                              \
        LOCALS(bits, r->form->normal);                                                                             \
        (void)always_up, (void)salt, (void)at;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                                          \
            ELEMENT(bits);                                                                                         \
            const uint##bits##_t flipped = m ^ 1, other = flipped < nonfinite ? flipped : (uint##bits##_t)(m - 1); \
                                                                                                                   \
            v[i] = is_number ? (uint##bits##_t)((x & sign) | other) : x;                                           \
            changed += is_number;                                                                                  \
        }                                                                                                          \
        return changed;                                                                                            \
    }

#define DEFINE_NARROW_NOISE(bits)                                                                        \
    static int64_t noise_##bits(void *p, int64_t n, const run *r)                                        \
    {                                                                                                    \
        const uint##bits##_t doubled = (uint##bits##_t)r->form->doubled;                                 \
        LOCALS(bits, r->form->noisy);                                                                    \
                                                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                \
            ELEMENT(bits);                                                                               \
            const uint##bits##_t up = (uint##bits##_t)(always_up | goes_up(salt, at + (uint64_t)i));     \
            const uint##bits##_t units = (uint##bits##_t)(1 + (m <= doubled));                           \
            const uint##bits##_t more = (uint##bits##_t)(m + units), less = (uint##bits##_t)(m - units); \
            const uint##bits##_t away = (uint##bits##_t)((up ^ (x >> (bits - 1))) & (more < nonfinite)); \
                                                                                                         \
            v[i] = SELECT(bits, is_number, (x & sign) | SELECT(bits, away, more, less), x);              \
            changed += is_number;                                                                        \
        }                                                                                                \
        return changed;                                                                                  \
    }

#define DEFINE_WIDE_NOISE(bits, real)                                                                                  \
    static int64_t noise_##bits(void *p, int64_t n, const run *r)                                                      \
    {                                                                                                                  \
        const real noise = (real)r->form->noise;                                                                       \
        LOCALS(bits, r->form->noisy);                                                                                  \
                                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            ELEMENT(bits);                                                                                             \
            const uint##bits##_t up = always_up | goes_up(salt, at + (uint64_t)i);                                     \
            const uint##bits##_t away = (up ^ (x >> (bits - 1))) & (m + 1 < nonfinite);                                \
            const uint##bits##_t term = msp_f##bits##_bits(noise) | (up ^ 1) << (bits - 1);                            \
            const uint##bits##_t sum = msp_f##bits##_bits(msp_f##bits##_from_bits(x) + msp_f##bits##_from_bits(term)); \
            const uint##bits##_t stepped = (x & sign) | (m - 1 + 2 * away);                                            \
                                                                                                                       \
            v[i] = SELECT(bits, is_number, SELECT(bits, sum == x, stepped, sum), x);                                   \
            changed += is_number;                                                                                      \
        }                                                                                                              \
        return changed;                                                                                                \
    }

/* clang-format off */
DEFINE(8)
DEFINE(16)
DEFINE(32)
DEFINE(64)
DEFINE_NARROW_NOISE(8)
DEFINE_NARROW_NOISE(16)
DEFINE_WIDE_NOISE(32, float)
DEFINE_WIDE_NOISE(64, double)
/* clang-format on */

#define CHANGE(bits)                                  \
    (how == MSP_PERTURB_NOISE ? noise_##bits(p, n, r) \
     : how == MSP_PERTURB_BIT ? flip_##bits(p, n, r)  \
                              : ulp_##bits(p, n, r))

static int64_t
change_run(void *p, int64_t n, msp_perturbation how, const run *r)
{
    switch (r->form->bytes) {
    case 1:
        return CHANGE(8);
    case 2:
        return CHANGE(16);
    case 4:
        return CHANGE(32);
    default:
        return CHANGE(64);
    }
}

/* ---- a tensor --------------------------------------------------------------------------------------------------- */

/* Whether the elements are one piece of memory, in whatever order: what clone() makes of nearly everything. */
static bool
is_one_piece(const msp_tensor *t)
{
    int64_t expected = 1;
    bool used[MSP_MAX_NDIM] = {false};

    for (int32_t done = 0; done < t->ndim; done++) {
        int32_t next = -1;

        for (int32_t d = 0; d < t->ndim; d++)
            if (!used[d] && (t->shape[d] == 1 || t->strides[d] == expected)) {
                next = d;
                break;
            }
        if (next < 0)
            return false;
        used[next] = true;
        expected *= t->shape[next];
    }
    return true;
}

static int64_t
change_elements(const msp_tensor *t, msp_perturbation how, run *r)
{
    int64_t changed = 0;

    for (int64_t i = 0; i < t->numel; i++) {
        r->at = (uint64_t)i * (uint64_t)r->form->parts;
        changed += change_run((void *)(uintptr_t)msp_tensor_at(t, i), r->form->parts, how, r);
    }
    return changed;
}

static void
swap_elements(char *a, char *b, size_t size)
{
    char kept[16];

    memcpy(kept, a, size);
    memcpy(a, b, size);
    memcpy(b, kept, size);
}

/* First and last: whole sub-tensors where there are more than two dimensions. */
static int64_t
swap_ends(const msp_tensor *t)
{
    size_t size = msp_dtype_size(t->dtype);
    int64_t part = 1, last, changed = 0;

    if (t->ndim == 0 || t->numel < 2 || (t->ndim > 1 && t->shape[0] * t->shape[1] < 2))
        return 0;
    for (int32_t d = 2; d < t->ndim; d++)
        part *= t->shape[d];
    last = t->numel - part;
    for (int64_t i = 0; i < part; i++) {
        char *a = (char *)(uintptr_t)msp_tensor_at(t, i), *b = (char *)(uintptr_t)msp_tensor_at(t, last + i);

        if (memcmp(a, b, size) != 0) {
            swap_elements(a, b, size);
            changed += 2;
        }
    }
    return changed;
}

msp_status
msp_perturb(const msp_tensor *t, msp_perturbation how, uint32_t salt, int64_t *changed, msp_error *err)
{
    run r = {.form = msp_float_form(t->dtype), .salt = salt};
    int64_t n;

    if (r.form->bytes == 0)
        return msp_error_set(err, MSP_E_UNSUPPORTED, "elements of type %s are no floating-point numbers",
                             msp_dtype_torch_name(t->dtype));
    if (t->numel == 0)
        n = 0;
    else if (how == MSP_PERTURB_SWAP)
        n = swap_ends(t);
    else if (is_one_piece(t))
        n = change_run((void *)(uintptr_t)t->data, t->numel * r.form->parts, how, &r);
    else
        n = change_elements(t, how, &r);
    if (changed != NULL)
        *changed = n;
    return MSP_OK;
}
