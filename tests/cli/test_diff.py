"""msprobe diff: two tensor files."""
import json
import re

import numpy as np
import pytest

import dumps


@pytest.fixture
def pair(tmp_path):
    def maker(a, b):
        np.save(tmp_path / "a.npy", np.asarray(a))
        np.save(tmp_path / "b.npy", np.asarray(b))
        return "a.npy", "b.npy"
    return maker


def compared(run, *words):
    r = run("diff", *words, "--json")
    assert r.rc == 0, r.err
    return json.loads(r.out)


def only(run, *words):
    listed = compared(run, *words)["tensors"]
    assert len(listed) == 1
    return listed[0]


def random(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_equal_files_are_identical_to_the_bit(run, pair):
    x = random((5, 7))
    x[2, 2] = np.nan
    d = only(run, *pair(x, x))
    assert (d["identical"], d["differ"], d["mismatches"]) == (True, 0, 0)
    assert "identical to the bit" in run("diff", "a.npy", "b.npy").out


def test_the_metrics_are_numpys(run, pair):
    b = random((40, 30))
    a = b + random((40, 30), 2) * np.float32(0.01)
    d = only(run, *pair(a, b))
    x, y = a.astype(float).ravel(), b.astype(float).ravel()
    assert d["cosine"] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-6)
    assert d["euc_dist"] == pytest.approx(np.linalg.norm(x - y), rel=1e-9)
    assert d["max_abs_err"] == pytest.approx(abs(x - y).max(), rel=1e-9)
    rel = abs((a - b) / b)
    assert d["max_relative_err"] == pytest.approx(rel.max(), rel=1e-6)
    assert d["one_thousandth_err_ratio"] == pytest.approx((rel < 0.001).mean(), abs=1e-9)
    assert d["five_thousandths_err_ratio"] == pytest.approx((rel < 0.005).mean(), abs=1e-9)
    assert d["differ"] == (a != b).sum()


def test_the_worst_elements_and_the_first_difference_have_their_index(run, pair):
    b = random((6, 8))
    a = b.copy()
    a[1, 5] += 0.5
    a[4, 2] += 20
    a[5, 7] -= 3
    d = only(run, *pair(a, b))
    assert d["first"]["index"] == [1, 5]
    assert [w["index"] for w in d["worst"]] == [[4, 2], [5, 7], [1, 5]]
    assert d["worst"][0]["a"] == repr(float(a[4, 2])) and d["worst"][0]["b"] == repr(float(b[4, 2]))
    assert d["worst"][0]["error"] == pytest.approx(20, rel=1e-6)
    assert d["verdict"] == "No"


def test_where_the_errors_are_is_a_map_of_the_tensor(run, pair):
    b = random((10, 20))
    a = b.copy()
    a[:, 16:] = 0
    d = only(run, *pair(a, b))
    assert np.array(d["map"]).shape == (10, 20)
    assert np.allclose(d["map"], abs(a.astype(float) - b), rtol=1e-9)
    assert d["pattern"] == "the last 4 of every 20 elements are zero"
    text = run("diff", "a.npy", "b.npy").out
    assert len(re.findall(r"^    \.{16}[1-9]{4}$", text, re.M)) == 10


def test_the_sizes_of_errors_are_counted(run, pair):
    b = np.zeros(6)
    d = only(run, *pair([0, 1e-20, 0.02, 0.05, 0.05, 7e12], b))
    edges = [0] + [10 ** (k / 2 - 12) for k in range(41)] + [np.inf]
    counts, _ = np.histogram([1e-20, 0.02, 0.05, 0.05, 7e12], bins=edges)
    assert d["errors"] == counts.tolist()


def test_nan_and_inf_on_one_side_only_are_wrong(run, pair):
    a, b = random(50), random(50)
    b[:] = a
    a[3], b[9], a[20], b[20], a[30], b[30] = np.nan, np.inf, np.inf, -np.inf, np.nan, np.nan
    d = only(run, *pair(a, b))
    assert (d["differ"], d["mismatches"], d["verdict"]) == (3, 3, "No")
    assert (d["first"]["index"], d["worst"][0]["error"]) == ([3], "inf")
    assert run("diff", "a.npy", "b.npy", "--fail-on", "no").rc == 3
    assert "3 are NaN or inf on one side only" in run("diff", "a.npy", "b.npy").out


def test_types_may_differ(run, pair):
    x = random(100)
    d = only(run, *pair(x.astype(np.float64), x))
    assert (d["identical"], d["differ"], d["cosine"]) == (False, 0, 1)
    assert "equal values, different types" in run("diff", "a.npy", "b.npy").out


def test_large_integers_are_compared_exactly(run, pair):
    d = only(run, *pair(np.array([2**62 + 1, -2**63, 5]), np.array([2**62, 2**63 - 1, 5])))
    assert d["differ"] == 2
    assert [w["error"] for w in d["worst"]] == [float(2**64), 1.0]


def test_complex_numbers_are_compared_as_the_numbers_they_are(run, pair):
    d = only(run, *pair(np.array([1 + 2j, 3 + 7j]), np.array([1 + 2j, 0 + 3j])))
    assert (d["differ"], d["worst"][0]["error"], d["worst"][0]["index"]) == (1, 5.0, [1])


def test_zeros_of_different_sign_are_equal_but_not_identical(run, pair):
    d = only(run, *pair(np.array([0.0, 1]), np.array([-0.0, 1])))
    assert (d["identical"], d["differ"]) == (False, 0)
    assert run("diff", "a.npy", "b.npy", "--fail-on", "any").rc == 3


@pytest.mark.parametrize("change, no, any_", [(0, 0, 0), (1e-6, 0, 3), (5.0, 3, 3)])
def test_the_exit_status_is_zero_unless_fail_on_asks(run, pair, change, no, any_):
    b = random((4, 4))
    a = b.copy()
    a[1, 1] += np.float32(change)
    pair(a, b)
    assert run("diff", "a.npy", "b.npy").rc == 0
    assert run("diff", "a.npy", "b.npy", "--fail-on", "no").rc == no
    assert run("diff", "a.npy", "b.npy", "--fail-on", "any", "-q").rc == any_


def test_other_shapes_are_wrong(run, pair):
    d = only(run, *pair(random((2, 3)), random((3, 2))))
    assert (d["verdict"], d["identical"]) == ("Unmatched", False)
    assert run("diff", "a.npy", "b.npy", "--fail-on", "no").rc == 3


def test_tensors_of_one_name_meet_whatever_the_format(run, tmp_path):
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("safetensors.torch")
    x = torch.arange(6.0)
    st.save_file({"w": x, "only.b": x.clone(), "same": x.clone()}, tmp_path / "b.safetensors")
    torch.save({"same": x, "w": x + 1, "only": {"a": x}}, tmp_path / "a.pt")
    d = compared(run, "a.pt", "b.safetensors")
    assert [(t["name"], t["a"] is not None, t["b"] is not None) for t in d["tensors"]] == [
        ("same", True, True), ("w", True, True), ("only.a", True, False), ("only.b", False, True)]
    assert (d["different"], d["wrong"], d["in_one_file_only"]) == (1, 1, 2)
    assert only(run, "a.pt", "b.safetensors", "w")["differ"] == 6
    text = run("diff", "a.pt", "b.safetensors").out
    assert re.search(r"only in A .* only\.a", text) and re.search(r"identical .* same", text)
    r = run("diff", "a.pt", "b.safetensors", "nope")
    assert (r.rc, r.err) == (1, "error: a.pt: no tensor 'nope' among the 3 in it\n")


def test_single_tensors_meet_whatever_their_names(run, tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.ones(3), tmp_path / "a.pt")
    torch.save({"x": torch.ones(3)}, tmp_path / "b.pt")
    assert only(run, "a.pt", "b.pt")["identical"]


def test_a_dump_is_sent_to_compare(run, tmp_path):
    dumps.statistics(tmp_path / "d")
    r = run("diff", "d", "d")
    assert (r.rc, r.err) == (1, "error: d: a dump, no tensor file; msprobe compare A B compares dumps\n")


def test_the_threads_change_no_digit(run, pair):
    b = random((700, 900))
    pair(b + random((700, 900), 5) * np.float32(1e-3), b)
    first = run("diff", "a.npy", "b.npy", "--json", "--threads", "1").out
    assert run("diff", "a.npy", "b.npy", "--json", "--threads", "7").out == first
