"""What makes the pages of this repository from its code. Run from the root: ``python -m tools.patterns``."""
