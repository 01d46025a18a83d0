"""msprobe: a precision debugger for deep-learning training.

The core is written in C; this package names it for Python.

    >>> import torch, msprobe
    >>> msprobe.stats(torch.tensor([1.0, float("nan"), -2.0])).nan
    1
    >>> msprobe.metrics(torch.ones(3), torch.tensor([1.0, 1.0, 1.5])).max_abs_err
    0.5

Every function that takes a tensor accepts a torch.Tensor (of any element type, strided or not, on any device), an
msprobe.Tensor, or an object with the buffer protocol such as numpy.ndarray. Nothing is copied that lies in the host's
memory.
"""
from msprobe._core import (
    FormatError,
    Metrics,
    NotFoundError,
    Stats,
    Table,
    Tensor,
    TensorFile,
    __version__,
    crc32,
    fingerprint,
    load,
    metrics,
    open,
    open_table,
    save_npy,
    save_pt,
    stats,
)

__all__ = [
    "FormatError",
    "Metrics",
    "NotFoundError",
    "Stats",
    "Table",
    "Tensor",
    "TensorFile",
    "crc32",
    "fingerprint",
    "load",
    "metrics",
    "open",
    "open_table",
    "save_npy",
    "save_pt",
    "stats",
]
