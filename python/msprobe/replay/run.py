"""Run one recorded call again, forward and backward."""
import contextlib
import math

import torch

from msprobe.replay import functions
from msprobe.replay.arguments import Builder, NotRecorded, is_tensor, load, make, seed_of
from msprobe.replay.dump import Recorded

RAISED = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64, torch.complex64: torch.complex128}
DOUBLE = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
DOUBLE[torch.complex64] = torch.complex128
PRECISIONS = {"recorded": {}, "raised": RAISED, "double": DOUBLE}
LARGE = 1 << 20  # elements
# functions whose second result (or only one) are positions along a dimension: which of two equal values is meant is the device's choice
ARGS = {"argmax": 0, "argmin": 0, "argsort": 0, "topk": 1, "sort": 1, "max": 1, "min": 1, "kthvalue": 1, "median": 1, "mode": 1}


class Result:
    """One result: `at` ("output.0"), `recorded` and `computed` tensors; recorded is None where its elements were not recorded."""

    __slots__ = ("at", "recorded", "computed", "source")

    def __init__(self, at, recorded, computed, source):
        self.at, self.recorded, self.computed, self.source = at, recorded, computed, source


class Replay:
    """What came of it: reasons are None where it was run. gradient_reason says why there are no gradients."""

    def __init__(self, call):
        self.call, self.reason, self.gradient_reason = call, None, None
        self.outputs, self.gradients = [], []
        self.numbers = {}  # results that are numbers, by their place


def leaves(value, at):
    """(path, tensor record or None) of everything in a record's part, lists first to last."""
    if isinstance(value, list):
        for i, v in enumerate(value):
            yield from leaves(v, "%s.%d" % (at, i))
    elif isinstance(value, dict) and not is_tensor(value) and "type" not in value:
        for k, v in value.items():
            yield from leaves(v, "%s.%s" % (at, k))
    else:
        yield at, value if is_tensor(value) else None


def scalars(value):
    """A record's part without its tensors."""
    if isinstance(value, list):
        return [scalars(v) for v in value]
    if is_tensor(value):
        return None
    return {k: scalars(v) for k, v in value.items()} if isinstance(value, dict) else value


def tensors_of(value, at):
    """Likewise of what a function has returned; numbers as they are."""
    if isinstance(value, (list, tuple)):
        for i, v in enumerate(value):
            yield from tensors_of(v, "%s.%d" % (at, i))
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from tensors_of(v, "%s.%s" % (at, k))
    else:
        yield at, value if isinstance(value, (torch.Tensor, bool, int, float)) else None


def hf32(t):
    """float32 numbers rounded to HF32, the form in which an NPU multiplies them in convolutions: eleven bits behind the point."""
    return ((((t.view(torch.int32) >> 11) + 1) >> 1) << 12).view(torch.float32)


class Prepared:
    """A call with its tensors in memory: run() may be called many times."""

    def __init__(self, call, device="cpu", seed=0, factors=None):
        self.call, self.device, self.seed = call, device, seed
        self.factors = {} if factors is None else factors
        self.reason = functions.refusal(call)
        self.cache, self.made = {}, False
        # accelerators multiply float32 in fewer bits there: numbers that have no more are multiplied the same everywhere
        self.rounds = device.partition(":")[0] != "cpu" and call.api in ("conv1d", "conv2d")
        self.choice = [] if self.reason else functions.candidates(call.prefix, call.api)
        self.name, self.function = self.choice[0] if self.choice else (None, None)

    def tensor(self, recorded, key):
        """The tensor as it was recorded, on the host."""
        if key not in self.cache:
            if recorded.path is None:
                self.made = True
                self.cache[key] = make(recorded, seed_of(key, self.seed))
            else:
                try:
                    self.cache[key] = load(recorded)
                except (OSError, ValueError) as e:
                    raise NotRecorded("its inputs cannot be read: %s" % e) from None
            if self.rounds and key.startswith("input ") and self.cache[key].dtype == torch.float32:
                self.cache[key] = hf32(self.cache[key])
        return self.cache[key]

    def factor(self, key, round, nudge, shape):
        """What a number that goes in is multiplied by to change it a little. Both sides of a call are changed alike, and may share it."""
        at = (key, round, nudge, tuple(shape))
        if at not in self.factors:
            generator = torch.Generator().manual_seed(seed_of("%s %d" % (key, round), self.seed))
            self.factors[at] = torch.randn(shape, generator=generator, dtype=torch.float64).mul_(nudge).add_(1)
        return self.factors[at]

    def taken(self):
        """Everything recorded that goes in: tensors by the key under which a run finds them, and the rest as it stands."""
        if self.call.forward is None:
            return None
        parts = [self.call.forward.get(k) for k in ("input_args", "input", "input_kwargs")]
        tensors, others = {}, []
        for at, leaf in (x for i, p in enumerate(parts) if p for x in leaves(p, str(i))):
            if leaf is None:
                continue
            key = "input %d" % len(tensors)
            tensors[key] = self.tensor(Recorded(leaf, self.call.folder), key)
            others.append((at, bool(leaf.get("requires_grad"))))
        for at, leaf in leaves((self.call.backward or {}).get("input", []), "input"):
            if leaf is not None:
                tensors["gradient " + at] = self.tensor(Recorded(leaf, self.call.folder), "gradient " + at)
        return tensors, others, [scalars(p) for p in parts]

    def takes_the_same_as(self, other):
        """Whether both were given the same to the bit, so that one reference does for both. NaN is never the same."""
        api = self.call.api.split(".")[-1]
        if api in functions.MASKED or api in ARGS or (self.call.prefix, api) != (other.call.prefix, other.call.api.split(".")[-1]):
            return False
        try:
            mine, theirs = self.taken(), other.taken()
        except (NotRecorded, OSError, ValueError):
            return False
        return (mine is not None and theirs is not None and mine[1:] == theirs[1:] and mine[0].keys() == theirs[0].keys()
                and all(a.dtype == theirs[0][k].dtype and torch.equal(a, theirs[0][k]) for k, a in mine[0].items()))

    def beside(self, replay):
        """The results of another run on the same inputs, beside what this call recorded."""
        out = Replay(self.call)
        out.gradient_reason = replay.gradient_reason
        for part, results, record, prefix in (("output", replay.outputs, self.call.forward, ""),
                                              ("output", replay.gradients, self.call.backward, "backward ")):
            there = dict(leaves((record or {}).get(part, []), part))
            kept = out.gradients if prefix else out.outputs
            for r in results:
                leaf = there.get(r.at)
                if leaf is not None:
                    source = Recorded(leaf, self.call.folder)
                    recorded = self.tensor(source, prefix + r.at) if source.path else None
                    kept.append(Result(r.at, recorded, r.computed, source))
        return out

    def excuse(self):
        """Why nobody is at fault that a call cannot be run, or nothing: it raised when it was recorded, or is given numbers that it does not take."""
        if "output" not in self.call.forward:
            return "no result of it was recorded, and "
        values = [*(self.call.forward.get("input_args") or []), *(self.call.forward.get("input_kwargs") or {}).values()]
        if None in values and "torch.complex" in str(self.call.forward):
            return "an argument that is null in its record may be a complex number, which records cannot hold: "
        return "with inputs made from statistics " if self.made else ""

    def choose(self):
        """Of several functions of one name the one whose results are nearest to those recorded."""
        choice, self.choice = self.choice, []
        nearest = math.inf
        for name, function in choice if len(choice) > 1 else ():
            before, (self.name, self.function) = (self.name, self.function), (name, function)
            distance = distance_of(self.run("raised"))
            if distance >= nearest:
                self.name, self.function = before
            nearest = min(distance, nearest)

    def run(self, precision="raised", nudge=0.0, round=0, backward=True):
        """nudge: every number that goes in is changed by about this relative amount, at random; round chooses the numbers."""
        self.choose()
        out = Replay(self.call)
        out.reason = self.reason
        if out.reason is None:
            default = torch.get_default_dtype()
            try:
                if precision == "double" or (precision == "raised" and default == torch.float32):
                    torch.set_default_dtype(torch.float64)
                _Run(self, out, precision, nudge, round, backward).go()
            except NotRecorded as e:
                out.reason = str(e)
            except OSError as e:
                out.reason = "its inputs cannot be read: %s" % e
            except Exception as e:  # whatever torch says of a call that it does not want
                out.reason = self.excuse() + "it cannot be run here: %s" % first_line(e)
            finally:
                torch.set_default_dtype(default)
        return out


def distance_of(replay):
    """How far results are from those recorded, relative to the largest; infinite where they have other places or shapes, or no gradient."""
    found, largest = {r.at: r for r in replay.outputs}, 0.0
    if replay.gradient_reason is not None:
        return math.inf
    for at, leaf in leaves((replay.call.forward or {}).get("output", []), "output"):
        if leaf is None:
            continue
        if replay.reason is not None or at not in found or list(found[at].computed.shape) != leaf["shape"]:
            return math.inf
        recorded, computed = found[at].recorded, found[at].computed
        if recorded is not None and recorded.numel():
            recorded, computed = (torch.nan_to_num(torch.view_as_real(t.to("cpu", torch.complex128).resolve_conj())) for t in (recorded, computed))
            error, size = float((recorded - computed).abs().max()), float(recorded.abs().max())
            largest = max(largest, error / size if size else error)
    return largest


def first_line(e):
    return (str(e).splitlines() or [type(e).__name__])[0][:200]


def backward(roots, gradients, wanted):
    """torch.autograd.grad(); given gradients it imports a library for symbolic shapes, which takes a second: large tensors are worth it."""
    if any(r.is_complex() or r.numel() >= LARGE for r in roots):
        return torch.autograd.grad(roots, wanted, gradients, allow_unused=True)
    total = sum((r * g).sum() for r, g in zip(roots, gradients))
    return torch.autograd.grad(total, wanted, allow_unused=True)


def memory_of(t):
    """Where its elements stand; None: in no one place (sparse, quantised)."""
    if t.layout != torch.strided or t.is_quantized:
        return None
    return (t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()).data_ptr()


def written(t):
    """A gradient that is 0 everywhere may be a tensor without memory."""
    return t.clone() if t is not None and t._is_zerotensor() else t


class _Run:
    def __init__(self, prepared, out, precision, nudge, round, backward):
        self.p, self.call, self.out, self.nudge, self.round = prepared, prepared.call, out, nudge, round
        self.map = PRECISIONS[precision]
        self.backward = backward and self.call.backward is not None
        self.inputs = []  # in the order of the record: (recorded, tensor as it goes in, leaf)
        self.given, self.kept = set(), 0  # the memory of what goes in; tensors that the function has kept for its gradient
        self.api = self.call.api.split(".")[-1]
        self.low = self.autocast_type() if precision == "double" else None
        self.inplace = (self.api.endswith("_") and not self.api.endswith("__")) or self.api.startswith("__i") or self.api == "__setitem__"
        self.inplace = self.inplace or self.asks_for_inplace()

    def autocast_type(self):
        """The 16-bit type of a product's result: to that autocast has rounded what it was given as float32."""
        types = {leaf["dtype"] for _, leaf in leaves(self.call.forward.get("output", []), "output") if leaf is not None}
        low = {"torch.float16": torch.float16, "torch.bfloat16": torch.bfloat16}
        return low.get(types.pop()) if self.api in functions.PRODUCTS and len(types) == 1 else None

    def asks_for_inplace(self):
        """F.relu(x, inplace=True), F.leaky_relu(x, 0.1, True)"""
        asked = self.kwargs().get("inplace")
        at = functions.position_of(self.p.function, "inplace") if self.call.prefix == "Functional" and asked is None else None
        if at is not None and at < len(self.args()):
            asked = self.args()[at]
        return isinstance(asked, dict) and asked.get("value") is True

    def args(self):
        found = self.call.forward.get("input_args", self.call.forward.get("input"))
        return found if isinstance(found, list) else []

    def kwargs(self):
        found = self.call.forward.get("input_kwargs")
        return found if isinstance(found, dict) else {}

    def lift(self, t, key):
        """A tensor in the precision of this run, and changed a little where that is wanted."""
        if self.low is not None and t.dtype == torch.float32:
            t = t.to(self.low)
        t = t.to(device=self.p.device, dtype=self.map.get(t.dtype, t.dtype), copy=True)
        if self.nudge and (t.is_floating_point() or t.is_complex()):
            numbers = torch.view_as_real(t) if t.is_complex() else t
            numbers.mul_(self.p.factor(key, self.round, self.nudge, numbers.shape).to(device=t.device, dtype=numbers.dtype))
        return t

    def keep(self, t):
        """What a function keeps for its gradient is a rounded number, too: its own result, a mean. What it was given is changed already."""
        if not t.is_floating_point() or memory_of(t) in self.given:
            return t
        self.kept += 1
        return t * self.p.factor("kept %d" % self.kept, self.round, self.nudge, t.shape).to(device=t.device, dtype=t.dtype)

    def input(self, recorded):
        key = "input %d" % len(self.inputs)
        t = self.lift(self.p.tensor(recorded, key), key)
        if self.backward and recorded.requires_grad and (t.is_floating_point() or t.is_complex()):
            t.requires_grad_(True)
            self.inputs.append((recorded, t))
            return t.clone() if self.inplace else t
        self.inputs.append((recorded, None))
        return t

    def arguments(self):
        builder = Builder(self.call, self.input)
        args = [self.positional(builder, v) for v in self.args()]
        kwargs = {k: builder.value(v, k) for k, v in self.kwargs().items()}
        if "out" in kwargs:
            kwargs.pop("out")
        return [self.cast(a) for a in args], {k: self.cast(v) for k, v in kwargs.items()}

    def positional(self, builder, v):
        if v == {} and self.api in ("to", "type"):  # the type is not part of the record: it is the result's
            for _, leaf in leaves(self.call.forward.get("output", []), "output"):
                if leaf is not None:
                    return getattr(torch, leaf["dtype"].rpartition(".")[2])
        return builder.value(v)

    def cast(self, v):
        if isinstance(v, torch.dtype):
            return self.map.get(v, v)
        return torch.device(self.p.device) if isinstance(v, torch.device) else v

    def go(self):
        args, kwargs = self.arguments()
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.enable_grad() if self.backward else torch.no_grad())
            if self.backward and self.nudge:
                self.given = {None} | {memory_of(t) for _, t in tensors_of([args, kwargs], "") if isinstance(t, torch.Tensor)}
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self.keep, lambda t: t))
            value = self.forward(args, kwargs)
        found = list(tensors_of(list(value) if isinstance(value, (list, tuple)) else [value], "output"))
        results = [(at, v if isinstance(v, torch.Tensor) else None) for at, v in found]
        self.out.numbers = {at: v for at, v in found if isinstance(v, (bool, int, float))}
        self.collect(results, args, kwargs)
        if self.backward:
            try:
                self.gradients([t for _, t in results])
            except NotRecorded as e:
                self.out.gradient_reason = str(e)
            except (RuntimeError, OSError, ValueError) as e:
                self.out.gradient_reason = self.p.excuse() + "it cannot be run backward here: %s" % first_line(e)

    def forward(self, args, kwargs):
        if self.api in functions.MASKED:
            return self.masked(args, kwargs)
        if self.api in ("lstm", "gru", "rnn_tanh", "rnn_relu") and len(args) >= 7 and isinstance(args[5], float) and args[5] > 0 and args[6]:
            raise NotRecorded("random: dropout between the layers")
        if self.api == "scaled_dot_product_attention" and (kwargs.get("dropout_p") or (len(args) > 4 and args[4])):
            raise NotRecorded("random: dropout inside the attention")
        if self.api == "multi_head_attention_forward" and len(args) > 10 and args[10] and kwargs.get("training", args[13] if len(args) > 13 else True):
            raise NotRecorded("random: dropout inside the attention")
        if self.call.prefix == "Tensor" and self.api in functions.CASTS:
            want = functions.CASTS[self.api]
            return args[0].to(self.map.get(want, want))
        if self.api in ("__getitem__", "__setitem__") and isinstance(args[1], list):
            args[1] = tuple(args[1])
        value = self.p.function(*args, **kwargs)
        return args[0] if self.api == "__setitem__" and value is None else value

    def masked(self, args, kwargs):
        """Dropout with the mask that the recorded result shows."""
        p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
        training = kwargs.get("training", args[2] if len(args) > 2 else True)
        if not training or not p:
            return args[0] * 1
        at, leaf = next(leaves(self.call.forward.get("output", []), "output"), (None, None))
        recorded = Recorded(leaf, self.call.folder) if leaf else None
        if recorded is None or recorded.path is None:
            raise NotRecorded("random: the mask is not part of the record")
        kept = self.p.tensor(recorded, at).to(self.p.device) != 0
        return args[0] * kept / (1 - p) if p < 1 else args[0] * 0

    def collect(self, results, args, kwargs):
        """Results beside the recorded ones; all of them where only inputs were recorded."""
        found = dict(results)
        if "output" not in self.call.forward:
            self.out.outputs += [Result(at, None, t.detach(), None) for at, t in results if t is not None]
            return
        for at, leaf in leaves(self.call.forward["output"], "output"):
            computed = found.get(at)
            if leaf is None and computed is not None and self.api == "__setitem__":  # which returns nothing
                self.out.outputs.append(Result(at, None, computed.detach(), None))
            if leaf is None or computed is None:
                continue
            source = Recorded(leaf, self.call.folder)
            recorded = self.p.tensor(source, at) if source.path else None
            computed = computed.detach()
            if recorded is not None and self.api in ARGS and not computed.is_floating_point() and computed.dtype != torch.bool:
                recorded, computed = self.chosen(recorded, computed, args, kwargs)
            self.out.outputs.append(Result(at, recorded, computed, source))

    def chosen(self, recorded, computed, args, kwargs):
        """Instead of positions the values that stand there."""
        x = args[0].detach() if isinstance(args[0], torch.Tensor) else None
        if x is None or x.dim() == 0 or recorded.shape != computed.shape or bool((recorded < 0).any()):
            return recorded, computed
        position = {"topk": 2, "kthvalue": 2}.get(self.api, 1)
        dim = kwargs.get("dim", args[position] if len(args) > position else None)
        if not isinstance(dim, int) or isinstance(dim, bool):
            if self.api in ("argmax", "argmin"):
                flat = x.reshape(-1)
                return (flat[recorded], flat[computed]) if int(recorded.max()) < flat.numel() else (recorded, computed)
            dim = -1
        if int(recorded.max() if recorded.numel() else 0) >= x.shape[dim]:
            return recorded, computed
        if recorded.dim() == x.dim() - 1:
            return x.gather(dim, recorded.unsqueeze(dim)).squeeze(dim), x.gather(dim, computed.unsqueeze(dim)).squeeze(dim)
        return x.gather(dim, recorded), x.gather(dim, computed)

    def gradients(self, results):
        """Gradients of the inputs, from the recorded gradients of the results."""
        incoming = list(leaves(self.call.backward.get("input", []), "input"))
        roots, gradients = [], []
        for (at, leaf), result in zip(incoming, [t for t in results if t is not None] + [None] * len(incoming)):
            if leaf is None or result is None or not result.requires_grad:
                continue
            g = self.lift(self.p.tensor(Recorded(leaf, self.call.folder), "gradient " + at), "gradient " + at)
            if g.shape != result.shape:
                raise NotRecorded("the recorded gradient has another shape than the result")
            roots.append(result)
            gradients.append(g.to(result.dtype))
        wanted = [t for _, t in self.inputs if t is not None]
        if not roots or not wanted:
            raise NotRecorded("no gradient of a result was recorded")
        got = iter(backward(roots, gradients, wanted))
        found = [None if t is None else written(next(got)) for _, t in self.inputs]
        if "output" not in self.call.backward:
            self.out.gradients += [Result("output.%d" % i, None, t, None) for i, t in enumerate(found) if t is not None]
            return
        for (at, leaf), computed in zip(leaves(self.call.backward["output"], "output"), found):
            if leaf is None or computed is None or tuple(leaf["shape"]) != tuple(computed.shape):
                continue
            source = Recorded(leaf, self.call.folder)
            recorded = self.p.tensor(source, "backward " + at) if source.path else None
            self.out.gradients.append(Result(at, recorded, computed, source))


def run(call, precision="raised", device="cpu", seed=0, backward=True):
    """Run a call again.

    precision  "recorded": in the types that were recorded; "raised": float16 and bfloat16 in float32, float32 in float64;
               "double": all of them in float64
    device     where it runs
    seed       for inputs of which only statistics were recorded
    """
    return Prepared(call, device, seed).run(precision, backward=backward)
