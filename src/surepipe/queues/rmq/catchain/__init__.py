"""The causal log of signed entries, at one member.

In layers, each of which knows those below it: ``state.py``, ``storing.py``, ``receiving.py``, ``speaking.py``,
``asking.py``, and ``machine.py``, which is what a host sees.
"""

from __future__ import annotations

from surepipe.queues.rmq.catchain.machine import LogMachine
from surepipe.queues.rmq.catchain.options import FRAME_BYTES_MAX, LogOptions, Voice

__all__ = ["FRAME_BYTES_MAX", "LogMachine", "LogOptions", "Voice"]
