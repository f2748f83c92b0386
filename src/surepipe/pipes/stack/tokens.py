"""Carrier messages that wait for their one answer.

A message of the carrier brings a run of messages of the layer above it. It is answered *settled* when all of
that run is settled, by whichever copy, or *refused* when part of it will not be kept. Remembering each carrier
message until then is all that a layer needs to give exactly one answer, copies and overlaps included.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.pipes.stack.layers import Token


@stateful
class WaitingTokens:
    """Tokens with the run that each waits for, of one epoch, ordered by the end of the run."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Token]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, first: int, last: int, token: Token | None) -> None:
        """This token waits for first..last. None (the frame came from the raw route) waits for nothing."""
        if token is not None:
            insort(self._waiting, (last, first, token))

    def pop_through(self, cum: int) -> list[Token]:
        """Everything up to ``cum`` is settled: the tokens that waited for no more than that."""
        end = bisect_left(self._waiting, (cum + 1,))
        done = [token for _, _, token in self._waiting[:end]]
        del self._waiting[:end]
        return done

    def pop_settled(self, settled: RangeSet) -> list[Token]:
        """The tokens whose whole run is in ``settled``."""
        return self._pop(settled.covers)

    def pop_outside(self, in_work: RangeSet) -> list[Token]:
        """The tokens that wait for nothing that is in work."""
        return self._pop(lambda first, last: not in_work.within(first, last))

    def pop_older(self, epoch: int, least: int) -> list[Token]:
        """The tokens of a carrier's epoch below this one that wait for ``least`` or something above it."""
        return self._pop_tokens(lambda _first, last, token: last >= least and token[0] < epoch)

    def pop_overlapping(self, first: int, last: int) -> list[Token]:
        """The tokens that wait for any of first..last, because it is refused."""
        return self._pop(lambda start, end: start <= last and first <= end)

    def pop_all(self) -> list[Token]:
        """All tokens: what they wait for was dropped."""
        return self._pop(lambda _first, _last: True)

    def _pop(self, leaves: Callable[[int, int], bool]) -> list[Token]:
        return self._pop_tokens(lambda first, last, _token: leaves(first, last))

    def _pop_tokens(self, leaves: Callable[[int, int, Token], bool]) -> list[Token]:
        popped: list[Token] = []
        kept: list[tuple[int, int, Token]] = []
        for entry in self._waiting:
            last, first, token = entry
            if leaves(first, last, token):
                popped.append(token)
            else:
                kept.append(entry)
        self._waiting = kept
        return popped
