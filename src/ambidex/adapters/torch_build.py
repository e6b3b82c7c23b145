"""Small torch models built from canonical layers: what the rules' examples are run on.

``build(layers)`` takes one :class:`ambidex.core.rule.Side` or several in a row. Weights of a side are canonical arrays
by role; those not given are drawn, the same for the same layers. Beside the canonical attributes a side may have
``out`` (units, channels or rows of what it builds) and ``affine``/``bias`` (False: without these parameters).
UnsupportedError for what torch has no layer for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ambidex.adapters.build_words import Shape, Weights, fill, numbers
from ambidex.adapters.torch_ import TorchModel
from ambidex.core.rule import Side
from ambidex.core.types import Array
from ambidex.errors import UnsupportedError


def build(
    layers: Side | Sequence[Side], weights: Weights | None = None, seed: int = 0, *, plain: bool = False
) -> nn.Module:
    """The model in evaluation mode. ``weights``: by the place of a layer ("0", "1", ...) and role, over the sides' own.

    ``plain``: only what torch has as one layer, without a padding or cropping layer beside it.
    """
    sides = [layers] if isinstance(layers, Side) else list(layers)
    shape = sides[0].inputs[0]
    made = []
    for side in sides:
        make = _TABLE.get(side.op)
        if make is None:
            raise UnsupportedError(f"torch has no layer for {side.op}")
        layer = make(side.attrs, shape)
        if plain and isinstance(layer, nn.Sequential):
            raise UnsupportedError(f"torch has no single layer for this {side.op}")
        made.append(layer)
        if side.op not in _INTEGER and side is not sides[-1]:
            with torch.no_grad():
                shape = tuple(layer.eval()(torch.zeros(shape)).shape)
    model = nn.Sequential(*made).eval() if len(sides[0].inputs) == 1 else made[0].eval()
    fill(TorchModel(model), sides, weights or {}, [seed, 17])
    return model


def arrays(side: Side, canonical: Sequence[Array]) -> list[Array]:
    """Canonical inputs as torch takes them: they are."""
    return list(canonical)


_INTEGER = {"Gather"}


class _Attention(nn.Module):
    """``nn.MultiheadAttention`` on query, key and value, with the causal mask it wants for itself."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return self.attention(q, k, v, attn_mask=mask, need_weights=False)[0]


class _Same(nn.Module):
    """TensorFlow's 'same' padding before a layer that has none of its own."""

    def __init__(self, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], value: float) -> None:
        super().__init__()
        self.kernel, self.strides, self.dilations, self.value = kernel, strides, dilations, value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pads: list[int] = []
        for n, k, s, d in zip(x.shape[2:], self.kernel, self.strides, self.dilations, strict=True):
            total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
            pads = [total // 2, total - total // 2, *pads]
        return F.pad(x, pads, value=self.value)


class _Recurrent(nn.Module):
    """A recurrent layer that hands its steps on, without the final state."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.rnn = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0]


class _Crop(nn.Module):
    def __init__(self, begin: Sequence[int], end: Sequence[int]) -> None:
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cut = tuple(slice(b, x.shape[2 + i] - e) for i, (b, e) in enumerate(zip(self.begin, self.end, strict=True)))
        return x[(slice(None), slice(None), *cut)]


class _Interpolate(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **self.how)


def _window(attrs: Mapping[str, Any], n: int, value: float = 0.0) -> tuple[list[nn.Module], list[int]]:
    """(a padding layer in front when needed, the padding the layer itself takes)."""
    kernel, strides, dilations = (numbers(attrs, k, n) for k in ("kernel_shape", "strides", "dilations"))
    if attrs.get("auto_pad") == "SAME_UPPER":
        return [_Same(kernel, strides, dilations, value)], [0] * n
    pads = numbers(attrs, "pads", 2 * n, 0)
    if pads[:n] == pads[n:]:
        return [], pads[:n]
    flat = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
    return [_pad_layer(n, flat, value)], [0] * n


def _pad_layer(n: int, flat: Sequence[int], value: float) -> nn.Module:
    return getattr(nn, f"ConstantPad{n}d")(tuple(flat), value)


def _joined(before: Sequence[nn.Module], layer: nn.Module) -> nn.Module:
    return nn.Sequential(*before, layer) if before else layer


def _conv(a: Mapping[str, Any], shape: Shape) -> nn.Module:
    n = len(shape) - 2
    mode = {"constant": "zeros", "edge": "replicate", "wrap": "circular"}.get(
        a.get("pad_mode", "constant"), a.get("pad_mode")
    )
    before, padding = _window(a, n)
    return _joined(
        before,
        getattr(nn, f"Conv{n}d")(
            shape[1],
            a.get("out", 4),
            numbers(a, "kernel_shape", n),
            numbers(a, "strides", n),
            padding,
            numbers(a, "dilations", n),
            a.get("group", 1),
            padding_mode=mode,
        ),
    )


def _conv_transpose(a: Mapping[str, Any], shape: Shape) -> nn.Module:
    n = len(shape) - 2
    pads, extra = numbers(a, "pads", 2 * n, 0), numbers(a, "output_padding", n, 0)
    symmetric = pads[:n] == pads[n:]
    layer = getattr(nn, f"ConvTranspose{n}d")(
        shape[1],
        a.get("out", 4),
        numbers(a, "kernel_shape", n),
        numbers(a, "strides", n),
        pads[:n] if symmetric else 0,
        extra if symmetric else 0,
        a.get("group", 1),
        dilation=numbers(a, "dilations", n),
    )
    return layer if symmetric else nn.Sequential(layer, _Crop(pads[:n], pads[n:]))


def _pool(op: str) -> Callable[[Mapping[str, Any], Shape], nn.Module]:
    def make(a: Mapping[str, Any], shape: Shape) -> nn.Module:
        n = len(shape) - 2
        same = a.get("auto_pad") == "SAME_UPPER"
        if op == "AveragePool" and same:
            raise UnsupportedError("torch's average pooling has no 'same' padding that leaves the padding out")
        before, padding = _window(a, n, -torch.inf if op == "MaxPool" else 0.0)
        kernel, strides = numbers(a, "kernel_shape", n), numbers(a, "strides", n)
        more = {"count_include_pad": bool(a.get("count_include_pad", False))} if op == "AveragePool" else {}
        name = f"{'Max' if op == 'MaxPool' else 'Avg'}Pool{n}d"
        return _joined(
            before, getattr(nn, name)(kernel, strides, padding, ceil_mode=bool(a.get("ceil_mode", False)), **more)
        )

    return make


def _global_pool(op: str, a: Mapping[str, Any], shape: Shape) -> nn.Module:
    if not a.get("keepdims", True):
        raise UnsupportedError("torch's global pools keep the spatial axes")
    return getattr(nn, f"Adaptive{'Avg' if 'Average' in op else 'Max'}Pool{len(shape) - 2}d")(1)


def _recurrent(op: str) -> Callable[[Mapping[str, Any], Shape], nn.Module]:
    def make(a: Mapping[str, Any], shape: Shape) -> nn.Module:
        usual = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
        activations = a.get("activations") or usual.get(op) or ["Tanh"]
        if (
            not a.get("linear_before_reset", 1)
            or activations != usual.get(op, activations)
            or a.get("direction") == "reverse"
        ):
            raise UnsupportedError(f"nn.{op} computes its gates in one way only")
        more = {"nonlinearity": activations[0].lower()} if op == "RNN" else {}
        layer = getattr(nn, op)(
            shape[-1],
            a.get("hidden_size", 4),
            batch_first=True,
            bidirectional=a.get("direction") == "bidirectional",
            **more,
        )
        return _Recurrent(layer)

    return make


def _resize(a: Mapping[str, Any], shape: Shape) -> nn.Module:
    aligned = a.get("coordinate_transformation_mode") == "align_corners"
    size, scale = (tuple(a[k]) if a.get(k) else None for k in ("sizes", "scales"))
    how: dict[str, Any] = {"size": size, "scale_factor": scale}
    if a["mode"] == "nearest":
        exact = a.get("coordinate_transformation_mode") != "asymmetric"
        return nn.Upsample(**how, mode="nearest-exact" if exact else "nearest")
    mode = {"linear": ("linear", "bilinear", "trilinear")[len(shape) - 3], "cubic": "bicubic"}[a["mode"]]
    if a.get("antialias"):  # nn.Upsample has no such argument
        return _Interpolate(**how, mode=mode, align_corners=aligned, antialias=True)
    return nn.Upsample(**how, mode=mode, align_corners=aligned)


def _pad(a: Mapping[str, Any], shape: Shape) -> nn.Module:
    n = len(shape) - 2
    pads = numbers(a, "pads", 2 * n, 0)
    flat = [p for i in reversed(range(n)) for p in (pads[i], pads[n + i])]
    return _pad_layer(n, flat, float(a.get("value", 0.0)))


def _sizes(shape: Shape, axis: Any) -> Shape:
    return tuple(shape[axis:]) if isinstance(axis, int) else tuple(shape[i] for i in axis)


def _hard_sigmoid(a: Mapping[str, Any], shape: Shape) -> nn.Module:
    if abs(a.get("alpha", 0.2) - 1 / 6) > 1e-9:
        raise UnsupportedError("nn.Hardsigmoid has the slope 1/6 only")
    return nn.Hardsigmoid()


_TABLE: dict[str, Callable[[Mapping[str, Any], Shape], nn.Module]] = {
    "Gemm": lambda a, s: nn.Linear(s[-1], a.get("out", 4), bias=a.get("bias", True)),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": lambda a, s: getattr(nn, f"BatchNorm{max(len(s) - 2, 1)}d")(s[1], eps=a["epsilon"]),
    "LayerNormalization": lambda a, s: nn.LayerNorm(
        _sizes(s, a.get("axis", -1)),
        eps=a["epsilon"],
        elementwise_affine=a.get("affine", True),
        bias=a.get("bias", True),
    ),
    "RMSNormalization": lambda a, s: nn.RMSNorm(_sizes(s, a.get("axis", -1)), eps=a["epsilon"]),
    "GroupNormalization": lambda a, s: nn.GroupNorm(a["num_groups"], s[1], eps=a["epsilon"]),
    "InstanceNormalization": lambda a, s: getattr(nn, f"InstanceNorm{len(s) - 2}d")(
        s[1], eps=a["epsilon"], affine=True
    ),
    "Gather": lambda a, s: nn.Embedding(a.get("rows", 11), a.get("out", 4), padding_idx=a.get("padding_idx")),
    **{op: _recurrent(op) for op in ("LSTM", "GRU", "RNN")},
    "Relu": lambda a, s: nn.ReLU(),
    "Sigmoid": lambda a, s: nn.Sigmoid(),
    "Tanh": lambda a, s: nn.Tanh(),
    "Softsign": lambda a, s: nn.Softsign(),
    "HardSwish": lambda a, s: nn.Hardswish(),
    "Mish": lambda a, s: nn.Mish(),
    "LogSigmoid": lambda a, s: nn.LogSigmoid(),
    "TanhShrink": lambda a, s: nn.Tanhshrink(),
    "Selu": lambda a, s: nn.SELU(),
    "Swish": lambda a, s: nn.SiLU(),
    "Identity": lambda a, s: nn.Identity(),
    "Gelu": lambda a, s: nn.GELU(approximate=a.get("approximate", "none")),
    "LeakyRelu": lambda a, s: nn.LeakyReLU(a["alpha"]),
    "Elu": lambda a, s: nn.ELU(a["alpha"]),
    "Celu": lambda a, s: nn.CELU(a["alpha"]),
    "HardSigmoid": _hard_sigmoid,
    "Softplus": lambda a, s: nn.Softplus(a.get("beta", 1.0)),
    "Clip": lambda a, s: nn.ReLU6() if (a["min"], a["max"]) == (0, 6) else nn.Hardtanh(a["min"], a["max"]),
    "Softmax": lambda a, s: nn.Softmax(a.get("axis", -1)),
    "LogSoftmax": lambda a, s: nn.LogSoftmax(a.get("axis", -1)),
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    **{op: (lambda a, s, op=op: _global_pool(op, a, s)) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "Dropout": lambda a, s: nn.Dropout(a.get("ratio", 0.5)),
    "Flatten": lambda a, s: nn.Flatten(),
    "Resize": _resize,
    "Pad": _pad,
    "Attention": lambda a, s: _Attention(s[-1], a.get("num_heads", 1), bool(a.get("is_causal", False))),
}
