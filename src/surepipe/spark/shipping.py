"""Our code and the user's on executors: a zip of plain modules that Spark puts on each worker's path.

A wheel is not imported by workers, so packages go as zips. What comes from package indexes is not shipped: each
executor's Python needs ``ON_EXECUTORS`` installed.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import surepipe
from surepipe.errors import ConfigurationError

ON_EXECUTORS = ("pyspark", "pyarrow", "pandas", "redis", "pydantic")
"""Third-party packages that an executor's Python must have."""


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
