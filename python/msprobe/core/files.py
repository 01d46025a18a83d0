"""Questions to the file system while a program runs. os.path and os.makedirs() take every OSError for the file system's answer, also one
that a signal's handler raised meanwhile (TimeoutError is one); these hand the program's own back to it."""

import os
import stat

from msprobe.core.signals import give_back


def make_folder(path, is_last_try=False):
    """As os.makedirs(). Under /proc a folder cannot be made in one that is there."""
    try:
        os.mkdir(path, 0o750)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above in ("", path) or is_last_try:
            raise
        make_folder(above)
        make_folder(path, True)


def status_of(path):
    """Of what path itself names, be it a link; None where that cannot be told."""
    try:
        return os.lstat(path)
    except OSError as e:
        give_back(e)
        return None


def is_folder(path):
    """Whether path is a folder, and no link to one."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_link(path):
    status = status_of(path)
    return status is not None and stat.S_ISLNK(status.st_mode)


def names_in(folder):
    """Sorted; empty for a folder that cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError as e:
        give_back(e)
        return []


def size_of(folder):
    """Bytes of all files in it and below."""
    size = 0
    for name in names_in(folder):
        path = os.path.join(folder, name)
        status = status_of(path)
        if status is not None:
            size += size_of(path) if stat.S_ISDIR(status.st_mode) else status.st_size
    return size
