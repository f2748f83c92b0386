"""Whether a pipe, or an end of one, has nothing to do at present, though more may come."""

from __future__ import annotations

from surepipe.actors.pipe import Pipe
from surepipe.actors.remote_ends import PipeReceiver, PipeSender
from surepipe.actors.stream_ends import StreamReceiver, StreamSender
from surepipe.errors import StoreUnavailable


def has_handled_all(face: Pipe | PipeReceiver | StreamReceiver) -> bool:
    """True when consumers have nothing in work that arrived."""
    works = face.receiver.works
    return not works.has_unhandled and not works.running()


def is_at_rest(face: Pipe | PipeSender | StreamSender) -> bool:
    """True when all that was sent is through, though the pipe still takes messages."""
    if face.sender.intake.waiting or not face.sender.asked_at_rest():
        return False
    return not isinstance(face, Pipe) or (has_handled_all(face) and face.receiver.asked_at_rest())


def has_caught_up(face: StreamReceiver) -> bool:
    """False also while the store does not say where the stream ends.

    With boundary ``handed`` or ``before`` the position is at the end before the handler is: who ended then would
    take what still waits for it along, and it is never read again.
    """
    try:
        return face.catch_up(0.0) and has_handled_all(face)
    except StoreUnavailable:
        return False
