"""config.json: every key of every task, checked before training starts.

A wrong value raises MsprobeException, whose text names the key, the value and what is allowed. An unknown key is a warning that
names the nearest known one: configurations of other generations of the tool stay usable.
"""

import difflib
import json
import os
import re
import stat
import time
import types

from msprobe.core.common.exceptions import FileCheckException, MsprobeException, ScopeException
from msprobe.core.log import log
from msprobe.core.signals import give_back

TASKS = ("statistics", "tensor", "overflow_check", "structure", "free_benchmark", "run_ut", "grad_probe")
LEVELS = ("L0", "L1", "L2", "mix", "debug")
DATA_MODES = ("all", "input", "output", "forward", "backward")
API_LISTS = ("default", "wide")
RISK_LEVELS = ("CORE", "FOCUS", "ALL")
MOST = 1000000

COMMON_KEYS = (
    "task", "dump_path", "rank", "step", "level", "enable_dataloader", "async_dump", "precision", "seed", "is_deterministic",
    "acl_config", "rm_dropout", "api_list", "writer_timeout", "compiled", "replicas", "risk_level", "dump_enable", "extra_info",
)
# Of msprobe 26: what there is here instead.
TASKS_OF_26 = {
    "nan_check": 'task overflow_check names the first call that makes inf or NaN',
    "diff_check": 'msprobe compare finds the first call that differs, when both runs are recorded',
    "acc_check": 'msprobe acc_check -api_info dump.json checks the calls of a dump',
}
KEYS_OF_26 = {
    "slice": "tensors are recorded whole", "request_id": "tensors are recorded whole",
    "custom_op_namespaces": 'debugger.register_custom_api(torch.ops.NAMESPACE, "OP") records an operator',
    "bench_path": TASKS_OF_26["diff_check"],
}
RELOAD = 0.5  # seconds between two looks at config.json for dump_enable
TASK_KEYS = {
    "statistics": ("scope", "list", "data_mode", "summary_mode", "tensor_list"),
    "tensor": ("scope", "list", "data_mode", "summary_mode", "file_format", "backward_input", "online_run_ut", "nfs_path", "host",
               "port", "tls_path", "online_limit", "online_wait", "online_linger"),
    "overflow_check": ("overflow_nums", "check_mode"),
    "structure": (),
    "free_benchmark": ("scope", "list", "fuzz_device", "pert_mode", "pert_type", "handler_type", "fuzz_level", "fuzz_stage", "if_preheat",
                       "preheat_step", "max_sample"),
    "run_ut": ("white_list", "black_list", "error_data_path", "is_online", "nfs_path", "host", "port", "rank_list", "tls_path",
               "online_limit", "online_idle"),
    "grad_probe": ("grad_level", "param_list", "bounds"),
}
PERT_MODES = ("add_noise", "change_value", "improve_precision", "no_change", "bit_noise", "to_cpu")

API_NAME = re.compile(r"^(Distributed|Functional|Torch|Tensor|Mint|MintFunctional|MintDistributed|Primitive|Aten|VF|NPU|MindSpeed|Jit)\..*\.\d+\.(forward|backward)$")
BESIDE_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|#[^\n]*|,(?=(?:\s|#[^\n]*\n)*[}\]])')
MODULE_NAME = re.compile(r"^(Cell|Module)\..*\.(forward|backward)\.\d+$")


def wrong(text):
    return MsprobeException(MsprobeException.INVALID_PARAM_ERROR, text)


def nearest(word, known):
    """' (did you mean "x"?)', or nothing."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(str(word).lower(), by_lower, 1, 0.6)
    return ' (did you mean "%s"?)' % by_lower[found[0]] if found else ""


def choice(key, value, allowed):
    if not isinstance(value, str) or value not in allowed:
        raise wrong("%s is %s; allowed: %s%s" % (key, json.dumps(value, default=repr), ", ".join(allowed), nearest(value, allowed)))
    return value


def boolean(key, value):
    """The manual writes "true" for some switches: the two words are taken as well."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise wrong("%s is %r; it must be true or false%s" % (key, value, nearest(value, ("true", "false")) if isinstance(value, str) else ""))


def whole(key, value, least, most=None):
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        upper = "" if most is None else " and at most %d" % most
        raise wrong("%s is %r; it must be a whole number, at least %d%s" % (key, value, least, upper))
    return value


def given(value, default):
    """null and "" are the same: not set."""
    return default if value is None or value == "" else value


def named_folder(key, value):
    if not isinstance(value, (str, os.PathLike)) or not value:
        raise wrong('The %s not found: it is %r and must name a folder, as in "%s": "./dump_path"' % (key, value, key))
    return os.path.expanduser(os.fspath(value))


def check_folder(key, path):
    """It is there, or can be made."""
    there = os.path.abspath(path)
    try:
        while not _is_there(there):
            there = os.path.dirname(there)
    except (OSError, ValueError) as e:  # a part of it is no folder, or it cannot be a path at all
        give_back(e)
        raise wrong("%s is %r; it must name a folder that is there or can be made: %s" % (key, path, getattr(e, "strerror", None) or e)) from None
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise wrong("%s is %r; it must name a folder that is there or can be made, and %s is no folder to write to" % (key, path, there))


def _is_there(path):
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def text(key, value):
    """None and "" are the same: not set."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise wrong("%s is %r; it must be a string" % (key, value))
    return value


def texts(key, value):
    """None and [] are the same: not set."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
        raise wrong("%s is %r; it must be a list of strings" % (key, value))
    return value


def numbers(key, value):
    """[0, 2, "5-7"] -> [0, 2, 5, 6, 7]: sorted, each once."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise wrong("%s is invalid, it should be a list; it is %r" % (key, value))
    if len(value) > MOST:
        raise wrong("%s has %d elements; at most %d are allowed" % (key, len(value), MOST))
    out = set()
    for item in value:
        if isinstance(item, int) and not isinstance(item, bool):
            if not 0 <= item <= MOST:
                raise wrong("Each element of %s must be between 0 and %d, currently it is %d." % (key, MOST, item))
            out.add(item)
        elif isinstance(item, str):
            out.update(span(key, item))
        else:
            raise wrong("%s element %r must be an integer or string." % (key, item))
    return sorted(out)


def decimal(word):
    """Its number, None: it is none. One that is far too long, which int() would refuse, is too large."""
    return None if not re.match("^[0-9]+$", word) else MOST + 1 if len(word) > 100 else int(word)


def span(key, item):
    single = decimal(item)
    if single is not None and single <= MOST:
        return [single]
    parts = item.split("-")
    if len(parts) != 2:
        raise wrong('The string parameter for %s only supports formats like "3-5". Now string parameter for %s is "%s".' % (key, key, item))
    low, high = decimal(parts[0]), decimal(parts[1])
    if low is None or high is None:
        raise wrong('The hyphen(-) must start and end with decimal numbers. %s is "%s".' % (key, item))
    if low > high:
        raise wrong('For the hyphen(-) in %s, the left boundary (%d) cannot be greater than the right boundary (%d). It is "%s".' % (key, low, high, item))
    if high > MOST:
        raise wrong('The boundaries must fall within the range of [0, %d]. %s is "%s".' % (MOST, key, item))
    return range(low, high + 1)


def chosen_task(value):
    if isinstance(value, str) and value in TASKS_OF_26:
        raise wrong('task is "%s", which is msprobe 26\'s; here %s. Allowed: %s' % (value, TASKS_OF_26[value], ", ".join(TASKS)))
    return choice("task", value, TASKS)


def data_mode(value):
    modes = [value] if isinstance(value, str) and value else texts("data_mode", value) or ["all"]  # the manual calls it a str
    for mode in modes:
        choice("data_mode", mode, DATA_MODES)
    if "all" in modes and len(modes) > 1:
        raise wrong('data_mode is %r; "all" stands alone' % modes)
    return modes


def check_file(path):
    expected = "config_path is %r; it must name a file with a JSON object" % (path,)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as e:  # ValueError: it cannot be a path at all
        give_back(e)
        raise FileCheckException(FileCheckException.ILLEGAL_PATH_ERROR, "%s: %s" % (expected, getattr(e, "strerror", None) or e)) from None
    if not stat.S_ISREG(status.st_mode):
        raise FileCheckException(FileCheckException.INVALID_FILE_ERROR, "%s, and that is not a file" % expected)
    if status.st_mode & stat.S_IWOTH and status.st_uid != os.getuid() and os.getuid() != 0:
        raise FileCheckException(FileCheckException.FILE_PERMISSION_ERROR, "%s belongs to somebody else and everybody may write to it" % path)


def load(path):
    if not isinstance(path, (str, os.PathLike)):
        raise wrong("config_path is %r; it must be a string" % (path,))
    check_file(path)
    try:
        with open(path, encoding="utf-8-sig") as f:  # some editors put a byte order mark first
            config = parse(f.read())
    except (OSError, ValueError, RecursionError) as e:  # ValueError: no UTF-8, no JSON, or a number of thousands of digits
        give_back(e)
        raise wrong("%s: cannot be read as JSON: %s" % (path, e)) from None
    if not isinstance(config, dict):
        raise wrong("%s: must hold a JSON object, and begins with %.80r" % (path, config))
    return config


def parse(text):
    """The manual's own examples have a comma before a closing bracket, and comments to the end of a line: both count as blanks."""
    return json.loads(BESIDE_JSON.sub(lambda found: found.group(1) or " " * len(found.group()), text), object_pairs_hook=once_each)


def once_each(pairs):
    """The object; a key that stands there twice counts with its last value, as JSON readers have it, and is named."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        for key in sorted({key for key in keys if keys.count(key) > 1}):
            log.warning('config.json: key "%s" stands there %d times; the last one counts: %s', key, keys.count(key), json.dumps(found[key]))
    return found


def read_connection(part):
    """Where the two sides of online run_ut meet, and how many bytes may wait for being sent or checked."""
    host, port = text("host", part.get("host")), part.get("port")
    if host and not (re.match(r"^(\d{1,3}\.){3}\d{1,3}$", host) and all(int(n) < 256 for n in host.split("."))):
        raise wrong('host is "%s"; it must be an IPv4 address such as 127.0.0.1' % host)
    if port not in (None, -1, ""):
        whole("port", port, 1, 65535)
    return {"nfs_path": text("nfs_path", part.get("nfs_path")), "host": host, "port": -1 if port in (None, "") else port,
            "tls_path": text("tls_path", part.get("tls_path")),
            "limit": whole("online_limit", given(part.get("online_limit"), 4096), 1, 1 << 24) << 20}  # given in MiB


def check_connection(key, connection):
    """What the two sides need is there; its files are looked at when it is used."""
    if not connection["nfs_path"] and (not connection["host"] or connection["port"] < 1):
        raise wrong("%s is true; nfs_path, or host and port, must say where training and checking process meet" % key)


class Config:
    """What to record, from config.json and the constructor's arguments (which win)."""

    def __init__(self, config_path=None, task=None, dump_path=None, level=None, step=None):
        if config_path is None:
            config_path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "config.json")
        self.path = config_path
        raw = load(config_path)
        self.task = chosen_task(given(task, given(raw.get("task"), "statistics")))
        self.level = choice("level", given(level, given(raw.get("level"), "L1")), LEVELS)
        self.dump_path = named_folder("dump_path", given(dump_path, raw.get("dump_path")))
        self.step = numbers("step", raw.get("step") if step is None else step)
        self.rank = numbers("rank", raw.get("rank"))
        self._read_common(raw)
        part = raw.get(self.task)
        part = {} if part is None else part
        if not isinstance(part, dict):
            raise wrong("%s is %r; it must be an object" % (self.task, part))
        self.task_config = part
        self._read_task(part)
        self._check_together()
        self._check_scope()
        self._warn_unknown(raw)

    def _read_common(self, raw):
        self.enable_dataloader = boolean("enable_dataloader", raw.get("enable_dataloader", False))
        self.async_dump = boolean("async_dump", raw.get("async_dump", False))
        self.precision = choice("precision", raw.get("precision", "low"), ("low", "high"))
        self.seed = whole("seed", raw["seed"], 0, 2**32 - 1) if raw.get("seed") is not None else None
        self.is_deterministic = boolean("is_deterministic", raw.get("is_deterministic", False))
        self.rm_dropout = boolean("rm_dropout", raw["rm_dropout"]) if raw.get("rm_dropout") is not None else None
        self.acl_config = text("acl_config", raw.get("acl_config"))
        self.writer_timeout = 60 if raw.get("writer_timeout") is None else whole("writer_timeout", raw["writer_timeout"], 1, 86400)
        self.compiled = choice("compiled", given(raw.get("compiled"), "skip"), ("skip", "eager"))
        self.replicas = boolean("replicas", given(raw.get("replicas"), True))
        self.api_list = choice("api_list", raw.get("api_list", "default"), API_LISTS)
        self._read_common_of_26(raw)

    def _read_common_of_26(self, raw):
        self.risk_level = choice("risk_level", given(raw.get("risk_level"), "ALL"), RISK_LEVELS)
        self.dump_enable = boolean("dump_enable", raw["dump_enable"]) if raw.get("dump_enable") is not None else None
        self._file_seen, self._looked = self._file_state(), time.monotonic()
        if not boolean("extra_info", given(raw.get("extra_info"), True)):
            log.info("extra_info is false: stack.json and construct.json are written all the same; they cost little here")
        if "load" in raw:
            raise wrong("load is %r, a key of msprobe 26, which puts recorded inputs in the place of the modules' own; msprobe never changes what a program "
                        "computes: take the key out" % (raw["load"],))

    def _file_state(self):
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def is_dump_enabled(self):
        """The key dump_enable, which may be changed in the file while the program runs; without it, true. Other keys are read once."""
        if self.dump_enable is None or time.monotonic() - self._looked < RELOAD:
            return self.dump_enable is not False
        self._looked, seen = time.monotonic(), self._file_state()
        if seen is None or seen == self._file_seen:
            return self.dump_enable
        self._file_seen, before = seen, self.dump_enable
        try:
            self.dump_enable = boolean("dump_enable", given(load(self.path).get("dump_enable"), before))
        except (MsprobeException, FileCheckException) as e:  # somebody is writing it
            log.warning("%s; recording stays %s", e, "on" if before else "off")
        if self.dump_enable != before:
            log.info("dump_enable is %s now: recording is %s", json.dumps(self.dump_enable), "on" if self.dump_enable else "off")
        return self.dump_enable

    # ---- tasks -------------------------------------------------------------------------------------------------------------------

    def _read_task(self, part):
        self.scope = texts("scope", part.get("scope"))
        self.list = texts("list", part.get("list"))
        self.tensor_list = texts("tensor_list", part.get("tensor_list")) if self.task == "statistics" else []
        self.data_mode = data_mode(part.get("data_mode"))
        self.summary_mode = choice("summary_mode", given(part.get("summary_mode"), "statistics"), ("statistics", "md5"))
        self.overflow_nums = 1
        self.online = None  # or where calls go while training runs
        self.backward_input = []
        reader = getattr(self, "_read_" + self.task, None)
        if reader:
            reader(part)

    def _read_tensor(self, part):
        if part.get("file_format") is not None:
            choice("file_format", part["file_format"], ("npy", "bin"))
        inputs = part.get("backward_input")
        self.backward_input = [x for x in texts("backward_input", [inputs] if isinstance(inputs, str) else inputs) if x]
        connection = read_connection(part)
        if boolean("online_run_ut", part.get("online_run_ut", False)):
            self.online = connection
            self.online["wait"] = whole("online_wait", given(part.get("online_wait"), 10), 0, 86400)
            self.online["linger"] = whole("online_linger", given(part.get("online_linger"), 60), 0, 86400)
            self._check_online()

    def _check_online(self):
        if self.level not in ("L1", "mix"):
            raise wrong('online_run_ut is true and level is "%s"; it checks API calls, which levels L1 and mix record' % self.level)
        check_connection("online_run_ut", self.online)

    def _read_overflow_check(self, part):
        nums = part.get("overflow_nums")
        self.overflow_nums = 1 if nums is None else whole("overflow_nums", nums, -1)
        if self.overflow_nums == 0:
            raise wrong("overflow_nums is 0; it must be -1 (never stop) or a positive whole number")
        choice("check_mode", given(part.get("check_mode"), "all"), ("all", "aicore", "atomic"))

    def _read_free_benchmark(self, part):
        """pert_type: as the title row of MindSpore's results spells it."""
        device = choice("fuzz_device", given(part.get("fuzz_device"), "npu"), ("npu", "cpu"))
        key = "pert_mode" if given(part.get("pert_mode"), None) is not None else "pert_type"
        mode = choice(key, given(part.get(key), "improve_precision"), PERT_MODES)
        if given(part.get("pert_type"), mode) != mode:
            raise wrong('pert_mode is "%s" and pert_type is "%s"; they are two names of one key' % (mode, part["pert_type"]))
        if (device == "cpu") != (mode == "to_cpu"):
            raise wrong('fuzz_device is "%s" and pert_mode is "%s"; "cpu" goes with "to_cpu" and with nothing else' % (device, mode))
        handler = choice("handler_type", given(part.get("handler_type"), "check"), ("check", "fix"))
        stage = choice("fuzz_stage", given(part.get("fuzz_stage"), "forward"), ("forward", "backward"))
        choice("fuzz_level", given(part.get("fuzz_level"), "L1"), ("L1",))
        preheat = boolean("if_preheat", part.get("if_preheat", False))
        steps = whole("preheat_step", 15 if part.get("preheat_step") is None else part["preheat_step"], 1)
        most = whole("max_sample", 20 if part.get("max_sample") is None else part["max_sample"], 1)
        self.free_benchmark = types.SimpleNamespace(fuzz_device=device, pert_mode=mode, handler_type=handler, fuzz_stage=stage, if_preheat=preheat,
                                                    preheat_step=steps, max_sample=most)
        if stage == "backward" and not self.list:
            raise wrong('fuzz_stage is "backward"; list must name the APIs then')
        if handler == "fix" and (preheat or stage != "forward" or mode not in ("improve_precision", "to_cpu")):
            raise wrong('handler_type is "fix", if_preheat is %s, fuzz_stage is "%s" and pert_mode is "%s"; "fix" goes with if_preheat false, '
                        'fuzz_stage "forward" and pert_mode improve_precision or to_cpu' % (json.dumps(preheat), stage, mode))
        if self.scope and self.list:
            raise ScopeException(ScopeException.ARGS_CONFLICT, "scope is %r and list is %r; only one of them may be set" % (self.scope, self.list))

    def _read_run_ut(self, part):
        texts("white_list", part.get("white_list"))
        texts("black_list", part.get("black_list"))
        text("error_data_path", part.get("error_data_path"))
        boolean("is_online", part.get("is_online", False))
        numbers("rank_list", part.get("rank_list"))
        read_connection(part)

    @staticmethod
    def _read_grad_probe(part):
        choice("grad_level", given(part.get("grad_level"), "L1"), ("L0", "L1", "L2"))
        texts("param_list", part.get("param_list"))
        bounds = [-1, 0, 1] if part.get("bounds") is None else part["bounds"]
        good = isinstance(bounds, list) and all(isinstance(b, (int, float)) and not isinstance(b, bool) and -2**63 <= b < 2**63 for b in bounds)
        if not good or any(a >= b for a, b in zip(bounds, bounds[1:])):
            raise wrong("bounds is %r; it must be a list of numbers in ascending order" % (bounds,))

    # ---- what belongs together ------------------------------------------------------------------------------------------------------

    def _check_together(self):
        if self.task == "structure" and self.level not in ("L0", "mix"):
            log.warning('task structure records at level "mix"; level "%s" is not used', self.level)
            self.level = "mix"
        self._check_pairs()
        if self.task == "free_benchmark" and self.level != "L1":
            raise wrong('level is "%s"; task free_benchmark works at level L1' % self.level)
        if self.level == "L2":
            self._check_kernels()

    def _check_pairs(self):
        """On both frameworks."""
        if self.async_dump and self.summary_mode == "md5":
            raise wrong("async_dump is true and summary_mode is md5: a checksum needs the data at once; choose one of them")
        if self.async_dump and self.task == "tensor" and not self.list and self.level != "debug":
            raise wrong("async_dump is true in tensor task, the parameters list cannot be empty.")
        if self.level == "debug" and self.tensor_list:
            log.warning("tensor_list is not used at level debug")
            self.tensor_list = []

    def _check_kernels(self):
        """One API. Manual 001 names it in scope; later generations in list."""
        if self.task != "tensor":
            raise wrong('task is "%s"; level L2 goes with task tensor' % self.task)
        names = self.scope or self.list
        if (self.scope and self.list) or len(names) != 1:
            raise wrong("scope is %r and list is %r; at level L2 one of them must name exactly one API" % (self.scope, self.list))
        if not API_NAME.match(names[0]):
            raise wrong('"%s" is not the name of a call; level L2 needs one as in dump.json, such as Functional.conv2d.1.forward' % names[0])
        self.kernel_api, self.scope, self.list = names[0], [], []

    def _check_scope(self):
        if not self.scope or self.task == "free_benchmark":
            return
        if len(self.scope) != 2:
            raise ScopeException(ScopeException.INVALID_SCOPE, "scope is %r; it must be a list of 2 names, the first and the last call to record, and has %d" % (self.scope, len(self.scope)))
        allowed = {"L0": (MODULE_NAME,), "L1": (API_NAME,), "mix": (API_NAME, MODULE_NAME)}.get(self.level, ())
        for name in self.scope:
            if allowed and not any(pattern.match(name) for pattern in allowed):
                raise ScopeException(ScopeException.INVALID_SCOPE, 'scope has "%s"; at level %s a name is needed as it stands in dump.json, such as %s'
                                     % (name, self.level, {"L0": "Module.conv1.Conv2d.forward.0", "L1": "Functional.relu.0.forward"}.get(
                                         self.level, "Functional.relu.0.forward or Module.conv1.Conv2d.forward.0")))

    def _warn_unknown(self, raw):
        known = COMMON_KEYS + tuple(TASK_KEYS)
        for key in raw:
            if key in KEYS_OF_26:
                log.warning('config.json: "%s" is a key of msprobe 26 and is passed over: %s', key, KEYS_OF_26[key])
            elif key not in known and key not in TASKS_OF_26:
                log.warning('config.json: unknown key "%s"%s', key, nearest(key, known))
        for key in self.task_config:
            if key in KEYS_OF_26:
                log.warning('config.json: "%s" in "%s" is a key of msprobe 26 and is passed over: %s', key, self.task, KEYS_OF_26[key])
            elif key not in TASK_KEYS[self.task]:
                log.warning('config.json: unknown key "%s" in "%s"%s', key, self.task, nearest(key, TASK_KEYS[self.task]))

    def axis(self, a, b):
        """data_mode has two axes, forward/backward and input/output; an axis of which nothing is named is not restricted."""
        if "all" in self.data_mode or not {a, b} & set(self.data_mode):
            return True, True
        return a in self.data_mode, b in self.data_mode
