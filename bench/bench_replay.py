#!/usr/bin/env python3
"""Replay: small calls per second, and large ones beside the float64 computation itself.

    bench_replay.py [CALLS] [ROUNDS]

Small: dumps of forty APIs in turn on 64x64, forward and backward, in which every call differs between both runs, so that each is run again and measured on both
sides (three references each). `python -m msprobe.replay` runs on two pairs of dumps in turn, one with four times as many calls: the difference
leaves its start out. The rate is that of two cores that have nothing else to do (calls by the processor time that they take, times two), beside it the clock's.
Large: one call's replay in float64, forward and backward, files and all, beside bare torch's float64 computation of the same on one thread, in turns; medians of
the ratios. Beside it what measuring the call for a verdict takes (on both sides, with a reference from changed inputs each, and all errors).
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bench_run_ut

SMALL, LARGE, CORES = 300, 3.0, 2


def record(folder, calls, scale):
    """A step of so many calls on inputs that differ by scale."""
    program = ("import sys; sys.path.insert(0, %r); import bench_run_ut, torch; old = torch.rand\n"
               "torch.rand = lambda *a, **k: (old(*a) * %r).requires_grad_(k.get('requires_grad', False))\n"
               "bench_run_ut.record(%r, %d, 'tensor')" % (os.path.dirname(__file__) or ".", scale, folder, calls))
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "step0", "rank", "dump.json")


def replay(pair, out, workers=CORES):
    """Seconds by the clock and of the processors for all calls of a pair."""
    before, start = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-m", "msprobe.replay", *pair, "-", out, "--workers", str(workers)], check=True)
    after = os.times()
    return time.monotonic() - start, after.children_user + after.children_system - before.children_user - before.children_system


def small(calls):
    with tempfile.TemporaryDirectory() as folder:
        pairs = []
        for n in (calls, 4 * calls):
            pair = []
            for side, scale in (("npu", 1.0), ("bench", 0.999)):
                path = os.path.join(folder, "%s%d" % (side, n))
                os.mkdir(path)
                pair.append(record(path, n, scale))
            pairs.append(pair)
        (wall, cpu), (wall4, cpu4) = (replay(p, os.path.join(folder, "out")) for p in pairs)
    by_clock, by_processor = 3 * calls / (wall4 - wall), CORES * 3 * calls / (cpu4 - cpu)
    print("small calls, 64x64, forward and backward on both sides, %d cores: %.0f per second by processor time, %.0f by the clock   target %d   %s"
          % (CORES, by_processor, by_clock, SMALL, "ok" if by_processor >= SMALL else "MISSED"))


LARGE_CALLS = (("Torch.matmul.0", 2, 1024, "torch.matmul(x, y)"), ("Torch.softmax.0", 1, 2048, "torch.softmax(x, -1)"),
               ("Functional.gelu.0", 1, 2048, "torch.nn.functional.gelu(x)"))


def record_large(folder, scale):
    """One step with each of the large calls, its gradients, and inputs that differ by scale."""
    os.mkdir(folder)
    program = ("import json, torch\nfrom msprobe.pytorch import PrecisionDebugger\n"
               "json.dump({'task': 'tensor', 'level': 'L1', 'dump_path': %r}, open(%r, 'w'))\ntorch.manual_seed(0)\n"
               "d = PrecisionDebugger(%r)\nd.start()\n" % (folder, folder + "/c.json", folder + "/c.json"))
    for _, _, size, code in LARGE_CALLS:
        program += ("x, y = ((torch.randn(%d, %d) * %r).requires_grad_() for _ in range(2))\nr = %s\nr.backward(torch.ones_like(r))\n"
                    % (size, size, scale, code))
    subprocess.run([sys.executable, "-c", program + "d.stop(); d.step()\n"], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "step0", "rank")


def processor_time(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def large(rounds):
    import torch
    from msprobe import _core
    from msprobe.replay.__main__ import measure
    from msprobe.replay.dump import Dump
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        npu, bench = (Dump(record_large(os.path.join(folder, side), scale)) for side, scale in (("npu", 1.0), ("bench", 0.999)))
        evidence = _core.evidence_open(os.path.join(folder, "evidence"))
        for name, inputs, size, code in LARGE_CALLS:
            x, y = (torch.randn(size, size, dtype=torch.float64).requires_grad_() for _ in range(2))

            def bare():
                r = eval(code, {"torch": torch, "x": x, "y": y})
                torch.autograd.grad(r, (x, y)[:inputs], torch.ones_like(r))

            ratios, judged = [], []
            for _ in range(rounds):
                one = processor_time(bare)
                ratios.append(processor_time(lambda: npu.replay(name, precision="double")) / one)
                judged.append(processor_time(lambda: measure(evidence, npu.call(name), bench.call(name), True)) / one)
            ratio = statistics.median(ratios)
            print("%s, %dx%d: %.2f times the float64 computation (%.2f to %.2f)   target %.0f   %s; measured for a verdict %.1f times"
                  % (name, size, size, ratio, min(ratios), max(ratios), LARGE, "ok" if ratio <= LARGE else "MISSED", statistics.median(judged)))
        _core.evidence_close(evidence)


def main():
    small(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
    large(int(sys.argv[2]) if len(sys.argv) > 2 else 7)


if __name__ == "__main__":
    main()
