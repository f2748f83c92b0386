"""``python -m surepipe``: the same as the command ``surepipe``."""

from __future__ import annotations

from surepipe.cli import main

if __name__ == "__main__":
    main()
