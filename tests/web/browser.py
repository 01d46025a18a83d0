"""Debian's Chromium, driven through chromedriver's own protocol: HTTP and JSON, so nothing has to be installed for it."""
import base64
import json
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
import zlib

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--force-device-scale-factor=1", "--hide-scrollbars"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    def __init__(self, profile):
        port = free_port()
        self.base = "http://127.0.0.1:%d" % port
        self.driver = subprocess.Popen([shutil.which("chromedriver"), "--port=%d" % port], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.session = ""
        for _ in range(300):
            try:
                if self.call("GET", "/status")["ready"]:
                    break
            except OSError:
                time.sleep(0.1)
        options = {"binary": shutil.which("chromium"), "args": FLAGS + ["--user-data-dir=%s" % profile, "--window-size=1400,1000"]}
        made = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 240000, "pageLoad": 240000}}}})
        self.session = "/session/" + made["sessionId"]

    def call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        # not through any proxy: this is the loopback interface
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            return json.loads(opener.open(request, timeout=300).read())["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(json.loads(e.read())["value"]["message"]) from None

    def open(self, path, fragment="", ready=True):
        self.call("POST", self.session + "/url", {"url": "about:blank"})
        self.call("POST", self.session + "/url", {"url": path.as_uri() + fragment})
        if ready:
            self.until("return document.documentElement.dataset.ready === 'true'")

    def run(self, script, *args):
        return self.call("POST", self.session + "/execute/sync", {"script": script, "args": list(args)})

    def later(self, script, *args):
        """A script that calls its last argument when it is done."""
        return self.call("POST", self.session + "/execute/async", {"script": script, "args": list(args)})

    def until(self, script, *args):
        """Wait for a script to give something; the limit is only there so that a broken page ends the test."""
        for _ in range(1200):
            value = self.run(script, *args)
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError("never true: " + script)

    def find(self, selector):
        return self.call("POST", self.session + "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", self.session + "/element/%s/click" % self.find(selector))

    def type(self, selector, text):
        self.call("POST", self.session + "/element/%s/value" % self.find(selector), {"text": text})

    def press(self, key):
        self.call("POST", self.session + "/actions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector)

    def errors(self):
        log = self.call("POST", self.session + "/se/log", {"type": "browser"})
        return [line["message"] for line in log if line["level"] == "SEVERE"]

    def size(self, width, height):
        self.call("POST", self.session + "/window/rect", {"width": width, "height": height})

    def screenshot(self):
        return pixels(base64.b64decode(self.call("GET", self.session + "/screenshot")))

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()


def pixels(png):
    """The rows of an 8-bit RGB(A) PNG: a list of bytes, and how many bytes a pixel has."""
    at, packed, size, channels = 8, b"", (0, 0), 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
            channels = {2: 3, 6: 4}[body[9]]
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, width, rows = zlib.decompress(packed), size[0] * channels, []
    before = bytearray(width)
    for y in range(size[1]):
        kind, line = raw[y * (width + 1)], bytearray(raw[y * (width + 1) + 1:(y + 1) * (width + 1)])
        for x in range(width):
            a = line[x - channels] if x >= channels else 0
            b = before[x]
            if kind == 1:
                line[x] = (line[x] + a) & 255
            elif kind == 2:
                line[x] = (line[x] + b) & 255
            elif kind == 3:
                line[x] = (line[x] + (a + b) // 2) & 255
            elif kind == 4:
                c = before[x - channels] if x >= channels else 0
                pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
                line[x] = (line[x] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(bytes(line))
        before = line
    return rows, channels
