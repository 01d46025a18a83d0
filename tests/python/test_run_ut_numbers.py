"""Every number of run_ut's details, beside NumPy's, by the definitions of the standards."""
import csv
import io
import math

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
_core = pytest.importorskip("msprobe._core")

COLUMNS = ["cosine", "max abs", "1 %", "0.1 %", "0.01 %", "binary", "balance", "rmse", "small", "max rel", "mean rel", "inf/nan", "relative", "absolute",
           "ulp max", "ulp mean", "ulp share"]
TYPES = {"float16": (torch.float16, torch.float32), "bfloat16": (torch.bfloat16, torch.float32), "float32": (torch.float32, torch.float64)}
SMALL = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -10, "float32": 2.0 ** -20}
ATOL = {"float16": 2.0 ** -16, "bfloat16": 2.0 ** -16, "float32": 2.0 ** -30}
SMALL_ATOL = {"float16": 1e-16, "bfloat16": 1e-16, "float32": 2.0 ** -30}
RTOL = {"float16": 2.0 ** -10, "bfloat16": 2.0 ** -8, "float32": 2.0 ** -20}
MANTISSA = {"float16": (10, -14, 1), "bfloat16": (7, -126, 1), "float32": (23, -126, 32)}


def share(part, whole):
    return part / whole if whole else 0.0


def expected(standard, kind, device, bench):
    """The columns that a standard has, as NumPy computes them; without the ones that the verdict adds."""
    d, b = (t.double().numpy().reshape(-1) for t in (device, bench))
    as_device = bench.to(TYPES[kind][0]).double().numpy().reshape(-1)
    eps = torch.finfo(bench.dtype).eps
    error = np.abs(d - b)
    relative = error / (np.abs(b) + eps)
    finite = np.isfinite(d) & np.isfinite(b) & np.isfinite(as_device)
    small = finite & (np.abs(b) <= SMALL[kind])
    normal = finite & ~small
    n = d.size
    if standard == "binary":
        return {"binary": share(np.sum((d != b) & ~(np.isnan(d) & np.isnan(b))), n)}
    if standard == "absolute":
        most = torch.finfo(TYPES[kind][0]).max
        dc, bc = (np.clip(v, -most, most) for v in (d, b))
        differs = np.where(np.isnan(dc) | np.isnan(bc), np.isnan(dc) != np.isnan(bc), np.abs(dc - bc) / (np.abs(bc) + eps) > RTOL[kind])
        return {"inf/nan": share(np.sum(differs & ~finite), np.sum(~finite)), "relative": share(np.sum(normal & (relative > RTOL[kind])), np.sum(normal)),
                "absolute": share(np.sum(small & (error > ATOL[kind])), np.sum(small))}
    if standard == "ulp":
        m, least, limit = MANTISSA[kind]
        d, b = d[finite], b[finite]
        with np.errstate(divide="ignore"):
            exponent = np.where(b == 0, 0, np.floor(np.log2(np.abs(b))))
        e = np.abs(d - b) * 2.0 ** (m - np.maximum(exponent, least))
        return {"ulp max": e.max(initial=0), "ulp mean": e.mean() if e.size else 0.0, "ulp share": share(np.sum(e > limit), e.size)}
    if standard == "thousandth":
        return {"0.1 %": share(np.sum((relative < 0.001) | (d == b) | (np.isnan(d) & np.isnan(b))), n)}
    masked = np.where(normal, error, 0.0)
    k = n - np.sum(normal)
    return {"balance": abs(np.sum(d > b) - np.sum(d < b)) / n, "rmse": math.sqrt(np.mean(masked ** 2) * (n / (n - k + 0.0001) + 0.0001)),
            "small": share(np.sum(small & (error > SMALL_ATOL[kind])), np.sum(small)), "max rel": relative[normal].max(initial=0.0),
            "mean rel": relative[normal].mean() if normal.any() else 0.0}


def verdict(kind, device, bench):
    """(status, columns) by cosine, largest error and shares."""
    d, b = (t.double().numpy().reshape(-1) for t in (device, bench))
    as_device = bench.to(TYPES[kind][0]).double().numpy().reshape(-1)
    finite = np.isfinite(d) & np.isfinite(b) & np.isfinite(as_device)
    same = (np.isnan(d) & np.isnan(b)) | (np.isinf(d) & (d == as_device))
    found = {}
    if np.any(~finite & ~same):
        return "error", found
    low = 2.0 ** -23 if kind == "float16" else 2.0 ** -52
    d_most, b_most = (np.abs(v[np.isfinite(v)]).max(initial=0) for v in (d, b))
    if d.size > 1 and not (d_most <= low and b_most <= low):
        both = np.isfinite(d) & np.isfinite(b)
        x, y = d[both], b[both]
        found["cosine"] = min(1.0, np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y)) if d_most and b_most else 0.0
        if not found["cosine"] > 0.99:
            return "error", found
    found["max abs"] = np.abs(d - b)[finite].max(initial=0)
    if found["max abs"] < 0.001:
        return "pass", found
    relative = np.abs(d - b) / (np.abs(b) + torch.finfo(bench.dtype).eps)

    def within(bound):
        return share(np.sum((relative < bound) | (d == b) | (np.isnan(d) & np.isnan(b))), d.size)
    if kind != "float32":
        found["1 %"] = within(0.01)
        if not found["1 %"] > 0.99:
            return "error", found
        found["0.1 %"] = within(0.001)
        return "pass" if found["0.1 %"] > 0.999 else "Warning", found
    found["0.1 %"] = within(0.001)
    if not found["0.1 %"] > 0.999:
        return "error", found
    found["0.01 %"] = within(0.0001)
    return "pass" if found["0.01 %"] > 0.9999 else "Warning", found


def measured(api, device, bench):
    _, line = _core.precheck_output("Torch.%s.0.forward.output.0" % api, api, device.contiguous(), bench.contiguous())
    (row,) = csv.reader(io.StringIO(line.decode(), newline=""))
    cells = dict(zip(COLUMNS, row[4:21]))
    return row[21], {k: float(v) for k, v in cells.items() if v != " "}


def inputs(kind, seed):
    """Pairs of a result and its benchmark that come to every branch."""
    narrow, wide = TYPES[kind]
    g = torch.Generator().manual_seed(seed)
    exact = torch.randn(400, generator=g, dtype=torch.float64)
    tiny, info = exact * SMALL[kind], torch.finfo(narrow)
    yield exact.to(narrow), exact.to(wide)
    yield (exact * 100).to(narrow), (exact * 100).to(wide)
    yield (exact * 100 * (1 + 2e-4 * torch.randn(400, generator=g))).to(narrow), (exact * 100).to(wide)
    yield (exact * 100 * (1 + 5e-3 * torch.rand(400, generator=g))).to(narrow), (exact * 100).to(wide)
    yield (exact * 100).round().to(narrow), (exact * 100).to(wide)
    yield tiny.to(narrow), tiny.to(wide)
    yield (tiny * 1.5).to(narrow), tiny.to(wide)
    yield torch.zeros(5, dtype=narrow), torch.zeros(5, dtype=wide)
    yield torch.zeros(5, dtype=narrow), torch.ones(5, dtype=wide)
    yield torch.tensor(2.5, dtype=narrow), torch.tensor(2.50001, dtype=wide)
    edge = torch.tensor([info.max, -info.max, info.tiny, 0.0, -0.0, 1.0, SMALL[kind], float("inf"), float("-inf"), float("nan")], dtype=torch.float64)
    yield edge.to(narrow), edge.to(wide)
    shifted = edge.clone()
    shifted[-1] = 1.0
    yield shifted.to(narrow), edge.to(wide)
    last = 2.0 ** (math.floor(math.log2(info.max)) - MANTISSA[kind][0])  # a unit in the last place of the largest number
    beyond = torch.tensor([info.max + 0.4 * last, 3.0, -info.max - 0.4 * last], dtype=torch.float64)
    yield beyond.to(narrow), beyond.to(wide)  # rounds to the largest number
    beyond = torch.tensor([info.max + 0.6 * last, 3.0, -info.max - 0.6 * last], dtype=torch.float64)
    yield beyond.to(narrow), beyond.to(wide)  # rounds to infinity


@pytest.mark.parametrize("api, standard", [("mul", "absolute"), ("abs", "binary"), ("matmul", "ulp"), ("conv2d", "thousandth"), ("softmax", "benchmark")])
@pytest.mark.parametrize("kind", TYPES)
def test_each_number_is_numpys(api, standard, kind):
    statuses = set()
    for i, (device, bench) in enumerate(x for seed in range(3) for x in inputs(kind, seed)):
        with np.errstate(all="ignore"):
            want, (status, more) = expected(standard, kind, device, bench), verdict(kind, device, bench)
        found_status, found = measured(api, device, bench)
        want.update(more)
        if status == "error" and "cosine" not in more:  # told in its column whatever the standard
            found.pop("inf/nan"), want.pop("inf/nan", None)
        assert found_status == status, (i, found, want)
        assert found.keys() == want.keys(), (i, found, want)
        for k, v in want.items():
            assert found[k] == pytest.approx(float(v), rel=1e-9, abs=2e-14), (i, k)
        statuses.add(status)
    assert statuses >= {"pass", "error"}


def test_what_rounds_to_the_largest_number_is_right():
    device, bench = torch.tensor([65504.0, 1.0], dtype=torch.float16), torch.tensor([65519.0, 1.0])
    assert measured("add", device, bench)[0] == "pass"
    assert measured("add", torch.tensor([float("inf"), 1.0], dtype=torch.float16), torch.tensor([65520.0, 1.0]))[0] == "pass"
    assert measured("add", device, torch.tensor([65536.0, 1.0]))[0] == "error"
