"""Write a recorded call as a script of its own: python -m msprobe.replay.repro DUMP NAME FOLDER text|json|quiet

The script (standalone.py with the call filled in) and its tensors need torch and nothing of ours, so that whoever looks
after a kernel can run them.
"""
import io
import json
import math
import os
import re
import shlex
import sys

import torch

from msprobe.replay import functions
from msprobe.replay.arguments import NotRecorded
from msprobe.replay.dump import Dump, Recorded
from msprobe.replay.run import Prepared, Replay, _Run, first_line, leaves

OWNERS = {"Functional": "torch.nn.functional", "Torch": "torch", "Tensor": "torch.Tensor", "VF": "torch._VF", "Aten": "torch.ops.aten",
          "NPU": "torch_npu", "MindSpeed": "mindspeed.ops"}
IMPORTS = {"NPU": "import torch_npu\n", "MindSpeed": "import mindspeed.ops\n"}


class Code(str):
    """Text that stands in the script as it is."""


def code_of(value):
    """A value as Python writes it."""
    if isinstance(value, Code):
        return str(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "float(%r)" % str(value)
    if isinstance(value, torch.Size):
        return "torch.Size(%r)" % (list(value),)
    if isinstance(value, list):
        return "[%s]" % ", ".join(code_of(v) for v in value)
    if isinstance(value, tuple):
        return "(%s%s)" % (", ".join(code_of(v) for v in value), "," if len(value) == 1 else "")
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%r: %s" % (k, code_of(v)) for k, v in value.items())
    if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str, slice)):
        return "..." if value is Ellipsis else repr(value)
    raise NotRecorded("an argument of type %s" % type(value).__name__)


class Writer(_Run):
    """Goes the way of a replay, and writes the call down instead of making it."""

    def __init__(self, call):
        prepared = Prepared(call)
        if prepared.reason:
            raise NotRecorded(prepared.reason)
        prepared.choose()
        super().__init__(prepared, Replay(call), "recorded", 0.0, 0, True)
        self.tensors, self.wanted, self.notes = {}, [], []

    def input(self, recorded):
        name = "input.%d" % len(self.inputs)
        t = self.p.tensor(recorded, "input %d" % len(self.inputs))
        self.tensors[name] = t
        self.inputs.append((recorded, None))
        if self.backward and recorded.requires_grad and (t.is_floating_point() or t.is_complex()):
            self.wanted.append(name)
        return Code('T["%s"]' % name)

    def cast(self, v):
        if isinstance(v, torch.dtype):
            return Code("D(%s)" % v)
        return Code("device") if isinstance(v, torch.device) else v

    def expression(self):
        args, kwargs = self.arguments()
        if self.api in functions.MASKED:
            return self.mask(args, kwargs)
        if self.call.prefix == "Tensor" and self.api in functions.CASTS:
            return "%s.to(D(%s))" % (code_of(args[0]), functions.CASTS[self.api])
        if self.api in ("__getitem__", "__setitem__") and isinstance(args[1], list):
            args[1] = tuple(args[1])
        words = [code_of(a) for a in args] + ["%s=%s" % (k, code_of(v)) for k, v in kwargs.items()]
        text = "%s.%s(%s)" % (OWNERS[self.call.prefix], self.p.name, ", ".join(words))
        return "[%s, %s][1]" % (text, code_of(args[0])) if self.api == "__setitem__" else text

    def mask(self, args, kwargs):
        """Dropout is given the mask that its recorded result shows."""
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        if not training or not p:
            return "%s * 1" % code_of(args[0])
        leaf = next((leaf for _, leaf in leaves(self.call.forward.get("output", []), "output")), None)
        recorded = Recorded(leaf, self.call.folder) if leaf else None
        if recorded is None or recorded.path is None:
            raise NotRecorded("random: the mask is not part of the record")
        self.tensors["mask"] = self.p.tensor(recorded, "output.0") != 0
        self.notes.append("dropout is made with the mask that the recorded result shows")
        return '%s * T["mask"] / %r' % (code_of(args[0]), 1 - p) if p < 1 else "%s * 0" % code_of(args[0])

    def part(self, records, kind):
        """Recorded results of a record, by their paths; those without a file are left out."""
        out = {}
        for path, leaf in leaves(records.get("output", []), "output"):
            source = Recorded(leaf, self.call.folder) if leaf else None
            if source is not None and source.path is not None:
                out[path] = self.p.tensor(source, kind + " " + path)
        return out


def backward_part(writer):
    """The gradients of the results, by the results' names; and the recorded gradients of the inputs."""
    call = writer.call
    outputs = [at for at, leaf in leaves(call.forward.get("output", []), "output") if leaf is not None]
    incoming = [leaf for _, leaf in leaves(call.backward.get("input", []), "input")]
    given = {at: writer.p.tensor(Recorded(leaf, call.folder), "gradient " + at) for at, leaf in zip(outputs, incoming) if leaf is not None}
    recorded = writer.part(call.backward, "backward")
    named = {}
    for i, (path, leaf) in enumerate(leaves(call.backward.get("output", []), "output")):
        if leaf is not None and path in recorded and "input.%d" % i in writer.wanted:
            named["gradient of input.%d" % i] = recorded[path]
    return given, named


def script_of(call, file, tensors):
    """The script's text and what belongs into the file of its tensors. NotRecorded where it cannot be."""
    writer = Writer(call)
    expression = writer.expression()
    given, recorded = {}, writer.part(call.forward, "forward")
    if writer.backward and writer.wanted:
        given, gradients = backward_part(writer)
        recorded.update(gradients)
    if not given:
        writer.wanted = []
    if writer.p.made:
        writer.notes.append("the dump holds statistics only: the inputs are made from them, and results cannot be compared one by one")
    text = "%sdef call(T, D, device):\n    return %s\n\n\nGRADIENTS = %r  # inputs whose gradients are wanted\nCOPIES = %r\nNOTES = %r\n\n" % (
        IMPORTS.get(call.prefix, ""), expression, writer.wanted, writer.inplace, writer.notes)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "standalone.py"), encoding="utf-8") as f:
        template = f.read()
    for key, value in (("@NAME@", call.name), ("@FILE@", file), ("@TENSORS@", tensors), ("@CALL@", text)):
        template = template.replace(key, value)
    return template, {"inputs": writer.tensors, "incoming": given, "recorded": recorded}


def write(dump, name, folder):
    """Write both files and return their paths."""
    call = Dump(dump).call(name)
    stem = "repro_" + re.sub(r"[^A-Za-z0-9_.-]", "_", call.name)
    paths = [os.path.join(folder, stem + end) for end in (".py", ".pt")]
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError("%s is there already: nothing is written over; choose another -o" % path)
    text, tensors = script_of(call, os.path.basename(paths[0]), os.path.basename(paths[1]))
    os.makedirs(folder, mode=0o750, exist_ok=True)
    held = io.BytesIO()  # torch.save() into a file says nothing of why it cannot be written
    torch.save({part: {k: t.clone() for k, t in kept.items()} for part, kept in tensors.items()}, held)
    write_both(paths, (text.encode(), held.getbuffer()))
    return paths


def write_both(paths, contents):
    """Both files, or none."""
    made = []
    try:
        for path, content in zip(paths, contents):
            with open(path, "xb") as f:
                made.append(path)
                os.fchmod(f.fileno(), 0o640)
                f.write(content)
    except OSError as e:
        for path in made:
            os.unlink(path)
        raise OSError("%s: cannot write: %s; choose another folder with -o" % (path, e.strerror)) from None


def main():
    dump, name, folder, form = sys.argv[1:5]
    try:
        script, tensors = write(dump, name, folder)
    except NotRecorded as e:
        sys.exit("error: %s cannot be run again: %s" % (name, e))
    except (OSError, KeyError, ValueError, RuntimeError) as e:
        sys.exit("error: %s" % (e.args[0] if isinstance(e, KeyError) else str(e) if isinstance(e, OSError) else first_line(e)))
    if form == "json":
        print(json.dumps({"version": 1, "script": script, "tensors": tensors}, indent=1))
    elif form == "text":
        print("\n  Written       %s\n                %s\n  Next          python %s --device cpu" % (script, tensors, shlex.quote(script)))


if __name__ == "__main__":
    main()
