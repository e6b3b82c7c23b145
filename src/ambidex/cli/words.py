"""Small things that commands share: printing, writing ``--json``, and checking output paths before a long run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ambidex.core.files import write_text
from ambidex.errors import InputError


def printable(text: str) -> str:
    """Without control characters: file names and messages of foreign code must not steer the terminal."""
    clean = "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return clean.encode(encoding, "backslashreplace").decode(encoding)


def out(text: str = "") -> None:
    """One line, or several, on standard output."""
    print(printable(text))


def check_writable(*paths: str | None) -> None:
    """Say before a long run that its result could not be written."""
    for path in paths:
        if path is None or path == "-":
            continue
        file = Path(path)
        folder = file.parent
        if file.is_dir():
            raise InputError(f"cannot write '{path}'", "it is a folder", "Name a file")
        if not folder.is_dir():
            raise InputError(f"cannot write '{path}'", f"there is no folder '{folder}'", "Make it first")
        if not os.access(folder, os.W_OK):
            raise InputError(f"cannot write '{path}'", f"'{folder}' may not be written", "Name another file")
    chosen = [os.path.abspath(path) for path in paths if path is not None and path != "-"]
    if len(set(chosen)) != len(chosen):
        raise InputError(f"two results would be written to '{chosen[0]}'", todo="Name two files")


def put_json(target: str, text: str) -> None:
    """``--json FILE`` or ``--json -``."""
    put_text(target, text if text.endswith("\n") else text + "\n")


def put_text(target: str, text: str) -> None:
    """Into a file, or with ``-`` on standard output."""
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        write_text(target, text)
    except OSError as error:
        raise InputError(f"cannot write '{target}'", error.strerror or str(error)) from None


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False, allow_nan=False)


@contextlib.contextmanager
def foreign_code(debug: bool) -> Iterator[None]:
    """Around models and factories: what they print goes to stderr, so that stdout holds the result alone, and what
    frameworks log about themselves goes nowhere (unless ``debug``)."""
    with contextlib.ExitStack() as stack:
        if not debug:
            import logging

            for name in ("tensorflow", "absl", "torch", "jax", "h5py"):
                logging.getLogger(name).setLevel(logging.ERROR)
            stack.enter_context(_no_native_log())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


@contextlib.contextmanager
def _no_native_log() -> Iterator[None]:
    """TensorFlow's C++ code writes to file descriptor 2 before it reads TF_CPP_MIN_LOG_LEVEL. So that descriptor leads
    nowhere for a while, and Python's stderr (progress, what the user's code says) to where it led before."""
    try:
        sys.stderr.flush()
        real = os.dup(2)
    except (OSError, ValueError, AttributeError):  # no stderr at all: nothing to keep quiet
        yield
        return
    before = sys.stderr
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with open(real, "w", encoding=before.encoding, errors=before.errors, buffering=1, closefd=False) as mine:
            sys.stderr = mine
            os.dup2(nowhere, 2)
            try:
                yield
            finally:
                sys.stderr = before
                os.dup2(real, 2)
    finally:
        os.close(nowhere)
        os.close(real)
