"""The attention core of Keras' attention layers in canonical words."""

from __future__ import annotations

from typing import Any

import keras

from ambidex.adapters.keras_words import Attrs, Translation


def attention(layer: Any, ndim: int | None) -> Translation | None:
    return None if layer.score_mode != "dot" else Translation("Attention", attention_attrs(layer))


def multi_head_scale(layer: Any) -> str:
    """The attribute in which a multi-head attention layer keeps its scale; "" for any other layer."""
    names = ("_inverse_sqrt_key_dim", "_inverse_sqrt_head_dim")
    return next((n for n in names if hasattr(layer, n)), "")


def attention_attrs(layer: Any) -> Attrs:
    """What the attention core of a Keras attention layer computes; whether it is causal is an argument of its call.

    ``masked_row`` says what a query gets that may see nothing: "uniform" is the mean of all values, "zero" is zero.
    Keras' multi-head layers take the first way unless dropout is set or the scores are asked for (also in inference).
    """
    if multi_head_scale(layer):
        heads = getattr(layer, "_num_heads", None) or layer.num_query_heads
        rate = float(getattr(layer, "_dropout", getattr(layer, "dropout", 0.0)) or 0.0)
        scale = float(getattr(layer, multi_head_scale(layer)))
        attrs: Attrs = {
            "scale": scale,
            "num_heads": int(heads),
            "is_causal": None,
            "softmax_axis": -1,
            "masked_row": "zero" if rate > 0 else "uniform",
        }
        if hasattr(layer, "num_key_value_heads"):
            attrs["kv_num_heads"] = int(layer.num_key_value_heads)
        if rate:
            attrs["ratio"] = rate
        return attrs
    scale = 1.0 if getattr(layer, "scale", None) is None else float(keras.ops.convert_to_numpy(layer.scale))
    attrs = {"scale": scale, "num_heads": 1, "is_causal": None, "softmax_axis": -1, "masked_row": "uniform"}
    if layer.dropout:
        attrs["ratio"] = float(layer.dropout)
    return attrs
