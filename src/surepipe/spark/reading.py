"""What an executor does: read ranges of entries, whole pages at a time, and see that none is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from surepipe.core.store_requests import Ahead, Empty, Identity, Reset, Trimmed
from surepipe.errors import StoreReset
from surepipe.spark.arrow import RecordBatch, Schema
from surepipe.spark.columns import PageCut, RangeFacts, cut_of, page_batch, record_batch
from surepipe.spark.ranges import EntryRange
from surepipe.spark.source_options import SourceOptions
from surepipe.spark.stores import OpenStore, asked
from surepipe.storage.pages import RawBatch, RawPage

logger = logging.getLogger("surepipe")
READ_ROWS = 65_536
READ_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class RangeReader:
    """Reads ranges of one store into record batches."""

    options: SourceOptions
    schema: Schema

    def read(self, ranges: Sequence[EntryRange]) -> Iterator[RecordBatch]:
        """The entries of all ranges, in order.

        Raises StoreReset for entries that are gone (unless an option says to go on), StoreUnavailable when the
        store stays away, ConfigurationError when it refuses.
        """
        store = self.options.place.store()
        for each in ranges:
            yield from self._range(store, each)

    def _range(self, store: OpenStore, whole: EntryRange) -> Iterator[RecordBatch]:
        named = RangeFacts(whole.stream, whole.partition, whole.life)
        index = whole.start
        while index < whole.stop:
            found = self._ask(store, whole, index)
            if isinstance(found, int):
                index = found
                continue
            cuts = list(self._cuts(found.pages, whole, index))
            index = cuts[-1].index + cuts[-1].count
            if index >= whole.stop:
                self._check_end(cuts[-1], whole)
            made = page_batch if self.options.rows == "pages" else record_batch
            yield made(cuts, named, self.schema)

    def _ask(self, store: OpenStore, whole: EntryRange, index: int) -> RawBatch | int:
        """The next pages, or the index where reading goes on without them."""
        wanted = min(whole.stop - index, READ_ROWS)
        outcome: object = asked(
            lambda: store.read_pages(whole.name, index, wanted, READ_BYTES, whole.incarnation),
            f"reading {whole}",
            self.options.place,
        )
        match outcome:
            case RawBatch():
                return outcome
            case Trimmed(earliest):
                return self._gone(store, whole, index, min(earliest, whole.stop))
            case Reset(incarnation):
                what = f"the stream was made anew (incarnation {incarnation})"
                return self._given_up(whole, index, what, self.options.on_reset, "on_reset")
            case Empty(next=following) | Ahead(next=following):
                what = f"the store went back: its next index is {following}"
                return self._given_up(whole, index, what, self.options.on_diverged, "on_diverged")
            case _:
                raise AssertionError(f"no outcome of reading pages: {outcome!r}")

    def _gone(self, store: OpenStore, whole: EntryRange, index: int, stop: int) -> int:
        """Behind what the stream itself says that it begins with, somebody else has removed them."""
        told = asked(lambda: store.info(whole.name), f"asking {whole}", self.options.place)
        if told.earliest <= index:
            self._hole(whole, index, stop)
            return stop
        return self._trimmed(whole, index, stop)

    def _trimmed(self, whole: EntryRange, index: int, gone: int) -> int:
        what = f"entries {index} to {gone - 1} of stream {whole.name} were trimmed before they were read"
        if self.options.on_trimmed == "stop":
            raise StoreReset(
                f"{what}; give the query a reader's name so that they are kept, or say on_trimmed=skip"
            )
        logger.warning("%s, and are skipped", what)
        return gone

    def _given_up(self, whole: EntryRange, index: int, what: str, policy: str, option: str) -> int:
        """The rest of a range is gone for good; the next batch finds where the query goes on."""
        lost = f"entries {index} to {whole.stop - 1} of stream {whole.name} can't be read: {what}"
        if policy == "stop":
            raise StoreReset(f"{lost}; find out why, or say {option}=earliest")
        logger.warning("%s", lost)
        return whole.stop

    def _cuts(self, pages: Sequence[RawPage], whole: EntryRange, index: int) -> Iterator[PageCut]:
        for page in pages:
            if page.index > index:
                self._hole(whole, index, min(page.index, whole.stop))
            if page.index >= whole.stop:
                return
            cut = cut_of(page, index, whole.stop)
            yield cut
            index = cut.index + cut.count

    def _hole(self, whole: EntryRange, first: int, stop: int) -> None:
        what = f"entries {first} to {stop - 1} of stream {whole.name} are missing in the middle of the store"
        if self.options.on_hole == "stop":
            raise StoreReset(
                f"{what}: somebody removed them by hand; restore a backup, or say on_hole=skip"
            )
        logger.warning("%s, and are skipped", what)

    def _check_end(self, last: PageCut, whole: EntryRange) -> None:
        """The last entry is who it was when the batch was planned (S-12)."""
        page = last.page
        found = Identity(page.producer, page.epoch, last.seq + last.count - 1)
        if (
            whole.anchor is not None
            and found != whole.anchor
            and self.options.on_diverged == "stop"
        ):
            raise StoreReset(
                f"entry {whole.stop - 1} of stream {whole.name} is {found}, and was {whole.anchor} when the batch "
                "was planned: the store went back and grew again; find out why, or say on_diverged=earliest"
            )
