"""A page of 100,000 calls and 1,000,000 rows: nothing is drawn but what is seen."""
import json

import pytest
from pages import make_page

CALLS = 100000


def large(folder, fault):
    """Ten rows a call; from call 60,000 on the output of every 1,000th is off."""
    leaf = '{"type":"torch.Tensor","dtype":"torch.float32","shape":[4,8],"Max":%r,"Min":-1.0,"Mean":0.25,"Norm":%r,"requires_grad":false}'
    folder.mkdir(parents=True)
    with open(str(folder / "dump.json"), "w") as f:
        f.write('{"task":"statistics","level":"L1","framework":"pytorch","dump_data_dir":null,"data":{')
        for i in range(CALLS):
            v = 1.0 + i / CALLS
            off = 3.0 if fault and i >= 60000 and i % 1000 == 0 else 1.0
            a, b = leaf % (v, 2 * v), leaf % (v * off, 2 * v * off)
            f.write('%s"Functional.op%d.%d.forward":{"input_args":[%s],"input_kwargs":{},"output":[%s]}' % (
                "," if i else "", i % 50, i, ",".join([a] * 8), ",".join([a, b])))
        f.write("}}")
    (folder / "stack.json").write_text(json.dumps({}))
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    base = tmp_path_factory.mktemp("large")
    return make_page(large(base / "npu", True), large(base / "bench", False), base / "out", "--format", "csv", "-c")


def test_a_million_rows_are_searched_sorted_and_scrolled(browser, page):
    browser.size(1400, 1000)
    browser.open(page)
    assert "Functional.op0.60000.forward" in browser.text("h1") and browser.text(".status") == "100,000 calls"
    browser.type("input[type=search]", "op7.54307.")
    browser.until("return document.querySelector('.status').innerText === '1 of 100,000 calls'")
    browser.press("\ue00c")
    browser.click("#tab-rows")
    browser.until("return document.querySelector('.status').innerText === '1,000,000 of 1,000,000 rows'")
    assert browser.run("return document.querySelectorAll('.line').length") < 80
    browser.run("const l = document.querySelector('.list'); l.scrollTop = l.scrollHeight")
    browser.until("return [...document.querySelectorAll('.line')].some(e => e.innerText.includes('op49.99999.forward.output.1'))")
    browser.run("""const s = document.querySelector('select[aria-label=sort]'); s.value = 'Max diff';
        s.dispatchEvent(new Event('change'))""")
    browser.until("return document.querySelector('.line .value')?.innerText.startsWith('3.9')")
    assert "op0.99000.forward.output.1" in browser.text(".line .label")
    browser.run("""const s = document.querySelector('select[aria-label=verdict]'); s.value = 'wrong';
        s.dispatchEvent(new Event('change'))""")
    browser.until("return document.querySelector('.status').innerText === '40 of 1,000,000 rows'")
    assert browser.errors() == []


def test_the_first_screen_is_there_before_the_rows(page):
    """The verdict, and the program that shows it, stand before the first block of rows: a browser paints them first."""
    start = page.open("rb").read(200000)
    assert start.index(b'id="head"') < start.index(b"<script nonce") < start.index(b'data-block="rows0"')
    assert page.stat().st_size < 100 * 1024 * 1024
