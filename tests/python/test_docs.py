"""Every command that README and docs show is run, in a folder where what they name is there.

A command is a line of a code block that begins with `msprobe` or `.venv/bin/msprobe`, with or without `$ ` before it. What a page
calls a time is any time; a usage line with words in capitals is no command. Commands for a shell that are not msprobe's are listed
in ELSEWHERE with the test that runs them.
"""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PAGES = [p for p in sorted([ROOT / "README.md", ROOT / "README.zh-CN.md", *ROOT.glob("docs/**/*.md")])
         if p.parent.name != "design"]
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(msprobe .*)$")

# Other commands that the pages tell to type, and what runs them.
ELSEWHERE = {"make demo": "tests/cli/test_demo.py", "make test": "tools/run-tests", "make build": "tools/build",
             "make install PREFIX=/usr/local": "tests/python/test_install.py", "pip install .": "tests/python/test_install.py",
             "make bench": "tools/bench", "make bench-peers": "tools/bench-peers"}

# A configuration with which run_ut waits for others to call: tests/python/test_online.py runs it.
SERVERS = ["check.json"]

# Commands that end with another status than 0, and why.
STATUS = {"compare build/demo/npu/step0 build/demo/bench/step0 --fail-on no": 3}


def blocks(text):
    """The lines of code blocks, fenced or indented."""
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()


def commands():
    for page in PAGES:
        pending = ""
        for line in blocks(page.read_text(encoding="utf-8")):
            line = pending + line
            pending = line[:-1] + " " if line.endswith("\\") else ""
            found = COMMAND.match(line)
            if found and not pending:
                words = shlex.split(found.group(1), comments=True)[1:]
                usage = any(re.fullmatch(r"\[?[A-Z]+\]?(/.*)?", w) for w in words)
                if not usage and not any(w in SERVERS for w in words):
                    yield page.relative_to(ROOT).as_posix(), words


def run(folder, *words, **options):
    return subprocess.run([*map(str, words)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=500, **options)


def msprobe():
    return shutil.which("msprobe", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


def job(folder):
    """Two ranks of one job with a collective."""
    sys.path.insert(0, str(ROOT / "tests" / "cli"))
    import dumps
    for rank in (0, 1):
        group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}
        leaf = dumps.tensor(1.0)
        dumps.write(folder / "step0" / ("rank%d" % rank), {
            "Distributed.all_reduce.0.forward": {"input_args": [leaf], "input_kwargs": {"group": group}, "output": [dumps.tensor(2.0)]}})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the pages name, made as the pages say."""
    here = tmp_path_factory.mktemp("docs")
    demo = here / "build" / "demo"
    shutil.copytree(ROOT / "examples", here / "examples")
    for name, *fault in (("bench",), ("npu", "--fault")):
        done = run(here, sys.executable, "examples/demo/train.py", demo / name, *fault)
        assert done.returncode == 0, done.stdout
    for name, side in (("npu_dump", "npu"), ("gpu_dump", "bench"), ("dump", "npu")):
        shutil.copytree(demo / side / "step0" / "rank", here / name / "step0" / "rank0")
    legacy = here / "legacy"
    legacy.mkdir()
    assert run(legacy, "tar", "xf", ROOT / "tests/data/legacy/cases.tar.xz").returncode == 0
    case = sorted(legacy.glob("p01*"))[0]
    for name, side in (("npu_dump", "npu"), ("gpu_dump", "bench")):
        shutil.copytree(case / side / "tag_v2.3", here / name / "tag_v2.3")
        for path in (case / side / "tag_v2.3" / "rank0").iterdir():
            target = here / path.name.replace("dump", "npu" if side == "npu" else "gpu")
            shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    softmax = "dump_tensor_data/Functional.softmax.2.forward.output.0.pt"
    for side, name in (("npu", "softmax.pt"), ("gpu", "softmax.npy")):
        (here / side).mkdir(exist_ok=True)
        value = torch.load(here / (side + "_dump") / "step0" / "rank0" / softmax, weights_only=True)
        if name.endswith(".pt"):
            torch.save(value, here / side / name)
        else:
            import numpy
            numpy.save(here / side / name, value.numpy())
    save = pytest.importorskip("safetensors.torch").save_file
    for name in ("a", "b", "model"):
        save({"model.layers.0.weight": torch.ones(3, 4), "other": torch.zeros(2)}, here / (name + ".safetensors"))
    job(here / "job")
    (here / "merge.yaml").write_text("api:\n- Functional.softmax\n")
    pair(here)
    return here


def pair(here):
    """A comparison of two ranks, and the csv files of run_ut."""
    for side in ("npu", "gpu"):
        for rank in (0, 1):
            shutil.copytree(here / "npu_dump" / "step0" / "rank0", here / "two" / side / ("rank%d" % rank),
                            ignore=shutil.ignore_patterns("dump_tensor_data"))
            path = here / "two" / side / ("rank%d" % rank) / "dump.json"
            text = json.loads(path.read_text())
            text["task"] = "statistics"
            path.write_text(json.dumps(text))
    done = run(here, msprobe(), "compare", "two/npu", "two/gpu", "-o", "output", "--no-html")
    assert done.returncode == 0, done.stdout
    for path in glob.glob(str(here / "output" / "advisor*")):
        os.remove(path)
    done = run(here, msprobe(), "run_ut", "-api_info", "dump/step0/rank0/dump.json", "-o", "ut")
    assert done.returncode == 0, done.stdout
    for side in ("npu", "gpu"):
        for path in glob.glob(str(here / "ut" / "accuracy_checking_*.csv")):
            shutil.copy(path, here / side)


def real_words(here, words):
    """With any time in place of the one that a page shows; the audit's dump is a job's."""
    out = []
    for word in words:
        pattern = re.sub(r"\{time\}|<time>|20\d{12}", "*", word)
        found = sorted(glob.glob(str(here / pattern))) if pattern != word else []
        assert pattern == word or found, f"{word}: nothing of this name is made by the test"
        out.append(os.path.relpath(found[0], here) if found else word)
    if out[0] == "audit":
        out = [re.sub(r"^dump$", "job", w) for w in out]
    return out


ALL = sorted({(page, *words) for page, words in commands()})


@pytest.mark.parametrize("line", ALL, ids=[" ".join(line)[:120] for line in ALL])
def test_a_command_of_the_pages_does_what_it_is_shown_for(place, line):
    words = real_words(place, line[1:])
    done = run(place, msprobe(), *words, env=dict(os.environ, MSPROBE_PYTHON=sys.executable))
    assert done.returncode == STATUS.get(" ".join(words), 0), done.stdout
    assert done.stdout or "-q" in words


def test_the_pages_show_commands(place):
    assert len(ALL) > 20
    assert {line[1] for line in ALL if line[1] != "-f"} >= {"compare", "show", "diff", "audit", "parse", "report"}


@pytest.mark.parametrize("command", sorted(ELSEWHERE))
def test_other_commands_have_a_test_of_their_own(command):
    assert (ROOT / ELSEWHERE[command]).exists()
    shown = [p for p in PAGES if command in p.read_text(encoding="utf-8")]
    assert shown, f"no page shows '{command}' any more"


def test_no_page_tells_to_make_what_there_is_not():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M)) | {"test-" + w for w in ("aarch64", "avx512", "torch113")}
    for page in PAGES:
        for target in re.findall(r"(?:^|`)(?:\$ )?make ([a-z][a-z0-9-]*)", page.read_text(encoding="utf-8"), re.M):
            assert target in targets, (page, target)


def test_every_command_has_a_page():
    pages = "".join(p.read_text(encoding="utf-8") for p in PAGES if p.parent.name == "docs")
    text = run(ROOT, msprobe(), "help").stdout
    listed = re.findall(r"^  (\w+)", text[text.index("\nCommands"):text.index("\nOptions")], re.M)
    assert len(listed) > 10
    for name in listed:
        assert name == "help" or f"`{name}`" in pages or f"msprobe {name}" in pages, name


def test_both_readmes_show_the_same_commands():
    english, chinese = ([line[1:] for line in ALL if line[0] == name] for name in ("README.md", "README.zh-CN.md"))
    assert english == chinese and english


def test_the_python_of_the_readme_runs(place):
    lines = [line[4:] for line in blocks((ROOT / "README.md").read_text()) if line.startswith(">>> ")]
    assert len(lines) >= 3
    program = "\n".join(lines).replace("dump_tensor_data/", "npu_dump/step0/rank0/dump_tensor_data/")
    program = re.sub(r'"(\S+/)Functional\.relu\.0\.forward\.input\.0\.pt"', r'"\1Functional.softmax.2.forward.input.0.pt"', program)
    done = run(place, sys.executable, "-c", program)
    assert done.returncode == 0, done.stdout
