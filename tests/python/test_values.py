"""Statistics, metrics and checksums against NumPy and torch, for every element type.

The oracle is float64 arithmetic in NumPy, element by element as the public headers define each value; torch supplies
the types that NumPy lacks.
"""
import math
import zlib

import numpy as np
import pytest

import msprobe

torch = pytest.importorskip("torch")

FLOATS = [name for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
                            "float8_e4m3fnuz", "float8_e5m2fnuz") if hasattr(torch, name)]
INTS = [name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        if hasattr(torch, name)]
COMPLEX = ["complex64", "complex128"]
ALL = FLOATS + INTS + ["bool"] + COMPLEX
SIZES = [0, 1, 3, 31, 1000, 4099]
SHAPE = (7, 11, 13)


def sample(rng, dtype, size):
    """A torch tensor of random elements: all magnitudes of a float, the whole range of an integer."""
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.from_numpy(rng.random(size) < 0.4)
    if dtype in COMPLEX:
        return torch.from_numpy(rng.standard_normal(size) + 1j * rng.standard_normal(size)).to(kind)
    if dtype in INTS:
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, size=size, dtype=dtype, endpoint=True)
        if dtype in ("uint16", "uint32", "uint64"):
            signed = torch.from_numpy(values.view(dtype[1:]))
            return signed.view(kind)
        return torch.from_numpy(values)
    values = rng.standard_normal(size) * 10.0 ** rng.integers(-3, 2, size=size)
    return torch.from_numpy(np.asarray(values)).to(kind)


def as_numpy(tensor):
    """The same numbers in a type that NumPy has; exact."""
    dtype = str(tensor.dtype)[6:]
    if dtype in ("uint16", "uint32", "uint64"):
        return tensor.contiguous().view(getattr(torch, dtype[1:])).numpy().view(dtype)
    if dtype in FLOATS:
        return tensor.to(torch.float64).numpy()
    return tensor.numpy()


def close(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)


# ---- statistics ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ALL)
def test_statistics_are_what_numpy_says(rng, dtype, size):
    tensor = sample(rng, dtype, size)
    values = as_numpy(tensor)
    got = msprobe.stats(tensor)
    assert got.count == size
    if size == 0:
        assert math.isnan(got.max) and math.isnan(got.min) and got.norm == 0
        return
    if dtype in COMPLEX:
        wide = values.astype(np.complex128)
        assert math.isnan(got.max) and math.isnan(got.min)
        assert close(got.mean.real, math.fsum(wide.real) / size) and close(got.mean.imag, math.fsum(wide.imag) / size)
        assert close(got.norm, math.sqrt(math.fsum(np.abs(wide) ** 2)))
        return
    assert got.max == values.max() and got.min == values.min()
    assert type(got.max) is type(values.max().item())
    exact = [int(v) for v in values] if dtype in INTS else [float(v) for v in values]
    mean = sum(exact) / size if dtype in INTS else math.fsum(exact) / size
    # the sum itself is what is accurate: a mean near 0 is a difference of large numbers
    assert abs(got.mean - mean) <= 1e-13 * max(abs(v) for v in exact)
    assert close(got.norm, math.sqrt(math.fsum(float(v) ** 2 for v in exact)))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_statistics_are_what_torch_says(rng, dtype):
    tensor = sample(rng, dtype, 4099)
    got = msprobe.stats(tensor)
    wide = tensor.to(torch.float64)
    assert got.max == tensor.max().item() and got.min == tensor.min().item()
    assert math.isclose(got.mean, wide.mean().item(), rel_tol=1e-10)
    assert math.isclose(got.norm, wide.norm().item(), rel_tol=1e-12)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_bit_pattern_of_a_float_is_counted_rightly(dtype):
    kind = getattr(torch, dtype)
    width = torch.tensor([], dtype=kind).element_size()
    if width > 2:
        edges = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324 if width == 8 else 1e-45,
                 2.2250738585072014e-308 if width == 8 else 1.1754943508222875e-38]
        tensor = torch.tensor(edges, dtype=kind)
    else:
        bits = np.arange(1 << (8 * width), dtype=np.uint8 if width == 1 else np.uint16)
        integers = torch.from_numpy(bits.view(np.int8 if width == 1 else np.int16))
        tensor = integers.view(kind)
    wide = tensor.to(torch.float64).numpy()
    tiny = torch.finfo(kind).smallest_normal
    got = msprobe.stats(tensor)
    assert got.nan == np.isnan(wide).sum()
    assert got.pos_inf == np.isposinf(wide).sum() and got.neg_inf == np.isneginf(wide).sum()
    assert got.zero == (wide == 0).sum()
    assert got.subnormal == ((wide != 0) & (np.abs(wide) < tiny)).sum()
    finite = wide[np.isfinite(wide)]
    assert got.max_finite == finite.max() and got.min_finite == finite.min()
    bad = np.flatnonzero(~np.isfinite(wide))
    assert got.first_bad == (bad[0] if len(bad) else -1)
    assert math.isnan(got.max) == bool(np.isnan(wide).any())


def test_half_precision_does_not_overflow():
    got = msprobe.stats(torch.full((100000,), 60000.0, dtype=torch.float16))
    assert got.mean == 60000.0 - 60000.0 % 32 and math.isclose(got.norm, got.mean * math.sqrt(100000), rel_tol=1e-14)


def test_int64_extremes_are_exact():
    got = msprobe.stats(torch.tensor([2**63 - 1, -(2**63), 2**53 + 1]))
    assert (got.max, got.min) == (2**63 - 1, -(2**63))


# ---- layouts -------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "transposed": lambda t: t.permute(2, 0, 1),
    "stepped": lambda t: t[::2, 1::3, ::5],
    "expanded": lambda t: t[:, :1, :].expand(7, 4, 13),
    "narrow": lambda t: t[1:, 2:5, 3:],
    "offset": lambda t: t.reshape(-1)[1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "bool", "complex64"])
def test_strided_and_contiguous_give_the_same_bits(rng, dtype, layout):
    view = LAYOUTS[layout](sample(rng, dtype, 1001).reshape(SHAPE))
    other = LAYOUTS[layout](sample(rng, dtype, 1001).reshape(SHAPE))
    assert repr(msprobe.stats(view)) == repr(msprobe.stats(view.contiguous()))
    assert repr(msprobe.metrics(view, other)) == repr(msprobe.metrics(view.contiguous(), other.contiguous()))
    assert msprobe.crc32(view) == msprobe.crc32(view.contiguous())
    assert msprobe.fingerprint(view) == msprobe.fingerprint(view.contiguous())


def test_threads_do_not_change_the_bits(rng):
    a = torch.from_numpy(rng.standard_normal(3_000_001).astype(np.float32))
    b = a + 1e-3
    assert len({repr(msprobe.stats(a, threads=n)) for n in (0, 1, 2, 3, 7)}) == 1
    assert len({repr(msprobe.metrics(a, b, threads=n)) for n in (0, 1, 2, 3, 7)}) == 1


def test_conjugate_and_negative_views_are_the_numbers_they_stand_for():
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert msprobe.stats(z.conj()).mean == (2 + 1j)
    assert msprobe.stats(z.conj().imag).max == 4.0


def test_numpy_arrays_with_any_strides(rng):
    a = rng.standard_normal((5, 6))
    for view in (a, a.T, a[::-1], a[:, ::-2], a[1:4, 2]):
        assert repr(msprobe.stats(view)) == repr(msprobe.stats(np.ascontiguousarray(view)))
    assert msprobe.stats(np.frombuffer(b"\x00\x01\x02", np.uint8)).max == 2
    assert msprobe.stats(np.array([1 + 1j], np.complex64)).norm == pytest.approx(math.sqrt(2))
    assert msprobe.stats(np.arange(3, dtype=">u1")).max == 2
    with pytest.raises(TypeError, match="format"):
        msprobe.stats(np.arange(3, dtype=">i4"))
    with pytest.raises(TypeError, match="format"):
        msprobe.stats(np.array(["text"]))


# ---- metrics -------------------------------------------------------------------------------------------------------

def working_type(dtype):
    """The type in which relative errors are computed."""
    if dtype not in FLOATS:
        return np.float64
    return {"float16": np.float16, "float64": np.float64}.get(dtype, np.float32)


def relative_errors(n, b, work):
    """|(n - b) / b| as metrics.h defines it, n and b being float64 arrays of finite numbers."""
    eps = np.finfo(np.float64).eps
    with np.errstate(all="ignore"):
        wide = np.abs((n - b) / b)
        narrow = np.abs((n.astype(work) - b.astype(work)) / b.astype(work)).astype(np.float64)
        r = np.where(np.isinf(narrow), wide, narrow)
        at_zero = work if work is not np.float16 else np.float32
        n0, b0 = (n.astype(at_zero) + at_zero(eps)), (b.astype(at_zero) + at_zero(eps))
        zero = np.abs((n0 - b0) / b0).astype(np.float64)
    return np.where(b == 0, zero, r)


@pytest.mark.parametrize("size", [1, 31, 4099])
@pytest.mark.parametrize("dtype", FLOATS + ["int8", "int32", "uint8", "bool"])
def test_metrics_are_what_numpy_says(rng, dtype, size):
    first, second = sample(rng, dtype, size), sample(rng, dtype, size)
    if dtype in FLOATS and size > 2:  # most elements near each other, some exactly equal, some references zero
        mixed = first.to(torch.float64) * torch.from_numpy(1 + 0.01 * rng.standard_normal(size))
        second = mixed.to(first.dtype)
        second[::5] = first[::5]
        second[3::50] = 0
    n, b = as_numpy(first).astype(np.float64), as_numpy(second).astype(np.float64)
    got = msprobe.metrics(first, second)
    d = n - b
    sums = 2**-20 if dtype in ("float16", "bfloat16") and size > 4096 else 1e-12  # metrics.h: many are added in float32
    assert got.count == size and got.mismatches == 0 and got.first_mismatch == -1
    norms = math.sqrt(math.fsum(n * n)) * math.sqrt(math.fsum(b * b))
    if norms > 1e-15:
        assert math.isclose(got.cosine, math.fsum(n * b) / norms, rel_tol=sums, abs_tol=1e-15)
    assert math.isclose(got.euc_dist, math.sqrt(math.fsum(d * d)), rel_tol=sums)
    assert math.isclose(got.rmse, math.sqrt(math.fsum(d * d) / size), rel_tol=sums)
    assert got.max_abs_err == np.abs(d).max() and got.max_abs_index == np.abs(d).argmax()
    work = working_type(dtype)
    r = relative_errors(n, b, work)
    assert close(got.max_rel_err, r.max()) and r[got.max_rel_index] == r.max()
    assert got.below_1e3 == (r < float(work(0.001))).sum() and got.below_5e3 == (r < float(work(0.005))).sum()
    some = b != 0
    assert got.mape_count == some.sum()
    if some.any():
        precision = 1e-12 if work is np.float64 or size <= 256 else 2**-24
        mean = math.fsum(np.abs(d[some]) / np.abs(b[some])) / some.sum()
        assert math.isclose(got.mape, mean, rel_tol=max(precision, sums))
    else:
        assert math.isnan(got.mape)


def test_complex_metrics_are_about_moduli(rng):
    n = rng.standard_normal(100) + 1j * rng.standard_normal(100)
    b = rng.standard_normal(100) + 1j * rng.standard_normal(100)
    got = msprobe.metrics(torch.from_numpy(n), torch.from_numpy(b))
    assert got.max_abs_err == pytest.approx(np.abs(n - b).max(), rel=1e-14)
    assert got.cosine == pytest.approx(np.vdot(b, n).real / np.linalg.norm(n) / np.linalg.norm(b), rel=1e-13)


def test_64_bit_integers_are_subtracted_exactly():
    n, b = torch.tensor([2**62 + 1]), torch.tensor([2**62])
    assert msprobe.metrics(n, b).max_abs_err == 1.0


def test_nan_and_inf_are_told_apart():
    nan, inf = math.nan, math.inf
    n = torch.tensor([nan, nan, inf, inf, -inf, 1.0, 2.0])
    b = torch.tensor([nan, 1.0, inf, -inf, 0.0, 1.0, nan])
    got = msprobe.metrics(n, b)
    assert got.mismatches == 3 and got.first_mismatch == 1
    assert got.inf_sign == 1
    assert got.max_abs_err == 0


def test_types_may_differ_and_shapes_may_not(rng):
    a = torch.from_numpy(rng.standard_normal(100))
    assert msprobe.metrics(a.to(torch.bfloat16), a).max_rel_err < 2**-8
    with pytest.raises(ValueError, match="shape"):
        msprobe.metrics(a, a.reshape(10, 10))


# ---- checksums -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ALL)
def test_crc32_is_zlibs(rng, dtype):
    tensor = sample(rng, dtype, 1003)
    raw = tensor.view(torch.uint8).numpy().tobytes() if dtype != "bool" else tensor.numpy().tobytes()
    assert msprobe.crc32(tensor) == zlib.crc32(raw)


def test_fingerprints_tell_type_shape_and_order_apart():
    zeros = torch.zeros(6)
    prints = [
        msprobe.fingerprint(zeros),
        msprobe.fingerprint(zeros.reshape(2, 3)),
        msprobe.fingerprint(zeros.reshape(3, 2)),
        msprobe.fingerprint(zeros.to(torch.int32)),
        msprobe.fingerprint(zeros.to(torch.float64)),
        msprobe.fingerprint(torch.arange(6)),
        msprobe.fingerprint(torch.arange(6).flip(0)),
        msprobe.fingerprint(torch.zeros(0)),
    ]
    assert len(set(prints)) == len(prints)
    assert all(len(p) == 32 and int(p, 16) >= 0 for p in prints)
    assert msprobe.fingerprint(zeros.numpy()) == prints[0]


# ---- what cannot be read -------------------------------------------------------------------------------------------

def test_objects_without_elements_are_refused():
    with pytest.raises(TypeError, match="got list"):
        msprobe.stats([1, 2, 3])
    with pytest.raises(TypeError, match="takes 1 tensor"):
        msprobe.stats()
    with pytest.raises(TypeError, match="takes 2 tensors"):
        msprobe.metrics(torch.ones(1))
    with pytest.raises(ValueError, match="threads"):
        msprobe.stats(torch.ones(1), threads=-1)


def test_tensors_without_memory_are_refused():
    for tensor in (torch.ones(3, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(ValueError, match="no memory that can be read"):
            msprobe.stats(tensor)


def test_what_an_object_raises_when_it_is_asked_whether_it_is_a_tensor_is_raised():
    class Stopped(Exception):
        pass

    class Gone:
        @property
        def data_ptr(self):
            raise Stopped("data_ptr")

    class Kind(type):
        def __getattr__(cls, name):
            raise Stopped(name)

    class Odd(metaclass=Kind):
        pass

    for odd in (Gone(), Odd()):
        with pytest.raises(Stopped):
            msprobe.stats(odd)


def test_what_a_reason_raises_when_it_is_made_into_text_is_raised():
    class Reason(RuntimeError):
        def __str__(self):
            raise KeyboardInterrupt

    class Gone:
        dtype, shape, is_cpu = torch.float32, (1,), True

        def stride(self):
            return (1,)

        def data_ptr(self):
            raise Reason

    with pytest.raises(KeyboardInterrupt):
        msprobe.stats(Gone())


def test_gradients_and_parameters_are_no_hindrance():
    assert msprobe.stats(torch.nn.Parameter(torch.ones(3))).count == 3
    assert msprobe.stats(torch.ones(3, requires_grad=True) * 2).max == 2.0
