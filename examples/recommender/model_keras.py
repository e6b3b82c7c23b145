"""The same recommender, written again in Keras 3 by a colleague, by hand, for the TensorFlow serving team.

It has the same parts and the same number of weights as ``model_torch.py``. Its click-through is worse.
"""

import keras
from keras import layers, ops

ITEMS, FEATURES, HISTORY, NEIGHBOURS = 1683, 20, 20, 10
DIM, HEADS, BLOCKS = 32, 4, 1
CLASS_WEIGHT = {0: 1.0, 1: 3.0}  # model.fit(..., class_weight=CLASS_WEIGHT)


class SelfAttention(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.scale = dim**-0.5
        self.query = layers.Dense(dim, name="query")
        self.key = layers.Dense(dim, name="key")
        self.value = layers.Dense(dim, name="value")
        self.out = layers.Dense(dim, name="out")

    def split_heads(self, x):
        length = ops.shape(x)[1]
        x = ops.reshape(x, (-1, length, self.heads, self.dim // self.heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def call(self, x, valid):
        q, k, v = self.split_heads(self.query(x)), self.split_heads(self.key(x)), self.split_heads(self.value(x))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale
        scores = ops.where(valid[:, None, None, :], scores, -1e9)
        context = ops.matmul(ops.softmax(scores, axis=-1), v)
        context = ops.transpose(context, (0, 2, 1, 3))
        return self.out(ops.reshape(context, (-1, ops.shape(x)[1], self.dim)))


class EncoderBlock(layers.Layer):
    def __init__(self, dim, heads, dropout, **kwargs):
        super().__init__(**kwargs)
        self.attention = SelfAttention(dim, heads, name="attention")
        self.norm_attention = layers.LayerNormalization(name="norm_attention")
        self.expand = layers.Dense(2 * dim, name="expand")
        self.gelu = ops.gelu
        self.contract = layers.Dense(dim, name="contract")
        self.norm_output = layers.LayerNormalization(name="norm_output")
        self.dropout = layers.Dropout(dropout)

    def call(self, x, valid, training=None):
        x = self.norm_attention(x + self.dropout(self.attention(x, valid=valid), training=training))
        hidden = self.dropout(self.gelu(self.expand(x)), training=training)
        return self.norm_output(x + self.dropout(self.contract(hidden), training=training))


class GraphAttention(layers.Layer):
    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.leaky_relu = layers.LeakyReLU()

    def build(self, *shapes):
        per_head = (self.heads, self.dim // self.heads)
        self.kernel = self.add_weight(name="kernel", shape=(self.dim, self.dim), initializer="glorot_uniform")
        self.attn_self = self.add_weight(name="attn_self", shape=per_head, initializer="glorot_uniform")
        self.attn_neigh = self.add_weight(name="attn_neigh", shape=per_head, initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(self.dim,), initializer="zeros")

    def call(self, item, neighbours, valid):
        split = (-1, ops.shape(neighbours)[1], self.heads, self.dim // self.heads)
        h_self = ops.reshape(ops.matmul(item, self.kernel), (-1, 1, *split[2:]))
        h_neigh = ops.reshape(ops.matmul(neighbours, self.kernel), split)
        score = ops.sum(h_self * self.attn_self, axis=-1) + ops.sum(h_neigh * self.attn_neigh, axis=-1)
        score = ops.where(valid[..., None], self.leaky_relu(score), -1e9)
        alpha = ops.softmax(score, axis=1)
        context = ops.sum(alpha[..., None] * h_neigh, axis=1)
        return ops.elu(ops.reshape(context, (-1, self.dim)) + self.bias)


class ClickSequence(layers.Layer):
    """Item and position embedding of the clicks, the candidate item last."""

    def __init__(self, dropout, **kwargs):
        super().__init__(**kwargs)
        self.position = layers.Embedding(HISTORY + 1, DIM, name="position")
        self.norm = layers.LayerNormalization(name="norm")
        self.dropout = layers.Dropout(dropout)

    def call(self, x, training=None):
        x = x + self.position(ops.arange(HISTORY + 1))
        return self.dropout(self.norm(x), training=training)


def build(dropout=0.1):
    keras.utils.set_random_seed(1)
    history = keras.Input((HISTORY,), dtype="int64", name="history")
    item = keras.Input((1,), dtype="int64", name="item")
    neighbours = keras.Input((NEIGHBOURS,), dtype="int64", name="neighbours")
    features = keras.Input((FEATURES,), name="features")

    embedding = layers.Embedding(ITEMS, DIM, name="item_embedding")
    tokens = ops.concatenate([history, item], axis=1)
    valid = ops.not_equal(tokens, 0)
    x = ClickSequence(dropout, name="clicks")(embedding(tokens))
    for i in range(BLOCKS):
        x = EncoderBlock(DIM, HEADS, dropout, name=f"block_{i}")(x, valid=valid)
    known = ops.not_equal(neighbours, 0)
    graph = GraphAttention(DIM, HEADS, name="graph")(embedding(item), embedding(neighbours), known)
    movie = layers.Dense(DIM, activation="relu", name="features_dense")(features)

    x = layers.Concatenate(name="joined")([x[:, -1], graph, movie])
    x = layers.Dense(64, activation="relu", name="head_1")(x)
    x = layers.Dropout(dropout)(x)
    x = layers.Dense(32, activation="relu", name="head_2")(x)
    logit = layers.Dense(1, name="logit")(x)
    return keras.Model({"history": history, "item": item, "neighbours": neighbours, "features": features}, logit)


def loss():
    return keras.losses.BinaryCrossentropy(from_logits=True)


# What the report says to change, applied to a built model; the README shows each as the line to write.
FIXES = {
    "attention scale": (SelfAttention, lambda layer: setattr(layer, "scale", (layer.dim // layer.heads) ** -0.5)),
    "layer norm epsilon": (layers.LayerNormalization, lambda layer: setattr(layer, "epsilon", 1e-5)),
    "gelu": (EncoderBlock, lambda layer: setattr(layer, "gelu", keras.activations.gelu)),
    "graph attention slope": (layers.LeakyReLU, lambda layer: setattr(layer, "negative_slope", 0.2)),
}


def build_fixed(*names, dropout=0.1):
    """The model with the named faults repaired, with all of them when none is named."""
    model = build(dropout)
    for name in names or FIXES:
        kind, repair = FIXES[name]
        for layer in model._flatten_layers():
            if isinstance(layer, kind):
                repair(layer)
    return model


def loss_fixed():
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
