"""Call stacks as text, and what a stack tells about a call. Runs once per distinct stack: the extension knows a stack again by its code objects."""

import linecache
import os
import re
import sys
import tokenize

import torch

from msprobe._core import probe
from msprobe.core.signals import give_back

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

# what a compiler calls while it works is no call of the program
_COMPILERS = tuple(os.path.join(_TORCH, part) for part in (
    "_dynamo", "_inductor", "_export", "_subclasses", "_functorch/_aot_autograd", "_functorch/aot_autograd.py",
    "_functorch/partitioners.py", "fx/experimental"))
_COMPILED = os.path.join(_TORCH, "_functorch/_aot_autograd")  # around what compiled code runs, its backward too, which no callback tells of
# also around functions that are kept from being compiled, checkpoint() and optimizers, and around what a stance keeps from it
_WRAPPERS = tuple(os.path.join(_TORCH, "_dynamo", part) for part in ("eval_frame.py", "external_utils.py"))
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
SOME_MODULE = "a module of torch.nn"
_GRAPH = "<eval_with_key>"  # file of the code that torch.fx makes of a graph
_INLINER = _WRAPPERS[1], "inner"  # torch.compile's frame around a module of torch's own
CALL_IMPL = torch.nn.Module._call_impl.__code__
_CALLS_HOOK = r"^\s+hook_result = hook\(self, args, kwargs, result\)|^\s+hook_result = hook\(self, input, result\)"
_CALLS_FORWARD = r"^\s+result = forward_call\("
_FUNCTION = os.path.join(_TORCH, "autograd", "function.py")


def line_of(text):
    """Number and text of the line of Module._call_impl that holds this."""
    first, lines = CALL_IMPL.co_firstlineno, linecache.getlines(CALL_IMPL.co_filename)
    for number in range(first, min(first + 150, len(lines) + 1)):
        if re.search(text, lines[number - 1]):
            return number, lines[number - 1].strip()
    return None


def _as_with_hooks(inside):
    """The frames of Module._call_impl as they are when the module has hooks, which is how the original records it; inside: what runs in the
    innermost of them. Empty in a torch whose source reads differently."""
    found, outer = line_of(inside), line_of(r"^\s+return inner\(\)$")
    if found is None:
        return []
    shown = [(found, "inner" if outer else "_call_impl")] + ([(outer, "_call_impl")] if outer else [])
    return [_show(CALL_IMPL.co_filename, number, name, line) for (number, line), name in shown]


def _show(path, number, name, line):
    return "File %s, line %d, in %s, \n %s" % (path, number, name, line)


def _frame_text(frame, code, line):
    if code is CALL_IMPL and "return forward_call(" in line and probe.module_known(frame.f_locals.get("self")):
        shown = _as_with_hooks(_CALLS_FORWARD)
        if shown:
            return shown
    return [_show(code.co_filename, frame.f_lineno, code.co_name, line.strip())] if line else []


def _frame_parts(frame, code, line):
    return [code.co_filename, str(frame.f_lineno), code.co_name, line.strip()]


def source_line(filename, number, names):
    """linecache.getline(), which reads a file when it is asked for the first time. It takes any OSError for a file that is not there, also a TimeoutError
    that a signal's handler raised meanwhile: so the file is read here."""
    if filename not in linecache.cache and not filename.startswith("<"):
        _read_source(filename)
    return linecache.getline(filename, number, names)


def _read_source(filename):
    try:
        status = os.stat(filename)
        with tokenize.open(filename) as f:
            lines = f.readlines()
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as e:
        give_back(e)
        return  # linecache knows other places where it may be
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    linecache.cache[filename] = status.st_size, status.st_mtime, lines, filename


def stack_text(frame, form):
    """([text, ...] innermost first, whether the call repeats a forward for activation checkpointing, owner, is_internal)

    form: "frames", one text per frame; "module", the same for a module's own record, made without a hook but shown as if by one; "raised", the
    same for a module that an exception has ended, which the original records from around its forward(); "parts", what the older tools write: four texts
    per frame, path, line number, function and source ("": there is none).
    owner is "optimizer" or "clip_grad" for what an optimizer's step or gradient clipping calls, else None. is_internal: torch's own machinery made
    the call, and it is not recorded.
    """
    show = _frame_parts if form == "parts" else _frame_text
    own = {"module": _CALLS_HOOK, "raised": _CALLS_FORWARD}.get(form)
    texts = _as_with_hooks(own) if own else []
    seen = []
    while frame is not None:
        code = frame.f_code
        seen.append((code.co_filename, code.co_name))
        if not code.co_filename.startswith(_HERE):
            texts += show(frame, code, source_line(code.co_filename, frame.f_lineno, frame.f_globals))
        frame = frame.f_back
    if form == "parts":
        return texts, False, None, is_internal(seen)
    return texts or ["The call stack retrieval failed."], is_recompute(seen), owner(seen), is_internal(seen)


def place(text):
    """", called at train.py:12 in forward: y = f(x)" for a stack's joined text: the innermost line of the program. "" without a stack."""
    frames = re.findall(r"^File (.*), line (\d+), in (.*), \n (.*)$", text or "", re.MULTILINE)
    mine = [f for f in frames if not f[0].startswith(_TORCH)] or frames
    return ", called at %s:%s in %s: %s" % mine[0] if mine else ""


_CLIPS = ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_")


def owner(seen):
    """What gradient clipping or an optimizer's step calls belongs to it; torch's other functions that measure or scale gradients do not clip."""
    for path, name in seen:
        if name in _CLIPS and path.endswith("torch/nn/utils/clip_grad.py") or name.startswith("clip_grad_norm") and "megatron" in path:
            return "clip_grad"
        if path.endswith("torch/optim/optimizer.py"):
            return "optimizer"
    return None


def is_internal(seen):
    """True when no frame of the program stands between the call and a compiler, compiled code made it, or autograd's own glue."""
    if seen and seen[0] == (_FUNCTION, "apply"):
        return True  # a Function that returns its input: C++ calls view_as for it
    if any(path.startswith(_COMPILED) for path, _ in seen):
        return True
    for path, _ in seen:
        if path.startswith(_COMPILERS) and path not in _WRAPPERS:
            return True
        if not path.startswith((_TORCH, _GRAPH)):
            return False
    return False


def is_recompute(seen):
    """True when the frames (innermost first) show torch's checkpointing at work, re-entrant or not."""
    for i, (path, name) in enumerate(seen):
        if name in ("recompute_fn", "unpack") and path.endswith("torch/utils/checkpoint.py"):
            return True
        if name == "backward" or (name == "checkpoint_function_backward" and "megatron" in path):
            if any(p.endswith("torch/autograd/function.py") for p, _ in seen[i + 1:i + 3]):
                return True
    return False


# ---- compiled regions ------------------------------------------------------------------------------------------------------------

_RESUMED = "torch_dynamo_resume_in_"  # the rest of a function behind a break of its graph: the function is named


def _is_named(path):
    """Whether code of this file is worth a word: it is the program's, or that of a library which is no part of Python or torch."""
    return not path.startswith((_TORCH, _HERE)) and not (path.startswith(_STANDARD) and "-packages" + os.sep not in path)


def compiled_regions():
    """['f (file.py:12)', ...]: code that torch.compile has compiled in this process."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    codes = getattr(getattr(module, "input_codes", None), "seen", ())
    found = []
    for reference in list(codes):
        code = reference() if callable(reference) else reference
        where = code and (code.co_filename, code.co_name)
        if code is None or where != _INLINER and not _is_named(code.co_filename) or code.co_name.startswith(_RESUMED):
            continue
        found.append(SOME_MODULE if where == _INLINER else "%s (%s:%d)" % (code.co_name, code.co_filename, code.co_firstlineno))
    return sorted(set(found))
