"""The environment: what is read, and every combination that is known to go wrong, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ambidex.engine import environment
from ambidex.engine.environment import Environment, collect, find_problems, number


def env(packages: dict[str, str] | None = None, **fields: Any) -> Environment:
    base = {"torch": "2.14.0", "tensorflow-cpu": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6"}
    chosen = {name: version for name, version in (base | (packages or {})).items() if version}
    fields.setdefault("keras", {"backend": "tensorflow"})
    return Environment("3.11.7", "Linux x86_64", 4, chosen, **fields)


def messages(here: Environment) -> str:
    return " | ".join(f"{'FAULT' if p.fault else 'note'} {p.message}" for p in find_problems(here))


def test_a_good_environment_has_no_problem() -> None:
    assert messages(env()) == ""


@pytest.mark.parametrize(
    "here, words",
    [
        (env({"tensorflow-cpu": "2.15.0", "numpy": "1.26.4"}), "FAULT tensorflow-cpu 2.15.0 with keras 3.15.1"),
        (env({"keras": "2.15.0"}), "FAULT keras 2.15.0 is installed"),
        (env(variables={"TF_USE_LEGACY_KERAS": "1"}), "FAULT TF_USE_LEGACY_KERAS is set"),
        (env(keras={"backend": "jax"}), "FAULT the Keras backend is jax"),
        (env(keras={"backend": "openvino"}), "FAULT the Keras backend is openvino"),
        (env({"tensorflow-cpu": ""}), "FAULT the Keras backend is tensorflow"),
        (env(keras={"backend": "tensorflow", "floatx": "float16"}), "FAULT floatx is float16"),
        (env(keras={"backend": "tensorflow", "image_data_format": "channels_first"}), "note image_data_format"),
        (env({"torch": "2.2.0"}), "FAULT torch 2.2.0 with numpy 2.4.6"),
        (env({"tensorflow-cpu": "2.17.1"}), "FAULT tensorflow-cpu 2.17.1 with numpy 2.4.6"),
        (env({"tensorflow": "2.21.0"}), "FAULT tensorflow 2.21.0 and tensorflow-cpu 2.21.0 are both installed"),
        (env({"onnxruntime": "1", "onnxruntime-gpu": "1"}), "FAULT onnxruntime and onnxruntime-gpu"),
        (env({"jax": "0.4.30", "jaxlib": "0.4.35"}), "FAULT jax 0.4.30 with jaxlib 0.4.35"),
        (env(devices=["cpu x", "gpu NVIDIA H200, 570"]), "note TF32"),
        (env({"torch": "2.13.0+cpu"}), "note torch 2.13.0+cpu: wrong gradients"),
        (env(variables={"OMP_NUM_THREADS": "many"}), "FAULT OMP_NUM_THREADS is 'many'"),
        (env(variables={"OMP_NUM_THREADS": "64"}), "note OMP_NUM_THREADS is 64"),
        (env(variables={"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"}), "note XLA_FLAGS"),
        (env({"torch": "", "keras": ""}), "note neither torch nor Keras"),
    ],
)
def test_known_bad_combinations_are_found(here: Environment, words: str) -> None:
    assert messages(here).startswith(words)


@pytest.mark.parametrize(
    "here",
    [
        env({"tensorflow": "2.21.0", "tensorflow-intel": "2.21.0", "tensorflow-cpu": ""}),  # one wheel in two names
        env({"torch": "2.2.0", "tensorflow-cpu": "2.17.0", "numpy": "1.26.4"}),
        env(variables={"TF_USE_LEGACY_KERAS": "0", "OMP_NUM_THREADS": "4,2"}),
        env(devices=["cpu x", "gpu NVIDIA H200"], variables={"NVIDIA_TF32_OVERRIDE": "0"}),
        env({"keras": "", "tensorflow-cpu": ""}),
        env({"torch": "unreadable (X)", "jax": "0.5.1", "jaxlib": "0.5.1"}),
    ],
)
def test_sound_environments_are_not_accused(here: Environment) -> None:
    assert messages(here) == ""


def test_faults_come_first_and_set_the_exit_code() -> None:
    here = env({"torch": "2.14"}, variables={"OMP_NUM_THREADS": "64", "TF_USE_LEGACY_KERAS": "1"})
    here.problems = find_problems(here)
    assert [p.fault for p in here.problems] == [True, False] and here.exit_code == 1
    assert env().exit_code == 0


def test_this_environment_is_read_and_is_plain_data() -> None:
    here = collect(devices=False)
    assert here.packages["numpy"] and here.cpu_count >= 1
    json.dumps(here.as_dict(), allow_nan=False)


def test_keras_settings_come_from_file_and_variable(tmp_path: Path) -> None:
    assert environment._keras_settings({"KERAS_HOME": str(tmp_path)}) == {"backend": "tensorflow"}
    (tmp_path / "keras.json").write_text('{"backend": "jax", "floatx": "float16", "other": 1}')
    read = environment._keras_settings({"KERAS_HOME": str(tmp_path), "KERAS_BACKEND": "torch"})
    assert read == {"backend": "torch", "floatx": "float16", "file": str(tmp_path / "keras.json")}
    for damaged in ("{", "[1]", "\x00"):
        (tmp_path / "keras.json").write_text(damaged)
        assert environment._keras_settings({"KERAS_HOME": str(tmp_path)}) == {"backend": "tensorflow"}


@pytest.mark.parametrize(
    "text, parts", [("2.13.0+cpu", (2, 13, 0)), ("3", (3,)), ("1.0rc1", (1, 0)), ("x", ()), ("", ())]
)
def test_version_numbers(text: str, parts: tuple[int, ...]) -> None:
    assert number(text) == parts


def test_a_gpu_tool_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not any("nvidia-smi" in device for device in environment._devices())
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    assert "gpu (nvidia-smi cannot reach it)" in environment._devices()
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 570.1'\n")
    assert "gpu NVIDIA H200, 570.1" in environment._devices()
