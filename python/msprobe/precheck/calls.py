"""Which calls of a dump are checked, and why the others are not."""
import json
import os

from msprobe import _core
from msprobe.core.config import nearest
from msprobe.replay import Dump

# results that nobody has written to, and casts whose result is their argument's: there is nothing to check
NEVER = {"to", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format"}


def short_name(call):
    return call.rpartition(".")[0].rpartition(".")[2]


def whole_name(call):
    """What the standards know the API by: "linalg.norm" of "Torch.linalg.norm.0"."""
    return call.partition(".")[2].rpartition(".")[0]


def printable(text):
    """A line for the terminal: names in a dump may hold whatever a terminal obeys."""
    return "".join(c if c.isprintable() else "?" for c in text)


def left_out(name, why):
    """(result line, details) of a call that has no numbers."""
    return _core.precheck_result(name, 0, 0, why), _core.precheck_no_output(name + ".forward.output.0", why)


def run_ut_part(path, keys):
    """What a config file says of run_ut: under that key, which msprobe 26 calls acc_check, or at its top. keys: those that are expected, for the error."""
    with open(path, encoding="utf-8-sig") as f:
        try:
            values = json.load(f)
        except ValueError as e:
            raise ValueError("%s: not a JSON file: %s" % (path, e)) from None
    part = values.get("run_ut", values.get("acc_check", values)) if isinstance(values, dict) else None  # the newer name
    if not isinstance(part, dict):
        raise ValueError("%s: an object with %s is expected" % (path, keys))
    return part


class Choice:
    """White and black lists of a config file, and -f, which leaves out calls that are like an earlier one."""

    def __init__(self, dump_path, config=None, leave_out_repeated=False):
        self.white, self.black, self.error_data_path = set(), set(NEVER), None
        self.leaves_nothing = False
        self.complaints = []  # lines about what was asked for and cannot be had
        dump = Dump(dump_path) if dump_path else None  # None: calls come from a running training
        if dump and dump.cut is not None:
            self.complaints.append("%s ends in the middle, at byte %d: the APIs up to there are checked" % (dump.path, dump.cut))
        if config:
            called = {short_name(name) for name in dump.calls()} if dump else set()
            self.read(config, called)
            self.leaves_nothing = bool(called) and all(self.listed_out(api) for api in called) and not called <= NEVER
        self.repeated = repeated(dump) if leave_out_repeated else set()

    def read(self, path, called):
        values = run_ut_part(path, "white_list and black_list")
        for key, into in (("white_list", self.white), ("black_list", self.black)):
            names = values.get(key) or []
            if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                raise ValueError("%s: %s is to be a list of API names, such as [\"conv2d\"]" % (path, key))
            into.update(names)
            self.complaints += unknown(path, key, names, called)
        self.error_data_path = values.get("error_data_path")
        if not isinstance(self.error_data_path, (str, type(None))):
            raise ValueError("%s: error_data_path is to be the name of a folder" % path)

    def folder_of_errors(self, asked):
        """Where -save_error_data puts its files: asked, or a folder of that name in the config's error_data_path; None: it was not asked for."""
        return os.path.join(self.error_data_path, os.path.basename(asked)) if asked and self.error_data_path else asked

    def listed_out(self, api):
        return api in self.black or bool(self.white and api not in self.white)

    def refusal(self, name):
        """Why a call is not run, or None."""
        api = short_name(name)
        if self.listed_out(api):
            return "API %s in black list or not in white list. SKIP." % api
        if name in self.repeated:
            return "API %s: like an earlier call of it (-f)." % api
        return None


def unknown(path, key, names, called):
    """A line for each name that is no API's, neither of the dump nor of the list that is recorded by default."""
    from msprobe.pytorch.apis import read_list
    known = called | {api.rpartition(".")[2] for apis in read_list("default").values() for api in apis}
    return ["%s: %s has \"%s\", which is no API%s; it selects nothing" % (path, key, name, nearest(name, sorted(known)))
            for name in names if name not in known]


def without_values(value):
    """A record's part without what differs from call to call."""
    if isinstance(value, list):
        return [without_values(v) for v in value]
    if isinstance(value, dict):
        return {k: without_values(v) for k, v in value.items()
                if k not in ("Max", "Min", "Mean", "Norm", "md5", "data_name")}
    return value


def repeated(dump):
    seen, out = set(), set()
    for name in dump.calls():
        try:
            key = arguments_of(name, dump.record(name + ".forward"))
        except (AttributeError, RecursionError):
            continue  # a record that no recording writes: its row will say so
        if key in seen:
            out.add(name)
        seen.add(key)
    return out


def arguments_of(name, record):
    """What calls of one API that are alike have in common."""
    record = record or {}
    args = record.get("input_args", record.get("input"))
    return name.rpartition(".")[0], json.dumps(without_values([args, record.get("input_kwargs")]), sort_keys=True)
