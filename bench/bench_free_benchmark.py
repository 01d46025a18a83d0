#!/usr/bin/env python3
"""Task free_benchmark: a training step with every API call checked against the bare step.

    bench_free_benchmark.py [ROUNDS]

Each perturbation runs in a process of its own, in which bare steps and checked ones, start(), stop() and step() included, take turns; medians of their
ratios, in CPU time of one thread. The transformer is that of bench_collect.py; "bfloat16" is the same one with its weights and input in that type.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

import bench_collect

TARGETS = {"improve_precision": 4.0, "add_noise": 4.0, "no_change": 3.0}
CASES = [(model, mode) for model in ("transformer", "bfloat16") for mode in ("improve_precision", "add_noise", "no_change", "bit_noise", "change_value")]
CASES += [("transformer", "backward"), ("tiny", "add_noise"), ("tiny", "no_change")]


def make_step(which):
    import torch

    if which != "bfloat16":
        return bench_collect.make_training(which)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, x = bench_collect.make_transformer(torch)
    model, x = model.bfloat16(), x.bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step():
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


def work(which, mode, folder, rounds):
    model, step = make_step(which)
    details = {"pert_mode": mode}
    if mode == "backward":
        details = {"pert_mode": "add_noise", "fuzz_stage": "backward", "list": ["linear", "layer_norm", "attention", "dropout", "relu"]}
    debugger = bench_collect.make_debugger(folder, {"task": "free_benchmark", "details": details})
    for _ in range(2):
        step()
        bench_collect.recorded_step(debugger, model, step)
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(bench_collect.timed(step)[0])
        ours.append(bench_collect.timed(lambda: bench_collect.recorded_step(debugger, model, step))[0])
    return {"bare": statistics.median(bare), "ours": statistics.median(ours), "ratio": statistics.median(o / b for o, b in zip(ours, bare))}


def ask(which, mode, rounds):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "--worker", which, mode, folder, str(rounds)], stdout=subprocess.PIPE, text=True,
                              check=True, env=dict(os.environ, MSPROBE_LOG_LEVEL="4"))
        return json.loads(done.stdout.rpartition("RESULT ")[2])


def main(rounds):
    for which, mode in CASES:
        r = ask(which, mode, rounds)
        target = TARGETS.get(mode) if which != "tiny" else None
        text = "%-12s %-18s bare %6.1f ms, checked %6.1f ms" % (which, mode, r["bare"] * 1e3, r["ours"] * 1e3)
        verdict = "" if target is None else "   target %gx   %s" % (target, "ok" if r["ratio"] <= target else "MISSED")
        print("%s %6.2fx%s" % (text, r["ratio"], verdict), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print("RESULT " + json.dumps(work(*sys.argv[2:5], int(sys.argv[5]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
