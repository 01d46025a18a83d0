"""What healthy devices and odd dumps do must not be taken for a fault: mixed precision, masks, poles, slices, modules, filters."""
import json
import os
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

# Each model is a few lines; each device changes what some kernels give. Every run starts from the same seed.
PROGRAM = '''
import json, os, sys, torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from msprobe.pytorch import PrecisionDebugger
for out, which, device, config in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        break
    assert os.waitpid(child, 0)[1] == 0
else:
    sys.exit()
torch.set_num_threads(1)
torch.manual_seed(5)
A = torch.ops.aten

def raised(func, args, kwargs):
    up = lambda a: A._to_copy.default(a, dtype=torch.float64) if isinstance(a, torch.Tensor) and a.is_floating_point() else a
    return func(*[up(a) for a in args], **kwargs)

def like(r, good):
    if isinstance(good, tuple):
        return tuple(like(a, b) for a, b in zip(r, good))
    return A._to_copy.default(r, dtype=good.dtype) if isinstance(good, torch.Tensor) else good

def coarse(t):
    i = A.view.dtype(A.clone.default(t, memory_format=torch.contiguous_format), torch.int32)
    return A.view.dtype(A.bitwise_and.Scalar(A.add.Tensor(i, 1 << 12), -(1 << 13)), torch.float32)

class Device(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, kwargs = func.name(), kwargs or {}
        if device == "tf32" and name in ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"):
            args = tuple(coarse(a) if isinstance(a, torch.Tensor) and a.dim() > 1 and a.dtype == torch.float32 else a for a in args)
        if device == "conjugate" and name == "aten::mul.Tensor" and args[0].is_complex():
            args = (args[0], A._conj_physical.default(args[1]))
        if device == "cut" and name == "aten::_to_copy" and kwargs.get("dtype") == torch.bfloat16 and args[0].dtype == torch.float32:
            i = A.view.dtype(A.clone.default(args[0], memory_format=torch.contiguous_format), torch.int32)
            args = (A.view.dtype(A.bitwise_and.Scalar(i, -(1 << 16)), torch.float32),)
        good = func(*args, **kwargs)
        if device == "fused" and name == "aten::_softmax_backward_data":
            p = A.mul.Tensor(args[0], args[1])
            good = A.sub.Tensor(p, A.mul.Tensor(args[1], A.sum.dim_IntList(p, [args[2]], True)))
        if device == "one pass" and name == "aten::native_layer_norm":
            m, q = A.mean.dim(args[0], [1], True), A.mean.dim(A.mul.Tensor(args[0], args[0]), [1], True)
            r = A.rsqrt.default(A.add.Tensor(A.sub.Tensor(q, A.mul.Tensor(m, m)), args[4]))
            good = (A.mul.Tensor(A.sub.Tensor(args[0], m), r), m, r)
        if device == "exact" and name in ("aten::native_layer_norm_backward", "aten::convolution_backward"):
            return like(raised(func, args, kwargs), good)
        if device == "rough" and name in ("aten::exp", "aten::sub.Tensor"):
            return A.mul.Tensor(good, 1 + 5e-7)
        if device == "flush" and name == "aten::add.Tensor":
            return A.where.self(A.lt.Scalar(A.abs.default(good), 2.0 ** -126), A.zeros_like.default(good), good)
        if device == "mask" and name == "aten::masked_fill.Scalar":
            good = A.clone.default(good)
            A.mul_.Scalar(A.select.int(A.select.int(good, 0, 1), 0, 0), 1.5)
        if device == "scaled" and name == "aten::tanh":
            good = A.mul.Tensor(good, 1.25)
        return good

class Attend(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.o = (torch.nn.Linear(16, 16) for _ in range(3))
    def forward(self, x):
        s = torch.matmul(self.q(x), self.k(x).transpose(0, 1))
        s = s.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), float("-inf"))
        return torch.tanh(self.o(torch.matmul(F.softmax(s, -1), x)))

model = torch.nn.Sequential(Attend(), Attend(), Attend(), torch.nn.Linear(16, 8))
x = torch.randn(12, 16)

def attend():
    model(x).pow(2).mean().backward()

low = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
many = torch.randn(40, 32)

def mixed():
    with torch.autocast("cpu", torch.bfloat16):
        y = low(many)
    y.float().pow(2).mean().backward()

def part():
    y = F.linear(F.linear(x, low[0].weight[:16, :16]), low[2].weight[:16, :16])
    (x[:, 0] - y[:, 0]).abs().mean().backward()

def poles():
    y = torch.exp(torch.linspace(-3, 1, 64)).requires_grad_()
    a = torch.exp(-y)
    b = torch.sqrt(1.0 - a)
    c = torch.log((y - 0.04978).abs() + 1e-6)
    (b.sum() + c.mean() + torch.sin(torch.exp(y * 3) * 100).sum()).backward()

def sure():
    """Of a softmax nearly all is one element, whose gradient is what is left of two equal numbers."""
    a = torch.randn(40, 16)
    a[:, 3] += 12
    a.requires_grad_()
    (F.softmax(a, -1) * torch.randn(40, 16)).sum().backward()

def turn():
    a = torch.view_as_complex(torch.randn(12, 8, 2).requires_grad_() * 2)
    z = a * torch.polar(torch.ones(8), torch.arange(8.0))
    torch.view_as_real(z).pow(2).sum().backward()

def far(deviations):
    """Data whose mean is so many deviations."""
    F.layer_norm((torch.randn(12, 64) + deviations).requires_grad_(), (64,)).pow(3).sum().backward()

def near():
    far(12)

def lost():
    far(1000)

def tiny():
    a = (torch.randn(64) * 1e-39).requires_grad_()
    (a + torch.ones(64) * 1e-39).sum().backward()

def batched():
    a, b = torch.randn(3, 8, 16, requires_grad=True), torch.randn(3, 16, 16, requires_grad=True)
    y = torch.baddbmm(torch.zeros(3, 1, 16), a, b)
    for _ in range(3):
        y = torch.bmm(y, b)
    y.pow(2).sum().backward()

config.update(level=config.get("level", "L1"), dump_path=out)
config.setdefault("task", "tensor")
json.dump(config, open(out + "/c.json", "w"))
d = PrecisionDebugger(out + "/c.json")
d.start(model) if config["level"] != "L1" else d.start()
with Device():
    globals()[which]()
d.stop(); d.step()
'''


TENSOR, STATISTICS = {"task": "tensor"}, {"task": "statistics"}
HEALTHY = [("mixed", "exact"), ("attend", "tf32"), ("part", "tf32"), ("poles", "rough"), ("batched", "tf32"), ("sure", "fused"), ("near", "one pass")]
L0, MIX = {"level": "L0"}, {"level": "mix"}
LISTED, GRADIENTS = {"tensor": {"list": ["tanh"]}}, {"tensor": {"data_mode": ["backward"]}}
RUNS = ([(m, d, t) for m, d in HEALTHY for t in (TENSOR, STATISTICS)] + [("tiny", "flush", TENSOR), ("attend", "mask", TENSOR), ("attend", "scaled", MIX), ("turn", "conjugate", TENSOR), ("mixed", "cut", TENSOR),
           ("lost", "one pass", TENSOR), ("lost", "one pass", STATISTICS)]
        + [("attend", "tf32", c) for c in (L0, MIX, LISTED, GRADIENTS)])


def makes_mixed():
    """Whether this torch takes a norm of bfloat16 with weights of float32, as autocast makes it."""
    try:
        torch.nn.LayerNorm(4)(torch.ones(2, 4, dtype=torch.bfloat16))
    except RuntimeError:
        return False
    return True


RUNS = [run for run in RUNS if run[0] != "mixed" or makes_mixed()]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """All runs, on their devices and on the plain one, by one process that has loaded torch once."""
    base, jobs = tmp_path_factory.mktemp("runs"), {}
    for model, device, config in RUNS:
        for d in (device, "plain"):
            out = base / str(len(jobs))
            jobs.setdefault((model, d, json.dumps(config)), (str(out), model, d, config))
            out.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", PROGRAM], input=json.dumps(list(jobs.values())), text=True, check=True, cwd=base)
    return {key: os.path.join(job[0], "step0", "rank") for key, job in jobs.items()}


@pytest.fixture
def judge(dumps, tmp_path):
    msprobe = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])

    def run(model, device, config, *options):
        if model == "mixed" and not makes_mixed():
            pytest.skip("this torch has no norm of mixed types")
        pair = [dumps[model, d, json.dumps(config)] for d in (device, "plain")]
        done = subprocess.run([msprobe, "compare", *pair, "-o", str(tmp_path / "out"), "--json", "-q", "--no-html", "--format", "csv", *options],
                              capture_output=True, text=True, env={**os.environ, "MSPROBE_PYTHON": sys.executable, "MSPROBE_NO_REPLAY": "0"})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["pairs"][0]["verdict"]
    return run


WAYS = {"replay": (TENSOR,), "tensors": (TENSOR, "--no-replay"), "statistics": (STATISTICS,)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model,device", HEALTHY)
def test_a_healthy_device_is_no_alarm(judge, model, device, way):
    v = judge(model, device, *WAYS[way])
    assert v["kind"] == "within rounding" and v["suspects"] == [], v["sentence"]


def test_a_device_that_flushes_subnormal_numbers_still_rounds_as_it_must(judge):
    v = judge("tiny", "flush", TENSOR)
    assert v["kind"] == "within rounding" and v["suspects"] == [], v["sentence"]


@pytest.mark.parametrize("way", ["replay", "tensors"])
def test_a_complex_product_that_is_wrong_is_named(judge, way):
    v = judge("turn", "conjugate", *WAYS[way])
    assert [s["api"] for s in v["suspects"]][:1] == ["Tensor.__mul__.1.forward"], v["sentence"]


def test_operands_that_autocast_cuts_off_instead_of_rounding_them_are_seen(judge):
    v = judge("mixed", "cut", TENSOR)
    assert [s["api"] for s in v["suspects"]][:1] == ["Functional.linear.0.forward"], v["sentence"]


@pytest.mark.parametrize("way", WAYS)
def test_a_variance_in_one_pass_is_a_fault_where_little_is_left_of_the_result(judge, way):
    v = judge("lost", "one pass", *WAYS[way])
    assert [s["api"] for s in v["suspects"]][:1] == ["Functional.layer_norm.0.forward"], v["sentence"]


def test_a_mask_of_infinities_hides_no_difference(judge):
    v = judge("attend", "mask", TENSOR)
    assert [s["api"] for s in v["suspects"]][:1] == ["Tensor.masked_fill.0.forward"], v["sentence"]


@pytest.mark.parametrize("config", [L0, MIX], ids=["L0", "mix"])
def test_modules_add_the_noise_of_the_products_inside(judge, config):
    v = judge("attend", "tf32", config)
    assert v["kind"] == "within rounding" and v["suspects"] == [], v["sentence"]


def test_a_function_is_named_before_the_module_around_it(judge):
    v = judge("attend", "scaled", MIX)
    assert v["suspects"][0]["api"] == "Torch.tanh.0.forward", v["sentence"]


@pytest.mark.parametrize("config", [LISTED, GRADIENTS], ids=["one API", "gradients"])
def test_what_a_filter_leaves_out_is_nobodys_fault(judge, config):
    v = judge("attend", "tf32", config)
    assert v["kind"] == "within rounding" and v["suspects"] == [], v["sentence"]
