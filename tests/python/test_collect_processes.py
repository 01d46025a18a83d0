"""Whose calls are recorded: not those of data-loader workers and other children, not those inside compiled regions."""
import os

import pytest
import torch

from collecting import R, collect, step


class Numbers(torch.utils.data.Dataset):
    """Works for its living: what it calls is a worker's."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.sin(torch.full((3,), float(i)))


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_data_loader_workers_are_not_recorded(tmp_path, level):
    def body(d):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2))
        seen = []
        d.start(model)
        for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2):
            model(torch.mul(batch, 2))
            seen.append(batch.sum().item())
        d.stop()
        d.step()
        return seen

    r = collect(tmp_path, body, level=level)
    expected = [torch.stack([torch.sin(torch.full((3,), float(i))) for i in part]).sum().item() for part in (range(4), range(4, 8))]
    assert r.value == pytest.approx(expected)
    assert not any("sin" in name or "full" in name for name in r.names())
    assert {"Torch.mul.0.forward", "Torch.mul.1.forward", "Functional.linear.1.forward"} <= set(r.names())


def test_a_child_computes_as_ever_and_the_parents_files_are_whole(tmp_path):
    def body(d):
        x = R(3)
        d.start()
        torch.sin(x)
        pid = os.fork()
        if pid == 0:
            d.stop()
            d.start()
            ok = torch.equal(torch.cos(x), x.cos())
            d.step()
            os._exit(0 if ok else 1)
        _, status = os.waitpid(pid, 0)
        torch.tan(x)
        d.stop()
        d.step()
        return os.WEXITSTATUS(status)

    r = collect(tmp_path, body)
    assert r.value == 0
    assert r.names() == ["Torch.sin.0.forward", "Torch.tan.0.forward"]


def scaled(x):
    return torch.tanh(x) * 2


compiler = pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch has no torch.compile")


@compiler
def test_a_compiled_function_is_named_and_what_is_around_it_is_recorded(tmp_path):
    def body(d):
        fast = torch.compile(scaled, backend="aot_eager")
        return step(d, lambda: torch.neg(fast(torch.sin(R(3))))).tolist()

    r = collect(tmp_path, body)
    assert r.value == torch.neg(scaled(torch.sin(R(3)))).tolist()
    assert r.names() == ["Torch.sin.0.forward", "Torch.neg.0.forward"]
    line = scaled.__code__.co_firstlineno
    assert "scaled (%s:%d) is compiled by torch.compile: what runs inside is not recorded" % (__file__, line) in r.output


@compiler
def test_a_region_that_python_runs_is_recorded_no_more_than_others(tmp_path):
    def body(d):
        fast = torch.compile(scaled, backend="eager")
        return step(d, lambda: torch.neg(fast(R(3)))).tolist()

    r = collect(tmp_path, body)
    assert r.value == torch.neg(scaled(R(3))).tolist()
    assert r.names() == ["Torch.neg.0.forward"]
    assert "is compiled by torch.compile" in r.output


def test_a_name_taken_out_of_the_wide_list_is_not_recorded(tmp_path, monkeypatch):
    from msprobe.pytorch import apis

    path = tmp_path / "wide.yaml"
    path.write_text("tensor:\n  - clone\n  - sin\ntorch:\n  - sin\n")
    monkeypatch.setitem(apis.LISTS, "wide", str(path))
    r = collect(tmp_path, lambda d: step(d, lambda: (R(3).clone(), torch.sin(R(3)), torch.cos(R(3)))) and None, api_list="wide")
    assert r.names() == ["Tensor.clone.0.forward", "Torch.sin.0.forward"]
