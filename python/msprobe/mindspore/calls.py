"""One call on its way: what is known before it runs and after, and collectives that go on when they have returned.

Inputs are measured before the call, outputs after it: what an in-place operation changes later was read before.
"""

from mindspore._c_expression import TensorPy


def sequence(value):
    return value if isinstance(value, (tuple, list)) else (value,)


def _handles(result):
    """Of a collective that was only begun: the program waits for it through them."""
    return [part for part in sequence(result) if not isinstance(part, TensorPy) and callable(getattr(part, "wait", None))]


def _operands(value):
    """batch_isend_irecv() is given objects that hold a tensor each."""
    if isinstance(value, (list, tuple)) and value and all(type(v).__name__ == "P2POp" for v in value):
        return [getattr(v, "tensor", None) for v in value]
    return value


class Call:
    __slots__ = ("recorder", "api", "name", "args", "kwargs", "record", "is_selected", "save", "stack", "parent", "cell", "gradients")

    def __init__(self, recorder, api, name, args, kwargs, cell=None):
        """cell: the one that is called."""
        self.recorder, self.api, self.name, self.args, self.kwargs, self.cell = recorder, api, name, args, kwargs, cell
        self.record, self.gradients, self.is_selected, self.save, self.stack, self.parent = {}, None, False, False, 0, None

    def before(self):
        recorder, is_nested = self.recorder, False
        try:
            recorder.enter(self.name)
            self.is_selected = recorder.selects(self.name)
            self.save = recorder.saves(self.name)
            (self.stack, is_nested), self.parent = recorder.stack(), recorder.parent()
            if self.is_selected and recorder.forward and recorder.inputs and not recorder.structure and (not recorder.overflow or self.api.written):
                self._measure_inputs(self.save)
        except Exception as e:
            self._was_not_read("inputs", e)
        try:
            if (self.cell is None or recorder.watches_cells) and recorder.follows(self.name, is_nested):
                kinds = (tuple, list) if self.cell is None else (tuple,)  # a cell may write to a list that it is given
                self.gradients, self.args, self.kwargs = recorder.gradients.follow_inputs(self.name, self.stack, self.parent, self.args, self.kwargs,
                                                                                           self.api.written, kinds)
        except Exception as e:
            recorder.failed(self.name, e)

    def _was_not_read(self, what, error):
        """An operation of the program that has failed is told when its value is read: the program is told again when it reads the value itself."""
        self.recorder.failed(self.name, error)
        self.record["note"] = "its %s could not be read: %s" % (what, str(error).partition("\n")[0])

    def _measure_inputs(self, save):
        part = self.recorder.measure
        args = tuple(_operands(a) for a in self.args) if self.api.is_collective else tuple(self.args)
        self.record["input_args"] = part(self.name + ".input", args, save)[0]
        self.record["input_kwargs"] = part(self.name + ".input", self.kwargs, save)[0]

    def raised(self):
        """The program may catch it: what went in is recorded, and no output."""
        self.recorder.leave(self.name)
        self._put_without_outputs()

    def _put_without_outputs(self):
        recorder = self.recorder
        if self.is_selected and recorder.forward and self.record and not recorder.overflow:
            recorder.put(self.name, self.record, self.stack, self.parent)

    def after(self, result, parameters=None):
        self.recorder.leave(self.name)
        try:
            if self.is_selected and self.recorder.forward:
                self._record(result, parameters)
        except Exception as e:
            self._was_not_read("outputs", e)
            self._put_without_outputs()
            return  # an operation that has failed gives no gradients
        try:
            if self.gradients is not None:
                self.recorder.gradients.follow_outputs(self.gradients, sequence(result))
        except Exception as e:
            self.recorder.failed(self.name, e)

    def _record(self, result, parameters):
        recorder = self.recorder
        if recorder.structure:
            recorder.dump.site(self.name, self.stack, self.parent)
            recorder.summary.records += 1
            return
        handles = _handles(result) if self.api.is_collective else ()
        if handles and recorder.outputs:
            recorder.pending.add(self, handles, self._results(result))
        else:
            self.conclude(self._results(result), parameters)

    def _results(self, result):
        """A collective that returns no tensor has written to its arguments."""
        results = tuple(part for part in sequence(result) if not callable(getattr(part, "wait", None)))
        if self.api.is_collective and not any(isinstance(part, TensorPy) for part in results):
            return tuple(_operands(a) for a in self.args) + tuple(self.kwargs.values())
        return sequence(result) if not self.api.is_collective else results

    def conclude(self, results, parameters=None, place=0):
        """Outputs, and the record is handed over: where it stands, or into the place that was kept for it."""
        recorder = self.recorder
        part, save = recorder.measure, self.save
        if recorder.overflow:
            if (self.cell is not None and not recorder.watches_cells) or not part(self.name, results, False)[1]:
                return
            save = True
            if not self.record:
                self._measure_inputs(True)
        if recorder.outputs:
            self.record["output"] = part(self.name + ".output", results, save)[0]
        if self.cell is not None and recorder.inputs:
            self.record["parameters"] = part(self.name + ".parameters", parameters, save)[0]
        recorder.put(self.name, self.record, self.stack, self.parent, place)
        if recorder.overflow:
            recorder.overflowed(self.name)


class Pending:
    """Collectives whose results are not there yet. Each is read when the program has waited for all its handles, and stands where it was called."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._calls = []

    def add(self, call, handles, results):
        entry = _Pending(call, results, self._done)
        try:
            for handle in handles:
                entry.watch(handle)
        except (AttributeError, TypeError):
            entry.let_go()
            self._without_results(entry, "its handle cannot be watched")
            return
        recorder = self._recorder
        if not recorder.overflow:  # which may not want the record at all
            recorder.dump.site(call.name, call.stack, call.parent)
            entry.place = recorder.dump.reserve()
        self._calls.append(entry)

    def _done(self, entry):
        if entry in self._calls:
            self._calls.remove(entry)
            recorder = self._recorder
            with recorder.quiet():
                try:
                    entry.call.conclude(entry.results, None, entry.place)
                except Exception as e:
                    recorder.failed(entry.call.name, e)

    def end(self):
        """Those that nobody has waited for have no output: it may not be there yet."""
        calls, self._calls = self._calls, []
        for entry in calls:
            entry.let_go()
            self._without_results(entry, "nobody waited for its handle before stop()")

    def _without_results(self, entry, why):
        call = entry.call
        if not self._recorder.overflow:
            call.record["note"] = why
            self._recorder.put(call.name, call.record, call.stack, call.parent, entry.place)


class _Pending:
    """One call, and its handles: wait() of each is watched, on the object itself, until it was called."""

    def __init__(self, call, results, done):
        self.call, self.results, self._done, self.place = call, results, done, 0
        self._handles = []

    def watch(self, handle):
        wait = handle.wait

        def watched(*args, **kwargs):
            self._forget(handle)
            result = wait(*args, **kwargs)
            if not self._handles:
                self._done(self)
            return result

        handle.wait = watched
        self._handles.append(handle)

    def _forget(self, handle):
        if any(h is handle for h in self._handles):
            self._handles = [h for h in self._handles if h is not handle]
            del handle.wait

    def let_go(self):
        for handle in list(self._handles):
            self._forget(handle)
