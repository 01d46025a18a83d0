"""What recording costs on MindSpore, as ratios to a step of a script that only switches launch_blocking on; medians, interleaved.

    tools/bench mindspore, or bench/bench_mindspore.py [rounds] [--models mlp,enc] [--original PYTHON]

Each kind runs in a process of its own, because launch_blocking cannot be undone; a round takes one after the other. PYTHON has mindspore 2.7.0 and
mindstudio-probe 8.3.3 (numpy 1.26, pandas below 2.1): then both tools are measured, ours with MINDSPORE=2.7.0 tools/setup mindspore.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = ("mlp", "cnn", "enc")
KINDS = ("bare", "built", "blocking", "L1", "L0")
RECORDING = ("L1", "L0", "original")
STEPS = 12
TARGETS = {"built": ("bare", 1.02), "L1": ("blocking", 2.0), "L0": ("blocking", 1.5)}


def make_it_run():
    """The original's statistics call mint.norm, which has no kernel on the CPU."""
    import mindspore
    import numpy

    def norm(x, *_, **__):
        return mindspore.Tensor(numpy.linalg.norm(x.asnumpy().astype(numpy.float32).reshape(-1)))

    mindspore.mint.norm = norm


def one(model, kind, folder):
    """Seconds of a step, the median of all but the first ones."""
    import time

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "mindspore"))
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    if kind == "original":
        make_it_run()
    if kind in ("blocking",) + RECORDING:
        ms.runtime.launch_blocking()
    import golden_models as models
    from mindspore import nn

    debugger = None
    if kind in ("built",) + RECORDING:
        from msprobe.mindspore import PrecisionDebugger

        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump({"task": "statistics", "level": "L0" if kind == "L0" else "L1", "dump_path": os.path.join(folder, "dump"), "rank": [], "step": [],
                       "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}}, f)
        debugger = PrecisionDebugger(config_path=config)
    net = models.build(model)
    net.set_train(True)
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)
    grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    times = []
    for step in range(STEPS):
        x, y = models.batch(model, step)
        begin = time.perf_counter()
        if kind in RECORDING:
            debugger.start(net)
        loss, gradients = grad(x, y)
        optimizer(gradients)
        loss.asnumpy()
        if kind in RECORDING:
            debugger.stop()
        times.append(time.perf_counter() - begin)
        if kind in RECORDING:
            debugger.step()
    print("seconds", statistics.median(times[3:]))


def measure(python, model, kind):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, __file__, "one", model, kind, folder], capture_output=True, text=True)
    line = [text for text in done.stdout.splitlines() if text.startswith("seconds")]
    if not line:
        sys.exit("%s %s failed:\n%s" % (model, kind, done.stdout + done.stderr))
    return float(line[0].split()[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=9)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--original", metavar="PYTHON")
    options = parser.parse_args()
    python = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".venv-mindspore", "bin", "python")
    if not os.path.exists(python):
        print("skipped: there is no .venv-mindspore (tools/setup mindspore)")
        return
    kinds = KINDS + (("original",) if options.original else ())
    for model in options.models.split(","):
        found = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind in kinds:
                found[kind].append(measure(options.original if kind == "original" else python, model, kind))
        medians = {kind: statistics.median(values) for kind, values in found.items()}
        print("%s: " % model + ", ".join("%s %.2f ms" % (kind, 1e3 * medians[kind]) for kind in kinds))
        targets = dict(TARGETS, **({"original": ("L1", None)} if options.original else {}))
        for kind, (base, target) in targets.items():
            ratio = medians[kind] / medians[base]
            if target is None:
                print("  %s original L1 %.1fx ours, target at least 5x %s" % (model, ratio, "ok" if ratio >= 5 else "MISSED"), flush=True)
            else:
                print("  %s %-5s %.2fx the step %s, target at most %.2fx %s" % (model, kind, ratio, base, target, "ok" if ratio <= target else "MISSED"), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:5])
    else:
        main()
