"""Exceptions that a handler of a signal raises while our code runs: they are the program's, and no errors of ours.

A handler runs between two instructions of whatever Python code the main thread is in. A program that limits its time by SIGALRM, or is
asked to save its state by SIGUSR1, raises there, and is to get what it raised, also when the instruction was one of ours.
"""

import os
import signal
import types

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _codes():
    """Of all handlers that are set."""
    found = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            handler = getattr(handler, "func", handler)  # functools.partial
            handler = getattr(handler, "__func__", handler)
            found.add(getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None))
    return found - {None}


def _got_its_caller(frame):
    """Whether it was given the frame that it interrupted, as a handler is. It may have set another one since."""
    back = frame.f_back
    return back is not None and any(isinstance(v, types.FrameType) and v is back for v in frame.f_locals.values())


def is_programs(error):
    """Whether error, which left code of ours, came out of a handler. Everything that is no Exception, such as KeyboardInterrupt, did."""
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    if trace is None:
        return False
    codes = _codes()
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        if not frame.f_code.co_filename.startswith(_OURS) and (frame.f_code in codes or _got_its_caller(frame)):
            return True
    return False


def give_back(error):
    """For `except Exception` around code of ours: raise it again when it is the program's."""
    if is_programs(error):
        raise error
