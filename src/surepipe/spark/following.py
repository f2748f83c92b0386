"""What the driver does: look how streams stand, decide how far the next batch goes, and keep the position."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surepipe.core.store_requests import (
    CommitPosition,
    Identity,
    Kept,
    NoStream,
    StreamInfo,
    partition_of,
)
from surepipe.core.store_requests import FencedOut as FencedBy
from surepipe.errors import ConfigurationError, Fenced, StoreReset
from surepipe.spark.ranges import EntryRange, Offsets, ReadingPlace, key_of
from surepipe.spark.source_options import SourceOptions, WantedEntries
from surepipe.spark.stores import OpenStore, StorePlace, asked, claimed, stored_position

logger = logging.getLogger("surepipe")
LIVES_MAX = 1_000_000
"""A life counts up from its incarnation, and two random incarnations are never this close."""


@dataclass(frozen=True, slots=True)
class StreamNow:
    """A stream, or a partition of one, as it stands now."""

    stream: str
    partition: int
    name: str
    info: StreamInfo

    @property
    def key(self) -> str:
        return key_of(self.stream, self.partition)


class Follower:
    """Follows the streams of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.place: StorePlace = options.place
        self._targets: dict[str, int] | None = None
        self._owners: dict[str, int] = {}

    @property
    def store(self) -> OpenStore:
        """The store; opened when it is first needed."""
        return self.place.store()

    # The streams.

    def look(self) -> list[StreamNow]:
        """All streams as they stand, in the order of their keys.

        Raises ConfigurationError for one that does not exist, unless on_missing=wait.
        """
        return [found for stream in self.options.streams for found in self._look_at(stream)]

    def _look_at(self, stream: str) -> Iterator[StreamNow]:
        info = self._info(stream)
        if info is not None:
            yield StreamNow(stream, 0, stream, info)
            return
        partition = 0
        while (part := self._info(partition_of(stream, partition))) is not None:
            yield StreamNow(stream, partition, partition_of(stream, partition), part)
            partition += 1
        if partition == 0 and self.options.on_missing == "stop":
            raise ConfigurationError(
                f"stream {stream!r} does not exist in {self.place}: create it first, correct the name, or say "
                "on_missing=wait"
            )

    def _info(self, name: str) -> StreamInfo | None:
        outcome = asked(lambda: _unless_missing(self.store, name), f"looking at {name}", self.place)
        return outcome if isinstance(outcome, StreamInfo) else None

    # Offsets.

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins: at the reader's position, else where ``start`` says."""
        return {found.key: self._beginning(found) for found in self.look()}

    def _beginning(self, found: StreamNow) -> ReadingPlace:
        place = self._stored_place(found) or self._started(found)
        if self.options.reader:
            self._keep(found.name, place)
        return place

    def _started(self, found: StreamNow) -> ReadingPlace:
        info, index = found.info, self._first(found, 1)
        anchor = self._identity(found.name, index - 1)
        return ReadingPlace(index, info.incarnation, info.incarnation, anchor)

    def _first(self, found: StreamNow, wanted: int) -> int:
        """The index where ``start`` says to begin, not below what is wanted."""
        info, start = found.info, self.options.start
        index = max(wanted, {"earliest": 1, "latest": info.next}.get(str(start)) or int(start))
        if wanted == 1 and index > info.next:
            raise ConfigurationError(
                f"start is {index}, and stream {found.name} has no entry {index - 1} yet: its next is {info.next}"
            )
        if index < info.earliest:
            self._tell_trimmed(found.name, index, info.earliest)
        return max(index, info.earliest)

    def whole(self, wanted: WantedEntries) -> list[EntryRange]:
        """What a batch query reads: from ``start`` to what is there now, as far as it is wanted."""
        return [
            EntryRange(found.name, found.stream, found.partition, first, stop, life, life)
            for found in self.look()
            if wanted.has(found.stream, found.partition)
            for stop in [min(found.info.next, wanted.last + 1)]
            for first in [self._first(found, wanted.first)]
            for life in [found.info.incarnation]
            if first < stop
        ]

    def ends(self) -> Offsets:
        return {
            found.key: ReadingPlace(found.info.next, found.info.incarnation, found.info.incarnation)
            for found in self.look()
        }

    def _tell_trimmed(self, name: str, first: int, earliest: int) -> None:
        what = f"entries {first} to {earliest - 1} of stream {name} are trimmed"
        if self.options.on_trimmed == "stop":
            raise StoreReset(
                f"{what}, and a query without them would begin in the middle: say start={earliest}, or "
                "on_trimmed=skip"
            )
        logger.warning("%s, and are skipped", what)

    def _identity(self, name: str, index: int) -> Identity | None:
        if index < 1:
            return None
        outcome = asked(lambda: self.store.identify(name, index), f"looking at {name}", self.place)
        return outcome if isinstance(outcome, Identity) else None

    def latest(self, start: Offsets, rows_max: int | None) -> Offsets:
        """How far the batch goes that begins at ``start``: no more rows than that, evenly over the streams.

        A stream that ``start`` does not have, and one that begins anew, only get their place in this batch; what
        they hold is read by the next one, so that a batch that is done again reads the same.
        """
        found = self.look()
        places = {each.key: self._going_on(each, start.get(each.key)) for each in found}
        ends = {
            each.key: self._end(each) for each in found if start.get(each.key) == places[each.key]
        }
        lags = {key: max(0, end - places[key].next) for key, end in ends.items()}
        shares = shared_out(lags, rows_max)
        for each in found:
            if share := shares.get(each.key):
                following = places[each.key].next + share
                anchor = self._identity(each.name, following - 1)
                places[each.key] = places[each.key].at(following, anchor)
        return {**start, **places}

    def _end(self, found: StreamNow) -> int:
        if self._targets is None:
            return found.info.next
        return min(found.info.next, self._targets.get(found.key, 0))

    def _going_on(self, found: StreamNow, place: ReadingPlace | None) -> ReadingPlace:
        """Where the stream goes on: at its place, or anew when a policy says so."""
        if place is None:
            return self._beginning(found)
        info = found.info
        if info.incarnation != place.incarnation:
            what = (
                f"it was made anew (incarnation {info.incarnation}, and the query read {place.incarnation} up to "
                f"entry {place.next - 1})"
            )
            self._stop_unless(self.options.on_reset, "on_reset", found.name, what)
            return self._anew(found, info.incarnation)
        if what := self._divergence(found, place):
            self._stop_unless(self.options.on_diverged, "on_diverged", found.name, what)
            return self._anew(found, place.life + 1)
        if place.next < info.earliest:
            self._tell_trimmed(found.name, place.next, info.earliest)
        return place

    def _divergence(self, found: StreamNow, place: ReadingPlace) -> str:
        """What shows that the store went back since the place was reached (S-12); empty when nothing does."""
        if place.next > found.info.next:
            gone = f"entries {found.info.next} to {place.next - 1}"
            return f"the store went back: {gone} were read and are not there"
        if place.anchor is None or place.next <= found.info.earliest:
            return ""
        now = self._identity(found.name, place.next - 1)
        if now in (None, place.anchor):
            return ""
        return f"entry {place.next - 1} is {now} and was {place.anchor}: the store went back and grew again"

    def _stop_unless(self, policy: str, option: str, name: str, what: str) -> None:
        if policy == "stop":
            raise StoreReset(f"stream {name}: {what}; find out why, or say {option}=earliest")
        logger.warning("stream %s: %s; it is read again from its earliest entry", name, what)

    def _anew(self, found: StreamNow, life: int) -> ReadingPlace:
        return ReadingPlace(found.info.earliest, found.info.incarnation, life)

    def go_no_further(self) -> None:
        """From now on behave as if nothing came behind what is there now (a run to the end)."""
        self._targets = {found.key: found.info.next for found in self.look()}

    def ranges(self, start: Offsets, end: Offsets) -> list[EntryRange]:
        """What lies between two offsets."""
        return [
            EntryRange(
                *_split(found),
                place.next,
                end[found.key].next,
                *_lives(place),
                end[found.key].anchor,
            )
            for found in self.look()
            if (place := start.get(found.key))
            and found.key in end
            and end[found.key].life == place.life
            and end[found.key].next > place.next
        ]

    # The reader's position.

    def _stored_place(self, found: StreamNow) -> ReadingPlace | None:
        reader = self.options.reader
        if reader is None:
            return None
        outcome = stored_position(self.place, found.name, reader, f"finding reader {reader}")
        if outcome is None:
            return None
        incarnation = found.info.incarnation
        if not 0 <= outcome.tag - incarnation < LIVES_MAX:
            incarnation = outcome.tag
        return self._going_on(
            found, ReadingPlace(outcome.next, incarnation, outcome.tag, outcome.anchor)
        )

    def keep(self, end: Offsets) -> None:
        """Commit the reader's positions, and let go what lies behind them if the query trims.

        Spark calls this one batch late, so what the last batch wrote may come again; the sink skips it.

        Raises Fenced when another query has taken over the reader's name.
        """
        for found in self.look():
            place = end.get(found.key)
            if place is None or place.incarnation != found.info.incarnation:
                continue
            if self.options.reader:
                self._keep(found.name, place)
            if self.options.trim and place.next > 1:
                outcome = self.store.trim(found.name, place.next - 1)
                logger.debug("trimming %s: %s", found.name, outcome)

    def _keep(self, name: str, place: ReadingPlace) -> None:
        reader = str(self.options.reader)
        previous = stored_position(self.place, name, reader, f"finding reader {reader}")
        request = CommitPosition(
            name,
            reader,
            self._owner(name, reader),
            place.life,
            place.next,
            place.anchor,
            previous_tag=previous.tag if previous else None,
        )
        outcome = asked(lambda: self.store.commit(request), f"committing {reader}", self.place)
        if isinstance(outcome, FencedBy):
            raise Fenced(
                f"another query has taken over reader {reader!r} of stream {name} (it is owner {outcome.by}): "
                "this one stops; give each query a reader of its own"
            )
        if isinstance(outcome, Kept):
            logger.info("the position of %s on %s is further already", reader, name)

    def _owner(self, name: str, reader: str) -> int:
        if name not in self._owners:
            self._owners[name] = claimed(self.place, name, reader, f"claiming {reader}")
        return self._owners[name]


def _split(found: StreamNow) -> tuple[str, str, int]:
    return found.name, found.stream, found.partition


def _lives(place: ReadingPlace) -> tuple[int, int]:
    return place.incarnation, place.life


def _unless_missing(store: OpenStore, name: str) -> object:
    outcome = store.info(name)
    return None if isinstance(outcome, NoStream) else outcome


def shared_out(lags: Mapping[str, int], rows_max: int | None) -> dict[str, int]:
    """How many rows of each stream are read: all, or as evenly as it goes within the limit."""
    if rows_max is None or sum(lags.values()) <= rows_max:
        return dict(lags)
    shares: dict[str, int] = {}
    left, waiting = rows_max, sorted(lags, key=lambda key: (lags[key], key))
    for number, key in enumerate(waiting):
        shares[key] = min(lags[key], -(-left // (len(waiting) - number)))
        left -= shares[key]
    return shares
