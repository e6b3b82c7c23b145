"""How alike two layer names are, in the words of either framework."""

from __future__ import annotations

import re
from functools import lru_cache

_SAME = {
    "q": "query",
    "k": "key",
    "v": "value",
    "o": "out",
    "output": "out",
    "proj": "proj",
    "projection": "proj",
    "emb": "embed",
    "embedding": "embed",
    "embeddings": "embed",
    "lin": "",
    "linear": "",
    "dense": "",
    "fc": "",
    "layer": "",
    "layers": "",
    "conv": "",
    "conv1d": "",
    "conv2d": "",
    "conv3d": "",
    "weight": "",
    "kernel": "",
    "gamma": "scale",
    "beta": "bias",
    "batchnorm": "norm",
    "batchnorm2d": "norm",
    "bn": "norm",
    "ln": "norm",
    "layernorm": "norm",
    "normalization": "norm",
    "layernormalization": "norm",
    "batch": "",
    "attn": "attention",
    "att": "attention",
    "mha": "attention",
    "self": "self",
    "pos": "position",
    "positional": "position",
    "positions": "position",
    "tok": "token",
    "word": "token",
    "words": "token",
    "enc": "encoder",
    "dec": "decoder",
    "dst": "target",
    "src": "source",
    "neighs": "source",
    "neigh": "source",
    "neighbour": "source",
    "feedforward": "ffn",
    "mlp": "ffn",
    "ff": "ffn",
    "model": "",
    "module": "",
    "functional": "",
    "sequential": "",
    "block": "block",
    "blocks": "block",
    "downsample": "down",
    "shortcut": "down",
    "skip": "down",
    "classifier": "head",
    "logits": "head",
    "lstm": "",
    "gru": "",
    "rnn": "",
    "bidirectional": "",
    "forward": "",
    "backward": "reverse",
    "back": "reverse",
    "ahead": "",
    "mu": "mean",
    "variance": "var",
    "moving": "running",
    "items": "item",
    "users": "user",
    "params": "",
    "param": "",
}


@lru_cache(maxsize=20_000)
def words(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(informative words, numbers) of a path, in the common vocabulary."""
    text = re.sub(r"([a-z])([A-Z])", r"\1_\2", path.split("[")[0]).lower()
    found: list[str] = []
    numbers: list[str] = []
    for token in re.split(r"[^a-z0-9]+", text):
        for piece in re.findall(r"[a-z]+|\d+", token):
            if piece.isdigit():
                numbers.append(str(int(piece)))
            else:
                word = _SAME.get(piece, piece)
                if word:
                    found.append(word)
    return tuple(found), tuple(numbers)


@lru_cache(maxsize=200_000)
def alike(a: str, b: str) -> float:
    """0 (nothing in common) to 1 (the same words and numbers). The last words count double."""
    wa, na = words(a)
    wb, nb = words(b)
    if not wa or not wb:
        common = 0.0
    else:
        bag_a, bag_b = [*wa, wa[-1]], [*wb, wb[-1]]
        shared = sum(min(bag_a.count(w), bag_b.count(w)) for w in set(bag_a))
        common = 2 * shared / (len(bag_a) + len(bag_b))
    if na and nb:
        tail = 1.0 if na[-len(nb) :] == nb or nb[-len(na) :] == na else 0.0
        return 0.8 * common + 0.2 * tail
    return common * (0.9 if na or nb else 1.0)
