"""``record --golden``: a folder that pytest runs, against the recorded implementation and against the other one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.test_patch import KERAS, TORCH, ambidex

from ambidex import golden
from ambidex.errors import TraceError

RIGHT = (
    KERAS.replace('name=f"n{i}", epsilon=1e-4', 'name=f"n{i}", epsilon=1e-5')
    .replace("epsilon=1e-3,  # why", "epsilon=1e-5,")
    .replace("keras.ops.gelu(x)", "keras.ops.gelu(x, approximate=False)")
    .replace("layers.ELU(0.5)", "layers.ELU(1.0)")
    .replace("layers.LeakyReLU(", "layers.LeakyReLU(0.1, ")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "t.py").write_text(TORCH)
    (made / "k.py").write_text(KERAS)
    (made / "right.py").write_text(RIGHT)
    done = ambidex(made, "record", "t.py:build", "--signature", "float32[4,9]", "--golden", "tests/golden")
    assert done.returncode == 0 and "pytest tests/golden" in done.stdout, done.stderr
    return made


def pytest_on(folder: Path, *models: str) -> subprocess.CompletedProcess[str]:
    test = folder / "tests" / "golden" / "test_golden.py"
    lines = [
        f"MODELS = {list(models)!r}" if line.startswith("MODELS") else line for line in test.read_text().splitlines()
    ]
    test.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/golden"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


def test_both_implementations_pass_and_a_wrong_one_is_told_why(folder: Path) -> None:
    done = pytest_on(folder, "t.py:build", "right.py:build")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
    done = pytest_on(folder, "k.py:build")
    assert done.returncode == 1 and "AMB101 LayerNorm epsilon" in done.stdout, done.stdout


def test_shapes_and_ranges_of_modules_are_there_to_be_read(folder: Path) -> None:
    content = json.loads((folder / "tests/golden/golden.json").read_text())
    assert set(content["modules"]) == {"n0#0", "d0#0", "n1#0", "d1#0", "out#0", "head#0", "act#0", "act#1", "elu#0"}
    first = content["modules"]["d0#0"]
    assert first["shape"] == [4, 12] and first["min"] < first["mean"] < first["max"]


def test_a_range_that_is_left_is_named(folder: Path) -> None:
    file = folder / "tests/golden/golden.json"
    content = json.loads(file.read_text())
    changed = json.loads(file.read_text())
    changed["modules"]["out#0"]["max"] += 1.0
    try:
        file.write_text(json.dumps(changed))
        with pytest.raises(AssertionError, match="out#0: the max of the output is"):
            golden.check(folder / "tests/golden", f"{folder / 't.py'}:build")
    finally:
        file.write_text(json.dumps(content))


def test_recording_again_keeps_the_list_of_models(folder: Path) -> None:
    test = folder / "tests/golden/test_golden.py"
    before = test.read_text()
    ambidex(folder, "record", "t.py:build", "--signature", "float32[4,9]", "--golden", "tests/golden")
    assert test.read_text() == before


@pytest.mark.parametrize(("arguments", "words"), [([], "--golden"), (["--out", "a", "--golden", "b"], "say where")])
def test_one_target_is_needed(folder: Path, arguments: list[str], words: str) -> None:
    done = ambidex(folder, "record", "t.py:build", *arguments)
    assert done.returncode == 2 and words in done.stderr and not (folder / "a").exists()


def test_a_damaged_golden_test_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no golden test"):
        golden.check(tmp_path, "t.py:build")
    (tmp_path / "golden.json").write_text('{"format": 9}')
    with pytest.raises(TraceError, match="cannot be read"):
        golden.check(tmp_path, "t.py:build")
