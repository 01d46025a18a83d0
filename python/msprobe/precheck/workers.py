"""Calls shared out among processes; one process writes, in the order of the dump.

A worker that dies (a kernel that crashes) costs the call that it was at: that gets a row which says so, and another worker
goes on. A call's details are written before its result, so that whoever continues knows what is complete. The result file is
locked while it is written, and workers end with the process that started them: whoever continues is alone.
"""
import contextlib
import fcntl
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import warnings

from msprobe import _core
from msprobe.precheck.calls import left_out, printable
from msprobe.replay import Dump
from msprobe.replay.room import LARGE, size_of, too_large

BATCH = 16  # calls handed to a worker at a time: a message each would cost as much as a small call
LOCK_WAIT = 5  # seconds: what a killed run has started ends after it


def serve(connection, path, number, work, parent):
    """A worker: names come in, (name, answer) go out. work: a Check or OverflowCheck."""
    _core.end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the first process ends this one
    import torch

    from msprobe.precheck.check import device_name
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's about calls that are the program's, not ours: they were told when it ran
    dump, device = Dump(path), device_name(number)
    while True:
        names = connection.recv()
        if not names:
            return
        for name in names:
            try:
                call = dump.call(name)
                with alone(dump.path, call) as reason:
                    answer = work.answer(call, device) if reason is None else work.left_out(name, "FAILED: " + reason)
            except Exception as e:
                answer = work.left_out(name, "FAILED: %s: %s" % (type(e).__name__, (str(e).splitlines() or [""])[0][:200]))
            connection.send((name, answer))


@contextlib.contextmanager
def alone(path, call):
    """Large calls are run one at a time. Yields why this one is not run at all, or None."""
    size = size_of(call.forward) + size_of(call.backward)
    if size <= LARGE:
        yield None
        return
    with open(path, "rb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # given back when a process dies
        yield too_large(size)


class Worker:
    def __init__(self, context, path, number, work):
        self.end, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, path, number, work, os.getpid()), daemon=True)
        self.process.start()
        theirs.close()
        self.names = []

    def give(self, names):
        self.names = list(names)
        try:
            self.end.send(self.names)
        except OSError:
            pass  # it has died: its end of the pipe tells


def write_all(file, text):
    while text:
        text = text[file.write(text):]


class InOrder:
    """Answers in the order of the calls."""

    def __init__(self, order):
        self.order, self.waiting, self.next = order, {}, 0

    def put(self, name, answer):
        self.waiting[name] = answer
        while self.next < len(self.order) and self.order[self.next] in self.waiting:
            self.write(*self.waiting.pop(self.order[self.next]))
            self.next += 1


class Writer(InOrder):
    """Appends to both files."""

    def __init__(self, files, order):
        super().__init__(order)
        self.files = files

    def write(self, result, details):
        for file, text in zip(self.files, (details, result)):
            write_all(file, text)


class Printer(InOrder):
    """Lines on the screen."""

    failed = False

    def write(self, line, is_fault):
        print(printable(line), flush=True)
        self.failed = self.failed or is_fault


def begin(result, details, resume):
    """((details, result) as files to append to, APIs that are done already as precheck_name() writes them)."""
    os.makedirs(os.path.dirname(result) or ".", mode=0o750, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | (0 if resume else os.O_CREAT | os.O_EXCL)
    files = [open(os.open(result, flags), "a+b", buffering=0)]
    lock(files[0], result)
    if resume and holds_no_row(files[0]):
        files[0].truncate(0)  # it was killed before its first row
        resume = False
    files.append(open(os.open(details, (flags & ~os.O_EXCL) | (0 if resume else os.O_CREAT | os.O_TRUNC), 0o640), "a+b", buffering=0))
    if resume:
        return files[::-1], _core.precheck_resume(result, details)
    for file, header in zip(files, _core.precheck_headers()):
        file.write(header)
    return files[::-1], set()


def holds_no_row(file):
    header = _core.precheck_headers()[0]
    file.seek(0)
    return header.startswith(file.read(len(header) + 1))


def lock(file, path):
    end = time.monotonic() + LOCK_WAIT
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise ValueError("%s: another run_ut writes to it" % path) from None
            time.sleep(0.05)


def calls_of(dump):
    if dump.framework == "mindspore":
        raise ValueError("%s: a dump of %s; APIs of PyTorch are what can be run again" % (dump.path, dump.framework))
    names = dump.calls()
    if not names:
        raise LookupError("%s: no API is recorded there: record with level L1 or mix" % dump.path)
    return names


def check_all(path, choice, result, details, workers=1, devices=(0,), error_data=None, resume=False):
    from msprobe.precheck.check import Check
    names = calls_of(Dump(path))
    files, done = begin(result, details, resume)
    order = [n for n in names if _core.precheck_name(n) not in done]
    writer = Writer(files, order)
    todo = []
    for name in order:
        why = choice.refusal(name)
        if why is None:
            todo.append(name)
        else:
            writer.put(name, left_out(name, why))
    share_out(todo, writer, path, Check(error_data), workers, devices)


def check_overflows(path, workers=1, devices=(0,)):
    """Prints a line for every call; False: not all of them could be checked."""
    from msprobe.precheck.check import OverflowCheck
    dump = Dump(path)
    names = [n for n in calls_of(dump) if not n.startswith(("Distributed.", "MindSpeed.", "NPU."))]
    printer = Printer(names)
    if dump.cut is not None:
        printer.write("%s ends in the middle, at byte %d: the APIs up to there are checked" % (dump.path, dump.cut), True)
    share_out(names, printer, path, OverflowCheck(), workers, devices)
    return not printer.failed


def share_out(todo, writer, path, work, count, devices):
    # spawned where a device is used: a forked process cannot use the parent's
    from msprobe.precheck.check import device_name
    context = multiprocessing.get_context("fork" if device_name(0) == "cpu" else "spawn")
    todo = list(reversed(todo))
    workers = {}

    def start(number):
        w = Worker(context, path, devices[number % len(devices)], work)
        workers[w.end] = (w, number)
        give(w)

    def give(w):
        batch = [todo.pop() for _ in range(min(BATCH, len(todo)))]
        if batch:
            w.give(batch)
        else:
            workers.pop(w.end)
            w.give([])
            w.process.join()

    for number in range(max(1, min(count, len(todo)))):
        if todo:
            start(number)
    while workers:
        for end in multiprocessing.connection.wait(list(workers)):
            w, number = workers[end]
            try:
                name, answer = end.recv()
            except (EOFError, OSError):
                workers.pop(end)
                died(w, todo, writer, work)
                if todo:
                    start(number)
                continue
            writer.put(name, answer)
            w.names.remove(name)
            if not w.names:
                give(w)


def died(w, todo, writer, work):
    """The call that it was at is the first of those it has not answered."""
    w.process.join()
    culprit, rest = w.names[0], w.names[1:]
    why = "FAILED: the process that ran it died (exit status %s)" % w.process.exitcode
    print("msprobe: %s" % printable("%s: %s" % (culprit, why[8:])), file=sys.stderr)
    writer.put(culprit, work.left_out(culprit, why))
    todo.extend(reversed(rest))
