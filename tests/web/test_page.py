"""The page in a real browser: what it says first, and everything one does with it."""
import subprocess

import dumps
import pytest
from pages import find_command, make_page

NAMES = ["Functional.linear.0.forward", "Functional.relu.0.forward", "Functional.gelu.0.forward"]


def real(folder, fault):
    """Real data: relu's output has a wrong tail in one of the runs."""
    (folder / "dump_tensor_data").mkdir(parents=True)
    fine = [0.25 * i + 0.5 for i in range(96)]
    bad = [0.0 if i % 12 > 9 and fault else v for i, v in enumerate(fine)]

    def leaf(name, values):
        dumps.npy(folder / "dump_tensor_data" / (name + ".npy"), values, (8, 12))
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 12], "Max": max(values), "Min": min(values),
                "Mean": sum(values) / 96, "Norm": sum(v * v for v in values) ** 0.5, "requires_grad": False,
                "data_name": name + ".npy"}

    records, before = {}, leaf("data.0", fine)
    for name, values in ((NAMES[0], fine[::-1]), (NAMES[1], bad), (NAMES[2], bad[::-1])):
        after = leaf(name + ".output.0", values)
        records[name] = dumps.call([before], [after])
        before = after
    records["Functional.gelu.0.backward"] = dumps.call([before], [leaf("back", fine)])
    module = "Module.block.Block.forward.0"
    return dumps.write(folder, records, task="tensor", construct={
        module: None, NAMES[0]: module, NAMES[1]: module, NAMES[2]: module})


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    base = tmp_path_factory.mktemp("real")
    return make_page(real(base / "npu", True), real(base / "bench", False), base / "out")


@pytest.fixture
def shown(browser, page):
    browser.size(1400, 1000)
    browser.open(page)
    browser.page = page
    return browser


def test_the_first_screen_answers_where_the_runs_part(shown):
    text = shown.text(".first")
    assert "Functional.relu.0.forward" in shown.text("h1") and "equal, all of them" in text
    assert "npu/dump.json" in text and "bench/dump.json" in text
    assert "Worst element" in text and "NPU 0.0, bench " in text
    assert "y = self.act(x)" in text and "/home/me/train.py:11" in text
    assert "MaxAbsErr" in text and "output.0" in text
    assert shown.errors() == []


def test_the_strip_marks_the_wrong_calls_and_a_click_opens_one(shown):
    shown.run("""const c = document.querySelector('.strip canvas'), r = c.getBoundingClientRect();
        c.dispatchEvent(new MouseEvent('click', {clientX: r.left + r.width - 20, clientY: r.top + 90, bubbles: true}))""")
    shown.until("return document.querySelector('.detail h2').innerText.includes('gelu.0.backward')")
    assert "call=Functional.gelu.0.backward" in shown.run("return location.hash")


def test_the_tree_is_the_models_and_opens_to_its_calls(shown):
    lines = shown.texts(".line .label")
    assert lines[0] == "Module.block.Block.forward.0" and "Functional.relu.0.forward" in lines
    assert "1 wrong" in shown.text(".line")
    shown.click(".line button.grow")
    shown.until("return document.querySelectorAll('.line').length < arguments[0]", len(lines))
    assert "Functional.relu.0.forward" not in shown.texts(".line .label")


def test_search_and_filters_leave_what_fits(shown):
    shown.type("input[type=search]", "GELU")
    shown.until("return document.querySelector('.status').innerText.startsWith('2 of 4')")
    shown.run("""const s = document.querySelector('select[aria-label=direction]'); s.value = 'backward';
        s.dispatchEvent(new Event('change'))""")
    shown.until("return document.querySelector('.status').innerText.startsWith('1 of 4')")
    assert "q=GELU" in shown.run("return location.hash") and "dir=backward" in shown.run("return location.hash")
    shown.press("\ue00c")
    shown.until("return document.querySelector('.status').innerText === '4 calls'")


def test_filter_by_verdict(shown):
    shown.run("""const s = document.querySelector('select[aria-label=verdict]'); s.value = 'wrong';
        s.dispatchEvent(new Event('change'))""")
    shown.until("return document.querySelector('.status').innerText.includes(' of 4')")
    assert "Functional.linear.0.forward" not in shown.texts(".line .label")


def choose(browser, name, value):
    browser.run("""const s = document.querySelector(`select[aria-label="${arguments[0]}"]`); s.value = arguments[1];
        s.dispatchEvent(new Event('change'))""", name, value)


def test_what_is_inherited_is_told_from_what_is_wrong(shown):
    """gelu is as far off as relu, and beyond the manual's limits, but only because of what relu has given it."""
    marks = dict(zip(shown.texts(".line .label"), shown.texts(".line .mark")))
    assert marks["Functional.relu.0.forward"] == "✗" and marks["Functional.gelu.0.forward"] == "↳"
    assert marks["Functional.linear.0.forward"] == "✓"
    shown.click("#tab-calls")
    for verdict, calls in (("wrong", ["Functional.relu.0.forward"]), ("fine", ["Functional.linear.0.forward"]),
                           ("limits", ["Functional.relu.0.forward", "Functional.gelu.0.forward", "Functional.gelu.0.backward"])):
        choose(shown, "verdict", verdict)
        shown.until("return document.querySelector('.status').innerText.startsWith(arguments[0] + ' of 4')", str(len(calls)))
        assert shown.texts(".line .label") == calls
    assert "inherited from what is wrong before" in shown.text(".legend") and "no partner" not in shown.text(".legend")


def test_the_suspect_is_wrong_on_the_page_also_within_the_manuals_limits(browser, tmp_path):
    for side, scale in (("npu", 1.002), ("bench", 1.0)):
        dumps.write(tmp_path / side, {"Torch.%s.0.forward" % name: dumps.call([dumps.tensor(v)], [dumps.tensor(w)])
                                      for name, v, w in (("a", 1.0, 2.0), ("b", 2.0, 3 * scale), ("c", 3 * scale, 5 * scale))})
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"), "#tab=calls")
    assert "Wrong: Torch.b.0.forward" in browser.text("h1") and "0 beyond the manual's limits" in browser.text(".first")
    assert browser.texts(".line .mark") == ["✓", "✗", "↳"]
    assert "times what is allowed" in browser.text(".measured.wrong")


def test_every_call_that_adds_an_error_is_wrong_not_only_those_that_are_named(browser, tmp_path):
    for side, scale in (("npu", 3.0), ("bench", 1.0)):
        dumps.write(tmp_path / side, {"Torch.f%d.0.forward" % i: dumps.call([dumps.tensor(1.0)], [dumps.tensor(scale if i % 2 else 1.0)])
                                      for i in range(12)})
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"), "#tab=calls")
    assert browser.texts(".line .mark") == ["✓", "✗"] * 6


def test_calls_are_sorted_by_how_far_they_are_beyond_what_is_allowed(shown):
    shown.click("#tab-calls")
    choose(shown, "sort", "excess")
    shown.until("return document.querySelector('.line .value').innerText.endsWith('×')")
    assert shown.texts(".line .label")[0] == "Functional.relu.0.forward"


def test_a_gradient_shows_where_its_forward_call_was_made(browser, tmp_path):
    for side, v in (("npu", 2.0), ("bench", 1.0)):
        folder = dumps.write(tmp_path / side, {"Torch.f.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(1.0)]),
                                               "Torch.f.0.backward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(v)])})
        (folder / "stack.json").write_text(__import__("json").dumps({"0": [["Torch.f.0.forward"], dumps.frames(11)]}))
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    assert "Wrong: Torch.f.0.backward" in browser.text("h1")
    assert "/home/me/train.py:11" in browser.text(".first .stack") and "/home/me/train.py:11" in browser.text(".detail .stack")


def test_rows_are_walked_by_keys(shown):
    shown.click("#tab-rows")
    shown.until("return document.querySelectorAll('.line .value').length === 8")
    shown.run("document.activeElement.blur()")
    for number in range(3):
        shown.press("j")
        shown.until("return document.querySelectorAll('.line')[arguments[0]].classList.contains('on')", number)
    shown.until("return document.querySelector('.detail h2').innerText.includes('relu.0.forward')")


def test_rows_are_sorted_by_a_metric(shown):
    shown.click("#tab-rows")
    shown.run("""const s = document.querySelector('select[aria-label=sort]'); s.value = 'MaxAbsErr';
        s.dispatchEvent(new Event('change'))""")
    shown.until("return document.querySelector('.status').innerText.startsWith('8 of 8')")
    values = [float(v) for v in shown.texts(".line .value") if v[0].isdigit()]
    assert values == sorted(values, reverse=True) and values[0] > 0


def test_a_link_restores_the_view(browser, page):
    browser.open(page, "#call=Functional.gelu.0.forward&tab=calls&q=gelu")
    assert browser.text(".detail h2").endswith("Functional.gelu.0.forward")
    assert browser.text(".status").startswith("2 of 4") and browser.run("return document.querySelector('.tab.on').id") == "tab-calls"


def test_the_detail_has_both_sides_stack_neighbours_and_pictures(shown):
    text = shown.text(".detail")
    for word in ("NPU", "Bench", "l2norm", "Cosine", "Cosine < 0.99 and MaxAbsErr > 0.001", "/home/me/train.py:11", "Takes from", "Gives to"):
        assert word in text
    assert "Functional.linear.0.forward" in shown.texts(".two ul")[0] and "Functional.gelu.0.forward" in shown.texts(".two ul")[1]
    assert shown.run("return document.querySelectorAll('.pictures canvas').length") == 3
    worst = shown.texts(".worst tr")
    assert "[7, 11]" in worst[1] and "0.0" in worst[1] and "24.25" in worst[1]
    # the wrong columns of the map are drawn, the others are not
    drawn = shown.run("""const c = document.querySelector('.map'), g = c.getContext('2d'), out = [];
        for (let i = 0; i < 12; i++) out.push(g.getImageData((i + .5) * c.width / 12, c.height / 2, 1, 1).data[3] > 0);
        return out""")
    assert drawn == [False] * 10 + [True] * 2


def test_a_metric_beyond_its_limit_says_which_limit(shown):
    over = {line.split("\n")[0]: line.split("\n")[-1] for line in shown.texts(".metric.over")}
    assert over["MaxAbsErr"] == "above 1"
    assert set(over) <= {"Cosine", "MaxAbsErr"} and len(shown.texts(".metric")) > len(over)


def test_a_page_made_from_tables_says_why_it_has_no_pictures(browser, page, tmp_path):
    table = sorted(page.parent.glob("compare_result_*.xlsx"))[0]
    done = subprocess.run([find_command(), "report", str(table), "-o", str(tmp_path)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout
    browser.open(sorted(tmp_path.glob("*.html"))[0])
    assert "this page was made from tables" in browser.text(".detail")
    assert "Suspect" in browser.text(".first") and "could not all be compared" not in browser.text(".first")
    assert browser.run("return document.querySelectorAll('.pictures').length") == 0


def test_a_call_that_was_not_judged_is_not_said_to_differ_as_its_inputs_do(browser, tmp_path):
    def made(off):
        return {"Functional.f0.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0 + off)]),
                "Functional.f1.0.forward": dumps.call([dumps.tensor(1.0)], [dumps.tensor(3.0 + off, "torch.int64")])}
    dumps.write(tmp_path / "npu", made(1.0))
    dumps.write(tmp_path / "bench", made(0.0))
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"), "#call=Functional.f1.0.forward")
    browser.until("return document.querySelector('.detail h2')?.innerText.includes('f1.0.forward')")
    said = browser.text(".detail")
    assert "error of outputs" in said and "of inputs 0" in said and "as its inputs do" not in said
    assert "differs, and something wrong came before it" in said


def test_a_click_into_the_heat_map_opens_the_worst_call_there(browser, tmp_path):
    calls = {"Functional.f%d.0.forward" % i: dumps.call([dumps.tensor(1.0)], [dumps.tensor(2.0)]) for i in range(40)}
    for rank in (0, 1):
        dumps.write(tmp_path / "bench" / ("rank%d" % rank), calls)
        if rank == 1:
            calls["Functional.f30.0.forward"] = dumps.call([dumps.tensor(1.0)], [dumps.tensor(9.0)])
        dumps.write(tmp_path / "npu" / ("rank%d" % rank), calls)
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"), "#pair=0")
    browser.run("""const c = document.querySelector('.heat canvas'), r = c.getBoundingClientRect();
        c.dispatchEvent(new MouseEvent('click', {clientX: r.left + 110 + (r.width - 110) * 30.5 / 40, clientY: r.top + 24, bubbles: true}))""")
    browser.until("return document.querySelector('.detail h2')?.innerText.includes('f30.0.forward')")
    assert "pair=0" not in browser.run("return location.hash") and "rank1" in browser.text(".first") and browser.errors() == []


def test_the_keyboard_does_it_all(shown):
    shown.press("j")
    shown.until("return document.querySelector('.detail h2').innerText.includes('gelu.0.forward')")
    shown.press("p")  # the wrong call before it
    shown.until("return document.querySelector('.detail h2').innerText.includes('relu.0.forward')")
    shown.press("k")
    shown.until("return document.querySelector('.detail h2').innerText.includes('linear.0.forward')")
    shown.press("/")
    assert shown.run("return document.activeElement.type") == "search"


def test_copied_text_has_what_an_issue_needs(shown):
    shown.run("document.execCommand = () => { window.copied = document.querySelector('.copy')?.value; return true };"
              "Object.defineProperty(navigator, 'clipboard', {value: {writeText: t => { window.copied = t; return Promise.resolve() }}})")
    shown.press("c")
    text = shown.until("return window.copied")
    assert text.startswith("Functional.relu.0.forward\nverdict: wrong") and "MaxAbsErr: " in text and "train.py, line 11" in text


def ink(browser, selector):
    """How many colours there are in the part of the window where an element stands."""
    box = browser.run("const r = document.querySelector(arguments[0]).getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]", selector)
    rows, channels = browser.screenshot()
    left, top, right, bottom = (max(0, int(v)) for v in box)
    found = set()
    for row in rows[top:bottom]:
        found.update(row[x * channels:x * channels + 3] for x in range(left, min(right, len(row) // channels)))
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_blank_in_either_theme(shown, theme):
    if shown.run("return matchMedia('(prefers-color-scheme: dark)').matches") != (theme == "dark"):
        shown.press("d")
    ground = shown.run("return getComputedStyle(document.body).backgroundColor")
    assert (max(int(v) for v in ground[4:-1].split(",")) < 60) == (theme == "dark")
    for selector in ("h1", "dl", ".strip canvas"):
        assert len(ink(shown, selector)) > 8, selector
    wrong = shown.run("return getComputedStyle(document.querySelector('h1 .seal')).backgroundColor")
    assert bytes(int(v) for v in wrong[4:-1].split(",")) in ink(shown, ".strip canvas")


@pytest.mark.parametrize("width", [1400, 1000, 600])
def test_nothing_hangs_over_its_box(shown, width):
    shown.size(width, 900)
    over = shown.run("""return [...document.querySelectorAll('.first, .strip, .left, .detail, h1, dl')]
        .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className)""")
    assert over == [] and shown.run("return document.documentElement.scrollWidth <= innerWidth")


def test_verdicts_are_told_by_a_mark_and_a_word_too(shown):
    assert "✗" in shown.texts(".line .mark") and shown.run("return document.querySelector('.mark.wrong').title") == "wrong"


def test_it_can_be_printed(shown):
    pdf = shown.call("POST", shown.session + "/print", {})
    assert len(pdf) > 10000


def test_ranks_and_steps_are_rows_of_a_heat_map(browser, tmp_path):
    for step in (0, 1):
        for rank in (0, 1):
            dumps.statistics(tmp_path / "npu" / ("step%d" % step) / ("rank%d" % rank), 2.0 if (step, rank) == (1, 0) else 1.0)
            dumps.statistics(tmp_path / "bench" / ("step%d" % step) / ("rank%d" % rank))
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    assert "(step1 rank0; 1 of 4 pairs are wrong)" in browser.text("h1") and "4 pairs" in browser.text(".heat")
    browser.run("""const c = document.querySelector('.heat canvas'), r = c.getBoundingClientRect();
        c.dispatchEvent(new MouseEvent('click', {clientX: r.left + 200, clientY: r.top + 24, bubbles: true}))""")
    browser.until("return document.querySelector('.first dd').innerText.includes('step0/rank1')")
    assert "pair=1" in browser.run("return location.hash") and browser.errors() == []


HOSTILE = ["</script><script>window.ran=1</script>", "<img src=x onerror=window.ran=2>", "\u2028window.ran=3\u2029//", "'\"><svg/onload=window.ran=4>",
           "<!--<script>", "]]>\\u003c/script>", "%3Cscript%3E", "javascript:window.ran=5", "\x00\x1b[31m", "名前\ud83d\ude00", "__proto__", "constructor"]


def test_nothing_of_a_dump_ever_runs(browser, tmp_path):
    for side, fault in (("npu", 3.0), ("bench", 1.0)):
        records = {"Functional.%s.%d.forward" % (text, i): dumps.call(
            [dumps.tensor(1.0, dtype=text)], [dumps.tensor(fault, dtype=text)]) for i, text in enumerate(HOSTILE)}
        folder = dumps.write(tmp_path / side, records, construct={name: HOSTILE[0] for name in records})
        (folder / "stack.json").write_text(__import__("json").dumps(
            {str(i): [[name], ["File %s, line 1, in f, \n %s" % (HOSTILE[0], HOSTILE[1])]] for i, name in enumerate(records)}))
    page = make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out")
    browser.open(page)
    assert HOSTILE[0] in browser.text("h1")
    for i, text in enumerate(HOSTILE):
        browser.press("n")
    for tab in ("calls", "rows", "model"):
        browser.click("#tab-" + tab)
    browser.type("input[type=search]", "<img")
    browser.until("return document.querySelector('.status').innerText.startsWith('1 of %d')" % len(HOSTILE))
    assert HOSTILE[1] in browser.text(".line .label") or HOSTILE[1] in " ".join(browser.texts(".line .label"))
    assert browser.run("return window.ran ?? null") is None
    assert browser.run("return document.querySelectorAll('#app img, #app svg, #app script').length") == 0
    assert browser.errors() == []


def test_nothing_wrong_is_said_with_the_largest_error_and_where(browser, tmp_path):
    for rank, scale in ((0, 1.0), (1, 1 + 1e-8)):
        dumps.statistics(tmp_path / "npu" / ("rank%d" % rank), scale)
        dumps.statistics(tmp_path / "bench" / ("rank%d" % rank))
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    assert "Nothing wrong in 2 pairs: 6 results within rounding, largest " in browser.text("h1")
    assert "the expected error at Functional.relu.0.forward (rank1)" in browser.text("h1") and "rank1" in browser.text(".first dd")
    assert browser.run("return document.querySelector('h1').className") == "fine"


def test_one_call_with_many_rows_shows_the_wrong_one_first(browser, tmp_path):
    for side, value in (("npu", 9.0), ("bench", 1.0)):
        dumps.write(tmp_path / side, {"Torch.split.0.forward": dumps.call([dumps.tensor(1.0)] * 12, [dumps.tensor(1.0)] * 5 + [dumps.tensor(value)])})
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    assert "output.5" in browser.text(".errors") and "and 12 more" in browser.text(".errors")


def test_a_run_without_a_wrong_row_has_pictures_of_what_is_off_most(browser, tmp_path):
    for side, last in (("npu", 1 + 2.0**-23), ("bench", 1.0)):  # one unit in the last place
        (tmp_path / side / "dump_tensor_data").mkdir(parents=True)
        dumps.npy(tmp_path / side / "dump_tensor_data" / "y.npy", [1.0] * 11 + [last], (3, 4))
        dumps.write(tmp_path / side, {"Torch.mul.0.forward": dumps.call([], [dumps.tensor(1.0, shape=(3, 4), data_name="y.npy")])}, task="tensor")
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    assert "Nothing wrong" in browser.text("h1") and "11 of 12 equal" in browser.text(".pictures")


def test_the_first_call_that_differs_at_all_is_named_too(browser, tmp_path):
    for side, small, large in (("npu", 1 + 1e-7, 5.0), ("bench", 1.0, 1.0)):
        dumps.write(tmp_path / side, {"Torch.%s.0.forward" % name: dumps.call([], [dumps.tensor(v)])
                                      for name, v in (("same", 1.0), ("little", small), ("much", large), (side, 1.0))})
    browser.open(make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out"))
    text = browser.text(".first")
    assert "Wrong: Torch.much.0.forward\nits result output.0 differs by " in text
    assert "Torch.little.0.forward by " in text and "Torch.npu.0.forward has no partner" in text


def test_numbers_are_those_of_the_table(browser, tmp_path):
    """Columns that follow from others are kept as what they differ by: nothing may be lost on the way."""
    import csv
    import json
    import random
    for side in ("npu", "bench"):
        random.seed(5)
        numbers = [[random.gauss(0, 1) * 10 ** random.randint(-12, 12) for _ in range(4)] for _ in range(60)]
        noise = 1e-3 if side == "npu" else 0.0
        leaves = [dict(dumps.tensor(1.0), **{k: v * (1 + noise * random.random()) for k, v in zip(("Max", "Min", "Mean", "Norm"), n)}) for n in numbers]
        leaves[7]["Max"] = 0.0 if side == "bench" else 1.5
        dumps.write(tmp_path / side, {"Torch.f.%d.forward" % i: dumps.call([], [leaf]) for i, leaf in enumerate(leaves)})
    page = make_page(tmp_path / "npu", tmp_path / "bench", tmp_path / "out", "--format", "csv")
    table, = (tmp_path / "out").glob("*.csv")
    with open(str(table), newline="") as f:
        rows = list(csv.DictReader(f))
    for number in (0, 7, 59):
        browser.open(page, "#call=Torch.f.%d.forward" % number)
        browser.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: t => { window.copied = t; return Promise.resolve() }}});"
                    "document.execCommand = () => { window.copied = document.querySelector('.copy').value; return true }")
        browser.press("c")
        text = browser.until("return window.copied")
        got = dict(line.strip().split(": ", 1) for line in text.splitlines() if line.startswith("    ") and ": " in line)
        for title in ("Max diff", "Mean diff", "MaxRelativeErr", "NormRelativeErr", "NPU max", "Bench max", "Bench l2norm"):
            want = rows[number][title]
            if want == "N/A":
                assert title not in got
                continue
            assert float(got[title].rstrip("%")) == pytest.approx(float(want.rstrip("%")), rel=1e-4)
            assert got[title].endswith("%") == want.endswith("%")
    assert json.loads(browser.run("return document.getElementById('head').textContent"))["pairs"][0]["counts"]["rows"] == 60
