"""What a clipping of gradients is, told by what it does to gradients made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ambidex.adapters.torch_train_words import name_of, source_of, wanted
from ambidex.core.training import Form
from ambidex.core.types import Array

#: gradients of two weights, scaled for each trial: no two entries alike, neither norm the other's
_BASE = (np.array([3.0, 4.0, 12.0]), np.array([0.6, -0.8]))
_OTHER = (np.array([0.2, -0.7, 0.4]), np.array([1.0, 0.05]))
_LARGE = (1e4, 3e4)

Gradients = list[Array]
#: hands gradients to the clipping and gives back what it made of them; None when it raised or took some away
Apply = Callable[[Sequence[Array]], "Gradients | None"]


def clip_form(clip: Callable[[Any], Any], module: nn.Module) -> Form:
    """The canonical form, "" where no form does the same to every trial.

    Tried on parameters of 64 bits first, where the epsilon beside a norm shows. A function that does nothing to those
    holds parameters of its own: then it is tried on the module's (whose gradients the caller puts back).
    """
    form = Form("", cls=name_of(clip), source=source_of(clip))
    probe = nn.Module()
    for i, g in enumerate(_BASE):
        probe.register_parameter(f"p{i}", nn.Parameter(torch.zeros(g.size, dtype=torch.float64)))
    found = _identified(_applied(clip, probe), _BASE, _OTHER, exact=True)
    if found is None:
        rng = np.random.default_rng(0)
        shapes = [tuple(p.shape) for p in module.parameters() if p.requires_grad]
        base, other = ([rng.standard_normal(s) * (i + 1) for i, s in enumerate(shapes)] for _ in range(2))
        found = _identified(_applied(clip, module), base, other, exact=False) if shapes else None
    if found is not None:
        form.op, form.attrs = found
    return form


def _applied(clip: Callable[[Any], Any], module: nn.Module) -> Apply:
    def apply(gradients: Sequence[Array]) -> Gradients | None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = torch.from_numpy(np.array(g)).to(p.dtype).reshape(p.shape)
        try:
            clip(wanted(clip, module))
        except Exception:  # it may need the parameters of the user's model: what it does to those is seen later
            return None
        after = [p.grad for p in parameters]
        return None if any(g is None for g in after) else [g.double().numpy() for g in after if g is not None]

    return apply


def _identified(
    apply: Apply, base: Sequence[Array], other: Sequence[Array], *, exact: bool
) -> tuple[str, dict[str, Any]] | None:
    """The form that does to all trials what the clipping does. ``exact``: in 64 bits."""
    before = [[g * scale for g in base] for scale in _LARGE]
    after = [apply(b) for b in before]
    if after[0] is None or after[1] is None or all(map(np.array_equal, after[0], before[0])):
        return None
    tolerance = 1e-8 if exact else 1e-4
    for op, attrs in _candidates(before, [after[0], after[1]], exact):
        limit = float(attrs.get("value", attrs.get("max_norm", 0.0)))
        trials = [*before]
        for gradients in (base, other):
            # so that some of it lies above the limit and some below, and all of it below
            largest = max(float(np.abs(g).max()) if op == "ClipValue" else float(np.linalg.norm(g)) for g in gradients)
            trials += [[g * (limit * share / largest) for g in gradients] for share in (0.3, 1.5, 5.0)]
        if all(_close(apply(t), expected(op, attrs, t), tolerance) for t in trials):
            return op, attrs
    return None


def _candidates(
    before: Sequence[Gradients], after: Sequence[Gradients], exact: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The forms that may lie behind what was done to two sets of large gradients, one a multiple of the other."""
    yield "ClipValue", {"value": _rounded(max(float(np.abs(a).max()) for a in after[0]), exact)}
    norms = [[float(np.linalg.norm(g)) for g in gradients] for gradients in before]
    shares = [[float(np.linalg.norm(g)) / n if n else 0.0 for g, n in zip(gradients, row, strict=True)]
              for gradients, row in zip(after, norms, strict=True)]  # fmt: skip
    if any(not 0 < s < 1 for row in shares for s in row):
        return
    whole = [float(np.linalg.norm(row)) for row in norms]
    yield "ClipNorm", {"scope": "global", **_limit([row[0] for row in shares], whole, exact)}
    yield "ClipNorm", {"scope": "weight", **_limit([row[0] for row in shares], [row[0] for row in norms], exact)}


def _limit(shares: Sequence[float], norms: Sequence[float], exact: bool) -> dict[str, Any]:
    """From share = limit / (norm + epsilon), twice."""
    steepness = 1 / shares[0] - 1 / shares[1]
    limit = (norms[0] - norms[1]) / steepness if steepness else shares[0] * norms[0]
    epsilon = limit / shares[0] - norms[0] if exact else 0.0
    return {"max_norm": _rounded(limit, exact), "epsilon": 0.0 if abs(epsilon) < 1e-7 else float(f"{epsilon:.1e}")}


def _rounded(value: float, exact: bool) -> float:
    return float(f"{value:.10g}" if exact else f"{value:.5g}")


def expected(op: str, attrs: dict[str, Any], gradients: Sequence[Array]) -> Gradients:
    """What the form makes of gradients: torch.nn.utils.clip_grad_value_ and clip_grad_norm_, the latter
    g * min(1, max_norm / (norm + epsilon))."""
    if op == "ClipValue":
        return [np.clip(g, -attrs["value"], attrs["value"]) for g in gradients]
    norms = [float(np.linalg.norm(g)) for g in gradients]
    if attrs["scope"] == "global":
        norms = [float(np.linalg.norm(norms))] * len(norms)
    return [g * min(1.0, attrs["max_norm"] / (n + attrs["epsilon"])) for g, n in zip(gradients, norms, strict=True)]


def _close(a: Gradients | None, b: Gradients, tolerance: float) -> bool:
    return a is not None and all(
        np.allclose(x, y, rtol=tolerance, atol=tolerance * float(np.abs(y).max(initial=0.0)))
        for x, y in zip(a, b, strict=True)
    )
