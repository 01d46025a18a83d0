"""Tables against the programs that people read them with: openpyxl, Python's csv and json modules.

The library is called through ctypes; MSPROBE_LIB names it, otherwise the newest one under build/ is taken.
"""
import csv
import ctypes
import glob
import json
import math
import os
import stat
import subprocess
import sys
import zipfile

import pytest

openpyxl = pytest.importorskip("openpyxl")
from openpyxl.utils.escape import unescape  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OK, NOMEM, IO, FORMAT, UNSUPPORTED, LIMIT, INVALID, NOT_FOUND = range(8)
CSV, XLSX, JSON = range(3)
EMPTY, TEXT, INT, FLOAT, BOOL = range(5)
PLAIN, RED, YELLOW = range(3)


class TextValue(ctypes.Structure):
    _fields_ = [("p", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Value(ctypes.Union):
    _fields_ = [("text", TextValue), ("i", ctypes.c_int64), ("f", ctypes.c_double), ("b", ctypes.c_bool)]


class Cell(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("value", Value)]


class Column(ctypes.Structure):
    _fields_ = [("title", ctypes.c_char_p), ("width", ctypes.c_double)]


class Options(ctypes.Structure):
    _fields_ = [("sheet", ctypes.c_char_p), ("rows_per_sheet", ctypes.c_int64), ("total_rows", ctypes.c_int64),
                ("plain_header", ctypes.c_bool), ("threads", ctypes.c_int)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


def find_library():
    names = [os.environ["MSPROBE_LIB"]] if "MSPROBE_LIB" in os.environ else \
        glob.glob(os.path.join(ROOT, "build", "*", "libmsprobe.so"))
    names = [n for n in names if not any(s in n for s in ("asan", "tsan", "fuzz", "aarch64"))]
    return max(names, key=os.path.getmtime) if names else None


LIBRARY = find_library()
if LIBRARY is None:
    pytest.skip("no libmsprobe.so: build it, or set MSPROBE_LIB", allow_module_level=True)
lib = ctypes.CDLL(LIBRARY)
lib.msp_table_open.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(Column),
                               ctypes.c_size_t, ctypes.POINTER(Options), ctypes.POINTER(Error)]
lib.msp_table_row.argtypes = [ctypes.c_void_p, ctypes.POINTER(Cell), ctypes.c_int, ctypes.POINTER(Error)]
lib.msp_table_sheet.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Column), ctypes.c_size_t,
                                ctypes.POINTER(Error)]
lib.msp_table_finish.argtypes = [ctypes.c_void_p, ctypes.POINTER(Error)]
lib.msp_table_close.argtypes = [ctypes.c_void_p]


class Failed(Exception):
    pass


def check(status, error):
    if status != OK:
        raise Failed(status, error.message.decode())


def cell(value):
    c = Cell()
    if isinstance(value, bool):
        c.kind, c.value.b = BOOL, value
    elif isinstance(value, int):
        c.kind, c.value.i = INT, value
    elif isinstance(value, float):
        c.kind, c.value.f = FLOAT, value
    elif value is not None:
        raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        c.kind, c.value.text.p, c.value.text.len = TEXT, raw, len(raw)
    return c


def columns_of(titles):
    return (Column * len(titles))(*[Column(t.encode(), 0) for t in titles])


class Table:
    """msp_table with Python's values for cells."""

    def __init__(self, path, kind, titles, sheet=None, **options):
        self.width = len(titles)
        self.handle, self.error = ctypes.c_void_p(), Error()
        opt = Options(sheet=sheet.encode() if sheet else None, **options)
        check(lib.msp_table_open(ctypes.byref(self.handle), str(path).encode(), kind, columns_of(titles), self.width, opt,
                                 self.error), self.error)

    def row(self, values, colour=PLAIN):
        assert len(values) == self.width
        check(lib.msp_table_row(self.handle, (Cell * self.width)(*[cell(v) for v in values]), colour, self.error),
              self.error)

    def sheet(self, name, titles):
        self.width = len(titles)
        check(lib.msp_table_sheet(self.handle, name.encode(), columns_of(titles), self.width, self.error), self.error)

    def finish(self):
        check(lib.msp_table_finish(self.handle, self.error), self.error)
        self.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.handle:
            self.close()

    def close(self):
        lib.msp_table_close(self.handle)
        self.handle = None


def write(path, kind, titles, rows, **options):
    with Table(path, kind, titles, **options) as table:
        for row in rows:
            table.row(row)
        table.finish()
    return path


NUMBERS = [0.0, 0.1, 0.1 + 0.2, 1 / 3, 1e16, 123456789012345680.0, 1.7976931348623157e308, 5e-324, 2.5e-310, -7.25,
           9007199254740993.0, 1e22, 1e-5, 4.35, 0.007]
INTEGERS = [0, -1, 2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63]
TEXTS = ["", "plain", "=1+1", "+1", "-1", "@SUM(A1)", "a,b;c\td", 'quote " quote', "two\nlines", "<tag> & </tag>", " lead",
         "trail ", "\u4f60\u597d \U0001F600", "None", "nan", "N/A", "['File /w/t.py, line 1, in main, \\n y']", "1e5", "007"]


# ---- csv ---------------------------------------------------------------------------------------------------------

def as_text(v):
    """What a spreadsheet would run as a formula has an apostrophe before it in csv; numbers with a sign have none."""
    return "'" + v if v in ("=1+1", "@SUM(A1)") else v


def test_csv_comes_back_through_pythons_reader(tmp_path):
    values = NUMBERS + INTEGERS + TEXTS + [True, False, math.inf, -math.inf, None]
    path = write(tmp_path / "t.csv", CSV, ["name", "a,\"b\"", "\u503c"], [[v, i, "x"] for i, v in enumerate(values)])
    with open(path, newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    assert rows[0] == ["name", "a,\"b\"", "\u503c"]
    expected = ["" if v is None else as_text(v) if isinstance(v, str) else repr(v) for v in values]
    assert [r[0] for r in rows[1:]] == expected
    assert [int(r[1]) for r in rows[1:]] == list(range(len(values)))


def test_csv_is_what_pythons_writer_writes(tmp_path):
    rows = [[t, i, 0.5, True] for i, t in enumerate(TEXTS)]
    path = write(tmp_path / "t.csv", CSV, list("abcd"), rows)
    other = tmp_path / "python.csv"
    with open(other, "w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows([list("abcd")] + [[as_text(r[0]), *r[1:]] for r in rows])
    assert path.read_bytes() == other.read_bytes()


def test_csv_is_always_utf8(tmp_path):
    path = write(tmp_path / "t.csv", CSV, ["a"], [[b"\xff\xe4\xbd"], [b"ok \xed\xa0\x80"]])
    assert path.read_text(encoding="utf-8").splitlines() == ["a", "\ufffd\ufffd\ufffd", "ok \ufffd\ufffd\ufffd"]


# ---- json --------------------------------------------------------------------------------------------------------

def test_json_comes_back_through_pythons_reader(tmp_path):
    values = NUMBERS + INTEGERS + TEXTS + [True, False, None, "\x00\x1f\u2028"]
    path = write(tmp_path / "t.json", JSON, ["v", "i"], [[v, i] for i, v in enumerate(values)])
    table = json.loads(path.read_text())
    assert list(table) == ["columns", "rows"]
    assert table["columns"] == ["v", "i"]
    assert [r[0] for r in table["rows"]] == values
    assert [repr(r[0]) for r in table["rows"]] == [repr(v) for v in values]


def test_json_has_strings_for_what_json_cannot_say(tmp_path):
    path = write(tmp_path / "t.json", JSON, ["v"], [[math.nan], [math.inf], [-math.inf], [b"\xff"]])
    strict = json.loads(path.read_text(), parse_constant=lambda s: pytest.fail(s))
    assert [r[0] for r in strict["rows"]] == ["nan", "inf", "-inf", "\ufffd"]


# ---- xlsx --------------------------------------------------------------------------------------------------------

def sheets(path):
    return openpyxl.load_workbook(path)


def test_xlsx_numbers_and_text_come_back_as_they_were(tmp_path):
    values = NUMBERS + INTEGERS + TEXTS + [True, False]
    path = write(tmp_path / "t.xlsx", XLSX, ["v", "i"], [[v, i] for i, v in enumerate(values)])
    sheet = sheets(path)["Sheet1"]
    got = [row[0].value for row in sheet.iter_rows(min_row=2)]
    assert got == values
    for value, back in zip(values, got):
        assert isinstance(back, str) == isinstance(value, str)
        assert isinstance(back, bool) == isinstance(value, bool)
    assert [row[1].value for row in sheet.iter_rows(min_row=2)] == list(range(len(values)))


def test_xlsx_has_text_for_what_is_no_number(tmp_path):
    path = write(tmp_path / "t.xlsx", XLSX, ["v"], [[math.nan], [math.inf], [-math.inf]])
    assert [row[0].value for row in sheets(path)["Sheet1"].iter_rows(min_row=2)] == ["nan", "inf", "-inf"]


def test_xlsx_text_is_never_a_formula(tmp_path):
    path = write(tmp_path / "t.xlsx", XLSX, ["v"], [["=1+1"], ["+cmd|' /C calc'!A0"], ["-2+3"], ["@SUM(A1)"]])
    for row in sheets(path)["Sheet1"].iter_rows(min_row=2):
        assert row[0].data_type in ("s", "inlineStr")
    assert b"<f>" not in zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml")


def test_xlsx_escapes_what_xml_forbids_as_excel_does(tmp_path):
    texts = ["\x00\x01\x08\x0b\x1f", "cr\rlf\n", "_x0041_", "_x000d_ _X0041_", "\ufffe\uffff", "\x7f\x85"]
    path = write(tmp_path / "t.xlsx", XLSX, ["v"], [[t] for t in texts])
    back = [row[0].value for row in sheets(path)["Sheet1"].iter_rows(min_row=2)]
    assert [unescape(t) for t in back] == texts


def test_xlsx_replaces_what_is_not_utf8(tmp_path):
    path = write(tmp_path / "t.xlsx", XLSX, ["v"], [[b"a\xffb\xe4\xbd"], [b"\xed\xa0\x80"]])
    assert [row[0].value for row in sheets(path)["Sheet1"].iter_rows(min_row=2)] == ["a\ufffdb\ufffd\ufffd",
                                                                                   "\ufffd\ufffd\ufffd"]


@pytest.mark.parametrize("character", ["x", "\u4f60", "\U0001F600", "&"])
def test_xlsx_cuts_text_at_excels_limit(tmp_path, character):
    units = 2 if ord(character) > 0xFFFF else 1
    fits, long = character * (32767 // units), character * (32768 // units + 1)
    path = write(tmp_path / "t.xlsx", XLSX, ["v"], [[fits], [long]])
    back = [row[0].value for row in sheets(path)["Sheet1"].iter_rows(min_row=2)]
    assert back[0] == fits
    assert len(back[1].encode("utf-16-le")) // 2 <= 32767
    kept, note = back[1].split("... (cut here")
    assert kept == character * len(kept) and len(kept) > 30000 // units
    assert str(units * (32768 // units + 1)) in note


def test_xlsx_rows_have_their_colour_on_every_cell(tmp_path):
    table = Table(tmp_path / "t.xlsx", XLSX, list("abc"))
    for colour in (PLAIN, RED, YELLOW):
        table.row([1.5, None, "x"], colour)
    table.finish()
    sheet = sheets(tmp_path / "t.xlsx")["Sheet1"]
    fills = [[(c.fill.fill_type, c.fill.fgColor.rgb) for c in row] for row in sheet.iter_rows(min_row=2, max_col=3)]
    assert fills[0] == [(None, "00000000")] * 3
    assert fills[1] == [("solid", "FFFF0000")] * 3
    assert fills[2] == [("solid", "00FFFF00")] * 3


def test_xlsx_header_style_and_its_absence(tmp_path):
    head = sheets(write(tmp_path / "t.xlsx", XLSX, ["a", "b"], [[1, 2]]))["Sheet1"]["B1"]
    assert head.font.b
    assert {getattr(head.border, side).style for side in ("left", "right", "top", "bottom")} == {"thin"}
    assert (head.alignment.horizontal, head.alignment.vertical) == ("center", "top")
    head = sheets(write(tmp_path / "p.xlsx", XLSX, ["a", "b"], [[1, 2]], plain_header=True, sheet="Sheet"))["Sheet"]["A1"]
    assert not head.font.b and head.border.left.style is None and head.alignment.horizontal is None


def test_xlsx_is_split_into_equal_parts(tmp_path):
    path = write(tmp_path / "t.xlsx", XLSX, ["a"], [[i] for i in range(25)], rows_per_sheet=10, total_rows=25)
    book = sheets(path)
    assert book.sheetnames == ["part_0", "part_1", "part_2"]
    parts = [[row[0].value for row in sheet.iter_rows(values_only=False)] for sheet in book]
    assert [len(p) for p in parts] == [10, 10, 8]
    assert [p[0] for p in parts] == ["a"] * 3
    assert sum((p[1:] for p in parts), []) == list(range(25))


def test_xlsx_sheets_with_names_that_excel_refuses(tmp_path):
    table = Table(tmp_path / "t.xlsx", XLSX, ["a"], sheet="one/two")
    for name in ("x" * 40, "x" * 50, "History", "[]:*?/\\", "'a'", "ONE_TWO"):
        table.sheet(name, ["a", "b"])
        table.row([1, 2])
    table.finish()
    names = sheets(tmp_path / "t.xlsx").sheetnames
    assert names == ["one_two", "x" * 31, "x" * 29 + "_2", "History_2", "_______", "_a_", "ONE_TWO_2"]


def test_xlsx_other_parts_are_well_formed_and_complete(tmp_path):
    from xml.etree import ElementTree
    path = write(tmp_path / "t.xlsx", XLSX, ["a"], [[1]])
    with zipfile.ZipFile(path) as book:
        assert book.testzip() is None
        names = set(book.namelist())
        for name in names:
            ElementTree.fromstring(book.read(name))
        types = book.read("[Content_Types].xml").decode()
    assert {"xl/workbook.xml", "xl/styles.xml", "xl/worksheets/sheet1.xml", "_rels/.rels"} <= names
    for name in names - {"[Content_Types].xml"}:
        assert name.endswith(".rels") or f'PartName="/{name}"' in types


def test_a_large_xlsx_is_complete(tmp_path):
    rows = 60000  # several batches of the parallel compressor
    path = write(tmp_path / "t.xlsx", XLSX, ["n", "f", "t"], ([i, i / 7, f"row {i}"] for i in range(rows)))
    sheet = openpyxl.load_workbook(path, read_only=True)["Sheet1"]
    count = 0
    for i, values in enumerate(sheet.iter_rows(min_row=2, values_only=True)):
        assert values == (i, i / 7, f"row {i}")
        count += 1
    assert count == rows


# ---- files -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [CSV, XLSX, JSON])
def test_nothing_appears_before_the_end_and_nothing_stays_after_a_failure(tmp_path, kind):
    table = Table(tmp_path / "t", kind, ["a"])
    table.row(["x"])
    assert not (tmp_path / "t").exists()
    table.close()
    assert os.listdir(tmp_path) == []
    old = os.umask(0o022)
    write(tmp_path / "t", kind, ["a"], [["x"]])
    os.umask(old)
    assert os.listdir(tmp_path) == ["t"]
    assert stat.S_IMODE(os.stat(tmp_path / "t").st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
@pytest.mark.parametrize("kind", [CSV, XLSX, JSON])
def test_a_full_disk_is_said_and_nothing_stays(tmp_path, kind):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        with pytest.raises(Failed) as failure:
            write(tmp_path / "t", kind, ["a", "b"], ([i * 1.1, os.urandom(8).hex()] for i in range(200000)))
        assert failure.value.args[0] == IO
        assert str(tmp_path / "t") in failure.value.args[1] and "No space left on device" in failure.value.args[1]
        assert "write to another directory" in failure.value.args[1]
        assert os.listdir(tmp_path) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_many_rows_take_no_more_memory_than_ten(tmp_path):
    script = f"""
import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import test_report as r
def peak():
    return int(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])
def run(n):
    t = r.Table({str(tmp_path / "m.xlsx")!r}, r.XLSX, list('abcd'))
    cells = (r.Cell * 4)(*[r.cell(v) for v in ['Functional.linear.0.forward', 0.1, 1/3, True]])
    for _ in range(n):
        r.lib.msp_table_row(t.handle, cells, 0, t.error)
    t.finish()
run(10)
small = peak()
run(300000)
print(peak() - small)
"""
    grown = int(subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE).stdout)
    assert grown < 8 * 1024  # kB


def test_a_workbook_has_a_frozen_header_and_a_filter(tmp_path):
    path = write(tmp_path / "t.xlsx", XLSX, ["name", "value"], [["a", 1], ["b", 2]])
    sheet = openpyxl.load_workbook(path).active
    assert sheet.freeze_panes == "A2" and sheet.auto_filter.ref == "A1:B3"


def test_control_characters_reach_no_csv(tmp_path):
    path = write(tmp_path / "t.csv", CSV, ["name"], [["\x1b[31mred\x07"]])
    assert path.read_bytes() == b"name\n\\x1b[31mred\\x07\n"
