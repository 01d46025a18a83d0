"""The bundle that is checked in, and built into the command, is what the sources give."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_picture_in_the_documentation_is_of_this_bundle():
    from picture import bundle, signature
    assert signature((ROOT / "docs/page.png").read_bytes()) == bundle(), "run tools/page-picture"


@pytest.mark.parametrize("name", ["page.js", "page.css"])
def test_the_bundle_is_what_the_sources_give(tmp_path, name):
    subprocess.run([str(ROOT / "tools/build-web"), str(tmp_path)], check=True)
    assert (tmp_path / name).read_bytes() == (ROOT / "web/dist" / name).read_bytes(), "run tools/build-web"


def test_the_sources_are_well_typed():
    done = subprocess.run(["tsc", "-p", str(ROOT / "web")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0, done.stdout


def test_the_program_cannot_end_its_own_element():
    text = (ROOT / "web/dist/page.js").read_bytes()
    assert b"</script" not in text.lower() and b"<!--" not in text and text.isascii()


def test_no_element_is_made_from_text_that_is_read_as_html():
    for path in (ROOT / "web/src").glob("*.ts"):
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
            assert word not in path.read_text(encoding="utf-8"), (path, word)
