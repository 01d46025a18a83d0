"""The configuration of an Ascend device's own dump, for the kernels of one call (level L2)."""

import json
import os

from msprobe.core.files import make_folder


def write_kernel_config(step_folder, rank):
    """Everything that runs while the dump is on, into step_folder. Returns the path of the file."""
    make_folder(step_folder)
    path = os.path.join(step_folder, "kernel_config%s.json" % ("" if rank is None else "_%d" % rank))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "w") as f:
        json.dump({"dump": {"dump_list": [], "dump_path": step_folder, "dump_mode": "all", "dump_op_switch": "on"}}, f, indent=4)
    return path
