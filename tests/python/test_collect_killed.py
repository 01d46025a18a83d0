"""Nothing recorded is lost, whoever is killed, and a full disk ends recording and not the training."""
import contextlib
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
from collecting import R, begin, collect, fill, finish, step, torch, until, write_config, writers

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from msprobe.core.common.exceptions import MsprobeException  # noqa: E402

FILES = ("dump.json", "stack.json", "construct.json")
COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


class Progress:
    """(number of calls made, time) in memory that survives the process that writes it."""

    def __init__(self):
        self._map = mmap.mmap(-1, 1 << 20)

    def note(self, n):
        self._map[8 * n:8 * n + 8] = struct.pack("d", time.time())
        self._map[0:8] = struct.pack("q", n)

    def count(self):
        return struct.unpack("q", self._map[0:8])[0]

    def older_than(self, moment):
        return sum(0 < struct.unpack("d", self._map[8 * n:8 * n + 8])[0] < moment for n in range(1, self.count() + 1))


def train(folder, progress, task="statistics", level="mix", pause=0.0):
    """A real training loop that never ends; each torch.sin() in it is counted."""
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(folder, task=task, level=level)

    def body():
        model = fill(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)))
        d = PrecisionDebugger(path)
        n = 0
        d.start(model)
        while n < 100000:
            model(R(2, 3)).sum().backward()
            torch.sin(R(2))
            n += 1
            progress.note(n)
            time.sleep(pause)

    return begin(folder, body)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def sins(folder):
    """How many of the counted calls the three files hold; they must be valid JSON."""
    texts = []
    for name in FILES:
        with open(os.path.join(str(folder), "dump", "step0", "rank", name), encoding="utf-8") as f:
            texts.append(f.read())
    values = [json.loads(t) for t in texts]
    return sum(name.startswith("Torch.sin.") and "output" in record for name, record in values[0]["data"].items())


@pytest.mark.parametrize("seed", range(4))
def test_the_training_process_is_killed(tmp_path, seed):
    moment = random.Random(seed).uniform(0.0, 0.6) if seed < 2 else random.Random(seed).uniform(1.5, 2.5)
    progress = Progress()
    pid, _, _ = train(tmp_path, progress, pause=0.0005)
    until(lambda: progress.count() > 0)
    time.sleep(moment)
    killed = time.time()
    kill(pid)
    made, old = progress.count(), progress.older_than(killed - 1.0)
    assert sins(tmp_path) >= old  # at once, and nothing was run
    until(lambda: not writers(tmp_path))
    assert made <= sins(tmp_path) <= made + 1  # the writer outlives its parent and finishes


def test_the_writer_is_killed(tmp_path):
    """Training goes on, and so does recording: what it had not written is not lost."""
    def body(d):
        model = fill(nn.Sequential(nn.Linear(3, 2)))
        d.start(model)
        for i in range(300):
            model(R(2, 3)).sum().backward()
            torch.sin(R(2))
            if i in (100, 200):
                for pid in writers(tmp_path):
                    os.kill(pid, signal.SIGKILL)
        d.stop()
        d.step()
        return True

    result = collect(tmp_path, body, level="mix")
    assert result.value and sins(tmp_path) == 300, result.output


def test_the_writer_is_killed_and_the_training_process_later(tmp_path):
    """A step that does not end waits for nothing, and nobody would have noticed."""
    progress = Progress()
    pid, _, _ = train(tmp_path, progress, pause=0.0005)
    until(lambda: progress.count() > 0)
    for writer in writers(tmp_path):
        os.kill(writer, signal.SIGKILL)
    time.sleep(3.0)
    killed = time.time()
    kill(pid)
    assert sins(tmp_path) >= progress.older_than(killed - 1.0) > 0
    until(lambda: not writers(tmp_path))
    assert progress.count() <= sins(tmp_path) <= progress.count() + 1


def test_a_program_without_free_descriptors_still_has_one_writer(tmp_path):
    """It cannot look the writer up, and must not take it for dead."""
    def body(d):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        x, held, count, began = R(2), [], 0, time.monotonic()
        d.start()
        torch.sin(x)
        mine = writers(tmp_path)
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        while time.monotonic() < began + 1.5:
            torch.sin(x)
            count += 1
        for fd in held:
            os.close(fd)
        now = writers(tmp_path)
        d.stop()
        d.step()
        return mine, now, count + 1

    r = collect(tmp_path, body)
    mine, now, count = r.value
    assert mine == now and len(now) == 1 and sins(tmp_path) == count
    assert "[WARNING]" not in r.output and "writer" not in r.output, r.output


def test_a_file_size_limit_below_what_we_need_is_told_at_start(tmp_path):
    def body(d):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        with pytest.raises(MsprobeException, match="dump_path is .*File too large"):
            d.start()

    collect(tmp_path, body)


@pytest.mark.parametrize("seed", range(2))
def test_everything_is_killed_and_readers_find_the_rest(tmp_path, seed):
    progress = Progress()
    pid, _, _ = train(tmp_path, progress)
    until(lambda: progress.count() > 200 + 100 * seed)
    for writer in writers(tmp_path):
        os.kill(writer, signal.SIGKILL)
    os.kill(pid, signal.SIGSTOP)  # so that no other writer is started
    for writer in writers(tmp_path):
        os.kill(writer, signal.SIGKILL)
    kill(pid)
    until(lambda: not writers(tmp_path))
    made, there = progress.count(), sins(tmp_path)  # valid as it is
    assert there <= made + 1
    done = subprocess.run([COMMAND, "compare", str(tmp_path / "dump"), str(tmp_path / "dump"), "-o", str(tmp_path / "out")], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert made <= sins(tmp_path) <= made + 1
    assert [n for n in os.listdir(tmp_path / "dump") if not n.startswith("step")] == []


@pytest.mark.parametrize("seed", range(3))
def test_tensor_files_are_whole_or_absent(tmp_path, seed):
    progress = Progress()
    pid, _, _ = train(tmp_path, progress, task="tensor", level="L1")
    until(lambda: progress.count() > 5)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    kill(pid)
    until(lambda: not writers(tmp_path))
    sins(tmp_path)
    folder = tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data"
    names = [n for n in os.listdir(folder) if n.endswith(".pt")]
    assert len(names) > 20
    for name in names:
        assert torch.load(folder / name, weights_only=True) is not None


def test_a_writer_that_does_not_keep_up_slows_the_program_and_memory_stays_bounded(tmp_path):
    """The writer stands still for a second and a half: the ring fills, the program waits, and nothing is lost or kept aside."""
    class Module:
        @staticmethod
        def api(text):
            return torch.sin(R(2))

    def memory():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def body(d):
        text, calls = "x" * (128 << 10), 0
        d.register_custom_api(Module, "api", "Mine")
        d.start()
        Module.api(text)
        before = memory()
        stopped = writers(tmp_path)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        threading.Timer(1.5, lambda: [os.kill(pid, signal.SIGCONT) for pid in stopped]).start()
        end = time.monotonic() + 1.6
        while time.monotonic() < end:
            Module.api(text)
            calls += 1
        grown = memory() - before
        d.stop()
        d.step()
        return calls, grown, len(stopped)

    result = collect(tmp_path, body)
    calls, grown, stopped = result.value
    assert stopped == 1 and calls >= 250  # the ring holds 256 of them
    assert grown < 64 << 20  # the ring itself is 32 MiB, shared with its file
    assert len(result.names()) == calls + 1


def test_leaving_without_stop_loses_nothing(tmp_path):
    def body(d):
        d.start()
        for _ in range(50):
            torch.sin(R(2))

    collect(tmp_path, body)
    assert sins(tmp_path) == 50


def test_an_exception_that_ends_the_script_loses_nothing(tmp_path):
    def body(d):
        d.start()
        for i in range(50):
            torch.sin(R(2))
        raise RuntimeError("training failed")

    collect(tmp_path, body, status=1)
    assert sins(tmp_path) == 50


# ---- no room ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["12m", "36m"], ids=["full at start", "full later"])
def small_disk(tmp_path, request):
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%s,mode=0750" % request.param, "msprobe-test", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("no file system can be mounted here: " + done.stderr.strip())
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def leave(folder, room):
    """Fill the file system of the folder until so many bytes are left."""
    with open(folder / "ballast", "wb", buffering=0) as f:
        try:
            while f.write(bytes(65536)) == 65536:
                pass
        except OSError:
            pass
        f.truncate(max(f.tell() - room, 0))


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_full_disk_ends_recording_and_not_the_training(small_disk, task):
    def body(d):
        losses = []
        weight = nn.Parameter(torch.ones(64, 64))
        big = {"list": [float(i) for i in range(2000)]}
        for _ in range(3):
            d.start()
            leave(small_disk, 256 * 1024)  # a fifth of what one step of statistics takes
            for i in range(300):
                loss = F.linear(R(4, 64, seed=i), weight).sum()
                loss.backward()
                torch.sum(torch.tensor(big["list"]))
                losses.append(loss.item())
            d.stop()
            d.step()
        return losses

    result = collect(small_disk.parent, body, task=task, dump=small_disk / "dump")
    assert len(result.value) == 900 and all(x == x for x in result.value)
    assert result.output.count("recording has ended") == 1, result.output
    assert "No space left on device" in result.output and str(small_disk) in result.output
    for folder, _, names in os.walk(small_disk / "dump"):
        for name in names:
            if name in FILES:
                with open(os.path.join(folder, name)) as f:
                    json.load(f)
            elif name.endswith(".pt"):
                torch.load(os.path.join(folder, name), weights_only=True)


@pytest.mark.parametrize("task", ["statistics", "structure", "overflow_check"])
def test_a_disk_that_was_full_before_the_first_record_is_the_reason_that_is_told(small_disk, task):
    def body(d):
        leave(small_disk, 256 * 1024)
        d.start(model)
        model(R(2, 3))
        d.stop()
        d.step()

    model = nn.Sequential(nn.Linear(3, 3))
    output = collect(small_disk.parent, body, task=task, level="mix", dump=small_disk / "dump").output
    last = output.splitlines()[-1]
    assert "[ERROR] nothing was recorded: recording could not go on" in last and "No space left on device" in last, output
    assert "no overflow" not in output


def test_a_folder_that_cannot_be_made_is_told_at_start(tmp_path):
    """One that stood in the way before is told by the constructor."""

    def body(d):
        (tmp_path / "dump").write_text("a file is in the way")
        with pytest.raises(MsprobeException) as e:
            step(d, lambda: torch.sin(R(2)))
        return str(e.value)

    result = collect(tmp_path, body)
    assert "dump_path is %r" % str(tmp_path / "dump") in result.value
