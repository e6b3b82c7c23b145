"""Every torch layer: its translation, evaluated in float64, is what torch computes; its weights go there and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

from ambidex.adapters import torch_layers as tl  # noqa: E402
from ambidex.adapters.reference_ import evaluate, supports  # noqa: E402
from ambidex.errors import InputError, UnsupportedError  # noqa: E402

TOLERANCE = 1e-9


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers with an offset, so that the mean is not zero."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5 + 0.3


def prepared(module: nn.Module, seed: int = 1) -> nn.Module:
    """float64, evaluation mode, every weight and statistic drawn (fresh layers have ones and zeros)."""
    module = module.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, t in [*module.named_parameters(), *module.named_buffers()]:
            if t.is_floating_point():
                drawn = torch.randn(t.shape, generator=generator, dtype=torch.float64) * 0.4
                t.copy_(drawn.abs() + 0.5 if name.endswith("var") else drawn)
    return module


def reference(module: nn.Module, *inputs: torch.Tensor) -> list[np.ndarray]:
    t = tl.translate(module)
    assert t is not None
    return evaluate(t.op, t.attrs, tl.get_weights(module), [x.numpy() for x in inputs], layout=t.layout)


def assert_close(found: np.ndarray, wanted: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    assert found.shape == tuple(wanted.shape)
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=tolerance, atol=tolerance)


X1, X2, X3 = draw(2, 4, 11), draw(2, 4, 9, 12), draw(2, 4, 6, 7, 8)
V, SEQ = draw(5, 6), draw(3, 7, 6)
IDS = torch.tensor([[1, 0, 3], [4, 4, 2]])

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
    **{f"conv2d {mode}": (lambda mode=mode: nn.Conv2d(4, 3, 3, padding=(2, 1), padding_mode=mode), X2)
       for mode in ("reflect", "replicate", "circular")},
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
    **{f"embedding bag {mode}": (lambda mode=mode: nn.EmbeddingBag(5, 3, mode=mode, padding_idx=4), IDS)
       for mode in ("sum", "mean", "max")},
    "prelu": (lambda: nn.PReLU(), X2),
    "prelu channels": (lambda: nn.PReLU(4), X2),
    **{name: (lambda name=name: getattr(nn, name)(), V * 3) for name in (
        "ReLU", "ReLU6", "Hardtanh", "Sigmoid", "Tanh", "SELU", "Softsign", "Hardswish", "Hardsigmoid", "SiLU", "Mish",
        "LogSigmoid", "Tanhshrink", "GELU", "LeakyReLU", "ELU", "CELU", "Softplus", "Hardshrink", "Softshrink", "RReLU",
        "Identity", "Dropout", "AlphaDropout", "FeatureAlphaDropout", "GLU")},
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
    "avg pool 2d ceil excluding": (lambda: nn.AvgPool2d(
        (3, 2), stride=(2, 3), padding=1, ceil_mode=True, count_include_pad=False), X2),
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
    **{f"{kind}{n}d": (lambda kind=kind, n=n: getattr(nn, f"{kind}{n}d")(
        tuple(range(2 * n))[:2 * n] if kind != "CircularPad" else tuple([1, 2] * n)), (X1, X2, X3)[n - 1])
       for kind in ("ZeroPad", "ReplicationPad", "CircularPad") for n in (1, 2, 3)},
    "ConstantPad2d": (lambda: nn.ConstantPad2d((1, -2, 0, 3), 0.7), X2),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d((3, 1)), X1),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((3, 1, 0, 2)), X2),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), X3),
    "upsample nearest": (lambda: nn.Upsample(scale_factor=2), X2),
    "upsample nearest, odd": (lambda: nn.Upsample(size=(13, 5)), X2),
    "upsample nearest-exact": (lambda: nn.Upsample(size=(13, 5), mode="nearest-exact"), X2),
    "upsample linear": (lambda: nn.Upsample(scale_factor=1.7, mode="linear"), X1),
    "upsample linear recomputed": (lambda: nn.Upsample(
        scale_factor=1.7, mode="linear", recompute_scale_factor=True), X1),
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
    without = {"Bilinear", "CosineSimilarity", "CrossMapLRN2d", "Fold", "Unfold", "FractionalMaxPool2d",
               "FractionalMaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "MultiheadAttention",
               "PairwiseDistance", "Container", "DataParallel", "Sequential", "Module", "ModuleDict", "ModuleList",
               "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase", "Transformer", "TransformerDecoder",
               "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"}
    found = {n for n in dir(nn) if isinstance(getattr(nn, n), type) and issubclass(getattr(nn, n), nn.Module)
             and "Loss" not in n and not n.startswith("Lazy")}
    assert found - without == {c.__name__ for c in tl._TABLE}


# ---------------------------------------------------------------------- recurrent
RECURRENT = {
    "lstm": lambda: nn.LSTM(6, 5),
    "lstm batch first, both": lambda: nn.LSTM(6, 5, batch_first=True, bidirectional=True),
    "lstm without bias": lambda: nn.LSTM(6, 5, bias=False, batch_first=True),
    "gru": lambda: nn.GRU(6, 5, batch_first=True),
    "gru both": lambda: nn.GRU(6, 5, bidirectional=True),
    "rnn": lambda: nn.RNN(6, 5, batch_first=True),
    "rnn relu both": lambda: nn.RNN(6, 5, nonlinearity="relu", bidirectional=True, batch_first=True),
}


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("start", [False, True])
def test_recurrent_layer(name: str, start: bool) -> None:
    module = prepared(RECURRENT[name]())
    dirs, batch = 2 if module.bidirectional else 1, 3 if module.batch_first else 7
    kinds = 2 if isinstance(module, nn.LSTM) else 1
    states = [draw(dirs, batch, 5, seed=i) for i in range(kinds)] if start else []
    hx = (tuple(states) if kinds == 2 else states[0]) if start else None
    with torch.no_grad():
        output, last = module(SEQ, hx)
    found = reference(module, SEQ, *states)
    assert_close(found[0], output)
    for mine, theirs in zip(found[1:], last if kinds == 2 else [last], strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layer_without_batch_axis(name: str) -> None:
    module = prepared(RECURRENT[name]())
    with torch.no_grad():
        output, last = module(SEQ[0])
    found = reference(module, SEQ[0])
    assert_close(found[0], output)
    assert_close(found[1], last[0] if isinstance(last, tuple) else last)


@pytest.mark.parametrize("name", [n for n in RECURRENT if "batch first" in n or n in ("gru", "rnn")])
def test_packed_sequence_is_a_mask(name: str) -> None:
    module = prepared(RECURRENT[name]())
    lengths = torch.tensor([7, 4, 1])
    packed = nn.utils.rnn.pack_padded_sequence(SEQ, lengths, batch_first=True)
    with torch.no_grad():
        output, last = module(packed)
    wanted, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    mask = torch.arange(7)[None] < lengths[:, None]
    for extra in (mask, lengths):
        found = reference(module, SEQ, extra)
        assert_close(found[0], wanted)
        assert_close(found[1], last[0] if isinstance(last, tuple) else last)


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_weights(name: str) -> None:
    one, two = prepared(RECURRENT[name]()), prepared(RECURRENT[name](), seed=2)
    weights = {role: v.copy() for role, v in tl.get_weights(one).items()}
    tl.set_weights(two, weights)
    with torch.no_grad():
        torch.testing.assert_close(two(SEQ)[0], one(SEQ)[0], rtol=0, atol=0)
    assert {n for group in tl.weight_sources(one).values() for n in group} == {n for n, _ in one.named_parameters()}
    if "B" not in weights or isinstance(one, nn.GRU):
        return
    size = weights["B"].shape[1] // 2
    tl.set_weights(two, {"B": weights["B"][:, :size] + weights["B"][:, size:]})
    assert all(not v.any() for n, v in two.named_parameters() if n.startswith("bias_hh"))
    with torch.no_grad():
        torch.testing.assert_close(two(SEQ)[0], one(SEQ)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cls", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(cls: Any, bias: bool) -> None:
    module = prepared(cls(6, 5, bias=bias))
    states = [draw(5, 5, seed=i) for i in range(2 if cls is nn.LSTMCell else 1)]
    with torch.no_grad():
        wanted = module(V, tuple(states) if len(states) == 2 else states[0])
    found = reference(module, V, *states)
    for mine, theirs in zip(found, wanted if len(states) == 2 else [wanted], strict=True):
        assert_close(mine, theirs)
    assert_close(reference(module, V[0])[0], module(V[0])[0] if len(states) == 2 else module(V[0]))


def test_deep_recurrent_layer_is_a_stack() -> None:
    module = prepared(nn.GRU(6, 5, num_layers=3, bidirectional=True, batch_first=True))
    assert tl.translate(module) is None
    x: np.ndarray = SEQ.numpy()
    for t in tl.stack(module):
        x = evaluate(t.op, t.attrs, tl.get_weights(module, t), [x], layout=t.layout)[0]
    with torch.no_grad():
        assert_close(x, module(SEQ)[0])
    assert tl.stack(module)[2].roles["R"].names == ("weight_hh_l2", "weight_hh_l2_reverse")
    assert tl.stack(nn.Linear(2, 2)) == []
    assert tl.translate(nn.LSTM(6, 5, proj_size=2)) is None and tl.stack(nn.LSTM(6, 5, proj_size=2)) == []


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


def test_weights_that_do_not_fit_are_refused_and_nothing_is_written() -> None:
    module = nn.Linear(3, 2)
    before = module.weight.detach().clone()
    with pytest.raises(InputError, match="shape"):
        tl.set_weights(module, {"W": np.zeros((2, 3)), "B": np.zeros(3)})
    assert torch.equal(module.weight, before)
    with pytest.raises(InputError, match="scale"):
        tl.set_weights(module, {"scale": np.zeros(3)})
    bare = nn.Linear(3, 2, bias=False)
    tl.set_weights(bare, {"B": np.zeros(2)})
    with pytest.raises(InputError, match="'B'"):
        tl.set_weights(bare, {"B": np.ones(2)})
    with pytest.raises(InputError, match="directions"):
        tl.set_weights(nn.GRU(3, 2), {"W": np.zeros((6, 3))})


def test_parametrised_weights() -> None:
    module = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).double())
    value = draw(2, 3).numpy()
    tl.set_weights(module, {"W": value})
    np.testing.assert_allclose(tl.get_weights(module)["W"], value, rtol=1e-12)
    assert tl.weight_names(module)["W"] in dict(module.named_parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = nn.utils.weight_norm(nn.Linear(3, 2))
    assert tl.weight_names(old)["W"] in dict(old.named_parameters())
    with pytest.raises(UnsupportedError, match="recomputed"):
        tl.set_weights(old, {"W": value})


def test_bfloat16_weights_are_read_as_float32() -> None:
    module = nn.Linear(3, 2, dtype=torch.bfloat16)
    assert tl.get_weights(module)["W"].dtype == np.float32
    tl.set_weights(module, {"W": np.full((2, 3), 1.25)})
    assert module.weight.dtype == torch.bfloat16 and module.weight.detach()[0, 0] == 1.25


# ---------------------------------------------------------------------- functions
class Recorder(TorchFunctionMode):
    """What the first function called inside is named and given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any, Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.__self__.__name__ if func.__name__ == "__get__" else func.__name__
        self.calls.append((name, args, kwargs, result := func(*args, **kwargs)))
        return result


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


A, B, M = draw(3, 4, 6), draw(3, 4, 6, seed=3), draw(3, 6, 4, seed=4)
Q, K, W = draw(2, 3, 5, 4), draw(2, 3, 7, 4, seed=5), draw(2, 3, 7, 4, seed=6)
SEEN = torch.arange(7)[None, None, None] < torch.tensor([7, 4])[:, None, None, None]
ROW = torch.cat([SEEN[:1], torch.zeros(1, 1, 1, 7, dtype=torch.bool)])
FOUR, SIX = draw(4, seed=7), draw(6, seed=8)

FUNCTIONS: dict[str, Callable[[], Any]] = {
    **{name: (lambda name=name: getattr(F, name)(A)) for name in (
        "relu", "relu6", "gelu", "leaky_relu", "elu", "celu", "selu", "silu", "hardswish", "hardsigmoid", "hardtanh",
        "mish", "softplus", "tanh", "sigmoid", "logsigmoid", "softsign", "tanhshrink", "softshrink", "hardshrink",
        "glu")},
    **{f"torch.{name}": (lambda name=name: getattr(torch, name)(A.abs() + 0.1)) for name in (
        "sqrt", "rsqrt", "exp", "log", "log1p", "expm1", "abs", "neg", "erf", "sin", "cos", "reciprocal", "square", "sign",
        "floor", "ceil", "round", "tanh", "sigmoid", "relu")},
    "gelu tanh": lambda: F.gelu(A, approximate="tanh"),
    "leaky relu 0.2": lambda: F.leaky_relu(A, 0.2),
    "leaky relu by name": lambda: F.leaky_relu(A, negative_slope=0.3),
    "elu 0.5": lambda: F.elu(A, 0.5),
    "softplus 2 1": lambda: F.softplus(A, 2, 1),
    "hardtanh range": lambda: F.hardtanh(A, -0.5, 0.5),
    "threshold": lambda: F.threshold(A, 0.1, 7.0),
    "clamp": lambda: A.clamp(-0.5, 0.5),
    "clamp min": lambda: A.clamp(min=0.1),
    "clamp_max": lambda: torch.clamp_max(A, 0.2),
    "softmax": lambda: F.softmax(A, dim=1),
    "softmax method": lambda: A.softmax(-1),
    "log_softmax": lambda: torch.log_softmax(A, 2),
    "prelu": lambda: F.prelu(A, FOUR),
    "dropout": lambda: F.dropout(A, 0.3, training=False),
    "add": lambda: A + B, "add alpha": lambda: torch.add(A, B, alpha=2), "add number": lambda: A + 1.5,
    "radd": lambda: 1.5 + A, "sub": lambda: A - B, "rsub": lambda: 1 - A, "torch.rsub": lambda: torch.rsub(A, 2.0),
    "mul": lambda: A * B, "rmul": lambda: 2 * A, "div": lambda: A / B, "rdiv": lambda: 2 / A,
    "floor div": lambda: torch.div(A, B, rounding_mode="floor"), "mod": lambda: A % 0.7,
    "pow": lambda: A.abs() ** 1.5, "torch.pow": lambda: torch.pow(A, 2), "rpow": lambda: 2**A,
    "add_": lambda: A.clone().add_(B), "mul_": lambda: A.clone().mul_(3.0), "iadd": lambda: A.clone().__iadd__(B),
    "maximum": lambda: torch.maximum(A, B), "max of two": lambda: torch.max(A, B),
    "greater": lambda: A > 0, "equal": lambda: A == B, "not equal": lambda: A != B, "less": lambda: A.lt(B),
    "and": lambda: SEEN & ROW, "or": lambda: SEEN | ROW, "not": lambda: ~SEEN,
    "matmul": lambda: A @ M, "bmm": lambda: torch.bmm(A, M), "mm": lambda: torch.mm(A[0], M[0]),
    "einsum": lambda: torch.einsum("bij, bjk -> bik", A, M),
    "cat": lambda: torch.cat([A, B], 1), "cat by name": lambda: torch.concat((A, B), dim=-1),
    "stack": lambda: torch.stack([A, B]), "stack last": lambda: torch.stack([A, B], -1),
    "flatten": lambda: A.flatten(1), "flatten all": lambda: torch.flatten(A),
    "reshape": lambda: A.reshape(3, -1), "view": lambda: A.view((3, 24)), "view_as": lambda: A.view_as(M),
    "unflatten": lambda: A.unflatten(-1, (2, 3)),
    "permute": lambda: A.permute(0, 2, 1), "torch.permute": lambda: torch.permute(A, (2, 0, 1)),
    "transpose": lambda: A.transpose(-1, 1), "swapaxes": lambda: A.swapaxes(0, 1), "t": lambda: A[0].t(),
    "T": lambda: A[0].T, "mT": lambda: A.mT, "movedim": lambda: A.movedim(0, -1),
    "squeeze": lambda: A[:, :1].squeeze(1), "squeeze all": lambda: A[:, :1].squeeze(), "unsqueeze": lambda: A.unsqueeze(1),
    "unsqueeze last": lambda: A.unsqueeze(-1), "expand": lambda: A[:1].expand(5, -1, -1),
    "expand_as": lambda: A[:1].expand_as(B), "repeat": lambda: A.repeat(1, 2, 1),
    "repeat_interleave": lambda: A.repeat_interleave(2, dim=1), "roll": lambda: A.roll(2, 1), "flip": lambda: A.flip(1),
    "tril": lambda: A.tril(-1), "triu": lambda: torch.triu(A, diagonal=1),
    "mean": lambda: A.mean(), "mean axes": lambda: A.mean((1, 2)), "mean keep": lambda: torch.mean(A, dim=1, keepdim=True),
    "sum": lambda: A.sum(-1), "amax": lambda: A.amax(dim=(0, 2)), "max": lambda: A.max(), "prod": lambda: A.prod(1),
    "max axis": lambda: A.max(1), "logsumexp": lambda: A.logsumexp(1), "var": lambda: A.var(1),
    "var biased": lambda: A.var(1, unbiased=False), "var correction": lambda: A.var(dim=(1, 2), correction=0, keepdim=True),
    "std": lambda: A.std(-1, keepdim=True), "std positional": lambda: A.std(-1, False, True),
    "norm": lambda: A.norm(dim=1), "norm p": lambda: A.norm(1, -1, True), "linalg": lambda: torch.linalg.norm(A, dim=1),
    "argmax": lambda: A.argmax(1), "cumsum": lambda: A.cumsum(1), "normalize": lambda: F.normalize(A, dim=-1),
    "max_pool1d": lambda: F.max_pool1d(X1, 2), "max_pool2d": lambda: F.max_pool2d(X2, 3, 2, 1, ceil_mode=True),
    "max_pool2d indices": lambda: F.max_pool2d(X2, 2, return_indices=True),
    "avg_pool2d": lambda: F.avg_pool2d(X2, 3, 2, 1, False, False), "avg_pool1d": lambda: F.avg_pool1d(X1, 3),
    "lp_pool2d": lambda: F.lp_pool2d(X2, 2, 2), "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(X2, (3, 5)),
    "adaptive to one": lambda: F.adaptive_avg_pool2d(X2, 1), "adaptive_max_pool1d": lambda: F.adaptive_max_pool1d(X1, 3),
    "interpolate": lambda: F.interpolate(X2, scale_factor=2, mode="nearest"),
    "interpolate bilinear": lambda: F.interpolate(X2, size=(5, 30), mode="bilinear", align_corners=False),
    "interpolate antialias": lambda: F.interpolate(X2, size=(5, 30), mode="bilinear", antialias=True),
    "interpolate bicubic antialias": lambda: F.interpolate(X2, size=(5, 7), mode="bicubic", antialias=True),
    "interpolate area": lambda: F.interpolate(X2, size=(4, 5), mode="area"),
    "pad": lambda: F.pad(A, (1, 2)), "pad two axes": lambda: F.pad(A, (1, 2, 0, 1), value=3.0),
    "pad reflect": lambda: F.pad(A, (1, 2), mode="reflect"), "pad replicate": lambda: F.pad(A, (1, 2), "replicate"),
    "linear": lambda: F.linear(A, draw(2, 6), draw(2)), "linear by name": lambda: F.linear(A, bias=draw(2), weight=draw(2, 6)),
    "conv2d": lambda: F.conv2d(X2, draw(6, 2, 3, 3), draw(6), 2, 1, 1, 2),
    "conv1d same": lambda: F.conv1d(X1, draw(3, 4, 4), padding="same"),
    "conv_transpose2d": lambda: F.conv_transpose2d(X2, draw(4, 3, 3, 3), None, 2, 1, 1),
    "layer_norm": lambda: F.layer_norm(A, (6,), SIX, SIX), "layer_norm bias": lambda: F.layer_norm(A, (4, 6), eps=1e-3),
    "rms_norm": lambda: F.rms_norm(A, (6,), SIX), "group_norm": lambda: F.group_norm(X2, 2, FOUR, FOUR),
    "instance_norm": lambda: F.instance_norm(X2, weight=FOUR),
    "batch_norm": lambda: F.batch_norm(X2, FOUR, FOUR.abs() + 1, bias=FOUR, eps=1e-3),
    "local_response_norm": lambda: F.local_response_norm(X2, 3),
    "embedding": lambda: F.embedding(IDS, draw(5, 3)), "one_hot": lambda: F.one_hot(IDS, 6),
    "attention": lambda: F.scaled_dot_product_attention(Q, K, W),
    "attention mask": lambda: F.scaled_dot_product_attention(Q, K, W, SEEN),
    "attention masked row": lambda: F.scaled_dot_product_attention(Q, K, W, ROW),
    "attention additive": lambda: F.scaled_dot_product_attention(Q, K, W, draw(2, 1, 5, 7)),
    "attention heads mask": lambda: F.scaled_dot_product_attention(Q, K, W, draw(3, 5, 7)),
    "attention causal": lambda: F.scaled_dot_product_attention(Q, K, W, is_causal=True, scale=0.3),
    "attention grouped": lambda: F.scaled_dot_product_attention(Q, K[:, :1], W[:, :1], enable_gqa=True),
    "attention rank 3": lambda: F.scaled_dot_product_attention(A, B, B),
    "masked_fill": lambda: A.masked_fill(A > 0, -1e9), "where": lambda: torch.where(A > 0, A, B),
    "where number": lambda: torch.where(A > 0, A, 0.5), "item": lambda: A[:, 1:3], "item int": lambda: A[:, 0],
    "item ellipsis": lambda: A[..., -1], "item new": lambda: A[:, None, ::2], "select": lambda: A.select(1, 2),
    "narrow": lambda: A.narrow(1, 1, 2), "chunk": lambda: A.chunk(2, 1), "chunk uneven": lambda: A.chunk(4, -1),
    "split": lambda: A.split(2, 1), "split sizes": lambda: torch.split(A, [1, 3], dim=1), "unbind": lambda: A.unbind(1),
    "gather": lambda: A.gather(1, torch.zeros(3, 2, 6, dtype=torch.int64) + 1),
    "index_select": lambda: A.index_select(1, torch.tensor([2, 0])), "long": lambda: A.long(),
    "to int": lambda: A.to(torch.int32), "to by name": lambda: A.to(dtype=torch.int64), "bool": lambda: A.bool(),
    "pixel_shuffle": lambda: F.pixel_shuffle(X2, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_equals_its_reference(name: str) -> None:
    with torch.no_grad(), Recorder() as mode:
        FUNCTIONS[name]()
    called, args, kwargs, result = mode.calls[-1]
    meaning = tl.functional(called, args, kwargs)
    assert meaning is not None, called
    op, attrs = meaning
    assert supports(op)
    given = [t.numpy() for t in tensors((args, kwargs))]
    if name.startswith(("add_", "mul_", "iadd")):
        given[0] = A.numpy()
    found = evaluate(op, attrs, {}, given)
    wanted = tensors(result)
    if op in ("ReduceMax", "MaxPool"):
        wanted = wanted[:1]
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        if theirs.dtype == torch.float64:
            assert_close(mine, theirs)
        else:
            assert mine.shape == tuple(theirs.shape)
            np.testing.assert_array_equal(mine, theirs.numpy())


def test_functions_without_a_name_are_left_alone() -> None:
    assert tl.functional("fft_fft", (A,), {}) is None
    assert tl.functional("view", (A, "x"), {}) is None  # called in a way that the table does not know
    assert tl.functional("__getitem__", (A, A > 0), {}) == ("Slice", {"index": ["tensor"]})
    with pytest.raises(UnsupportedError):
        evaluate("Slice", {"index": ["tensor"]}, {}, [A.numpy()])
