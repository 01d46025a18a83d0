"""Calls shared out among processes; one process writes, in the order of the dump.

A worker that dies (a kernel that crashes) costs the call that it was at: that gets a row which says so, and another worker
goes on. A call's details are written before its result, so that whoever continues knows what is complete.
"""
import multiprocessing
import multiprocessing.connection
import os
import sys

from msprobe import _core
from msprobe.replay import Dump

BATCH = 16  # calls handed to a worker at a time: a message each would cost as much as a small call


def serve(connection, path, number, error_data):
    """A worker: names come in, (name, result, details) go out."""
    import torch

    from msprobe.precheck.check import check, device_name
    torch.set_num_threads(1)
    dump, device = Dump(path), device_name(number)
    while True:
        names = connection.recv()
        if not names:
            return
        for name in names:
            try:
                result, details = check(dump, name, device, error_data)
            except Exception as e:
                text = (str(e).splitlines() or [""])[0][:200]
                result, details = _core.precheck_result(name, 0, 0, "FAILED: %s: %s" % (type(e).__name__, text)), b""
            connection.send((name, result, details))


class Worker:
    def __init__(self, context, path, number, error_data):
        self.end, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, path, number, error_data), daemon=True)
        self.process.start()
        theirs.close()
        self.names = []

    def give(self, names):
        self.names = list(names)
        try:
            self.end.send(self.names)
        except OSError:
            pass  # it has died: its end of the pipe tells


class Writer:
    """Appends to both files in the order of the calls."""

    def __init__(self, result, details, order):
        self.files, self.order, self.waiting, self.next = (open(details, "ab"), open(result, "ab")), order, {}, 0

    def put(self, name, result, details):
        self.waiting[name] = (details, result)
        while self.next < len(self.order) and self.order[self.next] in self.waiting:
            for file, text in zip(self.files, self.waiting.pop(self.order[self.next])):
                file.write(text)
                file.flush()
            self.next += 1

    def close(self):
        for file in self.files:
            file.close()


def begin(result, details, resume):
    """Names that are done already."""
    if resume:
        return _core.precheck_resume(result, details)
    for path, header in zip((result, details), _core.precheck_headers()):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as f:
            f.write(header)
    return set()


def check_all(path, choice, result, details, workers=1, devices=(0,), error_data=None, resume=False):
    dump = Dump(path)
    names = dump.calls()
    if not names:
        raise LookupError("%s: no API is recorded there: record with level L1 or mix" % path)
    done = begin(result, details, resume)
    order = [n for n in names if n not in done]
    writer = Writer(result, details, order)
    todo = []
    for name in order:
        why = choice.refusal(name)
        if why is None:
            todo.append(name)
        else:
            writer.put(name, _core.precheck_result(name, 0, 0, why), b"")
    try:
        share_out(todo, writer, path, max(1, min(workers, len(todo))), devices, error_data or choice.error_data_path)
    finally:
        writer.close()
    return 0


def share_out(todo, writer, path, count, devices, error_data):
    # spawned where a device is used: a forked process cannot use the parent's
    from msprobe.precheck.check import device_name
    context = multiprocessing.get_context("fork" if device_name(0) == "cpu" else "spawn")
    todo = list(reversed(todo))
    workers = {}

    def start(number):
        w = Worker(context, path, devices[number % len(devices)], error_data)
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

    for number in range(count):
        if todo:
            start(number)
    while workers:
        for end in multiprocessing.connection.wait(list(workers)):
            w, number = workers[end]
            try:
                name, result, details = end.recv()
            except (EOFError, OSError):
                workers.pop(end)
                died(w, todo, writer)
                if todo:
                    start(number)
                continue
            writer.put(name, result, details)
            w.names.remove(name)
            if not w.names:
                give(w)


def died(w, todo, writer):
    """The call that it was at is the first of those it has not answered."""
    w.process.join()
    culprit, rest = w.names[0], w.names[1:]
    why = "FAILED: the process that ran it died (exit status %s)" % w.process.exitcode
    print("msprobe: %s: %s" % (culprit, why[8:]), file=sys.stderr)
    writer.put(culprit, _core.precheck_result(culprit, 0, 0, why), b"")
    todo.extend(reversed(rest))
