#!/usr/bin/env python3
"""run_ut: APIs per second, each forward and backward on the device and in higher precision, with inputs of 64x64 in statistics mode.

    bench_run_ut.py [CALLS]

The calls are recorded first, by the collector. The command runs on two dumps in turn, of which one has four times as many calls: the difference leaves the start
of its interpreters out. The rate is that of two cores that have nothing else to do: calls by the processor time that they take, times two; beside it the
clock's, which on a busy machine is less.
"""
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

TARGET, CORES = 300, 2
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MSPROBE = os.path.join(ROOT, ".venv", "bin", "msprobe")


def record(folder, calls, task="statistics"):
    """A step of so many calls, of forty APIs in turn, each with its gradients."""
    import torch
    import torch.nn.functional as F
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        json.dump({"task": task, "dump_path": folder, "rank": [], "step": [], "level": "L1", task: {"list": [], "scope": []}}, f)
    os.chmod(config, 0o640)
    debugger = PrecisionDebugger(config)
    w, b = torch.randn(64, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    unary = [torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.sin, torch.cos, torch.abs, torch.sqrt, torch.log, torch.square, torch.neg, F.gelu, F.silu,
             F.softplus, F.elu, F.leaky_relu, torch.erf, torch.reciprocal, torch.rsqrt, F.hardtanh]
    others = [lambda x: torch.add(x, w), lambda x: torch.mul(x, w), lambda x: torch.sub(x, w), lambda x: torch.div(x, w), lambda x: torch.matmul(x, w),
              lambda x: F.linear(x, w, b), lambda x: F.layer_norm(x, (64,), b, b), lambda x: torch.softmax(x, -1), lambda x: F.log_softmax(x, -1),
              lambda x: torch.sum(x, 0), lambda x: torch.mean(x, 1), lambda x: torch.transpose(x, 0, 1), lambda x: torch.reshape(x, (32, 128)),
              lambda x: torch.cat([x, w]), lambda x: torch.maximum(x, w), lambda x: torch.clamp(x, 0.2, 0.8), lambda x: torch.where(x > 0.5, x, w),
              lambda x: torch.var(x), lambda x: torch.cumsum(x, 1), lambda x: torch.norm(x)]
    apis = unary + others
    debugger.start()
    for i in range(calls):
        x = torch.rand(64, 64, requires_grad=True)
        y = apis[i % len(apis)](x)
        y.backward(torch.ones_like(y))
    debugger.stop()
    debugger.step()


def count(path):
    with open(path, encoding="utf-8-sig") as f:
        lines = f.read().splitlines()[1:]
    return len(lines), sum(1 for line in lines if ",SKIP," in line)


def checked(folder, processes):
    """(seconds, seconds of processor time, calls, calls that were left out)"""
    out = tempfile.mkdtemp(dir=folder)
    dump = os.path.join(folder, "step0", "rank", "dump.json")
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([MSPROBE, "-f", "pytorch", "multi_run_ut", "-api_info", dump, "-o", out, "-n", str(processes)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    name = next(n for n in os.listdir(out) if re.match(r"accuracy_checking_result_\d+\.csv", n))
    return (took, cpu) + count(os.path.join(out, name))


def main(calls):
    processes = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
        for folder, n in ((small, calls), (large, 4 * calls)):
            subprocess.run([sys.executable, os.path.abspath(__file__), "--record", folder, str(n)], check=True, stdout=subprocess.DEVNULL)
        rates = []
        for _ in range(3):
            (a, cpu_a, n, _), (b, cpu_b, m, left) = checked(small, processes), checked(large, processes)
            rates.append(CORES * (m - n) / (cpu_b - cpu_a))
            print("%d calls in %.1f s, %d in %.1f s (%d left out): %.0f calls per second by the clock, %.0f by processor time"
                  % (n, a, m, b, left, (m - n) / (b - a), rates[-1]), flush=True)
        rate = sorted(rates)[1]
        print("run_ut, 64x64, forward and backward, %d cores: %.0f calls per second   target %d   %s"
              % (CORES, rate, TARGET, "ok" if rate >= TARGET else "MISSED"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
