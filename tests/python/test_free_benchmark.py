"""Task free_benchmark: calls run a second time with their inputs changed a little, and the program does not notice."""
import csv
import os
import signal
import time

import pytest
from collecting import NoTool, R, bare, begin, collect, finish, ranks, torch, write_config
from test_collect_unchanged import MODELS, loaded_once, train, without  # noqa: F401 (fixtures)

import torch.nn.functional as F  # noqa: E402
from msprobe.pytorch import PrecisionDebugger  # noqa: E402

TITLE = "rank,pert_mode,stage,step,api_name,max_rel,dtype,shape,output_index"
CHECKS = ("improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu")


def part(mode, **more):
    return dict({"pert_mode": mode, "fuzz_device": "cpu" if mode == "to_cpu" else "npu"}, **more)


def checked(folder, body, mode, **more):
    common = {k: more.pop(k) for k in ("status", "env", "step", "rank", "seed", "is_deterministic") if k in more}
    return collect(folder, body, task="free_benchmark", part=part(mode, **more), **common)


def rows(result, step=0, rank="rank", name="free_benchmark.csv"):
    path = result.file(name, step, rank)
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def found(result, step=0):
    return sorted({r["api_name"] for r in rows(result, step)})


def one_step(d, body):
    d.start()
    value = body()
    d.stop()
    d.step()
    return value


# ---- the program does not notice ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("mode", CHECKS)
def test_thirty_steps_of_training_are_the_same_to_the_bit(tmp_path, without, which, mode):  # noqa: F811
    result = checked(tmp_path, lambda d: train(d, which, 30), mode)
    history, clean = result.value
    assert history == without(which, 30) and clean
    assert "not checked" not in result.output.replace("no call was checked", ""), result.output


@pytest.mark.parametrize("which", MODELS)
@pytest.mark.parametrize("mode", ("add_noise", "no_change", "bit_noise"))
def test_backward_checks_leave_training_as_it_is(tmp_path, without, which, mode):  # noqa: F811
    names = ["linear", "layer_norm", "conv2d", "relu", "batch_norm", "dropout", "__mul__", "__iadd__", "sigmoid", "scaled_dot", "multi_head", "embedding"]
    result = checked(tmp_path, lambda d: train(d, which, 10), mode, fuzz_stage="backward", list=names)
    history, clean = result.value
    assert history == without(which, 10) and clean
    assert "calls checked" in result.output and "failed" not in result.output


def autocast_steps(d):
    torch.manual_seed(2)
    layer, x = torch.nn.Linear(8, 8), R(4, 8)
    out = []
    for _ in range(3):
        d.start()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.dropout(layer(layer(x)), 0.4)
            loss = F.layer_norm(y, (8,)).pow(2).mean()
        layer.zero_grad()
        loss.backward()
        d.stop()
        d.step()
        out.append((loss.item(), layer.weight.grad.clone(), y.dtype))
    return [(a, b.tolist(), str(c)) for a, b, c in out]


@pytest.mark.parametrize("mode", CHECKS)
def test_autocast_and_its_cache_are_the_same(tmp_path, mode):
    assert checked(tmp_path, autocast_steps, mode).value == bare(tmp_path, autocast_steps)


def checkpointed_steps(d):
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(2)
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.3), torch.nn.Linear(8, 8))
    out = []
    for i in range(3):
        x = R(4, 8, seed=i, grad=True)
        d.start()
        loss = checkpoint(layer, x, use_reentrant=i == 1).pow(2).mean()
        loss.backward()
        d.stop()
        d.step()
        out.append((loss.item(), x.grad.tolist(), layer[0].weight.grad.tolist()))
    return out


@pytest.mark.parametrize("more", ({}, {"fuzz_stage": "backward", "list": ["linear", "relu", "dropout"]}), ids=["forward", "backward"])
@pytest.mark.parametrize("mode", ("add_noise", "no_change"))
def test_activation_checkpoints_are_the_same(tmp_path, mode, more):
    assert checked(tmp_path, checkpointed_steps, mode, **more).value == bare(tmp_path, checkpointed_steps)


def compiled_steps(d, backend):
    torch.manual_seed(2)
    inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.3))
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.compile(inner, backend=backend), torch.nn.LayerNorm(8))
    return steps_of(d, model)


def steps_of(d, model):
    optimizer, out = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), []
    for i in range(3):
        x = R(4, 8, seed=i, grad=True)
        d.start()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        d.stop()
        d.step()
        out.append((loss.item(), x.grad.tolist(), [(p.grad.tolist(), p.tolist()) for p in model.parameters()]))
        optimizer.zero_grad()
    return out


IN_BACKWARD = {"fuzz_stage": "backward", "list": ["linear", "layer_norm", "gelu", "dropout", "pow", "mean"]}


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch has no torch.compile")
@pytest.mark.parametrize("more", ({}, IN_BACKWARD), ids=["forward", "backward"])
@pytest.mark.parametrize("backend", ("eager", "aot_eager"))
def test_a_compiled_module_in_the_model_is_the_same(tmp_path, backend, more):
    result = checked(tmp_path, lambda d: compiled_steps(d, backend), "add_noise", **more)
    assert result.value == bare(tmp_path, lambda d: compiled_steps(d, backend))
    assert "calls checked" in result.output and "not checked" not in result.output


def parallel_steps(d, rank):
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.3), torch.nn.LayerNorm(8))
    torch.manual_seed(rank)
    return steps_of(d, torch.nn.parallel.DistributedDataParallel(model))


@pytest.mark.parametrize("more", ({}, IN_BACKWARD), ids=["forward", "backward"])
def test_two_ranks_of_ddp_are_the_same(tmp_path, more):
    results = ranks(tmp_path, parallel_steps, task="free_benchmark", part=part("add_noise", **more))
    assert [r.value for r in results] == [r.value for r in ranks(tmp_path, parallel_steps, tool=False)]
    assert all("calls checked" in r.output for r in results)


def odd_calls(d):
    """In-place, views, out=, generators, exceptions, inference mode: what the program ends with."""
    torch.manual_seed(4)
    a, g = R(4, 6), torch.Generator().manual_seed(7)
    d.start()
    a.add_(1).mul_(a)
    view = a[1:3]
    view.exp_()
    a[0] = torch.sin(a[3])
    out = torch.empty(4, 6)
    torch.mul(a, 2, out=out)
    drawn = torch.bernoulli(torch.full((5,), 0.5), generator=g)
    noisy = torch.rrelu(a, training=True)
    weight = R(10, 4)
    F.embedding(torch.tensor([1, 2]), weight, max_norm=0.1)
    with torch.inference_mode():
        b = torch.softmax(R(3, 3), 0)
    try:
        torch.matmul(R(2, 3), R(2, 3))
    except RuntimeError as e:
        said = str(e)
    nested = torch.stack([a, out]).sum()
    d.stop()
    d.step()
    return [t.tolist() for t in (a, view, out, drawn, noisy, weight, b, nested, torch.rand(2), torch.rand(2, generator=g))], said


@pytest.mark.parametrize("mode", CHECKS)
def test_odd_calls_are_the_same(tmp_path, mode):
    assert checked(tmp_path, odd_calls, mode).value == bare(tmp_path, odd_calls)


def test_a_second_run_that_fails_is_told_and_training_goes_on(tmp_path):
    def body(d):
        def once_only(x, calls=[]):
            calls.append(1)
            if len(calls) > 1:
                raise KeyError("only once")
            return x * 2

        import types
        module = types.SimpleNamespace(once_only=once_only)
        d.register_custom_api(module, "once_only", "Own")
        return one_step(d, lambda: (module.once_only(torch.ones(3)) + 1).tolist())

    result = checked(tmp_path, body, "add_noise")
    assert result.value == [3.0, 3.0, 3.0]
    assert "Own.once_only.0.forward is not checked: KeyError" in result.output and "1 call checked" in result.output


def test_what_runs_again_is_not_seen_by_the_programs_own_modes(tmp_path):
    def body(d):
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode

        seen = []

        class Functions(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append("function")
                return func(*args, **(kwargs or {}))

        class Kernels(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        x = torch.ones(4)
        d.start()
        with Functions(), Kernels():
            torch.exp(torch.mul(x, 2))
        d.stop()
        d.step()
        return seen

    assert checked(tmp_path, body, "add_noise").value == bare(tmp_path, body)


def test_nothing_is_kept_of_a_second_run(tmp_path):
    def body(d):
        import gc
        w = R(64, 64, grad=True)

        def step():
            d.start()
            torch.softmax(torch.matmul(R(64, 64), w), 0).sum().backward()
            d.stop()
            d.step()
            w.grad = None

        for _ in range(3):
            step()
        gc.collect()
        before = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
        for _ in range(20):
            step()
        gc.collect()
        return sum(isinstance(o, torch.Tensor) for o in gc.get_objects()) - before

    assert checked(tmp_path, body, "add_noise").value <= 0
    assert checked(tmp_path, body, "add_noise", fuzz_stage="backward", list=["matmul", "softmax"]).value <= 0


def test_stopped_means_gone(tmp_path):
    def body(d):
        saved = torch.mul, F.relu, torch.Tensor.add
        d.start()
        d.stop()
        torch.exp(torch.ones(2, dtype=torch.bfloat16) * 50)
        return saved == (torch.mul, F.relu, torch.Tensor.add)

    result = checked(tmp_path, body, "bit_noise")
    assert result.value and "no call was checked" in result.output


# ---- what is wrong is found -----------------------------------------------------------------------------------------------------------------


def planted(d):
    """One function per way to be wrong, beside two that are right."""
    import types
    state = {"n": 0}

    def forgets(x):  # another result each time
        state["n"] += 1
        return x * (1 + state["n"] * 0.01)

    def cancels(x):  # what is left of 10^4 is noise
        return x * 1e4 - torch.round(x * 1e4)

    def coarse(x):  # adds up in the type it was given
        total = torch.zeros((), dtype=x.dtype)
        for v in x.flatten():
            total = total + v
        return total

    def position(x):  # looks at the first element only
        return x.flatten()[0] * torch.ones_like(x)

    module = types.SimpleNamespace(forgets=forgets, cancels=cancels, coarse=coarse, position=position, fine=lambda x, y: x * y, smooth=lambda x: torch.tanh(x))
    for name in vars(module):
        d.register_custom_api(module, name, "Own")
    x = torch.linspace(0.3, 1.7, 64)

    def body():
        module.forgets(x)
        module.cancels(x)
        module.coarse(torch.full((600,), 0.1, dtype=torch.float16))
        module.position(torch.full((8,), 2.0).index_fill(0, torch.tensor([7]), 3.0))
        module.fine(x, x + 1)
        module.smooth(x.bfloat16())

    one_step(d, body)


@pytest.mark.parametrize("mode, names", [
    ("no_change", ["forgets"]), ("improve_precision", ["coarse"]), ("add_noise", ["cancels", "forgets"]), ("to_cpu", ["coarse"]),
    ("bit_noise", ["cancels", "forgets", "smooth"])])  # smooth: one bit of bfloat16 is more than the limit that the manual's tool has
def test_a_planted_fault_is_found_by_the_perturbation_that_shows_it(tmp_path, mode, names):
    result = checked(tmp_path, planted, mode, list=["Own"])
    assert found(result) == ["Own.%s.0.forward" % name for name in sorted(names)], rows(result)


def test_exchanged_values_show_what_depends_on_its_place(tmp_path):
    names = found(checked(tmp_path, planted, "change_value", list=["position", "coarse"]))
    assert names == ["Own.position.0.forward"]


def test_noise_reaches_bfloat16_of_every_size_and_every_input(tmp_path):
    def body(d):
        a, b = torch.full((8,), 100.0, dtype=torch.bfloat16), torch.full((8,), 1000.0, dtype=torch.bfloat16)

        def calls():
            torch.sub(a, a + 0.5)
            torch.where(torch.ones(8, dtype=torch.bool), input=a, other=b)
            torch.exp(a / 2)
            torch.cat([torch.ones(8, dtype=torch.int64), torch.sin(b)])

        one_step(d, calls)

    result = checked(tmp_path, body, "add_noise")
    assert {"Torch.sub.0.forward", "Torch.exp.0.forward", "Torch.sin.0.forward"} <= set(found(result))
    assert "Torch.where.0.forward" not in found(result)


def test_keyword_arguments_are_changed_too(tmp_path):
    def body(d):
        x = torch.full((4,), 1e5)
        one_step(d, lambda: torch.sin(input=x))

    assert found(checked(tmp_path, body, "bit_noise")) == ["Torch.sin.0.forward"]


def test_the_largest_difference_counts_wherever_it_is(tmp_path):
    """The original looked at the last of several chunks: here only the first element moves."""
    def body(d):
        x = torch.zeros(1 << 20)
        x[0] = 1e5
        one_step(d, lambda: torch.sin(x))

    assert found(checked(tmp_path, body, "bit_noise")) == ["Torch.sin.0.forward"]


def test_infinite_on_one_side_only_is_a_finding(tmp_path):
    def body(d):
        largest = torch.full((4,), 65504.0, dtype=torch.float16)
        one_step(d, lambda: torch.add(largest, largest))

    assert [r["max_rel"] for r in rows(checked(tmp_path, body, "improve_precision"))] == ["inf"]


def test_gradients_are_those_of_the_call_alone(tmp_path):
    """An input with several users; the original compared the sum of all users' gradients with this call's."""
    def body(d):
        x = R(6, 8, grad=True)
        d.start()
        loss = torch.softmax(x, -1).sum() + torch.sort(x, -1)[0].pow(2).sum() + torch.topk(x, 3).values.sum() + F.layer_norm(x, (8,)).sum() + x.exp().sum()
        loss.backward()
        d.stop()
        d.step()

    names = ["softmax", "layer_norm", "sort", "topk"]
    result = checked(tmp_path, body, "no_change", fuzz_stage="backward", list=names)
    assert rows(result) == [] and "4 calls checked" in result.output
    result = checked(tmp_path, body, "add_noise", fuzz_stage="backward", list=names)
    assert "4 calls checked" in result.output


@pytest.mark.parametrize("mode", ["no_change", "add_noise"])
def test_gradients_of_calls_that_write_to_one_tensor_in_turn_are_each_ones_own(tmp_path, mode):
    """A tensor's hooks stay where the first one of them, here the program's, was set."""
    def body(d):
        x, seen = R(3, 4, grad=True), []
        d.start()
        y = x * 2
        y.register_hook(lambda g: seen.append(tuple(g.shape)))
        y.unsqueeze_(0).squeeze_(0).t_().transpose_(0, 1).t_()
        y.exp().sum().backward()
        d.stop()
        d.step()
        return seen

    result = checked(tmp_path, body, mode, fuzz_stage="backward", list=["squeeze_", "t_", "transpose_"])
    assert "5 calls checked" in result.output and "not checked" not in result.output
    assert result.value == [(3, 4)]


def test_a_wrong_gradient_is_found_in_backward(tmp_path):
    def body(d):
        import types

        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx, g):
                x, = ctx.saved_tensors
                return g * torch.sin(x * 1e6)

        module = types.SimpleNamespace(cube=lambda x: Cube.apply(x), square=lambda x: x * x)
        d.register_custom_api(module, "cube", "Own")
        d.register_custom_api(module, "square", "Own")
        x = torch.linspace(0.5, 2, 16).requires_grad_()
        one_step(d, lambda: (module.cube(x) + module.square(x)).sum().backward())

    result = checked(tmp_path, body, "add_noise", fuzz_stage="backward", list=["Own"])
    assert found(result) == ["Own.cube.0.backward"] and {r["stage"] for r in rows(result)} == {"backward"}


# ---- files and lines ------------------------------------------------------------------------------------------------------------------------


def unstable(d, steps=1):
    x = torch.full((2, 3), 1e5)
    for _ in range(steps):
        one_step(d, lambda: (torch.sin(x), torch.sort(x * 1.0), torch.exp(torch.full((4,), 80.0))))


def test_the_file_has_the_manuals_columns_and_a_second_one_the_bits(tmp_path):
    result = checked(tmp_path, lambda d: unstable(d, 2), "bit_noise")
    with open(result.file("free_benchmark.csv", 1), newline="") as f:
        text = f.read()
    assert text.startswith(TITLE + "\r\n") and text.endswith("\r\n") and text.count("rank,") == 1
    row = next(r for r in rows(result, 1) if r["api_name"] == "Torch.sin.0.forward")
    assert row["rank"] == "0" and row["pert_mode"] == "bit_noise" and row["stage"] == "forward" and row["step"] == "1"
    assert row["dtype"] == "torch.float32" and row["shape"] == "torch.Size([2, 3])" and row["output_index"] == ""
    assert float(row["max_rel"]) > 2e-4
    bits = {r["api_name"]: r for r in rows(result, 1, name="free_benchmark_bits.csv")}
    assert 1 < float(bits["Torch.sin.0.forward"]["bits_kept"]) < 12 and bits["Torch.sin.0.forward"]["bits_of_type"] == "24"
    assert oct(os.stat(result.file("free_benchmark.csv", 1)).st_mode)[-3:] == "640"


def test_stop_names_the_three_least_stable_calls_the_least_first(tmp_path):
    def body(d):
        one_step(d, lambda: [torch.sin(torch.linspace(0.9, 1.1, 50) * scale) for scale in (1e4, 1e6, 1e3, 1e5)])

    lines = [line for line in checked(tmp_path, body, "bit_noise", list=["sin"]).output.splitlines() if "least stable" in line]
    assert [line.split("stable: ")[1].split()[0] for line in lines] == ["Torch.sin.%d.forward" % n for n in (1, 3, 0)]


def test_the_index_of_a_tuples_element_is_told(tmp_path):
    def body(d):
        one_step(d, lambda: (torch.sort(torch.tensor([1.0, 2.0, 3.0])), torch.cummax(torch.tensor([1.0, 3.0, 2.0]), 0)))

    assert [(r["api_name"], r["output_index"], r["dtype"]) for r in rows(checked(tmp_path, body, "change_value"))] == [
        ("Torch.sort.0.forward", "1", "torch.int64"), ("Torch.cummax.0.forward", "0", "torch.float32")]


def test_a_killed_run_leaves_whole_rows(tmp_path):
    path = write_config(tmp_path, task="free_benchmark", part=part("bit_noise"))

    def body():
        d = PrecisionDebugger(path)
        x = torch.full((50,), 1e5)
        d.start()
        while True:
            torch.sin(x)

    begun = begin(tmp_path, body)
    file = tmp_path / "dump" / "step0" / "rank" / "free_benchmark.csv"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (file.exists() and file.stat().st_size > 5000):
        time.sleep(0.01)
    os.kill(begun[0], signal.SIGKILL)
    assert finish(begun)[0] == -signal.SIGKILL
    text = file.read_bytes().decode()
    lines = text.split("\r\n")
    assert lines[0] == TITLE and lines[-1] == "" and len(lines) > 20
    assert all(len(next(csv.reader([line]))) == 9 for line in lines[:-1])


def test_every_rank_has_a_file_of_its_own(tmp_path):
    results = ranks(tmp_path, lambda d, rank: unstable(d), task="free_benchmark", part=part("bit_noise"))
    for rank in range(2):
        assert {r["rank"] for r in rows(results[0], rank="rank%d" % rank)} == {str(rank)}


def test_an_earlier_runs_files_are_moved_aside(tmp_path):
    checked(tmp_path, unstable, "bit_noise")
    again = checked(tmp_path, unstable, "bit_noise")
    assert len([r for r in rows(again) if r["api_name"] == "Torch.sin.0.forward"]) == 1
    assert (tmp_path / "dump.older-1" / "step0" / "rank" / "free_benchmark.csv").exists()


# ---- selection, preheating ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more, names", [
    ({"list": ["sin"]}, ["Torch.sin.0.forward"]), ({"scope": ["Torch.exp.0"]}, ["Torch.exp.0.forward"]),
    ({"scope": ["Torch.exp.0.forward", "Torch.sin.0"]}, ["Torch.exp.0.forward", "Torch.sin.0.forward"])])
def test_list_and_scope_select_calls(tmp_path, more, names):
    assert found(checked(tmp_path, lambda d: one_step(d, lambda: (torch.sin(torch.full((3,), 1e5)), torch.exp(torch.full((3,), 80.0)) * 1e-30,
                                                                      torch.sin(torch.full((3,), 1e5)))), "change_value", **more)) == []
    result = checked(tmp_path, lambda d: one_step(d, lambda: (torch.sin(torch.full((3,), 1e5)), torch.exp(torch.full((3,), 8e1, dtype=torch.bfloat16)))),
                     "bit_noise", **more)
    assert found(result) == names


def test_a_selection_of_nothing_says_what_there_was(tmp_path):
    result = checked(tmp_path, unstable, "bit_noise", list=["softmax"])
    assert "no call was checked: list selects ['softmax']; names that were called: " in result.output and "Torch.sin.0.forward" in result.output
    result = checked(tmp_path, unstable, "improve_precision")
    assert "had nothing to raise" in result.output


def test_preheating_learns_what_an_api_may_do(tmp_path):
    """exp of bfloat16 moves by some percent when its input's last bit does, and the CPU agrees with it: after some steps that is no finding."""
    def body(d):
        for i in range(8):
            one_step(d, lambda: [torch.exp((torch.linspace(1, 4, 400) + n + i / 10).bfloat16()) for n in range(4)])

    plain = checked(tmp_path, body, "bit_noise", list=["exp"])
    assert all(len(found(plain, step)) == 4 for step in range(8))
    warm = checked(tmp_path, body, "bit_noise", list=["exp"], if_preheat="true", preheat_step=6, max_sample=3)
    assert "checked with bit_noise" in warm.output and sum(len(found(warm, step)) for step in range(8)) <= 4  # those that go beyond all before


# ---- fix ------------------------------------------------------------------------------------------------------------------------------------


def low_precision_training(d, steps=1):
    x, w, b = R(16, 64, dtype=torch.bfloat16), R(64, 8, dtype=torch.bfloat16, grad=True), R(8, dtype=torch.bfloat16, grad=True)
    out = []
    for _ in range(steps):
        w.grad = b.grad = None
        d.start()
        y = torch.softmax(torch.matmul(x, w) + b, -1) * 1
        y.add_(0.5).mul_(2)
        loss = y.pow(2).sum()
        loss.backward()
        d.stop()
        d.step()
        out.append([t.double().tolist() for t in (y, loss, w.grad, b.grad)] + [str(y.dtype), str(w.grad.dtype)])
    return out


def raised_by_hand():
    """What fix is to do, written out: each call in float32, its result in bfloat16, gradients through that."""
    x, w, b = R(16, 64, dtype=torch.bfloat16), R(64, 8, dtype=torch.bfloat16, grad=True), R(8, dtype=torch.bfloat16, grad=True)

    def low(t):
        return t.to(torch.bfloat16)

    y = low(torch.softmax(low(low(x.float() @ w.float()).float() + b.float()).float(), -1))
    y = low(y.float() * 1)
    z = low((low((y.float() + 0.5)).float() * 2))
    loss = low(low(z.float().pow(2)).float().sum())
    loss.backward()
    return [t.double() for t in (z, loss, w.grad, b.grad)]


@pytest.mark.parametrize("mode", ("improve_precision", "to_cpu"))
def test_fix_gives_the_program_the_result_of_higher_precision_and_its_gradients(tmp_path, mode):
    result = checked(tmp_path, low_precision_training, mode, handler_type="fix")
    got, plain = result.value[0], bare(tmp_path, low_precision_training)[0]
    assert got[4:] == plain[4:] == ["torch.bfloat16", "torch.bfloat16"]
    expected = raised_by_hand()
    assert torch.equal(torch.tensor(got[0], dtype=torch.float64), expected[0]) and torch.tensor(got[1], dtype=torch.float64) == expected[1]
    for ours, theirs in zip(got[2:4], expected[2:]):
        assert torch.allclose(torch.tensor(ours, dtype=torch.float64), theirs, rtol=0.02, atol=0.02 * float(theirs.abs().max()))
    assert "results replaced" in result.output and rows(result) == []


def test_fix_leaves_float32_as_it_is_without_a_word_per_call(tmp_path):
    def body(d):
        x = R(4, 4, grad=True)
        return one_step(d, lambda: torch.softmax(x.exp(), 0).sum().item())

    result = checked(tmp_path, body, "improve_precision", handler_type="fix")
    assert result.value == bare(tmp_path, body) and result.output.count("WARNING") == 0


def test_fix_hands_on_views_and_in_place_results_themselves(tmp_path):
    def body(d):
        x = R(4, 4, dtype=torch.float16)

        def calls():
            view = x.transpose(0, 1)
            same = x.add_(1)
            return view.data_ptr() == x.data_ptr(), same is x

        return one_step(d, calls)

    assert checked(tmp_path, body, "improve_precision", handler_type="fix").value == (True, True)


def test_without_the_tool_nothing_of_this_module_is_needed():
    NoTool().start()


def test_fix_leaves_autocast_out_of_the_second_run(tmp_path):
    def body(d):
        x, w = R(8, 64), R(16, 64, seed=2, grad=True)

        def calls():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return F.linear(x, w)

        y = one_step(d, calls)
        y.float().sum().backward()
        return y.dtype == torch.bfloat16 and torch.equal(y, F.linear(x, w).bfloat16()), torch.allclose(w.grad, x.sum(0).expand(16, 64), rtol=1e-5)

    assert checked(tmp_path, body, "improve_precision", handler_type="fix").value == (True, True)


def test_the_other_spelling_of_the_perturbation_is_taken_and_two_different_ones_are_not(tmp_path):
    result = collect(tmp_path, lambda d: unstable(d), task="free_benchmark", part={"pert_type": "bit_noise"})
    assert "Torch.sin.0.forward" in found(result)
    result = collect(tmp_path, lambda d: None, task="free_benchmark", part={"pert_type": "bit_noise", "pert_mode": "add_noise"}, status=1)
    assert 'pert_mode is "add_noise" and pert_type is "bit_noise"' in result.output and "two names of one key" in result.output
