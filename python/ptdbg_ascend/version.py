"""The generation of ptdbg_ascend whose manual is followed and whose files are written; it is part of the dump folder's name."""

__version__ = "2.3"
