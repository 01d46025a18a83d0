"""ptdbg_ascend: the older front end, kept so that scripts written for it run unchanged.

    from ptdbg_ascend import *

    seed_all()
    set_dump_path("./npu_dump.pkl", dump_tag="all")
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON")
    ...
    set_dump_switch("OFF")

    compare({"npu_pkl_path": ..., "bench_pkl_path": ..., "npu_dump_data_dir": ..., "bench_dump_data_dir": ...}, "./output")

What it writes and reads is described in docs/legacy.md. Importing it fixes the random numbers, as it always did: seed_all() with its defaults. Where torch is
not installed, dumps can be compared and looked into, and that is all.
"""

import importlib.util

from ptdbg_ascend.common import CompareException
from ptdbg_ascend.comparing import compare, compare_distributed, parse
from ptdbg_ascend.version import __version__

__all__ = ["CompareException", "compare", "compare_distributed", "parse"]

if importlib.util.find_spec("torch") is not None:
    from ptdbg_ascend.dump import (
        acc_cmp_dump,
        overflow_check,
        register_hook,
        seed_all,
        set_backward_input,
        set_dump_path,
        set_dump_switch,
        set_overflow_check_switch,
    )

    __all__ += [
        "acc_cmp_dump",
        "overflow_check",
        "register_hook",
        "seed_all",
        "set_backward_input",
        "set_dump_path",
        "set_dump_switch",
        "set_overflow_check_switch",
    ]
    seed_all()
