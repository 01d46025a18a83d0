"""free_benchmark: what the original finds is found, what it finds wrongly is not; other devices; preheating and gradients on real programs."""
import sys

import numpy
import pytest
from collecting import R, bare, in_process, torch, write_config
from original_programs import PROGRAMS
from test_collect_unchanged import loaded_once  # noqa: F401 (a fixture)
from test_free_benchmark import checked, found, rows

import npu  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msprobe import _core  # noqa: E402
from msprobe.pytorch.free_benchmark import away  # noqa: E402

# names that mindstudio-probe 8.3.3 writes for this program (tests of its own made for it, recorded in a process group of one), in every one of three steps
ORIGINAL = {
    "bit_noise": {"Torch.sin.0", "Torch.matmul.1", "Torch.matmul.2", "Torch.exp.1", "Torch.cumsum.0", "Tensor.float.0", "Tensor.float.1"},
    "change_value": {"Torch.matmul.0", "Torch.softmax.0", "Torch.mul.0", "Torch.sub.0", "Torch.mul.1", "Torch.floor.0", "Torch.mul.2", "Torch.sin.0",
                     "Torch.sort.0", "Tensor.to.0", "Tensor.to.1", "Torch.matmul.1", "Tensor.to.2", "Tensor.to.3", "Torch.matmul.2", "Torch.exp.1",
                     "Torch.cumsum.0", "Torch.cat.0", "Functional.layer_norm.0", "Tensor.pow.0", "Tensor.float.0", "Tensor.float.1"},
}


def multiplies_half():
    try:
        return torch.matmul(torch.ones(2, 2, dtype=torch.float16), torch.ones(2, 2, dtype=torch.float16)).dtype == torch.float16
    except RuntimeError:  # an older torch does not on the CPU
        return False


HALF = multiplies_half()
if not HALF:  # without what the program below does in float16
    ORIGINAL = {mode: names - {"Tensor.to.2", "Tensor.to.3", "Torch.matmul.2", "Torch.cumsum.0", "Tensor.float.1"} for mode, names in ORIGINAL.items()}


def perturbed(d):
    """Stable and unstable APIs in float32, float16 and bfloat16, forward and backward."""
    for s in range(3):
        x, w = R(6, 8, seed=s, grad=True), R(8, 8, seed=s + 1, grad=True)
        d.start()
        h = torch.matmul(x, w)
        a = torch.softmax(h, dim=-1)
        torch.exp(torch.mul(h, 8))
        torch.div(torch.ones(6, 8), torch.sub(h, torch.round(h)))
        e = torch.sort(h, dim=-1)[0]
        torch.floor(torch.mul(h, 1e6))
        torch.sin(torch.mul(h, 1e5))
        hb = torch.matmul(x.to(torch.bfloat16), w.to(torch.bfloat16))
        hh = torch.matmul(x.to(torch.float16), w.to(torch.float16)) if HALF else None
        k, q, u = torch.exp(hb), torch.cumsum(hh, 0) if HALF else None, F.relu(h, inplace=False)
        v, n, t = torch.cat([h, a], dim=0), F.layer_norm(h, (8,)), torch.topk(h, 3)
        loss = a.sum() + u.sum() + n.pow(2).sum() + e.sum() + k.float().sum() + (q.float().sum() if HALF else 0) + t.values.sum() + v.sum()
        loss.backward()
        d.stop()
        d.step()


def names(result, step):
    return {name.rpartition(".")[0] for name in found(result, step)}


@pytest.mark.parametrize("mode", ORIGINAL)
def test_what_the_original_finds_is_found(tmp_path, mode):
    result = checked(tmp_path, perturbed, mode)
    for step in range(3):
        assert ORIGINAL[mode] <= names(result, step), step
    if mode == "bit_noise":  # and hardly more: only where a second input that is perturbed too adds up
        assert all(names(result, step) - ORIGINAL[mode] <= {"Torch.sub.0", "Torch.div.0", "Torch.exp.0", "Torch.matmul.0"} for step in range(3))


def test_gradients_that_the_original_takes_for_wrong_are_right(tmp_path):
    """Its softmax, layer_norm and matmul.0 differ by factors of 4000 or in sign, also with no_change: it compares sums of several users' gradients."""
    options = dict(fuzz_stage="backward", list=["softmax", "matmul", "layer_norm", "sort"])
    noisy = checked(tmp_path, perturbed, "bit_noise", **options)
    for step in range(3):
        assert {"Torch.matmul.1", *(["Torch.matmul.2"] if HALF else [])} <= names(noisy, step) and not names(noisy, step) & {"Torch.softmax.0", "Functional.layer_norm.0", "Torch.sort.0"}
    assert all(rows(checked(tmp_path, perturbed, "no_change", **options), step) == [] for step in range(3))


def test_a_preheated_run_finds_what_the_original_does(tmp_path):
    result = checked(tmp_path, perturbed, "bit_noise", if_preheat=True, preheat_step=2, max_sample=5)
    assert found(result, 0) == [] and all(names(result, step) == {"Torch.sin.0"} for step in (1, 2))


# ---- the rules, against NumPy and torch -----------------------------------------------------------------------------------------------------

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def samples(dtype):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4000, generator=generator, dtype=torch.float64) * 10.0 ** torch.randint(-12, 5, (4000,), generator=generator)
    return torch.cat([x, torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 65504.0, -65504.0])]).to(dtype)


@pytest.mark.parametrize("salt", (0, 1, 7))
@pytest.mark.parametrize("mode", ("add_noise", "bit_noise", "one_ulp", "change_value"))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_perturbing_in_c_and_by_torchs_own_operators_is_the_same(dtype, mode, salt):
    ours, theirs = samples(dtype), samples(dtype)
    changed = _core.perturb(ours, mode, salt)
    count = away.perturb_there(theirs, mode, salt)
    same = (ours.view(torch.uint8).reshape(-1, ours.element_size()) == theirs.view(torch.uint8).reshape(-1, ours.element_size())).all(1)
    if mode == "add_noise" and dtype == torch.bfloat16:  # two units where the constant is 1.6 of them: torch rounds the sum, which may be one more or less
        same |= (ours.double() - theirs.double()).abs() <= ours.double().abs() * 2.0 ** -7
    assert same.all(), (ours[~same], theirs[~same], samples(dtype)[~same])
    assert changed == count or dtype == torch.bfloat16


@pytest.mark.parametrize("backward", (False, True))
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_ratio_is_numpys(dtype, backward):
    a = samples(dtype)[:4001]
    b = a.clone()
    _core.perturb(b, "add_noise", 3)
    ratio, flips, index = _core.benchmark_compare(a, b, backward)
    floor = _core.benchmark_floor(str(dtype), backward)
    x, y = (numpy.maximum(numpy.abs(t.double().numpy()), floor) for t in (a, b))
    expected = numpy.maximum(x / y, y / x)
    assert ratio == pytest.approx(expected.max(), rel=1e-15) and not flips and expected[index] == pytest.approx(ratio, rel=1e-15)
    if dtype is not torch.float64:
        assert away.compare_there(a, b, backward)[0] == pytest.approx(ratio, rel=1e-6)


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="this torch has no float8")
def test_float8_is_moved_and_compared():
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.linspace(-3, 3, 64).to(dtype)
        y = x.clone()
        assert _core.perturb(y, "add_noise") == int((x.float().abs() > 0.01).sum())
        assert (y.float() > x.float())[x.float().abs() > 0.01].all() and 1.05 < _core.benchmark_compare(x, y)[0] < 2.1


def test_views_expanded_and_conjugated_tensors_are_perturbed_in_copies_of_their_own(tmp_path):
    def body(d):
        base = R(4, 6)
        kept = base.clone()
        d.start()
        torch.sin(base.t()[::2] * 1e5)
        torch.sin(base[:1].expand(5, 6) * 1e5)
        torch.abs(torch.view_as_complex(base.view(4, 3, 2)).conj())
        torch.add(base, base)
        d.stop()
        d.step()
        return torch.equal(base, kept)

    result = checked(tmp_path, body, "bit_noise")
    assert result.value and {"Torch.sin.0", "Torch.sin.1"} <= names(result, 0) and "not checked" not in result.output


# ---- another device -------------------------------------------------------------------------------------------------------------------------


def on_device(folder, body, mode, **more):
    def run():
        npu.set_up()
        from msprobe.pytorch import PrecisionDebugger

        return body(PrecisionDebugger(path))

    path = write_config(folder, task="free_benchmark", part=dict({"pert_mode": mode, "fuzz_device": "cpu" if mode == "to_cpu" else "npu"}, **more))
    status, output, value = in_process(folder, run)
    assert status == 0, output
    return output, value, folder / "dump" / "step0" / "rank" / "free_benchmark.csv"


@npu.needed
@pytest.mark.parametrize("mode", ("add_noise", "bit_noise", "no_change", "improve_precision"))
def test_tensors_on_a_device_are_changed_and_compared_there(tmp_path, mode):
    def body(d):
        x, y = torch.linspace(0.5, 2, 40).to("npu"), torch.linspace(0.5, 2, 40).to(torch.bfloat16).to("npu")
        before = x.cpu()
        d.start()
        torch.sin(torch.mul(x, 1e6))
        torch.exp(torch.mul(y, 20))
        torch.relu(x)
        d.stop()
        d.step()
        return torch.equal(x.cpu(), before)

    output, same, path = on_device(tmp_path, body, mode)
    assert same and "not checked" not in output and "calls checked" in output
    text = path.read_text() if path.exists() else ""
    assert ("Torch.sin.0.forward" in text) == (mode in ("add_noise", "bit_noise")) and "Torch.relu" not in text
    assert ("Torch.exp.0.forward" in text) == (mode in ("add_noise", "bit_noise"))  # a result that float32 rounds to is right


@npu.needed
def test_the_cpu_is_the_standard_for_a_device(tmp_path):
    def body(d):
        x = torch.linspace(0.5, 2, 40).to("npu")
        d.start()
        torch.exp(x)
        d.stop()
        d.step()

    output, _, path = on_device(tmp_path, body, "to_cpu")
    assert "1 call checked with to_cpu, none differs" in output


# ---- odd programs ---------------------------------------------------------------------------------------------------------------------------


class Watching:
    """start() and end() around a program's step, and the bits of everything that it then has."""

    def __init__(self, debugger):
        self.debugger, self.seen = debugger, []

    def start(self, model=None):
        self.debugger.start(model=model)

    def end(self):
        self.debugger.stop()
        self.debugger.step()
        for name, value in sorted(sys._getframe(1).f_locals.items()):
            tensors = list(value.parameters()) if isinstance(value, torch.nn.Module) else [value] if isinstance(value, torch.Tensor) else []
            self.seen += [(name, bits(t), bits(t.grad) if t.is_leaf else None) for t in tensors]
        self.seen.append(bits(torch.get_rng_state()))


def bits(t):
    return None if t is None else t.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()


def watched(name, debugger):
    torch.manual_seed(3)
    watching = Watching(debugger)
    PROGRAMS[name](watching)
    return watching.seen


@pytest.mark.parametrize("mode", ("no_change", "add_noise", "backward"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_odd_programs_end_as_without_us_and_repeat_exactly(tmp_path, name, mode):
    more = dict(mode="no_change", fuzz_stage="backward", list=["."]) if mode == "backward" else dict(mode=mode)
    result = checked(tmp_path, lambda d: watched(name, d), **more)
    assert result.value == bare(tmp_path, lambda d: watched(name, d)) and len(result.value) > 1
    assert "failed" not in result.output and (mode == "add_noise" or rows(result) == [])
