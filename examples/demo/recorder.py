"""A small recorder: every torch call of one training step, written as a dump that `msprobe compare` reads.

It shows the format with as little code as possible (dump.json, stack.json, construct.json and dump_tensor_data/*.pt of
task "tensor", level "L1"). Tensors are measured and saved by the C library.
"""
import json
import os
import traceback

import torch
from torch.overrides import TorchFunctionMode, resolve_name

import msprobe

PREFIXES = (("torch.nn.functional.", "Functional."), ("torch.Tensor.", "Tensor."), ("torch.", "Torch."))


def api_name(function):
    """'Functional.relu' for torch.nn.functional.relu; None for what is no call of interest (attributes, ...)."""
    name = resolve_name(function) or ""
    for prefix, short in PREFIXES:
        rest = name[len(prefix):]
        if name.startswith(prefix) and rest.isidentifier():
            return short + rest
    return None


def call_stack():
    """The frames of the training script, innermost first, as stack.json holds them."""
    frames = [f for f in traceback.extract_stack() if os.path.basename(f.filename) == "train.py"]
    return [f"File {os.path.relpath(f.filename)}, line {f.lineno}, in {f.name}, \n {f.line}" for f in reversed(frames)]


class Recorder(TorchFunctionMode):
    """`with Recorder(folder):` records the calls inside it; .save() writes the JSON files."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.tensors = os.path.join(folder, "dump_tensor_data")
        os.makedirs(self.tensors, exist_ok=True)
        self.data, self.stacks, self.calls = {}, {}, {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        api = api_name(function)
        if api is None:
            return function(*args, **kwargs)
        number = self.calls.get(api, 0)
        name = f"{api}.{number}"
        inputs = self.forward_inputs(name, args, kwargs)  # before the call: it may write to its arguments
        result = function(*args, **kwargs)
        if not any(isinstance(t, torch.Tensor) for t in as_list(result)):
            return result
        self.calls[api] = number + 1
        record = self.data.setdefault(f"{name}.forward", inputs)
        record["output"] = self.values(f"{name}.forward.output", as_list(result))
        self.stacks.setdefault(tuple(call_stack()), []).append(f"{name}.forward")
        self.watch_backward(name, result)
        return result

    def forward_inputs(self, name, args, kwargs):
        return {
            "input_args": self.values(f"{name}.forward.input", args),
            "input_kwargs": {k: self.value(f"{name}.forward.kwargs.{k}", v) for k, v in kwargs.items()},
            "is_recompute": False,
        }

    def watch_backward(self, name, result):
        node = getattr(result, "grad_fn", None)
        if node is not None:
            node.register_hook(lambda outputs, inputs: self.backward(name, inputs, outputs))

    def backward(self, name, inputs, outputs):
        self.data[f"{name}.backward"] = {
            "input": self.values(f"{name}.backward.input", inputs),
            "output": self.values(f"{name}.backward.output", outputs),
        }

    def values(self, path, items):
        return [self.value(f"{path}.{i}", item) for i, item in enumerate(items)]

    def value(self, path, item):
        """One argument or result as the format writes it."""
        if isinstance(item, torch.Tensor):
            return self.tensor(path, item)
        if isinstance(item, (list, tuple)):
            return self.values(path, item)
        if isinstance(item, (bool, int, float, str)):
            return {"type": type(item).__name__, "value": item}
        return None

    def tensor(self, path, tensor):
        file = f"{path}.pt"
        msprobe.save_pt(os.path.join(self.tensors, file), tensor.detach())
        stats = msprobe.stats(tensor)
        return {
            "type": "torch.Tensor",
            "dtype": str(tensor.dtype),
            "shape": list(tensor.shape),
            "Max": stats.max,
            "Min": stats.min,
            "Mean": stats.mean,
            "Norm": stats.norm,
            "requires_grad": tensor.requires_grad,
            "data_name": file,
        }

    def save(self):
        dump = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": self.tensors,
                "data": self.data}
        stack = {str(i): [names, list(frames)] for i, (frames, names) in enumerate(self.stacks.items())}
        for name, content in (("dump", dump), ("stack", stack), ("construct", {})):
            with open(os.path.join(self.folder, f"{name}.json"), "w") as file:
                json.dump(content, file, indent=1)


def as_list(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]
