"""Training mode without randomness: everything in Keras that drops or adds noise hands its input on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from ambidex.adapters.keras_composites import set_in_dict

#: attributes of layers that say how much is dropped or how strong the noise is
_RATES = ("rate", "dropout", "recurrent_dropout", "stddev")
#: attention is not among them: whether it drops decides how Keras computes it; its dropout is a layer or a function
_NOISY = {"Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "GaussianDropout", "AlphaDropout",
          "GaussianNoise", "LSTM", "LSTMCell", "GRU", "GRUCell", "SimpleRNN", "SimpleRNNCell", "ConvLSTM1D",
          "ConvLSTM2D", "ConvLSTM3D"}  # fmt: skip
#: the base class of layers that change images at random while they train
_AUGMENTING = "BaseImagePreprocessingLayer"


def _handed_on(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


@contextmanager
def no_dropout(model: Any) -> Iterator[None]:
    """Layers, cells and the functions of ``keras.random`` and ``tf.nn``; all is put back afterwards."""
    import tensorflow as tf

    with ExitStack() as stack:
        for layer in _all(model):
            classes = {c.__name__ for c in type(layer).__mro__}
            if classes & _NOISY:
                for name in _RATES:
                    if isinstance(vars(layer).get(name), float) and vars(layer)[name]:
                        stack.enter_context(set_in_dict(layer, name, 0.0))
            elif _AUGMENTING in classes:
                stack.enter_context(set_in_dict(layer, "call", _not_training(layer.call)))
        # keras.random.dropout, also where it was imported by name, calls the one of tf.nn.experimental
        for owner, name in (
            (keras.random, "dropout"),
            (keras.src.backend.random, "dropout"),
            (tf.nn, "dropout"),
            (tf.nn.experimental, "stateless_dropout"),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, _handed_on)
        yield


def _not_training(call: Any) -> Any:
    @functools.wraps(call)
    def still(*args: Any, **kwargs: Any) -> Any:
        return call(*args[:1], **{**kwargs, "training": False})

    return still


def _all(model: Any) -> list[Any]:
    """All layers, with the cells of recurrent ones."""
    found = list(model._flatten_layers())
    cells = [getattr(layer, "cell", None) for layer in found]
    return found + [c for c in cells if c is not None and all(c is not x for x in found)]
