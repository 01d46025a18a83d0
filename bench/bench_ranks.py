#!/usr/bin/env python3
"""Many ranks against their targets: two processes against one, 1,024 ranks against one, memory against the number of ranks.

    bench_ranks.py [COMMAND]         COMMAND is msprobe, by default that of .venv

Real data (16 ranks of 64 MiB a side) lies in a temporary folder and is read once before. Runs take turns, and medians count.
Targets are judged by processor time, so that other programs do not count: by the clock two processes of a busy machine get more
than twice as much of it as one.
"""
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROUNDS = 9
LAUNCH = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n"]


def run(words):
    """Seconds by the clock as the summary says, processor seconds, and the largest process in MiB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([*words, "--json"], stdout=out, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        said = json.load(out)
    assert os.waitstatus_to_exitcode(status) == 0, said["error"]
    return said["seconds"], used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def record(data_name=None):
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 8], "Max": 1.5, "Min": -2.25, "Mean": 0.125, "Norm": 3.5,
            "requires_grad": False}
    if data_name:
        leaf["data_name"] = data_name
    return leaf


def statistics_rank(records, world):
    """One rank's dump.json: compute calls, and a collective after every twenty."""
    group = {"type": "torch.ProcessGroup", "group_ranks": list(range(world)), "group_id": "0"}
    data = {}
    for i in range(records):
        if i % 20 == 19:
            data["Distributed.all_reduce.%d.forward" % i] = {"input_args": [record()], "input_kwargs": {"group": group},
                                                            "output": [record()]}
        else:
            data["Functional.linear.%d.forward" % i] = {"input_args": [record(), record()], "input_kwargs": {},
                                                        "output": [record()]}
    return {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}


def same_ranks(folder, ranks, doc):
    """As many ranks on both sides; the file is one, linked."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    original = os.path.join(folder, "dump.json")
    with open(original, "w") as f:
        json.dump(doc, f)
    for side in ("npu", "bench"):
        for rank in range(ranks):
            place = os.path.join(folder, side, "step0", "rank%d" % rank)
            os.makedirs(place)
            os.link(original, os.path.join(place, "dump.json"))


def real_ranks(folder, ranks, tensors, numel):
    """Real data: every rank with files of its own."""
    for side in ("npu", "bench"):
        for rank in range(ranks):
            place = os.path.join(folder, side, "step0", "rank%d" % rank)
            os.makedirs(os.path.join(place, "dump_tensor_data"))
            data = {}
            for i in range(tensors):
                name = "Functional.linear.%d.forward.output.0.npy" % i
                head = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % numel
                head += " " * (63 - (len(head) + 10) % 64) + "\n"
                with open(os.path.join(place, "dump_tensor_data", name), "wb") as f:
                    f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
                    f.write(struct.pack("<1024f", *[(j * 37 + i) % 1000 / 7 for j in range(1024)]) * (numel // 1024))
                leaf = dict(record(name), shape=[numel])
                data["Functional.linear.%d.forward" % i] = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
            with open(os.path.join(place, "dump.json"), "w") as f:
                json.dump({"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": data}, f)


def tell(text, value, target, at_least):
    good = value >= target if at_least else value <= target
    print(f"{text}: {value:.2f} (target {'at least' if at_least else 'at most'} {target}) {'ok' if good else 'MISSED'}", flush=True)
    return good


def words(command, folder, *more):
    return [command, "compare", os.path.join(folder, "npu"), os.path.join(folder, "bench"), "-o", os.path.join(folder, "out"),
            "--format", "csv", "--no-html", "-c", "--threads", "1", *more]


def two_processes(command, folder):
    """What one process takes, over half of what two take together; without what mpirun and MPI take to start."""
    if shutil.which("mpirun") is None:
        print("two processes: no mpirun here")
        return True
    place, tiny = os.path.join(folder, "real"), os.path.join(folder, "tiny")
    real_ranks(place, 16, 8, 2 << 20)
    same_ranks(tiny, 2, statistics_rank(1, 2))
    run(words(command, place))
    taken = {(n, what): [] for n in "12" for what in (place, tiny)}
    for _ in range(ROUNDS):
        for (n, what), runs in taken.items():
            runs.append(run([*LAUNCH, n, *words(command, what)]))
        shutil.rmtree(os.path.join(place, "out"))
    clock = {n: statistics.median(r[0] for r in taken[n, place]) for n in "12"}
    work = {n: statistics.median(r[1] for r in taken[n, place]) - statistics.median(r[1] for r in taken[n, tiny]) for n in "12"}
    print(f"real data by the clock: one process {clock['1']:.2f} s, two {clock['2']:.2f} s")
    return tell("two processes against one, by processor time", 2 * work["1"] / work["2"], 1.8, True)


def many_ranks(command, folder):
    place, memory, good = os.path.join(folder, "ranks"), {}, True
    seconds = {}
    for ranks in (1, 64, 256, 1024):
        same_ranks(place, ranks, statistics_rank(1000, ranks))
        runs = [run(words(command, place)) for _ in range(ROUNDS if ranks == 1 else 3)]
        seconds[ranks] = min(r[1] for r in runs)
        memory[ranks] = max(r[2] for r in runs)
        print(f"{ranks:5} ranks of 1,000 records: {min(r[0] for r in runs):.3f} s, {seconds[ranks]:.3f} s of processor time, "
              f"{memory[ranks]:.1f} MiB", flush=True)
    good &= tell("1,024 ranks against 1,024 times one (processor time)", seconds[1024] / (1024 * seconds[1]), 2, False)
    each = (memory[1024] - memory[64]) * 1024 / (1024 - 64)
    return good & tell("KiB of memory for each further rank", each, 64, False)


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, ".venv/bin/msprobe")
    with tempfile.TemporaryDirectory() as folder:
        good = many_ranks(command, folder)
        good &= two_processes(command, folder)
    return 0 if good else 1


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
