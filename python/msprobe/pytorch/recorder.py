"""The life of one recording: what the methods of PrecisionDebugger share."""

import atexit
import contextlib
import errno
import fcntl
import functools
import inspect
import multiprocessing
import os
import shutil
import statistics
import sys
import sysconfig
import time
import traceback

import torch

from msprobe import _core
from msprobe._core import probe
from msprobe.core import older
from msprobe.core.common.exceptions import MsprobeException
from msprobe.pytorch import apis, compiled, device, online, selftest, stacks
from msprobe.core.config import nearest, wrong
from msprobe.core.files import make_folder
from msprobe.pytorch.describe import describe, unseen
from msprobe.pytorch.groups import Groups
from msprobe.pytorch.kernels import KernelDump, npu_module
from msprobe.core.log import log, set_rank
from msprobe.core.points import Points
from msprobe.core.points import check as check_point
from msprobe.pytorch.modules import ModuleHooks
from msprobe.pytorch.replicas import Replicas
from msprobe.core.signals import give_back, is_programs

KERNEL = 16  # flag of _core.probe.add
NAMES_SHOWN = 8
_SCRIPTS = sysconfig.get_path("scripts")  # now: the first time it imports what no signal's handler should interrupt
LONGEST_NAME = 200  # bytes, of an API: MAX_NAME of python/ext/call/function_call.c


def _make_trampoline(function, entry):
    """Code with function's names, file and free variables that calls entry(args, kwargs), and the signature that the function is to show
    meanwhile (None: it shows another function's anyway). See python/ext/patch/patch.c."""
    code, template = function.__code__, _template.__code__
    consts = tuple(entry if c == "entry" else c for c in template.co_consts)
    names = {"co_qualname": code.co_qualname} if hasattr(code, "co_qualname") else {}
    made = template.replace(co_consts=consts, co_name=code.co_name, co_filename=code.co_filename, co_firstlineno=code.co_firstlineno,
                            co_freevars=code.co_freevars, **names)
    hidden = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    return made, None if hidden else inspect.signature(function)


def _template(*args, **kwargs):
    entry = "entry"
    return entry(args, kwargs)


def _writer_path():
    """The msprobe command that was installed with this package; None: a thread of this process writes."""
    here = os.path.join(_SCRIPTS, "msprobe")
    return here if os.access(here, os.X_OK) else shutil.which("msprobe")


def _device_overflow_flag():
    """On an NPU that saturates instead of making inf, the device's own flag, read and cleared after each call; else None."""
    utils = getattr(getattr(sys.modules.get("torch_npu"), "npu", None), "utils", None)
    if utils is None or not hasattr(utils, "get_npu_overflow_flag"):
        return None
    try:
        if utils.is_support_inf_nan():
            return None
    except Exception as e:
        give_back(e)

    def flag():
        raised = bool(utils.get_npu_overflow_flag())
        if raised:
            utils.clear_npu_overflow_flag()
        return raised

    flag()  # what happened before is none of a recorded call's

    return flag


def _fetch():
    with unseen(), device.unprofiled():
        return device.reducer.fetch()


def _function_modes():
    """torch's functions about TorchFunctionMode: how many are on, get the state, set it, and the state in which none is asked; None in an older torch."""
    names = ("_len_torch_function_stack", "_get_torch_function_state", "_set_torch_function_state")
    if hasattr(torch._C, "_is_torch_function_mode_enabled") and hasattr(torch.overrides, "_TorchFunctionStackMode"):  # 1.13: on is one object, off None
        return torch._C._is_torch_function_mode_enabled, torch.overrides._TorchFunctionStackMode, torch._C._set_torch_function_mode, None
    if not all(hasattr(torch._C, name) for name in names) or not hasattr(torch._C, "_TorchFunctionState"):
        return None
    return tuple(getattr(torch._C, name) for name in names) + (torch._C._TorchFunctionState.ALL_DISABLED,)


def is_full(error):
    """Whether the disk, or our share of it, is full."""
    return isinstance(error, OSError) and any(os.strerror(code) in str(error) for code in (errno.ENOSPC, errno.EDQUOT))


def _global_hooks():
    """torch's dicts of hooks on all modules."""
    of = torch.nn.modules.module
    names = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks", "_global_backward_hooks")
    return tuple(getattr(of, name) for name in names if isinstance(getattr(of, name, None), dict))


def _has_process_group():
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def current_rank():
    """(rank, number of ranks): the process group's, or what a launcher such as torchrun has said before there is one; (None, 1): there are none."""
    if _has_process_group():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdigit() and size.isdigit() and int(rank) < int(size) and int(size) > 1:
        return int(rank), int(size)
    return None, 1


def may_record(config):
    """Whether rank selects this process, as far as is known before the first step."""
    return not config.rank or current_rank()[0] in config.rank


def _spanning(steps, step):
    """(lowest, highest), with one step more."""
    low, high = steps or (step, step)
    return min(low, step), max(high, step)


def _no_such_api(module, api):
    return wrong("api is %r; %s has no function of that name%s"
                 % (api, getattr(module, "__name__", module), nearest(api, [n for n in dir(module) if n != api])))


class Recorder:
    """One per process."""

    separator = "."  # between the parts of a function's name in a dump

    def __init__(self, config, model=None):
        self.config = config
        self.model = model
        if model is not None and not isinstance(model, list):  # which may be filled later
            self._check_model()
        self.loop = 0
        self.init_step = 0
        self.ended = False  # nothing more will be recorded
        self.started = False
        self._changing = False  # start() or stop() is at work, or an interrupt has left it half done
        self.overflows = 0
        self.first_overflow = None  # its name, and where it was called
        self.pid = os.getpid()
        self.rank = None
        self.tokens = None
        self.single = None  # module_dump() is on
        self._opened = False
        self._closed = False  # and the log says what there is
        self._start_failed = None  # or why
        self._has_unit = False
        self._unit_ends = False  # and has not yet
        self._folder = None  # of the last unit that was begun
        self._values_before = 0
        self._errors = {}
        self._said = set()
        self._starts = 0
        self._saves = False  # save() was called
        self._steps = None  # (lowest, highest) in which start() was called
        self._recorded = None  # and those in which that began to record
        self._failure = None  # or why recording has ended before its time
        self._step_ran = False  # one of those that step selects
        self._names_called = []
        self._threads = None  # torch's, when the rules were set
        self._told = None  # the step for which stop() has said what is missing
        self._world_size = 1
        self._refused = False  # rank selects other processes
        self._own_folder = None  # of a process without a rank
        self._lock = None
        self._online = False  # calls go to a checking process
        self._modules = ModuleHooks(probe)
        self._points = Points(probe, torch.Tensor, unseen=torch._C.DisableTorchFunction)
        self._times = StepTimes()
        self._groups = Groups() if torch.distributed.is_available() else None
        self._replicas = Replicas(probe, self, self._on_error) if self._looks_at_replicas() else None
        self._kernels = KernelDump(probe, config) if config.level == "L2" else None
        self._stance = compiled.eager_stance() if getattr(config, "compiled", "skip") == "eager" else None
        self._setup()

    def _looks_at_replicas(self):
        config = self.config
        return torch.distributed.is_available() and config.replicas and config.task in ("statistics", "tensor") and config.level in ("L0", "L1", "mix")

    def is_recording_step(self):
        return self._has_unit and not self.ended and os.getpid() == self.pid

    def _setup(self):
        probe.setup(torch.Tensor, torch.nn.Parameter, **self._callbacks())
        self._modules.in_place = selftest.prove_modules(probe)
        self._modules.eager = self._stance is not None
        if selftest.prove_compiled(probe) is False:
            log.info("it is not known when compiled code runs: what this torch says of it is not what was proven elsewhere")
        self._registry = apis.Registry(probe, selftest.in_place_kinds(probe), self.separator)
        if self.config.level in ("L1", "mix"):
            chosen = self.config.list or self.config.scope  # then risk_level has no say, as in msprobe 26
            self._registry.register(self.config.api_list, risk_level="ALL" if chosen else self.config.risk_level)
        elif self._kernels:
            self._registry.register(self.config.api_list, only=self._kernels.api, extra_flags=KERNEL)
            if self._registry.count == 0:
                raise MsprobeException(MsprobeException.INVALID_PARAM_ERROR,
                                       '"%s": there is no such API in the list of APIs of this torch' % self._kernels.name)
        self._registry.add_compilers()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self.close)

    def _callbacks(self):
        """What the extension asks Python for."""
        engine = getattr(torch.autograd.Variable, "_execution_engine", None)
        return dict(
            sequence_nr=getattr(torch.autograd, "_get_sequence_nr", None), grad_enabled=torch.is_grad_enabled,
            functorch_level=getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None),
            task_id=getattr(torch._C, "_current_graph_task_id", None), queue_callback=getattr(engine, "queue_callback", None),
            describe=describe, fetch=_fetch, total=device.total, stack_text=stacks.stack_text, trampoline=_make_trampoline, caller=apis.route,
            on_error=self._on_error, on_failure=self._on_failure, hook_module=self._modules.hook, on_overflow=self._on_overflow,
            overflow_flag=_device_overflow_flag() if self.config.task == "overflow_check" else None,
            on_kernel=self._kernels.run if self._kernels else None, modes=_function_modes(), is_programs=is_programs,
            set_eval_frame=getattr(getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None), "set_eval_frame", None),
            global_hooks=_global_hooks(), on_compiled=self._on_compiled, group=self._groups.describe if self._groups else None,
            watch=self._groups.watch if self._groups else None,
        )

    def _forked(self):
        probe.forked()
        if self._lock is not None:
            os.close(self._lock)  # the parent's: it is to end with the parent
            self._lock = None
        self._registry.uninstall()
        self.ended = True

    # ---- what goes wrong on our side -----------------------------------------------------------------------------------------------

    def _on_error(self, where, name, error, trace):
        if is_full(error):
            self._on_failure(str(error))
            self._pause()
            return
        kind = type(error).__name__
        text = "%s failed: name=%s, pid=%d\n%s" % (where, name, os.getpid(), "".join(traceback.format_exception(type(error), error, trace)))
        if kind not in self._errors:
            log.warning("%s failed for %s (%s: %s); that record is marked, training and recording go on. See dump_error_info.log",
                        where, name, kind, str(error).partition("\n")[0])
        self._errors[kind] = self._errors.get(kind, 0) + 1
        probe.note_error(text)

    def _on_failure(self, text):
        self.ended = True
        self._failure = self._failure or text
        self._say_once("failure", "error", "recording has ended: %s. What was recorded until now is complete and valid; training goes on.", text)

    def _on_overflow(self, name, stack):
        """A call's result holds inf or NaN. Raises when the limit is reached: everything is on disk before."""
        self.overflows += 1
        folder, where = self._unit_dir(), stacks.place(stack)
        self.first_overflow = self.first_overflow or name + where
        log.warning("[overflow %d] %s: its result holds inf or NaN%s; its inputs and outputs are in %s", self.overflows, name, where,
                    os.path.join(folder, "dump_tensor_data"))
        if self.config.overflow_nums == -1 or self.overflows < self.config.overflow_nums:
            return
        self.ended = True
        self._pause()
        self.flush()
        raise MsprobeException(MsprobeException.OVERFLOW_NUMS_ERROR, "%d overflow(s), as many as overflow_nums allows; the first one in %s. See %s"
                               % (self.overflows, self.first_overflow, folder))

    # ---- folders and rules ------------------------------------------------------------------------------------------------------------

    @property
    def current_step(self):
        return self.loop + self.init_step

    def _unit_dir(self):
        rank = self._claim() if self.rank is None else "rank%d" % self.rank
        return os.path.join(self.config.dump_path, "step%d/%s" % (self.current_step, rank))

    def _claim(self):
        """The folder of a process without a rank: "rank" for the first one that records into this dump_path, and one of its own for any other that
        does so at the same time. What tells them apart is a lock on dump_path itself, held until the process ends."""
        if self._own_folder is None:
            make_folder(self.config.dump_path)
            folder = "rank"
            if self._lock is None:  # or an interrupt came when there was one
                self._lock = os.open(self.config.dump_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                folder = "proc%d" % self.pid
                log.warning("another process without a rank records into %s; this one writes to folders named %s", self.config.dump_path, folder)
            except OSError as e:  # a file system without locks
                give_back(e)
                log.debug("%s: no lock: %s", self.config.dump_path, e)
            self._own_folder = folder
        return self._own_folder

    def take_rank(self, rank):
        """The program says it, before anything is recorded; later it is what it has been."""
        if self.rank is None and not self._opened:
            self.rank = rank
            set_rank(rank)

    def _selects_rank(self):
        """The rank is looked at when a selected step begins, until there is one. A launcher has said it before the first; later a process group may."""
        if self.rank is None and (not self._opened or _has_process_group()):
            self.rank, self._world_size = current_rank()
            set_rank(self.rank)
        return not self.config.rank or self.rank in self.config.rank

    def _open_unit(self):
        if not self._selects_rank():
            self._refused = True
            self.ended = self.rank is not None  # a process group may still be made
            return False
        try:
            return self._make_unit()
        except OSError as e:
            give_back(e)
            if not self._opened and not is_full(e) and self._starts <= 1:  # training has not begun
                raise wrong("dump_path is %r; it must name a folder that is there or can be made: %s" % (self.config.dump_path, e.strerror or e)) from None
            self._on_failure(str(e))
            return False

    def _make_unit(self):
        config = self.config
        folder = self._unit_dir()
        if self._kernels:
            self._kernels.begin_step(folder, self.rank)
            if npu_module() is not None:  # the device writes the data itself
                self._set_rules()
                self._has_unit = True
                return True
        if not self._opened:
            if not probe.counts()["open"]:  # an interrupt may have come in between
                older.move_aside(config.dump_path, os.path.basename(folder), self.rank, self._world_size)
                probe.open(config.dump_path, _writer_path(), 0, 1000 * config.writer_timeout)
            if config.online:
                self._online = self._online or online.open_sender(config, self.rank, _writer_path(), not self._rules["backward"])
            self._opened = True
        if self._unit_ends:
            probe.step()
            self._unit_ends = False
        files = config.task in ("tensor", "overflow_check") or bool(config.tensor_list)
        data = os.path.join(folder, "dump_tensor_data") if files else None
        if data:
            make_folder(data)
        self._begin_unit(folder, data)
        self._has_unit = True
        self._set_rules()
        if self._replicas and self._world_size > 1:
            self._replicas.begin()
        return True

    def _begin_unit(self, folder, data):
        """An interrupt may have come when this had been done and was not known yet. A folder that comes again, by set_init_step(), is begun anew, and not before
        everything of the earlier one is in its files."""
        again = folder == self._folder
        if probe.counts()["unit"]:
            if again:
                return
            probe.step()
        if again:
            self.flush()
        self._folder = folder
        shown = data and data.encode("utf-8", "backslashreplace").decode()  # a path need not be text
        probe.unit(folder, self.config.task, self.config.level, "pytorch", shown, data or "", self.config.level == "debug")
        if self._online:
            online.begin(folder, self.current_step)

    @functools.cached_property
    def _rules(self):
        """What of the rules no step changes."""
        config = self.config
        forward, backward = config.axis("forward", "backward")
        inputs, outputs = config.axis("input", "output")
        return dict(
            forward=forward, backward=backward, inputs=inputs, outputs=outputs, checksum=config.summary_mode == "md5",
            tensors=config.task in ("tensor", "overflow_check"), overflow=config.task == "overflow_check", structure=config.task == "structure",
            construct=config.level in ("L0", "mix"), expand=config.level == "mix", list=tuple(config.list) or None,
            tensor_list=tuple(config.tensor_list) or None, scope=tuple(config.scope) or None,
            kernel=self._kernels.number if self._kernels else -1,
        )

    def _set_rules(self):
        threads = torch.get_num_threads()
        if threads != self._threads or self.config.scope:  # a range begins anew
            probe.rules(threads=threads, **self._rules)
            self._threads = threads

    # ---- start, stop, step ------------------------------------------------------------------------------------------------------------

    def start(self, model=None, token_range=None):
        if model is not None:
            self.model = model
        if self._changing and os.getpid() == self.pid:
            self._end_recording()
        if self.started and not self.ended and os.getpid() == self.pid:
            self._say_once("twice", "warning", "start() was called again before stop(); recording goes on as it was")
        if self.ended or self.started or os.getpid() != self.pid or self.config.level == "debug":
            return
        self._start_failed = None
        try:
            self._start(token_range)
        except Exception as e:
            self._start_failed = str(e)
            raise

    def _note_step(self, step):
        self._starts += 1
        self._steps = _spanning(self._steps, step)
        self._step_ran = self._step_ran or step in self.config.step

    def _start(self, token_range):
        self._check_model(token_range is not None)
        if self._kernels and self._starts == 0 and may_record(self.config):
            self._kernels.check()
        self._note_step(self.current_step)
        if not self.config.is_dump_enabled():
            return
        if self.config.step and self.current_step > max(self.config.step):
            self._end_well()
            return
        if self.config.step and self.current_step not in self.config.step:
            return
        if not self._has_unit and not self._open_unit():
            return
        self._changing = self.started = True
        self._recorded = _spanning(self._recorded, self.current_step)
        self._values_before = probe.counts()["values"]
        if token_range is not None:
            self.tokens = TokenRange(self, token_range)
        else:
            self._resume()
        self._changing = False

    def _end_well(self):
        self.ended = True
        if self._replicas:
            self._replicas.close()
        log.info("msprobe ends successfully.")

    def _resume(self):
        config = self.config
        if config.level in ("L0", "mix"):
            self._modules.attach(self._models(), self._rules["backward"] and config.task != "structure")
        if self._stance:
            self._stance.take()
        self._registry.install()
        probe.start(config.level in ("L1", "mix", "L2"))

    def _pause(self):
        if self._stance:
            self._stance.leave()
        probe.stop()
        self._registry.uninstall()
        self._modules.detach()

    def _on_compiled(self, inside):
        """Compiled code is about to run, or has ended: what it may look at is as it would be without us."""
        if inside:
            self._registry.uninstall()
            self._modules.make_way()
        else:
            self._modules.come_back()
            self._registry.install()

    def _check_model(self, for_tokens=False):
        """A wrong one is told at once, whatever the step. Where nothing is asked of it, it may be any object that can be called."""
        level = self.config.level
        models = list(self.model) if isinstance(self.model, (list, tuple)) else [self.model]
        if level in ("L0", "mix") and isinstance(self.model, torch.jit.ScriptModule):
            models = []
        if level in ("L0", "mix") or for_tokens:
            if not models or not all(isinstance(m, torch.nn.Module) for m in models):
                raise wrong("model is %s; %s needs start(model) with a torch.nn.Module or a list of them"
                            % (type(self.model).__name__, "token_range" if for_tokens else "level " + level))
        elif self.model is not None and not all(callable(m) for m in models):
            raise wrong("model is %r; it must be a torch.nn.Module or a list of them" % (self.model,))

    def _models(self):
        if isinstance(self.model, torch.nn.Module):
            return [("", self.model)]
        return [("%d." % i, m) for i, m in enumerate(self.model)]

    def _end_recording(self):
        self._changing = True
        if self.tokens:
            self.tokens.end()
            self.tokens = None
        self._pause()
        self.started = self._changing = False

    def stop(self):
        if self.started:
            self._end_recording()
            if self._replicas and self._world_size > 1:
                self._replicas.stop()
            self.flush()
            if self._online:
                online.say(_core.online_counts())
        if os.getpid() == self.pid:
            self._say_what_is_missing()
            self._told = self.loop

    def flush(self):
        if not self._opened:
            return
        try:
            probe.flush()
        except OSError as e:
            give_back(e)
            self._on_failure(str(e))

    def step(self):
        if os.getpid() != self.pid:
            return
        if self.started or self.tokens or self._told != self.loop:
            self.stop()
        self.module_dump_end()
        try:
            self._modules.step()  # raises when that brings the last overflow that is allowed
        finally:
            self._points.step()
            self._end_replicas()
            self._times.step(self._has_unit)
            self._end_unit()

    def _end_replicas(self):
        if self._replicas and self._world_size > 1 and self.is_recording_step():
            self._replicas.step(self._folder)
        if self._replicas and self.ended:
            self._replicas.close()

    def _end_unit(self):
        """An interrupt that comes in between leaves what is not done to the next step."""
        self._unit_ends = self._has_unit or self._unit_ends
        self._has_unit = False
        self.loop += 1
        if self._groups:
            self._groups.step()
        if self._unit_ends:
            probe.step()
            self._unit_ends = False
            self.flush()
            if self._online:
                online.end()

    def close(self):
        if os.getpid() != self.pid or (self._closed and not self._opened):
            return
        self._closed = True
        if self._opened:
            self._say_what_was_not_called()
            self.stop()
            with contextlib.suppress(MsprobeException):  # an overflow, told in the log: there is no program left to stop
                self._modules.step()
            self._points.step()
            self._end_replicas()
            probe.step()
            probe.close()
            if self._online:
                self._online = False
                online.end()
                online.close(self.config.dump_path, self.config.online["linger"])
        self._opened = self._has_unit = False
        self._say_if_empty()
        self._say_what_there_is()

    def _say_what_was_not_called(self):
        if self.started:
            log.info("stop() was not called before the program ended; what was recorded is complete all the same")
        if self.loop == 0 and self._starts > 1:
            log.warning("step() was never called: all %d pieces between start() and stop() are in step%d", self._starts, self.current_step)

    def _say_what_there_is(self):
        """One line on what a run has left, measured and not guessed."""
        if not self._is_done() or self._folder is None or self._failure is not None:
            return
        folders = older.steps_of(self.config.dump_path, os.path.basename(self._folder))
        counts, steps = probe.counts(), len(folders)
        calls = counts["values"] or counts["records"]  # a call is an entry of dump.json, as in `msprobe show`; there may be none
        backward = calls - counts["made"] if counts["made"] else 0
        log.info("recorded %d call%s%s, %d step%s, %s in %s%s", calls, "" if calls == 1 else "s", " (%d of backward)" % backward if backward else "",
                 steps, "" if steps == 1 else "s", older.size_text(folders), self.config.dump_path, self._times.text())

    # ---- other ways to record -----------------------------------------------------------------------------------------------------------

    def save(self, variable, name, backward):
        config = self.config
        self._saves = True
        why = check_point(variable, name, backward, torch.Tensor)
        if why:
            self._refuse_point(why)
            return
        if config.level != "debug" or config.task not in ("tensor", "statistics"):
            return
        if self.ended or os.getpid() != self.pid or (config.step and self.current_step not in config.step):
            return
        if not self._has_unit and not self._open_unit():
            return
        self._points.save(variable, name, backward)

    def _refuse_point(self, why):
        """In the first step the program is told by an exception, as of any wrong argument. Later, when a value is not what it has been until then, hours of
        training are not to end with it."""
        if self.loop == 0 and os.getpid() == self.pid:
            raise wrong("save(): " + why)
        log.warning("save(): nothing is saved: %s", why)

    def module_dump(self, module, name):
        """Until module_dump_end() this one module is recorded, and no API."""
        if self.single is not None or not self.started or self._modules.is_known(module):
            return
        self.single = module
        probe.stop()
        self._registry.uninstall()
        self._modules.attach_one(module, name)
        probe.start(False)

    def module_dump_end(self):
        if self.single is None:
            return
        self._modules.detach_one(self.single)
        self.single = None
        if self.started:
            probe.stop()
            self._resume()

    def register_custom_api(self, module, api, prefix):
        target = apis.look_up(module, api)
        if not callable(target):
            raise _no_such_api(module, api)
        record = "%s.%s" % (prefix, api.rpartition(".")[2])
        if len(record.encode("utf-8", "replace")) > LONGEST_NAME:
            raise wrong("api_prefix is %.100r... and api is %.100r...; together they have more than %d bytes, which is what a name may have"
                        % (prefix, api, LONGEST_NAME))
        if self.config.level in ("L1", "mix"):
            try:
                self._registry.add_custom(module, api, target, record)
            except (AttributeError, TypeError) as e:
                raise wrong("api is %r; it cannot be recorded, because nothing can be put in its place: %s" % (api, e)) from None

    def restore_custom_api(self, module, api):
        if not callable(apis.look_up(module, api)):
            raise _no_such_api(module, api)
        self._registry.remove_custom(module, api)

    # ---- what there is to say ------------------------------------------------------------------------------------------------------------

    def _say_once(self, key, level, text, *args):
        if key not in self._said:
            self._said.add(key)
            getattr(log, level)(text, *args)

    def _say_what_is_missing(self):
        config = self.config
        nothing = probe.counts()["values"] == self._values_before
        if nothing:  # only then somebody asks for the names, and there may be thousands
            self._names_called = self._modules.called() + probe.called() or self._names_called
        if not self._stance:
            self._say_what_is_compiled()
        if self._is_other_rank():
            self._say_once("rank", "info", "nothing is recorded here: %s", self._why_empty())
        elif self._refused and not self._opened:
            self._say_once("rank", "warning", "nothing is recorded: %s", self._why_empty())
        elif self._kernels and self._kernels.done:
            return
        elif self._has_unit and nothing and config.level != "debug" and self._expects_values():
            self._say_once("empty", "warning", "nothing was recorded in step %d: %s", self.current_step, self._why_empty())

    def _say_what_is_compiled(self):
        found = ["module %s" % name if name else "the model" for name in self._modules.compiled]
        found += [region for region in stacks.compiled_regions() if not found or region != stacks.SOME_MODULE]
        new = [name for name in dict.fromkeys(found) if ("compiled", name) not in self._said]
        self._said.update(("compiled", name) for name in new)
        if new:
            more = ", ... (%d more)" % (len(new) - NAMES_SHOWN) if len(new) > NAMES_SHOWN else ""
            log.warning('%s%s %s compiled by torch.compile: what runs inside is not recorded; with "compiled": "eager" in config.json it is, as eager code',
                        ", ".join(new[:NAMES_SHOWN]), more, "is" if len(new) == 1 else "are")

    def _expects_values(self):
        return self.config.task not in ("structure", "overflow_check")

    def _is_other_rank(self):
        """This process is not selected, and another one is."""
        selected = self.config.rank
        return bool(selected) and self.rank is not None and self.rank not in selected and min(selected) < self._world_size

    def _why_empty(self):
        config = self.config
        if self._failure is not None:
            return "recording could not go on: %s" % self._failure
        if config.level == "debug" and config.task not in ("tensor", "statistics"):
            return "task is %s; level debug records with tasks statistics and tensor" % config.task
        if config.level == "debug":
            return self._why_no_points()
        if self._start_failed is not None:
            return "start() failed: %s" % self._start_failed
        if self._starts == 0:
            return "start() was never called"
        if config.dump_enable is False and self._recorded is None:
            return "dump_enable is false"
        if config.step and not self._step_ran:
            return "step selects %s, and the steps that ran are %d to %d" % (config.step, *self._steps)
        if config.rank and self.rank not in config.rank:
            if self.rank is None:
                return "rank selects %s, and this process has no rank: torch.distributed was not initialised when start() was called" % config.rank
            return "rank selects %s, and this process is rank %d of %d" % (config.rank, self.rank, self._world_size)
        if config.level == "L2":
            return "%s was not called" % config.kernel_api
        called = self._called()
        if config.list:
            return "list selects %s; names that were called: %s" % (config.list, called)
        if config.scope:
            return "scope begins with %s; names that were called: %s" % (config.scope[0], called)
        if config.data_mode != ["all"] and self._names_called:
            return "data_mode selects %s, of which these calls had nothing: %s" % (config.data_mode, called)
        if config.level == "L0":
            return "no module of the model was called between start() and stop()"
        return "no listed API%s was called between start() and stop()" % (" or module" if config.level == "mix" else "")

    def _why_no_points(self):
        if not self._saves:
            return "save() was never called"
        if self._refused:
            return "rank selects %s, and this process %s" % (self.config.rank, "has no rank" if self.rank is None else "is rank %d" % self.rank)
        if self.config.step:
            return "step selects %s, and save() was called in others, or with nothing that can be saved" % self.config.step
        return "save() was called with nothing that can be saved"

    def _called(self):
        names = self._names_called
        shown = ", ".join(names[:NAMES_SHOWN])
        return (shown + (", ... (%d more)" % (len(names) - NAMES_SHOWN) if len(names) > NAMES_SHOWN else "")) if names else "none"

    def _say_overflows(self):
        if self.config.task != "overflow_check":
            return
        if self.overflows:
            log.warning("%d overflow(s); the first one in %s", self.overflows, self.first_overflow)
        elif self._recorded is not None and self._failure is None:
            log.info("no overflow in step %d to %d", *self._recorded)
        elif self._recorded is not None:
            log.error("no overflow was seen in step %d to %d, but not all of that was looked at: %s", *self._recorded, self._why_empty())

    def _is_done(self):
        counts = probe.counts()
        if self.config.task == "overflow_check":  # there need not be any
            return self._recorded is not None
        if self.config.task == "structure":
            return counts["records"] > 0
        return counts["values"] > 0 or bool(self._kernels and self._kernels.done)

    def _is_worker(self):
        """A process that only helps, such as a data loader's worker that was spawned and has run the top of the script, where the debugger is built."""
        return multiprocessing.parent_process() is not None and self._starts == 0 and not self._saves and current_rank()[0] is None and self.rank is None

    def _say_if_empty(self):
        """A process that was to record and has nothing says why."""
        self._say_overflows()
        if not self._is_done() and not self._is_other_rank() and not self._is_worker():
            log.error("nothing was recorded: %s", self._why_empty())


class StepTimes:
    """How long steps take, from one step() to the next, with recording and without: only a program that runs both kinds tells what recording costs."""

    FEWEST = 3  # of each kind, for a median that one odd step does not make; the first step of all, which warms up, is none of them
    MOST = 100

    def __init__(self):
        self._last = None
        self._took = {True: [], False: []}

    def step(self, recorded):
        now = time.monotonic()
        if self._last is not None and len(self._took[recorded]) < self.MOST:
            self._took[recorded].append(now - self._last)
        self._last = now

    def text(self):
        with_us, without = self._took[True], self._took[False]
        if min(len(with_us), len(without)) < self.FEWEST or statistics.median(without) <= 0:
            return ""
        return ", %.2gx step time" % (statistics.median(with_us) / statistics.median(without))


class TokenRange:
    """Recording is on from the beginning of one forward of the model to that of another: tokens first to last of a generation, each with what is made of it."""

    def __init__(self, recorder, token_range):
        self._recorder = recorder
        self._first, self._last = token_range
        self._token = -1
        model = recorder.model[0] if isinstance(recorder.model, (list, tuple)) else recorder.model
        self._handles = [model.register_forward_pre_hook(self._before)]

    @staticmethod
    def check(token_range, model):
        good = isinstance(token_range, (list, tuple)) and len(token_range) == 2
        good = good and all(isinstance(x, int) and not isinstance(x, bool) for x in token_range) and 0 <= token_range[0] <= token_range[1]
        if not good:
            raise MsprobeException(MsprobeException.INVALID_PARAM_ERROR,
                                   "token_range is %r; it must be a list of two whole numbers, the first token and the last, at least 0" % (token_range,))
        if model is None:
            raise MsprobeException(MsprobeException.INVALID_PARAM_ERROR, "token_range needs a model: start(model, token_range=...)")

    def _before(self, *_):
        self._token += 1
        if self._token == self._first:
            self._recorder._resume()
        elif self._token == self._last + 1:
            self._recorder._pause()

    def end(self):
        for handle in self._handles:
            handle.remove()
