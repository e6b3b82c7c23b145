"""The layers of ``torch.nn`` one by one: the operator, attributes, layout and weights of each in canonical words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ambidex.adapters.torch_layers_rnn import rnn_cell, rnn_layer
from ambidex.adapters.torch_layers_words import Role, Translation, auto_pad, resize_attrs, spatial_pads

_LAYOUTS = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
_MODES = {"zeros": "constant", "constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_TRANSPOSED = Role(("weight",), lambda v: np.ascontiguousarray(v[0].T), lambda v, s: [v.T])


def _roles(m: nn.Module, **named: str) -> dict[str, Role]:
    """Roles of tensors that the module really has (a bias may be None)."""
    return {role: Role((name,)) for role, name in named.items() if getattr(m, name, None) is not None}


def _list(value: Any, n: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, Sequence) else [int(value)] * n


def _linear(m: Any) -> Translation:
    return Translation("Gemm", {}, "", _roles(m, W="weight", B="bias"))


def gpt_linear(m: Any) -> Translation:
    """``transformers``' Conv1D: a linear layer whose weight is stored (in, out)."""
    return Translation("Gemm", {}, "", {"W": _TRANSPOSED, **_roles(m, B="bias")})


def _conv(n: int) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        auto = auto_pad(m.padding)
        pads = [0] * (2 * n) if auto != "NOTSET" else _list(m.padding, n) * 2
        attrs = {
            "kernel_shape": _list(m.kernel_size, n),
            "strides": _list(m.stride, n),
            "dilations": _list(m.dilation, n),
            "group": int(m.groups),
            "pads": pads,
            "auto_pad": auto,
            "pad_mode": _MODES[m.padding_mode],
        }
        return Translation("Conv", attrs, _LAYOUTS[n], _roles(m, W="weight", B="bias"))

    return make


def _conv_transpose(n: int) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        attrs = {
            "kernel_shape": _list(m.kernel_size, n),
            "strides": _list(m.stride, n),
            "dilations": _list(m.dilation, n),
            "group": int(m.groups),
            "pads": _list(m.padding, n) * 2,
            "output_padding": _list(m.output_padding, n),
            "auto_pad": "NOTSET",
        }
        return Translation("ConvTranspose", attrs, _LAYOUTS[n], _roles(m, W="weight", B="bias"))

    return make


def _batch_norm(layout: str) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        # without running statistics the layer normalises with the batch in evaluation too
        attrs = {
            "epsilon": float(m.eps),
            "momentum": None if m.momentum is None else 1.0 - m.momentum,
            "unbiased": True,
            "training_mode": m.running_mean is None,
        }
        roles = _roles(m, scale="weight", B="bias", mean="running_mean", var="running_var")
        return Translation("BatchNormalization", attrs, layout, roles)

    return make


def _instance_norm(layout: str) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        attrs = {"epsilon": float(m.eps), "momentum": None if m.momentum is None else 1.0 - m.momentum}
        roles = _roles(m, scale="weight", B="bias", mean="running_mean", var="running_var")
        return Translation("InstanceNormalization", attrs, layout, roles)

    return make


def _layer_norm(m: Any) -> Translation:
    attrs = {"axis": -len(m.normalized_shape), "epsilon": float(m.eps)}
    return Translation("LayerNormalization", attrs, "", _roles(m, scale="weight", B="bias"))


def _rms_norm(m: Any) -> Translation:
    dtype = m.weight.dtype if m.weight is not None else torch.get_default_dtype()
    attrs = {"axis": -len(m.normalized_shape), "epsilon": float(torch.finfo(dtype).eps if m.eps is None else m.eps)}
    return Translation("RMSNormalization", attrs, "", _roles(m, scale="weight"))


def _group_norm(m: Any) -> Translation:
    attrs = {"num_groups": int(m.num_groups), "epsilon": float(m.eps)}
    return Translation("GroupNormalization", attrs, "NC", _roles(m, scale="weight", B="bias"))


def _lrn(m: Any) -> Translation:
    size = int(m.size)
    attrs = {"size": size, "alpha": float(m.alpha), "beta": float(m.beta), "bias": float(m.k), "before": size // 2}
    return Translation("LRN", attrs, "NC")


def _embedding(m: Any) -> Translation:
    attrs = {"padding_idx": m.padding_idx, "mask_zero": False, "max_norm": m.max_norm, "norm_type": float(m.norm_type)}
    return Translation("Gather", attrs, "", _roles(m, W="weight"))


def _embedding_bag(m: Any) -> Translation:
    attrs = {
        "mode": m.mode,
        "padding_idx": m.padding_idx,
        "max_norm": m.max_norm,
        "norm_type": float(m.norm_type),
        "include_last_offset": bool(m.include_last_offset),
    }
    return Translation("EmbeddingBag", attrs, "", _roles(m, W="weight"))


def _pool(op: str, n: int) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        kernel = _list(m.kernel_size, n)
        attrs: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": kernel if m.stride is None else _list(m.stride, n),
            "pads": _list(getattr(m, "padding", 0), n) * 2,
            "dilations": _list(getattr(m, "dilation", 1), n),
            "ceil_mode": bool(m.ceil_mode),
            "auto_pad": "NOTSET",
        }
        if op == "AveragePool":
            attrs |= {
                "count_include_pad": bool(m.count_include_pad),
                "divisor_override": getattr(m, "divisor_override", None),
            }
        if op == "LpPool":
            attrs |= {"p": float(m.norm_type), "signed": True}
        return Translation(op, attrs, _LAYOUTS[n])

    return make


def _adaptive(op: str, n: int) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        size = m.output_size
        sizes = [None if v is None else int(v) for v in (size if isinstance(size, Sequence) else [size] * n)]
        if all(v == 1 for v in sizes):
            return Translation(op.replace("Adaptive", "Global"), {"keepdims": True}, _LAYOUTS[n])
        return Translation(op, {"output_size": sizes}, _LAYOUTS[n])

    return make


def _pad(n: int, mode: str) -> Callable[[Any], Translation]:
    def make(m: Any) -> Translation:
        attrs = {"pads": spatial_pads(m.padding), "mode": mode, "value": float(getattr(m, "value", 0.0))}
        return Translation("Pad", attrs, _LAYOUTS[n])

    return make


def _upsample(m: Any) -> Translation:
    attrs = resize_attrs(m.size, m.scale_factor, m.mode, m.align_corners, False, m.recompute_scale_factor)
    layout = {"linear": "NCL", "bilinear": "NCHW", "bicubic": "NCHW", "trilinear": "NCDHW"}.get(m.mode, "NC")
    return Translation("Resize", attrs, layout)


def _plain(op: str, layout: str = "", **attrs: Any) -> Callable[[Any], Translation]:
    """An activation or the like: attributes are constants, or functions of the module."""
    return lambda m: Translation(op, {k: v(m) if callable(v) else v for k, v in attrs.items()}, layout)


def _dim(m: Any) -> int:
    """torch's own choice for a softmax without ``dim`` depends on the rank; -1 fits rank 1 and 2."""
    return -1 if m.dim is None else int(m.dim)


def _prelu(m: Any) -> Translation:
    return Translation("PRelu", {}, "NC" if m.num_parameters > 1 else "", _roles(m, slope="weight"))


def _rnn(m: Any) -> Translation | None:
    return rnn_layer(m, 0) if m.num_layers == 1 else None


#: layer class -> what describes an object of it
TABLE: dict[type[nn.Module], Callable[[Any], Translation | None]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.RMSNorm: _rms_norm,
    nn.GroupNorm: _group_norm,
    nn.LocalResponseNorm: _lrn,
    nn.SyncBatchNorm: _batch_norm("NC"),
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding_bag,
    nn.LSTM: _rnn,
    nn.GRU: _rnn,
    nn.RNN: _rnn,
    nn.LSTMCell: rnn_cell,
    nn.GRUCell: rnn_cell,
    nn.RNNCell: rnn_cell,
    nn.PReLU: _prelu,
    nn.ReLU: _plain("Relu"),
    nn.ReLU6: _plain("Clip", min=0.0, max=6.0),
    nn.Hardtanh: _plain("Clip", min=lambda m: float(m.min_val), max=lambda m: float(m.max_val)),
    nn.Sigmoid: _plain("Sigmoid"),
    nn.Tanh: _plain("Tanh"),
    nn.SELU: _plain("Selu"),
    nn.Softsign: _plain("Softsign"),
    nn.Hardswish: _plain("HardSwish"),
    nn.Hardsigmoid: _plain("HardSigmoid", alpha=1 / 6, beta=0.5),
    nn.SiLU: _plain("Swish", alpha=1.0),
    nn.Mish: _plain("Mish"),
    nn.LogSigmoid: _plain("LogSigmoid"),
    nn.Tanhshrink: _plain("TanhShrink"),
    nn.GELU: _plain("Gelu", approximate=lambda m: m.approximate),
    nn.LeakyReLU: _plain("LeakyRelu", alpha=lambda m: float(m.negative_slope)),
    nn.RReLU: _plain("RRelu", lower=lambda m: float(m.lower), upper=lambda m: float(m.upper)),
    nn.ELU: _plain("Elu", alpha=lambda m: float(m.alpha)),
    nn.CELU: _plain("Celu", alpha=lambda m: float(m.alpha)),
    nn.Softplus: _plain("Softplus", beta=lambda m: float(m.beta), threshold=lambda m: float(m.threshold)),
    nn.Threshold: _plain("Threshold", threshold=lambda m: float(m.threshold), value=lambda m: float(m.value)),
    nn.Hardshrink: _plain("HardShrink", lambd=lambda m: float(m.lambd)),
    nn.Softshrink: _plain("SoftShrink", lambd=lambda m: float(m.lambd)),
    nn.GLU: _plain("Glu", axis=lambda m: int(m.dim)),
    nn.Softmax: _plain("Softmax", axis=_dim),
    nn.LogSoftmax: _plain("LogSoftmax", axis=_dim),
    nn.Softmin: _plain("Softmin", axis=_dim),
    nn.Softmax2d: _plain("Softmax", axis=-3),
    nn.Identity: _plain("Identity"),
    nn.Dropout: _plain("Dropout", ratio=lambda m: float(m.p)),
    nn.Dropout1d: _plain("Dropout", ratio=lambda m: float(m.p), channelwise=True),
    nn.Dropout2d: _plain("Dropout", ratio=lambda m: float(m.p), channelwise=True),
    nn.Dropout3d: _plain("Dropout", ratio=lambda m: float(m.p), channelwise=True),
    nn.AlphaDropout: _plain("AlphaDropout", ratio=lambda m: float(m.p)),
    nn.FeatureAlphaDropout: _plain("AlphaDropout", ratio=lambda m: float(m.p)),
    nn.Flatten: _plain("Flatten", axis=lambda m: int(m.start_dim), end_axis=lambda m: int(m.end_dim)),
    nn.PixelShuffle: _plain("DepthToSpace", "NCHW", blocksize=lambda m: int(m.upscale_factor), mode="CRD"),
    nn.PixelUnshuffle: _plain("SpaceToDepth", "NCHW", blocksize=lambda m: int(m.downscale_factor), mode="CRD"),
    nn.ChannelShuffle: _plain("ChannelShuffle", "NC", group=lambda m: int(m.groups)),
    nn.Upsample: _upsample,
    nn.UpsamplingBilinear2d: _upsample,
    nn.UpsamplingNearest2d: _upsample,
    nn.Unflatten: lambda m: (
        Translation("Unflatten", {"axis": m.dim, "shape": [int(v) for v in m.unflattened_size]})
        if isinstance(m.dim, int)
        else None
    ),
    **{getattr(nn, f"Conv{n}d"): _conv(n) for n in (1, 2, 3)},
    **{getattr(nn, f"ConvTranspose{n}d"): _conv_transpose(n) for n in (1, 2, 3)},
    **{getattr(nn, f"BatchNorm{n}d"): _batch_norm(_LAYOUTS[n]) for n in (1, 2, 3)},
    **{getattr(nn, f"InstanceNorm{n}d"): _instance_norm(_LAYOUTS[n]) for n in (1, 2, 3)},
    **{getattr(nn, f"MaxPool{n}d"): _pool("MaxPool", n) for n in (1, 2, 3)},
    **{getattr(nn, f"AvgPool{n}d"): _pool("AveragePool", n) for n in (1, 2, 3)},
    **{getattr(nn, f"LPPool{n}d"): _pool("LpPool", n) for n in (1, 2, 3)},
    **{getattr(nn, f"AdaptiveAvgPool{n}d"): _adaptive("AdaptiveAveragePool", n) for n in (1, 2, 3)},
    **{getattr(nn, f"AdaptiveMaxPool{n}d"): _adaptive("AdaptiveMaxPool", n) for n in (1, 2, 3)},
    **{
        getattr(nn, f"{kind}{n}d"): _pad(n, mode)
        for n in (1, 2, 3)
        for kind, mode in (
            ("ConstantPad", "constant"),
            ("ZeroPad", "constant"),
            ("ReflectionPad", "reflect"),
            ("ReplicationPad", "edge"),
            ("CircularPad", "wrap"),
        )
    },
}
