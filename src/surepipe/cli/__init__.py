"""The ``surepipe`` command. ``app`` has the frame; each command is a module here."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """What the entry point calls. Ctrl-C is told from here on, also while everything is loaded."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
    from surepipe.cli.app import main as run_app

    run_app()


def end_at_once(*_: object) -> None:
    """What Ctrl-C does until a command begins: nothing is open yet."""
    os.write(2, b"surepipe: interrupted before it began\n")
    os._exit(130)
