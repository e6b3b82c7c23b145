"""The same text classifier in Keras 3, with two faults that are named in the README."""

import keras
from keras import layers, ops

VOCABULARY, MAX_LENGTH, DIM, HEADS, BLOCKS, CLASSES = 5000, 128, 64, 4, 2, 2


class PrependCls(layers.Layer):
    def build(self, shape):
        self.cls = self.add_weight(name="cls", shape=(1, 1, shape[-1]), initializer="random_normal")

    def call(self, x):
        return ops.concatenate([ops.broadcast_to(self.cls, (ops.shape(x)[0], 1, x.shape[-1])), x], axis=1)


class Positions(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(MAX_LENGTH + 1, DIM, name="table")

    def call(self, x):
        return x + self.table(ops.arange(ops.shape(x)[1]))


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(HEADS, DIM // HEADS, dropout=0.1, name="attention")
        self.attention_norm = layers.LayerNormalization(epsilon=1e-12, name="attention_norm")
        self.intermediate = layers.Dense(4 * DIM, activation="gelu", name="intermediate")
        self.output_dense = layers.Dense(DIM, name="output_dense")
        self.output_norm = layers.LayerNormalization(epsilon=1e-12, name="output_norm")
        self.dropout = layers.Dropout(0.1)

    def call(self, x, valid, training=None):
        attended = self.attention(x, x, training=training)
        x = self.attention_norm(x + self.dropout(attended, training=training))
        hidden = self.output_dense(self.intermediate(x))
        return self.output_norm(x + self.dropout(hidden, training=training))


class BlockFixed(Block):
    def call(self, x, valid, training=None):
        attended = self.attention(x, x, attention_mask=valid[:, None, :], training=training)
        x = self.attention_norm(x + self.dropout(attended, training=training))
        hidden = self.output_dense(self.intermediate(x))
        return self.output_norm(x + self.dropout(hidden, training=training))


def build(block=Block, pooler="relu"):
    keras.utils.set_random_seed(1)
    ids = keras.Input((None,), dtype="int64", name="ids")
    x = layers.Embedding(VOCABULARY, DIM, name="tokens")(ids)
    x = PrependCls(name="prepend_cls")(x)
    x = Positions(name="positions")(x)
    x = layers.LayerNormalization(epsilon=1e-12, name="embedding_norm")(x)
    x = layers.Dropout(0.1)(x)
    valid = ops.not_equal(ops.pad(ids, [[0, 0], [1, 0]], constant_values=1), 0)
    for i in range(BLOCKS):
        x = block(name=f"block_{i}")(x, valid=valid)
    x = layers.Dense(DIM, activation=pooler, name="pooler")(x[:, 0])
    x = layers.Dropout(0.1)(x)
    return keras.Model(ids, layers.Dense(CLASSES, name="classifier")(x))


def build_fixed():
    """Both faults repaired: the padding mask reaches the attention, the pooler is a tanh."""
    return build(BlockFixed, "tanh")
