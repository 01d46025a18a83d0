"""Measure every call of a dump: python -m msprobe.replay DUMP OUT [--only NAME] [--workers N]

Writes OUT.0, OUT.1, ... (one per worker). Each call is measured by itself, with one thread and seeds of its own, so that the
numbers do not depend on how the calls are shared out.
"""
import argparse
import os
import sys

from msprobe import _core
from msprobe.replay.dump import Dump

NUDGE = 2.0 ** -20
LARGE = 1 << 25  # bytes of a call's tensors in float64 from which on one reference from changed inputs must do


def size_of(value):
    if isinstance(value, list):
        return sum(size_of(v) for v in value)
    if isinstance(value, dict):
        if "shape" in value:
            n = 8
            for d in value["shape"]:
                n *= d
            return n
        return sum(size_of(v) for v in value.values())
    return 0


def comparable(result):
    return result.recorded is not None and result.recorded.shape == result.computed.shape and not result.recorded.is_complex()


def write(evidence, name, reason, reference, near):
    _core.evidence_call(evidence, name, reason)
    for i, result in enumerate(reference):
        if comparable(result):
            others = [n[i].computed.contiguous() for n in near if len(n) == len(reference) and result.computed.is_floating_point()]
            _core.evidence_result(evidence, result.at, result.recorded, result.computed.contiguous(), *others)


def measure(evidence, call, large):
    from msprobe.replay.run import Prepared
    prepared = Prepared(call)
    reference = prepared.run("double")
    near = []
    if reference.reason is None:
        near = [prepared.run("double", NUDGE, round) for round in range(1 if large else 2)]
    if call.forward is not None:
        write(evidence, call.name + ".forward", reference.reason, reference.outputs, [n.outputs for n in near])
    if call.backward is not None:
        reason = reference.reason or reference.gradient_reason
        write(evidence, call.name + ".backward", reason, reference.gradients, [n.gradients for n in near])


def work(dump, names, path, share, one_at_a_time):
    """Calls are taken one by one off a pipe that all workers read."""
    evidence = _core.evidence_open(path)
    while True:
        ticket = os.read(share, 4)
        if len(ticket) < 4:
            break
        call = dump.call(names[int.from_bytes(ticket, "little")])
        size = size_of(call.forward or {}) + size_of(call.backward or {})
        if size > LARGE:
            with one_at_a_time:
                measure(evidence, call, True)
        else:
            measure(evidence, call, False)
    _core.evidence_close(evidence)


def main():
    parser = argparse.ArgumentParser(prog="python -m msprobe.replay")
    parser.add_argument("dump"), parser.add_argument("out")
    parser.add_argument("--only", action="append")
    parser.add_argument("--workers", type=int, default=0)
    a = parser.parse_args()
    import multiprocessing

    import torch
    torch.set_num_threads(1)
    dump = Dump(a.dump)
    if a.only:
        wanted = {n.rpartition(".")[0] if n.endswith(("ward",)) else n for n in a.only}
        names = [n for n in dump.calls() if n in wanted]
    else:
        names = dump.calls()
    workers = max(1, min(a.workers or len(os.sched_getaffinity(0)), (len(names) + 63) // 64))
    lock = multiprocessing.get_context("fork").Lock()
    take, give = os.pipe()
    children = []
    for i in range(workers):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(give)
                work(dump, names, "%s.%d" % (a.out, i), take, lock)
                status = 0
            except BaseException as e:
                print("msprobe.replay: %s: %s" % (type(e).__name__, e), file=sys.stderr)
            os._exit(status)
        children.append(pid)
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
