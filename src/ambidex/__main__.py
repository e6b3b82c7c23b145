"""``python -m ambidex``."""

from ambidex.cli import main

if __name__ == "__main__":
    main()
