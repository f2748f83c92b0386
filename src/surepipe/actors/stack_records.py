"""Which stack wrote a stream: a record beside it, for readers that are configured apart from the writers.

A writer notes its terms, in a position of the same store, before it writes; a reader compares them with its own
before it hands up the first message of each life of a writer, and leaves word where they differ, which the writer
finds when it appends. A stream without a record was written by an earlier version, and is taken as it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from surepipe.actors.runtime import Runtime
from surepipe.errors import ConfigurationError, StacksDiffer, StoreUnavailable
from surepipe.pipes.agreement import Terms, difference
from surepipe.storage.claims import numbered
from surepipe.store_api import (
    Batch,
    CommitPosition,
    Committed,
    Failed,
    Fenced,
    OtherStack,
    Owner,
    Position,
    Store,
    StreamInfo,
    Unavailable,
)

logger = logging.getLogger("surepipe")
LOOK_AGAIN_US = 5_000_000
STRETCHES_MAX = 16
TAG = 1
TRIES = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was written by lives above ``above``."""

    above: int
    terms: Terms


class StackRecords:
    """The records of one stream, as one end of a pipe reads and writes them. All calls may block."""

    def __init__(
        self,
        store: Store,
        stream: str,
        incarnation: int,
        terms: Terms,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._stream = stream
        self._incarnation = incarnation
        self._terms = terms
        self._runtime = runtime
        self._compared: dict[str, int] = {}
        self._words_seen = 0
        self._looked_at = 0
        self.told: Callable[[str], object] | None = None
        """What a writer does when a reader has left word."""

    # The writer.

    def begin_to_write(self, producer: str, holds_rows: Callable[[], bool]) -> None:
        """Note the terms of this writer. ``holds_rows``: whether its journal has messages that are not confirmed.

        Raises StacksDiffer where something that is still to be read, or to be written, is of other terms; and
        StoreUnavailable.
        """
        stretches = self._written_by(producer)
        known = stretches[-1].terms if stretches else None
        words = self._get(self._words, producer)
        self._words_seen = words.next if words is not None else 0
        self._looked_at = self._runtime.now()
        if known is not None and known.fits(self._terms):
            return
        above = 0
        if known is not None:
            above = self._end_of_former(producer, known, holds_rows)
        lines = [*stretches, Stretch(above, self._terms)][-STRETCHES_MAX:]
        self._put(self._notes, producer, [self._incarnation, *map(_line, lines)])

    def _end_of_former(self, producer: str, known: Terms, holds_rows: Callable[[], bool]) -> int:
        """The last life with the former terms. It must be over, and all that it wrote be read."""
        info = self._store.info(self._stream)
        if not isinstance(info, StreamInfo):
            raise StoreUnavailable(f"stream {self._stream!r}: {info}")
        is_empty = info.earliest == info.next
        is_read = bool(info.readers) and all(reader.next >= info.next for reader in info.readers)
        if not (is_empty or is_read) or holds_rows():
            raise StacksDiffer(
                f"stream {self._stream!r}: {producer!r} wrote it, or holds messages for it, as {known}; "
                f"this sender has {self._terms}. Let the readers read all of that first, with the former "
                "configuration at both ends; or give the stream another name"
            )
        return max((one.epoch for one in info.producers if one.producer == producer), default=0)

    def look_for_words(self, producer: str) -> None:
        """Tell what a reader said since the last look, now and then."""
        if self.told is None or self._runtime.now() - self._looked_at < LOOK_AGAIN_US:
            return
        self._looked_at = self._runtime.now()
        try:
            words = self._get(self._words, producer)
        except StoreUnavailable:
            return  # the append that comes now tells that
        if words is None or words.next <= self._words_seen:
            return
        self._words_seen = words.next
        reader, *terms = cast("list[str]", json.loads(words.state))
        met = Terms(*terms)
        if not self._terms.fits(met):
            self.told(f"reader {reader!r}: {difference(self._terms, met)}")

    # The reader.

    def compared(self, reader: str, batch: Batch) -> Batch | OtherStack | Unavailable:
        """The batch, if all that wrote it have the terms of this reader."""
        for entries in batch.entries:
            producer, epoch = entries.producer, entries.epoch
            if self._compared.get(producer) == epoch:
                continue
            try:
                stretches = self._written_by(producer)
            except StoreUnavailable as error:
                return Unavailable(str(error))
            terms = [stretch.terms for stretch in stretches if stretch.above < epoch]
            if terms and not terms[-1].fits(self._terms):
                self._leave_word(producer, reader)
                return OtherStack(
                    f"stream {self._stream!r}, written by {producer!r}: "
                    f"{difference(self._terms, terms[-1])}"
                )
            self._compared[producer] = epoch
        return batch

    def _leave_word(self, producer: str, reader: str) -> None:
        try:
            self._put(self._words, producer, [reader, self._terms.stack, self._terms.payloads])
        except (StoreUnavailable, ConfigurationError) as error:
            logger.warning("%s was not told that %s can't read it: %s", producer, reader, error)

    # The records.

    @property
    def _notes(self) -> str:
        return f"{self._stream}/stacks"

    @property
    def _words(self) -> str:
        return f"{self._stream}/stacks/readers"

    def _written_by(self, producer: str) -> list[Stretch]:
        """What this producer noted; nothing where the stream was made anew since."""
        found = self._get(self._notes, producer)
        if found is None:
            return []
        incarnation, *lines = json.loads(found.state)
        if incarnation != self._incarnation:
            return []
        return [Stretch(above, Terms(*terms)) for above, *terms in lines]

    def _get(self, stream: str, name: str) -> Position | None:
        found = self._store.get(stream, name)
        if isinstance(found, Unavailable):
            raise StoreUnavailable(f"{stream!r}: {found.detail or 'no answer'}")
        return found if isinstance(found, Position) else None

    def _put(self, stream: str, name: str, value: object) -> None:
        """Write a record. Two that write at once have different claims, and the later one reads first."""
        claimant = numbered(self._runtime.wall_ms(), 0)
        state = json.dumps(value).encode()
        for _ in range(TRIES):
            claimed = self._store.claim(stream, name, claimant)
            if isinstance(claimed, Fenced):  # nobody owns a record: whoever comes is the next
                claimant = claimed.by + 1
                continue
            if not isinstance(claimed, Owner):
                raise StoreUnavailable(f"{stream!r}: {claimed}")
            before = self._get(stream, name)
            following = before.next + 1 if before is not None else 1
            done = self._store.commit(
                CommitPosition(
                    stream, name, claimed.number, TAG, following, None, state, previous_tag=TAG
                )
            )
            if isinstance(done, Committed):
                return
            if isinstance(done, Failed):
                raise ConfigurationError(f"{stream!r}: {done.reason}")
        raise StoreUnavailable(f"{stream!r}: the record could not be written")


def _line(stretch: Stretch) -> list[object]:
    return [stretch.above, stretch.terms.stack, stretch.terms.payloads]
