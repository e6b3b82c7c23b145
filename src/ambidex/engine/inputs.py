"""What the models are fed: files, the user's functions, or probes made up from a signature."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ambidex.core import usercode
from ambidex.core.arrayfile import Damaged, read_arrays, regular_size
from ambidex.core.model import Batch, TensorSpec
from ambidex.core.types import Array
from ambidex.engine.probes import as_signature, parse_signature, probe
from ambidex.errors import InputError

__all__ = ["Inputs", "as_inputs", "as_signature", "describe", "load_inputs", "parse_signature", "probe_inputs"]

_FORMS = "Say FILE.npz, FILE.npy, FILE.safetensors or file.py:function"
_SIDES = {"reference", "candidate", "masks"}


@dataclass(slots=True)
class Inputs:
    """Batches for both sides. ``candidate`` None: the reference's batch serves both. ``masks``: positions
    that count, by the user's names. ``described``: what is in it, one line each."""

    reference: Batch | None = None
    candidate: Batch | None = None
    masks: dict[str, Array] = field(default_factory=dict)
    described: list[str] = field(default_factory=list)


def probe_inputs(signature: Sequence[TensorSpec], *, seed: int = 0, lengths: str = "shared") -> Inputs:
    """Deterministic inputs for a signature.

    Open axes get prime sizes, pairwise different. The batch (axis 0) is one size for all inputs. For the other axes
    ``lengths="shared"`` gives the same axis of several inputs the same size (ids and their mask), ``"different"``
    gives each its own (source and target); names in the signature say it exactly.
    """
    arrays, described = probe(signature, seed=seed, lengths=lengths)
    positional = all(name.isdigit() for name in arrays)
    return Inputs(reference=list(arrays.values()) if positional else arrays, described=described)


def load_inputs(spec: str, trust: bool = False) -> Inputs:
    """Inputs from a file or from a function of the user's. Pickled arrays are read with ``trust`` only."""
    where, colon, name = spec.rpartition(":")
    if colon and where.endswith(".py"):
        return _from_function(spec, where, name)
    suffix = Path(spec).suffix.lower()
    if suffix not in (".npz", ".npy", ".safetensors"):
        raise InputError(f"cannot read inputs from '{spec}'", "its kind is not known", _FORMS)
    file = usercode.existing_file(spec)
    try:
        if suffix == ".safetensors":
            return as_inputs(_positional_or_named(read_arrays(file)), spec)
        regular_size(file)
        return as_inputs(_from_numpy(file, suffix, trust), spec)
    except Damaged as error:
        raise InputError(f"cannot read inputs from '{spec}'", str(error)) from None


def _from_function(spec: str, where: str, name: str) -> Inputs:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"cannot read inputs from '{spec}'", f"'{name}' is no Python name", _FORMS)
    file = usercode.existing_file(where)
    target = usercode.member(usercode.load_file(file, name.split(".")[0]), name, file)
    if callable(target) and not hasattr(target, "shape"):
        target = usercode.call(target, spec, file.parent, kind="input functions")
    return as_inputs(target, spec)


def _from_numpy(file: Path, suffix: str, trust: bool) -> Any:
    try:
        with file.open("rb") as handle:
            loaded = np.load(handle, allow_pickle=trust)
            if suffix == ".npy":
                if not isinstance(loaded, np.ndarray):
                    raise Damaged("it is no .npy file")
                return loaded
            if isinstance(loaded, np.ndarray):
                raise Damaged("it is no .npz file")
            if len(set(loaded.files)) != len(loaded.files):
                raise Damaged("an array name stands in it twice")
            return _positional_or_named({name: loaded[name] for name in loaded.files})
    except Damaged:
        raise
    except MemoryError:
        raise Damaged("it claims more data than fits in memory") from None
    except (OSError, ValueError, EOFError, KeyError, SyntaxError, zipfile.BadZipFile, NotImplementedError) as error:
        if "allow_pickle" in str(error) or "pickle" in str(error).lower():
            todo = "Save plain numeric arrays, or pass --trust if you made this file yourself"
            raise InputError(f"cannot read inputs from '{file}'", "it holds pickled objects", todo) from None
        raise Damaged(f"it is damaged ({usercode.one_line(error, 120)})") from None


def _positional_or_named(arrays: dict[str, Array]) -> Any:
    """``np.savez(f, a, b)`` names arrays arr_0, arr_1: those are positions, everything else is names."""
    names = list(arrays)
    for prefix in ("arr_", ""):
        wanted = [f"{prefix}{n}" for n in range(len(names))]
        if names and set(names) == set(wanted):
            return [arrays[name] for name in wanted]
    return arrays


# ---------------------------------------------------------------------------------------------------- values
def as_inputs(value: Any, label: str = "inputs") -> Inputs:
    """An array, a tuple or list of them, a dictionary of them, or {"reference": ..., "candidate": ..., "masks": ...}.
    Tensors of torch, TensorFlow and JAX are taken as well."""
    if isinstance(value, Inputs):
        return value
    sides = isinstance(value, Mapping) and "reference" in value and set(value) <= _SIDES
    inputs = Inputs()
    if sides:
        inputs.reference = _batch(value["reference"], f"'{label}' (reference)")
        if value.get("candidate") is not None:
            inputs.candidate = _batch(value["candidate"], f"'{label}' (candidate)")
        inputs.masks = _masks(value.get("masks"), label)
    else:
        inputs.reference = _batch(value, f"'{label}'")
    for side, batch in (("", inputs.reference), ("candidate ", inputs.candidate)):
        inputs.described += [f"{side}{line} from {label}" for line in describe(batch)]
    return inputs


def describe(batch: Batch | None) -> list[str]:
    """One line for each array of a batch."""
    if batch is None:
        return []
    items = batch.items() if isinstance(batch, Mapping) else ((f"input {n}", a) for n, a in enumerate(batch))
    return [f"{name}: {array.dtype}{list(array.shape)}" for name, array in items]


def _batch(value: Any, where: str) -> Batch:
    if isinstance(value, Mapping):
        if not value:
            raise InputError(f"{where} holds no array")
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            raise InputError(f"{where} has the key {odd!r}", "names of inputs are text")
        return {key: _array(item, f"{where}, '{key}'") for key, item in value.items()}
    if isinstance(value, list | tuple):
        if not value:
            raise InputError(f"{where} holds no array")
        # a list of lists of numbers is one array, as in numpy; a tuple, or anything with an array in it, is several
        if any(hasattr(item, "shape") and not _is_number(item) for item in value) or (
            isinstance(value, tuple) and not any(_is_number(item) for item in value)
        ):
            return [_array(item, f"{where}, number {n}") for n, item in enumerate(value)]
    return [_array(value, where)]


def _masks(value: Any, label: str) -> dict[str, Array]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
    elif isinstance(value, list | tuple):
        named = {str(n): item for n, item in enumerate(value)}
    else:
        named = {"0": value}
    return {
        name: _array(item, f"'{label}', mask '{name}'").astype(bool) for name, item in named.items() if item is not None
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.number)


def _array(value: Any, where: str) -> Array:
    """Any framework's tensor as numpy, by what it can do and not by what it is."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # torch
        if getattr(value, "is_meta", False):
            raise InputError(f"{where} is on the meta device", "it has a shape and no values", "Give real values")
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype) or "float8" in str(value.dtype):
            value = value.float()
        value = value.resolve_conj().resolve_neg() if hasattr(value, "resolve_conj") else value
        value = value.to_dense() if getattr(value, "is_sparse", False) else value
    if hasattr(value, "numpy") and callable(value.numpy):
        value = value.numpy()
    if value is None or isinstance(value, str | bytes | Mapping | set):
        raise InputError(f"{where} is a {type(value).__name__} and no array")
    try:
        array = np.asarray(value)
    except Exception as error:  # __array__ of a foreign object may raise anything
        raise InputError(f"{where} is no array", usercode.one_line(error)) from error
    if str(array.dtype) == "bfloat16" or str(array.dtype).startswith("float8"):
        array = array.astype("float32")
    if array.dtype.kind not in "biufc":
        why = f"its type is {array.dtype}" if array.dtype.kind != "O" else f"it holds {type(value).__name__} objects"
        raise InputError(f"{where} is no numeric array", why, "Give plain numbers, rows of equal length")
    return array
