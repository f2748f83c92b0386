"""The folder of a query's checkpoint, looked at before Spark opens it: one clear error, and nothing changed.

Beside Spark's own files lies a note of ours: which pipeline the checkpoint belongs to, and which streams it has
offsets of. Spark itself takes any folder and goes on from whatever it finds there.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import cast

from surepipe.errors import ConfigurationError
from surepipe.spark.running.layout import Layout

NOTE = "surepipe.json"
VERSION = 1
_NO_JSON = ("v1", "-")
"""Lines of Spark's logs: the version, and a source of which nothing was read."""


def digest_of(layout: Layout) -> str:
    """What the offsets of a checkpoint mean: the streams that are read, and where they are."""
    inputs = sorted((one.part, one.stream.store, one.stream.name) for one in layout.inputs)
    said = json.dumps([layout.plan.name, inputs])
    return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


def prepare(folder: Path, layout: Layout) -> None:
    """Make the folder, or see that it is this pipeline's. Raises ConfigurationError that says what it is else."""
    note = folder / NOTE
    if _is_new(folder):
        _write(note, layout)
        return
    if not note.exists():
        raise ConfigurationError(
            f"{folder} is no checkpoint of surepipe, and not empty: name another folder for this pipeline"
        )
    known = _read(note)
    name, digest = layout.plan.name, digest_of(layout)
    if known.get("pipeline") != name:
        raise ConfigurationError(
            f"{folder} is the checkpoint of pipeline {known.get('pipeline')}, and this one is {name}: take another"
        )
    if known.get("digest") != digest:
        raise ConfigurationError(
            f"{folder} is the checkpoint of {name} when it read other streams: name another folder; the new query "
            "begins where the stores say that this pipeline was"
        )
    _check_logs(folder)


def _is_new(folder: Path) -> bool:
    try:
        return not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise ConfigurationError(f"the checkpoint folder {folder} can't be read: {error}") from None


def _read(note: Path) -> dict[str, object]:
    try:
        known: object = json.loads(note.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(note, error) from None
    if not isinstance(known, dict):
        raise _unreadable(note, "no mapping")
    return cast("dict[str, object]", known)


def _check_logs(folder: Path) -> None:
    """Spark's own files, as far as a damaged one would end the query in the middle of a page of Java."""
    for log in ("metadata", "offsets", "commits"):
        for file in _files(folder / log):
            try:
                lines = file.read_text("utf-8").splitlines()
                if log != "metadata" and lines[:1] != ["v1"]:
                    raise ValueError("it does not begin with a version")
                for line in lines:
                    if line not in _NO_JSON:
                        json.loads(line)
            except (OSError, ValueError) as error:
                raise _unreadable(file, error) from None


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(one for one in path.glob("*") if one.name.isdecimal()) if path.is_dir() else []


def _unreadable(file: Path, why: object) -> ConfigurationError:
    return ConfigurationError(
        f"the checkpoint can't be read: {file}: {why}; move the folder away: the query then begins where the "
        "stores say that this pipeline was, and nothing is written twice"
    )


def _write(note: Path, layout: Layout) -> None:
    hidden = note.with_name(f".{NOTE}")
    told = {
        "version": VERSION,
        "pipeline": layout.plan.name,
        "digest": digest_of(layout),
        "streams": sorted(f"{one.stream.store}/{one.stream.name}" for one in layout.inputs),
    }
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        with hidden.open("w", encoding="utf-8") as file:
            json.dump(told, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        hidden.rename(note)
    except OSError as error:
        raise ConfigurationError(
            f"the checkpoint folder {note.parent} can't be written: {error}"
        ) from None
