"""The old import path, torch_npu.hooks, for scripts that use it.

An installed torch_npu stays what it is: only its submodule hooks, which newer ones lack, is answered here. Without one an empty torch_npu is put
into sys.modules, in this process alone, so that the import works; it says so of itself, and holds nothing that could be taken for a device.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

_OLD, _OURS = "torch_npu.hooks", "msprobe.torch_npu_hooks"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torch_npu.hooks and what is below it are our modules of the same names."""

    def find_spec(self, name, path=None, target=None):
        if name == _OLD or name.startswith(_OLD + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=name == _OLD)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        ours = importlib.import_module(_OURS + module.__name__[len(_OLD):])
        module.__dict__.update({k: v for k, v in vars(ours).items() if not k.startswith("__") or k in ("__all__", "__doc__")})


def _has_own_hooks():
    """An old torch_npu that still has hooks of its own keeps them."""
    try:
        return importlib.util.find_spec(_OLD) is not None
    except (ImportError, ValueError):
        return False


def register_import_path():
    """Make `from torch_npu.hooks import ...` work. Where an installed torch_npu has hooks of its own, nothing is changed. Repeating it is harmless."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path) or _has_own_hooks():
        return
    sys.meta_path.append(_Finder())
    if "torch_npu" not in sys.modules and importlib.util.find_spec("torch_npu") is None:
        stand_in = types.ModuleType("torch_npu", "Stands for torch_npu, which is not installed: only torch_npu.hooks can be imported.")
        stand_in.__path__ = []
        stand_in.__msprobe_stand_in__ = True
        stand_in.__spec__ = importlib.machinery.ModuleSpec("torch_npu", None, is_package=True)
        sys.modules["torch_npu"] = stand_in
