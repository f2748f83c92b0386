"""Lets Spark find the data source "surepipe" by itself: it looks for modules whose names begin with ``pyspark_``.

On one machine that is enough; on a cluster, and for older sessions, ``surepipe.spark.session.prepare_session``
registers it and ships the code.
"""

from surepipe.spark.source import SurepipeSource as DefaultSource

__all__ = ["DefaultSource"]
