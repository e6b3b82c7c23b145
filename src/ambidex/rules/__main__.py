"""``python -m ambidex.rules [FOLDER]`` writes every rule's page and their index to ``docs/explain``."""

from __future__ import annotations

import sys
from pathlib import Path

from ambidex.core.files import write_text
from ambidex.rules.pages import pages


def main(folder: str = "docs/explain") -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for old in target.glob("*.md"):
        if old.name not in wanted:
            old.unlink()
    for name, text in wanted.items():
        write_text(target / name, text)


if __name__ == "__main__":
    main(*sys.argv[1:2])
