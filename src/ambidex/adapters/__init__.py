"""One module for each framework; the only place where a framework is imported. They never import each other.

``open_model`` takes what the user has (a live object or a spec) and answers with a
:class:`~ambidex.core.model.Model`, or with a :class:`~ambidex.core.trace.Trace` for a recorded one.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ambidex.core.trace import Trace
from ambidex.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from ambidex.core.model import Inspectable

#: framework package -> adapter module; a live object's framework is loaded already, so nothing else is asked
#: Keras first: on its torch backend a Keras model is a torch module too
ADAPTERS = {"keras": "ambidex.adapters.keras_", "torch": "ambidex.adapters.torch_"}


def adapter(framework: str) -> Any:
    """The adapter module of a framework (imports both)."""
    return importlib.import_module(ADAPTERS[framework])


def alone(framework: str) -> Any:
    """The module of a framework's adapter that takes one layer out of a model."""
    return importlib.import_module(ADAPTERS[framework].rstrip("_") + "_alone")


def is_model(obj: Any) -> bool:
    """Whether one of the adapters takes this object; imports no framework that is not loaded yet."""
    return _adapter_of(obj) is not None


def _adapter_of(obj: Any) -> Any:
    for framework in ADAPTERS:
        if framework in sys.modules and not isinstance(obj, str | type):
            module = adapter(framework)
            if module.accepts(obj):
                return module
    return None


def wrap(obj: Any, label: str = "") -> Inspectable:
    """A live object as a Model. ``label``: how the user named it, for the error."""
    module = _adapter_of(obj)
    if module is not None:
        wrapped: Inspectable = module.wrap(obj)
        return wrapped
    raise _no_model(obj, label)


def open_model(spec: Any) -> Inspectable | Trace:
    """A model from a live object, or from a spec: ``file.py:factory``, ``package.module:factory``, a ``.keras`` file
    or the folder of a recorded trace. What is a Model or a Trace already comes back as it is."""
    if isinstance(spec, Trace):
        return spec
    if isinstance(spec, str | Path):
        from ambidex.adapters import specs

        return specs.open_spec(str(spec))
    if not isinstance(spec, type) and all(hasattr(spec, name) for name in ("framework", "signature", "run", "close")):
        model: Inspectable = spec
        return model
    return wrap(spec)


def _no_model(obj: Any, label: str) -> SpecError | UnsupportedError:
    kinds = type(obj).__mro__ if not isinstance(obj, type) else obj.__mro__
    homes = {cls.__module__.partition(".")[0] for cls in kinds}
    name = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    what = f"'{label}' returned a {name}" if label else f"a {name} is no model"
    if "tf_keras" in homes or any(cls.__module__.startswith(("keras.engine", "keras.src.engine")) for cls in kinds):
        return UnsupportedError(
            f"'{label}' is a legacy Keras 2 model" if label else f"the {name} is a legacy Keras 2 model",
            "Keras 3 is needed; TF_USE_LEGACY_KERAS=1 and tf_keras models are not reached yet",
            "Build the model with Keras 3 (unset TF_USE_LEGACY_KERAS)",
        )
    if isinstance(obj, type):
        return SpecError(f"{obj.__qualname__} is a class", todo="Give an object of it, or a factory that makes one")
    if obj is None:
        return SpecError(
            what.replace("a NoneType", "None"), "no model came back", "Is a `return` missing in the factory?"
        )
    if isinstance(obj, dict) and obj and all(hasattr(value, "shape") for value in obj.values()):
        return SpecError(what, "that is a state dict, weights without a model", "Build the module and load it there")
    if "tensorflow" in homes or "jax" in homes or "flax" in homes:
        return UnsupportedError(
            what if label else f"a {name} is not reached",
            "this version compares torch modules and Keras 3 models",
            "Wrap it in a keras.Layer or keras.Model",
        )
    return SpecError(what, "only a torch.nn.Module or a Keras 3 model can be compared", "Return the model itself")
