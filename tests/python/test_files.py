"""Tensor files through the Python package: torch and NumPy read what we write, we read what they write."""
import math

import numpy as np
import pytest

import msprobe

torch = pytest.importorskip("torch")

DTYPES = [name for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int16",
                            "int32", "int64", "uint8", "bool", "complex64", "complex128") if hasattr(torch, name)]


def some_tensor(dtype):
    kind = getattr(torch, dtype)
    return (torch.arange(24).reshape(4, 6) % 7 - 3).to(torch.float64).to(kind)


def load_with_torch(path):
    try:
        return torch.load(path, weights_only=True)
    except TypeError:  # torch 1.12 and older
        return torch.load(path)


def same(a, b):
    raw = lambda t: t.contiguous().view(torch.uint8).numpy().tobytes() if t.numel() else b""
    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_reads_our_pt(tmp_path, dtype):
    tensor = some_tensor(dtype)
    msprobe.save_pt(tmp_path / "t.pt", tensor)
    assert same(load_with_torch(tmp_path / "t.pt"), tensor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_read_torchs_pt(tmp_path, dtype):
    tensor = some_tensor(dtype).t()
    torch.save(tensor, tmp_path / "t.pt")
    got = msprobe.load(tmp_path / "t.pt")
    assert got.dtype == dtype and got.shape == tuple(tensor.shape) and got.strides == tensor.stride()
    assert not got.is_contiguous and got.numel == tensor.numel()
    assert msprobe.fingerprint(got) == msprobe.fingerprint(tensor)


def test_a_file_of_ours_holds_values_only(tmp_path):
    tensor = torch.arange(24.0).reshape(4, 6).t()[1:, ::2].requires_grad_()
    msprobe.save_pt(tmp_path / "ours.pt", tensor)
    got = load_with_torch(tmp_path / "ours.pt")
    assert torch.equal(got, tensor) and got.is_contiguous() and not got.requires_grad
    torch.save(tensor, tmp_path / "theirs.pt")
    assert msprobe.load(tmp_path / "theirs.pt").requires_grad


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "uint16", "int64", "bool", "complex128"])
def test_npy_goes_both_ways(tmp_path, dtype):
    array = (np.arange(24).reshape(4, 6) % 5).astype(dtype)
    msprobe.save_npy(tmp_path / "ours.npy", array)
    back = np.load(tmp_path / "ours.npy")
    assert back.dtype == array.dtype and np.array_equal(back, array)
    np.save(tmp_path / "theirs.npy", array)
    assert np.array_equal(np.asarray(msprobe.load(tmp_path / "theirs.npy")), array)


def test_fortran_order_npy(tmp_path):
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    np.save(tmp_path / "f.npy", array)
    assert np.array_equal(np.asarray(msprobe.load(tmp_path / "f.npy")), array)


def test_npy_has_no_bfloat16(tmp_path):
    with pytest.raises(msprobe.FormatError, match="bfloat16"):
        msprobe.save_npy(tmp_path / "t.npy", torch.ones(2, dtype=torch.bfloat16))
    assert not list(tmp_path.iterdir())


def test_a_view_outlives_its_file_and_cannot_be_written(tmp_path):
    msprobe.save_pt(tmp_path / "t.pt", torch.arange(4.0))
    view = memoryview(msprobe.load(tmp_path / "t.pt"))
    (tmp_path / "t.pt").unlink()
    assert view.readonly and view.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises((TypeError, ValueError)):
        view[0] = 1.0


def test_empty_and_scalar(tmp_path):
    msprobe.save_pt(tmp_path / "e.pt", torch.ones(0, 3))
    assert msprobe.load(tmp_path / "e.pt").shape == (0, 3)
    assert memoryview(msprobe.load(tmp_path / "e.pt")).nbytes == 0
    msprobe.save_pt(tmp_path / "s.pt", torch.tensor(2.5))
    assert msprobe.load(tmp_path / "s.pt").shape == ()
    assert msprobe.stats(msprobe.load(tmp_path / "s.pt")).max == 2.5


def test_a_state_dict_by_name(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    torch.save(model.state_dict(), tmp_path / "m.pt")
    file = msprobe.open(tmp_path / "m.pt")
    assert file.keys() == list(model.state_dict()) == list(file) and len(file) == 4
    for name, tensor in model.state_dict().items():
        assert msprobe.fingerprint(file[name]) == msprobe.fingerprint(tensor)
    assert "0.weight" in file and "nothing" not in file
    with pytest.raises(KeyError):
        file["nothing"]
    weight = file["1.weight"]
    del file
    assert msprobe.stats(weight).count == 8
    with pytest.raises(ValueError, match="4 tensors inside"):
        msprobe.load(tmp_path / "m.pt")


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.randn(3, 4), "b.c": torch.arange(5, dtype=torch.int16)}
    safetensors.save_file(tensors, str(tmp_path / "x.safetensors"))
    file = msprobe.open(tmp_path / "x.safetensors")
    assert sorted(file.keys()) == ["a", "b.c"]
    for name, tensor in tensors.items():
        assert msprobe.fingerprint(file[name]) == msprobe.fingerprint(tensor)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "no such.pt"
    with pytest.raises(FileNotFoundError, match="no such.pt"):
        msprobe.load(path)
    path.write_bytes(b"\x93NUMPY\x01")
    with pytest.raises(msprobe.FormatError, match="no such.pt.*byte 7"):
        msprobe.load(path)


def test_pickle_is_never_executed(tmp_path):
    import os
    import pickle

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "executed"),))

    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pt", "evil.pkl"):
        with pytest.raises((msprobe.FormatError, LookupError)):
            msprobe.open(tmp_path / name)
    assert not (tmp_path / "executed").exists()


# ---- tables --------------------------------------------------------------------------------------------------------

ROWS = [["=1+1", 1, 2.5, True, None], ["text, \"quoted\"", -7, math.inf, False, math.nan]]


def write_table(path):
    with msprobe.open_table(path, ["name", "int", "float", "bool", "none"]) as table:
        table.row(ROWS[0], colour="red")
        table.row(ROWS[1])


def test_csv(tmp_path):
    import csv

    write_table(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as f:
        rows = list(csv.reader(f))
    assert rows == [["name", "int", "float", "bool", "none"], ["'=1+1", "1", "2.5", "True", ""],
                    ["text, \"quoted\"", "-7", "inf", "False", "nan"]]


def test_xlsx(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")

    write_table(tmp_path / "t.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    rows = [[cell.value for cell in row] for row in sheet.iter_rows()]
    assert rows[1] == ["=1+1", 1, 2.5, True, None] and rows[2][2:] == ["inf", False, "nan"]
    assert sheet["A2"].data_type == "s", "text that starts with = is text, not a formula"
    assert sheet["A2"].fill.fgColor.rgb == "FFFF0000"


def test_a_failed_table_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with msprobe.open_table(tmp_path / "t.csv", ["a"]) as table:
            table.row(["x"])
            1 / 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="2 cells for 1 columns"):
        msprobe.open_table(tmp_path / "t.csv", ["a"]).row([1, 2])
    with pytest.raises(ValueError, match="csv"):
        msprobe.open_table(tmp_path / "t.doc", ["a"])
