"""The example ``clicks``: one file on both engines, sums by SQL, each click accounted for (spark SP-2, sp8)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import clicks
from surepipe.testing.servers import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_clicks_give_the_same_sums_on_both_engines(
    spark: SparkSession,
    tmp_path: Path,
    spark_redis: RedisServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its streams on Redis; the example raises when the engines do not agree, or a click is not there once."""
    assert clicks.main(tmp_path / "clicks", spark_redis.url, spark)
    said = capsys.readouterr().out
    assert said.count("3000 clicks = 2994 rows + 6 dead letters") == 2


def test_clicks_says_what_is_missing_for_spark(
    tmp_path: Path,
) -> None:
    """spark SP-22: JAVA_HOME names no Java; the part on actors runs, on SQLite, as one command."""
    said = subprocess.run(
        [sys.executable, clicks.__file__],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert "on actors: 3000 clicks = 2994 rows + 6 dead letters" in said
    assert "left out. JAVA_HOME is" in said
