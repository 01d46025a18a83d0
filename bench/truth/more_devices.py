"""Further benign devices: vector() gives what such a device makes of a kernel, or None where it does as the plain one."""
import numpy as np
import torch

from device import A, BF, F32, F64, LOW, MATMUL, NORMS, VEC64, W, is_f, like, mem, own, run_as, u

PROFILES = ["winograd", "online", "newton", "atomic", "ftz"]
TINY = 1.1754944e-38
FAR = 90.0  # deviations: from a mean so far off on, a variance in one pass leaves a norm's result less than half of float32's bits
# by a relative error of 3 units in the last place, and by an absolute one of two roundoffs of one
RELATIVE = {"aten::exp", "aten::rsqrt", "aten::sqrt", "aten::sigmoid", "aten::silu", "aten::softplus", "aten::elu", "aten::mish", "aten::reciprocal", "aten::expm1",
            "aten::pow.Tensor_Scalar", "aten::gelu_backward", "aten::silu_backward", "aten::softplus_backward", "aten::mish_backward", "aten::elu_backward",
            "aten::_softmax", "aten::cumprod", "aten::div.Tensor", "aten::linalg_vector_norm", "aten::std.correction", "aten::gelu"}
ABSOLUTE = {"aten::tanh", "aten::erf", "aten::sin", "aten::cos", "aten::log", "aten::_log_softmax", "aten::logsumexp", "aten::logcumsumexp",
            "aten::log_sigmoid_forward"}
SUMS = {"aten::sum.dim_IntList", "aten::mean.dim", "aten::sum", "aten::mean", "aten::cumsum"}


FLUSHES = RELATIVE | ABSOLUTE | SUMS | VEC64 | MATMUL | {"aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::mul.Scalar", "aten::square",
                                                         "aten::addcmul", "aten::_fused_rms_norm"}


def ulps(r, most):
    """Off by up to so many units in the last place, by what the bits say."""
    i = A.view.dtype(own(r.t), torch.int32)
    j = A.sub.Tensor(A.remainder.Scalar(A.bitwise_right_shift.Tensor_Scalar(i, 5), 2 * most + 1), most)
    y = A.view.dtype(A.add.Tensor(i, j), F32)
    a = A.abs.default(r.t)
    return W(A.where.self(A.logical_and.default(A.gt.Scalar(a, 1e-30), A.lt.Scalar(a, 1e30)), y, r.t))


def shaken(r):
    """Off by up to two roundoffs of one, zero where it is zero."""
    i = A.view.dtype(own(r.t), torch.int32)
    j = W(A.sub.Tensor(A.remainder.Scalar(A.bitwise_right_shift.Tensor_Scalar(i, 5), 5), 2)).to(F32) * 2.0 ** -24
    y = r + j
    ok = A.logical_and.default(A.gt.Scalar(A.abs.default(r.t), 1e-6), A.lt.Scalar(A.abs.default(r.t), 1e6))
    return W(A.where.self(ok, y.t, r.t))


def flushed(t):
    return A.where.self(A.lt.Scalar(A.abs.default(t), TINY), A.zeros_like.default(t), t) if isinstance(t, torch.Tensor) and t.dtype in (F32, BF) else t


def in_line(v, axis):
    """The sum, one after the other from the last, in float32."""
    return np.cumsum(np.flip(v, axis), axis, dtype=np.float32).take(-1, axis)


def sums(name, args, kwargs):
    x = W(args[0]).to(F32)
    v = mem(own(x.t)).reshape(x.shape)
    if name == "aten::cumsum":
        return None
    dims = args[1] if len(args) > 1 and args[1] else range(v.ndim)
    dims, keep = sorted(d % max(v.ndim, 1) for d in dims) if v.ndim else [], len(args) > 2 and args[2]
    n = int(np.prod([v.shape[d] for d in dims])) if dims else 1
    if n == 0:
        return None
    for d in reversed(dims):
        v = in_line(v, d)
    if keep:
        for d in dims:
            v = np.expand_dims(v, d)
    v = np.asarray(v, np.float32) / (np.float32(n) if "mean" in name else np.float32(1))
    return plain(v)


def plain(v):
    t = A.empty.memory_format(list(v.shape), dtype=F32)
    mem(t)[:] = np.ascontiguousarray(v, np.float32).reshape(-1)
    return W(t)


def normed(name, args, ref):
    """The variance as E[x^2] - E[x]^2, in one pass, where the mean is not so many deviations that half of the bits are lost."""
    x = W(args[0]).to(F32)
    if name == "aten::native_layer_norm":
        dims, eps, n = [len(x.shape) - 1 - i for i in range(len(args[1]))], args[4], int(np.prod(args[1]))
        y = x
    elif name == "aten::native_group_norm":
        y = x.reshape([x.shape[0], args[6], -1])
        dims, eps, n = [2], args[7], y.shape[2]
    elif name == "aten::native_batch_norm" and args[5]:
        y, eps = x, args[7]
        dims = [j for j in range(len(x.shape)) if j != 1]
        n = x.t.numel() // x.shape[1]
    else:
        return None
    m, q = y.sum(dims) / n, (y * y).sum(dims) / n
    v = W(A.clamp_min.default((q - m * m).t, 0.0))
    c = y - m
    v = W(A.where.self(A.gt.Tensor((m * m).t, ((v + eps) * FAR * FAR).t), ((c * c).sum(dims) / n).t, v.t))
    r = W(A.rsqrt.default((v + eps).t))
    y = c * r
    if name == "aten::native_layer_norm":
        y = y * W(args[2]).to(F32) if args[2] is not None else y
        y = y + W(args[3]).to(F32) if args[3] is not None else y
    else:
        y = y.reshape(list(x.shape))
        sh = [1, -1] + [1] * (len(x.shape) - 2)
        if args[1] is not None:
            y = y * W(A.view.default(args[1], sh)).to(F32)
        if args[2] is not None:
            y = y + W(A.view.default(args[2], sh)).to(F32)
    return (like(y, ref[0]),) + tuple(like(A.view.default(own(s.t), list(o.shape)), o) if s.t.numel() == o.numel() else o for s, o in zip((m, r), ref[1:]))


def online(x, d):
    """A softmax in blocks of 8, scaled anew whenever the maximum grows."""
    n = x.shape[d]
    top = total = None
    for s in range(0, n, 8):
        b = x.sl(d, s, s + 8)
        t = b.amax(d)
        if top is not None:
            t = W(A.maximum.default(t.t, top.t))
        # a row that is -inf up to here
        safe = W(A.where.self(A.isinf.default(t.t), A.zeros_like.default(t.t), t.t))
        e = (b - safe).exp().sum(d)
        if top is not None:
            e = total * (top - safe).exp() + e
        top, total = t, e
    return top, total


BT = np.array([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]], np.float32)
G = np.array([[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], np.float32)
AT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32)


def winograd(x, w, pad):
    """A convolution of 3 by 3 in tiles of 4 by 4, in float32."""
    X, K = mem(own(W(x).to(F32).t)).reshape(x.shape), mem(own(W(w).to(F32).t)).reshape(w.shape)
    n, c, h, wd = X.shape
    oh, ow = h + 2 * pad[0] - 2, wd + 2 * pad[1] - 2
    th, tw = -(-oh // 4), -(-ow // 4)
    P = np.zeros((n, c, 4 * th + 2, 4 * tw + 2), np.float32)
    P[:, :, pad[0]:pad[0] + h, pad[1]:pad[1] + wd] = X
    tiles = np.lib.stride_tricks.sliding_window_view(P, (6, 6), (2, 3))[:, :, ::4, ::4]
    V = (BT @ tiles @ BT.T).astype(np.float32)
    U = (G @ K @ G.T).astype(np.float32)
    M = np.einsum("ocij,nctsij->notsij", U, V, optimize=True).astype(np.float32)
    Y = (AT @ M @ AT.T).astype(np.float32)
    Y = Y.transpose(0, 1, 2, 4, 3, 5).reshape(n, K.shape[0], 4 * th, 4 * tw)[:, :, :oh, :ow]
    return plain(Y)


def fits_winograd(x, w, st, dil, tr, g):
    return x.dim() == 4 and list(w.shape[2:]) == [3, 3] and list(st) == [1, 1] and list(dil) == [1, 1] and not tr and g == 1


def convolution(args):
    x, w, b, st, pad, dil, tr, _, g = args
    if not fits_winograd(x, w, st, dil, tr, g):
        return None
    r = winograd(x, w, pad)
    return r if b is None else r + W(A.view.default(b, [1, -1, 1, 1])).to(F32)


def convolution_backward(func, args):
    gy, x, w, _, st, pad, dil, tr, _, g, mask = args
    r = list(run_as(func, args, {}, F32))
    if mask[0] and fits_winograd(x, w, st, dil, tr, g) and max(pad) <= 2:
        r[0] = winograd(gy, A.transpose.int(A.flip.default(w, [2, 3]), 0, 1), [2 - p for p in pad]).t
    return tuple(r)


def added_up(name, args):
    """Sums into rows, in the type, from the last to the first."""
    if name == "aten::embedding_dense_backward":
        gr, ix, n, padding = args[0], args[1], args[2], args[3]
        r = A.zeros.default([n, gr.shape[-1]], dtype=gr.dtype)
        src, at, dim = A.view.default(own(gr), [-1, gr.shape[-1]]), mem(own(ix)), 0
        order = [j for j in reversed(range(at.size)) if at[j] != padding]
    elif name == "aten::index_add":
        r, dim, ix, src = own(args[0]), args[1], args[2], args[3]
        at = mem(own(ix))
        order = list(reversed(range(at.size)))
    elif name == "aten::scatter_add" and args[0].dim() == 1:
        r, dim, src, at = own(args[0]), 0, args[3], mem(own(args[2]))
        order = list(reversed(range(at.size)))
    else:
        return None
    for j in order:
        row = A.select.int(r, dim, int(at[j]))
        A.copy_.default(row, A.add.Tensor(row, A.select.int(src, dim, j)))
    return r


def vector(dev, name, func, args, kwargs, ref):
    p = dev.p
    low = any(isinstance(x, torch.Tensor) and x.dtype in LOW for x in args)
    if p == "newton":
        if name in RELATIVE and (name != "aten::div.Tensor" or isinstance(args[1], torch.Tensor)):
            if name == "aten::pow.Tensor_Scalar" and args[1] in (1, 2):
                return None
            return ulps(W(run_as(func, args, kwargs, F32)).to(F32), 3)
        if name in ABSOLUTE:
            r = run_as(func, args, kwargs, F32)
            return shaken(W(r)) if isinstance(r, torch.Tensor) else (shaken(W(r[0])).t,) + tuple(r[1:])
        return None
    if p == "online":
        if name in NORMS:
            return normed(name, args, ref)
        if name in ("aten::_softmax", "aten::_log_softmax"):
            x = W(args[0]).to(F32)
            top, total = online(x, args[1])
            return (x - top).exp() / total if name == "aten::_softmax" else x - top - total.log()
        return None
    if p == "atomic":
        if name in SUMS:
            return sums(name, args, kwargs)
        return added_up(name, args)
    return None
