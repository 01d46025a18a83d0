"""if_preheat: each API's own threshold, learned in the first steps from calls that run on the CPU as well.

In the first step calls are only counted. The rules are in src/benchmark/preheat.c.
"""

from msprobe import _core

FIRST = 2.05  # the limit until something was learned


def short_name(name):
    """"Torch.mul" of "Torch.mul.0.forward"."""
    return name.rsplit(".", 2)[0]


class Preheat:
    def __init__(self, options):
        self._steps, self._most = options.preheat_step, options.max_sample
        self._step = -1
        self._totals = {}  # API -> its calls in the first step
        self._seen = {}  # API -> its calls in this step
        self._sampled = {}  # and how many of them were sampled
        self._known = {}  # (API, type) -> what is known: see _core.preheat_note

    def begin_step(self):
        self._step += 1
        self._seen, self._sampled = {}, {}

    def count(self, name):
        """The call's number among those of its API in this step, from 1; 0 in the first step, when none is checked."""
        api = short_name(name)
        self._seen[api] = self._seen.get(api, 0) + 1
        if self._step == 0:
            self._totals[api] = self._seen[api]
            return 0
        return self._seen[api]

    def judge(self, name, number, found, is_right):
        """The limit for this call. is_right() says whether the CPU agrees with its result."""
        api, dtype = short_name(name), str(found[0].output.dtype)
        known = self._known.get((api, dtype))
        bound = known[0] if known is not None else FIRST
        sampled, quota = _core.preheat_samples(self._totals.get(api, 0), self._steps, self._most, self._step, number)
        if sampled and self._step < self._steps:
            ratio = max(float("inf") if d.flips else d.ratio for d in found)
            self._known[api, dtype] = _core.preheat_note(known, ratio, is_right())
            self._sampled[api] = self._sampled.get(api, 0) + 1
            if self._sampled[api] >= quota:
                self._adjust(api)
        return bound

    def _adjust(self, api):
        for (of, dtype), known in self._known.items():
            if of == api:
                self._known[of, dtype] = _core.preheat_adjust(known, dtype)
