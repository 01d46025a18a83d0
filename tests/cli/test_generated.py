"""Completions and the manual page are made by the program itself and say what it understands."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import ROOT

KINDS = {"bash": "completions/msprobe.bash", "zsh": "completions/_msprobe", "fish": "completions/msprobe.fish",
         "man": "man/msprobe.1"}


def options_of(run, command):
    """Every option that help shows, as (short, long)."""
    found = re.findall(r"^  (?:(-\w+), )?(--[\w-]+)", run("help", command).out, re.M)
    assert len(found) > 8
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_in_the_tree_is_what_the_program_writes(run, kind):
    with open(os.path.join(ROOT, KINDS[kind])) as f:
        assert f.read() == run("__generate", kind).raw, "msprobe __generate %s > %s" % (kind, KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["compare", "merge_result"])
def test_every_option_is_in_every_file(run, kind, command):
    text = re.sub(r"\\f[BRI]", " ", run("__generate", kind).raw.replace("\\-", "-"))
    for short, long in options_of(run, command):
        if kind == "fish":
            assert re.search(r" -l %s( |$)" % re.escape(long[2:]), text, re.M), long
            assert not short or re.search(r" -[so] %s " % re.escape(short[1:]), text), short
        else:
            assert re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(long), text), long
            assert not short or re.search(r"(?<![\w-])%s(?![\w-])" % re.escape(short), text), short


def commands_of(run):
    """Every command that help shows."""
    listed = re.search(r"^Commands\n(.*?)\n\n", run("help").out, re.M | re.S)[1]
    found = re.findall(r"^  (\w+)", listed, re.M)
    assert {"compare", "merge_result", "show", "help"} <= set(found)
    return found


def complete(run, *words):
    """What bash offers for the last word."""
    script = run("__generate", "bash").raw
    quoted = " ".join("'%s'" % w for w in words)
    script += "COMP_WORDS=(msprobe %s); COMP_CWORD=%d; _msprobe; printf '%%s\\n' \"${COMPREPLY[@]}\"\n" % (quoted, len(words))
    done = subprocess.run(["bash", "--norc", "-c", "compopt() { :; }\n" + script], text=True, capture_output=True, timeout=60)
    assert done.stderr == ""
    return [w for w in done.stdout.split("\n") if w]


def test_bash_completes_commands_options_values_and_files(run, tmp_path):
    assert complete(run, "comp") == ["compare"]
    assert complete(run, "-f", "") == ["pytorch", "mindspore"]
    assert complete(run, "compare", "--form") == ["--format"]
    assert complete(run, "compare", "--fail-on", "") == ["no", "warning", "any"]
    assert complete(run, "-f", "pytorch", "compare", "--high") == ["--highlight"]
    assert complete(run, "merge_result", "-conf") == ["-config"]
    assert complete(run, "help", "") == commands_of(run)
    (tmp_path / "my dump.json").write_text("")
    assert complete(run, "compare", "-i", str(tmp_path / "my")) == [str(tmp_path / "my dump.json")]
    for command in ("compare", "parse"):
        assert complete(run, command, str(tmp_path / "my")) == [str(tmp_path / "my dump.json")]
    assert complete(run, "merge_result", str(tmp_path / "my")) == []


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_the_commands_behind_help(run, tmp_path):
    path = tmp_path / "msprobe.fish"
    path.write_text(run("__generate", "fish").raw)
    done = subprocess.run(["fish", "-N", "-c", "source %s; complete -C 'msprobe help '" % path], text=True, capture_output=True, timeout=60, cwd=tmp_path)
    assert sorted(done.stdout.split()) == sorted(commands_of(run))


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_the_manual_page_has_no_warnings(run, tmp_path):
    page = tmp_path / "msprobe.1"
    page.write_text(run("__generate", "man").raw)
    done = subprocess.run(["man", "--warnings", "-l", str(page)], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, MANPAGER="cat", LC_ALL="C.UTF-8", MANWIDTH="80"))
    assert done.returncode == 0 and done.stderr == ""
    for part in ("SYNOPSIS", "EXIT STATUS", "ENVIRONMENT", "--fail-on", "merge_result"):
        assert part in done.stdout


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_accept_their_files(run, tmp_path, shell):
    if not shutil.which(shell):
        pytest.skip(shell + " is not installed")
    path = tmp_path / "completion"
    path.write_text(run("__generate", shell).raw)
    assert subprocess.run([shell, "-n", str(path)], timeout=60).returncode == 0
