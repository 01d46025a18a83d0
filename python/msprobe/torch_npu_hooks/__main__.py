"""python -m msprobe.torch_npu_hooks script.py [arguments]: run a script that imports torch_npu.hooks, unchanged."""

import os
import runpy
import sys

from msprobe.torch_npu_hooks.import_path import register_import_path

if len(sys.argv) < 2:
    sys.exit("usage: python -m msprobe.torch_npu_hooks script.py [arguments of the script]")
register_import_path()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
