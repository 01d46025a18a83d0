"""Code that torch.compile has compiled: it runs as without the tool, and config key "compiled" says what is recorded of it."""

import threading

import pytest

from collecting import IN_PLACE, R, bare, collect, fill, step, torch

import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch has no torch.compile")

LEVELS = ["L0", "L1", "mix"]


class Inner(nn.Module):
    """Calls functions of both kinds: F.pad is written in Python, F.gelu in C."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 4)

    def forward(self, x):
        return F.pad(F.gelu(self.l(x)), (0, 1))


def make():
    return fill(nn.Sequential(nn.Linear(3, 3), Inner()))


class Counting:
    """A back end that counts the graphs that it is given."""

    def __init__(self, name):
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs, self._compile = 0, lookup_backend(name)

    def __call__(self, graph, inputs):
        self.graphs += 1
        return self._compile(graph, inputs)


def raw(*tensors):
    return [t.detach().numpy().tobytes() for t in tensors]


def train(call, model, rows=2):
    """Everything that a step of training comes to, as bytes."""
    model.zero_grad(set_to_none=True)
    x = R(rows, 3, grad=True)
    y = call(x)
    y.square().sum().backward()
    return raw(y, x.grad, *(p.grad for p in model.parameters()))


def both(tmp_path, body, env=None, **config):
    """The program with the tool, after it was seen to come to the same without."""
    expected = bare(tmp_path, body)
    result = collect(tmp_path, body, env, **config)
    assert result.value == expected, result.output
    assert "Traceback" not in result.output and "failed for" not in result.output, result.output
    return result


def listed(result, step=0):
    """What was recorded but for raw()'s own calls."""
    return [name for name in result.names(step) if ".numpy." not in name and ".detach." not in name]


def every_time(d, backend, fullgraph, in_place=False, shown=None):
    """A model that is compiled before, inside and after what is recorded, and runs in all of it: results, and how many graphs were made."""
    found = []
    for when in range(3):
        torch._dynamo.reset()
        model, count, calls = make(), Counting(backend), None
        for now in range(3):
            if now == when:
                if in_place:
                    model.compile(backend=count, fullgraph=fullgraph)
                calls = model if in_place else torch.compile(model, backend=count, fullgraph=fullgraph)
            if now == 1:
                d.start(model if shown is None else shown(model, calls or model))
            for _ in range(2):
                found.append(train(calls or model, model))
            if now == 1:
                d.stop()
                d.step()
        found.append(count.graphs)
    return found


@pytest.mark.parametrize("backend,fullgraph", [("eager", True), ("aot_eager", False)])
@pytest.mark.parametrize("level", LEVELS)
def test_a_compiled_model_comes_to_the_same_with_as_many_graphs(tmp_path, level, backend, fullgraph):
    result = both(tmp_path, lambda d: every_time(d, backend, fullgraph), level=level)
    assert [n for n in result.value if isinstance(n, int)] == [1, 1, 1]


@pytest.mark.parametrize("config", [dict(task="tensor"), dict(part=dict(summary_mode="md5")), dict(task="overflow_check")], ids=["tensor", "md5", "overflow"])
def test_the_same_holds_in_other_tasks_and_for_modules_compiled_in_place(tmp_path, config):
    result = both(tmp_path, lambda d: every_time(d, "aot_eager", True, in_place=True), level="mix", **config)
    assert [n for n in result.value if isinstance(n, int)] == [1, 1, 1]


def test_the_same_holds_where_attributes_are_replaced(tmp_path):
    result = both(tmp_path, lambda d: every_time(d, "eager", True, shown=lambda model, calls: calls), {"MSPROBE_PLAIN": "all"}, level="mix")
    assert [n for n in result.value if isinstance(n, int)] == [1, 1, 1]
    assert "Module.Sequential.Sequential.forward.0" in result.names(0)


def test_code_that_must_not_be_compiled_again_runs_while_recording(tmp_path):
    def body(d):
        model = make()
        compiled = torch.compile(model, backend="eager")
        before = train(compiled, model)
        with torch.compiler.set_stance("fail_on_recompile"):
            return before, step(d, lambda: train(compiled, model), model), train(compiled, model)

    both(tmp_path, body, level="mix")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("given", ["model", "compiled"])
def test_a_compiled_model_is_recorded_at_its_borders(tmp_path, given, in_place):
    def body(d):
        model = make()
        compiled = torch.compile(model, backend="aot_eager")
        if in_place:
            model.compile(backend="aot_eager")
            compiled = model
        return step(d, lambda: (compiled(R(2, 3, grad=True)) * 2).sum().backward(), model if given == "model" else compiled)

    def eager(d):
        holder = nn.ModuleList([make()])  # whose call is recorded, because something holds it
        return step(d, lambda: (holder[0](R(2, 3, grad=True)) * 2).sum().backward(), holder)

    result = collect(tmp_path, body, IN_PLACE, level="mix")
    other = tmp_path / "eager"
    other.mkdir()
    expected = collect(other, eager, IN_PLACE, level="mix").data()
    found = result.data()
    one, grad = "Module.Sequential.Sequential.forward.0", "Module.Sequential.Sequential.backward.0"
    assert [n for n in found if ".parameters_grad" not in n] == [one, "Tensor.__mul__.0.forward", "Tensor.sum.0.forward", "Torch.ones_like.0.forward",
                                                               "Tensor.sum.0.backward", "Tensor.__mul__.0.backward", grad], result.output
    assert found[one] == expected["Module.0.Sequential.forward.0"] and found[grad] == expected["Module.0.Sequential.backward.0"]
    assert found["Module.1.l.Linear.parameters_grad"] == expected["Module.0.1.l.Linear.parameters_grad"]


def test_a_compiled_part_has_the_name_that_it_has_uncompiled(tmp_path):
    def body(d, compiled):
        model = make()
        model[1] = torch.compile(model[1], backend="aot_eager") if compiled else model[1]
        step(d, lambda: model(R(2, 3, grad=True)).sum().backward(), model)

    found = collect(tmp_path, lambda d: body(d, True), level="L0")
    other = tmp_path / "eager"
    other.mkdir()
    expected = collect(other, lambda d: body(d, False), level="L0").data()
    names = [n for n in expected if ".l.Linear.forward" not in n and ".l.Linear.backward" not in n]
    assert sorted(found.names()) == sorted(names)
    assert all(found.data()[n] == expected[n] for n in names)
    told = [line for line in found.output.splitlines() if "compiled by torch.compile: what runs inside is not recorded" in line]
    assert len(told) == 1 and " module 1, forward (" in told[0]


def breaks(x):
    y = F.pad(torch.sin(x), (0, 1))
    torch._dynamo.graph_break()
    return aside(torch.cos(y)) * 2


def aside(x):
    return F.pad(torch.tan(x), (1, 0))


def test_between_graphs_nothing_is_recorded_and_behind_them_everything_is(tmp_path):
    def body(d):
        global aside
        count, aside = Counting("eager"), torch.compiler.disable(aside)
        fast = torch.compile(breaks, backend=count)
        before = raw(fast(R(3)))

        def run():
            return raw(F.pad(torch.neg(fast(R(3))), (0, 1)), F.pad(R(2), (1, 1)))

        return before, step(d, run), raw(fast(R(3))), count.graphs

    result = both(tmp_path, body)
    assert listed(result) == ["Torch.neg.0.forward", "Functional.pad.0.forward", "Functional.pad.1.forward"]
    told = [line for line in result.output.splitlines() if "compiled by torch.compile" in line]
    assert len(told) == 1 and "breaks (%s:%d)" % (__file__, breaks.__code__.co_firstlineno) in told[0]
    assert "resume" not in told[0]


def test_what_compiled_code_calls_in_backward_is_not_recorded(tmp_path):
    """As the code does that inductor writes into files of its own: it calls torch.mm, in a thread that no callback tells of."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    calls = []

    def compiler(graph, inputs):
        def run(*args):
            calls.append(True)
            torch.mm(R(2, 2), R(2, 2))
            return graph(*args)
        return make_boxed_func(run)

    def body(d):
        model = make()
        fast = torch.compile(model, backend=aot_autograd(fw_compiler=compiler, bw_compiler=compiler))
        return step(d, lambda: train(fast, model), model), len(calls)

    result = both(tmp_path, body, level="L1")
    assert result.value[1] == 2
    assert "Torch.mm.0.forward" not in result.names() and "Tensor.square.0.backward" in result.names()


def test_what_python_itself_has_between_graphs_is_not_named(tmp_path):
    import logging

    def logs(x):
        y = torch.sin(x)
        logging.getLogger("quiet").debug("between two graphs")
        return torch.cos(y)

    result = both(tmp_path, lambda d: step(d, lambda: raw(torch.compile(logs, backend="eager")(R(3)))))
    told, = [line for line in result.output.splitlines() if "compiled by torch.compile" in line]
    assert "logs (%s" % __file__ in told and "logging" not in told


def test_an_exception_out_of_compiled_code_leaves_recording_as_it_was(tmp_path):
    def raises(x):
        torch._dynamo.graph_break()
        raise ValueError("on purpose")

    def body(d):
        fast = torch.compile(raises, backend="eager")
        d.start()
        with pytest.raises(ValueError):
            fast(R(3))
        F.pad(R(2), (1, 1))
        d.stop()
        d.step()

    assert collect(tmp_path, body).names() == ["Functional.pad.0.forward"]


def test_a_run_that_is_stopped_in_compiled_code_records_again_later(tmp_path):
    def body(d):
        def stops(x):
            torch._dynamo.graph_break()
            d.stop()
            d.start()
            return F.pad(torch.sin(x), (0, 1))

        fast = torch.compile(stops, backend="eager")
        d.start()
        torch.tan(R(2))
        fast(R(3))
        F.pad(R(2), (1, 1))
        d.stop()
        d.step()
        return step(d, lambda: raw(F.pad(R(2), (1, 1))))

    result = collect(tmp_path, body)
    assert result.names(0) == ["Torch.tan.0.forward", "Functional.pad.0.forward"] and listed(result, 1) == ["Functional.pad.0.forward"]


def test_hooks_of_the_programs_own_in_compiled_modules_cost_no_other_graph(tmp_path):
    def body(d):
        model, count, seen = make(), Counting("eager"), []
        model[1].register_forward_hook(lambda m, args, out: out * 2)
        model[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        compiled = torch.compile(model, backend=count)
        for recorded in (False, True, True, False):
            if recorded:
                d.start(model)
            seen.append(train(model, model))
            seen.append(train(compiled, model))
            seen.append(train(model, model))
            if recorded:
                d.stop()
                d.step()
        return seen, count.graphs

    result = both(tmp_path, body, level="mix")
    assert result.value[1] == 1
    assert [n for n in result.names(1) if n.startswith("Module.1.Inner.forward")] == ["Module.1.Inner.forward.0", "Module.1.Inner.forward.1"]


def own(x):
    return torch.sin(x) + 1


def test_an_api_that_the_program_registered_is_compiled_as_it_is(tmp_path):
    import sys

    def body(d):
        here = sys.modules[__name__]
        d.register_custom_api(here, "own", "Mine")
        count = Counting("eager")
        fast = torch.compile(lambda x: here.own(x) * 2, backend=count, fullgraph=True)
        before = raw(fast(R(3)))
        return before, step(d, lambda: raw(fast(R(3)), here.own(R(3)))), raw(fast(R(3))), count.graphs

    result = both(tmp_path, body)
    assert listed(result) == ["Mine.own.0.forward"] and result.value[-1] == 1


def test_another_thread_compiles_while_this_one_records(tmp_path):
    def body(d):
        count, found = Counting("eager"), []
        model = make()
        compiled = torch.compile(model, backend=count)

        def work():
            found.extend(train(compiled, model) for _ in range(20))

        def run():
            thread = threading.Thread(target=work)
            thread.start()
            while thread.is_alive():
                torch.sin(R(2))
            thread.join()
            return raw(F.pad(R(2), (1, 1)))

        return step(d, run), found, count.graphs

    result = both(tmp_path, body)
    assert result.value[-1] == 1 and "Functional.pad.0.forward" in result.names()


def test_compiled_autograd_runs_untouched(tmp_path):
    def body(d):
        model = make()

        def run():
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
                return train(model, model)

        return run(), step(d, run, model), run()

    both(tmp_path, body, level="mix")


def test_a_model_is_exported_while_recording(tmp_path):
    def body(d):
        model = make()

        def run():
            return str(torch.export.export(model, (R(2, 3),), strict=True).graph)

        return run(), step(d, run, model)

    assert both(tmp_path, body, level="mix").value[0].count("linear") >= 2


# ---- "compiled": "eager" -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_eagerly_everything_is_recorded_as_if_nothing_were_compiled(tmp_path, level, in_place):
    def body(d, how):
        model, count = make(), Counting("eager")
        part = nn.Sequential(model, nn.ReLU())
        if how == "in place":
            model.compile(backend=count)
        elif how:
            part[0] = torch.compile(model, backend=count)
        whole = torch.compile(part, backend=count) if how else part
        before = train(whole, model)
        during = step(d, lambda: train(whole, model), whole if how != "in place" else part)
        graphs = count.graphs
        return before, during, train(whole, model), graphs, count.graphs

    found = collect(tmp_path, lambda d: body(d, "in place" if in_place else True), level=level, compiled="eager")
    other = tmp_path / "plain"
    other.mkdir()
    expected = collect(other, lambda d: body(d, False), level=level)
    assert found.value[:3] == expected.value[:3] and found.value[3] == found.value[4] > 0
    assert found.data() == expected.data()
    assert found.output.count("while recording, compiled functions run eagerly; the numbers are those of eager code") == 1
    assert "what runs inside is not recorded" not in found.output


def test_the_programs_own_stance_is_there_again_after_recording(tmp_path):
    def body(d):
        fast = torch.compile(lambda x: torch.sin(x) * 2, backend="eager", dynamic=False)
        fast(R(3))
        torch.compiler.set_stance("fail_on_recompile")
        step(d, lambda: fast(R(4)))
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            fast(R(5))

    assert "Torch.sin.0.forward" in collect(tmp_path, body, compiled="eager").names()


def test_a_torch_without_stances_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delattr(torch.compiler, "set_stance")

    def body(d):
        fast = torch.compile(lambda x: torch.sin(x) * 2, backend="eager")
        return step(d, lambda: raw(fast(R(3)), torch.tan(R(2))))

    result = both(tmp_path, body, compiled="eager")
    assert listed(result) == ["Torch.tan.0.forward"]
    assert "needs torch.compiler.set_stance of torch 2.6" in result.output


def test_a_wrong_word_is_refused(tmp_path):
    result = collect(tmp_path, lambda d: None, compiled="eagre", status=1)
    assert 'compiled is "eagre"; allowed: skip, eager (did you mean "eager"?)' in result.output
