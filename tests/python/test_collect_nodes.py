"""Hooks of ours on autograd's nodes: what programs do with nodes of their own still works, and nothing of ours is left on a graph."""
import gc
import sys
import threading

import pytest
from collecting import R, bare, collect, fill, torch


def model():
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    return fill(m)


def run_step(d, m, loss):
    d.start(model=m)
    loss().backward()
    d.stop()
    d.step()


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


class KeepsHooks(torch.nn.Module):
    """Puts hooks on the node of its result, before ours come."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def forward(self, x):
        y = torch.exp(x)
        self.handles = [y.grad_fn.register_hook(self.note("first")), y.grad_fn.register_hook(self.note("taken out")), y.register_hook(self.note("of the tensor")),
                        y.grad_fn.register_prehook(self.note("before the node"))]
        return y


def hooks_around_ours(d):
    seen, x = [], R(2, 3, grad=True)

    def note(name):
        return lambda *args: seen.append(name)

    m = torch.nn.Sequential(KeepsHooks(note))
    d.start(model=m)
    y = m(x)
    last, gone = y.grad_fn.register_hook(note("last")), y.grad_fn.register_hook(note("gone"))
    m[0].handles[1].remove()
    gone.remove()
    y.sum().backward(retain_graph=True)
    d.stop()
    d.step()
    last.remove()
    y.grad_fn.register_hook(note("after stop"))
    y.sum().backward(retain_graph=True)
    m[0].handles[0].remove()
    m[0].handles[3].remove()
    y.sum().backward()
    return seen, x.grad


@pytest.mark.skipif(not hasattr(getattr(torch.autograd.graph, "Node", None), "register_prehook"), reason="this torch has no hooks before a node")
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_hooks_before_between_and_after_ours_keep_their_order_and_their_handles(tmp_path, level):
    (tmp_path / "bare").mkdir()
    result, expected = collect(tmp_path, hooks_around_ours, level=level), bare(tmp_path / "bare", hooks_around_ours)
    assert result.value[0] == expected[0] and expected[0].count("first") == 2 and "taken out" not in expected[0]
    assert torch.equal(result.value[1], expected[1])
    assert [n for n in result.names() if ".backward" in n]


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
    """A window of 40 steps has some tens of blocks more or less by chance, be it of lists that the interpreter keeps; what a graph leaves is in each of them."""
    def body(d):
        m, x = model(), R(2, 3)
        blocks = []
        for i in range(781):
            run_step(d, m, lambda: m(x).sum())
            if i >= 300 and (i - 300) % 40 == 0:  # numbers up to 256 are there anyway
                gc.collect()
                blocks.append(sys.getallocatedblocks())
        return sorted(after - before for before, after in zip(blocks, blocks[1:]))

    grown = collect(tmp_path, body, level="mix").value
    assert grown[len(grown) // 2] < 20, grown  # one object per step would be 40, one per hook 480


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
