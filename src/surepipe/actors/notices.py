"""Notices to the people who run a pipe. They name messages by identity and never show payloads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from surepipe.actors.consuming.coroutines import refuse_unrun, require_plain
from surepipe.core.callables import require_call
from surepipe.core.effects import Notice, NoticeKind, Ranges
from surepipe.errors import ConfigurationError

logger = logging.getLogger("surepipe")


@dataclass(frozen=True, slots=True)
class PipeNotice:
    """A notice of one end of a pipe, with the exact messages that it concerns. ``own_name``: of the reader or
    producer, where it has another one than its stream. ``producer``: whose messages these are, where they come
    straight out of a stream; epoch and number are its own."""

    pipe: str
    end: str
    kind: NoticeKind
    epoch: int
    ranges: Ranges
    detail: str
    own_name: str = ""
    producer: str = ""

    def __str__(self) -> str:
        spans = ", ".join(
            f"{first}" if first == last else f"{first} to {last}" for first, last in self.ranges
        )
        whose = f", producer {self.producer!r}" if self.producer not in ("", self.pipe) else ""
        where = f"{whose}, epoch {self.epoch}" if self.epoch else ""
        are_one = len(self.ranges) == 1 and self.ranges[0][0] == self.ranges[0][1]
        which = f", message{'' if are_one else 's'} {spans}" if spans else ""
        detail = f": {self.detail}" if self.detail else ""
        name = observed_name(self.pipe, self.own_name)
        return f"pipe {name} ({self.end}): {self.kind}{where}{which}{detail}"


def observed_name(pipe: str, own_name: str = "") -> str:
    """What an end is called where somebody looks on: one stream may have several readers in one process, and
    several producers."""
    return pipe if own_name in ("", pipe) else f"{pipe}/{own_name}"


NoticeCallback: TypeAlias = Callable[[PipeNotice], object]


def log_notice(notice: PipeNotice) -> None:
    """What happens to notices by default: a line of the logger ``surepipe``."""
    level = logging.INFO if notice.kind in (NoticeKind.UP, NoticeKind.DOWN) else logging.WARNING
    logger.log(level, "%s", notice)


class Notices:
    """Passes the notices of one end to a callback, which can't do the end any harm."""

    def __init__(self, pipe: str, end: str, callback: NoticeCallback, own_name: str = "") -> None:
        self._pipe = pipe
        self._own_name = "" if own_name == pipe else own_name
        self._end = end
        require_plain(
            f"notices of pipe {pipe}",
            callback,
            "it is called on a thread of the pipe; give a plain function, which may call "
            "loop.call_soon_threadsafe",
        )
        require_call(f"notices of pipe {pipe}", callback, "notice", ConfigurationError)
        self._callback = callback

    def tell(self, notice: Notice) -> None:
        """Call back. What the callback raises is logged."""
        told = PipeNotice(
            *(self._pipe, self._end, notice.kind, notice.epoch, notice.ranges, notice.detail),
            *(self._own_name, notice.producer),
        )
        try:
            refuse_unrun(self._callback(told))
        except BaseException:  # SystemExit too: it would end the actor, and nobody's process
            logger.exception("the notices callback of pipe %s raised for: %s", self._pipe, told)
