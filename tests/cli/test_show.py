"""msprobe show: one dump, one call, one tensor file."""
import json
import struct

import numpy as np
import pytest

import dumps

NAN, INF = float("nan"), float("inf")


def shown(run, *words):
    r = run("show", *words, "--json")
    assert r.rc == 0, r.err
    return json.loads(r.out)


def only(run, *words):
    listed = shown(run, *words)["dumps"]
    assert len(listed) == 1
    return listed[0]


def test_a_dump_is_counted(run, tmp_path):
    dumps.statistics(tmp_path / "npu")
    d = only(run, "npu")
    assert (d["calls"], d["backward"], d["modules"], d["tensors"]) == (3, 0, 0, 7)
    assert d["elements"] == 6 * 6 + 3 and d["bytes"] == 4 * d["elements"]
    assert d["types"] == [{"name": "torch.float32", "tensors": 7, "elements": 39, "bytes": 156}]
    assert [k["name"] for k in d["kinds"]] == ["Functional.gelu", "Functional.linear", "Functional.relu"]
    assert [c["name"] for c in d["list"]] == [f"Functional.{n}.0.forward" for n in ("linear", "relu", "gelu")]
    assert (d["nan"], d["inf"], d["cut_off"]) == (None, None, None)


def test_types_and_sizes_are_those_of_each_tensor(run, tmp_path):
    dumps.write(tmp_path / "d", {"Tensor.to.0.forward": dumps.call(
        [dumps.tensor(1.0, shape=(1000, 10))],
        [dumps.tensor(1.0, dtype="torch.bfloat16", shape=(1000, 10)), dumps.tensor(1.0, dtype="torch.int64", shape=())])})
    d = only(run, "d")
    assert {t["name"]: t["bytes"] for t in d["types"]} == {"torch.float32": 40000, "torch.bfloat16": 20000, "torch.int64": 8}
    assert [t["tensor"] for t in d["largest"]] == ["Tensor.to.0.forward." + n for n in ("input.0", "output.0", "output.1")]


def nan_dump(folder):
    return dumps.write(folder, {
        "Functional.linear.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)]),
        "Functional.log.0.forward": dumps.call([dumps.tensor(2.0)], [dumps.tensor(NAN)]),
        "Functional.relu.0.forward": dumps.call([dumps.tensor(NAN)], [dumps.tensor(NAN)]),
        "Functional.masked_fill.0.forward": dumps.call([dumps.tensor(1.0), dumps.tensor(INF)], [dumps.tensor(INF)]),
    })


def test_the_first_nan_is_named_with_its_stack_and_whether_the_call_made_it(run, tmp_path):
    nan_dump(tmp_path / "d")
    d = only(run, "d")
    assert (d["nan"]["call"], d["nan"]["tensor"]) == ("Functional.log.0.forward", "Functional.log.0.forward.output.0")
    assert (d["nan"]["origin"], d["nan"]["tensors"]) == ("made", 3)
    assert "train.py, line 11" in d["nan"]["stack"][1]
    assert (d["inf"]["tensor"], d["inf"]["origin"]) == ("Functional.masked_fill.0.forward.input.1", "taken")
    text = run("show", "d").out
    assert "first in Functional.log.0.forward.output.0 (3 tensors in all)" in text
    assert "its inputs are finite: this call makes it" in text
    assert "/home/me/train.py:11 in forward" in text


def test_a_mean_or_norm_that_overflows_is_no_inf_of_the_tensor(run, tmp_path):
    leaf = dict(dumps.tensor(3.0), Norm=INF, Mean=INF)
    dumps.write(tmp_path / "d", {"Functional.relu.0.forward": dumps.call([leaf], [leaf])})
    assert only(run, "d")["inf"] is None


def test_the_call_inside_a_module_is_named_where_the_module_stands_before_it(run, tmp_path):
    bad = {"input": [dumps.tensor(1.0)], "output": [dumps.tensor(NAN)]}
    dumps.write(tmp_path / "d", {"Module.b.Linear.backward.0": bad, "Functional.relu.9.backward": bad,
                                 "Functional.linear.1.backward": bad},
                construct={"Module.b.Linear.backward.0": None, "Functional.relu.9.backward": None,
                           "Functional.linear.1.backward": "Module.b.Linear.backward.0"})
    assert only(run, "d")["nan"]["call"] == "Functional.linear.1.backward"
    (tmp_path / "d/construct.json").write_text("{}")
    assert only(run, "d")["nan"]["call"] == "Module.b.Linear.backward.0"


def test_the_largest_growth_of_norms_comes_first(run, tmp_path):
    grow = {f"Functional.f{i}.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(float(g))])
            for i, g in enumerate((2, 50, 7, 0.5))}
    dumps.write(tmp_path / "d", grow)
    growth = only(run, "d")["growth"]
    assert [(g["call"], g["norm_in"], g["norm_out"]) for g in growth] == [
        ("Functional.f1.0.forward", 2, 100), ("Functional.f2.0.forward", 2, 14), ("Functional.f0.0.forward", 2, 4)]


def test_files_that_are_missing_are_counted(run, tmp_path):
    dumps.real(tmp_path / "d")
    (tmp_path / "d/dump_tensor_data/Functional.relu.0.forward.input.0.npy").unlink()
    d = only(run, "d")
    assert (d["files"], d["missing_files"]) == (4, 1)
    assert "1 of them missing" in run("show", "d").out


def test_several_steps_and_ranks_have_a_line_each(run, tmp_path):
    for step in (0, 10):
        for rank in (0, 1):
            dumps.statistics(tmp_path / f"run/step{step}/rank{rank}")
    nan_dump(tmp_path / "run/step10/rank1")
    listed = shown(run, "run")["dumps"]
    assert [(d["step"], d["rank"], d["nan"] is not None) for d in listed] == [
        (0, 0, False), (0, 1, False), (10, 0, False), (10, 1, True)]
    lines = [line.split() for line in run("show", "run").out.splitlines() if "step10/rank" in line]
    assert [(w[0], w[1], w[5]) for w in lines] == [("step10/rank0", "3", "0"), ("step10/rank1", "4", "3")]


def test_a_dump_that_is_cut_off_shows_what_is_complete_and_says_so(run, tmp_path):
    folder = dumps.statistics(tmp_path / "d")
    text = (folder / "dump.json").read_text()
    (folder / "dump.json").write_text(text[:text.index("Functional.gelu") + 60])
    d = only(run, "d")
    assert d["calls"] == 2 and d["cut_off"] > 0
    assert "cut off at byte" in run("show", "d").out


@pytest.mark.parametrize("name", ["Functional.relu.0.forward", "Functional.relu.0.forward.output.0", "Functional.relu",
                                  "RELU"])
def test_a_call_is_found_by_its_name_a_tensor_of_it_a_beginning_or_a_part(run, tmp_path, name):
    dumps.statistics(tmp_path / "d")
    calls = shown(run, "d", name)["calls"]
    assert [c["name"] for c in calls] == ["Functional.relu.0.forward"]
    assert [r["max"] for r in calls[0]["rows"]] == [2.0, 3.0]
    assert calls[0]["stack"] == dumps.frames(11)


def test_linear_1_does_not_mean_linear_10(run, tmp_path):
    dumps.write(tmp_path / "d", {f"Functional.linear.{i}.forward": dumps.call([dumps.tensor(1.0)], []) for i in range(12)})
    assert [c["name"] for c in shown(run, "d", "Functional.linear.1")["calls"]] == ["Functional.linear.1.forward"]


def test_a_call_is_shown_with_every_argument(run, tmp_path):
    dumps.write(tmp_path / "d", {"Functional.softmax.0.forward": dumps.call(
        [dumps.tensor(0.25), {"type": "int", "value": -1}], [dumps.tensor(0.5, dtype="torch.float16")])})
    text = run("show", "d", "Functional.softmax.0.forward").out
    rows = [line.split() for line in text.splitlines() if line.startswith(("  input", "  output"))]
    assert rows[0] == ["input.0", "float32", "[2,", "3]", "0.25", "-0.25", "0.125", "0.5"]
    assert rows[1][0] == "input.1" and rows[1][-1] == "-1"
    assert rows[2][1] == "float16"
    assert "Stack, innermost first\n    /x/site-packages/torch/nn/functional.py:9 in relu\n" in text


@pytest.mark.parametrize("name, meant", [("Functional.rleu.0.forward", "Functional.relu.0.forward"),
                                         ("Functional.geluu", "Functional.gelu"), ("lienar", "Functional.linear")])
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(run, tmp_path, name, meant):
    dumps.statistics(tmp_path / "d")
    r = run("show", "d", name)
    assert (r.rc, r.out) == (1, "")
    assert r.err.startswith(f"error: d: no call '{name}'; did you mean '{meant}'")


def test_a_name_that_is_far_from_all_says_how_to_list_them(run, tmp_path):
    dumps.statistics(tmp_path / "d")
    r = run("show", "d", "xyzzy")
    assert (r.rc, r.err) == (1, "error: d: no call has 'xyzzy' in its name; msprobe show d --all lists them\n")


def test_long_lists_end_with_how_many_there_are_and_all_shows_them(run, tmp_path):
    dumps.write(tmp_path / "d", {f"Functional.linear.{i}.forward": dumps.call([], []) for i in range(45)})
    assert "... and 5 calls more (--all lists them)" in run("show", "d").out
    assert "Functional.linear.44.forward" in run("show", "d", "--all").out


def test_nothing_of_a_dump_moves_the_cursor(run, tmp_path):
    dumps.write(tmp_path / "d", {"Functional.\x1b[2J.0.forward": dumps.call([dumps.tensor(1.0, dtype="\x1b]0;x\x07")], [])})
    for words in (["d"], ["d", "Functional"]):
        r = run("show", *words)
        assert r.rc == 0 and "\x1b" not in r.out and "\x07" not in r.out


def test_other_generations_are_shown(run, tmp_path):
    (tmp_path / "old.pkl").write_text(
        '["Torch_relu_0_forward_input.0", 1, [], "torch.float32", [2], [1.0, -1.0, 0.0]]\n'
        '["Torch_relu_0_forward_output", 1, [], "torch.float32", [2], [1.0, NaN, 0.5]]\n'
        '["Torch_relu_0_forward_stack_info", [["/w/train.py", 3, "main", "y = relu(x)"]]]\n')
    d = only(run, "old.pkl")
    assert (d["calls"], d["tensors"], d["nan"]["call"]) == (1, 2, "Torch_relu_0_forward")
    assert "/w/train.py" in shown(run, "old.pkl", "Torch_relu_0")["calls"][0]["stack"][0]
    (tmp_path / "debug.json").write_text(json.dumps(
        {"task": "statistics", "level": "debug", "framework": "pytorch", "data": {"x.0.debug": dumps.tensor(4.0)}}))
    row = shown(run, "debug.json", "x")["calls"][0]["rows"][0]
    assert (row["section"], row["max"]) == ("debug", 4.0)


def test_a_file_of_stacks_alone_says_what_shows_them(run, tmp_path):
    (tmp_path / "my stacks.pkl").write_text(json.dumps(["Torch_relu_0_forward_stack_info", [["/w/train.py", "3", "f", "y = relu(x)"]]]) + "\n")
    r = run("show", "my stacks.pkl")
    assert r.rc == 0 and "stacks that were recorded alone: msprobe parse 'my stacks.pkl' Torch_\n" in r.out
    assert "/w/train.py" in run("parse", "my stacks.pkl", "Torch_").out


@pytest.mark.parametrize("path, reason", [("nothing", "nothing: cannot open: No such file or directory"),
                                          ("empty.pt", "empty.pt: the file is empty"),
                                          ("text.txt", "text.txt: neither .npy nor .pt nor .safetensors"),
                                          ("folder", "folder: no dump here")])
def test_what_cannot_be_shown_is_an_error(run, tmp_path, path, reason):
    (tmp_path / "empty.pt").write_text("")
    (tmp_path / "text.txt").write_text("hello, this is no tensor")
    (tmp_path / "folder").mkdir()
    r = run("show", path)
    assert r.rc == 1 and r.out == "" and r.err.startswith("error: " + reason)


# ---- tensor files ---------------------------------------------------------------------------------------------------

def tensor(run, *words):
    listed = shown(run, *words)["tensors"]
    assert len(listed) == 1
    return listed[0]


def test_a_tensor_file_has_the_statistics_of_numpy(run, tmp_path):
    x = np.random.default_rng(7).standard_normal((30, 50)).astype(np.float32) * 100
    np.save(tmp_path / "x.npy", x)
    t = tensor(run, "x.npy")
    assert (t["type"], t["shape"], t["elements"]) == ("torch.float32", [30, 50], 1500)
    assert (t["max"], t["min"]) == (x.max(), x.min())
    assert t["mean"] == pytest.approx(x.astype(float).mean(), rel=1e-12)
    assert t["norm"] == pytest.approx(np.linalg.norm(x.astype(float)), rel=1e-12)
    assert t["first_values"][:3] == [repr(float(v)) for v in x.ravel()[:3]]


@pytest.mark.parametrize("make", [lambda r: r.standard_normal(4001), lambda r: r.standard_normal(999).astype(np.float16),
                                  lambda r: r.integers(-1000, 1000, 500)], ids=["float64", "float16", "int64"])
def test_the_histogram_is_numpys(run, tmp_path, make):
    x = make(np.random.default_rng(3))
    np.save(tmp_path / "x.npy", x)
    h = tensor(run, "x.npy")["histogram"]
    v = x.astype(float)
    counts, _ = np.histogram(v, bins=16, range=(v.min(), v.max()))
    assert (h["low"], h["high"]) == (v.min(), v.max())
    assert sum(h["counts"]) == v.size
    assert max(abs(a - b) for a, b in zip(h["counts"], counts)) <= 1  # an element on the border of two bins


def test_magnitudes_are_counted_by_decade(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([0, 1e-20, 0.5, -0.5, 3, 1e5, 1e300, NAN, -INF]))
    t = tensor(run, "x.npy")
    m = {i + t["magnitudes"]["first_decade"] - 1: n for i, n in enumerate(t["magnitudes"]["counts"]) if n}
    assert m == {-17: 1, -1: 2, 0: 1, 5: 1, 16: 1}
    assert (t["nan"], t["minus_inf"], t["inf"], t["zero"], t["first_not_finite"]) == (1, 1, 0, 1, [7])
    assert (t["histogram"]["high"], sum(t["histogram"]["counts"])) == (1e300, 7)


def test_files_of_every_format_and_type_are_shown(run, tmp_path):
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("safetensors.torch")
    x = torch.arange(6.0).reshape(2, 3)
    for name, t in {"bf16": x.bfloat16(), "c64": torch.tensor([3 + 4j]), "bool": x > 2, "u8": x.byte(), "scalar": torch.tensor(7),
                    "empty": torch.zeros(0, 3), "strided": x.t(), "f8": x.to(torch.float8_e4m3fn)}.items():
        torch.save(t, tmp_path / (name + ".pt"))
        got = tensor(run, name + ".pt")
        assert (got["type"], got["shape"]) == (str(t.dtype), list(t.shape))
        assert run("show", name + ".pt").rc == 0
    st.save_file({"w": x, "b": x.half()}, tmp_path / "m.safetensors")
    assert sorted(t["name"] for t in shown(run, "m.safetensors")["tensors"]) == ["b", "w"]
    assert tensor(run, "c64.pt")["histogram"]["high"] == 5.0


def test_a_file_of_several_tensors_is_listed_and_one_of_them_shown_by_name(run, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"layer": {"weight": torch.ones(2, 2), "bias": torch.zeros(2)}}, tmp_path / "m.pt")
    text = run("show", "m.pt").out
    assert "layer.weight" in text and "layer.bias" in text
    assert tensor(run, "m.pt", "layer.bias")["elements"] == 2
    r = run("show", "m.pt", "layer.weigth")
    assert (r.rc, r.err) == (1, "error: m.pt: no tensor 'layer.weigth' in it; did you mean 'layer.weight'?\n")


def test_the_largest_integers_are_exact(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([2**63 - 1, -2**63]))
    t = tensor(run, "x.npy")
    assert (t["max"], t["min"]) == (2**63 - 1, -2**63)
    np.save(tmp_path / "y.npy", np.array([2**64 - 1, 5], dtype=np.uint64))
    assert (tensor(run, "y.npy")["max"], tensor(run, "y.npy")["min"]) == (str(2**64 - 1), 5)


def test_what_only_looks_like_a_dump_is_read_by_its_content(run, tmp_path):
    """A header of 91 or 123 bytes makes a .safetensors begin like JSON."""
    for length in (91, 123):
        head = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", length) + head.ljust(length) + struct.pack("<f", 2.5))
        assert tensor(run, "x.safetensors")["max"] == 2.5
