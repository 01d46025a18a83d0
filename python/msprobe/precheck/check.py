"""One call on the device and, in higher precision, on the CPU."""
import math
import os

import torch

from msprobe import _core
from msprobe.precheck.calls import short_name
from msprobe.replay import Dump
from msprobe.replay.run import Prepared

SKIP = 0


def device_name(number):
    """The device under test: an NPU, else CUDA, else this CPU."""
    for kind in ("npu", "cuda"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return "%s:%d" % (kind, number)
    return "cpu"


def run_both(call, device):
    """(on the device, in higher precision): two replays of the same inputs."""
    prepared = Prepared(call, device)
    tested = prepared.run("recorded")
    if tested.reason is not None:
        return tested, tested
    prepared.device = "cpu"
    return tested, prepared.run("raised")


def failure_of(reason):
    """Reasons that are somebody's fault are marked: the exit status tells of them."""
    failed = reason.startswith(("its inputs cannot be read", "it cannot be run here"))
    return ("FAILED: " if failed else "") + reason


def host(tensor):
    return tensor.detach().to("cpu").contiguous()


def check(dump, name, device, error_data=None):
    """(result line, details lines, status) of one call, all made in C."""
    call = dump.call(name)
    tested, bench = run_both(call, device)
    reason = tested.reason or bench.reason
    if reason is not None:
        return _core.precheck_result(name, SKIP, SKIP, failure_of(reason)), b""
    lines, statuses = [], []
    for way, ours, theirs in (("forward", tested.outputs, bench.outputs), ("backward", tested.gradients, bench.gradients)):
        worst = SKIP
        for got, expected in zip(ours, theirs):
            status, line = _core.precheck_output("%s.%s.%s" % (name, way, got.at), short_name(name), host(got.computed),
                                                 host(expected.computed))
            lines.append(line)
            worst = max(worst, status)
        statuses.append(worst)
    has_backward = call.backward is not None
    message = "backward: %s" % tested.gradient_reason if has_backward and tested.gradient_reason else ""
    if error_data and max(statuses) >= 3:
        save_all(error_data, call, tested, bench)
    return _core.precheck_result(name, statuses[0], statuses[1] if has_backward else None, message), b"".join(lines)


def save_all(folder, call, tested, bench):
    """What went in and what came out, as .pt files."""
    os.makedirs(folder, mode=0o750, exist_ok=True)
    prepared = Prepared(call)
    prepared.run("recorded", backward=False)
    for way, key, ours, theirs in (("forward", "input ", tested.outputs, bench.outputs),
                                   ("backward", "gradient ", tested.gradients, bench.gradients)):
        inputs = [t for k, t in prepared.cache.items() if k.startswith(key)]
        for i, t in enumerate(inputs):
            _core.save_pt(os.path.join(folder, "%s.%s.input.%d.pt" % (call.name, way, i)), host(t))
        for side, results in (("device", ours), ("bench", theirs)):
            for i, r in enumerate(results):
                _core.save_pt(os.path.join(folder, "%s.%s.output.%s.%d.pt" % (call.name, way, side, i)), host(r.computed))


def overflows(results):
    for r in results:
        if r.computed.is_floating_point() and r.computed.numel():
            stats = _core.stats(host(r.computed))
            if not (math.isfinite(stats.max) and math.isfinite(stats.min)):
                return True
    return False


def overflow_lines(path, number):
    """run_overflow_check: is an overflow of the device one of the numbers themselves? (line, whether somebody is at fault that there is no answer)"""
    dump, device = Dump(path), device_name(number)
    if dump.cut is not None:
        yield "%s ends in the middle, at byte %d: the APIs up to there are checked" % (dump.path, dump.cut), True
    for name in dump.calls():
        if name.startswith(("Distributed.", "MindSpeed.", "NPU.")):
            continue
        tested, bench = run_both(dump.call(name), device)
        reason = tested.reason or bench.reason
        if reason is not None:
            yield "%s: not checked: %s" % (name, reason), failure_of(reason) != reason
        elif overflows(tested.outputs) == overflows(bench.outputs):
            yield "The %s.forward overflow is a normal overflow." % name, False
        else:
            yield "The %s.forward overflow is an abnormal overflow." % name, False
