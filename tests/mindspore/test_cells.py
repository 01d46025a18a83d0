"""Cells of every make: what they are given and return stays what it was, and their records are whole."""
from runs import leaves, read, run

NETWORK = """
import collections
Pair = collections.namedtuple("Pair", "first second")


class Named(nn.Cell):
    def construct(self, x):
        return Pair(x * 3, x.sum())


class Nested(nn.Cell):
    def construct(self, x):
        return {"a": x * 2, "b": [x + 1]}


class Own(nn.Cell):
    def construct(self, x, y):
        return x * y

    def bprop(self, x, y, out, dout):
        return dout * 2, dout * 5


class Words(nn.Cell):
    def construct(self, x, *, mask=None):
        return x * mask


class Keeps(nn.Cell):
    def construct(self, x, seen, pair):
        seen.append(x)
        return x + pair.first


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.named, self.nested, self.own, self.words, self.keeps = Named(), Nested(), Own(), Words(), Keeps()

    def construct(self, x):
        pair, nested, seen = self.named(x), self.nested(x), [x]
        h = self.own(pair.first, nested["b"][0])
        h = self.keeps(self.words(h, mask=nested["a"]), seen, pair)
        assert len(seen) == 2
        return h.sum() + pair.second


net = Net()
debugger.start(net)
value, gradient = mindspore.value_and_grad(net)(x)
debugger.stop()
plain = mindspore.value_and_grad(net)(x)
print("same", [a.asnumpy().tobytes() == b.asnumpy().tobytes() for a, b in zip((value, gradient), plain)])
"""


def largest(values):
    return [value and value["Max"] for value in values]


def test_what_cells_return_and_are_given_keeps_its_type_and_has_its_gradients(tmp_path):
    done = run(tmp_path, NETWORK, level="mix")
    assert "same [True, True]" in done.stdout, done.stdout + done.stderr
    data, construct = read(tmp_path)["data"], read(tmp_path, file="construct.json")
    own = data["Cell.own.Own.forward.0"]
    assert largest(own["input_args"]) == [3.0, 2.0] and largest(own["output"]) == [6.0]
    backward = {name: data["Cell.%s.backward.0" % name] for name in ("named.Named", "nested.Nested", "own.Own", "words.Words", "keeps.Keeps")}
    assert (largest(backward["own.Own"]["input"]), largest(backward["own.Own"]["output"])) == ([2.0], [4.0, 10.0])
    assert (largest(backward["words.Words"]["input"]), largest(backward["words.Words"]["output"])) == ([1.0], [2.0, 6.0])
    assert (largest(backward["keeps.Keeps"]["input"]), largest(backward["keeps.Keeps"]["output"])) == ([1.0], [1.0, None, 1.0, None])
    assert (largest(backward["named.Named"]["input"]), largest(backward["nested.Nested"]["input"])) == ([5.0, 1.0], [6.0, 10.0])
    assert construct["Cell.words.Words.forward.0"] is None and construct["Tensor.sum.0.backward"] == "Cell.named.Named.backward.0"
    assert construct["Cell.own.Own.backward.0"] is None
    assert all(leaf["Max"] is not None for leaf in leaves(data))


def test_an_overflow_is_found_at_level_L0(tmp_path):
    script = """
class Log(nn.Cell):
    def construct(self, t):
        return mint.log(t)
net = nn.SequentialCell(nn.ReLU(), Log(), nn.ReLU())
debugger.start(net)
net(x - 1)
"""
    done = run(tmp_path, script, task="overflow_check", level="L0", part={"overflow_nums": 1})
    assert "1 overflow(s)" in done.stderr, done.stdout + done.stderr
    assert list(read(tmp_path)["data"]) == ["Cell.1.Log.forward.0"]


def test_gradients_of_parameters_that_come_several_times_are_numbered(tmp_path):
    script = """
net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(3, 2))
def one(t):
    return net[0](t * 2).sum()
debugger.start(net)
for _ in range(2):
    mindspore.value_and_grad(one, None, net[0].trainable_params())(x)
    x = x * 2
debugger.stop()
"""
    done = run(tmp_path, script, task="tensor", level="L0")
    data = read(tmp_path)["data"]
    found = {name: record["weight"][0] for name, record in data.items() if "parameters_grad" in name}
    assert {name: leaf["Max"] for name, leaf in found.items()} == {"Cell.0.Dense.parameters_grad": 4.0, "Cell.0.Dense.parameters_grad.1": 8.0}, done.stdout
    assert len({leaf["data_name"] for leaf in found.values()}) == 2


def test_cells_in_several_threads_have_their_own_parents_and_outputs(tmp_path):
    script = """
import threading
class Slow(nn.Cell):
    def construct(self, t):
        meet.wait()
        t = mint.exp(t)
        meet.wait()
        return t
meet = threading.Barrier(3)
net = nn.SequentialCell(nn.SequentialCell(Slow()))
mint.exp(x).asnumpy()  # MindSpore itself begins to run in one thread
debugger.start(net)
threads = [threading.Thread(target=lambda: net(x)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
debugger.stop()
"""
    done = run(tmp_path, script, level="mix")
    data, construct = read(tmp_path)["data"], read(tmp_path, file="construct.json")
    assert len(data) == 9 and all("output" in record for record in data.values()), done.stdout + done.stderr
    assert sorted(construct["Mint.exp.%d.forward" % i] for i in range(3)) == ["Cell.0.0.Slow.forward.%d" % i for i in range(3)]
    assert sorted(construct["Cell.0.0.Slow.forward.%d" % i] for i in range(3)) == ["Cell.0.SequentialCell.forward.%d" % i for i in range(3)]


def test_a_copy_of_a_model_made_while_it_is_recorded_is_a_plain_one(tmp_path):
    script = """
import copy
net = nn.SequentialCell(nn.ReLU())
plain = type(net[0].relu)
debugger.start(net)
copied = copy.deepcopy(net)
other = copied[0].relu
assert type(net[0].relu) is not plain
copied(x)
debugger.stop()
print("plain", [type(one) is plain for one in (other, net[0].relu)], other(x).shape)
"""
    done = run(tmp_path, script, level="mix")
    assert read(tmp_path)["data"] == {}  # it is another model
    assert "plain [True, True] (2, 3)" in done.stdout, done.stdout + done.stderr


def test_what_list_leaves_out_is_given_what_the_program_gave(tmp_path):
    script = """
given = []
class Keep(nn.Cell):
    def construct(self, t):
        given.append(t)
        return mint.exp(t)
net = nn.SequentialCell(Keep(), nn.ReLU())
def f(t):
    given.append(t * 2)
    return net(given[0]).sum()
debugger.start(net)
mindspore.value_and_grad(f)(x)
debugger.stop()
print("the same", given[0] is given[1])
"""
    for name, same in (("ReLU", True), ("Keep", False)):
        (tmp_path / name).mkdir()
        done = run(tmp_path / name, script, level="L0", part={"list": [name]})
        assert "the same %s" % same in done.stdout, done.stdout + done.stderr
        assert {n.split(".")[2] for n in read(tmp_path / name)["data"]} == {name}
