"""Autograd's nodes, read and hooked without going through Python (python/ext/probe_node.c): what programs do with nodes of their own still works."""
import ctypes
import gc
import os
import sys
import threading

import pytest
from collecting import R, bare, collect, fill, torch

from msprobe._core import probe  # noqa: E402
from msprobe.pytorch import selftest  # noqa: E402

known = pytest.mark.skipif(not torch.__version__.startswith(selftest._KNOWN_NODES), reason="nodes of this torch are not read directly")


def model():
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return fill(m)


def run_step(d, m, loss):
    d.start(model=m)
    loss().backward()
    d.stop()
    d.step()


@known
def test_they_are_used_with_the_torch_that_the_tests_know(tmp_path):
    result = collect(tmp_path, lambda d: (selftest.prove_state(probe), selftest.prove_nodes(probe)))
    assert result.value == (True, True)
    assert "through Python" not in result.output


@known
def test_nodes_that_look_otherwise_are_refused(tmp_path):
    def body(d):
        a = torch.zeros(2, requires_grad=True)
        kinds = [(t, torch._C._dispatch_keys(t).raw_repr()) for t in (a, torch.zeros(1, device="meta"))]
        without_hook = [a * 2, a + a]
        one = [a * 3]
        one[0].grad_fn.register_hook(lambda leaving, entering: None)
        first = [a * 2, a + a, torch.stack((a, a))]  # all of them the first output of their node: where its number stands cannot be told
        for result in first:
            result.grad_fn.register_hook(lambda leaving, entering: None)
        return [probe.nodes(first, kinds), probe.nodes(without_hook, kinds), probe.nodes([torch.zeros(2)], kinds), probe.nodes([], kinds), probe.nodes(one + without_hook, kinds),
                probe.nodes(), selftest.prove_nodes(probe)]

    assert collect(tmp_path, body).value == [False] * 6 + [True]


def hook_on_the_same_node(d):
    x = R(2, 3, grad=True)
    seen = []
    d.start()
    y = torch.relu(x)
    y.grad_fn.register_hook(lambda leaving, entering: (seen.append(entering[0].clone()), (leaving[0] * 2,))[1])
    y.grad_fn.register_prehook(lambda entering: (entering[0] + 1,))
    y.sum().backward()
    d.stop()
    d.step()
    return x.grad, seen


def test_hooks_of_the_program_on_the_same_node_run_and_change_the_gradient(tmp_path):
    result = collect(tmp_path, hook_on_the_same_node)
    x = R(2, 3)
    expected = 4.0 * (x > 0)
    assert torch.equal(result.value[0], expected) and torch.equal(result.value[1][0], torch.full((2, 3), 2.0))
    record = result.data()["Torch.relu.0.backward"]  # ours was there first: what relu itself made
    assert record["output"][0]["Max"] == 2.0 and record["input"][0]["Max"] == 2.0


class Outer(torch.nn.Module):
    """Its result is its child's, so that both have a hook on the same node."""

    def __init__(self, between):
        super().__init__()
        self.inner, self.between = fill(torch.nn.Linear(32, 32)), between

    def forward(self, x):
        y = self.inner(x)
        self.between(y.grad_fn)
        return y


def nested_gradients(tmp_path, between):
    def body(d):
        m = torch.nn.Sequential(Outer(between))
        run_step(d, m, lambda: m(R(32, 32, grad=True)).exp().sum())

    data = collect(tmp_path, body, level="L0").data()
    return [data["Module.0.%s.backward.0" % name] for name in ("inner.Linear", "Outer")]


def test_two_modules_of_one_node_have_the_same_gradients(tmp_path):
    inner, outer = nested_gradients(tmp_path, lambda node: None)
    assert inner["input"][0]["Norm"] > 0 and inner == outer


def test_what_a_hook_of_the_program_writes_between_two_of_ours_is_seen(tmp_path):
    inner, outer = nested_gradients(tmp_path, lambda node: node.register_hook(lambda leaving, entering: (entering[0].mul_(2), None)[1]))
    assert outer["input"][0]["Norm"] == pytest.approx(2 * inner["input"][0]["Norm"])


@known
def test_no_list_of_transforms_is_made_for_a_thread_that_uses_none(tmp_path):
    """torch would copy it for each part of every later backward pass."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    state = library["_ZN2at9functorch20functorchTLSAccessorEv"]
    state.restype = ctypes.c_void_p

    def body(d):
        m, found = model(), []

        def on_thread():
            run_step(d, m, lambda: m(R(2, 3)).sum())
            found.append(ctypes.c_void_p.from_address(state()).value)
            torch.vmap(torch.exp)(R(2, 3))
            found.append(ctypes.c_void_p.from_address(state()).value)

        thread = threading.Thread(target=on_thread)
        thread.start()
        thread.join()
        return found

    result = collect(tmp_path, body, level="mix")
    assert result.value[0] is None and result.value[1] is not None and result.names()


def test_a_graph_that_is_run_twice_has_two_records(tmp_path):
    def body(d):
        x = R(2, 3, grad=True)
        d.start()
        y = torch.exp(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        d.stop()
        d.step()

    names = collect(tmp_path, body).names()
    assert "Torch.exp.0.backward" in names and "Torch.exp.0.backward.1" in names


def test_a_graph_that_outlives_its_step_adds_nothing_and_can_go_on_another_thread(tmp_path):
    def body(d):
        m, x = model(), R(2, 3)
        d.start(model=m)
        kept = [m(x).sum(), m(x).sum()]
        d.stop()
        d.step()
        kept[0].backward()
        grads = [p.grad.clone() for p in m.parameters()]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
        run_step(d, m, lambda: m(x).sum())
        return grads

    result = collect(tmp_path, body, level="mix")
    assert all(torch.equal(a, b) for a, b in zip(result.value, bare(tmp_path, body)))
    assert not [name for name in result.names(0) if "backward" in name]
    assert all(grads == {"weight": [None], "bias": [None]} for name, grads in result.data().items() if "parameters_grad" in name)
    assert len([name for name in result.names(1) if "parameters_grad" in name]) == 2


def test_nodes_that_the_program_keeps_are_recorded_once_in_each_step(tmp_path):
    """As a distributed model keeps those of its parameters."""
    def body(d):
        m, x = model(), R(2, 3)
        keep = [p.expand_as(p).grad_fn.next_functions[0][0] for p in m.parameters()]
        for _ in range(3):
            m.zero_grad()
            run_step(d, m, lambda: m(x).sum())
        return len(keep)

    result = collect(tmp_path, body, level="L0")
    first = result.data(0)
    grads = [name for name in first if "parameters_grad" in name]
    assert len(grads) == 2
    for step in range(3):
        assert result.names(step) == list(first)
        assert [result.data(step)[name] for name in grads] == [first[name] for name in grads]


@pytest.mark.skipif(not hasattr(torch.utils, "swap_tensors"), reason="this torch has no torch.utils.swap_tensors")
def test_a_parameter_with_another_tensor_in_it_is_still_known(tmp_path):
    def body(d):
        m, x = model(), R(2, 3)
        run_step(d, m, lambda: m(x).sum())
        other = torch.nn.Parameter(m[0].weight.detach().clone())
        torch.utils.swap_tensors(m[0].weight, other)
        run_step(d, m, lambda: m(x).sum())

    result = collect(tmp_path, body, level="L0")
    assert [n for n in result.names(1) if "parameters_grad" in n] == [n for n in result.names(0) if "parameters_grad" in n]


def test_nothing_of_a_graph_is_left_when_it_is_gone(tmp_path):
    def body(d):
        m, x = model(), R(2, 3)
        run_step(d, m, lambda: m(x).sum())
        before = []
        for i in range(340):  # numbers up to 256 are there anyway
            run_step(d, m, lambda: m(x).sum())
            if i in (299, 339):
                gc.collect()
                before.append(sys.getallocatedblocks())
        return before[1] - before[0]

    assert collect(tmp_path, body, level="mix").value < 40  # one object per hook would be 12 a step, in 40 steps


def test_a_gradient_with_a_graph_of_its_own(tmp_path):
    def body(d):
        x = R(2, 3, grad=True)
        d.start()
        y = torch.exp(x)
        first, = torch.autograd.grad(y.sum(), x, create_graph=True)
        first.sum().backward()
        d.stop()
        d.step()
        return x.grad, x.detach()

    result = collect(tmp_path, body)
    grad, x = result.value
    assert torch.equal(grad, x.exp())
    record = result.data()["Torch.exp.0.backward"]
    assert record["output"][0]["requires_grad"] is True
