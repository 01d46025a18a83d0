"""The verdict of dumps of statistics: each statistic by what it can resolve, sums that must agree within one run."""
import json

import dumps

SHAPE = (8, 32, 64)
COUNT = 8 * 32 * 64


def leaf(norm, top=4.0, mean=0.01, shape=SHAPE, dtype="torch.float32", low=None):
    return dumps.tensor(1.0, dtype, shape, Max=top, Min=-top if low is None else low, Mean=mean, Norm=norm)


def verdict(run, tmp_path, npu, bench):
    dumps.write(tmp_path / "npu", npu)
    dumps.write(tmp_path / "bench", bench)
    return json.loads(run("compare", "npu", "bench", "--json", "-q").out)["verdict"]


def suspects(v):
    return [s["api"] for s in v["suspects"]]


def test_a_norm_in_bfloat16_resolves_more_than_one_element_does(run, tmp_path):
    def gelu(norm, top):
        return {"Functional.gelu.0.forward": dumps.call([leaf(128.0, dtype="torch.bfloat16")],
                                                        [leaf(norm, top, dtype="torch.bfloat16")])}

    v = verdict(run, tmp_path, gelu(100.0, 4.0), gelu(100.01, 4.03125))  # one unit in the last place, and its norm
    assert suspects(v) == []
    v = verdict(run, tmp_path, gelu(98.0, 4.0), gelu(100.0, 4.0))  # 2 % of the norm: far more than rounding leaves
    assert suspects(v) == ["Functional.gelu.0.forward"]
    assert "differs by 0.02 in its norm" in v["sentence"]


def test_a_softmax_behind_a_mask_is_judged_by_what_the_mask_has_left(run, tmp_path):
    def softmax(score, given, mean=1 / 64):
        return {"Tensor.masked_fill.0.forward": dumps.call([leaf(200.0, score)], [leaf(9e10, score, -4e8, low=-1e9)]),
                "Functional.softmax.0.forward": dumps.call([leaf(9e10, score, -4e8, low=-1e9)],
                                                           [leaf(given, 0.9, mean, low=0.0)])}

    v = verdict(run, tmp_path, softmax(4.001, 30.01), softmax(4.0, 30.0))  # scores that are a thousandth off
    assert suspects(v) == []
    v = verdict(run, tmp_path, softmax(4.0, 33.0), softmax(4.0, 30.0))
    assert suspects(v) == ["Functional.softmax.0.forward"]
    v = verdict(run, tmp_path, softmax(4.0, 30.0, 1.01 / 64), softmax(4.0, 30.0))  # rows that do not add up to one
    assert suspects(v) == ["Functional.softmax.0.forward"]
    assert "its sum is off" in v["sentence"]


def test_a_sum_that_holds_clears_the_call_and_blames_who_made_what_it_took(run, tmp_path):
    def block(norm):
        x, y = leaf(128.0, 4.0, 0.01), leaf(64.0, 2.0, 0.02)
        return {"Functional.linear.0.forward": dumps.call([x, leaf(3.0, 0.2, 0.0, (64, 64))], [y]),
                "Tensor.__add__.0.forward": dumps.call([x, y], [leaf(norm, 5.0, 0.03)])}

    v = verdict(run, tmp_path, block(150.0), block(140.0))
    assert suspects(v) == ["Functional.linear.0.forward"]
    assert "Tensor.__add__.0.forward" in v["sentence"] and "other places" in v["sentence"]

    broken = block(150.0)
    broken["Tensor.__add__.0.forward"]["output"][0]["Mean"] = 0.05
    v = verdict(run, tmp_path, broken, block(140.0))
    assert suspects(v) == ["Tensor.__add__.0.forward"]


def test_a_bias_gradient_must_have_the_sum_of_what_comes_in(run, tmp_path):
    def step(mean):
        x, w = leaf(128.0), leaf(3.0, 0.2, 0.0, (64, 64))
        b = leaf(0.5, 0.1, 0.0, (64,))
        forward = dumps.call([x, w, b], [leaf(60.0, 2.0)])
        grads = [leaf(9.0, 0.5, 0.0), leaf(5.0, 0.4, 0.0, (64, 64)), leaf(8.0, 4.0, mean, (64,))]
        return {"Functional.linear.0.forward": forward,
                "Functional.linear.0.backward": {"input": [leaf(10.0, 0.5, 0.6 * 64 / COUNT)], "output": grads}}

    assert suspects(verdict(run, tmp_path, step(0.6), step(0.6))) == []
    v = verdict(run, tmp_path, step(0.45), step(0.6))
    assert suspects(v) == ["Functional.linear.0.backward"]


def test_a_gradient_of_rounding_errors_is_no_alarm(run, tmp_path):
    """Its terms cancel where autograd adds them up: nobody has given that sum, and it differs altogether."""
    def step(rest):
        return {"Functional.gelu.0.forward": dumps.call([leaf(128.0)], [leaf(100.0)]),
                "Torch.topk.0.forward": dumps.call([leaf(100.0)], [leaf(9.0, 4.0, 2.0, (8, 2))]),
                "Functional.gelu.0.backward": {"input": [leaf(1.0, 0.1)], "output": [leaf(1.0, 0.1)]},
                "Torch.topk.0.backward": {"input": [leaf(rest, rest / 2, 0.0, (8, 2))],
                                          "output": [leaf(rest, rest / 2, 0.0)]}}

    npu, bench = step(1e-9), step(2e-9)
    assert suspects(verdict(run, tmp_path, npu, bench)) == []
    assert "Nothing wrong" in run("compare", "npu", "bench").out
    assert run("compare", "npu", "bench", "-q", "--fail-on", "any").rc == 0


def test_what_was_chosen_otherwise_is_not_judged_and_says_so(run, tmp_path):
    def route(index, given):
        return {"Torch.index_select.0.forward": dumps.call(
            [leaf(128.0), leaf(60.0, 31.0, index, (16,), "torch.int64", 0.0)], [leaf(given, shape=(16, 64))])}

    v = verdict(run, tmp_path, route(15.5, 20.0), route(16.5, 30.0))
    assert suspects(v) == []
    assert "it takes a choice that fell the other way" in json.dumps(v)


def test_the_verdict_is_the_same_for_any_number_of_threads(run, tmp_path):
    def chain(fault):
        records, before = {}, leaf(128.0)
        for i in range(200):
            after = leaf(100.0 + i + (20 if fault and i >= 120 else 0), 4.0 + i / 7)
            records["Functional.gelu.%d.forward" % i] = dumps.call([before], [after])
            before = after
        return records

    verdict(run, tmp_path, chain(True), chain(False))
    told = [json.loads(run("compare", "npu", "bench", "--json", "-q", "--threads", n).out)["verdict"] for n in "128"]
    assert suspects(told[0]) == ["Functional.gelu.120.forward"]
    assert told[0] == told[1] == told[2]
