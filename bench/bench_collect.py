#!/usr/bin/env python3
"""The collector: a training step with it against the same step without it.

    bench_collect.py [MODEL...]      tiny, convnet, transformer; all when none is named

Each configuration runs in a process of its own, because there is one debugger per process. In it, steps without recording and steps between
start() and stop() take turns, and the best of each counts. What is timed is the whole step as a user writes it, start(), stop() and step()
included. Times are the training process' own CPU time on one thread: on a small machine the writer process would otherwise be measured, too;
"wall" is the clock's time of the same steps, with the wait for the writer that stop() does.

"Bare" is a step in a process that has a debugger and has stopped it; that such a step costs nothing is what the first lines show, where the
other side is a process that never heard of us: the two take turns.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

MODELS = ("tiny", "convnet", "transformer")
STEP_TARGET = {"tiny": {"L0": 1.7, "L1": 2.2, "mix": 2.6}}
OTHER_TARGET = {"L0": 1.15, "L1": 1.3, "mix": 1.3}
PER_RECORD_TARGET = 8.0  # microseconds, over one pass over its data


# ---- models ----------------------------------------------------------------------------------------------------------------------------


def make_tiny(torch):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, x):
            return self.norm(torch.relu(self.linear(x)) * 0.5 + x)

    return torch.nn.Sequential(*[Layer() for _ in range(60)]), torch.randn(8, 16)


def make_convnet(torch):
    nn = torch.nn
    layers, channels = [], 3
    for width in (32, 64, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4, 10)), torch.randn(32, 3, 32, 32)


def make_transformer(torch):
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 64, 256)


def make_training(model_name):
    """(model, step): one step of training, and what it trains."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, x = {"tiny": make_tiny, "convnet": make_convnet, "transformer": make_transformer}[model_name](torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step():
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step


# ---- in the process that is measured ---------------------------------------------------------------------------------------------------


def make_debugger(folder, settings):
    from msprobe.pytorch import PrecisionDebugger

    config = dict({"task": "statistics", "dump_path": folder, "rank": [], "step": [], "level": "L1"}, **settings)
    details = config.pop("details", {})
    config[config["task"]] = dict({"scope": [], "list": [], "data_mode": ["all"]}, **details)
    path = os.path.join(folder, "config.json")
    with open(path, "w") as f:
        json.dump(config, f)
    os.chmod(path, 0o640)
    return PrecisionDebugger(config_path=path)


def timed(action):
    cpu, wall = time.process_time(), time.perf_counter()
    action()
    return time.process_time() - cpu, time.perf_counter() - wall


def recorded_step(debugger, model, step):
    debugger.start(model=model)
    step()
    debugger.stop()
    debugger.step()


def plain_pass(size):
    """A function that reads so many bytes once, as far as possible from memory that is in no cache: 64 MiB, as often as it takes."""
    import numpy

    a = numpy.ones(1 << 24, dtype=numpy.float32)
    rest = a[: size % a.nbytes // 4 or 1]

    def read():
        for _ in range(size // a.nbytes):
            a.max()
        rest.max()

    return read


def worker_turns(model_name, folder, settings, rounds, warm=3):
    """Bare steps, recorded ones and plain passes over as many bytes as are recorded in turn: the best of each, and the median of what a record
    takes above bare step and pass of its own turn. Other work on the machine slows all three, and the long ones never find it idle."""
    model, step = make_training(model_name)
    debugger = make_debugger(folder, settings)
    for _ in range(warm):
        step()
        recorded_step(debugger, model, step)
    found = dump_bytes(folder)
    read = plain_pass(found["bytes"])
    bare, ours, passes = [], [], []
    for _ in range(rounds):
        bare.append(timed(step))
        ours.append(timed(lambda: recorded_step(debugger, model, step)))
        passes.append(timed(read))
    above = sorted(o[0] - b[0] - p[0] for o, b, p in zip(ours, bare, passes))
    return {"bare": min(b[0] for b in bare), "step": min(o[0] for o in ours), "wall": min(o[1] for o in ours),
            "bare wall": min(b[1] for b in bare), "pass": min(p[0] for p in passes) / found["records"],
            "record": above[rounds // 2] / found["records"]}


def worker_peer(model_name, folder, settings, rounds):
    """The same for a tool that may slow down every step from its import on: bare steps come first."""
    model, step = make_training(model_name)
    for _ in range(3):
        step()
    bare = min(timed(step)[0] for _ in range(rounds))
    debugger = make_debugger(folder, settings)
    idle = min(timed(step)[0] for _ in range(rounds))
    first = timed(lambda: recorded_step(debugger, model, step))[0]  # one step of a slow tool is seconds
    ours = min(timed(lambda: recorded_step(debugger, model, step))[0] for _ in range(2 if first > 0.5 else rounds))
    stopped = min(timed(step)[0] for _ in range(rounds))
    return {"bare": bare, "idle": idle, "step": ours, "stopped": stopped}


def serve_steps(model_name, folder, state):
    """Time a step for each line that comes in; state: "none", "built" or "stopped"."""
    model, step = make_training(model_name)
    for _ in range(3):
        step()
    if state != "none":
        debugger = make_debugger(folder, {})
        if state == "stopped":
            recorded_step(debugger, model, step)
    for _ in range(5):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(min(timed(step)[0] for _ in range(3)), flush=True)


def worker_stack():
    """Microseconds for the lookup of a known call stack of 30 frames, the call from Python included."""
    from msprobe._core import probe

    def deep(n):
        if n > 0:
            return deep(n - 1)
        calls, best = 20000, 1e9
        probe.stack()
        for _ in range(7):
            best = min(best, timed(lambda: [probe.stack() for _ in range(calls)])[0] / calls)
        return best * 1e6

    with tempfile.TemporaryDirectory() as folder:
        model, step = make_training("tiny")
        recorded_step(make_debugger(folder, {}), model, step)
        return {"us": deep(24)}


def worker_growth(folder, calls):
    """Microseconds of this process per record of a step with so many records."""
    import torch

    torch.set_num_threads(1)
    debugger = make_debugger(folder, {})
    x = torch.ones(4, 4)

    def run(n):
        for _ in range(n):
            torch.relu(x)

    def recorded(n):
        debugger.start()
        run(n)
        debugger.stop()
        debugger.step()

    recorded(1000)
    small = min((timed(lambda: recorded(1000)) for _ in range(10)), key=lambda t: t[1])
    large = min((timed(lambda: recorded(calls)) for _ in range(2)), key=lambda t: t[1])
    return {"small": small[0] / 1000, "large": large[0] / calls, "small wall": small[1] / 1000, "large wall": large[1] / calls}


def dd_seconds(path, megabytes, sync):
    """dd writes a file in blocks of 1 MiB and waits for the disk (sync) or does not."""
    start = time.perf_counter()
    subprocess.run(["dd", "if=/dev/zero", "of=" + path, "bs=1M", "count=%d" % megabytes] + (["conv=fsync"] if sync else []),
                   check=True, stderr=subprocess.DEVNULL)
    took = time.perf_counter() - start
    os.remove(path)
    return took


def sync_folder(folder):
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def saved(debugger, data, call, sync):
    """Seconds for one step of task tensor whose files go to the folder data, with a wait for the disk (sync) or without."""
    start = time.perf_counter()
    debugger.start()
    call()
    debugger.stop()
    if sync:
        sync_folder(data)
    took = time.perf_counter() - start
    debugger.step()
    return took


def in_turns(ways, rounds):
    """The best time of each way."""
    best = dict.fromkeys(ways, 1e9)
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = min(best[name], way())
    return best


def worker_tensors(folder):
    """Task tensor with large tensors, and dd to the same disk: with everything on the disk at the end, and without waiting for that."""
    import shutil

    import torch

    torch.set_num_threads(1)
    debugger = make_debugger(folder, {"task": "tensor", "details": {"data_mode": ["forward"]}})
    x, steps, path = torch.randn(1024, 4096), iter(range(1000)), os.path.join(folder, "dd")
    megabytes = 16 * 2 * 8  # 8 calls, each with an input and an output of 16 MiB

    def calls():
        for _ in range(8):
            torch.relu(x)

    def ours(sync):
        rank = os.path.join(folder, "step%d" % next(steps), "rank")
        took = saved(debugger, os.path.join(rank, "dump_tensor_data"), calls, sync)
        while os.path.exists(rank):  # the writer may be removing a file of its own there
            shutil.rmtree(rank, ignore_errors=True)
        return took

    best = in_turns({"bare": lambda: timed(calls)[1], "cached": lambda: ours(False), "dd cached": lambda: dd_seconds(path, megabytes, False),
                     "synced": lambda: ours(True), "dd synced": lambda: dd_seconds(path, megabytes, True)}, 8)
    return {"cached": megabytes / (best["cached"] - best["bare"]), "synced": megabytes / (best["synced"] - best["bare"]),
            "dd cached": megabytes / best["dd cached"], "dd synced": megabytes / best["dd synced"]}


def worker_tiny_tensors(folder):
    """Task tensor with tiny tensors, against making as many empty files. Nothing is removed: ext4 steps over each inode that was freed in the last minutes."""
    import torch

    torch.set_num_threads(1)
    debugger = make_debugger(folder, {"task": "tensor", "details": {"data_mode": ["forward"]}})
    x, calls, numbers = torch.randn(4, 4), 1000, iter(range(1000))

    def empty():
        to = os.path.join(folder, "empty%d" % next(numbers))
        os.mkdir(to)
        start = time.perf_counter()
        for i in range(2 * calls):
            os.close(os.open("%s/Torch.relu.%d.forward.input.0.pt" % (to, i), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))
        return time.perf_counter() - start

    best = in_turns({"tiny": lambda: saved(debugger, None, lambda: [torch.relu(x) for _ in range(calls)], False), "empty": empty}, 6)
    return {name: seconds / calls / 2 for name, seconds in best.items()}


def worker_sizes(folder, kib):
    """Task tensor with tensors of so many KiB, dd to one file, and a plain loop that creates, writes and closes as many files; in MB/s, into the page
    cache. Nothing is removed, see above."""
    import torch

    torch.set_num_threads(1)
    debugger = make_debugger(folder, {"task": "tensor", "details": {"data_mode": ["forward"]}})
    x, numbers, megabytes, dd_megabytes = torch.randn(kib, 256), iter(range(1000)), 16, 128  # dd has to start first
    count, block, path = megabytes * 1024 // kib, x.numpy().tobytes(), os.path.join(folder, "dd")

    def calls():
        for _ in range(count // 2):
            torch.relu(x)

    def plain():
        to = os.path.join(folder, "plain%d" % next(numbers))
        os.mkdir(to)
        start = time.perf_counter()
        for i in range(count):
            fd = os.open("%s/Torch.relu.%d.forward.input.0.pt" % (to, i), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            os.write(fd, block)
            os.close(fd)
        return time.perf_counter() - start

    best = in_turns({"bare": lambda: timed(calls)[1], "ours": lambda: saved(debugger, None, calls, False), "plain": plain,
                     "dd": lambda: dd_seconds(path, dd_megabytes, False)}, 6)
    return {"ours": megabytes / (best["ours"] - best["bare"]), "plain": megabytes / best["plain"], "dd": dd_megabytes / best["dd"]}


def work(arguments):
    what, folder = arguments[0], arguments[1]
    if what == "turns":
        return worker_turns(arguments[2], folder, json.loads(arguments[3]), int(arguments[4]))
    if what == "peer":
        return worker_peer(arguments[2], folder, json.loads(arguments[3]), int(arguments[4]))
    if what == "growth":
        return worker_growth(folder, int(arguments[2]))
    if what == "sizes":
        return worker_sizes(folder, int(arguments[2]))
    return {"stack": worker_stack, "tensors": lambda: worker_tensors(folder), "tiny tensors": lambda: worker_tiny_tensors(folder)}[what]()


# ---- in the process that asks ----------------------------------------------------------------------------------------------------------


def ask(*arguments, python=sys.executable):
    """Run one worker and return what it found."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, os.path.abspath(__file__), "--worker", arguments[0], folder, *map(str, arguments[1:])]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().rpartition("\n")[2] or "exit status %d" % done.returncode)
        size = dump_bytes(folder)
        return dict(json.loads(done.stdout.rpartition("RESULT ")[2].partition("\n")[0]), **size)


def dump_bytes(folder):
    """Records of the last step, and the bytes of the tensors that they describe."""
    steps = sorted((d for d in os.listdir(folder) if d.startswith("step")), key=lambda d: int(d[4:]))
    path = steps and os.path.join(folder, steps[-1], "rank", "dump.json")
    if not path or not os.path.exists(path):
        return {}
    with open(path) as f:
        data = json.load(f)["data"]
    total = [0]

    def walk(v):
        if isinstance(v, dict) and "dtype" in v and "shape" in v:
            n = 1
            for size in v["shape"]:
                n *= size
            total[0] += n * {"torch.float64": 8, "torch.int64": 8, "torch.bool": 1}.get(v["dtype"], 4)
        elif isinstance(v, dict):
            for x in v.values():
                walk(x)
        elif isinstance(v, list):
            for x in v:
                walk(x)

    walk(data)
    return {"records": len(data), "bytes": total[0]}


def say(text, value, unit, target, ok):
    print(f"{text:58}{value:9.2f}{unit:3}  target {target:>8}  {'ok' if ok else 'MISSED'}", flush=True)


def bench_idle(model):
    """Processes without us, with a debugger and with a stopped one; they take turns."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for state in ("none", "built", "stopped"):
            own = os.path.join(folder, state)
            os.mkdir(own)
            sides[state] = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", model, own, state], text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for side in sides.values():
            while side.stdout.readline().strip() != "ready":
                pass
        best = dict.fromkeys(sides, 1e9)
        for _ in range(60 if model == "tiny" else 12):
            for state, side in sides.items():
                side.stdin.write("\n")
                side.stdin.flush()
                best[state] = min(best[state], float(side.stdout.readline()))
        for side in sides.values():
            side.stdin.close()
            side.wait()
    for state in ("built", "stopped"):
        ratio = best[state] / best["none"]
        say(f"{model}: {'built, not started' if state == 'built' else 'stopped again'}", ratio, "x", "1.00x", ratio < 1.03)


def bench_model(model):
    rounds = 200 if model == "tiny" else 20  # a busy host leaves few of the short ones undisturbed
    found = {}
    for name, settings in (("L1", {}), ("L1 md5", {"details": {"summary_mode": "md5"}}), ("L0", {"level": "L0"}), ("mix", {"level": "mix"})):
        found[name] = r = ask("turns", model, json.dumps(settings), rounds)
        ratio = r["step"] / r["bare"]
        target = STEP_TARGET.get(model, OTHER_TARGET).get(name)
        text = (f"{model}: {name}, {r['records']} records, bare {r['bare'] * 1e3:.2f} ms, wall {r['wall'] / r['bare wall']:.2f}x")
        if target:
            say(text, ratio, "x", f"{target}x", ratio <= target)
        else:
            print(f"{text:58}{ratio:9.2f}x", flush=True)
    l1 = found["L1"]
    per_record = l1["record"] * 1e6
    say(f"{model}: L1, per record above one pass over its data ({l1['pass'] * 1e6:.0f} us)", per_record, "us", f"{PER_RECORD_TARGET}us", per_record <= PER_RECORD_TARGET)
    # what md5 adds, over the step with statistics, of which both have the same bare one
    more = (found["L1 md5"]["step"] / found["L1 md5"]["bare"]) / (l1["step"] / l1["bare"]) * 100 - 100
    say(f"{model}: md5 adds to L1", more, "%", "30%", more <= 30)


def main(names):
    for model in names or MODELS:
        bench_idle(model)
        bench_model(model)
    us = ask("stack")["us"]
    say("call stack, 30 frames", us, "us", "0.5us", us <= 0.5)
    r = ask("growth", 100000)
    ratio = r["large wall"] / r["small wall"]
    text = f"100,000 records against 1,000, each {r['large wall'] * 1e6:.1f} and {r['small wall'] * 1e6:.1f} us"
    say(text, ratio, "x", "1.2x", ratio <= 1.2)
    r = ask("tensors")
    share = r["synced"] / r["dd synced"] * 100
    say(f"tensor files on the disk: {r['synced']:.0f} MB/s, dd {r['dd synced']:.0f} MB/s", share, "%", "80%", share >= 80)
    print(f"tensor files in the page cache: {r['cached']:.0f} MB/s, dd {r['dd cached']:.0f} MB/s{r['cached'] / r['dd cached'] * 100:18.2f}%")
    for kib in (64, 256, 512, 1024):
        r = ask("sizes", kib)
        share = r["ours"] / r["dd"] * 100
        text = f"tensor files of {kib} KiB: {r['ours']:.0f} MB/s, dd {r['dd']:.0f}, as many plain files {r['plain']:.0f} ({r['ours'] / r['plain'] * 100:.0f} %)"
        say(text, share, "%", "80%", share >= 80)
    r = ask("tiny tensors")
    print(f"a file of a tiny tensor: {r['tiny'] * 1e6:.1f} us, an empty file {r['empty'] * 1e6:.1f} us{r['tiny'] / r['empty']:18.2f}x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print("RESULT " + json.dumps(work(sys.argv[2:])))
    elif sys.argv[1:2] == ["--serve"]:
        serve_steps(*sys.argv[2:])
    else:
        main(sys.argv[1:])
