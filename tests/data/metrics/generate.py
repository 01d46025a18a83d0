"""Write pairs of tensors and their metrics as NumPy computes them.

One case per line, fields separated by blanks:

    name  n-type  n-elements  b-type  b-elements  count  cosine  euc_dist  max_abs  max_abs_index  max_rel
    max_rel_index  below_1e3  below_5e3  rmse  mape  mape_count  inf_sign  mismatches  first_mismatch

Elements are the little-endian bytes in hex; numbers are integers or C's %a.

The formulas are those of the comparison's real-data mode: everything in float64, but relative errors in the type that
NumPy promotes the two tensors to (bfloat16 counts as float32, what is not a float as float64), with eps added to both
sides where the reference is 0. Two cases deviate from what plain NumPy does: that addition happens in float32 at
least, and where float16 or float32 overflow, float64 is used.
"""
import sys

import numpy as np

EPS = np.finfo(float).eps
rng = np.random.default_rng(20240607)


def bf16_bits(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Tensor:
    """Elements as stored, and as NumPy sees them."""

    def __init__(self, type_name, values):
        self.type_name = type_name
        if type_name == "bfloat16":
            self.stored = bf16_bits(values)
            self.values = bf16_values(self.stored)
        else:
            self.stored = self.values = np.asarray(values).astype(type_name)


def relative_error(kind, guard, x, y):
    n, b = x, y
    if b == 0:
        n, b = guard(n) + guard(EPS), guard(EPS)
    d = kind(n - b) if y != 0 else n - b
    r = np.abs(kind(d / b))
    if np.isfinite(r) or kind is np.float64:
        return r
    return relative_error(np.float64, np.float64, np.float64(x), np.float64(y))


def relative_errors(n, b):
    """The definition, one element after the other; slow and plain."""
    floats = (np.float16, np.float32, np.float64)
    if n.dtype.type not in floats or b.dtype.type not in floats:
        n, b = n.astype(np.float64), b.astype(np.float64)
    kind = np.promote_types(n.dtype, b.dtype).type
    guard = np.promote_types(kind, np.float32).type
    errors = []
    for x, y in zip(n.astype(kind), b.astype(kind)):
        r = relative_error(kind, guard, x, y)
        errors.append((np.float64(r), r < kind(0.001), r < kind(0.005)))  # as NumPy compares an array with a number
    return errors


def exact_differences(n, b):
    if n.dtype.kind in "iub" and b.dtype.kind in "iub":
        return np.array([abs(float(int(x) - int(y))) for x, y in zip(n, b)])
    return np.abs(n.astype(np.float64) - b.astype(np.float64))


def write_case(name, n, b):
    x, y = n.values.copy(), b.values.copy()
    fx, fy = x.astype(np.float64), y.astype(np.float64)
    nans = np.isnan(fx) != np.isnan(fy)
    infs = np.isinf(fx) != np.isinf(fy)
    mismatch = nans | infs
    signs = np.isinf(fx) & np.isinf(fy) & (fx != fy)
    bad = ~np.isfinite(fx) | ~np.isfinite(fy)
    x[bad] = 0
    y[bad] = 0
    fx, fy = x.astype(np.float64), y.astype(np.float64)
    d = exact_differences(x, y)
    r = relative_errors(x, y)
    rel = np.array([e[0] for e in r])
    norms = np.linalg.norm(fx), np.linalg.norm(fy)
    if norms[0] <= EPS and norms[1] <= EPS:
        cosine = 1.0
    elif norms[0] <= EPS or norms[1] <= EPS:
        cosine = np.nan
    else:
        cosine = fx.dot(fy) / (norms[0] * norms[1])
    nonzero = fy != 0
    mape = np.mean(d[nonzero] / np.abs(fy[nonzero])) if nonzero.any() else np.nan
    numbers = [
        len(x), cosine, np.linalg.norm(d), d.max(), int(d.argmax()), rel.max(), int(rel.argmax()),
        sum(e[1] for e in r), sum(e[2] for e in r), np.linalg.norm(d) / np.sqrt(len(x)), mape, int(nonzero.sum()),
        int(signs.sum()), int(mismatch.sum()), int(mismatch.argmax()) if mismatch.any() else -1,
    ]
    text = [float(v).hex() if isinstance(v, float) else str(int(v)) for v in numbers]
    print(name, n.type_name, n.stored.tobytes().hex(), b.type_name, b.stored.tobytes().hex(), *text)


def near(values, noise):
    return values * (1 + noise * rng.standard_normal(len(values)))


def float_cases(type_name):
    for count in (1, 2, 7, 8, 9, 33, 100, 300):
        b = rng.standard_normal(count)
        write_case(f"near-{count}", Tensor(type_name, near(b, 2e-3)), Tensor(type_name, b))
        write_case(f"apart-{count}", Tensor(type_name, rng.standard_normal(count)), Tensor(type_name, b))
    b = rng.standard_normal(100) * np.exp2(rng.uniform(-14, 14, 100))
    write_case("wide-range", Tensor(type_name, near(b, 3e-3)), Tensor(type_name, b))
    b[::3] = 0
    n = near(b, 1e-3)
    write_case("zeros-both", Tensor(type_name, n), Tensor(type_name, b))
    n[::6] = 1e-3
    write_case("zeros-in-bench", Tensor(type_name, n), Tensor(type_name, b))
    write_case("zeros-in-npu", Tensor(type_name, b), Tensor(type_name, n))
    write_case("all-zero", Tensor(type_name, np.zeros(9)), Tensor(type_name, np.zeros(9)))
    write_case("npu-zero", Tensor(type_name, np.zeros(9)), Tensor(type_name, np.ones(9)))
    write_case("bench-zero", Tensor(type_name, np.full(9, 0.5)), Tensor(type_name, np.zeros(9)))
    write_case("same", Tensor(type_name, b), Tensor(type_name, b))
    write_case("negated", Tensor(type_name, -b), Tensor(type_name, b))
    n, b = rng.standard_normal((2, 40))
    n[3] = b[3] = np.nan
    n[5] = b[5] = np.inf
    n[6] = b[6] = -np.inf
    write_case("same-nan-inf", Tensor(type_name, n), Tensor(type_name, b))
    n[7], b[7] = np.inf, -np.inf
    write_case("other-sign", Tensor(type_name, n), Tensor(type_name, b))
    n[20], n[21], b[22], b[23] = np.nan, np.inf, np.nan, -np.inf
    n[24], b[24] = np.nan, np.inf
    write_case("mismatches", Tensor(type_name, n), Tensor(type_name, b))
    write_case("all-nan", Tensor(type_name, np.full(17, np.nan)), Tensor(type_name, np.full(17, np.nan)))


def edge_cases():
    f16 = np.float16
    write_case("f16-overflow", Tensor("float16", [65504, -60000, 1]), Tensor("float16", [-65504, 20000, 1]))
    write_case("f16-quotient-overflow", Tensor("float16", [1000, 3]), Tensor("float16", [f16(6e-8), 2]))
    every = np.arange(0x3C00, 0x3C00 + 64).astype(np.uint16).view(f16)
    write_case("f16-steps", Tensor("float16", every), Tensor("float16", np.full(64, 1.0)))
    write_case("f16-subnormal", Tensor("float16", every * f16(2**-14)), Tensor("float16", every[::-1] * f16(2**-14)))
    # quotients on and beside the middles where float16 rounds to 0.001 and 0.005
    b = np.arange(1024, 2048)
    for k in (1, 2, 3, 5, 6, 8, 9, 10):
        write_case(f"f16-limits-{k}", Tensor("float16", (b + k)[:512]), Tensor("float16", b[:512]))
        write_case(f"f16-limits-upper-{k}", Tensor("float16", (b - k)[512:]), Tensor("float16", b[512:]))
    b = np.float32(1000) + np.arange(200, dtype=np.float32)
    for limit in (0.001, 0.005):
        n = (b * np.float32(1 + limit)).astype(np.float32)
        for shift in range(-2, 3):
            moved = (n.view(np.int32) + shift).view(np.float32)
            write_case(f"f32-limit-{limit}-{shift}", Tensor("float32", moved), Tensor("float32", b))
    write_case("f32-tiny", Tensor("float32", [1e-20, 1, 0]), Tensor("float32", [0, 0, 0]))
    write_case("f32-overflow", Tensor("float32", [3e38, 1]), Tensor("float32", [-3e38, 2]))
    write_case("f32-quotient-overflow", Tensor("float32", [1e30, 5]), Tensor("float32", [1e-30, 2]))
    write_case("f32-subnormal", Tensor("float32", [1e-45, 3e-45, 0]), Tensor("float32", [3e-45, 1e-45, 1e-45]))


def integer_cases():
    for type_name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        info = np.iinfo(type_name)
        low, high = max(info.min, -(2**40)), min(info.max, 2**40)
        for count in (1, 5, 64, 200):
            n, b = rng.integers(low, high, (2, count), dtype=np.int64)
            write_case(f"random-{count}", Tensor(type_name, n), Tensor(type_name, b))
        few = rng.integers(0, 3, (2, 50))
        write_case("few-values", Tensor(type_name, few[0]), Tensor(type_name, few[1]))
        write_case("extremes", Tensor(type_name, np.array([info.min, info.max, 0], type_name)),
                   Tensor(type_name, np.array([info.max, info.min, 0], type_name)))
    bits = rng.integers(0, 2, (2, 90))
    write_case("bits", Tensor("bool", bits[0]), Tensor("bool", bits[1]))
    big = 2**60
    write_case("beyond-2^53", Tensor("int64", [big + 1, big, 7]), Tensor("int64", [big, big + 3, 7]))
    write_case("beyond-2^53", Tensor("uint64", np.array([2**64 - 1, 5], np.uint64)), Tensor("int64", [-(2**63), 5]))


def mixed_cases():
    pairs = [("float16", "float32"), ("bfloat16", "float32"), ("float16", "bfloat16"), ("float32", "float64"),
             ("float64", "float16"), ("int32", "float32"), ("float32", "int64"), ("bool", "float64"), ("int8", "uint64"),
             ("uint8", "bool"), ("int32", "int64")]
    for n_type, b_type in pairs:
        b = rng.integers(-90, 90, 77) if "u" not in b_type else rng.integers(0, 90, 77)
        n = np.clip(b + rng.integers(-2, 3, 77), 0, 100)
        write_case("mixed", Tensor(n_type, n), Tensor(b_type, b))
    b = rng.standard_normal(120)
    for n_type, b_type in pairs[:5]:
        write_case("mixed-floats", Tensor(n_type, near(b, 1e-3)), Tensor(b_type, b))


if __name__ == "__main__":
    np.seterr(all="ignore")
    for name in ("float16", "bfloat16", "float32", "float64"):
        float_cases(name)
    edge_cases()
    integer_cases()
    mixed_cases()
    sys.stdout.flush()
