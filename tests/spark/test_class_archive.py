"""The archive of Java's classes is taken when it is there (spark SP-23); a real one is in ``processes``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from surepipe.spark.java import JavaHome, archive_for, archive_options

JAVA = JavaHome(Path("/java/17"), 17, "PATH")
OTHER = JavaHome(Path("/other/17"), 17, "PATH")


def test_an_archive_is_taken_when_it_is_there_by_the_java_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment lies in a folder with a blank in its name; another Java of the same version has its own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my environment"))
    assert archive_options(JAVA) == ""
    archive = archive_for(JAVA)
    assert archive.is_relative_to(tmp_path)
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert shlex.split(archive_options(JAVA)) == [
        "-Xshare:auto",
        f"-XX:SharedArchiveFile={archive}",
    ]
    assert archive_options(OTHER) == ""
