"""What backward passes bring, in their order, whatever they are interrupted by; and models that change between steps."""
import gc
import json
import os
import signal
import threading
import time

import pytest
from collecting import ALWAYS_BY_HOOKS, IN_PLACE, R, afresh, bare, begin, collect, fill, torch, write_config

import torch.nn as nn  # noqa: E402
from msprobe._core import probe  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

PLAIN = {"MSPROBE_PLAIN": "all"}


def both_ways(tmp_path, body, **config):
    found = []
    for name, env in (("in_place", IN_PLACE), ("plain", PLAIN)):
        own = tmp_path / name
        own.mkdir()
        found.append(collect(own, body, env=env, **config))
    return found


def assert_same_files(one, other, steps=1):
    for step in range(steps):
        assert list(one.data(step)) == list(other.data(step))
        for name in ("dump.json", "construct.json"):
            assert one.read(name, step) == other.read(name, step)


def a_long_chain(d):
    x = R(4, 5, grad=True)
    d.start()
    y = x
    for _ in range(70):
        y = torch.tanh(torch.sin(y) * 1.25)
    y.sum().backward()
    d.stop()
    d.step()


def test_a_long_chain_of_calls_is_recorded_in_its_order(tmp_path):
    in_place, plain = both_ways(tmp_path, a_long_chain)
    assert_same_files(in_place, plain)
    assert sum(".backward" in name for name in in_place.names()) == 211


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(torch.relu(self.linear(x)) * 0.5 + x)


class Repeated(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.third = Block(), Block(), Block()
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        x = checkpoint(self.second, x, use_reentrant=self.reentrant)
        return self.third(x)


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("mode", ["statistics", "md5"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_repeated_inside_backward_stands_where_it_ran(tmp_path, level, mode, reentrant):
    def body(d):
        model = fill(Repeated(reentrant))
        for _ in range(2):
            d.start(model)
            model(R(3, 6, grad=True)).sum().backward()
            d.stop()
            d.step()

    in_place, plain = both_ways(tmp_path, body, level=level, part={"summary_mode": mode})
    assert_same_files(in_place, plain, 2)


def test_large_gradients_and_several_contributions_are_the_same(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(300, 300), Block300(), nn.Linear(300, 5)))
        d.start(model)
        (model(R(80, 300, grad=True)).pow(2).sum() * 0.01).backward()
        d.stop()
        d.step()

    class Block300(nn.Module):
        def forward(self, x):
            return torch.sin(x) + x * x + x[:, :1]

    in_place, plain = both_ways(tmp_path, body, level="L0")
    assert_same_files(in_place, plain)


def test_a_backward_pass_that_fails_leaves_what_was_shown_until_then(tmp_path):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ValueError("as planned")

    def body(d):
        d.start()
        y = torch.sin(torch.exp(Fails.apply(R(3, grad=True))))
        try:
            torch.tanh(y).sum().backward()
        except ValueError as e:
            assert "as planned" in str(e)
        torch.relu(R(2))
        d.stop()
        d.step()

    in_place, plain = both_ways(tmp_path, body)
    assert_same_files(in_place, plain)
    assert in_place.names()[-1] == "Torch.relu.0.forward" and "Torch.exp.0.backward" in in_place.names()


def on_threads(d):
    def train(seed):
        for _ in range(30):
            x = R(8, 8, seed=seed, grad=True)
            y = x
            for _ in range(10):
                y = torch.tanh(y) * 0.5
            y.sum().backward()

    d.start()
    threads = [threading.Thread(target=train, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    d.stop()
    d.step()


def test_several_threads_have_all_their_gradients(tmp_path):
    data = afresh(tmp_path, on_threads).data()
    assert sum(n.startswith("Torch.tanh.") and n.endswith(".backward") for n in data) == 4 * 30 * 10
    assert all(r["output"][0]["Norm"] is not None for n, r in data.items() if n.startswith("Torch.tanh.") and n.endswith(".backward"))


class Sleeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mark):
        ctx.mark = mark
        return x * 1

    @staticmethod
    def backward(ctx, g):
        open(ctx.mark, "w").close()
        time.sleep(60)
        return g, None


def test_who_is_killed_inside_one_operation_loses_nothing_older_than_a_second(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    path, mark = write_config(tmp_path), str(tmp_path / "mark")

    def body():
        d = PrecisionDebugger(path)
        d.start()
        y = torch.sin(torch.exp(torch.tanh(Sleeps.apply(R(3, grad=True), mark))))
        y.sum().backward()

    pid, _, _ = begin(tmp_path, body)
    try:
        for _ in range(1200):
            if os.path.exists(mark):
                break
            time.sleep(0.1)
        assert os.path.exists(mark)
        time.sleep(1.3)  # the promise is one second; the writer publishes what it has got by then
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    end = time.monotonic() + 20
    wanted = {"Torch.%s.0.backward" % name for name in ("sin", "exp", "tanh")}
    while time.monotonic() < end:  # the writer outlives the program, and is given time on a busy machine
        with open(str(tmp_path / "dump" / "step0" / "rank" / "dump.json"), encoding="utf-8") as f:
            names = set(json.load(f)["data"])
        if wanted <= names:
            break
        time.sleep(0.1)
    assert wanted <= names


class GoesOn(torch.autograd.Function):
    """Nothing goes back by it."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return None


class WritesOver(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mul_(100.0)


class Raises(torch.autograd.Function):
    does = True

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if Raises.does:
            raise RuntimeError("as planned")
        return g


class TwoUses(nn.Module):
    def forward(self, x):
        return x * 2 + GoesOn.apply(x)


def test_a_gradient_that_is_written_over_later_is_shown_as_it_was(tmp_path):
    def body(d):
        model = fill(nn.Sequential(TwoUses(), nn.Linear(4, 4)))
        d.start(model)
        model(WritesOver.apply(R(1, 4, grad=True))).sum().backward()
        d.stop()
        d.step()

    in_place, plain = both_ways(tmp_path, body, level="L0")
    assert_same_files(in_place, plain)


def test_a_graph_that_goes_while_its_gradients_are_flushed_has_them_recorded(tmp_path):
    class Two(nn.Module):
        def forward(self, x):
            return x * 2 + x * 3

    def body(d):
        model = nn.Sequential(*[Two() for _ in range(10)])
        gc.disable()
        d.start(model)
        h = R(4, grad=True)
        for _ in range(4300):
            h = torch.mul(h, 1.0)
        loss = model(Raises.apply(h)).sum()
        del h
        circle = [loss]
        circle.append(circle)
        del loss
        with pytest.raises(RuntimeError, match="as planned"):
            circle[0].backward()
        gc.set_threshold(1)
        del circle
        gc.enable()  # the first object that is made brings the graph's end, and that of its hooks
        probe.flush()
        gc.disable()
        d.stop()
        d.step()

    names = collect(tmp_path, body, level="mix").names()
    assert sum(".backward" in name for name in names) == 41


def test_gradients_of_another_thread_are_there_before_the_step_ends(tmp_path):
    def body(d):
        model = fill(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))
        for i in range(2):
            d.start(model)
            loss = model[1](Raises.apply(model[0](R(1, 4)))).sum()
            d.stop()

            def back():
                try:
                    loss.backward()
                except RuntimeError:
                    pass

            thread = threading.Thread(target=back)
            thread.start()
            thread.join()
            del loss
            d.step()
            Raises.does = False

    result = collect(tmp_path, body, level="L0")
    for step in range(2):
        last = result.data(step)["Module.1.Linear.parameters_grad"]
        assert last["weight"][0]["Norm"] is not None and last["bias"][0]["Norm"] == 2.0
        assert not any(name.endswith("parameters_grad.1") for name in result.names(step))


# ---- the tree --------------------------------------------------------------------------------------------------------------------------


def change_nothing(model):
    pass


def set_an_attribute(model):
    model[0].note = "seen"


def freeze(model):
    model[0].linear.weight.requires_grad_(False)


def replace_a_parameter(model):
    model[1].linear.weight = nn.Parameter(torch.ones(6, 6))


def replace_the_data(model):
    model[1].linear.weight.data = torch.ones(6, 6)


def replace_a_child(model):
    model[1].norm = nn.Identity()


def add_a_child(model):
    model.append(nn.Tanh())


def remove_a_bias(model):
    model[0].linear.bias = None


def change_the_class(model):
    model[1].__class__ = Other


def compile_no_more(model):
    model[1]._compiled_call_impl = None


def rename_a_child(model):
    model[1].third = nn.Identity()
    del model[1].third


class Other(Block):
    pass


CHANGES = [change_nothing, set_an_attribute, freeze, replace_a_parameter, replace_the_data, replace_a_child, add_a_child, remove_a_bias, change_the_class,
           rename_a_child, compile_no_more]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_model_that_changes_between_steps_is_recorded_as_it_is(tmp_path, change):
    def body(d):
        model = fill(nn.Sequential(Block(), Block()))
        if change is compile_no_more:
            model[1]._compiled_call_impl = model[1]._call_impl
        for i in range(4):
            d.start(model)
            model(R(3, 6)).sum().backward()
            d.stop()
            d.step()
            if i == 1:
                change(model)

    in_place, plain = both_ways(tmp_path, body, level="L0")
    if change is compile_no_more:  # hooks are out of sight while it is compiled, and there is nothing else then
        assert "Module.1.Block.forward.0" not in plain.names(1) and "Module.1.Block.forward.0" in plain.names(3)
        assert in_place.names(3) == plain.names(3)
    else:
        assert_same_files(in_place, plain, 4)
    changes = (replace_a_child, add_a_child, change_the_class) + ((compile_no_more,) if ALWAYS_BY_HOOKS else ())
    assert (in_place.names(1) != in_place.names(3)) == (change in changes)


@pytest.mark.skipif(not hasattr(torch.Tensor, "untyped_storage"), reason="this torch has no untyped storages")
def test_a_tensor_whose_memory_was_given_back_has_a_record(tmp_path):
    def body(d):
        x, model = R(4, 5), nn.Sequential(nn.Identity())
        d.start(model)
        x.untyped_storage().resize_(0)  # as FSDP does between the uses of a parameter
        model(x)
        x.untyped_storage().resize_(80)
        model(x.fill_(1))
        d.stop()
        d.step()

    result = collect(tmp_path, body, level="L0")
    empty, full = (result.data()["Module.0.Identity.forward.%d" % i]["input_args"][0] for i in range(2))
    assert (empty["shape"], empty["Mean"], empty["note"]) == ([4, 5], None, "its memory was given back")
    assert full["Mean"] == 1.0 and "WARNING" not in result.output


# ---- gradients of parameters ---------------------------------------------------------------------


def parameters_of_every_kind(d):
    m, x, seen = fill(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))), R(2, 3), []
    m[0].weight.tag = "an attribute of the program's"
    m[0].bias.register_hook(lambda grad: grad * 2)
    if hasattr(m[1].weight, "register_post_accumulate_grad_hook"):
        m[1].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()) or setattr(p, "grad", None))
    for step in range(3):
        d.start(model=m)
        for _ in range(2):  # gradients accumulate
            loss = m(x).sum()
            if step == 1:
                m[2].bias.late = True
            loss.backward(retain_graph=step == 2)
        if step == 2:
            loss.backward()
        d.stop()
        d.step()
    return [p.grad for p in m.parameters() if p.grad is not None] + seen


def test_parameters_with_attributes_and_hooks_of_the_programs_have_the_same_gradients(tmp_path):
    in_place, plain = both_ways(tmp_path, parameters_of_every_kind, level="L0")
    assert_same_files(in_place, plain, steps=3)
    assert len([name for name in in_place.names(2) if "parameters_grad" in name]) == 9
    (tmp_path / "bare").mkdir()
    expected = bare(tmp_path / "bare", parameters_of_every_kind)
    assert len(in_place.value) == len(expected) and all(torch.equal(a, b) for a, b in zip(in_place.value, expected))


@pytest.mark.skipif(not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="this torch does not tell of such gradients")
def test_what_has_come_for_a_parameter_is_recorded_before_the_program_can_write_over_it(tmp_path):
    """torch keeps the very memory that came as the parameter's gradient, and a hook that steps in backward may clear it."""
    def body(d):
        def clear(p):
            p.grad.zero_()

        m = fill(nn.Sequential(nn.Linear(3, 2)))
        m[0].weight.register_post_accumulate_grad_hook(clear)
        d.start(model=m)
        m(R(2, 3)).sum().backward()
        d.stop()
        d.step()
        return m[0].weight.grad.abs().sum().item()

    result = collect(tmp_path, body, level="L0")
    assert result.value == 0.0 and result.data()["Module.0.Linear.parameters_grad"]["weight"][0]["Norm"] > 0


def test_a_model_that_follows_another_within_a_step_leaves_its_gradients(tmp_path):
    def body(d):
        one, other, x = fill(nn.Sequential(nn.Linear(3, 3))), fill(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))), R(2, 3)
        for _ in range(2):
            d.start(model=one)
            y = one(x)
            d.stop()
            d.start(model=other)
            other(y).sum().backward()
            d.stop()
            d.step()

    in_place, plain = both_ways(tmp_path, body, level="L0")
    assert_same_files(in_place, plain, steps=2)
    assert len([name for name in in_place.names(1) if "parameters_grad" in name]) >= 2
