"""Our code and the user's on executors: a zip of plain modules that Spark puts on each worker's path.

A wheel is not imported by workers, so packages go as zips. What comes from package indexes is not shipped: each
executor's Python needs ``ON_EXECUTORS`` installed.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import surepipe
from surepipe import errors
from surepipe.errors import ConfigurationError, SurepipeError

ON_EXECUTORS = ("pyspark", "pyarrow", "pandas", "redis", "pydantic")
"""Third-party packages that an executor's Python must have."""


def keep_what_is_loaded() -> None:
    """In a worker of Spark: what is loaded by now is not looked at for garbage again.

    Spark has a worker collect after each task. Over all that pyarrow, pandas, pydantic and we have loaded that
    takes 80 ms, which is 4 us a message of a task of 20,000. Elsewhere than in a task the process is the user's.
    """
    from pyspark import TaskContext  # noqa: PLC0415 - what ships code is asked where there is no Spark, too

    if TaskContext.get() is not None:
        _keep(len(sys.modules))


@cache
def _keep(modules: int) -> None:
    """Once for so many modules: each kind of task loads its own."""
    del modules
    gc.collect()
    gc.freeze()


def archives_of(extra: Sequence[str | Path]) -> list[Path]:
    """The archives that executors need, to give to ``addPyFile``: surepipe and ``extra``.

    ``extra`` holds names of modules or packages, or paths of .py files, folders of packages, .zip and .egg files.
    Ours is named by what is in it: Spark takes one file of a name, whatever its folder. Raises ConfigurationError
    for something that is not there. The archives are removed when the process ends.
    """
    parts = [Path(surepipe.__file__).parent, *map(_located, extra)]
    archives = [part for part in parts if part.suffix in (".zip", ".egg")]
    plain = [part for part in parts if part not in archives]
    folder = Path(tempfile.mkdtemp(prefix="surepipe-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    zipped = _zipped(plain, folder / "archive.zip")
    digest = hashlib.blake2b(zipped.read_bytes(), digest_size=6).hexdigest()
    return [*archives, zipped.rename(folder / f"surepipe-{surepipe.__version__}-{digest}.zip")]


def _located(part: str | Path) -> Path:
    """The file or folder that is meant."""
    path = Path(part)
    if path.exists():
        return path.absolute()
    spec = _spec(str(part))
    if spec is None:
        raise ConfigurationError(
            f"{part!s} can't be shipped: there is no such file, and no module of that name is on the path"
        )
    return spec


def _spec(name: str) -> Path | None:
    try:
        spec = find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _zipped(parts: Sequence[Path], target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in parts:
            for file in _files(part):
                archive.write(file, file.relative_to(part.parent))
    return target


def _files(part: Path) -> Iterator[Path]:
    """Everything of a package but what Python made of it."""
    if part.is_file():
        yield part
        return
    for file in sorted(part.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file


# What went wrong on an executor, as the error that it was: Spark carries errors as text only.


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
