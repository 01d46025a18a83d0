"""Words that the command understands, those it does not, and what it says then."""
import json
import random
import re
import signal

import pytest

import dumps

WRONG = [
    (["comapre", "a", "b"], "error: there is no command 'comapre'; did you mean 'compare'?\ntry: msprobe help compare\n"),
    (["frobnicate"], "error: there is no command 'frobnicate'\ntry: msprobe help\n"),
    (["compare"], "error: what to compare? give two paths, or -i compare.json\ntry: msprobe help compare\n"),
    (["compare", "a"], "error: the bench to compare 'a' with is missing\ntry: msprobe help compare\n"),
    (["compare", "a", "b", "c"], "error: 'compare' takes two paths, but there is 'c'\ntry: msprobe help compare\n"),
    (["compare", "-i", "c.json", "a", "b"],
     "error: give either -i compare.json or two paths, not both ('a')\ntry: msprobe help compare\n"),
    (["compare", "a", "b", "--highligt"],
     "error: unknown option '--highligt'; did you mean '--highlight'?\ntry: msprobe help compare\n"),
    (["-f", "tensorflow", "compare", "a", "b"],
     "error: 'tensorflow' is no value of --framework; choose pytorch,mindspore\ntry: msprobe help compare\n"),
    (["-f", "pytorch", "compare", "a", "b", "-cm"],
     "error: Argument -cm or -am is not supported in PyTorch framework; use -dm, or -f mindspore\n"
     "try: msprobe help compare\n"),
    (["compare", "a", "b", "--threads", "0"],
     "error: '0' is no value of --threads; choose a number from 1 to 1024\ntry: msprobe help compare\n"),
    (["compare", "-tp", "a"], "error: -gp is missing: compare -tp NPU -gp BENCH\ntry: msprobe help compare\n"),
    (["compare", "--golden_path", "a"], "error: -tp is missing: compare -tp NPU -gp BENCH\ntry: msprobe help compare\n"),
    (["compare", "-tp", "a", "b"],
     "error: -tp is one way to say what to compare, and 'b' another\ntry: msprobe help compare\n"),
    (["compare", "-tp", "a", "-gp", "b", "-m", "torchair"],
     "error: 'torchair' is no value of --mode; choose auto\ntry: msprobe help compare\n"),
    (["compare", "a", "b", "--rank", "0,x"],
     "error: '0,x' is no value of --rank; give numbers such as 0,1\ntry: msprobe help compare\n"),
    (["compare", "-i", "c.json", "--step", "0"],
     "error: --rank and --step choose among MindSpore's static graphs; in a compare file they are the keys rank_id and step_id\n"
     "try: msprobe help compare\n"),
    (["help", "comapre"], "error: there is no command 'comapre'; did you mean 'compare'?\ntry: msprobe help compare\n"),
    (["--frobnicate"], "error: unknown option '--frobnicate'\ntry: msprobe help\n"),
]


@pytest.mark.parametrize("words, message", WRONG, ids=[" ".join(w) for w, _ in WRONG])
def test_wrong_usage_is_named_in_one_line_with_the_next_command(run, words, message):
    r = run(*words)
    assert (r.rc, r.out, r.err) == (2, "", message)


def test_a_folder_in_the_place_of_a_compare_file_is_told_what_to_type(run, tmp_path):
    r = run("-f", "pytorch", "compare", "-i", str(tmp_path), "-o", str(tmp_path / "out"))
    assert r.rc == 1 and r.out == "" and not (tmp_path / "out").exists()
    assert "%s: is a folder; -i takes a compare file" % tmp_path in r.err and "msprobe compare NPU BENCH" in r.err


def test_the_spellings_of_msprobe_26_are_understood(run, tmp_path):
    dumps.statistics(tmp_path / "npu", 2.0)
    dumps.statistics(tmp_path / "bench")

    def written(*words):
        r = run("compare", *words, "-o", "out", "--json", "-q")
        assert r.rc == 0, r.err
        pair, = json.loads(r.out)["pairs"]
        assert (pair["npu_path"], pair["bench_path"]) == ("npu/dump.json", "bench/dump.json")
        return sorted({f.rsplit(".", 1)[1] for f in pair["files"] if "/compare_result" in f})

    assert written("-tp", "npu/dump.json", "-gp", "bench/dump.json") == ["csv"]
    assert written("-m", "auto", "--target_path", "npu/dump.json", "--golden_path", "bench/dump.json", "-fm", "--xlsx") == ["xlsx"]
    assert written("-tp=npu/dump.json", "-gp=bench/dump.json", "--format", "json") == ["json"]
    assert written("npu/dump.json", "bench/dump.json") == ["xlsx"]
    told = run("compare", "-tp", "npu", "-gp", "bench", "-o", "out", "-tensor_log")
    assert told.rc == 0 and "Functional.relu.0.forward.output.0" in told.err + told.out
    assert run("-V").out == run("--version").out


@pytest.mark.parametrize("name", ["code_mapping", "graph", "op_generate", "config_check", "nan_analyze",
                                  "graph_visualize", "data2db", "offline_dump", "install_deps"])
def test_commands_of_the_originals_that_are_not_there_say_so(run, name):
    for words in (["-f", "pytorch", name, "-i", "x"], ["help", name], [name, "--whatever"]):
        r = run(*words)
        assert r.rc == 2 and r.out == ""
        assert re.match(r"error: '%s' \(.+\) is not available yet; .+\ntry: msprobe help\n$" % name, r.err)


@pytest.mark.parametrize("name", ["statistics", "tensor", "structure", "overflow_check", "free_benchmark"])
def test_a_task_that_is_typed_as_a_command_is_told_from_one(run, name):
    r = run(name, "x", "--whatever")
    assert (r.rc, r.out) == (2, "")
    assert r.err.startswith("error: '%s' is no command: it is a task: {\"task\": \"%s\"} in config.json" % (name, name))
    assert "from msprobe.pytorch import PrecisionDebugger" in r.err


@pytest.mark.parametrize("name", ["grad_probe", "monitor"])
def test_what_only_the_original_has_is_not_announced(run, name):
    r = run(name)
    assert r.rc == 2 and "msprobe has not: the task statistics records the gradients of parameters" in r.err
    assert '"task": "%s"' % name not in r.err and "PrecisionDebugger.monitor" not in r.err


@pytest.mark.parametrize("name", ["dump", "collect", "record"])
def test_a_word_for_recording_is_answered_with_how_it_is_done(run, name):
    r = run(name)
    assert r.rc == 2 and r.err.startswith("error: '%s' is no command: " % name) and "PrecisionDebugger" in r.err


def test_every_command_that_the_first_screen_names_is_there(run):
    text = run().out
    start = text[text.index("Start here"):text.index("\nCommands")]
    named = re.findall(r"^  msprobe (\w+)", start, re.M)
    assert {"compare", "show", "diff", "audit", "run_ut", "report"} <= set(named)
    listed = re.findall(r"^  (\w+)", text[text.index("\nCommands"):text.index("\nOptions")], re.M)
    for name in set(named + listed):
        assert run("help", name).rc == 0, name


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["help"], ["-f", "pytorch"], ["help", "help"]])
def test_help_is_shown_for_no_command(run, words):
    r = run(*words)
    assert r.rc == 0 and r.err == ""
    for part in ("Usage", "msprobe compare NPU BENCH", "Commands", "Exit status"):
        assert part in r.out


@pytest.mark.parametrize("name", ["compare", "merge_result", "parse"])
def test_no_heading_of_a_help_text_is_empty(run, name):
    assert not re.search(r"^Options\n\n", run("help", name).out, re.M)


@pytest.mark.parametrize("words", [["help", "compare"], ["compare", "--help"], ["compare", "-h"],
                                   ["-f", "pytorch", "compare", "-h"], ["compare", "a", "--help"]])
def test_help_of_compare_teaches(run, words):
    r = run(*words)
    assert r.rc == 0 and r.err == ""
    for part in ("Usage", "Options", "Examples", "The compare file", "What the columns mean", "What to do next"):
        assert part in r.out
    for option in ("-i, --input_path", "-o, --output_path", "-s, --stack_mode", "-c, --compare_only",
                   "-f, --fuzzy_match", "-hl, --highlight", "-dm, --data_mapping", "-da, --diff_analyze",
                   "-cm, --cell_mapping", "-am, --api_mapping", "-lm, --layer_mapping", "--format", "--fail-on", "--json",
                   "-q, --quiet", "-v, --verbose", "--no-color", "--threads", "-f, --framework"):
        assert option in r.out


@pytest.mark.parametrize("words", [[], ["help", "compare"], ["help", "merge_result"]])
def test_help_fits_in_eighty_columns(run, words):
    r = run(*words)
    assert max(len(line) for line in r.out.splitlines()) <= 80


def test_the_version_is_one_line(run):
    for words in (["--version"], ["compare", "--version"]):
        r = run(*words)
        assert r.rc == 0 and re.match(r"msprobe \d+\.\d+\.\d+\n$", r.out)


@pytest.mark.parametrize("words", [
    ["-f", "pytorch", "compare", "-i", "c.json", "-o", "out"],
    ["--framework=pytorch", "compare", "-i", "c.json", "-o", "out"],
    ["--framework", "pytorch", "compare", "--input_path", "c.json", "--output_path", "out"],
    ["compare", "-f", "pytorch", "-i", "c.json", "-o", "out"],
    ["-i", "c.json", "-o", "out", "compare"],
    ["compare", "--inp=c.json", "--out=out", "--fra", "pytorch"],
    ["compare", "npu/dump.json", "bench/dump.json", "-o", "out"],
    ["compare", "npu", "bench", "-o", "out"],
    ["compare", "-o", "out", "--", "npu", "bench"],
])
def test_every_way_to_say_it_does_the_same(run, files, compare_json, tmp_path, words):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    compare_json("c.json", npu_path="npu/dump.json", bench_path="bench/dump.json", is_print_compare_log=False)
    r = run(*words)
    assert r.rc == 0, r.err
    assert files() == ["advisor_TIME.txt", "compare_result_TIME.xlsx"]


@pytest.mark.parametrize("words", [["compare", "npu", "bench"], ["compare", "npu", "bench", "-o"]])
def test_without_a_value_results_go_to_output(run, files, tmp_path, words):
    dumps.statistics(tmp_path / "npu")
    dumps.statistics(tmp_path / "bench")
    assert run(*words).rc == 0
    assert "compare_result_TIME.xlsx" in files("output")


def test_random_words_never_crash_it(run, tmp_path):
    words = ["compare", "merge_result", "help", "graph", "-f", "pytorch", "mindspore", "-i", "-o", "-s", "-c", "-hl", "-dm",
             "-da", "-cm", "-am", "-lm", "--", "-", "", "=", "-=", "--x", "--format", "xlsx,csv", "--format=", "--fail-on",
             "any", "--json", "-q", "-v", "--threads", "1", "999999999999", "-config", "\u7cbe\u5ea6", "a" * 5000,
             "--" + "x" * 300, "/dev/null", "/", ".", "/nonexistent", "%s%n%d", "\x1b[2J", "--no-color", "-scq", "-oout"]
    rng = random.Random(20250101)
    for _ in range(150):
        line = [rng.choice(words) for _ in range(rng.randrange(0, 7))]
        r = run(*line)
        assert r.rc in (0, 1, 2, 3), (line, signal.Signals(-r.rc) if r.rc < 0 else r.rc)
        assert "\x1b" not in r.out + r.err, line
        assert r.rc == 0 or r.err, line


def test_output_that_cannot_be_written_is_an_error(msprobe):
    import subprocess
    with open("/dev/full", "w") as full:
        done = subprocess.run([msprobe, "help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: cannot write to standard output\n"


@pytest.mark.parametrize("words, told", [
    (["compare", "a.pt", "a.pt"], "; msprobe diff A B compares tensor files"),
    (["compare", "a.xlsx", "a.xlsx"], "; msprobe report makes the page of a table"),
    (["compare", "npu/stack.json", "npu/stack.json"], "; dump.json stands beside it"),
    (["compare", "npu/dump_tensor_data", "npu"], "no dump but the tensor files of one; give the folder above it"),
    (["show", "a.xlsx"], "a.xlsx is a table; msprobe report makes its page"),
    (["parse", "npu/dump.json", "Torch"], "no .pkl of ptdbg_ascend; msprobe show DUMP CALL shows a call of a dump.json"),
    (["report", "npu/empty"], "holds no compare_result_*.xlsx, .csv or .json, which msprobe compare writes")])
def test_what_is_given_to_the_wrong_command_is_told_the_right_one(run, tmp_path, words, told):
    dumps.real(tmp_path / "npu")
    (tmp_path / "npu/empty").mkdir()
    for name in ("a.pt", "a.xlsx"):
        (tmp_path / name).write_bytes(b"PK")
    r = run(*words)
    assert r.rc in (1, 2) and r.out == "" and told in r.err, r.err
