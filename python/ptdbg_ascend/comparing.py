"""Comparing and looking into dumps: arguments are checked as the tool checks them, the library does the rest."""

import glob
import os
import sys

from msprobe._core import FormatError
from msprobe._core import compare as _compare
from msprobe._core import parse as _parse
from ptdbg_ascend.common import CompareException, error, info, refuse, say, warning

FILES = ("npu_pkl_path", "bench_pkl_path")
FOLDERS = ("npu_dump_data_dir", "bench_dump_data_dir")
STACK_MODE = "The files %s stacks (api_stack): stack_mode must be %s."


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
    """Compare the ranks of two dumps, folders <dump_tag>_v<version>. kwargs: the optional arguments of compare()."""
    options = dict(stack_mode=False, auto_analyze=True, suffix="", fuzzy_match=False)
    unknown = sorted(set(kwargs) - set(options))
    if unknown:
        raise TypeError("compare_distributed() takes %s, not %s" % (", ".join(options), ", ".join(unknown)))
    options.update(kwargs)
    stack_mode = options["stack_mode"]
    _check_options(output_path, stack_mode, options["auto_analyze"], options["suffix"])
    for path in (npu_dump_dir, bench_dump_dir):
        _need(isinstance(path, str) and os.path.isdir(path), CompareException.INVALID_PATH_ERROR, "The path %r is not a folder that can be read.", path)
    _check_output(output_path)
    _flush()
    files = [name for path in (npu_dump_dir, bench_dump_dir) for name in glob.glob(os.path.join(glob.escape(path), "rank*", "*.pkl"))]
    _need(not files or any(_has_stacks(name) == stack_mode for name in files), CompareException.INVALID_COMPARE_MODE, STACK_MODE,
          "have no" if stack_mode else "have", not stack_mode)
    _run(npu_dump_dir, bench_dump_dir, output_path, stack_mode, options["auto_analyze"], suffix=options["suffix"], log_rows=True,
         fuzzy=bool(options["fuzzy_match"]))


def parse(pkl_file, module_name_prefix=None, *, moudule_name_prefix=None):
    """Print stack and statistics of every call whose name begins with the prefix. moudule_name_prefix is the manual's spelling of it."""
    prefix = moudule_name_prefix if module_name_prefix is None else module_name_prefix
    if prefix is None:
        raise TypeError("parse() needs module_name_prefix, the beginning of a call's name")
    _flush()
    text = _parse(pkl_file, prefix)
    sys.stdout.write(text)
    sys.stdout.flush()
    if not text:
        sys.stderr.write("no stack or statistics of a call whose name starts with %s in %s\n" % (prefix, pkl_file))


def _flush():
    """What this process has recorded itself is in its files first."""
    legacy = sys.modules.get("msprobe.pytorch.legacy")
    if legacy is not None and legacy.current() is not None:
        legacy.current().flush()


def _need(good, code, text, *args):
    if not good:
        refuse(code, text % args)


def _check_options(output_path, stack_mode, auto_analyze, suffix):
    wrong = CompareException.INVALID_PARAM_ERROR
    _need(isinstance(output_path, str), wrong, "output_path must be a str, not %s", type(output_path).__name__)
    _need(isinstance(stack_mode, bool), wrong, "stack_mode must be True or False, not %r", stack_mode)
    _need(isinstance(suffix, str) and "/" not in suffix, wrong, "suffix must be a str without /, not %r", suffix)
    _need(isinstance(auto_analyze, bool), wrong, "auto_analyze must be True or False, not %r", auto_analyze)


def _check_output(path):
    _need(os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK), CompareException.INVALID_PATH_ERROR,
          "The output_path %s is not a folder that can be written to; make it first.", path)


def _has_stacks(path):
    return os.path.basename(path).startswith("api_stack")


def _check(param, output_path, stack_mode, auto_analyze, suffix):
    wrong = CompareException.INVALID_PARAM_ERROR
    _need(isinstance(param, dict), wrong, "input_param must be a dict, not %s", type(param).__name__)
    _check_options(output_path, stack_mode, auto_analyze, suffix)
    for key in FILES + FOLDERS:
        _need(isinstance(param.get(key), str), wrong, "input_param lacks %s, a path", key)
    _flush()
    for key in FILES:
        _need(os.path.isfile(param[key]) and os.access(param[key], os.R_OK), CompareException.INVALID_PATH_ERROR,
              "The path %s (%s) is not a file that can be read.", param[key], key)
    for key in FOLDERS:
        _need(os.path.isdir(param[key]) and os.access(param[key], os.R_OK | os.X_OK), CompareException.INVALID_PATH_ERROR,
              "The path %s (%s) is not a folder that can be read.", param[key], key)
    _check_output(output_path)
    stacks = [_has_stacks(param[key]) for key in FILES]
    _need(stacks[0] == stacks[1], CompareException.INVALID_COMPARE_MODE, "One of the two files has stacks (api_stack) and the other has not.")
    _need(stacks[0] == stack_mode, CompareException.INVALID_COMPARE_MODE, STACK_MODE, "have" if stacks[0] else "have no", stacks[0])
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
        pairs, _ = _compare(npu, bench, output_path, stack=stack_mode, advisor=auto_analyze, log=_tell, **options)
    except FormatError as e:
        refuse(CompareException.INVALID_DUMP_FILE, str(e))
    except OSError as e:
        refuse(CompareException.INVALID_PATH_ERROR, str(e))
    except ValueError as e:
        refuse(CompareException.INVALID_PARAM_ERROR, str(e))
    for pair in pairs:
        _show_advice(pair)
    failed = [pair for pair in pairs if pair["error"]]
    if failed:
        refuse(CompareException.INVALID_DUMP_FILE, "; ".join("%s: %s" % (p["label"], p["error"]) if p["label"] else p["error"] for p in failed))


def _show_advice(pair):
    if not pair["advice"]:
        return
    for path in pair["files"]:
        if not path.endswith(".txt"):
            info("Start analyzing the comparison result: %s" % os.path.abspath(path))
    if pair["advised"]:
        warning("Find %s accuracy not reached, the line is %s" % (pair["advised"], pair["advised_line"]))
    elif pair["advice"].startswith("All data"):
        info("All data from api input/output accuracy reached")
    info("The summary of the expert advice is as follows: ")
    info("Line: %s" % (pair["advised_line"] if pair["advised"] else "NA"))
    info("Suspect Nodes: %s" % (pair["advised"] or "NA"))
    info("Expert Advice: %s" % pair["advice"])
    for path in pair["files"]:
        if path.endswith(".txt"):
            info("The advisor summary is saved in: %s" % os.path.abspath(path))
