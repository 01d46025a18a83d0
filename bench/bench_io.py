#!/usr/bin/env python3
"""Tensor files: opening a small .pt against torch.load(), and saving against plain write().

    bench_io.py [PROGRAM]       PROGRAM is the compiled bench_io, by default the release build's

Opening is measured in turns, a round of ours and a round of torch's, each as the best of its rounds.
"""
import os
import subprocess
import sys
import tempfile
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = 50


def torch_seconds(path, calls=200):
    best = 1e99
    for _ in range(calls):
        started = time.perf_counter()
        torch.load(path, weights_only=True)
        best = min(best, time.perf_counter() - started)
    return best


def our_seconds(program, path):
    out = subprocess.run([program, "open", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(out.split()[1]) / 1e9


def bench_open(program, folder):
    missed = 0
    for name, tensor in (("scalar", torch.tensor(1.0)), ("2x3 float32", torch.ones(2, 3)),
                         ("32x32 bfloat16", torch.ones(32, 32, dtype=torch.bfloat16))):
        path = os.path.join(folder, "small.pt")
        torch.save(tensor, path)
        rounds = [(torch_seconds(path), our_seconds(program, path)) for _ in range(3)]
        theirs, ours = min(r[0] for r in rounds), min(r[1] for r in rounds)
        ratio = theirs / ours
        missed += ratio < TARGET
        print(f"open a .pt of {name}: {ours * 1e6:.1f} us, torch.load {theirs * 1e6:.0f} us: {ratio:.0f} times as fast "
              f"(target {TARGET}) {'ok' if ratio >= TARGET else 'MISSED'}")
    return missed


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release/bench/bench_io")
    with tempfile.TemporaryDirectory() as folder:
        missed = bench_open(program, folder)
        subprocess.run([program, "save", folder], check=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
