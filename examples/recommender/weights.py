"""The PyTorch weights into the Keras twin, by hand: what a team writes to rule the weights out.

``ambidex compare`` does this by itself. The demo needs it to show what the twin does with the same weights, and the
tests to prove without ambidex that the repaired pair is one model.
"""

from __future__ import annotations

import keras
import numpy as np
import torch
from model_torch import BLOCKS, DIM


def keras_from_torch(source: torch.nn.Module, target: keras.Model) -> None:
    """Copy every weight; a Dense kernel is the transposed matrix of a Linear."""
    state = {name: value.detach().cpu().numpy() for name, value in source.state_dict().items()}
    left = set(state)

    def take(name: str) -> np.ndarray:
        left.discard(name)
        return state[name]

    def linear(name: str) -> list[np.ndarray]:
        return [take(f"{name}.weight").T, take(f"{name}.bias")]

    def norm(name: str) -> list[np.ndarray]:
        return [take(f"{name}.weight"), take(f"{name}.bias")]

    target.get_layer("item_embedding").set_weights([take("item_embedding.weight")])
    clicks = target.get_layer("clicks")
    clicks.position.set_weights([take("position_embedding.weight")])
    clicks.norm.set_weights(norm("embedding_norm"))
    for i in range(BLOCKS):
        name, block = f"encoder.layers.{i}", target.get_layer(f"block_{i}")
        packed, bias = take(f"{name}.self_attn.in_proj_weight"), take(f"{name}.self_attn.in_proj_bias")
        for part, dense in enumerate((block.attention.query, block.attention.key, block.attention.value)):
            rows = slice(part * DIM, (part + 1) * DIM)
            dense.set_weights([packed[rows].T, bias[rows]])
        block.attention.out.set_weights(linear(f"{name}.self_attn.out_proj"))
        block.norm_attention.set_weights(norm(f"{name}.norm1"))
        block.expand.set_weights(linear(f"{name}.linear1"))
        block.contract.set_weights(linear(f"{name}.linear2"))
        block.norm_output.set_weights(norm(f"{name}.norm2"))
    graph = target.get_layer("graph")
    graph.kernel.assign(take("graph.lin.weight").T)
    graph.attn_self.assign(take("graph.att_item"))
    graph.attn_neigh.assign(take("graph.att_neighbour"))
    graph.bias.assign(take("graph.bias"))
    target.get_layer("features_dense").set_weights(linear("features"))
    for name, number in (("head_1", 0), ("head_2", 3), ("logit", 5)):
        target.get_layer(name).set_weights(linear(f"head.{number}"))
    if left:
        raise ValueError(f"weights without a place in the Keras model: {sorted(left)}")
