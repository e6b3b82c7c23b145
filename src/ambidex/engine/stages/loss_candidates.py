"""Which losses people write, rightly or wrongly: what may stand behind code without a name, how a form is got wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ambidex.core.ops import with_defaults
from ambidex.core.types import Array

Candidate = tuple[str, dict[str, Any]]

_SMOOTHINGS = (0.0, 0.1, 0.05, 0.2, 0.01)
_CLASS_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"from_logits": False},
    {"from_logits": False, "log_input": True},
    {"softmax_twice": True},
    {"from_logits": False, "renormalise": "no", "epsilon": 0.0},
    {"from_logits": False, "renormalise": "no", "epsilon_added": True},
)
_TWO_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"from_logits": False},
    {"from_logits": False, "epsilon": 0.0, "clamp": -100.0},
    {"from_logits": False, "epsilon_added": True},
    {"softmax_twice": True},
)
_FOCAL = ((2.0, 0.25, False), (2.0, 0.25, True), (1.0, 0.25, False), (5.0, 0.25, False))
_REDUCTIONS = ("mean", "sum", "batchmean", "sum_of_means", "mean_of_sums")
_BY_ELEMENT = ("MSE", "MAE", "Huber", "SmoothL1", "LogCosh")


def variants(op: str, attrs: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The ways in which a loss of this kind is got wrong: (name, all attributes)."""
    a, full = dict(attrs), with_defaults(op, attrs)
    found: list[tuple[str, dict[str, Any]]] = []
    if op in ("CrossEntropy", "BinaryCrossEntropy", "FocalBinary"):
        found += _of_logits(op, a, bool(full["from_logits"]), bool(full.get("softmax_twice")))
    if op == "CrossEntropy":
        if a.get("class_weights") is not None:
            found += [
                ("weights_by", {**a, "weights_by": "count" if full["weights_by"] == "sum" else "sum"}),
                ("class_weights_missing", {**a, "class_weights": None}),
                ("smooth_weighted", {**a, "smooth_weighted": not full["smooth_weighted"]}),
            ]
        if a.get("ignore_index") is not None:
            found.append(("ignored_counted", {**a, "ignore_index": None}))
            found.append(("count_ignored", {**a, "count_ignored": not full["count_ignored"]}))
        if full["from_logits"]:
            found.append(("sums_to_one", {**a, "sums_to_one": not full["sums_to_one"]}))
    if op == "BinaryCrossEntropy" and (a.get("class_weights") is not None or a.get("pos_weight") is not None):
        found.append(("class_weights_missing", {**a, "class_weights": None, "pos_weight": None}))
        if a.get("class_weights") is not None:
            found.append(("weights_by", {**a, "weights_by": "count" if full["weights_by"] == "sum" else "sum"}))
    if "broadcast" in full:
        found += [("broadcast", {**a, "broadcast": how}) for how in (True, "flat") if how != full["broadcast"]]
    if float(a.get("label_smoothing") or 0.0):
        found.append(("label_smoothing_missing", {**a, "label_smoothing": 0.0}))
    found += [(f"reduction_{r}", {**a, "reduction": r}) for r in _REDUCTIONS if r != full.get("reduction")]
    found += [(f"factor_{k:g}", {**a, "factor": k}) for k in (0.5, 2.0) if float(a.get("factor", 1.0)) == 1.0]
    return found


def _of_logits(op: str, a: dict[str, Any], logits: bool, twice: bool) -> list[tuple[str, dict[str, Any]]]:
    """Probabilities taken for logits (a softmax too many), and the other way round."""
    other = {**a, "from_logits": not logits} | ({"log_input": False} if op == "CrossEntropy" else {})
    found = [("logits_as_probabilities" if logits else "probabilities_as_logits", other)]
    if logits and op != "FocalBinary" and not twice:
        found.append(("softmax_twice", {**a, "softmax_twice": True}))
    return found


def catalogue(
    outputs: Array, targets: Array, weights: Array | None = None, known_weights: Sequence[float] | None = None
) -> Iterator[Candidate]:
    """The forms that may stand behind code of the user's own, likeliest first, by shape and type of the targets.

    ``known_weights``: class weights that the other side declares. ``weights``: of the samples, where there are any.
    """
    x, t = np.asarray(outputs), np.asarray(targets)
    known = None if known_weights is None else [float(w) for w in known_weights]
    classes = x.size // t.size if t.size and x.size % t.size == 0 else 0
    ids = t.dtype.kind in "iub" and classes > 1 and x.ndim > 1 and classes in (x.shape[-1], x.shape[1])
    alike = t.size == x.size
    several = alike and x.ndim > 1 and x.shape[-1] > 1 and t.size > 0
    sums = np.asarray(t, np.float64).sum(-1) if several else np.zeros(0)
    distribution = several and bool(np.allclose(sums, 1.0))
    if ids or distribution:
        yield from _many_classes(t if ids else None, known, classes if ids else x.shape[-1], x.ndim, weights)
    if alike and bool(np.isin(t, (0, 1)).all()):
        yield from _two_classes(known)
    if several and not distribution and bool((t >= 0).all()):  # several classes at once, or weighted ones
        for kind in ({}, {"from_logits": False, "log_input": True}, {"sums_to_one": True}):
            yield from (("CrossEntropy", {**kind, "reduction": r}) for r in ("mean", "sum"))
    if alike:
        yield from _by_element(x, t, (1.0,) if distribution else (1.0, 0.5, 2.0))
    if distribution:
        for reduction in ("mean_of_sums", "mean", "sum"):
            yield from (("KLDiv", {"from_logs": logs, "reduction": reduction}) for logs in (False, True))
    if alike and x.ndim > 1:
        for sign, offset in ((-1.0, 0.0), (-1.0, 1.0), (1.0, 0.0)):
            yield "CosineLoss", {"sign": sign, "offset": offset}


def _many_classes(
    ids: Array | None, known: list[float] | None, classes: int, rank: int, weights: Array | None
) -> Iterator[Candidate]:
    """Cross-entropy. With more than two axes the classes lie on the last one or, as torch has it, on the second."""
    weightings: list[dict[str, Any]] = [{}]
    if weights is not None:
        weightings.append({"weights_by": "count"})
    if known is not None and len(known) == classes:
        weightings += [{"class_weights": known, "weights_by": by} for by in ("sum", "count")]
    left_out = [] if ids is None else _paddings(ids, classes)
    impossible = ids is not None and bool(((ids < 0) | (ids >= classes)).any())  # without leaving some out
    for place in ({},) if rank == 2 else ({}, {"axis": 1}):
        for number, weighting in enumerate(weightings):
            for ignored in left_out if impossible else ():
                yield from _ignoring({**place, **weighting}, ignored)
            kinds = _CLASS_KINDS[:4] if "class_weights" in weighting else _CLASS_KINDS
            for kind in () if impossible else kinds:
                for smoothing in _SMOOTHINGS if not kind and not (place and number) else _SMOOTHINGS[:2]:
                    for reduction in ("mean", "sum"):
                        more = {"label_smoothing": smoothing, "reduction": reduction}
                        yield "CrossEntropy", {**place, **kind, **weighting, **more}
            if "class_weights" in weighting and not impossible:
                yield "CrossEntropy", {**place, **weighting, "label_smoothing": 0.1, "smooth_weighted": False}
        for ignored in () if impossible else left_out:
            for weighting in weightings:
                yield from _ignoring({**place, **weighting}, ignored)


def _ignoring(given: dict[str, Any], ignored: int) -> Iterator[Candidate]:
    """Some targets left out: of the mean too, of the sum, or of the sum only (the mean is over all items then)."""
    yield "CrossEntropy", {**given, "ignore_index": ignored}
    yield "CrossEntropy", {**given, "ignore_index": ignored, "reduction": "sum"}
    yield "CrossEntropy", {**given, "ignore_index": ignored, "count_ignored": True}


def _paddings(ids: Array, classes: int) -> list[int]:
    """Targets that usually mean "none": what is no class, and 0."""
    found = np.unique(ids)
    strange = [int(v) for v in found if not 0 <= int(v) < classes]
    return strange[:2] if strange else [0] if ids.size and int(found[0]) == 0 and found.size > 1 else []


def _two_classes(known: list[float] | None) -> Iterator[Candidate]:
    if known is not None and len(known) == 2:
        for kind in _TWO_KINDS[:3]:
            for by in ("sum", "count"):
                yield "BinaryCrossEntropy", {**kind, "class_weights": known, "weights_by": by}
    if known is not None and len(known) == 1:
        yield from (("BinaryCrossEntropy", {**kind, "pos_weight": known[0]}) for kind in _TWO_KINDS[:3])
    for kind in _TWO_KINDS:
        for smoothing in _SMOOTHINGS if not kind else _SMOOTHINGS[:2]:
            for reduction in ("mean", "sum", "batchmean"):
                yield "BinaryCrossEntropy", {**kind, "label_smoothing": smoothing, "reduction": reduction}
    for logits in (True, False):
        for gamma, alpha, balanced in _FOCAL:
            for reduction in ("mean", "sum"):
                given = {"gamma": gamma, "alpha": alpha, "balanced": balanced, "reduction": reduction}
                yield "FocalBinary", {"from_logits": logits, **given}


def _by_element(x: Array, t: Array, factors: Sequence[float]) -> Iterator[Candidate]:
    for op in _BY_ELEMENT:
        for factor in factors:
            for reduction in ("mean", "sum", "batchmean", "sum_of_means") if factor == 1.0 else ("mean", "sum"):
                yield op, {"reduction": reduction, "factor": factor}
        if x.ndim == 2 and x.shape[1] == 1:
            yield op, {"broadcast": True}
            yield op, {"broadcast": "flat"}
    if bool(np.isin(t, (-1, 0, 1)).all()):
        yield from (("Hinge", {"reduction": reduction}) for reduction in ("mean", "sum"))
    if bool((t >= 0).all()):
        yield from (("Poisson", {"log_input": logs, "reduction": r}) for logs in (True, False) for r in ("mean", "sum"))
