"""reliable: exactly-once, in the order of sending, over any route with a way back, in one layer.

The retry engine of multi-unconfirmed and the ordered receiver of continuous-index in one, joined by a link: a
random number that the sender draws whenever it can't be sure what its receiver knows, offered in Open and accepted
in Opened. Only frames of the link that both know are processed, so nothing that an earlier link or an earlier
receiver said can do harm, whenever it arrives. The route may lose, repeat, reorder and delay without bound.

Messages are settled once, in order, with no hole. A volatile sender loses what it has not got confirmed when it
crashes, a volatile receiver is given again what it settled and could not confirm; a journal and a durable cursor
(committed with the effect) take away even that.
"""

from __future__ import annotations

from surepipe.pipes.reliable_receiver import Receiver
from surepipe.pipes.reliable_sender import Sender

__all__ = ["Receiver", "Sender"]
