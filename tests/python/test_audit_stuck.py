"""msprobe audit of real jobs that hang or die: the rank that is to blame is named first, who only waits for it is not.

gloo gives up after a while, so that these jobs end; what they have recorded until then is what a job that hangs has recorded.
"""
import datetime
import faulthandler
import os
import signal

import pytest
from collecting import R, begin, finish, torch, until, write_config
from test_audit import audit

if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist  # noqa: E402

PATIENCE = 8  # seconds until gloo gives up; what the ranks do before they wait for each other in vain begins at the same moment


def meeting(folder, rank, world):
    """meet(): go on when all ranks are there. Who has left a collective does not know that the others have, and what it does next may end them."""
    times = [0]

    def meet():
        times[0] += 1
        (folder / ("rank%d.met%d" % (rank, times[0]))).touch()
        until(lambda: len(list(folder.glob("rank*.met%d" % times[0]))) == world)
    return meet


def job(folder, body, world=4):
    """Like a training whose ranks each have their own end: gloo's error, a signal, or none."""
    from msprobe.pytorch import PrecisionDebugger

    path = write_config(folder, task="statistics")

    def run(rank):
        meet = meeting(folder, rank, world)
        meet()
        faulthandler.disable()  # gloo ends a process that gets more than it expects
        dist.init_process_group("gloo", init_method="file://%s" % (folder / "store"), rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=PATIENCE))
        d = PrecisionDebugger(path)
        pair = [dist.new_group([i, i + 1]) for i in range(0, world, 2)]
        d.start()
        meet()
        try:
            body(rank, pair[rank // 2], meet)
        except RuntimeError:
            pass  # the collective that nobody else makes
        d.stop()
        d.step()

    begun = []
    for rank in range(world):
        own = folder / ("process%d" % rank)
        own.mkdir()
        begun.append(begin(own, lambda rank=rank: run(rank)))
    for b in begun:
        finish(b)
    return audit(folder / "dump")["findings"]


def skips_a_call(rank, pair, meet):
    x = R(7, seed=rank)
    dist.all_reduce(x)
    meet()
    if rank != 2:
        dist.broadcast(R(5, seed=rank), 0)
    dist.all_reduce(x * 2)


def skips_one_of_many(rank, pair, meet):
    for i in range(4):
        if i == 2:
            meet()
        if rank != 1 or i != 2:
            dist.all_reduce(R(7, seed=rank))


def takes_the_wrong_group(rank, pair, meet):
    x = R(7, seed=rank)
    dist.all_reduce(x)
    meet()
    dist.all_reduce(x * 2, group=None if rank == 2 else pair)
    dist.all_reduce(R(3, seed=rank))


def has_another_shape(rank, pair, meet):
    dist.all_reduce(R(7, seed=rank))
    meet()
    dist.all_reduce(R(3 if rank == 1 else 4, seed=rank))
    dist.all_reduce(R(7, seed=rank))


def has_another_type(rank, pair, meet):
    dist.all_reduce(R(8, seed=rank))
    meet()
    dist.all_reduce(R(8, seed=rank).to(torch.float64 if rank == 1 else torch.float32))
    dist.all_reduce(R(7, seed=rank))


def has_another_order(rank, pair, meet):
    x, lists = R(7, seed=rank), [torch.zeros(7) for _ in range(4)]
    if rank == 3:
        dist.all_gather(lists, x)
    dist.all_reduce(R(5, seed=rank))
    if rank != 3:
        dist.all_gather(lists, x)


def is_killed(rank, pair, meet):
    dist.all_reduce(R(7, seed=rank))
    meet()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(R(7, seed=rank))


@pytest.mark.parametrize("body,blamed,call,words", [
    (skips_a_call, 2, "all_reduce.1", "rank 2 does not make broadcast float32 [5] src 0"),
    (skips_one_of_many, 1, "all_reduce.2", "rank 1 does not make all_reduce SUM float32 [7] (Distributed.all_reduce.3.forward on rank 0)"),
    (takes_the_wrong_group, 2, "all_reduce.1", "rank 2 makes all_reduce SUM float32 [7] in group [0, 1, 2, 3], the others of [2, 3] make it there"),
    (has_another_shape, 1, "all_reduce.1", "rank 1 makes all_reduce SUM float32 [3], the others all_reduce SUM float32 [4]"),
    (has_another_type, 1, "all_reduce.1", "rank 1 makes all_reduce SUM float64 [8], the others all_reduce SUM float32 [8]"),
    (has_another_order, 3, "all_gather.0", "rank 3 makes all_gather float32, the others all_reduce SUM float32 [5]"),
    (is_killed, 1, "all_reduce.0", "rank 1 does not make all_reduce SUM float32 [7] (Distributed.all_reduce.1.forward on rank 0)"),
], ids=lambda v: getattr(v, "__name__", None))
def test_why_a_job_hangs_is_named_first(tmp_path, body, blamed, call, words):
    first = job(tmp_path, body)[0]
    assert (first["kind"], first["rank"], first["call"]) == ("calls", blamed, "Distributed.%s.forward" % call)
    assert first["what"].startswith(words) and any(body.__name__ in frame for frame in first["stack"])


def test_who_has_left_a_group_early_is_not_taken_for_one_in_the_wrong_group(tmp_path):
    """Rank 4 skips its group's call and waits with ranks 0 to 2, which are done, in the same call of the whole job."""
    def body(rank, pair, meet):
        groups = dist.new_group([0, 1, 2]), dist.new_group([3, 4, 5])
        x = R(7, seed=rank)
        dist.all_reduce(x, group=groups[rank // 3])
        meet()
        if rank != 4:
            dist.all_reduce(x, group=groups[rank // 3])
        dist.all_reduce(x)

    finding = job(tmp_path, body, 6)[0]
    assert (finding["kind"], finding["rank"]) == ("calls", 4)
    assert finding["what"].startswith("rank 4 does not make all_reduce SUM float32 [7] (Distributed.all_reduce.1.forward on rank 3)")


def test_a_message_that_nobody_receives_is_named_and_not_the_collective_behind_it(tmp_path):
    def body(rank, pair, meet):
        x = R(7, seed=rank)
        if rank == 0:
            dist.send(x, 1)
            dist.send(x, 1)
        if rank == 1:
            dist.recv(x, 0)
        dist.all_reduce(x)

    finding, = job(tmp_path, body)
    assert (finding["rank"], finding["call"]) == (0, "Distributed.send.1.forward")
    assert finding["what"] == "rank 0 sends to rank 1 (send float32 [7]), which does not receive it"
