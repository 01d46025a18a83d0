"""What recording costs on MindSpore: medians of the ratios of rounds that take one kind after the other.

    tools/bench mindspore, or bench/bench_mindspore.py [rounds] [--models mlp,enc] [--original PYTHON]

Each kind runs in a process of its own, because launch_blocking cannot be undone. There steps with and without recording take turns, so that both see
the same load of the machine. L1 and L0 record in a script that switches launch_blocking on, default in one that does not. PYTHON has mindspore 2.7.0
and mindstudio-probe 8.3.3 (numpy 1.26, pandas below 2.1): then both tools are measured, ours with MINDSPORE=2.7.0 tools/setup mindspore.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = ("mlp", "cnn", "enc")
KINDS = ("bare", "built", "L1", "L0", "default")
THEIRS = {"original": "L1", "original-default": "default"}  # what the original is measured as, and our kind beside it
STEPS = 15
WARM = 3
TARGETS = {"L1": 2.0, "L0": 1.5}  # times the step that is not recorded


def make_it_run():
    """The original's statistics call mint.norm, which has no kernel on the CPU."""
    import mindspore
    import numpy

    def norm(x, *_, **__):
        return mindspore.Tensor(numpy.linalg.norm(x.asnumpy().astype(numpy.float32).reshape(-1)))

    mindspore.mint.norm = norm


def prepare(kind, folder):
    """The debugger of a kind, None: it has none."""
    if kind.startswith("original"):
        make_it_run()
    if kind in ("L1", "L0", "original"):
        import mindspore

        mindspore.runtime.launch_blocking()
    if kind == "bare":
        return None
    from msprobe.mindspore import PrecisionDebugger

    config = os.path.join(folder, "config.json")
    with open(config, "w") as f:
        json.dump({"task": "statistics", "level": "L0" if kind == "L0" else "L1", "dump_path": os.path.join(folder, "dump"), "rank": [], "step": [],
                   "statistics": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}}, f)
    return PrecisionDebugger(config_path=config)


def one(model, kind, folder):
    """Print the seconds of a step without and with recording: medians of all but the first ones."""
    import time

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "mindspore"))
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    debugger = prepare(kind, folder)
    import golden_models as models
    from mindspore import nn

    net = models.build(model)
    net.set_train(True)
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)
    grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    times = {False: [], True: []}
    for step in range(STEPS):
        x, y = models.batch(model, step)
        for recorded in (False,) if kind in ("bare", "built") else (False, True):
            begin = time.perf_counter()
            if recorded:
                debugger.start(net)
            loss, gradients = grad(x, y)
            optimizer(gradients)
            loss.asnumpy()
            if recorded:
                debugger.stop()
            times[recorded].append(time.perf_counter() - begin)
            if recorded:
                debugger.step()
    print("seconds", *(statistics.median(t[WARM:]) for t in (times[False], times[True]) if t))


def measure(python, model, kind):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, __file__, "one", model, kind, folder], capture_output=True, text=True)
    line = [text for text in done.stdout.splitlines() if text.startswith("seconds")]
    if not line:
        sys.exit("%s %s failed:\n%s" % (model, kind, done.stdout + done.stderr))
    return [float(word) for word in line[0].split()[1:]]


def judge(model, name, text, ratio, target, is_good):
    print("  %s %-16s %s %.2fx%s" % (model, name, text, ratio, ", target %s %s" % (target, "ok" if is_good else "MISSED") if target else ""), flush=True)


def report(model, found):
    """found: kind -> the seconds of each round, without and, where it records, with recording."""
    middle = statistics.median
    print("%s: " % model + ", ".join("%s %s ms" % (kind, " / ".join("%.2f" % (1e3 * middle(column)) for column in zip(*rounds))) for kind, rounds in found.items()))
    built = middle(b[0] / a[0] for a, b in zip(found["bare"], found["built"]))
    judge(model, "built", "the bare step", built, "at most 1.02x", built <= 1.02)
    for kind in found:
        if len(found[kind][0]) < 2:
            continue
        ratio, most = middle(recorded / plain for plain, recorded in found[kind]), TARGETS.get(kind)
        judge(model, kind, "the step without recording", ratio, most and "at most %.1fx" % most, most and ratio <= most)
    for theirs, ours in THEIRS.items():
        if theirs in found:
            ratio = middle(a[1] / b[1] for a, b in zip(found[theirs], found[ours]))
            judge(model, theirs, "our recorded step", ratio, "at least 5x", ratio >= 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=9)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--original", metavar="PYTHON")
    options = parser.parse_args()
    python = os.environ.get("MSPROBE_MINDSPORE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".venv-mindspore", "bin", "python")
    if not os.path.exists(python):
        print("skipped: there is no .venv-mindspore (tools/setup mindspore, then tools/build)")
        return
    for each in (python, options.original):
        if each and subprocess.run([each, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('msprobe') is None)"]).returncode != 0:
            sys.exit("bench_mindspore.py: %s has no msprobe (%s)" % (each, "tools/build installs it" if each == python else "pip install mindstudio-probe==8.3.3"))
    kinds = KINDS + (tuple(THEIRS) if options.original else ())
    for model in options.models.split(","):
        found = {kind: [] for kind in kinds}
        for _ in range(options.rounds):
            for kind in kinds:
                found[kind].append(measure(options.original if kind in THEIRS else python, model, kind))
        report(model, found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:5])
    else:
        main()
