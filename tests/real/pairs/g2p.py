"""The encoder of g2p_en (letters to sounds): trained arrays in a numpy file, loaded by hand into both frameworks."""

import numpy as np
from shelf import SITE

ARRAYS = SITE / "g2p_en" / "checkpoint20.npz"
#: torch stores reset, update, new; Keras update, reset, new
KERAS_ORDER = (1, 0, 2)
TORCH_ORDER = (0, 1, 2)
ALPHABET = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]


def reference():
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self, arrays):
            super().__init__()
            letters, width = arrays["enc_emb"].shape
            self.letters = torch.nn.Embedding(letters, width)
            self.recurrent = torch.nn.GRU(width, arrays["enc_w_hh"].shape[1], batch_first=True)
            state = {"letters.weight": "enc_emb"}
            for kind in ("w_ih", "w_hh", "b_ih", "b_hh"):
                state[f"recurrent.{kind.replace('w', 'weight').replace('b', 'bias')}_l0"] = f"enc_{kind}"
            self.load_state_dict({name: torch.from_numpy(arrays[key]) for name, key in state.items()})

        def forward(self, ids):
            states, _ = self.recurrent(self.letters(ids))
            return states

    return Encoder(np.load(ARRAYS)).eval()


def _keras_encoder(order, reset_after=True):
    import keras

    arrays = np.load(ARRAYS)

    def blocks(name):
        thirds = np.split(arrays[name], 3)
        return np.concatenate([thirds[i] for i in order])

    units = arrays["enc_w_hh"].shape[1]
    encoder = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(*arrays["enc_emb"].shape),
            keras.layers.GRU(units, return_sequences=True, reset_after=reset_after),
        ]
    )
    biases = [blocks("enc_b_ih"), blocks("enc_b_hh")]
    bias = np.stack(biases) if reset_after else sum(biases)
    encoder.layers[0].set_weights([arrays["enc_emb"]])
    encoder.layers[1].set_weights([blocks("enc_w_ih").T, blocks("enc_w_hh").T, bias])
    return encoder


def loaded_right():
    return _keras_encoder(KERAS_ORDER)


def torch_gate_order():
    return _keras_encoder(TORCH_ORDER)


def reset_before():
    return _keras_encoder(KERAS_ORDER, reset_after=False)


def fresh():
    """Only the layers, with weights as Keras draws them: carrying has to find out order and biases."""
    import keras

    arrays = np.load(ARRAYS)
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(*arrays["enc_emb"].shape),
            keras.layers.GRU(arrays["enc_w_hh"].shape[1], return_sequences=True),
        ]
    )


def words():
    rows = [[ALPHABET.index(letter) for letter in word] for word in ("framework", "carried", "gru")]
    ids = np.zeros((len(rows), 10), dtype="int64")
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        ids[i, len(row)] = ALPHABET.index("</s>")
    return (ids,)
