"""Resizing in Keras, by a layer or a function, in the words of ONNX Resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ambidex.adapters.keras_words import Attrs, Translation, spatial_layout


def resize_attrs(interpolation: str, antialias: bool = False) -> Attrs:
    """Attributes of keras.ops.image.resize: half-pixel centres; the interpolations ONNX lacks keep Keras' name.

    Bicubic is Keys' with a = -0.5 and weights outside the image left out; only the torch backend has a = -0.75 and
    repeats the border, unless it antialiases.
    """
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(interpolation, interpolation)
    attrs: Attrs = {
        "mode": mode,
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_ceil",
        "antialias": bool(antialias and mode != "nearest"),
    }
    if mode == "cubic":
        plain = None if attrs["antialias"] else keras.backend.backend()
        attrs.update(cubic_coeff_a=-0.75 if plain == "torch" else -0.5, exclude_outside=plain != "torch")
        if plain == "tensorflow":
            attrs["coordinate_steps"] = 1024  # TensorFlow looks its weights up in a table of so many sub-pixel places
    return attrs


def upsampling(layer: Any, ndim: int | None) -> Translation:
    size = list(layer.size) if isinstance(layer.size, Sequence) else [layer.size]
    mode = getattr(layer, "interpolation", "nearest")
    attrs = resize_attrs(mode)
    if mode == "nearest":  # a repeat: for whole factors the same as 'asymmetric' with 'floor'
        attrs.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return Translation(
        "Resize",
        {**attrs, "scales": [float(s) for s in size], "sizes": None},
        spatial_layout(len(size), getattr(layer, "data_format", None)),
    )


def resizing(layer: Any, ndim: int | None) -> Translation | None:
    if layer.crop_to_aspect_ratio or layer.pad_to_aspect_ratio:
        return None
    return Translation(
        "Resize",
        {
            **resize_attrs(layer.interpolation, layer.antialias),
            "scales": None,
            "sizes": [int(layer.height), int(layer.width)],
        },
        spatial_layout(2, layer.data_format),
    )
