#!/usr/bin/env python3
"""Write the sample files in this directory. Needs torch 2.13, numpy and safetensors."""
import io
import os
import struct
import zipfile
import zlib

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


if __name__ == "__main__":
    make_zip()
