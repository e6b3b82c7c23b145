"""What recording and comparing cost, as ratios taken in one run (``make bench-compare``; ``--quick``: no Polygraphy).

Absolute seconds say nothing on a shared machine. Every line divides two things that ran beside each other in one
process: threads pinned to one, turns interleaved, medians, and the processor time of this process (on an idle machine
with one thread that is the time on the clock). Only the line with Polygraphy, which starts processes of its own,
divides times on the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINS = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
HERE = Path(__file__).resolve().parent
GELU = "AMB110"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the run of Polygraphy")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part]()))
        return 0
    print(f"{machine()}\n")
    fine = True
    for part in PARTS:
        if part == "polygraphy" and given.quick:
            continue
        for name, value, unit, limit, at_least in alone(part):
            ok = value >= limit if at_least else value <= limit
            fine &= ok
            bound = f"{'>=' if at_least else '<='} {limit:g}{unit}"
            print(f"{name:<64} {value:9.2f}{unit:<2} {bound:>10}  {'ok' if ok else 'NOT'}", flush=True)
    return 0 if fine else 1


def alone(part: str) -> list[list[Any]]:
    """The lines of one part, measured in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "compare.py"), "--part", part],
        env={**os.environ, **PINS},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stderr[-4000:])
        raise SystemExit(f"the part '{part}' of the benchmark failed")
    lines: list[list[Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    return lines


def machine() -> str:
    import platform
    from importlib.metadata import version

    model = next((x.split(":")[1].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "") if (
        os.path.exists("/proc/cpuinfo")) else platform.processor()  # fmt: skip
    names = ("torch", "tensorflow-cpu", "keras", "numpy", "onnxruntime")
    versions = ", ".join(f"{n} {version(n)}" for n in names)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return f"{model}, {load}, Python {platform.python_version()}, {versions}"


def line(name: str, value: float, unit: str, limit: float, at_least: bool = False) -> list[Any]:
    return [name, value, unit, limit, at_least]


# ---------------------------------------------------------------- the parts


def recording() -> list[list[Any]]:
    """Recording all layers of a middle-sized BERT against a plain forward pass, each side alone."""
    import torch

    torch.set_num_threads(1)
    import bert_pair as pair
    import tensorflow as tf

    from ambidex.adapters import open_model

    size = pair.Size(layers=4, vocabulary=4000, batch=4, length=128)
    inputs = pair.make_inputs(size)
    t, k = pair.torch_bert(size), pair.keras_bert(size, {}, inputs)
    torch_inputs = [torch.from_numpy(a) for a in inputs]
    keras_inputs = [tf.constant(a) for a in inputs]

    def torch_plain() -> None:
        with torch.no_grad():
            t(*torch_inputs)

    sides = [("PyTorch", torch_plain, t), ("Keras", lambda: k(keras_inputs), k)]
    found = []
    for name, plain, module in sides:
        model = open_model(module)
        ratio = interleaved(plain, lambda model=model: model.run(inputs), turns=9)
        found.append(line(f"record every call, {name}: times a plain forward pass", ratio, "x", 1.3))
    return found


def bert() -> list[list[Any]]:
    """A whole comparison of a BERT with 100 million weights, every fault proven."""
    import torch

    torch.set_num_threads(1)
    import bert_pair as pair
    import tensorflow as tf

    import ambidex

    size = pair.Size()
    inputs = pair.make_inputs(size)
    t = pair.torch_bert(size)
    k = pair.keras_bert(size, {n: {"gelu"} for n in range(size.layers)}, inputs)
    torch_inputs = [torch.from_numpy(a) for a in inputs]
    keras_inputs = [tf.constant(a) for a in inputs]

    def both() -> None:
        with torch.no_grad():
            t(*torch_inputs)
        k(keras_inputs)

    both()
    two_models = resident()
    forget_peak()
    plain = [seconds(both) for _ in range(5)]
    reports: list[Any] = []
    whole = seconds(lambda: reports.append(ambidex.compare(t, k, inputs=inputs)))
    plain += [seconds(both) for _ in range(5)]
    report = reports[0]
    expect([f for f in report.findings if f.code == GELU and f.proven], size.layers, report)
    million = pair.count(t) / 1e6
    return [
        line(f"compare a BERT of {million:.0f} M weights: times one forward of both", whole / median(plain), "x", 12),
        line("its peak memory: times that of both models after a forward", peak() / two_models, "x", 2),
    ]


def stages() -> list[list[Any]]:
    """The same BERT followed through training: loss, gradients, updates, some steps; every stage agrees."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    import bert_pair as pair
    import keras

    import ambidex

    size = pair.Size()
    inputs = pair.make_inputs(size)
    t, k = pair.torch_bert(size), pair.keras_bert(size, {}, inputs)
    training = {
        "reference": {
            "loss": lambda out, y: sum((a - b).square().mean() for a, b in zip(out, y, strict=True)),
            "optimizer": lambda p: torch.optim.AdamW(p, 1e-4, eps=1e-30, weight_decay=0.01),
            "scheduler": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
            "clip": lambda p: torch.nn.utils.clip_grad_norm_(p, 1.0),
        },
        "candidate": {
            "loss": ["mse", "mse"],
            "optimizer": keras.optimizers.AdamW(
                keras.optimizers.schedules.ExponentialDecay(1e-4, 1, 0.9), 0.01, epsilon=1e-30, global_clipnorm=1.0
            ),
        },
    }
    with torch.no_grad():
        shapes = [tuple(a.shape) for a in t(*[torch.from_numpy(a) for a in inputs])]
    targets = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in shapes]
    reports: list[Any] = []
    ambidex.compare(t, k, inputs=inputs)  # both frameworks set themselves up
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # the first optimizer imports half of torch
    plain = seconds(lambda: reports.append(ambidex.compare(t, k, inputs=inputs)))
    followed = seconds(lambda: reports.append(ambidex.compare(t, k, inputs=inputs, training=training, targets=targets)))
    expect([], 0, reports[0])
    expect(reports[1].findings, 0, reports[1])
    told = {s.stage: s.status for s in reports[1].stages}
    if set(told.values()) - {"same", "not_defined"}:
        raise SystemExit(f"not every stage agrees: {told}")
    return [line("all stages of the same BERT: times comparing the forward pass", followed / plain, "x", 3)]


def polygraphy() -> list[list[Any]]:
    """Two faults in a two-layer transformer: ambidex, and Polygraphy's ``debug reduce`` in its ideal case."""
    import torch

    torch.set_num_threads(1)
    import bert_pair as pair
    import polygraphy_reduce

    import ambidex

    size = pair.TWO_LAYERS
    inputs = pair.make_inputs(size)
    t = pair.torch_bert(size)
    k = pair.keras_bert(size, {0: {"gelu"}, 1: {"epsilon"}}, inputs)
    ambidex.compare(t, k, inputs=inputs)  # imports
    times, reports = [], []
    for _ in range(3):
        begin = time.perf_counter()
        reports.append(ambidex.compare(t, k, inputs=inputs))
        times.append(time.perf_counter() - begin)
    found = {(f.code, f.where.candidate) for f in reports[0].findings if f.proven}
    both = (
        {c for c, _ in found} >= {GELU} and any("norm" in (p or "") for _, p in found) and len(reports[0].findings) == 2
    )
    other, faults = polygraphy_reduce.run(t, inputs)
    return [
        line("two faults in 2 transformer layers: found and proven by ambidex", 2.0 if both else 0.0, "", 2, True),
        line(f"Polygraphy debug reduce ({faults} found, {other:.0f} s): times ambidex", other / median(times), "x", 10,
             True),
    ]  # fmt: skip


def starting() -> list[list[Any]]:
    command = [sys.executable, "-m", "ambidex", "--help"]
    times = []
    for _ in range(7):
        begin = os.times()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        end = os.times()
        times.append(end.children_user + end.children_system - begin.children_user - begin.children_system)
    return [line("ambidex --help", median(times), "s", 0.4)]


PARTS: dict[str, Callable[[], list[list[Any]]]] = {
    "recording": recording, "bert": bert, "stages": stages, "polygraphy": polygraphy, "starting": starting,
}  # fmt: skip


# ---------------------------------------------------------------- measuring


def seconds(fn: Callable[[], Any]) -> float:
    """Processor seconds of this process."""
    begin = time.process_time()
    fn()
    return time.process_time() - begin


def median(values: list[float]) -> float:
    return statistics.median(values)


def interleaved(plain: Callable[[], Any], other: Callable[[], Any], turns: int) -> float:
    """Median of ``other`` over median of ``plain``, taken in turns."""
    plain()
    other()
    a, b = [], []
    for _ in range(turns):
        a.append(seconds(plain))
        b.append(seconds(other))
    return median(b) / median(a)


def _status(name: str) -> float:
    for row in open("/proc/self/status"):
        if row.startswith(name):
            return int(row.split()[1]) / 1024
    raise RuntimeError(f"this system does not tell {name}")


def resident() -> float:
    return _status("VmRSS")


def peak() -> float:
    return _status("VmHWM")


def forget_peak() -> None:
    """Let the peak start from what is resident now (what building the models took is not the comparison's)."""
    Path("/proc/self/clear_refs").write_text("5")


def expect(findings: list[Any], count: int, report: Any) -> None:
    if len(findings) != count or len(report.findings) != count:
        raise SystemExit(f"expected {count} proven findings, got {[(f.code, f.proven) for f in report.findings]}")


if __name__ == "__main__":
    raise SystemExit(main())
