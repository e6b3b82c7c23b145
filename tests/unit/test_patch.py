"""Fixes merged into source text: exactly the wanted change, or a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ambidex.core.report import Coverage, Finding, LayerRow, Report, Where, WholeModel
from ambidex.report.patch import Patch, make

NAMES = {"nn.LayerNorm": ["normalized_shape", "eps"], "keras.layers.ELU": ["alpha"], "nn.ELU": ["alpha", "inplace"]}


def parameters(name: str) -> Sequence[str] | None:
    return NAMES.get(name)


def report(file: Path, *fixes: tuple[int, str], layers: Sequence[LayerRow] = ()) -> Report:
    findings = [
        Finding(code="AMB101", title="t", stage="forward", message="m", fix=fix, proven=True,
                where=Where(candidate=f"layer{n}", file=str(file), line=line))
        for n, (line, fix) in enumerate(fixes)
    ]  # fmt: skip
    return Report(
        verdict="different",
        whole_model=WholeModel(max_abs=1.0, max_rel=1.0, floor_ratio=1.0),
        coverage=Coverage(matched=1),
        layers=list(layers),
        findings=findings,
    )


def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, *fixes: tuple[int, str]) -> tuple[str, Patch]:
    """The source after the diff, and the diff."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "model.py"
    file.write_text(source)
    made = make(report(file, *fixes), parameters)
    lines = [line for line in made.text.splitlines() if line[:1] in "+ " and not line.startswith("+++")]
    return "\n".join(line[1:] for line in lines), made


@pytest.mark.parametrize(
    ("source", "fix", "wanted"),
    [
        ("y = layers.LayerNormalization()(x)", "keras.layers.LayerNormalization(epsilon=1e-05)",
         "y = layers.LayerNormalization(epsilon=1e-05)(x)"),
        ("y = LayerNormalization(name='n', )(x)", "keras.layers.LayerNormalization(epsilon=1e-05)",
         "y = LayerNormalization(name='n', epsilon=1e-05, )(x)"),
        ("y = LayerNormalization(epsilon=cfg.eps, name='ä')(x)", "keras.layers.LayerNormalization(epsilon=1e-05)",
         "y = LayerNormalization(epsilon=1e-05, name='ä')(x)"),
        ("n = nn.LayerNorm(9, 1e-3)", "nn.LayerNorm(..., eps=1e-05)", "n = nn.LayerNorm(9, 1e-05)"),
        ("n = nn.LayerNorm((9))", "nn.LayerNorm(..., eps=1e-05)", "n = nn.LayerNorm((9), eps=1e-05)"),
        ("e = nn.ELU(0.5)", "nn.ELU(1.0)", "e = nn.ELU(1.0)"),
        ("e = nn.ELU()", "nn.ELU(1.0)", "e = nn.ELU(alpha=1.0)"),
        ("g = keras.ops.gelu(h)", "keras.ops.gelu(x, approximate=False)",
         "g = keras.ops.gelu(h, approximate=False)"),
        ("g = F.pool(h, 2)", "F.pool(..., ceil_mode=True)", None),
    ],
)  # fmt: skip
def test_a_fix_is_merged_into_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, fix: str, wanted: str | None
) -> None:
    text, made = patched(tmp_path, monkeypatch, f"import keras\n{source}\n", (2, fix))
    if wanted is None:  # whether it stands among the positional arguments cannot be told
        assert not made.text and "not known" in made.left[0][1]
    else:
        assert text == f"import keras\n{wanted}" and len(made.mended) == 1 and not made.left


def test_a_call_over_several_lines_keeps_its_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "y = Norm(\n    axis=-1,  # last\n    epsilon=1e-3,\n)(x)\n"
    text, _ = patched(tmp_path, monkeypatch, source, (1, "keras.layers.Norm(epsilon=1e-06)"))
    assert text == "y = Norm(\n    axis=-1,  # last\n    epsilon=1e-06,\n)(x)"


def test_two_fixes_of_one_call_and_two_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "a = Norm(axis=1)\nb = Norm()\n"
    fixes = [(1, "Norm(axis=-1)"), (1, "Norm(epsilon=0.1)"), (2, "Norm(epsilon=0.2)")]
    text, made = patched(tmp_path, monkeypatch, source, *fixes)
    assert text == "a = Norm(axis=-1, epsilon=0.1)\nb = Norm(epsilon=0.2)" and len(made.mended) == 3


def test_a_call_inside_another_is_changed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "o = Adam(Decay(0.1, 5), clipnorm=1.0)(x)\n"
    fixes = [(1, "Adam(..., epsilon=1e-08)"), (1, "Decay(..., staircase=True)")]
    names = dict(NAMES, Adam=["rate", "epsilon"], Decay=["first", "steps", "rate"])
    monkeypatch.setattr("tests.unit.test_patch.NAMES", names)
    text, made = patched(tmp_path, monkeypatch, source, *fixes)
    assert text == "o = Adam(Decay(0.1, 5, staircase=True), clipnorm=1.0, epsilon=1e-08)(x)" and not made.left


@pytest.mark.parametrize(
    ("source", "fix", "reason"),
    [
        ("y = make()(x)", "keras.layers.LayerNormalization(epsilon=1e-05)", "no call of LayerNormalization"),
        ("y = Norm(Norm()(x))", "Norm(epsilon=1e-05)", "2 calls of Norm"),
        ("y = Norm(**options)", "Norm(epsilon=1e-05)", "unpacks"),
        ("y = Norm()", "add nn.LayerNorm here", "more than one expression"),
        ("y = Norm()", "x + 1", "no call"),
        ("y = Norm()", "Norm(activation=keras.activations.relu)", "does not import"),
        ("y = Norm()", "Norm(dim=...)", "leaves something open"),
        ("y = Norm(", "Norm(axis=1)", "cannot be read"),
    ],
)
def test_what_cannot_be_done_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, fix: str, reason: str
) -> None:
    _, made = patched(tmp_path, monkeypatch, source + "\n", (1, fix))
    assert made.text == "" and not made.mended and reason in made.left[0][1]


def test_different_values_for_one_line_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, made = patched(tmp_path, monkeypatch, "y = Norm()\n", (1, "Norm(epsilon=0.1)"), (1, "Norm(epsilon=0.2)"))
    assert text == "y = Norm(epsilon=0.1)" and "different values" in made.left[0][1]


def test_a_line_that_also_builds_a_right_layer_is_left(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("y = Norm()\n")
    rows = [
        LayerRow(reference="r", candidate=name, op=op, matched_by="order", source=f"{file}:1")
        for name, op in [("layer0", "Norm"), ("other", "Dense"), ("good", "Norm")]
    ]
    assert make(report(file, (1, "Norm(epsilon=0.1)"), layers=rows[:2]), parameters).mended
    made = make(report(file, (1, "Norm(epsilon=0.1)"), layers=rows), parameters)
    assert made.text == "" and "good" in made.left[0][1]


def test_a_file_elsewhere_is_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    file = tmp_path / "m.py"
    file.write_text("y = Norm()\n")
    made = make(report(file, (1, "Norm(epsilon=0.1)")), parameters)
    assert made.root == "/" and f"--- a{file}\n" in made.text
