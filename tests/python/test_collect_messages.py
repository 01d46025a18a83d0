"""What the collector says, what it leaves alone, and what it does with things that an earlier run has left."""
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from collecting import R, collect, in_process, ranks, torch, writers

import torch.nn.functional as F  # noqa: E402
from msprobe.core.common.exceptions import MsprobeException, ScopeException  # noqa: E402


def data(folder):
    return json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]


def test_one_line_says_what_was_recorded_and_where(tmp_path):
    def body(d):
        for _ in range(3):
            d.start()
            torch.sin(R(2))
            torch.cos(R(2))
            d.stop()
            d.step()

    r = collect(tmp_path, body)
    lines = [line for line in r.output.splitlines() if "] recorded " in line]
    assert len(lines) == 1 and "recorded 6 calls, 3 steps, " in lines[0] and lines[0].endswith("B in %s" % (tmp_path / "dump")), r.output
    size = sum(os.path.getsize(os.path.join(where, n)) for where, _, names in os.walk(tmp_path / "dump") for n in names)
    shown = float(lines[0].split("steps, ")[1].split(" ")[0])
    assert abs(shown * {"kB": 1000, "B": 1}[lines[0].split("steps, ")[1].split(" ")[1]] - size) < 0.1 * size


@pytest.mark.parametrize("spelled", ["dump/", "dump//", "./dump/.///", "~/dump", "~//dump///"])
def test_a_folder_may_be_written_as_people_write_it(tmp_path, spelled):
    def body(d):
        for _ in range(2):
            d.start()
            torch.sin(R(2))
            d.stop()
            d.step()

    def run():
        os.chdir(tmp_path)
        os.environ["HOME"] = str(tmp_path)
        from msprobe.pytorch import PrecisionDebugger

        body(PrecisionDebugger(task="tensor", dump_path=spelled))

    status, output, _ = in_process(tmp_path, run)
    assert status == 0 and "[ERROR]" not in output and "recorded 2 calls, 2 steps" in output, output
    for step in range(2):
        folder = tmp_path / "dump" / ("step%d" % step) / "rank"
        assert "Torch.sin.0.forward" in json.loads((folder / "dump.json").read_text())["data"]
        assert len(os.listdir(folder / "dump_tensor_data")) == 2
    assert not [name for name in os.listdir(tmp_path / "dump") if name.startswith(".msprobe")]


def recorded_line(r):
    line, = [line for line in r.output.splitlines() if "] recorded " in line]
    return line.split("] recorded ")[1]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_the_line_counts_calls_as_show_does(tmp_path, level):
    def body(d):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3))
        d.start(model)
        torch.nn.functional.relu(model(R(2, 3, grad=True))).sum().backward()
        d.stop()
        d.step()

    r = collect(tmp_path, body, level=level)
    msprobe = shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
    shown = json.loads(subprocess.run([msprobe, "show", str(tmp_path / "dump/step0/rank"), "--json"], text=True, capture_output=True).stdout)["dumps"][0]
    assert shown["calls"] == len(r.names()) and 0 < shown["backward"] < shown["calls"]
    assert recorded_line(r).startswith("%d calls (%d of backward), 1 step, " % (shown["calls"], shown["backward"]))


def test_the_step_time_is_said_where_the_program_ran_without_recording_too(tmp_path):
    """Made-up clock: a step takes 2, a recorded one 3."""
    from msprobe.pytorch import recorder

    def run(d, steps):
        now = [0.0]
        recorder.time = type("Clock", (), {"monotonic": staticmethod(lambda: now[0])})
        for i in range(steps):
            d.start()
            torch.sin(R(2))
            now[0] += 3.0 if d.config.step == [] or i in d.config.step else 2.0
            d.stop()
            d.step()

    folders = [tmp_path / name for name in ("some", "few", "all")]
    for folder in folders:
        folder.mkdir()
    assert recorded_line(collect(folders[0], lambda d: run(d, 9), step=[3, 4, 5])).endswith("dump, 1.5x step time")
    assert recorded_line(collect(folders[1], lambda d: run(d, 9), step=[3, 4])).endswith("dump")
    assert recorded_line(collect(folders[2], lambda d: run(d, 9))).endswith("dump")


def test_ranks_say_a_line_each_with_their_number_and_no_stars(tmp_path):
    import torch.distributed as dist

    def body(d, rank):
        d.start()
        dist.all_reduce(torch.ones(2))
        d.stop()
        d.step()

    for rank, r in enumerate(ranks(tmp_path, body)):
        lines = [line for line in r.output.splitlines() if "by replaced attributes" not in line]
        assert len(lines) == 1 and "[rank %d] [INFO] recorded 1 call, 1 step, " % rank in lines[0] and "*" not in r.output, r.output


def test_a_second_run_finds_the_first_moved_aside(tmp_path):
    def first(d):
        d.start()
        torch.sin(R(2))
        torch.cos(R(2))
        d.stop()
        d.step()
        d.start()
        torch.sin(R(2))

    def second(d):
        d.start()
        torch.tanh(R(2))

    before = collect(tmp_path, first, task="tensor")
    assert "earlier run" not in before.output
    r = collect(tmp_path, second, task="tensor")
    lines = [line for line in r.output.splitlines() if "earlier run" in line]
    assert len(lines) == 1 and str(tmp_path / "dump.older-1") in lines[0]
    assert list(data(tmp_path / "dump")) == ["Torch.tanh.0.forward"]
    assert not (tmp_path / "dump" / "step1" / "rank").exists()
    assert all("tanh" in n for n in os.listdir(tmp_path / "dump" / "step0" / "rank" / "dump_tensor_data"))
    assert list(data(tmp_path / "dump.older-1")) == ["Torch.sin.0.forward", "Torch.cos.0.forward"]
    assert (tmp_path / "dump.older-1" / "step1" / "rank" / "dump.json").exists()
    collect(tmp_path, second, task="tensor")
    assert list(data(tmp_path / "dump.older-2")) == ["Torch.tanh.0.forward"]


@pytest.mark.parametrize("place", ["step0", "step0/rank"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_link_in_a_folders_place_is_not_followed(tmp_path, place, empty):
    """What it leads to is outside of dump_path, and none of ours."""
    outside = tmp_path / "outside"
    outside.mkdir()
    if not empty:
        (outside / "precious").write_text("theirs")
    link = tmp_path / "dump" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)

    def body(d):
        d.start()
        torch.sin(R(2))

    collect(tmp_path, body, task="tensor")
    assert list(data(tmp_path / "dump")) == ["Torch.sin.0.forward"]
    assert sorted(os.listdir(outside)) == ([] if empty else ["precious"])
    assert (tmp_path / "dump.older-1" / place).is_symlink() and not link.is_symlink()


def test_ranks_of_a_second_run_move_their_own(tmp_path):
    def body(d, rank):
        d.start()
        torch.sin(R(2))
        d.stop()
        d.step()

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        ranks(tmp_path / name, body, world=2, dump=tmp_path / "dump")
    for where in ("dump", "dump.older-1"):
        assert sorted(os.listdir(tmp_path / where / "step0")) == ["rank0", "rank1"]
    assert not (tmp_path / "dump.older-2").exists()


def test_start_twice_and_no_step_are_one_line_each(tmp_path):
    def body(d):
        for _ in range(3):
            d.start()
            d.start()
            torch.sin(R(2))
            d.stop()
        d.start()

    r = collect(tmp_path, body)
    assert r.output.count("start() was called again before stop()") == 1
    assert r.output.count("step() was never called") == 1 and r.output.count("stop() was not called") == 1
    assert len(r.names()) == 3


@pytest.mark.parametrize("path", ["/proc/nowhere/dump", "/proc/1/dump", "/sys/nowhere/dump"])
def test_a_dump_path_where_no_folder_can_be_made_is_told(tmp_path, path):
    def body():
        from msprobe.pytorch import PrecisionDebugger

        with pytest.raises(MsprobeException, match="dump_path is "):
            d = PrecisionDebugger(task="statistics", dump_path=path)
            d.start()
        torch.sin(R(2))

    status, output, _ = in_process(tmp_path, body)
    assert status == 0, output


def test_without_a_config_file_nothing_is_seeded_and_dropout_stays(tmp_path):
    def body():
        from msprobe.pytorch import PrecisionDebugger

        before, functions = torch.random.get_rng_state(), (F.dropout, torch.nn.Dropout.forward)
        PrecisionDebugger(task="statistics", dump_path=str(tmp_path / "dump"))
        assert torch.equal(before, torch.random.get_rng_state()) and (F.dropout, torch.nn.Dropout.forward) == functions
        assert (F.dropout(torch.ones(1000), 0.5, True) == 0).any() and torch.nn.Dropout(0.5).p == 0.5

    status, output, _ = in_process(tmp_path, body)
    assert status == 0, output


@pytest.mark.parametrize("config", [{"task": "statistics", "level": "L7"}, {"task": "statistics", "statistics": {"scope": ["a"]}}])
def test_a_wrong_configuration_is_told_in_english_and_without_our_frames(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(dict(config, dump_path=str(tmp_path / "dump"))))
    script = tmp_path / "train.py"
    script.write_text("from msprobe.pytorch import PrecisionDebugger\nPrecisionDebugger(%r)\n" % str(tmp_path / "config.json"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 1
    assert done.stderr.isascii() and done.stderr.count("  File ") <= 3 and 'train.py", line 2' in done.stderr, done.stderr
    assert ("level is" if "level" in config else "scope is") in done.stderr.splitlines()[-1]


def test_exceptions_of_the_configuration_keep_their_types():
    assert str(MsprobeException(MsprobeException.INVALID_PARAM_ERROR, "x")) == "[msprobe] Invalid parameter: x"
    assert str(ScopeException(ScopeException.INVALID_SCOPE, "x")).isascii()


def test_a_stopped_writer_ends_recording_after_writer_timeout_and_training_goes_on(tmp_path):
    def body(d):
        d.start()
        torch.sin(R(2))
        stopped = writers(tmp_path)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        d.stop()
        torch.sin(R(2))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        return stopped

    r = collect(tmp_path, body, writer_timeout=6)
    (pid,) = r.value
    told = [line for line in r.output.splitlines() if "process %d" % pid in line and "[WARNING]" in line]
    ended = [line for line in r.output.splitlines() if "recording has ended" in line]
    assert len(told) == 1 and "kill -CONT %d" % pid in told[0], r.output
    assert len(ended) == 1 and "process %d" % pid in ended[0], r.output


def test_a_ring_that_somebody_truncates_does_not_end_training(tmp_path):
    def body(d):
        d.start()
        torch.sin(R(2))
        (ring,) = [n for n in os.listdir(tmp_path / "dump") if n.endswith(".ring")]
        os.truncate(tmp_path / "dump" / ring, 0)
        for _ in range(200):
            torch.sin(R(2))
        d.stop()
        d.step()
        return float(torch.ones(3).sum())

    r = collect(tmp_path, body)
    assert r.value == 3.0 and r.output.count("recording has ended") == 1 and "truncated" in r.output, r.output
