"""Pipes through a book: feeds put messages into the queues of their keys, and a served book hands them out.

Both ends open the same book, in one process or in two. Nothing is on the way between them, so an engine asks
such a pipe other questions than one with a sender and a receiver.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import cast

from surepipe.actors.books import ServedBook
from surepipe.actors.codecs import Codec, Undecodable, encode_all, marked
from surepipe.actors.consuming.lanes import KeyChoice, value_reader
from surepipe.actors.ends.face import UntilText
from surepipe.actors.ends.intake import Until
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.replaying import Replayed
from surepipe.actors.runtime import Runtime
from surepipe.actors.tracing import TraceSink, Tracing, digests_of
from surepipe.audit.trace import LOOKED_AGAIN
from surepipe.core.callables import require_call
from surepipe.core.claims import Guarantee
from surepipe.core.ranges import RangeSet
from surepipe.core.store_requests import CommitPosition, Store
from surepipe.core.timing import BackOff
from surepipe.errors import (
    ConfigurationError,
    Fenced,
    MisuseError,
    PipeClosed,
    StoreUnavailable,
    SurepipeError,
)
from surepipe.observe.status import BookSeen, QueueSeen
from surepipe.pipelines.assembly import Environment
from surepipe.pipelines.models.pipes import BookRoutePart, PipePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.flow import OutcomeGiven, StageFlow
from surepipe.pipelines.stages import About
from surepipe.queues.book import BookMessage, BookQueue, Context, Cost, Later, Manual, Rejected
from surepipe.queues.book.answers import DONE, Outcome, Undecided
from surepipe.queues.book.config import DIMENSIONS, NOTHING, CostOf
from surepipe.queues.book.ledger import Book, NotPlaced, Placed
from surepipe.queues.book.service import Passed
from surepipe.storage.letters import DeadLetterStream, Replay

ROOM = BackOff(20_000, 1_000_000)
"""The waits of what feeds a queue that is full, and of what asks a store again."""
STORE_AGAIN_S = 1.0
"""For so long a queue waits when a store behind it does not answer."""
QUEUES_SEEN, PARKED_LOOKED_AT, LOOKS = 20, 1_000, 3
HAND = "hand"
"""The worker that a person is: two at a time replace each other, and neither one a node."""
LOADED = '{"loaded":true}'
"""Beside an acceptance that somebody else gave, or that this process can't show to follow its own."""
FOUND = '{"found":true,"loaded":true}'
"""The same by who hands it out: whoever put it in may tell of it yet."""
BATCH_BYTES = 256 << 10
"""What is put in with one write, about."""


def book_by_hand(plan: Plan, pipe: PipePart, store: Store, worker: str) -> BookQueue:
    """The book of a pipe, for a look and for what a person does without the handler.

    Raises ConfigurationError, StoreUnavailable.
    """
    assert pipe.book is not None, "another pipe has none"

    def refuse(message: BookMessage, context: Context) -> None:
        del message, context
        raise MisuseError("nobody serves here")

    name = f"{plan.name}/{pipe.name}"
    return BookQueue.inline(
        name, store=store, processor=refuse, config=pipe.book.config, worker=worker
    )


def _queue_seen(book: Book) -> QueueSeen:
    return QueueSeen(
        key=book.origin,
        waiting=book.waiting,
        parked=book.messages - book.waiting,
        paused=book.paused,
        blocked=book.blocked is not None,
        weight=book.weight,
    )


def _in_seconds(amounts: Mapping[str, int]) -> dict[str, float]:
    return {
        name: amount / 1_000_000 if name == "seconds" else amount
        for name, amount in amounts.items()
    }


class BookTrace:
    """The rows of one process's part in a book, for an audit: each queue is a channel, with its generation as
    epoch and its arrivals as numbers.

    Whoever puts a message in tells of it, and so does the process that hands it out, where nobody here has: the
    one that put it in may have been killed before its row.
    """

    def __init__(
        self, sink: TraceSink, runtime: Runtime, node: str, pipe: str, guarantee: Guarantee
    ) -> None:
        self._tracing = Tracing(sink, runtime)
        self._into, self._out = f"{pipe}/{node}/in", f"{pipe}/{node}/out"
        self._pipe = pipe
        self._lock = threading.Lock()
        self._told: defaultdict[tuple[str, int], RangeSet] = defaultdict(RangeSet)
        """The numbers of each queue that were told of."""
        self._given: dict[tuple[str, int], int] = {}
        """Up to which number all of a queue came from here, since it began."""
        self._tracing.promise(guarantee, stored=False)
        for end in (self._into, self._out):
            self._tracing.start(end, pipe)

    def _row(self, kind: str, origin: str, epoch: int, seq: int, **more: str | int) -> None:
        count = int(more.pop("count", 1))
        end = self._into if kind == "accepted" else self._out
        name = f"{self._pipe}@{origin}"
        self._tracing.row(end, kind, name, epoch=epoch, seq=seq, count=count, **more)

    def admitted(self, placed: Placed, messages: Sequence[tuple[str, bytes]]) -> None:
        """These are stored."""
        for origin, epoch, first, count in placed.numbers:
            place = (origin, epoch)
            mine = [payload for each, payload in messages if each == origin]
            with self._lock:
                missing = list(self._told[place].missing(first, first + count - 1))
                self._told[place].add(first, first + count - 1)
                is_first_to_give = self._given.get(place, 0) == first - 1
                if is_first_to_give:
                    self._given[place] = first + count - 1
                for low, high in missing:
                    some = (
                        mine[low - first : high - first + 1] if self._tracing.with_digests else ()
                    )
                    self._row(
                        *("accepted", origin, epoch, low),
                        count=high - low + 1,
                        digests=digests_of(some),
                        detail="" if is_first_to_give else LOADED,
                    )

    def _found(self, origin: str, epoch: int, number: int, payload: bytes | None = None) -> None:
        # 1. A worker is about to tell of the first message. 2. Who put three in sees that, and tells of the other
        # two. 3. The worker tells of the first, which is then the last that was taken in. So nobody comes between.
        with self._lock:
            if self._told[origin, epoch].covers(number, number):
                return
            self._told[origin, epoch].add(number, number)
            is_told = payload is not None and self._tracing.with_digests
            digests = digests_of([payload]) if is_told and payload is not None else ""
            self._row("accepted", origin, epoch, number, digests=digests, detail=FOUND)

    def delivered(self, message: BookMessage) -> None:
        """This one is about to be handled."""
        self._found(message.origin, message.generation, message.number, message.payload)
        digests = digests_of([message.payload]) if self._tracing.with_digests else ""
        attempt = message.attempts + 1
        place = (message.origin, message.generation, message.number)
        self._row("delivered", *place, attempt=attempt, digests=digests)

    def settled(self, message: BookMessage) -> None:
        """It is handled."""
        self._row("settled", message.origin, message.generation, message.number)

    def failed(self, message: BookMessage) -> None:
        """This attempt came to nothing."""
        if self._tracing.with_reasons:
            attempt = message.attempts + 1
            place = (message.origin, message.generation, message.number)
            self._row("failed", *place, attempt=attempt)

    def passed(self, one: Passed) -> None:
        """Nobody handles it any more: it is a dead letter, or waits for a person."""
        self._found(one.origin, one.generation, one.number)
        facts: dict[str, object] = {"cause": one.why, "early": True}
        facts |= {"kept": True} if one.kept else {}
        detail = json.dumps(facts, separators=(",", ":"))
        self._row("dead", one.origin, one.generation, one.number, detail=detail)

    def left(self, origin: str) -> None:
        """A store was away when something of this queue was in work."""
        detail = json.dumps({"call": LOOKED_AGAIN, "outcome": "left"}, separators=(",", ":"))
        self._row("answer", origin, 0, 0, count=0, detail=detail)

    def end(self, *, at_rest: bool) -> None:
        """The process ends in good order."""
        for end in (self._into, self._out):
            self._tracing.end(end, self._pipe, at_rest=at_rest)


class BookIntake:
    """What feeds put messages into. It waits while a queue has no room, and until the store has answered."""

    confirms = False
    """What it has accepted is stored: nobody waits for more."""

    def __init__(
        self, name: str, book: ServedBook, store: Store, codec: Codec, key: KeyChoice
    ) -> None:
        self._name = name
        self._book = book
        self._store = store
        self._codec = codec
        self._key = value_reader(key)
        self._signal = book.runtime.signal()
        self.is_finished = False
        self.waits_for: str | None = None
        """The key whose queue is full."""
        self.trace: BookTrace | None = None

    @property
    def message_max(self) -> int:
        """Bytes of the largest message that is taken."""
        return self._book.config.max_message

    def can_send_beside(self, positions: object) -> bool:
        """True when positions of this store can move in one step with what is put in."""
        return positions is self._store

    def send_beside(
        self,
        reader: str,
        messages: Sequence[object],
        behind: Callable[[int], CommitPosition],
        texts: Sequence[bytes] | None = None,
    ) -> None:
        """Put messages in, with the position behind so many of them: both or neither. Returns when all are
        stored."""
        del reader, texts  # one position for each piece
        payloads = encode_all(self._codec, messages)
        piece: list[tuple[str, bytes]] = []
        size = 0
        for count, (message, payload) in enumerate(zip(messages, payloads, strict=True), 1):
            piece.append((self._origin(message), payload))
            size += len(payload)
            if size >= BATCH_BYTES or count == len(messages):
                self._admit(piece, behind(count))
                piece, size = [], 0

    def send_texts(self, messages: Sequence[object], texts: Sequence[bytes], until: Until) -> bool:
        """A book looks at each message: it takes them from ``send_many``."""
        del messages, texts, until
        return False

    def send_many(self, messages: Sequence[object]) -> None:
        """Put messages in. Returns when all are stored."""
        payloads = encode_all(self._codec, messages)
        origins = [self._origin(message) for message in messages]
        for start in range(0, len(payloads), 256):
            end = start + 256
            self._admit(list(zip(origins[start:end], payloads[start:end], strict=True)), None)

    def put(self, origin: str, payload: bytes, position: CommitPosition) -> None:
        """Put one payload into a queue, with the position behind it."""
        self._admit([(origin, payload)], position)

    def _origin(self, message: object) -> str:
        """Whose queue it is for. Raises MisuseError for what names none."""
        try:
            key = self._key(message)
        except Exception as error:
            raise MisuseError(f"pipe {self._name}: its key could not be told: {error}") from error
        origin = str(key) if type(key) is int else key
        if not isinstance(origin, str):
            raise MisuseError(
                f"pipe {self._name}: the key of a message is {key!r}; a book has queues by text, or by a whole "
                "number: give one with key"
            )
        self._book.items_of(origin, ())
        return origin

    def _admit(
        self, messages: Sequence[tuple[str, bytes]], position: CommitPosition | None
    ) -> None:
        tries = 0
        while True:
            if self.is_finished:
                raise PipeClosed(f"pipe {self._name} takes no more messages")
            try:
                placed = self._book.admit(messages, position)
            except Undecided as error:
                placed = self._decided(error)
            if not isinstance(placed, NotPlaced):
                self.waits_for = None
                if self.trace is not None:
                    self.trace.admitted(placed, messages)
                return
            tries += 1
            self.waits_for = placed.origin
            self._pause(tries)

    def _decided(self, undecided: Undecided) -> Placed:
        """Ask until the store says it: handed over again before, the messages might be there twice.

        Raises PipeClosed when it has not said it before the end; the next run finds the position, which tells.
        """
        tries = 0
        while True:
            try:
                return self._book.admitted(undecided)
            except StoreUnavailable:
                if self.is_finished:
                    raise
                tries += 1
                self._pause(tries)

    def _pause(self, tries: int) -> None:
        self._signal.wait(lambda: self.is_finished, ROOM.calm(tries) / 1_000_000)

    def finish(self) -> None:
        """Take no more messages."""
        self.is_finished = True
        self._signal.notify()


class BookPipe:
    """The ends of a pipe through a book that one process has."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        name: str,
        route: BookRoutePart,
        lanes: int,
        node: str,
        environment: Environment,
        store: Store,
        codec: Codec,
        key: KeyChoice,
        *,
        guarantee: Guarantee,
        sends: bool,
        receives: bool,
        by_hand: bool = False,
    ) -> None:
        """Open the book. ``guarantee``: what it promises for each key. ``by_hand``: nothing is handed out but what
        ``execute`` is told.

        Raises ConfigurationError, StoreUnavailable.
        """
        self.name = name
        self.sends = sends
        self.receives = receives
        self.failure: BaseException | None = None
        """Why it can't go on."""
        self._codec = codec
        self._environment = environment
        self._flow: StageFlow | None = None
        self._by_hand = by_hand
        self._route = route
        self.book = ServedBook(
            name,
            store=store,
            processor=self._handle,
            cost=self._cost(),
            config=route.config,
            worker=HAND if by_hand else node,
            workers=lanes,
            notices=environment.notice,
            runtime=environment.runtime,
            seed=environment.seed,
            start=False,
        )
        self.sender = BookIntake(name, self.book, store, codec, key)
        self._lock = threading.Lock()
        self._before = dict(self.book.ledger.totals)
        self._lanes = lanes
        self._busy = 0
        """Handlers that are at work."""
        self._trace: BookTrace | None = None
        if environment.trace is not None:
            self._trace = BookTrace(environment.trace, environment.runtime, node, name, guarantee)
            self.sender.trace = self._trace
            self.book.hear_of_passed(self._trace.passed)
            self.book.hear_of_left(self._trace.left)

    def _cost(self) -> CostOf:
        """What the book is told of each message: units, or a Cost."""
        word = self._route.cost
        if isinstance(word, int):
            return Cost(units=word)
        found = self._environment.telling(self.name, word) if ":" in word else value_reader(word)
        require_call(f"cost {word} of pipe {self.name}", found, "message", ConfigurationError)
        codec = self._codec

        def cost(payload: bytes) -> Cost:
            given = found(codec.decode(payload))
            return given if isinstance(given, Cost) else Cost(units=cast("int", given))

        return cost

    # What an engine asks.

    @property
    def is_started(self) -> bool:
        """Whether it hands out messages, or could."""
        return self._flow is None or self._by_hand or self.book.is_started

    def receive_by(self, flow: StageFlow) -> None:
        """Give messages to this flow, once it is started."""
        self._flow = flow

    def start(self) -> None:
        """Begin to hand out messages, where they are handled here, and by more than a person's hand."""
        if self._flow is not None and not self._by_hand:
            self.book.start()

    def send(self, message: object) -> None:
        """Put a message into the queue of its key. It is stored when this returns."""
        self.sender.send_many([message])

    def send_many(self, messages: Sequence[object], *, until: UntilText = "accepted") -> None:
        """Put messages into the queues of their keys. They are stored when this returns."""
        del until
        self.sender.send_many(messages)

    def finish(self) -> None:
        """Take no more messages."""
        self.sender.finish()

    def is_through(self) -> bool:
        """Whether all that can be handled is: what is parked or paused waits for a person."""
        if self._by_hand:
            return True
        try:
            return self.book.is_through()
        except StoreUnavailable:
            return False

    def execute(self, address: str) -> Manual:
        """Run one message that waits for a person through the flow, on this thread. Raises BadAddress."""
        return self.book.execute(address)

    def stop_consuming(self) -> bool:
        """Begin no more message; True when none is being handled."""
        return self.book.stop_serving()

    def look(self) -> None:
        """Raise what it can't go on for."""
        failure = self.failure or self.book.failure
        if failure is not None:
            raise failure

    @property
    def buried(self) -> int:
        """Dead letters that were stored while it was open, whoever stored them."""
        return self.book.ledger.totals["dead_lettered"] - self._before["dead_lettered"]

    @property
    def letters(self) -> str:
        """The stream of its dead letters, as ``surepipe dlq`` names it."""
        return f"{self._route.store}/{self.name}/dead"

    def replay(
        self, letters: DeadLetterStream, *, letters_max: int | None, index: int | None
    ) -> Replayed:
        """Put letters into the queues that they came from: those that no replay has sent, or one by its number.

        Each is put in with one step in which the replay moves past it: once, whatever is interrupted. Raises
        StoreUnavailable, ``errors.Fenced`` (another replay took over) and StoreReset.
        """
        runtime = self._environment.runtime
        replay = Replay(letters, letters.store, number_of_life=lives_of(runtime))
        replay.begin()
        count, is_alone, left_out = 0, index is not None, ""
        while letters_max is None or count < letters_max:
            waiting = letters.read(index, 1) if index is not None else replay.waiting(1)
            for stored in waiting:
                if not replay.is_waiting(stored):
                    continue
                origin = stored.letter.pipe.partition("@")[2]
                position = replay.position_after(stored, alone=is_alone)
                self.sender.put(origin, marked(stored.letter.payload, stored.replays + 1), position)
                replay.done(stored, alone=is_alone)
                letters.note_sent(stored.index, runtime.wall_ms() * 1000, None)
                count += 1
            if index is not None and not count:
                left_out = replay.why_not(index)
            if is_alone or not waiting:
                break
        return Replayed(count, exactly_once=True, left_out=left_out)

    def counters(self) -> dict[str, int]:
        """Counts of all processes since it was opened, and current gauges."""
        ledger = self.book.ledger
        new = {name: count - self._before[name] for name, count in ledger.totals.items()}
        found = {
            "accepted": new["enqueued"],
            "settled": new["done"] + new["rejected"],
            "dead_lettered": new["dead_lettered"],
            "lag": ledger.totals["queued"],
            "parked": self._parked(),
            "queues": len(ledger.ring),
        }
        if self.sends:
            found |= {"in_flight": 0}
        if self.receives:
            found |= {"in_work": self._busy, "held": 0, "lanes": self._lanes}
            found |= {"lanes_busy": self._busy}
        spent, _ = self._spent()
        names = {"seconds": "spent_seconds_us"}
        return found | {names.get(name, f"spent_{name}"): count for name, count in spent.items()}

    def _parked(self) -> int:
        return sum(book.messages - book.waiting for book in list(self.book.ledger.books.values()))

    def _spent(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of the budget of this period, and the budget; seconds are microseconds."""
        rate = self.book.config.rate
        if rate is None:
            return {}, {}
        period, spent = self.book.ledger.period
        now = spent if period == self.book.period else NOTHING
        most = zip(DIMENSIONS, rate.limits(), now, strict=True)
        bounded = [(name, limit, part) for name, limit, part in most if limit is not None]
        return (
            {name: part for name, _, part in bounded},
            {name: limit for name, limit, _ in bounded},
        )

    def seen(self, most: int = QUEUES_SEEN) -> BookSeen | None:
        """How it stands, for people, with so many queues. None when it changes too fast to be looked at.

        Nobody is waited for: who has the book's lock may be waiting for a store.
        """
        for _ in range(LOOKS):
            try:
                return self._seen(most)
            except (KeyError, RuntimeError):  # it changed under the look
                continue
        return None

    def _seen(self, most: int) -> BookSeen:
        ledger = self.book.ledger
        ready = list(islice(ledger.ring.walk(), most))
        parked = [
            book.origin
            for book in islice(list(ledger.books.values()), PARKED_LOOKED_AT)
            if book.messages and not book.is_ready
        ]
        spent, budget = self._spent()
        return BookSeen(
            ready=len(ledger.ring),
            parked=self._parked(),
            queues=tuple(_queue_seen(ledger.books[origin]) for origin in (*ready, *parked)[:most]),
            spent=_in_seconds(spent),
            budget=_in_seconds(budget),
            period_s=self.book.config.period_s,
            full=self.sender.waits_for,
        )

    def close(self, timeout: float) -> None:
        """Take and hand out no more; what is being handled comes to its end. A second call does nothing."""
        self.finish()
        self.book.close(timeout)
        if self._trace is not None:
            self._trace.end(at_rest=not len(self.book.ledger.ring))
            self._trace = None

    def abort(self) -> None:
        """End without waiting."""
        self.close(0.0)

    # Handling.

    def _handle(self, message: BookMessage, context: Context) -> Outcome:
        del context
        with self._lock:
            self._busy += 1
        try:
            return self._told(message)
        finally:
            with self._lock:
                self._busy -= 1

    def _told(self, message: BookMessage) -> Outcome:
        if self._trace is None:
            return self._handled(message)
        self._trace.delivered(message)
        try:
            outcome = self._handled(message)
        except BaseException:
            self._trace.failed(message)
            raise
        if outcome is DONE:
            self._trace.settled(message)
        elif isinstance(outcome, Later):
            self._trace.failed(message)
        return outcome

    def _handled(self, message: BookMessage) -> Outcome:
        assert self._flow is not None, "a book that nobody handles here is not started"
        about = About(self.name, message.generation, message.number, message.origin)
        try:
            decoded = self._codec.decode(message.payload)
        except Undecodable:
            return Rejected("BAD_FORMAT")
        try:
            self._flow.take([(decoded, about)], None)
        except OutcomeGiven as given:
            return cast("Outcome", given.outcome)
        except StoreUnavailable:  # no message is to blame for it
            return Later(min(STORE_AGAIN_S, self._route.retry_max_s))
        except Fenced as error:
            self._stop(error)
            return Later(self._route.retry_max_s)
        return DONE

    def _stop(self, error: SurepipeError) -> None:
        with self._lock:
            self.failure = self.failure or error
        self.book.stop_serving()
