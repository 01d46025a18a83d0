#!/usr/bin/env python3
"""JSON reading against Python's json.load on the same dump.json in the same run; processor time on both sides.

usage: bench_json.py [PROGRAM] [MB]     PROGRAM: the bench_json built from bench_json.c
"""
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def python_seconds(path):
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        with open(path, encoding="utf-8") as f:
            value = json.load(f)
        best = min(best, time.process_time() - started)
        del value
    return best


def report(what, measured, target, reached):
    print("%-38s %8.2f   target %s   %s" % (what, measured, target, "ok" if reached else "MISSED"))


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build/release/bench/bench_json")
    megabytes = sys.argv[2] if len(sys.argv) > 2 else "100"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "dump.json")
        subprocess.run([program, "--write", path, megabytes], check=True)
        size = os.path.getsize(path)
        theirs = python_seconds(path)
        out = subprocess.run([program, path], check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = {line.split()[0]: float(line.split()[1]) for line in out.splitlines()}
    print(out, end="")
    print("json.load            %8.0f MB/s in Python" % (size / theirs / 1e6))
    report("reading dump.json: MB/s", figures["json.read"], 100, figures["json.read"] >= 100)
    report("reading dump.json: times json.load", theirs / figures["json.read.seconds"], 4,
           theirs / figures["json.read.seconds"] >= 4)
    report("tree: bytes per byte of text, at most", figures["json.tree"], 2.5, figures["json.tree"] <= 2.5)


if __name__ == "__main__":
    main()
