"""Train a small attention model on the CPU and record its first step: the lines with `debugger` are all that it takes.

    python train.py OUT            the healthy run
    python train.py OUT --fault    the same run, with a softmax kernel that forgets the end of a row

Both runs have the same seed, data and code. The fault imitates a classic bug of accelerator kernels: rows are worked on
in blocks of 16, and what remains at the end of a row is never written. Rows of 64 and 32 elements are right, rows of 20 are
not, so two of the three softmax calls of a step look healthy.
"""
import argparse
import contextlib
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from msprobe.pytorch import PrecisionDebugger

WIDTH, CLASSES, STEPS = 32, 8, 20
LENGTHS = (64, 32, 20)  # of the sequence in each block


class Block(nn.Module):
    """Attention over the sequence and a feed-forward layer, both around a residual connection."""

    def __init__(self, length):
        super().__init__()
        self.length = length
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x[:, : self.length]
        query, key, value = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        scores = torch.matmul(query, key.transpose(-1, -2)) / WIDTH**0.5
        weights = F.softmax(scores, dim=-1)
        x = x + self.project(torch.matmul(weights, value))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, WIDTH)
        self.blocks = nn.ModuleList(Block(length) for length in LENGTHS)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


class BrokenSoftmax(TorchFunctionMode):
    """The planted fault: what lies beyond the last full block of 16 elements of a row stays 0."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if resolve_name(function) == "torch.nn.functional.softmax":
            end = result.shape[-1] // 16 * 16
            result.data[..., end:] = 0  # .data: behind the back of autograd, as a broken kernel does it
        return result


def train(out, fault):
    torch.manual_seed(1234)
    torch.set_num_threads(1)  # so that both runs add their numbers in the same order
    debugger = PrecisionDebugger(os.path.join(os.path.dirname(__file__), "config.json"), dump_path=out)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens = torch.randint(0, 100, (16, LENGTHS[0]))
    labels = tokens[:, :4].sum(dim=1) % CLASSES
    for step in range(STEPS):
        debugger.start()
        with BrokenSoftmax() if fault else contextlib.nullcontext():
            loss = F.cross_entropy(model(tokens), labels)
            loss.backward()
        debugger.stop()
        optimizer.step()
        optimizer.zero_grad()
        debugger.step()
        if step % 5 == 0 or step == STEPS - 1:
            print(f"  step {step:2}  loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder for the dump")
    parser.add_argument("--fault", action="store_true", help="use the broken softmax kernel")
    arguments = parser.parse_args()
    train(arguments.out, arguments.fault)
