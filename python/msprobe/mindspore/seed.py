"""seed_all: make a run repeatable."""

import os
import random

import mindspore
import numpy

from msprobe.core.config import wrong
from msprobe.core.log import log

_REMOVED = []


def seed_all(seed=1234, mode=False, rm_dropout=False):
    """Fix the random numbers of Python, NumPy and MindSpore.

    seed: 0 .. 2**32 - 1. mode: deterministic algorithms. rm_dropout: dropout returns its input.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= 2**32 - 1:
        raise wrong("seed is %r; it must be a whole number between 0 and 4294967295" % (seed,))
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise wrong("%s is %r; it must be True or False" % (name, value))
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(mode).lower()  # MindSpore corrects any other spelling, with a warning
    random.seed(seed)
    numpy.random.seed(seed)
    mindspore.set_seed(seed)
    _set_deterministic(mode)
    if rm_dropout:
        remove_dropout()


def _set_deterministic(mode):
    """By set_context(), deprecated as it is: set_deterministic() may be called once in a process, and that is the program's to do."""
    try:
        mindspore.set_context(deterministic="ON" if mode else "OFF")
    except (TypeError, ValueError):  # a release that no longer knows the key
        try:
            mindspore.set_deterministic(mode)
        except RuntimeError as e:
            log.warning("deterministic algorithms stay as they are: %s", e)


def _same(x, *_, **__):
    return x


def _same_cell(_, x, *__, **___):
    return x


def remove_dropout():
    """Let the functions and cells whose name begins with dropout return their input. Repeating it is harmless."""
    if _REMOVED:
        return
    from mindspore import mint, nn, ops

    for place in (ops, ops.functional, mint.nn.functional):
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
            if callable(getattr(place, name, None)):
                _REMOVED.append((place, name, getattr(place, name)))
                setattr(place, name, _same)
    for place in (nn, mint.nn):
        for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d"):
            cell = getattr(place, name, None)
            if isinstance(cell, type) and "construct" in vars(cell):
                _REMOVED.append((cell, "construct", cell.construct))
                cell.construct = _same_cell
    log.info("dropout is switched off: it returns its input")
