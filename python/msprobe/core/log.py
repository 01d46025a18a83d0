"""One logger for the package: lines on standard output in the form that the tool's users know."""

import logging
import os
import sys

from msprobe.core.signals import give_back

LEVELS = {"0": logging.DEBUG, "1": logging.INFO, "2": logging.WARNING, "3": logging.ERROR, "4": logging.CRITICAL + 1}


class _Stdout(logging.StreamHandler):
    """Standard output as it is when a line is written: tests and notebooks exchange it."""

    def __init__(self):
        super().__init__(sys.stdout)

    def emit(self, record):
        self.stream = sys.stdout
        super().emit(record)

    def handleError(self, record):
        """A line that cannot be written is not worth an exception. One that a signal's handler has raised meanwhile is the program's."""
        give_back(sys.exc_info()[1])
        super().handleError(record)


class _Format(logging.Formatter):
    """The rank stands in the line once it is known, and goes on to when the process group is gone."""

    rank = None

    def format(self, record):
        record.where = "" if self.rank is None else "[rank %d] " % self.rank
        return super().format(record)


def set_rank(rank):
    _Format.rank = rank


def _make():
    logger = logging.getLogger("msprobe")
    if not logger.handlers:
        handler = _Stdout()
        handler.setFormatter(_Format("%(asctime)s (%(process)d) %(where)s[%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S"))
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(LEVELS.get(os.environ.get("MSPROBE_LOG_LEVEL", "1"), logging.INFO))
    return logger


log = _make()
