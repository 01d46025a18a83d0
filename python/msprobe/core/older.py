"""What an earlier run has left in dump_path: moved aside before the first record of a new one, so that the two are never mixed."""

import os
import re

from msprobe.core.files import is_folder, is_link, make_folder, names_in, size_of, status_of
from msprobe.core.log import log
from msprobe.core.signals import give_back

_STEP = re.compile(r"^step\d+$")
_RANK = re.compile(r"^rank(\d*)$|^proc\d+$")
_RING = re.compile(r"^\.msprobe-(\d+)-\d+\.(ring|side|ring\.\d+\.spill)$")
MOST = 10000


def _is_ours(name, own, rank, world, alone):
    """Whether this process is the one to move a rank's folder: its own; those that nobody of this run has are the first rank's, or
    a lone process's."""
    found = _RANK.match(name)
    if name == own or found is None:
        return name == own
    number = int(found.group(1)) if found.group(1) else None
    return alone and (rank is None or (rank == 0 and (number is None or number >= world)))


def _left(dump_path, own, rank, world):
    """Paths below dump_path of what is to be moved, and of what a killed run keeps outside its folders."""
    names = names_in(dump_path)
    rings = [(name, int(_RING.match(name).group(1))) for name in names if _RING.match(name)]
    alone = not any(is_folder("/proc/%d" % pid) for _, pid in rings)
    units = []
    for step in filter(_STEP.match, names):
        folder = os.path.join(dump_path, step)
        if is_link(folder):  # whatever it leads to is outside of dump_path
            units.append(step)
            continue
        units += [os.path.join(step, name) for name in names_in(folder) if _is_ours(name, own, rank, world, alone)
                  and (is_link(os.path.join(folder, name)) or names_in(os.path.join(folder, name)))]
    return units, [name for name, pid in rings if not is_folder("/proc/%d" % pid)] if units else []


def _move(path, target):
    try:
        os.rename(path, target)
    except FileNotFoundError:
        pass  # another rank was first with a ring


def move_aside(dump_path, own, rank, world):
    """Move what an earlier run has left for this process into <dump_path>.older-<n>. Ranks of one run that move their own find the same n."""
    units, rings = _left(dump_path, own, rank, world)
    if units:
        _move_all(dump_path, units, units + rings)


def move_folder_aside(dump_path, name):
    """Move one folder in dump_path that an earlier run has left, unless it is empty."""
    if names_in(os.path.join(dump_path, name)):
        _move_all(dump_path, [name], [name])


def _move_all(dump_path, units, names):
    """Move names below dump_path into the first <dump_path>.older-<n> that has none of the units."""
    base = os.path.abspath(dump_path)
    for n in range(1, MOST):
        target = "%s.older-%d" % (base, n)
        if not any(status_of(os.path.join(target, name)) for name in units):
            break
    try:
        for name in names:
            make_folder(os.path.dirname(os.path.join(target, name)))
            _move(os.path.join(base, name), os.path.join(target, name))
    except OSError as e:
        give_back(e)
        log.warning("%s holds an earlier run, which cannot be moved aside (%s): what of it this run does not overwrite stays there", dump_path, e)
        return
    log.info("%s held an earlier run; what belongs to it is now in %s", dump_path, target)


def steps_of(dump_path, own):
    """The folders of this process, one for each step. They are looked for, because a list of them would grow with the run."""
    paths = [os.path.join(dump_path, step, own) for step in names_in(dump_path) if _STEP.match(step)]
    return [path for path in paths if is_folder(path)]


def size_text(folders):
    """Bytes of all files in folders, for people."""
    size = float(sum(map(size_of, folders)))
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, {"B": "kB", "kB": "MB", "MB": "GB", "GB": "TB"}[unit]
    return "%.*f %s" % (0 if size >= 10 or unit == "B" else 1, size, unit)
