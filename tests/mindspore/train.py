"""Train a golden model for some steps, with or without a debugger, and print the bits of loss, gradients and weights.

    train.py <model> <steps> [config.json]  with the switches: no-model, inf, check-undo, graph, blocking
"""
import sys
import zlib

import golden_models as models
import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

model, steps, switches = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
config = next((s for s in switches if s.endswith(".json")), None)
ms.set_context(mode=ms.GRAPH_MODE if "graph" in switches else ms.PYNATIVE_MODE)


def attributes():
    """Every attribute that may be replaced, by identity."""
    places = (ops, ops.functional, mint, mint.nn.functional, ms.communication.comm_func, Tensor)
    modules = type(ms)  # sub-modules come when they are first used
    return {(str(p), n): id(v) for p in places for n, v in vars(p).items() if not isinstance(v, modules)}


if "blocking" in switches:
    ms.runtime.launch_blocking()
debugger = None
if config:
    from msprobe.mindspore import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=config)
net = models.build(model)
net.set_train(True)
loss_fn = nn.CrossEntropyLoss()
optimizer = nn.SGD(net.trainable_params(), 0.1)
classes = [type(p) for _, c in net.cells_and_names() for p in c._primitives.values()]
if "graph" in switches:
    debugger.start()
    train = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer)
    for i in range(steps):
        if i:
            debugger.start()
        print("loss", train(*models.batch(model, i)))
        debugger.stop()
        debugger.step()
    sys.exit(0)
grad = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)
before = attributes()
for i in range(steps):
    x, y = models.batch(model, i)
    if "inf" in switches:
        v = x.asnumpy().copy()
        v.flat[0] = np.inf
        x = Tensor(v)
    if debugger:
        debugger.start() if "no-model" in switches else debugger.start(net)
    loss, gradients = grad(x, y)
    optimizer(gradients)
    if debugger:
        debugger.stop()
        debugger.step()
    bits = 0
    for t in list(gradients) + list(net.get_parameters()):
        bits = zlib.crc32(t.asnumpy().tobytes(), bits)
    print("bits %d %08x loss %08x" % (i, bits, zlib.crc32(loss.asnumpy().tobytes())))
if "check-undo" in switches:
    after = attributes()
    differing = sorted(k for k in set(before) | set(after) if before.get(k) != after.get(k))
    assert not differing, "attributes differ after stop(): %s" % differing[:8]
    assert [type(p) for _, c in net.cells_and_names() for a, p in c._primitives.items() if not a.startswith("_cell_backward")] == classes
    print("undone")
