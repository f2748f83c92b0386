"""A node of a replicated queue through all epochs.

In layers, each of which knows those below it: ``state.py``, ``opening.py``, ``records.py``, ``changing.py``,
``asking.py``, ``handing_over.py``, and ``machine.py``, which is what a host sees.
"""

from __future__ import annotations

from surepipe.queues.rmq.node.machine import NodeMachine

__all__ = ["NodeMachine"]
