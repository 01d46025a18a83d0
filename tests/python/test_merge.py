"""merge_result against recorded results of the original tool, and against workbooks that openpyxl writes.

The library is called through ctypes; MSPROBE_LIB names it, otherwise the newest one under build/ is taken.
"""
import ctypes
import csv
import json
import os
import stat

import pytest

openpyxl = pytest.importorskip("openpyxl")
from test_report import INVALID, NOT_FOUND, OK, ROOT, Error, lib  # noqa: E402

DATA = os.path.join(ROOT, "tests", "data", "merge")
WARNING, INFO = 2, 1


class Options(ctypes.Structure):
    _fields_ = [("input_dir", ctypes.c_char_p), ("output_dir", ctypes.c_char_p), ("config_path", ctypes.c_char_p),
                ("timestamp", ctypes.c_char_p), ("threads", ctypes.c_int)]


class Result(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("ranks", ctypes.c_size_t), ("left_out", ctypes.c_size_t),
                ("failed", ctypes.c_size_t), ("metrics", ctypes.c_size_t), ("rows", ctypes.c_size_t)]


SINK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Outcome:
    """What a merge returned, logged and wrote."""

    def __init__(self, folder, out, config, stamp="20260102030405"):
        self.log = []
        sink = SINK(lambda level, text, _: self.log.append((level, text.decode())))
        lib.msp_log_set_sink(INFO, sink, None)
        result, error = Result(), Error()
        options = Options(str(folder).encode(), str(out).encode(), str(config).encode(), stamp.encode(), 0)
        self.status = lib.msp_merge_run(ctypes.byref(result), ctypes.byref(options), ctypes.byref(error))
        lib.msp_log_set_sink(4, SINK(), None)
        self.message = error.message.decode()
        self.path = result.path.decode() if result.path else None
        self.ranks, self.left_out, self.failed = result.ranks, result.left_out, result.failed
        lib.msp_merge_result_release(ctypes.byref(result))

    @property
    def warnings(self):
        return [text for level, text in self.log if level == WARNING]

    @property
    def sheets(self):
        book = openpyxl.load_workbook(self.path)
        return {s.title: [[c.value for c in row] for row in s.iter_rows()] for s in book}


def recorded(name):
    with open(os.path.join(DATA, name), encoding="utf-8") as f:
        return json.load(f)


def write_xlsx(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows(["" if v is None else v for v in row] for row in rows)


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for rank in (0, 1):
        write_xlsx(folder / f"compare_result_rank{rank}_20260101000000.xlsx", recorded(f"rank{rank}.json"))
    return folder


def config(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


ALL = "api:\n- Distributed.all_reduce\n- Functional\n"
SOME = ("api:\n- Distributed.all_reduce\n- Distributed.all_gather.0.forward\n- Torch.nope\n"
        "compare_index:\n- Max diff\n- L2norm diff\n- MeanRelativeErr\n")


@pytest.mark.parametrize("name, yaml", [("all", ALL), ("some", SOME)])
def test_the_originals_results_are_reached(tmp_path, results, name, yaml):
    merged = Outcome(results, tmp_path / "out", config(tmp_path, yaml))
    assert merged.status == OK, merged.message
    assert os.path.basename(merged.path) == "multi_ranks_compare_merge_20260102030405.xlsx"
    assert stat.S_IMODE(os.stat(merged.path).st_mode) == 0o640
    expected = recorded(f"expected_{name}.json")
    assert list(merged.sheets) == list(expected)
    assert merged.sheets == expected


def test_the_originals_messages_are_there(tmp_path, results):
    merged = Outcome(results, tmp_path / "out", config(tmp_path, SOME))
    assert merged.warnings == ["Torch.nope not found in rank0 compare result.",
                               "Torch.nope not found in rank1 compare result."]
    infos = [text for level, text in merged.log if level == INFO]
    assert sorted(infos[:-1]) == ["Parsing rank0 compare result...", "Parsing rank1 compare result..."]
    assert infos[-1] == f"The compare results of the multi-ranks are merged and saved in: {merged.path}."


def test_csv_results_give_the_same(tmp_path, results):
    for path in list(results.iterdir()):
        rank = path.name.split("_")[2]
        write_csv(path.with_suffix(".csv"), recorded(f"{rank}.json"))
        path.unlink()
    merged = Outcome(results, tmp_path / "out", config(tmp_path, ALL))
    assert merged.sheets == recorded("expected_all.json")


def test_the_header_is_bold_and_the_first_sheet_is_shown(tmp_path, results):
    merged = Outcome(results, tmp_path / "out", config(tmp_path, ALL))
    book = openpyxl.load_workbook(merged.path)
    assert book.active.title == "Max diff"
    assert all(cell.font.b for sheet in book for cell in sheet[1])


def test_a_metric_that_the_tables_lack_leaves_nothing_to_merge(tmp_path, results):
    merged = Outcome(results, tmp_path / "out", config(tmp_path, "api:\n- Functional\ncompare_index:\n- Cosine\n"))
    assert merged.status == NOT_FOUND and merged.path is None
    assert "The invalid compare indexes: {'Cosine'}" in merged.warnings
    assert merged.warnings[-1] == "Nothing to merge."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("yaml, part", [
    ("", "is empty"),
    ("compare_index:\n- Max diff\n", "The APIs required to merge data were not found."),
    ("api:\n", "The APIs required to merge data were not found."),
    ("api: []\n", "The APIs required to merge data were not found."),
    ("api: Functional\n", "api must be a list"),
    ("api:\n- 5\n", "item 1 of api is not a name"),
    ("api:\n- a\n- {b: c}\n", "item 2 of api is not a name"),
    ("api:\n- a\ncompare_index: Max diff\n", "compare_index must be a list"),
    ("api:\n- a\ncompare_index:\n- 1.5\n", "item 1 of compare_index is not a name"),
    ("- a\n", "must have the keys api and compare_index"),
])
def test_a_wrong_configuration_is_refused(tmp_path, results, yaml, part):
    merged = Outcome(results, tmp_path / "out", config(tmp_path, yaml))
    assert merged.status == INVALID
    assert part in merged.message and "config.yaml" in merged.message
    assert not (tmp_path / "out").exists()
