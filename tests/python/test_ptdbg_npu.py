"""ptdbg_ascend on a device, with a stand-in for torch_npu that notes what is asked of it: overflow detection and ACL dumps."""
import json
import math
import os
import sys
import types

import numpy
import pytest
from collecting import R, torch
from test_ptdbg import dump, lines, names, rank_dir, record

F = torch.nn.functional

NPU_OPERATORS = """one_ npu_sort_v2 npu_transpose npu_broadcast npu_dtype_cast empty_with_format npu_one_hot npu_stride_add npu_ps_roi_pooling npu_roi_align
    npu_nms_v4 npu_iou npu_nms_with_mask npu_pad npu_bounding_box_encode npu_bounding_box_decode npu_batch_nms npu_slice _npu_dropout npu_indexing npu_ifmr
    npu_max npu_scatter npu_layer_norm_eval npu_alloc_float_status npu_get_float_status npu_clear_float_status npu_confusion_transpose npu_bmmV2 fast_gelu
    npu_sub_sample npu_deformable_conv2d npu_mish npu_anchor_response_flags npu_yolo_boxes_encode npu_grid_assign_positive npu_normalize_batch
    npu_masked_fill_range npu_linear npu_bert_apply_adam npu_giou npu_ciou npu_ciou_backward npu_diou npu_diou_backward npu_sign_bits_pack
    npu_sign_bits_unpack""".split()


def stand_in(inf_nan=True):
    """A torch_npu whose calls are noted in .calls; with inf_nan False it has a flag instead, .raised."""
    module = types.ModuleType("torch_npu")
    module.calls, module.raised = [], False

    def noted(name, result=None):
        def call(*args):
            module.calls.append((name, *args))
            return result() if result else None

        return call

    module._C = types.SimpleNamespace(_enable_overflow_npu=noted("enable"), _check_overflow_npu=lambda: module.raised, _clear_overflow_npu=noted("clear"))
    utils = types.SimpleNamespace(is_support_inf_nan=lambda: inf_nan)
    module.npu = types.SimpleNamespace(utils=utils, init_dump=noted("init_dump"), set_dump=noted("set_dump"), synchronize=noted("synchronize"),
                                       finalize_dump=noted("finalize_dump"))
    for name in NPU_OPERATORS:
        setattr(module, name, lambda x, *args: x * 2)
    sys.modules["torch_npu"] = module
    return module


def overflow_files(folder, tag="tag"):
    return sorted(p.name for p in rank_dir(folder, tag).glob("Overflow_info_*.pkl"))


# ---- overflow -------------------------------------------------------------------------------------------------------------------------------


def test_the_documented_error_ends_training_when_the_limit_is_reached(tmp_path):
    def body(tool):
        npu = stand_in()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.overflow_check, overflow_nums=3)
        x = R(2, 2)
        torch.exp(x * 1e5)
        torch.relu(x)
        torch.log(torch.zeros(2))
        with pytest.raises(ValueError) as error:
            torch.sqrt(-torch.ones(2))
        torch.log(torch.zeros(2))
        return str(error.value), npu.calls

    (text, calls), output = record(tmp_path, body)
    files = overflow_files(tmp_path)
    assert len(files) == 3 and [f.rpartition("_")[2] for f in files] == ["1.pkl", "2.pkl", "3.pkl"]
    folder = rank_dir(tmp_path)
    assert text == "[overflow 3 times]: dump file is saved in '%s'." % (folder / files[2])
    assert "[WARNING][overflow 1 times]: module name :'Torch_exp_0_forward' is overflow and dump file is saved in '%s'." % (folder / files[0]) in output
    assert "[INFO]Enable overflow function success." in output
    assert calls == [("enable",), ("clear",)] + [("clear",)] * 3
    first = lines(folder / files[0])
    assert first[0][0] == "Torch_exp_0_forward_stack_info" and first[0][1][0][3] == "torch.exp(x * 1e5)"
    assert first[1:] == [["Torch_exp_0_forward_input.0", 101, [], "torch.float32", [2, 2]], ["Torch_exp_0_forward_output", 101, [], "torch.float32", [2, 2]]]
    assert (numpy.load(folder / files[0][:-4] / "Torch_exp_0_forward_input.0.npy") == (R(2, 2) * 1e5).numpy()).all()


def test_an_overflow_in_backward_shows_its_outputs_first(tmp_path):
    def body(tool):
        stand_in()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.overflow_check)
        x = torch.zeros(3, requires_grad=True)
        with pytest.raises(ValueError, match=r"^\[overflow 1 times\]: dump file is saved in '.*_1.pkl'.$"):
            torch.sqrt(x).sum().backward()

    record(tmp_path, body)
    (file,) = overflow_files(tmp_path)
    assert names(rank_dir(tmp_path) / file) == ["Torch_sqrt_0_backward_stack_info", "Torch_sqrt_0_backward_output.0", "Torch_sqrt_0_backward_input.0"]


def test_a_device_that_saturates_is_asked_for_its_flag(tmp_path):
    def body(tool):
        npu = stand_in(inf_nan=False)
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.overflow_check)
        torch.log(torch.zeros(2))  # inf, but the flag is not up
        npu.raised = True
        with pytest.raises(ValueError):
            torch.relu(R(2))

    record(tmp_path, body)
    (file,) = overflow_files(tmp_path)
    assert names(rank_dir(tmp_path) / file)[0] == "Torch_relu_0_forward_stack_info"


def test_the_switch_says_where_overflows_are_looked_for_and_what_is_written(tmp_path):
    def body(tool):
        stand_in()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.overflow_check)
        tool.set_overflow_check_switch("OFF")
        torch.log(torch.zeros(2))
        tool.set_overflow_check_switch("ON", filter_switch="OFF")
        with pytest.raises(ValueError):
            torch.div(torch.ones(2), 0)

    record(tmp_path, body)
    (file,) = overflow_files(tmp_path)
    found = lines(rank_dir(tmp_path) / file)
    assert found[2] == ["Torch_div_0_forward_input.1", 101, [], "<class 'int'>", "[]", [0, 0, 0]]


def test_without_a_device_overflow_detection_says_that_it_does_nothing(tmp_path):
    def body(tool, _):
        torch.log(torch.zeros(2))
        torch.log(torch.zeros(2))

    _, output = dump(tmp_path, body, hook="overflow_check")
    assert output.count("Overflow detection is not supported in the GPU environment.") == 1 and not (tmp_path / "out").exists()


# ---- ACL ------------------------------------------------------------------------------------------------------------------------------------

DUMP = [("synchronize",), ("init_dump",), ("set_dump", "dump.json"), ("synchronize",), ("synchronize",), ("finalize_dump",), ("synchronize",)]


def config():
    with open("dump.json", "w") as f:
        json.dump({"dump": {"dump_list": [], "dump_path": "./dump/output", "dump_mode": "all", "dump_op_switch": "on"}}, f)


def test_mode_acl_switches_the_devices_dump_on_around_the_chosen_forward(tmp_path):
    def body(tool):
        npu = stand_in()
        config()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump, dump_mode="acl", dump_config="dump.json")
        tool.set_dump_switch("ON", mode="acl", scope=["Torch_relu_1_forward"], filter_switch="OFF")
        torch.relu(R(2))
        assert npu.calls == []
        torch.relu(R(2))
        torch.relu(R(2))
        tool.set_dump_switch("ON", mode="stack")
        torch.relu(R(2))
        tool.set_dump_switch("OFF")
        return npu.calls

    calls, output = record(tmp_path, body)
    assert calls == DUMP and "Dump Torch_relu_1_forward op file." in output
    assert names(rank_dir(tmp_path) / "dump.pkl") == ["Torch_relu_1_forward_stack_info", "Torch_relu_3_forward_stack_info"]


def test_mode_acl_repeats_a_backward_with_the_given_gradient(tmp_path):
    def body(tool):
        npu = stand_in()
        config()
        numpy.save("grad.npy", numpy.full((1, 2, 3, 3), 2.0, numpy.float32))
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump, dump_mode="acl", dump_config="dump.json")
        tool.set_dump_switch("ON", mode="acl", scope=["Functional_conv2d_1_backward"])
        tool.set_backward_input(["grad.npy"])
        x, w = R(1, 1, 5, 5, grad=True), R(2, 1, 3, 3, grad=True)
        F.conv2d(x, w)
        state = torch.get_rng_state()
        y = F.conv2d(x, w)
        assert torch.equal(state, torch.get_rng_state())
        y.sum().backward()
        return npu.calls, x.grad

    (calls, grad), _ = record(tmp_path, body)
    assert calls == DUMP
    x, w = R(1, 1, 5, 5, grad=True), R(2, 1, 3, 3, grad=True)
    F.conv2d(x, w).sum().backward()
    assert torch.equal(grad, x.grad)  # the program's own gradient, and not the repeated one


def test_a_result_that_is_no_tensor_has_no_automatic_backward(tmp_path):
    def body(tool):
        stand_in()
        config()
        numpy.save("grad.npy", numpy.ones(2, numpy.float32))
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump, dump_mode="acl", dump_config="dump.json")
        tool.set_dump_switch("ON", mode="acl", scope=["Torch_max_0_backward"])
        tool.set_backward_input(["grad.npy"])
        torch.max(R(2, 2, grad=True), 1)

    assert "is not of tensor type and cannot be automatically derived" in record(tmp_path, body)[1]


def test_an_overflow_in_forward_is_repeated_under_the_devices_dump(tmp_path):
    def body(tool):
        npu = stand_in()
        config()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.overflow_check, overflow_nums=2, dump_mode="acl", dump_config="dump.json")
        x = torch.zeros(2)
        torch.Tensor.log_(x)
        assert x.tolist() == [-math.inf, -math.inf]
        x = torch.zeros(3, requires_grad=True)
        with pytest.raises(ValueError):
            torch.sqrt(x).sum().backward()
        return npu.calls

    calls, output = record(tmp_path, body)
    assert [c for c in calls if c[0] != "clear"] == [("enable",)] + DUMP
    assert "The overflow is caused by backward operator Torch_sqrt_0_backward." in output


def test_acl_without_its_settings_or_without_a_device_is_said(tmp_path):
    def body(tool, _):
        tool.set_dump_switch("ON", mode="acl", scope=["Torch_relu_0_forward"])
        torch.relu(R(2))

    assert "mode 'acl' needs register_hook" in dump(tmp_path, body)[1]
    config_path = tmp_path / "dump.json"
    config_path.write_text("{}")
    assert "ACL dump is not supported without torch_npu" in dump(tmp_path, body, dump_mode="acl", dump_config=str(config_path))[1]


# ---- operators ------------------------------------------------------------------------------------------------------------------------------


def test_the_operators_of_the_manual_are_recorded(tmp_path):
    def body(tool):
        npu = stand_in()
        tool.set_dump_path("./out/dump.pkl", dump_tag="tag")
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump)
        tool.set_dump_switch("ON")
        for name in NPU_OPERATORS:
            getattr(npu, name)(torch.ones(2), 3)

    record(tmp_path, body)
    found = {n.rpartition("_")[0] for n in names(rank_dir(tmp_path) / "dump.pkl") if n.startswith("NPU_")}
    assert len(NPU_OPERATORS) == 47 and found == {"NPU_%s_0_forward" % n for n in NPU_OPERATORS}
