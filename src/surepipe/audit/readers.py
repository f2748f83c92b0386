"""Who reads each stream of a trace, and the rows of a stream told anew, once for each reader.

All readers of a stream get all of it, so each of them is judged as a channel of its own against what was sent. Its
rows are those of its lives; what senders tell, and what else nobody reads, belongs to each of them. A reader is
called what metrics call it: ``posts/mail`` is reader ``mail`` of pipe ``posts``. A trace without the word
``reader``, and one whose reader is named as its pipe, has the rows as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from surepipe.audit.settings import facts_of
from surepipe.audit.trace import Kind, Row

BEGAN = '"began":true'
"""In a row ``passed``: what the reader is behind was there before it began."""
BEGAN_LATER = (
    "reader {} began at {}, and no trace tells whether the {} before the first that came to it "
    "were there before"
)
_FROM_THE_START = frozenset(("", "earliest", "1"))
Speaker: TypeAlias = tuple[str, str]
"""Run and node: the readers of a stream have nodes of the same name."""
Place: TypeAlias = tuple[str, str]
"""Pipe and node of a row."""
Message: TypeAlias = tuple[int, int]
"""Epoch and seq."""


@dataclass
class StreamReaders:
    """The readers of the streams of a trace, from the rows ``start`` of their nodes."""

    _own: dict[Speaker, str] = field(default_factory=dict[Speaker, str])
    """What the pipe of each life that reads is called."""
    _streams: dict[str, str] = field(default_factory=dict[str, str])
    """The stream of each pipe, where that has another name."""
    _names: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Of each stream, what its readers are called."""
    _named: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """The same of each pipe."""
    _wordless: dict[Speaker, str] = field(default_factory=dict[Speaker, str])
    """The pipes of lives that tell no name, as those of older versions."""
    _starts: dict[str, str] = field(default_factory=dict[str, str])
    """Where those begin that don't read all."""
    first: dict[str, Message] = field(default_factory=dict[str, Message])
    """Of each channel of such a reader, the first message that is owed to it."""
    _told: set[str] = field(default_factory=set[str])
    """The channels of which it has told that itself; of others it is the first that came."""

    _found: dict[tuple[str, str, str], list[Place]] = field(
        default_factory=dict[tuple[str, str, str], list[Place]]
    )
    _readers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What was found of each stream: the same for all of its channels."""

    def see(self, row: Row) -> None:
        """A row ``start``, or ``passed``; others say nothing of this."""
        if row.kind == Kind.START:
            self._see_start(row)
        elif row.kind == Kind.PASSED and BEGAN in row.detail:
            for pipe, _ in self.places(row.run, row.node, row.pipe):
                last = (row.epoch, row.seq + 1)
                self.first[pipe] = max(self.first.get(pipe, last), last)
                self._told.add(pipe)
                self._starts.setdefault(pipe.partition("@")[0], "earliest")

    def came(self, pipe: str, message: Message) -> None:
        """This one was handed over, after all rows were seen."""
        if self.begins_at(pipe) and pipe not in self._told:
            self.first[pipe] = min(self.first.get(pipe, message), message)

    def _see_start(self, row: Row) -> None:
        self._found.clear()
        self._readers.clear()
        pipe, facts = row.pipe.partition("@")[0], facts_of(row)
        stream, reader = str(facts.get("stream", pipe)), facts.get("reader")
        if stream != pipe:
            self._streams[pipe] = stream
        if reader is None:
            if row.node.endswith("/receiver"):
                self._wordless[row.run, row.node] = pipe
            return
        # Behind the first @ is the producer, for whoever reads the name of a channel.
        own = str(reader).replace("@", "%40")
        name = pipe if own == pipe else f"{pipe}/{own}"
        self._own[row.run, row.node] = name
        self._names.setdefault(stream, set()).add(name)
        self._named.setdefault(pipe, set()).add(name)
        if (start := str(facts.get("start", ""))) not in _FROM_THE_START:
            self._starts[name] = start

    @property
    def are_plain(self) -> bool:
        """Every row stands where it belongs."""
        return not self._starts and all(names == {one} for one, names in self._names.items())

    def places(self, run: str, node: str, pipe: str) -> list[Place]:
        """Where what this node tells of a pipe belongs."""
        found = self._found.get((run, node, pipe))
        if found is None:
            found = self._found[run, node, pipe] = self._places(run, node, pipe)
        return found

    def _places(self, run: str, node: str, pipe: str) -> list[Place]:
        base, at, producer = pipe.partition("@")
        own = self._own.get((run, node))
        if own is None and (run, node) in self._wordless:
            own = self._former(base)
        if own is not None:
            return [(own + at + producer, f"{own}:{node}")]
        names = self._all_of(self._streams.get(base, base)) or [base]
        if names == [base]:
            return [(pipe, node)]
        return [(name + at + producer, f"{name}:{node}") for name in names]

    def _all_of(self, stream: str) -> list[str]:
        found = self._readers.get(stream)
        if found is None:
            found = self._readers[stream] = self._readers_of(stream)
        return found

    def _readers_of(self, stream: str) -> list[str]:
        wordless = {
            self._former(pipe)
            for pipe in set(self._wordless.values())
            if self._streams.get(pipe, pipe) == stream
        }
        return sorted(self._names.get(stream, set()) | wordless)

    def _former(self, pipe: str) -> str:
        """What a life is called that tells no name: as the others of its pipe, if they have all the same."""
        names = self._named.get(pipe, set())
        return next(iter(names)) if len(names) == 1 else pipe

    def begins_at(self, pipe: str) -> str:
        """Where the reader of this pipe begins that does not read all of its stream; empty for one that does."""
        return self._starts.get(pipe.partition("@")[0], "")

    def why_unknown(self, pipe: str, before: int) -> str:
        """Why nobody knows whether these many were lost to a reader; empty where none may be."""
        start = self.begins_at(pipe) if pipe not in self._told else ""
        return BEGAN_LATER.format(pipe.partition("@")[0], start, before) if start and before else ""


class RowsByReader:
    """The rows of a trace, each as often as there are readers whom it concerns. What was accepted before the first
    message that came to a reader which does not read all may have been there before it: it is ``unknown``."""

    def __init__(
        self,
        rows: Iterable[Row],
        readers: StreamReaders,
    ) -> None:
        self._rows = rows
        self._readers = readers

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            for pipe, node in self._readers.places(row.run, row.node, row.pipe):
                told = (
                    row
                    if (pipe, node) == (row.pipe, row.node)
                    else replace(row, pipe=pipe, node=node)
                )
                if row.kind == Kind.ACCEPTED and self._readers.begins_at(pipe):
                    yield from _cut(told, self._readers.first.get(pipe))
                else:
                    yield told


def _cut(row: Row, first: Message | None) -> Iterator[Row]:
    """An acceptance of messages of which those before ``first`` are unknown; all are where nothing came."""
    if first is None or (row.epoch, row.last) < first:
        yield replace(row, kind=Kind.UNKNOWN.value)
    elif (row.epoch, row.seq) >= first:
        yield row
    else:
        before = first[1] - row.seq
        digits = len(row.digests) // row.count * before
        yield replace(row, kind=Kind.UNKNOWN.value, count=before, digests=row.digests[:digits])
        yield replace(row, seq=first[1], count=row.count - before, digests=row.digests[digits:])
