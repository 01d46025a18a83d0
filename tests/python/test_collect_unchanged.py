"""The run is the same with and without us: losses, gradients, weights and random states of 100 steps, to the bit, at every level and task, on the fast way
and on the plain ones. And nothing is left behind."""
import ctypes
import gc
import os
import pickle
import random
import shutil
import subprocess
import sys
import types
import weakref
import zlib

import pytest
from collecting import IN_PLACE, LIMIT, R, Result, bare, collect, fill, in_process, torch, write_config

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

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
    before, history = what_is_set_on(model), []
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
    return history, before == what_is_set_on(model)


def what_is_set_on(model):
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


# ---- nothing is on the way of calls ----------------------------------------------------------------------------------------------

def words_of(thing):
    """The memory of an object behind its count of references."""
    return (ctypes.c_size_t * (thing.__sizeof__() // ctypes.sizeof(ctypes.c_size_t))).from_address(id(thing))[1:]


def insides(thing):
    """What a call of it goes by: the fields of its object, without those that only describe it and are made when somebody asks, and without weak
    references to it, which come and go with whoever holds them."""
    said = {id(reference) for reference in weakref.getweakrefs(thing)}
    if isinstance(thing, types.FunctionType):
        said |= {id(getattr(thing, name, None)) for name in ("__dict__", "__annotations__")}
    words = words_of(thing)
    if isinstance(thing, types.FunctionType) and sys.version_info >= (3, 11):
        words[-1] = 0  # the number by which the interpreter's caches know the function, new at each specialising; half of the word is never set
    return tuple(0 if w in said or w < 1 << 32 else w for w in words)


def on_the_way():
    """Everything that a call of torch's functions and modules goes through, by name."""
    found = {}
    owners = [torch, torch.Tensor, torch._C._TensorBase, type(torch._C._VariableFunctions), F, nn.Module, nn.Linear, torch.jit, torch.autograd]
    owners += [torch.distributed, torch.distributed.distributed_c10d] if torch.distributed.is_available() else []
    for owner in owners:
        for name, thing in list(vars(owner).items()):
            found[str(owner), name] = id(thing)
            if isinstance(thing, (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)):
                found[str(owner), name, "insides"] = insides(thing)
    for kind in (torch.Tensor, nn.Parameter, torch._C._TensorBase):
        found[kind.__name__, "slots"] = tuple((ctypes.c_size_t * 24).from_address(id(kind))[6:19])
    return found


def what_runs(action):
    """Each function, Python's or C's, in its order; without the garbage collector's, which runs when enough was allocated."""
    seen = []
    gc.collect()
    gc.disable()

    def note(frame, event, arg):
        seen.append((event, frame.f_code.co_name, arg.__name__ if event.startswith("c_") else None))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return seen


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_built_and_not_started_and_stopped_again_nothing_of_ours_is_on_the_way(tmp_path, level):
    path = write_config(tmp_path, level=level)

    def run():
        from msprobe.pytorch import PrecisionDebugger

        model, x = Mlp(), R(3, 6)

        def training_step():
            model(x).sum().backward()
            model.zero_grad()

        for _ in range(3):
            training_step()
        before = on_the_way(), what_runs(training_step)
        debugger = PrecisionDebugger(path)
        built = on_the_way(), what_runs(training_step)
        for _ in range(2):
            debugger.start(model)
            training_step()
            debugger.stop()
            debugger.step()
        stopped = on_the_way(), what_runs(training_step)
        changed = [[name for name in before[0] if before[0][name] != after[0].get(name)] for after in (built, stopped)]
        return len(before[0]), len(before[1]), changed, [after[1] == before[1] for after in (built, stopped)]

    status, output, value = in_process(tmp_path, run)
    assert status == 0, output
    assert value[0] > 3000 and value[1] > 50 and value[2] == [[], []] and value[3] == [True, True], value


# ---- the plain ways ---------------------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def fast(tmp_path_factory):
    made = {}

    def get(which):
        if which not in made:
            made[which] = collect(tmp_path_factory.mktemp("fast"), lambda d: train(d, which, 2), IN_PLACE, level="mix", part={"summary_mode": "md5"})
        return made[which]

    return get


def informed(result):
    """What the log says of the ways that are used; the last line, on what was recorded, is none of it."""
    return [line for line in result.output.splitlines() if "[INFO]" in line and "[INFO] recorded " not in line]


def assert_same_records(result, expected):
    for step in range(2):
        assert result.names(step) == expected.names(step)
        assert result.data(step) == expected.data(step)
        assert result.construct(step) == expected.construct(step)


@pytest.mark.parametrize("which", MODELS)
def test_the_plain_way_records_the_same(tmp_path, without, fast, which):
    result = collect(tmp_path, lambda d: train(d, which, 2), env={"MSPROBE_PLAIN": "all"}, level="mix", part={"summary_mode": "md5"})
    assert result.value == (without(which, 2), True)
    assert_same_records(result, fast(which))
    assert informed(fast(which)) == [] and len(informed(result)) == 1 and "replaced attributes" in informed(result)[0], result.output


def test_a_way_that_is_none_is_said_and_not_taken(tmp_path):
    result = collect(tmp_path, lambda d: None, env={"MSPROBE_PLAIN": "node,fields"})
    assert "MSPROBE_PLAIN is 'node,fields', which means nothing" in result.output and informed(result) == []


def an_older_torch(which):
    """What a training process sees of a torch that has neither the table of functions that reads tensors, nor numbers of nodes and backward passes."""
    for owner, name in ((torch.Tensor, "__dlpack_c_exchange_api__"), (torch.autograd, "_get_sequence_nr"), (torch._C, "_current_graph_task_id")):
        if hasattr(owner, name):
            delattr(owner, name)
    from msprobe.pytorch import PrecisionDebugger

    return train(PrecisionDebugger(sys.argv[-1]), which, 2)


@pytest.mark.parametrize("which", MODELS)
def test_a_torch_without_its_newer_functions_records_the_same(tmp_path, without, fast, which):
    path = write_config(tmp_path, level="mix", part={"summary_mode": "md5"})
    script = "import pickle, sys, test_collect_unchanged as t; t.torch.set_num_threads(1); open(sys.argv[-2], 'wb').write(pickle.dumps(t.an_older_torch(%r)))"
    value = tmp_path / "value.pickle"
    done = subprocess.run([sys.executable, "-c", script % which, str(value), path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=LIMIT, cwd=os.path.dirname(__file__))
    assert done.returncode == 0, done.stdout
    assert pickle.loads(value.read_bytes()) == (without(which, 2), True)
    assert_same_records(Result(0, done.stdout, str(tmp_path / "dump"), None), fast(which))
