"""`pip install .` and `cmake --install`: what arrives, and that it works from there."""
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **options):
    """Run a command and give its output; when it fails the output is the message."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_wheel_brings_extension_packages_and_command(tmp_path):
    pytest.importorskip("scikit_build_core")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("msprobe-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    code = "import msprobe, ptdbg_ascend; print(msprobe.stats(bytearray(b'abc')).count, msprobe.__version__)"
    count, version = run(python, "-c", code, cwd=tmp_path).split()
    assert count == "3"
    assert version in run(tmp_path / "env" / "bin" / "msprobe", "--version")
    for name in ("_core.pyi", "py.typed"):
        assert list((tmp_path / "env").glob(f"lib/python*/site-packages/msprobe/{name}")), name


INSTALLED = ["bin/msprobe", "include/msprobe/tensor.h", "share/man/man1/msprobe.1",
             "share/bash-completion/completions/msprobe", "share/zsh/site-functions/_msprobe",
             "share/fish/vendor_completions.d/msprobe.fish"]

DATA = ROOT / "tests" / "data" / "io"

# the examples, what each is given, and how its output begins
EXAMPLES = {"read_tensor": ([DATA / "f32.pt"], "torch.float32 [2, 3]: 0.0 1.0 2.0 3.0 4.0 5.0\n"),
            "statistics": ([DATA / "f32.pt"], "max 5  min 0  mean 2.5  norm 7.41619849\n"),
            "compare_files": ([DATA / "f32.pt", DATA / "matrix.npy"], "cosine 1")}


def test_the_examples_are_built_with_an_installed_library_found_by_pkg_config(tmp_path):
    prefix = tmp_path / "prefix"
    run("make", "install", f"PREFIX={prefix}", cwd=ROOT, env=dict(os.environ, MAKEFLAGS="", JOBS="2"))
    for name in INSTALLED:
        assert (prefix / name).stat().st_size > 0, name
    (pc,) = prefix.glob("lib*/**/libmsprobe.pc")
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), LD_LIBRARY_PATH=str(pc.parent.parent))
    for static in ([], ["--static"]):
        flags = run("pkg-config", *static, "--cflags", "--libs", "libmsprobe", env=env).split()
        for name, (arguments, expected) in EXAMPLES.items():
            run("gcc", "-o", tmp_path / name, ROOT / "examples" / f"{name}.c", *flags, env=env)
            assert run(tmp_path / name, *arguments, env=env).startswith(expected), name
