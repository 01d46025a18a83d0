"""torch_npu by a stand-in: prefix NPU, level L2 with the device's own dump, seeds. Never run on real hardware. And level L2 elsewhere."""
import json
import os

import pytest
import torch
import torch.nn.functional as F

import npu
from collecting import R, Result, collect, in_process, step, write_config


def npu_rotary_mul(x, cos, sin):
    """In the place of torch_npu's."""
    return x * cos + x.flip(-1) * sin


def with_npu(folder, body, functions=None, status=0, **config):
    """body(debugger) where torch_npu is loaded. The result's value: (what body returned, what was called of torch_npu)"""
    def run():
        module = npu.stand_in(**(functions or {}))
        from msprobe.pytorch import PrecisionDebugger

        return body(PrecisionDebugger(path), module), module.calls

    path = write_config(folder, **config)
    got, output, value = in_process(folder, run)
    assert got == status, output
    return Result(got, output, str(folder / "dump"), value)


# ---- prefix NPU --------------------------------------------------------------------------------------------------------------------------


def test_functions_of_torch_npu_are_recorded_with_gradients(tmp_path):
    def body(d, torch_npu):
        x = R(2, 4, grad=True)
        step(d, lambda: torch_npu.npu_rotary_mul(x, R(2, 4, seed=1), R(2, 4, seed=2)).sum().backward())

    r = with_npu(tmp_path, body, functions={"npu_rotary_mul": npu_rotary_mul})
    assert "NPU.npu_rotary_mul.0.forward" in r.names() and "NPU.npu_rotary_mul.0.backward" in r.names()
    assert not any(name.startswith("Tensor.flip") for name in r.names())  # what it calls itself is part of it
    assert r.stacks()["NPU.npu_rotary_mul.0.forward"][0].startswith("File " + __file__)


@pytest.mark.skipif(not hasattr(torch.library, "Library"), reason="this torch cannot define operators")
def test_operators_of_torch_ops_npu_are_recorded_and_stay_the_same_objects(tmp_path):
    def body(d, torch_npu):
        packet = torch.ops.npu.npu_swiglu
        step(d, lambda: torch.ops.npu.npu_swiglu(R(2, 4)))
        return packet is torch.ops.npu.npu_swiglu and type(packet) is torch._ops.OpOverloadPacket

    library = torch.library.Library("npu", "DEF")
    library.define("npu_swiglu(Tensor x) -> Tensor")
    library.impl("npu_swiglu", lambda x: F.silu(x[..., :2]) * x[..., 2:], "CPU")
    r = with_npu(tmp_path, body)
    assert r.value[0] is True
    assert r.names() == ["NPU.npu_swiglu.0.forward"]
    assert r.data()["NPU.npu_swiglu.0.forward"]["output"][0]["shape"] == [2, 2]


# ---- level L2 on an NPU ------------------------------------------------------------------------------------------------------------------

AROUND = [("synchronize",), ("init_dump",), ("set_dump", "acl.json"), ("synchronize",), "the call", ("synchronize",), ("finalize_dump",), ("synchronize",)]


def second_relu(d, module, grad=False):
    x = R(3, grad=grad)
    d.start()
    F.relu(x)
    result = F.relu(x)
    module.calls.append("the call")
    F.relu(x)
    d.stop()
    d.step()
    return result


def without_the_mark(calls):
    return [c for c in calls if c != "the call"]


def test_the_devices_own_dump_is_on_around_the_chosen_call(tmp_path):
    def body(d, module):
        return second_relu(d, module).tolist()

    r = with_npu(tmp_path, body, task="tensor", level="L2", acl_config="acl.json", part={"list": ["Functional.relu.1.forward"]})
    result, calls = r.value
    assert result == F.relu(R(3)).tolist()
    assert without_the_mark(calls) == without_the_mark(AROUND)
    assert calls.index("the call") == len(calls) - 1  # nothing around the third one
    assert "The kernel data of Functional.relu.1.forward is dumped successfully." in r.output


def test_the_call_runs_between_set_dump_and_finalize_dump(tmp_path):
    def body(d, module):
        step(d, lambda: module.npu_rotary_mul(R(2)))

    def rotary(x):
        import sys

        sys.modules["torch_npu"].calls.append("the call")
        return x

    r = with_npu(tmp_path, body, functions={"npu_rotary_mul": rotary}, task="tensor", level="L2", acl_config="acl.json",
                 part={"scope": ["NPU.npu_rotary_mul.0.forward"]})
    assert r.value[1] == AROUND


def test_without_acl_config_one_is_made_in_the_steps_folder(tmp_path):
    r = with_npu(tmp_path, lambda d, module: second_relu(d, module).tolist(), task="tensor", level="L2", part={"list": ["Functional.relu.1.forward"]})
    path = os.path.join(r.folder, "step0", "kernel_config.json")
    assert ("set_dump", path) in r.value[1]
    with open(path) as f:
        assert json.load(f) == {"dump": {"dump_list": [], "dump_path": os.path.join(r.folder, "step0"), "dump_mode": "all", "dump_op_switch": "on"}}


def test_the_rank_is_part_of_the_configurations_name(tmp_path):
    def body(d, module):
        torch.distributed.init_process_group("gloo", init_method="file://%s" % (tmp_path / "store"), rank=0, world_size=1)
        second_relu(d, module)
        torch.distributed.destroy_process_group()

    r = with_npu(tmp_path, body, task="tensor", level="L2", part={"list": ["Functional.relu.1.forward"]})
    assert ("set_dump", os.path.join(r.folder, "step0", "kernel_config_0.json")) in r.value[1]


def test_a_rank_that_is_not_selected_dumps_nothing(tmp_path):
    def body(d, module):
        torch.distributed.init_process_group("gloo", init_method="file://%s" % (tmp_path / "store"), rank=0, world_size=1)
        second_relu(d, module)
        torch.distributed.destroy_process_group()

    r = with_npu(tmp_path, body, task="tensor", level="L2", acl_config="acl.json", rank=[1], part={"list": ["Functional.relu.1.forward"]})
    assert without_the_mark(r.value[1]) == []


def test_backward_is_dumped_when_it_runs(tmp_path):
    def body(d, module):
        x = R(3, grad=True)
        d.start()
        y = F.relu(x)
        forward = list(module.calls)
        y.sum().backward()
        d.stop()
        return forward, x.grad.tolist()

    r = with_npu(tmp_path, body, task="tensor", level="L2", acl_config="acl.json", part={"list": ["Functional.relu.0.backward"]})
    (forward, grad), calls = r.value
    assert forward == [] and calls == without_the_mark(AROUND)
    assert grad == (R(3) > 0).float().tolist()


def test_backward_from_a_gradient_in_a_file(tmp_path):
    torch.save(torch.full((3,), 2.0), str(tmp_path / "grad.pt"))

    def body(d, module):
        x = R(3, grad=True)
        d.start()
        y = F.relu(x)
        calls = list(module.calls)
        y.sum().backward()
        d.stop()
        return calls, x.grad.tolist()

    r = with_npu(tmp_path, body, task="tensor", level="L2", acl_config="acl.json",
                 part={"scope": ["Functional.relu.0.backward"], "backward_input": [str(tmp_path / "grad.pt")]})
    (calls, grad), _ = r.value
    assert calls == without_the_mark(AROUND)
    assert grad == (R(3) > 0).float().tolist()  # the program's own graph is untouched


def test_an_api_that_was_not_called_is_told(tmp_path):
    r = with_npu(tmp_path, lambda d, module: step(d, lambda: print(torch.sin(R(2)).shape)), task="tensor", level="L2", acl_config="acl.json",
                 part={"list": ["Functional.relu.7.forward"]})
    assert r.value[1] == []
    assert "nothing was recorded: Functional.relu.7.forward was not called" in r.output


# ---- level L2 elsewhere ---------------------------------------------------------------------------------------------------------------------

dispatched = pytest.mark.skipif(not hasattr(torch._C, "_len_torch_dispatch_stack"), reason="this torch has no dispatch modes to record kernels with")


@dispatched
def test_the_aten_kernels_of_the_chosen_call_are_recorded(tmp_path):
    x = R(2, 3)

    def body(d):
        d.start()
        F.softmax(x, -1)
        result = F.cross_entropy(x, torch.tensor([0, 2]))
        F.cross_entropy(x * 2, torch.tensor([0, 2]))
        d.stop()
        d.step()
        return result.item()

    r = collect(tmp_path, body, task="tensor", level="L2", part={"list": ["Functional.cross_entropy.0.forward"]})
    assert r.names() == ["Aten._log_softmax.0.forward", "Aten.nll_loss_forward.0.forward"]
    assert torch.equal(r.tensor("Aten._log_softmax.0.forward.output.0.pt"), F.log_softmax(x, -1))
    assert torch.equal(r.tensor("Aten._log_softmax.0.forward.input.0.pt"), x)
    assert r.value == F.cross_entropy(x, torch.tensor([0, 2])).item()


@dispatched
def test_the_aten_kernels_of_a_backward(tmp_path):
    def body(d):
        x = R(2, 3, grad=True)
        d.start()
        F.softmax(torch.sin(x), -1)[0, 0].backward()
        d.stop()
        return x.grad.tolist()

    r = collect(tmp_path, body, task="tensor", level="L2", part={"list": ["Functional.softmax.0.backward"]})
    assert [n for n in r.names() if "softmax" in n] == ["Aten._softmax_backward_data.0.forward"]
    assert not any("cos" in n for n in r.names())  # the derivative of sin is another call's
    x = R(2, 3, grad=True)
    F.softmax(torch.sin(x), -1)[0, 0].backward()
    assert r.value == x.grad.tolist()


@dispatched
def test_the_programs_own_mode_still_sees_the_kernels(tmp_path):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Mine(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def body(d):
        d.start()
        with Mine():
            F.softmax(R(2, 3), -1)
        d.stop()
        return seen

    r = collect(tmp_path, body, task="tensor", level="L2", part={"list": ["Functional.softmax.0.forward"]})
    assert [name for name in r.value if "softmax" in name] == ["aten._softmax.default"]
    assert r.names() == ["Aten._softmax.0.forward"]


# ---- seeds -----------------------------------------------------------------------------------------------------------------------------------


def test_seed_all_seeds_the_npu(tmp_path, monkeypatch):
    def body(d, module):
        from msprobe.pytorch import seed_all

        torch.npu = module.npu
        seed_all(7, mode=False)
        return os.environ["HCCL_DETERMINISTIC"], os.environ["PYTHONHASHSEED"], torch.initial_seed()

    r = with_npu(tmp_path, body)
    assert r.value == (("False", "7", 7), [("manual_seed_all", 7), ("manual_seed", 7)])
