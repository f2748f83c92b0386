"""Surroundings for programs that start a Java: it ends before its optimising compiler has earned what it costs.

The variable is one that every ``java`` reads by itself: drivers, masters, workers, executors. It halves what the
start of a driver costs, and changes nothing of what is done. All take the archive of Spark's classes where one was
made (``surepipe.spark.class_archive``); a Java that it does not fit says nothing about that.
"""

from __future__ import annotations

import os
from functools import cache

from surepipe.spark.java import archive_options, find_java

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"


def surroundings(**further: str) -> dict[str, str]:
    """The environment of this process, the options of a Java that ends soon, and more."""
    return {**os.environ, "JDK_JAVA_OPTIONS": f"{OPTIONS} {_archive()}", **further}


@cache
def _archive() -> str:
    return archive_options(find_java())
