"""Functions of torch that are layers without weights of their own: convolution, pooling, normalisation, attention.

Tensors that are weights are named in ``inputs``: the roles of the call's further tensor inputs in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ambidex.adapters.torch_layers_words import Arguments, Attrs, Found, as_list, auto_pad, resize_attrs, spatial_pads

Builder = Callable[[Arguments], Found]


def _pool(op: str, n: int) -> Callable[[Arguments], Found]:
    average, power = op == "AveragePool", op == "LpPool"

    def make(a: Arguments) -> Found:
        at = 2 if power else 1
        kernel = as_list(a.get(at, "kernel_size"), n)
        stride = a.get(at + 1, "stride")
        strides = kernel if stride is None or stride == [] else as_list(stride, n)
        attrs: Attrs = {"kernel_shape": kernel, "strides": strides, "auto_pad": "NOTSET", "dilations": [1] * n}
        if power:
            return op, attrs | {
                "pads": [0] * (2 * n),
                "ceil_mode": bool(a.get(4, "ceil_mode", False)),
                "p": float(a.get(1, "norm_type")),
                "signed": True,
            }
        attrs["pads"] = as_list(a.get(3, "padding", 0), n) * 2
        if average:
            return op, attrs | {
                "ceil_mode": bool(a.get(4, "ceil_mode", False)),
                "count_include_pad": bool(a.get(5, "count_include_pad", True)),
                "divisor_override": a.get(6, "divisor_override"),
            }
        attrs["dilations"] = as_list(a.get(4, "dilation", 1), n)
        return op, attrs | {"ceil_mode": bool(a.get(5, "ceil_mode", False))}

    return make


def _adaptive(op: str, n: int) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        size = a.get(1, "output_size")
        sizes = list(size) if isinstance(size, Sequence) else [size] * n
        if all(v == 1 for v in sizes):
            return op.replace("Adaptive", "Global"), {"keepdims": True}
        return op, {"output_size": [None if v is None else int(v) for v in sizes]}

    return make


def _conv(n: int) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        padding, weight = a.get(4, "padding", 0), a.get(1, "weight")
        auto = auto_pad(padding)
        return "Conv", {
            "kernel_shape": [int(k) for k in weight.shape[2:]],
            "strides": as_list(a.get(3, "stride", 1), n),
            "pads": [0] * (2 * n) if auto != "NOTSET" else as_list(padding, n) * 2,
            "auto_pad": auto,
            "dilations": as_list(a.get(5, "dilation", 1), n),
            "group": int(a.get(6, "groups", 1)),
            "pad_mode": "constant",
            "inputs": a.roles((1, "weight", "W"), (2, "bias", "B")),
        }

    return make


def _conv_transpose(n: int) -> Callable[[Arguments], Found]:
    def make(a: Arguments) -> Found:
        return "ConvTranspose", {
            "kernel_shape": [int(k) for k in a.get(1, "weight").shape[2:]],
            "strides": as_list(a.get(3, "stride", 1), n),
            "pads": as_list(a.get(4, "padding", 0), n) * 2,
            "output_padding": as_list(a.get(5, "output_padding", 0), n),
            "group": int(a.get(6, "groups", 1)),
            "dilations": as_list(a.get(7, "dilation", 1), n),
            "auto_pad": "NOTSET",
            "inputs": a.roles((1, "weight", "W"), (2, "bias", "B")),
        }

    return make


def _linear(a: Arguments) -> Found:
    return "Gemm", {"inputs": a.roles((1, "weight", "W"), (2, "bias", "B"))}


def _layer_norm(a: Arguments) -> Found:
    return "LayerNormalization", {
        "axis": -len(a.get(1, "normalized_shape")),
        "epsilon": float(a.get(4, "eps", 1e-5)),
        "inputs": a.roles((2, "weight", "scale"), (3, "bias", "B")),
    }


def _rms_norm(a: Arguments) -> Found:
    eps = a.get(3, "eps")
    return "RMSNormalization", {
        "axis": -len(a.get(1, "normalized_shape")),
        "epsilon": float(torch.finfo(a.x.dtype).eps if eps is None else eps),
        "inputs": a.roles((2, "weight", "scale")),
    }


def _batch_norm(a: Arguments) -> Found:
    return "BatchNormalization", {
        "epsilon": float(a.get(7, "eps", 1e-5)),
        "momentum": 1.0 - float(a.get(6, "momentum", 0.1)),
        "unbiased": True,
        "training_mode": bool(a.get(5, "training", False)),
        "inputs": a.roles(
            (1, "running_mean", "mean"), (2, "running_var", "var"), (3, "weight", "scale"), (4, "bias", "B")
        ),
    }


def _instance_norm(a: Arguments) -> Found:
    if not a.get(5, "use_input_stats", True):
        return None
    return "InstanceNormalization", {
        "epsilon": float(a.get(7, "eps", 1e-5)),
        "inputs": a.roles((3, "weight", "scale"), (4, "bias", "B")),
    }


def _group_norm(a: Arguments) -> Found:
    return "GroupNormalization", {
        "num_groups": int(a.get(1, "num_groups")),
        "epsilon": float(a.get(4, "eps", 1e-5)),
        "inputs": a.roles((2, "weight", "scale"), (3, "bias", "B")),
    }


def _embedding(a: Arguments) -> Found:
    return "Gather", {
        "padding_idx": a.get(2, "padding_idx"),
        "mask_zero": False,
        "max_norm": a.get(3, "max_norm"),
        "norm_type": float(a.get(4, "norm_type", 2.0)),
        "inputs": a.roles((1, "weight", "W")),
    }


def _lrn(a: Arguments) -> Found:
    size = int(a.get(1, "size"))
    return "LRN", {
        "size": size,
        "alpha": float(a.get(2, "alpha", 1e-4)),
        "beta": float(a.get(3, "beta", 0.75)),
        "bias": float(a.get(4, "k", 1.0)),
        "before": size // 2,
    }


def _normalize(a: Arguments) -> Found:
    return "LpNormalization", {
        "p": float(a.get(1, "p", 2.0)),
        "axis": a.axis(2, default=1),
        "epsilon": float(a.get(3, "eps", 1e-12)),
    }


def _attention(a: Arguments) -> Found:
    q, scale = a.get(0, "query"), a.get(6, "scale", None)
    if "scale" in a.kwargs:
        scale = a.kwargs["scale"]
    return "Attention", {
        "scale": 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale),
        "is_causal": bool(a.get(5, "is_causal", False)),
        "num_heads": int(q.shape[-3]) if q.dim() == 4 else None,
        "softmax_axis": -1,
        "masked_row": "zero",
    }


def _interpolate(a: Arguments) -> Found:
    return "Resize", resize_attrs(
        a.get(1, "size"),
        a.get(2, "scale_factor"),
        a.get(3, "mode", "nearest"),
        a.get(4, "align_corners"),
        bool(a.get(6, "antialias", False)),
        a.get(5, "recompute_scale_factor"),
    )


def _pad(a: Arguments) -> Found:
    mode = {"replicate": "edge", "circular": "wrap"}.get(a.get(2, "mode", "constant"), a.get(2, "mode", "constant"))
    return "Pad", {"pads": spatial_pads(a.get(1, "pad")), "mode": mode, "value": float(a.get(3, "value") or 0.0)}


TABLE: dict[str, Builder] = {
    **{f"max_pool{n}d{end}": _pool("MaxPool", n) for n in (1, 2, 3) for end in ("", "_with_indices")},
    **{f"avg_pool{n}d": _pool("AveragePool", n) for n in (1, 2, 3)},
    **{f"lp_pool{n}d": _pool("LpPool", n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive("AdaptiveAveragePool", n) for n in (1, 2, 3)},
    **{
        f"adaptive_max_pool{n}d{end}": _adaptive("AdaptiveMaxPool", n)
        for n in (1, 2, 3)
        for end in ("", "_with_indices")
    },
    **{f"conv{n}d": _conv(n) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _conv_transpose(n) for n in (1, 2, 3)},
    "linear": _linear,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "local_response_norm": _lrn,
    "embedding": _embedding,
    "normalize": _normalize,
    "scaled_dot_product_attention": _attention,
    "interpolate": _interpolate,
    "upsample": _interpolate,
    "pad": _pad,
}
