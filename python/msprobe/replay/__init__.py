"""A recorded call, run again.

    >>> from msprobe.replay import Dump
    >>> dump = Dump("dump_path/step0/rank0")
    >>> done = dump.replay("Functional.linear.0.forward", precision="raised")
    >>> done.reason is None, done.outputs[0].at, done.outputs[0].recorded, done.outputs[0].computed
    >>> done.gradients          # likewise, where gradients were recorded

What cannot be run again is not run, and `reason` says why: communication, random numbers that cannot be read off the
results, functions that this torch does not have, inputs that were not recorded.

`python -m msprobe.replay` is what `msprobe compare` starts: it measures every call of a dump (in C) and writes the
measurements to a file (in C).
"""
from msprobe.replay.dump import Call, Dump, Recorded
from msprobe.replay.run import Replay, Result, run

__all__ = ["Call", "Dump", "Recorded", "Replay", "Result", "run"]
