"""Routes between processes."""

from __future__ import annotations

from surepipe.actors.links.connection import LinkLimits
from surepipe.actors.links.security import MutualTls, OneMachine, SharedKey
from surepipe.actors.links.tcp import TcpRoute

__all__ = ["LinkLimits", "MutualTls", "OneMachine", "SharedKey", "TcpRoute"]
