"""A short training of the PyTorch model, so that the demo compares real weights; kept under the content's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from data import Data, Split, cache_folder, content_key, write_atomic
from model_torch import Recommender, build, loss
from safetensors.torch import load_file, save

STEPS, BATCH, WARMUP, LEARNING_RATE = 320, 256, 20, 4e-3


def tensors(inputs: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


def scores(model: Recommender, split: Split) -> np.ndarray:
    """Logits of all impressions."""
    model.eval()
    with torch.no_grad():
        return np.concatenate([model(**tensors(batch)).numpy() for batch in split.batches(2048)])


def trained(data: Data, progress: Callable[[int, int], None], cache: Path | None = None) -> Recommender:
    """The model after ``STEPS`` steps, or the weights that an earlier run with this data and this code left."""
    here = Path(__file__).parent
    key = content_key(data.key, here / "model_torch.py", Path(__file__), torch.__version__)
    path = (cache or cache_folder()) / "recommender" / f"weights-{key}.safetensors"
    model = build()
    if path.exists():
        model.load_state_dict(load_file(path))
        progress(STEPS, STEPS)
        return model
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARMUP) * (1 - step / STEPS) ** 0.5
    )
    rows = np.random.default_rng(0).permutation(len(data.train))
    model.train()
    for step in range(STEPS):
        batch = rows[(step * BATCH) % len(rows) :][:BATCH]
        value = loss(model(**tensors(data.train.inputs(batch))), torch.from_numpy(data.train.clicked[batch]))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        progress(step + 1, STEPS)
    write_atomic(path, save(model.state_dict()))
    return model.eval()
