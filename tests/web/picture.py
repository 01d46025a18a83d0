"""A picture of a page's first screen, with the checksum of the bundle that drew it: see tools/page-picture."""
import base64
import hashlib
import struct
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEYWORD = b"msprobe bundle"


def bundle():
    return hashlib.sha256(b"".join((ROOT / "web/dist" / name).read_bytes() for name in ("page.js", "page.css"))).hexdigest()


def chunks(png):
    at = 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        yield at, kind, png[at + 8:at + 8 + length]
        at += 12 + length


def sign(png):
    """The picture with the checksum in a text chunk before its end."""
    body = KEYWORD + b"\0" + bundle().encode()
    chunk = struct.pack(">I", len(body)) + b"tEXt" + body + struct.pack(">I", zlib.crc32(b"tEXt" + body))
    end = next(at for at, kind, _ in chunks(png) if kind == b"IEND")
    return png[:end] + chunk + png[end:]


def signature(png):
    return next((body.split(b"\0")[1].decode() for _, kind, body in chunks(png) if kind == b"tEXt" and body.startswith(KEYWORD)), None)


if __name__ == "__main__":
    from browser import Browser
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        try:
            browser.size(1280, 900)
            browser.open(Path(sys.argv[1]).resolve())
            png = base64.b64decode(browser.call("GET", browser.session + "/screenshot"))
        finally:
            browser.close()
    Path(sys.argv[2]).write_bytes(sign(png))
