"""Further planted faults, in kernels that faults.py does not reach and of kinds that it does not know: plant() as there."""
import numpy as np
import torch

from device import A, BF, F32, LOW, W, is_f, like, mem, own, roundbits, run_as, u

MM = ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"]
CONV = ["aten::convolution"]
NORM = ["aten::native_layer_norm", "aten::native_batch_norm", "aten::native_group_norm", "aten::_fused_rms_norm"]
GRADS = ["aten::convolution_backward", "aten::native_layer_norm_backward", "aten::native_batch_norm_backward", "aten::native_group_norm_backward",
         "aten::gelu_backward", "aten::silu_backward", "aten::threshold_backward", "aten::_softmax_backward_data", "aten::_log_softmax_backward_data",
         "aten::embedding_dense_backward", "aten::upsample_bilinear2d_backward", "aten::nll_loss_backward", "aten::mse_loss_backward",
         "aten::elu_backward", "aten::softplus_backward", "aten::leaky_relu_backward", "aten::tanh_backward", "aten::sigmoid_backward",
         "aten::huber_loss_backward", "aten::mish_backward", "aten::hardswish_backward", "aten::hardtanh_backward", "aten::_prelu_kernel_backward",
         "aten::_embedding_bag_dense_backward", "aten::grid_sampler_2d_backward", "aten::smooth_l1_loss_backward"]
FUNC = ["aten::exp", "aten::log", "aten::tanh", "aten::sigmoid", "aten::gelu", "aten::silu", "aten::softplus", "aten::elu", "aten::mish", "aten::rsqrt",
        "aten::sqrt", "aten::sin", "aten::cos", "aten::pow.Tensor_Scalar", "aten::log_sigmoid_forward", "aten::hardswish", "aten::logsumexp", "aten::erf"]
SOFT = ["aten::_softmax", "aten::_log_softmax"]
ELEM = ["aten::add.Tensor", "aten::sub.Tensor", "aten::mul.Tensor", "aten::div.Tensor", "aten::addcmul"]
SUMS = ["aten::sum.dim_IntList", "aten::mean.dim", "aten::sum", "aten::mean"]
SCATTER = ["aten::scatter_add", "aten::index_add", "aten::index_put", "aten::embedding_dense_backward", "aten::_index_put_impl_", "aten::index_put_"]
TAKE = ["aten::index_select", "aten::gather", "aten::embedding", "aten::index.Tensor"]
SCAN = ["aten::cumsum", "aten::cumprod", "aten::logcumsumexp"]
UP = ["aten::upsample_bilinear2d", "aten::upsample_bicubic2d", "aten::upsample_bilinear2d_backward"]
ALL = MM + CONV + NORM + FUNC + SOFT + ELEM + GRADS

KINDS = {
    "stale_buffer": (ALL, "a"), "wrong_dim": (SOFT + SUMS[:2], "a"), "operand_transposed": (MM[:3], "a"), "window_off": (CONV, "f"), "pad_edge": (CONV, "f"),
    "lost_some": (SCATTER, "a"), "cast_cut": (["aten::_to_copy"], "a"), "cast_clamped": (["aten::_to_copy"], "f"), "triangle_off": (["aten::triu", "aten::tril"], "a"),
    "grad_missing": (GRADS, "b"), "interp_align": (UP, "a"), "var_n1": (NORM + ["aten::var.correction", "aten::std.correction"], "f"), "inf_one": (ALL, "a"),
    "slope": (["aten::leaky_relu", "aten::elu", "aten::_prelu_kernel"], "f"), "index_off": (TAKE, "a"), "scan_restarts": (SCAN, "a"),
    "sort_swap": (["aten::sort.stable", "aten::topk"], "f"), "low_function": (FUNC + SOFT, "a"), "stride_ignored": (MM + ELEM + FUNC + SOFT, "a"),
    "last_rows": (MM + NORM + SOFT, "a"), "group_mixed": (CONV, "f"), "sum_low": (SUMS + ["aten::linalg_vector_norm", "aten::logsumexp"], "a"),
    "noise_all": (FUNC + SOFT + NORM + ELEM + GRADS + CONV + MM, "a"), "noise_few": (ALL, "a"), "half_batch": (ALL, "a"),
    "loss_grad": (["aten::nll_loss_backward", "aten::mse_loss_backward", "aten::smooth_l1_loss_backward", "aten::huber_loss_backward", "aten::_log_softmax_backward_data"], "b"),
    "head_rolled": (["aten::bmm", "aten::baddbmm"], "a"), "where_flip": (["aten::where.self", "aten::masked_fill.Scalar"], "a"),
    "max_misses_last": (["aten::amax", "aten::max.dim"], "f"), "conjugated": (["aten::mul.Tensor"], "a"), "pad_value": (["aten::constant_pad_nd", "aten::reflection_pad2d"], "f"),
    "clamp_narrow": (["aten::clamp", "aten::hardtanh", "aten::clamp_min"], "f"), "sigmoid_gelu": (["aten::gelu"], "f"), "softmax_eps": (SOFT[:1], "f"),
    "bias_other_dim": (["aten::add.Tensor"], "f"), "grad_scaled": (GRADS + MM, "b"), "cat_swapped": (["aten::cat", "aten::stack"], "a"),
}


def fits(kind, e):
    """Whether a fault has a place in a call of the log."""
    if kind == "stride_ignored":
        return e[4]
    if kind == "conjugated":
        return e[7] == "complex"
    return e[3] or (e[0] in TAKE + ["aten::cat", "aten::stack"])


def transposed(t, d=-1, e=-2):
    return A.clone.default(A.transpose.int(t, d, e), memory_format=torch.contiguous_format)


def plant(dev, plan, name, func, args, kwargs, good, edit, put, i, g, again, rng):
    """None: there is nothing to damage here."""
    kind, a = plan["kind"], list(args)
    low = g.dtype in LOW
    if kind == "stale_buffer":
        old = dev.kept
        if old is None or old.shape != g.shape or old.dtype != g.dtype:
            return None
        o = A._to_copy.default(old, dtype=F32) if old.dtype != F32 else own(old)
        o = mem(own(o)).copy()

        def f(r):
            v = r.reshape(-1)
            w = max(1, v.size // 4)
            s = int(rng.integers(0, max(1, v.size - w)))
            v[s:s + w] = o[s:s + w]
        return put(edit(g, f))
    if kind == "wrong_dim":
        x = args[0]
        d = (args[1] if name in SOFT else (args[1] or [None])[0])
        if d is None or (name not in SOFT and len(args[1]) != 1):
            return None
        d %= x.dim()
        others = [j for j in range(x.dim()) if j != d and x.shape[j] == x.shape[d]]
        if not others:
            return None
        a[0] = transposed(x, d, others[-1])
        r = again(a)
        return like(transposed(r, d, others[-1]), good) if name in SOFT else r
    if kind == "operand_transposed":
        j = 2 if name == "aten::addmm" else 1
        if a[j].shape[-1] != a[j].shape[-2]:
            return None
        a[j] = transposed(a[j])
        return again(a)
    if kind in ("window_off", "pad_edge", "group_mixed"):
        x, w, b, st, pad, dil, tr, op, n = args
        if kind == "group_mixed":
            if n < 2 or tr:
                return None
            k = w.shape[0] // n
            a[1] = A.cat.default([A.slice.Tensor(w, 0, 0, k)] * n)
            return again(a)
        if kind == "window_off":
            x = A.roll.default(x, [1], [-1])
            A.fill_.Scalar(A.select.int(x, x.dim() - 1, 0), 0)
            a[0] = x
            return again(a)
        if tr or not any(pad):
            return None
        p = [q for y in reversed(pad) for q in (y, y)]
        wide = {1: A.replication_pad1d, 2: A.replication_pad2d}.get(x.dim() - 2)
        if wide is None:
            return None
        a[0], a[4] = wide.default(A._to_copy.default(x, dtype=F32), p), [0] * len(pad)
        a[0] = A._to_copy.default(a[0], dtype=x.dtype)
        return again(a)
    if kind == "lost_some":
        j = {"aten::scatter_add": 3, "aten::index_add": 3, "aten::index_put": 2, "aten::embedding_dense_backward": 0, "aten::_index_put_impl_": 2, "aten::index_put_": 2}[name]
        if name in ("aten::_index_put_impl_", "aten::index_put_"):
            return None
        s = own(args[j])
        n = s.shape[0]
        for k in rng.choice(n, max(1, n // 30), replace=False):
            A.fill_.Scalar(A.select.int(s, 0, int(k)), 0)
        a[j] = s
        return again(a)
    if kind in ("cast_cut", "cast_clamped"):
        if g.dtype not in LOW or args[0].dtype != F32:
            return None
        if kind == "cast_cut":
            return like(roundbits(args[0], 16 if g.dtype == BF else 13, True), g)
        return edit(g, lambda r: np.clip(r, -0.9 * np.abs(r).max(), 0.9 * np.abs(r).max()))
    if kind == "triangle_off":
        a = [args[0], (args[1] if len(args) > 1 else 0) + (1 if plan["seed"] % 2 else -1)]
        return func(*a)
    if kind == "grad_missing":
        return put(edit(g, lambda r: r * 0))
    if kind == "interp_align":
        j = 2 if not name.endswith("backward") else 3
        a[j] = not a[j]
        a = a[:j + 1]
        return like(run_as(func, a, {}, F32), g)
    if kind == "var_n1":
        if name.endswith("correction"):
            return edit(g, lambda r: r * np.float32(1 - 1 / 32))
        x = args[0]
        n = {"aten::native_layer_norm": x.shape[-1], "aten::_fused_rms_norm": x.shape[-1], "aten::native_batch_norm": x.numel() // x.shape[1],
             "aten::native_group_norm": x.numel() // x.shape[0] // (args[6] if name == "aten::native_group_norm" else 1)}[name]
        k = float(np.sqrt((n - 1) / n))
        w, b = (args[2], args[3]) if name == "aten::native_layer_norm" else (args[2], None) if name == "aten::_fused_rms_norm" else (args[1], args[2])
        y = good[0]
        if b is None:
            return (edit(y, lambda r: r * np.float32(k)),) + tuple(good[1:])
        sh = list(b.shape) if name == "aten::native_layer_norm" else [1, -1] + [1] * (x.dim() - 2)
        bb = W(A.view.default(b, sh)).to(F32)
        return (like((W(y).to(F32) - bb) * k + bb, y),) + tuple(good[1:])
    if kind == "inf_one":
        def f(r):
            r.reshape(-1)[rng.integers(r.size)] = np.inf if plan["seed"] % 2 else -np.inf
        return put(edit(g, f))
    if kind == "slope":
        if name == "aten::_prelu_kernel":
            a[1] = (W(args[1]) * 1.25).t
        else:
            a = a[:1] + [(a[1] if len(a) > 1 else 0.01 if name == "aten::leaky_relu" else 1.0) * 1.25] + a[2:]
        return again(a)
    if kind == "index_off":
        if name == "aten::index.Tensor":
            at = [k for k, x in enumerate(args[1]) if isinstance(x, torch.Tensor) and x.dtype == torch.int64]
            if not at:
                return None
            ix, n = args[1][at[0]], args[0].shape[at[0]]
        else:
            ix = args[1] if name == "aten::embedding" else args[2]
            n = args[0].shape[0 if name == "aten::embedding" else args[1]]
        c = own(ix)
        m = mem(c)
        if m.size < 2 or n < 2:
            return None
        k = int(rng.integers(m.size))
        m[k] = (m[k] + 1) % n
        if name == "aten::index.Tensor":
            a[1] = [c if k == at[0] else x for k, x in enumerate(args[1])]
        else:
            a[1 if name == "aten::embedding" else 2] = c
        return func(*a, **kwargs)
    if kind == "scan_restarts":
        x, d = args[0], args[1]
        n = x.shape[d]
        if n < 4:
            return None
        h = n // 2
        return like(A.cat.default([A.slice.Tensor(good, d, 0, h), func(A.slice.Tensor(x, d, h, n), d)], d), good)
    if kind == "sort_swap":
        v, ix = good
        if v.shape[-1] < 2:
            return None
        v, ix = own(v), own(ix)
        q, p = mem(ix).reshape(-1, ix.shape[-1]), mem(v).reshape(-1, v.shape[-1])
        j, k = int(rng.integers(q.shape[0])), int(rng.integers(q.shape[-1] - 1))
        q[j, [k, k + 1]] = q[j, [k + 1, k]]
        p[j, [k, k + 1]] = p[j, [k + 1, k]]
        return (v, ix)
    if kind == "low_function":
        def f(r):
            v = np.abs(r[np.isfinite(r)])
            r *= (1 + rng.uniform(-1, 1, r.shape) * (2.0 ** -5 if low else 2.0 ** -12)).astype(np.float32)
        return put(edit(g, f))
    if kind == "stride_ignored":
        for j, x in enumerate(args[:3]):
            if is_f(x) and not x.is_contiguous() and x.dim() > 1 and 0 not in x.stride():
                s, out = 1, []
                for n in reversed(x.shape):
                    out.append(s)
                    s *= n
                if s + x.storage_offset() > x.untyped_storage().nbytes() // x.element_size():
                    continue
                a[j] = own(A.as_strided.default(x, list(x.shape), out[::-1], x.storage_offset()))
                return again(a)
        return None
    if kind == "last_rows":
        def f(r):
            n = r.shape[0] % 8 or 8
            if r.shape[0] < 9:
                n = 1
            r[r.shape[0] - n:] = 0 if plan["seed"] % 2 else r[:n]
        return put(edit(g, f))
    if kind == "sum_low":
        x = W(args[0]).to(F32)
        if name == "aten::linalg_vector_norm":
            x = x * x
        if name == "aten::logsumexp":
            return edit(g, lambda r: (r.view(np.uint32) + np.uint32(0x8000) & np.uint32(0xFFFF0000)).view(np.float32)) if not low else None
        dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else None
        dims = list(range(len(x.shape))) if dims is None or name == "aten::linalg_vector_norm" and args[2] is None else [d % len(x.shape) for d in dims]
        perm = [j for j in range(len(x.shape)) if j not in dims] + dims
        v = mem(own(A.permute.default(x.t, perm))).reshape(int(np.prod([x.shape[j] for j in perm if j not in dims])), -1) if x.t.numel() else None
        if v is None or v.shape[1] < 16:
            return None
        s = np.zeros(v.shape[0], np.float32)
        for k in range(0, v.shape[1], 4):
            s = s + v[:, k:k + 4].sum(1)
            q = s.view(np.uint32)
            s = ((q + (0x7FFF + ((q >> 16) & 1)).astype(np.uint32)) & np.uint32(0xFFFF0000)).view(np.float32)
        s = s / v.shape[1] if name.startswith("aten::mean") else np.sqrt(s) if name == "aten::linalg_vector_norm" else s
        return edit(g, lambda r: s.reshape(r.shape).astype(np.float32) if s.size == r.size else None)
    if kind == "noise_all":
        def f(r):
            r *= (1 + rng.normal(0, 1, r.shape) * (2.0 ** -5 if low else 2.0 ** -9)).astype(np.float32)
        return put(edit(g, f))
    if kind == "noise_few":
        def f(r):
            v = r.reshape(-1)
            k = rng.choice(v.size, max(1, v.size // 100), replace=False)
            v[k] *= np.float32(1.2 if low else 1.01)
        return put(edit(g, f))
    if kind == "half_batch":
        def f(r):
            q = r.reshape(g.shape[0] if g.dim() else 1, -1)
            h = q.shape[0] // 2
            if h:
                q[h:2 * h] = q[:h]
        return put(edit(g, f))
    if kind == "loss_grad":
        return put(edit(g, lambda r: r * np.float32(1 - 1 / 32)))
    if kind == "head_rolled":
        return like(A.roll.default(good, [1], [0]), good) if good.shape[0] > 1 else None
    if kind == "where_flip":
        j = 0 if name == "aten::where.self" else 1
        c = own(args[j])
        m = mem(c)
        k = int(rng.integers(m.size))
        m[k] = not m[k]
        a[j] = c
        return func(*a, **kwargs)
    if kind == "max_misses_last":
        x = args[0]
        d = args[1][0] if isinstance(args[1], (list, tuple)) else args[1]
        if x.shape[d] < 2:
            return None
        a[0] = A.slice.Tensor(x, d, 0, x.shape[d] - 1)
        return func(*a, **kwargs)
    if kind == "conjugated":
        if not args[0].is_complex() or not isinstance(args[1], torch.Tensor):
            return None
        return func(args[0], A._conj_physical.default(args[1]))
    if kind == "pad_value":
        if name == "aten::reflection_pad2d":
            return like(A.replication_pad2d.default(args[0], args[1]), g)
        if all(p <= 0 for p in args[1]):
            return None
        return A.constant_pad_nd.default(args[0], args[1], 0.01)
    if kind == "clamp_narrow":
        def f(r):
            m = np.abs(r[np.isfinite(r)]).max() if np.isfinite(r).any() else 0
            np.clip(r, -0.97 * m, 0.97 * m, out=r)
        return edit(g, f)
    if kind == "sigmoid_gelu":
        x = W(args[0]).to(F32)
        return like(x * W(A.sigmoid.default((x * 1.702).t)), g)
    if kind == "softmax_eps":
        return edit(g, lambda r: r * np.float32(1 / (1 + (3e-2 if low else 1e-4))))
    if kind == "bias_other_dim":
        x, b = args[0], args[1]
        if not isinstance(b, torch.Tensor) or not is_f(x) or x.dim() < 2 or b.dim() != 1 or x.shape[-1] != x.shape[-2]:
            return None
        return again([x, A.unsqueeze.default(b, -1)])
    if kind == "grad_scaled":
        return put(edit(g, lambda r: r * np.float32(1 + (1 / 16 if low else 1 / 256))))
    if kind == "cat_swapped":
        t = list(args[0])
        for k in range(len(t) - 1):
            if t[k].shape == t[k + 1].shape:
                t[k], t[k + 1] = t[k + 1], t[k]
                return func(t, *args[1:])
        return None
    raise KeyError(kind)
