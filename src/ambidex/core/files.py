"""Writing that leaves nothing half-written behind: everything goes to a temporary sibling first."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def _sync(path: Path) -> None:
    """Have the kernel write ``path`` out (a folder: its entries), where the file system can."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder; a file that cannot be synced is an error
            raise
    finally:
        os.close(fd)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file: after this it is there wholly, or as it was before."""
    path = Path(path)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too: nothing may stay behind
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def new_folder(target: str | Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A temporary folder that becomes ``target`` when the block ends well, and vanishes otherwise.

    An existing ``target`` is replaced only when ``may_replace`` says so (FileExistsError otherwise), and comes back
    if the exchange fails half-way.
    """
    target = Path(target)
    if target.is_symlink() or (target.exists() and not may_replace(target)):
        raise FileExistsError(str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield temporary
        for file in temporary.iterdir():
            os.chmod(file, 0o666 & ~_umask())  # some writers make private files
            _sync(file)
        _sync(temporary)
        os.chmod(temporary, 0o777 & ~_umask())
        _exchange(temporary, target)
        _sync(target.parent)
    except BaseException:  # Ctrl-C too: nothing may stay behind
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _exchange(new: Path, target: Path) -> None:
    if not target.exists():
        os.rename(new, target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    try:
        os.rename(target, old / "was")
        try:
            os.rename(new, target)
        except BaseException:
            os.rename(old / "was", target)
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
