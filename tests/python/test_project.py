"""What the project promises about its own files."""
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


def test_both_descriptions_lead_to_every_page():
    links = [set(re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8"))) for name in ("README.md", "README.zh-CN.md")]
    assert links[0] - {"README.zh-CN.md"} == links[1] - {"README.md"}
    assert {f"docs/{f.name}" for f in (ROOT / "docs").glob("*.md")} - {"docs/README.md"} <= links[0]
