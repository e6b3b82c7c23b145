"""Values by the reference's weight names as values by the candidate's: gradients, updates, weights after some steps.

A gradient lies as its weight does. So it takes the way of the weights: written into the reference, read in canonical
roles, carried by the pairing, read from the candidate. Both models' own weights are put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ambidex.core.model import Inspectable
from ambidex.core.trace import Trace
from ambidex.core.types import Array
from ambidex.engine.carry import carry
from ambidex.engine.recording import kept
from ambidex.engine.weights import Pairing

#: what a weight holds that no partner was written into (not NaN: a gradient may be that)
_UNSET = 31337.0


@dataclass
class Carrier:
    """Both models, their traces (layers and weights) and which weight is which."""

    reference: Inspectable
    candidate: Inspectable
    ref: Trace
    cand: Trace
    pairing: Pairing
    _turns: dict[str, tuple[str, tuple[int, ...]]] | None = None  # how each array is turned, once that is known
    _whole: bool = False  # whether that covers all of them

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The candidate's weights when the reference's are ``values`` (missing: zero); only those with a partner."""
        if self._turns is None:
            own = self._by_models(self.ref.weights)
            self._turns = self._turned(own)
            self._whole = len(self._turns) == len(own)
        if not self._whole:
            return self._by_models(values)
        made: dict[str, Array] = {}
        for name, (ref, order) in self._turns.items():
            shape = self.cand.weights[name].shape
            a = values[ref] if ref in values else np.zeros_like(self.ref.weights[ref])
            made[name] = np.ascontiguousarray(a.transpose(order).reshape(shape))
        return made

    def _turned(self, own: Mapping[str, Array]) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Weights that come from one array with its axes in another order: name -> that array's name, and the order.

        Told by value, so only where the values leave no doubt."""
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, ref in self.partners().items():
            a, b = self.ref.weights.get(ref), own.get(name)
            if a is None or b is None or a.size != b.size or a.ndim > 5:
                continue
            fitting = [o for o in permutations(range(a.ndim)) if np.array_equal(a.transpose(o).reshape(b.shape), b)]
            if len(fitting) == 1 or a.ndim < 2 and fitting:
                found[name] = ref, fitting[0]
        return found

    def _by_models(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The way of the weights: through both models."""
        canonical = self._canonical(values)
        with _restored(self.candidate) as own:
            self.candidate.set_weights({n: np.full_like(a, _UNSET) for n, a in own.items() if a.dtype.kind == "f"})
            carry(self.pairing, canonical, self.candidate, self.cand)
            made = {n: kept(a, True) for n, a in self.candidate.weights().items()}
        return {n: a for n, a in made.items() if a.dtype.kind == "f" and not (a == np.asarray(_UNSET, a.dtype)).any()}

    def _canonical(self, values: Mapping[str, Array]) -> Trace:
        with _restored(self.reference) as own:
            self.reference.set_weights(
                {
                    n: np.asarray(values[n], a.dtype) if n in values else np.zeros_like(a)
                    for n, a in own.items()
                    if a.dtype.kind == "f"
                }
            )
            made = Trace(framework=self.ref.framework)
            made.layers = self.ref.layers
            made.weights = {n: kept(a, True) for n, a in self.reference.weights().items()}
            made.layer_weights = {
                path: {r: kept(a, True) for r, a in self.reference.layer_weights(path).items()}
                for path in self.ref.layer_weights
            }
        return made

    @contextmanager
    def carried(self) -> Iterator[None]:
        """The candidate with the reference's weights, for a while."""
        with _restored(self.candidate):
            carry(self.pairing, self.ref, self.candidate, self.cand)
            yield

    def partners(self) -> dict[str, str]:
        """Candidate's weight name -> the reference's, where one array is one array."""
        found: dict[str, str] = {p.candidate: p.reference for p in self.pairing.raw}
        layers_r, layers_c = ({x.path: x for x in t.layers} for t in (self.ref, self.cand))
        for ref_path, cand_path, _ in self.pairing.layers:
            r, c = layers_r.get(ref_path), layers_c.get(cand_path)
            for role, name in (c.weights if c is not None else {}).items():
                if r is not None and role in r.weights:
                    found[name] = r.weights[role]
        return found


@contextmanager
def _restored(model: Inspectable) -> Iterator[dict[str, Array]]:
    own = {n: kept(a, True) for n, a in model.weights().items()}
    try:
        yield own
    finally:
        model.set_weights(own)
