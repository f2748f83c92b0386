"""The ghost state of a checked queue: what the contract says is in it, whatever the queue itself
says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias

from surepipe.pipes.message_queue.contract import M, MessageForm, Run
from surepipe.pipes.message_queue.shelves import CHUNK_MAX, Row

Span: TypeAlias = tuple[tuple[M, ...], tuple[bytes, ...]]
"""A single message with its payload, or no message and the payloads of a run."""


class Ghost(Generic[M]):
    """Members as they were handed in, in spans: one per message, or one per run (at most 1,024
    messages).
    """

    __slots__ = ("_form", "_spans", "count", "high", "size_bytes")

    def __init__(self, form: MessageForm[M], messages: Iterable[M] = (), high: int = -1) -> None:
        self._form = form
        self._spans: Row[Span[M]] = Row()
        self.count = 0
        self.size_bytes = 0
        self.high = high
        for message in messages:
            self.add(form.number(message), message)

    def add(self, number: int, message: M) -> None:
        """The message was accepted."""
        payload = self._form.payload(message)
        self._spans.put(number, ((message,), (payload,)))
        self.count += 1
        self.size_bytes += len(payload)
        self.high = max(self.high, number)

    def add_run(self, first: int, payloads: Sequence[bytes]) -> None:
        """These consecutive messages were accepted."""
        for begin in range(0, len(payloads), CHUNK_MAX):
            span = tuple(payloads[begin : begin + CHUNK_MAX])
            self._spans.put(first + begin, ((), span))
            self.size_bytes += sum(map(len, span))
        self.count += len(payloads)
        self.high = max(self.high, first + len(payloads) - 1)

    def remove_through(self, number: int) -> int:
        """Everything numbered up to ``number`` was deleted; how many that were."""
        spans = self._spans
        removed = whole = 0
        for place in range(spans.start, len(spans.keys)):
            first, (messages, payloads) = spans.keys[place], spans.values[place]
            gone = payloads[: max(number - first + 1, 0)]
            if not gone:
                break
            removed += len(gone)
            self.size_bytes -= sum(map(len, gone))
            if len(gone) < len(payloads):
                spans.keys[place] = first + len(gone)
                spans.values[place] = (messages, payloads[len(gone) :])
                break
            whole += 1
        spans.cut(whole)
        self.count -= removed
        return removed

    def holds(self, number: int) -> bool:
        """True when a member has this number."""
        spans = self._spans
        place = spans.place_of(number)
        return place >= spans.start and number - spans.keys[place] < len(spans.values[place][1])

    def first_held(self, first: int, last: int) -> int | None:
        """The least member's number in first..last, or None."""
        for run in self.runs(first - 1, 1):
            return run.first if run.first <= last else None
        return None

    def least(self) -> int:
        """The least member's number; there must be a member."""
        return self._spans.keys[self._spans.start]

    def member(self, number: int) -> M:
        """The member with this number; there must be one."""
        place = self._spans.place_of(number)
        messages, payloads = self._spans.values[place]
        if messages:
            return messages[0]
        build = self._form.builder("enqueue_run")
        return build(number, payloads[number - self._spans.keys[place]])

    def members(self, after: int, limit: int) -> list[M]:
        """At most ``limit`` members numbered above ``after``, in order."""
        members = self._members(after)
        return [message for _, (_, message) in zip(range(limit), members, strict=False)]

    def contents(self) -> Mapping[int, M]:
        """All members by number, in order."""
        return dict(self._members(-1))

    def runs(self, after: int, limit: int) -> list[Run]:
        """At most ``limit`` members numbered above ``after``, as runs that can't be made longer."""
        found: list[Run] = []
        for first, _, payloads in self._spans_above(after):
            if limit <= 0:
                break
            part = payloads[:limit]
            limit -= len(part)
            if found and found[-1].last + 1 == first:
                found[-1] = Run(found[-1].first, found[-1].payloads + part)
            else:
                found.append(Run(first, part))
        return found

    def _members(self, after: int) -> Iterator[tuple[int, M]]:
        for first, messages, payloads in self._spans_above(after):
            if messages:
                yield first, messages[0]
            else:
                build = self._form.builder("enqueue_run")
                for number, payload in enumerate(payloads, first):
                    yield number, build(number, payload)

    def _spans_above(self, after: int) -> Iterator[tuple[int, tuple[M, ...], tuple[bytes, ...]]]:
        spans = self._spans
        for place in range(max(spans.place_of(after), spans.start), len(spans.keys)):
            first, (messages, payloads) = spans.keys[place], spans.values[place]
            skip = max(after + 1 - first, 0)
            if skip < len(payloads):
                yield first + skip, messages, payloads[skip:]
