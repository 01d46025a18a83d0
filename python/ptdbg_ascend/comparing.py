"""Comparing and looking into dumps: arguments are checked as the tool checks them, the library does the rest."""

import os
import sys

from msprobe._core import FormatError
from msprobe._core import compare as _compare
from msprobe._core import parse as _parse
from ptdbg_ascend.common import CompareException, error, info, refuse, say

FILES = ("npu_pkl_path", "bench_pkl_path")
FOLDERS = ("npu_dump_data_dir", "bench_dump_data_dir")


def compare(input_param, output_path, stack_mode=False, auto_analyze=True, suffix="", fuzzy_match=False):
    """Compare two dumps; the table and the advice are written to output_path. Ends the program with the error's code when it cannot be done."""
    try:
        _check(input_param, output_path, stack_mode, auto_analyze, suffix)
        _run(input_param["npu_pkl_path"], input_param["bench_pkl_path"], output_path, stack_mode, auto_analyze, suffix=suffix, fuzzy=bool(fuzzy_match),
             npu_dir=input_param["npu_dump_data_dir"], bench_dir=input_param["bench_dump_data_dir"],
             log_rows=bool(input_param.get("is_print_compare_log", False)))
    except CompareException as e:
        error("Compare failed, Please check it and do it again!")
        sys.exit(e.code)


def compare_distributed(npu_dump_dir, bench_dump_dir, output_path, **kwargs):
    """Compare the ranks of two dumps, folders <dump_tag>_v<version>. kwargs: stack_mode, auto_analyze and fuzzy_match of compare()."""
    unknown = sorted(set(kwargs) - {"stack_mode", "auto_analyze", "fuzzy_match"})
    if unknown:
        raise TypeError("compare_distributed() takes stack_mode, auto_analyze and fuzzy_match, not %s" % ", ".join(unknown))
    for path in (npu_dump_dir, bench_dump_dir):
        if not isinstance(path, str) or not os.path.isdir(path):
            refuse(CompareException.INVALID_PATH_ERROR, "The path %r is not a folder that can be read." % (path,))
    _run(npu_dump_dir, bench_dump_dir, output_path, kwargs.get("stack_mode", False), kwargs.get("auto_analyze", True), log_rows=True,
         fuzzy=bool(kwargs.get("fuzzy_match", False)))


def parse(pkl_file, module_name_prefix):
    """Print stack and statistics of every call whose name begins with the prefix."""
    _flush()
    sys.stdout.write(_parse(pkl_file, module_name_prefix))
    sys.stdout.flush()


def _flush():
    """What this process has recorded itself is in its files first."""
    legacy = sys.modules.get("msprobe.pytorch.legacy")
    if legacy is not None and legacy.current() is not None:
        legacy.current().flush()


def _need(good, code, text, *args):
    if not good:
        refuse(code, text % args)


def _check(param, output_path, stack_mode, auto_analyze, suffix):
    wrong = CompareException.INVALID_PARAM_ERROR
    _need(isinstance(param, dict), wrong, "input_param must be a dict, not %s", type(param).__name__)
    _need(isinstance(output_path, str), wrong, "output_path must be a str, not %s", type(output_path).__name__)
    _need(isinstance(stack_mode, bool), wrong, "stack_mode must be True or False, not %r", stack_mode)
    _need(isinstance(suffix, str), wrong, "suffix must be a str, not %s", type(suffix).__name__)
    _need(isinstance(auto_analyze, bool), wrong, "auto_analyze must be True or False, not %r", auto_analyze)
    for key in FILES + FOLDERS:
        _need(isinstance(param.get(key), str), wrong, "input_param lacks %s, a path", key)
    _flush()
    for key in FILES:
        _need(os.path.isfile(param[key]) and os.access(param[key], os.R_OK), CompareException.INVALID_PATH_ERROR,
              "The path %s (%s) is not a file that can be read.", param[key], key)
    for key in FOLDERS:
        _need(os.path.isdir(param[key]) and os.access(param[key], os.R_OK | os.X_OK), CompareException.INVALID_PATH_ERROR,
              "The path %s (%s) is not a folder that can be read.", param[key], key)
    stacks = [os.path.basename(param[key]).startswith("api_stack") for key in FILES]
    _need(stacks[0] == stacks[1], CompareException.INVALID_COMPARE_MODE, "One of the two files has stacks (api_stack) and the other has not.")
    _need(stacks[0] == stack_mode, CompareException.INVALID_COMPARE_MODE,
          "The files %s stacks (api_stack): stack_mode must be %s.", "have" if stacks[0] else "have no", stacks[0])
    for key in FILES:
        _need(os.path.getsize(param[key]) > 0, CompareException.INVALID_DUMP_FILE, "The file %s (%s) is empty.", param[key], key)


def _tell(level, text):
    if text.startswith("start comapre: ") or text.startswith("[") and "] Compare result: " in text:
        print(text)
    else:
        say(level, text)


def _run(npu, bench, output_path, stack_mode, auto_analyze, **options):
    _flush()
    try:
        pairs = _compare(npu, bench, output_path, stack=stack_mode, advisor=auto_analyze, log=_tell, **options)
    except FormatError as e:
        refuse(CompareException.INVALID_DUMP_FILE, str(e))
    except OSError as e:
        refuse(CompareException.INVALID_PATH_ERROR, str(e))
    for pair in pairs:
        _show_advice(pair)
    failed = [pair for pair in pairs if pair["error"]]
    if failed:
        refuse(CompareException.INVALID_DUMP_FILE, "; ".join("%s: %s" % (p["label"], p["error"]) if p["label"] else p["error"] for p in failed))


def _show_advice(pair):
    saved = [path for path in pair["files"] if path.endswith(".txt")]
    if not pair["advice"]:
        return
    info("The summary of the expert advice is as follows: ")
    info("Line: %s" % (pair["advised_line"] if pair["advised"] else "NA"))
    info("Suspect Nodes: %s" % (pair["advised"] or "NA"))
    info("Expert Advice: %s" % pair["advice"])
    for path in saved:
        info("The advisor summary is saved in: %s" % path)
