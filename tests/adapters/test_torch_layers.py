"""Every torch layer: its translation, evaluated in float64, is what torch computes; its weights go there and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.adapters.torch_reference import IDS, SEQ, X1, X2, X3, V, assert_close, draw, prepared, reference
from torch import nn

from ambidex.adapters import torch_layers as tl
from ambidex.adapters.reference_ import evaluate
from ambidex.adapters.torch_layers_modules import TABLE

Case = tuple[Callable[[], nn.Module], torch.Tensor]
CASES: dict[str, Case] = {
    "linear": (lambda: nn.Linear(6, 4), V),
    "linear without bias, rank 3": (lambda: nn.Linear(6, 4, bias=False), SEQ),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), X1),
    "conv1d same, even kernel": (lambda: nn.Conv1d(4, 5, 4, padding="same", dilation=2), X1),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2)), X2),
    "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1, bias=False), X2),
    "conv2d same": (lambda: nn.Conv2d(4, 3, (3, 4), padding="same"), X2),
    "conv2d valid": (lambda: nn.Conv2d(4, 3, 3, padding="valid"), X2),
    "conv2d unbatched": (lambda: nn.Conv2d(4, 3, 3), X2[0]),
    **{
        f"conv2d {mode}": (lambda mode=mode: nn.Conv2d(4, 3, 3, padding=(2, 1), padding_mode=mode), X2)
        for mode in ("reflect", "replicate", "circular")
    },
    "conv2d same circular": (lambda: nn.Conv2d(4, 3, (2, 3), padding="same", padding_mode="circular"), X2),
    "conv3d": (lambda: nn.Conv3d(4, 2, (3, 2, 3), stride=(1, 2, 2), padding=1), X3),
    "conv transpose 1d": (lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), X1),
    "conv transpose 2d": (lambda: nn.ConvTranspose2d(4, 3, (3, 4), stride=2, padding=(1, 0), dilation=(2, 1)), X2),
    "conv transpose 2d, kernel < stride": (lambda: nn.ConvTranspose2d(4, 3, 2, stride=3, output_padding=1), X2),
    "conv transpose 3d": (lambda: nn.ConvTranspose3d(4, 2, 3, stride=(1, 2, 1), padding=1, bias=False), X3),
    "batch norm 1d": (lambda: nn.BatchNorm1d(6, eps=1e-3), V),
    "batch norm 1d, sequence": (lambda: nn.BatchNorm1d(4, momentum=None), X1),
    "batch norm 2d": (lambda: nn.BatchNorm2d(4), X2),
    "batch norm without affine": (lambda: nn.BatchNorm2d(4, affine=False), X2),
    "batch norm without statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), X2),
    "batch norm 3d": (lambda: nn.BatchNorm3d(4), X3),
    "layer norm": (lambda: nn.LayerNorm(6, eps=1e-6), SEQ),
    "layer norm, two axes": (lambda: nn.LayerNorm((7, 6)), SEQ),
    "layer norm plain": (lambda: nn.LayerNorm(6, elementwise_affine=False), SEQ),
    "layer norm without bias": (lambda: nn.LayerNorm(6, bias=False), SEQ),
    "rms norm, eps of the dtype": (lambda: nn.RMSNorm(6), SEQ * 1e-7),
    "rms norm": (lambda: nn.RMSNorm((7, 6), eps=1e-3, elementwise_affine=False), SEQ),
    "group norm": (lambda: nn.GroupNorm(2, 4, eps=1e-3), X2),
    "group norm of vectors": (lambda: nn.GroupNorm(3, 6, affine=False), V),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(4), X1),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(4, affine=True), X2),
    "instance norm with statistics": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), X2),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(4, eps=1e-2), X3),
    "lrn odd": (lambda: nn.LocalResponseNorm(3, alpha=0.1, beta=0.6, k=1.5), X2),
    "lrn even": (lambda: nn.LocalResponseNorm(2, alpha=0.5), X1),
    "embedding": (lambda: nn.Embedding(5, 3), IDS),
    "embedding, padding and max norm": (lambda: nn.Embedding(5, 3, padding_idx=0, max_norm=0.5), IDS),
    **{
        f"embedding bag {mode}": (lambda mode=mode: nn.EmbeddingBag(5, 3, mode=mode, padding_idx=4), IDS)
        for mode in ("sum", "mean", "max")
    },
    "prelu": (lambda: nn.PReLU(), X2),
    "prelu channels": (lambda: nn.PReLU(4), X2),
    **{
        name: (lambda name=name: getattr(nn, name)(), V * 3)
        for name in (
            "ReLU",
            "ReLU6",
            "Hardtanh",
            "Sigmoid",
            "Tanh",
            "SELU",
            "Softsign",
            "Hardswish",
            "Hardsigmoid",
            "SiLU",
            "Mish",
            "LogSigmoid",
            "Tanhshrink",
            "GELU",
            "LeakyReLU",
            "ELU",
            "CELU",
            "Softplus",
            "Hardshrink",
            "Softshrink",
            "RReLU",
            "Identity",
            "Dropout",
            "AlphaDropout",
            "FeatureAlphaDropout",
            "GLU",
        )
    },
    **{f"Dropout{n}d": (lambda n=n: getattr(nn, f"Dropout{n}d")(0.3), (X1, X2, X3)[n - 1]) for n in (1, 2, 3)},
    "hardtanh range": (lambda: nn.Hardtanh(-2.0, 0.7), V),
    "gelu tanh": (lambda: nn.GELU(approximate="tanh"), V),
    "leaky relu slope": (lambda: nn.LeakyReLU(0.2), V),
    "elu alpha": (lambda: nn.ELU(0.7), V),
    "celu alpha": (lambda: nn.CELU(0.7), V),
    "softplus bent": (lambda: nn.Softplus(beta=2.0, threshold=1.0), V * 3),
    "threshold": (lambda: nn.Threshold(0.2, -3.0), V),
    "glu axis": (lambda: nn.GLU(dim=1), X2),
    "softmax": (lambda: nn.Softmax(dim=-1), V),
    "softmax channels": (lambda: nn.Softmax(dim=1), X2),
    "softmax 2d": (lambda: nn.Softmax2d(), X2),
    "log softmax": (lambda: nn.LogSoftmax(dim=-1), V * 20),
    "softmin": (lambda: nn.Softmin(dim=1), X1),
    "max pool 1d": (lambda: nn.MaxPool1d(3, stride=2, padding=1, dilation=2), X1 - 5),
    "max pool 2d ceil": (lambda: nn.MaxPool2d((3, 2), stride=2, padding=(1, 0), ceil_mode=True), X2 - 5),
    "max pool 2d ceil, last window outside": (lambda: nn.MaxPool2d(2, stride=4, padding=1, ceil_mode=True), X2 - 5),
    "max pool 2d, stride default": (lambda: nn.MaxPool2d(2), X2[0]),
    "max pool 3d": (lambda: nn.MaxPool3d(2, stride=(1, 2, 2)), X3),
    "avg pool 1d": (lambda: nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False), X1),
    "avg pool 2d": (lambda: nn.AvgPool2d(3, stride=2, padding=1), X2),
    "avg pool 2d ceil": (lambda: nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), X2),
    "avg pool 2d ceil excluding": (
        lambda: nn.AvgPool2d((3, 2), stride=(2, 3), padding=1, ceil_mode=True, count_include_pad=False),
        X2,
    ),
    "avg pool 2d divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), X2),
    "avg pool 3d": (lambda: nn.AvgPool3d(2, stride=3, padding=1), X3),
    "lp pool 1d": (lambda: nn.LPPool1d(2, 3, stride=2), X1),
    "lp pool 2d": (lambda: nn.LPPool2d(3, 2, ceil_mode=True), X2.abs()),
    "lp pool 3d": (lambda: nn.LPPool3d(2, 2), X3),
    "adaptive avg 1d": (lambda: nn.AdaptiveAvgPool1d(4), X1),
    "adaptive avg 2d": (lambda: nn.AdaptiveAvgPool2d((4, None)), X2),
    "adaptive avg 2d to one": (lambda: nn.AdaptiveAvgPool2d(1), X2),
    "adaptive avg 3d": (lambda: nn.AdaptiveAvgPool3d((3, 7, 5)), X3),
    "adaptive max 1d": (lambda: nn.AdaptiveMaxPool1d(4), X1),
    "adaptive max 2d": (lambda: nn.AdaptiveMaxPool2d((5, 5)), X2),
    "adaptive max 2d to one": (lambda: nn.AdaptiveMaxPool2d(1), X2),
    "adaptive max 3d": (lambda: nn.AdaptiveMaxPool3d(2), X3),
    "flatten": (lambda: nn.Flatten(), X2),
    "flatten middle": (lambda: nn.Flatten(1, 2), X2),
    "flatten tail": (lambda: nn.Flatten(2), X2),
    "unflatten": (lambda: nn.Unflatten(1, (2, 2)), X1),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), X2),
    "pixel unshuffle": (lambda: nn.PixelUnshuffle(3), X2),
    "channel shuffle": (lambda: nn.ChannelShuffle(2), X2),
    **{
        f"{kind}{n}d": (
            lambda kind=kind, n=n: getattr(nn, f"{kind}{n}d")(
                tuple(range(2 * n))[: 2 * n] if kind != "CircularPad" else tuple([1, 2] * n)
            ),
            (X1, X2, X3)[n - 1],
        )
        for kind in ("ZeroPad", "ReplicationPad", "CircularPad")
        for n in (1, 2, 3)
    },
    "ConstantPad2d": (lambda: nn.ConstantPad2d((1, -2, 0, 3), 0.7), X2),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d((3, 1)), X1),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((3, 1, 0, 2)), X2),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), X3),
    "upsample nearest": (lambda: nn.Upsample(scale_factor=2), X2),
    "upsample nearest, odd": (lambda: nn.Upsample(size=(13, 5)), X2),
    "upsample nearest-exact": (lambda: nn.Upsample(size=(13, 5), mode="nearest-exact"), X2),
    "upsample linear": (lambda: nn.Upsample(scale_factor=1.7, mode="linear"), X1),
    "upsample linear recomputed": (
        lambda: nn.Upsample(scale_factor=1.7, mode="linear", recompute_scale_factor=True),
        X1,
    ),
    "upsample bilinear": (lambda: nn.Upsample(size=(20, 7), mode="bilinear"), X2),
    "upsample bilinear corners": (lambda: nn.Upsample(scale_factor=(2, 1.5), mode="bilinear", align_corners=True), X2),
    "upsample bilinear corners to one": (lambda: nn.Upsample(size=(1, 1), mode="bilinear", align_corners=True), X2),
    "upsample bicubic": (lambda: nn.Upsample(size=(20, 7), mode="bicubic"), X2),
    "upsample bicubic corners": (lambda: nn.Upsample(scale_factor=2, mode="bicubic", align_corners=True), X2),
    "upsample trilinear": (lambda: nn.Upsample(scale_factor=2, mode="trilinear"), X3),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=3), X2),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=3), X2),
}


@pytest.mark.parametrize("name", CASES)
def test_layer_equals_its_reference(name: str) -> None:
    make, x = CASES[name]
    module = prepared(make())
    with torch.no_grad():
        wanted = module(x)
    assert_close(reference(module, x)[0], wanted)


@pytest.mark.parametrize("name", CASES)
def test_weights_round_trip_and_take_effect(name: str) -> None:
    make, x = CASES[name]
    one, two = prepared(make()), prepared(make(), seed=2)
    weights = {role: v.copy() for role, v in tl.get_weights(one).items()}
    tl.set_weights(two, weights)
    for role, value in tl.get_weights(two).items():
        np.testing.assert_array_equal(value, weights[role])
    with torch.no_grad():
        torch.testing.assert_close(two(x), one(x), rtol=0, atol=0)
    names = {n for n, t in [*one.named_parameters(), *one.named_buffers()] if t.is_floating_point()}
    assert {n for group in tl.weight_sources(one).values() for n in group} == names
    assert set(tl.weight_names(one)) == set(weights)


def test_every_torch_layer_is_translated_or_known_not_to_be() -> None:
    without = {
        "Bilinear",
        "CosineSimilarity",
        "CrossMapLRN2d",
        "Fold",
        "Unfold",
        "FractionalMaxPool2d",
        "FractionalMaxPool3d",
        "MaxUnpool1d",
        "MaxUnpool2d",
        "MaxUnpool3d",
        "MultiheadAttention",
        "PairwiseDistance",
        "Container",
        "DataParallel",
        "Sequential",
        "Module",
        "ModuleDict",
        "ModuleList",
        "ParameterDict",
        "ParameterList",
        "RNNBase",
        "RNNCellBase",
        "Transformer",
        "TransformerDecoder",
        "TransformerDecoderLayer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
    }
    found = {
        n
        for n in dir(nn)
        if isinstance(getattr(nn, n), type)
        and issubclass(getattr(nn, n), nn.Module)
        and "Loss" not in n
        and not n.startswith("Lazy")
    }
    assert found - without == {c.__name__ for c in TABLE}


# ---------------------------------------------------------------------- batch statistics, bags, refusals
def test_batch_norm_in_training_mode_updates_as_torch() -> None:
    module = prepared(nn.BatchNorm2d(4, momentum=0.3))
    t, before = tl.translate(module), {k: v.copy() for k, v in tl.get_weights(module).items()}
    assert t is not None
    module.train()
    with torch.no_grad():
        wanted = module(X2)
    found = evaluate(t.op, {**t.attrs, "training_mode": True}, before, [X2.numpy()], layout=t.layout)
    assert_close(found[0], wanted)
    assert_close(found[1], module.running_mean)
    assert_close(found[2], module.running_var)


def test_embedding_bag_with_offsets() -> None:
    module = prepared(nn.EmbeddingBag(9, 3, mode="sum"))
    ids, offsets, factors = torch.tensor([1, 2, 3, 4, 8]), torch.tensor([0, 2, 2]), draw(5)
    with torch.no_grad():
        wanted = module(ids, offsets, factors)
    assert_close(reference(module, ids, offsets, factors)[0], wanted)


def test_a_subclass_with_its_own_forward_is_not_the_layer() -> None:
    class Mine(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    class Same(nn.Linear):
        pass

    assert tl.translate(Mine(2, 2)) is None
    assert tl.translate(Same(2, 2)) is not None
