"""The life of a run, and what becomes of each selected call."""

import functools
import os

import torch

from msprobe import _core
from msprobe._core import probe
from msprobe.core import older
from msprobe.core.log import log
from msprobe.core.files import make_folder
from msprobe.core.signals import give_back
from msprobe.pytorch.describe import unseen
from msprobe.pytorch.free_benchmark import backward, fix
from msprobe.pytorch.free_benchmark.call import MUTATING, Call, api_of, cannot_repeat, is_capturing, is_ordinary, tensors_in
from msprobe.pytorch.free_benchmark.change import KINDS, OneUlp, ToCpu, limit
from msprobe.pytorch.free_benchmark.findings import Findings
from msprobe.pytorch.free_benchmark.preheat import Preheat
from msprobe.pytorch.free_benchmark.results import bits_kept, differences, has_floats, is_right, outputs
from msprobe.pytorch.recorder import Recorder, is_full

UNREPEATABLE = 1 | 4 | 32  # flags of _core.probe.add: communication, waiting for it, and memory that nobody has written to


def full_names(scope):
    """Names as scope has them, with and without a direction."""
    return {name.rpartition(".")[0] if name.endswith((".forward", ".backward")) else name for name in scope}


class Benchmark(Recorder):
    """One per process, in the place of the recorder: nothing is recorded, calls are only shown to us."""

    def __init__(self, config, model=None):
        self.options = config.free_benchmark
        self._kind = KINDS[self.options.pert_mode]
        self._scope = full_names(config.scope)
        self._mutating = set(MUTATING)
        self._reasons = {}  # why calls were not checked -> how many
        self._checked = self._fixed = 0
        self.findings = Findings(self.options.pert_mode)
        self.preheat = Preheat(self.options) if self.options.if_preheat else None
        super().__init__(config, model)

    def _setup(self):
        super()._setup()
        probe.around(self._before, self._after)

    @functools.cached_property
    def _rules(self):
        return dict(list=tuple(self.config.list) or None)

    # ---- the recorder's life, without records ------------------------------------------------------------------------------------------

    def _make_unit(self):
        folder = self._unit_dir()
        if not self._opened:
            older.move_aside(self.config.dump_path, os.path.basename(folder), self.rank, self._world_size)
            self._opened = True
        if folder != self._folder:
            make_folder(folder)
        self._folder = folder
        self._has_unit = True
        self._set_rules()
        if self.preheat is not None:
            self.preheat.begin_step()
        self.findings.begin(folder, self.rank, self.current_step, self.options.fuzz_stage)
        return True

    def flush(self):
        pass  # a row is on disk when it was found

    def close(self):
        if os.getpid() != self.pid:
            return
        if self.started:
            self.stop()
        self._opened = self._has_unit = False
        self._say_if_empty()

    def _end_unit(self):
        super()._end_unit()
        probe.step()

    def _on_error(self, where, name, error, trace):
        if is_full(error):
            self._on_failure(str(error))
            self._pause()
            return
        self._not_checked("%s: %s" % (type(error).__name__, (str(error).splitlines() or [""])[0][:200]), name)

    # ---- one call ------------------------------------------------------------------------------------------------------------------------

    def _before(self, seen):
        """The call, where it is to be looked at afterwards, or None."""
        name, flags, function, receiver, args, kwargs = seen
        if flags & UNREPEATABLE or (self._scope and name.rpartition(".")[0] not in self._scope):
            return None
        args = (args or ()) if receiver is None else (receiver,) + (args or ())
        kwargs = kwargs or {}
        tensors = tensors_in(kwargs, tensors_in(args, []))
        if not any(t.is_floating_point() or t.is_complex() for t in tensors):
            return None
        number = 0 if self.preheat is None else self.preheat.count(name)
        if number == 0 and self.preheat is not None:
            return None
        reason = cannot_repeat()
        if reason is None and not all(is_ordinary(t) for t in tensors):
            reason = "a tensor of another kind (sparse, quantised, nested, meta, or a class of its own)"
        if reason is None and is_capturing(tensors):
            reason = "a CUDA graph is being captured"
        if reason is not None:
            self._not_checked(reason, name)
            return None
        with unseen():
            call = Call(name, function, args, kwargs, tensors, api_of(name) in self._mutating)
        call.number = number
        return call

    def _after(self, call, result):
        """What the program gets: its own result, but with handler_type fix."""
        with unseen():
            return self._concluded(call, result)

    def _concluded(self, call, result):
        drew = call.draws()
        written = call.changed_tensors()
        if written and call.copies is None:
            self._mutating.add(call.api)  # from now on it is given copies
            self._not_checked("its inputs changed while it ran, which was not expected of it the first time", call.name)
            return result
        if self.options.fuzz_stage == "backward":
            self._watch(call, result, drew)
            return result
        if self.options.handler_type == "fix":
            return self._fix(call, result, drew, {id(t) for t in written})
        self._check(call, result, drew)
        return result

    def _check(self, call, result, drew):
        first = outputs(call.result_of(result))
        if not first or not (has_floats(first) or self.options.pert_mode == "no_change"):
            return

        def again(change):
            with call.unnoticed(drew):
                return outputs(call.run(change))

        if self._is_elsewhere(call, drew):
            return
        change = self._kind(call.autocast)
        second = again(change)
        if change.touched:
            self._judge(call, call.name, first, second, change, again)

    def _is_elsewhere(self, call, drew):
        """The CPU's generator draws other numbers than a device's."""
        if drew and self.options.pert_mode == "to_cpu" and any(t.device.type != "cpu" for t in call.tensors):
            self._not_checked("it draws random numbers, which are others on the CPU", call.name)
            return True
        return False

    def _judge(self, call, name, first, second, change, again):
        """first and second: outputs; again(change): those of one more run."""
        found = differences(first, second, self.options.fuzz_stage == "backward")
        bound = None
        if self.preheat is not None:
            bound = self.preheat.judge(name, call.number, found, lambda: is_right(first, again(ToCpu(call.autocast))))
        self.findings.checked += 1
        self._checked += 1
        if self.options.fuzz_device == "cpu":
            bad = [d for d, a, g in zip(found, first, second) if not is_right([a], [g])]
        else:
            bad = [d for d in found if d.exceeds(limit(change, d.output.dtype) if bound is None else bound)]
        if not bad:
            return
        self._find_bits(found, first, again)
        for d in bad:
            self.findings.write(name, d)

    @staticmethod
    def _find_bits(found, first, again):
        """What one unit in the last place of the inputs does to the results."""
        ulp = OneUlp(False)
        try:
            moved = again(ulp)
            if ulp.touched and len(moved) == len(found):
                for d, bits in zip(found, bits_kept(first, moved)):
                    d.bits = bits
        except Exception as e:  # such inputs need not be allowed
            give_back(e)
            log.debug("one more run failed: %s", e)

    # ---- handler_type fix ------------------------------------------------------------------------------------------------------------------

    def _fix(self, call, result, drew, written):
        change = self._kind(call.autocast)
        seen = outputs(call.result_of(result))
        if not has_floats(seen) or self._is_elsewhere(call, drew):
            return result
        with call.unnoticed(drew):
            fixed = fix.run(call, change, written)
        if not change.touched:
            return result
        other, count = fix.replaced(call.result_of(result), fixed, call.tensors, written)
        self.findings.checked += 1
        self._checked += 1
        self._fixed += count
        return result if result is None else other

    # ---- fuzz_stage backward -----------------------------------------------------------------------------------------------------------------

    def _watch(self, call, result, drew):
        if not call.grad_mode or not any(call.needs_gradient) or self._is_elsewhere(call, drew):
            return
        seen = call.result_of(result)
        kept, step = backward.Kept(call, drew), self.loop

        def then(gradients, error=None):
            if self.loop != step:
                return  # a late gradient, of a step that is over
            if error is not None:
                self._on_error("a second run", kept.name, error, None)
            elif not kept.is_intact():
                self._mutating.add(call.api)
                self._not_checked("its inputs were written to between forward and backward; from now on they are kept", kept.name)
            else:
                self._check_gradients(kept, gradients)

        backward.watch(kept, seen, then)

    def _check_gradients(self, kept, gradients):
        scope = kept.unnoticed()

        def again(change):
            scope.begin_run()
            return kept.gradients(change, gradients)

        with scope:
            first = again(KINDS["no_change"](False))
            change = self._kind(bool(kept.autocast))
            second = again(change)
            if change.touched and first:
                self._judge(kept.call, kept.name, first, second, change, again)

    # ---- what there is to say ----------------------------------------------------------------------------------------------------------------

    def _not_checked(self, reason, name):
        count, first = self._reasons.get(reason, (0, name))
        self._reasons[reason] = count + 1, first
        if count == 0:
            log.warning("free_benchmark: %s is not checked: %s; training goes on", name, reason)

    def _say_what_is_missing(self):
        if not self._checked:
            self._names_called = probe.called() or self._names_called
        if self._is_other_rank():
            self._say_once("rank", "info", "nothing is checked here: %s", self._why_empty())
        elif self._refused and not self._opened:
            self._say_once("rank", "warning", "nothing is checked: %s", self._why_empty())
        elif self._has_unit and (self.findings.checked or self.findings.found):
            self._say_step()

    def _say_step(self):
        if self.options.handler_type == "fix":
            log.info("free_benchmark: step %d: %d call%s run again with %s, %d results replaced so far", self.current_step, self.findings.checked,
                     "" if self.findings.checked == 1 else "s", self.options.pert_mode, self._fixed)
        else:
            self.findings.say()

    def _is_done(self):
        return self._checked > 0

    def _say_if_empty(self):
        for reason, (count, first) in self._reasons.items():
            log.info("free_benchmark: %d call%s not checked, the first one %s: %s", count, "" if count == 1 else "s", first, reason)
        if not self._is_done() and not self._is_other_rank() and not self._is_worker():
            log.error("free_benchmark: no call was checked: %s", self._why_empty())

    def _why_empty(self):
        if self._started_well() and self.options.pert_mode in ("improve_precision", "to_cpu") and not self._names_wanted():
            return "pert_mode %s had nothing to raise: no selected call had float16 or bfloat16 inputs%s" % (
                self.options.pert_mode, "" if self.options.pert_mode == "improve_precision" else " or inputs on a device")
        return super()._why_empty()

    def _started_well(self):
        return self._recorded is not None and self._failure is None

    def _names_wanted(self):
        """list or scope selects nothing of what was called."""
        called = probe.called() or self._names_called
        wanted = self.config.list or list(self._scope)
        return wanted and not any(word in name for name in called for word in (w.rpartition(".")[0] if w in self._scope else w for w in wanted))
