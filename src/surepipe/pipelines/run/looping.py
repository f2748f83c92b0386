"""Loops that take the deliveries of a pipe through its flow: in transactions, or settled as they go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.consuming.committed import COMMIT_AFTER_US, Commits, CommittedHandler
from surepipe.actors.consuming.consumer import Loop, Work
from surepipe.actors.tracing import FlowTrace
from surepipe.core.store_requests import Transaction
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import Environment, LandingSink, Sink
from surepipe.pipelines.run.flow import FlowTurn, StageFlow, identity_of
from surepipe.pipelines.run.tallies import Identity
from surepipe.pipelines.run.writers import SharedSink
from surepipe.pipelines.stages import About


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
        self._flow = flow
        self._shared = sorted(shared, key=lambda one: one.name)
        self._parts = [*(one.sink for one in self._shared), *writers]
        self._landing = [part for part in self._parts if isinstance(part, LandingSink)]
        self._now = environment.runtime.now
        self._transaction: Transaction | None = None
        self._turns: list[FlowTurn] = []
        """Those that are in it."""
        self._taken: list[tuple[FlowTurn, Sequence[About]]] = []
        """The same with the messages of each."""

    def make(self, commits: Commits | None, codec: Codec) -> Loop:
        def loop(work: Work) -> None:
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
            for end, seq, times in self._flow.made(turn, abouts)
        }
        if self._told:
            again = [
                one.seq for _, abouts in turns for one in abouts if identity_of(one) in self._told
            ]
            found = {(end, seq): 1 for seq in again for end in self._flow.ends} | found
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
        except (
            ConfigurationError
        ) as error:  # refused as a whole: no message is to blame when a sink was taken over
            self._land(work)
            if work.trouble is None:
                self._blame(error)
                raise
        finally:
            self._land(work)

    def _blame(self, error: ConfigurationError) -> None:
        """What the store refused is the failure of the part that added it. Raises GiveUp for its last attempt."""
        transaction, turns = self._transaction, self._turns
        if transaction is None or transaction.done or not (turns and transaction.outcomes):
            return  # a part has raised it, and that is counted
        self._turns = []
        self._flow.refused(turns, transaction, error)

    def _land(self, work: Work) -> None:
        """A repeat does what could not be done before."""
        for part in self._landing:
            lost = part.land()
            work.trouble = lost or work.trouble

    def _commit(self, work: Work, commits: Commits, codec: Codec) -> None:
        if self._flow.size > 1 and not self._has_failed(work):
            commits.together(lambda messages, t: self._take_all(work, messages, t), codec)(work)
        else:
            commits.each(self._one_by_one(work), codec, self._seal, self._land)(work)

    def _has_failed(self, work: Work) -> bool:
        """True when one of the messages failed before: then each is taken by itself."""
        places = range(work.done + 1, work.last + 1)
        return any(self._flow.has_failed(self._about(work, place)) for place in places)

    def _one_by_one(self, work: Work) -> CommittedHandler:
        at = work.done

        def take(message: object, transaction: Transaction) -> None:
            nonlocal at
            if transaction is not self._transaction:  # what a refused one took comes again
                at = work.done
            at += 1
            self._begin(transaction)
            self._take([(message, self._about(work, at))], transaction)

        return take

    def _take_all(self, work: Work, messages: list[object], transaction: Transaction) -> None:
        self._begin(transaction)
        start = work.done + 1
        abouts = [(message, self._about(work, n)) for n, message in enumerate(messages, start)]
        for first in range(0, len(abouts), self._flow.size):
            self._take(abouts[first : first + self._flow.size], transaction)
        self._seal(transaction)

    def _begin(self, transaction: Transaction) -> None:
        if transaction is not self._transaction:
            if self._transaction is not None and not self._transaction.done:
                self._flow.come_again(self._turns)
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
            turn = self._flow.take(messages, transaction)
        except BaseException:
            for part, mark in zip(self._parts, marks, strict=True):
                part.back_to(mark)
            raise
        if transaction is not None:
            self._turns.append(turn)
            self._taken.append((turn, [about for _, about in messages]))
        return turn

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

    def _take_some(self, work: Work, codec: Codec) -> tuple[int, BaseException | None]:
        """Messages of about a tenth of a second: how far it came, and why not further."""
        done, end = work.done, self._now() + COMMIT_AFTER_US
        has_parts = bool(self._parts)
        taken: list[tuple[FlowTurn, Sequence[About]]] = []
        while done < work.last and not work.is_cut:
            try:
                messages = self._next_of(work, done, codec)
                if not messages:  # cancelled meanwhile
                    break
                turn = self._take(messages, None)
            except BaseException as error:  # noqa: BLE001 - the machine decides what becomes of it
                self._tell(taken, may_come_again=False)
                return done, error
            taken.append((turn, [about for _, about in messages]))
            done += len(messages)
            if not has_parts:
                self._tell(taken, may_come_again=False)
                taken.clear()
                work.done = done
            if self._now() >= end:
                break
        self._tell(taken, may_come_again=False)
        return done, None

    def _next_of(self, work: Work, done: int, codec: Codec) -> list[tuple[object, About]]:
        """The messages of the next turn. What can't be decoded ends it, and raises when it is the first."""
        is_alone = self._flow.size == 1 or self._flow.has_failed(self._about(work, done + 1))
        payloads = work.left[len(work.left) - (work.last - done) :]
        messages: list[tuple[object, About]] = []
        for n, payload in enumerate(payloads[: 1 if is_alone else self._flow.size], 1):
            try:
                messages.append((codec.decode(payload), self._about(work, done + n)))
            except Undecodable:
                if n == 1:
                    raise
                break
        return messages
