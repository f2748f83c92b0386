"""Lists what a node leaves unfinished when it ends early, and where that is kept, if anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.sender import SenderEnd
from surepipe.errors import StoreReset, StoreUnavailable
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import SourceBase, replays
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipelines.run.feeding import Feed
from surepipe.pipelines.sources.streams import StreamRows


@dataclass(frozen=True, slots=True)
class Unfinished:
    """So many messages of a part did not get through. ``is_safe``: another run goes on with them. ``count`` is
    None when nobody knows it: the store that had them does not say, or has lost them."""

    part: str
    count: int | None
    state: str
    fate: str
    is_safe: bool

    def __str__(self) -> str:
        messages = "message" if self.count == 1 else "messages"
        count = "an unknown number of" if self.count is None else self.count
        return f"{self.part}: {count} {messages} {self.state}; {self.fate}"


def unfinished(
    plan: Plan, faces: Mapping[str, object], feeds: Mapping[str, Feed]
) -> Iterator[Unfinished]:
    """What the pipes and feeds of a node have in hand, in the order of the flow. Asks their actors."""
    for feed in feeds.values():
        if feed.is_source and feed.held:
            yield _of_feed(plan, feed)
        elif isinstance(feed.source, StreamRows) and not feed.is_source:
            yield from _between_pipes(feed, feed.source)
    for part in plan.order:
        if isinstance(part, PipePart) and part.name in faces:
            face = faces[part.name]
            if isinstance(face, BookPipe):
                yield from _in_book(part, face)
                continue
            sender = getattr(face, "sender", None)
            receiver = getattr(face, "receiver", None)
            if isinstance(sender, SenderEnd):
                yield from _of_sender(plan, part, sender, feeds)
            if isinstance(receiver, ReceiverEnd):
                yield from _of_receiver(part, receiver)


def _in_book(pipe: PipePart, face: BookPipe) -> Iterator[Unfinished]:
    """What waits in its queues. (What is parked waits for a person, in this run or another.)"""
    count = face.counters()["lag"]
    if face.receives and count:
        fate = f"safe in the book, store {pipe.stream_store}"
        yield Unfinished(pipe.name, count, "not settled", fate, is_safe=True)


def _of_feed(plan: Plan, feed: Feed) -> Unfinished:
    """Rows that were read, and not accepted by all the pipes that they are for."""
    is_safe = _comes_again(plan, feed.part)
    fate = "the next run reads them again" if is_safe else "they can't be read again, and are lost"
    return Unfinished(feed.part, feed.held, "read and not accepted by a pipe", fate, is_safe)


def _between_pipes(feed: Feed, rows: StreamRows) -> Iterator[Unfinished]:
    """What transactions of one pipe have put beside its state, for the next one."""
    first, _, following = feed.part.partition(">")
    state = f"passed on by {first} and not accepted"
    place = f"the store of the state of {first}"
    yield from _in_stream(following, lambda: rows.unread() + feed.held, state, place, place)


def _of_sender(
    plan: Plan, pipe: PipePart, sender: SenderEnd, feeds: Mapping[str, Feed]
) -> Iterator[Unfinished]:
    count = sum(last - first + 1 for _, first, last in sender.unconfirmed())
    if not count:
        return
    state = "accepted and not confirmed" if sender.confirms else "accepted and not sent"
    if pipe.journal is not None:
        fate = f"safe in the journal, store {pipe.journal}"
        yield Unfinished(pipe.name, count, state, fate, is_safe=True)
        return
    behind = [feed for feed in feeds.values() if pipe.name in feed.pipes]
    is_fed_by_rows = len(behind) == len(plan.feeders(pipe.name)) > 0
    if is_fed_by_rows and all(_gives_again(plan, feed, pipe.name) for feed in behind):
        names = " and ".join(feed.part for feed in behind)
        fate = f"the next run takes them from {names} again"
        yield Unfinished(pipe.name, count, state, fate, is_safe=True)
    else:
        fate = "lost: the pipe has no journal"
        yield Unfinished(pipe.name, count, state, fate, is_safe=False)


def _of_receiver(pipe: PipePart, receiver: ReceiverEnd) -> Iterator[Unfinished]:
    """What lies in a stream unread. (What came over a link is unconfirmed at its sender, which tells of it.)"""
    if pipe.stream_store is not None:
        place = f"store {pipe.stream_store}"
        yield from _in_stream(
            pipe.name, receiver.unread, "not settled", place, f"the stream, {place}"
        )


def _in_stream(
    part: str, count: Callable[[], int], state: str, store: str, place: str
) -> Iterator[Unfinished]:
    """What waits in a stream; it is safe as far as the store says that it still has it."""
    try:
        if left := count():
            yield Unfinished(part, left, state, f"safe in {place}", is_safe=True)
    except StoreReset:
        fate = f"lost: {store} has no such stream any more"
        yield Unfinished(part, None, state, fate, is_safe=False)
    except StoreUnavailable:
        fate = f"whether {store} still has them is not known"
        yield Unfinished(part, None, state, fate, is_safe=False)


def _comes_again(plan: Plan, source: str) -> bool:
    part = plan.part(source)
    return isinstance(part, SourceBase) and replays(part)


def _gives_again(plan: Plan, feed: Feed, pipe: str) -> bool:
    """True when the feed's place is moved only once messages are confirmed, or begins anew with each run."""
    return feed.is_source and _comes_again(plan, feed.part) and feed.repeats_into(pipe)
