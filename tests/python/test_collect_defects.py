"""Programs that earlier tools lose records of, change, or end. Each one runs as without the tool, and is recorded."""
import copy
import dataclasses
import io
import pickle
import warnings
from typing import Tuple

import pytest
from collecting import BY_HOOKS, IN_PLACE, R, bare, collect, fill, step, torch

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

LEVELS = ["L0", "L1", "mix"]


def needs(*names):
    """A mark for what needs something that the installed torch does not have."""
    missing = [n for n in names if not hasattr(torch, n)]
    return pytest.mark.skipif(bool(missing), reason="this torch has no torch.%s" % "".join(missing[:1]))


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """What torch imports when it is first needed, which takes seconds: here, and not in each of the processes."""
    if not hasattr(nn.functional, "scaled_dot_product_attention"):  # torch 1.13 has none of it
        return
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch.nested._internal.nested_tensor

    torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged).sin()
    torch.func.vmap(lambda t: t.sum())(torch.ones(2, 2))


def net(*layers):
    return fill(nn.Sequential(*layers))


def bits(*tensors):
    return [t.detach().clone() for t in tensors]


def same(a, b):
    """Equal to the bit, whatever is inside."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def both(tmp_path, body, **config):
    """The program with the tool, after it was seen to come to the same result without."""
    plain, tool = tmp_path / "bare", tmp_path / "tool"
    plain.mkdir(exist_ok=True), tool.mkdir(exist_ok=True)
    expected = bare(plain, body)
    result = collect(tool, body, **config)
    assert same(result.value, expected), (result.value, expected)
    assert "Traceback" not in result.output, result.output
    for name in ("dump.json", "stack.json", "construct.json"):
        result.read(name)
    return result


# ---- the run is changed or broken ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_gradients_of_a_tensor_with_several_users_are_summed_in_the_same_order(tmp_path, level):
    def body(d):
        layer = fill(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True))
        model = nn.Sequential(layer, nn.LayerNorm(8))
        x = R(2, 5, 8, grad=True)
        step(d, lambda: model(x).pow(2).sum().backward(), model)
        return bits(x.grad, *[p.grad for p in model.parameters()])

    both(tmp_path, body, level=level)


@needs("jagged")
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_sizes_that_are_not_numbers_leave_the_files_whole(tmp_path, level):
    def body(d):
        model = net(nn.Linear(3, 3))

        def run():
            jagged = torch.nested.nested_tensor([R(2, 3), R(4, 3)], layout=torch.jagged)
            out = torch.mul(jagged, 2)
            return torch.add(out.values(), 1)

        return bits(step(d, run, model))

    assert "Torch.add.0.forward" in both(tmp_path, body, level=level).names()


@pytest.mark.parametrize("level", LEVELS)
def test_jit_trace_and_script_work_while_recording(tmp_path, level):
    def body(d):
        model = net(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

        def run():
            x = R(2, 3)
            traced = torch.jit.trace(model, x)  # checks itself: a traced tool would show
            scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Dropout(0.5)).eval())
            text = scripted.code + torch.jit.script(_scripted).code
            return [*bits(traced(x), model(x)), "msprobe" in text]

        return step(d, run, model)

    result = both(tmp_path, body, level=level)
    assert result.value[-1] is False and len(result.names()) >= 2


def _scripted(x: torch.Tensor, n: int) -> torch.Tensor:
    for _ in range(n):
        x = F.relu(x) + torch.tanh(x)
    return x


def doubled(self, args: Tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
    return out * 2


@pytest.mark.parametrize("env", [None, {"MSPROBE_PLAIN": "all"}], ids=["in_place", "attributes"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_model_with_hooks_is_scripted_while_recording(tmp_path, level, env):
    def body(d):
        class Local(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = nn.Linear(3, 3)

            def forward(self, x):
                return F.pad(torch.sin(self.l(x)), (0, 1))

        model = nn.Sequential(fill(nn.Linear(3, 3)), fill(Local()))
        model[0].register_forward_hook(doubled)

        def run():
            @torch.jit.script
            def plus(x: int) -> int:
                return x + 1

            class Pair:
                def __init__(self, x: int):
                    self.x = plus(x)  # a name that is looked for in the frame that calls torch.jit.script

            torch.jit.script(Pair)
            first = model(R(2, 3))
            scripted = torch.jit.script(model)
            return [*bits(first, scripted(R(2, 3)), model(R(2, 3))), str(scripted.inlined_graph)]

        return [run(), step(d, run, model)]

    result = both(tmp_path, body, env=env, level=level)
    names = result.names()
    if level != "L0":
        assert "Functional.pad.1.forward" in names and "Functional.pad.2.forward" not in names
    if level != "L1":
        assert "Module.0.Linear.forward.1" in names and "Module.0.Linear.forward.2" not in names


@pytest.mark.parametrize("level", LEVELS)
def test_models_are_copied_pickled_and_saved_while_recording(tmp_path, level):
    def body(d):
        model = net(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
        model[0].act = F.gelu  # what a configuration holds

        def run():
            model(R(2, 3)).sum().backward()
            kept = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            buffer = io.BytesIO()
            torch.save(model, buffer)
            buffer.seek(0)
            kept += (torch.load(buffer, weights_only=False),)
            hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for k in kept for m in k.modules()]
            return [*bits(*[p for k in kept for p in k.parameters()]), [k[0].act == F.gelu for k in kept]], kept, hooks

        value, kept, _ = step(d, run, model)
        return [*value, *bits(*[k(R(2, 3)) for k in kept])]

    both(tmp_path, body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_functions_stay_the_objects_they_were(tmp_path, level):
    from torch import relu

    act, table = F.gelu, {torch.relu: 1, F.gelu: 2, torch.Tensor.add: 3, F.linear: 4}

    def body(d):
        def run():
            return [relu is torch.relu, act is F.gelu, table[torch.relu], table[F.gelu], table[torch.Tensor.add], table[F.linear]]

        model = net(nn.Linear(2, 2), nn.ReLU())

        def recorded():
            model(R(1, 2))
            return run()

        built, inside = run(), step(d, recorded, model)
        return [built, inside, run()]

    assert both(tmp_path, body, env=IN_PLACE, level=level).value == [[True, True, 1, 2, 3, 4]] * 3


def test_what_stands_in_for_a_function_is_as_good_as_it(tmp_path):
    """Where attributes are replaced: a table by functions finds them, whoever has put them there, and `in` a list; a copy is the function itself."""
    from torch import relu

    before, isend = {torch.relu: 1, F.gelu: 2, torch.Tensor.add: 3}, torch.distributed.isend

    def body(d):
        def run():
            inside = {torch.relu: 1, F.gelu: 2, torch.Tensor.add: 3}
            found = [table[f] for table in (before, inside) for f in (torch.relu, relu, F.gelu, torch.Tensor.add)]
            found += [relu == torch.relu, torch.relu == relu, torch.relu != relu, torch.relu == torch.sigmoid, isend in [torch.distributed.isend]]
            found += [torch.distributed.isend is torch.distributed.distributed_c10d.isend, pickle.loads(pickle.dumps(torch.relu)) == relu]
            torch.relu(R(2))
            return [*found, F.gelu(R(2)), copy.deepcopy(F.gelu)(R(2))]

        return step(d, run)

    names = both(tmp_path, body, env={"MSPROBE_PLAIN": "all"}).names()
    assert names == ["Torch.relu.0.forward", "Functional.gelu.0.forward"]


@pytest.mark.parametrize("level", LEVELS)
def test_sparse_arguments_and_sparse_gradients(tmp_path, level):
    def body(d):
        model = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 2))
        fill(model)

        def run():
            s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([3.0, 4.0]), (3, 3))
            torch.mm(s, R(3, 2))
            model(torch.tensor([0, 3, 3])).sum().backward()
            return bits(model[0].weight.grad.to_dense(), model[1].weight.grad)

        return step(d, run, model)

    result = both(tmp_path, body, level=level)
    if level != "L0":
        assert result.data()["Torch.mm.0.forward"]["input_args"][0]["Norm"] == 5.0
        assert "Functional.embedding.0.backward" in result.names()
    if level != "L1":
        grad = result.data()["Module.0.Embedding.parameters_grad"]["weight"][0]
        assert grad["shape"] == [5, 3] and grad["Max"] is not None


# ---- silently not recorded ------------------------------------------------------------------------------------------------------


def test_what_follows_an_api_that_raised_is_recorded(tmp_path):
    def body(d):
        def run():
            a, b = R(2, 3, grad=True), R(2, 3, seed=1)
            x = torch.mul(a, b)
            caught = []
            for call in (lambda: torch.mm(a, b), lambda: x.view(5, 5), lambda: F.linear(a, "no"), lambda: F.cross_entropy(a, a, reduction="no")):
                with pytest.raises(Exception) as e:
                    call()
                caught.append(type(e.value).__name__)
            torch.exp(x).sum().backward()
            return bits(a.grad), caught

        return step(d, run)

    data = both(tmp_path, body).data()
    for name in ("Torch.mm.0.forward", "Functional.linear.0.forward", "Functional.cross_entropy.0.forward"):
        assert "input_args" in data[name] and "output" not in data[name], name
    assert {"Torch.exp.0.forward", "Torch.exp.0.backward", "Torch.mul.0.backward"} <= set(data)


class Bad(nn.Module):
    def forward(self, x):
        raise ValueError("on purpose")


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_module_that_raised_has_its_input_and_others_go_on(tmp_path, level):
    def body(d):
        model = net(nn.Linear(3, 3), nn.Sequential(Bad()), nn.Linear(3, 2))
        x = R(2, 3, grad=True)

        def run():
            h = model[0](x)
            with pytest.raises(ValueError):
                model[1](h)
            model[2](h).sum().backward()
            return bits(x.grad)

        return step(d, run, model)

    result = both(tmp_path, body, level=level)
    data, tree = result.data(), result.construct()
    for name in ("Module.1.0.Bad.forward.0", "Module.1.Sequential.forward.0"):
        assert data[name]["input_args"][0]["shape"] == [2, 3] and "output" not in data[name]
    assert {"Module.2.Linear.forward.0", "Module.2.Linear.backward.0", "Module.0.Linear.backward.0"} <= set(data)
    assert tree["Module.2.Linear.forward.0"] is None  # not inside of what raised


@needs("func")
def test_what_runs_inside_torch_func_is_recorded_without_values(tmp_path):
    def body(d):
        def run():
            rows = torch.func.vmap(lambda t: torch.sin(t).sum())(R(4, 3))
            slope = torch.func.vmap(torch.func.grad(lambda t: torch.exp(t).sum()))(R(4, 3))
            torch.func.jacrev(lambda t: torch.mul(t, weight))(R(3))
            return bits(rows, slope, torch.cos(R(2)))

        weight = R(3, seed=1)

        return step(d, run)

    result = both(tmp_path, body)
    data = result.data()
    for name in ("Torch.sin.0.forward", "Torch.exp.0.forward"):
        record = data[name]["input_args"][0]
        assert record["Max"] is None and "torch.func" in record["note"]
        assert "output" in data[name]
    assert data["Torch.cos.0.forward"]["output"][0]["Max"] is not None
    traced, plain = data["Torch.mul.0.forward"]["input_args"]  # what the transform does not touch has its values
    assert traced["Max"] is None and plain["Norm"] == pytest.approx(R(3, seed=1).norm().item(), rel=1e-6)


@needs("float8_e4m3fn", "float8_e5m2")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_have_both_halves(tmp_path, dtype):
    small = getattr(torch, dtype)

    def body(d):
        def run():
            x = R(3, 4).to(small)
            return bits(torch.reshape(x, (4, 3)).to(torch.float32))

        return step(d, run)

    record = both(tmp_path, body).data()["Torch.reshape.0.forward"]
    expected = R(3, 4).to(small).float()
    for half in (record["input_args"][0], record["output"][0]):
        assert half["dtype"] == "torch." + dtype
        assert (half["Max"], half["Min"]) == (expected.max().item(), expected.min().item())


def test_every_internal_error_leaves_a_trace(tmp_path):
    """A value that breaks whoever looks at it: the call is recorded and marked, the log has a line, and so for the next such call."""
    class Trap(tuple):
        @property
        def _fields(self):
            raise LookupError("not for you")

    class Module:
        @staticmethod
        def api(x, trap):
            return x + 1

    def body(d):
        d.register_custom_api(Module, "api", "Mine")

        def run():
            return bits(*[Module.api(R(2), Trap([1])) for _ in range(3)], torch.add(R(2), 1))

        return step(d, run)

    result = collect(tmp_path, body)
    data = result.data()
    assert [n for n in data if n.startswith("Mine")] == ["Mine.api.%d.forward" % i for i in range(3)]
    log = open(result.file("dump_error_info.log")).read()
    assert all("Mine.api.%d.forward" % i in log for i in range(3)) and "LookupError" in log
    assert result.output.count("LookupError") == 1  # one line on the screen
    assert all("output" in data["Mine.api.%d.forward" % i] for i in range(3)) and "Torch.add.0.forward" in data


def test_what_a_result_raises_when_it_is_asked_for_its_fields_is_told(tmp_path):
    class Kind(type):
        @property
        def _fields(cls):
            raise LookupError("no fields for you")

    class Pair(tuple, metaclass=Kind):
        pass

    class Module:
        @staticmethod
        def api(x):
            return Pair([x, x])

    def body(d):
        d.register_custom_api(Module, "api", "Mine")
        return step(d, lambda: bits(*Module.api(R(2))))

    result = collect(tmp_path, body)
    assert len(result.data()["Mine.api.0.forward"]["output"]) == 2
    assert "LookupError: no fields for you" in open(result.file("dump_error_info.log")).read()


def test_gradients_that_are_easily_missed(tmp_path):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.mul(x, x)

        @staticmethod
        def backward(ctx, g):
            return torch.mul(g, 2 * ctx.saved_tensors[0])

    def body(d):
        def run():
            x = R(4, 3, grad=True)
            y = F.dropout(x * 1, 0.0)  # hands its input on, without a node of its own
            z = torch.zeros(4, 3)
            z[1:] = y[1:]
            a, b = torch.split(Square.apply(torch.sin(z)), 2)
            b.sum().backward()  # the second output alone
            return bits(x.grad)

        return step(d, run)

    data = both(tmp_path, body).data()
    assert {"Functional.dropout.0.backward", "Tensor.__setitem__.0.backward", "Torch.sin.0.backward", "Torch.split.0.backward"} <= set(data)
    assert data["Torch.split.0.backward"]["input"][0] is None and data["Torch.split.0.backward"]["input"][1]["Max"] == 1.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_regions_are_recorded_to_their_last_call(tmp_path, level, reentrant):
    from torch.utils.checkpoint import checkpoint

    def body(d):
        inner = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.25), nn.Linear(4, 3))
        model = fill(nn.Sequential(inner, nn.Linear(3, 2)))
        torch.manual_seed(3)
        x = R(2, 3, grad=True)

        def run():
            model[1](checkpoint(inner, x, use_reentrant=reentrant)).sum().backward()
            return bits(x.grad, *[p.grad for p in model.parameters()], torch.get_rng_state())

        return step(d, run, model)

    done = both(tmp_path, body, level=level)
    data = done.data()
    if level != "L0":
        again = [n for n in data if ".forward" in n and n.startswith("Functional") and data[n]["is_recompute"]]
        assert again[0] == "Functional.linear.3.forward" and "Functional.gelu.1.forward" in again
        # without re-entry the last one is ended by an exception of torch's own as soon as it has saved what backward needs: it has inputs alone
        whole = again if reentrant else again[:-1]
        assert all(data[n]["input_args"][0] for n in again) and all(data[n]["output"][0] for n in whole)
        assert "Functional.gelu.%d.backward" % reentrant in data
    if level != "L1":
        again = [n for n in data if n.startswith("Module") and ".forward." in n and data[n]["is_recompute"]]
        assert [n for n in again if "Linear" in n][0] == "Module.0.0.Linear.forward.1"
        cut_off = [] if reentrant or not hasattr(torch.utils.checkpoint, "_StopRecomputationError") else ["Module.0.3.Linear.forward.1", "Module.0.Sequential.forward.1"]
        assert sorted(n for n in again if data[n]["output"] == [None]) == cut_off
        lines = {n: done.stacks()[n][0].rpartition("\n ")[2] for n in cut_off}
        where = "hook_result = hook(" if BY_HOOKS else "result = forward_call("  # from where the original records such a module
        assert all(line.startswith(where) for line in lines.values()), lines
        assert "Module.0.1.GELU.backward.%d" % reentrant in data


# ---- values ---------------------------------------------------------------------------------------------------------------------------


def test_checksums_are_those_of_the_moment_of_the_call(tmp_path):
    """The program writes to the same memory at once; whoever reads it later sees something else."""
    def body(d):
        def run():
            x = R(512, 512)
            for i in range(20):
                torch.add(x, 0)
                x.fill_(float(i))

        step(d, run)

    first = collect(tmp_path, body, part={"summary_mode": "md5"}).data()
    import zlib

    for i in range(20):
        x = R(512, 512) if i == 0 else torch.full((512, 512), float(i - 1))
        expected = "%08x" % zlib.crc32(x.numpy().tobytes())
        assert first["Torch.add.%d.forward" % i]["input_args"][0]["md5"] == expected
        assert first["Torch.add.%d.forward" % i]["output"][0]["md5"] == expected


def test_the_input_of_an_in_place_module_is_what_it_was_before(tmp_path):
    def body(d):
        model = net(nn.Linear(3, 4), nn.ReLU(inplace=True))
        step(d, lambda: model(R(2, 3)).sum().backward(), model)

    record = collect(tmp_path, body, level="L0").data()["Module.1.ReLU.forward.0"]
    assert record["input_args"][0]["Min"] < 0 and record["output"][0]["Min"] == 0


def test_memory_that_nobody_has_written_to_does_not_count_as_an_overflow(tmp_path):
    def body(d):
        def run():
            for _ in range(50):
                nan.clone()  # leaves memory full of NaN behind; not in the list of APIs
                torch.add(torch.empty(64).fill_(1.0), torch.empty_like(ones).zero_())
            torch.mul(ones, 2, out=out)

        nan, ones = torch.full((64,), float("nan")), torch.ones(64)
        out = nan.clone()  # a buffer that is written to, whatever is in it
        step(d, run)

    result = collect(tmp_path, body, task="overflow_check", part={"overflow_nums": 1})
    assert "no overflow in step 0" in result.output


def test_positional_types_and_devices_have_names(tmp_path):
    d = collect(tmp_path, lambda d: step(d, lambda: R(2).to(torch.float64) is None)).data()
    assert d["Tensor.to.0.forward"]["input_args"][1] == {"type": "torch.dtype", "value": "torch.float64"}


def test_gradients_that_accumulate_are_numbered(tmp_path):
    def body(d):
        model = net(nn.Linear(3, 2))

        def run():
            sums = [torch.zeros(2, 3)]
            for i in range(3):
                model(R(2, 3, seed=i)).sum().backward()
                sums.append(model[0].weight.grad.clone())
            return [(after - before).norm().item() for before, after in zip(sums, sums[1:])]

        return step(d, run, model)

    result = both(tmp_path, body, level="L0", part={"summary_mode": "md5"})
    names = [n for n in result.names() if "parameters_grad" in n]
    assert names == ["Module.0.Linear.parameters_grad", "Module.0.Linear.parameters_grad.1", "Module.0.Linear.parameters_grad.2"]
    # each is what its own pass has brought, as the original has it, and not what it has added up to
    assert [result.data()[n]["weight"][0]["Norm"] for n in names] == pytest.approx(result.value, rel=1e-6)


def test_tied_weights_have_gradients_under_each_of_their_names(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.proj = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.proj.weight = self.emb.weight

        def forward(self, i):
            return self.proj(self.emb(i))

    def body(d):
        model = fill(Tied())
        step(d, lambda: model(torch.tensor([1, 2])).sum().backward(), model)
        return bits(model.emb.weight.grad)

    data = both(tmp_path, body, level="mix").data()
    assert "weight" in data["Module.emb.Embedding.parameters_grad"] and "weight" in data["Module.proj.Linear.parameters_grad"]


# ---- filters ------------------------------------------------------------------------------------------------------------------------------


def test_the_last_api_of_a_scope_has_its_output(tmp_path):
    def run():
        x = R(2, 3, grad=True)
        torch.tanh(torch.exp(torch.sin(x))).sum().backward()

    part = {"scope": ["Torch.sin.0.forward", "Torch.tanh.0.forward"]}
    data = collect(tmp_path, lambda d: step(d, run), part=part).data()
    assert [n for n in data if n.endswith("forward")] == ["Torch.sin.0.forward", "Torch.exp.0.forward", "Torch.tanh.0.forward"]
    assert all("output" in data[n] for n in data)


@pytest.mark.parametrize("config, words", [
    (dict(rank=[0, 1]), ["rank selects [0, 1]", "torch.distributed was not initialised"]),
    (dict(part={"list": ["rellu"]}), ["list selects", "rellu", "Torch.sin.0.forward"]),
    (dict(step=[7]), ["step selects [7]", "steps that ran are 0 to 0"]),
    (dict(part={"scope": ["Torch.tan.0.forward", "Torch.tan.1.forward"]}), ["scope begins with Torch.tan.0.forward", "Torch.sin.0.forward"]),
    (dict(level="debug"), ["save() was never called"]),
    (dict(part={"data_mode": ["backward"]}), ["data_mode"]),
])
def test_a_choice_that_selects_nothing_is_told_at_the_end_with_what_there_was(tmp_path, config, words):
    result = collect(tmp_path, lambda d: step(d, lambda: torch.sin(R(2)) is None), **config)
    last = [line for line in result.output.splitlines() if "[ERROR]" in line]
    assert len(last) == 1 and "nothing was recorded" in last[0], result.output
    for word in words:
        assert word in last[0], last


def test_never_started_is_told(tmp_path):
    result = collect(tmp_path, lambda d: None)
    assert "nothing was recorded: start() was never called" in result.output


def test_a_start_that_failed_was_called(tmp_path):
    result = collect(tmp_path, lambda d: d.start(), level="L0", status=1)
    assert "nothing was recorded: start() failed: " in result.output and "level L0 needs start(model)" in result.output.splitlines()[-1]


# ---- seen with small programs --------------------------------------------------------------------------------------------------------------------


@needs("compile")
@pytest.mark.parametrize("level", LEVELS)
def test_compiled_models_run_and_are_named(tmp_path, level):
    def body(d):
        inner = net(nn.Linear(3, 3), nn.ReLU())
        model = nn.Sequential(nn.Linear(3, 3), torch.compile(inner, backend="aot_eager"))
        fill(model)

        def run():
            x = R(2, 3, grad=True)
            model(x).sum().backward()
            torch.sin(x)
            return bits(x.grad)

        return step(d, run, model)

    result = both(tmp_path, body, level=level)
    if level != "L0":
        assert "Functional.linear.0.forward" in result.names() and "Torch.sin.0.forward" in result.names()
    if level != "L1":
        assert "Module.0.Linear.forward.0" in result.names() and "Module.1.Sequential.forward.0" in result.names()
        assert "module 1 is compiled by torch.compile: " in result.output
    assert "is compiled by torch.compile: " in result.output


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_the_programs_own_tools_see_nothing_of_ours(tmp_path, level, task):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Kernels(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    def nodes(t):
        todo, found = [t.grad_fn], []
        while todo:
            node = todo.pop()
            found.append(node.name())
            todo += [n for n, _ in node.next_functions if n is not None]
        return found

    counts = not torch.__version__.startswith("1.")  # torch 1.13's profiler now and then counts one event more, without us, too

    def body(d):
        model = net(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        special = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([3.0, 4.0]), (3, 3))
        flipped = torch.complex(R(2), R(2, seed=1)).conj()

        def run(mode):
            with mode:
                loss = model(R(5, 3)).pow(2).sum() + torch.mm(special, R(3, 2)).sum() + torch.abs(flipped).sum()
                graph = nodes(loss)
                loss.backward()
            return graph

        def profiled():
            with torch.profiler.profile() as profile:
                model(R(5, 3)).sum().backward()
            return [(e.key, e.count if counts else None) for e in profile.key_averages()]

        kernels, functions = Kernels(), Functions()
        graph = step(d, lambda: run(kernels), model)
        step(d, lambda: run(functions), model)
        events = step(d, profiled, model)
        return kernels.seen, functions.seen, graph, sorted(events)

    both(tmp_path, body, level=level, task=task)


@pytest.mark.skipif(not hasattr(torch._C, "_TorchFunctionState"), reason="this torch has no way to keep a mode from seeing what another program asks of a tensor")
@pytest.mark.parametrize("level", ["L0", "L1", "mix", "debug"])
def test_a_mode_around_our_own_calls_sees_nothing_of_them(tmp_path, level):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Kernels(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def body(d):
        model = net(nn.Linear(3, 4), nn.utils.weight_norm(nn.Linear(4, 2)))
        with Functions(), Kernels():
            for _ in range(2):
                d.start(model)
                y = model(R(5, 3))
                d.save([y, {"w": model[0].weight}], "point")
                y.sum().backward()
                d.stop()
                d.step()
        return seen

    for folder in ("bare", "tool"):
        (tmp_path / folder).mkdir()
    assert collect(tmp_path / "tool", body, level=level).value == bare(tmp_path / "bare", body)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_model_that_is_one_module_is_recorded(tmp_path, level):
    def body(d):
        model = fill(nn.Linear(3, 2))
        step(d, lambda: model(R(2, 3)).sum().backward(), model)
        return bits(model.weight.grad)

    names = both(tmp_path, body, level=level).names()
    assert {"Module.Linear.Linear.forward.0", "Module.Linear.Linear.backward.0", "Module.Linear.Linear.parameters_grad"} <= set(names)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    scale: float = 2.0


class Boxed(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 3)

    def forward(self, x):
        return Output(self.f(x) * 2)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_module_backward_survives_in_place_writes_and_dataclasses(tmp_path, level):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), Boxed()))

        def run():
            h = model[0](R(2, 3))
            h += 1
            h.mul_(2)
            model[1](h).hidden.sum().backward()
            return bits(*[p.grad for p in model.parameters()])

        return step(d, run, model)

    data = both(tmp_path, body, level=level).data()
    assert data["Module.0.Linear.backward.0"]["input"][0]["shape"] == [2, 3]
    assert data["Module.1.Boxed.backward.0"]["input"][0]["Max"] == 1.0
    assert data["Module.1.Boxed.forward.0"]["output"][0]["hidden"]["shape"] == [2, 3]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_in_inference_the_gradients_of_parameters_are_nulls(tmp_path, level):
    def body(d):
        model = net(nn.Linear(3, 2))

        def run():
            with torch.no_grad():
                return bits(model(R(2, 3)))

        return step(d, run, model)

    done = both(tmp_path, body, level=level)
    assert not [n for n in done.names() if "backward" in n]
    assert {n: v for n, v in done.data().items() if "parameters_grad" in n} == {"Module.0.Linear.parameters_grad": {"weight": [None], "bias": [None]}}


class Sealed(torch.Tensor):
    """A tensor of the program's own that cannot be pickled."""

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be pickled")


class Wrapped(torch.Tensor):
    """One without memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [a.inner if isinstance(a, cls) else a for a in args]
        return cls(func(*args, **(kwargs or {})))


def test_tensors_of_the_programs_own_types(tmp_path):
    def body(d):
        def run():
            sealed = R(2, 3).as_subclass(Sealed)
            out = torch.add(sealed, 1)
            wrapped = torch.mul(Wrapped(R(2)), 2)
            return bits(out.as_subclass(torch.Tensor), wrapped.inner), type(out).__name__, type(wrapped).__name__

        return step(d, run)

    result = both(tmp_path, body, task="tensor")
    data = result.data()
    assert torch.equal(result.tensor("Torch.add.0.forward.input.0.pt"), R(2, 3))
    assert data["Torch.mul.0.forward"]["output"][0]["shape"] == [2] and "Torch.mul.0.forward.output.0.pt" not in result.tensors()


@pytest.mark.skipif(not hasattr(torch._C, "_TorchFunctionState"), reason="this torch has no way to keep a class from seeing what another program asks of its tensors")
@pytest.mark.parametrize("level", LEVELS)
def test_a_tensor_class_sees_the_programs_calls_alone(tmp_path, level):
    def body(d):
        seen = []

        class Watching(torch.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                seen.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        model = net(nn.Linear(3, 4), nn.GELU())
        model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Watching))

        def run():
            x = R(2, 3).as_subclass(Watching).requires_grad_()
            (model(x) * 2 + x.sin().sum()).sum().backward()
            return [seen, type(x.grad).__name__, *bits(x.grad.as_subclass(torch.Tensor))]

        return step(d, run, model)

    both(tmp_path, body, level=level)


def test_no_warning_of_torch_comes_from_us(tmp_path):
    def body(d):
        model = net(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            step(d, lambda: model(R(2, 3)).sum().backward(), model)
        return [str(w.message) for w in seen]

    assert both(tmp_path, body, level="mix").value == []
