"""One graph attention layer: torch_geometric with a list of edges, spektral (Keras 2) with an adjacency matrix."""

import numpy as np
import shelf  # noqa: F401

NODES, FEATURES, WIDTH, HEADS = 11, 7, 5, 3


def geometric():
    import torch
    from torch_geometric.nn import GATConv

    torch.manual_seed(13)
    return GATConv(FEATURES, WIDTH, heads=HEADS).eval()


def spektral():
    import tensorflow as tf
    from spektral.layers import GATConv

    nodes, edges = tf.keras.Input((FEATURES,)), tf.keras.Input((NODES,))
    return tf.keras.Model([nodes, edges], GATConv(WIDTH, attn_heads=HEADS, dropout_rate=0.0)([nodes, edges]))


def graph():
    rng = np.random.default_rng(19)
    upper = np.triu(rng.random((NODES, NODES)) < 0.3, 1)
    edges = (upper | upper.T).astype("float32")
    nodes = rng.normal(size=(NODES, FEATURES)).astype("float32")
    return {"reference": (nodes, np.stack(edges.nonzero())), "candidate": (nodes, edges)}
