"""Click models that the same authors wrote twice: deepctr (Keras 2) and deepctr-torch."""

import numpy as np
import shelf  # noqa: F401

ROWS, PAST = 48, 5
SIZES = {"user": 24, "item": 40, "category": 9}


def _columns(kinds, history):
    sparse, dense, sequence = kinds
    columns = [sparse(name, size, embedding_dim=8) for name, size in SIZES.items()]
    columns.append(dense("price", 1))
    if history:
        for name in ("item", "category"):
            inner = sparse(f"hist_{name}", SIZES[name], embedding_dim=8, embedding_name=name)
            columns.append(sequence(inner, maxlen=PAST, length_name="seq_length"))
    return columns


def _build(library, name, activation=None):
    import importlib

    place = "inputs" if library == "deepctr_torch" else "feature_column"
    columns = importlib.import_module(f"{library}.{place}")
    kinds = (columns.SparseFeat, columns.DenseFeat, columns.VarLenSparseFeat)
    make = getattr(importlib.import_module(f"{library}.models"), name)
    if name == "DIN":
        return make(
            _columns(kinds, True),
            ["item", "category"],
            dnn_hidden_units=(32, 16),
            att_hidden_size=(16, 8),
            att_activation=activation,
        )
    return make(_columns(kinds, False), _columns(kinds, False), dnn_hidden_units=(32, 16))


def _torch(name, activation=None):
    import torch

    torch.manual_seed(7)
    return _build("deepctr_torch", name, activation).eval()


def _tensorflow(name, activation=None):
    import tensorflow  # noqa: F401

    return _build("deepctr", name, activation)


def deepfm_torch():
    return _torch("DeepFM")


def deepfm_tensorflow():
    return _tensorflow("DeepFM")


def dcn_torch():
    return _torch("DCN")


def dcn_tensorflow():
    return _tensorflow("DCN")


def din_relu_torch():
    return _torch("DIN", "relu")


def din_relu_tensorflow():
    return _tensorflow("DIN", "relu")


def din_dice_torch():
    return _torch("DIN", "dice")


def din_dice_tensorflow():
    return _tensorflow("DIN", "dice")


def _batch(history):
    """torch takes the features as columns of one matrix, Keras takes them by name."""
    rng = np.random.default_rng(41)
    named = {name: rng.integers(1, size, ROWS) for name, size in SIZES.items()}
    named["price"] = rng.random(ROWS).astype("float32")
    if history:
        named["seq_length"] = rng.integers(1, PAST + 1, ROWS)
        there = np.arange(PAST) < named["seq_length"][:, None]
        for name in ("item", "category"):
            named[f"hist_{name}"] = rng.integers(1, SIZES[name], (ROWS, PAST)) * there
    order = [*SIZES, "price"] + (["hist_item", "seq_length", "hist_category"] if history else [])
    matrix = np.concatenate([named[name].reshape(ROWS, -1).astype("float32") for name in order], axis=1)
    return {"reference": (matrix,), "candidate": named}


def clicks():
    return _batch(history=False)


def histories():
    return _batch(history=True)
