"""Files that somebody cuts short while the command reads them: an error that names them, status 1, and the others go on.

The cut comes from inside, when the file was just mapped, so that no clock decides: a library before the C library's mmap().
"""
import shutil
import subprocess

import numpy as np
import pytest

import dumps

CUTTER = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *
mmap(void *addr, size_t size, int prot, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, addr, size, prot, flags, fd, offset);
    const char *victim = getenv("CUT_FILE");
    static int seen;
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd); /* readers have descriptors of their own */
    n = fd < 0 || victim == NULL ? -1 : readlink(link, path, sizeof(path) - 1);
    if (n > 0) {
        path[n] = '\0';
        if ((size_t)n >= strlen(victim) && strcmp(path + n - strlen(victim), victim) == 0 && ++seen == atoi(getenv("CUT_AT")) &&
            truncate(path, atol(getenv("CUT_TO"))) != 0)
            abort();
    }
    return p;
}
"""


@pytest.fixture(scope="module")
def cutter(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("cutter")
    (folder / "cut.c").write_text(CUTTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", folder / "cut.so", folder / "cut.c"], check=True)
    return str(folder / "cut.so")


@pytest.fixture
def cut(run, cutter):
    def runner(victim, to, *words, at=1):
        return run(*words, env={"LD_PRELOAD": cutter, "CUT_FILE": victim, "CUT_TO": str(to), "CUT_AT": str(at)})
    return runner


def large(folder):
    """A dump.json of more than the 64 KiB that are read at once."""
    return dumps.write(folder, {"Functional.relu.%d.forward" % i: dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)])
                                for i in range(400)})


@pytest.mark.parametrize("to", [0, 4096, 60000])
@pytest.mark.parametrize("side", ["npu", "bench"])
def test_a_dump_json_that_is_cut_fails_its_rank_and_the_others_are_compared(cut, tmp_path, files, side, to):
    for name in ("npu", "bench"):
        for rank in (0, 1):
            large(tmp_path / name / ("rank%d" % rank))
    r = cut(side + "/rank0/dump.json", to, "compare", "npu", "bench", "-o", "out")
    assert r.rc == 1
    assert side + "/rank0/dump.json: was cut short while it was read" in r.err + r.out
    assert "compare_result_rank1_TIME.xlsx" in files() and "compare_result_rank0_TIME.xlsx" not in files()


@pytest.mark.parametrize("to", [0, 80000])
def test_a_tensor_file_that_is_cut_is_named_and_the_other_rows_are_compared(cut, tmp_path, files, to):
    for name in ("npu", "bench"):
        dumps.real(tmp_path / name)
        np.save(tmp_path / name / "dump_tensor_data/Functional.relu.0.forward.output.0.npy", np.ones((200, 300), np.float32))
    r = cut("npu/dump_tensor_data/Functional.relu.0.forward.output.0.npy", to, "compare", "npu", "bench", "-o", "out", "--format", "csv")
    assert r.rc == 1
    assert "Functional.relu.0.forward.output.0.npy was cut short while it was read" in r.err
    table = next((tmp_path / "out").glob("*.csv")).read_text().splitlines()
    assert len(table) == 5 and "not found or read failed" in table[4]
    assert all(",Yes," in line for line in table[1:4])


@pytest.mark.parametrize("to", [0, 4096, 60000])
def test_show_and_audit_say_it(cut, tmp_path, to):
    for words in (["show"], ["show", "--json"], ["audit"]):
        large(tmp_path / "job/step0/rank0")
        large(tmp_path / "job/step0/rank1")
        r = cut("rank0/dump.json", to, words[0], "job", *words[1:])
        assert r.rc == 1 and "rank0/dump.json: was cut short while it was read" in r.err


@pytest.mark.parametrize("to", [0, 100000])
def test_tensor_files_alone_are_told_too(cut, tmp_path, to):
    for words in (["show", "a.npy"], ["diff", "a.npy", "b.npy"], ["diff", "b.npy", "a.npy"]):
        for name in ("a.npy", "b.npy"):
            np.save(tmp_path / name, np.ones((200, 300), np.float32))
        r = cut("a.npy", to, *words, at=2)  # the first look asks what it is
        assert r.rc == 1 and "a.npy: was cut short while it was read" in r.err
