"""The calls of a dump, as replay sees them."""
import glob
import json
import os

from msprobe import _core


class Recorded:
    """A tensor of a record: its description and statistics, and where its elements are: a file, or an msprobe.Tensor (None: only
    statistics are there). folder is that of the files, or a dict of tensors by the files' names."""

    __slots__ = ("dtype", "shape", "max", "min", "mean", "norm", "requires_grad", "note", "folder", "path")

    def __init__(self, leaf, folder):
        self.dtype, self.shape = leaf.get("dtype"), tuple(leaf.get("shape") or ())
        self.max, self.min, self.mean, self.norm = (leaf.get(k) for k in ("Max", "Min", "Mean", "Norm"))
        self.requires_grad = bool(leaf.get("requires_grad"))
        self.note = leaf.get("note")  # why there are no values
        self.folder, name = folder, leaf.get("data_name")
        if isinstance(folder, dict):
            self.path = folder.get(name)
        else:
            self.path = os.path.join(folder, str(name)) if name else None

    def file(self):
        """The path, where it is that of a file of the dump: a dump may come from anybody. ValueError otherwise."""
        folder = os.path.dirname(self.path)
        if self.folder != folder or (os.path.islink(self.path) and os.path.dirname(os.path.realpath(self.path)) != os.path.realpath(folder)):
            raise ValueError("%s: data_name leads out of %s" % (self.path, self.folder))
        return self.path


class Call:
    """One call: `prefix` ("Functional"), `api` ("linear"), `number`, and the forward and backward records as they stand."""

    def __init__(self, name, forward, backward, folder):
        self.name, self.forward, self.backward, self.folder = name, forward, backward, folder
        parts = name.split(".")
        self.prefix, self.api, self.number = parts[0], ".".join(parts[1:-1]), parts[-1]


def dump_in(folder):
    """The folder's own dump.json, or the only one of its ranks and steps. ValueError says which there are."""
    path = os.path.join(folder, "dump.json")
    if os.path.exists(path):
        return path
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "*", "dump.json")) + glob.glob(os.path.join(glob.escape(folder), "step*", "*", "dump.json")))
    if not found:
        raise ValueError("%s: no dump.json here" % folder)
    if len(found) > 1:
        raise ValueError("%s: %d dumps; name one of them, such as %s" % (folder, len(found), found[0]))
    return found[0]


class Dump:
    """A dump.json, or the folder with one. Names are those of forward and backward records."""

    def __init__(self, path):
        path = os.fspath(path)
        if os.path.isdir(path):
            path = dump_in(path)
        self.path, self.folder = path, os.path.join(os.path.dirname(path), "dump_tensor_data")
        self.task, self.framework, records, self.cut = _core.dump_records(path)  # cut: the byte where a damaged file ends, or None
        self._records = {name.replace("\0", "\ufffd"): text for name, text in records}

    def names(self):
        return list(self._records)

    def record(self, name):
        """The record called name, or None."""
        text = self._records.get(name)
        return None if text is None else json.loads(text)

    def calls(self):
        """Names of calls, without forward and backward, in the order of the dump; modules are no calls of one function."""
        seen = {}
        for name in self._records:
            stem, _, end = name.rpartition(".")
            if end in ("forward", "backward") and not name.startswith("Module."):
                seen.setdefault(stem)
        return list(seen)

    def call(self, name):
        """The call that a record's name, or the name without .forward and .backward, stands for."""
        stem, _, end = name.rpartition(".")
        stem = stem if end in ("forward", "backward") else name
        forward, backward = self.record(stem + ".forward"), self.record(stem + ".backward")
        if stem + ".forward" not in self._records and stem + ".backward" not in self._records:
            raise KeyError("%s: no call of this name in %s" % (name, self.path))
        return Call(stem, forward, backward, self.folder)

    def replay(self, name, **options):
        """Run one call again: see run()."""
        from msprobe.replay.run import run
        return run(self.call(name), **options)
