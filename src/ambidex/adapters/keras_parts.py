"""Keras layers that are more than one canonical layer, taken apart.

A :class:`Part` stands for one of them where Keras has no layer object: it can be translated, its weights read and
written, it can be patched and called on a tensor like a layer.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from ambidex.adapters.keras_describe import describe
from ambidex.adapters.keras_words import Translation, conv_attrs, own_class, rank_of, spatial_layout

_ATTENTION = ("query", "key", "value", "gate", "output")


class Part:
    """One canonical layer inside a Keras layer. Calling it leaves out the layer's fused activation."""

    def __init__(self, layer: Any, name: str) -> None:
        self.layer, self.name = layer, name
        if name in ("depthwise", "pointwise"):
            first = name == "depthwise"
            one = (1,) * layer.rank
            self.rank, self.data_format = layer.rank, layer.data_format
            self.kernel_size = tuple(layer.kernel_size) if first else one
            self.strides = tuple(layer.strides) if first else one
            self.dilation_rate = tuple(layer.dilation_rate) if first else one
            self.padding = layer.padding if first else "valid"

    @property
    def kernel(self) -> Any:
        """The variable of a convolution part."""
        return self.layer.depthwise_kernel if self.name == "depthwise" else self.layer.pointwise_kernel

    @property
    def bias(self) -> Any:
        """The bias variable, which only the last part has."""
        return self.layer.bias if self.name == "pointwise" else None

    @property
    def built(self) -> bool:
        return bool(self.layer.built)

    @property
    def trainable(self) -> bool:
        return bool(self.layer.trainable)

    @property
    def weights(self) -> list[Any]:
        """The variables of this part."""
        if self.name in ("depthwise", "pointwise"):
            return [v for v in (self.kernel, self.bias) if v is not None]
        return list(self.layer.weights) if self.name == "reverse" else []

    def translation(self) -> Translation:
        """The part in canonical words."""
        if self.name == "depthwise":
            return Translation(
                "Conv", conv_attrs(self, int(self.kernel.shape[-2])), spatial_layout(self.rank, self.data_format)
            )
        if self.name == "pointwise":
            return Translation("Conv", conv_attrs(self, 1), spatial_layout(self.rank, self.data_format))
        if self.name == "reverse":
            return Translation("Gemm")
        if self.name == "transpose":
            ndim = rank_of(self.layer, None)
            return Translation("Transpose", {"perm": None if ndim is None else [0, *range(2, ndim), 1]})
        return Translation("Flatten", {"axis": 1, "end_axis": -1})

    def call(self, x: Any) -> Any:
        """What this part computes."""
        if self.name == "reverse":
            return self.layer(x, reverse=True)
        if self.name == "transpose":
            return ops.transpose(x, (0, *range(2, len(x.shape)), 1))
        if self.name == "flatten":
            return ops.reshape(x, (x.shape[0], -1))
        convolve = ops.depthwise_conv if self.name == "depthwise" else ops.conv
        kernel = ops.cast(ops.convert_to_tensor(self.kernel), x.dtype)
        y = convolve(
            x,
            kernel,
            strides=self.strides,
            padding=self.padding,
            dilation_rate=self.dilation_rate,
            data_format=self.data_format,
        )
        if self.bias is None:
            return y
        lead = 1 if self.data_format == "channels_first" else self.rank + 1
        shape = (*(1,) * lead, -1, *(1,) * (self.rank + 1 - lead))
        return ops.add(y, ops.reshape(ops.cast(ops.convert_to_tensor(self.bias), x.dtype), shape))

    def __call__(self, x: Any) -> Any:
        return self.call(x)


def parts(layer: Any) -> list[tuple[str, Any]]:
    """The canonical layers inside a Keras layer, with their names, in order; empty for a layer that is one itself.

    "depthwise" and "pointwise" of a separable convolution (the bias is the pointwise one's); the projections of an
    attention layer (its own EinsumDense layers, around a core: see ``attention_attrs``); a reversible embedding and
    "reverse", what it computes when called with ``reverse=True``; "transpose" and "flatten" of a channels-first
    Flatten.
    """
    if isinstance(layer, keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention):
        found = [(name, getattr(layer, f"_{name}_dense", None)) for name in _ATTENTION]
        return [(name, dense) for name, dense in found if dense is not None]
    cls = own_class(layer)
    name = "" if cls is None else cls.__name__
    if name in ("SeparableConv1D", "SeparableConv2D"):
        return [(n, Part(layer, n)) for n in ("depthwise", "pointwise")]
    if name == "ReversibleEmbedding" and layer.logit_soft_cap is None:
        return [("embedding", layer), ("reverse", Part(layer, "reverse"))]
    if name == "Flatten" and describe(layer) is None:
        return [(n, Part(layer, n)) for n in ("transpose", "flatten")]
    return []
