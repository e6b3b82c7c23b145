"""Cases whose cause lies outside the model: in the data, or in an exported file.

Many of them are reported of files and pipelines, but come down to one different operator: those are pairs of live
models of which one computes what the file (or the other pipeline) does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import torch
import torch.nn.functional as F
from torch import nn

import keras  # isort: skip  (torch first)
from keras import layers, ops  # isort: skip

from tests.catalogue.case import Case, Pair

RESIZE = tf.compat.v1.image


class Net(nn.Module):
    """``code`` is the forward pass; it gets this module, whose layers are ``parts``."""

    def __init__(self, code: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.code = code
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *x: torch.Tensor) -> Any:
        return self.code(self, *x)


class KerasNet(keras.Model):
    """``code`` is the call; it gets this model, whose layers are ``parts``."""

    def __init__(self, code: Callable[..., Any], **parts: layers.Layer) -> None:
        super().__init__()
        self.code = code
        for name, part in parts.items():
            setattr(self, name, part)

    def call(self, x: Any) -> Any:
        return self.code(self, *(x if isinstance(x, list | tuple) else [x]))


def pair(reference: Any, candidate: Any, *inputs: np.ndarray, channels_last: bool = False, **more: Any) -> Pair:
    """``channels_last``: the inputs as Keras has them; the torch side gets its channels first."""
    theirs = [np.ascontiguousarray(np.moveaxis(x, -1, 1)) for x in inputs] if channels_last else list(inputs)
    for model in (reference, candidate):
        if isinstance(model, keras.Model) and not model.built:
            model(list(inputs) if len(inputs) > 1 else inputs[0])
    if not channels_last:
        return Pair(reference, candidate, theirs, more)
    ours = [theirs if isinstance(m, nn.Module) else list(inputs) for m in (reference, candidate)]
    return Pair(reference, candidate, {"reference": ours[0], "candidate": ours[1]}, more)


def rng() -> np.random.Generator:
    keras.utils.set_random_seed(3)
    torch.manual_seed(3)
    return np.random.default_rng(3)


def image(n: int = 2, size: int = 16, channels: int = 3, scale: float = 1.0) -> np.ndarray:
    x = rng().random((n, size, size, channels)).astype(np.float32)
    return (x * scale).astype(np.float32)


# ----------------------------------------------------------------------------------------------------------------- data
def antialias() -> Pair:
    x = image()
    reference = Net(
        lambda m, x: m.conv(F.interpolate(x, size=(4, 4), mode="bilinear", antialias=True)), conv=nn.Conv2d(3, 4, 3)
    )
    candidate = keras.Sequential([layers.Resizing(4, 4), layers.Conv2D(4, 3)])
    return pair(reference.eval(), candidate, x, channels_last=True)


def caffe_input() -> Pair:
    """The reference takes RGB pixels to BGR and subtracts Caffe's means, the candidate divides them by 255."""
    x = np.round(image(scale=255.0))
    means = np.array([103.939, 116.779, 123.68], np.float32)
    reference = Net(
        lambda m, x: m.conv(x.flip(1) - torch.tensor(means)[:, None, None]).relu().mean((2, 3)), conv=nn.Conv2d(3, 4, 3)
    )
    candidate = KerasNet(
        lambda m, x: ops.mean(ops.relu(m.conv(x / 255.0)), axis=(1, 2)), conv=layers.Conv2D(4, 3, name="conv")
    )
    return pair(reference.eval(), candidate, x, channels_last=True)


def rounded_pixels() -> Pair:
    """Twice the size: every weight is a multiple of 1/16, so that halves are the same halves on both sides."""
    x = np.round(image(scale=255.0, size=4))
    reference = Net(
        lambda m, x: m.conv(F.interpolate(x, size=(8, 8), mode="bilinear").round().clamp(0, 255) / 255.0),
        conv=nn.Conv2d(3, 4, 3),
    )
    candidate = KerasNet(
        lambda m, x: m.conv(ops.clip(ops.image.resize(x, (8, 8)), 0, 255) / 255.0), conv=layers.Conv2D(4, 3)
    )
    return pair(reference.eval(), candidate, x, channels_last=True)


PADDING = 2


def guessed_mask() -> Pair:
    """Padded on the left with the token that also ends a text: one side takes the pads out, the other keeps them."""
    ids = np.array([[2, 2, 5, 7, 4], [2, 6, 3, 8, 9], [5, 3, 9, 4, 8]])
    rng()

    def reference(m: Any, ids: torch.Tensor) -> torch.Tensor:
        x = m.embedding(ids)
        hidden = (ids == PADDING)[:, None, :]
        scores = (m.q(x) @ m.k(x).transpose(1, 2) / 6**0.5).masked_fill(hidden, -1e9)
        return m.out((scores.softmax(-1) @ m.v(x))[:, -1])

    def candidate(m: Any, ids: Any) -> Any:
        x = m.embedding(ids)
        scores = m.q(x) @ ops.swapaxes(m.k(x), 1, 2) / 6**0.5
        return m.out((ops.softmax(scores) @ m.v(x))[:, -1])

    return pair(
        Net(reference, embedding=nn.Embedding(10, 6), **{n: nn.Linear(6, 6) for n in "qkv"}, out=nn.Linear(6, 10)),
        KerasNet(
            candidate, embedding=layers.Embedding(10, 6), **{n: layers.Dense(6) for n in "qkv"}, out=layers.Dense(10)
        ),
        ids,
    )


def frames() -> Pair:
    """Windows of 40 in a transform of 64: torch cuts frames of 64 and puts the window in their middle. Of this length
    both make 11 frames."""
    x = rng().standard_normal((2, 384)).astype(np.float32)

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        z = torch.stft(x, 64, 32, 40, torch.hann_window(40), center=False, return_complex=True)
        return m.out(z.abs().transpose(1, 2)).mean(1)

    def candidate(m: Any, x: Any) -> Any:
        return ops.mean(m.out(tf.abs(tf.signal.stft(x, 40, 32, 64))), axis=1)

    return pair(Net(reference, out=nn.Linear(33, 4)).eval(), KerasNet(candidate, out=layers.Dense(4)), x)


# --------------------------------------------------------------------------------------------------------------- export
def one_pixel() -> Pair:
    """Resized to one pixel the mode pytorch_half_pixel takes coordinate 0, torch the middle."""
    x = image(size=8)
    reference = Net(
        lambda m, x: m.conv(F.interpolate(m.first(x), size=(1, 1), mode="bilinear")),
        first=nn.Conv2d(3, 4, 3),
        conv=nn.Conv2d(4, 5, 1),
    )
    candidate = KerasNet(
        lambda m, x: m.conv(RESIZE.resize_bilinear(m.first(x), (1, 1))),
        first=layers.Conv2D(4, 3),
        conv=layers.Conv2D(5, 1),
    )
    return pair(reference.eval(), candidate, x, channels_last=True)


def shifted_batch() -> Pair:
    """What the runtime did: every sample gets the pixels of the next one."""
    x = image(n=4, size=8)
    reference = Net(lambda m, x: m.conv(F.interpolate(x, size=(16, 16), mode="nearest")), conv=nn.Conv2d(3, 4, 3))
    candidate = KerasNet(
        lambda m, x: m.conv(ops.image.resize(ops.take(x, np.array([1, 2, 3, 3]), axis=0), (16, 16), "nearest")),
        conv=layers.Conv2D(4, 3),
    )
    return pair(reference.eval(), candidate, x, channels_last=True)


def reset_before() -> Pair:
    x = rng().standard_normal((3, 7, 5)).astype(np.float32)
    reference = Net(lambda m, x: m.out(m.gru(x)[0][:, -1]), gru=nn.GRU(5, 6, batch_first=True), out=nn.Linear(6, 3))
    candidate = keras.Sequential([layers.GRU(6, reset_after=False), layers.Dense(3)])
    return pair(reference.eval(), candidate, x)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)
        with torch.no_grad():
            self.norm.running_mean.normal_(0.5)
            self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.drop(torch.relu(self.norm(self.a(x)))))


def left_in_training() -> Pair:
    """The exported file is in inference mode and is the reference; the live module was never put there."""
    x = rng().standard_normal((6, 5)).astype(np.float32)
    reference = keras.Sequential(
        [layers.Dense(8), layers.BatchNormalization(epsilon=1e-5), layers.ReLU(), layers.Dropout(0.3), layers.Dense(3)]
    )
    candidate = Norm()
    candidate.train()
    made = pair(reference, candidate, x)
    reference.layers[1].moving_mean.assign(ops.convert_to_tensor(np.linspace(-1, 1, 8, dtype=np.float32)))
    reference.layers[1].moving_variance.assign(ops.convert_to_tensor(np.linspace(0.5, 2, 8, dtype=np.float32)))
    return made


def exported_dropout() -> Pair:
    """What the exporter wrote of a module in train mode: its dropout draws at every run."""
    x = rng().standard_normal((6, 5)).astype(np.float32)
    reference = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    candidate = KerasNet(
        lambda m, x: m.b(m.drop(m.a(x), training=True)), a=layers.Dense(8), drop=layers.Dropout(0.5), b=layers.Dense(3)
    )
    return pair(reference, candidate, x)


class Block(nn.Module):
    """DropBlock by hand: a branch on the mode that a recording decides once."""

    def __init__(self, recorded: bool | None = None) -> None:
        super().__init__()
        self.recorded = recorded

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = self.training if self.recorded is None else self.recorded
        return x * (torch.rand_like(x) > 0.2) / 0.8 if active else x


def recorded_mode() -> Pair:
    x = rng().standard_normal((6, 5)).astype(np.float32)
    made = [nn.Sequential(nn.Linear(5, 8), Block(r), nn.Linear(8, 3)).eval() for r in (None, True)]
    return pair(*made, x)


def narrow_ids() -> Pair:
    """Hashed ids above 2**31, narrowed to 32 bits on their way into the table."""
    ids = rng().integers(2**31, 2**40, (4, 3))
    reference = Net(lambda m, ids: m.out(m.table(ids % 101).mean(1)), table=nn.Embedding(101, 6), out=nn.Linear(6, 2))
    candidate = KerasNet(
        lambda m, ids: m.out(ops.mean(m.table(ops.cast(ids, "int32") % 101), axis=1)),
        table=layers.Embedding(101, 6),
        out=layers.Dense(2),
    )
    return pair(reference.eval(), candidate, ids)


def flattened_softmax() -> Pair:
    """Softmax of opset 11: everything from the axis on is one group."""
    x = rng().standard_normal((2, 3, 4)).astype(np.float32)
    reference = Net(lambda m, x: m.out(m.a(x).softmax(1)), a=nn.Linear(4, 4), out=nn.Linear(4, 3))
    candidate = KerasNet(lambda m, x: m.out(ops.softmax(m.a(x), axis=(1, 2))), a=layers.Dense(4), out=layers.Dense(3))
    return pair(reference.eval(), candidate, x)


def baked_length() -> Pair:
    """A mean as sum and division by the number of steps, which was 5 when the file was made."""
    x = rng().standard_normal((3, 7, 4)).astype(np.float32)
    reference = Net(lambda m, x: m.out(m.a(x).sum(1) / x.shape[1]), a=nn.Linear(4, 6), out=nn.Linear(6, 3))
    candidate = KerasNet(lambda m, x: m.out(ops.sum(m.a(x), axis=1) / 5.0), a=layers.Dense(6), out=layers.Dense(3))
    return pair(reference.eval(), candidate, x)


def ignored_corners() -> Pair:
    x = image(size=5)
    reference = Net(
        lambda m, x: m.conv(F.interpolate(x, size=(9, 9), mode="bilinear", align_corners=True)),
        conv=nn.Conv2d(3, 4, 3),
    )
    candidate = KerasNet(lambda m, x: m.conv(RESIZE.resize_bilinear(x, (9, 9))), conv=layers.Conv2D(4, 3))
    return pair(reference.eval(), candidate, x, channels_last=True)


def baked_range() -> Pair:
    """Places counted from the end of the text behind an LSTM; the file counts from the end of its example's 5 steps."""
    ids = rng().integers(0, 9, (3, 7))

    def reference(m: Any, ids: torch.Tensor) -> torch.Tensor:
        x = m.lstm(m.words(ids))[0] + m.places(ids.shape[1] + 3 - torch.arange(ids.shape[1]))
        return m.out(x)

    def candidate(m: Any, ids: Any) -> Any:
        return m.out(m.lstm(m.words(ids)) + m.places(10 - 2 - ops.arange(ids.shape[1])))

    return pair(
        Net(reference, words=nn.Embedding(9, 6), places=nn.Embedding(12, 6), lstm=nn.LSTM(6, 6, batch_first=True),
            out=nn.Linear(6, 2)).eval(),
        KerasNet(candidate, words=layers.Embedding(9, 6), places=layers.Embedding(12, 6),
                 lstm=layers.LSTM(6, return_sequences=True), out=layers.Dense(2)),
        ids,
    )  # fmt: skip


def recorded_branch() -> Pair:
    """The example's sum was positive, this one's is not."""
    x = -np.abs(rng().standard_normal((4, 5))).astype(np.float32)

    def reference(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(m.a(x) + 1.0 if x.sum() > 0 else m.a(x) * 3.0)

    parts = {"a": nn.Linear(5, 6), "out": nn.Linear(6, 2)}
    candidate = KerasNet(lambda m, x: m.out(m.a(x) + 1.0), a=layers.Dense(6), out=layers.Dense(2))
    return pair(Net(reference, **parts).eval(), candidate, x)


def raw_integers() -> Pair:
    """Integers of a quantised input taken as they are, without zero point and scale."""
    x = rng().integers(0, 256, (4, 5)).astype(np.int32)
    reference = Net(lambda m, x: m.out(torch.relu(m.a((x.float() - 128.0) * 0.02))), a=nn.Linear(5, 6),
                    out=nn.Linear(6, 3))  # fmt: skip
    candidate = KerasNet(
        lambda m, x: m.out(ops.relu(m.a(ops.cast(x, "float32")))), a=layers.Dense(6), out=layers.Dense(3)
    )
    return pair(reference.eval(), candidate, x)


class Quantised(nn.Module):
    """Normalised and taken to 8 bits; ``inside``: the raw pixels are taken to 8 bits, and then normalised."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.inside, self.a = inside, nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inside:
            return self.a((self.bits(x, 2.0) - 120.0) / 60.0)
        return self.a(self.bits((x - 120.0) / 60.0, 1.0 / 60.0))

    @staticmethod
    def bits(x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.fake_quantize_per_tensor_affine(x, scale, 0, -128, 127)


def coarse_ranges() -> Pair:
    x = (rng().random((5, 64)) * 255).astype(np.float32)
    return pair(Quantised(False).eval(), Quantised(True).eval(), x)


CASES: list[Case] = [
    Case("R05", "Antialias on downscaling", antialias, ("AMB183",)),
    Case("D01", "Shuffle buffer smaller than the data", not_here="data", note="the order of samples over an epoch"),
    Case("D05", "numpy seed shared by loader workers", not_here="data", note="gone since torch 1.9"),
    Case("D06", "JPEG decoder DCT and chroma upsampling", not_here="data", note="pixels differ before the first layer"),
    Case("D08", "BGR mean-subtracted against RGB scaled input", caffe_input, ("AMB149", "AMB192", "AMB193", "AMB194"),
         note="found: AMB100; each of its three faults alone is named"),
    Case("D09", "Resize returns float or rounded uint8", rounded_pixels, ("AMB193", "AMB603")),
    Case("T01", "Accent stripping and lower-casing flags", not_here="data", note="other ids from the tokenizer"),
    Case("T02", "Unicode NFD input and longest-prefix rule", not_here="data", note="other ids from the tokenizer"),
    Case("T05", "Re-trained sentencepiece model converted inexactly", not_here="data",
         note="other ids from the tokenizer"),
    Case("T06", "Attention mask guessed when pad id equals eos id", guessed_mask, ("AMB401",)),
    Case("AU02", "Frames cut by n_fft or by window length", frames, ("AMB145", "AMB198"),
         note="found: AMB100; there is no rule for spectra"),
    Case("R07", "pytorch_half_pixel with output size 1", one_pixel, ("AMB180",)),
    Case("R10", "Nearest Resize transformed batch and channel axes too", shifted_batch, ("AMB149", "AMB194")),
    Case("RN06", "ONNX GRU linear_before_reset attribute", reset_before, ("AMB150",),
         note="found: AMB100; named when both sides give the whole sequence"),
    Case("M01", "Comparison or export without eval()", left_in_training, ("AMB106", "AMB310"),
         note="the module is put into inference mode for the comparison: equal"),
    Case("M04", "Dynamo ONNX exporter keeps dropout of a train-mode module", exported_dropout, ("AMB310",)),
    Case("M05", "Traced or scripted file keeps the mode it was made in", recorded_mode, ("AMB310", "AMB311")),
    Case("DT08", "Index dtype int64 or int32", narrow_ids, ("AMB603",),
         note="found: AMB173, other ids; the cast is not named"),
    Case("X01", "Softmax before opset 13 flattens", flattened_softmax, ("AMB118",),
         note="ends in a TypeError: a softmax over two axes"),
    Case("X02", "Shapes baked in by tracing", baked_length, ("AMB192", "AMB197", "AMB198")),
    Case("X04", "Graph optimiser changes the result", not_here="export", note="levels of optimisation of one file"),
    Case("X07", "align_corners Resize gave the asymmetric result", ignored_corners, ("AMB180",)),
    Case("X08", "Export-time constants next to an LSTM", baked_range, ("AMB173", "AMB197")),
    Case("XT01", "Data-dependent branch recorded once", recorded_branch, ("AMB193", "AMB194", "AMB195"),
         note="found: AMB100; a constant added against one multiplied has no name"),
    Case("XL01", "Raw values fed without scale and zero point", raw_integers, ("AMB192", "AMB193"),
         note="found: AMB191, though the candidate has nothing to take the value from"),
    Case("XL04", "Normalisation inside the quantised graph", coarse_ranges, ("AMB198", "AMB199"),
         note="found: AMB100; the exchanged order is not tried"),
    Case("XL05", "Fake-quant graph is not bit-equal to integer kernels", not_here="export",
         note="integer kernels of a quantised file"),
]  # fmt: skip
