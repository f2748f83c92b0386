"""What outlives the processes of a world: its stores, and the journal, receiver state and streams in them.

The journal and the receiver's state are those that ship, over simulated stores. A call is executed when it reaches
its store, which may be later than it was made, or never; its answer comes when the chooser says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from surepipe.core.effects import (
    AppendRows,
    Call,
    DeadLetter,
    ForgetRows,
    JournalContents,
    Letter,
    NoteTransmitted,
    OpenLife,
    Persist,
    Renumber,
    SaveState,
    Write,
    WriteFenced,
    WriteOutcome,
    WriteStored,
    WriteUnknown,
)
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    ClaimReader,
    CommitPosition,
    Committed,
    FencedOut,
    GetPosition,
    Hint,
    Level,
    Owner,
    ReadFrom,
    Retention,
    Stored,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    WaitForMark,
    WaitForMore,
)
from surepipe.errors import StoreUnavailable
from surepipe.pipes.stream.position import commit_of
from surepipe.simulation.chance.chooser import LATE_ANSWER, PLAIN_STORE_FATE, StoreFate
from surepipe.simulation.events import Event, EventTarget, Happening, StoreAnswer
from surepipe.simulation.stores.calls import PLAIN, is_write, name_of
from surepipe.simulation.stores.outages import Mishaps
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.simulation.timeline import Timeline, as_detail, digest_of, digests_of
from surepipe.storage.journal import StoreJournal
from surepipe.storage.positions import ReceiverState, numbered

POSITIONS = (ClaimReader, GetPosition, CommitPosition)


def name_of_write(write: Write) -> str:
    """A write of a journal or of a receiver's state, by what it says."""
    match write:
        case OpenLife(life):
            return f"open-life {life}"
        case AppendRows(epoch, first, payloads):
            return f"append-rows e{epoch} {first}+{len(payloads)}"
        case NoteTransmitted(epoch):
            return f"note-transmitted e{epoch}"
        case ForgetRows(epoch, through):
            return f"forget-rows e{epoch} ..{through}"
        case Renumber(epoch, payloads):
            return f"renumber e{epoch} {len(payloads)}"
        case SaveState():
            return "save-state"


class KeptEnd(Protocol):
    """An end whose durable things are here."""

    is_sender: bool

    def accept(
        self,
        process: Any,
        epoch: int,
        first: int,
        payloads: Sequence[bytes],
        *,
        is_loaded: bool = False,
    ) -> None:
        """Its sender counts these messages as taken."""
        ...

    def pipe_of(self, producer: str) -> str:
        """The pipe as rows name it."""
        ...


class KeptProcess(EventTarget, Protocol):
    """A process as what outlives it knows it."""

    number: int
    is_alive: bool

    @property
    def end(self) -> KeptEnd:
        """The end whose life it is."""
        ...

    @property
    def cause(self) -> str:
        """The event that it is at."""
        ...

    def renumber(self, epoch: int, first: int, count: int, new_epoch: int, new_first: int) -> None:
        """These messages are known by a new identity."""
        ...


@dataclass(slots=True)
class StreamWaiter:
    """Somebody who wants to know when a stream has more."""

    process: KeptProcess
    ticket: int
    request: WaitForMore | WaitForMark


class WorldKeeper:
    """The durable things of one world, and the way to them."""

    name = "store"

    def __init__(
        self,
        world: Timeline,
        pipe: str,
        *,
        journaled: bool,
        durable: bool,
        streamed: bool,
        level: Level,
        depth: int = 1,
        stream: str = "",
        told_pipe: str = "",
        reader: str = "",
        retention: Retention = KEEP_ALL,
        one_store: bool = False,
        beside: WorldKeeper | None = None,
        letters: bool = False,
    ) -> None:
        """``depth``: how many layers the pipe has; the innermost one is the stream, where there is one.
        ``beside``: that of another hop of this world, whose stores these are too.
        ``letters``: dead letters have a store; nothing befalls it in a world without other stores."""
        self.world = world
        self.pipe = pipe
        self.told_pipe = told_pipe or pipe
        self.stream_layer = str(depth - 1) if depth > 1 else ""
        self.has_journal = journaled
        self.streamed = streamed
        names = {
            "journal": journaled,
            "state": durable and not streamed,
            "stream": streamed,
            "index": streamed,
        }
        names["letters"] = letters and any(names.values())
        actual = Level(max(0, level - 1)) if world.options.lying else level
        self.keepers: list[WorldKeeper] = beside.keepers if beside else []
        self.stores: dict[str, SimulatedStore] = beside.stores if beside else {}
        """By what is in them; where all is in one, under the name of a stream's."""
        for name in [name for name, used in names.items() if used]:
            place = "stream" if one_store else name
            if place not in self.stores:
                self.stores[place] = SimulatedStore(
                    place, declared=level, actual=actual, clock=lambda: world.now
                )
        self.has_one_store = one_store
        self.may_pass = retention.force
        self.keeps_state = durable and not streamed
        if streamed:
            self.stores["stream"].create(stream or pipe, 1, retention)
            if retention.max_bytes is not None and retention.force:
                self._register(stream or pipe, reader or pipe)
            self.stores["stream"].on_write = self._tell_all
        self.latency_us = world.options.store_us
        """How long a call is on its way to a store, and its answer back, when nothing befalls either."""
        self.calls: dict[str, int] = {}
        self.waiters: list[StreamWaiter] = []
        self.journals: dict[KeptProcess, StoreJournal] = {}
        self.states: dict[KeptProcess, ReceiverState] = {}
        self.letters: set[tuple[str, int, int]] = set()
        self.rows: dict[int, list[int]] = {}
        self._journal: StoreJournal | None = None
        self._state: ReceiverState | None = None
        self._contents: JournalContents | None = None
        self.keepers.append(self)
        self.mishaps: Mishaps = (
            beside.mishaps
            if beside
            else Mishaps(world, stream or pipe, self.stores, self._tell_all)
        )
        self.mishaps.pipes[stream or pipe] = None

    def _register(self, stream: str, reader: str) -> None:
        """Before anything is sent the reader has been there once: until then nothing is kept for it by force."""
        info, index = self.stores["stream"].info(stream), self.store_of("index")
        assert isinstance(info, StreamInfo)
        owner = index.claim(stream, reader, 0)
        assert isinstance(owner, Owner)
        index.commit(CommitPosition(stream, reader, owner.number, info.incarnation, 1, None, b""))

    def store_of(self, role: str) -> SimulatedStore:
        """The store that has the journal, the state, the stream or the index."""
        return self.stores["stream" if self.has_one_store else role]

    def take(self, event: Event) -> None:
        """Something is due at a store."""
        assert isinstance(event, Happening)
        event.act()

    # Lives begin.

    def load_journal(self) -> JournalContents | None:
        """What the journal holds for a new life of the sender. Raises StoreUnavailable: ask again."""
        if not self.has_journal:
            return None
        self._reach("journal")
        store = self.store_of("journal")
        self._journal = StoreJournal(store, store, self.pipe)
        self._contents = self._journal.load()
        return self._contents

    def load_state(self, claimant: int) -> bytes | None:
        """The state that was stored last, for a new incarnation of the receiver. Raises StoreUnavailable."""
        if not self.keeps_state:
            return None
        store = self.store_of("state")
        self._reach("state")
        self._state = ReceiverState(store, self.pipe, number_of_life=lambda: numbered(claimant, 0))
        return self._state.load()

    def _reach(self, name: str) -> None:
        if self.store_of(name).is_down:
            raise StoreUnavailable(f"{name} is down")

    def started(self, process: KeptProcess) -> None:
        """The process that the last load was for. What its journal holds was accepted, if not before."""
        if not process.end.is_sender:
            if self._state:
                self.states[process] = self._state
            return
        if self._journal is None or self._contents is None:
            return
        self.journals[process] = self._journal
        self._take_contents(process, self._contents)

    def _take_contents(self, process: KeptProcess, contents: JournalContents) -> None:
        self.rows = {}
        for rows in contents.rows:
            self._keep(rows.epoch, rows.first, len(rows.payloads))
            process.end.accept(process, rows.epoch, rows.first, rows.payloads, is_loaded=True)

    def _keep(self, epoch: int, first: int, count: int) -> None:
        known = self.rows.setdefault(epoch, [])
        start = max(first, known[-1] + 1 if known else first)
        known.extend(range(start, first + count))

    # Writes of journals and states.

    def persist(self, process: KeptProcess, effect: Persist) -> None:
        """A write, now or when it gets through, and its answer."""
        write = effect.write
        store = "state" if isinstance(write, SaveState) else "journal"
        if store == "state" and self.streamed:
            store = "index"
        call = self._named(f"{process.name} {name_of_write(write)}")
        fate = self.world.chooser.store(store, call, is_write=True)
        if fate.verb == "slow":
            at = self.world.now + fate.delay_us
            late = Happening(
                f"call {call}",
                lambda: self._reply(
                    process, effect.ticket, self._write(process, store, write), call
                ),
            )
            self.world.at(at, self, late)
            return
        self._reply(
            process,
            effect.ticket,
            self._met(process, store, write, fate),
            call,
            max(fate.delay_us, self.latency_us),
        )

    def _met(self, process: KeptProcess, store: str, write: Write, fate: StoreFate) -> WriteOutcome:
        if fate.verb in ("lost", "refuse"):
            self._row(process, store, "fault", {"fault": "F18", "verb": fate.verb})
            return WriteUnknown()
        outcome = self._write(process, store, write)
        if fate.verb == "unknown":
            self._row(process, store, "fault", {"fault": "F18", "verb": "answer lost"})
            return WriteUnknown()
        return outcome

    def _named(self, call: str) -> str:
        number = self.calls[call] = self.calls.get(call, 0) + 1
        return f"{call} a{number}"

    def _reply(
        self, process: KeptProcess, ticket: int, outcome: object, call: str, delay_us: int = 0
    ) -> None:
        world = self.world
        if world.options.perturb and world.chooser.perturb("slow-reply", call):
            delay_us += world.options.timer_us // 10
        world.at(world.now + delay_us, process, StoreAnswer(ticket, outcome, call))

    def _write(self, process: KeptProcess, store: str, write: Write) -> WriteOutcome:
        if self.store_of(store).is_down:
            return WriteUnknown()
        if isinstance(write, SaveState):
            outcome = self._save(process, write)
        else:
            outcome = self.journals[process].write(write)
            if isinstance(outcome, JournalContents):
                self._take_contents(process, outcome)
            elif isinstance(outcome, WriteStored):
                self._follow(process, write)
        is_done = isinstance(outcome, WriteStored | JournalContents)
        facts: dict[str, object] = {
            "write": name_of_write(write),
            "outcome": type(outcome).__name__,
        }
        self._row(process, store, "persisted" if is_done else "refused", facts)
        return outcome

    def _save(self, process: KeptProcess, write: SaveState) -> WriteOutcome:
        if not self.streamed:
            return self.states[process].write(write)
        outcome = self.store_of("index").commit(commit_of(write.state))
        if isinstance(outcome, FencedOut):
            return WriteFenced(outcome.by)
        return WriteStored() if isinstance(outcome, Committed) else WriteUnknown()

    @property
    def can_commit(self) -> bool:
        """False while a receiver that stores its state with effects must wait. Over a stream it begins anew."""
        return self.streamed or not self.store_of("state").is_down

    def renew_state(self, process: KeptProcess) -> None:
        """Have a receiver's state ask the store again after a transaction whose outcome is unknown. Raises
        ``errors.Fenced``."""
        self.states[process].look_again(None)

    def commit(self, process: KeptProcess, state: bytes) -> bool:
        """The state with the effect of messages, in one transaction; False: refused, and no effect either."""
        name = "index" if self.streamed else "state"
        if self.store_of(name).is_down:
            return False
        request = commit_of(state) if self.streamed else self.states[process].request(state)
        outcome = self.store_of(name).commit(request)
        if not isinstance(outcome, Committed):
            facts: dict[str, object] = {"write": "transaction", "outcome": type(outcome).__name__}
            self._row(process, name, "refused", facts)
        return isinstance(outcome, Committed)

    def tell_committed(self, process: KeptProcess, state: bytes) -> None:
        """The row of a transaction that was done."""
        if not self.streamed:
            self._row(process, "state", "persisted", {"write": "transaction"})
            return
        request = commit_of(state)
        facts = {"next": request.next, "stream": request.stream, "reader": request.reader}
        self.world.note("store", 1, "committed", process.cause, as_detail(facts), pipe=self.pipe)

    def _row(self, process: KeptProcess, store: str, kind: str, facts: dict[str, object]) -> None:
        self.world.note(
            process.name,
            process.number,
            kind,
            process.cause,
            as_detail({"store": store, **facts}),
            pipe=self.told_pipe,
        )

    def _follow(self, process: KeptProcess, write: Write) -> None:
        """Identities change with the write, whether or not the process lives to hear of it."""
        match write:
            case AppendRows(epoch, first, payloads):
                self._keep(epoch, first, len(payloads))
            case ForgetRows(epoch, through):
                self.rows = {
                    known: [seq for seq in seqs if (known, seq) > (epoch, through)]
                    for known, seqs in self.rows.items()
                    if known >= epoch
                }
            case Renumber(epoch, payloads, replaces):
                if epoch not in self.rows:
                    self._renumber(process, epoch, len(payloads), replaces)
            case _:
                pass

    def _renumber(
        self, process: KeptProcess, epoch: int, count: int, replaces: Sequence[int]
    ) -> None:
        moved = [(old, seq) for old in sorted(replaces) for seq in self.rows.get(old, [])]
        moved = moved[len(moved) - count :] if count else []
        for old in replaces:
            self.rows.pop(old, None)
        self.rows[epoch] = list(range(1, count + 1))
        for new, (old, seq) in enumerate(moved, 1):
            process.renumber(old, seq, 1, epoch, new)

    # Letters.

    def letter(self, process: KeptProcess, effect: DeadLetter) -> None:
        """A dead letter is stored, once however often it is written; its answer comes, if its store has one."""
        letter, cause = effect.letter, process.cause
        call = self._named(f"letter e{letter.epoch} {letter.seq}")
        fate = self._fate_of_letter(call)

        def post() -> WriteOutcome:
            if "letters" in self.stores and self.stores["letters"].is_down:
                return WriteUnknown()
            self._keep_letter(process, letter, cause)
            return WriteStored() if fate.verb in ("", "slow") else WriteUnknown()

        if fate.verb == "slow":
            late = Happening(
                f"call {call}", lambda: self._reply(process, effect.ticket, post(), call)
            )
            self.world.at(self.world.now + fate.delay_us, self, late)
            return
        outcome: WriteOutcome = WriteUnknown()
        if fate.verb in ("lost", "refuse"):
            self._row(process, "letters", "fault", {"fault": "F18", "verb": fate.verb})
        else:
            outcome = post()
        self._reply(process, effect.ticket, outcome, call, max(fate.delay_us, self.latency_us))

    def _fate_of_letter(self, call: str) -> StoreFate:
        if "letters" not in self.stores:
            return PLAIN_STORE_FATE
        return self.world.chooser.store("letters", call, is_write=True)

    def _keep_letter(self, process: KeptProcess, letter: Letter, cause: str) -> None:
        identity = (letter.producer, letter.epoch, letter.seq)
        if identity in self.letters:
            return
        self.letters.add(identity)
        self.world.note(
            process.name,
            process.number,
            "dead",
            cause,
            as_detail({"cause": f"{letter.error_type}: {letter.error_text}"}),
            pipe=process.end.pipe_of(letter.producer),
            epoch=letter.epoch,
            seq=letter.seq,
            count=1,
            attempt=letter.attempts,
            digests=digest_of(letter.payload),
        )

    # Calls of streams.

    def call(self, process: KeptProcess, effect: Call) -> None:
        """A store call takes its way there and back."""
        request = cast("StoreRequest", effect.request)
        if isinstance(request, WaitForMore | WaitForMark):
            self._wait(StreamWaiter(process, effect.ticket, request))
            return
        store = "index" if isinstance(request, POSITIONS) else "stream"
        call = self._named(f"{process.name} {name_of(request)}")
        fate = self.world.chooser.store(store, call, is_write=is_write(request))
        if fate.verb == "lost":
            self._row(process, store, "fault", {"fault": "F18", "verb": "lost"})
            return
        wait = self.latency_us
        there = fate.delay_us if fate.verb == "slow" else wait
        back = wait + fate.delay_us if fate.verb == LATE_ANSWER else wait

        def arrive() -> None:
            # An answer that gets lost was given: the store has done the call, and the rows say so.
            places = self._places(request)
            met = PLAIN if fate.verb in ("unknown", LATE_ANSWER) else fate
            outcome = self.store_of(store).call(request, met)
            self._told(process, request, outcome)
            self._tell_trimmed(request, *places)
            if outcome is not None and fate.verb != "unknown":
                self._reply(process, effect.ticket, outcome, call, back)

        self.world.at(self.world.now + there, self, Happening(f"call {call}", arrive))

    def _places(self, request: StoreRequest) -> tuple[int, int]:
        """Of a stream whose retention may pass its readers: its first index, and the first that is unread."""
        if not (self.may_pass and isinstance(request, AppendRun)):
            return 0, 0
        return self.stores["stream"].places_of(request.stream)

    def _tell_trimmed(self, request: StoreRequest, earliest: int, unread: int) -> None:
        """A row of what an append has pushed out before it was read."""
        left, _ = self._places(request)
        if left > max(earliest, unread):
            gone = {getattr(request, "stream", ""): (earliest, left - 1)}
            detail = as_detail({"gone": gone})
            self.world.note("store", 1, "trimmed", detail=detail, pipe=self.pipe)

    def _told(
        self, process: KeptProcess, request: StoreRequest, outcome: StoreOutcome | None
    ) -> None:
        """The rows of what a store did, if it did anything."""
        if isinstance(request, AppendRun) and isinstance(outcome, Stored) and outcome.new:
            start = len(request.payloads) - outcome.new
            self.world.note(
                "store",
                1,
                "appended",
                process.cause,
                as_detail({"index": outcome.first_index, "stream": request.stream}),
                pipe=self.told_pipe,
                layer=self.stream_layer,
                epoch=request.epoch,
                seq=request.first + start,
                count=outcome.new,
                digests=digests_of(request.payloads[start:]),
            )
        elif isinstance(request, ReadFrom) and isinstance(outcome, Batch):
            facts = {"index": request.index, "stream": request.stream}
            self.world.note("store", 1, "fetched", process.cause, as_detail(facts), pipe=self.pipe)
        elif isinstance(request, CommitPosition) and isinstance(outcome, Committed):
            found = {"next": request.next, "stream": request.stream, "reader": request.reader}
            self.world.note(
                "store", 1, "committed", process.cause, as_detail(found), pipe=self.pipe
            )

    def _wait(self, waiter: StreamWaiter) -> None:
        self.waiters.append(waiter)
        self._tell_waiters()

    def _tell_all(self) -> None:
        for keeper in self.keepers:
            keeper._tell_waiters()

    def _tell_waiters(self) -> None:
        # A machine that asks again and again has many waits of one kind, and nothing changes while they are told.
        waiting, self.waiters = self.waiters, []
        has_more: dict[WaitForMore | WaitForMark, bool] = {}
        for waiter in waiting:
            request, store = waiter.request, self.stores["stream"]
            if request not in has_more:
                has_more[request] = store.has_more(request)
            if has_more[request]:
                call = self._named(f"{waiter.process.name} {name_of(request)}")
                found = Hint() if isinstance(request, WaitForMore) else store.call(request)
                self._reply(waiter.process, waiter.ticket, found, call)
            elif waiter.process.is_alive:
                self.waiters.append(waiter)
