"""Both packages are there after `make build`."""
import importlib.util
import os
import subprocess
import sys

import pytest

RECORDING = {"acc_cmp_dump", "overflow_check", "register_hook", "seed_all", "set_backward_input", "set_dump_path", "set_dump_switch",
             "set_overflow_check_switch"}
READING = {"compare", "compare_distributed", "parse", "CompareException"}


def test_both_packages_can_be_imported():
    import msprobe
    import ptdbg_ascend

    assert msprobe.__version__
    assert ptdbg_ascend.__doc__ and ptdbg_ascend.__version__ == "2.3"
    assert set(ptdbg_ascend.__all__) == READING | (RECORDING if importlib.util.find_spec("torch") else set())


def test_the_names_of_the_oldest_front_end_are_there():
    pytest.importorskip("torch")
    from msprobe import torch_npu_hooks
    from msprobe.torch_npu_hooks.tools import compare

    assert callable(compare) and set(torch_npu_hooks.__all__) == {"set_dump_path", "seed_all", "register_acc_cmp_hook", "register_import_path"}
    from msprobe.pytorch import apis

    assert {which: os.path.exists(apis.LISTS[which]) for which in ("default", "ptdbg", "hooks")} == {"default": True, "ptdbg": True, "hooks": True}


def test_dumps_are_compared_where_torch_is_not_installed(tmp_path):
    """A torch that cannot be found stands for none."""
    script = """if True:
        import importlib.util, sys
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: None if name == "torch" else find(name, package)
        from ptdbg_ascend import *
        parse(sys.argv[1], "Torch_relu")
        assert "torch" not in sys.modules and "register_hook" not in globals()
    """
    path = tmp_path / "dump.pkl"
    path.write_text('["Torch_relu_0_forward_output", 1, [], "torch.float32", [1], [1.0, 1.0, 1.0]]\n')
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "[Torch_relu_0_forward_output][dtype: torch.float32][shape: [1]]" in done.stdout
