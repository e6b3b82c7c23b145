"""What other tools fall for, on real models: names, weights, single elements, hidden and small faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import keras  # isort: skip
from keras import layers, ops  # isort: skip

import ambidex
from ambidex.core.report import Finding, Report

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(4).normal(size=shape).astype(np.float32)


def told(report: Report) -> list[tuple[str, str | None, str | None]]:
    return [(f.code, f.where.reference, f.where.candidate) for f in report.findings]


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, told(report)
    return report.findings[0]


def equal(report: Report) -> None:
    assert report.verdict == "equal" and not report.findings, (report.verdict, told(report), report.whole_model)


def built(model: Any, *inputs: np.ndarray) -> Any:
    model(inputs[0] if len(inputs) == 1 else list(inputs))
    return model


def linear(module: nn.Linear, layer: Any) -> None:
    layer.kernel.assign(module.weight.detach().numpy().T)
    layer.bias.assign(module.bias.detach().numpy())


# ---------------------------------------------------------------- names


class Places(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places, self.head = nn.Embedding(13, 6), nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.tokens(ids) + self.places(torch.arange(ids.shape[1])))


def test_keras_layer_called_on_a_constant_is_baked_at_build_time() -> None:
    """``pos(ops.arange(n))`` in a functional model is evaluated once: later weights have no effect on it."""
    ids = keras.Input((7,), dtype="int64")
    places = layers.Embedding(9, 6, name="places")
    x = layers.Embedding(13, 6, name="tokens")(ids) + places(ops.arange(7))
    model = keras.Model(ids, layers.Dense(3, name="head")(x))
    report = ambidex.compare(Places().eval(), model, inputs=[np.arange(14).reshape(2, 7) % 13])
    assert report.verdict == "different"
    assert any("plac" in f"{f.where.reference} {f.where.candidate} {f.message}" for f in report.findings), told(report)
    assert not any(
        "tokens" in (f.where.reference or "") or (f.where.reference or "") == "head" for f in report.findings
    )


def mlp(width: int = 6) -> Any:
    hidden = [layers.Dense(width, activation="relu") for _ in range(2)]
    return keras.Sequential([keras.Input((5,)), *hidden, layers.Dense(3)])


def test_auto_numbered_names_are_no_identities() -> None:
    """Built twice in one process, ``dense_7`` of one is ``dense_10`` of the other; here names even overlap shifted."""
    first, second = mlp(), mlp()
    assert [x.name for x in first.layers] != [x.name for x in second.layers]
    report = ambidex.compare(first, second, inputs=[floats(4, 5)])
    equal(report)
    rows = [(r.reference, r.candidate) for r in report.layers if r.op == "Gemm"]
    assert rows == [(a.name, b.name) for a, b in zip(first.layers, second.layers, strict=True)]


class Deep(nn.Module):
    """Twelve equal layers whose names contain one another: encoder.1 and encoder.10."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(nn.Linear(6, 6) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.encoder:
            x = torch.tanh(layer(x)) + x
        return x


class KerasDeep(keras.Model):
    def __init__(self, slopes: dict[int, str]) -> None:
        super().__init__()
        self.encoder = [layers.Dense(6, name=f"encoder_{n}") for n in range(12)]
        self.slopes = slopes

    def call(self, x: Any) -> Any:
        for n, layer in enumerate(self.encoder):
            x = (ops.tanh if n not in self.slopes else ops.sigmoid)(layer(x)) + x
        return x


def test_substrings_of_names_make_no_pairs() -> None:
    x = floats(4, 6)
    equal(ambidex.compare(Deep().eval(), built(KerasDeep({}), x), inputs=[x]))
    report = ambidex.compare(Deep().eval(), built(KerasDeep({10: "sigmoid"}), x), inputs=[x])
    assert only(report).proven
    rows = [(r.reference or "", r.candidate or "") for r in report.layers if r.op == "Gemm"]
    assert [a.split(".")[-1] for a, _ in rows] == [b.split("/")[-1].split("_")[-1] for _, b in rows]


class Crossed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def test_names_that_mislead_lose_against_the_wiring() -> None:
    """The candidate calls "down" what the reference calls "up", and the other way round; what it computes is right."""
    x = keras.Input((6,))
    hidden = layers.Dense(6, name="down", activation="relu")(x)
    equal(ambidex.compare(Crossed().eval(), keras.Model(x, layers.Dense(6, name="up")(hidden)), inputs=[floats(5, 6)]))


# ---------------------------------------------------------------- weights


def test_one_wrong_element_in_a_large_kernel_is_found() -> None:
    """Cosine and mean stay at 1.000 and 0.000."""
    t = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 5)).eval()
    k = keras.Sequential(
        [keras.Input((300,)), layers.Dense(400, activation="relu", name="wide"), layers.Dense(5, name="head")]
    )
    linear(t[0], k.get_layer("wide"))
    linear(t[2], k.get_layer("head"))
    kernel = np.array(k.get_layer("wide").kernel)
    kernel[137, 251] += 0.01
    k.get_layer("wide").kernel.assign(kernel)
    report = ambidex.compare(t, k, inputs=[floats(4, 300)], weights="keep")
    finding = only(report)
    assert (
        finding.where.candidate == "wide" and finding.proven and "weight" in (finding.title + finding.message).lower()
    )


class OneWrong(layers.Layer):
    """Right but for one of 120,000 values."""

    def call(self, x: Any) -> Any:
        spot = np.zeros((1, 200, 300), np.float32)
        spot[0, 77, 133] = 1e-3
        return ops.tanh(x) + spot


def test_one_wrong_element_in_a_large_output_is_found() -> None:
    t = nn.Sequential(nn.Tanh(), nn.Linear(300, 3)).eval()
    k = keras.Sequential([keras.Input((200, 300)), OneWrong(), layers.Dense(3)])
    report = ambidex.compare(t, k, inputs=[floats(2, 200, 300)])
    assert report.verdict == "different" and report.findings


def test_a_transposed_square_kernel_is_found_and_not_silently_turned() -> None:
    t = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval()
    k = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="tanh", name="a"), layers.Dense(8, name="b")])
    linear(t[0], k.get_layer("a"))
    linear(t[2], k.get_layer("b"))
    k.get_layer("b").kernel.assign(t[2].weight.detach().numpy())
    before = np.array(k.get_layer("b").kernel)
    finding = only(ambidex.compare(t, k, inputs=[floats(5, 8)], weights="keep"))
    assert finding.where.candidate == "b" and finding.proven and "transpos" in (finding.title + finding.message).lower()
    assert np.array_equal(before, np.array(k.get_layer("b").kernel))


def test_parameters_without_partner_are_findings() -> None:
    t = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2)).eval()
    with torch.no_grad():
        t[1].weight.uniform_(0.5, 2)
        t[1].bias.normal_()
    norm = layers.BatchNormalization(epsilon=1e-5, scale=False, name="norm")
    k = keras.Sequential([keras.Input((5,)), layers.Dense(7), norm, layers.Dense(2, use_bias=False, name="out")])
    report = ambidex.compare(t, k, inputs=[floats(6, 5)])
    assert {f.where.candidate for f in report.findings} == {"norm", "out"}, told(report)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.out = nn.Embedding(11, 6), nn.LayerNorm(6, eps=1e-6), nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("position_ids", torch.arange(9))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.table(ids)))


class Untied(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = layers.Embedding(11, 6), layers.LayerNormalization(epsilon=1e-6)
        self.out = layers.Dense(11, use_bias=False)

    def call(self, ids: Any) -> Any:
        return self.out(self.norm(self.table(ids)))


def test_parameter_counts_that_differ_harmlessly_are_no_finding() -> None:
    """A tied table counts once, running statistics and position numbers are not parameters everywhere."""
    ids = RNG.integers(0, 11, (3, 5))
    equal(ambidex.compare(Tied().eval(), built(Untied(), ids), inputs=[ids]))
    t = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2)).eval()
    k = keras.Sequential([keras.Input((5,)), layers.Dense(7), layers.BatchNormalization(epsilon=1e-5), layers.Dense(2)])
    equal(ambidex.compare(t, k, inputs=[floats(6, 5)]))


# ---------------------------------------------------------------- crashes, hidden faults, small faults


class NoDouble(nn.Module):
    """A layer whose kernel refuses float64."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Picky.apply(x, self.weight)


class Picky(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise RuntimeError("this kernel has no float64")
        return x * weight


def test_a_crash_of_the_check_is_not_a_difference() -> None:
    """One layer has no float64 kernel; nothing differs, so nothing is told."""
    t = nn.Sequential(nn.Linear(5, 6), NoDouble(), nn.Linear(6, 2)).eval()

    class Scale(layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(6,), name="scale")

        def call(self, x: Any) -> Any:
            if keras.backend.standardize_dtype(x.dtype) != "float32":
                raise RuntimeError("this kernel has no float64")
            return x * self.scale

    k = keras.Sequential([keras.Input((5,)), layers.Dense(6), Scale(), layers.Dense(2)])
    equal(ambidex.compare(t, k, inputs=[floats(4, 5)]))
    k = keras.Sequential([keras.Input((5,)), layers.Dense(6), Scale(), layers.Dense(2, activation="tanh", name="last")])
    report = ambidex.compare(t, k, inputs=[floats(4, 5)])
    assert report.findings and all("last" in (f.where.candidate or "") for f in report.findings), told(report)


def block(slope: float, eps: float) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        x = layers.Dense(8)(x)
        x = layers.LayerNormalization(epsilon=eps)(x)
        return layers.LeakyReLU(slope)(x)

    return run


def test_faults_hidden_behind_faults_are_all_found() -> None:
    parts: list[nn.Module] = []
    for n in range(4):
        parts += [nn.Linear(5 if n == 0 else 8, 8), nn.LayerNorm(8, eps=1e-5), nn.LeakyReLU(0.01)]
    x = keras.Input((5,))
    y = x
    for slope, eps in ((0.3, 1e-5), (0.01, 1e-3), (0.2, 1e-2), (0.01, 1e-5)):
        y = block(slope, eps)(y)
    report = ambidex.compare(nn.Sequential(*parts).eval(), keras.Model(x, y), inputs=[floats(6, 5) * 0.2])
    assert sorted(f.where.reference or "" for f in report.findings) == ["2", "4", "7", "8"], told(report)
    assert all(f.proven for f in report.findings)
    assert report.whole_model.after_fixes is not None and report.whole_model.after_fixes < 1e-5


def test_a_fault_below_the_acceptance_limit_is_found() -> None:
    """A BatchNorm epsilon that moves the outputs by less than 1e-5."""
    t = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=1e-5), nn.ReLU(), nn.Conv2d(6, 2, 3)).eval()
    with torch.no_grad():
        t[1].running_var.uniform_(0.9, 1.6)
    norm = layers.BatchNormalization(epsilon=3e-5, name="norm")
    k = keras.Sequential([keras.Input((11, 9, 3)), layers.Conv2D(6, 3), norm, layers.ReLU(), layers.Conv2D(2, 3)])
    report = ambidex.compare(t, k, inputs=[floats(2, 3, 11, 9)])
    assert report.whole_model.max_rel is not None and report.whole_model.max_rel < 1e-4
    finding = only(report)
    assert (
        finding.where.candidate == "norm" and finding.proven and "epsilon" in (finding.title + finding.message).lower()
    )


def test_a_vector_output_off_by_ten_is_found() -> None:
    """A 1-D output is no scalar that may be skipped."""

    class Score(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x).squeeze(-1)

    x = keras.Input((5,))
    y = ops.squeeze(layers.Dense(1)(x), -1) + 10.0
    report = ambidex.compare(Score().eval(), keras.Model(x, y), inputs=[floats(4, 5)])
    assert report.verdict == "different" and report.findings
    assert report.whole_model.max_abs is not None and abs(report.whole_model.max_abs - 10) < 1e-3


def test_two_faults_in_a_two_layer_transformer_pair_are_both_found() -> None:
    """The pair on which bisection finds one of two."""
    from tests.score.arch import encoder

    pair = encoder.build(("gelu_tanh", "block_eps"))
    report = ambidex.compare(pair.reference, pair.candidate, inputs=list(pair.inputs), weights="carry")
    text = [f"{f.title} {f.message}".lower() for f in report.findings]
    assert any("gelu" in t for t in text) and any("epsilon" in t for t in text), told(report)
    assert all(f.proven for f in report.findings)
    assert report.whole_model.after_fixes is not None and report.whole_model.after_fixes < 1e-5
