"""Fixtures of the adapters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No run leaves a patch of Keras or TensorFlow behind. Imported here: the torch tests need neither."""
    import keras
    import tensorflow as tf
    from keras.src.layers.layer import Layer as KerasLayer
    from keras.src.ops.operation import Operation
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import execute as tf_execute

    def patched() -> tuple[object, ...]:
        return (
            KerasLayer.__call__,
            Operation.__call__,
            Operation.__init__,
            keras.ops.add,
            keras.activations.relu,
            keras.Variable.assign,
            pywrap_tfe.TFE_Py_FastPathExecute,
            tf_execute.execute,
            tf.nn.gelu,
        )

    before = patched()
    yield
    assert all(a is b for a, b in zip(before, patched(), strict=True))
    assert not tf.config.functions_run_eagerly()
