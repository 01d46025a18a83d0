"""ptdbg_ascend: compare, compare_distributed and parse, from the dump to the verdict."""
import csv
import os

import pytest
from collecting import R, torch
from test_ptdbg import Net, lines, rank_dir, record


def dump_net(tool, tag, change=0.0, **switch):
    """One step of the net, its second layer's weight moved by change."""
    net = Net()
    with torch.no_grad():
        net.fc2.weight.add_(change)
    tool.set_dump_path("./out/dump.pkl", dump_tag=tag)
    tool.register_hook(net, tool.acc_cmp_dump)
    tool.set_dump_switch("ON", **switch)
    net.step()
    tool.set_dump_switch("OFF")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumps")
    for tag, change in (("bench", 0.0), ("npu", 0.5)):
        for prefix, switch in (("", {}), ("stack_", dict(mode="api_stack"))):
            record(folder, lambda tool: dump_net(tool, prefix + tag, change, **switch))
    return folder


def param(folder, prefix="", name="dump", **more):
    npu, bench = rank_dir(folder, prefix + "npu"), rank_dir(folder, prefix + "bench")
    return dict(npu_pkl_path=str(npu / (name + ".pkl")), bench_pkl_path=str(bench / (name + ".pkl")), npu_dump_data_dir=str(npu / name),
                bench_dump_data_dir=str(bench / name), **more)


def table(folder, start="compare_result"):
    (path,) = [p for p in os.listdir(folder) if p.startswith(start) and p.endswith(".csv")]
    with open(os.path.join(folder, path), newline="") as f:
        return path, list(csv.DictReader(f))


def test_compare_names_the_first_wrong_call(dumps, tmp_path):
    (tmp_path / "output").mkdir()
    _, output = record(tmp_path, lambda tool: tool.compare(param(dumps, is_print_compare_log=True), str(tmp_path / "output"), suffix="run1"))
    path, rows = table(tmp_path / "output")
    assert path.startswith("compare_result_run1_")
    assert list(rows[0]) == ["NPU Name", "Bench Name", "NPU Tensor Dtype", "Bench Tensor Dtype", "NPU Tensor Shape", "Bench Tensor Shape", "Cosine", "MaxAbsErr",
                             "NPU max", "NPU min", "NPU mean", "Bench max", "Bench min", "Bench mean", "Accuracy Reached or Not", "Err_message"]
    assert [row["NPU Name"] for row in rows] == [line[0] for line in lines(rank_dir(dumps, "npu") / "dump.pkl")]
    first = next(row for row in rows if row["Accuracy Reached or Not"] == "No")
    assert first["NPU Name"] == "Functional_linear_1_forward_input.1" and first["MaxAbsErr"] == "0.500000"
    assert "start comapre: Functional_linear_0_forward_input.0\n" in output
    assert "-[INFO]Start analyzing the comparison result: %s\n" % (tmp_path / "output" / path) in output
    assert "-[WARNING]Find Functional_linear_1_forward_input.1 accuracy not reached, the line is %d\n" % (rows.index(first) + 2) in output
    assert "-[INFO]Suspect Nodes: Functional_linear_1_forward_input.1\n" in output
    (advice,) = (tmp_path / "output").glob("advisor_*.txt")
    assert "-[INFO]The advisor summary is saved in: %s\n" % advice in output
    assert "Functional_linear_1_forward_input.1" in advice.read_text()


def test_stacks_are_shown_in_stack_mode(dumps, tmp_path):
    record(tmp_path, lambda tool: tool.compare(param(dumps, "stack_", "api_stack_dump"), str(tmp_path), stack_mode=True, auto_analyze=False))
    _, rows = table(tmp_path)
    shown = next(row for row in rows if row["NPU Name"] == "Torch_sort_0_forward_input.0")
    assert "v, idx = torch.sort(h, dim=1)" in shown["NPU_Stack_Info"] and not list(tmp_path.glob("advisor*"))


def test_compare_distributed_pairs_the_ranks(dumps, tmp_path):
    npu, bench = str(dumps / "out" / "npu_v2.3"), str(dumps / "out" / "bench_v2.3")
    (tmp_path / "output").mkdir()
    record(tmp_path, lambda tool: tool.compare_distributed(npu, bench, str(tmp_path / "output")))
    path, rows = table(tmp_path / "output")
    assert path.startswith("compare_result_rank0-rank0_") and any(row["Accuracy Reached or Not"] == "No" for row in rows)


def test_compare_distributed_takes_the_optional_arguments_of_compare(dumps, tmp_path):
    npu, bench = str(dumps / "out" / "npu_v2.3"), str(dumps / "out" / "bench_v2.3")

    def body(tool):
        def code(*args, **kwargs):
            with pytest.raises(tool.CompareException) as refused:
                tool.compare_distributed(*args, **kwargs)
            return refused.value.code

        tool.compare_distributed(npu, bench, ".", suffix="mine", auto_analyze=False)
        with pytest.raises(TypeError):
            tool.compare_distributed(npu, bench, ".", other=1)
        return [code("none", bench, "."), code(npu, bench, "none"), code(npu, bench, ".", stack_mode=True), code(npu, bench, ".", stack_mode="yes")]

    found, _ = record(tmp_path, body)
    assert found == [1, 1, 17, 11] and not (tmp_path / "none").exists()
    assert table(tmp_path)[0].startswith("compare_result_mine_rank0-rank0_") and not list(tmp_path.glob("advisor*"))


def test_parse_says_when_no_call_has_the_name(dumps, tmp_path):
    path = rank_dir(dumps, "stack_npu") / "api_stack_dump.pkl"
    _, output = record(tmp_path, lambda tool: tool.parse(str(path), "Torch_sorted_0"))
    assert "no stack or statistics of a call whose name starts with Torch_sorted_0 in %s" % path in output


def test_parse_prints_stack_and_statistics(dumps, tmp_path):
    path = rank_dir(dumps, "stack_npu") / "api_stack_dump.pkl"
    _, output = record(tmp_path, lambda tool: tool.parse(str(path), "Torch_sort_0_forward"))
    _, spelled = record(tmp_path, lambda tool: tool.parse(pkl_file=str(path), moudule_name_prefix="Torch_sort_0_forward"))
    assert spelled == output
    text = output.splitlines()
    assert text[:3] == ["", "Statistic Info:", "  [Torch_sort_0_forward_input.0][dtype: torch.float32][shape: [5, 3]][max: %r][min: 0.0][mean: %r]" % tuple(
        next(line for line in lines(path) if line[0] == "Torch_sort_0_forward_input.0")[5][i] for i in (0, 2))]
    assert "Trace back(Torch_sort_0_forward_stack_info):" in text and text[-1] == "    v, idx = torch.sort(h, dim=1)"


def test_a_dump_is_compared_in_the_process_that_makes_it(tmp_path):
    def body(tool):
        tool.set_dump_path("./out/dump.pkl", dump_tag="npu")
        tool.register_hook(torch.nn.Linear(2, 2), tool.acc_cmp_dump)
        tool.set_dump_switch("ON")
        torch.relu(R(4))
        dump = "./out/npu_v2.3/rank0/dump"
        tool.compare(dict(npu_pkl_path=dump + ".pkl", bench_pkl_path=dump + ".pkl", npu_dump_data_dir=dump, bench_dump_data_dir=dump), ".")

    record(tmp_path, body)
    assert [row["Accuracy Reached or Not"] for row in table(tmp_path)[1]] == ["Yes", "Yes"]


def test_wrong_calls_end_with_the_code_of_the_tool(dumps, tmp_path):
    good = param(dumps)
    mixed = dict(good, bench_pkl_path=param(dumps, "stack_", "api_stack_dump")["bench_pkl_path"])
    empty = tmp_path / "empty.pkl"
    empty.write_text("")

    def body(tool):
        def status(*args, **kwargs):
            with pytest.raises(SystemExit) as ended:
                tool.compare(*args, **kwargs)
            return ended.value.code

        return [
            status("x", "."), status(good, 1), status(good, ".", stack_mode="yes"), status(good, ".", suffix=1), status(good, ".", auto_analyze=1), status({}, "."),
            status(dict(good, npu_pkl_path="none.pkl"), "."), status(dict(good, bench_dump_data_dir="none"), "."), status(good, ".", stack_mode=True),
            status(param(dumps, "stack_", "api_stack_dump"), "."), status(mixed, "."), status(dict(good, npu_pkl_path=str(empty)), "."),
            status(good, "none"), status(good, ".", suffix="a/b"),
        ]

    found, output = record(tmp_path, body)
    assert found == [11, 11, 11, 11, 11, 11, 1, 1, 17, 17, 17, 13, 1, 11]
    assert output.count("[ERROR]Compare failed, Please check it and do it again!") == len(found)
