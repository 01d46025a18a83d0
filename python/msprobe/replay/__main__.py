"""Measure calls of two dumps: python -m msprobe.replay NPU BENCH CALLS OUT [--workers N]

CALLS is a file with a line for each call, its names in both runs with a tab between them, without .forward and .backward;
"-" stands for all calls of the NPU's dump. A call without a second name is made by the NPU's run alone: this machine's torch, in the
recorded types, stands for the bench. Writes OUT.0, OUT.1, ... (one per worker; include/msprobe/local.h says what is in
them). Each call is measured by itself, with one thread and seeds of its own, so that the numbers do not depend on how the
calls are shared out. `msprobe compare` starts this and judges what was measured.
"""
import argparse
import os
import sys
import warnings

from msprobe import _core
from msprobe.replay.dump import Dump
from msprobe.replay.room import LARGE, size_of, too_large

NUDGE = 2.0 ** -20
NO_TORCH = 3     # exit status


def comparable(result):
    return (result.recorded is not None and result.recorded.shape == result.computed.shape
            and result.recorded.is_complex() == result.computed.is_complex())


def parts(t):
    """A complex number is measured as the two that it consists of."""
    import torch
    return (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).contiguous()


def in_type(t, low):
    """t in a coarser type, where all of its numbers are of that one already."""
    rounded = t if low is None or t.is_complex() else t.to(low)
    return rounded if rounded.dtype != t.dtype and rounded.to(t.dtype).equal(t) else t


def came_in(record):
    """The 16-bit type of the gradients that come in. Under autocast those of products are computed in it, and handed to weights of float32."""
    import torch
    types = {"torch.float16": torch.float16, "torch.bfloat16": torch.bfloat16}
    found = {leaf["dtype"] for leaf in (record or {}).get("input") or [] if isinstance(leaf, dict) and "dtype" in leaf}
    return types.get(found.pop()) if len(found) == 1 else None


def side(result, near, low):
    """What evidence_result() takes for one side; None: there is nothing to measure."""
    if result is None or not comparable(result):
        return None
    exact = not (result.computed.is_floating_point() or result.computed.is_complex())
    others = [] if exact else [parts(n.computed) for n in near if n is not None]
    return (parts(in_type(result.recorded, low)), parts(result.computed), *others)


def by_place(results):
    return {r.at: r for r in results}


def write(evidence, name, reason, npu, bench, lows):
    """Each side is the results of the reference and of the runs from changed inputs; lows: came_in() of either."""
    _core.evidence_call(evidence, name, reason)
    if reason is not None:
        return
    (mine, *mine_near), (other, *other_near) = ([by_place(r) for r in run] for run in (npu, bench))
    for at, result in mine.items():
        a = side(result, [n.get(at) for n in mine_near], lows[0])
        b = side(other.get(at), [n.get(at) for n in other_near], lows[1])
        if a is not None or b is not None:
            _core.evidence_result(evidence, at, a, b)


class Measured:
    """One call's references on one side."""

    def __init__(self, call, large, factors, like=None):
        from msprobe.replay.run import Prepared
        self.prepared = Prepared(call, factors=factors)
        if like is not None and self.prepared.takes_the_same_as(like.prepared):
            self.runs = [self.prepared.beside(like.runs[0])] + like.runs[1:]
            return
        self.runs = [self.prepared.run("double")]
        if self.runs[0].reason is None:
            self.runs += [self.prepared.run("double", NUDGE, round) for round in range(1 if large else 2)]

    def reason(self, backward):
        return self.runs[0].reason or (self.runs[0].gradient_reason if backward else None)


class Alone:
    """What this machine makes of a call in the types that were recorded, beside the references that it has already."""

    def __init__(self, measured):
        here = measured.prepared.run("recorded")
        self.runs = [self.beside(measured.runs[0], here)] + measured.runs[1:]

    @staticmethod
    def beside(reference, here):
        """Where it cannot run the call in these types, the reference rounded to them."""
        from msprobe.replay.run import Replay, Result
        out = Replay(reference.call)
        out.reason, out.gradient_reason = reference.reason, reference.gradient_reason
        for kept, results, mine in ((out.outputs, reference.outputs, here.outputs), (out.gradients, reference.gradients, here.gradients)):
            mine = by_place(mine)
            for r in results:
                if r.recorded is not None:
                    done = mine[r.at].computed if r.at in mine else r.computed
                    kept.append(Result(r.at, done.to(r.recorded.dtype), r.computed, r.source))
        return out

    def reason(self, backward):
        return None


def measure(evidence, npu, bench, large):
    factors = {}
    a = Measured(npu, large, factors)
    b = Alone(a) if bench is None else Measured(bench, large, factors, a if a.runs[0].reason is None else None)
    for record, backward in ((npu.forward, False), (npu.backward, True)):
        if record is None:
            continue
        name = npu.name + (".backward" if backward else ".forward")
        reason = a.reason(backward) or b.reason(backward)
        results = [[r.gradients if backward else r.outputs for r in m.runs] for m in (a, b)]
        lows = [came_in(call.backward) if backward and call is not None else None for call in (npu, bench)]
        write(evidence, name, reason, *results, lows)


def refuse(evidence, call, reason):
    for record, end in ((call.forward, ".forward"), (call.backward, ".backward")):
        if record is not None:
            _core.evidence_call(evidence, call.name + end, reason)


def work(dumps, names, path, share, one_at_a_time):
    """Calls are taken one by one off a pipe that all workers read."""
    evidence = _core.evidence_open(path)
    while True:
        ticket = os.read(share, 4)
        if len(ticket) < 4:
            break
        npu, bench = (dump.call(name) if name else None for dump, name in zip(dumps, names[int.from_bytes(ticket, "little")]))
        size = size_of(npu.forward or {}) + size_of(npu.backward or {})
        if size <= LARGE:
            measure(evidence, npu, bench, False)
            continue
        with one_at_a_time:
            reason = too_large(size)
            if reason is None:
                measure(evidence, npu, bench, True)
            else:
                refuse(evidence, npu, reason)
    _core.evidence_close(evidence)


def calls_of(path, npu, bench):
    """Pairs of names. Calls that a dump does not have are left out."""
    if path == "-":
        pairs = [(n, n) for n in npu.calls()]
    else:
        with open(path, encoding="utf-8", errors="surrogateescape") as f:
            pairs = [tuple(line.rstrip("\n").split("\t")) for line in f]
    there = [set(npu.calls()), set(bench.calls())]
    return [p for p in pairs if len(p) == 2 and p[0] in there[0] and (p[1] in there[1] or p[1] == "")]


def start_worker(dumps, names, path, take, give, lock):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(give)
            work(dumps, names, path, take, lock)
            status = 0
        except BaseException as e:
            print("msprobe.replay: %s: %s" % (type(e).__name__, e), file=sys.stderr)
        os._exit(status)
    return pid


def main():
    parser = argparse.ArgumentParser(prog="python -m msprobe.replay")
    for name in ("npu", "bench", "calls", "out"):
        parser.add_argument(name)
    parser.add_argument("--workers", type=int, default=0)
    a = parser.parse_args()
    import multiprocessing
    try:
        import torch
    except ImportError as e:
        print(e, file=sys.stderr)
        return NO_TORCH
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # torch's about calls that are the program's, not ours
    dumps = Dump(a.npu), Dump(a.bench)
    names = calls_of(a.calls, *dumps)
    workers = max(1, min(a.workers or len(os.sched_getaffinity(0)), (len(names) + 63) // 64))
    lock = multiprocessing.get_context("fork").Lock()
    take, give = os.pipe()
    children = [start_worker(dumps, names, "%s.%d" % (a.out, i), take, give, lock) for i in range(workers)]
    os.close(take)
    try:
        for i in range(len(names)):
            os.write(give, i.to_bytes(4, "little"))
    except BrokenPipeError:
        pass
    os.close(give)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
