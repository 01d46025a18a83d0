"""NaN and inf on one side only are always wrong: in the table, on the screen, for --fail-on."""
import pytest

import dumps


@pytest.mark.parametrize("npu, bench", [(float("nan"), 1.0), (1.0, float("nan")), (float("inf"), 1.0), (1.0, float("inf"))])
def test_a_side_that_is_not_finite_is_wrong(run, tmp_path, npu, bench):
    dumps.statistics(tmp_path / "npu", npu)
    dumps.statistics(tmp_path / "bench", bench)
    for what in ("no", "warning", "any"):
        assert run("compare", "npu", "bench", "-o", "out", "--fail-on", what).rc == 3
    r = run("compare", "npu", "bench", "-o", "out")
    assert r.rc == 0 and "Verdict       Wrong: " in r.out and ("NaN" in r.out or "inf" in r.out)


def test_colours_change_no_exit_status(run, tmp_path):
    dumps.statistics(tmp_path / "npu", 1.0)
    dumps.statistics(tmp_path / "bench", 1.2)
    plain, coloured = (run("compare", "npu", "bench", "-o", "out", "--fail-on", "warning", *more).rc for more in ([], ["-hl"]))
    assert plain == coloured
