"""The checking process of online run_ut: calls come from training processes, each is checked by itself, verdicts go back.

The results under test are those that the training computed; beside them stands the same call in higher precision on this
machine's CPU, from the inputs that were sent. Connections, files and rows are C's (msprobe/online.h).
"""
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
import warnings

from msprobe import _core
from msprobe.core.config import boolean, check_connection, given, numbers, read_connection, texts, whole
from msprobe.precheck.calls import run_ut_part

POLL_MS = 100
INCOMPLETE = 4  # exit status, told to the command: it is done, and not everything was checked
AHEAD = 2  # calls that a worker has beside the one that it is at


class Options:
    """The part of config.json that is the checker's."""

    def __init__(self, path):
        part = run_ut_part(path, "is_online, and host and port or nfs_path,")
        if not boolean("is_online", part.get("is_online", False)):
            raise ValueError("%s: is_online is not true there: it says nothing of a training process to wait for; -api_info names a "
                             "dump to check" % path)
        self.connection = read_connection(part)
        check_connection("is_online", self.connection)
        self.ranks = numbers("rank_list", given(part.get("rank_list"), [0])) or [0]
        self.idle = whole("online_idle", given(part.get("online_idle"), 600), 0, 86400)
        texts("white_list", part.get("white_list")), texts("black_list", part.get("black_list"))


class Sent:
    """A call as it was sent, in the form that replay wants."""

    def __init__(self, path):
        from msprobe.replay import Call
        name, self.step, self.rank, self.reason, forward, backward, tensors = _core.online_call(path)
        self.call = Call(name, json.loads(forward) if forward else None, json.loads(backward) if backward else None, tensors)


def check_sent(sent, error_data=None):
    """(status, result line, details lines): the recorded results against the call in higher precision."""
    from msprobe.precheck.check import SKIP, failure_of, verdict
    from msprobe.replay.run import Prepared
    call = sent.call
    reason = ("FAILED: not checked: " + sent.reason) if sent.reason else None
    bench = None
    if reason is None:
        prepared = Prepared(call, "cpu")
        bench = prepared.run("raised")
        reason = failure_of(bench.reason) if bench.reason else None
        if reason is None and prepared.made:
            reason = "FAILED: not checked: not all of its tensors were sent"
        if reason is None and not any(r.recorded is not None for r in bench.outputs + bench.gradients):
            reason = "nothing to compare: its result is no tensor, or was not recorded"
    if reason is not None:
        return SKIP, _core.precheck_result(call.name, SKIP, SKIP if call.backward is not None else None, reason), b""
    if bench.gradients and mask_is_hidden(call, prepared):
        bench.gradients, bench.gradient_reason = [], "random: where the input is 0 its mask cannot be read off the result"
    ways = [(way, [(r.at, (r.recorded, r.computed)) for r in results if r.recorded is not None])
            for way, results in (("forward", bench.outputs), ("backward", bench.gradients))]
    return verdict(prepared, ways, bench.gradient_reason, error_data and os.path.join(error_data, "step%d_rank%d" % (sent.step, sent.rank)))


def mask_is_hidden(call, prepared):
    """Dropout of a number that is 0 gives 0 with any mask, but not the same gradient."""
    from msprobe.replay.functions import MASKED
    inputs = [t for k, t in prepared.cache.items() if k.startswith("input ")]
    return call.api.split(".")[-1] in MASKED and any(bool((t == 0).any()) for t in inputs)


def failed(name, why):
    return 0, _core.precheck_result(name, 0, None, "FAILED: " + why), b""


def serve(connection, error_data):
    """A worker: (id, name, path) comes in, (id, status, result, details) goes out."""
    import torch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the first process ends this one
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's about calls that are the program's, not ours
    while True:
        try:
            work = connection.recv()
        except EOFError:
            return
        if work is None:
            return
        number, name, path = work
        try:
            answer = check_sent(Sent(path), error_data)
        except Exception as e:
            answer = failed(name, "%s: %s" % (type(e).__name__, (str(e).splitlines() or [""])[0][:200]))
        connection.send((number,) + answer)


class Worker:
    def __init__(self, context, error_data):
        self.end, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, error_data), daemon=True)
        self.process.start()
        theirs.close()
        self.work = []

    def give(self, work):
        self.work.append(work)
        try:
            self.end.send(work)
        except OSError:
            pass  # it has died: its end of the pipe tells


class Checker:
    def __init__(self, server, choice, count, error_data):
        # spawned: the server's thread may hold a lock that a forked process would find held for ever
        self.context = multiprocessing.get_context("spawn")
        self.server, self.choice, self.error_data = server, choice, error_data
        self.workers = [Worker(self.context, error_data) for _ in range(count)]

    def free(self):
        """The worker with the least to do, or None."""
        found = min(self.workers, key=lambda w: len(w.work))
        return found if len(found.work) <= AHEAD else None

    def hand_out(self):
        """False: it is over."""
        worker = self.free()
        while worker is not None:
            work = _core.online_next(self.server, 0 if self.busy() else POLL_MS)
            if work is None or work is False:
                return work is not False
            why = self.choice.refusal(work[1])
            if why is None:
                worker.give(work)
            else:
                _core.online_answer(self.server, work[0], 0, _core.precheck_result(work[1], 0, None, why), b"")
            worker = self.free()
        return True

    def busy(self):
        return any(w.work for w in self.workers)

    def take_answers(self):
        if not self.busy():
            return
        ends = {w.end: w for w in self.workers}
        for end in multiprocessing.connection.wait(list(ends), POLL_MS / 1000):
            worker = ends[end]
            try:
                number, status, result, details = end.recv()
            except (EOFError, OSError):
                self.replace(worker)
                continue
            worker.work = [w for w in worker.work if w[0] != number]
            _core.online_answer(self.server, number, status, result, details)

    def replace(self, dead):
        """The call that it was at is the first of those it has not answered."""
        dead.process.join()
        self.workers[self.workers.index(dead)] = fresh = Worker(self.context, self.error_data)
        for i, work in enumerate(dead.work):
            if i > 0:
                fresh.give(work)
                continue
            why = "the process that ran it died (exit status %s)" % dead.process.exitcode
            print("msprobe: %s: %s" % (work[1], why), file=sys.stderr, flush=True)
            _core.online_answer(self.server, work[0], *failed(work[1], why))

    def close(self):
        for w in self.workers:
            try:
                w.end.send(None)
            except OSError:
                pass
        for w in self.workers:
            w.process.join(5)
            if w.process.is_alive():
                w.process.kill()


def where(connection, port):
    return connection["nfs_path"] or "%s:%d" % (connection["host"], port)


class Interrupted(Exception):
    """Somebody ends the checker."""


def interrupt(number, _):
    raise Interrupted(signal.Signals(number).name)


def check_online(config, choice, out, stamp, workers, error_data):
    """Until all ranks have ended. Results are out/step<N>/accuracy_checking_{result,details}_<stamp>_rank<R>.csv. Returns an exit status."""
    options = Options(config)
    connection = options.connection
    server = _core.online_serve(out, stamp, options.ranks, connection["nfs_path"], connection["host"], max(connection["port"], 0),
                                connection["tls_path"], connection["limit"], 1000 * options.idle)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    checker = Checker(server, choice, workers, error_data)
    status = INCOMPLETE if choice.complaints else 0
    for line in choice.complaints:
        say(line)
    say("waiting for rank%s %s at %s" % ("" if len(options.ranks) == 1 else "s", ", ".join(map(str, options.ranks)),
                                         where(connection, _core.online_served(server)["port"])))
    try:
        while checker.hand_out():
            checker.take_answers()
            tell_news(server)
    except Interrupted as e:
        say("ended by %s; what was checked until now is in the files" % e)
        status = INCOMPLETE
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    checker.close()
    served = tell_news(server)
    _core.online_stop(server)
    return max(status, judge(served, options))


def say(text):
    print("%s msprobe: %s" % (time.strftime("%H:%M:%S"), text), file=sys.stderr, flush=True)


def tell_news(server):
    served = _core.online_served(server)
    for line in served["news"]:
        say(line)
    return served


def judge(served, options):
    if served["idle"]:
        say("nobody came for %d s (online_idle): %d of %d ranks have ended in order; what others had still to send is in their dump_path: "
            "msprobe run_ut -api_info step<N>/rank<R>/dump.json -csv_path step<N>/rank<R>/accuracy_checking_result_<time>.csv goes on with it"
            % (options.idle, served["ended"], len(options.ranks)))
        return INCOMPLETE
    return 0
