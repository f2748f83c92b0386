"""Audits on Spark: the judgement of ``surepipe.auditing`` over logs of any size, and alarms for live streams.

Loading this package loads no Spark; its modules do.
"""
