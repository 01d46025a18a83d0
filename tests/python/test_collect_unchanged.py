"""The run is the same with and without us: losses, gradients, weights and random states of 100 steps, to the bit, at every level and task, on the fast way
and on the plain ones. And nothing is left behind."""
import random
import shutil
import sys
import zlib

import pytest
from collecting import R, bare, collect, fill, torch

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msprobe.pytorch import selftest  # noqa: E402

STEPS = 100


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """An optimizer's first step imports torch's compiler, which takes seconds: here, and not in each of the processes."""
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.AdamW([parameter]).step()


def crc(*tensors):
    value = 0
    for t in tensors:
        value = zlib.crc32(b"none" if t is None else t.detach().reshape(-1).view(torch.uint8).numpy().tobytes(), value)
    return value


class Mlp(nn.Module):
    """Operators, in-place writes, one tensor with several users, dropout."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm, self.drop = nn.Linear(6, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.3)

    def forward(self, x):
        h = F.relu(self.a(x), inplace=True)
        h = h + self.drop(self.b(h)) * torch.sigmoid(h)
        h[:, 0] = h[:, 1] * 0.5
        h = self.norm(h)
        h += h.detach().mean(dim=1, keepdim=True)  # torch 1.13 keeps what a mean was made of
        return h


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout2d(0.2),
                                  nn.ConvTranspose2d(3, 2, 2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.body(x.view(-1, 1, 6, 6)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        # by default the layer holds F.relu itself, which the plain way, replaced attributes, does not see
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True, activation=lambda x: F.relu(x))
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        ids = (x.abs() * 10).long() % 11
        return self.out(self.layer(self.embed(ids)) + torch.rand(8))


MODELS = {"mlp": (Mlp, (4, 6)), "convolutions": (Convolutions, (2, 36)), "transformer": (Transformer, (2, 5))}


def train(d, which, steps=STEPS):
    """Returns everything that may not change, and the objects' insides before and after."""
    kind, shape = MODELS[which]
    torch.manual_seed(5)
    random.seed(5)
    model = fill(kind())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before, history = insides(model), []
    for i in range(steps):
        d.start(model)
        optimizer.zero_grad()
        out = model(R(*shape, seed=i))
        d.save({"out": out}, "point")
        loss = F.mse_loss(out, torch.zeros_like(out)) + out.abs().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        d.stop()
        d.step()
        history.append((crc(loss), crc(*[p.grad for p in model.parameters()]), crc(*model.parameters(), *model.buffers())))
    history.append((crc(torch.get_rng_state()), zlib.crc32(repr(random.getstate()).encode())))
    return history, before == insides(model)


def insides(model):
    """What a hook or an attribute of ours would show in."""
    modules = [(sorted(vars(m)), *[len(vars(m)[n]) for n in sorted(vars(m)) if n.endswith("_hooks")]) for m in model.modules()]
    parameters = [(sorted(vars(p)), bool(p._backward_hooks), getattr(p, "_post_accumulate_grad_hooks", None)) for p in model.parameters()]
    return modules, parameters


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """The runs without the tool, each made once."""
    made = {}

    def get(which, steps=STEPS):
        if (which, steps) not in made:
            made[which, steps] = bare(tmp_path_factory.mktemp("bare"), lambda d: train(d, which, steps))[0]
        return made[which, steps]

    return get


CASES = [(level, task, mode) for level in ("L0", "L1", "mix") for task, mode in (
    ("statistics", "statistics"), ("statistics", "md5"), ("tensor", "statistics"), ("overflow_check", "statistics"), ("structure", "statistics"))]
CASES += [("debug", "statistics", "statistics"), ("debug", "tensor", "md5"), ("L2", "tensor", "statistics")]
KERNEL = {"mlp": "Tensor.__mul__.0.forward", "convolutions": "Functional.conv2d.0.backward", "transformer": "Functional.embedding.0.forward"}


def configuration(which, level, task, mode):
    part = {"summary_mode": mode} if task in ("statistics", "tensor") else {"overflow_nums": -1} if task == "overflow_check" else {}
    if level == "L2":
        part["list"] = [KERNEL[which]]
    steps = {"step": ["0-4", 50, "97-99"]} if task == "tensor" else {}  # a file per tensor: not of all steps
    return dict(level=level, task=task, part=part, **steps)


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("level, task, mode", CASES)
def test_a_hundred_steps_are_the_same(tmp_path, without, which, level, task, mode):
    result = collect(tmp_path, lambda d: train(d, which), **configuration(which, level, task, mode))
    history, clean = result.value
    expected = without(which)
    first = next((i for i, (a, b) in enumerate(zip(history, expected)) if a != b), None)
    assert first is None and len(history) == len(expected), "step %s differs: %s, %s" % (first, history[first], expected[first])
    assert clean
    assert "failed for" not in result.output and "Traceback" not in result.output, result.output
    if task in ("statistics", "tensor") and level != "L2":
        assert len(result.read("debug.json" if level == "debug" else "dump.json", 99)["data"]) > 1
    shutil.rmtree(tmp_path / "dump", ignore_errors=True)


# ---- the plain ways ---------------------------------------------------------------------------------------------------------------

PLAIN = ["builtin", "method", "function", "slot", "tensor", "sequence", "state", "node", "fields", "forward", "frame", "dict", "all"]


@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    made = {}

    def get(which):
        if which not in made:
            made[which] = collect(tmp_path_factory.mktemp("fast"), lambda d: train(d, which, 2), level="mix", part={"summary_mode": "md5"})
        return made[which]

    return get


def informed(result):
    """What the log says of the ways that are used; the last line, on what was recorded, is none of it."""
    return [line for line in result.output.splitlines() if "[INFO]" in line and "[INFO] recorded " not in line]


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("plain", PLAIN)
def test_the_plain_way_records_the_same(tmp_path, without, fast, which, plain):
    result = collect(tmp_path, lambda d: train(d, which, 2), env={"MSPROBE_PLAIN": plain}, level="mix", part={"summary_mode": "md5"})
    assert result.value == (without(which, 2), True)
    for step in range(2):
        assert result.names(step) == fast(which).names(step)
        assert result.data(step) == fast(which).data(step)
        assert result.construct(step) == fast(which).construct(step)
    already = len(informed(fast(which)))  # a torch without C functions for tensors says so in any case, and has none for these two either
    frames = sys.version_info[:2] == (3, 11)  # whose own frames are read
    dicts = sys.version_info < (3, 12)  # which keep a version of each
    usual = any("by torch's own function" in line for line in informed(fast(which)))  # with a torch whose function is not known
    lines = {"all": 2 + frames + 2 * dicts, "forward": already + dicts - usual, "frame": already + frames, "dict": already + dicts}
    lines.update(dict.fromkeys(("tensor", "state", "node", "fields"), 1 + usual))
    if plain != "sequence":
        assert len(informed(result)) == lines.get(plain, 1 + already), result.output


@pytest.mark.parametrize("version, found", [(lambda d: 7, False), (lambda d: 0, None), (lambda d: id(d) + len(d), False)], ids=["constant", "none", "size"])
def test_versions_that_do_not_tell_every_change_are_not_used(version, found):
    class Probe:
        versions = staticmethod(bool)

    Probe.version = staticmethod(version)
    assert selftest.prove_versions(Probe) is found
