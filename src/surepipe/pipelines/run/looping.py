"""Loops that take the deliveries of a pipe through its flow: in transactions, or settled as they go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial

from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.consuming.committed import (
    COMMIT_AFTER_US,
    Abandoned,
    Commits,
    Taken,
    parted_of,
    payloads_of,
)
from surepipe.actors.consuming.consumer import GiveUp, Holder, Loop, Work
from surepipe.actors.consuming.coroutines import LoopEnded
from surepipe.actors.ends.intake import WaitsForItself
from surepipe.actors.tracing import FlowTrace
from surepipe.core.store_requests import Transaction
from surepipe.errors import ConfigurationError, PayloadTooLarge, StoreUnavailable
from surepipe.pipelines.assembly import Environment, LandingSink, Sink
from surepipe.pipelines.run.flow import FlowTurn, StageFlow, identity_of
from surepipe.pipelines.run.tallies import Identity
from surepipe.pipelines.run.writers import SharedSink
from surepipe.pipelines.stages import About

RUN_MAX = 512
"""So many messages are taken in one part of a transaction: a store may bound what one holds."""
LOOK_US = 1_000
"""After so long it is asked again whether others wait for the transaction."""


class FlowLoop:
    """Takes works of one pipe.

    ``shared``: sinks that it has to itself while it takes a work, so that messages can be sealed together.
    ``writers``: what takes part in its transactions beside them.
    """

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        pipe: str,
        flow: StageFlow,
        shared: Sequence[SharedSink],
        writers: Sequence[Sink],
        environment: Environment,
        trace: FlowTrace | None = None,
    ) -> None:
        self._trace = trace
        self._told: set[Identity] = set()
        """Epoch and seq of messages of a transaction that a row ``made`` speaks of; if it is refused, they come
        again, and perhaps another number of messages comes of them."""
        self._pipe = pipe
        self.flow = flow
        self._shared = sorted(shared, key=lambda one: one.name)
        self._parts = [*(one.sink for one in self._shared), *writers]
        self._landing = [part for part in self._parts if isinstance(part, LandingSink)]
        self._may_leave = not self._parts and flow.size == 1
        self._now = environment.runtime.now
        self.is_told = trace is not None
        """Somebody wants to know what became of each message."""
        self._transaction: Transaction | None = None
        self._turns: list[FlowTurn] = []
        """Those that are in it."""
        self._taken: list[tuple[FlowTurn, Sequence[About]]] = []
        """The same with the messages of each."""

    def make(self, commits: Commits | None, codec: Codec) -> Loop:
        def loop(work: Work) -> None:
            if commits is None and work.holder is not None and self._may_leave:
                self._settle_when_sealed(work, work.holder, codec)
                return
            with ExitStack() as held:
                for one in self._shared:
                    held.enter_context(one.alone())
                if commits is None:
                    self._settle_as_it_goes(work, codec)
                else:
                    self._commit_and_land(work, commits, codec)

        return loop

    def _about(self, work: Work, place: int) -> About:
        return About(self._pipe, work.epoch, work.seq_at(place), work.producer)

    def _tell(
        self, turns: Sequence[tuple[FlowTurn, Sequence[About]]], *, may_come_again: bool
    ) -> None:
        """Write down what came of these messages, before they count as settled."""
        if self._trace is None or not turns:
            return
        about = turns[0][1][0]
        found = {
            (end, seq): times
            for turn, abouts in turns
            for end, seq, times in self.flow.made(turn, abouts)
        }
        if self._told:
            again = [
                one.seq for _, abouts in turns for one in abouts if identity_of(one) in self._told
            ]
            found = {(end, seq): 1 for seq in again for end in self.flow.ends} | found
        if not found:
            return
        if may_come_again:
            self._told |= {(about.producer, about.epoch, seq) for _, seq in found}
        times: dict[str, list[tuple[int, int]]] = {}
        for (end, seq), count in sorted(found.items()):
            times.setdefault(end, []).append((seq, count))
        producer = f"@{about.producer}" if about.producer else ""
        self._trace.made(f"{self._pipe}{producer}", about.epoch, times)

    # In transactions.

    def _commit_and_land(self, work: Work, commits: Commits, codec: Codec) -> None:
        try:
            self._commit(work, commits, codec)
        except (ConfigurationError, PayloadTooLarge, WaitsForItself) as error:
            # Refused as a whole: no message is to blame when a sink was taken over.
            self._land(work)
            if work.trouble is None:
                self._blame(error)
                raise
        finally:
            self._land(work)

    def _blame(self, error: Exception) -> None:
        """What the store refused is the failure of the part that added it. Raises GiveUp for its last attempt."""
        transaction, turns = self._transaction, self._turns
        if transaction is None or transaction.done or not (turns and transaction.outcomes):
            return  # a part has raised it, and that is counted
        self._turns = []
        self.flow.refused(turns, transaction, error)

    def _land(self, work: Work) -> None:
        """A repeat does what could not be done before."""
        for part in self._landing:
            lost = part.land()
            work.trouble = lost or work.trouble

    def _commit(self, work: Work, commits: Commits, codec: Codec) -> None:
        if self.flow.size > 1 and not self._has_failed(work):
            handler = partial(self._take_all, work)  # a flow tells who is to blame by itself
            commits.together(handler, codec, takes_apart=False)(work)
        else:
            commits.by(lambda work, t: self._take_each(work, t, codec), self._land)(work)

    def _has_failed(self, work: Work) -> bool:
        """True when one of the messages failed before: then each is taken by itself."""
        if not self.flow.trials.known:
            return False
        places = range(work.done + 1, work.last + 1)
        return any(self.flow.has_failed(self._about(work, place)) for place in places)

    def _take_each(self, work: Work, transaction: Transaction, codec: Codec) -> Taken:
        self._begin(transaction)
        done, failure = self._take_run(work, codec, transaction)
        if isinstance(failure, StoreUnavailable | LoopEnded):  # no message is to blame
            raise failure
        if done > work.done:
            self._seal(transaction)
        return done, failure

    def _take_all(self, work: Work, messages: list[object], transaction: Transaction) -> None:
        self._begin(transaction)
        pipe, epoch, producer, seqs = self._pipe, work.epoch, work.producer, work.seqs
        start = work.done
        abouts = [
            (message, About(pipe, epoch, seqs[at] if seqs else at + 1, producer))
            for at, message in enumerate(messages, start)
        ]
        for first in range(0, len(abouts), self.flow.size):
            self._take(abouts[first : first + self.flow.size], transaction)
        self._seal(transaction)

    def _begin(self, transaction: Transaction) -> None:
        if transaction is not self._transaction:
            if self._transaction is not None and not self._transaction.done:
                self.flow.come_again(self._turns)
            else:
                self._told.clear()
            self._transaction, self._turns, self._taken = transaction, [], []
            for part in self._parts:
                part.begin(transaction)

    def _seal(self, transaction: Transaction) -> None:
        self._tell(self._taken, may_come_again=True)
        for part in self._parts:
            part.seal(transaction)

    def _take(
        self, messages: list[tuple[object, About]], transaction: Transaction | None
    ) -> FlowTurn:
        marks = [part.mark() for part in self._parts]
        try:
            turn = self.flow.take(messages, transaction)
        except BaseException:
            for part, mark in zip(self._parts, marks, strict=True):
                part.back_to(mark)
            raise
        if transaction is not None:
            self.had(turn, [about for _, about in messages])
        return turn

    def had(self, turn: FlowTurn, abouts: Sequence[About]) -> None:
        """This turn went through with these messages, in its transaction if it has one."""
        if turn.transaction is None:
            self._tell([(turn, abouts)], may_come_again=False)
        else:
            self._turns.append(turn)
            self._taken.append((turn, abouts))

    # Settled as it goes.

    def _settle_as_it_goes(self, work: Work, codec: Codec) -> None:
        while work.done < work.last and not work.is_cut:
            for part in self._parts:
                part.begin(None)
            done, failure = self._take_some(work, codec)
            if done > work.done:
                for part in self._parts:
                    part.seal(None)
                work.done = done
            if failure is not None:
                raise failure

    def _settle_when_sealed(self, work: Work, holder: Holder, codec: Codec) -> None:
        """One message after the other, in a lane, which need not wait for the disk.

        1. A turn is over, and its lines are given to the file. 2. The lane leaves the work, whose key stays busy,
        and takes another. 3. Whoever has the file seals what many lanes gave, and says so. 4. The message is
        settled, and the work goes on with its next one, in whatever lane is free.
        """
        with suppress(Abandoned):
            for payload in payloads_of(work):
                about = self._about(work, work.done + 1)
                turn = self.flow.take([(codec.decode(payload), about)], None, defers=True)
                if not turn.later:
                    self.had(turn, [about])
                    work.done += 1
                elif self._leaves(work, holder, turn, about):
                    return
                if work.is_cut or work.failure is not None:
                    return

    def _leaves(self, work: Work, holder: Holder, turn: FlowTurn, about: About) -> bool:
        """Give the sinks what the turn has for them; False when all of it is sealed already."""
        holder.hold(work)

        def known() -> None:
            try:
                self.flow.sealed(turn)
            except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
                work.failure = (work.done + 1, error)
            else:
                self.had(turn, [about])
                work.done += 1
            holder.release(work)

        self.flow.give(turn, known)
        return holder.leave(work)

    def _take_some(self, work: Work, codec: Codec) -> Taken:
        """Messages of about a tenth of a second: how far it came, and why not further."""
        if self.flow.size == 1:
            return self._take_run(work, codec, None)
        done, end = work.done, self._now() + COMMIT_AFTER_US
        taken: list[tuple[FlowTurn, Sequence[About]]] = []
        while done < work.last and not work.is_cut:
            try:
                messages = self._next_of(work, done, codec)
                if not messages:  # cancelled meanwhile
                    break
                if not work.may_repeat:
                    work.in_hand = len(messages)  # should they fail, all of them are passed over
                turn = self._take(messages, None)
            except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
                self._tell(taken, may_come_again=False)
                return done, error
            work.in_hand = 0
            taken.append((turn, [about for _, about in messages]))
            done += len(messages)
            if not self._parts:
                self._tell(taken, may_come_again=False)
                taken.clear()
                work.done = done
            if self._now() >= end:
                break
        self._tell(taken, may_come_again=False)
        return done, None

    # One message behind the other, in a transaction or without.

    def _take_run(self, work: Work, codec: Codec, transaction: Transaction | None) -> Taken:
        """Messages of about a tenth of a second, each by itself, until one fails. What is paid for each of them
        here is paid by everybody: so a turn, and a part of the transaction, is made once for all that go through.
        """
        flow, run = self.flow, _Run(self, work, transaction)
        enter, decode, now, parts = run.enter, codec.decode, self._now, self._parts
        pipe, epoch, producer, seqs = self._pipe, work.epoch, work.producer, work.seqs
        settles_each = transaction is None and not parts
        alone = parts[0].mark if len(parts) == 1 else None
        start = done = work.done
        look = now() + LOOK_US
        end = look - LOOK_US + COMMIT_AFTER_US
        failure: BaseException | None = None
        for payload in run.payloads:
            # Not before the first: it was there when the work was taken, and who ends the run counts on it.
            if done > start and (work.cancelled or work.parked is not None):
                break
            about = About(pipe, epoch, seqs[done] if seqs else done + 1, producer)
            marks = [alone()] if alone is not None else [part.mark() for part in parts]
            try:
                enter(decode(payload), about)
            except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
                for part, mark in zip(parts, marks, strict=True):
                    part.back_to(mark)
                failure = error
                # One that took back those before it is tried again alone, behind them: that counts.
                if done == start or transaction is None or not transaction.is_over:
                    failure = run.failed(about, error)
                break
            done += 1
            if settles_each:
                if self.is_told:
                    run.end()
                work.done = done
            if (at := now()) >= look or flow.lends:
                if at >= end or run.is_full:
                    break
                look = at + LOOK_US
        run.end()
        return done, failure

    def _next_of(self, work: Work, done: int, codec: Codec) -> list[tuple[object, About]]:
        """The messages of the next turn. What can't be decoded ends it, and raises when it is the first."""
        is_alone = self.flow.size == 1 or self.flow.has_failed(self._about(work, done + 1))
        payloads = work.left[len(work.left) - (work.last - done) :]
        messages: list[tuple[object, About]] = []
        for n, payload in enumerate(payloads[: 1 if is_alone else self.flow.size], 1):
            try:
                messages.append((codec.decode(payload), self._about(work, done + n)))
            except Undecodable:
                if n == 1:
                    raise
                break
        return messages


class _Run:
    """Messages of a work that are taken one behind the other; those that never failed share a turn."""

    def __init__(self, loop: FlowLoop, work: Work, transaction: Transaction | None) -> None:
        self._loop = loop
        self._flow = loop.flow
        self._entry = loop.flow.entry
        self._is_batched = loop.flow.size > 1
        self._transaction = transaction
        self._parted = parted_of(transaction)
        self._turn: FlowTurn | None = None
        self._size = 0
        self._abouts: list[About] = []
        self._is_told = loop.is_told
        self._entered: About | None = None
        self._is_noted = False
        self.payloads: list[bytes] = []
        """Those that are to be taken."""
        if transaction is None:
            with suppress(Abandoned):
                self.payloads = payloads_of(work)
            return
        self.payloads = payloads_of(work)
        if self._parted is None or work.one_by_one:
            del self.payloads[1:]
        if self._parted is not None:
            del self.payloads[RUN_MAX:]
            # Begins the transaction. A process that stands still in a stage has the store then, so that nobody
            # settles these messages before it has seen that it was replaced.
            with self._parted.part():
                pass

    @property
    def is_full(self) -> bool:
        """The transaction takes nothing more, or not while others wait for it."""
        return self._parted is not None and self._parted.is_full

    def enter(self, message: object, about: About) -> None:
        """Take one message. Raises what fails."""
        self._entered, self._is_noted = about, False
        flow, turn = self._flow, self._turn
        if self._is_batched or (flow.trials.known and flow.has_failed(about)):
            self._take_alone(message, about)
            return
        if turn is None:
            turn = self._turn = flow.begin(about, self._transaction)
        if turn.done:
            turn.done.clear()  # by another message
        if self._parted is None or not flow.lends:
            self._entry(message, about, turn)
        else:
            added = len(turn.added)
            try:
                with self._parted.part():
                    self._entry(message, about, turn)
            except BaseException:
                del turn.added[added:]
                raise
        self._size += 1
        if self._is_told:
            self._abouts.append(about)

    def _take_alone(self, message: object, about: About) -> None:
        """One that failed before has a turn of its own, and so have those that would be a batch with it."""
        self.end()
        self._is_noted = True
        with self._parted.part() if self._parted is not None else nullcontext():
            turn = self._flow.take([(message, about)], self._transaction)
        self._loop.had(turn, [about])

    def failed(self, about: About, error: BaseException) -> BaseException:
        """This message has failed: gives what becomes known of that."""
        if self._is_noted or self._entered is not about:  # it is no message, as it seems
            return error
        assert self._turn is not None
        if self._parted is not None and not self._flow.lends:
            with suppress(BaseException), self._parted.part():  # which may note more on the error
                raise error
        try:
            self._flow.failed(self._turn, about, error)
        except GiveUp as end:
            return end
        return error

    def end(self) -> None:
        """The turn is over; the next message begins another."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._flow.end(turn, self._size)
            if self._size:
                self._loop.had(turn, self._abouts)
            self._size, self._abouts = 0, []
