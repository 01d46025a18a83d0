"""What was found: rows of the csv files, and lines on the terminal."""

import os

from msprobe import _core
from msprobe.core.log import log

WORST = 3
FILE, BITS_FILE = "free_benchmark.csv", "free_benchmark_bits.csv"


class Findings:
    """Of one step."""

    def __init__(self, mode):
        self.mode = mode
        self.begin(None, 0, 0, "forward")

    def begin(self, folder, rank, step, stage):
        self.folder, self.rank, self.step, self.stage = folder, rank or 0, step, stage
        self.checked = self.found = 0
        self._bits = {}  # name -> (bits kept, of the type)

    def write(self, name, difference):
        """A row, on disk when this returns."""
        d = difference
        paths = [os.path.join(self.folder, FILE)]
        if d.bits is not None:
            paths.append(os.path.join(self.folder, BITS_FILE))
        _core.finding_write(paths[0], self.rank, self.mode, self.stage, self.step, name, str(d.output.dtype), tuple(d.output.shape), d.index,
                            d.ratio, d.flips, *((paths[1], d.bits) if d.bits is not None else ()))
        self.found += 1
        if d.bits is not None and d.bits[2] > 0:
            self._bits[name] = min(self._bits.get(name, (d.bits[0], d.bits[2])), (d.bits[0], d.bits[2]))

    def worst(self):
        """"Torch.sin.0.forward keeps 3.1 of 24 bits", the least first."""
        ranked = sorted(self._bits.items(), key=lambda item: (item[1], item[0]))[:WORST]
        return ["%s keeps %.1f of %d bits" % (name, kept, whole) for name, (kept, whole) in ranked]

    def say(self):
        """At the end of a step's piece."""
        calls = "%d call%s checked with %s" % (self.checked, "" if self.checked == 1 else "s", self.mode)
        if not self.found:
            if self.checked:
                log.info("free_benchmark: step %d: %s, none differs by more than is allowed", self.step, calls)
            return
        log.warning("free_benchmark: step %d: %s, %d result%s by more than is allowed: %s", self.step, calls, self.found,
                    " differs" if self.found == 1 else "s differ", os.path.join(self.folder, FILE))
        for line in self.worst():
            log.warning("free_benchmark: least stable: %s when its inputs change in their last bit", line)
