"""Polygraphy's ``debug reduce`` beside ours, in the case that suits it best: one ONNX file and a copy with two edits.

Polygraphy is installed into a folder of its own in the cache; nothing else of its dependencies moves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("polygraphy==0.53.6", "onnx-graphsurgeon==0.6.1")


def run(module: Any, inputs: tuple[np.ndarray, np.ndarray]) -> tuple[float, int]:
    """(seconds on the clock, how many of the two faults the reduced model still holds)."""
    folder = installed()
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        edits = write_models(module, inputs, work)
        polygraphy = [sys.executable, str(folder / "bin" / "polygraphy")]
        shared = ["--onnxrt", "--load-inputs", str(work / "inputs.json")]
        save_inputs(work, inputs, environment)
        outputs = str(work / "golden.json")
        _call([*polygraphy, "run", str(work / "good.onnx"), *shared, "--onnx-outputs", "mark", "all",
               "--save-outputs", outputs], work, environment)  # fmt: skip
        check = [*polygraphy, "run", "polygraphy_debug.onnx", *shared, "--load-outputs", outputs,
                 "--rtol", "0", "--atol", "1e-5"]  # fmt: skip
        begin = time.perf_counter()
        _call([*polygraphy, "debug", "reduce", str(work / "bad.onnx"), "-o", str(work / "reduced.onnx"),
               "--mode=bisect",
               "--load-inputs", str(work / "inputs.json"), "--check", *check], work, environment)  # fmt: skip
        took = time.perf_counter() - begin
        return took, found(work / "reduced.onnx", edits)


def installed() -> Path:
    """The folder with Polygraphy; filled by pip the first time."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ambidex" / "polygraphy-0.53.6"
    if not (folder / "polygraphy").is_dir():
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), *PACKAGES],
            check=True,
            stdout=sys.stderr,
        )
    return folder


def write_models(module: Any, inputs: tuple[np.ndarray, np.ndarray], work: Path) -> list[str]:
    """good.onnx and bad.onnx; returns the outputs of the two edited nodes."""
    import onnx
    import torch
    from onnx import numpy_helper

    torch.onnx.export(
        module, tuple(torch.from_numpy(a) for a in inputs), str(work / "good.onnx"), dynamo=False, opset_version=17,
        input_names=["ids", "allowed"], output_names=["hidden", "pooled"],
    )  # fmt: skip
    graph = onnx.load(str(work / "good.onnx"))
    nodes = {node.output[0]: node for node in graph.graph.node}
    constants = {n.output[0]: n for n in graph.graph.node if n.op_type == "Constant"}
    edited = []
    gelus = [n for n in nodes.values() if n.op_type == "Erf"]
    divide = nodes[gelus[0].input[0]]
    root = constants[next(i for i in divide.input if i in constants)]
    value = numpy_helper.to_array(root.attribute[0].t)
    own = onnx.helper.make_node("Constant", [], [f"{divide.output[0]}_edited"], value=numpy_helper.from_array(
        np.asarray(value * 1.01, dtype=value.dtype), "edited"))  # fmt: skip
    graph.graph.node.insert(list(graph.graph.node).index(divide), own)
    divide.input[1] = own.output[0]
    edited.append(divide.output[0])
    norm = [n for n in graph.graph.node if n.op_type == "LayerNormalization"][-1]
    next(a for a in norm.attribute if a.name == "epsilon").f = 1e-3
    edited.append(norm.output[0])
    onnx.save(graph, str(work / "bad.onnx"))
    return edited


def save_inputs(work: Path, inputs: tuple[np.ndarray, np.ndarray], environment: dict[str, str]) -> None:
    np.savez(work / "inputs.npz", ids=inputs[0], allowed=inputs[1])
    code = (
        "import numpy as np; from polygraphy.json import save_json; "
        "x = np.load('inputs.npz'); save_json([{k: x[k] for k in x.files}], 'inputs.json')"
    )
    _call([sys.executable, "-c", code], work, environment)


def found(reduced: Path, edited: list[str]) -> int:
    """How many of the edited nodes the reduced model holds; it is meant to be the one failing node."""
    import onnx

    if not reduced.exists():
        return 0
    nodes = onnx.load(str(reduced)).graph.node
    return sum(any(name in node.output for node in nodes) for name in edited)


def _call(command: list[str], work: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} failed:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")
