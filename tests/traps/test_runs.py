"""What other tools fall for, on real models: masks, outputs, axes, randomness, and traps of Keras itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import keras  # isort: skip
from keras import layers, ops  # isort: skip

import ambidex
from tests.traps.test_layers import built, equal, floats, told

IDS = np.array([[3, 4, 5, 6, 0, 0], [7, 0, 0, 0, 0, 0], [1, 2, 9, 8, 5, 4], [6, 6, 1, 0, 0, 0]])


# ---------------------------------------------------------------- padding


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = (x != 0).any(-1).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(y)


def padded_steps() -> np.ndarray:
    x = floats(3, 6, 4)
    x[1, 2:] = 0
    x[2, 4:] = 0
    return x


def test_padded_steps_differ_legitimately_packed_against_masking() -> None:
    """torch leaves zeros at padded steps, Keras repeats the last output."""
    x = keras.Input((6, 4))
    y = layers.GRU(5, return_sequences=True)(layers.Masking()(x))
    equal(ambidex.compare(Packed().eval(), keras.Model(x, layers.Dense(2)(y)), inputs=[padded_steps()]))


def test_a_missing_mask_is_still_found_packed_against_nothing() -> None:
    """Reversed, so that padding reaches the valid steps."""

    class Backwards(Packed):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 5, batch_first=True, bidirectional=True)
            self.head = nn.Linear(10, 2)

    x = keras.Input((6, 4))
    y = layers.Bidirectional(layers.GRU(5, return_sequences=True))(x)
    report = ambidex.compare(Backwards().eval(), keras.Model(x, layers.Dense(2)(y)), inputs=[padded_steps()])
    assert report.verdict == "different", told(report)
    assert any("mask" in (f.title + f.message).lower() for f in report.findings), told(report)


class Attending(nn.Module):
    """Padded keys are hidden from every query; padded queries give what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mha, self.head = (
            nn.Embedding(11, 8),
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.Linear(8, 3),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        return self.head(self.mha(x, x, x, key_padding_mask=ids == 0, need_weights=False)[0])


class KerasAttending(keras.Model):
    """The mask of ``Embedding(mask_zero=True)`` hides padded queries too: other values there, and only there."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.table = layers.Embedding(11, 8, mask_zero=masked)
        self.mha, self.head = layers.MultiHeadAttention(2, 4), layers.Dense(3)

    def call(self, ids: Any) -> Any:
        x = self.table(ids)
        return self.head(self.mha(x, x))


def test_padded_queries_differ_legitimately_when_told_what_counts() -> None:
    inputs = {"reference": [IDS], "candidate": [IDS], "masks": {"valid": IDS != 0}}
    report = ambidex.compare(Attending().eval(), built(KerasAttending(), IDS), inputs=inputs)
    equal(report)
    missing = ambidex.compare(Attending().eval(), built(KerasAttending(masked=False), IDS), inputs=inputs)
    assert missing.verdict == "different" and missing.findings


# ---------------------------------------------------------------- outputs and axes


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.onset, self.note = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sigmoid(self.onset(x)), torch.sigmoid(self.note(x))


def test_two_outputs_of_equal_shape_swapped() -> None:
    x = keras.Input((5,))
    onset, note = (
        layers.Dense(3, name="onset", activation="sigmoid")(x),
        layers.Dense(3, name="note", activation="sigmoid")(x),
    )
    report = ambidex.compare(TwoHeads().eval(), keras.Model(x, [note, onset]), inputs=[floats(4, 5)])
    assert report.verdict == "different"
    text = " ".join(f.title + f.message for f in report.findings).lower()
    assert "swap" in text or "order" in text, told(report)
    assert not any(f.where.candidate in ("onset", "note") for f in report.findings), told(report)
    equal(ambidex.compare(TwoHeads().eval(), keras.Model(x, [onset, note]), inputs=[floats(4, 5)]))


def test_height_and_width_swapped_on_an_input_that_is_not_square() -> None:
    t = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 7 * 5, 3)).eval()

    def model(swap: bool) -> keras.Model:
        x = keras.Input((9, 7, 3))
        y = layers.Conv2D(4, 3, activation="relu")(x)
        y = layers.Permute((3, 2, 1) if swap else (3, 1, 2))(y)
        return keras.Model(x, layers.Dense(3)(layers.Flatten()(y)))

    inputs = [floats(2, 3, 9, 7)]
    equal(ambidex.compare(t, model(False), inputs=inputs))
    report = ambidex.compare(t, model(True), inputs=inputs)
    assert report.verdict == "different" and report.findings
    assert report.whole_model.after_fixes is not None and report.whole_model.after_fixes < 1e-5


# ---------------------------------------------------------------- randomness


class Restless(nn.Module):
    """Dropout that is active in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 40), nn.Linear(40, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.dropout(torch.relu(self.first(x)), 0.3, training=True))


def test_active_dropout_is_not_reproducible_and_not_different() -> None:
    model = Restless().eval()
    report = ambidex.compare(model, model, inputs=[floats(4, 5)])
    assert report.verdict == "not_reproducible" and report.exit_code == 3
    assert any("dropout" in (f.title + f.message).lower() for f in report.findings), told(report)


def test_a_model_against_itself_is_equal() -> None:
    x = keras.Input((5,))
    model = keras.Model(x, layers.Dense(3)(layers.Dropout(0.4)(layers.Dense(7, activation="gelu")(x))))
    equal(ambidex.compare(model, model, inputs=[floats(4, 5)]))


# ---------------------------------------------------------------- traps of Keras


class MaskedQueries(nn.Module):
    """A query that is masked sees nothing: it gives the bias of the output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).view(*x.shape[:2], 2, 4).transpose(1, 2) for f in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / 2.0
        p = torch.softmax(scores, -1) * allowed[:, None, :, None]
        return self.output((p @ v).transpose(1, 2).flatten(2))


class IgnoresQueryMask(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.mha = layers.MultiHeadAttention(2, 4)

    def call(self, inputs: Any) -> Any:
        x, allowed = inputs
        return self.mha(x, x, query_mask=allowed)


def test_keras_attention_ignores_an_explicit_query_mask() -> None:
    x, allowed = floats(3, 6, 8), IDS[:3] != 0
    report = ambidex.compare(MaskedQueries().eval(), built(IgnoresQueryMask(), x, allowed), inputs=[x, allowed])
    assert report.verdict == "different" and report.findings, told(report)
    where = " ".join(f"{f.where.reference} {f.where.candidate} {f.message}" for f in report.findings)
    assert "attention" in where or "mask" in where.lower(), told(report)


class MeanOfValid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.first, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        x = x + self.first(x)
        valid = (ids != 0).float().unsqueeze(-1)
        return self.head((x * valid).sum(1) / valid.sum(1))


class LosesMask(keras.Model):
    """``x + y`` loses the implicit mask, ``Add()`` keeps it: the mean goes over padding, or not."""

    def __init__(self, plus: bool) -> None:
        super().__init__()
        self.plus, self.add = plus, layers.Add()
        self.table, self.first = layers.Embedding(11, 8, mask_zero=True), layers.Dense(8)
        self.pool, self.head = layers.GlobalAveragePooling1D(), layers.Dense(3)

    def call(self, ids: Any) -> Any:
        x = self.table(ids)
        y = self.first(x)
        x = x + y if self.plus else self.add([x, y])
        return self.head(self.pool(x))


def test_a_keras_mask_lost_through_an_operator_is_found() -> None:
    report = ambidex.compare(MeanOfValid().eval(), built(LosesMask(plus=True), IDS), inputs=[IDS])
    assert report.verdict == "different" and report.findings
    text = " ".join(f"{f.title} {f.message} {f.where.candidate} {f.where.reference}" for f in report.findings).lower()
    assert "mask" in text or "pool" in text or "mean" in text, told(report)
    equal(ambidex.compare(MeanOfValid().eval(), built(LosesMask(plus=False), IDS), inputs=[IDS]))


class Positions(nn.Module):
    """(N, T, D) + (1, T, 1): one number a step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.register_buffer("ramp", torch.linspace(-1, 1, steps)[None, :, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(x) + self.ramp))


class KerasPositions(keras.Model):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.first, self.head = layers.Dense(6), layers.Dense(3)
        self.ramp = np.linspace(-1, 1, steps, dtype=np.float32)[None, :, None]

    def call(self, x: Any) -> Any:
        return self.head(ops.relu(ops.add(self.first(x), self.ramp)))


def test_keras_ops_add_broadcasts_a_column_as_a_row_when_sizes_agree() -> None:
    """Right at 5 steps, wrong at 6, where the number of steps is the number of channels."""
    good, bad = floats(2, 5, 4), floats(2, 6, 4)
    equal(ambidex.compare(Positions(5).eval(), built(KerasPositions(5), good), inputs=[good]))
    report = ambidex.compare(Positions(6).eval(), built(KerasPositions(6), bad), inputs=[bad])
    assert report.verdict == "different" and report.findings
    assert any("add" in f"{f.where.reference} {f.where.candidate} {f.message}".lower() for f in report.findings), told(
        report
    )
    assert not any(f.where.candidate in ("first", "head") for f in report.findings), told(report)
