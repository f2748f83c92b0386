"""Runs of payloads that know their size, so that a message is measured once and not at every station.

The pass over a run that adds up its bytes costs as much as everything else that a machine does per message. It is
done where messages come in: at the intake, or by the codec, which has read the lengths anyway.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate


class Payloads(list[bytes]):
    """A run with its total bytes and its longest payload.

    It is never changed once it is made: stations keep and pass on the very same object, on the local route from
    one end to the other. Whoever wants to change a run makes a plain list of it.
    """

    __slots__ = ("longest", "size_bytes")

    def __init__(self, payloads: Iterable[bytes], size_bytes: int, longest: int) -> None:
        super().__init__(payloads)
        self.size_bytes = size_bytes
        self.longest = longest

    @property
    def is_uniform(self) -> bool:
        """True when all payloads are of one length."""
        return self.size_bytes == self.longest * len(self)

    def part(self, start: int, end: int) -> Payloads:
        """The payloads from ``start`` to before ``end``; measured anew only where lengths differ.

        ``longest`` of a part may be that of the whole run.
        """
        payloads = self[start:end]
        if self.is_uniform:
            return Payloads(payloads, self.longest * len(payloads), self.longest)
        return Payloads(payloads, sum(map(len, payloads)), self.longest)

    def within(self, size_bytes: int, *, at_least_one: bool) -> Payloads:
        """The longest beginning within so many bytes, or the first payload alone."""
        if self.is_uniform and self.longest:
            count = min(max(size_bytes, 0) // self.longest, len(self))
        else:
            count = bisect_right(list(accumulate(map(len, self))), size_bytes)
        if not count and at_least_one:
            count = 1
        return self.part(0, count)


NOTHING = Payloads((), 0, 0)


def sized(payloads: Sequence[bytes]) -> Payloads:
    """These payloads as a run that knows its size; the same object when it is one."""
    if isinstance(payloads, Payloads):
        return payloads
    lengths = set(map(len, payloads))
    longest = max(lengths, default=0)
    size = longest * len(payloads) if len(lengths) < 2 else sum(map(len, payloads))
    return Payloads(payloads, size, longest)


def size_of(payloads: Sequence[bytes]) -> int:
    """The bytes of these payloads, all together."""
    if isinstance(payloads, Payloads):
        return payloads.size_bytes
    return sum(map(len, payloads))


def part_of(payloads: Sequence[bytes], start: int, end: int) -> Sequence[bytes]:
    """The payloads from ``start`` to before ``end``; all of them are given back as they are."""
    if start <= 0 and end >= len(payloads):
        return payloads
    return payloads.part(start, end) if isinstance(payloads, Payloads) else payloads[start:end]


def joined(runs: Sequence[Payloads]) -> Payloads:
    """One run after the other, as one; a single one is given back as it is."""
    if len(runs) == 1:
        return runs[0]
    payloads: list[bytes] = []
    size = longest = 0
    for run in runs:
        payloads += run
        size += run.size_bytes
        longest = max(longest, run.longest)
    return Payloads(payloads, size, longest)
