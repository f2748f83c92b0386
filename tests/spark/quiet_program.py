"""Starts Spark on the bundled Java, reads a stream, and stops; a well-behaved start prints nothing of its own.

python -m tests.spark.quiet_program FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.stores import StorePlace
from tests.spark.streams import Streams

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    session = open_session(SparkOptions(master="local[1]", memory="512m", state_dir=folder))
    place = StorePlace(str(folder / "store.db"), level="process")
    streams = Streams(place).create("orders")
    streams.fill("orders", 5)
    # A session beside ours has no source registered: Spark finds the one that every installation brings.
    frame = session.newSession().read.format("surepipe").options(**streams.options("orders")).load()
    assert frame.count() == 5
    session.stop()
