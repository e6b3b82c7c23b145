"""The page as text; what it looks like in a browser is tested in tests/browser."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.unit import report_samples

from ambidex.errors import InputError
from ambidex.report import html


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


@pytest.mark.parametrize("name", list(report_samples.ALL))
def test_self_contained_and_harmless(name: str) -> None:
    parsed = Elements()
    text = html.page(report_samples.ALL[name]())
    parsed.feed(text)
    assert parsed.tags.count("script") == 2
    assert not {"img", "iframe", "object", "embed", "base", "form"} & set(parsed.tags)
    for key, value in parsed.attributes:
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href", "action"):
            assert (value or "").startswith(("#", "data:,"))
    assert not re.search(r"url\(|@import", text)
    assert "\x1b" not in text and "\u202e" not in text and "49{% raw" not in text


def test_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "new folder" / "report.html"
    html.write(report_samples.three(), target)
    assert target.read_text(encoding="utf-8").rstrip().endswith("</html>")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    with pytest.raises(InputError, match="cannot write the page"):
        html.write(report_samples.three(), target / "below a file.html")


def test_six_hundred_layers_are_fast_and_not_huge() -> None:
    text = html.page(report_samples.many())
    assert len(text) < 3_000_000


def test_importing_the_rendering_imports_no_framework() -> None:
    code = (
        "import sys, ambidex.report.html, ambidex.report.text, ambidex.report.json_;"
        "print([m for m in ('torch', 'tensorflow', 'keras', 'jax', 'onnx', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
