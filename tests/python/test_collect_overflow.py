"""Task overflow_check: which call made inf or NaN, what it was given, and where it was called."""
import sys
import types

import pytest
import torch
import torch.nn.functional as F

from collecting import collect, step

MOST = 60000.0
MOST32 = 3e38


def overflow(folder, body, nums=None, level="L1", status=0, **common):
    part = {} if nums is None else {"overflow_nums": nums}
    return collect(folder, body, task="overflow_check", level=level, part=part, status=status, **common)


def halves():
    """Three calls, of which the second makes inf, and one that gets it."""
    x = torch.full((4,), MOST, dtype=torch.float16)
    y = torch.add(x, 1)
    z = torch.mul(y, 2)
    return torch.neg(z)


def test_the_call_that_made_inf_is_recorded_with_inputs_and_outputs(tmp_path):
    r = overflow(tmp_path, lambda d: step(d, lambda: torch.mul(torch.full((4,), MOST, dtype=torch.float16), 2)), -1)
    assert r.names() == ["Torch.mul.0.forward"]
    record = r.data()["Torch.mul.0.forward"]
    assert list(record) == ["input_args", "input_kwargs", "output", "is_recompute"]
    assert record["input_args"][0]["data_name"] == "Torch.mul.0.forward.input.0.pt"
    assert record["output"][0]["Max"] == float("inf")
    assert r.tensors() == ["Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt"]
    assert torch.equal(r.tensor("Torch.mul.0.forward.input.0.pt"), torch.full((4,), MOST, dtype=torch.float16))
    assert r.tensor("Torch.mul.0.forward.output.0.pt").isinf().all()


def test_the_first_call_is_named_with_the_line_that_made_it(tmp_path):
    r = overflow(tmp_path, lambda d: step(d, halves), -1)
    first = next(line for line in r.output.splitlines() if "[overflow 1]" in line)
    assert "Torch.mul.0.forward" in first
    assert "test_collect_overflow.py:" in first and "in halves: z = torch.mul(y, 2)" in first
    assert "2 overflow(s); the first one in Torch.mul.0.forward, called at" in r.output
    assert "Torch.add.0.forward" in r.stacks()  # calls that did nothing wrong have a stack, and no data
    assert r.names() == ["Torch.mul.0.forward", "Torch.neg.0.forward"]


def test_training_stops_when_overflow_nums_is_reached_and_everything_is_on_disk(tmp_path):
    def body(d):
        d.start()
        halves()
        print("not reached")

    r = overflow(tmp_path, body, status=1)  # 1 is the default
    assert "not reached" not in r.output and "MsprobeException" in r.output
    assert r.names() == ["Torch.mul.0.forward"]
    assert len(r.tensors()) == 2


class HalfUsed(torch.nn.Module):
    """Of its two parameters one gets no gradient: what the other got is known to be all when the step is over."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return x * self.used


@pytest.mark.parametrize("nums", [1, 2, -1])
def test_a_gradient_that_is_written_at_the_end_of_the_step_counts(tmp_path, nums):
    def body(d):
        model = HalfUsed()
        for p in model.parameters():
            p.register_hook(lambda grad: torch.full_like(grad, float("inf")))  # behind every API and module: nobody else sees it
        d.start(model)
        model(torch.ones(2)).sum().backward()
        d.stop()
        try:
            d.step()
        except Exception as e:
            return type(e).__name__, str(e)
        return None

    r = overflow(tmp_path, body, nums, level="L0")
    assert r.names() == ["Module.HalfUsed.HalfUsed.parameters_grad"]
    assert (r.value is not None) == (nums == 1)
    if nums == 1:
        assert r.value[0] == "MsprobeException" and "1 overflow(s)" in r.value[1]
    assert "[overflow 1]" in r.output and "[overflow 2]" not in r.output


def test_the_program_may_go_on_after_the_limit_and_nothing_more_is_recorded(tmp_path):
    def body(d):
        from msprobe.core.common.exceptions import MsprobeException

        d.start()
        with pytest.raises(MsprobeException):
            halves()
        result = halves()
        d.stop()
        d.step()
        d.start()
        halves()
        d.stop()
        return result.isinf().all().item()

    r = overflow(tmp_path, body, 1)
    assert r.value is True
    assert r.names() == ["Torch.mul.0.forward"]


def test_several_overflows_are_counted(tmp_path):
    def body(d):
        d.start()
        for _ in range(5):
            torch.mul(torch.full((2,), MOST, dtype=torch.float16), 2)

    r = overflow(tmp_path, body, 3, status=1)
    assert r.names() == ["Torch.mul.%d.forward" % i for i in range(3)]


def test_minus_one_goes_on_to_the_end(tmp_path):
    def body(d):
        for _ in range(3):
            step(d, halves)

    r = overflow(tmp_path, body, -1)
    assert all(r.names(step=s) == ["Torch.mul.0.forward", "Torch.neg.0.forward"] for s in range(3))
    assert "[overflow 6]" in r.output


@pytest.mark.parametrize("call", [
    lambda x: x.mul_(2),
    lambda x: x.__imul__(2),
    lambda x: torch.mul(x, 2, out=x),
    lambda x: F.threshold(x, MOST32 * 1.01, float("inf"), True),
], ids=["mul_", "imul", "out", "inplace argument"])
def test_inputs_that_the_call_wrote_over_are_shown_as_they_were_before(tmp_path, call):
    r = overflow(tmp_path, lambda d: step(d, lambda: call(torch.full((3, 4), MOST32)[:, ::2])), -1)
    name, = r.names()
    assert r.data()[name]["input_args"][0]["Max"] == pytest.approx(MOST32)
    assert torch.equal(r.tensor(name + ".input.0.pt"), torch.full((3, 2), MOST32))
    assert r.tensor(name + ".output.0.pt").isinf().all()


def test_a_module_that_writes_over_its_input(tmp_path):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x.mul_(2)

    def body(d):
        model = torch.nn.Sequential(Doubled())
        step(d, lambda: model(torch.full((2, 2), MOST, dtype=torch.float16)), model)

    r = overflow(tmp_path, body, -1, level="L0")
    assert r.names() == ["Module.0.Doubled.forward.0"]
    assert torch.equal(r.tensor("Module.0.Doubled.forward.0.input.0.pt"), torch.full((2, 2), MOST, dtype=torch.float16))
    assert "in <lambda>: step(d, lambda: model(torch.full(" in r.output


def test_gradients_that_a_call_produced(tmp_path):
    def training():
        x = torch.zeros(3, requires_grad=True)
        y = torch.sqrt(x)  # its derivative at 0 is inf
        z = torch.mul(y, 1)
        z.sum().backward()

    r = overflow(tmp_path, lambda d: step(d, training), -1)
    assert r.names() == ["Torch.sqrt.0.backward"]
    assert r.data()["Torch.sqrt.0.backward"]["output"][0]["Max"] == float("inf")
    assert r.tensors() == ["Torch.sqrt.0.backward.input.0.pt", "Torch.sqrt.0.backward.output.0.pt"]
    first = next(line for line in r.output.splitlines() if "[overflow 1]" in line)
    assert "in training: y = torch.sqrt(x)" in first


def test_nothing_overflows(tmp_path):
    r = overflow(tmp_path, lambda d: step(d, lambda: torch.add(torch.ones(2), 1)))
    assert r.names() == [] and r.tensors() == []
    assert "no overflow in step 0 to 0" in r.output


@pytest.mark.parametrize("task", ["overflow_check", "structure"])
@pytest.mark.parametrize("config, why", [({}, "start() was never called"), ({"rank": [0]}, "this process has no rank"), ({"step": [7]}, "step selects [7]")])
def test_what_was_not_looked_at_is_not_said_to_be_without_overflow(tmp_path, task, config, why):
    model = torch.nn.Sequential(torch.nn.ReLU())
    r = collect(tmp_path, lambda d: step(d, lambda: model(torch.ones(2)), model) if config else None, task=task, level="mix", **config)
    assert "no overflow" not in r.output
    last = r.output.splitlines()[-1]
    assert "[ERROR] nothing was recorded: " in last and why in last, r.output


def test_the_steps_without_overflow_are_those_that_were_looked_at(tmp_path):
    r = collect(tmp_path, lambda d: [step(d, lambda: torch.add(torch.ones(2), 1)) for _ in range(6)], task="overflow_check", step=[2, 3])
    assert "no overflow in step 2 to 3" in r.output


def test_inputs_too_large_to_be_held_go_to_their_file_and_the_file_goes_when_it_is_not_wanted(tmp_path):
    def body(d):
        folder = tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data"
        mine = types.SimpleNamespace(files=lambda x, y: sorted(f.name for f in folder.iterdir()))
        d.register_custom_api(mine, "files", "Mine")
        d.start()
        during = mine.files(torch.zeros(600 << 20, dtype=torch.uint8), torch.zeros(4))
        d.stop()
        return during

    r = overflow(tmp_path, body, -1)
    assert r.value == ["Mine.files.0.forward.input.0.pt"]  # the small one is held in memory
    assert r.tensors() == []


def stand_in_with_overflow_flag():
    """torch_npu on a device that saturates: the flag is raised by whoever makes 65504."""
    utils = types.SimpleNamespace(raised=True, cleared=0)

    def clear():
        utils.raised = False
        utils.cleared += 1

    utils.get_npu_overflow_flag = lambda: utils.raised
    utils.clear_npu_overflow_flag = clear
    utils.is_support_inf_nan = lambda: False
    module = types.ModuleType("torch_npu")
    module.npu = types.SimpleNamespace(utils=utils)
    return module


def test_a_device_that_saturates_is_asked_for_its_flag(tmp_path):
    npu = stand_in_with_overflow_flag()
    sys.modules["torch_npu"] = npu
    try:
        def saturate(x):
            npu.npu.utils.raised = True
            return x.clamp(max=65504.0)

        def body(d):
            module = types.SimpleNamespace(saturate=saturate, __name__="mine")
            d.register_custom_api(module, "saturate", "Mine")
            d.start()
            torch.add(torch.ones(2), 1)  # a flag that was raised before is none of this call's
            module.saturate(torch.ones(2))
            torch.neg(torch.ones(2))
            d.stop()
            d.step()

        r = overflow(tmp_path, body, -1)
    finally:
        del sys.modules["torch_npu"]
    assert r.names() == ["Mine.saturate.0.forward"]
    assert r.tensors() == ["Mine.saturate.0.forward.input.0.pt", "Mine.saturate.0.forward.output.0.pt"]
