"""What went wrong on an executor, as the error that it was: Spark carries errors as text only."""

from __future__ import annotations

import re

from surepipe import errors
from surepipe.errors import ConfigurationError, SurepipeError

_OURS = re.compile(r"^\s*surepipe\.errors\.(\w+): (.*)$", re.MULTILINE)
_UNIMPORTABLE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?::.*)?)$", re.MULTILINE)
_PLAIN = (
    "ConfigurationError",
    "MisuseError",
    "StoreUnavailable",
    "StoreReset",
    "Fenced",
    "PayloadTooLarge",
    "PipeStopped",
    "PipeFull",
    "PipeClosed",
)
"""Errors that are made of their message alone."""


def failure_of(error: BaseException) -> SurepipeError | None:
    """The error of ours that an exception of Spark's tells of; None when it tells of none."""
    text = str(error)
    if missing := _UNIMPORTABLE.search(text):
        return unimportable(missing[1])
    found = _OURS.findall(text)
    if not found:
        return None
    name, message = found[-1]
    kind = getattr(errors, name) if name in _PLAIN else SurepipeError
    made: SurepipeError = kind(message)
    return made


def raised_in_task(error: BaseException) -> str | None:
    """What a function of the user's raised in a task, in the one line of Python; None for anything else."""
    traceback = str(error).rpartition("Traceback (most recent call last):")[2]
    found = _RAISED.search(traceback) if traceback != str(error) else None
    return found[1] if found else None


def unimportable(module: str) -> ConfigurationError:
    """For a module that an executor does not find."""
    top = module.partition(".")[0]
    return ConfigurationError(
        f"the executors of Spark can't import {module!r}: ship it with the query (ship: [{top}], for code of your "
        "own), or install it in the executors' Python (for a package from an index)"
    )
