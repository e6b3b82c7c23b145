"""What every architecture of the zoo is made of: a pair, what its faults should be reported as, and the hand carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tests.score.hand import Link, array_of, randomise_keras, randomise_torch, transfer

Array = np.ndarray
Inputs = tuple[Array, ...] | dict[str, Array]

#: the order in which architectures run; each is a module of ``tests.score.arch``
ARCHITECTURES = (
    "cnn_odd", "resnet", "unet", "lstm_tagger", "gru_bi", "text_cnn", "encoder", "decoder", "gat_dense", "gat_edges",
    "recommender", "norms_mlp", "mobilenet", "mixed", "siamese", "packed_attention", "keras_encoder", "autoencoder1d",
    "layers", "training",
)  # fmt: skip


@dataclass(frozen=True)
class Expect:
    """How a planted fault should be reported.

    ``where``: regular expressions, one of which must be found in the finding's reference or candidate path.
    ``causes``: words, one of which must occur in its code, title, message or fix. ``kind``: what the table groups by.
    ``stage``: the stage that must be named as the first that differs.
    ``keep``: the fault sits in the candidate's loaded weights. ``silent``: it changes no output by more than 1e-6.
    """

    where: tuple[str, ...]
    causes: tuple[str, ...]
    kind: str
    keep: bool = False
    silent: bool = False
    codes: tuple[str, ...] = ()
    stage: str = ""  # that differs first

    def at(self, reference: str | None, candidate: str | None) -> bool:
        paths = [path for path in (reference, candidate) if path is not None]
        return any(re.search(pattern, path) for pattern in self.where for path in paths)

    def because(self, code: str, text: str) -> bool:
        low = text.lower()
        return code in self.codes or any(word.lower() in low for word in self.causes)


def expect(where: str, causes: str, kind: str, **more: Any) -> Expect:
    """``where`` and ``causes`` as space- and comma-separated lists, which is how they read best in a table."""
    return Expect(tuple(where.split()), tuple(c.strip() for c in causes.split(",")), kind, **more)


@dataclass
class Pair:
    """A live pair. ``carry`` writes the reference's weights into the candidate by hand; in mode "keep" it was called
    already, and then the weight faults were put in. ``candidate_inputs`` are the inputs in the candidate's layout and
    ``reference_outputs`` brings its outputs into the reference's; compare is told of neither."""

    reference: Any
    candidate: Any
    inputs: Inputs
    weights: Literal["carry", "keep"]
    carry: Callable[[], None]
    candidate_inputs: Inputs
    reference_outputs: Callable[[list[Array]], list[Array]] = lambda y: y
    training: dict[str, Any] | None = None  # what both sides are trained with, where the case is about that
    targets: Any = None


@dataclass(frozen=True)
class Clean:
    """One clean pair: a size variant, a seed, and whether the sides are exchanged or the weights kept."""

    variant: str = "base"
    seed: int = 0
    flip: bool = False
    weights: str = "carry"


TorchMaker = Callable[[Mapping[str, Any], frozenset[str]], Any]


@dataclass
class Arch:
    """An architecture. ``spoil(faults, torch model, keras model)`` plants the weight faults in the candidate."""

    name: str
    reference: str
    torch_model: TorchMaker
    keras_model: TorchMaker
    links: Callable[[Any, Any], list[Link]]
    make_inputs: Callable[[Mapping[str, Any], np.random.Generator], Inputs]
    faults: dict[str, Expect]
    combos: list[tuple[str, ...]]
    clean: list[Clean]
    variants: dict[str, dict[str, Any]]
    spoil: Callable[[frozenset[str], Any, Any], None] | None = None
    keras_from_torch_inputs: Callable[[Inputs], Inputs] = lambda x: x
    torch_from_keras_inputs: Callable[[Inputs], Inputs] = lambda x: x
    torch_from_keras_outputs: Callable[[list[Array]], list[Array]] = lambda y: y
    keras_from_torch_outputs: Callable[[list[Array]], list[Array]] = lambda y: y

    def build(
        self, faults: Sequence[str] | set[str] | frozenset[str] = (), variant: str = "base", seed: int = 0,
        flip: bool = False, weights: str | None = None,
    ) -> Pair:  # fmt: skip
        """A fresh live pair whose candidate has the named faults."""
        import keras
        import torch

        chosen = frozenset(faults)
        unknown = chosen - set(self.faults)
        if unknown:
            raise KeyError(f"{self.name} has no fault {sorted(unknown)}; it has {sorted(self.faults)}")
        if flip and chosen:
            raise ValueError("faults sit in one side's code; only a clean pair can be exchanged")
        cfg = self.variants[variant]
        torch_is_reference = (self.reference == "torch") != flip
        torch.manual_seed(1000 + seed)
        keras.utils.set_random_seed(2000 + seed)
        none: frozenset[str] = frozenset()
        t = self.torch_model(cfg, none if torch_is_reference else chosen)
        k = self.keras_model(cfg, chosen if torch_is_reference else none)
        t = train_only(t)
        rng = np.random.default_rng([seed, len(self.name)])
        native = self.make_inputs(cfg, np.random.default_rng([seed, 7]))
        t_inputs = native if self.reference == "torch" else self.torch_from_keras_inputs(native)
        k_inputs = native if self.reference == "keras" else self.keras_from_torch_inputs(native)
        make_run(k, k_inputs)  # a subclassed Keras model has weights only after its first call
        inputs, others = (t_inputs, k_inputs) if torch_is_reference else (k_inputs, t_inputs)
        (randomise_torch if torch_is_reference else randomise_keras)(t if torch_is_reference else k, rng)
        links = self.links(t, k)

        def carry() -> None:
            for link in links:
                transfer(link, torch_is_reference, strict=not chosen)

        kept = weights == "keep" or any(self.faults[name].keep for name in chosen)
        if kept:
            carry()
            if self.spoil is not None:
                self.spoil(chosen, t, k)
        return Pair(
            reference=t if torch_is_reference else k,
            candidate=k if torch_is_reference else t,
            inputs=inputs,
            weights="keep" if kept else "carry",
            carry=carry,
            candidate_inputs=others,
            reference_outputs=self.torch_from_keras_outputs if torch_is_reference else self.keras_from_torch_outputs,
        )


def train_only(module: Any) -> Any:
    """Evaluation mode, but modules marked ``leave_in_train`` by a fault stay in training mode."""
    module.eval()
    for part in module.modules():
        if getattr(part, "leave_in_train", False):
            part.train()
    return module


def make_run(keras_model: Any, inputs: Inputs) -> list[Array]:
    """A Keras call by the product's convention: one input alone, several as a list, a dictionary as it is."""
    if isinstance(inputs, dict):
        out = keras_model(inputs)
    else:
        out = keras_model(inputs[0] if len(inputs) == 1 else list(inputs))
    return flat(out)


def torch_run(module: Any, inputs: Inputs) -> list[Array]:
    import torch

    with torch.no_grad():
        if isinstance(inputs, dict):
            out = module(**{name: torch.from_numpy(np.array(value)) for name, value in inputs.items()})
        else:
            out = module(*(torch.from_numpy(np.array(value)) for value in inputs))
    return flat(out)


def run(model: Any, inputs: Inputs) -> list[Array]:
    return torch_run(model, inputs) if hasattr(model, "state_dict") else make_run(model, inputs)


def flat(out: Any) -> list[Array]:
    if isinstance(out, dict):
        return [array_of(out[name]) for name in sorted(out)]
    if isinstance(out, (list, tuple)):
        return [array_of(value) for value in out]
    return [array_of(out)]


def difference(pair: Pair) -> float:
    """Largest difference of the outputs over the largest reference value (after the caller carried the weights)."""
    want = run(pair.reference, pair.inputs)
    have = pair.reference_outputs(run(pair.candidate, pair.candidate_inputs))
    if len(want) != len(have):
        return float("inf")
    worst = 0.0
    for w, h in zip(want, have, strict=True):
        if w.shape != h.shape:
            return float("inf")
        gap = np.abs(w.astype(np.float64) - h.astype(np.float64)).max() / max(float(np.abs(w).max()), 1e-30)
        worst = max(worst, float(gap)) if np.isfinite(gap) else float("inf")
    return worst


def nchw_from_nhwc(arrays: Any) -> Any:
    return [np.moveaxis(a, -1, 1) if a.ndim > 2 else a for a in arrays]


def nhwc_from_nchw(arrays: Any) -> Any:
    return [np.moveaxis(a, 1, -1) if a.ndim > 2 else a for a in arrays]


def images_to_keras(inputs: Inputs) -> Inputs:
    assert isinstance(inputs, tuple)
    return tuple(np.ascontiguousarray(np.moveaxis(a, 1, -1)) if a.ndim > 2 else a for a in inputs)


def images_to_torch(inputs: Inputs) -> Inputs:
    assert isinstance(inputs, tuple)
    return tuple(np.ascontiguousarray(np.moveaxis(a, -1, 1)) if a.ndim > 2 else a for a in inputs)


def cases(arch: Arch) -> Iterator[tuple[str, frozenset[str], Clean]]:
    """Every case of an architecture: (kind single | combo | clean, faults, how the pair is built)."""
    for name in arch.faults:
        yield "single", frozenset([name]), Clean()
    for combo in arch.combos:
        yield "combo", frozenset(combo), Clean(seed=1)
    for clean in arch.clean:
        yield "clean", frozenset(), clean


@dataclass
class Case:
    """One case as the runner hands it on."""

    arch: str
    kind: str
    faults: tuple[str, ...]
    clean: Clean = field(default_factory=Clean)

    @property
    def title(self) -> str:
        if self.kind != "clean":
            return f"{self.arch}[{'+'.join(self.faults)}]"
        c = self.clean
        return f"{self.arch}[clean {c.variant} seed={c.seed}{' flip' if c.flip else ''} {c.weights}]"
