"""Starting a streaming query, and starting it again when Spark's process of a source was late.

Spark gives the process of each source ten seconds to answer, and no setting changes that. On a busy machine that
may be too little. Such a query has read and written nothing, so it is started once more, on the same checkpoint.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STARTS = 3
_LOOKS_EVERY_S = 0.05


def start(writer: DataStreamWriter) -> StreamingQuery:
    """``writer.start()``; gives the query when its sources have answered, or it ended for another reason.

    The third start is the last one, and is given as it is. Raises what Spark raises.
    """
    for _ in range(STARTS - 1):
        query = writer.start()
        if not _came_too_late(query):
            return query
    return writer.start()


def _came_too_late(query: StreamingQuery) -> bool:
    try:
        while query.isActive and str(query.status["message"]).startswith("Initializing"):
            time.sleep(_LOOKS_EVERY_S)
    except BaseException:  # nobody else knows the query yet
        query.stop()
        raise
    return "worker failed to connect back" in str(query.exception())
