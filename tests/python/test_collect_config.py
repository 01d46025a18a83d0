"""config.json and the arguments of the calls: what is right is taken, what is wrong is named with what is allowed, before training starts."""
import json
import os
import random

import pytest
from collecting import IN_PLACE, R, collect, fill, in_process, step, torch, write_config

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msprobe.core.common.exceptions import FileCheckException, MsprobeException, ScopeException  # noqa: E402
from msprobe.pytorch import PrecisionDebugger, seed_all  # noqa: E402
from msprobe.core.config import COMMON_KEYS, TASK_KEYS, Config  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """This imports torch's compiler, which takes seconds: here, and not in each of the processes."""
    torch.use_deterministic_algorithms(False)


def read(folder, part=None, task="statistics", **keys):
    config = {"task": task, "dump_path": str(folder / "dump"), **keys}
    if part is not None:
        config[task] = part
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return Config(str(path))


# ---- every key, wrong --------------------------------------------------------------------------------------------------------------

COMMON = [
    ("task", "statistic", "statistics"), ("task", 5, "statistics"), ("dump_path", None, "./dump_path"), ("dump_path", 5, "folder"),
    ("rank", 3, "list"), ("rank", [-1], "between 0 and 1000000"), ("rank", ["3-1"], "left boundary"), ("rank", [1.5], "integer or string"),
    ("rank", [True], "integer or string"), ("step", "0-3", "list"), ("step", [1000001], "between 0 and 1000000"), ("step", ["a-b"], "decimal"),
    ("step", ["1-2-3"], "3-5"), ("step", ["5-1000001"], "1000000"), ("level", "L3", "L0, L1, L2, mix, debug"), ("level", "l1", '"L1"'),
    ("enable_dataloader", "yes", "true or false"), ("enable_dataloader", 1, "true or false"), ("enable_dataloader", "ture", 'did you mean "true"'), ("async_dump", "on", "true or false"),
    ("precision", "hihg", '"high"'), ("seed", -1, "at least 0"), ("seed", 2**32, "at most 4294967295"), ("seed", "7", "whole number"),
    ("seed", True, "whole number"), ("is_deterministic", 1, "true or false"), ("acl_config", 5, "string"), ("rm_dropout", "no", "true or false"),
    ("api_list", "wider", '"wide"'), ("task", 0, "statistics"), ("task", {}, "statistics"), ("level", 0, "L0, L1, L2, mix, debug"),
    ("risk_level", "focus", "CORE, FOCUS, ALL"), ("dump_enable", "off", "true or false"), ("extra_info", 3, "true or false"),
    ("task", "nan_check", "task overflow_check names"), ("task", "acc_check", "acc_check -api_info"), ("load", {"path": "x"}, "take the key out"),
    ("step", ["\u00b2"], "3-5"), ("step", ["9" * 5000], "3-5"),
]
PARTS = [
    ("statistics", "scope", "Torch.relu", "list of strings"), ("statistics", "scope", ["Torch.relu.0.forward"], "2"),
    ("statistics", "list", "relu", "list of strings"), ("statistics", "list", [3], "list of strings"), ("statistics", "data_mode", ["forwards"], '"forward"'),
    ("statistics", "data_mode", ["all", "input"], "alone"), ("statistics", "summary_mode", "md6", '"md5"'), ("statistics", "summary_mode", 0, "statistics, md5"),
    ("statistics", "tensor_list", "relu", "list of strings"),
    ("tensor", "file_format", "txt", "npy, bin"), ("tensor", "backward_input", 5, "list of strings"), ("tensor", "online_run_ut", "maybe", "true or false"),
    ("tensor", "nfs_path", 5, "string"), ("tensor", "host", "999.1.1.1", "IPv4"), ("tensor", "port", 70000, "at most 65535"), ("tensor", "port", "80", "whole number"),
    ("tensor", "tls_path", ["x"], "string"), ("tensor", "summary_mode", "xor", "statistics, md5"),
    ("overflow_check", "overflow_nums", 0, "-1"), ("overflow_check", "overflow_nums", -2, "-1"), ("overflow_check", "overflow_nums", "1", "whole number"),
    ("overflow_check", "overflow_nums", True, "whole number"), ("overflow_check", "check_mode", "aicores", '"aicore"'),
    ("free_benchmark", "fuzz_device", "gpu", "npu, cpu"), ("free_benchmark", "pert_mode", "add_nois", '"add_noise"'),
    ("free_benchmark", "handler_type", "fixed", '"fix"'), ("free_benchmark", "fuzz_stage", "forwards", '"forward"'), ("free_benchmark", "fuzz_level", "L2", "L1"),
    ("free_benchmark", "if_preheat", 1, "true or false"), ("free_benchmark", "preheat_step", 0, "at least 1"), ("free_benchmark", "max_sample", 2.5, "whole number"),
    ("run_ut", "white_list", "conv2d", "list of strings"), ("run_ut", "black_list", [1], "list of strings"), ("run_ut", "error_data_path", 5, "string"),
    ("run_ut", "is_online", 2, "true or false"), ("run_ut", "rank_list", ["x"], "rank_list"), ("run_ut", "port", 0, "at least 1"), ("run_ut", "host", "here", "IPv4"),
    ("grad_probe", "grad_level", "L9", "L0, L1, L2"), ("grad_probe", "param_list", "w", "list of strings"), ("grad_probe", "bounds", [1, 1], "ascending"),
]


def names_key_value_and_choice(text, key, value, words):
    assert key in text, text
    shown = value[-1] if isinstance(value, list) else value
    assert value is None or str(shown) in text, text
    assert words in text, text


@pytest.mark.parametrize("key, value, words", COMMON)
def test_a_wrong_common_key_is_named_with_what_is_allowed(tmp_path, key, value, words):
    with pytest.raises(MsprobeException) as e:
        read(tmp_path, **{key: value})
    names_key_value_and_choice(str(e.value), key, value, words)


def test_a_dump_path_that_is_a_file_or_no_path_is_told_before_training(tmp_path):
    (tmp_path / "taken").write_text("")
    for path in (str(tmp_path / "taken"), str(tmp_path / "taken" / "below"), "a\0b", "/dev/null/dump", "n" * 300):
        config = write_config(tmp_path, dump=path)
        status, output, _ = in_process(tmp_path, lambda: PrecisionDebugger(config))
        assert status == 1 and "dump_path is %r" % path in output and "folder" in output


def test_a_rank_that_is_not_selected_needs_no_dump_path(tmp_path):
    config = write_config(tmp_path, dump="/dev/null/dump", rank=[0])

    def body():
        d = PrecisionDebugger(config)
        step(d, lambda: torch.relu(torch.ones(2)))
        return "trained"

    status, output, value = in_process(tmp_path, body, env={"RANK": "1", "WORLD_SIZE": "2"})
    assert (status, value) == (0, "trained"), output


def test_a_list_of_models_may_be_filled_after_the_constructor(tmp_path):
    config = write_config(tmp_path, level="L0")

    def body():
        models = []
        d = PrecisionDebugger(config, model=models)
        models.append(nn.Linear(2, 2))
        step(d, lambda: models[0](torch.ones(2)), models)
        return "trained"

    status, output, value = in_process(tmp_path, body)
    assert (status, value) == (0, "trained"), output


def test_a_dump_path_that_is_lost_after_the_first_step_does_not_end_training(tmp_path):
    def body(d):
        step(d, lambda: None)
        (tmp_path / "dump").write_text("in the way")
        step(d, lambda: torch.relu(torch.ones(2)))
        return "trained"

    done = collect(tmp_path, body, step=[1])
    assert done.value == "trained" and "[ERROR]" in done.output


def kernels_of_relu(folder, path):
    def body(d):
        x = torch.ones(2, requires_grad=True)
        try:
            step(d, lambda: torch.relu(x).sum().backward())
        except MsprobeException as e:
            return str(e)
        return x.grad.tolist()

    return collect(folder, body, task="tensor", level="L2", part={"scope": ["Torch.relu.0.backward"], "backward_input": str(path)})


def test_gradients_for_kernels_that_are_not_there_are_told_by_start(tmp_path):
    told = kernels_of_relu(tmp_path, tmp_path / "nowhere.pt").value
    assert 'backward_input is "' in told and "earlier dump" in told


def test_gradients_for_kernels_that_do_not_fit_do_not_end_training(tmp_path):
    torch.save(torch.ones(5), tmp_path / "other.pt")
    done = kernels_of_relu(tmp_path, tmp_path / "other.pt")
    assert done.value == [1.0, 1.0] and "[ERROR] The kernel dump of Torch.relu.0.backward" in done.output


def test_a_config_nested_without_end_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[" * 200000)
    with pytest.raises(MsprobeException, match="cannot be read as JSON"):
        Config(str(tmp_path / "config.json"))


@pytest.mark.parametrize("task, key, value, words", PARTS)
def test_a_wrong_key_of_a_task_is_named_with_what_is_allowed(tmp_path, task, key, value, words):
    with pytest.raises((MsprobeException, ScopeException)) as e:
        read(tmp_path, {key: value}, task)
    names_key_value_and_choice(str(e.value), key, value, words)


@pytest.mark.parametrize("keys, words", [
    (dict(async_dump=True, part={"summary_mode": "md5"}), ["async_dump", "md5"]),
    (dict(async_dump=True, task="tensor"), ["async_dump", "list"]),
    (dict(task="free_benchmark", level="L0"), ["level", "L0", "L1"]),
    (dict(task="free_benchmark", part={"fuzz_device": "cpu"}), ["fuzz_device", "cpu", "to_cpu"]),
    (dict(task="free_benchmark", part={"fuzz_stage": "backward"}), ["fuzz_stage", "backward", "list"]),
    (dict(task="free_benchmark", part={"handler_type": "fix", "pert_mode": "add_noise"}), ["handler_type", "fix", "improve_precision"]),
    (dict(task="free_benchmark", part={"scope": ["Torch.mul.0"], "list": ["mul"]}), ["scope", "list"]),
    (dict(level="L2"), ["L2", "tensor"]),
    (dict(level="L2", task="tensor", part={"list": ["a", "b"]}), ["L2", "one API"]),
    (dict(level="L2", task="tensor", part={"list": ["conv2d"]}), ["conv2d", "Functional.conv2d.1.forward"]),
    (dict(level="L0", part={"scope": ["Torch.mul.0.forward", "Torch.mul.1.forward"]}), ["scope", "Torch.mul.0.forward", "Module."]),
    (dict(level="L1", part={"scope": ["Module.a.Linear.forward.0", "Module.b.Linear.forward.0"]}), ["scope", "Module.a.Linear.forward.0", "Functional."]),
    (dict(part=[1]), ["statistics", "object"]),
])
def test_what_does_not_go_together_is_told(tmp_path, keys, words):
    with pytest.raises((MsprobeException, ScopeException)) as e:
        read(tmp_path, **keys)
    for word in words:
        assert word in str(e.value), str(e.value)


@pytest.mark.parametrize("text, words", [("{", "JSON"), ("[1]", "object"), ("", "JSON")])
def test_a_file_that_is_no_configuration(tmp_path, text, words):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(MsprobeException, match=words):
        Config(str(tmp_path / "config.json"))


@pytest.mark.parametrize("data, words", [
    (b'{"step": [1' + b"0" * 5000 + b"]}", "4300|Exceeds|between 0 and"), (b'{"task": "\xff"}', "utf-8"), (b'{"task": "tensor",,}', "JSON.*column 41"),
    (b'{"step": [1 # 2\n, ,]}', "JSON.*line 2 column 4"), (b'{"step": NaN}', "step is invalid.*nan"), (b'{"seed": Infinity}', "seed is inf; it must be a whole number"),
    (b'"statistics"', "must hold a JSON object.*statistics")])
def test_text_that_is_not_quite_json_is_told(tmp_path, data, words):
    if data.startswith(b"{"):
        data = b'{"dump_path": "dump", ' + data[1:]
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(MsprobeException, match=words):
        Config(str(tmp_path / "config.json"))


def test_an_example_of_the_manual_is_taken_as_it_is_printed(tmp_path):
    (tmp_path / "config.json").write_text("""{
    "task": "tensor",
    "dump_path": "/home/data#dump",  # \\" and , ] in a comment
    "step": [0, 2, ],
    "level": "L1",

    "tensor": {
        "list":["a,}", "\\",]"],
        "data_mode": ["all"],  # the last one
    },
}
""")
    config = Config(str(tmp_path / "config.json"))
    assert (config.task, config.dump_path, config.step) == ("tensor", "/home/data#dump", [0, 2])
    assert (config.list, config.data_mode) == (["a,}", '",]'], ["all"])


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"dump_path": "dump", "level": "L0"}')
    assert Config(str(tmp_path / "config.json")).level == "L0"


def test_a_key_that_stands_there_twice_is_named(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"dump_path": "dump", "level": "L0", "statistics": {"list": [], "list": ["relu"]}, "level": "mix"}')
    config = Config(str(tmp_path / "config.json"))
    out = capsys.readouterr().out
    assert (config.level, config.list) == ("mix", ["relu"])
    assert 'key "level" stands there 2 times; the last one counts: "mix"' in out and 'key "list" stands there 2 times' in out


@pytest.mark.parametrize("path", ["", ".", "a\0b", "/dev/null"])
def test_a_path_that_is_no_file_is_named_with_its_key(tmp_path, path):
    with pytest.raises(FileCheckException) as e:
        Config(path)
    assert "config_path is %r; it must name a file" % path in str(e.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileCheckException, match="nowhere.json"):
        Config(str(tmp_path / "nowhere.json"))
    with pytest.raises(MsprobeException, match="config_path is 5"):
        Config(5)


def test_unknown_keys_are_warned_of_with_the_nearest_known_one(tmp_path, capsys):
    read(tmp_path, {"summry_mode": "md5"}, setp=[1])
    out = capsys.readouterr().out
    assert 'unknown key "setp" (did you mean "step"?)' in out and 'unknown key "summry_mode" in "statistics" (did you mean "summary_mode"?)' in out


@pytest.mark.parametrize("task", ["grad_probe", "run_ut"])
def test_a_task_that_is_not_there_yet_says_which_are(tmp_path, task):
    result = in_process(tmp_path, lambda: PrecisionDebugger(write_config(tmp_path, task=task)))
    assert result[0] != 0 and 'task "%s" is none of PrecisionDebugger' % task in result[1] and "statistics, tensor, overflow_check, structure and free_benchmark" in result[1]


def test_the_guide_names_every_key():
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "docs", "collect.md"), encoding="utf-8") as f:
        guide = f.read()
    for key in COMMON_KEYS + TASK_KEYS["statistics"]:
        assert "`%s`" % key in guide, key


# ---- every key, right ----------------------------------------------------------------------------------------------------------------------


def test_the_manuals_examples_are_taken(tmp_path, capsys):
    common = {"rank": [], "step": [], "level": "L1", "seed": 1234, "is_deterministic": False, "enable_dataloader": False}
    read(tmp_path, {"scope": [], "list": ["conv2d"], "fuzz_device": "npu", "pert_mode": "improve_precision", "handler_type": "check", "fuzz_level": "L1",
                    "fuzz_stage": "forward", "if_preheat": False, "preheat_step": 15, "max_sample": 20}, "free_benchmark", **common)
    read(tmp_path, {"if_preheat": "true"}, "free_benchmark", **common)
    read(tmp_path, {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}, **common)
    read(tmp_path, {"scope": [], "list": [], "data_mode": ["all"], "backward_input": ""}, "tensor", **common)
    read(tmp_path, {"overflow_nums": 1}, "overflow_check", **common)
    read(tmp_path, {"white_list": [], "black_list": [], "error_data_path": "./"}, "run_ut", **common)
    part = {"scope": ["Tensor.__mul__.10.backward"], "list": [], "data_mode": ["all"], "backward_input": ["Tensor.__mul__.10.backward.input.0.pt"],
            "file_format": "npy"}
    kernels = read(tmp_path, part, "tensor", level="L2", rank=[0], step=[0], is_deterministic=False, acl_config="acl_config.json")
    assert (kernels.kernel_api, kernels.acl_config, kernels.backward_input) == ("Tensor.__mul__.10.backward", "acl_config.json", part["backward_input"])
    assert "WARNING" not in capsys.readouterr().out


def test_ranges_are_sorted_and_each_number_is_there_once(tmp_path):
    config = read(tmp_path, step=[5, "0-3", 2, "7"], rank=["1-2"])
    assert config.step == [0, 1, 2, 3, 5, 7] and config.rank == [1, 2]


def test_the_constructors_arguments_win(tmp_path):
    path = write_config(tmp_path, step=[1], level="L1")
    config = Config(path, task="tensor", dump_path="elsewhere", level="mix", step=[3])
    assert (config.task, config.dump_path, config.level, config.step) == ("tensor", "elsewhere", "mix", [3])
    for wrong in (dict(task="tensr"), dict(level="L9"), dict(step=3), dict(dump_path=5)):
        with pytest.raises(MsprobeException) as e:
            Config(path, **wrong)
        assert next(iter(wrong)) in str(e.value)


def test_wrong_arguments_of_the_calls_are_named(tmp_path):
    def body(d):
        model, said = nn.Linear(2, 2), []
        for call in (lambda: d.start(model, token_range=[3, 1]), lambda: d.start(model, token_range=5), lambda: d.start(token_range=[0, 1]),
                     lambda: d.start(5), lambda: d.set_init_step(-1), lambda: d.set_init_step("1"), lambda: d.register_custom_api(F, "rellu"),
                     lambda: d.register_custom_api(F, 5), lambda: d.register_custom_api(F, "relu", 7), lambda: d.module_dump(5, "name"),
                     lambda: d.module_dump(model, 5), lambda: d.monitor(model), lambda: d.module_dump(model, ""), lambda: d.register_custom_api(F, "relu", "p" * 300),
                     lambda: d.register_custom_api(F, "__doc__")):
            with pytest.raises(MsprobeException) as e:
                call()
            said.append(str(e.value))
        return said

    said = collect(tmp_path, body, level="mix").value
    for text, words in zip(said, (["token_range", "[3, 1]"], ["token_range", "5"], ["token_range", "model"], ["model", "int", "torch.nn.Module"],
                                  ["step", "-1", "at least 0"], ["step", "'1'"], ["rellu", "torch.nn.functional", "relu"], ["api", "5"], ["api_prefix", "7"],
                                  ["module", "int"], ["dump_name", "5"], ["grad_probe"], ["dump_name", "''", "not empty"], ["api_prefix", "ppp", "200"],
                                  ["__doc__", "has no function of that name"])):
        for word in words:
            assert word in text, (text, words)
    assert 'did you mean "__doc__"' not in said[-1]  # it is there, and no function


def test_wrong_models_and_functions_are_named_at_level_L1_too(tmp_path):
    """There a model is asked for token_range only."""
    def body(d):
        said = []
        for call in (lambda: d.start("model"), lambda: d.start([5]), lambda: d.start([], token_range=[0, 1]), lambda: d.start(5, token_range=[0, 1]),
                     lambda: d.register_custom_api(int, "bit_length"), lambda: d.register_custom_api(5, "bit_length"),
                     lambda: d.restore_custom_api(F, 5), lambda: d.restore_custom_api(F, "rellu")):
            with pytest.raises(MsprobeException) as e:
                call()
            said.append(str(e.value))
        d.start(lambda x: x)  # a model in some other object's hands
        torch.relu(torch.ones(2))
        d.stop()
        d.restore_custom_api(F, "relu")  # which nobody has registered: it is as it was
        return said

    result = collect(tmp_path, body)
    for text, words in zip(result.value, (["model", "'model'", "torch.nn.Module"], ["model", "[5]"], ["model", "list", "token_range"],
                                          ["model", "int", "token_range"], ["bit_length", "cannot be recorded"], ["bit_length", "cannot be recorded"],
                                          ["api", "5"], ["rellu", 'did you mean "relu"'])):
        for word in words:
            assert word in text, (text, words)
    assert result.names() == ["Torch.relu.0.forward"]


def test_a_wrong_model_of_the_constructor_is_all_that_is_told(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(tmp_path, level="L0")
    status, output, _ = in_process(tmp_path, lambda: PrecisionDebugger(path, model=3))
    assert status == 1 and "model is int; level L0 needs" in output
    assert "nothing was recorded" not in output


def test_methods_before_the_constructor_are_told(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    def body():
        with pytest.raises(Exception, match="PrecisionDebugger instance is not created"):
            PrecisionDebugger.start()

    assert in_process(tmp_path, body)[0] == 0


def test_the_first_debugger_stays(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    def body(d):
        return PrecisionDebugger("nowhere.json", level="L9") is d

    assert collect(tmp_path, body).value is True


# ---- what the choices do --------------------------------------------------------------------------------------------------------------------------


def small(d, model=None):
    x = R(2, 3, grad=True)
    step(d, lambda: torch.exp(torch.sin(x)).sum().backward(), model)


@pytest.mark.parametrize("mode, keys", [
    (["forward"], {"input_args", "input_kwargs", "output", "is_recompute"}), (["backward"], {"input", "output"}), (["input"], {"input_args", "input_kwargs", "is_recompute", "input"}),
    (["output"], {"output", "is_recompute"}), (["forward", "input"], {"input_args", "input_kwargs", "is_recompute"}), (["backward", "output"], {"output"}),
    (["forward", "backward"], {"input_args", "input_kwargs", "output", "is_recompute", "input"}), ("output", {"output", "is_recompute"}),
])
def test_data_mode(tmp_path, mode, keys):
    data = collect(tmp_path, small, part={"data_mode": mode}).data()
    assert {key for record in data.values() for key in record} == keys
    if "forward" in mode and "backward" not in mode:
        assert not any("backward" in n for n in data)


@pytest.mark.parametrize("part, names", [
    ({"list": ["sin"]}, ["Torch.sin.0.forward", "Torch.sin.0.backward"]),
    ({"list": ["Torch.exp.0.backward"]}, ["Torch.exp.0.backward"]),
    ({"list": ["SIN"]}, []),
    ({"scope": ["Torch.exp.0.forward", "Tensor.sum.0.forward"]}, ["Torch.exp.0.forward", "Tensor.sum.0.forward"]),
])
def test_list_and_scope(tmp_path, part, names):
    got = collect(tmp_path, small, part=part).names()
    assert [n for n in got if n.endswith("forward") or "list" in part] == [n for n in names if n.endswith("forward") or "list" in part]


def test_a_module_in_the_list_brings_what_is_inside(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.GELU())))
        step(d, lambda: model(R(2, 3)).sum().backward(), model)

    names = collect(tmp_path, body, level="mix", part={"list": ["Module.1.Sequential.forward.0"]}).names()
    assert {"Module.1.Sequential.forward.0", "Module.1.0.Linear.forward.0", "Functional.linear.1.forward"} <= set(names)
    assert "Module.0.Linear.forward.0" not in names


def test_steps_are_chosen_and_the_end_is_told(tmp_path):
    def body(d):
        d.set_init_step(10)
        for _ in range(6):
            small(d)

    r = collect(tmp_path, body, step=["11-12", 14])
    assert sorted(os.listdir(r.folder)) == ["step11", "step12", "step14"]
    assert r.output.count("msprobe ends successfully") == 1


def test_token_range(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3)))
        d.start(model, token_range=[1, 2])
        for i in range(4):
            model(R(2, 3, seed=i))
        d.stop()
        d.step()

    data = collect(tmp_path, body, level="mix").data()
    assert list(data) == ["Functional.linear.0.forward", "Module.0.Linear.forward.0", "Functional.linear.1.forward", "Module.0.Linear.forward.1",
                          "Module.0.Linear.parameters_grad"]
    assert data["Functional.linear.0.forward"]["input_args"][0]["Norm"] == pytest.approx(R(2, 3, seed=1).norm().item(), rel=1e-6)


def test_token_range_ends_with_its_last_token_although_that_raises(tmp_path):
    def body(d):
        model = nn.Sequential(nn.Linear(3, 3))
        d.start(model, token_range=[0, 0])
        with pytest.raises(RuntimeError):
            model(R(2, 4))
        model(R(2, 3))
        torch.sin(R(2))
        d.stop()
        d.step()

    assert collect(tmp_path, body, level="L1").names() == ["Functional.linear.0.forward"]


def test_token_range_holds_what_the_program_makes_of_its_last_token(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3)))
        d.start(model, token_range=[0, 1])
        for i in range(4):
            torch.argmax(model(R(2, 3, seed=i)))
        d.stop()
        d.step()

    assert [n for n in collect(tmp_path, body, IN_PLACE, level="L1").names() if "argmax" in n] == ["Torch.argmax.0.forward", "Torch.argmax.1.forward"]


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.lin = nn.LayerNorm(3), nn.Linear(3, 3)

    def forward(self, x):
        return x + self.lin(self.norm(x))


def train_deep(d):
    model = nn.Sequential(nn.Linear(3, 3), Deep(), nn.Linear(3, 2, bias=False))
    d.start(model)
    model(R(2, 4, 3)).sum().backward()
    d.stop()
    d.step()


@pytest.mark.parametrize("level", ("L0", "mix"))
def test_the_parameters_of_a_module_stand_beside_its_output_alone(tmp_path, level):
    data = collect(tmp_path, train_deep, level=level, part={"data_mode": ["forward", "output"]}).data()
    assert list(data["Module.1.norm.LayerNorm.forward.0"]) == ["output", "parameters", "is_recompute"]
    assert set(data["Module.1.norm.LayerNorm.forward.0"]["parameters"]) == {"weight", "bias"}
    assert data["Module.1.Deep.forward.0"]["parameters"] == {}


def test_a_listed_backward_has_the_gradients_of_all_parameters_inside(tmp_path):
    data = collect(tmp_path, train_deep, level="mix", part={"list": ["Module.1.Deep.backward.0"]}).data()
    assert {n for n in data if n.endswith("parameters_grad")} == {"Module.1.norm.LayerNorm.parameters_grad", "Module.1.lin.Linear.parameters_grad"}
    assert None not in data["Module.1.lin.Linear.parameters_grad"]["weight"] + data["Module.1.lin.Linear.parameters_grad"]["bias"]


@pytest.mark.parametrize("level", ("L0", "mix"))
def test_a_range_that_ends_with_a_backward_has_the_gradients_of_its_parameters(tmp_path, level):
    names = collect(tmp_path, train_deep, level=level, part={"scope": ["Module.1.Deep.backward.0", "Module.1.Deep.backward.0"]}).names()
    assert {n for n in names if n.endswith("parameters_grad")} == {"Module.1.norm.LayerNorm.parameters_grad", "Module.1.lin.Linear.parameters_grad"}


def test_a_range_that_begins_with_a_backward_has_all_of_the_calls_inside(tmp_path):
    data = collect(tmp_path, train_deep, level="mix", part={"scope": ["Module.2.Linear.backward.0", "Module.1.Deep.backward.0"]}).data()
    assert "Tensor.sum.0.backward" not in data
    assert data["Functional.linear.2.backward"]["input"][0]["shape"] == [2, 4, 2]


def test_context_manager(tmp_path):
    def body(d):
        for _ in range(2):
            with d:
                torch.sin(R(2))
            torch.cos(R(2))

    r = collect(tmp_path, body)
    assert r.names(0) == r.names(1) == ["Torch.sin.0.forward"]


def test_forward_backward_dump_end(tmp_path):
    """Calls before it have gradients, calls after it are not there."""
    def body(d):
        x = R(2, 3, grad=True)
        d.start()
        y = torch.sin(x)
        d.forward_backward_dump_end()
        torch.exp(y).sum().backward()
        d.stop()
        d.step()

    assert collect(tmp_path, body).names() == ["Torch.sin.0.forward", "Torch.sin.0.backward"]


def test_module_dump(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 3), nn.GELU()))
        d.start()
        torch.sin(R(2))
        d.module_dump(model, "mine")
        model(R(2, 3)).sum().backward()
        d.module_dump_end()
        torch.cos(R(2))
        d.stop()
        d.step()

    names = collect(tmp_path, body).names()
    assert [n for n in names if "forward" in n] == ["Torch.sin.0.forward", "Module.mine.Sequential.forward.0", "Torch.cos.0.forward"]


def test_points_of_any_structure(tmp_path):
    def body(d):
        for _ in range(2):
            x = R(2, 2, grad=True)
            y = x * 2
            d.save({"a": x, "b": [y, 3, "s", (1.5, True)]}, "point")
            d.save(y, "point", save_backward=False)
            y.sum().backward()
            d.step()

    r = collect(tmp_path, body, level="debug", task="tensor")
    for s in range(2):
        data = r.read("debug.json", s)["data"]
        assert list(data) == ["point.0.debug", "point_grad.0.debug", "point.1.debug"]
        assert data["point.0.debug"]["b"][1:] == [{"type": "int", "value": 3}, {"type": "str", "value": "s"},
                                                  [{"type": "float", "value": 1.5}, {"type": "bool", "value": True}]]
        assert data["point_grad.0.debug"]["a"]["Max"] == 2.0 and data["point_grad.0.debug"]["b"][0]["Max"] == 1.0
        assert torch.equal(r.tensor("point_grad.0.debug.a.pt", s), torch.full((2, 2), 2.0))
        assert not os.path.exists(r.file("dump.json", s))


WRONG_POINTS = [
    ((object(), "name"), ["variable is an object of builtins.object", "tensor, a number, a string"]), ((None, "name"), ["variable is None", "tensor"]),
    (({1: R(2)}, "name"), ["variable has 1 as a key", "strings as keys"]), (([R(2), {"a": (1, {2})}], "name"), ["variable[1]['a'][1] is an object of builtins.set"]),
    ((R(2), 5), ["name is 5", "string"]), ((R(2), ""), ["name is ''", "not empty"]), ((R(2), None), ["name is None"]),
    ((R(2), "name", 1), ["save_backward is 1", "True or False"]), ((R(2), "name", "yes"), ["save_backward is 'yes'"]),
]


@pytest.mark.parametrize("level", ["debug", "L1"])
def test_wrong_arguments_of_save_are_an_exception_in_the_first_step_and_never_end_a_later_one(tmp_path, level):
    def body(d):
        said = []
        for args, _ in WRONG_POINTS:
            with pytest.raises(MsprobeException) as e:
                d.save(*args)
            said.append(str(e.value))
        d.save(R(2), "right")
        d.step()
        for args, _ in WRONG_POINTS:
            d.save(*args)
        d.save(R(2), "right")
        d.step()
        return said

    r = collect(tmp_path, body, level=level)
    for text, (_, words) in zip(r.value, WRONG_POINTS):
        for word in words:
            assert word in text and word in r.output, (text, word)
    assert r.output.count("nothing is saved") == len(WRONG_POINTS)
    if level == "debug":
        assert [list(r.read("debug.json", s)["data"]) for s in range(2)] == [["right.0.debug", "right_grad.0.debug"]] * 2


def test_a_point_may_have_a_name_that_is_no_text(tmp_path):
    r = collect(tmp_path, lambda d: d.save({"a\ud800": R(2)}, "\ud800", False), level="debug", task="tensor")
    assert list(r.read("debug.json")["data"]) == ["\\ud800.0.debug"]


@pytest.mark.parametrize("config, saved, why", [
    ({}, [], "save() was never called"), ({"step": [3]}, [R(2)], "step selects [3]"),
    ({"rank": [1]}, [R(2)], "rank selects [1], and this process has no rank"), ({"task": "overflow_check"}, [R(2)], "task is overflow_check")])
def test_why_no_point_was_saved_is_told(tmp_path, config, saved, why):
    r = collect(tmp_path, lambda d: [d.save(v, "name") for v in saved], level="debug", **config)
    assert "[ERROR] nothing was recorded: " + why in r.output.splitlines()[-1], r.output


def test_it_is_told_when_nothing_could_be_saved(tmp_path):
    r = collect(tmp_path, lambda d: [d.step(), d.save(None, "name"), d.save(object(), "name")], level="debug")
    assert "[ERROR] nothing was recorded: save() was called with nothing that can be saved" in r.output.splitlines()[-1], r.output


def test_asynchronous_dump_holds_the_values_of_the_call(tmp_path):
    def body(d):
        def run():
            x = torch.ones(4)
            torch.sin(x)
            x.fill_(9.0)

        step(d, run)

    r = collect(tmp_path, body, task="tensor", async_dump=True, part={"list": ["sin"]})
    assert r.data()["Torch.sin.0.forward"]["input_args"][0]["Max"] == 1.0
    assert torch.equal(r.tensor("Torch.sin.0.forward.input.0.pt"), torch.ones(4))


def test_enable_dataloader(tmp_path):
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 1)))
        d.start(model)
        for x, in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(R(8, 3)), batch_size=1):
            model(x).sum().backward()
        raise AssertionError("the loop ends after the last selected step")

    r = collect(tmp_path, body, enable_dataloader=True, step=[1, 2], level="mix")
    assert sorted(os.listdir(r.folder)) == ["step1", "step2"]
    assert "Functional.linear.0.backward" in r.names(1) and "Module.0.Linear.forward.0" in r.names(2)
    assert len([line for line in r.output.splitlines() if "] recorded " in line]) == 1, r.output


# ---- seed_all ------------------------------------------------------------------------------------------------------------------------------------


def test_seed_all_sets_the_whole_table(tmp_path):
    numpy = pytest.importorskip("numpy")

    def draw():
        return random.random(), numpy.random.rand(), torch.rand(2).tolist()

    def body():
        seed_all(7, True)
        first, env = draw(), (os.environ["PYTHONHASHSEED"], os.environ["HCCL_DETERMINISTIC"])
        flags = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark
        seed_all(7)
        again = draw(), torch.are_deterministic_algorithms_enabled()
        seed_all(8)
        return first, env, flags, again, draw() == first

    status, output, value = in_process(tmp_path, body)
    assert status == 0, output
    first, env, flags, again, other = value
    assert again == (first, False) and not other and env == ("7", "True") and flags == (True, True, False, False)


def test_dropout_is_removed_when_it_is_asked_for(tmp_path):
    by_value = F.dropout

    def body():
        seed_all(7, rm_dropout=True)
        x = torch.ones(64, 4, 4)
        kept = [torch.equal(f(x), x) for f in (by_value, F.dropout2d, F.dropout3d, nn.Dropout(0.9), nn.Dropout2d(0.9), nn.Dropout3d(0.9))]
        with pytest.raises(ValueError):
            F.dropout(x, 1.5)
        return kept

    status, output, value = in_process(tmp_path, body)
    assert status == 0, output
    assert value == [True] * 6


@pytest.mark.parametrize("keys, removed", [(dict(), False), (dict(seed=3), True), (dict(seed=3, rm_dropout=False), False), (dict(rm_dropout=True), True)])
def test_dropout_in_config(tmp_path, keys, removed):
    result = collect(tmp_path, lambda d: step(d, lambda: bool((F.dropout(torch.ones(512), 0.5) == 0).any())), **keys)
    assert result.value is not removed and ("dropout is switched off" in result.output) is removed


def test_without_a_seed_no_random_state_is_touched(tmp_path):
    def body(d):
        return torch.initial_seed(), torch.rand(2).tolist()

    torch.manual_seed(99)
    expected = torch.initial_seed(), torch.rand(2).tolist()
    torch.manual_seed(99)
    assert collect(tmp_path, body).value == expected


@pytest.mark.parametrize("call, words", [(lambda: seed_all(-1), "-1"), (lambda: seed_all("x"), "x"), (lambda: seed_all(1, 1), "mode"), (lambda: seed_all(1, True, 2), "rm_dropout")])
def test_wrong_arguments_of_seed_all(call, words):
    with pytest.raises(MsprobeException, match=words):
        call()


# ---- msprobe 26 --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level, more, kept", [
    (None, {}, {"cat", "linear", "relu"}), ("ALL", {}, {"cat", "linear", "relu"}), ("FOCUS", {}, {"linear", "relu"}), ("CORE", {}, {"linear"}),
    ("CORE", {"statistics": {"list": ["relu"]}}, {"relu"})])
def test_risk_level_leaves_out_what_msprobe_26_leaves_out(tmp_path, level, more, kept):
    def body(d):
        d.start()
        F.relu(F.linear(torch.cat([R(2, 3), R(2, 3)]), R(4, 3)))
        d.stop()
        d.step()

    r = collect(tmp_path, body, **more, **({} if level is None else {"risk_level": level}))
    assert {name.split(".")[1] for name in r.names()} == kept


def test_dump_enable_is_looked_at_again_while_the_program_runs(tmp_path):
    def body(d):
        from msprobe.core import config

        config.RELOAD = 0

        def one(enabled):
            raw = json.loads(open(d.config.path).read())
            with open(d.config.path, "w") as f:
                json.dump(dict(raw, dump_enable=enabled, note=" " * (5 - len(str(enabled)))), f)
            os.utime(d.config.path, ns=(0, int(1e9) * (d._recorder.loop + 1)))
            d.start()
            torch.sin(R(2))
            d.stop()
            d.step()

        for enabled in (True, False, False, True):
            one(enabled)
        with open(d.config.path, "w") as f:
            f.write("{")  # half written
        d.start()
        torch.sin(R(2))
        d.stop()
        d.step()

    r = collect(tmp_path, body, dump_enable=False)
    assert sorted(os.listdir(tmp_path / "dump")) == ["step0", "step3", "step4"], r.output
    assert "dump_enable is false now: recording is off" in r.output and "recording stays on" in r.output


def test_a_run_that_dump_enable_switched_off_says_so(tmp_path):
    def body(d):
        d.start()
        torch.sin(R(2))
        d.stop()

    r = collect(tmp_path, body, dump_enable=False)
    assert "nothing was recorded: dump_enable is false" in r.output


def test_rank_id_names_the_folder(tmp_path):
    def body(d):
        for _ in range(2):
            d.start(rank_id=3)
            torch.sin(R(2))
            d.stop()
            d.step()
        for wrong in (-1, "0", True):
            with pytest.raises(MsprobeException, match="rank_id"):
                d.start(rank_id=wrong)

    collect(tmp_path, body)
    assert os.listdir(tmp_path / "dump/step0") == os.listdir(tmp_path / "dump/step1") == ["rank3"]


def test_other_keys_of_msprobe_26_are_passed_over_with_what_there_is_instead(tmp_path, capsys):
    read(tmp_path, {"slice": [{"dim": 0}]}, custom_op_namespaces=["x"], extra_info=False, acc_check={"white_list": []})
    said = capsys.readouterr().out
    assert '"slice" in "statistics" is a key of msprobe 26' in said and '"custom_op_namespaces" is a key of msprobe 26' in said
    assert "register_custom_api" in said and "extra_info is false" in said and "acc_check" not in said and "unknown" not in said


def test_names_that_only_the_original_has_say_what_there_is_instead():
    with pytest.raises(ImportError, match="TrainerMon.*task statistics"):
        from msprobe.pytorch import TrainerMon  # noqa: F401
    import msprobe.pytorch

    assert not hasattr(msprobe.pytorch, "TrainerMon") and getattr(msprobe.pytorch, "random_save", 3) == 3
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from msprobe.pytorch import nothing  # noqa: F401


def test_the_step_may_stand_in_the_fifth_place(tmp_path):
    def run():
        d = PrecisionDebugger(write_config(tmp_path), None, str(tmp_path / "dump"), None, [1])
        for _ in range(2):
            d.start()
            torch.sin(R(2))
            d.stop()
            d.step()

    in_process(tmp_path, run)
    assert os.listdir(tmp_path / "dump") == ["step1"]
