#!/usr/bin/env python3
"""Write the sample files in this directory. Needs torch 2.13, numpy and safetensors.

Run with torch 1.13, as Debian 12 has it, it writes the samples of that version instead.
"""
import io
import os
import pickle
import struct
import zipfile
import zlib

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(HERE, name)


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)


def archive(entries, method=zipfile.ZIP_STORED, comment=b"", zip64=False):
    """A zip of {name: bytes} as Python writes it, with a fixed date."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.comment = comment
        for name, data in entries.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            with z.open(info, "w", force_zip64=zip64) as f:
                f.write(data)
    return out.getvalue()


def zip64_everywhere(entries):
    """A zip whose directory and end record use the ZIP64 forms for every field, which Python does only past 4 GiB."""
    body, directory = b"", b""
    for name, data in entries.items():
        raw, crc, at = name.encode(), zlib.crc32(data), len(body)
        body += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0, 0, 0, 33, crc, 2**32 - 1, 2**32 - 1, len(raw), 20)
        body += raw + struct.pack("<HHQQ", 1, 16, len(data), len(data)) + data
        directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 45, 45, 0, 0, 0, 33, crc, 2**32 - 1, 2**32 - 1,
                                 len(raw), 28, 0, 0, 0, 0, 2**32 - 1)
        directory += raw + struct.pack("<HHQQQ", 1, 24, len(data), len(data), at)
    at = len(body)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, len(entries), len(entries), len(directory), at)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    return body + directory + end64 + locator + end


def make_zip():
    entries = {"dir/hello.txt": b"hello, world", "dir/empty": b"", "a": b"abc" * 100}
    write("stored.zip", archive(entries))
    write("deflated.zip", archive(entries, zipfile.ZIP_DEFLATED))
    write("comment.zip", archive(entries, comment=b"a comment with PK\5\6 in it, longer than an end record"))
    write("prefixed.zip", b"#!/bin/sh\nexec something\n" + archive(entries))
    write("zip64.zip", zip64_everywhere(entries))
    write("zip64_prefixed.zip", b"something in front" + zip64_everywhere(entries))
    write("bzip2.zip", archive(entries, zipfile.ZIP_BZIP2))
    write("nothing.zip", archive({}))
    encrypted = bytearray(archive({"secret": b"xyzzy"}))
    encrypted[6] |= 1
    encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
    write("encrypted.zip", bytes(encrypted))


def saved(obj, **options):
    out = io.BytesIO()
    torch.save(obj, out, **options)
    return out.getvalue()


def entries_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {i.filename: z.read(i) for i in z.infolist()}


def pickled(body):
    """A .pt whose data.pkl is given by hand, with one storage of 24 bytes."""
    return archive({"archive/data.pkl": body, "archive/data/0": np.arange(6, dtype="<f4").tobytes(),
                    "archive/version": b"3\n"})


STORAGE = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ"
HOOKS = b"ccollections\nOrderedDict\n)R"

DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
          "complex64", "complex128"]


def one_of_each():
    """Elements 0, 1, 2 in every type."""
    return {name: torch.tensor([0, 1, 2]).to(getattr(torch, name)) for name in DTYPES}


def make_pt():
    f32 = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    write("f32.pt", saved(f32))
    write("scalar.pt", saved(torch.tensor(-2.5, dtype=torch.float64)))
    write("empty.pt", saved(torch.empty(0, 3)))
    write("strided.pt", saved(torch.arange(24, dtype=torch.int32).reshape(4, 6)[1:, ::2].t()))
    write("expanded.pt", saved(torch.tensor([7.0]).expand(3, 4)))
    write("grad.pt", saved(torch.ones(2, requires_grad=True)))
    write("dtypes.pt", saved(one_of_each()))
    write("protocol4.pt", saved({"a": f32, "b": [f32[1]]}, pickle_protocol=4))
    write("protocol1.pt", saved({"a": f32}, pickle_protocol=1))

    base = torch.arange(10, dtype=torch.int64)
    write("shared.pt", saved({"all": base, "tail": base[7:], "same": base}))
    linear = torch.nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(f32)
        linear.bias.copy_(torch.tensor([10.0, 20.0]))
    write("state_dict.pt", saved(linear.state_dict()))
    tagged = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    tagged.note = "an attribute"
    plain = torch.tensor([3.0])
    plain.note = 5
    write("nested.pt", saved({
        "model": {"layers": [{"w": f32}, {"w": f32 + 1}], "p": torch.nn.Parameter(f32 * 2)},
        "optimizer": {0: (torch.tensor(1), None), (1, 2): torch.tensor(2)},
        "tagged": tagged, "plain": plain, "lr": 0.1, "name": "x", "steps": 10**30, "flags": {True, 2.5},
        "shape": torch.Size([2, 3]), "device": torch.device("cpu"), "dtype": torch.bfloat16,
        "layout": torch.strided, "scalar": np.float64(1.5), "raw": b"abc", "nothing": None}))
    write("device.pt", pickled(b"\x80\x02ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n(ctorch._utils\n"
                               b"_rebuild_tensor_v2\n(" + STORAGE + b"K\0K\x06\x85K\x01\x85\x89" + HOOKS +
                               b"tRctorch\nfloat32\nX\x05\0\0\0npu:0\x89tR."))
    write("npu.pt", pickled(b"\x80\x02ctorch_npu.utils.storage\n_rebuild_npu_tensor\n(" + STORAGE +
                            b"K\0K\x02K\x03\x86K\x03K\x01\x86\x88" + HOOKS + b"K\x02tR."))
    write("v1.pt", pickled(b"\x80\x02ctorch._utils\n_rebuild_tensor\n(" + STORAGE +
                           b"K\x01K\x05\x85K\x01\x85tR."))

    write("deflated.pt", archive(entries_of(saved({"a": f32, "b": torch.zeros(1000)})), zipfile.ZIP_DEFLATED))
    write("zip64.pt", zip64_everywhere(entries_of(saved(f32))))
    swapped = entries_of(saved({"f": f32, "c": torch.tensor([1 + 2j]), "b": torch.tensor([True, False]),
                                "h": torch.tensor([1, 2], dtype=torch.uint16)}))
    for key, width in (("0", 4), ("1", 4), ("2", 1), ("3", 2)):
        raw = np.frombuffer(swapped["archive/data/" + key], dtype=f"V{width}" if width == 1 else f"<u{width}")
        swapped["archive/data/" + key] = raw.tobytes() if width == 1 else raw.byteswap().tobytes()
    swapped["archive/byteorder"] = b"big"
    write("big_endian.pt", archive(swapped))
    torch.serialization.set_crc32_options(False)
    write("no_crc.pt", saved(f32))
    torch.serialization.set_crc32_options(True)

    old = dict(_use_new_zipfile_serialization=False)
    write("legacy.pt", saved(f32, **old))
    write("legacy_dict.pt", saved({"a": f32, "b": f32[1], "c": torch.arange(5), "d": [torch.tensor([True])]}, **old))
    write("legacy_untyped.pt", saved({"h": torch.tensor([1, 2], dtype=torch.uint16)}, **old))
    write("legacy_protocol4.pt", saved({"a": f32}, pickle_protocol=4, **old))

    write("sparse.pt", saved(torch.eye(3).to_sparse()))
    write("quantized.pt", saved(torch.quantize_per_tensor(f32, 0.1, 0, torch.qint8)))
    write("meta.pt", saved(torch.empty(2, device="meta")))
    write("conj.pt", saved(torch.tensor([1 + 2j]).conj()))
    write("array.pt", saved({"a": np.arange(3)}))
    write("module.pt", saved(torch.nn.Identity()))
    write("complex32.pt", saved(torch.tensor([1 + 2j], dtype=torch.complex32)))
    script = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Identity()), script)
    write("script.pt", script.getvalue())
    write("evil.pt", pickled(b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."))
    write("numbers.pt", saved({"lr": 0.1, "steps": [1, 2, 3]}))
    arrays = io.BytesIO()
    np.savez(arrays, a=np.arange(3))
    write("arrays.npz", arrays.getvalue())
    pickle_only = io.BytesIO()
    pickle.dump([1, 2, 3], pickle_only, protocol=2)
    write("plain.pkl", pickle_only.getvalue())


def npy(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


def make_npy():
    for name in ["float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
                 "uint64", "bool", "complex64", "complex128"]:
        write(name + ".npy", npy(np.array([0, 1, 2]).astype(name)))
    a = np.arange(6, dtype="<f4").reshape(2, 3)
    write("matrix.npy", npy(a))
    write("fortran.npy", npy(np.asfortranarray(a)))
    write("big_endian.npy", npy(a.astype(">f4")))
    write("big_endian_complex.npy", npy(np.array([1 + 2j], dtype=">c16")))
    write("version2.npy", npy(a, version=(2, 0)))
    write("version3.npy", npy(a, version=(3, 0)))
    write("scalar.npy", npy(np.array(-2.5)))
    write("empty.npy", npy(np.empty((0, 3), dtype="<i8")))
    write("objects.npy", npy(np.array([1, "a"], dtype=object)))
    write("structured.npy", npy(np.zeros(2, dtype=[("x", "<f4"), ("y", "<i4")])))
    write("text.npy", npy(np.array(["abc", "d"])))
    write("bfloat16_as_void.npy", npy(np.zeros(2, dtype="V2")))
    write("longdouble.npy", npy(np.zeros(2, dtype=np.longdouble)))
    write("bfloat16.npy", named_npy(b"bfloat16", np.array([0, 0x3F80, 0x4000], dtype="<u2")))


def named_npy(descr, array):
    header = b"{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (descr, len(array))
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()


def make_safetensors():
    from safetensors.torch import save

    f32 = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    write("two.safetensors", save({"b.weight": f32, "a": torch.tensor([5], dtype=torch.int64)}, {"format": "pt"}))
    supported = {k: v for k, v in one_of_each().items() if k not in ("complex128",)}
    write("dtypes.safetensors", save(supported))
    write("shapes.safetensors", save({"scalar": torch.tensor(-2.5), "empty": torch.empty(0, 3), "cube": f32.reshape(1, 2, 3)}))
    write("nothing.safetensors", save({}))


def make_old():
    tree = {"a": torch.arange(6.0).reshape(2, 3).t(), "p": torch.nn.Parameter(torch.ones(2)),
            "b": [torch.tensor([1, 2], dtype=torch.bfloat16)]}
    write("torch113.pt", saved(tree))
    write("torch113_legacy.pt", saved(tree, _use_new_zipfile_serialization=False))


if __name__ == "__main__":
    if torch.__version__.startswith("1."):
        make_old()
    else:
        make_zip()
        make_pt()
        make_npy()
        make_safetensors()
