#!/usr/bin/env python3
"""The comparison against its targets: large tensors, many tiny ones, statistics, and growth with the number of rows.

    bench_compare.py [PROGRAM]       PROGRAM is the compiled bench_compare, by default the release build's

Baseline and subject take turns and the best of each counts. Files lie in a temporary folder (about 2.5 GB) and are read
once before, so that all of it is about computing, not about the disk.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THREADS = os.cpu_count()
ROUNDS = 3


class Bench:
    def __init__(self, program, folder):
        self.program, self.folder, self.missed, self.serial = program, folder, 0, 0

    def call(self, *args):
        return subprocess.run([self.program, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout.split()

    def seconds(self, *args):
        return float(self.call(*args)[0])

    def compare(self, dumps, formats, *more, threads=THREADS):
        """Seconds, rows, MiB, MiB without mapped files, and the result's path."""
        self.serial += 1
        out = os.path.join(self.folder, "out%d" % self.serial)
        dump = [os.path.join(dumps, side, "dump.json") for side in ("npu", "bench")]
        seconds, rows, memory, own, path = self.call("run", *dump, out, formats, threads, *more)
        return float(seconds), int(rows), float(memory), float(own), path

    def tell(self, text, ratio, target, at_least):
        good = ratio >= target if at_least else ratio <= target
        self.missed += not good
        word = "at least" if at_least else "at most"
        print(f"{text}: {ratio:.2f} (target {word} {target}) {'ok' if good else 'MISSED'}", flush=True)


def large_tensors(bench):
    """Bytes per second of a comparison and of a plain loop over the same mapped files with the same threads."""
    dumps = os.path.join(bench.folder, "large")
    bench.call("make-tensors", 8, 64 << 20, dumps)
    files = sorted(glob.glob(os.path.join(dumps, "*", "dump_tensor_data", "*")))
    size = sum(map(os.path.getsize, files))
    bench.seconds("read", THREADS, *files)
    for threads in sorted({1, THREADS}):
        plain, ours, own = 1e99, 1e99, 0
        for _ in range(ROUNDS):
            plain = min(plain, bench.seconds("read", threads, *files))
            seconds, _, _, mine, path = bench.compare(dumps, "csv", threads=threads)
            ours, own = min(ours, seconds), max(own, mine)
            os.unlink(path)
        print(f"large tensors, {threads} threads: {size / ours / 1e9:.2f} GB/s, a plain loop {size / plain / 1e9:.2f} GB/s")
        bench.tell(f"large tensors, {threads} threads, share of the plain read bandwidth", plain / ours, 0.7, True)
        bench.tell(f"large tensors, {threads} threads, MiB of memory without mapped files", own, 256, False)


def python_seconds(dumps, count):
    """What the same numbers cost with torch and NumPy, for the first count tensors, without the imports."""
    import numpy as np
    import torch

    record = json.load(open(os.path.join(dumps, "npu", "dump.json")))
    names = [leaf["data_name"] for call in record["data"].values() for leaf in call["output"]][:count]
    start = time.perf_counter()
    for name in names:
        n, b = (torch.load(os.path.join(dumps, side, "dump_tensor_data", name), weights_only=True).numpy().ravel()
                .astype(np.float64) for side in ("npu", "bench"))
        error = np.abs(n - b)
        relative = error / np.abs(b)
        _ = (n @ b / (np.linalg.norm(n) * np.linalg.norm(b)), np.linalg.norm(n - b), error.max(), relative.max(),
             (relative < 0.001).mean(), (relative < 0.005).mean())
    return (time.perf_counter() - start) / len(names)


def tiny_tensors(bench):
    """Both sides get as long in each round, so that the best of both is found among as many quiet moments."""
    dumps = os.path.join(bench.folder, "tiny")
    count = 20000
    bench.call("make-tensors", count, 128, dumps)
    ours, theirs = 1e99, 1e99
    for _ in range(ROUNDS):
        each = python_seconds(dumps, 1000)
        theirs = min(theirs, each * count)
        spent = 0
        while spent < each * 1000:
            seconds, _, _, _, path = bench.compare(dumps, "csv")
            ours, spent = min(ours, seconds), spent + seconds
            os.unlink(path)
    print(f"{count} tiny tensors: {ours:.3f} s, torch and NumPy {theirs:.1f} s")
    bench.tell(f"{count} tiny tensors, times as fast as torch and NumPy", theirs / ours, 100, True)


def statistics(bench):
    dumps = os.path.join(bench.folder, "statistics")
    bench.call("make-statistics", 100000, dumps)
    files = [os.path.join(dumps, side, "dump.json") for side in ("npu", "bench")]
    size = sum(map(os.path.getsize, files)) / (1 << 20)
    best = {"json": 1e99, "csv": 1e99, "xlsx": 1e99, "alone": 1e99}
    memory, table = {}, None
    for _ in range(ROUNDS):
        best["json"] = min(best["json"], bench.seconds("json", *files))
        for form in ("csv", "xlsx"):
            seconds, rows, memory[form], _, path = bench.compare(dumps, form)
            best[form] = min(best[form], seconds)
            if form == "csv" and table is None:
                table = path
            else:
                os.unlink(path)
        alone = os.path.join(bench.folder, "alone.xlsx")
        best["alone"] = min(best["alone"], bench.seconds("xlsx", table, alone))
        os.unlink(alone)
    os.unlink(table)
    print(f"statistics, {rows} rows, {size:.0f} MiB of JSON: reading it {best['json']:.2f} s, csv {best['csv']:.2f} s, "
          f"xlsx {best['xlsx']:.2f} s, libxlsxwriter alone {best['alone']:.2f} s")
    bench.tell("statistics as csv, times what reading the JSON takes", best["csv"] / best["json"], 3, False)
    bench.tell("statistics as xlsx, times what libxlsxwriter alone takes", best["xlsx"] / best["alone"], 2, False)
    for form in ("csv", "xlsx"):
        bench.tell(f"statistics as {form}, memory, times the JSON", memory[form] / size, 4, False)


def growth(bench):
    """Microseconds per row from 10^3 to 10^6 rows: the worst against the smallest size that is beyond start-up."""
    mapping = os.path.join(bench.folder, "mapping.yaml")
    with open(mapping, "w") as f:
        for i in range(1000):
            f.write(f"Functional.op1.{i}.forward.output.0: Functional.op1.{i}.forward.output.1\n")
    for name, more in (("by name", []), ("fuzzy", ["fuzzy"]), ("mapping", ["mapping=" + mapping])):
        costs = {}
        for apis in (100, 1000, 10000, 100000):
            dumps = os.path.join(bench.folder, "growth%d" % apis)
            if not os.path.isdir(dumps):
                bench.call("make-statistics", apis, dumps)
            for _ in range(ROUNDS):
                seconds, rows, _, _, path = bench.compare(dumps, "csv", *more)
                costs[rows] = min(costs.get(rows, 1e99), seconds / rows * 1e6)
                os.unlink(path)
        print(f"growth, {name}: " + ", ".join(f"{r} rows {c:.2f} us each" for r, c in costs.items()))
        sizes = sorted(costs)
        bench.tell(f"growth, {name}: cost of a row at {sizes[-1]} rows, times that at {sizes[1]}",
                   costs[sizes[-1]] / costs[sizes[1]], 1.5, False)


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release/bench/bench_compare")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(program, folder)
        for part in (large_tensors, tiny_tensors, statistics, growth):
            part(bench)
    return 1 if bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
