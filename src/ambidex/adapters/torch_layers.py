"""The layers of ``torch.nn`` in canonical (ONNX) words: operator, attributes, and weights in canonical layout.

:func:`translate` looks at one module alone. A subclass with a ``forward`` of its own is no longer the layer that it
derives from and has no translation. Functions have their table in :mod:`ambidex.adapters.torch_layers_functional`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from ambidex.adapters.torch_layers_functional import functional
from ambidex.adapters.torch_layers_words import auto_pad, resize_attrs, spatial_pads
from ambidex.core.types import Array
from ambidex.errors import InputError, UnsupportedError

__all__ = [
    "Role",
    "Translation",
    "functional",
    "get_weights",
    "set_weights",
    "stack",
    "translate",
    "weight_names",
    "weight_sources",
]


def _same(values: Sequence[Array]) -> Array:
    return values[0]


def _alone(value: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    return [value]


@dataclass(frozen=True, slots=True)
class Role:
    """A canonical weight and the torch tensors it is made of (relative to the module).

    ``read`` makes the canonical array of the tensors' values; ``write`` makes the tensors' values of it, given
    their shapes.
    """

    names: tuple[str, ...]
    read: Callable[[Sequence[Array]], Array] = _same
    write: Callable[[Array, Sequence[tuple[int, ...]]], list[Array]] = _alone


@dataclass(frozen=True, slots=True)
class Translation:
    """One layer in canonical words (``docs/canonical.md``)."""

    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    layout: str = ""
    roles: dict[str, Role] = field(default_factory=dict)


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


def _gpt_linear(m: Any) -> Translation:
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
    from ambidex.adapters.torch_layers_rnn import rnn_layer

    return rnn_layer(m, 0) if m.num_layers == 1 else None


def _cell(m: Any) -> Translation:
    from ambidex.adapters.torch_layers_rnn import rnn_cell

    return rnn_cell(m)


_TABLE: dict[type[nn.Module], Callable[[Any], Translation | None]] = {
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
    nn.LSTMCell: _cell,
    nn.GRUCell: _cell,
    nn.RNNCell: _cell,
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


def _builder(m: nn.Module) -> Callable[[Any], Translation | None] | None:
    """The table entry of the nearest torch class whose forward this module still runs."""
    cls = type(m)
    if cls.__name__ == "Conv1D" and cls.__module__.startswith("transformers."):
        return _gpt_linear
    for base in cls.__mro__:
        if base in _TABLE:
            return _TABLE[base] if getattr(cls, "forward", None) is base.forward else None
    return None


def translate(m: nn.Module) -> Translation | None:
    """The canonical description of one layer; None when there is none (see :func:`stack` for deep recurrent layers)."""
    make = _builder(m)
    return make(m) if make is not None else None


def stack(m: nn.Module) -> list[Translation]:
    """A recurrent layer of several layers as one translation each; [] for anything else."""
    from ambidex.adapters.torch_layers_rnn import rnn_layer

    if not isinstance(m, nn.RNNBase) or _builder(m) is None:
        return []
    found = [rnn_layer(m, i) for i in range(m.num_layers)]
    return [t for t in found if t is not None]


# ---------------------------------------------------------------------- weights
def _stored(m: nn.Module, name: str) -> str:
    """The name under which a tensor stands in ``named_parameters()``: a parametrised one under its original's."""
    if parametrize.is_parametrized(m, name):
        prefix = f"parametrizations.{name}."
        return next((n for n, _ in m.named_parameters() if n.startswith(prefix)), name)
    for old in (f"{name}_v", f"{name}_orig"):  # torch.nn.utils.weight_norm, spectral_norm
        if name not in m._parameters and old in m._parameters:
            return old
    return name


def weight_names(m: nn.Module) -> dict[str, str]:
    """Canonical role -> the torch weight, relative to the module; a role of several has them joined by " + "."""
    return {role: " + ".join(names) for role, names in weight_sources(m).items()}


def weight_sources(m: nn.Module) -> dict[str, tuple[str, ...]]:
    """Canonical role -> every torch weight it is made of (LSTM ``B``: bias_ih_l0, bias_hh_l0, ...)."""
    t = translate(m)
    return {} if t is None else {role: tuple(_stored(m, n) for n in r.names) for role, r in t.roles.items()}


def _value(m: nn.Module, name: str) -> Array:
    t = getattr(m, name).detach()
    return (t.float() if t.dtype == torch.bfloat16 else t).cpu().numpy()


def get_weights(m: nn.Module, translation: Translation | None = None) -> dict[str, Array]:
    """The weights of a layer by canonical role, canonical layout (views of the module's memory where they can be)."""
    t = translation or translate(m)
    return {} if t is None else {role: r.read([_value(m, n) for n in r.names]) for role, r in t.roles.items()}


def set_weights(m: nn.Module, values: Mapping[str, Array], translation: Translation | None = None) -> None:
    """Write canonical weights into a layer. Either all of ``values`` fit and are written, or none.

    A recurrent ``B`` may hold one bias instead of two: the recurrent half becomes zero. A bias for a layer without
    one is accepted only when it is all zero.
    """
    t = translation or translate(m)
    roles = {} if t is None else t.roles
    ready: list[tuple[str, Array]] = []
    for role, value in values.items():
        value = np.asarray(value)
        if role not in roles:
            if role == "B" and t is not None and t.op != "PRelu" and not value.any():
                continue
            raise InputError(
                f"{type(m).__name__} has no weight with the role {role!r}", f"it has {sorted(roles) or 'none'}"
            )
        shapes = [tuple(getattr(m, n).shape) for n in roles[role].names]
        parts = roles[role].write(value, shapes)
        for name, shape, part in zip(roles[role].names, shapes, parts, strict=True):
            if tuple(part.shape) != shape:
                raise InputError(f"weight {name!r} of {type(m).__name__} has shape {shape}, given {tuple(part.shape)}")
            ready.append((name, part))
    for name, part in ready:
        _write(m, name, part)


def _write(m: nn.Module, name: str, value: Array) -> None:
    old = getattr(m, name)
    new = torch.from_numpy(np.array(value)).to(old.dtype).to(old.device)
    with torch.no_grad():
        if parametrize.is_parametrized(m, name):
            try:
                setattr(m, name, new)
            except (NotImplementedError, RuntimeError) as e:
                raise UnsupportedError(
                    f"weight {name!r} of {type(m).__name__} is parametrised and cannot be set",
                    str(e),
                    "Remove the parametrisation first",
                ) from e
        elif name in m._parameters or name in m._buffers:
            old.copy_(new)
        else:  # recomputed before every call: writing it would have no effect
            raise UnsupportedError(
                f"weight {name!r} of {type(m).__name__} is recomputed from other weights",
                todo="Remove weight_norm or spectral_norm first",
            )
