"""seed_all: make a run repeatable."""

import os
import random
import types

import torch

from msprobe.core.common.exceptions import MsprobeException
from msprobe.core.log import log


def seed_all(seed=1234, mode=False, rm_dropout=False):
    """Fix the random numbers of Python, NumPy and torch on every device.

    seed: 0 .. 2**32 - 1. mode: deterministic algorithms. rm_dropout: dropout does nothing (p is 0).
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= 2**32 - 1:
        raise MsprobeException(MsprobeException.INVALID_PARAM_ERROR, "seed is %r; it must be a whole number between 0 and 4294967295" % (seed,))
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise MsprobeException(MsprobeException.INVALID_PARAM_ERROR, "%s is %r; it must be True or False" % (name, value))
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(mode)
    cuda = getattr(torch.version, "cuda", None)
    if cuda and tuple(int(x) for x in cuda.split(".")[:2]) >= (10, 2):
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    try:
        import numpy

        numpy.random.seed(seed)
    except ImportError:
        pass
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(mode)
    _seed_devices(seed)
    if rm_dropout:
        remove_dropout()


def _seed_devices(seed):
    npu = getattr(torch, "npu", None)
    if npu is not None and hasattr(npu, "manual_seed_all"):
        npu.manual_seed_all(seed)
        npu.manual_seed(seed)
        return
    torch.cuda.manual_seed_all(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = False


# ---- dropout -------------------------------------------------------------------------------------------------------------------------

_REMOVED = set()


def remove_dropout():
    """Let dropout, dropout2d and dropout3d, and with them the modules of these names, do nothing. Repeating it is harmless.

    The functions stay the same objects, so that code that has imported them by name is covered too.
    """
    for name in ("dropout", "dropout2d", "dropout3d"):
        function = getattr(torch.nn.functional, name)
        if name not in _REMOVED:
            _REMOVED.add(name)
            function.__code__ = _code_without_p(function)
    log.info('dropout is switched off (p = 0); "rm_dropout": false in config.json keeps it')


def _template(input, p=0.5, training=True, inplace=False):
    if p < 0.0 or p > 1.0:
        raise ValueError("dropout probability has to be between 0 and 1, but got {}".format(p))
    original = "original"
    return original(input, 0.0, training, inplace)


def _code_without_p(function):
    """The template's code with the function itself, as it is now, in the place of the text "original"."""
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    code, template = function.__code__, _template.__code__
    consts = tuple(original if c == "original" else c for c in template.co_consts)
    names = {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}
    return template.replace(co_consts=consts, co_name=code.co_name, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, **names)
