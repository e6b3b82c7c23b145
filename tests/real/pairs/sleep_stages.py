"""sleepecg's trained sleep stager (Keras 3: Masking, two bidirectional GRUs) against the same network in torch."""

import tempfile
import zipfile

import numpy as np
from shelf import SITE

PACKED = SITE / "sleepecg" / "classifiers" / "wrn-gru-mesa.zip"
STEPS, FEATURES, LENGTHS = 31, 36, (31, 19, 24)
#: what the trained model's Masking layer looks for
ABSENT = -1.0


def shipped():
    import keras

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(PACKED) as packed:
        return keras.models.load_model(packed.extract("classifier.keras", folder), compile=False)


def _stager(pack):
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Stager(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.BatchNorm1d(FEATURES, eps=1e-3)
            self.inner = torch.nn.Linear(FEATURES, 64)
            self.first = torch.nn.GRU(64, 8, batch_first=True, bidirectional=True)
            self.second = torch.nn.GRU(16, 8, batch_first=True, bidirectional=True)
            self.stage = torch.nn.Linear(16, 4)

        def forward(self, beats, lengths):
            scaled = self.scale(beats.mT).mT
            steps = torch.nn.functional.relu(self.inner(scaled))
            if pack:
                steps = pack_padded_sequence(steps, lengths.cpu(), batch_first=True, enforce_sorted=False)
            steps, _ = self.first(steps)
            steps, _ = self.second(steps)
            if pack:
                steps, _ = pad_packed_sequence(steps, batch_first=True, total_length=beats.shape[1])
            return self.stage(steps).softmax(-1)

    torch.manual_seed(3)
    return Stager().eval()


def packed():
    return _stager(pack=True)


def not_packed():
    return _stager(pack=False)


def _batch():
    beats = np.random.default_rng(5).normal(size=(len(LENGTHS), STEPS, FEATURES)).astype("float32")
    lengths = np.array(LENGTHS)
    there = np.arange(STEPS) < lengths[:, None]
    beats[~there] = ABSENT
    return beats, lengths, there


def nights():
    """Keras knows the absent steps by their value, torch by the lengths."""
    beats, lengths, there = _batch()
    return {"reference": (beats,), "candidate": (beats, lengths), "masks": {"there": there}}


def nights_from_torch():
    beats, lengths, there = _batch()
    return {"reference": (beats, lengths), "candidate": (beats,), "masks": {"there": there}}
