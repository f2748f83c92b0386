"""Parties and relays as processes: a party that takes what relays of other processes bring, and a relay's end for
it.

A submission goes by a stream of the receiving party's store, one stream for each relay. Sending it again, its
order and its survival are those of that stream pipe; a submission that comes twice is redundant.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from surepipe.actors.ends.remote import StreamReceiver, StreamSender
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.notices import NoticeCallback, log_notice
from surepipe.actors.runtime import Alarm, Running, Runtime
from surepipe.actors.threads import THREADS
from surepipe.actors.tracing import FlowTrace
from surepipe.core.store_requests import Batch, Retention, Store, StreamInfo, called
from surepipe.errors import (
    ConfigurationError,
    Fenced,
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    PipeFull,
    PipeStopped,
    StoreUnavailable,
    SurepipeError,
)
from surepipe.queues.ibc.calls import SUBMISSION_LIMITS, CallOutcome, Submission
from surepipe.queues.ibc.keys import QueueKey, parse_key
from surepipe.queues.ibc.ledger import RELAYERS_ROW, Ledger, inbox_of, relayers_of
from surepipe.queues.ibc.merkle_store import KEEP_BYTES, PRODUCER, IbcRefused
from surepipe.queues.ibc.module import Sending
from surepipe.queues.ibc.party import TRUSTING_PERIOD_S, Party
from surepipe.queues.ibc.queue import SPACE
from surepipe.queues.ibc.relay import PathStatus, Relay
from surepipe.queues.ibc.signer import Signer
from surepipe.queues.ibc.transitions import OpenBlock, PartyLimits

logger = logging.getLogger("surepipe")
INBOX_BYTES = 64 << 20
"""So much of one relay's submissions waits for a party; then that relay waits."""
CLOSE_S = 10.0
LOOK_US = 1_000_000
FEED_S, AGAIN_S = 0.02, 0.5
FEED_MESSAGES, FEED_BYTES = 100, 1 << 20
LATER = frozenset({"queue-full", "client-frozen", "client-expired", "clock-jump"})
"""Codes of refusals that may pass, by themselves or when an operator has looked."""

OWN_FAULTS = frozenset({"handler-misuse", "callback-failed", "too-many-deferred", "newer-format"})
"""Codes of refusals that end when this party's own code is mended, or has done its work."""


class StoreEnd:
    """A party in another process, as a relay sees it: its ledger is read, and submissions go into its inbox.

    Of the party's store nothing is written. The inbox stands beside it (``Store.beside``), so on Redis the relay
    may have an account that reads the one and writes the other.
    """

    def __init__(
        self, store: Store, relayer: str, runtime: Runtime = THREADS, *, carries: bool = True
    ) -> None:
        """One that only looks (``carries=False``) has no inbox: a relay of its name goes on."""
        self.ledger = Ledger(store)
        self._relayer = relayer
        self._sender: StreamSender | None = None
        if not carries:
            return
        self._sender = StreamSender(
            inbox_of(relayer),
            {"stream": {"message_max_bytes": SUBMISSION_LIMITS.bytes_max}},
            store=store.beside(inbox_of(relayer)),
            codec="bytes",
            retention=Retention(max_bytes=INBOX_BYTES),
            runtime=runtime,
        )

    def submit(self, submission: Submission) -> None:
        """On its way into the inbox. Nobody waits for that: the ledger shows what came of it."""
        if self._sender is None:
            raise MisuseError("this end of a relay only looks, and brings nothing")
        try:
            self._sender.send_nowait(submission.encode())
        except (Fenced, PipeStopped) as error:
            raise Fenced(
                f"{called(self.ledger.store)}: another relay of the name {self._relayer!r} carries there now, so "
                "this one ends: give each relay a name of its own, which the parties know (relayers)"
            ) from error
        except PipeFull as error:
            raise StoreUnavailable(f"the inbox {self._sender.name} takes no more now") from error
        except PayloadTooLarge as error:  # only of a party with other limits than ours
            raise StoreUnavailable(f"a submission is too large to be brought: {error}") from error

    def close(self) -> None:
        """What isn't in the inbox by then is brought by whichever relay comes next."""
        if self._sender is None:
            return
        with suppress(PipeStopped, NotConfirmed):
            self._sender.close()


class ServedParty(Party):
    """A party that takes what these relays bring, in the background, from ``serve()`` on until it is closed."""

    def __init__(
        self,
        name: str,
        *,
        store: Store | str,
        keys: str | Path | Sequence[bytes] | Signer | None = None,
        relayers: Sequence[str] = ("relay",),
        trusting_period_s: float = TRUSTING_PERIOD_S,
        limits: PartyLimits | None = None,
        check: bool = False,
        adopt: bool = False,
        keep_bytes: int = KEEP_BYTES,
        notices: NoticeCallback = log_notice,
        runtime: Runtime = THREADS,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """See ``Party``. Nothing is taken before ``serve()``, so that modules claim their types first: a message
        of a type that nobody claims is answered as one that this party doesn't support."""
        self.failure: SurepipeError | None = None
        """Why it takes nothing any more."""
        self._runtime = runtime
        self._relayers = tuple(relayers)
        self._notices = notices
        self._inboxes: list[StreamReceiver] = []
        self._are_relayers_noted = False
        self._told_waiting: dict[tuple[str, str], int | None] = {}
        """By connection and code, the message that was told of last."""
        super().__init__(
            name,
            store=store,
            keys=keys,
            trusting_period_s=trusting_period_s,
            limits=limits,
            check=check,
            adopt=adopt,
            keep_bytes=keep_bytes,
            clock=clock or runtime.wall_ms,
            monotonic=runtime.now,
            lock=runtime.lock(),
            here=runtime.here,
            number_of_life=lives_of(runtime),
        )

    def serve(self) -> None:
        """Take what relays bring; a second call does nothing. An inbox that its relay has spoiled is left out, and
        told in the log. Raises ConfigurationError when that leaves none."""
        if self._inboxes:
            return
        failures: list[ConfigurationError] = []
        for relayer in self._relayers:
            try:
                inbox = self._inbox(relayer)
            except ConfigurationError as error:
                failures.append(error)
                logger.error(
                    "party %s: relay %s can bring nothing until the keys of its inbox are removed: %s",
                    *(self.name, relayer, error),
                )
                continue
            self._inboxes.append(inbox)
            inbox.receive(partial(self._take, relayer))
        if failures and not self._inboxes:
            raise failures[0]

    def _inbox(self, relayer: str) -> StreamReceiver:
        return StreamReceiver(
            inbox_of(relayer),
            {"stream": {"start": "earliest", "read_max": 16}},
            store=self.store.beside(inbox_of(relayer)),
            codec="bytes",
            retention=Retention(max_bytes=INBOX_BYTES),
            notices=self._notices,
            runtime=self._runtime,
        )

    def _take(self, relayer: str, submission: object) -> None:
        """What a relay brings. One that can't be read is dropped; a store that doesn't answer is asked again by
        the inbox, which keeps the submission."""
        if self.failure is not None:
            raise self.failure
        try:
            read = Submission.decode(bytes(submission))  # type: ignore[call-overload]
            self._tell_waiting(read, self.submit(read).items)
        except IbcRefused as refusal:
            logger.warning("party %s: from relay %s: %s", self.name, relayer, refusal)
        except Fenced as error:
            self.failure = error
            raise
        if self.merkle.is_cut and not self._is_cut_told:
            self._is_cut_told = True
            logger.warning(
                "party %s: older heights take all the room that they may (keep_bytes), and go before their time",
                self.name,
            )

    def _tell_waiting(self, submission: Submission, outcomes: Sequence[CallOutcome]) -> None:
        """Say once what this side's own code doesn't let pass: relays only see that it waits."""
        for item, outcome in zip(submission.items, outcomes, strict=False):
            key = parse_key(item.key)
            if outcome.code not in OWN_FAULTS or key is None:
                continue
            place = submission.connection, outcome.code
            if self._told_waiting.get(place) != key.index:
                self._told_waiting[place] = key.index
                logger.warning(
                    "party %s: message %s of connection %s waits: %s; it is tried when a relay brings it again",
                    *(self.name, key.index, submission.connection, outcome.text),
                )

    _is_cut_told = False

    def _commit(self, block: OpenBlock) -> None:
        """With the names of the relays in the first block of a life: an audit reads what each has brought."""
        if not self._are_relayers_noted:
            known = block.working.row(RELAYERS_ROW)
            before = relayers_of(known) if known else ()
            names = "\n".join(dict.fromkeys((*before, *self._relayers))).encode()
            if names != known:
                block.working.put_row(RELAYERS_ROW, names)
        super()._commit(block)
        self._are_relayers_noted = True

    def merkle_row(self, key: bytes) -> bytes | None:
        """A row of this party outside of its trees."""
        with self._entered():
            self.merkle.settle()
            return self.merkle.row(key)

    def sent(self, connection: str) -> tuple[int, int]:
        """The oldest message that isn't settled, and the next to be sent."""
        keys = [QueueKey(connection, "send", part).encode() for part in ("head", "tail")]
        with self._entered():
            self.merkle.settle()
            head, tail = (int.from_bytes(self.merkle.get(SPACE, key) or b"", "big") for key in keys)
        return head, tail

    def send_from(
        self,
        module: str,
        connection: str,
        messages: Sequence[Sending],
        row: tuple[bytes, bytes, bytes],
    ) -> None:
        """Send messages in one block with a row that says how far their source came, if it says so far what it
        should. Raises IbcRefused."""
        key, before, after = row

        def act(block: OpenBlock) -> None:
            if (block.working.row(key) or before) != before:
                return  # an earlier block, whose answer was lost, has sent them
            for each in messages:
                block.send(module, connection, each)
            block.working.put_row(key, after)

        self._call(act)

    def close(self) -> None:
        """Take nothing more, and end."""
        for inbox in self._inboxes:
            inbox.close(CLOSE_S)
        super().close()


class StreamToParty:
    """Sends what a stream of a party's store has, each entry once: how far it came is a row of the block that
    sends.

    1. A block sends ten entries, and the process is killed. 2. The block is there with the row, or neither is. 3.
    The next process goes on behind the row.
    """

    def __init__(
        self,
        party: ServedParty,
        stream: str,
        connection: str,
        type_name: str,
        runtime: Runtime = THREADS,
        *,
        timeout_s: float | None = None,
        trace: FlowTrace | None = None,
        is_numbered: bool = True,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Messages have a limit of ``timeout_s`` from their sending on. ``is_numbered``: what comes out has the
        same numbers at the other party, so a trace can follow it. ``changed`` is told when ``waiting`` has one."""
        self.failure: BaseException | None = None
        """Why it sends nothing any more."""
        self._party, self._stream = party, stream
        self._connection, self._type, self._timeout_s = connection, type_name, timeout_s
        self._row = f"sent/{stream}".encode()
        self._runtime = runtime
        self._alarm: Alarm | None = None
        self._running: Running | None = None
        self._is_ending = False
        self._trace, self._is_numbered = trace, is_numbered
        self._told: int | None = None
        """So many messages of the connection the trace knows of."""
        self._passing: Batch | None = None
        """What was given to the party last, if it isn't known to be stored, and how often."""
        self._attempt = 0
        self._counted: int | None = None
        self._is_asked = False
        self._changed = changed
        self.waited: int | None = None
        """The last number that anybody was told."""

    def start(self) -> None:
        """Begin to send."""
        self._running = self._runtime.start(self, f"{self._stream} to {self._connection}")
        self._alarm = self._runtime.alarm(self._ring)
        self._ring()

    def _ring(self) -> None:
        if self._running is not None:
            self._running.tell("go on")

    def receive(self, message: object) -> None:
        """Send what is there. A party or a store that can't take it now is asked again."""
        del message
        if self._is_ending or self._alarm is None:
            return
        pause = FEED_S
        try:
            if self._send_some():
                pause = 0.0
            elif self._is_asked and self._counted is None:
                self._counted = self._count()
                self._changed()
        except StoreUnavailable:
            pause = AGAIN_S
        except IbcRefused as refusal:
            if refusal.code not in LATER:
                raise
            pause = AGAIN_S
        self._alarm.set(self._runtime.now() + round(pause * 1_000_000))

    def _send_some(self) -> bool:
        party, done = self._party, self.done()
        self._tell(done)
        found = party.store.read(self._stream, done, FEED_MESSAGES, FEED_BYTES)
        if not isinstance(found, Batch):
            return False
        self._tell_passing(found)
        payloads = [payload for run in found.entries for payload in run.payloads]
        sendings = [
            Sending(self._type, b"\1" + payload, timeout_after_s=self._timeout_s)
            for payload in payloads
        ]
        party.send_from(
            "pipeline", self._connection, sendings, (self._row, b"%d" % done, b"%d" % found.next)
        )
        party.store.trim(self._stream, found.next)
        return True

    def done(self) -> int:
        """The index of the stream that is to be sent next. Raises StoreUnavailable."""
        return int(self._party.merkle_row(self._row) or b"1")

    def _tell(self, done: int) -> None:
        """Write into the trace what blocks have sent, as far as they are known to be stored."""
        trace, channel = self._trace, f"{self._stream}@{PRODUCER}"
        if trace is None:
            return
        if self._passing is not None and self._passing.next <= done:
            for run in self._passing.entries:
                trace.settled(
                    f"{self._stream}@{run.producer}", run.epoch, run.first, len(run.payloads)
                )
            self._passing, self._attempt = None, 0
        if not self._is_numbered:
            return
        head, tail = self._party.sent(self._connection)
        if self._told is None:
            trace.found(channel, 1, head, tail)
        elif tail > self._told:
            trace.stored(channel, self._told + 1, tail)
        self._told = tail

    def _tell_passing(self, batch: Batch) -> None:
        if self._trace is not None:
            self._passing, self._attempt = batch, self._attempt + 1
            for run in batch.entries:
                channel = f"{self._stream}@{run.producer}"
                self._trace.delivered(
                    channel, run.epoch, run.first, len(run.payloads), self._attempt
                )

    def _count(self) -> int:
        info = self._party.store.info(self._stream)
        if not isinstance(info, StreamInfo):
            raise StoreUnavailable(f"{called(self._party.store)}: no word of {self._stream!r}")
        done = self.done()
        head, tail = self._party.sent(self._connection)
        return info.next - done + tail - head

    def waiting(self) -> int | None:
        """How many messages of the stream aren't sent, or aren't answered: as counted after this was asked first
        and said None, which it says again after each number.

        1. It looks, and the stream is empty. 2. The pipe stores its last message there, and has nothing more to
        do. 3. Whoever asks now must not be told what was seen in 1.
        """
        found = self._counted
        if found is None:
            self._is_asked = True
            return None
        self._is_asked, self._counted = False, None
        self.waited = found
        return found

    def died(self, error: BaseException) -> None:
        """By a connection that was closed, or a defect."""
        self.failure = error

    def close(self) -> None:
        """After the block that is open."""
        self._is_ending = True
        if self._alarm is not None and self._running is not None:
            self._alarm.close()
            self._running.stop()
            self._running.join(CLOSE_S)


Figures: TypeAlias = Mapping[tuple[str, str, str], float]
"""By the name of the metric, the path, and the stage or what else tells its rows apart."""


def figures_of(relay: Relay, statuses: Sequence[PathStatus]) -> Figures:
    """Count what waits on a relay's paths, and the results of its calls."""
    found: dict[tuple[str, str, str], float] = {}
    for path, status in zip(relay.paths, statuses, strict=True):
        name = path.name
        found["surepipe_ibc_live", name, status.state] = float(status.state == "live")
        found["surepipe_ibc_parked", name, ""] = len(status.parked)
        found["surepipe_ibc_trust_remaining_seconds", name, ""] = status.trust_left_s
        for stage, count in status.pending.items():
            found["surepipe_ibc_pending", name, stage] = count
        for stage, (_, index, age_s) in status.oldest.items():
            found["surepipe_ibc_oldest_pending_index", name, stage] = index
            found["surepipe_ibc_pending_age_seconds", name, stage] = age_s
        for (kind, outcome), count in path.submitted.items():
            found["surepipe_ibc_submitted", name, f"{kind}/{outcome}"] = count
        found["surepipe_ibc_headers", name, ""] = path.headers
    return found


class ServedRelay:
    """A relay in the background: a round whenever ``poll_s`` have passed, and at once after one that found
    work."""

    def __init__(self, relay: Relay, runtime: Runtime = THREADS) -> None:
        self.relay = relay
        self.failure: BaseException | None = None
        self._runtime = runtime
        self._over = runtime.signal()
        self._looks_at = 0
        self._figures: Figures = {}
        self._statuses: Sequence[PathStatus] = ()
        self._is_ending = False
        self._alarm: Alarm = runtime.alarm(self._ring)
        self._running: Running = runtime.start(self, "relay")
        self._ring()

    def _ring(self) -> None:
        self._running.tell("round")

    def receive(self, message: object) -> None:
        """One round."""
        del message
        if self._is_ending:
            return
        is_busy = self.relay.run_once()
        if self._runtime.now() >= self._looks_at or not is_busy:
            self._looks_at = self._runtime.now() + LOOK_US
            self._statuses = self.relay.status()
            self._figures = figures_of(self.relay, self._statuses)
            self._over.notify()
        pause = 0.0 if is_busy else self.relay.options.poll_s
        self._alarm.set(self._runtime.now() + round(pause * 1_000_000))

    def died(self, error: BaseException) -> None:
        """By a configuration that can't be relayed, or a defect."""
        self.failure = error
        logger.error("a relay ended: %s", error)
        self._over.notify()

    def figures(self) -> Figures:
        """The numbers of the last look, under the names of metrics. From any thread."""
        return self._figures

    def statuses(self) -> Sequence[PathStatus]:
        """How each path stands, as of the last look. From any thread."""
        return self._statuses

    def wait(
        self, timeout: float | None = None, until: Callable[[Figures], bool] | None = None
    ) -> bool:
        """Until its figures are so, or it has ended by an error; False when neither comes in time."""

        def is_over() -> bool:
            return self.failure is not None or (until is not None and until(self._figures))

        return self._over.wait(is_over, timeout)

    def close(self) -> None:
        """After the round that runs."""
        self._is_ending = True
        self._alarm.close()
        self._running.stop()
        self._running.join(CLOSE_S)


__all__ = ["ServedParty", "ServedRelay", "StoreEnd", "StreamToParty"]
