"""Where a call was made, as stack.json has it."""

import linecache
import os
import sys

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
DEEPEST = 100


class Stacks:
    """Ids of call stacks, each text made once."""

    def __init__(self, dump):
        self._dump = dump
        self._ids = {}

    def here(self):
        frame, key = sys._getframe(1), []
        while frame is not None and len(key) < DEEPEST:
            if not frame.f_code.co_filename.startswith(_OURS):
                key.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back
        key = tuple(key)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = self._dump.stack([_text(code, line) for code, line in key])
        return found


def _text(code, line):
    source = linecache.getline(code.co_filename, line).strip()
    text = "File %s, line %d, in %s, \n %s" % (code.co_filename, line, code.co_name, source)
    return text.encode("utf-8", "backslashreplace").decode()
