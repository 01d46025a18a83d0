"""Programs of many kinds, recorded while they run as without us: mixed precision, hooks, threads, workers, forks, compiled and repeated regions."""
import dataclasses
import functools
import gc
import json
import linecache
import logging
import os
import signal
import subprocess
import sys
import threading
import types
import weakref
from collections import OrderedDict

import pytest
from collecting import ALWAYS_BY_HOOKS, BY_HOOKS, IN_PLACE, PLAIN, R, afresh, bare, collect, fill, step, torch, write_config

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """What torch imports when it is first needed, which takes seconds: here, and not in each of the processes."""
    if hasattr(torch, "compile"):  # not in 1.13
        __import__("torch._dynamo")
        __import__("torch._functorch.aot_autograd")


def bits(*tensors):
    return [t.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes() for t in tensors]


def both(tmp_path, body, run=None, **config):
    plain, tool = tmp_path / "bare", tmp_path / "tool"
    plain.mkdir(), tool.mkdir()
    expected = run(plain, body, tool=False).value if run else bare(plain, body)
    result = (run or collect)(tool, body, **config)
    assert result.value == expected
    assert "failed for" not in result.output and "Traceback" not in result.output, result.output
    return result


def net():
    return fill(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)))


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="this torch has no torch.amp.GradScaler")
def test_autocast(tmp_path):
    def body(d):
        model = net()
        scaler = torch.amp.GradScaler("cpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def run():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(R(2, 3)).float().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return bits(loss, *model.parameters())

        return step(d, run, model)

    data = both(tmp_path, body, level="mix").data()
    linear = data["Functional.linear.0.forward"]
    assert [linear["input_args"][0]["dtype"], linear["output"][0]["dtype"]] == ["torch.float32", "torch.bfloat16"]
    grads = data["Functional.linear.0.backward"]
    assert grads["input"][0]["dtype"] == "torch.bfloat16" and [4, 3] in [g["shape"] for g in grads["output"] if g]
    assert data["Module.0.Linear.parameters_grad"]["weight"][0]["dtype"] == "torch.float32"


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_without_gradients(tmp_path, mode):
    def body(d):
        model = net()

        def run():
            with getattr(torch, mode)():
                y = model(R(2, 3))
            with torch.enable_grad():
                x = R(2, grad=True)
                torch.exp(x).sum().backward()
            return [y, x.grad]

        return bits(*step(d, run, model))

    names = both(tmp_path, body, level="mix").names()
    assert "Functional.linear.1.forward" in names and "Functional.linear.1.backward" not in names and "Torch.exp.0.backward" in names


def test_hooks_of_the_programs_own(tmp_path):
    def body(d):
        model, seen = net(), []
        model[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
        model[0].register_forward_hook(lambda m, a, o: o + 1)
        model[2].register_full_backward_hook(lambda m, gi, go: seen.append([len(gi), len(go)]))
        model[2].weight.register_hook(lambda g: g * 2)
        x = R(2, 3, grad=True)

        def run():
            h = model[1](model[0](x))
            h.register_hook(lambda g: g * 3)
            h.retain_grad()
            model[2](h).sum().backward()
            return [*bits(x.grad, h.grad, *[p.grad for p in model.parameters()]), seen]

        return step(d, run, model)

    data = both(tmp_path, body, level="mix").data()
    assert data["Module.0.Linear.forward.0"]["input_args"][0]["Norm"] == pytest.approx(2 * R(2, 3).norm().item(), rel=1e-6)
    assert {"Module.0.Linear.backward.0", "Module.1.GELU.backward.0", "Module.2.Linear.backward.0"} <= set(data)


CHANGES = {
    "a hook": lambda m: m.register_forward_pre_hook(lambda _, a: (a[0] * 2,)),
    "another dict of hooks": lambda m: setattr(m, "_forward_pre_hooks", OrderedDict({0: lambda _, a: (a[0] * 2,)})),
    "other parameters": lambda m: setattr(m, "_parameters", dict(m._parameters, bias=None)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_module_has_is_looked_at_in_each_call(tmp_path, change):
    if PLAIN and change == "another dict of hooks":
        pytest.skip("torch keeps by number which hooks take keywords, and here a hook of ours has the number of one in the other dict")

    def body(d):
        model = net()

        def run():
            first = model[0](R(2, 3))
            CHANGES[change](model[0])
            return bits(first, model[0](R(2, 3)))

        return step(d, run, model)

    data = both(tmp_path, body, level="L0").data()
    if BY_HOOKS and "hook" in change:
        return  # hooks of ours record there: they stand before what comes later, or go with their dict
    first, second = data["Module.0.Linear.forward.0"], data["Module.0.Linear.forward.1"]
    doubled = 1 if change == "other parameters" else 2
    assert second["input_args"][0]["Norm"] == pytest.approx(doubled * first["input_args"][0]["Norm"], rel=1e-6)
    assert list(first["parameters"]) == ["weight", "bias"]
    assert list(second["parameters"]) == (["weight"] if change == "other parameters" else ["weight", "bias"])


@pytest.mark.parametrize("plain", ["", "all"])
def test_hooks_set_while_recording_stand_around_ours(tmp_path, plain):
    """What the module got and made is recorded, and not what hooks were given or left."""
    def body(d):
        model = net()
        model[0].register_forward_hook(lambda m, a, o: None)  # hooks of ours record it from its first call on

        def run():
            results = [model[0](R(2, 3))]
            handles = [model[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,)), model[0].register_forward_hook(lambda m, a, o: o * 0, **first)]
            results += [model[0](R(2, 3)) for _ in range(2)]
            for handle in handles:
                handle.remove()
            return bits(*results, model[0](R(2, 3)), *model[0].parameters())

        return step(d, run, model)

    first = {} if ALWAYS_BY_HOOKS else {"prepend": True}
    r = both(tmp_path, body, env={"MSPROBE_PLAIN": plain}, level="L0")
    data = r.data()
    seen = [data["Module.0.Linear.forward.%d" % i]["input_args"][0]["Norm"] / R(2, 3).norm().item() for i in range(4)]
    in_time = 1 if plain or ALWAYS_BY_HOOKS else 2  # where nothing but hooks is called, they move when they run
    assert seen == pytest.approx([1, in_time, 2, 1], rel=1e-6)
    if not ALWAYS_BY_HOOKS:
        assert data["Module.0.Linear.forward.2"]["output"][0]["Norm"] > 0


def four_threads(d):
    results = [None] * 4

    def work(i):
        x = R(3, 3, seed=i, grad=True)
        for _ in range(20):
            F.cross_entropy(torch.sin(x) @ x, torch.tensor([0, 1, 2])).backward()
        results[i] = bits(x.grad)

    d.start()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    d.stop()
    d.step()
    return results


def test_threads_record_without_disturbing_one_another(tmp_path):
    names = both(tmp_path, four_threads, run=afresh).names()
    for api, kind in (("Torch.sin", "forward"), ("Torch.sin", "backward"), ("Functional.cross_entropy", "forward"), ("Functional.cross_entropy", "backward")):
        assert sorted(n for n in names if n.startswith(api) and n.endswith(kind)) == sorted("%s.%d.%s" % (api, i, kind) for i in range(80))
    assert not [n for n in names if "log_softmax" in n]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.sin(torch.full((3,), float(i)))  # in a worker: not of the training process


def test_workers_of_a_data_loader_are_not_recorded(tmp_path):
    def body(d):
        model = net()
        d.start(model)
        out = [bits(model(batch)) for batch in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2)]
        d.stop()
        d.step()
        return out

    result = both(tmp_path, body, level="mix")
    assert not [n for n in result.names() if "sin" in n] and "Functional.linear.3.forward" in result.names()


def test_a_fork_of_the_program_is_not_recorded_and_leaves_the_files_alone(tmp_path):
    def body(d):
        d.start()
        torch.sin(R(2))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                torch.cos(R(2))
                x = R(2, grad=True)
                torch.exp(x).sum().backward()
                d.stop()
                d.step()
                code = 0 if x.grad is not None and F.relu.__code__.co_filename.endswith("functional.py") else 2
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        torch.tan(R(2))
        d.stop()
        d.step()
        return status

    result = collect(tmp_path, body)
    assert result.value == 0 and result.names() == ["Torch.sin.0.forward", "Torch.tan.0.forward"], result.output


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="this torch has no torch.compile")
def test_compiled_regions_run_untouched_and_are_not_recorded(tmp_path):
    def region(x):
        return torch.sin(x) * 2

    def body(d):
        whole = torch.compile(region, backend="aot_eager")
        shown = torch.compile(region, backend="eager")

        def run():
            x = R(4, grad=True)
            (whole(x) + torch.tan(x)).sum().backward()
            return x.grad

        before = run()
        inside = step(d, run)
        after = run()
        d.start()
        eager = shown(R(4))
        d.stop()
        d.step()
        return bits(before, inside, after, eager)

    result = both(tmp_path, body)
    names = result.names(0)
    assert "Torch.tan.0.forward" in names and "Torch.tan.0.backward" in names and not [n for n in names if "sin" in n or "FakeTensor" in n]
    assert "Torch.sin.0.forward" not in result.names(1)
    assert "region (" in result.output and "is compiled by torch.compile: what runs inside is not recorded" in result.output


def test_an_exception_in_backward_does_not_end_recording(tmp_path):
    def body(d):
        def fail(grad):
            raise ValueError("on purpose")

        def run():
            x = R(2, grad=True)
            y = torch.sin(x)
            y.register_hook(fail)
            with pytest.raises(ValueError):
                torch.exp(y).sum().backward()
            z = R(2, grad=True)
            torch.tan(z).sum().backward()
            return bits(z.grad)

        return step(d, run)

    names = both(tmp_path, body).names()
    assert {"Torch.exp.0.backward", "Torch.tan.0.forward", "Torch.tan.0.backward"} <= set(names)


def test_start_and_stop_in_any_order(tmp_path):
    def body(d):
        d.stop()
        d.step()
        d.start()
        d.start()
        torch.sin(R(2))
        d.stop()
        d.stop()
        torch.cos(R(2))
        d.start()
        torch.sin(R(2))
        d.step()
        torch.cos(R(2))

    r = collect(tmp_path, body)
    assert r.names(1) == ["Torch.sin.0.forward", "Torch.sin.1.forward"]


def test_hundreds_of_steps_do_not_grow(tmp_path):
    """No object and no file stays behind a step."""
    import gc

    def body(d):
        model = net()

        def run():
            model(R(2, 3)).sum().backward()

        sizes = []
        for i in range(60):
            step(d, run, model)
            if i in (20, 59):
                gc.collect()
                sizes.append((len(gc.get_objects()), len(os.listdir("/proc/self/fd"))))
        return sizes

    (objects, files), (more, more_files) = collect(tmp_path, body, level="mix", step=["0-59"]).value
    assert more - objects < 200 and more_files <= files


def test_a_child_does_not_wait_for_a_thread_that_only_its_parent_has(tmp_path):
    """Another thread may be in start(), stop() or step() when the program forks."""
    from msprobe.pytorch import debugger

    def body(d):
        held, done = threading.Event(), threading.Event()

        def hold():
            with debugger._lock:
                held.set()
                done.wait()

        other = threading.Thread(target=hold)
        other.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            step(d, lambda: torch.relu(R(2)))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        done.set()
        other.join()
        step(d, lambda: torch.relu(R(2)))
        return status

    assert collect(tmp_path, body).value == 0


def test_code_that_a_program_makes_while_it_runs_is_not_kept_for_ever(tmp_path):
    """A stack is known by its code objects, which stay as long as it is known. Nor are they within one step: who serves requests has one that never ends."""
    def call(x):
        return torch.add(x, 1)

    def body(d):
        x, alive = torch.ones(2), []

        def run():
            for i in range(40000):
                made = types.FunctionType(call.__code__.replace(co_firstlineno=i + 1), globals())
                made(x)
                alive.append(weakref.ref(made.__code__))

        d.start()
        other = threading.Thread(target=run)  # where a stack has few frames
        other.start()
        other.join()
        d.stop()
        return [code() is not None for code in alive]

    alive = collect(tmp_path, body, part={"list": ["no such call"]}).value
    assert sum(alive) < 10000 and all(alive[-1000:])


def test_stacks_that_were_forgotten_are_right_when_they_come_again(tmp_path):
    """By us above 32,768 of them, and by the writer above 16 MiB: here each has a line of its own, and some are long."""
    def body(d):
        x, made = torch.ones(2), []
        for i in range(34000):
            code = compile("def f(x, add): return add(x, 1)", "<made %d>" % i, "exec")
            linecache.cache["<made %d>" % i] = 1, None, ["def f(x, add): return add(x, 1)  # %d %s\n" % (i, "." * (4000 if i < 8000 else 1))], "<made %d>" % i
            names = {}
            exec(code, names)
            made.append(names["f"])

        def run():
            for f in made + made[:50]:
                f(x, torch.add)

        d.start()
        other = threading.Thread(target=run)
        other.start()
        other.join()
        d.stop()
        d.step()

    r = collect(tmp_path, body)
    stacks_of = r.stacks()
    assert len(r.names()) == 34050
    for n, name in enumerate(r.names()):
        assert stacks_of[name][0].startswith("File <made %d>, line 1, in f" % (n % 34000)), name
        assert "# %d ." % (n % 34000) in stacks_of[name][0]


# ---- interrupts --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["open", "unit", "start", "stop", "flush", "step"])
def test_an_interrupt_inside_a_call_of_ours_leaves_a_debugger_that_goes_on(tmp_path, where):
    """As in a notebook, where the next cell begins the loop again."""
    from msprobe._core import probe

    def body(d):
        seen = []

        def profile(frame, event, function):
            if event == "c_return" and function is getattr(probe, where) and not seen:
                seen.append(where)
                raise KeyboardInterrupt

        def train():
            step(d, lambda: torch.relu(R(2)))

        sys.setprofile(profile)
        try:
            train()
        except KeyboardInterrupt:
            sys.setprofile(None)
        for _ in range(2):  # the first one may have to end what was begun
            train()
        return seen, d._recorder.current_step - 1

    r = collect(tmp_path, body)
    seen, last = r.value
    assert seen == [where]
    assert r.names(last) == ["Torch.relu.0.forward"]


@pytest.mark.parametrize("where", ["modules_begin", "stop"])
def test_start_takes_up_what_an_interrupt_has_left_half_done(tmp_path, where):
    """In start(), before functions are patched; and in stop(), when they no longer are."""
    from msprobe._core import probe

    def body(d):
        model, seen = net(), []

        def profile(frame, event, function):
            if event == "c_return" and function is getattr(probe, where) and not seen:
                seen.append(where)
                raise KeyboardInterrupt

        sys.setprofile(profile)
        with pytest.raises(KeyboardInterrupt):
            d.start(model)
            d.stop()
        sys.setprofile(None)
        step(d, lambda: torch.relu(model(R(2, 3))), model)
        return seen

    r = collect(tmp_path, body, level="mix")
    assert r.value == [where]
    assert "Torch.relu.0.forward" in r.names() and "Module.0.Linear.forward.0" in r.names()


def test_an_interrupt_while_a_value_is_read_reaches_the_program(tmp_path):
    class Model(nn.Module):
        def forward(self, x):
            return x

    interrupted = []  # once: each look at the value would be another one

    @dataclasses.dataclass
    class Slow:
        x: int = 0

        def __getattribute__(self, name):
            if name == "x" and not interrupted:
                interrupted.append(True)
                os.kill(os.getpid(), signal.SIGINT)
            return super().__getattribute__(name)

    def body(d):
        model, slow = nn.Sequential(Model()), Slow()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background with this signal ignored
        gc.disable()  # an exception that a pending interrupt raises in a garbage collector's callback is lost, as Python has it
        d.start(model)
        with pytest.raises(KeyboardInterrupt):
            model[0](slow)
            for _ in range(1000):
                pass
        model[0](R(2))
        d.stop()
        d.step()

    r = collect(tmp_path, body, level="L0")
    wanted = ["Module.0.Model.forward.0", "Module.0.Model.forward.1"]
    assert r.names() == (wanted[1:] if BY_HOOKS else wanted)  # where a hook records, the interrupt comes before the module's last one
    assert "failed" not in r.output


class Limit(OSError):
    """What a handler raises. OSError: as TimeoutError is, and as ours are when a disk is full."""


def python_loses_exceptions_in(frame):
    """Where a log record asks for the process's name, `logging` passes over every exception, whoever logs: what is raised there nobody can hear."""
    while frame is not None:
        if frame.f_code is logging.LogRecord.__init__.__code__:
            return True
        frame = frame.f_back
    return False


class Alarm:
    def __init__(self, kind):
        self.raised = 0
        self.kind = kind

    def ring(self, number, frame):
        if python_loses_exceptions_in(frame):
            return
        self.raised += 1
        if self.kind == "once":
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
        raise Limit(self.raised)


@pytest.mark.parametrize("kind", ["method", "once", "partial", "object"])
@pytest.mark.parametrize("where", ["describe", "source", "route", "failure", "device"])
def test_what_a_handler_raises_while_we_work_is_the_programs(tmp_path, where, kind):
    """Whatever of ours is interrupted, and whatever becomes of the handler: it is no error of ours, the program gets it, and recording goes on."""
    from msprobe.pytorch import apis, describe, device, stacks

    def body(d):
        alarm = Alarm(kind)
        handler = alarm.ring
        if kind == "partial":
            handler = functools.partial(Alarm.ring, alarm)
        if kind == "object":
            handler = type("Handler", (), {"__call__": lambda self, number, frame: alarm.ring(number, frame)})()
        signal.signal(signal.SIGALRM, handler)

        def ringing(owner, name):
            """owner.name, interrupted at its first call."""
            function, rung = getattr(owner, name), []

            @functools.wraps(function)
            def call(*args, **kwargs):
                if not rung:
                    rung.append(True)
                    signal.raise_signal(signal.SIGALRM)
                return function(*args, **kwargs)

            setattr(owner, name, call)

        sparse = torch.sparse_coo_tensor([[0]], [1.0], (3,))
        d.start()
        {"describe": lambda: ringing(describe, "has_own_dispatch"), "source": lambda: ringing(stacks.tokenize, "open"),
         "route": lambda: ringing(apis, "_name_at_call"), "failure": lambda: ringing(stacks, "is_recompute"),
         "device": lambda: ringing(describe, "read")}[where]()
        if where == "source":
            stacks.linecache.clearcache()
        reached = 0
        for _ in range(3):
            try:
                torch.add(sparse, sparse)
                F.conv1d(R(1, 1, 4), R(1, 1, 2))
                for _ in range(1000):
                    pass
            except Limit:
                reached += 1
        d.stop()
        d.step()
        return alarm.raised, reached

    r = collect(tmp_path, body, IN_PLACE if where == "route" else None)  # replaced attributes know by which name they are called
    raised, reached = r.value
    assert raised == reached == 1
    assert "failed" not in r.output and "ended" not in r.output and "rror" not in r.output, r.output
    assert len([n for n in r.names() if n.startswith("Functional.conv1d")]) >= 2
    assert '"error"' not in json.dumps(r.data()), "what was interrupted is read again"
    stacks_of = r.stacks()
    assert all(n in stacks_of for n in r.names())


def test_what_a_handler_raises_while_start_looks_at_files_is_the_programs(tmp_path):
    """At each question that start(), stop() and step() put to the file system of a folder that holds an earlier run, one after the other."""
    asked = ("listdir", "lstat", "mkdir", "rename", "stat", "open")

    def body(d):
        def ring(number, frame):
            raise Limit(number)

        signal.signal(signal.SIGALRM, ring)
        left = [0]

        def ringing(function):
            @functools.wraps(function)
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] == 0:
                    signal.raise_signal(signal.SIGALRM)
                return function(*args, **kwargs)
            return call

        for name in asked:
            setattr(os, name, ringing(getattr(os, name)))
        reached = number = 0
        while True:
            number += 1
            left[0] = number
            try:
                d.start()
                torch.add(R(2), 1)
                d.stop()
                d.step()
            except Limit:
                reached += 1
            if left[0] > 0:
                return reached, number - 1

    for rank in ("rank", "rank7"):
        earlier = tmp_path / "dump" / "step0" / rank
        earlier.mkdir(parents=True)
        (earlier / "dump.json").write_text("{}")
    r = collect(tmp_path, body)
    reached, interrupted = r.value
    assert reached == interrupted > 5
    assert "failed" not in r.output and "ended" not in r.output, r.output


@pytest.mark.parametrize("plain", ["", "all"])
def test_a_handler_that_raises_all_the_time_is_heard_all_the_time(tmp_path, plain):
    """Between start() and step(), in them, and in what we do while calls run: every exception arrives that was raised, and nothing of ours ends."""
    def body(d):
        alarm = Alarm("method")
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        caught = set()

        def hear(e):  # one may come while another is on its way
            while e is not None:
                caught.update(e.args if isinstance(e, Limit) else ())
                e = e.__context__

        def work():
            names = {"torch": torch}
            exec("def f(x):\n  return torch.add(x, 1)", names)  # a stack that is not known
            model(names["f"](torch.ones(2, 4))).sum().backward()
            torch.add(*[torch.sparse_coo_tensor([[0]], [1.0], (3,))] * 2)

        work()  # what torch has to say about sparse tensors, Python's warnings lose a handler's exception over
        signal.signal(signal.SIGALRM, alarm.ring)
        for i in range(20000):
            if i >= 300 and alarm.raised > 50:  # how many come in a round is the machine's affair
                break
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + i % 13 * 0.0001)
                if i % 4 == 0:
                    d.start(model)
                work()
                if i % 4 == 3:
                    d.stop()
                    d.step()
            except Limit as e:
                hear(e)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                for _ in range(1000):
                    pass
            except Limit as e:
                hear(e)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        d.start(model)
        model(torch.ones(2, 4))
        d.stop()
        d.step()
        return alarm.raised, caught, d._recorder.current_step - 1

    r = collect(tmp_path, body, level="mix", env={"MSPROBE_PLAIN": plain})
    raised, caught, last = r.value
    assert caught == set(range(1, raised + 1)) and raised > 50
    assert "ended" not in r.output, r.output
    assert "Module.0.Linear.forward.0" in r.names(last) or any(n.startswith("Module.0.Linear.forward") for n in r.names(last))


class SecondLimit(Exception):
    pass


def test_an_exception_that_a_handler_raises_while_another_one_is_judged_reaches_the_program_too(tmp_path, monkeypatch):
    """The one comes while a call's stack is made into text, the other while we ask whose the first one is."""
    from msprobe.pytorch import recorder, stacks
    left = []

    def interrupted_once(function, number):
        def run(*args):
            if number in left:
                left.remove(number)
                os.kill(os.getpid(), number)
                for _ in range(1000):
                    pass
            return function(*args)
        return run

    monkeypatch.setattr(stacks, "stack_text", interrupted_once(stacks.stack_text, signal.SIGUSR1))
    monkeypatch.setattr(recorder, "is_programs", interrupted_once(recorder.is_programs, signal.SIGUSR2))

    def raise_it(number, frame):
        raise Limit if number == signal.SIGUSR1 else SecondLimit

    def body(d):
        caught = set()
        signal.signal(signal.SIGUSR1, raise_it)
        signal.signal(signal.SIGUSR2, raise_it)
        left.extend((signal.SIGUSR1, signal.SIGUSR2))
        d.start()
        for _ in range(4):
            try:
                try:
                    torch.add(R(3), 1)
                    for _ in range(1000):
                        pass
                finally:  # where the second one may come
                    for _ in range(1000):
                        pass
            except (Limit, SecondLimit) as e:
                while e is not None:
                    caught.add(type(e).__name__)
                    e = e.__context__
        d.stop()
        d.step()
        return sorted(caught)

    r = collect(tmp_path, body)
    assert r.value == ["Limit", "SecondLimit"]
    assert [n for n in r.names() if n.startswith("Torch.add")] == ["Torch.add.%d.forward" % i for i in range(4)] and "failed for" not in r.output


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_step_whose_number_comes_again_is_written_anew(tmp_path, task):
    """The writer took the files of the later one for those of the earlier one, which it was to close, and recording ended."""
    def body(d):
        for i in range(100):
            d.set_init_step(1000 - i)
            step(d, lambda: torch.add(R(3), i))

    r = collect(tmp_path, body, task=task)
    assert r.data(1000)["Torch.add.0.forward"]["input_args"][1]["value"] == 99
    assert "[ERROR]" not in r.output and sorted(os.listdir(r.folder)) == ["step1000"]
    assert [n for n in os.listdir(r.file("", 1000)) if n.startswith(".")] == []


SPAWNS = """
import multiprocessing, sys
import torch
from msprobe.pytorch import PrecisionDebugger

debugger = PrecisionDebugger(sys.argv[1])  # where the worker comes by, too

def work(x):
    return float(torch.relu(torch.ones(2)).sum()) + x

if __name__ == "__main__":
    debugger.start()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(work, [1]) == [3.0]
        pool.close()
        pool.join()
    torch.sin(torch.ones(2))
    debugger.stop()
    debugger.step()
"""


def test_a_worker_that_is_spawned_has_nothing_to_say(tmp_path):
    """It runs the top of the script, and ends without having recorded: that is no error."""
    (tmp_path / "script.py").write_text(SPAWNS)
    done = subprocess.run([sys.executable, str(tmp_path / "script.py"), write_config(tmp_path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "nothing was recorded" not in done.stdout + done.stderr, done.stdout + done.stderr
    with open(tmp_path / "dump" / "step0" / "rank" / "dump.json") as f:
        assert list(json.load(f)["data"]) == ["Torch.sin.0.forward"]
