"""Log lines and the exception, in the form that users of the tool know."""

import os
import sys
import time


class CompareException(Exception):
    """What was asked for cannot be done; code is the tool's number for the kind of error."""

    NONE_ERROR = 0
    INVALID_PATH_ERROR = 1
    OPEN_FILE_ERROR = 2
    CLOSE_FILE_ERROR = 3
    READ_FILE_ERROR = 4
    WRITE_FILE_ERROR = 5
    INVALID_FILE_ERROR = 6
    PERMISSION_ERROR = 7
    INDEX_OUT_OF_BOUNDS_ERROR = 8
    NO_DUMP_FILE_ERROR = 9
    INVALID_DATA_ERROR = 10
    INVALID_PARAM_ERROR = 11
    INVALID_DUMP_RATIO = 12
    INVALID_DUMP_FILE = 13
    UNKNOWN_ERROR = 14
    INVALID_DUMP_MODE = 15
    PARSE_FILE_ERROR = 16
    INVALID_COMPARE_MODE = 17

    def __init__(self, code, error_info=""):
        super().__init__(error_info)
        self.code = code
        self.error_info = error_info


def say(level, text):
    print("%s(%d)-[%s]%s" % (time.strftime("%Y-%m-%d %H:%M:%S"), os.getpid(), level, text), flush=True, file=sys.stdout)


def info(text):
    say("INFO", text)


def warning(text):
    say("WARNING", text)


def error(text):
    say("ERROR", text)


def refuse(code, text):
    """The error as a line, and as an exception."""
    error(text)
    raise CompareException(code, text)
