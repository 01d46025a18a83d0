"""msprobe compare under a real srun: a cluster of this one machine, whose daemons and files are in a temporary folder.

Slurm is asked for by name (Debian: slurm-client, slurmctld, slurmd, munge; `tools/setup` does not install them), and only root may
start its daemons so. They end with the tests, however these end.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from test_mpi import answer, check_results_are_whole, contents, job, long_job, plugin  # noqa: F401  (fixtures)

NEEDED = ["munged", "slurmctld", "slurmd", "srun", "sinfo"]
SBIN = os.environ["PATH"] + os.pathsep + "/usr/sbin"
MISSING = [name for name in NEEDED if shutil.which(name, path=SBIN) is None]

CONF = """ClusterName=msprobe
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(n):
    taken = [socket.socket() for _ in range(n)]
    for s in taken:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in taken]
    for s in taken:
        s.close()
    return ports


def die_with_the_tests():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def begin_daemons(folder, conf):
    words = {"munged": ["--foreground", "--force", "--key-file=%s" % (folder / "key"), "--socket=%s" % (folder / "munge.socket"),
                        "--pid-file=%s" % (folder / "munge.pid"), "--seed-file=%s" % (folder / "munge.seed"), "--num-threads=2"],
             "slurmctld": ["-D", "-c", "-f", str(conf)], "slurmd": ["-D", "-c", "-f", str(conf)]}
    for name in words:
        with open(folder / (name + ".log"), "w") as log:
            yield subprocess.Popen([shutil.which(name, path=SBIN), *words[name]], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   preexec_fn=die_with_the_tests)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """The path of a configuration whose one machine is idle."""
    if MISSING:
        pytest.skip("no Slurm here: %s" % ", ".join(MISSING))
    if os.getuid() != 0:
        pytest.skip("Slurm's daemons are started by root alone")
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=socket.gethostname().split(".")[0], ports=free_ports(2), folder=folder))
    daemons = list(begin_daemons(folder, conf))
    try:
        end = time.monotonic() + 60
        while "idle" not in (said := subprocess.run(["sinfo", "-h", "-o", "%t"], env={**os.environ, "SLURM_CONF": str(conf)}, text=True,
                                                    capture_output=True).stdout):
            if time.monotonic() > end or any(d.poll() is not None for d in daemons):
                logs = "".join("%s: %s\n" % (p.name, p.read_text()[-500:]) for p in folder.glob("*.log"))
                pytest.skip("Slurm is here, but makes no cluster of this machine: %s\n%s" % (said, logs))
            time.sleep(0.1)
        yield str(conf)
    finally:
        for daemon in daemons[::-1]:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)


@pytest.fixture
def launch(slurm, plugin, msprobe, tmp_path):  # noqa: F811
    """launch(processes, *words): srun, and what it made of it."""
    def launcher(n, *words, mpi="pmix", options=(), wait=True):
        if mpi not in subprocess.run(["srun", "--mpi=list"], env={**os.environ, "SLURM_CONF": slurm}, text=True, capture_output=True).stdout:
            pytest.skip("this Slurm has no %s" % mpi)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "SLURM_", "MSPROBE_"))}
        env.update(SLURM_CONF=slurm, MSPROBE_MPI_SILENCE="20", MSPROBE_NO_REPLAY="1")
        process = subprocess.Popen(["srun", "-n", str(n), "--mpi=" + mpi, *options, msprobe, *map(str, words)], cwd=tmp_path, env=env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not wait:
            return process
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err
    return launcher


@pytest.mark.parametrize("processes", [2, 4])
def test_the_results_are_those_of_one_process(run, launch, job, tmp_path, processes):  # noqa: F811
    one = run("compare", "npu", "bench", "-o", "one", "--json", "--format", "csv,json")
    code, out, err = launch(processes, "compare", "npu", "bench", "-o", "many", "--json", "--format", "csv,json")
    assert (code, one.rc, err) == (0, 0, "")
    assert answer(out) == answer(one.raw)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_fail_on_is_the_status_of_srun(launch, job):  # noqa: F811
    assert launch(2, "compare", "npu", "bench", "-o", "many", "-q", "--fail-on", "warning")[0] == 3


def test_without_pmix_each_task_does_the_whole_and_the_first_says_so(launch, job, tmp_path):  # noqa: F811
    code, out, err = launch(2, "compare", "npu/step0/rank0", "bench/step0/rank0", "-o", "many", mpi="none")
    assert code == 0 and out.count("Compared") == 2
    assert err.count("srun started 2 tasks that cannot speak to each other") == 1 and "--mpi=pmix" in err


def tasks():
    """The processes of the step, by their rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            env = dict(e.split("=", 1) for e in (path / "environ").read_text().split("\0") if "=" in e)
            if "PMIX_RANK" in env and b"compare" in (path / "cmdline").read_bytes():
                found[int(env["PMIX_RANK"])] = int(path.name)
        except (OSError, UnicodeDecodeError):
            continue
    return found


@pytest.mark.parametrize("victim", [0, 1])
def test_when_a_task_is_killed_the_step_ends_with_an_error_and_whole_results(run, launch, long_job, tmp_path, victim):  # noqa: F811
    process = launch(3, "compare", "npu", "bench", "-o", "many", "--threads", "1", "--no-html", wait=False)
    killed = False
    while process.poll() is None and not killed:
        ranks = tasks()
        if victim in ranks and any((tmp_path / "many").rglob("compare_result_rank*.xlsx")):
            os.kill(ranks[victim], signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    err = process.communicate(timeout=200)[1]
    assert killed, "over before it could be killed"
    assert process.returncode != 0 and "task %d: Killed" % victim in err
    assert run("compare", "npu", "bench", "-o", "one", "--no-html").rc == 0
    assert check_results_are_whole(tmp_path / "many", tmp_path / "one") > 0
