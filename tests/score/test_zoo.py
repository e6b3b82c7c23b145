"""The zoo itself, by plain numpy: good pairs agree after the hand carry, and every planted fault has an effect."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.score import zoo

ROOT = Path(__file__).resolve().parents[2]
AGREE = 1e-5
EFFECT = 1e-6
#: alone it takes under two minutes on two cores; the limit is for a machine that does other things as well
pytestmark = pytest.mark.timeout(1500)
Measured = dict[str, list[dict[str, Any]]]


def measure(name: str) -> list[dict[str, Any]]:
    """Every case of one architecture with the difference between its sides."""
    import keras

    arch = importlib.import_module(f"tests.score.arch.{name}").ARCH
    rows: list[dict[str, Any]] = []
    for kind, faults, clean in zoo.cases(arch):
        if kind == "combo":  # each of its faults is proven alone
            continue
        keras.backend.clear_session(free_memory=False)  # collecting garbage each time takes a quarter of the run
        pair = arch.build(faults, clean.variant, clean.seed, clean.flip, clean.weights if kind == "clean" else None)
        if pair.weights == "carry":
            pair.carry()
        silent = kind == "single" and all(arch.faults[fault].silent for fault in faults)
        rows.append({"title": zoo.Case(name, kind, tuple(sorted(faults)), clean).title, "kind": kind,
                     "difference": zoo.difference(pair), "silent": silent})  # fmt: skip
    return rows


def measured(names: Sequence[str]) -> Measured:
    # in a process of its own, and several architectures in one: importing both frameworks is most of the time
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
    command = [sys.executable, "-m", "tests.score.test_zoo", *names]
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows: Measured = json.loads(done.stdout.strip().splitlines()[-1])
    return rows


@pytest.fixture(scope="module")
def everything() -> Measured:
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(measured, [zoo.ARCHITECTURES[::2], zoo.ARCHITECTURES[1::2]]))
    return halves[0] | halves[1]


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_good_pairs_agree_and_faults_have_an_effect(name: str, everything: Measured) -> None:
    for row in everything[name]:
        if row["kind"] == "clean":
            assert row["difference"] <= AGREE, row
        elif row["silent"]:
            assert row["difference"] <= EFFECT, row
        else:
            assert row["difference"] > EFFECT, row


@pytest.mark.parametrize(
    "name", [n for n in zoo.ARCHITECTURES if n not in ("layers", "training")]
)  # their faults are not in the code
def test_enough_of_every_kind(name: str, everything: Measured) -> None:
    kinds = [row["kind"] for row in everything[name]]
    combos = (Path(__file__).parent / "arch" / f"{name}.py").read_text().split("combos=[")[1].split("variants=")[0]
    assert kinds.count("single") >= 10 and combos.count("(") >= 3 and kinds.count("clean") >= 4


def test_the_zoo_is_large_enough() -> None:
    source = {name: (Path(__file__).parent / "arch" / f"{name}.py").read_text() for name in zoo.ARCHITECTURES}
    assert len(source) >= 12
    assert sum(text.count('reference="keras"') for text in source.values()) * 4 >= len(source)


if __name__ == "__main__":
    print(json.dumps({name: measure(name) for name in sys.argv[1:]}))
