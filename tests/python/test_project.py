"""What the project promises about its own files."""
import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked_files():
    try:
        out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [Path(name) for name in out.decode().split("\0") if name]


def test_both_descriptions_have_the_same_version():
    cmake = re.search(r"project\(msprobe VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    python = re.search(r'^version = "([0-9.]+)"', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    assert cmake == python


def test_every_folder_has_a_readme():
    files = tracked_files()
    data = (Path("tests/data"), Path("fuzz/corpora"))  # below these lie inputs, not sources
    folders = {parent for file in files for parent in file.parents if not any(d in parent.parents for d in data)}
    folders -= {Path("fuzz/corpora"), Path(".ci"), Path("src"), Path("include")}
    assert not [str(f) for f in sorted(folders) if not (ROOT / f / "README.md").exists()]


def test_links_in_documents_lead_somewhere():
    dead = []
    for file in tracked_files():
        if file.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / file).read_text()):
            if "://" not in target and not (ROOT / file.parent / target).exists():
                dead.append(f"{file}: {target}")
    assert not dead


def test_files_that_are_named_in_words_are_there():
    """In documents and comments, by their whole path or by their folder's name in the extension."""
    files = tracked_files()
    names = {f.as_posix() for f in files}
    whole = re.compile(r"\b(?:src|python|include|docs|tools|tests)/[\w/.-]*\w\.(?:c|h|py|md)\b")
    short = re.compile(r"(?<![\w/])(?:tensor|patch|call|grad|model|stack|legacy|pytorch)/\w+\.(?:c|h|py)\b")
    ends = {"/".join(f.parts[-2:]) for f in files}
    dead = []
    for file in files:
        if file.suffix in (".md", ".c", ".h", ".py") and file.parts[0] not in ("fuzz", "bench") and "data" not in file.parts:
            text = (ROOT / file).read_text(encoding="utf-8", errors="replace")
            dead += [f"{file}: {m}" for m in whole.findall(text) if m not in names]
            dead += [f"{file}: {m}" for m in short.findall(text) if file.parts[0] == "python" and m not in ends]
    assert not dead


def test_both_descriptions_lead_to_every_page():
    links = [set(re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8"))) for name in ("README.md", "README.zh-CN.md")]
    assert links[0] - {"README.zh-CN.md"} == links[1] - {"README.md"} and "docs/README.md" in links[0]
    index = set(re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/README.md").read_text(encoding="utf-8")))
    assert {f.name for f in (ROOT / "docs").glob("*.md")} - {"README.md"} <= index
    assert {f"design/{f.name}" for f in (ROOT / "docs/design").glob("*.md")} - {"design/README.md"} <= index


def compares_versions(tree):
    """Whether a __version__ is compared, or taken apart to be compared."""
    for node in ast.walk(tree):
        inside = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.func] if isinstance(node, ast.Call) else []
        if any(getattr(n, "attr", getattr(n, "id", None)) == "__version__" for part in inside for n in ast.walk(part)):
            return True
    return False


def test_no_torch_is_known_by_its_version():
    """What a torch can do is asked of it: vendors' builds have versions of their own."""
    files = [*(ROOT / "python/msprobe/pytorch").rglob("*.py"), *(ROOT / "python/msprobe/core").rglob("*.py"), *(ROOT / "python/ptdbg_ascend").rglob("*.py")]
    assert len(files) > 20 and not [str(f) for f in files if compares_versions(ast.parse(f.read_text(encoding="utf-8")))]
    assert compares_versions(ast.parse("x = tuple(torch.__version__.split('.')) > (2, 0)")) and compares_versions(ast.parse("torch.__version__ >= '2'"))


def test_the_collector_uses_what_others_publish():
    """No symbol of a C++ library by name, no header of CPython's own insides, none of its version tags."""
    private = re.compile(r"dlopen|dlsym|_ZN\w+|vtable|internal/pycore|Py_BUILD_CORE|version_tag|_PyInterpreterFrame")
    files = [f for suffix in ("*.c", "*.h") for f in (ROOT / "python/ext").rglob(suffix)]
    found = {f"{f.relative_to(ROOT)}: {m.group()}" for f in files for m in private.finditer(f.read_text(encoding="utf-8"))}
    assert len(files) > 40 and not found
