"""msprobe merge_result: what it asks for, what it prints and how it ends. What is in the workbook: tests/python."""
import pytest

import dumps


@pytest.fixture
def results(run, tmp_path):
    """Compare results of two ranks in out/, and a config.yaml."""
    for rank in (0, 1):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank), 2)
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    assert run("compare", "npu", "bench", "-o", "out", "-q").rc == 0
    (tmp_path / "config.yaml").write_text("api:\n- Functional.relu\ncompare_index:\n- Max diff\n- MeanRelativeErr\n")
    return ["-i", "out", "-o", "merged"]


@pytest.mark.parametrize("config", [["-config", "config.yaml"], ["--config-path", "config.yaml"],
                                    ["--config_path=config.yaml"], ["-conf", "config.yaml"]])
def test_the_manuals_line_works_in_every_spelling(run, files, results, config):
    r = run("-f", "pytorch", "merge_result", *results, *config)
    assert r.rc == 0 and r.err == ""
    assert r.out == """
  2 rows, 2 ranks, 2 sheets
  Written  merged/multi_ranks_compare_merge_TIME.xlsx
"""
    assert files("merged") == ["multi_ranks_compare_merge_TIME.xlsx"]


def test_quiet_prints_nothing(run, results):
    r = run("merge_result", *results, "-config", "config.yaml", "-q")
    assert (r.rc, r.out, r.err) == (0, "", "")


@pytest.mark.parametrize("words, message", [
    ([], "-i DIR is missing: the output directory of a comparison"),
    (["-i", "out"], "-o DIR is missing: where the result goes"),
    (["-i", "out", "-o", "x"], "-config YAML is missing: which APIs and which columns"),
    (["-i", "out", "-o", "-config", "c.yaml"], "option '--output_dir' needs a value: -o DIR"),
    (["-i", "out", "-o", "x", "-config", "c.yaml", "extra"], "'merge_result' takes options only, but there is 'extra'"),
])
def test_wrong_usage_is_named(run, words, message):
    r = run("merge_result", *words)
    assert (r.rc, r.out, r.err) == (2, "", "error: %s\ntry: msprobe help merge_result\n" % message)


def test_nothing_to_merge_is_an_error(run, tmp_path, results):
    (tmp_path / "config.yaml").write_text("compare_index:\n- Max diff\n")
    r = run("merge_result", *results, "-config", "config.yaml")
    assert r.rc == 1 and r.out == "" and "api" in r.err
    r = run("merge_result", "-i", "nowhere", "-o", "merged", "-config", "config.yaml")
    assert r.rc == 1 and r.err.startswith("error: ")


def test_a_rank_that_cannot_be_read_is_named_and_the_others_are_merged(run, files, tmp_path, results):
    broken = tmp_path / "out/compare_result_rank7_20250101000000.xlsx"
    broken.write_bytes(b"PK\x03\x04 no workbook")
    r = run("merge_result", *results, "-config", "config.yaml")
    assert r.rc == 1 and "compare_result_rank7_" in r.err
    assert "1 rank left out" in r.out and files("merged") == ["multi_ranks_compare_merge_TIME.xlsx"]


def test_a_folder_of_steps_is_told_with_the_folder_to_give(run, tmp_path):
    for side in ("npu", "bench"):
        for place in ("step3/rank0", "step3/rank1", "step10/rank0", "step10/rank1"):
            dumps.statistics(tmp_path / side / place)
    (tmp_path / "config.yaml").write_text("api:\n- Functional.relu\n")
    assert run("compare", "npu", "bench", "-o", "out", "-q").rc == 0
    r = run("merge_result", "-i", "out", "-o", "merged", "-config", "config.yaml")
    assert (r.rc, r.out) == (1, "")
    assert r.err == ("error: out: compare results of no rank here, but folders of steps: merge one of them, "
                     "as -i out/step3\n")
    assert run("merge_result", "-i", "out/step3", "-o", "merged", "-config", "config.yaml").rc == 0
