"""What stands around a record in construct.json, where it is not simply the module whose forward runs."""
import pytest
from collecting import collect, torch

nn, F = torch.nn, torch.nn.functional
tells_its_node = pytest.mark.skipif(not hasattr(torch._C, "_current_autograd_node"), reason="this torch does not tell which node runs")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return torch.mul(g, 2)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return Doubled.apply(self.inner(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.own = nn.Linear(3, 3), Own()

    def forward(self, x):
        return self.own(self.first(x))


@tells_its_node
def test_what_backward_of_a_function_calls_belongs_to_the_module_whose_gradients_pass(tmp_path):
    def body(debugger):
        model = nn.Sequential(Outer())
        for _ in range(2):
            debugger.start(model)
            Doubled.apply(model(torch.ones(2, 3))).sum().backward()
            debugger.stop()
            debugger.step()

    result = collect(tmp_path, body, level="mix")
    for step in range(2):
        tree = result.construct(step)
        assert tree["Torch.mul.0.forward"] is None  # of the function outside all modules
        assert tree["Torch.mul.1.forward"] == "Module.0.own.Own.backward.0"


def test_what_a_hook_on_the_result_of_a_module_calls_stands_outside_it(tmp_path):
    def body(debugger):
        model = nn.Sequential(Outer(), nn.Linear(3, 3))
        debugger.start(model)
        middle = model[0].first(torch.ones(2, 3, requires_grad=True))
        middle.register_hook(lambda g: torch.neg(g))
        model[1](middle).sum().backward()
        debugger.stop()
        debugger.step()

    assert collect(tmp_path, body, level="mix").construct()["Torch.neg.0.forward"] is None


def test_what_a_hook_on_a_parameter_calls_is_recorded_without_a_word(tmp_path):
    """The node that runs then has no number."""
    def body(debugger):
        model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.Linear(3, 2))
        model[0][0].weight.register_hook(lambda g: torch.neg(g))
        debugger.start(model)
        model(torch.ones(2, 3)).sum().backward()
        debugger.stop()
        debugger.step()

    result = collect(tmp_path, body, level="mix")
    assert result.construct()["Torch.neg.0.forward"] is None and "failed for" not in result.output


@tells_its_node
def test_a_forward_repeated_for_its_activations_belongs_to_the_module_that_needs_them(tmp_path):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x):
            return x + self.b(F.gelu(self.a(x)))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.last = Block(), nn.Linear(3, 3)

        def forward(self, x):
            return self.last(torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False))

    def body(debugger):
        model = Model()
        debugger.start(model)
        model(torch.ones(2, 3, requires_grad=True)).sum().backward()
        debugger.stop()
        debugger.step()

    import torch.utils.checkpoint  # noqa: F401

    for level in ("L0", "mix"):
        (tmp_path / level).mkdir()
        tree = collect(tmp_path / level, body, level=level).construct()
        assert tree["Module.block.Block.forward.1"] == "Module.block.b.Linear.backward.0"
        assert tree["Module.block.a.Linear.forward.1"] == "Module.block.Block.forward.1"


def test_modules_that_the_closure_of_an_optimizer_calls_do_not_belong_to_it_and_gradients_of_apis_do(tmp_path):
    def body(debugger):
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).pow(2).sum()
            loss.backward()
            return loss

        debugger.start(model)
        optimizer.step(closure)
        debugger.stop()
        debugger.step()

    tree = collect(tmp_path, body, level="mix").construct()
    assert tree["Module.0.Linear.forward.0"] is None and tree["Module.1.Tanh.backward.0"] is None
    for name in ("Functional.linear.0.forward", "Functional.linear.0.backward", "Torch.tanh.0.backward", "Tensor.pow.0.backward"):
        assert tree[name] == "optimizer"


def test_at_level_L0_there_is_no_optimizer(tmp_path):
    def body(debugger):
        model = nn.Sequential(nn.Linear(3, 3))
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

        def closure():
            loss = model(torch.ones(2, 3)).sum()
            loss.backward()
            return loss

        debugger.start(model)
        optimizer.step(closure)
        debugger.stop()
        debugger.step()

    tree = collect(tmp_path, body, level="L0").construct()
    assert set(tree.values()) == {None} and "optimizer" not in tree


def test_only_functions_that_clip_are_gradient_clipping(tmp_path):
    def body(debugger):
        model = nn.Sequential(nn.Linear(3, 3))
        debugger.start(model)
        model(torch.ones(2, 3)).sum().backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()], foreach=False)
        torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm, foreach=False)
        debugger.stop()
        debugger.step()
        debugger.start(model)
        model(torch.ones(2, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        debugger.stop()
        debugger.step()

    if not hasattr(torch.nn.utils, "get_total_norm"):
        pytest.skip("this torch has no get_total_norm")
    result = collect(tmp_path, body, level="mix")
    assert "clip_grad" not in result.construct(0) and result.construct(0)["Torch.stack.0.forward"] is None
    assert result.construct(1)["Torch.stack.0.forward"] == "clip_grad"


@tells_its_node
def test_a_step_of_any_number_of_modules_remembers_the_last_ones(tmp_path):
    def body(debugger):
        model = nn.Sequential(Outer(), nn.ReLU())
        x = torch.ones(2, 3, requires_grad=True)
        debugger.start(model)
        for _ in range(70000):  # more than are remembered
            model[1](x)
        model(x).sum().backward()
        debugger.stop()

    tree = collect(tmp_path, body, level="mix").construct(0)
    assert tree["Torch.mul.0.forward"] == "Module.0.own.Own.backward.0"
