"""Recording: the calls of the manual, turned into settings of the engine."""

import multiprocessing
import os
import time

import torch

from msprobe.pytorch import legacy
from msprobe.pytorch.seed import seed_all as _seed_all
from ptdbg_ascend.acl import AclDump
from ptdbg_ascend.common import CompareException, info, refuse, warning
from ptdbg_ascend.version import __version__

MODES = ("all", "list", "range", "stack", "acl", "api_list", "api_stack")
OVERFLOW_MARK = 101  # the second element of a line without statistics


def seed_all(seed=1234, mode=False):
    """Fix the random numbers of Python, NumPy and torch on every device; mode: deterministic algorithms."""
    _seed_all(seed, mode)


def acc_cmp_dump(*_args, **_kwargs):
    """For register_hook: record inputs and outputs."""


def overflow_check(*_args, **_kwargs):
    """For register_hook: record calls that overflow."""


class _Settings:
    """What the calls have set so far."""

    def __init__(self):
        self.root, self.stem, self.ext, self.tag = ".", "anonymous", ".pkl", "ptdbg_dump"
        self.rank = 0
        self.recorder = None  # from the first register_hook() on
        self.overflow = False
        self.overflow_nums = 1
        self.overflows = 0
        self.overflow_file = None
        self.dump_step = 1
        self.dump_mode, self.dump_config = "api", None
        self.switch = dict(switch="OFF", mode="all", scope=[], api_list=[], filter_switch="ON", dump_mode="all")
        self.check_on, self.check_filter = True, True
        self.backward_input = []
        self.claims = legacy.Claims()
        self.names = {}  # file asked for -> file of this process
        self.target = None
        self.no_npu_said = False
        self.asked, self.off_said = None, False  # what the switch was last turned on with; whether that it recorded nothing was said

    @property
    def folder(self):
        return os.path.join(self.root, "%s_v%s" % (self.tag, __version__), "rank%s" % self.rank)


_settings = _Settings()


# ---- where the files go ---------------------------------------------------------------------------------------------------------------


def set_dump_path(fpath=None, dump_tag="ptdbg_dump"):
    """fpath: the .pkl file, in the folder that <dump_tag>_v<version> is made in."""
    if fpath is None:
        raise RuntimeError("set_dump_path '%s' error, please set a valid filename" % fpath)
    path = os.path.realpath(fpath)
    if os.path.isdir(path):
        refuse(CompareException.INVALID_PATH_ERROR, "set_dump_path '%s' error, please set a valid filename: it is a directory" % fpath)
    if not isinstance(dump_tag, str) or not dump_tag or os.sep in dump_tag:
        refuse(CompareException.INVALID_PARAM_ERROR, "dump_tag is %r; it must be the name of a folder" % (dump_tag,))
    stem, ext = os.path.splitext(os.path.basename(path))
    if not ext:
        ext = ".pkl"
        warning("The dump file '%s' has no extension: its lines go to '%s.pkl', its tensors to the folder '%s'." % (fpath, stem, stem))
    settings = _settings
    settings.root, settings.stem, settings.ext, settings.tag = os.path.dirname(path), stem, ext, dump_tag


def _claim(stem):
    """(stem, file) that this process writes instead of what was asked for, made when new."""
    settings = _settings
    wanted = os.path.join(settings.folder, stem + settings.ext)
    if wanted not in settings.names:
        os.makedirs(settings.folder, mode=0o750, exist_ok=True)
        for name in (stem, "%s_pid%d" % (stem, os.getpid())):
            path = os.path.join(settings.folder, name + settings.ext)
            if settings.claims.take(path, lambda: _move_away(name)):
                break
            warning("Another process writes '%s': this one writes beside it, with _pid%d in the name. Give each process its rank: "
                    "register_hook(..., rank=...)." % (path, os.getpid()))
        _move_away(name, tensors_only=True)
        settings.names[wanted] = name, path
    return settings.names[wanted]


def _move_away(stem, tensors_only=False):
    """What an earlier run left under this name goes to a folder beside <tag>_v<version>, in the same order."""
    settings = _settings
    old = [os.path.join(settings.folder, name) for name in ([stem] if tensors_only else [stem + settings.ext, stem])]
    old = [path for path in old if os.path.lexists(path)]
    if not old:
        return
    tag_folder = os.path.dirname(settings.folder)
    place = legacy.free_name(os.path.join("%s_%s" % (tag_folder, legacy.stamp(old[0])), os.path.basename(settings.folder)))
    os.makedirs(place, mode=0o750, exist_ok=True)
    for path in old:
        os.rename(path, os.path.join(place, os.path.basename(path)))
    warning("'%s' was there already: it is now in '%s'." % (old[0], place))


# ---- register_hook --------------------------------------------------------------------------------------------------------------------


def register_hook(model, hook, **kwargs):
    """hook: acc_cmp_dump or overflow_check. See the manual for overflow_nums, dump_mode, dump_config and rank."""
    assert hasattr(model, "named_modules"), "Please register hooks to nn.Module."
    info("Please disable the shuffle function of the dataset and the dropout function of the model before running the program.")
    settings = _settings
    options = _check_options(kwargs)
    if hook not in (acc_cmp_dump, overflow_check):
        refuse(CompareException.INVALID_PARAM_ERROR, "hook is %r; it must be acc_cmp_dump or overflow_check" % (hook,))
    settings.rank = _rank_of(model) if options["rank"] is None else options["rank"]
    settings.overflow = hook is overflow_check
    settings.overflow_nums, settings.dump_step = options["overflow_nums"], options["dump_step"]
    settings.dump_mode, settings.dump_config = options["dump_mode"], options["dump_config"]
    npu = legacy.npu()
    if settings.overflow and npu is not None:
        _enable_overflow(npu)
    info("Start mounting the %s hook function to the model." % hook.__name__)
    settings.recorder = legacy.recorder(legacy.PTDBG, _overflow_flag(npu))
    settings.recorder.on_overflow, settings.recorder.on_close = _after_overflow, _say_if_empty
    info("The %s hook function is successfully mounted to the model." % hook.__name__)
    settings.target = None
    _apply()


def _check_options(kwargs):
    options = dict(overflow_nums=1, dump_mode="api", dump_config=None, rank=None, dump_step=1)
    unknown = sorted(set(kwargs) - set(options))
    if unknown:
        warning("register_hook does not know %s; it is ignored." % ", ".join(unknown))
    options.update((k, v) for k, v in kwargs.items() if k in options)
    if options["dump_mode"] not in ("api", "acl"):
        refuse(CompareException.INVALID_PARAM_ERROR, "dump_mode is %r; it must be 'api' or 'acl'" % (options["dump_mode"],))
    nums = options["overflow_nums"]
    if isinstance(nums, bool) or not isinstance(nums, int) or nums < 1:
        refuse(CompareException.INVALID_PARAM_ERROR, "overflow_nums is %r; it must be a whole number, at least 1" % (nums,))
    if options["dump_mode"] == "acl":
        _check_dump_config(options["dump_config"])
    rank = options["rank"]
    if rank is not None and not str(rank).isdigit():
        refuse(CompareException.INVALID_PARAM_ERROR, "rank is %r; it must be a number" % (rank,))
    return options


def _check_dump_config(path):
    if path is None:
        refuse(CompareException.INVALID_PARAM_ERROR, "dump_mode 'acl' needs dump_config, the path of a dump.json")
    if not os.path.isfile(path):
        refuse(CompareException.INVALID_PATH_ERROR, "dump_config %r: there is no such file" % (path,))
    if not str(path).endswith(".json"):
        refuse(CompareException.INVALID_PARAM_ERROR, "dump_config %r: it must be a .json file" % (path,))


def _rank_of(model):
    """The card that the model is on; on the CPU what torch.distributed or the launcher says."""
    info("Rank id is not provided. Trying to get the rank id of the model.")
    parameter = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    if parameter is not None and parameter.device.type != "cpu":
        return parameter.device.index or 0
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    if os.environ.get("LOCAL_RANK", "").isdigit():
        return int(os.environ["LOCAL_RANK"])
    warning("Warning: the debugger is unable to get the rank id. This may cause the dumpped data to be corrupted in the case of distributed training. "
            "(You may ignore this if you are using only one card.) Transfer the model to npu or gpu before register_hook() to avoid this warning.")
    return 0


# ---- set_dump_switch --------------------------------------------------------------------------------------------------------------------


def set_dump_switch(switch, mode="all", scope=None, api_list=None, filter_switch="ON", dump_mode="all"):
    """What is recorded from here on; see the manual for the modes."""
    scope, api_list = list(scope or []), list(api_list or [])
    _check_switch(switch, mode, scope, api_list, filter_switch, dump_mode)
    settings = _settings
    settings.switch = dict(switch=switch, mode=mode, scope=scope, api_list=api_list, filter_switch=filter_switch, dump_mode=dump_mode)
    _apply()
    if switch == "ON":
        settings.asked = settings.switch
    elif settings.asked is not None and settings.recorder is not None and not settings.off_said:
        settings.off_said = _say_if_empty()
    if switch == "OFF" and mode == "list" and settings.recorder is not None:
        info("The number of matched dump is %d" % legacy.probe.legacy_matched())


def _check_switch(switch, mode, scope, api_list, filter_switch, dump_mode):
    def need(good, text, *args):
        if not good:
            refuse(CompareException.INVALID_PARAM_ERROR, "set_dump_switch: " + text % args)

    need(mode in MODES, "mode is %r; it must be one of %s", mode, ", ".join(MODES))
    need(switch in ("ON", "OFF"), "switch is %r; it must be 'ON' or 'OFF'", switch)
    need(filter_switch in ("ON", "OFF"), "filter_switch is %r; it must be 'ON' or 'OFF'", filter_switch)
    need(dump_mode in ("all", "forward", "backward"), "dump_mode is %r; it must be 'all', 'forward' or 'backward'", dump_mode)
    need(all(isinstance(s, str) for s in scope + api_list), "scope and api_list must be lists of names")
    need(mode != "range" or len(scope) == 2, "mode 'range' needs a scope of two names, the first call and the last")
    need(mode != "list" or scope, "mode 'list' needs a scope of one name or more")
    need(mode != "stack" or len(scope) <= 2, "mode 'stack' takes a scope of two names at most")
    need(mode != "acl" or len(scope) == 1, "mode 'acl' needs a scope of one name")
    need(mode != "api_list" or api_list, "mode 'api_list' needs an api_list, as ['relu']")


def _say_if_empty():
    """A switch that has recorded nothing so far says why, with the names that there were. Whether it had to."""
    recorder, asked = _settings.recorder, _settings.asked
    if _settings.overflow or os.getpid() != recorder.pid or recorder.ended or recorder.recorded():
        return False
    if asked is None:
        if multiprocessing.parent_process() is None:  # else a worker that has run the top of the script
            warning('Nothing was recorded: set_dump_switch("ON") was never called.')
    elif asked["mode"] != "acl":  # there the device writes
        names = asked["api_list"] if asked["mode"] == "api_list" else asked["scope"]
        warning("Nothing was recorded so far: mode '%s' selects %s, dump_mode '%s'; numbers begin with 0, and these were called: %s."
                % (asked["mode"], ", ".join(names) or "all", asked["dump_mode"], recorder.called(" ".join(names))))
    return True


def set_backward_input(backward_input):
    """The .npy file of the gradient with which the scope of mode "acl" runs its backward."""
    _settings.backward_input = list(backward_input)
    _apply()


def _rules_of(switch):
    mode, scope = switch["mode"], switch["scope"]
    rules = dict(floats_only=switch["filter_switch"] == "ON", forward=switch["dump_mode"] != "backward", backward=switch["dump_mode"] != "forward")
    if mode in ("list", "range"):
        rules["stack"] = legacy.STACK_FIRST
    elif mode in ("stack", "acl"):
        rules["stack"] = legacy.STACK_ONLY
    elif mode == "api_stack":
        rules["stack"] = legacy.STACK_LAST
    if mode == "range" or (mode == "stack" and len(scope) == 2):
        rules["range"] = tuple(scope)
    elif mode in ("list", "stack") and scope:
        rules["prefixes"] = tuple(scope)
    elif mode == "api_list":
        rules["ops"] = tuple(name.lower() for name in switch["api_list"])
    elif mode == "acl":
        forward = scope[0].replace("backward", "forward")
        rules.update(prefixes=(forward,), kernel=forward)
    return rules


def _apply():
    """Let the engine do what is set."""
    recorder = _settings.recorder
    if recorder is None or recorder.ended or os.getpid() != recorder.pid:
        return
    try:
        _apply_overflow() if _settings.overflow else _apply_switch(_settings.switch)
    except OSError as e:
        recorder.give_up(e)


def _apply_switch(switch):
    settings = _settings
    recorder = settings.recorder
    if switch["switch"] == "OFF":
        recorder.rules(muted=True)
        recorder.flush()
        return
    if switch["mode"] == "acl" and not _prepare_acl(switch["scope"][0]):
        recorder.rules(muted=True)
        return
    stem = ("api_stack_" if switch["mode"] == "api_stack" else "") + settings.stem
    name, path = _claim(stem)
    folder = os.path.join(settings.folder, name) if switch["mode"] not in ("stack", "acl") else None
    if settings.target != (path, folder):
        recorder.target(settings.root, settings.folder, os.path.basename(path), folder, settings.dump_step)
        settings.target = path, folder
    recorder.rules(**_rules_of(switch))


def _prepare_acl(scope):
    settings = _settings
    if settings.dump_mode != "acl":
        warning("mode 'acl' needs register_hook(..., dump_mode='acl', dump_config='./dump.json').")
        return False
    npu = legacy.npu()
    if npu is None:
        warning("ACL dump is not supported without torch_npu.")
        return False
    settings.recorder.on_kernel = AclDump(npu, scope, settings.dump_config, settings.backward_input).run
    return True


# ---- overflow ---------------------------------------------------------------------------------------------------------------------------


def set_overflow_check_switch(switch, filter_switch="ON"):
    """Where overflows are looked for; without this call everywhere."""
    assert switch in ("ON", "OFF"), "Please set overflow switch with 'ON' or 'OFF'."
    assert filter_switch in ("ON", "OFF"), "Please set filter_switch with 'ON' or 'OFF'."
    _settings.check_on, _settings.check_filter = switch == "ON", filter_switch == "ON"
    _apply()


def _enable_overflow(npu):
    device = getattr(npu, "_C", None)
    if hasattr(device, "_enable_overflow_npu"):
        device._enable_overflow_npu()
        info("Enable overflow function success.")
    else:
        warning("Api '_enable_overflow_npu' is not exist, the overflow detection function on milan platform maybe not work! "
                "please check the version of software torch_npu.")
    _clear_flag(npu)


def _clear_flag(npu):
    utils = getattr(getattr(npu, "npu", None), "utils", None)
    if hasattr(utils, "clear_npu_overflow_flag"):
        utils.clear_npu_overflow_flag()
    elif hasattr(getattr(npu, "_C", None), "_clear_overflow_npu"):
        npu._C._clear_overflow_npu()


def _overflow_flag(npu):
    """On a device that saturates instead of making inf, its own flag; else None: results are looked at."""
    utils = getattr(getattr(npu, "npu", None), "utils", None)
    try:
        if npu is None or utils.is_support_inf_nan():
            return None
    except Exception:  # an older torch_npu does not say
        pass
    if hasattr(utils, "get_npu_overflow_flag"):
        return lambda: bool(utils.get_npu_overflow_flag())
    if hasattr(getattr(npu, "_C", None), "_check_overflow_npu"):
        return lambda: bool(npu._C._check_overflow_npu())
    return None


def _apply_overflow():
    settings = _settings
    npu = legacy.npu()
    if npu is None and not settings.no_npu_said:
        settings.no_npu_said = True
        warning("Overflow detection is not supported in the GPU environment.")
    if npu is not None:
        settings.recorder.open(settings.root)
    acl = settings.dump_mode == "acl" and npu is not None
    if acl:
        settings.recorder.on_kernel = AclDump(npu, None, settings.dump_config, []).repeat
    settings.recorder.rules(muted=npu is None or not settings.check_on, overflow=True, stack=legacy.STACK_FIRST, floats_only=settings.check_filter,
                            found=_before_overflow, rerun=acl)


def _before_overflow(_name):
    """A call has overflowed. True: write it, there is a file for it."""
    settings = _settings
    if settings.overflows >= settings.overflow_nums:
        return False
    settings.overflows += 1
    stem = "Overflow_info_%s_%d" % (time.strftime("%Y%m%d_%H%M%S", time.gmtime()), settings.overflows)
    name, path = _claim(stem)
    settings.recorder.target(settings.root, settings.folder, os.path.basename(path), os.path.join(settings.folder, name), OVERFLOW_MARK)
    settings.overflow_file = os.path.realpath(path)
    return True


def _after_overflow(name):
    """It is written. At the limit everything is on disk first, then training ends."""
    settings = _settings
    settings.recorder.flush()
    warning("[overflow %d times]: module name :'%s' is overflow and dump file is saved in '%s'." % (settings.overflows, name, settings.overflow_file))
    if settings.dump_mode == "acl" and name.endswith("_backward"):
        info("The overflow is caused by backward operator %s. You can use reverse acl dump(mode='acl') to get operator dump data." % name)
    _clear_flag(legacy.npu())
    if settings.overflows >= settings.overflow_nums:
        settings.recorder.rules(muted=True)
        raise ValueError("[overflow %d times]: dump file is saved in '%s'." % (settings.overflows, settings.overflow_file))
