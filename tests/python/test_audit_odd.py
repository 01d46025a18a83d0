"""msprobe audit of odd jobs without a fault: a clean job is clean in every mode, whatever its calls look like."""
import contextlib
import inspect
import json
import subprocess

import pytest
from collecting import R, fill, gloo_makes, ranks, torch
from test_audit import COMMAND, DDP, GLOO, MODES, audit

import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

NAN, INF = float("nan"), float("inf")

MAKES = gloo_makes(
    bool_max=lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.MAX),
    bool_gather=lambda: dist.all_gather([torch.ones(2, dtype=torch.bool)], torch.ones(2, dtype=torch.bool)),
    bool_broadcast=lambda: dist.broadcast(torch.ones(2, dtype=torch.bool), 0),
)


# ---- plain calls -----------------------------------------------------------------------------------------------------

def objects(rank, world):
    """Pickled into tensors of other lengths on each rank, by calls within calls."""
    mine = {"rank": rank, "text": "x" * (5 * rank)}
    got = [None] * world
    dist.all_gather_object(got, mine)
    assert got[-1]["rank"] == world - 1
    sent = [mine, rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(sent, src=1)
    dist.gather_object(mine, got if rank == 2 else None, dst=2)
    one = [None]
    dist.scatter_object_list(one, [{"to": i} for i in range(world)] if rank == 0 else None, src=0)
    if hasattr(dist, "send_object_list") and rank == 0:
        dist.send_object_list([mine], dst=1)
    elif hasattr(dist, "send_object_list") and rank == 1:
        dist.recv_object_list([None], src=0)
    dist.barrier()
    dist.monitored_barrier()


def groups_in_groups(rank, world):
    """Groups of one, of some in another order, one inside the other; who is in none calls nothing."""
    lists = ([0, 1, 2], [1, 2], [world - 1], [world - 1, 0], list(range(world))[::-1], [1])
    groups = [dist.new_group(members) for members in lists]
    for turn in range(2):
        for members, group in zip(lists, groups):
            if rank not in members:
                continue
            n = len(members)
            dist.all_reduce(R(6, seed=rank + turn), group=group)
            dist.broadcast(R(3, seed=rank), members[-1], group=group)
            dist.all_gather([torch.zeros(4) for _ in range(n)], R(4, seed=rank), group=group)
            dist.reduce(R(5, seed=rank), members[0], group=group)
            dist.all_to_all_single(torch.zeros(2 * n), R(2 * n, seed=rank), group=group)
            dist.gather(R(2, seed=rank), [torch.zeros(2) for _ in members] if rank == members[0] else None, dst=members[0], group=group)
            dist.scatter(torch.zeros(2), [R(2, seed=i) for i in range(n)] if rank == members[-1] else None, src=members[-1], group=group)
            dist.barrier(group=group)


def not_numbers(rank, world):
    """NaN and infinities that meet each other and numbers; gloo's maximum keeps or drops a NaN by the order of its ring."""
    x = R(12, seed=rank)
    x[rank], x[4 + rank], x[8], x[9] = NAN, -INF if rank % 2 else INF, NAN if rank == 1 else 50.0 * rank, INF
    for op in ("SUM", "MAX", "MIN", "PRODUCT"):
        dist.all_reduce(x.clone(), op=getattr(dist.ReduceOp, op))
    dist.all_gather([torch.zeros(12) for _ in range(world)], x)
    dist.broadcast(x.clone(), 1)
    dist.all_reduce(torch.full((3,), 6e4).half())           # leaves the type's range
    dist.all_reduce(torch.full((3,), 3e38))
    dist.all_reduce(torch.full((4,), 1e-45) * (rank + 1))    # subnormal
    dist.all_reduce(torch.full((4,), 2 ** 62, dtype=torch.int64))  # wraps


def types(rank, world):
    for dtype in (torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8) + ((torch.bfloat16,) if GLOO["bfloat16"] else ()):
        x = (R(9, seed=rank) * 3).to(dtype)
        for op in ("SUM", "MAX", "MIN", "PRODUCT") + (("AVG",) if GLOO["AVG"] and dtype.is_floating_point else ()):
            dist.all_reduce(x.clone(), op=getattr(dist.ReduceOp, op))
        dist.reduce(x.clone(), 0)
        dist.broadcast(x.clone(), 0)
        dist.all_gather([torch.zeros(9, dtype=dtype) for _ in range(world)], x)
    for dtype in (torch.complex64, torch.complex128):
        dist.all_reduce(torch.complex(R(5, seed=rank), R(5, seed=rank + 9)).to(dtype))
    flags = torch.arange(7) % (rank + 2) == 0
    if MAKES["bool_gather"]:
        dist.all_gather([torch.zeros(7, dtype=torch.bool) for _ in range(world)], flags)
    if MAKES["bool_broadcast"]:
        dist.broadcast(flags.clone(), 1)
    if MAKES["bool_max"]:
        for op in ("MAX", "MIN", "SUM", "PRODUCT"):
            dist.all_reduce(flags.clone(), op=getattr(dist.ReduceOp, op))


def shapes(rank, world):
    """Nothing, one number, views, more than a block, one buffer for all parts."""
    dist.all_reduce(torch.zeros(0))
    dist.all_reduce(torch.tensor(1.5 + rank))
    dist.all_reduce(R(5001, seed=rank))
    dist.all_reduce(R(4, 6, seed=rank)[1:3])
    buffer = torch.zeros(world * 4)
    dist.all_gather(list(buffer.chunk(world)), R(4, seed=rank))
    dist.all_to_all_single(torch.zeros(world, 3), R(world, 3, seed=rank).t().contiguous().t().contiguous())
    given = [(rank + i) % 3 for i in range(world)]
    got = [(i + rank) % 3 for i in range(world)]
    dist.all_to_all_single(torch.zeros(sum(got), 2), R(sum(given), 2, seed=rank), got, given)
    dist.all_to_all_single(output=torch.zeros(sum(got), 2), input=R(sum(given), 2, seed=rank), output_split_sizes=got, input_split_sizes=given)
    if GLOO["all_gather_into_tensor"]:
        dist.all_gather_into_tensor(torch.zeros(2 * world, 3), R(2, 3, seed=rank))
    if GLOO["reduce_scatter_tensor"]:
        dist.reduce_scatter_tensor(torch.zeros(2, 3), R(2 * world, 3, seed=rank), op=dist.ReduceOp.MAX)


def handles(rank, world):
    """Waited for in another order, twice, by their future, by asking again and again, or by nobody."""
    works = [dist.all_reduce(R(6, seed=rank + i), async_op=True) for i in range(3)]
    works += [dist.broadcast(R(6, seed=rank), 1, async_op=True), dist.all_gather([torch.zeros(2) for _ in range(world)], R(2, seed=rank), async_op=True)]
    for work in works[::-1]:
        work.wait()
        work.wait()
    asked = dist.all_reduce(R(6, seed=rank), async_op=True)
    while not asked.is_completed():
        pass
    asked.wait()
    dist.all_reduce(R(6, seed=rank + 20), async_op=True).get_future().wait()
    x = R(6, seed=rank)
    dist.all_reduce(x, async_op=True).wait()
    x.div_(world)
    ring = [dist.isend(R(5, seed=rank), (rank + 1) % world, tag=7), dist.irecv(torch.zeros(5), (rank - 1) % world, tag=7)]
    for work in ring:
        work.wait()
    ops = [dist.P2POp(kind, R(3, seed=rank) if kind is dist.isend else torch.zeros(3), peer)
           for peer in range(world) if peer != rank for kind in (dist.isend, dist.irecv)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    dist.barrier(async_op=True).wait()
    dist.all_reduce(R(6, seed=rank + 30), async_op=True)  # the barrier behind it makes sure that it is over
    dist.barrier()


def anybody(rank, world):
    """Messages from whoever comes first."""
    if rank == 0:
        for _ in range(2 * (world - 1)):
            dist.recv(torch.zeros(4))
    else:
        for i in range(2):
            dist.send(R(4, seed=10 * rank + i), 0)


CALLS = [objects, groups_in_groups, not_numbers, types, shapes, handles, anybody]


@pytest.mark.parametrize("task,part", MODES, ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("body", CALLS, ids=lambda f: f.__name__)
def test_odd_calls_are_clean(tmp_path, body, task, part):
    def run(d, rank):
        d.start()
        body(rank, 4)
        d.stop()
        d.step()

    ranks(tmp_path, run, 4, task=task, part=part)
    said = audit(tmp_path / "dump")
    assert said["findings"] == [] and said["matched"] > 0
# ---- models ----------------------------------------------------------------------------------------------------------

def model_of():
    return fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))


class Branches(nn.Module):
    """Of two branches each rank takes its own."""
    def __init__(self):
        super().__init__()
        self.one, self.other, self.last = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x, which):
        return self.last(torch.relu((self.one if which else self.other)(x)))


def train(d, model, known, rank, steps=3, optimizer=None, call=None, micro=1, sync=None, lr=0.05):
    o = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    for i in range(steps):
        d.start(known)
        for k in range(micro):
            x = R(4, 6, seed=100 * i + 10 * k + rank)
            with sync() if sync is not None and k < micro - 1 else contextlib.nullcontext():
                (call or (lambda m, x: m(x)))(model, x).pow(2).mean().backward()
        d.stop()
        o.step()
        o.zero_grad()
        d.step()


def ddp(**options):
    def job(d, rank, world):
        model = DDP(model_of(), **options)
        train(d, model, model, rank)
    return job


def unused(d, rank, world):
    model = DDP(fill(Branches()), find_unused_parameters=True)
    train(d, model, model, rank, call=lambda m, x: m(x, rank % 2 == 0))


def accumulated(d, rank, world):
    model = DDP(model_of())
    train(d, model, model, rank, micro=3, sync=model.no_sync)


def hook(name):
    def job(d, rank, world):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        model = DDP(model_of())
        model.register_comm_hook(None, getattr(default_hooks, name))
        train(d, model, model, rank)
    return job


def power_sgd(d, rank, world):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    model = DDP(model_of())
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    train(d, model, model, rank, steps=4)


def batch_norm(d, rank, world):
    model = DDP(fill(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))))
    torch.manual_seed(rank)
    train(d, model, model, rank)


def zero(d, rank, world):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DDP(model_of())
    train(d, model, model, rank, optimizer=ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01))


def by_hand(d, rank, world):
    model = model_of()
    o = torch.optim.AdamW(model.parameters(), lr=0.01)
    for i in range(3):
        d.start(model)
        model(R(4, 6, seed=10 * i + rank)).pow(2).mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(world)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        o.step()
        o.zero_grad()
        d.stop()
        d.step()


def two_optimizers(d, rank, world):
    """A part of the model is trained every other step."""
    model = DDP(model_of(), find_unused_parameters=True)
    ones, others = torch.optim.SGD(model.module[0].parameters(), lr=0.1), torch.optim.Adam(model.module[2:].parameters(), lr=0.01)
    for i in range(4):
        d.start(model)
        model(R(4, 6, seed=10 * i + rank)).pow(2).mean().backward()
        (ones if i % 2 else others).step()
        ones.zero_grad()
        others.zero_grad()
        d.stop()
        d.step()


def frozen(d, rank, world):
    model = model_of()
    model[0].requires_grad_(False)
    model = DDP(model)
    train(d, model, model, rank, optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))


def fully_sharded(nested=False, mesh=None, mixed=False):
    def job(d, rank, world):
        from torch.distributed import fsdp
        from torch.distributed.device_mesh import init_device_mesh
        model = model_of()
        options = {}
        if mesh:
            options["mesh"] = init_device_mesh("cpu", mesh, mesh_dim_names=("replicas", "shards"))
        if mixed:
            options["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in (model if nested else ()):
            if isinstance(layer, nn.Linear):
                fsdp.fully_shard(layer, **options)
        fsdp.fully_shard(model, **options)
        train(d, model, model, rank, optimizer=torch.optim.Adam(model.parameters(), lr=0.01))
    return job


def old_fsdp(d, rank, world):
    from torch.distributed.fsdp import FullyShardedDataParallel
    model = FullyShardedDataParallel(model_of(), device_id=torch.device("cpu"), use_orig_params=True)
    train(d, model, model, rank)


def stages_of_one_seed(d, rank, world):
    """A pipeline whose stages begin with the same weights, as all ranks have one seed, and then go their own ways."""
    model = fill(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)))
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        d.start(model)
        x = R(4, 6, seed=i) if rank == 0 else torch.zeros(4, 6)
        if rank > 0:
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = model(x)
        if rank < world - 1:
            dist.send(y.detach(), rank + 1)
            grad = torch.zeros(4, 6)
            dist.recv(grad, rank + 1)
            y.backward(grad)
        else:
            y.pow(2).mean().backward()
        if rank > 0:
            dist.send(x.grad, rank - 1)
        d.stop()
        o.step()
        o.zero_grad()
        d.step()


def two_models(d, rank, world):
    """Two thirds of the ranks train one model, the others another one, in groups of their own."""
    groups = dist.new_group([0, 1]), dist.new_group([2, 3])
    model = DDP(fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))), process_group=groups[rank // 2])
    train(d, model, model, rank, lr=0.05 * (1 + rank // 2))


def averaged_copy(d, rank, world):
    """An exponential average of the weights beside the model."""
    from torch.optim.swa_utils import AveragedModel
    model = DDP(model_of())
    ema = AveragedModel(model.module)
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        d.start(model)
        model(R(4, 6, seed=10 * i + rank)).pow(2).mean().backward()
        o.step()
        o.zero_grad()
        ema.update_parameters(model.module)
        ema(R(2, 6, seed=rank))
        d.stop()
        d.step()


def experts(d, rank, world):
    """A layer of each rank's own between shared ones: mixture of experts."""
    model = fill(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
    with torch.no_grad():
        model[2].weight.copy_(R(8, 8, seed=50 + rank))
    o = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(3):
        d.start(model)
        h = torch.relu(model[0](R(8, 6, seed=10 * i + rank)))
        there, back = torch.zeros(8, 8), torch.zeros(8, 8)
        dist.all_to_all_single(there, h.detach())
        dist.all_to_all_single(back, model[2](there).detach())
        model[4](torch.relu(h + back)).pow(2).mean().backward()
        for n in (0, 4):
            for p in model[n].parameters():
                if p.grad is not None:
                    dist.all_reduce(p.grad)
        d.stop()
        o.step()
        o.zero_grad()
        d.step()


MODELS = {
    "ddp": ddp(), "bucket_view": ddp(gradient_as_bucket_view=True), "static_graph": ddp(static_graph=True), "unused": unused, "accumulated": accumulated,
    "fp16_hook": hook("fp16_compress_hook"), "allreduce_hook": hook("allreduce_hook"), "power_sgd": power_sgd,
    "batch_norm": batch_norm, "zero": zero, "by_hand": by_hand, "two_optimizers": two_optimizers, "frozen": frozen, "fsdp2": fully_sharded(),
    "fsdp2_nested": fully_sharded(nested=True), "fsdp2_mesh": fully_sharded(mesh=(2, 2)), "fsdp2_mixed": fully_sharded(nested=True, mixed=True),
    "fsdp1": old_fsdp, "stages_of_one_seed": stages_of_one_seed, "two_models": two_models, "averaged_copy": averaged_copy,
    "experts": experts,
}


def shards_as_in(job):
    """Whether this torch has the FSDP of that job."""
    try:
        from torch.distributed import fsdp
    except ValueError:  # torch 1.13's cannot be imported by Python 3.11
        return False
    if job == "fsdp1":
        return "use_orig_params" in inspect.signature(fsdp.FullyShardedDataParallel).parameters
    return hasattr(fsdp, "fully_shard")


def findings(folder, shards):
    """Of shards alone nothing can be checked: their collectives are torch's own, which no record shows."""
    done = subprocess.run([COMMAND, "audit", str(folder), "--json"], text=True, capture_output=True, timeout=600)
    if shards and "nothing could be checked" in done.stderr:
        return []
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)["findings"]


@pytest.mark.parametrize("task,part,level", [("tensor", None, "L1"), ("statistics", None, "mix"), ("statistics", {"summary_mode": "md5"}, "mix")],
                         ids=["tensor", "statistics", "md5"])
@pytest.mark.parametrize("job", MODELS)
def test_odd_models_are_clean(tmp_path, job, task, part, level):
    if job.startswith("fsdp") and not shards_as_in(job):
        pytest.skip("this torch does not shard so")
    ranks(tmp_path, lambda d, rank: MODELS[job](d, rank, 4), 4, task=task, part=part, level=level)
    assert findings(tmp_path / "dump", shards=job.startswith("fsdp")) == []
