"""Tensors on another device: reduced there, fetched in batches. The device is a stand-in (npu.py); on real hardware this was never run."""
import math
import os
import signal
import time

import pytest
import torch
import torch.nn.functional as F

import npu
from collecting import R, bare, begin, collect, fill, step, until, write_config, writers

pytestmark = npu.needed


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(6, 8)
        self.b = torch.nn.Linear(8, 4)

    def forward(self, x):
        y = F.relu(self.a(x)) * 2
        y = torch.add(y, y.sum())
        return self.b(torch.tanh(y))


def train(d, device, steps=1):
    if device == "npu":
        npu.set_up()
    model = fill(Net()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = R(5, 6).to(device)
    npu.reset()
    for _ in range(steps):
        d.start(model)
        loss = model(x).sum()
        loss.backward()
        d.stop()
        optimizer.step()
        optimizer.zero_grad()
        d.step()
    return [p.detach().cpu().tolist() for p in model.parameters()], dict(npu.counts, names=None)


def leaves(value, path=""):
    """(path, value) of every number and text in a record."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, "%s.%s" % (path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, "%s.%d" % (path, i))
    else:
        yield path, value


def assert_same(one, other):
    one, other = list(leaves(one)), list(leaves(other))
    assert [path for path, _ in one] == [path for path, _ in other]
    for (path, a), (_, b) in zip(one, other):
        same = a == b or isinstance(a, float) and (math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) or math.isnan(a) and math.isnan(b))
        assert same, (path, a, b)


def folders(tmp_path):
    for name in ("cpu", "npu"):
        (tmp_path / name).mkdir()
    return tmp_path / "cpu", tmp_path / "npu"


@pytest.mark.parametrize("level", ["L1", "L0", "mix"])
def test_the_dump_is_that_of_the_same_run_on_the_cpu(tmp_path, level):
    one, two = folders(tmp_path)
    cpu = collect(one, lambda d: train(d, "cpu", 2), level=level)
    dev = collect(two, lambda d: train(d, "npu", 2), level=level)
    for number in (0, 1):
        assert dev.names(number) == cpu.names(number)  # none of our own kernels, in the same order
        assert_same(dev.data(number), cpu.data(number))
        assert dev.construct(number) == cpu.construct(number)
        assert list(dev.stacks(number)) == list(cpu.stacks(number))


def test_the_run_is_not_changed(tmp_path):
    one, two = folders(tmp_path)
    weights, _ = bare(one, lambda d: train(d, "npu", 3))
    assert collect(two, lambda d: train(d, "npu", 3), level="mix").value[0] == weights


def test_hundreds_of_tensors_come_over_in_a_few_copies(tmp_path):
    def body(d):
        npu.set_up()
        x = R(4, 4).to("npu")
        d.start()
        torch.neg(x)  # what is found out about a device is found out once
        d.stop()
        npu.reset()
        begin = time.monotonic()
        d.start()
        for _ in range(500):
            x = torch.add(x, 1)
        counts = dict(npu.counts, names=None)
        d.stop()
        return counts, dict(npu.counts, names=None), time.monotonic() - begin

    r = collect(tmp_path, body)
    before_stop, after, seconds = r.value
    # 1000 tensors, each with numbers of two types: one wait per 256 tensors and per half second, then one copy per type
    fetches = 5 + int(seconds / 0.5)
    assert after["waits"] <= fetches and after["copies"] <= 2 * fetches
    assert before_stop["copies"] < after["copies"]  # stop() brings the rest
    assert after["kernels"] <= 500 + 1000 * 3 + 2 * fetches  # aminmax, mean, norm
    assert len(r.names()) == 501
    assert all(record["output"][0]["Max"] is not None for record in r.data().values())
    maxima = [record["output"][0]["Max"] for name, record in r.data().items() if "add" in name]
    assert maxima == sorted(maxima)  # every one is its own


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_every_type_of_number(tmp_path, dtype):
    def body(d, device):
        if device == "npu":
            npu.set_up()
        t = (R(7, 3) * 50).to(dtype).to(device)
        scalar = torch.tensor(1 if dtype is torch.bool else 3).to(dtype).to(device)
        step(d, lambda: (torch.reshape(t, (21,)), torch.reshape(scalar, ()), torch.reshape(t[:0], (0,))))

    one, two = folders(tmp_path)
    cpu = collect(one, lambda d: body(d, "cpu"))
    assert_same(collect(two, lambda d: body(d, "npu")).data(), cpu.data())


def test_large_integers_and_sums_beyond_float32(tmp_path):
    def body(d):
        npu.set_up()
        big = torch.tensor([2**60 + 1, -5]).to("npu")
        wide = torch.full((4,), 3e38).to("npu")
        half = torch.full((4096,), 60000.0, dtype=torch.float16).to("npu")
        step(d, lambda: (torch.reshape(big, (2, 1)), torch.reshape(wide, (2, 2)), torch.reshape(half, (64, 64))))

    records = list(collect(tmp_path, body).data().values())
    assert records[0]["output"][0]["Max"] == 2**60 + 1
    assert math.isclose(records[1]["output"][0]["Norm"], 6e38, rel_tol=1e-6)
    assert records[2]["output"][0]["Mean"] == 60000.0


def test_numbers_that_are_written_over_later_are_those_of_their_time(tmp_path):
    def body(d):
        npu.set_up()
        x = torch.zeros(4).to("npu")
        single = torch.zeros(()).to("npu")
        d.start()
        for _ in range(3):
            x.add_(1)
            single.add_(1)
        d.stop()

    data = collect(tmp_path, body).data()
    for i in range(6):
        record = data["Tensor.add_.%d.forward" % i]
        assert record["input_args"][0]["Max"] == i // 2 and record["output"][0]["Max"] == i // 2 + 1


@pytest.mark.parametrize("task, part", [("statistics", {"summary_mode": "md5"}), ("tensor", {}), ("statistics", {"tensor_list": ["relu"]})])
def test_checksums_and_files_are_those_of_the_cpu(tmp_path, task, part):
    def body(d, device):
        if device == "npu":
            npu.set_up()
        x = R(5, 6, grad=True).to(device)
        step(d, lambda: (F.relu(x) * 2).sum().backward())

    one, two = folders(tmp_path)
    cpu = collect(one, lambda d: body(d, "cpu"), task=task, part=part)
    dev = collect(two, lambda d: body(d, "npu"), task=task, part=part)
    assert_same(dev.data(), cpu.data())
    assert dev.tensors() == cpu.tensors()
    for name in cpu.tensors():
        assert torch.equal(dev.tensor(name), cpu.tensor(name))


def test_records_from_both_devices_keep_their_order(tmp_path):
    def body(d):
        npu.set_up()
        x, y = R(3).to("npu"), R(3)
        d.start()
        for _ in range(3):
            torch.sin(x)
            torch.cos(y)
        d.stop()

    names = collect(tmp_path, body).names()
    assert names == ["Torch.%s.%d.forward" % (f, i) for i in range(3) for f in ("sin", "cos")]


def test_half_a_second_is_the_longest_wait(tmp_path):
    def body(d):
        import json

        npu.set_up()
        x = R(3).to("npu")
        d.start()
        torch.sin(x)
        time.sleep(0.6)
        torch.cos(x)  # what is older than half a second goes when the next call comes
        time.sleep(1.2)
        with open(tmp_path / "dump" / "step0" / "rank" / "dump.json") as f:
            return list(json.load(f)["data"])

    assert collect(tmp_path, body).value[:1] == ["Torch.sin.0.forward"]


def in_the_files(tmp_path):
    import json

    folder = tmp_path / "dump" / "step0" / "rank"
    return [json.loads((folder / name).read_text()) for name in ("dump.json", "stack.json", "construct.json")]


CALLS = ["Torch.%s.%d.forward" % (f, i) for i in range(3) for f in ("sin", "cos")]


def call_and_sit(tmp_path, ready):
    """A program that records on both devices, and then sits in one call: nobody can fetch anything."""
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(tmp_path, level="mix")

    def body():
        npu.set_up()
        x, y = R(3).to("npu"), R(3)
        d = PrecisionDebugger(path)
        d.start(torch.nn.Identity())
        for _ in range(3):
            torch.sin(x)
            torch.cos(y)
        ready.set()
        time.sleep(600)

    return begin(tmp_path, body)[0]


@pytest.mark.parametrize("moment", [0, 1.0])
def test_after_kill_9_what_was_not_fetched_has_a_record_and_so_has_what_is_behind_it(tmp_path, moment):
    import multiprocessing

    ready = multiprocessing.Event()
    pid = call_and_sit(tmp_path, ready)
    assert ready.wait(120)
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if moment > 0:
        assert list(in_the_files(tmp_path)[0]["data"]) == CALLS  # at once, and nothing was run
    until(lambda: not writers(tmp_path))
    dump, stacks, construct = in_the_files(tmp_path)
    assert list(dump["data"]) == list(construct) == CALLS
    assert sorted(name for names, _ in stacks.values() for name in names) == sorted(CALLS)
    for name, record in dump["data"].items():
        for tensor in record["input_args"] + record["output"]:
            assert tensor["shape"] == [3] and tensor["dtype"] == "torch.float32"
            assert (tensor["Max"] is None) == ("note" in tensor) == ("sin" in name)


def test_what_was_shown_without_statistics_gets_them(tmp_path):
    def body(d):
        npu.set_up()
        x, y = R(3).to("npu"), R(3)
        d.start()
        for _ in range(3):
            torch.sin(x)
            torch.cos(y)
        shown = until_shown(tmp_path, CALLS)
        d.stop()
        d.step()
        return [record["output"][0]["Max"] for record in shown.values()]

    r = collect(tmp_path, body)
    assert [value is None for value in r.value] == [True, False] * 3
    assert r.names() == CALLS
    for name, record in r.data().items():
        assert math.isclose(record["output"][0]["Max"], getattr(torch, name.split(".")[1])(R(3)).max().item(), rel_tol=1e-6)
        assert "note" not in record["output"][0]


def until_shown(tmp_path, names):
    until(lambda: os.path.exists(tmp_path / "dump" / "step0" / "rank" / "construct.json") and list(in_the_files(tmp_path)[0]["data"]) == names)
    return in_the_files(tmp_path)[0]["data"]


def test_what_the_device_cannot_reduce_is_fetched_whole(tmp_path, monkeypatch):
    def body(d):
        npu.set_up()

        def none(*_args, **_kwargs):
            raise NotImplementedError("no such kernel")

        monkeypatch.setattr(torch, "aminmax", none)
        x = R(3, 4).to("npu")
        step(d, lambda: torch.sin(x))

    r = collect(tmp_path, body)
    assert math.isclose(r.data()["Torch.sin.0.forward"]["input_args"][0]["Max"], R(3, 4).max().item())


def test_results_that_never_come_are_null_and_training_goes_on(tmp_path, monkeypatch):
    def body(d):
        npu.set_up()
        x = R(3, 4).to("npu")

        def broken(_tensors):
            raise RuntimeError("the device is gone")

        d.start()
        torch.sin(x)
        monkeypatch.setattr(torch, "stack", broken)
        d.stop()
        monkeypatch.undo()
        d.start()
        torch.cos(x)
        d.stop()
        d.step()

    r = collect(tmp_path, body)
    assert r.data()["Torch.sin.0.forward"]["output"][0]["Max"] is None
    assert r.data()["Torch.sin.0.forward"]["output"][0]["shape"] == [3, 4]
    assert r.data()["Torch.cos.0.forward"]["output"][0]["Max"] is not None
    assert "statistics of 2 tensors are lost: the device is gone" in r.output


def test_the_programs_own_tools_see_nothing_of_it(tmp_path):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def body(d):
        npu.set_up()
        x = R(3, 4, grad=True).to("npu")
        d.start()
        with Dispatched(), Functions():
            y = torch.sin(x)
            y.sum().backward()
        with torch.profiler.profile() as profile:
            torch.cos(x)
            d.stop()
        d.step()
        return seen, sorted(e.key for e in profile.key_averages() if e.key.startswith("aten::"))

    one, two = folders(tmp_path)
    assert collect(two, body).value == bare(one, body)


def test_gradients_that_come_in_parts_are_summed_on_the_device(tmp_path):
    def body(d, device):
        if device == "npu":
            npu.set_up()
        x = R(3, 4, grad=True).to(device)
        step(d, lambda: F.triplet_margin_loss(x, x, x * 2, margin=10.0).backward())

    one, two = folders(tmp_path)
    cpu = collect(one, lambda d: body(d, "cpu"))
    assert_same(collect(two, lambda d: body(d, "npu")).data(), cpu.data())


@pytest.mark.parametrize("level", ["L1", "L0"])
def test_overflow_check(tmp_path, level):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x.mul_(2)

    def body(d, device):
        if device == "npu":
            npu.set_up()
        model = torch.nn.Sequential(Doubled())
        x = torch.full((4, 4), 60000.0, dtype=torch.float16).to(device)
        fine = torch.ones(3, requires_grad=True).to(device)
        npu.reset()
        d.start(model)
        model(x)
        torch.add(fine, 1).sum().backward()
        d.stop()
        d.step()
        return npu.counts["copies"]

    one, two = folders(tmp_path)
    part = {"overflow_nums": -1}
    cpu = collect(one, lambda d: body(d, "cpu"), task="overflow_check", level=level, part=part)
    dev = collect(two, lambda d: body(d, "npu"), task="overflow_check", level=level, part=part)
    assert len(dev.names()) == 1
    assert_same(dev.data(), cpu.data())
    assert dev.tensors() == cpu.tensors() and len(cpu.tensors()) == 2
    for name in cpu.tensors():  # the input as it was before
        assert torch.equal(dev.tensor(name), cpu.tensor(name))


def test_save_of_single_values(tmp_path):
    def body(d, device):
        if device == "npu":
            npu.set_up()
        x = R(3, 4, grad=True).to(device)
        y = x * 2
        d.save({"y": [y, 5]}, "point")
        y.sum().backward()
        d.step()

    one, two = folders(tmp_path)
    cpu = collect(one, lambda d: body(d, "cpu"), level="debug")
    assert_same(collect(two, lambda d: body(d, "npu"), level="debug").read("debug.json"), cpu.read("debug.json"))


def test_nothing_is_kept_after_the_step(tmp_path):
    def body(d):
        import gc

        npu.set_up()
        x = R(3, 4).to("npu")
        step(d, lambda: [torch.sin(x) for _ in range(300)])
        gc.collect()
        return len([o for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.device.type == "npu"])

    assert collect(tmp_path, body).value == 1
