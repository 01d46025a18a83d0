"""Which functions are recorded: support_wrap_ops.yaml, looked up in the installed torch.

The file's categories and the prefixes of their names in a dump. An object that torch exports under several names is recorded under the one by
which it is called, and not at all when that one is not listed; which one it is is read from the calling instruction (route).
"""

import ast
import dis
import functools
import inspect
import operator
import os
import sys

import torch

from msprobe.pytorch import wide
from msprobe.core.log import log
from msprobe.core.signals import give_back
from msprobe.pytorch.stacks import source_line

DISTRIBUTED, BY_CALLER, WAIT, UNINITIALISED, APART, FRAMES, PUTS_OFF = 1, 2, 4, 32, 64, 128, 256  # flags of _core.probe.add
FIRST, SECOND, UNLISTED = 0, 1, 2  # answers of route()

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook_module")
RISK_LEVELS = os.path.join(FOLDER, "risk_level.yaml")
ALWAYS_CORE = ("distributed", "npu_distributed", "torch_npu", "mindspeed")  # categories
LISTS = {"default": os.path.join(FOLDER, "support_wrap_ops.yaml"), "wide": os.path.join(FOLDER, "wide_wrap_ops.yaml"),
         "ptdbg": os.path.join(FOLDER, "ptdbg_wrap_ops.yaml"), "hooks": os.path.join(FOLDER, "ptdbg_wrap_ops.yaml")}

# Tensor.__rdiv__ is Tensor.__rtruediv__, a Python function that calls reciprocal and __mul__; `2 / a` shows these two for every tool that replaces
# attributes, and so it does here
LEFT_OUT = {("tensor", "__rdiv__")}

# one object, two names: the operator's is listed in the wide list only
OPERATORS = {"neg": "__neg__", "abs": "__abs__", "__idiv__": "__itruediv__"}

# what these return is memory that nobody has written to: its values mean nothing
UNWRITTEN = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")

# torch._VF reaches the same objects as torch; what torch's own recurrent modules call through it is listed there or not at all
RECURRENT = ("rnn_tanh", "rnn_relu", "lstm", "gru", "rnn_tanh_cell", "rnn_relu_cell", "lstm_cell", "gru_cell")

# all_gather_into_tensor and reduce_scatter_tensor, as torch 2.13 calls them. FSDP and torch's optimizers use these names as well, below the module or the
# gradient that is recorded: only the program's own calls are recorded
RENAMED = ("all_gather_single", "reduce_scatter_single")


def categories(which):
    """category -> (prefix, objects to look in, flags); where one object has two names the first category's is the usual one"""
    found = {
        "functional": ("Functional", [torch.nn.functional], 0),
        "tensor": ("Tensor", [torch.Tensor], 0),
        "_VF": ("VF", [torch._VF], 0),
        "torch": ("Torch", [torch], 0),
    }
    if which == "hooks":
        del found["_VF"]
    if which in ("hooks", "ptdbg"):
        if which == "ptdbg" and "torch_npu" in sys.modules:
            found["torch_npu"] = ("NPU", [sys.modules["torch_npu"]], 0)
        return found
    if which == "wide":
        found["aten"] = ("Aten", [torch.ops.aten], 0)
    if torch.distributed.is_available():
        c10d = torch.distributed.distributed_c10d
        found["distributed"] = ("Distributed", [torch.distributed, c10d], DISTRIBUTED)
    npu = sys.modules.get("torch_npu")
    if npu is not None:
        found["torch_npu"] = ("NPU", [npu, getattr(torch.ops, "npu", None)], 0)
        if hasattr(npu, "distributed"):
            found["npu_distributed"] = ("Distributed", [npu.distributed], DISTRIBUTED)
    mindspeed = sys.modules.get("mindspeed.ops")
    if mindspeed is not None:
        found["mindspeed"] = ("MindSpeed", [mindspeed], 0)
    return found


def look_up(module, dotted):
    for part in dotted.split("."):
        module = getattr(module, part, None)
    return module


def parse_list(text, path):
    """{category: [name, ...]} from `category:` and `- name` lines; anything else is an error that names its line."""
    listed, names = {}, None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].rstrip()
        word = line.strip()
        if not word or word == "---":
            continue
        if word.endswith(":") and not line[0].isspace():
            names = listed.setdefault(word[:-1].strip("\"' "), [])
        elif word.startswith("- ") and names is not None:
            names.append(word[2:].strip("\"' "))
        else:
            raise ValueError('%s: line %d: "%s": a category with a colon, or a name with a dash before it, is expected' % (path, number, word))
    return listed


def read_list(which):
    path = LISTS[which]
    if which == "wide" and not os.path.exists(path):
        return wide.make(path, read_list("default"))
    with open(path, encoding="utf-8") as f:
        return parse_list(f.read(), path)


def left_out_by(level):
    """(category, name of an API) -> bool: whether the key risk_level leaves it out."""
    if level == "ALL":
        return lambda category, name: False
    with open(RISK_LEVELS, encoding="utf-8") as f:
        named = parse_list(f.read(), RISK_LEVELS)
    core, low = set(named.get("core", ())), set(named.get("low", ()))
    return lambda category, name: category not in ALWAYS_CORE and (name not in core if level == "CORE" else name in low)


class Attributes:
    """Objects that stand in for others as attributes, there between start() and stop() only."""

    def __init__(self):
        self._items = {}  # (id of the owner, name) -> (owner, what stands there, what was there: or None when it is inherited)
        self._installed = False

    def add(self, owner, name, wrapper):
        own = vars(owner).get(name) if hasattr(owner, "__dict__") else getattr(owner, name)
        self._items[id(owner), name] = owner, wrapper, own
        if self._installed:
            setattr(owner, name, wrapper)

    def add_checked(self, owner, name, wrapper):
        """TypeError or AttributeError: the owner's attributes cannot be replaced, which start() would find out."""
        try:
            self.add(owner, name, wrapper)
            setattr(owner, name, wrapper)
        except (AttributeError, TypeError):
            del self._items[id(owner), name]
            raise
        if not self._installed:
            self._put_back(name, *self._items[id(owner), name])

    def remove(self, owner, name):
        """Returns whether there was one."""
        item = self._items.pop((id(owner), name), None)
        if item is not None and self._installed:
            self._put_back(name, *item)
        return item is not None

    def install(self):
        self._installed = True
        for (_, name), (owner, wrapper, _) in self._items.items():
            setattr(owner, name, wrapper)

    def uninstall(self):
        self._installed = False
        for (_, name), item in self._items.items():
            self._put_back(name, *item)

    @staticmethod
    def _put_back(name, owner, wrapper, own):
        current = vars(owner).get(name) if hasattr(owner, "__dict__") else getattr(owner, name)
        if current is not wrapper:
            return  # somebody else has put something there since
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    def __len__(self):
        return len(self._items)


class Registry:
    """The functions that are recorded."""

    def __init__(self, probe, in_place, separator="."):
        self._probe = probe
        self._separator = separator
        self._in_place = in_place  # kinds of objects that can be patched where they are
        self._packets = []
        self._wrappers = {}
        self.attributes = Attributes()
        self.count = 0

    def register(self, which, only=None, extra_flags=0, risk_level="ALL"):
        """Hand every function of the list ("default" or "wide") that this torch has to the extension; only: the one with this name in a dump."""
        listed, is_left_out = read_list(which), left_out_by(risk_level)
        for category, (prefix, owners, flags) in categories(which).items():
            for name in listed.get(category) or []:
                last = name.rpartition(".")[2]
                record = "%s.%s" % (prefix, last)
                if (category, name) not in LEFT_OUT and only in (None, record) and not is_left_out(category, last):
                    for owner in owners:
                        self._add_listed(owner, name, record, flags | extra_flags)
        if "distributed" in listed and torch.distributed.is_available() and only is None:
            self._add_wait()
            self._add_manager()

    def add_compilers(self):
        """What reads the code of a model and of the functions that it calls gets to see them without us."""
        owners = [(torch.jit, "script", APART | FRAMES)] + [(getattr(torch, "export", None), name, APART) for name in ("export", "draft_export")]
        for owner, name, flags in owners:
            target = getattr(owner, name, None)
            if kind_of(target) == "function":
                try:
                    self.add(owner, name, target, "%s.%s" % (owner.__name__, name), flags)
                except TypeError as e:
                    log.debug("%s.%s is left as it is: %s", owner.__name__, name, e)

    def _add_listed(self, owner, name, record, flags):
        target = look_up(owner, name)
        if target is None or not callable(target) or name.startswith("__") and owner is torch.ops.aten:
            return
        if isinstance(target, torch._ops.OpOverloadPacket):
            self._add_packet(target, record)
            return
        try:
            flags |= UNINITIALISED if name in UNWRITTEN else 0
            self.add(owner, name, target, record, flags | by_caller(owner, name, target))
        except TypeError as e:
            log.debug("%s is not recorded: %s", record, e)

    def add(self, owner, name, target, record, flags=0):
        """Patch target where it is when that can be done, else put an object in its place as owner.name."""
        shown = record.replace(".", self._separator)
        if kind_of(target) in self._in_place:
            self._probe.add(target, shown, flags)
            _NAMES.setdefault(target, []).append(record)
        else:
            part, _, last = name.rpartition(".")
            holder = look_up(owner, part) if part else owner
            self.attributes.add(holder, last, self._wrapper(target, shown, flags if last in RENAMED else flags & ~BY_CALLER))
        self.count += 1

    def _wrapper(self, target, shown, flags):
        """One object wherever torch shows the same function under the same name: it asks whether the one is the other."""
        key = id(target), shown  # the wrapper holds its target
        if key not in self._wrappers:
            self._wrappers[key] = self._probe.wrapper(target, shown, flags)
        return self._wrappers[key]

    def add_custom(self, module, api, target, record):
        part, _, last = api.rpartition(".")
        holder = look_up(module, part) if part else module
        kind = inspect.getattr_static(holder, last, None) if isinstance(holder, type) else None
        if isinstance(kind, classmethod):
            wrapper = classmethod(self._probe.wrapper(kind.__func__, record))
        else:
            wrapper = self._probe.wrapper(target, record)
        self.attributes.add_checked(holder, last, staticmethod(wrapper) if isinstance(kind, staticmethod) else wrapper)

    def remove_custom(self, module, api):
        part, _, last = api.rpartition(".")
        self.attributes.remove(look_up(module, part) if part else module, last)

    def _add_packet(self, packet, record):
        """torch.ops functions are recorded through their class: the object stays the same one."""
        call = self._probe.wrapper(functools.partial(type(packet).__call__, packet), record)
        _PACKETS[packet] = call
        self._packets.append((packet, type(packet)))
        self.count += 1

    def _add_wait(self):
        work = getattr(torch._C._distributed_c10d, "Work", None)
        wait = getattr(vars(work).get("wait"), "__func__", None) if work is not None else None
        if wait is None:
            return
        try:
            self._probe.add(wait, "Work.wait", WAIT)
        except TypeError:
            wrapper = self._probe.wrapper(work.wait, "Work.wait", WAIT)
            self.attributes.add(work, "wait", lambda handle, *a, **k: wrapper(handle, *a, **k))

    def _add_manager(self):
        c10d = torch.distributed.distributed_c10d
        manager = getattr(c10d, "_coalescing_manager", None)
        if manager is None or not hasattr(getattr(c10d, "_world", None), "pg_coalesce_state"):
            return  # a torch that puts no collective off
        for owner in (torch.distributed, c10d):
            self.add(owner, "_coalescing_manager", manager, "torch.coalescing", PUTS_OFF)

    def install(self):
        self.attributes.install()
        for packet, kind in self._packets:
            if type(packet) is kind:
                packet.__class__ = recorded_class(kind)

    def uninstall(self):
        self.attributes.uninstall()
        for packet, kind in self._packets:
            if type(packet) is not kind:
                packet.__class__ = kind


_PACKETS = {}  # torch.ops packet -> what records its calls


@functools.lru_cache(None)
def recorded_class(kind):
    class Recorded(kind):
        def __call__(self, /, *args, **kwargs):
            return _PACKETS[self](*args, **kwargs)

    Recorded.__name__, Recorded.__qualname__, Recorded.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Recorded


def kind_of(target):
    kind = {"builtin_function_or_method": "builtin", "method_descriptor": "method", "function": "function",
            "wrapper_descriptor": "slot"}.get(type(target).__name__, "other")
    return "other" if kind == "slot" and target.__name__ != "__setitem__" else kind


# ---- functions with several names ------------------------------------------------------------------------------------------------

_NAMES = {}  # object -> its names in a dump, in the order of their registration
_ROUTES = {}  # (code, offset, function) -> answer
MOST_ROUTES = 10000
_OPCODES = ("UNARY_NEGATIVE", "INPLACE_TRUE_DIVIDE", "BINARY_OP")


def by_caller(owner, name, target):
    """BY_CALLER when it has to be found out, call by call, under which name target is called."""
    if owner is torch.Tensor:
        return BY_CALLER if name in OPERATORS or name in OPERATORS.values() else 0
    if name in RECURRENT + RENAMED:
        return BY_CALLER
    return BY_CALLER if owner is torch.nn.functional and getattr(torch, name, None) is target else 0


def route(function):
    """By which of its names the running call reached function."""
    frame = sys._getframe(1)
    if frame.f_code is getattr(function, "__code__", None):  # the trampoline in its place (patch/function.c)
        frame = frame.f_back
    key = frame.f_code, frame.f_lasti, function
    if key not in _ROUTES:
        if len(_ROUTES) >= MOST_ROUTES:  # a program that makes code while it runs
            _ROUTES.clear()
        _ROUTES[key] = _find_route(frame, function)
    return _ROUTES[key]


def _find_route(frame, function):
    if getattr(function, "__name__", None) in RENAMED:
        return UNLISTED if frame.f_globals.get("__name__", "").startswith("torch.") else FIRST
    try:
        name = _name_at_call(frame, function)
    except Exception as e:  # an interpreter whose bytecode we do not know
        give_back(e)
        log.debug("the calling instruction cannot be read: %s", e)
        name = None
    names = _NAMES.get(function, ())
    if name is None or not names:
        return FIRST
    return names.index(name) if name in names[:2] else UNLISTED


def _name_at_call(frame, function):
    """"Torch.conv2d", "Tensor.__neg__": the name by which the instruction that runs now reaches function, or None."""
    code = [i for i in dis.get_instructions(frame.f_code) if i.opname not in _EMPTY or i.offset == frame.f_lasti]
    at = next(n for n, i in enumerate(code) if i.offset >= frame.f_lasti)
    while code[at].opname in _SILENT:
        at += 1
    usual = getattr(function, "__name__", "")
    if usual in OPERATORS:
        return "Tensor." + (OPERATORS[usual] if _is_operator(frame, code, at, usual) else usual)
    pushed, owner = _called(frame, code, at)
    if pushed is None:
        return None
    module = frame.f_locals.get(owner, frame.f_globals.get(owner)) if isinstance(owner, str) else None
    for prefix, known in (("Torch", torch), ("Functional", torch.nn.functional), ("VF", torch._VF)):
        if module is known and getattr(known, pushed, None) is function:
            return "%s.%s" % (prefix, pushed)
    return None


_EMPTY = ("KW_NAMES", "CACHE", "EXTENDED_ARG", "NOP")
_SILENT = _EMPTY + ("PRECALL", "PUSH_NULL")


def _is_operator(frame, code, at, name):
    """Whether an operator, a function that stands for one (abs(), operator.neg()) or the method of its name (__neg__) is what reaches the method name."""
    if code[at].opname in _OPCODES:
        return True
    called, owner = _called(frame, code, at)
    if called is None:
        return _callee(code, at, builtin=True)[0] == name == "abs"
    return called != name or frame.f_locals.get(owner, frame.f_globals.get(owner)) is operator


def _called(frame, code, at):
    """(attribute, name of its owner) of what the instruction calls, or None twice; the source tells where the instructions do not."""
    found = _callee(code, at)
    return found if found[0] is not None else _callee_in_source(frame, code[at])


def _callee_in_source(frame, instruction):
    """For f(*args) and arguments with branches, where the interpreter knows the place of an instruction in the source, from 3.11 on."""
    place = getattr(instruction, "positions", None)
    if not instruction.opname.startswith("CALL") or place is None or None in place:
        return None, None
    lines = [source_line(frame.f_code.co_filename, n, frame.f_globals).encode() for n in range(place.lineno, place.end_lineno + 1)]
    lines[-1] = lines[-1][:place.end_col_offset]
    lines[0] = lines[0][place.col_offset:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError) as e:
        give_back(e)
        return None, None  # the source is another one by now, or there is none
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None, None
    return call.func.attr, getattr(call.func.value, "id", "")


def _callee(code, at, builtin=False):
    """(attribute, name of its owner) of what a CALL instruction calls, found by walking back over what pushed the arguments; builtin: a plain name."""
    if not code[at].opname.startswith("CALL") or code[at].opname == "CALL_FUNCTION_EX":
        return None, None
    left = code[at].arg or 0
    at -= at > 0 and code[at - 1].opname == "PRECALL"  # of 3.11, which takes the arguments off before CALL does
    while left > 0 and at > 0:
        if code[at].is_jump_target:
            return None, None
        at -= 1
        left -= dis.stack_effect(code[at].opcode, code[at].arg if code[at].opcode >= dis.HAVE_ARGUMENT else None)
    at -= at > 0 and code[at - 1].opname == "PUSH_NULL"
    if left != 0 or at < 1:
        return None, None
    pushed = code[at - 1]
    if builtin:
        return (pushed.argval, None) if pushed.opname in ("LOAD_GLOBAL", "LOAD_NAME") else (None, None)
    if at < 2 or pushed.opname not in ("LOAD_METHOD", "LOAD_ATTR"):
        return None, None
    return pushed.argval, code[at - 2].argval
