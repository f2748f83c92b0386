"""``python -m surepipe``: the same as the command ``surepipe``."""

from surepipe.cli import main

if __name__ == "__main__":
    main()
