"""The comparison as functions of Python: names and arguments as in the manual, the work is the library's."""

import os
import subprocess
import sys

from msprobe._core import compare as _compare
from msprobe.core.log import LEVELS, log

# what the manual calls them, and what the keys of a compare file are called
KEYS = {"npu": ("npu_json_path", "npu_path"), "bench": ("bench_json_path", "bench_path"), "stack": ("stack_json_path", "stack_path")}
SWITCHES = {"stack": "stack_mode", "advisor": "auto_analyze", "fuzzy": "fuzzy_match", "highlight": "highlight", "analyze": "diff_analyze",
            "log_rows": "is_print_compare_log"}


def compare(input_param, output_path, stack_mode=False, auto_analyze=True, fuzzy_match=False, highlight=False, data_mapping=None,
            diff_analyze=False):
    """Compare two dump.json (or debug.json) of a single rank; the results are written to output_path.

    input_param: {"npu_json_path", "bench_json_path", "stack_json_path" (may be left out), "is_print_compare_log" (True)}.
    With stack_json_path the column NPU_Stack_Info appears when stack_mode is true; without it when a stack.json lies beside the NPU's
    file. Returns the paths of the results, of the page last. Raises ValueError for wrong arguments, and what the library raises when something
    could not be compared.
    """
    if not isinstance(input_param, dict):
        raise ValueError("input_param should be dict, please check!")
    paths = {name: next((input_param[k] for k in keys if input_param.get(k)), None) for name, keys in KEYS.items()}
    for name in ("npu", "bench"):
        if not paths[name]:
            raise ValueError("Missing %s in input_param, please check!" % KEYS[name][0])
    return _run(paths["npu"], paths["bench"], output_path, stack=stack_mode, stack_path=paths["stack"], advisor=auto_analyze,
                fuzzy=fuzzy_match, highlight=highlight, data_mapping=data_mapping, analyze=diff_analyze,
                log_rows=input_param.get("is_print_compare_log", True))


def compare_distributed(npu_dump_dir, bench_dump_dir, output_path, **kwargs):
    """Compare all ranks of two folders, each of a step. kwargs: those of compare(); stack_mode has no effect here."""
    known = {"stack_mode": None, "auto_analyze": "advisor", "fuzzy_match": "fuzzy", "highlight": "highlight", "data_mapping": "data_mapping",
             "diff_analyze": "analyze", "is_print_compare_log": "log_rows"}
    unknown = sorted(set(kwargs) - set(known))
    if unknown:
        raise TypeError("compare_distributed() takes %s, not %s" % (", ".join(known), ", ".join(unknown)))
    options = {known[k]: v for k, v in kwargs.items() if known[k] is not None}
    return _run(npu_dump_dir, bench_dump_dir, output_path, **options)


def _run(npu, bench, output_path, **options):
    for name in SWITCHES:
        if not isinstance(options.get(name, False), bool):
            raise ValueError("%s must be True or False, not %r" % (SWITCHES[name], options[name]))
    again = None if os.environ.get("MSPROBE_NO_REPLAY", "0") not in ("", "0") else _run_again
    pairs, files = _compare(npu, bench, output_path, html=True, replay=again, log=lambda level, text: log.log(_LEVEL.get(level, 20), "%s", text),
                            **options)
    for pair in pairs:
        _tell(pair)
    for path in files:
        log.info("%s is written", path)
    return [path for pair in pairs for path in pair["files"]] + files


def _run_again(npu, bench, calls, out, said):
    """Calls that differ, once more and in higher precision: in a process of its own, as the command does it, and not among the program's tensors."""
    if not sys.executable:
        raise RuntimeError("this Python does not know its own interpreter")
    with open(said, "wb") as output:
        done = subprocess.run([sys.executable, "-m", "msprobe.replay", npu, bench, calls, out, "--workers", "0"], stdin=subprocess.DEVNULL,
                              stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        with open(said, encoding="utf-8", errors="replace") as output:
            last = [line.strip() for line in output if line.strip()][-1:]
        raise RuntimeError("%s -m msprobe.replay failed: %s" % (sys.executable, last[0] if last else "exit status %d" % done.returncode))


_LEVEL = dict(zip(("DEBUG", "INFO", "WARNING", "ERROR"), (LEVELS["0"], LEVELS["1"], LEVELS["2"], LEVELS["3"])))


def _tell(pair):
    counts, first, place = pair["counts"], pair["suspect"], pair["label"] + ": " if pair["label"] else ""
    log.info("%s%d rows, %d matched, %d wrong", place, counts["rows"], counts["matched"], counts["wrong"])
    if pair["verdict"] is not None:
        tell = log.warning if pair["verdict"]["level"] == "wrong" else log.info
        tell("%sVerdict: %s", place, pair["verdict"]["sentence"])
    if first is not None:
        log.warning("%sthe first wrong row is %s (%s)", place, first["npu_name"], first["verdict"])
    if pair["advice"]:
        log.info("Expert Advice: %s", pair["advice"])
    for path in pair["files"]:
        log.info("%s is written", path)
