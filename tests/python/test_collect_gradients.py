"""Gradients: what enters and leaves each call, in argument order, whatever else uses its inputs. Autograd itself is the oracle."""
import pytest
from collecting import R, bare, collect, fill, step, torch

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

INDEX = torch.tensor([[0, 1], [2, 0]])

# name in the dump, call, shapes of the inputs that need a gradient
CALLS = [
    ("Functional.linear", lambda x, w: F.linear(x, w), [(2, 3), (4, 3)]),
    ("Functional.linear", lambda x, w, b: F.linear(x, w, b), [(2, 3), (4, 3), (4,)]),
    ("Functional.linear", lambda x, w, b: F.linear(x, w, b), [(2, 5, 3), (4, 3), (4,)]),
    ("Functional.linear", lambda x, w: F.linear(x, w), [(2, 5, 3), (4, 3)]),
    ("Torch.matmul", lambda a, b: torch.matmul(a, b), [(2, 3, 4), (2, 4, 5)]),
    ("Torch.matmul", lambda a, b: torch.matmul(a, b), [(2, 3, 4), (4, 5)]),
    ("Tensor.__add__", lambda a, b: a + b, [(2, 3), (3,)]),
    ("Functional.layer_norm", lambda x, w, b: F.layer_norm(x, (3,), w, b), [(2, 3), (3,), (3,)]),
    ("Functional.scaled_dot_product_attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(1, 2, 4, 3)] * 3),
    ("Functional.cross_entropy", lambda x: F.cross_entropy(x, torch.tensor([0, 2]), label_smoothing=0.1), [(2, 3)]),
    ("Torch.einsum", lambda a, b: torch.einsum("ij,kj->ik", a, b), [(2, 3), (4, 3)]),
    ("Torch.cat", lambda a, b: torch.cat([a, b], dim=0), [(2, 3), (1, 3)]),
    ("Functional.batch_norm", lambda x, w, b: F.batch_norm(x, torch.zeros(3), torch.ones(3), w, b, training=True), [(4, 3), (3,), (3,)]),
    ("Functional.conv2d", lambda x, w, b: F.conv2d(x, w, b), [(1, 2, 5, 5), (3, 2, 3, 3), (3,)]),
    ("Functional.embedding", lambda w: F.embedding(INDEX, w), [(4, 3)]),
    ("Torch.norm", lambda x: torch.norm(x), [(2, 3)]),
    ("Torch.std", lambda x: torch.std(x, dim=1), [(2, 3)]),
    ("Functional.gelu", lambda x: F.gelu(x), [(2, 3)]),
    ("Functional.softmax", lambda x: F.softmax(x, -1), [(2, 3)]),
    ("Functional.binary_cross_entropy_with_logits", lambda x, y: F.binary_cross_entropy_with_logits(x, y), [(2, 3), (2, 3)]),
    ("Functional.huber_loss", lambda x, y: F.huber_loss(x, y), [(2, 3), (2, 3)]),
    ("Torch.topk", lambda x: torch.topk(x, 2)[0], [(2, 3)]),
    ("Torch.where", lambda a, b: torch.where(a > 0, a, b), [(2, 3), (2, 3)]),
    ("Functional.normalize", lambda x: F.normalize(x), [(2, 3)]),
    ("Functional.cosine_similarity", lambda a, b: F.cosine_similarity(a, b), [(2, 3), (2, 3)]),
    ("Torch.bmm", lambda a, b: torch.bmm(a, b), [(2, 3, 4), (2, 4, 5)]),
    ("Functional.multi_head_attention_forward", lambda q, k, v, w, o: F.multi_head_attention_forward(
        q, k, v, 4, 2, w, None, None, None, False, 0.0, o, None)[0], [(3, 1, 4), (3, 1, 4), (3, 1, 4), (12, 4), (4, 4)]),
]


def recorded_among_others(d, call, shapes):
    """Expected gradients of the call alone, then the same call recorded while every input is used elsewhere, too."""
    leaves = [R(*s, seed=i, grad=True) for i, s in enumerate(shapes)]
    inputs = [x * 1 for x in leaves]
    out = call(*inputs)
    weight = R(*out.shape, seed=99)
    expected = torch.autograd.grad(out, inputs, weight)
    inputs = [x * 1 for x in leaves]
    d.start()
    out = call(*inputs)
    ((out * weight).sum() + sum((x * 3).sum() for x in inputs)).backward()
    d.stop()
    d.step()
    return [e.detach().clone() for e in expected], weight


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_gradients_equal_autograds_own_to_the_bit(tmp_path, number):
    name, call, shapes = CALLS[number]
    if name.startswith("Functional.") and not hasattr(F, name.split(".")[1]):
        pytest.skip("this torch has no %s" % name)
    r = collect(tmp_path, lambda d: recorded_among_others(d, call, shapes), task="tensor")
    expected, weight = r.value
    record = r.data()[name + ".0.backward"]
    assert torch.equal(r.tensor(record["input"][0]["data_name"]), weight)
    got = [r.tensor(o["data_name"]) for o in record["output"] if o is not None]
    for e in expected:
        assert any(g.shape == e.shape and torch.equal(g, e) for g in got), (e, got)


def test_the_order_is_that_of_the_arguments(tmp_path):
    def body():
        F.linear(R(2, 3, grad=True), R(4, 3, grad=True), R(4, grad=True)).sum().backward()

    output = collect(tmp_path, lambda d: step(d, body)).data()["Functional.linear.0.backward"]["output"]
    assert [o["shape"] for o in output[:3]] == [[2, 3], [4, 3], [4]]


def test_in_place_calls_have_gradients(tmp_path):
    def body():
        x = R(2, 3, grad=True) * 1
        x.mul_(R(2, 3, seed=1))
        x += 1
        F.relu(x, inplace=True).sum().backward()

    names = collect(tmp_path, lambda d: step(d, body)).names()
    assert {"Tensor.mul_.0.backward", "Tensor.__iadd__.0.backward", "Functional.relu.0.backward"} <= set(names)


def test_one_tensor_in_two_places(tmp_path):
    """One node: each place has its own part. Several nodes: which part belongs to which place cannot be told, and the first place has the sum."""
    def body():
        x = (R(2, 3).abs() + 0.1).requires_grad_()
        torch.sub(x, x).sum().backward()
        y = (R(2, 3).abs() + 0.1).requires_grad_()
        F.kl_div(y, y, reduction="sum").backward()
        return y.grad

    r = collect(tmp_path, lambda d: step(d, body))
    d = r.data()
    assert [o["Max"] for o in d["Torch.sub.0.backward"]["output"][:2]] == [1.0, -1.0]
    first, second = d["Functional.kl_div.0.backward"]["output"][:2]
    assert first["Norm"] == pytest.approx(r.value.norm().item(), rel=1e-6) and second is None


def test_a_second_backward_has_a_record_of_its_own(tmp_path):
    def body():
        x = R(3, 3, grad=True)
        y = torch.tanh(x) * 2
        y.sum().backward(retain_graph=True)
        y.mean().backward()

    d = collect(tmp_path, lambda d: step(d, body)).data()
    first, second = d["Torch.tanh.0.backward"], d["Torch.tanh.0.backward.1"]
    assert first["input"][0]["Max"] == 2.0 and second["input"][0]["Max"] == pytest.approx(2 / 9)


def test_double_backward(tmp_path):
    def body():
        x = R(3, 3, grad=True)
        g, = torch.autograd.grad(torch.sigmoid(x @ x).sum(), x, create_graph=True)
        (g ** 2).sum().backward()
        return x.grad

    from collecting import bare

    r = collect(tmp_path, lambda d: step(d, body))
    assert "Torch.sigmoid.0.backward" in r.names()
    assert torch.equal(r.value, bare(tmp_path, lambda d: body()))


def test_an_output_that_is_not_used_has_no_gradient(tmp_path):
    def body():
        a, b = torch.split(R(4, 2, grad=True) * 1, 2)
        a.sum().backward()

    record = collect(tmp_path, lambda d: step(d, body)).data()["Torch.split.0.backward"]
    assert record["input"][0]["Max"] == 1.0 and record["input"][1] is None


def test_gradients_are_taken_after_stop_and_not_after_step(tmp_path):
    def body(d):
        d.start()
        y = torch.exp(R(2, grad=True))
        late = torch.sin(R(2, grad=True))
        d.stop()
        y.sum().backward()
        d.step()
        late.sum().backward()
        d.start()
        torch.add(R(2), 1)
        d.stop()
        d.step()

    r = collect(tmp_path, body)
    assert "Torch.exp.0.backward" in r.names() and "Torch.sin.0.backward" not in r.names()
    assert r.names(1) == ["Torch.add.0.forward"]


def test_checkpointing_shows_the_repeated_calls(tmp_path):
    from torch.utils.checkpoint import checkpoint

    def body(reentrant):
        f = fill(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 3)))
        x = R(2, 3, grad=True)
        checkpoint(f, x, use_reentrant=reentrant).sum().backward()
        return x.grad

    for reentrant in (True, False):
        r = collect(tmp_path, lambda d: step(d, lambda: body(reentrant)))
        d = r.data()
        assert [d["Functional.linear.%d.forward" % i]["is_recompute"] for i in range(4)] == [False, False, True, True]
        assert "Functional.gelu.%d.backward" % (1 if reentrant else 0) in d
        assert "Torch.ones_like.0.forward" in d


def test_no_tensor_is_kept(tmp_path):
    """Hooks know numbers only: what the program lets go of is freed, backward or not."""
    import gc
    import weakref

    def body(d):
        gc.collect()
        gc.disable()
        d.start()
        x = R(3, 3, grad=True)
        y = torch.mm(x, x)
        z = F.layer_norm(F.linear(y, x), (3,))
        refs = [weakref.ref(t) for t in (y, z)]
        del y, z
        alive = [ref() is not None for ref in refs]
        d.stop()
        d.step()
        return alive

    assert collect(tmp_path, body).value == [False, False]


class Scale(nn.Module):
    def forward(self, x):
        return torch.mul(x, 2.0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.scale = nn.Linear(3, 3), Scale()

    def forward(self, x):
        x = x.float()  # hands on what the block was given
        h = self.fc(x).float()  # ... what fc has returned
        return self.scale(x=h.sin().float())  # ... what was made here


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.block, self.head = nn.Embedding(5, 3), Block(), nn.Linear(3, 2)

    def forward(self, ids):
        return self.head(self.block(self.emb(ids))).float()


@pytest.mark.skipif(not hasattr(torch.autograd, "_get_sequence_nr"), reason="this torch does not number the nodes of a graph")
def test_the_parents_of_gradients_are_the_modules_that_are_open_in_backward(tmp_path):
    """As mindstudio-probe 8.3.3 wrote them: a module whose positional arguments need no gradient is closed as soon as it is opened."""

    def body(d):
        model = fill(nn.Sequential(Words()))
        step(d, lambda: model(torch.tensor([1, 2])).sum().backward(), model)

    construct = collect(tmp_path, body, level="mix").construct()
    block, fc, head = "Module.0.block.Block.backward.0", "Module.0.block.fc.Linear.backward.0", "Module.0.head.Linear.backward.0"
    assert {name: parent for name, parent in construct.items() if "backward" in name} == {
        "Tensor.sum.0.backward": None,
        "Module.0.Words.backward.0": None,
        "Tensor.float.3.backward": head,
        head: None,
        "Functional.linear.1.backward": head,
        block: None,
        "Module.0.block.scale.Scale.backward.0": block,
        "Torch.mul.0.backward": block,
        "Tensor.sin.0.backward": block,
        "Tensor.float.2.backward": block,
        "Tensor.float.1.backward": fc,
        fc: block,
        "Functional.linear.0.backward": fc,
        "Tensor.float.0.backward": None,
        "Module.0.emb.Embedding.backward.0": None,
        "Functional.embedding.0.backward": None,
    }


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.fcs = nn.ModuleList(nn.Linear(3, 3) for _ in range(20))

    def forward(self, x):
        made = [x]
        for fc in self.fcs:
            made.append(fc(made[-1]))
        return made[-8].float() + made[-1].float()


@pytest.mark.skipif(not hasattr(torch.autograd, "_get_sequence_nr"), reason="this torch does not number the nodes of a graph")
def test_what_one_of_the_last_eight_modules_returned_belongs_to_it(tmp_path):
    def body(d):
        model = fill(nn.Sequential(Deep()))
        step(d, lambda: model(R(2, 3, grad=True)).sum().backward(), model)

    construct = collect(tmp_path, body, level="mix").construct()
    assert construct["Tensor.float.0.backward"] == "Module.0.fcs.12.Linear.backward.0"
    assert construct["Tensor.float.1.backward"] == "Module.0.fcs.19.Linear.backward.0"


def test_a_parameters_main_grad_stands_for_its_gradient(tmp_path):
    """Whether it is set on the parameter, made up when it is asked for, or, later, on the type."""

    class Buffered(nn.Parameter):
        def __getattr__(self, name):
            if name == "main_grad":
                return torch.full_like(self, 5.0)
            raise AttributeError(name)

    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 2)))

        def train():
            step(d, lambda: model(R(2, 3)).sum().backward(), model)

        train()
        model[0].weight.main_grad = torch.full((2, 3), 7.0)
        train()
        del model[0].weight.main_grad
        train()
        model[0].weight = Buffered(model[0].weight.detach())
        train()
        model[0].weight = nn.Parameter(model[0].weight.detach())
        nn.Parameter.main_grad = property(lambda p: torch.full_like(p, 9.0))
        train()

    done = collect(tmp_path, body, level="L0")
    found = [done.data(step=i)["Module.0.Linear.parameters_grad"] for i in range(5)]
    assert [f["weight"][0]["Max"] for f in found[1:]] == [7.0, found[0]["weight"][0]["Max"], 5.0, 9.0]
    assert [f["bias"][0]["Max"] for f in found] == [2.0, 2.0, 2.0, 2.0, 9.0]


@pytest.mark.skipif(not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="torch tells of such gradients since 2.1")
@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("plain", ["", "all"])
def test_gradients_of_parameters_of_which_a_hook_of_the_program_makes_the_weight_are_recorded(tmp_path, level, plain):
    """As nn.utils.weight_norm and spectral_norm do, before the call begins."""

    def body(d):
        model = fill(nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 3)), nn.utils.spectral_norm(nn.Linear(3, 2))))
        gradients = []
        for _ in range(2):
            step(d, lambda: model(R(2, 3)).sum().backward(), model)
            gradients.append({name: p.grad.max().item() for name, p in model.named_parameters()})
            model.zero_grad()
        return gradients, [p._post_accumulate_grad_hooks for p in model.parameters()]

    done = collect(tmp_path, body, level=level, env={"MSPROBE_PLAIN": plain})
    gradients, left = done.value
    for i in range(2):
        found = {"%s.%s" % (name.split(".")[1], own): record[0]["Max"] for name, value in done.data(step=i).items()
                 if ".parameters_grad" in name for own, record in value.items()}
        assert found == gradients[i]
        assert sum(".parameters_grad" in name for name in done.names(step=i)) == 2  # each once
    assert left == [None] * 5


@pytest.mark.parametrize("passes", [1, 2])
def test_a_parameter_that_got_no_gradient_while_others_of_its_module_did_is_null(tmp_path, passes):
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.used

    def body(d):
        model = nn.Sequential(Part(), nn.Linear(3, 2))
        step(d, lambda: [model(R(2, 3)).sum().backward() for _ in range(passes)], model)

    data = collect(tmp_path, body, level="L0").data()
    last = data["Module.0.Part.parameters_grad" + (".1" if passes == 2 else "")]
    assert set(last) == {"used", "unused"} and last["unused"] == [None] and last["used"][0]["shape"] == [3]
    assert [None] not in data["Module.1.Linear.parameters_grad"].values()


def test_a_called_module_whose_parameters_got_no_gradient_has_nulls(tmp_path):
    def body(d):
        used, unused, never = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
        model = nn.ModuleDict({"used": used, "unused": unused, "never": never})

        def train():
            unused(R(2, 3))
            used(R(2, 3)).sum().backward()

        step(d, train, model)
        step(d, lambda: (used(R(2, 3)), unused(R(2, 3))), model)

    done = collect(tmp_path, body, level="mix")
    assert done.data()["Module.unused.Linear.parameters_grad"] == {"weight": [None], "bias": [None]}
    assert [None] not in done.data()["Module.used.Linear.parameters_grad"].values()
    assert [done.data(step=1)["Module.%s.Linear.parameters_grad" % n] for n in ("used", "unused")] == [{"weight": [None], "bias": [None]}] * 2
    assert not any("never" in n for n in done.names() + done.names(1))


@pytest.mark.parametrize("mode", [["forward"], ["forward", "input"]])
def test_without_backward_data_there_are_no_nulls(tmp_path, mode):
    def body(d):
        model = nn.Sequential(nn.Linear(3, 2))
        step(d, lambda: model(R(2, 3)), model)

    done = collect(tmp_path, body, level="mix", statistics={"data_mode": mode})
    assert not any("parameters_grad" in n for n in done.names())


def test_nulls_stand_in_the_order_of_the_model(tmp_path):
    def body(d):
        model = nn.Sequential(*[nn.Linear(3, 3) for _ in range(20)])

        def train():
            for layer in reversed(model):
                layer(R(2, 3))
            model[7](R(2, 3)).sum().backward()

        step(d, train, model)

    data = collect(tmp_path, body, level="L0").data()
    unused = ["Module.%d.Linear.parameters_grad" % i for i in range(20) if i != 7]
    assert [n for n in data if n in unused] == unused
    assert all(list(data[n]) == ["weight", "bias"] for n in unused)


def normed():
    model = fill(nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2))))
    return model


@pytest.mark.skipif(not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"), reason="this torch does not tell of such gradients")
@pytest.mark.parametrize("plain", ["", "all"])
def test_a_parameter_that_a_pre_hook_uses_has_each_pass_once(tmp_path, plain):
    """However often recording is stopped and started again in the step, and with the gradient of that pass alone."""
    def body(d):
        model, x = normed(), R(4, 3)
        keep = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]  # as a distributed model does
        d.start(model)
        model(x)
        d.stop()
        for _ in range(3):
            d.start(model)
            model(x).sum().backward()
            d.stop()
        d.step()
        hooks = [p._backward_hooks for p in model.parameters()]
        return hooks, [p.grad.max().item() / 3 for p in model[0].parameters()], len(keep)

    done = collect(tmp_path, body, level="L0", env={"MSPROBE_PLAIN": plain})
    hooks, expected, _ = done.value
    found = {n: v for n, v in done.data().items() if "parameters_grad" in n}
    assert hooks == [None] * 3
    assert list(found) == ["Module.0.Linear.parameters_grad" + tail for tail in ("", ".1", ".2")]
    for record in found.values():
        assert sorted(record) == ["bias", "weight_g", "weight_v"]
        assert [record[n][0]["Max"] for n in ("bias", "weight_g", "weight_v")] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("plain", ["", "all"])
def test_a_lazy_module_has_gradients_of_the_parameters_that_its_first_call_makes(tmp_path, plain):
    """Before it there is no tensor to watch: start() is not to ask for one."""
    def body(d):
        model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2))
        for _ in range(2):
            step(d, lambda: model(R(2, 3)).sum().backward(), model)
        return [type(m).__name__ for m in model]

    done = collect(tmp_path, body, level="L0", env={"MSPROBE_PLAIN": plain})
    assert done.value == ["Linear", "ReLU", "Linear"]
    for n, kind in enumerate(("LazyLinear", "Linear")):
        for i in (0, 2):
            record = done.data(step=n)["Module.%d.%s.parameters_grad" % (i, kind)]
            assert record["weight"][0]["shape"] == [4 - i, 3 + i // 2] and record["bias"][0]["shape"] == [4 - i]


def test_a_tensor_of_a_graph_among_the_parameters_does_not_end_training(tmp_path):
    """As clones of modules have them that learn how to learn."""
    def body(d):
        model = nn.Linear(3, 2)
        model.register_forward_pre_hook(lambda m, x: None)
        weight = model.weight.clone()
        del model.weight
        model._parameters["weight"] = weight
        step(d, lambda: model(R(2, 3)).sum().backward(), model)
        return "trained"

    assert collect(tmp_path, body, level="L0").value == "trained"


class Norm(nn.Module):
    def forward(self, x):
        x = x.to(torch.float32)  # no node: it is what the module was given
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = Norm(), nn.Linear(3, 3)

    def forward(self, x):
        return x + self.fc(self.norm(x))


@pytest.mark.skipif(not hasattr(torch.autograd, "_get_sequence_nr"), reason="this torch does not number the nodes of a graph")
@pytest.mark.parametrize("mode", [["all"], ["backward"], ["backward", "input"]])
def test_a_call_that_hands_its_input_on_inside_a_module_shows_what_leaves_the_module(tmp_path, mode):
    """And not what the residual connection adds to it."""

    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), Residual()))
        step(d, lambda: model(R(2, 3)).pow(2).sum().backward(), model)

    data = collect(tmp_path, body, level="mix", part={"data_mode": mode, "summary_mode": "md5"}).data()
    record, norm = data["Tensor.to.0.backward"], data["Module.1.norm.Norm.backward.0"]
    block = data["Module.1.Residual.backward.0"]
    if "input" in mode:
        assert list(record) == ["input"] and record["input"][0]["Norm"] > 0
        return
    assert record["input"] == record["output"] == norm["output"][:1]
    assert norm["output"][0]["md5"] != block["output"][0]["md5"]


@pytest.mark.skipif(not hasattr(torch.autograd, "_get_sequence_nr"), reason="this torch does not number the nodes of a graph")
def test_a_call_that_hands_its_input_on_does_not_follow_a_module_that_has_raised(tmp_path):
    """Not even when the next module in its place is given the same tensor."""
    class Raises(torch.nn.Module):
        def forward(self, x):
            x.float()
            raise ValueError

    class Doubles(torch.nn.Module):
        def forward(self, x):
            return x * 2

    def body(d):
        model = torch.nn.Sequential(Raises(), Doubles())
        d.start(model)
        x = R(2, 3, grad=True).exp()
        with pytest.raises(ValueError):
            model[0](x)
        (model[1](x) + x).sum().backward()
        d.stop()
        d.step()

    gradient, = collect(tmp_path, body, level="mix").data()["Tensor.float.0.backward"]["output"]
    assert gradient["Max"] == gradient["Min"] == 3.0  # the tensor's, from all its users


def test_a_call_that_hands_its_input_on_is_recorded_although_its_module_is_not_listed(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), Residual()))
        step(d, lambda: model(R(2, 3)).pow(2).sum().backward(), model)

    data = collect(tmp_path, body, level="mix", part={"list": ["Tensor.to."]}).data()
    assert [n for n in data if "backward" in n] == ["Tensor.to.0.backward"]
    assert data["Tensor.to.0.backward"]["input"][0]["shape"] == [2, 3]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_what_leaves_a_module_are_its_inputs_gradients(tmp_path, level):
    """Those of its parameters have a record of their own, and so has an overflow in them."""
    model = fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    data = collect(tmp_path, lambda d: step(d, lambda: model(R(5, 3)).sum().backward(), model), level=level).data()
    left = {n: [g and g["shape"] for g in data["Module.%s.backward.0" % n]["output"]] for n in ("0.Linear", "1.Tanh", "2.Linear")}
    assert left == {"0.Linear": [None], "1.Tanh": [[5, 4]], "2.Linear": [[5, 4]]}


class Cell(nn.Module):
    """Returns a state that it uses itself, as an LSTM cell does."""

    def __init__(self, dtype):
        super().__init__()
        self.fc = fill(nn.Linear(3, 3)).to(dtype)

    def forward(self, x):
        state = self.fc(x)
        return state.tanh() * 2, (state, state.sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_arrives_at_a_result_that_the_module_uses_is_what_comes_from_outside(tmp_path, dtype):
    def body(d):
        model = nn.Sequential(Cell(dtype))

        def run():
            out, (state, _) = model[0](R(4, 3, dtype=dtype))
            (out.sum() + (state * R(4, 3, seed=7, dtype=dtype)).sum()).backward()

        step(d, run, model)
        step(d, lambda: model[0](R(4, 3, dtype=dtype))[0].sum().backward(), model)

    result = collect(tmp_path, body, level="L0", task="tensor")
    name = "Module.0.Cell.backward.0"
    assert [g and g["shape"] for g in result.data(0)[name]["input"]] == [[4, 3], [4, 3], None]
    arrived = [result.tensor("%s.input.1.pt" % name, step=n) for n in (0, 1)]
    assert torch.allclose(arrived[0].double(), R(4, 3, seed=7, dtype=dtype).double(), atol=0.02 if dtype == torch.bfloat16 else 1e-6)
    assert torch.equal(arrived[1], torch.zeros(4, 3, dtype=dtype))  # nobody outside uses it


class Tripled(nn.Module):
    def forward(self, x):
        return x.to(torch.float32) * 3


def test_a_leaf_that_a_call_hands_on_has_what_leaves_the_module_by_it(tmp_path):
    def body(d):
        model, x = nn.Sequential(Tripled()), R(2, 3, grad=True)
        step(d, lambda: (model(x) + x.to(torch.float32)).sum().backward(), model)

    data = collect(tmp_path, body, level="mix").data()
    assert "Tensor.to.1.backward" not in data  # in no module, and no node to hook
    for section in ("input", "output"):
        assert [(g["Min"], g["Max"]) for g in data["Tensor.to.0.backward"][section]] == [(3.0, 3.0)]


def test_inputs_that_need_no_gradient_have_the_one_that_the_node_makes_for_them(tmp_path):
    """As cat() and stack() do, also for the empty tensor that a cache of keys begins with; other nodes make none."""
    x, c = R(2, 3, grad=True), R(2, 3)

    def body(d):
        def run():
            made = [torch.cat([c, x]), torch.cat([torch.tensor([]), x]), torch.stack((x, c)), torch.dstack([c, x]), c * x]
            sum(t.sum() for t in made).backward()

        step(d, run)

    data = collect(tmp_path, body).data()
    shapes = {n: [g and g["shape"] for g in v["output"]] for n, v in data.items() if n.endswith(".backward")}
    assert shapes["Torch.cat.0.backward"] == shapes["Torch.stack.0.backward"] == [[2, 3], [2, 3]]
    assert shapes["Torch.cat.1.backward"] == [[0], [2, 3]]
    assert shapes["Torch.dstack.0.backward"][:2] == [[2, 3, 1], [2, 3]]
    assert shapes["Tensor.__mul__.0.backward"] == [None, [2, 3]]


class HandsOn(nn.Module):
    """Returns what it was given beside what it makes of it."""

    def __init__(self, how):
        super().__init__()
        self.l = nn.Linear(3, 3)
        self.how = how

    def forward(self, x, mask):
        return self.how(self.l, x, mask)


HOW = {
    "unused inside": lambda l, x, mask: (l(x), mask),
    "used inside": lambda l, x, mask: (l(x) + mask * 2, mask),
    "first": lambda l, x, mask: (mask, l(x)),
    "first and used": lambda l, x, mask: (mask, l(x) * mask),
    "all of them": lambda l, x, mask: (x, mask),
    "the same one twice": lambda l, x, mask: (l(x), mask, mask),
    "in a dict": lambda l, x, mask: {"a": l(x), "b": mask},
}


@pytest.mark.parametrize("how", HOW)
def test_an_input_that_a_module_hands_on_beside_other_results_has_its_gradient(tmp_path, how):
    """The oracle is torch's own full backward hook, as the original uses it."""
    def run(model):
        x, mask = R(2, 3, grad=True) * 1, R(2, 3, seed=1, grad=True) * 1
        out = model[0](x, mask)
        out = list(out.values()) if isinstance(out, dict) else out
        sum((t * R(2, 3, seed=5 + i)).sum() for i, t in enumerate(out)).backward()

    def body(d):
        model = fill(nn.ModuleList([HandsOn(HOW[how])]))
        step(d, lambda: run(model), model)
        seen = []
        other = fill(nn.ModuleList([HandsOn(HOW[how])]))

        def hook(module, grad_in, grad_out):
            seen.append(([g.clone() for g in grad_out], [g.clone() for g in grad_in]))

        if how != "in a dict":  # of which torch's hooks see nothing
            other[0].register_full_backward_hook(hook)
        run(other)
        return seen

    r = collect(tmp_path, body, level="L0", task="tensor")
    name = "Module.0.HandsOn.backward.0"
    record = r.data()[name]
    assert [g and g["type"] for g in record["input"] + record["output"]].count(None) == 0, record
    if how == "in a dict":
        return
    (entering, leaving), = r.value
    if how == "the same one twice":  # torch's hook makes two tensors of it, the program has one: each place has the sum
        entering = [entering[0]] + [entering[1] + entering[2]] * 2
    for section, wanted in (("input", entering), ("output", leaving)):
        for i, want in enumerate(wanted):
            got = r.tensor("%s.%s.%d.pt" % (name, section, i))
            assert torch.allclose(got, want, rtol=1e-5, atol=1e-7), (how, section, i, got, want)  # sums in another order


# ---- handed on again and again ------------------------------------------------------------------------------------------------------------


def test_handing_a_tensor_on_many_times_takes_as_much_each_time(tmp_path):
    """Counted in calls and in memory, not in time: a hook looks at none of the others."""
    import sys

    def body(d):
        found = []
        for n in (100, 500, 1000, 2000):
            kept, events = R(2, 3, grad=True) * 1, [0]

            def count(frame, event, what):
                events[0] += 1

            d.start()
            before = sys.getallocatedblocks()
            sys.setprofile(count)
            for _ in range(n):
                last = kept.float()
            last.sum().backward()
            sys.setprofile(None)
            found.append((events[0], sys.getallocatedblocks() - before))
            d.stop()
            d.step()
        return found

    r = collect(tmp_path, body)
    assert "Tensor.float.1999.backward" in r.names(3)
    _, few, some, many = r.value
    for i in (0, 1):
        assert abs((many[i] - some[i]) - 2 * (some[i] - few[i])) < 0.1 * many[i], r.value


def test_a_node_that_is_kept_over_steps_does_not_grow(tmp_path):
    import gc
    import sys

    def body(d):
        kept = R(2, 3, grad=True) * 1

        def run():
            d.start()
            for _ in range(300):
                kept.float()
            kept.sum().backward(retain_graph=True)
            d.stop()
            d.step()

        blocks = []
        for _ in range(6):
            run()
            gc.collect()
            blocks.append(sys.getallocatedblocks())
        return blocks

    blocks = collect(tmp_path, body).value
    assert blocks[-1] - blocks[2] < 300, blocks  # one block for each call of three steps would be 900


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_parameters_that_were_swapped_have_their_gradients(tmp_path, level):
    """torch.utils.swap_tensors() exchanges what two Python objects stand for; .double() does so to parameters when it is asked to."""
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))
        torch.__future__.set_swap_module_params_on_conversion(True)
        found = []

        def run(dtype):
            model.zero_grad(set_to_none=True)
            model(R(2, 3, dtype=dtype)).sum().backward()
            found.append([p.grad.double().sum().item() for p in model.parameters()])

        d.start(model)
        run(torch.float32)
        model.double()
        run(torch.float64)
        torch.utils.swap_tensors(model[0].weight, nn.Parameter(R(3, 3, seed=9).double()))
        run(torch.float64)
        d.stop()
        d.step()
        model.float()
        torch.utils.swap_tensors(model[1].weight, nn.Parameter(R(3, 3, seed=8)))
        step(d, lambda: run(torch.float32), model)
        return found

    if not hasattr(torch.utils, "swap_tensors"):
        pytest.skip("this torch swaps no tensors")
    bare_folder, tool = tmp_path / "bare", tmp_path / "tool"
    bare_folder.mkdir(), tool.mkdir()
    r = collect(tool, body, level=level)
    assert r.value == bare(bare_folder, body), r.output
    if level == "L1":
        return
    types = [[{g["dtype"] for g in v["weight"] + v["bias"]} for n, v in r.data(s).items() if n.startswith("Module.0.Linear.parameters_grad")] for s in (0, 1)]
    assert types == [[{"torch.float32"}, {"torch.float64"}, {"torch.float64"}], [{"torch.float32"}]]
