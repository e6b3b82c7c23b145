"""The zoo itself, by plain numpy: good pairs agree after the hand carry, and every planted fault has an effect."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.score import zoo

ROOT = Path(__file__).resolve().parents[2]
AGREE = 1e-5
EFFECT = 1e-6


def measure(name: str) -> list[dict[str, object]]:
    """Every case of one architecture with the difference between its sides."""
    import keras

    arch = importlib.import_module(f"tests.score.arch.{name}").ARCH
    rows: list[dict[str, object]] = []
    for kind, faults, clean in zoo.cases(arch):
        keras.backend.clear_session()
        pair = arch.build(faults, clean.variant, clean.seed, clean.flip, clean.weights if kind == "clean" else None)
        if pair.weights == "carry":
            pair.carry()
        silent = kind == "single" and all(arch.faults[fault].silent for fault in faults)
        rows.append({"title": zoo.Case(name, kind, tuple(sorted(faults)), clean).title, "kind": kind,
                     "difference": zoo.difference(pair), "silent": silent})  # fmt: skip
    return rows


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_good_pairs_agree_and_faults_have_an_effect(name: str) -> None:
    # a process each: every architecture starts from fresh frameworks, as in the score
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", "tests.score.test_zoo", name], cwd=ROOT, env=env, text=True,
                          capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout.strip().splitlines()[-1])
    for row in rows:
        if row["kind"] == "clean":
            assert row["difference"] <= AGREE, row
        elif row["silent"]:
            assert row["difference"] <= EFFECT, row
        else:
            assert row["difference"] > EFFECT, row


def test_the_zoo_is_large_enough() -> None:
    source = {name: (Path(__file__).parent / "arch" / f"{name}.py").read_text() for name in zoo.ARCHITECTURES}
    assert len(source) >= 12
    assert sum(text.count('reference="keras"') for text in source.values()) * 4 >= len(source)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
