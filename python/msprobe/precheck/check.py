"""One call on the device and, in higher precision, on the CPU."""
import math
import os

import torch

from msprobe import _core
from msprobe.precheck.calls import left_out, whole_name
from msprobe.replay.run import Prepared, Result, leaves

SKIP, ERROR = 0, 3
FAILED = "FAILED: "  # begins a reason that is somebody's fault: the exit status tells of it


def device_name(number):
    """The device under test: an NPU, else CUDA, else this CPU."""
    for kind in ("npu", "cuda"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return "%s:%d" % (kind, number)
    return "cpu"


def run_both(prepared):
    """(on the device, in higher precision): two replays of the same inputs."""
    tested = prepared.run("recorded")
    if tested.reason is not None:
        return tested, tested
    prepared.device = "cpu"
    bench = prepared.run("raised")
    if bench.reason is not None:  # a kernel of one device or type
        bench.reason = "no benchmark, in higher precision on the CPU %s" % bench.reason
    return tested, bench


def failure_of(reason):
    failed = reason.startswith(("its inputs cannot be read", "it cannot be run here", "it cannot be run backward here"))
    return (FAILED if failed else "") + reason


def host(tensor):
    t = tensor.detach().to("cpu")
    if t.is_quantized:
        t = t.dequantize()
    return (t if t.layout is torch.strided else t.to_dense()).contiguous()


def beside(record, ours, theirs):
    """(place, (on the device, in higher precision)) of the results, in the order of the record; None: an input has no gradient."""
    if not theirs:
        return []
    ours, theirs = ({r.at: r.computed for r in results} for results in (ours, theirs))
    if "output" not in record:
        return [(at, (ours[at], theirs[at])) for at in ours if at in theirs]
    pairs = [(at, (ours[at], theirs[at]) if at in ours and at in theirs else None if leaf is None else ()) for at, leaf in leaves(record.get("output", []), "output")]
    return [p for p in pairs if p[1] != ()]


def judged(name, api, pair):
    if pair is None:
        return SKIP, _core.precheck_no_output(name, "Bench output is None, skip this test.")
    return _core.precheck_output(name, api, host(pair[0]), host(pair[1]))


def check(call, device, error_data=None):
    """(result line, details lines) of one call, all made in C."""
    name, prepared = call.name, Prepared(call, device)
    tested, bench = run_both(prepared)
    reason = tested.reason or bench.reason
    for run in (tested, bench):
        run.outputs += [Result(at, None, torch.tensor(v), None) for at, v in run.numbers.items()]
    if reason is None and not tested.outputs:
        reason = "nothing to compare: its result is no tensor, or not where the record has one"
    if reason is not None:
        return left_out(name, failure_of(reason))
    ways = (("forward", beside(call.forward, tested.outputs, bench.outputs)), ("backward", beside(call.backward, tested.gradients, bench.gradients)))
    return verdict(prepared, ways, tested.gradient_reason, error_data)[1:]


def nothing_in(pairs):
    return "there are no elements to compare" if any(p is not None for _, p in pairs) else "there is nothing to compare"


def verdict(prepared, ways, gradient_reason, error_data=None):
    """(status, result line, details lines) of a call; ways: (direction, [(place, (under test, in higher precision))]) of forward and backward."""
    call, lines, statuses, reasons = prepared.call, [], [], []
    for way, pairs in ways:
        worst = SKIP
        for at, pair in pairs:
            status, line = judged("%s.%s.%s" % (call.name, way, at), whole_name(call.name), pair)
            lines.append(line)
            worst = max(worst, status)
        statuses.append(worst)
        if worst == SKIP and (way == "forward" or call.backward is not None):
            reasons.append("%s: %s" % (way, way == "backward" and gradient_reason or nothing_in(pairs)))
    has_backward = call.backward is not None
    message = "; ".join(reasons)
    if has_backward and gradient_reason and failure_of(gradient_reason) != gradient_reason:
        message = FAILED + message
    if error_data and max(statuses) >= ERROR:
        save_all(error_data, prepared, ways)
    return max(statuses), _core.precheck_result(call.name, statuses[0], statuses[1] if has_backward else None, message), b"".join(lines)


def save_all(folder, prepared, ways):
    """What went in and what came out, as .pt files."""
    os.makedirs(folder, mode=0o750, exist_ok=True)

    def save(t, way, kind, i):
        _core.save_pt(os.path.join(folder, "%s.%s.%s.%d.pt" % (prepared.call.name, way, kind, i)), host(t))

    for (way, pairs), key in zip(ways, ("input ", "gradient ")):
        for i, t in enumerate(t for k, t in prepared.cache.items() if k.startswith(key)):
            save(t, way, "input", i)
        for i, (tested, bench) in enumerate(pair for _, pair in pairs if pair is not None):
            save(tested, way, "output.device", i)
            save(bench, way, "output.bench", i)


def overflows(results):
    for r in results:
        t = torch.view_as_real(r.computed.resolve_conj()) if r.computed.is_complex() else r.computed
        if t.is_floating_point() and t.numel():
            stats = _core.stats(host(t))
            if not (math.isfinite(stats.max) and math.isfinite(stats.min)):
                return True
    return False


class Check:
    """What workers do for run_ut: answers are (result line, details lines)."""

    def __init__(self, error_data):
        self.error_data = error_data

    def answer(self, call, device):
        return check(call, device, self.error_data)

    def left_out(self, name, why):
        return left_out(name, why)


class OverflowCheck:
    """For run_overflow_check: is an overflow of the device one of the numbers themselves? Answers are (line, whether somebody is at fault
    that it says nothing)."""

    def answer(self, call, device):
        tested, bench = run_both(Prepared(call, device))
        reason = tested.reason or bench.reason
        if reason is not None:
            return self.left_out(call.name, failure_of(reason))
        kind = "a normal" if overflows(tested.outputs) == overflows(bench.outputs) else "an abnormal"
        return "The %s.forward overflow is %s overflow." % (call.name, kind), False

    def left_out(self, name, why):
        failed = why.startswith(FAILED)
        return "%s: not checked: %s" % (name, why[len(FAILED):] if failed else why), failed
