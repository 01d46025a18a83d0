"""Dumps made by hand: as the collector writes them, as small as they can be."""
import json
import pathlib
import struct
import zlib


def tensor(value, dtype="torch.float32", shape=(2, 3), grad=False, **extra):
    """A leaf whose four statistics follow from one number."""
    leaf = {"type": "torch.Tensor", "dtype": dtype, "shape": list(shape), "Max": value, "Min": -value,
            "Mean": value / 2, "Norm": value * 2, "requires_grad": grad}
    leaf.update(extra)
    return leaf


def call(inputs, outputs):
    return {"input_args": inputs, "input_kwargs": {}, "output": outputs}


def frames(line):
    return ["File /x/site-packages/torch/nn/functional.py, line 9, in relu, \n return torch.relu(x)",
            "File /home/me/train.py, line %d, in forward, \n y = self.act(x)" % line]


def npy(path, values, shape=None):
    """A .npy of float32, without NumPy."""
    shape = tuple(shape or (len(values),))
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': %r, }" % (shape,)
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    data = struct.pack("<%df" % len(values), *values)
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def write(folder, records, task="statistics", framework="pytorch", level="L1", stack=True, construct=None):
    """dump.json, and beside it stack.json and construct.json where wanted."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data_dir = str(folder / "dump_tensor_data") if task == "tensor" else None
    (folder / "dump.json").write_text(json.dumps({"task": task, "level": level, "framework": framework,
                                                  "dump_data_dir": data_dir, "data": records}))
    if stack:
        numbered = {str(i): [[name], frames(10 + i)] for i, name in enumerate(records)}
        (folder / "stack.json").write_text(json.dumps(numbered))
    if construct is not None:
        (folder / "construct.json").write_text(json.dumps(construct))
    return folder


def statistics(folder, fault=1.0, **options):
    """linear, relu and gelu; fault scales what relu gives, and so what gelu takes and gives."""
    return write(folder, {
        "Functional.linear.0.forward": call([tensor(1.0), tensor(0.5, shape=(3,))], [tensor(2.0)]),
        "Functional.relu.0.forward": call([tensor(2.0)], [tensor(3.0 * fault)]),
        "Functional.gelu.0.forward": call([tensor(3.0 * fault)], [tensor(1.0 * fault)]),
    }, **options)


def checksums(folder, fault=0):
    def leaf(value):
        return tensor(value, md5="%08x" % zlib.crc32(struct.pack("<f", value)))
    return write(folder, {
        "Functional.linear.0.forward": call([leaf(1.0)], [leaf(2.0)]),
        "Functional.relu.0.forward": call([leaf(2.0)], [leaf(3.0 + fault)]),
    })


def real(folder, fault=0.0):
    """Real data: element [1, 2] of relu's output is off by fault."""
    folder = pathlib.Path(folder)
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    good = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    tensors = {"Functional.linear.0.forward.input.0": good, "Functional.linear.0.forward.output.0": good,
               "Functional.relu.0.forward.input.0": good,
               "Functional.relu.0.forward.output.0": good[:5] + [good[5] + fault]}
    records = {}
    for name, values in tensors.items():
        npy(folder / "dump_tensor_data" / (name + ".npy"), values, (2, 3))
        api, kind = name.rsplit(".", 2)[0], name.rsplit(".", 2)[1]
        record = records.setdefault(api, call([], []))
        leaf = tensor(max(values), data_name=name + ".npy")
        record["input_args" if kind == "input" else "output"].append(leaf)
    return write(folder, records, task="tensor")
