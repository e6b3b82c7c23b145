"""Model specs: text that says where a model comes from."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ambidex import adapters
from ambidex.core import usercode
from ambidex.core.model import Inspectable
from ambidex.core.trace import Trace
from ambidex.core.tracefile import is_trace, load_trace
from ambidex.errors import SpecError, UnsupportedError

_FORMS = "Say file.py:factory, package.module:factory, a .keras file or the folder of a recorded trace"
_ONLY = "this version compares torch modules and Keras 3 models"

#: suffix -> what it is, and what the user can do instead
_OTHER_FILES = {
    ".onnx": ("an ONNX file", "Compare the torch or Keras model it was exported from: file.py:factory"),
    ".tflite": ("a TFLite file", "Compare the Keras or torch model it was converted from: file.py:factory"),
    ".pt": ("a torch file", "Write a function that builds the module and loads it: file.py:factory"),
    ".pth": ("a torch file", "Write a function that builds the module and loads it: file.py:factory"),
    ".bin": ("a weight file", "Write a function that builds the module and loads it: file.py:factory"),
    ".ckpt": ("a checkpoint", "Write a function that builds the model and loads it: file.py:factory"),
    ".safetensors": ("a weight file", "Write a function that builds the model and loads it: file.py:factory"),
    ".h5": ("an HDF5 file", "Write a function that returns keras.models.load_model(...): file.py:factory"),
    ".hdf5": ("an HDF5 file", "Write a function that returns keras.models.load_model(...): file.py:factory"),
    ".pb": ("a TensorFlow graph", "Compare the Keras model it was saved from: file.py:factory"),
}


def open_spec(spec: str) -> Inspectable | Trace:
    """See :func:`ambidex.adapters.open_model`."""
    if not spec.strip():
        raise SpecError("the model spec is empty", todo=_FORMS)
    if "://" in spec:
        raise UnsupportedError(f"'{spec}' is a URL", _ONLY, "Record the model where it runs and name the folder here")
    path = Path(spec).expanduser()
    if path.is_dir():
        return _open_folder(spec, path)
    suffix = path.suffix.lower()
    if suffix == ".keras":
        return _open_keras(usercode.existing_file(spec))
    if suffix in _OTHER_FILES:
        usercode.existing_file(spec)
        kind, todo = _OTHER_FILES[suffix]
        raise UnsupportedError(f"'{spec}' is {kind}", _ONLY, todo)
    if suffix == ".py":
        raise _no_factory(spec, usercode.existing_file(spec))
    where, colon, name = spec.rpartition(":")
    if not colon:
        exists = "" if path.exists() else "there is nothing of that name"
        raise SpecError(f"'{spec}' is no model spec", exists, _FORMS)
    if not where or not all(part.isidentifier() for part in name.split(".")):
        raise SpecError(f"'{spec}' is no model spec", f"'{name}' is no Python name" if where else "", _FORMS)
    return _open_code(spec, where, name)


def import_order(specs: Sequence[Any]) -> None:
    """Import torch before TensorFlow when a spec's own text needs torch: the other order crashes on some machines.

    Costs one look at the text; nothing is imported when no spec mentions torch, or when torch is not installed.
    """
    if "torch" in sys.modules or importlib.util.find_spec("torch") is None:
        return
    for spec in specs:
        if not isinstance(spec, str | Path) or ":" not in str(spec):
            continue
        file = _source_file(str(spec).rpartition(":")[0])
        if file is not None and usercode.mentions(usercode.read_source(file), "torch"):
            importlib.import_module("torch")
            return


def _source_file(where: str) -> Path | None:
    """The file behind a spec's first half, without importing anything; None when it cannot be told."""
    if where.endswith(".py"):
        file = Path(where).expanduser()
        return file.resolve() if file.is_file() else None
    parts = where.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    roots = [Path.cwd(), *(Path(p) for p in sys.path if p)]
    for root in roots:
        base = root.joinpath(*parts)
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if file.is_file():
                return file.resolve()
    return None


# ---------------------------------------------------------------------------------------------------- code
def _open_code(spec: str, where: str, name: str) -> Inspectable | Trace:
    is_file = where.endswith(".py")
    if not is_file and (Path(where).exists() or "/" in where or "\\" in where):
        usercode.existing_file(where)
        raise SpecError(f"'{where}' is no Python file", todo=_FORMS)
    file = usercode.existing_file(where) if is_file else _source_file(where)
    folder = file.parent if is_file and file is not None else Path.cwd()
    import_order([spec])
    named = {fw for fw in adapters.ADAPTERS if file is not None and _needs(file, fw)}
    with contextlib.ExitStack() as stack:
        remembering: set[str] = set()
        for framework in sorted(named, reverse=True):  # torch before keras
            _remember(stack, framework, remembering)
        module = usercode.load_file(file, name.split(".")[0]) if is_file and file is not None else _import(where)
        for framework in adapters.ADAPTERS:
            if framework in sys.modules:
                _remember(stack, framework, remembering)
        target = usercode.member(module, name, file if is_file else None)
        if adapters.is_model(target):
            return adapters.wrap(target, spec)
        if not callable(target):
            raise adapters._no_model(target, spec)
        made = usercode.call(target, spec, folder)
    if isinstance(made, str | Path) and Path(made).exists() and Path(made).suffix != ".py":
        return open_spec(str(made))  # a factory may fetch a file and say where it is
    return adapters.wrap(made, spec)


@contextlib.contextmanager
def remembering(spec: Any) -> Iterator[None]:
    """Around code of the user's that builds losses and optimizers: they remember the line that builds them."""
    where = str(spec).rpartition(":")[0] if isinstance(spec, str) else ""
    file = Path(where) if where.endswith(".py") and Path(where).is_file() else None
    with contextlib.ExitStack() as stack:
        done: set[str] = set()
        for framework in sorted(adapters.ADAPTERS, reverse=True):  # torch before keras
            if framework in sys.modules or (file is not None and _needs(file, framework)):
                _remember(stack, framework, done)
        yield


def _needs(file: Path, framework: str) -> bool:
    """Whether the file imports the framework by its text, and it can be imported."""
    text = usercode.read_source(file)
    packages = (framework, "tensorflow") if framework == "keras" else (framework,)
    return any(usercode.mentions(text, p) for p in packages) and importlib.util.find_spec(framework) is not None


def _remember(stack: contextlib.ExitStack, framework: str, done: set[str]) -> None:
    """From here on layers remember the line that builds them."""
    if framework not in done:
        done.add(framework)
        stack.enter_context(adapters.adapter(framework).remember_sources())


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise SpecError(f"'{name}' is no module name", todo=_FORMS)
    top = name.partition(".")[0]
    with _from_here():
        if importlib.util.find_spec(top) is None:
            near = usercode.nearest(f"{top}.py", sorted(p.name for p in Path.cwd().glob("*.py")))
            raise SpecError(f"there is no module '{top}'", f"neither in {Path.cwd()} nor installed", near or _FORMS)
        with usercode.own_words(f"cannot import '{name}'", Path.cwd()):
            return importlib.import_module(name)


@contextlib.contextmanager
def _from_here() -> Iterator[None]:
    """The current folder is importable, as it is for ``python -m``."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def _no_factory(spec: str, file: Path) -> SpecError:
    tree = usercode.parsed(file)
    found = usercode.factories(tree)
    if found:
        return SpecError(
            f"'{spec}' names no factory", todo="Say one of " + usercode.listed([f"{spec}:{n}" for n in found])
        )
    there = usercode.definitions(tree)
    why = f"all of {usercode.listed(there)} need arguments" if there else "the file defines no function"
    return SpecError(f"'{spec}' names no factory", why, f"Write a function without arguments and say {spec}:its_name")


# ---------------------------------------------------------------------------------------------------- files
def _open_folder(spec: str, path: Path) -> Trace:
    if is_trace(path):
        return load_trace(path)
    if (path / "saved_model.pb").is_file():
        todo = "Compare the Keras model it was saved from: file.py:factory"
        raise UnsupportedError(f"'{spec}' is a TensorFlow SavedModel", _ONLY, todo)
    if (path / "__init__.py").is_file():
        raise SpecError(f"'{spec}' is a package", todo=f"Say {spec.strip('/').replace('/', '.')}:factory")
    found = sorted(p.name for p in path.glob("*.py"))
    there = f"It has {usercode.listed(found)}" if found else _FORMS
    raise SpecError(f"'{spec}' is a folder and no recorded trace", "it has no trace.json", there)


def _open_keras(file: Path) -> Inspectable:
    """A ``.keras`` file, in Keras' safe mode: what would run code from the file is refused."""
    if importlib.util.find_spec("keras") is None:
        raise SpecError(f"cannot open '{file.name}'", "Keras is not installed", "pip install 'ambidex[tensorflow]'")
    keras = importlib.import_module("keras")
    if not hasattr(keras, "saving") or keras.__version__.startswith("2."):
        raise UnsupportedError(
            f"cannot open '{file.name}'", f"Keras {keras.__version__} is installed", "Keras 3 is needed"
        )
    if not zipfile.is_zipfile(file):
        raise SpecError(
            f"cannot open '{file.name}'", "it is no .keras archive, or a damaged one", "Save the model again"
        )
    todo = f"Write a function that returns the model and say {file.stem}.py:function"
    try:
        loaded = keras.saving.load_model(str(file), compile=False, safe_mode=True)
    except MemoryError:
        raise
    except Exception as error:
        why = usercode.one_line(error)
        if "safe_mode" in why or "unsafe" in why.lower():
            why = "it holds Python code (a Lambda layer), which is not run from a file"
        raise SpecError(f"cannot open '{file.name}'", why, todo) from error
    return adapters.wrap(loaded, file.name)
