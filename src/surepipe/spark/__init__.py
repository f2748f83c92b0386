"""Spark: the engine for more than one machine, an extra of its own (``pip install 'surepipe[spark]'``).

Loading this package loads no Spark; its modules do, each when it is imported.
"""
