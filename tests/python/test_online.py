"""Online run_ut: a training process and a checking process, two real ones, over loopback, TLS and a shared folder."""
import csv
import contextlib
import glob
import json
import os
import random
import signal
import socket
import struct
import shutil
import subprocess
import sys
import threading
import time
import zlib

import pytest

torch = pytest.importorskip("torch")

TRAIN = '''
import json, os, sys, time, torch
import torch.nn.functional as F
from msprobe import _core
from msprobe.pytorch import PrecisionDebugger
config, steps, fault, pause, rows = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "fault", sys.argv[4], int(sys.argv[5])
if fault:
    right = F.gelu
    F.gelu = lambda x: right(x) * 1.01
torch.manual_seed(7)
w = torch.randn(16, 8, requires_grad=True)
d = PrecisionDebugger(config)
losses = []
for step in range(steps):
    x = torch.randn(rows, 8, requires_grad=True)
    d.start()
    y = F.gelu(F.linear(x, w))
    for _ in range(10):
        y = torch.relu(y) + 1
    n = torch.bernoulli(torch.full((3,), 0.5))
    loss = F.softmax(y, dim=-1).pow(2).sum()
    loss.backward()
    d.stop(); d.step()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
    losses.append(loss.item().hex())
    print("STEP", step, flush=True)
    print("SENDER", (_core.online_counts() or {}).get("sender"), flush=True)
    if pause != "-":
        while not os.path.exists(pause):
            time.sleep(0.02)
print("LOSSES", json.dumps(losses), flush=True)
print("COUNTS", json.dumps(_core.online_counts()), flush=True)
'''
STEPS = 3


def command():
    return shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment():
    return dict(os.environ, MSPROBE_PYTHON=sys.executable)


class Pair:
    """The two sides with one way to meet."""

    def __init__(self, folder, **where):
        self.folder, self.where = str(folder), where
        self.dump, self.out, self.n = os.path.join(self.folder, "dump"), os.path.join(self.folder, "out"), 0
        self.running = []

    def write(self, name, value):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            json.dump(value, f)
        return path

    def check(self, *words, **keys):
        """Start a checker; returns when it is there."""
        self.n += 1
        config = self.write("check.json", {"run_ut": dict({"is_online": True, "rank_list": [0]}, **self.where, **keys)})
        log = open(os.path.join(self.folder, "check%d.log" % self.n), "w+")
        process = subprocess.Popen([command(), "-f", "pytorch", "multi_run_ut", "-n", "1", "-config", config, "-o",
                                    "%s%d" % (self.out, self.n), *words], stdout=log, stderr=log, env=environment(),
                                   start_new_session=True)
        process.log, process.out = log.name, "%s%d" % (self.out, self.n)
        self.running.append(process)
        wait_for(lambda: process.poll() is not None or "waiting for rank" in read(process.log))
        return process

    def train(self, steps=STEPS, fault=False, pause="-", wait=True, rows=4, rank=None, **keys):
        config = self.write("train.json", {"task": "tensor", "level": "L1", "dump_path": self.dump,
                                           "tensor": dict({"online_run_ut": True}, **self.where, **keys)})
        process = subprocess.Popen([sys.executable, "-c", TRAIN, config, str(steps), "fault" if fault else "-", str(pause),
                                    str(rows)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                   env=dict(os.environ, **({} if rank is None else {"RANK": str(rank), "WORLD_SIZE": "4"})))
        self.running.append(process)
        if not wait:
            return process
        text = process.communicate(timeout=300)[0]
        return process.returncode, text

    def rows(self, folder, kind="result"):
        found = {}
        for path in sorted(glob.glob("%s/step*/**/accuracy_checking_%s_*.csv" % (folder, kind), recursive=True)):
            step = os.path.relpath(path, folder).split(os.sep)[0]
            with open(path, encoding="utf-8-sig", newline="") as f:
                found.setdefault(step, []).extend(csv.DictReader(f))
        return found

    def calls(self):
        """What the dump itself says was called, by step."""
        found = {}
        for path in glob.glob("%s/step*/rank*/dump.json" % self.dump):
            with open(path) as f:
                names = json.load(f)["data"]
            found[os.path.relpath(path, self.dump).split(os.sep)[0]] = list(dict.fromkeys(n.rpartition(".")[0] for n in names))
        return found

    def close(self):
        for p in self.running:
            if p.poll() is None:
                end_group(p)


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL) if os.getpgid(process.pid) == process.pid else process.kill()
    except ProcessLookupError:
        pass
    process.wait()


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


def wait_for(condition, most=240):
    """Not a measurement: what is waited for comes, or the test fails in the end."""
    until = time.monotonic() + most
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def line_of(text, word):
    (line,) = [x for x in text.splitlines() if x.startswith(word + " ")]
    return json.loads(line[len(word) + 1:])


@pytest.fixture
def pair(tmp_path, request):
    made = []

    def make(**where):
        made.append(Pair(tmp_path, **(where or {"host": "127.0.0.1", "port": free_port()})))
        return made[-1]
    yield make
    for p in made:
        p.close()


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory):
    """Of the same program without a debugger that records."""
    folder = tmp_path_factory.mktemp("plain")
    config = str(folder / "c.json")
    with open(config, "w") as f:
        json.dump({"task": "statistics", "level": "L1", "dump_path": str(folder / "d"), "step": [1000]}, f)
    done = subprocess.run([sys.executable, "-c", TRAIN, config, str(STEPS), "-", "-", "4"], text=True, capture_output=True)
    return line_of(done.stdout, "LOSSES")


def openssl(*words, cwd):
    subprocess.run(["openssl", *words], cwd=cwd, check=True, capture_output=True)


def certificate(folder, side, ca="ca", days="2", address="127.0.0.1"):
    """side.key and side.crt, signed by the CA, for this address."""
    with open(os.path.join(folder, "ext"), "w") as f:
        f.write("subjectAltName=IP:%s\n" % address)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", side + ".key", "-out", side + ".csr", "-subj", "/CN=" + side, cwd=folder)
    dates = ["-days", days] if not days.startswith("-") else ["-days", "1"]
    if days.startswith("-"):  # one that is over: x509 takes no negative days, ca does
        expired(folder, side, ca)
    else:
        openssl("x509", "-req", "-in", side + ".csr", "-CA", ca + ".crt", "-CAkey", ca + ".key", "-CAcreateserial", "-out", side + ".crt",
                *dates, "-extfile", "ext", cwd=folder)
    os.chmod(os.path.join(folder, side + ".key"), 0o600)


def expired(folder, side, ca):
    with open(os.path.join(folder, "ca.cnf"), "w") as f:
        f.write("[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
    open(os.path.join(folder, "index"), "w").close()
    with open(os.path.join(folder, "serial"), "w") as f:
        f.write("01\n")
    openssl("ca", "-batch", "-config", "ca.cnf", "-in", side + ".csr", "-cert", ca + ".crt", "-keyfile", ca + ".key", "-out", side + ".crt",
            "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-notext", "-extfile", "ext", cwd=folder)


def authority(folder, name="ca"):
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-out", name + ".crt", "-subj", "/CN=" + name, "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", cwd=folder)
    os.chmod(os.path.join(folder, name + ".key"), 0o600)


@pytest.fixture
def keys(tmp_path):
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o750)
    authority(str(folder))
    certificate(str(folder), "server")
    certificate(str(folder), "client")
    return str(folder)


def check_whole(p, checker, text, losses=None):
    """Each call of each step has a row on both sides, in the order of the dump."""
    assert checker.wait(timeout=300) == 0, read(checker.log)
    calls = p.calls()
    assert len(calls) == STEPS and all(len(names) > 20 for names in calls.values())
    ours, theirs = p.rows(p.dump), p.rows(checker.out)
    assert {s: [r["API name"] for r in rows] for s, rows in ours.items()} == calls
    assert ours == theirs
    assert p.rows(p.dump, "details") == p.rows(checker.out, "details")
    by = {r["API name"]: r for r in ours["step0"]}
    assert by["Functional.linear.0"]["Forward Test Success"] == by["Functional.linear.0"]["Backward Test Success"] == "pass"
    assert "random" in by["Torch.bernoulli.0"]["Message"]
    assert not glob.glob(p.dump + "/step*/rank*/dump_tensor_data/*")
    assert not glob.glob(p.dump + "/.msprobe-online*")
    if losses is not None:
        assert line_of(text, "LOSSES") == losses
    assert "online_run_ut: %d calls checked" % sum(map(len, calls.values())) in text


def test_each_call_of_each_step_has_a_row_on_both_sides(pair, plain_losses):
    p = pair()
    checker = p.check()
    code, text = p.train(online_wait=120)
    assert code == 0, text
    check_whole(p, checker, text, plain_losses)


def test_a_wrong_result_of_the_training_is_named(pair):
    p = pair()
    checker = p.check("--fail-on", "error", "-save_error_data")
    code, text = p.train(steps=1, fault=True, online_wait=120)
    assert code == 0 and checker.wait(timeout=300) == 3, text + read(checker.log)
    wrong = [r["API name"] for r in p.rows(p.dump)["step0"] if r["Forward Test Success"] == "error"]
    assert wrong == ["Functional.gelu.0"]
    assert "Functional.gelu.0.forward.output.0: error" in read(checker.log)
    assert len(glob.glob(checker.out + "/ut_error_data*/step0_rank0/Functional.gelu.0.forward.*.pt")) == 3


def test_a_shared_folder_does_as_well(pair, tmp_path, plain_losses):
    shared = tmp_path / "shared"
    shared.mkdir()
    p = pair(nfs_path=str(shared))
    checker = p.check()
    code, text = p.train(online_wait=120)
    assert code == 0, text
    check_whole(p, checker, text, plain_losses)
    assert [n for n in os.listdir(shared) if n != "checker.alive"] == []


def test_over_tls_with_both_sides_verified(pair, keys, plain_losses):
    p = pair(host="127.0.0.1", port=free_port(), tls_path=keys)
    checker = p.check()
    code, text = p.train(online_wait=120)
    assert code == 0, text
    check_whole(p, checker, text, plain_losses)


@pytest.mark.parametrize("case,said,side", [
    ("expired server", "certificate has expired", "training"),
    ("expired client", "certificate has expired", "checker"),
    ("client of another authority", "the certificate of the sender was not accepted", "checker"),
    ("server of another authority", "the certificate of the checker was not accepted", "training"),
    ("server of another address", "IP address mismatch", "training"),
])
def test_a_wrong_certificate_is_refused_with_a_clear_line(pair, keys, case, said, side):
    who = "server" if "server" in case.split()[:2] else "client"
    if "expired" in case:
        certificate(keys, who, days="-1")
    elif "authority" in case:
        authority(keys, "other")
        certificate(keys, who, ca="other")
    else:
        certificate(keys, "server", address="127.0.0.9")
    p = pair(host="127.0.0.1", port=free_port(), tls_path=keys)
    checker = p.check()
    process = p.train(steps=1, pause=os.path.join(p.folder, "go"), online_wait=1, online_linger=0, wait=False)
    lines = []
    while not lines or not lines[-1].startswith("STEP"):
        lines.append(process.stdout.readline())
        assert lines[-1] != ""
    wait_for(lambda: "refused" in read(checker.log))
    if side == "checker":
        assert said in read(checker.log)
    open(os.path.join(p.folder, "go"), "w").close()
    text = "".join(lines) + process.communicate(timeout=300)[0]
    assert process.returncode == 0, text
    if side == "training":
        assert said in line_of(text, "COUNTS")["trouble"] and said in text
    assert line_of(text, "COUNTS")["answered"] == 0
    assert p.rows(checker.out) == {}


def old_tls(context):
    """A context of Python's that speaks TLS 1.1 and nothing newer."""
    import ssl
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def test_the_checker_refuses_tls_before_1_2(pair, keys):
    import ssl
    p = pair(host="127.0.0.1", port=free_port(), tls_path=keys)
    checker = p.check()
    context = ssl.create_default_context(cafile=os.path.join(keys, "ca.crt"))
    context.load_cert_chain(os.path.join(keys, "client.crt"), os.path.join(keys, "client.key"))
    with socket.create_connection(("127.0.0.1", p.where["port"])) as s, context.wrap_socket(s, server_hostname="127.0.0.1") as t:
        assert t.version() in ("TLSv1.2", "TLSv1.3")  # with these keys a newer one is let in
    with socket.create_connection(("127.0.0.1", p.where["port"])) as s, pytest.raises((ssl.SSLError, ConnectionError)):
        old_tls(context).wrap_socket(s, server_hostname="127.0.0.1")
    wait_for(lambda: "unsupported protocol" in read(checker.log))
    assert checker.poll() is None


@pytest.mark.parametrize("old", [True, False])
def test_the_sender_refuses_tls_before_1_2(pair, keys, old):
    import ssl
    p = pair(host="127.0.0.1", port=free_port(), tls_path=keys)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(keys, "server.crt"), os.path.join(keys, "server.key"))
    context.load_verify_locations(os.path.join(keys, "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    if old:
        old_tls(context)
    met = []

    def serve(listener):
        while not met:
            with contextlib.suppress(OSError):  # of ssl's and of a listener that is closed
                s, _ = listener.accept()
                try:
                    met.append(context.wrap_socket(s, server_side=True).version())
                except ssl.SSLError as e:
                    met.append(e.reason)
                s.close()

    with socket.create_server(("127.0.0.1", p.where["port"])) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        for _ in range(10):  # on a busy machine the training may be over before its sender has connected
            code, text = p.train(steps=1, online_wait=1, online_linger=0)
            assert code == 0 and line_of(text, "COUNTS")["answered"] == 0
            if met:
                break
        thread.join(60)
    assert len(met) == 1
    if old:
        assert met[0] not in ("TLSv1", "TLSv1.1") and "PROTOCOL" in met[0]
    else:
        assert met[0] in ("TLSv1.2", "TLSv1.3")


def test_a_client_without_certificate_is_refused(pair, keys):
    import ssl
    p = pair(host="127.0.0.1", port=free_port(), tls_path=keys)
    checker = p.check()
    context = ssl.create_default_context(cafile=os.path.join(keys, "ca.crt"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with socket.create_connection(("127.0.0.1", p.where["port"])) as s, context.wrap_socket(s, server_hostname="127.0.0.1") as t:
            t.sendall(b"MSPO")
            while t.recv(1000):
                pass
            raise ConnectionError
    talk(p.where["port"], b"MSPO\1\1\0\0" + bytes(8))  # and one without TLS
    wait_for(lambda: read(checker.log).count("refused") >= 2)
    assert "peer did not return a certificate" in read(checker.log)
    assert checker.poll() is None


def talk(port, data):
    """Say this to the checker, and hear it out."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port)) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while True:
                got = s.recv(4096)
                if not got:
                    break
                heard += got
        except OSError:  # ConnectionError, and ENOTCONN of shutdown()
            pass  # it was closed with something unread: refused
    return heard


def start_failure(p, **keys):
    code, text = p.train(steps=1, **keys)
    assert code != 0
    return text


def test_what_is_wrong_with_the_address_is_told_before_training(pair, keys, tmp_path):
    port = free_port()
    assert "without tls_path only 127.0.0.1 is allowed" in start_failure(pair(host="192.0.2.1", port=port))
    assert "nfs_path, or host and port" in start_failure(pair(host="127.0.0.1"))
    assert "must be a folder" in start_failure(pair(nfs_path=str(tmp_path / "none")))
    os.chmod(os.path.join(keys, "client.key"), 0o644)
    assert "client.key: others may read the key: chmod 600" in start_failure(pair(host="127.0.0.1", port=port, tls_path=keys))
    os.unlink(os.path.join(keys, "ca.crt"))
    os.chmod(os.path.join(keys, "client.key"), 0o600)
    assert "ca.crt" in start_failure(pair(host="127.0.0.1", port=port, tls_path=keys))


def test_the_checker_says_what_is_wrong_with_its_configuration(pair):
    p = pair(host="0.0.0.0", port=free_port())
    checker = p.check()
    assert checker.wait(timeout=60) == 1 and "without tls_path only 127.0.0.1 is allowed" in read(checker.log)
    p = pair()
    checker = p.check(is_online=False)
    assert checker.wait(timeout=60) == 1 and "is_online is not true" in read(checker.log)


# ---- what is judged ---------------------------------------------------------------------------------------------------------------------


class Made:
    """A call as it would have been sent, of tensors by name."""

    step, rank, reason = 0, 0, ""

    def __init__(self, folder, name, args, kwargs, output, backward=None, **tensors):
        from msprobe import _core
        from msprobe.replay import Call
        self.views = {}
        for key, t in tensors.items():
            path = str(folder / (key + ".pt"))
            torch.save(t.detach().clone(), path)
            self.views[key] = _core.load(path)
        self.tensors = tensors
        forward = {"input_args": [self.leaf(a) for a in args], "input_kwargs": {k: self.leaf(v) for k, v in kwargs.items()},
                   "output": [self.leaf(output)]}
        back = {"input": [self.leaf(backward[0])], "output": [self.leaf(backward[1])]} if backward else None
        self.call = Call(name, forward, back, self.views)

    def leaf(self, value):
        if value in self.tensors:
            t = self.tensors[value]
            return {"type": "torch.Tensor", "dtype": str(t.dtype), "shape": list(t.shape), "requires_grad": t.requires_grad, "data_name": value}
        return {"type": type(value).__name__, "value": value}


def verdict(made):
    from msprobe.precheck.online import check_sent
    _, row, _ = check_sent(made)
    return row.decode().strip().split(",", 3)[1:]


def test_dropout_of_zeros_is_judged_forward_only(tmp_path):
    x = torch.tensor([1.0, 0.0, 3.0, 4.0], requires_grad=True)
    y = torch.tensor([2.0, 0.0, 0.0, 8.0])
    gradient, back = torch.ones(4), torch.tensor([2.0, 2.0, 0.0, 2.0])  # the second one was kept, which its 0 does not show
    words = ("Functional.dropout.0", ["x"], {"p": 0.5, "training": True}, "y", ("g", "b"))
    assert verdict(Made(tmp_path, *words, x=x, y=y, g=gradient, b=back))[:2] == ["pass", "SKIP"]
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    y = torch.tensor([2.0, 4.0, 0.0, 8.0])
    assert verdict(Made(tmp_path, *words, x=x, y=y, g=gradient, b=back))[:2] == ["pass", "pass"]


def test_a_call_that_works_in_place_is_run_on_a_copy(tmp_path):
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    words = ("Functional.relu.0", ["x"], {"inplace": True}, "y", ("g", "b"))
    made = Made(tmp_path, *words, x=x, y=torch.tensor([0.0, 2.0]), g=torch.ones(2), b=torch.tensor([0.0, 1.0]))
    assert verdict(made)[:2] == ["pass", "pass"]


# ---- one side is killed, or is not what it says ----------------------------------------------------------------------------------------


def frame(kind, payload=b"", version=1):
    """A frame as docs/online-protocol.md has it."""
    return b"MSPO" + struct.pack("<BBHII", version, kind, 0, len(payload), zlib.crc32(payload)) + payload


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def hello(rank=0, lowest=1, highest=1):
    return frame(HELLO, struct.pack("<HH", lowest, highest) + os.urandom(16) + struct.pack("<Q", rank) + text("test"))


def frames(data):
    """[(kind, payload)] of what was heard."""
    found = []
    while data:
        assert data[:4] == b"MSPO"
        version, kind, zero, size, crc = struct.unpack("<BBHII", data[4:16])
        assert (version, zero, zlib.crc32(data[16:16 + size])) == (1, 0, crc)
        found.append((kind, data[16:16 + size]))
        data = data[16 + size:]
    return found


def a_call(number=1, rank=0, name="Torch.relu.0", tensors=b"", ntensors=0):
    return b"MSPCALL\1" + struct.pack("<QQQ", number, 0, rank) + text(name) + text("a reason") + text("{}") + text("") \
        + struct.pack("<I", ntensors) + tensors


def sent(call, number=1):
    return frame(CALL, struct.pack("<QQ", number, len(call))) + frame(DATA, call)


HELLO, WELCOME, REFUSED, CALL, DATA, VERDICT = 1, 2, 3, 4, 5, 6
GARBAGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    bytes(range(256)) * 64,
    b"MSPO",
    frame(HELLO, b"", version=9),
    frame(99),
    frame(DATA, b"without a greeting"),
    b"MSPO" + struct.pack("<BBHII", 1, HELLO, 0, 0xffffffff, 0),
    hello()[:-1] + b"x",
    hello() + hello(),
    hello() + frame(CALL, struct.pack("<QQ", 1, 1 << 60)),
    hello() + frame(CALL, struct.pack("<QQ", 1, 0)),
    hello() + frame(DATA, b"of no call"),
    hello() + frame(CALL, struct.pack("<QQ", 1, 10)) + frame(DATA, b"more than was said"),
    hello() + frame(VERDICT, struct.pack("<QB", 1, 1) + text("") + text("")),
]
BAD_CALLS = [
    b"nothing of the kind",
    a_call()[:-1],
    a_call() + b"more",
    a_call(number=2),
    a_call(rank=7),
    a_call(name="../../etc.passwd.0"),
    a_call(name="Torch.relu"),
    a_call(ntensors=0xffffffff),
    a_call(tensors=text("x") + struct.pack("<BBHQQQ", 2, 2, 0, 1 << 62, 1 << 62, 0), ntensors=1),
    a_call(tensors=text("x") + struct.pack("<BBHQQ", 2, 1, 0, 4, 1 << 40), ntensors=1),
    a_call(tensors=text("x") + struct.pack("<BBHQQ", 99, 1, 0, 1, 4) + bytes(64), ntensors=1),
]


def test_peers_that_send_garbage_are_refused_and_the_others_are_served(pair, plain_losses):
    p = pair()
    checker = p.check()
    for data in GARBAGE:
        talk(p.where["port"], data)
    for call in BAD_CALLS:
        with socket.create_connection(("127.0.0.1", p.where["port"])) as s:
            s.sendall(hello() + sent(call))
            heard = b""
            while len(frames_so_far(heard)) < 2:
                heard += s.recv(4096)
        (kind, _), (answer, verdict) = frames_so_far(heard)[:2]
        assert kind == WELCOME and answer == VERDICT and verdict[:13] == struct.pack("<QBI", 1, 0, 0) and b"damaged call" in verdict
    assert frames(talk(p.where["port"], hello(rank=5))) == [(REFUSED, text("rank 5 is not in the checker's rank_list [0]"))]
    assert frames(talk(p.where["port"], hello(lowest=2, highest=9))) == [(REFUSED, text("the checker speaks version 1 of the protocol"))]
    code, said = p.train(online_wait=120)
    assert code == 0, said
    check_whole(p, checker, said, plain_losses)


def test_who_does_not_greet_neither_takes_memory_nor_keeps_others_out(pair, plain_losses):
    p = pair()
    checker = p.check()
    idle = [socket.create_connection(("127.0.0.1", p.where["port"])) for _ in range(300)]  # more than the checker has places
    try:
        with socket.create_connection(("127.0.0.1", p.where["port"])) as s:
            s.sendall(hello())
            assert frames_so_far(s.recv(4096))[0][0] == WELCOME
        with socket.create_connection(("127.0.0.1", p.where["port"])) as s:
            with contextlib.suppress(OSError):  # it closes before everything is sent
                for _ in range(40):
                    s.sendall(b"MSPO" + struct.pack("<BBHII", 1, HELLO, 0, 16 << 20, 0) if _ == 0 else bytes(1 << 16))
            with contextlib.suppress(OSError):
                assert s.recv(1) == b""
        code, said = p.train(online_wait=120)
        assert code == 0, said
    finally:
        for s in idle:
            s.close()
    check_whole(p, checker, said, plain_losses)
    assert "its greeting does not end" in read(checker.log) and "others want to come in" in read(checker.log)


def frames_so_far(data):
    whole = 0
    while len(data) - whole >= 16:
        size = struct.unpack("<I", data[whole + 8:whole + 12])[0]
        if len(data) - whole - 16 < size:
            break
        whole += 16 + size
    return frames(data[:whole])


class FakeChecker(threading.Thread):
    """Takes connections, says `first`, and then reads (and answers) nothing."""

    def __init__(self, first):
        super().__init__(daemon=True)
        self.first, self.socket, self.taken = first, socket.socket(), []
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                peer = self.socket.accept()[0]
                self.taken.append(peer)
                peer.sendall(self.first)
            except OSError:
                return

    def close(self):
        self.socket.close()
        for peer in self.taken:
            peer.close()


@pytest.fixture
def fake():
    made = []

    def make(first):
        made.append(FakeChecker(first))
        return made[-1]
    yield make
    for f in made:
        f.close()


@pytest.mark.parametrize("first", [frame(WELCOME, struct.pack("<Q", 1 << 40)), b""], ids=["in the middle", "before it has greeted"])
def test_a_checker_that_stalls_costs_training_no_more_than_the_bound(pair, fake, first):
    p = pair(host="127.0.0.1", port=fake(first).port)
    code, said = p.train(rows=4096, online_limit=1, online_wait=1, online_linger=0)
    assert code == 0, said
    counts = line_of(said, "COUNTS")
    assert counts["answered"] == 0 and counts["left_out"] > 50
    # what is counted are the waits themselves, in pieces of at most 100 ms; nothing was answered, so that only the first step waits
    assert 1000 <= counts["longest_ms"] <= 1100 and counts["waited_ms"] == counts["longest_ms"]
    assert counts["waiting_bytes"] <= 1 << 20
    assert "tensors were left out for want of room" in said
    plain = p.train(rows=4096, online_run_ut=False)[1]
    assert line_of(said, "LOSSES") == line_of(plain, "LOSSES")


def test_a_checker_that_sends_garbage_costs_the_training_nothing(pair, fake, plain_losses):
    p = pair(host="127.0.0.1", port=fake(os.urandom(64).replace(b"M", b"m") * 1000).port)
    code, said = p.train(online_wait=1, online_linger=0)
    assert code == 0 and line_of(said, "LOSSES") == plain_losses
    assert "does not speak the protocol" in said


def count_rows(p):
    return sum(map(len, p.rows(p.dump).values()))


def test_a_checker_that_is_killed_again_and_again_loses_no_call(pair):
    p = pair()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    checker = p.check()
    code, said = p.train(online_wait=0, online_linger=600, steps=12)
    assert code == 0, said
    calls = p.calls()
    everything = sum(map(len, calls.values()))
    for target in sorted(random.Random(seed).sample(range(1, everything // 2), 3)):
        wait_for(lambda: count_rows(p) >= target)
        end_group(checker)
        if count_rows(p) == everything:  # the checks were faster than the knife
            break
        checker = p.check()
    wait_for(lambda: count_rows(p) == everything)
    assert {s: [r["API name"] for r in rows] for s, rows in p.rows(p.dump).items()} == calls
    assert not any(r["Message"].startswith("FAILED") for rows in p.rows(p.dump).values() for r in rows)


def test_a_sender_that_is_killed_is_followed_by_another(pair, plain_losses):
    p = pair()
    go = os.path.join(p.folder, "go")
    process = p.train(pause=go, online_wait=120, wait=False)
    lines = [process.stdout.readline() for _ in range(1)]
    while not lines[-1].startswith("SENDER"):
        lines.append(process.stdout.readline())
        assert lines[-1]
    os.kill(int(lines[-1].split()[1]), signal.SIGKILL)
    checker = p.check()
    open(go, "w").close()
    said = "".join(lines) + process.communicate(timeout=300)[0]
    assert process.returncode == 0 and line_of(said, "LOSSES") == plain_losses
    assert line_of(said, "COUNTS")["starts"] == 2
    assert checker.wait(timeout=300) == 0, read(checker.log)
    assert {s: sorted(r["API name"] for r in rows) for s, rows in p.rows(p.dump).items()} == {s: sorted(n) for s, n in p.calls().items()}


def test_calls_of_a_training_that_was_killed_are_still_checked(pair):
    p = pair()
    process = p.train(pause=os.path.join(p.folder, "never"), wait=False, online_linger=600)
    while not process.stdout.readline().startswith("SENDER"):
        pass
    process.kill()
    process.wait()
    checker = p.check()
    assert checker.wait(timeout=300) == 0, read(checker.log)
    assert {s: sorted(r["API name"] for r in rows) for s, rows in p.rows(checker.out).items()} == {s: sorted(n) for s, n in p.calls().items()}
    assert count_rows(p) == len(p.calls()["step0"]) > 20


def test_what_a_sender_had_to_send_when_it_was_killed_after_the_training_is_checked_from_the_dump(pair):
    p = pair()
    go = os.path.join(p.folder, "go")
    process = p.train(pause=go, wait=False, steps=2, online_linger=600, online_wait=0)
    line = ""
    while not line.startswith("SENDER"):
        line = process.stdout.readline()
        assert line
    sender = int(line.split()[1])
    checker = p.check(online_idle=20)
    wait_for(lambda: count_rows(p) > 5)
    os.kill(sender, signal.SIGSTOP)  # it sends nothing of the second step
    open(go, "w").close()
    process.communicate(timeout=300)
    os.kill(sender, signal.SIGKILL)
    assert checker.wait(timeout=300) == 1
    assert "0 of 1 ranks have ended in order" in read(checker.log) and "-csv_path" in read(checker.log)
    for step in ("step0", "step1"):
        (folder,) = glob.glob("%s/%s/rank*" % (p.dump, step))
        begun = [w for path in glob.glob(folder + "/accuracy_checking_result_*.csv") for w in ("-csv_path", path)]
        assert bool(begun) == (step == "step0")
        done = subprocess.run([command(), "run_ut", "-api_info", folder + "/dump.json", "-o", folder, *begun], text=True, capture_output=True, env=environment())
        assert done.returncode == 0, done.stdout + done.stderr
    assert {s: sorted(r["API name"] for r in rows) for s, rows in p.rows(p.dump).items()} == {s: sorted(n) for s, n in p.calls().items()}


def test_what_no_checker_has_seen_gets_rows_that_say_so(pair):
    p = pair()
    code, said = p.train(online_wait=1, online_linger=0, steps=1)
    assert code == 0 and "cannot connect: Connection refused" in said
    wait_for(lambda: count_rows(p) == len(p.calls()["step0"]))
    assert all("no checker answered within 0 s" in r["Message"] for r in p.rows(p.dump)["step0"])
    wait_for(lambda: not glob.glob(p.dump + "/.msprobe-online*"))
    assert not glob.glob(p.dump + "/step*/rank*/dump_tensor_data/*")


def test_two_ranks_are_checked_by_one_checker_and_a_third_is_refused(pair):
    p = pair()
    checker = p.check(rank_list=[0, 1])
    processes = [p.train(wait=False, steps=1, online_wait=120, rank=r) for r in (0, 1, 2)]
    said = [q.communicate(timeout=300)[0] for q in processes]
    assert [q.returncode for q in processes] == [0, 0, 0], said
    assert checker.wait(timeout=300) == 0, read(checker.log)
    assert "rank 2 is not in the checker's rank_list [0, 1]" in said[2]
    calls = p.calls()["step0"]
    for r in (0, 1):
        (path,) = glob.glob("%s/step0/accuracy_checking_result_*_rank%d.csv" % (checker.out, r))
        with open(path, encoding="utf-8-sig", newline="") as f:
            assert [row["API name"] for row in csv.DictReader(f)] == calls
    assert len(glob.glob(checker.out + "/step0/*")) == 4


def test_a_sender_that_is_killed_in_the_last_step_is_followed_by_another_at_the_end(pair):
    p = pair()
    go = os.path.join(p.folder, "go")
    process = p.train(pause=go, online_wait=120, wait=False, steps=1)
    lines = [""]
    while not lines[-1].startswith("SENDER"):
        lines.append(process.stdout.readline())
        assert lines[-1]
    os.kill(int(lines[-1].split()[1]), signal.SIGKILL)
    checker = p.check()
    open(go, "w").close()
    said = "".join(lines) + process.communicate(timeout=300)[0]
    assert process.returncode == 0, said
    assert checker.wait(timeout=300) == 0, read(checker.log)
    assert {s: [r["API name"] for r in rows] for s, rows in p.rows(p.dump).items()} == p.calls()
