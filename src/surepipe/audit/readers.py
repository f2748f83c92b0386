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
LET_GO = "the stream's retention let {} go before reader {} began, which reads from the earliest on"
NEVER_MET = (
    "reader {} began when the stream had let its beginning go, and no trace tells whether the {} that never "
    "came to it were there before"
)
SOMEWHERE = "a place that no trace tells"
"""Where a reader began whose trace has no word of its ``start``, as those of older versions."""
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
    let_go: dict[str, Message] = field(default_factory=dict[str, Message])
    """Of each channel of a reader that was to read all of its stream, and began when the beginning was gone: the
    last message that was gone."""
    _late: set[str] = field(default_factory=set[str])
    """These readers."""
    _reads_all: set[str] = field(default_factory=set[str])
    """The readers that tell that they read from the earliest on."""
    _began_us: dict[str, int] = field(default_factory=dict[str, int])
    """When the first life of each reader began."""

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
                self._see_beginning(pipe, row)

    def _see_beginning(self, pipe: str, row: Row) -> None:
        reader = pipe.partition("@")[0]
        if reader in self._reads_all:
            self._late.add(reader)
            self.let_go[pipe] = max(self.let_go.get(pipe, (0, 0)), (row.epoch, row.seq))
            return
        first = (row.epoch, row.seq + 1)
        self.first[pipe] = max(self.first.get(pipe, first), first)
        if self._starts.setdefault(reader, SOMEWHERE) != SOMEWHERE:
            self._told.add(pipe)

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
        self._began_us[name] = min(self._began_us.get(name, row.time_us), row.time_us)
        if (start := str(facts.get("start", ""))) not in _FROM_THE_START:
            self._starts[name] = start
        elif start:
            self._reads_all.add(name)

    @property
    def are_plain(self) -> bool:
        """Every row stands where it belongs."""
        is_named_so = all(names == {one} for one, names in self._names.items())
        return is_named_so and not self._starts and not self._streams

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

    def is_first(self, pipe: str) -> bool:
        """Whether no other reader of its stream had begun before the reader of this channel, as the traces tell.
        What another one had read a stream may let go."""
        own = pipe.partition("@")[0]
        since_us = self._began_us.get(own, 0)
        names = next((names for names in self._names.values() if own in names), set[str]())
        return all(self._began_us[name] >= since_us for name in names)

    def why_let_go(self, pipe: str, missing: int) -> str:
        """What became of these, which are all that a channel lacks, and were gone when its reader began."""
        return LET_GO.format(missing, pipe.partition("@")[0])

    def why_unmet(self, pipe: str, missing: int) -> str:
        """Why nobody knows whether these were lost, of a channel of which its reader never met a message; else
        empty."""
        reader = pipe.partition("@")[0]
        is_unmet = missing and reader in self._late and pipe not in self.let_go
        return NEVER_MET.format(reader, missing) if is_unmet else ""

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
