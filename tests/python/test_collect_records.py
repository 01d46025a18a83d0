"""What a record says: names, numbers, arguments of every kind, values as torch itself computes them."""
import collections
import dataclasses
import json
import operator
import os
import sys
import zlib

import pytest
from collecting import IN_PLACE, R, collect, in_process, step, torch, write_config

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

TORCH2 = hasattr(torch, "func")  # else no torch.func, no float8, no jagged tensors


def test_the_files_are_written_as_json_dump_writes_them(tmp_path):
    r = collect(tmp_path, lambda d: step(d, lambda: F.relu(R(2, 3, grad=True)).sum().backward()))
    for name in ("dump.json", "stack.json", "construct.json"):
        text = open(r.file(name)).read()
        value = json.loads(text)
        assert text == (json.dumps(value, indent=1) if value else "{\n}"), name
    top = r.read()
    assert list(top) == ["task", "level", "framework", "dump_data_dir", "data"]
    assert (top["task"], top["level"], top["framework"], top["dump_data_dir"]) == ("statistics", "L1", "pytorch", None)


def test_calls_are_numbered_per_name_and_begin_anew_in_each_step(tmp_path):
    def body(d):
        for _ in range(2):
            step(d, lambda: [torch.add(R(2), 1), torch.mul(R(2), 2), torch.add(R(2), 3)])

    r = collect(tmp_path, body)
    for s in (0, 1):
        assert r.names(s) == ["Torch.add.0.forward", "Torch.mul.0.forward", "Torch.add.1.forward"]


def test_only_the_outermost_call_is_recorded(tmp_path):
    r = collect(tmp_path, lambda d: step(d, lambda: F.cross_entropy(R(3, 4), torch.tensor([0, 1, 2]))))
    assert r.names() == ["Functional.cross_entropy.0.forward"]


def test_operators_have_their_own_names(tmp_path):
    def body():
        a, b, i = R(2, 3), R(2, 3, seed=1), torch.tensor([5, 3])
        return [a + b, 1 + a, a - b, 1 - a, a * b, a / b, a % 2, a ** 2, a @ b.t(), a == b, a != b, a < b, i & 1, i | 1, i ^ 1, i << 1, i >> 1, a // 1]

    names = [n.split(".")[1] for n in collect(tmp_path, lambda d: step(d, body) and None).names()]
    assert names == ["__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__truediv__", "__mod__", "__pow__", "t", "__matmul__", "__eq__",
                     "__ne__", "__lt__", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__floordiv__"]


def test_an_object_with_two_names_goes_by_the_one_that_is_called(tmp_path):
    def body(d):
        x, w, lstm, gru = R(1, 1, 4, 4), R(1, 1, 3, 3), torch.nn.LSTM(2, 2), torch.nn.GRU(2, 2)
        d.start()
        torch.conv2d(x, w)
        F.conv2d(x, w)
        torch.nn.functional.conv2d(x, w)
        lstm(R(3, 1, 2))
        gru(R(3, 1, 2))  # is in the list as torch.gru, and is called as torch._VF.gru
        -x
        abs(x)
        x.neg()
        x.abs()
        d.stop()
        d.step()

    assert collect(tmp_path, body).names() == ["Torch.conv2d.0.forward", "Functional.conv2d.0.forward", "Functional.conv2d.1.forward", "VF.lstm.0.forward",
                                               "Tensor.neg.0.forward", "Tensor.abs.0.forward"]


def test_functions_imported_by_name_before_are_recorded(tmp_path):
    from torch import relu as by_value

    act = F.gelu

    def body(d):
        d.start()
        assert by_value is torch.relu and act is F.gelu
        act(by_value(R(2)))
        d.stop()
        d.step()

    assert collect(tmp_path, body, IN_PLACE).names() == ["Torch.relu.0.forward", "Functional.gelu.0.forward"]


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Box:
    tensor: torch.Tensor
    count: int = 3


def test_values_of_every_kind(tmp_path):
    numpy = pytest.importorskip("numpy")

    def api(*args, **kwargs):
        return Pair(args[0], Box(args[0]))

    class Module:
        pass

    Module.api = staticmethod(api)

    def body(d):
        d.register_custom_api(Module, "api", "Mine")
        d.start()
        Module.api(R(2), True, 3, 2.5, "text", None, slice(1, R(1)[0] * 0 + 4, None), Ellipsis, torch.Size([2, 3]), torch.float16, torch.device("cpu"),
                   torch.channels_last, [1, (2, {"k": None, 5: False})], Pair(1, 2), Box(R(1)), numpy.float32(0.5), numpy.arange(3), 1 + 2j, object(),
                   dtype=torch.int8, device="cpu:0", memory_format=torch.contiguous_format)
        d.stop()
        d.step()

    record = collect(tmp_path, body).data()["Mine.api.0.forward"]
    args, kwargs = record["input_args"], record["input_kwargs"]
    assert args[1:4] == [{"type": "bool", "value": True}, {"type": "int", "value": 3}, {"type": "float", "value": 2.5}]
    assert args[4:8] == [{"type": "str", "value": "text"}, None, {"type": "slice", "value": [1, 4, None]}, {"type": "ellipsis", "value": "..."}]
    assert args[8:12] == [{"type": "torch.Size", "value": [2, 3]}, {"type": "torch.dtype", "value": "torch.float16"},
                          {"type": "torch.device", "value": "cpu:None"}, {"type": "torch.memory_format", "format": "channels_last"}]
    assert args[12] == [{"type": "int", "value": 1}, [{"type": "int", "value": 2}, {"k": None, "5": {"type": "bool", "value": False}}]]
    assert args[13] == {"left": {"type": "int", "value": 1}, "right": {"type": "int", "value": 2}}
    assert args[14]["tensor"]["shape"] == [1] and args[14]["count"] == {"type": "int", "value": 3}
    assert args[15] == {"type": "float32", "value": 0.5}
    assert (args[16]["type"], args[16]["dtype"], args[16]["shape"], args[16]["Max"]) == ("numpy.ndarray", "int64", [3], 2)
    assert args[17:] == [None, None]
    assert kwargs == {"dtype": {"type": "torch.dtype", "value": "torch.int8"}, "device": {"type": "torch.device", "value": "cpu:0"},
                      "memory_format": {"type": "torch.memory_format", "format": "contiguous_format"}}
    assert record["output"]["right"]["count"] == {"type": "int", "value": 3}


def test_values_that_do_not_fit(tmp_path):
    """Numbers beyond 64 bits, text that is not UTF-8, structures without end: exact where they can be, and never in the way."""
    class Module:
        @staticmethod
        def api(x, value):
            return x

    endless, deep = [1], []
    endless.append(endless)
    inner = deep
    for _ in range(500):
        inner.append([])
        inner = inner[0]
    values = [2**64, -10**30, 10**5000, "\udcff\0\n\u2028", endless, deep, {("t",): 1, None: 2, 1.5: 3}]

    def body(d):
        d.register_custom_api(Module, "api", "Mine")
        step(d, lambda: [Module.api(R(2), v) for v in values] and None)

    r = collect(tmp_path, body)
    got = [record["input_args"][1] for record in r.data().values()]
    assert got[:2] == [{"type": "int", "value": str(2**64)}, {"type": "int", "value": str(-10**30)}]
    assert int(got[2]["value"], 0) == 10**5000
    assert got[3] == {"type": "str", "value": "\\udcff\0\n\u2028"}
    assert len(got) == len(values) and set(got[6]) == {"('t',)", "None", "1.5"}
    assert "failed" not in r.output


DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_are_torchs_own(tmp_path, dtype):
    """In at least float32 for floating types, exact for integers: torch in double precision is the oracle."""
    t = (R(5, 7) * 3).to(getattr(torch, dtype))
    strided = t.t()[1:, ::2]
    r = collect(tmp_path, lambda d: step(d, lambda: torch.flip(strided, (0,)) is None), part={"summary_mode": "md5"})
    record = r.data()["Torch.flip.0.forward"]["input_args"][0]
    assert record["dtype"] == "torch." + dtype and record["shape"] == list(strided.shape)
    assert record["md5"] == "%08x" % zlib.crc32(strided.contiguous().view(torch.uint8).numpy().tobytes())
    if dtype == "bool":
        assert (record["Max"], record["Min"], record["Mean"], record["Norm"]) == (bool(strided.any()), bool(strided.all()), None, None)
        return
    values = strided.abs().double() if strided.is_complex() else strided.double()
    assert record["Max"] == values.max().item() and record["Min"] == values.min().item()
    assert record["Mean"] == pytest.approx(values.mean().item(), rel=1e-6, abs=1e-7)
    assert record["Norm"] is None if strided.is_complex() else record["Norm"] == pytest.approx(values.norm().item(), rel=1e-6)


def test_statistics_do_not_overflow_or_lose_digits(tmp_path):
    def body():
        torch.add(torch.full((64, 64), 60000.0, dtype=torch.float16), 0)
        torch.mul(torch.tensor([1e300, -1e-300], dtype=torch.float64), 1.0)
        torch.add(torch.tensor([2**40 + 1, -(2**62)]), 0)
        torch.mul(torch.full((4096,), 3e38), 1.0)

    d = collect(tmp_path, lambda d: step(d, body)).data()
    half, wide = d["Torch.add.0.forward"]["output"][0], d["Torch.mul.0.forward"]["output"][0]
    assert half["Mean"] == 60000 and half["Norm"] == 3840000
    assert wide["Max"] == 1e300 and wide["Norm"] == pytest.approx(1e300)
    assert d["Torch.add.1.forward"]["output"][0]["Max"] == 2**40 + 1
    assert d["Torch.mul.1.forward"]["output"][0]["Mean"] == pytest.approx(3e38, rel=1e-6)


def test_nan_and_inf_are_written_as_json_in_python_writes_them(tmp_path):
    def body():
        torch.mul(torch.tensor([1.0, float("nan")]), 1)
        torch.mul(torch.tensor([1.0, float("inf"), -float("inf")]), 1)

    r = collect(tmp_path, lambda d: step(d, body))
    text = open(r.file()).read()
    assert "NaN" in text and "Infinity" in text and "-Infinity" in text
    assert [str(r.data()["Torch.mul.1.forward"]["output"][0][k]) for k in ("Max", "Min", "Mean", "Norm")] == ["inf", "-inf", "nan", "inf"]


def test_empty_and_zero_dimensional_tensors(tmp_path):
    def body():
        torch.add(torch.ones(0, 3), 1)
        torch.add(torch.tensor(3), 2)
        torch.logical_not(torch.tensor(True))

    d = collect(tmp_path, lambda d: step(d, body)).data()
    assert [d["Torch.add.0.forward"]["output"][0][k] for k in ("shape", "Max", "Min", "Mean", "Norm")] == [[0, 3], None, None, None, None]
    zero = d["Torch.add.1.forward"]["output"][0]
    assert zero["shape"] == [] and zero["Max"] == 5 and isinstance(zero["Max"], int)
    assert d["Torch.logical_not.0.forward"]["output"][0]["Max"] is False


def test_in_place_calls_show_what_was_before_and_after(tmp_path):
    def body():
        x = torch.ones(3)
        x.add_(5)
        x += 1
        x[0] = 9

    d = collect(tmp_path, lambda d: step(d, body)).data()
    assert list(d) == ["Tensor.add_.0.forward", "Tensor.__iadd__.0.forward", "Tensor.__setitem__.0.forward"]
    assert [(r["input_args"][0]["Max"], r["output"][0]["Max"] if r["output"][0] else None) for r in d.values()] == [(1, 6), (6, 7), (7, None)]


def test_conjugated_and_negated_views_are_read_as_the_numbers_they_stand_for(tmp_path):
    def body():
        x = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])).conj()
        torch.abs(x.imag)
        torch.abs(x)

    d = collect(tmp_path, lambda d: step(d, body)).data()
    assert d["Torch.abs.0.forward"]["input_args"][0]["Max"] == -3.0
    assert d["Torch.abs.1.forward"]["input_args"][0]["Max"] == pytest.approx(20**0.5)


def test_tensors_without_plain_memory_have_records_that_say_what_they_are(tmp_path):
    def body(d):
        d.start()
        s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([3.0, 4.0]), (3, 3))
        torch.mm(s, R(3, 2))
        torch.add(torch.empty(3, 4, device="meta"), 1)
        if TORCH2:
            torch.func.vmap(lambda t: torch.sin(t).sum())(R(4, 3))
            torch.reshape(R(3, 4).to(torch.float8_e4m3fn), (4, 3))
            torch.mul(torch.nested.nested_tensor([R(2, 3), R(4, 3)], layout=torch.jagged), 2)
        torch.quantize_per_tensor(R(4), 0.1, 0, torch.qint8).dequantize()
        torch.cos(R(2))
        d.stop()
        d.step()

    r = collect(tmp_path, body)
    d = r.data()
    sparse = d["Torch.mm.0.forward"]["input_args"][0]
    assert (sparse["shape"], sparse["Max"], sparse["Norm"]) == ([3, 3], 4.0, 5.0)
    meta = d["Torch.add.0.forward"]["output"][0]
    assert (meta["shape"], meta["Max"]) == ([3, 4], None) and "meta" in meta["note"]
    if TORCH2:
        assert "torch.func" in d["Torch.sin.0.forward"]["input_args"][0]["note"]
        assert d["Torch.reshape.0.forward"]["output"][0]["dtype"] == "torch.float8_e4m3fn" and d["Torch.reshape.0.forward"]["output"][0]["Max"] is not None
        assert d["Torch.mul.0.forward"]["output"][0]["Max"] is not None
    assert "Torch.cos.0.forward" in d and not tmp_path.joinpath("dump/step0/rank/dump_error_info.log").exists()


def test_memory_that_nobody_has_written_to_has_no_values(tmp_path):
    d = collect(tmp_path, lambda d: step(d, lambda: torch.empty(4) is None)).data()
    record = d["Torch.empty.0.forward"]["output"][0]
    assert record["Max"] is None and record["note"] == "uninitialised memory"


def test_stacks_lead_from_the_call_to_the_script(tmp_path):
    def inner():
        return torch.add(R(2), 1)

    r = collect(tmp_path, lambda d: step(d, lambda: [inner() is None, inner() is None]))
    frames = r.stacks()["Torch.add.0.forward"]
    assert frames[0].startswith("File %s, line " % __file__) and frames[0].endswith(", in inner, \n return torch.add(R(2), 1)")
    assert "in <lambda>" in frames[1] and not any("msprobe/pytorch" in f for f in frames)
    assert r.stacks()["Torch.add.1.forward"] == frames and len(r.read("stack.json")) == 1  # the same stack stands once


def test_tensor_files_hold_the_elements(tmp_path):
    def body(d):
        x, w = R(2, 3, grad=True), R(4, 3, seed=1, grad=True)
        step(d, lambda: F.linear(x, w).sum().backward())
        return x.detach(), w.detach(), x.grad, w.grad

    r = collect(tmp_path, body, task="tensor")
    x, w, gx, gw = r.value
    for name, value in (("forward.input.0", x), ("forward.input.1", w), ("forward.output.0", x @ w.t()), ("backward.output.0", gx), ("backward.output.1", gw)):
        assert torch.equal(r.tensor("Functional.linear.0.%s.pt" % name), value)
    record = r.data()["Functional.linear.0.forward"]["input_args"][0]
    assert record["data_name"] == "Functional.linear.0.forward.input.0.pt"
    assert r.read()["dump_data_dir"].endswith("step0/rank/dump_tensor_data")
    named = {t["data_name"] for rec in r.data().values() for part in ("input_args", "input", "output") for t in rec.get(part, []) if t and "data_name" in t}
    assert named == set(r.tensors())


@pytest.mark.parametrize("name", ["a/b", "x" * 260, "\u00e9" * 130 + "/b"], ids=["slash", "long", "both"])
def test_what_is_no_name_of_a_file_still_has_its_files(tmp_path, name):
    """Modules may have such names, and so may saved values."""
    model = nn.ModuleDict({name: nn.Linear(3, 2)})
    r = collect(tmp_path, lambda d: step(d, lambda: model[name](R(2, 3)), model), task="tensor", level="L0")
    module = r.data()["Module.%s.Linear.forward.0" % name]
    for value in (module["input_args"][0], module["output"][0], module["parameters"]["weight"]):
        assert list(r.tensor(value["data_name"]).shape) == value["shape"] and value["Max"] is not None
    assert len(r.tensors()) == 4

    saved = [R(2), {"x" * 500: R(3), "x" * 501: R(4)}]
    (tmp_path / "points").mkdir()
    r = collect(tmp_path / "points", lambda d: [d.save(saved, "../../" + name), d.step()], task="tensor", level="debug")
    first, others = r.read("debug.json")["data"]["../../%s.0.debug" % name]
    assert [list(r.tensor(v["data_name"]).shape) for v in [first, *others.values()]] == [[2], [3], [4]]
    assert len(r.tensors()) == 3


def deep(length):
    """Two modules that stand so deep that their names have so many bytes, and differ at the end only."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for _ in range(length // 51):
        inner = model
        model = nn.ModuleDict({"m" * 50: inner})
        model.forward = lambda x, inner=inner: inner(x)
    return model


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("plain", ["", "all"])
def test_names_of_modules_are_whole_however_deep_they_stand(tmp_path, level, plain):
    """Above 400 bytes two of them were one record, with the files of one of them."""
    def body(d):
        model = deep(800)
        step(d, lambda: model(R(2, 3, grad=True)).sum().backward(), model)
        return {"Module.%s.%s" % (n, type(m).__name__) for n, m in model.named_modules() if n}

    r = collect(tmp_path, body, task="tensor", level=level, env={"MSPROBE_PLAIN": plain})
    linear = {n for n in r.value if n.endswith("Linear")}
    assert len(linear) == 2 and min(map(len, linear)) > 750
    modules = [n for n in r.names() if n.startswith("Module.")]
    assert {n.rpartition(".forward.")[0] for n in modules if ".forward." in n} == r.value
    assert {n.rpartition(".backward.")[0] for n in modules if ".backward." in n} == r.value
    assert {n.rpartition(".parameters_grad")[0] for n in modules if n.endswith(".parameters_grad")} == linear
    construct = r.construct()
    assert {n for n in construct if n.startswith("Module.")} >= {n + ".forward.0" for n in r.value}
    assert {parent for parent in construct.values() if parent} <= set(construct)
    assert set(r.stacks()) >= {n + ".forward.0" for n in r.value}
    files = [v["data_name"] for n in linear for v in r.data()[n + ".forward.0"]["parameters"].values()]
    assert len(set(files)) == 4 and set(files) <= set(r.tensors())


def test_filters_find_names_however_long(tmp_path):
    long = ".".join(["m" * 50] * 15)
    last = "Module.%s.1.Linear.forward.0" % long

    def body(d):
        model = deep(800)
        step(d, lambda: model(R(2, 3, grad=True)).sum().backward(), model)

    r = collect(tmp_path, body, level="mix", part={"list": [last], "tensor_list": [last]})
    assert r.names() == ["Functional.linear.1.forward", last]
    assert len([n for n in r.tensors() if n.startswith("Module.mmm")]) == 4


def test_a_name_that_is_too_long_is_made_shorter_and_stays_one_of_its_own(tmp_path):
    def body(d):
        model = deep(1500)
        for _ in range(2):
            step(d, lambda: model(R(2, 3)).sum().backward(), model)

    r = collect(tmp_path, body, level="L0")
    linear = [n for n in r.names() if n.endswith(".Linear.forward.0")]
    assert len(set(linear)) == 2 and all(400 < len(n) <= 1010 for n in linear)
    assert r.names(1) == r.names(0)
    assert r.output.count(".Linear is recorded as Module.mmm") == 2


def test_tensor_list_adds_files_to_statistics(tmp_path):
    r = collect(tmp_path, lambda d: step(d, lambda: [F.relu(R(2)) is None, torch.add(R(2), 1) is None]), part={"tensor_list": ["relu"]})
    assert r.tensors() == ["Functional.relu.0.forward.input.0.pt", "Functional.relu.0.forward.output.0.pt"]


def test_files_and_folders_are_not_for_everybody(tmp_path):
    r = collect(tmp_path, lambda d: step(d, lambda: torch.add(R(2), 1) is None), task="tensor")
    import os

    for name in ("dump.json", "stack.json", "construct.json", "dump_tensor_data/Torch.add.0.forward.output.0.pt"):
        assert os.stat(r.file(name)).st_mode & 0o777 == 0o640, name
    assert os.stat(r.file("dump_tensor_data")).st_mode & 0o777 == 0o750
    assert [n for n in os.listdir(r.folder) if n.startswith(".")] == []


def test_custom_apis_are_recorded_until_they_are_restored(tmp_path):
    class Module:
        __name__ = "module"

        @staticmethod
        def api(x, k=2):
            return x * k + 1

    original = Module.api

    def body(d):
        x = R(2, grad=True)
        d.register_custom_api(Module, "api", "Mine")
        d.start()
        Module.api(x, k=3).sum().backward()
        d.stop()
        assert Module.api is original
        d.restore_custom_api(Module, "api")
        d.start()
        Module.api(x)
        d.stop()
        d.step()

    names = collect(tmp_path, body).names()
    assert names[0] == "Mine.api.0.forward" and "Mine.api.0.backward" in names and "Mine.api.1.forward" not in names


def test_methods_of_a_class_stay_what_they_are_while_they_are_recorded(tmp_path):
    class Own:
        @staticmethod
        def still(x):
            return x * 2

        @classmethod
        def kind(cls, x):
            return x * cls.factor()

        @classmethod
        def factor(cls):
            return 3

        def method(self, x):
            return x * 4

    class Other(Own):
        @classmethod
        def factor(cls):
            return 5

    def calls():
        x = torch.ones(1)
        return [f(x).item() for o in (Own, Own(), Other, Other()) for f in (o.still, o.kind)] + [Own().method(x).item(), Other().method(x).item()]

    def body(d):
        names, before = ("still", "kind", "method"), calls()
        for name in names:
            d.register_custom_api(Own, name)
        own = [vars(Own)[n] for n in names]
        said = step(d, calls)
        return before, said, [vars(Own)[n] is f for n, f in zip(names, own)]

    r = collect(tmp_path, body)
    before, said, kept = r.value
    assert said == before == [2, 3, 2, 3, 2, 5, 2, 5, 4, 4] and kept == [True] * 3
    assert [sum(n.startswith("Own." + name) for n in r.names()) for name in ("still", "kind", "method")] == [4, 4, 2]


def test_the_wide_list_has_what_the_default_one_lacks(tmp_path):
    from msprobe.pytorch import apis

    gru = torch.nn.GRU(3, 2)

    def body(d):
        a = R(3, 3, grad=True)
        d.start()
        b = -a
        c = a.clone()
        c /= 2
        abs(c)
        a.contiguous()
        torch.ops.aten.add(a, 1).sum().backward()
        gru(a)
        b[0]
        d.stop()
        d.step()

    apis.LISTS["wide"] = str(tmp_path / "wide.yaml")  # made here, not in the installed package
    names = collect(tmp_path, body, api_list="wide").names()
    assert {"Tensor.__neg__.0.forward", "Tensor.clone.0.forward", "Tensor.__itruediv__.0.forward", "Tensor.__abs__.0.forward", "Tensor.contiguous.0.forward",
            "Aten.add.0.forward", "Aten.add.0.backward", "VF.gru.0.forward", "Tensor.__getitem__.0.forward"} <= set(names)
    assert "  - clone" in (tmp_path / "wide.yaml").read_text()


def test_a_list_that_cannot_be_read_is_told_with_its_line():
    from msprobe.pytorch import apis

    assert apis.parse_list("a:\n  - x  # why\n\n  - 'y'\nb:\n- z\n", "f") == {"a": ["x", "y"], "b": ["z"]}
    with pytest.raises(ValueError, match="f: line 2: "):
        apis.parse_list("a:\n  x\n", "f")


Halves = collections.namedtuple("Halves", "left right")


class Split(nn.Module):
    def forward(self, x):
        return Halves(x[:1], x[1:])


class Listed(nn.Module):
    def forward(self, halves):
        return list(halves)


def test_a_named_tuple_has_its_fields_and_a_list_is_one_result(tmp_path):
    """As the original has it. Results of torch's own that name their tensors are plain tuples, there and here."""

    def body(d):
        model = nn.Sequential(Split(), Listed())
        step(d, lambda: torch.max(model(R(2, 3))[0], 1), model)

    result = collect(tmp_path, body, task="tensor", level="mix", part={})
    output = result.data()["Module.0.Split.forward.0"]["output"]
    assert {name: record["shape"] for name, record in output.items()} == {"left": [1, 3], "right": [1, 3]}
    assert output["right"]["data_name"] == "Module.0.Split.forward.0.output.right.pt" in result.tensors()
    assert [r["data_name"] for r in result.data()["Module.1.Listed.forward.0"]["output"][0]] == [
        "Module.1.Listed.forward.0.output.0.%d.pt" % i for i in range(2)]
    assert [record["dtype"] for record in result.data()["Torch.max.0.forward"]["output"]] == ["torch.float32", "torch.int64"]


def test_a_large_tensor_is_read_by_as_many_threads_as_torch_may_use(tmp_path):
    """One here, see collecting.py: a program that leaves the other cores to others gets no threads of ours."""
    def body(d):
        x = torch.ones(1 << 22)
        before = len(os.listdir("/proc/self/task"))
        d.start()
        torch.relu(x)
        d.stop()
        d.step()
        return len(os.listdir("/proc/self/task")) - before

    result = collect(tmp_path, body)
    assert result.value == 0 and result.data()["Torch.relu.0.forward"]["output"][0]["Mean"] == 1.0


def test_a_function_of_two_names_is_found_behind_calls_among_its_arguments(tmp_path):
    x = R(1, 2, 5)

    def body(d):
        def run():
            F.conv1d(x, torch.ones(4, 2, 1))
            torch.conv1d(F.pad(x, (1, 1)), torch.ones(4, 2, 1), bias=torch.ones(4), stride=max(1, 2))
            F.prelu(torch.neg(x), abs(torch.ones(2)))

        step(d, run)

    names = [n for n in collect(tmp_path, body).names() if "conv1d" in n or "prelu" in n]
    assert names == ["Functional.conv1d.0.forward", "Torch.conv1d.0.forward", "Functional.prelu.0.forward"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no place in the source")
def test_a_function_of_two_names_is_found_in_the_source_where_instructions_do_not_tell(tmp_path):
    x, w = R(1, 2, 5), R(4, 2, 1)
    both = x, w

    def body(d):
        def run():
            torch.conv1d(*both)
            F.conv1d(*both, **{"stride": 1})
            torch.conv1d(x, w if len(both) > 1 else x)
            x.neg()
            [operator.neg(x), x.__neg__(), -x, abs(x), operator.abs(x), x.__abs__()]
            x.abs(*[])

        step(d, run)

    names = collect(tmp_path, body).names()
    assert names == ["Torch.conv1d.0.forward", "Functional.conv1d.0.forward", "Torch.conv1d.1.forward", "Tensor.neg.0.forward", "Tensor.abs.0.forward"]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_dump_path_may_hold_bytes_that_are_no_text(tmp_path, task):
    """Such is a path from the command line in another locale than it was made in."""
    from msprobe.pytorch import PrecisionDebugger

    odd = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xfc \xff")
    config = write_config(tmp_path, task=task)

    def body():
        step(PrecisionDebugger(config, dump_path=odd), lambda: torch.relu(R(2)) is None)

    status, output, _ = in_process(tmp_path, body)
    assert status == 0 and "[ERROR]" not in output, output
    with open(os.path.join(odd, "step0", "rank", "dump.json"), encoding="utf-8") as f:
        dump = json.load(f)
    assert list(dump["data"]) == ["Torch.relu.0.forward"]
    if task == "tensor":
        assert dump["dump_data_dir"].endswith("\\udcfc \\udcff/step0/rank/dump_tensor_data")
        assert len(os.listdir(os.path.join(odd, "step0", "rank", "dump_tensor_data"))) == 2
