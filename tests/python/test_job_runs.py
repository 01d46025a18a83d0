"""msprobe compare of real jobs with one fault each: the job's answer names the rank and call first, and the clean job is clean."""
import csv
import json
import os
import signal
import shutil
import subprocess
import sys

import pytest
from collecting import R, begin, finish, fill, ranks, torch, write_config

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
if not os.path.exists(COMMAND):
    pytest.skip("the command is not installed beside this interpreter", allow_module_level=True)


def compare(folder, *options, code=0):
    done = subprocess.run([COMMAND, "compare", "npu/dump", "bench/dump", "-o", "out", "--json", "--no-html", *options], text=True,
                          capture_output=True, timeout=600, cwd=folder)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def both(folder, body, npu, bench, task="statistics", worlds=None):
    """Two jobs, body(debugger, rank, what) each with its own what."""
    for side, what, world in (("npu", npu, (worlds or (3, 3))[0]), ("bench", bench, (worlds or (3, 3))[1])):
        (folder / side).mkdir()
        ranks(folder / side, lambda d, rank: body(d, rank, what), world, task=task)


def roles(said):
    return {row["rank"]: row["role"] for row in said["job"]["table"]}


# ---- data parallel ---------------------------------------------------------------------------------------------------

def data_parallel(d, rank, factors):
    """Two updates of one layer; a rank's gradient is multiplied by its factor, as a wrong loss scale would."""
    weight, bias = R(5, 4, seed=1), torch.zeros(5)
    d.start()
    for update in range(2):
        x = R(6, 4, seed=10 * update + rank)
        y = F.gelu(F.linear(x, weight, bias))
        grad = torch.matmul(y.t(), x)
        grad = torch.mul(grad, factors.get((update, rank), 1.0))
        dist.all_reduce(grad)
        weight = torch.sub(weight, grad, alpha=0.01)
    d.stop()
    d.step()


def test_a_clean_job_is_clean(tmp_path):
    both(tmp_path, data_parallel, {}, {})
    said = compare(tmp_path)
    assert said["job"]["first"] is None and said["job"]["notes"] == [] and set(roles(said).values()) == {"clean"}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_doubled_gradient_is_named_and_the_others_inherit_it_by_the_all_reduce(tmp_path, task):
    both(tmp_path, data_parallel, {(0, 2): 2.0}, {}, task)
    said = compare(tmp_path)
    assert roles(said) == {0: "inherited", 1: "inherited", 2: "first"}
    first = said["job"]["table"][said["job"]["first"]]
    assert first["first_wrong"] == "Torch.mul.0.forward" and any("data_parallel" in frame for frame in first["stack"])
    assert said["job"]["inherited"] == 2
    assert said["job"]["table"][0]["inherited_through"] == "Distributed.all_reduce.0.forward"


def test_the_second_update_comes_after_the_first(tmp_path):
    both(tmp_path, data_parallel, {(1, 0): 3.0}, {})
    said = compare(tmp_path)
    assert said["job"]["table"][said["job"]["first"]]["rank"] == 0
    first = said["job"]["table"][0]
    assert first["first_wrong"] == "Torch.mul.1.forward" and first["waited_for"] == "Distributed.all_reduce.0.forward"


def test_one_ranks_all_reduce_result_is_named(tmp_path):
    """Altered where it was written: gloo itself makes no such fault."""
    both(tmp_path, data_parallel, {}, {})
    path = tmp_path / "npu/dump/step0/rank1/dump.json"
    doc = json.loads(path.read_text())
    for record in doc["data"]["Distributed.all_reduce.1.forward"]["output"]:
        record.update({k: 2 * record[k] for k in ("Max", "Min", "Mean", "Norm")})
    path.write_text(json.dumps(doc))
    said = compare(tmp_path)
    assert said["job"]["table"][said["job"]["first"]]["rank"] == 1
    assert said["job"]["table"][1]["first_wrong"] == "Distributed.all_reduce.1.forward"


def test_a_killed_rank_is_said_first(tmp_path):
    def body(d, rank, killed):
        weight = R(5, 4, seed=1)
        d.start()
        y = F.linear(R(6, 4, seed=rank), weight)
        dist.all_reduce(y)
        dist.barrier()
        for i in range(4):
            y = F.gelu(y)
            if killed and rank == 1 and i == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        d.stop()
        d.step()

    from msprobe.pytorch import PrecisionDebugger

    for side, killed in (("npu", True), ("bench", False)):
        (tmp_path / side).mkdir()
        path = write_config(tmp_path / side, task="statistics")

        def run(rank, path=path, side=side, killed=killed):
            dist.init_process_group("gloo", init_method="file://%s" % (tmp_path / side / "store"), rank=rank, world_size=2)
            body(PrecisionDebugger(path), rank, killed)

        begun = []
        for rank in range(2):
            own = tmp_path / side / ("process%d" % rank)
            own.mkdir()
            begun.append(begin(own, lambda rank=rank: run(rank)))
        statuses = [finish(b, 120)[0] for b in begun]
        assert (statuses[1] != 0) == killed
    done = subprocess.run([COMMAND, "compare", "npu/dump", "bench/dump", "-o", "out", "--json", "--no-html"], text=True,
                          capture_output=True, timeout=600, cwd=tmp_path)
    notes = json.loads(done.stdout)["job"]["notes"]
    assert len(notes) == 1 and notes[0].startswith("step0 rank1: ") and "the NPU side stops early" in notes[0], done.stderr


# ---- pipeline --------------------------------------------------------------------------------------------------------

def pipeline(d, rank, factors):
    """Three stages; each multiplies by its factor and hands on."""
    d.start()
    x = R(4, 4, seed=7) if rank == 0 else torch.zeros(4, 4)
    if rank > 0:
        dist.recv(x, rank - 1)
    y = torch.tanh(torch.mul(x, factors.get(rank, 1.0)))
    if rank < 2:
        dist.send(y, rank + 1)
    d.stop()
    d.step()


def test_a_stage_of_a_pipeline_is_named_and_the_next_ones_inherit_it(tmp_path):
    both(tmp_path, pipeline, {1: 5.0}, {})
    said = compare(tmp_path)
    assert roles(said) == {0: "clean", 1: "first", 2: "inherited"}
    assert said["job"]["table"][1]["first_wrong"] == "Torch.mul.0.forward"
    assert said["job"]["table"][2]["inherited_through"] == "Distributed.recv.0.forward"


def pipeline_of_replicas(d, rank, fault):
    """Two stages of two replicas: ranks 0 and 1 send to 2 and 3, and each stage adds up its gradients."""
    groups = dist.new_group([0, 1]), dist.new_group([2, 3])
    weight = R(4, 4, seed=5)
    d.start()
    for part in range(2):
        x = R(4, 4, seed=10 * part + rank) if rank < 2 else torch.zeros(4, 4)
        if rank >= 2:
            dist.recv(x, rank - 2)
        y = torch.mul(torch.tanh(F.linear(x, weight)), 2.0 if fault == (rank, part) else 1.0)
        if rank < 2:
            dist.send(y, rank + 2)
        grad = torch.matmul(y.t(), y)
        dist.all_reduce(grad, group=groups[rank // 2])
        weight = torch.sub(weight, grad, alpha=0.01)
    d.stop()
    d.step()


@pytest.mark.parametrize("fault,expected", [((1, 0), ["inherited", "first", "inherited", "inherited"]),
                                            ((3, 1), ["clean", "clean", "inherited", "first"])])
def test_of_a_pipeline_of_replicas_the_first_is_named_whatever_way_the_fault_took(tmp_path, fault, expected):
    both(tmp_path, pipeline_of_replicas, fault, None, worlds=(4, 4))
    said = compare(tmp_path)
    assert [roles(said)[rank] for rank in range(4)] == expected
    row = said["job"]["table"][fault[0]]
    assert (row["order"], row["first_wrong"]) == (1, "Torch.mul.%d.forward" % fault[1]) and said["job"]["notes"] == []


def layers(d, rank, world, micro_batches=1, fault=None):
    """One model in as many stages as there are ranks, forward and backward by messages; all micro-batches go forward first."""
    model = fill(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)))
    model = model[{1: [0], 2: [0, 4], 3: [0, 2, 4]}[world][rank]:{1: [7], 2: [4, 7], 3: [2, 4, 7]}[world][rank]]
    if fault == rank:
        with torch.no_grad():
            model[0].weight[0, 0] += 0.5
    d.start(model)
    taken, given = [], []
    for k in range(micro_batches):
        x = R(4, 6, seed=k) if rank == 0 else torch.zeros(4, 6)
        if rank > 0:
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = model(x)
        if rank < world - 1:
            dist.send(y.detach(), rank + 1)
        taken.append(x)
        given.append(y)
    for x, y in zip(taken, given):
        if rank < world - 1:
            grad = torch.zeros(4, 6)
            dist.recv(grad, rank + 1)
            y.backward(grad)
        else:
            y.pow(2).mean().backward()
        if rank > 0:
            dist.send(x.grad, rank - 1)
    d.stop()
    d.step()


def staged(folder, world, *options, micro_batches=1, fault=None, **config):
    for side, n in (("npu", world), ("bench", 1)):
        (folder / side).mkdir()
        ranks(folder / side, lambda d, rank, n=n, side=side: layers(d, rank, n, micro_batches, fault if side == "npu" else None), n, **config)
    pair, = compare(folder, *options)["pairs"]
    return pair


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("task,part", [("tensor", None), ("statistics", None), ("statistics", {"summary_mode": "md5"})], ids=["tensor", "statistics", "md5"])
def test_a_pipeline_of_two_stages_is_the_run_of_one_rank(tmp_path, task, part, level):
    (tmp_path / "layout.yaml").write_text("stages: {npu: [[0], [1]]}\nparts: [{name: 'Distributed.*', how: skip}]\n" if level != "L0" else
                                          "stages: {npu: [[0], [1]]}\n")
    pair = staged(tmp_path, 2, "--layout", "layout.yaml", "--fail-on", "any", task=task, part=part, level=level)
    assert pair["counts"]["unmatched"] == 0 and pair["counts"]["matched"] == {"L0": 44, "L1": 62, "mix": 106}[level]
    said = compare(tmp_path, "--layout", "auto", "-o", "auto", "--fail-on", "any")["pairs"][0]
    assert said["counts"] == pair["counts"]


@pytest.mark.parametrize("fault", [None, 1])
def test_of_a_pipeline_with_micro_batches_the_layer_that_went_wrong_is_named(tmp_path, fault):
    pair = staged(tmp_path, 3, "--layout", "auto", micro_batches=3, fault=fault, task="statistics", level="mix")
    assert "  npu: [[0], [1], [2]]\n  micro_batches: 3\n" in next((tmp_path / "out").glob("layout_*.yaml")).read_text()
    assert pair["counts"]["unmatched"] == 0
    assert (pair["first_wrong"] or {}).get("npu_name") == (None if fault is None else "Functional.linear.1.forward.input.1")


def two_places(d, rank, world, factor):
    def first(x):
        return torch.mul(x, 1.0)

    def second(x):
        return torch.mul(x, factor)

    x = R(4, 6, seed=1)
    d.start()
    if rank == 0:
        x = first(x)
        if world > 1:
            dist.send(x, 1)
    else:
        dist.recv(x, 0)
    if rank == world - 1:
        second(x)
    d.stop()
    d.step()


def test_a_call_of_a_later_stage_has_the_stack_of_its_own_rank(tmp_path):
    for side, n, factor in (("npu", 2, 1.5), ("bench", 1, 1.0)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, n=n, factor=factor: two_places(d, rank, n, factor), n)
    (tmp_path / "layout.yaml").write_text("stages: {npu: [[0], [1]]}\nparts: [{name: 'Distributed.*', how: skip}]\n")
    wrong = compare(tmp_path, "--layout", "layout.yaml")["pairs"][0]["first_wrong"]
    assert wrong["npu_name"].startswith("Torch.mul.1.forward.")
    assert "in second" in "".join(wrong["stack"]) and "in first" not in "".join(wrong["stack"])


# ---- parts of a batch ------------------------------------------------------------------------------------------------

def small_model():
    return fill(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))


def batches(d, rank, world, wrap, fault=None):
    """Every rank has its part of one batch; the loss is the mean over it."""
    model, size = wrap(small_model(), world), 8 // world
    if fault == rank:
        with torch.no_grad():
            model.module[2].weight[0, 0] += 0.5
    d.start(model)
    model(R(8, 8, seed=3)[rank * size:(rank + 1) * size]).pow(2).mean().backward()
    d.stop()
    d.step()


def alone(model, world):
    return model


def data_parallel_model(model, world):
    return nn.parallel.DistributedDataParallel(model) if world > 1 else model


def fully_sharded(model, world):
    if world > 1:
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        for layer in (model[0], model[2], model):
            fsdp.fully_shard(layer)
    return model


@pytest.mark.parametrize("task,part", [("tensor", None), ("statistics", None), ("statistics", {"summary_mode": "md5"})], ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("wrap,world", [(alone, 4), (data_parallel_model, 2), (fully_sharded, 2), (fully_sharded, 8)],
                         ids=["plain", "ddp", "fsdp2", "fsdp2 of 8"])
def test_ranks_with_parts_of_a_batch_are_the_run_of_one_rank(tmp_path, wrap, world, task, part):
    pytest.importorskip("torch.distributed.tensor")
    for side, n in (("npu", world), ("bench", 1)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, n=n: batches(d, rank, n, wrap), n, task=task, part=part, level="L1")
    pair, = compare(tmp_path, "--layout", "auto", "--format", "csv")["pairs"]
    text = next((tmp_path / "out").glob("layout_*.yaml")).read_text()
    for line in ('"Functional.linear.*.forward.input.0", how: concat, axis: 0}', '"Functional.linear.*.backward.output.1", how: sum, factor: %g}' % (1 / world),
                 '"Functional.linear.*.backward.input.0", how: concat, axis: 0, factor: %g}' % (1 / world)):
        assert line in text
    with open(next((tmp_path / "out").rglob("compare_result*.csv")), newline="") as f:
        rows = {r["NPU Name"]: r for r in csv.DictReader(f) if r["Bench Name"].startswith(("Functional", "Torch.relu", "Tensor.pow"))}
    assert len(rows) > 20
    for row in rows.values():
        assert row["NPU Tensor Shape"] == row["Bench Tensor Shape"]
        if task == "tensor":
            assert "plain value" in row["Err_message"] or float(row["MaxAbsErr"]) < 1e-5
        elif part is None:
            assert all(row[k] in ("N/A", "") or abs(float(row[k])) < 1e-4 for k in ("Max diff", "Min diff", "Mean diff", "L2norm diff")), row


def test_a_wrong_weight_of_one_data_parallel_rank_is_named(tmp_path):
    for side, n in (("npu", 2), ("bench", 1)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, n=n: batches(d, rank, n, data_parallel_model, 1 if n > 1 else None), n, task="tensor", level="L1")
    done = subprocess.run([COMMAND, "compare", "npu/dump", "bench/dump", "-o", "out", "--no-html", "--layout", "auto"], text=True,
                          capture_output=True, timeout=120, cwd=tmp_path)
    assert "the first is Functional.linear.1.forward.input.1: the replicas on ranks 0 and 1 are not equal" in " ".join(done.stdout.split())


# ---- tensor parallel -------------------------------------------------------------------------------------------------

def tensor_parallel(d, rank, how):
    """Two layers: the first sharded by its outputs, the second by its inputs. how: None on one rank, else what is done to the weight."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x, first, second = R(4, 6, seed=1), R(8, 6, seed=2), R(6, 8, seed=3)
    if how is not None:
        mesh = init_device_mesh("cpu", (2,))
        x = distribute_tensor(x, mesh, [Replicate()])
        first = distribute_tensor(how(first), mesh, [Shard(0)])
        second = distribute_tensor(second, mesh, [Shard(1)])
    d.start()
    h = F.linear(x, first)
    h = torch.relu(h)
    F.linear(h, second)
    d.stop()
    d.step()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_tensor_parallel_by_dtensor_is_the_run_of_one_rank(tmp_path, task):
    pytest.importorskip("torch.distributed.tensor")
    both(tmp_path, tensor_parallel, lambda w: w, None, task, (2, 1))
    pair, = compare(tmp_path, "--layout", "records", "--fail-on", "no")["pairs"]
    assert pair["counts"]["unmatched"] == 0 and pair["counts"]["matched"] >= 7


def test_a_dtensor_that_is_not_waited_for_is_recorded_without_values(tmp_path):
    """What is there is being written: two ranks would see two things."""
    pytest.importorskip("torch.distributed.tensor")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    def body(d, rank):
        mesh = init_device_mesh("cpu", (2,))
        x = DTensor.from_local(R(4, 6, seed=rank), mesh, [Partial()])
        d.start()
        y = x.redistribute(mesh, [Replicate()], async_op=True)
        torch.relu(y)
        torch.relu(x.redistribute(mesh, [Replicate()]))
        d.stop()
        d.step()

    done = ranks(tmp_path, body, 2)
    for rank in (0, 1):
        late, there = (done[0].data(rank="rank%d" % rank)["Torch.relu.%d.forward" % i]["input_args"][0] for i in (0, 1))
        assert late["Max"] is None and late["note"] == "a collective that is not waited for yet"
        assert late["placements"] == there["placements"] == [{"Replicate": {}}] and there["Max"] is not None


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def data_and_tensor_parallel(d, rank, replicas, fault=None, shards=2):
    """Each of the replicas has its part of the batch and its shards of the layers. replicas: None on one rank."""
    model, x = fill(TwoLayers()), R(8, 8, seed=3)
    if replicas is not None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("data", "shards"))
        parallelize_module(model, mesh["shards"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        size, me = 8 // replicas, mesh["data"].get_local_rank()
        x = x[me * size:(me + 1) * size]
    if fault == rank:
        x = x * 1.05
    d.start(model)
    model(x).pow(2).mean().backward()
    d.stop()
    d.step()


@pytest.mark.parametrize("task,part", [("tensor", None), ("statistics", None), ("statistics", {"summary_mode": "md5"})], ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("replicas,fault", [(2, None), (4, None), (2, 3)])
def test_replicas_of_shards_are_the_run_of_one_rank(tmp_path, replicas, fault, task, part):
    pytest.importorskip("torch.distributed.tensor.parallel")
    for side, n, world in (("npu", replicas, 2 * replicas), ("bench", None, 1)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, n=n: data_and_tensor_parallel(d, rank, n, fault if n else None), world, task=task, part=part, level="L1")
    pair, = compare(tmp_path, "--layout", "auto", "--format", "csv")["pairs"]
    with open(next((tmp_path / "out").rglob("compare_result*.csv")), newline="") as f:
        rows = {r["NPU Name"]: r for r in csv.DictReader(f)}
    whole = {n: rows["Functional.linear.%s.0" % n] for n in ("0.forward.output", "1.forward.input", "1.backward.input", "1.backward.output")
             if rows["Functional.linear.%s.0" % n]["Bench Name"] != "N/A"}
    assert len(whole) >= 3 and {row["NPU Tensor Shape"] for row in whole.values()} <= {"[8, 16]", "[8, 8]"}
    gradient = rows["Functional.linear.0.backward.output.1"]  # sharded, and each replica's share of a mean
    assert gradient["NPU Tensor Shape"] == gradient["Bench Tensor Shape"] == "[16, 8]"
    if task == "tensor":
        off = [name for name, row in [*whole.items(), ("gradient", gradient)] if float(row["MaxAbsErr"]) > 1e-5]
        assert bool(off) == (fault is not None)
    elif part is None:
        assert (abs(float(whole["0.forward.output"]["L2norm diff"])) > 1e-4) == (fault is not None)


@pytest.mark.parametrize("task,fault", [("tensor", None), ("statistics", None), ("tensor", 1)])
def test_four_shards_are_the_run_of_two(tmp_path, task, fault):
    """Between the layers each rank has a part that is no DTensor any more: no side has the whole of it."""
    pytest.importorskip("torch.distributed.tensor.parallel")
    for side, shards in (("npu", 4), ("bench", 2)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, n=shards: data_and_tensor_parallel(d, rank, 1, fault if n == 4 else None, n), shards, task=task, level="L1")
    pair, = compare(tmp_path, "--layout", "auto", "--format", "csv")["pairs"]
    assert pair["counts"]["unmatched"] == 0
    with open(next((tmp_path / "out").rglob("compare_result*.csv")), newline="") as f:
        rows = {r["NPU Name"]: r for r in csv.DictReader(f)}
    for name in ("Torch.relu.0.forward.output.0", "Functional.linear.1.backward.output.0", "Functional.linear.0.forward.output.0"):
        assert rows[name]["NPU Tensor Shape"] == rows[name]["Bench Tensor Shape"] == "[8, 16]"
        if task == "tensor" and "forward" in name:
            assert (float(rows[name]["MaxAbsErr"]) > 1e-5) == (fault is not None)


def test_shards_on_the_wrong_ranks_are_named(tmp_path):
    pytest.importorskip("torch.distributed.tensor")
    both(tmp_path, tensor_parallel, lambda w: w.roll(4, 0), None, "tensor", (2, 1))
    pair, = compare(tmp_path, "--layout", "records")["pairs"]
    assert pair["first_wrong"]["npu_name"] == "Functional.linear.0.forward.input.1"


def two_dimensions(d, rank, mesh):
    """Data parallel by the mesh's first dimension, tensor parallel by its second: h is cut both ways. mesh: None on one rank, else its sizes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x, first, second = R(6, 8, seed=1), R(8, 8, seed=2), R(6, 8, seed=3)
    if mesh is not None:
        mesh = init_device_mesh("cpu", mesh)
        rows = [Shard(0)] + [Replicate()] * (mesh.ndim - 1)
        x = distribute_tensor(x, mesh, rows)
        first = distribute_tensor(first, mesh, [Replicate()] * (mesh.ndim - 1) + [Shard(0)] if mesh.ndim > 1 else [Replicate()])
        second = distribute_tensor(second, mesh, [Replicate()] * (mesh.ndim - 1) + [Shard(1)] if mesh.ndim > 1 else [Replicate()])
    d.start()
    h = torch.relu(F.linear(x, first))
    y = F.linear(h, second)
    if mesh is not None:
        y = y.redistribute(mesh, [Shard(0)] * mesh.ndim)  # cut twice along one axis
    F.gelu(y)
    d.stop()
    d.step()


@pytest.mark.parametrize("task,part", [("tensor", None), ("statistics", None), ("statistics", {"summary_mode": "md5"})], ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("bench,world", [(None, 1), ((2,), 2)], ids=["one", "two"])
def test_shards_over_two_dimensions_of_a_mesh_are_one_tensor(tmp_path, bench, world, task, part):
    pytest.importorskip("torch.distributed.tensor")
    for side, mesh, n in (("npu", (2, 2), 4), ("bench", bench, world)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, mesh=mesh: two_dimensions(d, rank, mesh), n, task=task, part=part)
    pair, = compare(tmp_path, "--layout", "records", "--format", "csv")["pairs"]
    assert pair["counts"]["matched"] == 9  # but what is a shard and a summand, and what redistribute() calls
    table = next((tmp_path / "out").rglob("compare_result*.csv"))
    with open(table, newline="") as f:
        rows = {r["NPU Name"]: r for r in csv.DictReader(f)}
    for name in ("Functional.linear.0.forward.output.0", "Torch.relu.0.forward.output.0", "Functional.linear.1.forward.input.0"):
        assert rows[name]["NPU Tensor Shape"] == rows[name]["Bench Tensor Shape"] == "[6, 8]"
        if task == "tensor":
            assert float(rows[name]["MaxAbsErr"]) < 1e-5
        elif part is None:
            assert abs(float(rows[name]["Max diff"])) < 1e-5 and abs(float(rows[name]["L2norm diff"])) < 1e-4
    assert rows["Functional.gelu.0.forward.input.0"]["NPU Tensor Shape"] == "[6, 6]"


def test_a_shard_in_the_wrong_corner_of_a_mesh_is_named(tmp_path):
    pytest.importorskip("torch.distributed.tensor")
    for side, mesh, n in (("npu", (2, 2), 4), ("bench", None, 1)):
        (tmp_path / side).mkdir()
        ranks(tmp_path / side, lambda d, rank, mesh=mesh: two_dimensions(d, rank, mesh), n, task="tensor")
    folder = tmp_path / "npu" / "dump" / "step0"
    parts = [folder / ("rank%d" % r) / "dump_tensor_data" / "Torch.relu.0.forward.output.0.pt" for r in (1, 2)]
    one, other = parts[0].read_bytes(), parts[1].read_bytes()
    parts[0].write_bytes(other)
    parts[1].write_bytes(one)
    pair, = compare(tmp_path, "--layout", "records")["pairs"]
    assert pair["first_wrong"]["npu_name"] == "Torch.relu.0.forward.output.0"
