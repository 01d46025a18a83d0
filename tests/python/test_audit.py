"""msprobe audit: real jobs with one fault each; the fault is named first, and the clean job is clean."""
import inspect
import json
import os
import shutil
import subprocess
import sys

import pytest
from collecting import R, fill, ranks, torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
if not os.path.exists(COMMAND):
    pytest.skip("the command is not installed beside this interpreter", allow_module_level=True)


def audit(folder):
    done = subprocess.run([COMMAND, "audit", str(folder), "--json"], text=True, capture_output=True, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    said = json.loads(done.stdout)
    assert (done.returncode == 3) == bool(said["findings"])
    return said


def collectives(d, rank, world):
    """Every operation once, in two groups."""
    pair = dist.new_group([0, 1])
    d.start()
    x = R(7, seed=rank)
    dist.all_reduce(x)
    dist.all_reduce(tensor=x, op=dist.ReduceOp.MAX)
    dist.all_reduce(x, async_op=True).wait()
    dist.all_reduce(torch.arange(4) + rank)
    dist.broadcast(x, 1)
    dist.all_gather([torch.zeros(7) for _ in range(world)], x + rank)
    dist.all_gather_into_tensor(torch.zeros(7 * world), x * rank)
    dist.reduce_scatter_tensor(torch.zeros(3), R(3 * world, seed=rank))
    dist.all_to_all_single(torch.zeros(2 * world), R(2 * world, seed=rank))
    dist.reduce(x.clone(), dst=0)
    dist.scatter(torch.zeros(2), [torch.full((2,), float(i)) for i in range(world)] if rank == 0 else None, src=0)
    if rank < 2:
        dist.all_reduce(x.clone(), group=pair)
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(torch.zeros(7), 0)
    d.stop()
    d.step()


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize("world", [2, 4])
def test_a_clean_job_is_clean(tmp_path, task, world):
    ranks(tmp_path, lambda d, rank: collectives(d, rank, world), world, task=task)
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["ranks"] == world
    assert said["by_tensors" if task == "tensor" else "by_statistics"] >= 10


def change(path, call, edit):
    with open(path) as f:
        whole = json.load(f)
    edit(whole["data"], call)
    with open(path, "w") as f:
        json.dump(whole, f)


@pytest.mark.parametrize("call,rank", [("Distributed.all_reduce.0.forward", 2), ("Distributed.all_gather.0.forward", 1),
                                       ("Distributed.broadcast.0.forward", 3)])
def test_an_altered_result_is_named(tmp_path, call, rank):
    """The result is altered where it was written: gloo itself makes no such fault."""
    ranks(tmp_path, lambda d, r: collectives(d, r, 4), 4, task="tensor")
    folder = tmp_path / "dump" / "step0" / ("rank%d" % rank) / "dump_tensor_data"
    name = call + (".output.0.2.pt" if "gather" in call else ".output.0.pt")
    t = torch.load(folder / name)
    t[3] += 0.25
    torch.save(t, folder / name)
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["rank"], first["call"]) == ("values", rank, call)
    assert "element 3" in first["what"] and first["stack"]


def test_a_rank_that_makes_another_order_of_calls_is_named(tmp_path):
    """Broadcast and all_reduce have swapped places on rank 2; in a job that hangs so, both are recorded by their inputs."""
    def swap(data, call):
        names = list(data)
        i, k = names.index("Distributed.all_reduce.3.forward"), names.index("Distributed.broadcast.0.forward")
        names[i], names[k] = names[k], names[i]
        kept = dict(data)
        data.clear()
        data.update((n, kept[n]) for n in names)

    ranks(tmp_path, lambda d, r: collectives(d, r, 4), 4, task="statistics")
    change(tmp_path / "dump" / "step0" / "rank2" / "dump.json", None, swap)
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["rank"]) == ("calls", 2) and "broadcast" in first["what"]


def test_a_rank_that_skips_a_collective_is_named(tmp_path):
    ranks(tmp_path, lambda d, r: collectives(d, r, 4), 4, task="statistics")
    change(tmp_path / "dump" / "step0" / "rank1" / "dump.json", "Distributed.all_gather.0.forward", lambda data, call: data.pop(call))
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["rank"]) == ("calls", 1) and "does not make all_gather" in first["what"]


def test_a_rank_that_is_gone_and_one_that_was_killed_are_said_first(tmp_path):
    ranks(tmp_path, lambda d, r: collectives(d, r, 4), 4, task="statistics")
    path = tmp_path / "dump" / "step0" / "rank2" / "dump.json"
    path.write_text(path.read_text()[:3000])
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["rank"]) == ("rank", 2) and "stopped early" in first["what"]
    shutil.rmtree(tmp_path / "dump" / "step0" / "rank1")
    found = audit(tmp_path / "dump")["findings"]
    assert ("rank", 1) in [(f["kind"], f["rank"]) for f in found if f["kind"] == "rank"]


@pytest.mark.parametrize("wrong", [None, 2])
def test_replicas_whose_weights_part_are_named(tmp_path, wrong):
    """Rank 2 doubles a gradient after the reduction in step 0: its weights are others from step 1 on."""
    def body(d, rank):
        model = fill(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            d.start(model)
            model(R(4, 3, seed=10 * i + rank)).pow(2).mean().backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
            d.stop()
            d.step()
            if rank == wrong and i == 0:
                model[2].weight.grad.mul_(2)
            optimizer.step()
            optimizer.zero_grad()

    ranks(tmp_path, body, 4, task="statistics", level="mix")
    said = audit(tmp_path / "dump")
    if wrong is None:
        assert said["findings"] == [] and said["weights"] > 0
    else:
        first = said["findings"][0]
        assert (first["kind"], first["step"], first["rank"]) == ("replicas", 1, 2) and "2.Linear" in first["what"]


def test_groups_with_the_same_ranks_are_told_apart(tmp_path):
    """Two ranks use their two groups in another order, which is no fault: each group's calls meet."""
    def body(d, rank):
        one, other = dist.new_group([0, 1]), dist.new_group([0, 1])
        d.start()
        x, y = R(5, seed=rank), R(5, seed=10 + rank)
        works = [dist.all_reduce(t, group=g, async_op=True) for t, g in (((x, one), (y, other)), ((y, other), (x, one)))[rank]]
        for work in works:
            work.wait()
        d.stop()
        d.step()

    ranks(tmp_path, body, 2, task="tensor")
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["by_tensors"] == 2 and said["has_order"]
    for rank in (0, 1):
        path = tmp_path / "dump" / "step0" / ("rank%d" % rank) / "dump.json"
        whole = json.loads(path.read_text())
        for record in whole["data"].values():
            del record["distributed"]
        path.write_text(json.dumps(whole))
    said = audit(tmp_path / "dump")
    assert said["findings"] and not said["has_order"]  # a dump without the field does not tell


def test_a_root_is_the_rank_of_the_job_however_it_was_named(tmp_path):
    if "group_src" not in inspect.signature(dist.broadcast).parameters:
        pytest.skip("this torch has no group_src")

    def body(d, rank):
        late = dist.new_group([1, 2])
        d.start()
        x = R(5, seed=rank)
        if rank > 0:
            dist.broadcast(x, group=late, group_src=1)
        d.stop()
        d.step()

    ranks(tmp_path, body, 3, task="tensor")
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["by_tensors"] == 1
