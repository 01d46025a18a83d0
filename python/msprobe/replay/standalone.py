"""@NAME@, run by itself.

    python @FILE@ [--device cpu] [--no-backward] [--worst 5]

Needs PyTorch and @TENSORS@ beside it, nothing else. The call is made on the device with the recorded inputs, and
once more on the CPU in float64; what is printed is how far the device's results, and those that were recorded, are from
the float64 ones.

Errors are relative to each element's natural scale: its value together with what a relative change of the inputs by
2^-20 does to it, divided by 2^-20. In this scale an ideal kernel makes an error of one unit roundoff of the result's type.
"""
import argparse
import math
import os
import zlib

import torch

NAME = "@NAME@"
TENSORS = "@TENSORS@"
DOUBLE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}
NUDGE = 2.0 ** -20

# ---- the call: T has its tensors by name, D gives a type in the precision of the run
@CALL@
# ---- what goes in and comes out
def changed(t, key):
    """t with every number changed by about a relative NUDGE, by random numbers that the key chooses."""
    generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
    return t * (1 + NUDGE * torch.randn(t.shape, generator=generator, dtype=torch.float64)).to(t.dtype)


def inputs(tensors, device, double, round, key):
    out = {}
    for i, (name, t) in enumerate(tensors.items()):
        floating = t.is_floating_point() or t.is_complex()
        t = t.to(DOUBLE.get(t.dtype, t.dtype) if double else t.dtype, copy=True)
        if round is not None and floating:
            t = changed(t, "%s%d %d" % (key, i, round))
        out[name] = t.to(device)
    return out


def results_of(value, at):
    if isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from results_of(v, "%s.%d" % (at, i))
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from results_of(v, "%s.%s" % (at, k))
    elif isinstance(value, torch.Tensor):
        yield at, value


def run(tensors, device, double=False, round=None, backward=True):
    """Results by name: "output.0" of the call, "input.0" the gradient of an input."""
    T = inputs(tensors["inputs"], device, double, round, "input ")
    leaves = {name: T[name].requires_grad_(True) for name in GRADIENTS} if backward else {}
    if COPIES:  # the call writes into its input
        T = {name: t.clone() if name in leaves else t for name, t in T.items()}
    default = torch.get_default_dtype()
    try:
        if double:
            torch.set_default_dtype(torch.float64)
        with torch.enable_grad() if leaves else torch.no_grad():
            value = call(T, (lambda t: DOUBLE.get(t, t)) if double else (lambda t: t), device)
        found = dict(results_of(list(value) if isinstance(value, (list, tuple)) else [value], "output"))
        out = {at: t.detach().cpu() for at, t in found.items()}
        if leaves:
            given = inputs(tensors["incoming"], device, double, round, "gradient input.")
            pairs = [(found[at], given[at].to(found[at].dtype)) for at in given if at in found and found[at].requires_grad]
            got = torch.autograd.grad([r for r, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True) if pairs else []
            for name, gradient in zip(leaves, got):
                if gradient is not None:
                    out["gradient of " + name] = gradient.detach().cpu()
    finally:
        torch.set_default_dtype(default)
    return out


# ---- how far apart
def as_double(t):
    return torch.view_as_real(t).to(torch.float64) if t.is_complex() else t.to(torch.float64)


def scale_of(reference, near):
    want = as_double(reference)
    want = torch.where(torch.isfinite(want), want, torch.zeros_like(want))
    squares = want * want
    for other in near:
        change = (as_double(other) - as_double(reference)) / NUDGE
        squares = squares + torch.where(torch.isfinite(change), change * change, torch.zeros_like(change)) / len(near)
    scale = squares.sqrt()
    floor = 0.1 * math.sqrt(float(squares.mean())) if squares.numel() else 0.0
    return scale.clamp(min=floor)


def ulp_of(reference, dtype):
    """One step of the type at each element."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(as_double(reference))
    least = round(math.log2(info.tiny))
    return torch.ldexp(torch.full_like(as_double(reference), info.eps), (exponent - 1).clamp(min=least).to(torch.float64))


def measure(got, reference, scale):
    x, y = as_double(got), as_double(reference)
    finite = torch.isfinite(x) & torch.isfinite(y)
    alike = finite | (torch.isnan(x) & torch.isnan(y)) | (x == y)
    error = torch.where(finite, (x - y).abs(), torch.zeros_like(x))
    scaled = torch.where(scale > 0, error / scale, (error > 0).to(torch.float64))
    n = max(int(finite.sum()), 1)
    ulps = float((error / ulp_of(reference, got.dtype)).max()) if got.is_floating_point() and got.numel() else math.nan
    return {"rms": math.sqrt(float((scaled * scaled).sum()) / n), "max": float(scaled.max()) if scaled.numel() else 0.0,
            "ulp": ulps, "bad": int((~alike).sum()), "scaled": torch.where(alike, scaled, torch.full_like(scaled, math.inf))}


def place_of(index, shape):
    out = []
    for d in reversed(shape):
        out.append(index % d)
        index //= d
    return "[%s]" % ", ".join(str(i) for i in reversed(out))


def say(who, m, n):
    ulp = "" if math.isnan(m["ulp"]) else ", %.4g ulp at most" % m["ulp"]
    bad = ", %d of %d not finite where the other is" % (m["bad"], n) if m["bad"] else ""
    print("  %-12s error %.3g (root mean square), %.3g (largest)%s%s" % (who, m["rms"], m["max"], ulp, bad))


def show(at, device, recorded, reference, near, worst):
    scale = scale_of(reference, near)
    roundoff = torch.finfo(device.dtype).eps / 2 if device.is_floating_point() else 0.0
    print("%s  %s %s, one unit roundoff is %.3g" % (at, device.dtype, list(device.shape), roundoff))
    shown = [("this device", device)]
    if recorded is not None and recorded.shape == reference.shape:
        shown.append(("recorded", recorded))
    measured = [measure(t, reference, scale) for _, t in shown]
    for (who, t), m in zip(shown, measured):
        say(who, m, t.numel())
    together = torch.stack([m["scaled"].flatten() for m in measured]).max(0).values
    top = torch.topk(together, min(worst, together.numel())).indices.tolist() if together.numel() and not reference.is_complex() else []
    if top and float(together[top[0]]) > 0:
        print("  worst elements" + "".join("%26s" % who for who, _ in shown + [("float64", None)]))
        for i in top:
            values = [t.flatten()[i].item() for _, t in shown] + [reference.flatten()[i].item()]
            print("  %-14s" % place_of(i, list(device.shape)) + "".join("%26r" % v for v in values))


def main():
    parser = argparse.ArgumentParser(description="Run %s by itself and measure it against float64." % NAME)
    parser.add_argument("--device", default="cpu", help="where the call is made: cpu, cuda, cuda:1, npu, xpu, mps, ...")
    parser.add_argument("--no-backward", action="store_true", help="the call alone, no gradients")
    parser.add_argument("--worst", type=int, default=5, help="how many elements to show")
    a = parser.parse_args()
    if a.device.startswith("npu"):
        import torch_npu  # noqa: F401
    tensors = torch.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), TENSORS), weights_only=True)
    backward = not a.no_backward and bool(GRADIENTS)
    print("%s on %s with torch %s, against float64 on the CPU" % (NAME, a.device, torch.__version__))
    for note in NOTES:
        print("note: " + note)
    device = run(tensors, a.device, backward=backward)
    reference = run(tensors, "cpu", double=True, backward=backward)
    near = [run(tensors, "cpu", double=True, round=round, backward=backward) for round in (0, 1)]
    for at in device:
        if at in reference and reference[at].shape == device[at].shape:
            show(at, device[at], tensors["recorded"].get(at), reference[at], [n[at] for n in near if at in n], a.worst)


if __name__ == "__main__":
    main()
