"""Where a call was made, as stack.json has it."""

import linecache
import os
import sys

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
DEEPEST = 100
MOST = 1 << 15  # stacks that are known at a time: some 60 MB
FORWARD = "_pynative_forward_run"  # MindSpore's function in which grad() runs what it differentiates, 2.7 to 2.10


class Stacks:
    """Ids of call stacks, each text made once, and whether a gradient's gradient is being computed there."""

    def __init__(self, dump):
        self._dump = dump
        self._known = {}  # key of a stack -> (its id, is nested, its code objects, without which the key says nothing)
        self._ids = {}

    def here(self):
        """(id, whether grad() runs inside of grad())"""
        key = self._dump.stack_key()
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MOST:  # a program that makes code while it runs
                self._known.clear()
                self._ids.clear()
            known = self._known[key] = self._learn(sys._getframe(1))
        return known[:2]

    def _learn(self, frame):
        """(id, is nested, code objects). Stacks that differ within a line, or in frames of ours, have one id."""
        lines, codes = [], []
        while frame is not None:
            codes.append(frame.f_code)
            if len(lines) < DEEPEST and not frame.f_code.co_filename.startswith(_OURS):
                lines.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        lines = tuple(lines)
        found = self._ids.get(lines)
        if found is None:
            found = self._ids[lines] = self._dump.stack([_text(code, line) for code, line in lines])
        return found, sum(code.co_name == FORWARD for code in codes) > 1, codes


def _text(code, line):
    source = linecache.getline(code.co_filename, line).strip()
    text = "File %s, line %d, in %s, \n %s" % (code.co_filename, line, code.co_name, source)
    return text.encode("utf-8", "backslashreplace").decode()
