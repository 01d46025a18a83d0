"""api_precision_compare: the details of one device judged by those of another, on tables made for the purpose."""
import csv
import glob
import json
import os
import shutil
import subprocess
import sys

import pytest

NUMBERS = ("余弦相似度,最大绝对误差,双百指标,双千指标,双万指标,二进制一致错误率,误差均衡性,均方根误差,小值域错误占比,相对误差最大值,相对误差平均值,"
           "inf/nan错误率,相对误差错误率,绝对误差错误率,ULP误差最大值,ULP误差平均值,ULP误差大于阈值占比").split(",")
TITLES = ["API Name", "Bench Dtype", "DEVICE Dtype", "Shape"] + NUMBERS + ["Status", "Message"]
SMALL, RMSE, MAX_REL, MEAN_REL, BALANCE = "小值域错误占比", "均方根误差", "相对误差最大值", "相对误差平均值", "误差均衡性"
INF_NAN, REL, ABS, EQUAL, THOUSANDTH = "inf/nan错误率", "相对误差错误率", "绝对误差错误率", "二进制一致错误率", "双千指标"
ULP_MEAN, ULP_RATE = "ULP误差平均值", "ULP误差大于阈值占比"
BENCHMARK = {SMALL: 0, RMSE: 0, MAX_REL: 0, MEAN_REL: 0, BALANCE: 0}
F16, BF16, F32 = 2 ** -11, 2 ** -8, 2 ** -14


def command():
    return shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


def row(name, numbers, dtype="torch.float32", **more):
    made = dict({t: " " for t in TITLES}, **{"API Name": name, "Bench Dtype": "torch.float64", "DEVICE Dtype": dtype, "Shape": "(4, 3)"})
    made.update({k: v if isinstance(v, str) else "%.14f" % v for k, v in numbers.items()})
    made.update({"Status": "pass", "Message": ""}, **more)
    return made


def write(path, rows, titles=TITLES):
    with open(path, "w", encoding="utf-8-sig", newline="") as f:
        w = csv.writer(f)
        w.writerow(titles)
        w.writerows([r[t] for t in titles] for r in rows)
    return str(path)


def read(pattern):
    (path,) = glob.glob(str(pattern))
    with open(path, encoding="utf-8-sig", newline="") as f:
        table = list(csv.DictReader(f))
    assert all(None not in r and None not in r.values() for r in table)
    return table


class Done:
    def __init__(self, folder, npu, gpu):
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.run = subprocess.run([command(), "-f", "pytorch", "api_precision_compare", "-npu", npu, "-gpu", gpu, "-o", str(out)],
                                  text=True, capture_output=True)
        if self.run.returncode == 0:
            self.results = read(out / "api_precision_compare_result_*.csv")
            self.details = read(out / "api_precision_compare_details_*.csv")


@pytest.fixture
def judged(tmp_path):
    def run(npu, gpu, titles=TITLES):
        done = Done(tmp_path, write(tmp_path / "npu.csv", npu, titles), write(tmp_path / "gpu.csv", gpu))
        assert done.run.returncode == 0, done.run.stderr
        return done
    return run


def one(judged, name, npu, gpu, dtype="torch.float32"):
    name += ".0.forward.output.0"
    return judged([row(name, npu, dtype)], [row(name, gpu, dtype)]).details[0]


@pytest.mark.parametrize("dtype, least", [("torch.float16", F16), ("torch.bfloat16", BF16), ("torch.float32", F32)])
@pytest.mark.parametrize("column, limit, complaint", [
    (SMALL, 2, "小值域错误比值超过阈值"), (RMSE, 2, "均方根误差比值超过阈值"), (MAX_REL, 10, "相对误差最大值比值超过阈值"),
    (MEAN_REL, 2, "相对误差平均值比值超过阈值")])
def test_ratios_have_a_floor_and_an_exact_limit(judged, dtype, least, column, limit, complaint):
    for gpu, base in ((0, least), (least / 2, least), (least * 2, least * 2)):
        at = one(judged, "Functional.softmax", dict(BENCHMARK, **{column: repr(limit * base)}), dict(BENCHMARK, **{column: repr(gpu)}), dtype)
        assert at["比对结果"] == "pass" and at["比对算法"] == "标杆比对法" and at["Message"] == ""
        above = one(judged, "Functional.softmax", dict(BENCHMARK, **{column: repr(limit * base * 1.0001)}), dict(BENCHMARK, **{column: repr(gpu)}), dtype)
        assert above["比对结果"] == "error" and above["Message"] == "ERROR: %s\n" % complaint


def test_the_balance_has_a_verdict_that_does_not_decide(judged):
    found = one(judged, "Functional.softmax", dict(BENCHMARK, **{BALANCE: 1}), BENCHMARK)
    assert found["误差均衡性比值"] == "16384.00000000000000" and found["误差均衡性判定结果"] == "error" and found["比对结果"] == "pass"


@pytest.mark.parametrize("npu, gpu, verdict", [("inf", "inf", "pass"), ("nan", "nan", "pass"), ("inf", "-inf", "error"),
                                               ("inf", "1", "error"), ("1", "nan", "error"), ("nan", "inf", "error")])
def test_errors_that_are_no_numbers_must_be_the_same_ones(judged, npu, gpu, verdict):
    found = one(judged, "Functional.softmax", dict(BENCHMARK, **{RMSE: npu}), dict(BENCHMARK, **{RMSE: gpu}))
    assert (found["均方根误差比值"], found["均方根误差判定结果"], found["比对结果"]) == ("nan", verdict, verdict)
    assert ("均方根误差同为同号inf或nan\n" if verdict == "pass" else "均方根误差inf或nan不一致\n") in found["Message"]


@pytest.mark.parametrize("dtype, mean, rate, gpu_rate, verdict", [
    ("torch.float32", 63.99, 1, 0, "pass"), ("torch.float32", 64, 0.0499, 0, "pass"), ("torch.float32", 64, 0.05, 0.0501, "pass"),
    ("torch.float32", 64, 0.05, 0.05, "error"), ("torch.float16", 1e9, 0.00099, 0, "pass"), ("torch.float16", 0, 0.001, 0, "error"),
    ("torch.float16", 0, 0.01, 0.011, "pass"), ("torch.bfloat16", 0, 0.0039, 0, "pass"), ("torch.bfloat16", 0, 0.004, 0, "error")])
def test_units_in_the_last_place_pass_by_any_of_their_bounds(judged, dtype, mean, rate, gpu_rate, verdict):
    found = one(judged, "Functional.linear", {ULP_MEAN: mean, ULP_RATE: rate}, {ULP_MEAN: 0, ULP_RATE: gpu_rate}, dtype)
    assert (found["比对结果"], found["比对算法"], found["ULP误差判定结果"]) == (verdict, "ULP误差比对法", verdict)


@pytest.mark.parametrize("name, numbers, worse, rule", [
    ("Torch.mul", {INF_NAN: 0, REL: 0, ABS: 0}, {REL: 1e-9}, "绝对阈值法"), ("Torch.mul", {INF_NAN: 0, REL: 0, ABS: 0}, {ABS: "nan"}, "绝对阈值法"),
    ("Functional.relu", {EQUAL: 0}, {EQUAL: 1e-9}, "二进制一致法"), ("Functional.conv2d", {THOUSANDTH: 0.999}, {THOUSANDTH: 0.9989}, "双千指标法")])
def test_rules_that_look_at_one_device_only(judged, name, numbers, worse, rule):
    assert (one(judged, name, numbers, {})["比对结果"], one(judged, name, numbers, {})["比对算法"]) == ("pass", rule)
    assert one(judged, name, dict(numbers, **worse), {})["比对结果"] == "error"


def test_integers_of_every_api_must_be_equal(judged):
    assert one(judged, "Functional.softmax", {EQUAL: 0.5}, {}, "torch.int64")["比对算法"] == "二进制一致法"


def test_the_whole_name_between_prefix_and_number_chooses_the_rule(judged):
    assert one(judged, "Torch.linalg.matmul", BENCHMARK, BENCHMARK)["比对算法"] == "标杆比对法"


@pytest.mark.parametrize("blank", [RMSE, BALANCE])
@pytest.mark.parametrize("side", [0, 1])
def test_a_number_that_is_missing_leaves_no_verdict(judged, blank, side):
    sides = [BENCHMARK, BENCHMARK]
    sides[side] = dict(BENCHMARK, **{blank: ["", " ", "x"][side]})
    found = one(judged, "Functional.softmax", *sides)
    assert found["比对结果"] == "SKIP" and found["Message"] == "Not measured: %s%s" % (blank, " (GPU)" if side else "")


def test_columns_are_found_by_their_titles(judged, tmp_path):
    npu = [row("Functional.softmax.0.forward.output.0", dict(BENCHMARK, **{MAX_REL: 1}))]
    other = [t for t in reversed(TITLES) if t != "余弦相似度"]
    assert judged(npu, npu, other).details == judged(npu, npu).details
    done = Done(tmp_path, write(tmp_path / "n.csv", npu, [t for t in TITLES if t not in (RMSE, ULP_RATE)]), write(tmp_path / "g.csv", npu))
    assert done.run.returncode == 1 and "n.csv" in done.run.stderr
    assert "it has no column 均方根误差, ULP误差大于阈值占比" in done.run.stderr


def test_an_api_is_one_row_wherever_its_results_stand(judged):
    same, off = {EQUAL: 0}, {EQUAL: 1}
    table = [row("Torch.topk.0.backward.output.0", same), row("Torch.sort.0.forward.output.0", same), row("Torch.topk.0.forward.output.0", off),
             row("Torch.sort.1.backward.output.0", same), row("Torch.topk.0.forward.output.1", same)]
    results = judged(table, table[::-1]).results
    assert [tuple(r.values())[:3] for r in results] == [("Torch.topk.0", "error", "pass"), ("Torch.sort.0", "pass", " "), ("Torch.sort.1", " ", "pass")]
    assert "topk" in results[0]["Message"] and results[1]["Message"] == ""


def test_what_has_no_verdict_says_why(judged):
    why = {"Message": "no, none\n", "Status": "SKIP"}
    table = [row("Torch.sum.0.forward.output.0", {}, "torch.float64"), row("Torch.sum.1.forward.output.0", {}, " ", **why),
             row("Torch.sum.2.forward.output.0", BENCHMARK, Shape="(0,)", **why), row("sum", BENCHMARK)]
    done = judged(table, table)
    assert [r["比对结果"] for r in done.details] == ["SKIP"] * 4
    assert [r["Message"] for r in done.details] == ["", "no, none\n", "no, none\n", "The API name sum is invalid."]
    assert [r["Forward Test Success"] for r in done.results] == ["SKIP"] * 4
    assert [r["Backward Test Success"] for r in done.results] == ["SKIP", " ", " ", "SKIP"]
    assert [r["Message"] for r in done.results] == ["This data type does not support benchmark compare.", "no, none\n", "no, none\n",
                                                    "The API name sum is invalid."]


def test_rows_of_one_side_are_told_and_the_rest_is_judged(judged):
    both, mine, other = (row("Torch.%s.0.forward.output.0" % n, {EQUAL: 0}) for n in ("sort", "relu", "tril"))
    done = judged([mine, both], [both, other])
    assert [r["API Name"] for r in done.results] == ["Torch.sort.0"]
    assert "Torch.relu.0.forward.output.0: " in done.run.stderr and "gpu.csv has 1 rows that " in done.run.stderr


def test_names_and_messages_of_any_length_come_through(judged):
    name = "Torch.%s.0.forward.output.0" % ("sum\"," * 2000)
    table = [row(name, {}, " ", Message="why\n" * 20000)]
    (found,) = judged(table, table).details
    assert found["API Name"] == name and found["Message"] == "why\n" * 20000


def test_a_name_that_is_there_twice_is_an_error(tmp_path):
    table = [row("Torch.sort.0.forward.output.0", {EQUAL: 0})] * 2
    path = write(tmp_path / "twice.csv", table)
    done = Done(tmp_path, path, path)
    assert done.run.returncode == 1 and "twice.csv: " in done.run.stderr and "Torch.sort.0.forward.output.0 is there twice" in done.run.stderr


def test_the_summary_for_programs_is_as_its_schema_says(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    bad, good = dict(BENCHMARK, **{RMSE: "1"}), dict(BENCHMARK)
    npu = [row("Functional.softmax.%d.forward.output.0" % i, bad if i % 2 else good) for i in range(4)]
    gpu = [row("Functional.softmax.%d.forward.output.0" % i, good) for i in range(4)]
    words = [command(), "api_precision_compare", "-npu", write(tmp_path / "npu.csv", npu), "-gpu", write(tmp_path / "gpu.csv", gpu), "-o", str(tmp_path)]
    done = subprocess.run(words + ["--json", "--fail-on", "error"], text=True, capture_output=True)
    assert done.returncode == 3, done.stderr
    told = json.loads(done.stdout)
    with open(os.path.join(os.path.dirname(__file__), "../../docs/schema/api_precision_compare.schema.json"), encoding="utf-8") as f:
        jsonschema.Draft202012Validator(json.load(f)).validate(told)
    assert (told["apis"], told["pass"], told["error"]) == (4, 2, 2) and os.path.exists(told["result"])
    assert told["first_errors"] == ["Functional.softmax.1", "Functional.softmax.3"]
    assert subprocess.run(words, capture_output=True).returncode == 0
    screen = subprocess.run(words, text=True, capture_output=True).stdout
    assert "4 APIs: 2 pass, 2 errors" in screen and "First errors  Functional.softmax.1\n" in screen
