"""What recording costs on MindSpore, as ratios to a step of a script that only switches launch_blocking on; medians, interleaved.

    tools/bench mindspore, or bench/bench_mindspore.py [rounds]

Each kind runs in a process of its own, because launch_blocking cannot be undone; a round takes one after the other.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

MODELS = ("mlp", "cnn", "enc")
KINDS = ("bare", "built", "blocking", "L1", "L0")
STEPS = 12
TARGETS = {"built": ("bare", 1.02), "L1": ("blocking", 2.0), "L0": ("blocking", 1.5)}


def one(model, kind, folder):
    """Seconds of a step, the median of all but the first ones."""
    import time

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "mindspore"))
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE)
    if kind in ("blocking", "L1", "L0"):
        ms.runtime.launch_blocking()
    import golden_models as models
    from mindspore import nn

    debugger = None
    if kind in ("built", "L1", "L0"):
        from msprobe.mindspore import PrecisionDebugger

        config = os.path.join(folder, "config.json")
        with open(config, "w") as f:
            json.dump({"task": "statistics", "level": "L0" if kind == "L0" else "L1", "dump_path": os.path.join(folder, "dump")}, f)
        debugger = PrecisionDebugger(config_path=config)
    net = models.build(model)
    net.set_train(True)
    loss_fn, optimizer = nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)
    grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
    times = []
    for step in range(STEPS):
        x, y = models.batch(model, step)
        begin = time.perf_counter()
        if kind in ("L1", "L0"):
            debugger.start(net)
        loss, gradients = grad(x, y)
        optimizer(gradients)
        loss.asnumpy()
        if kind in ("L1", "L0"):
            debugger.stop()
        times.append(time.perf_counter() - begin)
        if kind in ("L1", "L0"):
            debugger.step()
    print("seconds", statistics.median(times[3:]))


def main(rounds):
    python = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".venv-mindspore", "bin", "python")
    if not os.path.exists(python):
        print("skipped: there is no .venv-mindspore (tools/setup mindspore)")
        return
    for model in MODELS:
        found = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in KINDS:
                with tempfile.TemporaryDirectory() as folder:
                    done = subprocess.run([python, __file__, "one", model, kind, folder], capture_output=True, text=True)
                line = [text for text in done.stdout.splitlines() if text.startswith("seconds")]
                if not line:
                    sys.exit("%s %s failed:\n%s" % (model, kind, done.stdout + done.stderr))
                found[kind].append(float(line[0].split()[1]))
        medians = {kind: statistics.median(values) for kind, values in found.items()}
        print("%s: " % model + ", ".join("%s %.2f ms" % (kind, 1e3 * medians[kind]) for kind in KINDS))
        for kind, (base, target) in TARGETS.items():
            ratio = medians[kind] / medians[base]
            print("  %s %-5s %.2fx the step %s, target at most %.2fx %s" % (model, kind, ratio, base, target, "ok" if ratio <= target else "MISSED"), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        one(*sys.argv[2:5])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
