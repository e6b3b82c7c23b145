"""Training mode without randomness: everything in Keras that drops or adds noise hands its input on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

#: attributes of layers that say how much is dropped or how strong the noise is
_RATES = ("rate", "dropout", "recurrent_dropout", "stddev", "_dropout")
_NOISY = {"Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout", "AlphaDropout",
          "GaussianNoise", "LSTM", "LSTMCell", "GRU", "GRUCell", "SimpleRNN", "SimpleRNNCell", "ConvLSTM1D",
          "ConvLSTM2D", "ConvLSTM3D", "MultiHeadAttention", "GroupedQueryAttention", "Attention",
          "AdditiveAttention"}  # fmt: skip


@contextmanager
def no_dropout(model: Any) -> Iterator[None]:
    """Layers, cells and the functions of ``keras.random`` and ``tf.nn``; all is put back afterwards."""
    import tensorflow as tf

    before: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        before.append((owner, name, getattr(owner, name)))
        object.__setattr__(owner, name, value) if not isinstance(owner, type(tf)) else setattr(owner, name, value)

    for layer in _all(model):
        if any(c.__name__ in _NOISY for c in type(layer).__mro__):
            for name in _RATES:
                if isinstance(vars(layer).get(name), float) and vars(layer)[name]:
                    put(layer, name, 0.0)
    try:
        for owner, names in (
            (keras.random, ("dropout",)),
            (keras.src.backend.random, ("dropout",)),
            (tf.nn, ("dropout",)),
        ):
            for name in names:
                put(owner, name, lambda x, *args, **kwargs: x)
        yield
    finally:
        for owner, name, value in reversed(before):
            object.__setattr__(owner, name, value) if not isinstance(owner, type(tf)) else setattr(owner, name, value)


def _all(model: Any) -> list[Any]:
    """All layers, with the cells of recurrent ones."""
    found = list(model._flatten_layers())
    cells = [getattr(layer, "cell", None) for layer in found]
    return found + [c for c in cells if c is not None and all(c is not x for x in found)]
