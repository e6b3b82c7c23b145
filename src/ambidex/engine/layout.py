"""Views: how an array of the reference lies in the candidate's layout (axis order, split and merged axes)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ambidex.core import floor as floors
from ambidex.core.floor import largest
from ambidex.core.types import Array


@dataclass(frozen=True, slots=True)
class View:
    """``to(a) = a.reshape(split).transpose(perm).reshape(shape)``; ``back`` is its inverse.

    ``flip``: axes of the source that the other side holds in reverse (a backward recurrent layer's steps)."""

    source: tuple[int, ...]
    split: tuple[int, ...]
    perm: tuple[int, ...]
    shape: tuple[int, ...]
    flip: tuple[int, ...] = ()

    def to(self, a: Array) -> Array:
        if self.flip:
            a = np.flip(a, self.flip)
        return a.reshape(self.split).transpose(self.perm).reshape(self.shape)

    def back(self, b: Array) -> Array:
        moved = tuple(self.split[p] for p in self.perm)
        made = b.reshape(moved).transpose(np.argsort(self.perm)).reshape(self.source)
        return np.flip(made, self.flip) if self.flip else made

    @property
    def identity(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))


def _refines(fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    """Whether ``coarse`` merges consecutive axes of ``fine`` (axes of size 1 are free)."""
    i = 0
    for size in coarse:
        product = 1
        while product < size and i < len(fine):
            product *= fine[i]
            i += 1
        if product != size:
            return False
    return all(n == 1 for n in fine[i:])


def views(source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[View]:
    """Every view from ``source`` to ``target``, the plainest first."""
    if int(np.prod(source)) != int(np.prod(target)):
        return
    a, b = _squeezed(source), _squeezed(target)
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()

    def emit(split: tuple[int, ...], perm: tuple[int, ...]) -> Iterator[View]:
        if (split, perm) not in seen:
            seen.add((split, perm))
            yield View(source, split, perm, target)

    if a == b or _refines(b, a) or _refines(a, b):
        yield from emit(a if len(a) >= len(b) else b, tuple(range(max(len(a), len(b)))))
    if max(len(a), len(b)) > 6:
        return
    if len(b) >= len(a):  # the reference's axes are split, then moved
        for perm in permutations(range(len(b))):
            moved = tuple(b[p] for p in perm)  # b's axes in the reference's order
            if _refines(moved, a):
                yield from emit(moved, tuple(int(i) for i in np.argsort(perm)))
    if len(a) > len(b):  # moved, then merged
        for perm in permutations(range(len(a))):
            if _refines(tuple(a[p] for p in perm), b):
                yield from emit(a, perm)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def difference(a: Array, b: Array, mask: Array | None = None) -> float:
    """Largest |a - b|; equal NaN and equal infinities count as the same, a lone one as infinite."""
    if a.shape != b.shape:
        return float("inf")
    if a.size == 0:
        return 0.0
    if a.dtype == bool or b.dtype == bool:
        d = (a.astype(bool) != b.astype(bool)).astype(np.float64)
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            # the difference of two float32 is off by half a unit in its own last place: no need for float64
            if a.dtype == b.dtype == np.float32:
                d = np.abs(a - b)
            else:
                d = np.abs(floors.wide(a) - floors.wide(b))
            if not np.isfinite(d.max()):
                same = (np.isnan(a) & np.isnan(b)) | (a == b)
                d = np.where(same, 0.0, np.where(np.isnan(d), np.inf, d))
    if mask is not None:
        d = np.where(np.broadcast_to(mask, d.shape), d, 0.0)
    return float(d.max())


def scale(a: Array) -> float:
    """Largest finite |a|, at least a tiny number."""
    if a.size == 0 or a.dtype == bool:
        return 1.0
    return max(largest(a), 1e-30)


class Layouts:
    """Finds views and remembers those that values have proven, so that faulty pairs use them too."""

    def __init__(self) -> None:
        self.proven: dict[tuple[tuple[int, ...], tuple[int, ...]], View] = {}
        self.ranks: dict[tuple[int, int], tuple[int, ...]] = {}
        self.seen: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[View, int]] = {}  # how often values showed a view
        self.banned: frozenset[View] = frozenset()

    def views(self, source: tuple[int, ...], target: tuple[int, ...]) -> Iterator[View]:
        """The views to choose from."""
        return (v for v in views(source, target) if v not in self.banned)

    def find(self, ref: Array, cand: Array, hint: tuple[str, str] = ("", ""), tolerance: float = 1e-3) -> View | None:
        """The view under which ``ref`` is nearest to ``cand``; without agreement the hinted, proven or plainest one."""
        key = (ref.shape, cand.shape)
        limit = tolerance * scale(ref)
        known = self.proven.get(key)
        if known is not None and difference(known.to(ref), cand) <= limit:
            return known
        options = list(self.views(ref.shape, cand.shape))
        if not options:
            return None
        if len(options) == 1:
            only = options[0]
            if ref.ndim == cand.ndim == len(only.perm) and len(set(ref.shape)) == ref.ndim:
                self.ranks.setdefault((ref.ndim, cand.ndim), only.perm)
            return only
        best, least = None, np.inf
        a, b = floors.wide(ref).ravel(), floors.wide(cand).ravel()
        comparable = bool(abs(np.abs(a).sum() - np.abs(b).sum()) <= 0.02 * (np.abs(a).sum() + 1e-30)) and a.size > 1
        if comparable:
            for option in options:
                d = difference(option.to(ref), cand)
                if d < least:
                    best, least = option, d
                if d <= 1e-6 * scale(ref):
                    break
        if best is not None and least <= limit:
            if _informative(ref):
                self.proven[key] = best
                counts = self.seen.setdefault(key, {})
                counts[best] = counts.get(best, 0) + 1
                if ref.ndim == cand.ndim == len(best.perm):
                    self.ranks[(ref.ndim, cand.ndim)] = best.perm
            return best
        named = _from_names(ref.shape, cand.shape, hint)
        if named is not None and named in options:
            return named
        if known is not None:
            return known
        perm = self.ranks.get((ref.ndim, cand.ndim))
        for option in options:
            if perm is not None and option.perm == perm:
                return option
        return options[0]


def _informative(a: Array) -> bool:
    return a.dtype != bool and a.size > 3 and float(np.std(floors.wide(a))) > 1e-6 * scale(a)


def _from_names(ref: tuple[int, ...], cand: tuple[int, ...], hint: tuple[str, str]) -> View | None:
    """The view that axis names such as NCHW -> NHWC give."""
    a, b = hint
    if not a or not b or len(a) != len(b) or len(ref) != len(a) or len(cand) != len(b) or set(a) != set(b):
        return None
    perm = tuple(a.index(c) for c in b)
    if tuple(ref[p] for p in perm) != cand:
        return None
    keep = [i for i, n in enumerate(ref) if n != 1]
    order = [p for p in perm if ref[p] != 1]
    split = tuple(ref[i] for i in keep)
    return View(ref, split, tuple(keep.index(p) for p in order), cand)
