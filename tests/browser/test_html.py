"""The report page in a real browser: drawn, usable, harmless, readable on a phone, in light and in dark."""

from __future__ import annotations

import html as html_entities
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.unit import report_samples

from ambidex.core.report import Report
from ambidex.report import html, view
from ambidex.report.tree import trees

PROBE = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")
WIDTHS = (360, 1280)
SAMPLES = list(report_samples.ALL)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --hide-scrollbars --virtual-time-budget=20000 --window-size=1400,1000"
).split()


def browser() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return found
    pytest.fail("these tests look at the page in Chromium, and none is installed: apt-get install -y chromium")


def dump(page: Path, profile: Path) -> str:
    """The page's elements after its scripts have run."""
    done = subprocess.run(
        [browser(), *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the probe saw in every sample at every width: one browser, one frame each.

    A window of Chromium cannot be narrower than 500 pixels, a frame in it can.
    """
    folder = tmp_path_factory.mktemp("pages")
    frames = []
    for name in SAMPLES:
        html.write(report_samples.ALL[name](), folder / f"{name}.html")
        text = (folder / f"{name}.html").read_text(encoding="utf-8")
        # the page's own policy lets no foreign script run, so the probe needs a copy without it
        text, removed = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        assert removed == 1
        probed = text.replace("</body>", f"<script>{PROBE}</script></body>")
        (folder / f"{name}_probed.html").write_text(probed, encoding="utf-8")
        frames += [(name, width) for width in WIDTHS]
    outer = "".join(
        f'<iframe name="{name}@{width}" src="{name}_probed.html" width="{width}" height="900"></iframe>'
        for name, width in frames
    )
    collect = (
        "const all={};addEventListener('message',(e)=>{all[e.data.frame]=e.data.seen;"
        "document.getElementById('seen').textContent=JSON.stringify(all);});"
    )
    wrapper = folder / "all.html"
    wrapper.write_text(
        f"<meta charset=utf-8><style>iframe{{border:0}}</style><script>{collect}</script><pre id=seen></pre>{outer}",
        encoding="utf-8",
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', dump(wrapper, tmp_path_factory.mktemp("profile")), re.S)
    assert found
    result = json.loads(html_entities.unescape(found[1]))
    assert sorted(result) == sorted(f"{name}@{width}" for name, width in frames)
    return result


def sample(name: str) -> Report:
    return report_samples.ALL[name]()


every = pytest.mark.parametrize("frame", [f"{name}@{width}" for name in SAMPLES for width in WIDTHS])


@every
def test_no_error_and_no_sideways_scrolling(seen: dict[str, dict[str, Any]], frame: str) -> None:
    got = seen[frame]
    assert "error" not in got, got["error"]
    assert got["width"] == int(frame.split("@")[1])
    assert got["overflow"] == {"by": 0, "who": []}
    assert got["overflowOpen"] == {"by": 0, "who": []}


@every
def test_nothing_foreign_runs_or_loads(seen: dict[str, dict[str, Any]], frame: str) -> None:
    got = seen[frame]
    assert got["hacked"] == ""
    # the data, the page's script and the probe
    assert got["foreign"] == {"scripts": 3, "images": 0, "handlers": 0, "links": []}
    assert got["requests"] == []


@every
def test_contrast_is_aa_in_every_theme(seen: dict[str, dict[str, Any]], frame: str) -> None:
    got = seen[frame]
    for theme, (ratio, where) in got["contrast"].items():
        assert ratio >= 4.5, (theme, where)
    assert got["paper_light"] != got["paper_dark"]


@every
def test_every_control_has_a_name_and_every_id_is_one(seen: dict[str, dict[str, Any]], frame: str) -> None:
    assert (seen[frame]["nameless"], seen[frame]["doubleIds"]) == (0, 0)


@every
def test_cards_and_marks(seen: dict[str, dict[str, Any]], frame: str) -> None:
    report, got = sample(frame.split("@")[0]), seen[frame]
    assert got["cards"] == len(view.group(report.findings))
    both = sum(row.shadow is not None and row.chained is not None for row in report.layers)
    assert got["marks"] == sum(row.ratio is not None for row in report.layers) + both


@every
def test_wires_join_every_pair(seen: dict[str, dict[str, Any]], frame: str) -> None:
    both, got = trees(sample(frame.split("@")[0])), seen[frame]
    pairs = {(both.reference_of.get(i), both.candidate_of.get(i)) for i in range(len(both.rows))}
    assert got["offWires"] == 0
    assert got["unfolded"] == {"shown": len(both.reference) + len(both.candidate), "wires": len(pairs)}
    assert got["problems"]["clean"] == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_six_hundred_layers_start_folded(seen: dict[str, dict[str, Any]], width: int) -> None:
    got = seen[f"many@{width}"]
    assert got["shown"] < got["unfolded"]["shown"] / 2
    assert got["folded"]["shown"] < 30
    assert got["wires"] < got["unfolded"]["wires"]
    assert got["faultyWires"] == 100
    assert got["loneWires"] == 40


@pytest.mark.parametrize("frame", [f"{name}@{width}" for name in ("three", "many", "unicode") for width in WIDTHS])
def test_keyboard_and_pointing(seen: dict[str, dict[str, Any]], frame: str) -> None:
    got = seen[frame]
    assert got["focused"] == "c1"
    assert got["closedByKey"] > 0
    assert got["twinFollowed"]
    assert (got["selected"], got["hot"]) == (1, 1)
    assert "the floor" in got["readout"]
    assert "shadow" in got["chart"]
    assert got["cursors"] == 2
    assert got["leftWeights"] == 0
    assert 0 < got["found"] < got["unfolded"]["wires"]


def test_finding_leads_to_its_layer(seen: dict[str, dict[str, Any]]) -> None:
    readout = seen["three@360"]["readout"]
    assert "graph.gat.leaky" in readout and "graph/attention/leaky" in readout and "faulty" in readout


@pytest.mark.parametrize("name", ["three", "hostile"])
def test_page_as_written_runs_under_its_own_policy(tmp_path: Path, name: str) -> None:
    page = tmp_path / "report.html"
    html.write(sample(name), page)
    text = dump(page, tmp_path / "profile")
    assert 'class="js"' in text
    assert text.count('<path d="M') >= 15
    assert "data-hacked" not in text
