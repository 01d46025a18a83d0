"""msprobe compare under mpirun: the pairs are shared out, and the results are those of one process, byte for byte."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import zipfile

import dumps
import pytest
import test_job
import test_layout

MPIRUN = shutil.which("mpirun")
RANKS = 24
LAUNCH = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--mca", "plm_rsh_agent", "false"]


@pytest.fixture(scope="session")
def plugin(msprobe):
    """The MPI part beside the command; without MPI there is none to be tested."""
    base = pathlib.Path(msprobe).resolve().parent.parent
    if MPIRUN is None or not any((base / p).exists() for p in ("lib/msprobe/msprobe_mpi.so", "mpi/msprobe_mpi.so")):
        pytest.skip("no MPI here: tools/setup test installs it")


@pytest.fixture
def launch(plugin, msprobe, tmp_path):
    """launch(processes, *words): mpirun, and what it made of it."""
    def launcher(n, *words, options=(), env=None, wait=True):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "MSPROBE_"))}
        clean.update({"OMPI_MCA_btl_vader_single_copy_mechanism": "none", "MSPROBE_MPI_SILENCE": "20", "MSPROBE_NO_REPLAY": "1",
                      **(env or {})})
        process = subprocess.Popen([*LAUNCH, *options, "-n", str(n), msprobe, *map(str, words)], cwd=tmp_path, env=clean,
                                   text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not wait:
            return process
        out, err = process.communicate(timeout=200)
        return process.returncode, out, err
    return launcher


@pytest.fixture
def job(tmp_path):
    """Ranks of very different sizes in two steps; rank2 goes wrong first, and rank5 has a record less."""
    world = list(range(RANKS))

    def replica(rank, *factors):
        records = test_job.replica(*factors)
        for record in records.values():
            if "group" in record["input_kwargs"]:
                record["input_kwargs"]["group"] = test_job.group(world)
        for i in range(rank * 7 % 50):
            records["Functional.silu.%d.forward" % i] = dumps.call([dumps.tensor(1.0 + i)], [dumps.tensor(0.5 + i)])
        return records

    for step in (0, 1):
        test_job.write(tmp_path / "bench", {r: replica(r) for r in world}, step)
        test_job.write(tmp_path / "npu", {r: replica(r, 2.0 if r == 2 else 1.0, 1.5, 1.5) for r in world}, step)
    path = tmp_path / "npu/step1/rank5/dump.json"
    doc = json.loads(path.read_text())
    doc["data"].popitem()
    path.write_text(json.dumps(doc))


def contents(folder):
    """Every result by its neutral name; of workbooks the parts, of pages what is in them, without times."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = re.sub(r"_(20\d{12}|1\d{18})\b", "_T", str(path.relative_to(folder)))
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as z:
                found[name] = {n: z.read(n) for n in z.namelist() if n != "docProps/core.xml"}
        else:
            found[name] = re.sub(rb"_(20\d{12}|1\d{18})\b", b"_T", path.read_bytes()).replace(
                bytes(folder), b"OUT").replace(folder.name.encode() + b"/", b"OUT/")
    return found


def answer(text):
    """The summary as JSON, without what is another one in every run."""
    def clean(v, key=None):
        if isinstance(v, dict):
            return {k: clean(x, k) for k, x in v.items() if k not in ("seconds", "processes_lost")}
        if isinstance(v, list):
            return [clean(x, key) for x in v]
        return re.sub(r"_(20\d{12}|1\d{18})\b", "_T", re.sub(r"\b(one|many)/", "OUT/", v)) if isinstance(v, str) else v
    return clean(json.loads(text))


@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("options", [["--format", "csv,json"], ["--format", "xlsx", "-hl"], ["-da"]], ids=["tables", "xlsx", "da"])
def test_the_results_are_those_of_one_process(run, launch, job, tmp_path, processes, options):
    one = run("compare", "npu", "bench", "-o", "one", "--json", *options)
    code, out, err = launch(processes, "compare", "npu", "bench", "-o", "many", "--json", *options)
    assert (code, one.rc) == (0, 0), err
    assert answer(out) == answer(one.raw)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_one_process_of_them_speaks(launch, run, job):
    code, out, err = launch(4, "compare", "npu", "bench", "-o", "many")
    assert code == 0 and err == ""
    assert out.count("Compared") == 1 and "\x1b" not in out and "\r" not in out
    assert "  Wrong first   step0 rank2: Functional.relu.0.forward\n" in out


def test_real_data_too(run, launch, tmp_path):
    for rank in range(6):
        dumps.real(tmp_path / "bench/step0" / ("rank%d" % rank))
        dumps.real(tmp_path / "npu/step0" / ("rank%d" % rank), 3.0 if rank == 4 else 0.0)
    one = run("compare", "npu", "bench", "-o", "one", "--json", "--format", "csv")
    code, out, err = launch(3, "compare", "npu", "bench", "-o", "many", "--json", "--format", "csv")
    assert (code, one.rc) == (0, 0), err
    assert answer(out) == answer(one.raw) and contents(tmp_path / "many") == contents(tmp_path / "one")


def test_checksums_too(run, launch, tmp_path):
    for rank in range(6):
        dumps.checksums(tmp_path / "bench/step0" / ("rank%d" % rank))
        dumps.checksums(tmp_path / "npu/step0" / ("rank%d" % rank), 1 if rank == 4 else 0)
    one = run("compare", "npu", "bench", "-o", "one", "--json", "--format", "csv")
    code, out, err = launch(3, "compare", "npu", "bench", "-o", "many", "--json", "--format", "csv")
    assert (code, one.rc) == (0, 0), err
    assert json.loads(out)["pairs"][0]["mode"] == "md5"
    assert answer(out) == answer(one.raw) and contents(tmp_path / "many") == contents(tmp_path / "one")


def test_parts_that_are_put_together_too(run, launch, tmp_path):
    for d in (0, 1):
        y = [[v + d for v in row] for row in test_layout.Y]
        test_layout.rank(tmp_path / "bench/step0" / ("rank%d" % d), [test_layout.X, y], "tensor")
        for t in (0, 1):
            part = test_layout.columns(y, 3 * t, 3 * t + 3)
            test_layout.rank(tmp_path / "npu/step0" / ("rank%d" % (2 * d + t)), [test_layout.X, part], "tensor")
    (tmp_path / "layout.yaml").write_text(
        test_layout.COLUMN_PARALLEL + "  - {name: nothing, how: skip}\ngroups: [{npu: [0, 1], bench: [0]}, {npu: [2, 3], bench: [1]}]\n")
    options = ["--json", "--format", "csv", "--layout", "layout.yaml"]
    one = run("compare", "npu", "bench", "-o", "one", *options)
    code, out, err = launch(3, "compare", "npu", "bench", "-o", "many", *options)
    assert (code, one.rc) == (0, 0), err
    assert err == one.err == "warning: layout.yaml: part 3 (nothing) is the rule of no row\n"
    assert answer(out) == answer(one.raw) and contents(tmp_path / "many") == contents(tmp_path / "one")


def test_a_data_mappings_lines_without_effect_are_known_over_all_processes(run, launch, job, tmp_path):
    (tmp_path / "map.yaml").write_text("Functional.relu.0.forward.input.0: Functional.relu.0.forward.input.0\n"
                                       "Functional.silu.48.forward.input.0: Functional.silu.48.forward.input.0\n"
                                       "Functional.nothing.0.forward.input.0: Functional.relu.0.forward.input.0\n")
    said = [line for line in run("compare", "npu", "bench", "-o", "one", "-dm", "map.yaml").err.splitlines() if "yaml" in line]
    err = launch(3, "compare", "npu", "bench", "-o", "many", "-dm", "map.yaml")[2]
    assert [line for line in err.splitlines() if "yaml" in line] == said and len(said) == 1


@pytest.mark.parametrize("bad", ["missing", "broken"])
def test_a_pair_that_cannot_be_compared_is_named_and_the_others_are(run, launch, job, tmp_path, bad):
    if bad == "missing":
        shutil.rmtree(tmp_path / "npu/step0/rank7")
    else:
        (tmp_path / "npu/step0/rank7/dump.json").write_text("{")
    one = run("compare", "npu", "bench", "-o", "one", "--json", "--format", "csv")
    code, out, err = launch(3, "compare", "npu", "bench", "-o", "many", "--json", "--format", "csv")
    assert (one.rc, code) == (1, 1) and "rank7" in err
    assert answer(out) == answer(one.raw) and contents(tmp_path / "many") == contents(tmp_path / "one")


def test_what_a_process_that_sees_other_files_cannot_read_is_done_by_process_0(run, launch, job, msprobe, tmp_path):
    """The second process stands in an empty folder: the paths lead it nowhere."""
    (tmp_path / "elsewhere").mkdir()
    words = ["compare", "npu", "bench", "-o", "many", "--json", "--format", "csv"]
    one = run("compare", "npu", "bench", "-o", "one", "--json", "--format", "csv")
    code, out, err = launch(1, *words, ":", "-n", "1", "-wdir", tmp_path / "elsewhere", msprobe, *words)
    assert (code, one.rc) == (0, 0), err
    assert answer(out) == answer(one.raw) and contents(tmp_path / "many") == contents(tmp_path / "one")


def test_fail_on_is_the_status_of_mpirun(launch, job):
    assert launch(2, "compare", "npu", "bench", "-o", "many", "-q", "--fail-on", "warning")[0] == 3


@pytest.mark.parametrize("words", [["npu"], ["npu", "nowhere"], ["-i", "no.json"]], ids=["usage", "path", "config"])
def test_what_is_wrong_for_all_is_said_once_and_nobody_waits(launch, job, words):
    code, out, err = launch(3, "compare", *words, "-o", "many")
    assert code in (1, 2) and out == ""
    assert len(re.findall("^error:", err, re.M)) == 1


def test_the_environment_can_turn_it_off(launch, job, tmp_path):
    code, out, err = launch(2, "compare", "npu/step0/rank0", "bench/step0/rank0", "-o", "many", env={"MSPROBE_MPI": "0"})
    assert code == 0 and out.count("Compared") == 2


def test_a_launcher_whose_processes_cannot_be_joined_is_an_error_with_the_way_out(run, job, plugin):
    # Open MPI's library, started by nobody: it sees one process where the environment promises three
    r = run("compare", "npu", "bench", "-o", "many", env={"PMI_SIZE": "3", "PMI_RANK": "0", "OMPI_MCA_ess_singleton_isolated": "1"})
    assert r.rc == 1 and "the launcher started 3 processes, but the MPI that msprobe was built with sees 1" in r.err


@pytest.mark.parametrize("more,said", [({}, True), ({"SLURM_PROCID": "1"}, False), ({"MSPROBE_MPI": "0"}, False),
                                       ({"SLURM_STEP_NUM_TASKS": "1"}, False)], ids=["first task", "another task", "turned off", "one task"])
def test_tasks_of_srun_that_cannot_speak_to_each_other_are_told(run, job, more, said):
    # what srun sets with --mpi=none; a batch script or an allocation has SLURM_NTASKS without SLURM_STEP_NUM_TASKS
    env = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", **more}
    r = run("compare", "npu/step0/rank0", "bench/step0/rank0", "-o", "alone", env=env)
    assert r.rc == 0 and ("srun started 4 tasks that cannot speak to each other" in r.err) == said


# ---- a process that dies ---------------------------------------------------------------------------------------------

def processes_of(mpirun):
    """The numbers of the processes that mpirun has started, by their rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (path / "stat").read_text().rsplit(")", 1)[1].split()[1] != str(mpirun.pid):
                continue
            env = dict(e.split("=", 1) for e in (path / "environ").read_text().split("\0") if "=" in e)
            found[int(env["OMPI_COMM_WORLD_RANK"])] = int(path.name)
        except (OSError, KeyError, UnicodeDecodeError):
            continue
    return found


def kill_when_results_come(process, victim, out):
    """kill -9 of one rank after the first results are there; False: it was over before that."""
    while process.poll() is None:
        ranks = processes_of(process)
        if victim in ranks and any(out.rglob("compare_result_rank*.xlsx")):
            try:
                os.kill(ranks[victim], 9)
            except ProcessLookupError:
                return False
            return True
        time.sleep(0.005)
    return False


@pytest.fixture
def long_job(tmp_path):
    """Enough work that a process can be killed in the midst of it."""
    records = {"Functional.silu.%d.forward" % i: dumps.call([dumps.tensor(1.0 + i)], [dumps.tensor(0.5 + i)]) for i in range(1500)}
    for side in ("npu", "bench"):
        for rank in range(60):
            dumps.write(tmp_path / side / "step0" / ("rank%d" % rank), records, stack=False)


def remove_unfinished(folder):
    """What a killed process was writing: results before they get their name, and libxlsxwriter's own temporary files."""
    for path in folder.rglob("*"):
        if path.is_file() and (path.suffix == ".tmp" or path.name.startswith((".", "tmp."))):
            path.unlink()


def check_results_are_whole(many, one):
    """What stands under a final name is what one process writes."""
    remove_unfinished(many)
    expected, found = contents(one), contents(many)
    for name, content in found.items():
        assert content == expected[name], name
    return len(found)


@pytest.mark.parametrize("victim", [0, 1])
def test_when_a_process_is_killed_the_job_ends_with_an_error_and_whole_results(run, launch, long_job, tmp_path, victim):
    process = launch(3, "compare", "npu", "bench", "-o", "many", "--threads", "1", "--no-html", wait=False)
    killed = kill_when_results_come(process, victim, tmp_path / "many")
    out, err = process.communicate(timeout=200)
    assert killed, "over before it could be killed"
    assert process.returncode != 0 and "exited on signal 9" in err
    assert run("compare", "npu", "bench", "-o", "one", "--no-html").rc == 0
    assert check_results_are_whole(tmp_path / "many", tmp_path / "one") > 0


def test_where_the_launcher_lets_the_others_live_they_do_its_pairs(run, launch, long_job, tmp_path):
    process = launch(3, "compare", "npu", "bench", "-o", "many", "--threads", "1", "--no-html", "--json", wait=False,
                     options=["--enable-recovery"], env={"MSPROBE_MPI_SILENCE": "4"})
    killed = kill_when_results_come(process, 1, tmp_path / "many")
    out, err = process.communicate(timeout=200)
    assert killed, "over before it could be killed"
    assert "error: 1 of 3 processes died; everything was compared by the others" in err
    one = run("compare", "npu", "bench", "-o", "one", "--no-html", "--json")
    assert json.loads(out)["job"]["processes_lost"] == 1
    assert answer(out) == answer(one.raw)
    remove_unfinished(tmp_path / "many")
    assert contents(tmp_path / "many") == contents(tmp_path / "one")
