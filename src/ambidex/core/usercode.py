"""Running the user's Python files: models come from ``file.py:factory``, inputs from ``file.py:function``.

Every failure becomes one sentence: what was asked for, why it did not work, what to do.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ambidex.errors import AmbidexError, RunError, SpecError

#: folders whose files were loaded as user code, and the modules of files by their state on disk
_folders: set[Path] = set()
_loaded: dict[tuple[Path, int, int], ModuleType] = {}

_PLACES = tuple(
    os.path.realpath(p) + os.sep
    for p in {*(sysconfig.get_paths().get(k, "") for k in ("stdlib", "platstdlib", "purelib", "platlib")), sys.prefix}
    if p
)
_OWN = os.path.realpath(os.path.join(os.path.dirname(__file__), "..")) + os.sep


# ---------------------------------------------------------------------------------------------------- reading
def nearest(name: str, names: list[str]) -> str:
    """ " Did you mean 'x'?" in one sentence, or nothing."""
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else ""


def existing_file(path: str) -> Path:
    """The file, or a SpecError that names files of nearly that name."""
    file = Path(path).expanduser()
    if file.is_file():
        return file.resolve()
    if file.is_dir():
        raise SpecError(f"'{path}' is a folder", todo="Name a file in it")
    folder = file.parent
    if not folder.is_dir():
        raise SpecError(
            f"the file '{path}' does not exist", f"there is no folder '{folder}'", f"You are in {Path.cwd()}"
        )
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix == file.suffix)
    close = nearest(file.name, names)
    if not close and names:
        close = f"In '{folder}' there are {listed(names)}"
    raise SpecError(f"the file '{path}' does not exist", todo=close or f"You are in {Path.cwd()}")


def listed(names: list[str], most: int = 8) -> str:
    """Names for a sentence, cut when there are many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def read_source(file: Path) -> str:
    """Python source in whatever encoding it declares."""
    try:
        return importlib.util.decode_source(file.read_bytes())
    except (SyntaxError, UnicodeDecodeError):
        raise SpecError(f"'{file}' is no Python source", "its text encoding is damaged") from None
    except OSError as error:
        raise SpecError(f"cannot read '{file}'", error.strerror or str(error)) from None


def parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(read_source(file), filename=str(file))
    except SyntaxError as error:
        raise SpecError(
            f"cannot import '{file.name}'", f"line {error.lineno}: {error.msg}", "Correct the file"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, nesting without end
        raise SpecError(f"'{file}' is no Python source", str(error) or type(error).__name__) from None


def definitions(tree: ast.Module) -> list[str]:
    """Functions and classes that a file defines at its top level, public ones first."""
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return sorted(dict.fromkeys(names), key=lambda name: name.startswith("_"))


def factories(tree: ast.Module) -> list[str]:
    """Those of the functions and classes that can be called without arguments (as far as the text tells)."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            makers = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
            if makers and _needs(makers[0].args, skip=1):
                continue
        elif not isinstance(node, ast.FunctionDef) or _needs(node.args):
            continue
        if not node.name.startswith("_"):
            found.append(node.name)
    return list(dict.fromkeys(found))


def _needs(args: ast.arguments, skip: int = 0) -> bool:
    plain = len(args.posonlyargs) + len(args.args) - skip - len(args.defaults)
    return plain > 0 or any(default is None for default in args.kw_defaults)


def _may_define(tree: ast.Module, name: str) -> bool:
    """False only when the text rules out that the file has this name (so that it need not be run)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            if any(alias.name == "*" or (alias.asname or alias.name).split(".")[0] == name for alias in node.names):
                return True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in (name, "__getattr__"):
                return True
        elif isinstance(node, ast.Name) and node.id in (name, "globals", "exec", "setattr", "vars"):
            return True
    return False


def mentions(source: str, package: str) -> bool:
    """Whether source text imports ``package`` anywhere."""
    return re.search(rf"^\s*(import|from)\s+([\w., ]*[,\s])?{package}\b", source, re.MULTILINE) is not None


# ---------------------------------------------------------------------------------------------------- importing
@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """``folder`` is first on the import path; helper modules of the same name from another spec's folder are aside.

    Two models often come from two folders that both have a ``layers.py``; each must get its own.
    """
    folder = folder.resolve()
    aside: dict[str, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if not file or not ((folder / f"{top}.py").is_file() or (folder / top).is_dir()):
            continue
        home = Path(file).resolve()
        if not home.is_relative_to(folder) and any(home.is_relative_to(other) for other in _folders):
            aside[name] = sys.modules.pop(name)
    _folders.add(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        sys.modules.update(aside)


def load_file(file: Path, name: str) -> ModuleType:
    """Import a file that is to have ``name``; once for each state of the file on disk."""
    status = file.stat()
    key = (file, status.st_mtime_ns, status.st_size)
    if key in _loaded:
        return _loaded[key]
    tree = parsed(file)
    if not _may_define(tree, name):
        raise _no_such_name(file, name)
    module_name = file.stem if file.stem.isidentifier() and file.stem not in sys.modules else f"_ambidex_{len(_loaded)}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise SpecError(f"cannot import '{file}'", "it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with importable(file.parent), own_words(f"cannot import '{file.name}'", file.parent):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(module_name, None)
        raise
    _loaded[key] = module
    return module


def _no_such_name(file: Path, name: str) -> SpecError:
    names = definitions(parsed(file))
    there = f"It has {listed(names)}" if names else "It defines no function and no class"
    close = nearest(name, names)
    return SpecError(f"'{file.name}' has no '{name}'", todo=f"{close} {there}".strip())


def member(module: ModuleType, name: str, file: Path | None) -> Any:
    """``module.name``, dots allowed; the names that are there when it is missing."""
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            if file is not None:
                raise _no_such_name(file, name) from None
            public = sorted(n for n in dir(value) if not n.startswith("_"))
            raise SpecError(f"'{module.__name__}' has no '{name}'", todo=nearest(part, public)) from None
    return value


# ---------------------------------------------------------------------------------------------------- calling
def required(function: Any) -> list[str]:
    """Names of the arguments that a call without any would miss."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in callables tell nothing
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def call(function: Any, label: str, folder: Path, kind: str = "factories") -> Any:
    """Call a user's function without arguments. ``label`` is how the user named it."""
    missing = required(function)
    if missing:
        what = f"the argument '{missing[0]}'" if len(missing) == 1 else "the arguments " + ", ".join(map(repr, missing))
        shown = ", ".join(f"{name}=..." for name in missing)
        name = label.rsplit(":", 1)[-1]
        raise SpecError(
            f"'{label}' needs {what}",
            f"{kind} are called without arguments",
            f"Write a function that gives {'it' if len(missing) == 1 else 'them'}, "
            f"for example: def make(): return {name}({shown})",
        )
    with importable(folder), own_words(f"'{label}' raised", folder):
        return function()


@contextlib.contextmanager
def own_words(what: str, folder: Path | None = None) -> Iterator[None]:
    """Turn whatever user code raises into a SpecError with the last line of the user's own that was reached."""
    try:
        yield
    except (AmbidexError, KeyboardInterrupt):
        raise
    except MemoryError as error:
        raise RunError(f"{what.removesuffix(' raised')} ran out of memory", one_line(error)) from error
    except SystemExit as error:
        raise SpecError(
            what.removesuffix(" raised") + " ended Python",
            f"sys.exit({error.code!r}) in {user_frame(error)}",
            "Put what a script does under `if __name__ == '__main__':`",
        ) from error
    except ModuleNotFoundError as error:
        raise SpecError(what, f"{one_line(error)} ({user_frame(error)})", _missing_module(error, folder)) from error
    except Exception as error:
        hint = _shadow(error, folder)
        raise SpecError(what, f"{type(error).__name__} in {user_frame(error)}: {one_line(error)}", hint) from error


def one_line(error: BaseException, most: int = 300) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."


def user_frame(error: BaseException) -> str:
    """``file:line`` of the last frame in the user's own code, else of the last frame at all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_library(f.filename)]
    chosen = own or list(frames)
    return f"{_short(chosen[-1].filename)}:{chosen[-1].lineno}" if chosen else "an unknown place"


def _is_library(filename: str) -> bool:
    path = os.path.realpath(filename)
    if filename.startswith("<") or path.startswith(_OWN):
        return True
    return any(path.startswith(place) for place in _PLACES) or f"{os.sep}site-packages{os.sep}" in path


def _short(filename: str) -> str:
    """The path as seen from here, when that is shorter."""
    try:
        relative = os.path.relpath(filename)
    except ValueError:  # another drive
        return filename
    return relative if len(relative) < len(filename) else filename


_EXTRAS = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow", "jax": "jax"}


def _missing_module(error: ModuleNotFoundError, folder: Path | None) -> str:
    top = (error.name or "").partition(".")[0]
    if top in _EXTRAS:
        return (
            f"Install it: pip install 'ambidex[{_EXTRAS[top]}]', or run `ambidex record` where it is installed"
            " and name the recorded folder here"
        )
    return _shadow(error, folder) or f"Install '{top}' in this environment, or start ambidex where it can be found"


def _shadow(error: BaseException, folder: Path | None) -> str:
    """A file called torch.py beside the model hides the package; its error messages never say so."""
    if folder is None or not isinstance(error, ImportError | AttributeError):
        return ""
    for package in ("torch", "keras", "tensorflow", "numpy", "jax"):
        if (folder / f"{package}.py").is_file():
            return f"'{package}.py' in that folder hides the package {package}: rename it"
    return ""
