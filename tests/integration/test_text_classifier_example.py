"""The text classifier example: the repaired pair is one model, each fault alone has an effect."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "text_classifier"


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"text_classifier_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bert_torch, bert_keras = _load("bert_torch"), _load("bert_keras")


def carry(source: torch.nn.Module, target: keras.Model) -> None:
    """Every weight by hand; nothing of ambidex takes part."""
    state = {name: value.numpy() for name, value in source.state_dict().items()}

    def linear(name: str) -> list[np.ndarray]:
        return [state.pop(f"{name}.weight").T, state.pop(f"{name}.bias")]

    def plain(name: str) -> list[np.ndarray]:
        return [state.pop(f"{name}.weight"), state.pop(f"{name}.bias")]

    heads, dim = bert_torch.HEADS, bert_torch.DIM
    target.get_layer("tokens").set_weights([state.pop("tokens.weight")])
    target.get_layer("positions").table.set_weights([state.pop("positions.weight")])
    target.get_layer("prepend_cls").set_weights([state.pop("cls")])
    target.get_layer("embedding_norm").set_weights(plain("norm"))
    for i in range(bert_torch.BLOCKS):
        name, block = f"encoder.layers.{i}", target.get_layer(f"block_{i}")
        packed, bias = state.pop(f"{name}.self_attn.in_proj_weight"), state.pop(f"{name}.self_attn.in_proj_bias")
        values = []
        for part in range(3):
            rows = slice(part * dim, (part + 1) * dim)
            values += [packed[rows].T.reshape(dim, heads, -1), bias[rows].reshape(heads, -1)]
        kernel, out_bias = linear(f"{name}.self_attn.out_proj")
        q, qb, k, kb, v, vb = values
        block.attention.set_weights([q, qb, k, kb, v, vb, kernel.reshape(heads, -1, dim), out_bias])
        block.attention_norm.set_weights(plain(f"{name}.norm1"))
        block.intermediate.set_weights(linear(f"{name}.linear1"))
        block.output_dense.set_weights(linear(f"{name}.linear2"))
        block.output_norm.set_weights(plain(f"{name}.norm2"))
    target.get_layer("pooler").set_weights(linear("pooler"))
    target.get_layer("classifier").set_weights(linear("classifier"))
    assert not state


@pytest.fixture(scope="module")
def ids() -> np.ndarray:
    rng = np.random.default_rng(0)
    ids = rng.integers(1, bert_torch.VOCABULARY, (7, 11))
    for row, length in enumerate((11, 3, 7, 1, 5, 0, 9)):
        ids[row, length:] = 0
    return ids


def _differences(ids: np.ndarray, model: keras.Model) -> np.ndarray:
    reference = bert_torch.build()
    carry(reference, model)
    with torch.no_grad():
        expected = reference(torch.from_numpy(ids)).numpy()
    return np.abs(keras.ops.convert_to_numpy(model(ids, training=False)) - expected).max(axis=1)


def test_the_repaired_pair_is_one_model(ids: np.ndarray) -> None:
    assert _differences(ids, bert_keras.build_fixed()).max() < 1e-5


def test_the_lost_mask_shows_only_where_there_is_padding(ids: np.ndarray) -> None:
    differences = _differences(ids, bert_keras.build(pooler="tanh"))
    assert differences[0] < 1e-5
    assert differences[1:].min() > 1e-3


def test_the_activation_shows_everywhere(ids: np.ndarray) -> None:
    assert _differences(ids, bert_keras.build(block=bert_keras.BlockFixed)).min() > 1e-2
