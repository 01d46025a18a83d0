"""Run a piece of a training script with the collector, in a process of its own, and look at what it left.

The process is a fork of this one, so that torch is loaded once; it exits as a script does, with everything that is registered for its end.
"""
import atexit
import functools
import importlib
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("msprobe.pytorch", reason="the extension is not built for this interpreter")

LIMIT = 600  # seconds: nothing here takes more than some on an idle machine, and whatever hangs is ended

# The whole suite can be run with MSPROBE_PLAIN=all. What is about the other way says so by this environment.
IN_PLACE = {"MSPROBE_PLAIN": ""}
PLAIN = os.environ.get("MSPROBE_PLAIN") == "all"
ALWAYS_BY_HOOKS = not hasattr(torch.nn.Module, "_wrapped_call_impl")  # an older torch calls modules from Python alone: nothing but hooks sees it
BY_HOOKS = PLAIN or ALWAYS_BY_HOOKS


class NoTool:
    """In the place of the debugger, for the same piece of code without it."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class Result:
    def __init__(self, status, output, folder, value):
        self.status, self.output, self.folder, self.value = status, output, folder, value

    def file(self, name="dump.json", step=0, rank="rank"):
        return os.path.join(self.folder, "step%d" % step, rank, name)

    def read(self, name="dump.json", step=0, rank="rank"):
        with open(self.file(name, step, rank), encoding="utf-8") as f:
            return json.load(f)

    def data(self, step=0, rank="rank"):
        return self.read("dump.json", step, rank)["data"]

    def names(self, step=0, rank="rank"):
        return list(self.data(step, rank))

    def construct(self, step=0, rank="rank"):
        return self.read("construct.json", step, rank)

    def stacks(self, step=0, rank="rank"):
        """name -> frames"""
        return {name: frames for names, frames in self.read("stack.json", step, rank).values() for name in names}

    def tensors(self, step=0, rank="rank"):
        folder = self.file("dump_tensor_data", step, rank)
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def tensor(self, name, step=0, rank="rank"):
        return torch.load(os.path.join(self.file("dump_tensor_data", step, rank), name))


def write_config(folder, task="statistics", level="L1", part=None, dump=None, **common):
    config = dict(task=task, level=level, dump_path=str(dump or folder / "dump"), **common)
    if part is not None:
        config[task] = part
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def in_process(folder, function, env=None, limit=LIMIT):
    """Fork, call function, exit as the interpreter does. Returns (exit status or -signal, output, what function returned)."""
    return finish(begin(folder, function, env), limit)


def begin(folder, function, env=None):
    log, value = folder / "output.txt", folder / "value.pickle"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.environ.update(env or {})
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
            torch.set_num_threads(1)
            try:
                value.write_bytes(pickle.dumps(function()))
                status = 0
            except SystemExit as e:
                status = e.code or 0
            except BaseException:
                traceback.print_exc()
            atexit._run_exitfuncs()
            sys.stdout.flush()
        finally:
            os._exit(status)
    return pid, log, value


def finish(begun, limit=LIMIT):
    pid, log, value = begun
    status = wait(pid, limit)
    text = log.read_text(errors="replace") if log.exists() else ""
    return status, text, pickle.loads(value.read_bytes()) if value.exists() and status == 0 else None


def wait(pid, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("still running after %d seconds" % limit)


def collect(folder, body, env=None, status=0, limit=LIMIT, **config):
    """body(debugger) in a process of its own, with a debugger made from the configuration; it must end with this status."""
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(folder, **config)
    got, output, value = in_process(folder, lambda: body(PrecisionDebugger(path)), env, limit)
    assert got == status, output
    return Result(got, output, str(folder / "dump"), value)


def ranks(folder, body, world=2, tool=True, limit=LIMIT, **config):
    """body(debugger, rank) in as many processes as there are ranks, joined by gloo. Returns the list of their results."""
    from msprobe.pytorch import PrecisionDebugger
    import torch.distributed as dist

    path = write_config(folder, **config)
    store = "file://%s" % (folder / ("store" if tool else "bare_store"))

    def run(rank):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
        try:
            return body(PrecisionDebugger(path) if tool else NoTool(), rank)
        finally:
            dist.destroy_process_group()

    begun = []
    for rank in range(world):
        own = folder / ("%s%d" % ("process" if tool else "bare", rank))
        own.mkdir()
        begun.append(begin(own, functools.partial(run, rank)))
    done = [finish(b, limit) for b in begun]
    for status, output, _ in done:
        assert status == 0, output
    return [Result(status, output, str(folder / "dump"), value) for status, output, value in done]


def gloo_makes(**calls):
    """name -> whether this torch's gloo makes that call; they are tried by one process alone."""
    import torch.distributed as dist

    def attempt():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        made = {}
        for name, call in calls.items():
            try:
                call()
                made[name] = True
            except RuntimeError:
                made[name] = False
        dist.destroy_process_group()
        return made

    folder = tempfile.mkdtemp()  # a TemporaryDirectory would go with the first process that ends
    try:
        status, output, made = in_process(pathlib.Path(folder), attempt)
    finally:
        shutil.rmtree(folder)
    assert status == 0, output
    return made


def bare(folder, body):
    """The same without the tool: what body returns."""
    status, output, value = in_process(folder, lambda: body(NoTool()))
    assert status == 0, output
    return value


def afresh(folder, body, tool=True, limit=LIMIT, **config):
    """As collect() and bare(), but in an interpreter of its own and not in a fork: torch itself may crash when several threads make the first calls
    after one. body stands at the top level of its module."""
    path = write_config(folder, **config) if tool else ""
    value = folder / "value.pickle"
    done = subprocess.run([sys.executable, os.path.abspath(__file__), body.__module__, body.__name__, str(value), path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit)
    assert done.returncode == 0, done.stdout
    return Result(done.returncode, done.stdout, str(folder / "dump"), pickle.loads(value.read_bytes()))


def run_afresh(module, name, value, config):
    """What the interpreter of afresh() does."""
    from msprobe.pytorch import PrecisionDebugger

    body = getattr(importlib.import_module(module), name)
    torch.set_num_threads(1)
    with open(value, "wb") as f:
        pickle.dump(body(PrecisionDebugger(config) if config else NoTool()), f)


def R(*shape, seed=0, grad=False, dtype=torch.float32):
    """Random numbers that are the same everywhere."""
    t = torch.randn(shape, generator=torch.Generator().manual_seed(seed + 17))
    t = t if dtype is torch.float32 else t.to(dtype)
    return t.requires_grad_() if grad else t


def fill(model):
    """Weights that depend on nothing but their place."""
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(R(*p.shape, seed=i) * 0.5)
    return model


def step(debugger, body, model=None):
    """One recorded step."""
    debugger.start(model)
    result = body()
    debugger.stop()
    debugger.step()
    return result


if __name__ == "__main__":
    run_afresh(*sys.argv[1:])


def until(condition, limit=LIMIT):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "nothing happened in %d seconds" % limit
        time.sleep(0.002)


def writers(folder):
    """Ids of the writer processes of this dump."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().split(b"\0")
            with open("/proc/%s/stat" % pid) as f:
                gone = f.read().rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if b"__write" in words and any(w.startswith(os.fsencode(str(folder))) for w in words) and not gone:
            found.append(int(pid))
    return found
