"""tools/setup where something cannot be had: it stops, says what is missing, and gives the command to run."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


@pytest.fixture
def project():
    """
    The scripts of the project in a folder of their own, and a PATH that has everything but ninja. Not pytest's
    temporary folder, which nobody else may enter.
    """
    with tempfile.TemporaryDirectory() as folder:
        yield furnish(Path(folder))


def furnish(tmp_path):
    tmp_path.chmod(0o755)
    shutil.copytree(ROOT / "tools", tmp_path / "project" / "tools")
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name not in ("ninja", "apt-get") and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    return tmp_path


def apt_get(project, script):
    program = project / "bin" / "apt-get"
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)


def run_setup(project, *groups, nobody=False):
    def give_up_rights():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    if nobody:
        for path in [project / "project", *(project / "project").rglob("*")]:
            os.chown(path, NOBODY, NOBODY)
    return subprocess.run([str(project / "project" / "tools" / "setup"), *groups], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          env={"PATH": str(project / "bin"), "HOME": str(project)},
                          preexec_fn=give_up_rights if nobody else None)


def reachable(path):
    """May everybody walk to this path?"""
    return all(parent.stat().st_mode & 1 for parent in path.parents)


def test_who_is_not_root_gets_the_command_to_run(project):
    apt_get(project, "exit 1\n")
    if os.geteuid() == 0 and not reachable(project):
        pytest.skip("the folder of temporary files is root's alone")
    done = run_setup(project, "build", nobody=os.geteuid() == 0)
    assert done.returncode == 1
    assert "system packages are missing and only root may install them: ninja-build" in done.stdout
    assert "  run:  sudo apt-get install -y --no-install-recommends ninja-build\n" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as installing")
def test_without_network_the_command_to_run_is_named(project):
    apt_get(project, 'case $1 in install) echo "E: Unable to fetch some archives" >&2; exit 100;; esac\n')
    done = run_setup(project, "build")
    assert done.returncode == 1
    assert "E: Unable to fetch some archives" in done.stdout
    assert "system packages could not be installed: ninja-build" in done.stdout
    assert "  run:  apt-get update && apt-get install -y --no-install-recommends ninja-build\n" in done.stdout


def test_another_system_than_debian_is_told_what_to_install(project):
    done = run_setup(project, "build")
    assert done.returncode == 1
    assert "these packages are missing (Debian's names): ninja-build" in done.stdout


def test_an_unknown_group_is_an_error(project):
    done = run_setup(project, "everything")
    assert done.returncode == 1
    assert "tools/setup knows no group 'everything'" in done.stdout
