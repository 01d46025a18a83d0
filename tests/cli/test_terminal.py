"""Colours and progress on a terminal, and neither in pipes."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

import dumps


def on_terminal(msprobe, words, cwd, env=None, columns=80):
    """Run with stdout and stderr on terminals of their own; (exit status, what each got)."""
    import fcntl
    import struct
    import termios
    out, out_child = pty.openpty()
    err, err_child = pty.openpty()
    for fd in (out_child, err_child):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE")}
    clean.update({"TERM": "xterm"}, **(env or {}))
    process = subprocess.Popen([msprobe, *words], cwd=cwd, env=clean, stdin=subprocess.DEVNULL, stdout=out_child,
                               stderr=err_child)
    os.close(out_child)
    os.close(err_child)
    got = {out: b"", err: b""}
    deadline = time.time() + 60
    while got and time.time() < deadline:
        for fd in select.select(list(got), [], [], 1)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:
                piece = b""
            if not piece:
                done = got.pop(fd)
                os.close(fd)
                if fd == out:
                    out_text = done
                else:
                    err_text = done
            else:
                got[fd] += piece
    return process.wait(timeout=60), out_text.decode(), err_text.decode()


@pytest.fixture
def pair(tmp_path):
    dumps.statistics(tmp_path / "npu", 2)
    dumps.statistics(tmp_path / "bench")
    return ["compare", "npu", "bench", "-o", "out"]


def test_a_terminal_gets_colours(msprobe, tmp_path, pair):
    rc, out, err = on_terminal(msprobe, pair, tmp_path)
    assert rc == 0 and "\x1b[31mWrong: " in out


@pytest.mark.parametrize("words, env", [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"CLICOLOR": "0"}),
                                        ([], {"TERM": "dumb"}), ([], {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"})])
def test_colours_can_be_refused(msprobe, tmp_path, pair, words, env):
    rc, out, err = on_terminal(msprobe, pair + words, tmp_path, env)
    assert rc == 0 and "\x1b[3" not in out + err and "Verdict       Wrong: " in out


def test_pipes_get_no_colours_unless_they_are_forced(run, pair):
    r = run(*pair)
    assert "\x1b" not in r.out + r.err
    assert "\x1b[31m" in run(*pair, env={"CLICOLOR_FORCE": "1"}).out
    assert "\x1b" not in run(*pair, env={"CLICOLOR_FORCE": "0"}).out
    assert "\x1b" not in run(*pair, "--no-color", env={"CLICOLOR_FORCE": "1"}).out


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_sentences_fit_the_terminal(msprobe, tmp_path, pair, columns):
    rc, out, err = on_terminal(msprobe, pair + ["--no-color"], tmp_path, columns=columns)
    lines = out.replace("\r", "").split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("  Verdict "))
    sentence = [lines[first]]
    for line in lines[first + 1:]:
        if not line.startswith(" " * 16):
            break
        sentence.append(line)
    assert max(len(line) for line in sentence) <= min(columns, 80) and (len(sentence) > 3) == (columns == 50)


def test_errors_are_red_on_a_terminal(msprobe, tmp_path):
    rc, out, err = on_terminal(msprobe, ["compare"], tmp_path)
    assert rc == 2 and err.startswith("\x1b[31merror: \x1b[0mwhat to compare?")


def compare_calls(base, calls):
    """The words that compare two dumps of so many calls, made in base."""
    leaf = json.dumps(dumps.tensor(1.0))
    record = '"Functional.relu.%%d.forward": {"input_args": [%s], "input_kwargs": {}, "output": [%s]}' % (leaf, leaf)
    text = '{"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": null, "data": {%s}}'
    for side in ("npu", "bench"):
        (base / side).mkdir()
        (base / side / "dump.json").write_text(text % ", ".join(record % i for i in range(calls)))
    return ["compare", str(base / "npu"), str(base / "bench"), "-o", "out", "--threads", "1"]


@pytest.fixture(scope="module")
def large(tmp_path_factory, msprobe):
    """Large enough, whatever the machine, to last longer than it takes until progress is shown."""
    for calls in (30000, 120000, 480000):
        words = compare_calls(tmp_path_factory.mktemp("large"), calls)
        if on_terminal(msprobe, words, tmp_path_factory.mktemp("out"))[2]:
            break
    return words


def test_progress_is_painted_on_a_terminal_and_wiped_away(msprobe, tmp_path, large, run):
    rc, out, err = on_terminal(msprobe, large, tmp_path)
    assert rc == 0
    assert "rows" in err and "\r" in err and " left" in err
    assert err.endswith("\r\x1b[K")
    for line in err.replace("\x1b[K", "").replace("\x1b[2m", "").replace("\x1b[0m", "").split("\r"):
        assert len(line) < 80
    rc, out, err = on_terminal(msprobe, large + ["-q", "--format", "csv"], tmp_path)
    assert rc == 0 and out == "" and err == ""
    r = run(*large, "--format", "csv")
    assert r.rc == 0 and r.err == ""


def test_time_left_is_told_while_the_rows_are_written(msprobe, tmp_path):
    early = []
    for calls in (30000, 120000, 480000):  # a quick machine needs more of them to be seen at work
        (tmp_path / str(calls)).mkdir()
        rc, out, err = on_terminal(msprobe, compare_calls(tmp_path / str(calls), calls), tmp_path)
        lines = [re.search(r"([\d,]+) of ([\d,]+) rows.*?([\d:]+) left", part) for part in err.split("\r")]
        told = [tuple(int(re.sub(r"\D", "", g)) for g in m.groups()) for m in lines if m]
        early = [left for done, total, left in told if 0 < done < total / 4]
        assert rc == 0
        if early and max(early) > 0:
            break
    assert early and max(early) > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_half_written_result(msprobe, tmp_path, large, number):
    process = subprocess.Popen([msprobe, *large], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    time.sleep(0.15)
    process.send_signal(number)
    process.communicate(timeout=60)
    left = [p.name for p in tmp_path.rglob("*") if p.is_file() and "out" in p.parts]
    if process.returncode == -number:
        assert left == []
    else:  # it was faster than we
        assert process.returncode == 0
