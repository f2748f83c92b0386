"""The ``surepipe`` command. ``app`` has the frame; each command is a module here."""

from __future__ import annotations


def main() -> None:
    """What the entry point calls."""
    from surepipe.cli.app import main as run_app

    run_app()
