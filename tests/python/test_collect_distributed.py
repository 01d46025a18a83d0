"""Several processes: every rank writes its own folder, collectives show what was there before and after, sharded models run as without us."""
import inspect
import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
import zlib

import pytest
from collecting import R, fill, ranks, torch

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

TORCH2 = hasattr(torch, "compile")  # gloo of 1.13 has no collectives on whole tensors


def recorded(d, body, model=None):
    d.start(model)
    result = body()
    d.stop()
    d.step()
    return result


def both(tmp_path, body, world=2, **config):
    """The ranks' results with the tool, which are those without."""
    expected = [r.value for r in ranks(tmp_path, body, world, tool=False)]
    results = ranks(tmp_path, body, world, **config)
    for got, want in zip([r.value for r in results], expected):
        assert [t.tobytes() if hasattr(t, "tobytes") else t for t in got] == [t.tobytes() if hasattr(t, "tobytes") else t for t in want]
    for r in results:
        assert "failed for" not in r.output and "Traceback" not in r.output, r.output
    return results


def bits(*tensors):
    return [t.detach().numpy().copy() for t in tensors]


def folders(tmp_path):
    return sorted(os.listdir(tmp_path / "dump" / "step0"))


def group(ranks_):
    return {"type": "torch.ProcessGroup", "group_ranks": ranks_, "group_id": "%08x" % zlib.crc32(str(ranks_).encode())}


def two_layers(rank):
    """The model, the same for DDP, and one step of its training, which returns the loss."""
    model = fill(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)

    def step(i):
        loss = ddp(R(4, 3, seed=10 * i + rank)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, ddp, step


def test_collectives_show_what_was_before_and_after(tmp_path):
    def body(d, rank):
        pair = dist.new_group([0, 1])

        def run():
            x = torch.full((2,), float(rank + 1))
            dist.all_reduce(x)
            dist.all_reduce(x, op=dist.ReduceOp.MAX, group=pair)
            dist.broadcast(x, src=0)
            parts = [torch.zeros(2), torch.zeros(2)]
            dist.all_gather(parts, x + rank)
            whole, shard = torch.zeros(4), torch.zeros(1)
            if TORCH2:
                dist.all_gather_into_tensor(whole, x)
            dist.reduce(x, dst=0)
            dist.gather(x, [torch.zeros(2), torch.zeros(2)] if rank == 0 else None, dst=0)
            dist.scatter(x, [torch.ones(2), torch.full((2,), 7.0)] if rank == 0 else None, src=0)
            if TORCH2:
                dist.reduce_scatter_tensor(shard, x)
            swapped = torch.zeros(2)
            dist.all_to_all_single(swapped, x)
            dist.barrier()
            return bits(x, *parts, whole, shard, swapped)

        return recorded(d, run)

    results = both(tmp_path, body)
    assert folders(tmp_path) == ["rank0", "rank1"]
    for rank, r in enumerate(results):
        data = r.data(rank="rank%d" % rank)
        first, second = data["Distributed.all_reduce.0.forward"], data["Distributed.all_reduce.1.forward"]
        assert (first["input_args"][0]["Max"], first["output"][0]["Max"]) == (rank + 1.0, 3.0)
        assert second["input_kwargs"]["group"] == group([0, 1]) and "MAX" in second["input_kwargs"]["op"]["value"]
        gathered = data["Distributed.all_gather.0.forward"]
        assert [t["Max"] for t in gathered["input_args"][0]] == [0.0, 0.0] and [t["Max"] for t in gathered["output"][0]] == [3.0, 4.0]
        assert data["Distributed.scatter.0.forward"]["output"][0]["Max"] == (1.0, 7.0)[rank]
        assert data["Distributed.broadcast.0.forward"]["input_kwargs"]["src"] == {"type": "int", "value": 0}
        names = [n for n in data if n.startswith("Distributed")]
        expected = ["all_reduce", "all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce",
                    "gather", "scatter", "reduce_scatter_tensor", "all_to_all_single"]
        assert [n.split(".")[1] for n in names] == [n for n in expected if TORCH2 or not n.endswith("_tensor")]


def groups_and_messages(rank):
    """Two groups of the same ranks, one of others, messages around the ring."""
    first, second, last = dist.new_group([0, 1]), dist.new_group([0, 1]), dist.new_group([1, 2])

    def run():
        x, y = torch.full((2,), rank + 1.0), torch.zeros(2)
        dist.all_reduce(x)
        if rank < 2:
            works = [dist.all_reduce(torch.ones(2), group=g, async_op=True) for g in ((first, second), (second, first))[rank]]
            for work in works:
                work.wait()
            dist.broadcast(x, 1, first)
        if rank > 0:
            dist.broadcast(x, **({"group_src": 1} if "group_src" in inspect.signature(dist.broadcast).parameters else {"src": 2}), group=last)
        if rank == 0:
            dist.send(x, 2)
            dist.send(x, 2)
        if rank == 2:
            dist.recv(y, 0)
            dist.recv(y)
        dist.all_reduce(x)  # who receives from any rank has received
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, (rank + 1) % 3), dist.P2POp(dist.irecv, y, (rank + 2) % 3)]):
            work.wait()
        return bits(x, y)

    return run


def told(name, data):
    return [v["distributed"] for n, v in data.items() if n.startswith("Distributed.%s." % name)]


@pytest.mark.parametrize("config", [{}, {"task": "overflow_check", "part": {"overflow_nums": -1}}, {"part": {"list": ["all_reduce.1", "all_reduce.3"]}}],
                         ids=["statistics", "overflow", "list"])
def test_a_call_names_its_group_and_its_order_there(tmp_path, config):
    results = both(tmp_path, lambda d, rank: recorded(d, groups_and_messages(rank)), 3, **config)
    data = [r.data(rank="rank%d" % i) for i, r in enumerate(results)]
    if config.get("task"):
        assert all(not d for d in data)
        return

    def one(ranks_, order, again="", **more):
        return dict(group_ranks=ranks_, group_id=group(ranks_)["group_id"] + again, **more, order=order)

    whole, pair = [0, 1, 2], [0, 1]
    if "part" in config:  # what the list leaves out is counted
        assert told("all_reduce", data[0]) == [one(pair, 0), one(whole, 1)] and told("all_reduce", data[2]) == [one(whole, 1)]
        return
    assert told("all_reduce", data[0]) == [one(whole, 0), one(pair, 0), one(pair, 0, ".1"), one(whole, 1)]
    assert told("all_reduce", data[1]) == [one(whole, 0), one(pair, 0, ".1"), one(pair, 0), one(whole, 1)]
    assert told("broadcast", data[1]) == [one(pair, 1, root=1), one([1, 2], 0, root=2)] and told("broadcast", data[2]) == [one([1, 2], 0, root=2)]
    assert told("send", data[0]) == [one(whole, i, op="send", peer=2) for i in (0, 1)]
    assert told("recv", data[2]) == [one(whole, 0, op="recv", peer=0), one(whole, 0, op="recv", peer=None)]
    for rank in range(3):
        to, of = (rank + 1) % 3, (rank + 2) % 3
        received = 1 if rank == 2 else 0  # of those from rank 0; that from any rank counts for itself
        assert told("batch_isend_irecv", data[rank]) == [{"messages": [one(whole, 0, op="send", peer=to), one(whole, received if of == 0 else 0, op="recv", peer=of)]}]
    assert list(data[0]["Distributed.send.0.forward"]) == ["input_args", "input_kwargs", "is_recompute", "distributed", "output"]


def test_orders_begin_anew_with_each_step_and_in_each_group(tmp_path):
    def body(d, rank):
        for _ in range(2):
            recorded(d, lambda: [dist.all_reduce(torch.ones(1)) for _ in range(3)])

    for rank, r in enumerate(ranks(tmp_path, body)):
        assert all([t["order"] for t in told("all_reduce", r.data(step, "rank%d" % rank))] == [0, 1, 2] for step in (0, 1))


def test_a_coalesced_call_has_its_place_too(tmp_path):
    manager = getattr(dist.distributed_c10d, "_coalescing_manager", None)
    if manager is None or not TORCH2:
        pytest.skip("this torch coalesces nothing")

    def body(d, rank):
        def run():
            x, y = torch.ones(2), torch.full((2,), float(rank))
            try:
                with manager(async_ops=False):
                    dist.all_reduce(x)
                    dist.all_reduce(y)
            except RuntimeError:  # a back end that cannot
                dist.all_reduce(y)
            return bits(x, y)

        return recorded(d, run)

    for rank, r in enumerate(ranks(tmp_path, body)):
        assert [t["order"] for t in told("all_reduce", r.data(rank="rank%d" % rank))] == list(range(len(told("all_reduce", r.data(rank="rank%d" % rank)))))


def test_compare_passes_over_the_field(tmp_path):
    """Also beside a dump that does not have it, as other tools write them."""
    ranks(tmp_path, lambda d, rank: recorded(d, groups_and_messages(rank)), 3)
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "dump", other)
    for path in other.glob("step0/rank*/dump.json"):
        whole = json.loads(path.read_text())
        for record in whole["data"].values():
            record.pop("distributed", None)
        path.write_text(json.dumps(whole))
    command = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    for golden in (tmp_path / "dump", other):
        out = tmp_path / ("out_" + golden.name)
        done = subprocess.run([command, "compare", str(tmp_path / "dump"), str(golden), "-o", str(out), "--format", "csv", "--fail-on", "any"],
                              text=True, capture_output=True, timeout=600)
        assert done.returncode == 0 and "distributed" not in done.stdout + done.stderr, done.stdout + done.stderr
        text = "".join(p.read_text() for p in out.rglob("*.csv"))
        assert "all_reduce" in text and "group_ranks" not in text and "unmatched" not in text.lower()


def test_point_to_point(tmp_path):
    def body(d, rank):
        def run():
            x, y, z, q = torch.full((2,), rank + 1.0), torch.zeros(2), torch.zeros(2), torch.zeros(2)
            if rank == 0:
                dist.send(x, 1)
                dist.recv(y, 1)
            else:
                dist.recv(y, 0)
                dist.send(x, 0)
            for handle in [dist.isend(x, 1 - rank), dist.irecv(z, 1 - rank)]:
                handle.wait()
            ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, q, 1 - rank)]
            for handle in dist.batch_isend_irecv(ops):
                handle.wait()
            return bits(y, z, q)

        return recorded(d, run)

    for rank, r in enumerate(both(tmp_path, body)):
        data, other = r.data(rank="rank%d" % rank), float(2 - rank)
        assert data["Distributed.recv.0.forward"]["input_args"][0]["Max"] == 0.0
        assert data["Distributed.recv.0.forward"]["output"][0]["Max"] == other
        assert data["Distributed.irecv.0.forward"]["output"][0]["Max"] == other
        sent, received = data["Distributed.batch_isend_irecv.0.forward"]["output"][0]
        assert (sent["class_type"], sent["op"], sent["peer"], sent["tensor"]["Max"]) == ("torch.distributed.P2POp", "isend", 1 - rank, rank + 1.0)
        assert (received["op"], received["tensor"]["Max"]) == ("irecv", other)


def test_asynchronous_calls_are_recorded_when_they_are_waited_for(tmp_path):
    """The second one waits first, and memory that is changed after the wait is not what is recorded."""
    def body(d, rank):
        def run():
            x, y = torch.full((2,), rank + 1.0), torch.full((2,), rank + 10.0)
            a = dist.all_reduce(x, async_op=True)
            b = dist.all_reduce(y, async_op=True)
            torch.mul(torch.ones(2), 2)
            b.wait()
            a.wait()
            x.fill_(100.0)
            never = dist.all_reduce(torch.ones(2), async_op=True)  # nobody waits for it between start() and step()
            return bits(x, y), never

        value, never = recorded(d, run) or (None, None)
        never.wait()
        return value

    for rank, r in enumerate(both(tmp_path, body)):
        data = r.data(rank="rank%d" % rank)
        a, b = data["Distributed.all_reduce.0.forward"], data["Distributed.all_reduce.1.forward"]
        assert (a["input_args"][0]["Max"], a["output"][0]["Max"]) == (rank + 1.0, 3.0)
        assert (b["input_args"][0]["Max"], b["output"][0]["Max"]) == (rank + 10.0, 21.0)
        assert [n for n in data if ".full." not in n][:3] == ["Distributed.all_reduce.0.forward", "Distributed.all_reduce.1.forward",
                                                              "Torch.mul.0.forward"]
        assert "input_args" in data["Distributed.all_reduce.2.forward"]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_ddp(tmp_path, level):
    def body(d, rank):
        model, ddp, step = two_layers(rank)
        losses = [recorded(d, lambda: step(i), ddp) for i in range(3)]
        return bits(*losses, *model.parameters())

    for rank, r in enumerate(both(tmp_path, body, level=level)):
        for i in range(3):
            names = r.names(i, "rank%d" % rank)
            if level != "L0":
                assert {"Functional.linear.1.forward", "Functional.linear.1.backward"} <= set(names)
            if level != "L1":
                assert {"Module.module.0.Linear.forward.0", "Module.module.0.Linear.backward.0", "Module.module.0.Linear.parameters_grad"} <= set(names)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_fsdp2(tmp_path, level):
    init_device_mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def body(d, rank):
        mesh = init_device_mesh("cpu", (2,))
        model = fill(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def run(i):
            loss = model(R(4, 4, seed=10 * i + rank)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            losses = [recorded(d, lambda: run(i), model) for i in range(2)]
        views = [str(w.message) for w in seen if "view" in str(w.message)]
        return bits(*losses, *[p.to_local() for p in model.parameters()]) + views

    for rank, r in enumerate(both(tmp_path, body, level=level)):
        data = r.data(1, "rank%d" % rank)
        if level != "L0":
            assert {"Functional.linear.0.forward", "Functional.linear.1.backward"} <= set(data)
        if level != "L1":
            assert {"Module.0.FSDPLinear.forward.0", "Module.2.Linear.backward.0"} <= set(data)
            grad = data["Module.0.FSDPLinear.parameters_grad"]["weight"][0]
            assert grad["shape"] == [2, 4] and grad["placements"] == [{"Shard": {"dim": 0}}]


def test_dtensors_show_their_shard_mesh_and_placements(tmp_path):
    init_device_mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def body(d, rank):
        mesh = init_device_mesh("cpu", (2,))
        a = distribute_tensor(R(4, 3), mesh, [Shard(0)]).requires_grad_()
        b = distribute_tensor(R(3, 2, seed=1), mesh, [Replicate()])

        def run():
            y = torch.mm(a, b)
            z = torch.add(y, 1)
            z.sum().full_tensor().backward()
            whole = z.full_tensor()
            return bits(whole, y.to_local(), a.grad.to_local())

        return recorded(d, run)

    for rank, r in enumerate(both(tmp_path, body, task="tensor", level="L1")):
        where = "rank%d" % rank
        data = r.data(rank=where)
        record = data["Torch.mm.0.forward"]["input_args"][0]
        assert (record["type"], record["shape"]) == ("torch.distributed.tensor.DTensor", [2, 3])
        assert record["device_mesh"] == [0, 1] and record["placements"] == [{"Shard": {"dim": 0}}]
        assert data["Torch.mm.0.forward"]["input_args"][1]["placements"] == [{"Replicate": {}}]
        out = r.tensor("Torch.mm.0.forward.output.0.pt", rank=where)
        assert type(out) is torch.Tensor and out.numpy().tobytes() == r.value[1].tobytes()
        assert "Torch.mm.0.backward" in data


@pytest.mark.parametrize("level, nums", [("L0", 1), ("mix", 1), ("mix", -1)])
def test_an_overflow_that_only_the_reduced_shard_of_a_gradient_has_counts(tmp_path, level, nums):
    """Each rank's own gradient is finite, their sum is not: nobody sees it but FSDP2, which leaves it in the parameter."""
    init_device_mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def body(d, rank):
        model = nn.Sequential(nn.Linear(4, 4))
        for p in model.parameters():
            nn.init.zeros_(p)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        x, factor = torch.full((1, 4), 1e19), torch.full((1, 4), 2e19)
        d.start(model)
        try:
            (model(x) * factor).sum().backward()
            raised = None
        except Exception as e:
            raised = type(e).__name__
        d.stop()
        d.step()
        return raised, [p.grad.to_local().isinf().any().item() for p in model.parameters()]

    for rank, r in enumerate(ranks(tmp_path, body, task="overflow_check", level=level, part={"overflow_nums": nums})):
        assert r.value == ("MsprobeException" if nums == 1 else None, [True, False])
        assert r.names(0, "rank%d" % rank) == ["Module.0.Linear.parameters_grad"]
        assert "1 overflow(s); the first one in Module.0.Linear.parameters_grad" in r.output


def test_four_ranks_in_groups_of_two(tmp_path):
    def body(d, rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        model, ddp, step = two_layers(rank)

        def run(i):
            total = step(i).detach().clone()
            dist.all_reduce(total, group=pairs[rank // 2])
            return total

        totals = [recorded(d, lambda: run(i), ddp) for i in range(2)]
        return bits(*totals, *model.parameters())

    results = both(tmp_path, body, world=4, level="mix")
    assert folders(tmp_path) == ["rank0", "rank1", "rank2", "rank3"]
    names = results[0].names(1, "rank0")
    assert {"Functional.linear.1.forward", "Module.module.0.Linear.backward.0", "Module.module.2.Linear.parameters_grad"} <= set(names)
    for rank, r in enumerate(results):
        where = "rank%d" % rank
        assert r.names(0, where) == r.names(1, where) == names
        record = r.data(1, where)["Distributed.all_reduce.0.forward"]
        assert record["input_kwargs"]["group"] == group([0, 1] if rank < 2 else [2, 3])
        assert record["output"][0]["Max"] == pytest.approx(float(r.value[1]))


def test_tensor_parallel(tmp_path):
    init_device_mesh = pytest.importorskip("torch.distributed.device_mesh").init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def body(d, rank):
        model = fill(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)))
        parallelize_module(model, init_device_mesh("cpu", (4,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def run(i):
            loss = model(R(3, 4, seed=i)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        losses = [recorded(d, lambda: run(i), model) for i in range(2)]
        return bits(*losses, *[p.to_local() for p in model.parameters()])

    results = both(tmp_path, body, world=4, task="tensor", level="mix")
    assert folders(tmp_path) == ["rank0", "rank1", "rank2", "rank3"]
    names = results[0].names(1, "rank0")
    assert {"Functional.linear.0.forward", "Functional.linear.1.backward", "Module.0.Linear.forward.0", "Module.2.Linear.backward.0"} <= set(names)
    for rank, r in enumerate(results):
        where = "rank%d" % rank
        assert r.names(1, where) == names
        data = r.data(1, where)
        weight = data["Functional.linear.0.forward"]["input_args"][1]
        assert weight["type"] == "torch.distributed.tensor.DTensor" and weight["shape"] == [2, 4]
        assert weight["device_mesh"] == [0, 1, 2, 3] and weight["placements"] == [{"Shard": {"dim": 0}}]
        grads = {name: data["Module.%s.Linear.parameters_grad" % name]["weight"][0] for name in "02"}
        assert (grads["0"]["shape"], grads["2"]["shape"]) == ([2, 4], [4, 2])
        assert grads["2"]["placements"] == [{"Shard": {"dim": 1}}]
        assert list(r.tensor(weight["data_name"], 1, where).shape) == [2, 4]


def test_only_the_selected_rank_records(tmp_path):
    def body(d, rank):
        def run():
            x = torch.ones(2)
            dist.all_reduce(x)
            return [x]

        return bits(*recorded(d, run))

    zero, one = both(tmp_path, body, rank=[1])
    assert folders(tmp_path) == ["rank1"]
    assert "[ERROR]" not in zero.output and "rank selects [1], and this process is rank 0 of 2" in zero.output
    assert one.names(rank="rank1") == ["Distributed.all_reduce.0.forward"]


def test_a_rank_that_was_selected_and_recorded_nothing_says_so(tmp_path):
    def body(d, rank):
        recorded(d, lambda: torch.sin(torch.ones(2)) if rank == 0 else None)

    zero, one = ranks(tmp_path, body)
    assert "[ERROR]" not in zero.output
    assert "nothing was recorded: no listed API was called between start() and stop()" in one.output and "[rank 1]" in one.output


def test_ranks_that_do_not_exist_are_told(tmp_path):
    zero, one = ranks(tmp_path, lambda d, rank: recorded(d, lambda: torch.sin(torch.ones(2)) is None), rank=[4, "8-9"])
    for rank, r in enumerate((zero, one)):
        assert "[ERROR]" in r.output and "rank selects [4, 8, 9], and this process is rank %d of 2" % rank in r.output
    assert not (tmp_path / "dump").exists() or not os.listdir(tmp_path / "dump")


def test_ranks_that_join_late_still_have_folders_of_their_own(tmp_path):
    """Started before init_process_group(): no rank is known then, and two processes must not write to one folder."""
    from collecting import begin, finish, write_config
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(tmp_path)

    def run(rank):
        d = PrecisionDebugger(path)
        d.start()
        torch.add(torch.ones(2).fill_(float(rank)), 1)
        dist.init_process_group("gloo", init_method="file://%s" % (tmp_path / "store"), rank=rank, world_size=2)
        dist.barrier()
        torch.mul(torch.ones(2).fill_(float(rank)), 1)
        d.stop()
        d.step()
        dist.barrier()
        dist.destroy_process_group()

    begun = []
    for rank in range(2):
        (tmp_path / ("p%d" % rank)).mkdir()
        begun.append(begin(tmp_path / ("p%d" % rank), lambda: run(rank)))
    for status, output, _ in [finish(b) for b in begun]:
        assert status == 0, output
    seen = []
    for name in folders(tmp_path):
        with open(tmp_path / "dump" / "step0" / name / "dump.json") as f:
            data = json.load(f)["data"]
        assert [n for n in data if n.startswith("Torch.")] == ["Torch.add.0.forward", "Torch.mul.0.forward"], name
        values = {data[n]["input_args"][0]["Max"] for n in ("Torch.add.0.forward", "Torch.mul.0.forward")}
        assert len(values) == 1, name  # of one process
        seen += values
    assert sorted(seen) == [0.0, 1.0]


SCRIPT = """
    import sys, torch, torch.distributed as dist
    from msprobe.pytorch import PrecisionDebugger
    dist.init_process_group("gloo")
    debugger = PrecisionDebugger(sys.argv[1])
    for step in range(2):
        debugger.start()
        x = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(x)
        torch.sin(x)
        debugger.stop()
        debugger.step()
    dist.destroy_process_group()
"""


@pytest.mark.skipif(not TORCH2 and sys.version_info >= (3, 11), reason="torchrun of torch 1.13 does not start workers in this Python")
def test_torchrun(tmp_path):
    from collecting import write_config

    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    env = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(tmp_path / "train.py"),
                           write_config(tmp_path)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in range(2):
        for rank in range(2):
            with open(tmp_path / "dump" / ("step%d" % step) / ("rank%d" % rank) / "dump.json") as f:
                data = json.load(f)["data"]
            assert list(data) == ["Distributed.all_reduce.0.forward", "Torch.sin.0.forward"]
            assert data["Distributed.all_reduce.0.forward"]["input_args"][0]["Max"] == float(rank)


@pytest.mark.skipif(not hasattr(dist, "all_gather_single"), reason="the names of torch 2.13")
def test_the_newer_names_of_collectives_on_whole_tensors_are_recorded(tmp_path):
    def body(d, rank):
        whole, part = torch.zeros(4), torch.zeros(1)

        def work():
            dist.all_gather_single(whole, torch.full((2,), rank + 1.0))
            dist.reduce_scatter_single(part, input=whole[1:3].clone())
            return bits(whole, part)

        return recorded(d, work)

    for rank, r in enumerate(both(tmp_path, body)):
        found = [n for n in r.names(0, "rank%d" % rank) if n.startswith("Distributed.")]
        assert found == ["Distributed.all_gather_single.0.forward", "Distributed.reduce_scatter_single.0.forward"]


@pytest.mark.skipif(not hasattr(dist, "all_gather_single"), reason="the names of torch 2.13")
def test_what_fsdp_calls_by_the_newer_names_is_not_the_programs(tmp_path):
    from torch.distributed.fsdp import FullyShardedDataParallel

    def body(d, rank):
        model = FullyShardedDataParallel(fill(nn.Linear(4, 4)), device_id=torch.device("cpu"))

        def work():
            model(R(2, 4, seed=rank)).sum().backward()

        return recorded(d, work)

    for rank, r in enumerate(ranks(tmp_path, body)):
        assert [n for n in r.names(0, "rank%d" % rank) if "_single" in n] == []
