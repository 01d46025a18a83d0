"""msprobe audit: real jobs with one fault each; the fault is named first, and the clean job is clean."""
import contextlib
import inspect
import json
import os
import shutil
import subprocess
import sys

import pytest
from collecting import R, collect, fill, gloo_makes, ranks, torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

with contextlib.suppress(ImportError):
    import torch._dynamo  # noqa: E402,F401  (optimizers import it: here once, else in every rank of every job)

COMMAND = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
if not os.path.exists(COMMAND):
    pytest.skip("the command is not installed beside this interpreter", allow_module_level=True)

# What not every gloo has: it is left out of the jobs below where it is missing.
GLOO = gloo_makes(
    all_gather_into_tensor=lambda: dist.all_gather_into_tensor(torch.zeros(2), torch.ones(2)),
    reduce_scatter_tensor=lambda: dist.reduce_scatter_tensor(torch.zeros(2), torch.ones(2)),
    reduce_scatter=lambda: dist.reduce_scatter(torch.zeros(2), [torch.ones(2)]),
    AVG=lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.AVG),
    bfloat16=lambda: dist.all_reduce(torch.ones(2, dtype=torch.bfloat16)),
)


def audit(folder):
    done = subprocess.run([COMMAND, "audit", str(folder), "--json"], text=True, capture_output=True, timeout=600)
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
    if GLOO["all_gather_into_tensor"]:
        dist.all_gather_into_tensor(torch.zeros(7 * world), x * rank)
    if GLOO["reduce_scatter_tensor"]:
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


def more_collectives(d, rank, world):
    """Other types and reductions, unequal parts, lists, and messages from anywhere."""
    d.start()
    y = R(6, 5, seed=rank + 3)
    for op in ("SUM", "PRODUCT", "MIN", "AVG") if GLOO["AVG"] else ("SUM", "PRODUCT", "MIN"):
        dist.all_reduce(y.clone(), op=getattr(dist.ReduceOp, op))
    for op in ("BAND", "BOR", "BXOR"):
        dist.all_reduce(torch.arange(5) + rank, op=getattr(dist.ReduceOp, op))
    if GLOO["bfloat16"]:
        dist.all_reduce(y.bfloat16())
    for t in (y.half(), y.double(), torch.complex(y, -y), torch.full((3,), rank, dtype=torch.int8)):
        dist.all_reduce(t)
    if GLOO["reduce_scatter"]:
        dist.reduce_scatter(torch.zeros(3), [R(3, seed=10 * rank + i) for i in range(world)])
    if GLOO["reduce_scatter_tensor"]:
        dist.reduce_scatter_tensor(torch.zeros(2), R(2 * world, seed=rank), op=dist.ReduceOp.MAX)
    given, got = [i + 1 for i in range(world)], [rank + 1] * world
    dist.all_to_all_single(torch.zeros(sum(got), 2), R(sum(given), 2, seed=rank), got, given)
    dist.gather(y, [torch.zeros(6, 5) for _ in range(world)] if rank == 1 else None, dst=1)
    for work in [dist.all_reduce(R(4, seed=rank + i), async_op=True) for i in range(3)][::-1]:
        work.wait()
    if rank == 0:
        dist.send(y, 1)
        dist.send(y * 2, 1)
    if rank == 1:
        dist.recv(torch.zeros(6, 5))
        dist.recv(torch.zeros(6, 5), 0)
    ops = [dist.P2POp(dist.isend, y * 3, (rank + 1) % world), dist.P2POp(dist.irecv, torch.zeros(6, 5), (rank - 1) % world)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    late = dist.all_reduce(y, async_op=True)  # its record is finished last, and belongs here
    dist.broadcast(torch.ones(2), 0)
    d.stop()
    late.wait()
    d.step()


MODES = [("tensor", None), ("statistics", None), ("statistics", {"summary_mode": "md5"})]


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("world,body", [(2, collectives), (8, collectives), (2, more_collectives), (5, more_collectives)])
def test_a_clean_job_is_clean_and_everything_in_it_is_checked(tmp_path, world, body, task, part):
    ranks(tmp_path, lambda d, rank: body(d, rank, world), world, task=task, part=part)
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["ranks"] == world and said["has_order"]
    missing = [GLOO["all_gather_into_tensor"], GLOO["reduce_scatter_tensor"]].count(False)
    assert said["matched"] > 12 - missing and said["unchecked"] == 0
    assert said["by_tensors"] == (said["matched"] if task == "tensor" else 0)


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
    assert "element 3" in first["what"] and first["stack"] and "what stood there" not in first["what"]


def test_a_maximum_that_is_no_number_is_named_where_no_input_was_such(tmp_path):
    def body(d, rank):
        d.start()
        dist.all_reduce(R(4, seed=rank), op=dist.ReduceOp.MAX)
        d.stop()
        d.step()

    ranks(tmp_path, body, 2, task="tensor")
    for rank in (0, 1):
        path = tmp_path / "dump" / "step0" / ("rank%d" % rank) / "dump_tensor_data" / "Distributed.all_reduce.0.forward.output.0.pt"
        t = torch.load(path)
        t[2] = float("nan")
        torch.save(t, path)
    finding, = audit(tmp_path / "dump")["findings"]
    assert finding["kind"] == "values" and "element 2 of its result is nan" in finding["what"]


def stats(t):
    return {"Max": t.max().item(), "Min": t.min().item(), "Mean": t.mean().item(), "Norm": t.norm().item()}


@pytest.mark.parametrize("call,rank", [("Distributed.reduce_scatter_tensor.0.forward", None), ("Distributed.all_to_all_single.0.forward", None),
                                       ("Distributed.all_gather_into_tensor.0.forward", 2), ("Distributed.all_reduce.1.forward", 3),
                                       ("Distributed.recv.0.forward", 1)])
@pytest.mark.parametrize("md5", [False, True])
def test_an_altered_result_is_named_by_its_statistics(tmp_path, call, rank, md5):
    """Where the parts of a tensor have none of their own, all results together are held against all inputs."""
    name = call.split(".")[1]
    if not GLOO.get(name, True):
        pytest.skip("this torch's gloo has no %s" % name)

    def edit(data, call):
        record = data[call]["output"][0]
        record.update({k: record[k] * 1.5 for k in ("Max", "Min", "Mean", "Norm")}, **({"md5": "deadbeef"} if md5 else {}))

    ranks(tmp_path, lambda d, r: collectives(d, r, 4), 4, task="statistics", part={"summary_mode": "md5"} if md5 else None)
    change(tmp_path / "dump" / "step0" / ("rank%d" % (3 if rank is None else rank)) / "dump.json", call, edit)
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["call"]) == ("values", call) and first["stack"]
    assert first["rank"] == rank if rank is not None else "on all 4 ranks of its group" in first["what"]


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
def test_a_call_that_did_nothing_is_named(tmp_path, task, part):
    """Every rank's result is its own input: found nowhere by looking for ranks that differ from the others."""
    def body(d, rank):
        d.start()
        dist.all_reduce(torch.ones(4))
        if GLOO["all_gather_into_tensor"]:
            dist.all_gather_into_tensor(torch.zeros(6), R(3, seed=rank))
        d.stop()
        d.step()

    ranks(tmp_path, body, 2, task=task, part=part)
    for rank in (0, 1):
        folder = tmp_path / "dump" / "step0" / ("rank%d" % rank)
        change(folder / "dump.json", "Distributed.all_reduce.0.forward",
               lambda data, call: data[call].update(output=[dict(data[call]["input_args"][0], data_name=call + ".output.0.pt")]))
        if task == "tensor":
            torch.save(torch.ones(4), folder / "dump_tensor_data" / "Distributed.all_reduce.0.forward.output.0.pt")
    finding, = audit(tmp_path / "dump")["findings"]
    assert (finding["kind"], finding["call"]) == ("values", "Distributed.all_reduce.0.forward") and "the call did nothing" in finding["what"]
    for rank in (0, 1):  # a tool that does not say which call this is may have recorded it before it was done
        change(tmp_path / "dump" / "step0" / ("rank%d" % rank) / "dump.json", None, lambda data, call: [r.pop("distributed", None) for r in data.values()])
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["unchecked"] == 1


PUTS_OFF = hasattr(getattr(dist.distributed_c10d, "_world", None), "pg_coalesce_state")


def coalesced(d, rank):
    """torch's coalescing manager in both forms, in a group of its own, too; a message and a broadcast inside it are made at once."""
    pair = dist.new_group([0, 1])
    d.start()
    with dist.distributed_c10d._coalescing_manager():
        for n in (4, 3):
            dist.all_reduce(R(n, seed=rank))
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
        dist.all_reduce(R(5, seed=rank), async_op=True)
        dist.all_reduce(R(6, seed=rank))
    other = dist.all_reduce(R(2, seed=rank), async_op=True)  # whose end says nothing about those above
    other.wait()
    works.wait()
    if rank < 2:
        with dist.distributed_c10d._coalescing_manager(pair, async_ops=True) as inside:
            dist.all_reduce(R(7, seed=rank), group=pair)
            dist.all_reduce(R(8, seed=rank))
        inside.wait()
    else:
        dist.all_reduce(R(8, seed=rank))
    with dist.distributed_c10d._coalescing_manager():
        dist.broadcast(R(9, seed=rank), 1)
        late = dist.broadcast(R(10, seed=rank), 1, async_op=True)
    late.wait()
    d.stop()
    d.step()


@pytest.mark.skipif(not PUTS_OFF, reason="this torch puts nothing off")
@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
def test_what_torch_puts_off_is_recorded_when_it_is_done(tmp_path, task, part):
    for r, rank in zip(ranks(tmp_path, coalesced, 3, task=task, part=part), range(3)):
        data = r.data(rank="rank%d" % rank)
        assert all("output" in record and "note" not in record for record in data.values())
        assert [record["distributed"]["order"] for record in data.values() if len(record["distributed"]["group_ranks"]) == 3] == list(range(8))
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and (said["matched"], said["unchecked"]) == (9, 0)


@pytest.mark.skipif(not PUTS_OFF, reason="this torch puts nothing off")
def test_a_coalesced_result_that_was_altered_is_named(tmp_path):
    def body(d, rank):
        d.start()
        x, y = R(4, seed=rank), R(3, seed=rank)
        with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
            dist.all_reduce(x)
            dist.all_reduce(y)
        works.wait()
        d.stop()
        d.step()

    ranks(tmp_path, body, 2, task="tensor")
    assert audit(tmp_path / "dump")["findings"] == []
    path = tmp_path / "dump" / "step0" / "rank1" / "dump_tensor_data" / "Distributed.all_reduce.1.forward.output.0.pt"
    torch.save(torch.load(path) + 1, path)
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["call"]) == ("values", "Distributed.all_reduce.1.forward") and first["stack"]


@pytest.mark.skipif(not PUTS_OFF, reason="this torch puts nothing off")
def test_what_was_put_off_and_never_made_has_no_result(tmp_path):
    def body(d, rank):
        d.start()
        try:
            with dist.distributed_c10d._coalescing_manager():
                dist.all_reduce(R(4, seed=rank))
                raise KeyError("the program's")
        except KeyError:
            dist.distributed_c10d._world.pg_coalesce_state.clear()
        with dist.distributed_c10d._coalescing_manager():
            dist.all_reduce(R(3, seed=rank))
        d.stop()
        d.step()

    for rank, r in enumerate(ranks(tmp_path, body, 2)):
        never, made = (r.data(rank="rank%d" % rank)["Distributed.all_reduce.%d.forward" % i] for i in (0, 1))
        assert "output" not in never and never["note"] == "nobody waited for its handle in this step" and "output" in made
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and (said["by_statistics"], said["unchecked"]) == (1, 1)


def test_a_scaled_sum_is_checked_by_the_factor_that_was_recorded(tmp_path):
    """gloo has no PREMUL_SUM, so a SUM's record is made one."""
    def body(d, rank):
        d.start()
        dist.all_reduce(R(4, seed=rank))
        d.stop()
        d.step()

    def edit(data, call, factor):
        op = {"type": "torch.distributed.ReduceOp", "value": "RedOpType.PREMUL_SUM", "factor": factor}
        data[call]["input_kwargs"]["op"] = op

    ranks(tmp_path, body, 2)
    for factor, clean in ((1.0, True), (3.0, False)):
        for rank in (0, 1):
            change(tmp_path / "dump" / "step0" / ("rank%d" % rank) / "dump.json", "Distributed.all_reduce.0.forward",
                   lambda data, call: edit(data, call, factor))
        assert (audit(tmp_path / "dump")["findings"] == []) == clean


def test_a_rank_that_makes_another_order_of_calls_is_named(tmp_path):
    """Broadcast and all_reduce have swapped places on rank 2; in a job that hangs so, both are recorded by their inputs."""
    def swap(data, call):
        names = list(data)
        i, k = names.index("Distributed.all_reduce.3.forward"), names.index("Distributed.broadcast.0.forward")
        names[i], names[k] = names[k], names[i]
        kept = dict(data)
        one, other = (kept[n]["distributed"] for n in ("Distributed.all_reduce.3.forward", "Distributed.broadcast.0.forward"))
        one["order"], other["order"] = other["order"], one["order"]
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


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
def test_a_replicas_gradient_that_is_doubled_after_the_reduction_is_named_before_the_weights(tmp_path, task, part):
    """Reduced by hooks of the parameters, as ZeRO does; in step 1 rank 2 takes twice one of them."""
    def body(d, rank):
        model = fill(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
        step = [0]

        def reduced(p):
            def hook(grad):
                whole = grad.clone()
                dist.all_reduce(whole)
                return whole * 2 if (rank, step[0]) == (2, 1) and p is model[2].weight else whole
            return hook

        for p in model.parameters():
            p.register_hook(reduced(p))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(3):
            step[0] = i
            d.start(model)
            model(R(4, 3, seed=10 * i + rank)).pow(2).mean().backward()
            d.stop()
            d.step()
            optimizer.step()
            optimizer.zero_grad()

    ranks(tmp_path, body, 4, task=task, part=part, level="mix")
    said = audit(tmp_path / "dump")
    assert said["gradients"] > 0
    finding, = said["findings"]
    assert (finding["kind"], finding["step"], finding["rank"]) == ("replicas", 1, 2)
    assert finding["what"] == "the gradient Module.2.Linear.parameters_grad.weight of rank 2 differs from that of 3 other replicas, which are equal"


def test_gradients_that_were_recorded_before_their_reduction_are_no_finding(tmp_path):
    def body(d, rank):
        ddp = nn.parallel.DistributedDataParallel(fill(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))))
        for i in range(2):
            d.start(ddp)
            ddp(R(4, 3, seed=10 * i + rank)).pow(2).mean().backward()
            d.stop()
            d.step()

    ranks(tmp_path, body, 3, task="statistics", level="mix", replicas=False)
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["weights"] > 0 and said["gradients"] == 0


DDP = nn.parallel.DistributedDataParallel


SEES_STEPS = hasattr(torch.optim.Optimizer, "register_step_pre_hook")


def needs_an_optimizers_step():
    if not SEES_STEPS:
        pytest.skip("this torch tells nobody that an optimizer's step begins")


def replicated(d, rank, fault=None, order="optimizer first", known=True, micro=1, optimizer=torch.optim.SGD):
    """Real DistributedDataParallel; each fault comes in step 1, and weights part in step 2 where nothing is seen before."""
    ddp = DDP(fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))))
    o = optimizer(ddp.parameters(), lr=0.05)
    if fault == "weight" and rank == 1:
        with torch.no_grad():
            ddp.module[2].weight[0, 0] += 0.5
    for i in range(3):
        d.start(ddp if known else None)
        for k in range(micro):
            alone = k < micro - 1 or (fault == "not reduced" and i == (1 if rank == 1 else 2))  # as many reductions on each rank
            with ddp.no_sync() if alone else contextlib.nullcontext():
                ddp(R(4, 6, seed=100 * i + 10 * k + rank)).pow(2).mean().backward()
            if k < micro - 1:
                d.stop()
                d.step()
                d.start(ddp if known else None)
        if fault == "doubled" and (rank, i) == (1, 1):
            ddp.module[2].weight.grad.mul_(2)
        if order == "all inside":
            o.step()
            o.zero_grad()
        d.stop()
        if order == "step first":
            d.step()
        if order != "all inside":
            o.step()
            o.zero_grad()
        if order != "step first":
            d.step()


ORDERS = ("optimizer first", "all inside", "step first")


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_clean_data_parallel_job_is_clean_after_its_reduction(tmp_path, order, task, part):
    if order == "all inside":  # at stop() the gradients are gone
        needs_an_optimizers_step()
    ranks(tmp_path, lambda d, rank: replicated(d, rank, order=order), 2, task=task, part=part, level="mix")
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["gradients"] == 2 * 3 * 8


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fault,step,what", [("doubled", 1, "the gradient Module.module.2.Linear.weight of rank 1 differs"),
                                             ("weight", 0, "Module.module.2.Linear."),
                                             ("not reduced", 1, "the gradient Module.module.0.Linear.weight of rank 1 differs")])
def test_where_replicas_part_behind_the_reduction_is_named(tmp_path, fault, step, what, order, level):
    if order == "all inside" and fault != "weight":
        needs_an_optimizers_step()
    ranks(tmp_path, lambda d, rank: replicated(d, rank, fault, order), 3, task="statistics", level=level)
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["kind"], first["step"], first["rank"]) == ("replicas", step, 1)
    assert first["what"].startswith(what) and first["call"].startswith(what.split(" ")[-1 if fault == "weight" else 2].rpartition(".")[0])


@pytest.mark.parametrize("order", ORDERS)
def test_parameters_of_a_model_that_nobody_showed_are_those_of_its_optimizer(tmp_path, order):
    needs_an_optimizers_step()
    ranks(tmp_path, lambda d, rank: replicated(d, rank, "doubled", order, known=False), 3, task="statistics")
    first = audit(tmp_path / "dump")["findings"][0]
    assert (first["step"], first["rank"]) == (1, 1)
    assert first["what"] == "the gradient Optimizer.0.SGD.0.2 of rank 1 differs from that of 2 other replicas, which are equal"


@pytest.mark.parametrize("fault", [None, "doubled"])
def test_gradients_that_only_accumulate_are_none_to_compare(tmp_path, fault):
    ranks(tmp_path, lambda d, rank: replicated(d, rank, fault, micro=2, optimizer=torch.optim.AdamW), 2, task="statistics", level="mix")
    found = audit(tmp_path / "dump")["findings"]
    assert [(f["step"], f["rank"]) for f in found] == ([] if fault is None else [(3, 1)])


def test_the_records_of_calls_are_the_same_with_and_without_replicas(tmp_path):
    files = {}
    for wanted in (True, False):
        folder = tmp_path / str(wanted)
        folder.mkdir()
        done = ranks(folder, replicated, 2, task="tensor", level="mix", replicas=wanted)
        files[wanted] = [{**done[rank].read(rank="rank%d" % rank), "dump_data_dir": None} for rank in (0, 1)]
        assert os.path.exists(done[0].file("replicas.json", 1, "rank0")) == wanted
        files[wanted].append(done[0].tensors(1, "rank0"))
    assert files[True] == files[False]


def test_no_hook_on_optimizers_is_left_when_the_last_step_is_over(tmp_path):
    needs_an_optimizers_step()
    from torch.optim import optimizer

    def body(d, rank):
        during = []
        o = torch.optim.SGD(fill(nn.Linear(2, 2)).parameters())
        for _ in range(3):
            d.start()
            during.append(len(optimizer._global_optimizer_pre_hooks))
            o.step()
            d.stop()
            d.step()
        return during

    assert [r.value for r in ranks(tmp_path, body, 2, step=[0])] == [[1, 0, 0]] * 2


def test_who_has_no_replicas_records_none(tmp_path):
    """One process; and shards, which their ranks do not share."""
    pytest.importorskip("torch.distributed.device_mesh", reason="what fully_shard shards over")
    from torch.distributed import fsdp

    def body(d, rank):
        model = fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8)))
        fsdp.fully_shard(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for i in range(2):
            d.start(model)
            model(R(4, 6, seed=10 * i + rank)).pow(2).mean().backward()
            d.stop()
            optimizer.step()
            optimizer.zero_grad()
            d.step()

    done = ranks(tmp_path, body, 2, task="statistics", level="mix")
    assert done[0].read("replicas.json", 0, "rank0")["data"]["Module.0.Linear.weight"]["grad"]["placements"]
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["gradients"] == 0
    (tmp_path / "alone").mkdir()
    one = collect(tmp_path / "alone", lambda d: body_alone(d), level="mix")
    assert not os.path.exists(one.file("replicas.json"))


def body_alone(d):
    model = fill(nn.Linear(3, 2))
    d.start(model)
    model(R(4, 3)).sum().backward()
    d.stop()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    d.step()


def test_a_file_about_replicas_that_cannot_be_read_is_told(tmp_path):
    done = ranks(tmp_path, replicated, 2, task="statistics", level="mix")
    with open(done[1].file("replicas.json", 1, "rank1"), "r+") as f:
        text = f.read().replace('"applied": ', '"applied": !', 1)
        f.seek(0)
        f.truncate()
        f.write(text)
    run = subprocess.run([COMMAND, "audit", str(tmp_path / "dump")], text=True, capture_output=True, timeout=600)
    assert run.returncode == 1 and "step1/rank1/replicas.json" in run.stderr and "Clean" not in run.stdout


def tensor_parallel(d, rank, fault):
    """Two layers by DTensor on a mesh of two by two: data parallel outside, the layers sharded inside."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2))
    x = distribute_tensor(R(4, 8, seed=1), mesh, [Shard(0), Replicate()])
    first = distribute_tensor(R(8, 8, seed=2), mesh, [Replicate(), Shard(0)])
    second = distribute_tensor(R(8, 8, seed=3), mesh, [Replicate(), Shard(1)])
    d.start()
    h = torch.relu(nn.functional.linear(x, first))
    y = nn.functional.linear(h, second).redistribute(mesh, [Shard(0), Replicate()])
    if rank == fault:
        y.to_local().add_(0.25)  # what the all_reduce inside has left on this rank
    nn.functional.gelu(y)
    d.stop()
    d.step()


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("fault", [None, 3])
def test_what_dtensors_all_reduce_left_on_one_rank_is_named(tmp_path, fault, task, part):
    pytest.importorskip("torch.distributed.tensor")
    ranks(tmp_path, lambda d, rank: tensor_parallel(d, rank, fault), 4, task=task, part=part)
    said = audit(tmp_path / "dump")
    assert said["replicated"] > 8
    if fault is None:
        assert said["findings"] == []
        return
    finding, = said["findings"]  # of two ranks that differ nobody knows which is right: the second is named
    assert (finding["kind"], finding["rank"], finding["call"]) == ("replicas", 3, "Functional.gelu.0.forward")
    assert finding["what"] == ("the replicated DTensor input.0 on ranks [2, 3] of Functional.gelu.0.forward is another one on rank 3 "
                               "than on 1 other")
    assert finding["stack"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_another_operation_in_the_place_of_the_others_is_one_finding(tmp_path, place):
    def body(d, rank):
        d.start()
        for i in range(3):
            dist.all_reduce(R(4, seed=rank + i), op=dist.ReduceOp.MAX if (rank, i) == (1, place) else dist.ReduceOp.SUM)
        d.stop()
        d.step()

    ranks(tmp_path, body, 3, task="statistics")
    finding, = audit(tmp_path / "dump")["findings"]
    assert (finding["kind"], finding["rank"], finding["call"]) == ("calls", 1, "Distributed.all_reduce.%d.forward" % place)
    assert finding["what"] == "rank 1 makes all_reduce MAX float32 [4], the others all_reduce SUM float32 [4]"


def test_a_rank_of_another_job_is_named_first(tmp_path):
    def body(d, rank):
        d.start()
        dist.all_reduce(R(4, seed=rank))
        d.stop()
        d.step()

    for name, world in (("one", 2), ("other", 3)):
        (tmp_path / name).mkdir()
        ranks(tmp_path / name, body, world, task="statistics")
    shutil.copytree(tmp_path / "one" / "dump" / "step0" / "rank1", tmp_path / "other" / "dump" / "step0" / "rank3")
    first = audit(tmp_path / "other" / "dump")["findings"][0]
    assert (first["kind"], first["rank"]) == ("rank", 3)
    assert first["what"] == "rank 3 makes calls of group [0, 1], to which it does not belong: is its dump of another job?"


def test_a_dump_with_nothing_to_check_is_not_clean(tmp_path):
    def body(d, rank):
        d.start()
        torch.relu(R(3))
        d.stop()
        d.step()

    ranks(tmp_path, body, 2)
    done = subprocess.run([COMMAND, "audit", str(tmp_path / "dump")], text=True, capture_output=True, timeout=600)
    assert done.returncode == 1 and "nothing could be checked" in done.stderr and "Clean" not in done.stdout
