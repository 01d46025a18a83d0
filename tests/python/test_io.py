"""Tensor files against the programs that define them: what torch, NumPy and safetensors write is read by the C library,
and what it writes is read by them.

The library is called through ctypes; MSPROBE_LIB names it, otherwise the newest one under build/ is taken.
"""
import ctypes
import glob
import itertools
import os
import stat
import subprocess
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data", "io")

# msp_dtype, in the order of include/msprobe/dtype.h
DTYPES = ["none", "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
          "complex64", "complex128"]
MISSING_IN_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}
TORCH2 = not torch.__version__.startswith("1.")
OK, NOMEM, IO, FORMAT, UNSUPPORTED, LIMIT, INVALID, NOT_FOUND = range(8)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_int32),
                ("requires_grad", ctypes.c_bool), ("numel", ctypes.c_int64), ("shape", ctypes.c_int64 * 64),
                ("strides", ctypes.c_int64 * 64), ("owner", ctypes.c_void_p), ("release", ctypes.c_void_p)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 1024)]


def find_library():
    names = [os.environ["MSPROBE_LIB"]] if "MSPROBE_LIB" in os.environ else \
        glob.glob(os.path.join(ROOT, "build", "*", "libmsprobe.so"))
    names = [n for n in names if not any(s in n for s in ("asan", "tsan", "fuzz"))]
    return max(names, key=os.path.getmtime) if names else None


LIBRARY = find_library()
if LIBRARY is None:
    pytest.skip("no libmsprobe.so: build it, or set MSPROBE_LIB", allow_module_level=True)
lib = ctypes.CDLL(LIBRARY)
lib.msp_tensor_file_name.restype = ctypes.c_char_p
lib.msp_tensor_file_at.restype = ctypes.POINTER(Tensor)
lib.msp_tensor_file_count.restype = ctypes.c_size_t
for f in (lib.msp_tensor_file_name, lib.msp_tensor_file_at):
    f.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for f in (lib.msp_tensor_file_count, lib.msp_tensor_file_close):
    f.argtypes = [ctypes.c_void_p]


class Failed(Exception):
    def __init__(self, err):
        super().__init__(err.message.decode())
        self.status = err.status


def size_of(dtype):
    return torch.empty((), dtype=dtype).element_size()


def to_torch(t):
    """A copy of the view as a torch tensor."""
    dtype = getattr(torch, DTYPES[t.dtype])
    shape, strides = list(t.shape[:t.ndim]), list(t.strides[:t.ndim])
    if t.numel == 0:
        return torch.empty(shape, dtype=dtype)
    extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    raw = bytearray(ctypes.string_at(t.data, extent * size_of(dtype)))
    return torch.frombuffer(raw, dtype=dtype).as_strided(shape, strides)


def read(path):
    """{name: (tensor, requires_grad)} of a file."""
    handle, err = ctypes.c_void_p(), Error()
    if lib.msp_tensor_file_open(ctypes.byref(handle), os.fsencode(path), ctypes.byref(err)) != OK:
        raise Failed(err)
    out = {}
    for i in range(lib.msp_tensor_file_count(handle)):
        t = lib.msp_tensor_file_at(handle, i).contents
        out[lib.msp_tensor_file_name(handle, i).decode()] = (to_torch(t), bool(t.requires_grad))
    lib.msp_tensor_file_close(handle)
    return out


def read_one(path):
    t, err = Tensor(), Error()
    if lib.msp_tensor_open(ctypes.byref(t), os.fsencode(path), ctypes.byref(err)) != OK:
        raise Failed(err)
    out = to_torch(t).clone()
    lib.msp_tensor_release(ctypes.byref(t))
    return out


def save(function, path, tensor):
    t, err = Tensor(), Error()
    t.data, t.dtype, t.ndim, t.numel = tensor.data_ptr(), DTYPES.index(str(tensor.dtype)[6:]), tensor.dim(), tensor.numel()
    for i in range(tensor.dim()):
        t.shape[i], t.strides[i] = tensor.shape[i], tensor.stride(i)
    if function(os.fsencode(path), ctypes.byref(t), ctypes.byref(err)) != OK:
        raise Failed(err)


def raw(t):
    """Elements as bytes: NaN payloads count, and float8 can be compared."""
    return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def assert_same(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert raw(ours) == raw(theirs)


def flatten(obj, name=""):
    """{dotted name: tensor}, the rule of msp_tensor_file."""
    if isinstance(obj, torch.Tensor):
        return {name: obj}
    items = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, (list, tuple)) else ()
    out = {}
    for i, (key, value) in enumerate(items):
        part = str(key) if isinstance(key, (str, int)) else f"#{i}"
        out.update(flatten(value, f"{name}.{part}" if name else part))
    return out


READABLE = ["f32", "scalar", "empty", "strided", "expanded", "grad", "dtypes", "protocol4", "protocol1", "shared",
            "state_dict", "nested", "device", "v1", "deflated", "zip64", "big_endian", "no_crc", "legacy",
            "legacy_dict", "legacy_protocol4", "numbers", "torch113", "torch113_legacy"]


@pytest.mark.parametrize("name", READABLE)
def test_a_pt_file_reads_as_torch_reads_it(name):
    path = os.path.join(DATA, name + ".pt")
    try:
        expected = flatten(torch.load(path, weights_only=False, map_location="cpu"))
    except AttributeError as e:
        if TORCH2 or "Can't get attribute '_rebuild_" not in str(e):
            raise
        pytest.skip("torch %s does not read it: %s" % (torch.__version__, e))
    ours = read(path)
    assert list(ours) == list(expected)
    for key, tensor in expected.items():
        if name == "big_endian" and tensor.dtype == torch.uint16:
            tensor = torch.tensor([1, 2], dtype=torch.uint16)  # torch 2.13 forgets to turn untyped storages round
        assert_same(ours[key][0], tensor)
        assert ours[key][1] == tensor.requires_grad


def some_tensors():
    generator = torch.Generator().manual_seed(1)
    for dtype in filter(None, (getattr(torch, name, None) for name in DTYPES[1:])):  # torch 1.13 has neither float8 nor uint16
        for shape in ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4, 5)):
            n = int(np.prod(shape)) * size_of(dtype)
            data = torch.randint(0, 2 if dtype == torch.bool else 256, (n,), dtype=torch.uint8, generator=generator)
            yield data.view(dtype).reshape(shape) if n else torch.empty(shape, dtype=dtype)


def views():
    """The same elements through strides of every kind."""
    base = torch.arange(5 * 6 * 7, dtype=torch.int32).reshape(5, 6, 7)
    yield from (base.permute(p) for p in itertools.permutations(range(3)))
    yield from (base[1:, ::2], base[:, :, 3], base[::3, 1:2, ::3], base[2:3].expand(4, 6, 7), base[:, 2:4, 1:6])
    for itemsize in (torch.uint8, torch.int16, torch.float64, torch.complex128):
        yield base.to(itemsize)[:, ::2, 1::3].permute(2, 0, 1)
    yield torch.arange(600_000, dtype=torch.float32).reshape(2, 3, 100_000)[:, ::2]
    yield torch.arange(600_000, dtype=torch.float32).reshape(600, 1000).t()


@pytest.mark.parametrize("weights_only", [True, False])
def test_torch_reads_what_we_write(tmp_path, weights_only):
    path = tmp_path / "t.pt"
    for tensor in itertools.chain(some_tensors(), views()):
        save(lib.msp_pt_save, path, tensor)
        back = torch.load(path, weights_only=weights_only)
        assert_same(back, tensor)
        assert back.is_contiguous() and not back.requires_grad
        assert_same(read_one(path), tensor)


@pytest.mark.skipif(not TORCH2, reason="this torch maps no files")
def test_torch_maps_what_we_write(tmp_path):
    path = tmp_path / "t.pt"
    tensor = torch.randn(100, 100)
    save(lib.msp_pt_save, path, tensor)
    assert_same(torch.load(path, mmap=True, weights_only=True), tensor)


def test_torch_1_13_reads_what_we_write(tmp_path):
    """Debian 12 has that version; where it is missing there is nothing to test."""
    python = "/usr/bin/python3"
    code = "import torch; print(torch.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if found.returncode != 0 or not found.stdout.startswith("1."):
        pytest.skip("no torch 1.x for " + python)
    names = [n for n in DTYPES[1:] if n not in ("uint16", "uint32", "uint64") and not n.startswith("float8")]
    for name in names:
        save(lib.msp_pt_save, tmp_path / (name + ".pt"), torch.arange(6).reshape(2, 3).to(getattr(torch, name)))
    code = """
import sys, torch
for path in sys.argv[1:]:
    t = torch.load(path, weights_only=True)
    print(t.dtype, tuple(t.shape), t.to(torch.complex64).real.int().tolist())
"""
    out = subprocess.run([python, "-c", code] + [str(tmp_path / (n + ".pt")) for n in names], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    for name, line in zip(names, out):
        values = [[0, 1, 1], [1, 1, 1]] if name == "bool" else [[0, 1, 2], [3, 4, 5]]
        assert line == f"torch.{name} (2, 3) {values}"
    assert len(out) == len(names)


def test_what_we_write_is_a_sound_archive(tmp_path):
    path = tmp_path / "t.pt"
    save(lib.msp_pt_save, path, torch.randn(1000, 1000))
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.namelist() == ["archive/data.pkl", "archive/byteorder", "archive/data/0", "archive/version"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert os.listdir(tmp_path) == ["t.pt"]


def test_numpy_reads_what_we_write(tmp_path):
    path = tmp_path / "t.npy"
    for tensor in itertools.chain(some_tensors(), views()):
        if str(tensor.dtype)[6:] in MISSING_IN_NUMPY:
            with pytest.raises(Failed, match="NumPy has no type for torch") as e:
                save(lib.msp_npy_save, path, tensor)
            assert e.value.status == UNSUPPORTED
            continue
        save(lib.msp_npy_save, path, tensor)
        assert np.load(path).tobytes() == tensor.numpy().tobytes()
        assert np.load(path).shape == tuple(tensor.shape)
        assert_same(read_one(path), tensor)


def test_npy_files_read_as_numpy_reads_them(tmp_path):
    path = tmp_path / "a.npy"
    rng = np.random.default_rng(2)
    for code in ("f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16"):
        if code in ("u2", "u4", "u8") and not TORCH2:
            continue  # numbers that torch 1.13 has not
        for order, layout in itertools.product("<>", "CF"):
            a = rng.integers(0, 100, (3, 4, 5)).astype(order + code)
            np.save(path, np.asarray(a, order=layout))
            assert_same(read_one(path), torch.from_numpy(a.astype("<" + code)))


def test_safetensors_files_read_as_their_library_reads_them(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    tensors = {f"t.{i}": t for i, t in enumerate(some_tensors()) if t.dtype != torch.complex128}
    safetensors.save_file(tensors, path, {"k": "v"})
    ours = read(path)
    assert set(ours) == set(tensors)
    for key, tensor in tensors.items():
        assert_same(ours[key][0], tensor)


@pytest.mark.parametrize("legacy", [False, True])
def test_files_of_many_tensors_read_as_torch_reads_them(tmp_path, legacy):
    path = tmp_path / "many.pt"
    base = torch.arange(1000.0)
    tree = {"layers": [{"w": torch.randn(3, i + 1), "shared": base[i:i + 10]} for i in range(300)],
            "all": list(some_tensors())}
    torch.save(tree, path, _use_new_zipfile_serialization=not legacy)
    ours, expected = read(path), flatten(tree)
    assert list(ours) == list(expected)
    for key, tensor in expected.items():
        assert_same(ours[key][0], tensor)


REFUSED = {
    "sparse.pt": (UNSUPPORTED, "a sparse tensor: save it after .to_dense()"),
    "quantized.pt": (UNSUPPORTED, "a quantized tensor: save it after .dequantize()"),
    "meta.pt": (UNSUPPORTED, "a meta tensor, which holds no values"),
    "conj.pt": (UNSUPPORTED, "save it after .resolve_conj()"),
    "array.pt": (UNSUPPORTED, "a NumPy array"),
    "module.pt": (UNSUPPORTED, "refused torch.nn.modules.linear.Identity"),
    "complex32.pt": (UNSUPPORTED, "torch.complex32"),
    "script.pt": (UNSUPPORTED, "a TorchScript program"),
    "evil.pt": (UNSUPPORTED, "pickle byte 2: refused os.system"),
    "arrays.npz": (UNSUPPORTED, "an .npz archive"),
    "plain.pkl": (FORMAT, "not one that torch.save() wrote"),
    "objects.npy": (UNSUPPORTED, "objects"),
    "structured.npy": (UNSUPPORTED, "a structured array"),
    "text.npy": (UNSUPPORTED, "text"),
    "bfloat16_as_void.npy": (UNSUPPORTED, "bfloat16"),
    "longdouble.npy": (UNSUPPORTED, "of a type that is not read"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named(name):
    path = os.path.join(DATA, name)
    with pytest.raises(Failed) as e:
        read(path)
    status, text = REFUSED[name]
    assert e.value.status == status
    assert text in str(e.value)
    assert str(e.value).startswith(path + ": ")
    assert str(e.value).count(path) == 1
