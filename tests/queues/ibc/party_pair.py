"""Two parties with a clock of their own, and by hand what a relay does: for tests of calls one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from surepipe.core.store_requests import Store
from surepipe.queues.ibc import (
    CallOutcome,
    Item,
    ItemKind,
    Module,
    Party,
    Path,
    PathStatus,
    Relay,
    Submission,
    Transaction,
)
from surepipe.queues.ibc.keys import Part, QueueKey, QueueKind
from surepipe.queues.ibc.relay import PartyEnd
from surepipe.queues.ibc.transitions import TimeoutRule

START_MS = 1_700_000_000_000


class Time:
    """Virtual: it goes on when told."""

    def __init__(self) -> None:
        self.ms = START_MS
        self.step_ms = 0
        """By so much the clocks on the wall were set."""

    def wall_ms(self) -> int:
        return self.ms + self.step_ms

    def monotonic_us(self) -> int:
        return self.ms * 1_000

    def sleep(self, seconds: float) -> None:
        self.ms += max(1, round(seconds * 1_000))


class Pair:
    """Parties ``east`` and ``west``, each with a module ``app``; every handler's call is in ``told``."""

    def __init__(
        self,
        *,
        order: str = "ordered",
        form: str = "inline",
        timeout: TimeoutRule = "optional",
        stores: tuple[Store | None, Store | None] = (None, None),
        period_s: float = 14 * 24 * 3600.0,
        callbacks: Literal["stop", "park"] = "stop",
        check: bool = False,
        keep_heights: int = 256,
    ) -> None:
        self.time = Time()
        self.told: list[tuple[Any, ...]] = []
        self.broken = False
        self._west_ms = 0
        seeds = [bytes([1]) * 32], [bytes([2]) * 32]
        self.east, self.west = (
            Party(
                name,
                store=store,
                keys=keys,
                clock=self._clock_of(name),
                monotonic=self.time.monotonic_us,
                trusting_period_s=period_s,
                check=check,
                keep_heights=keep_heights,
            )
            for name, store, keys in zip(("east", "west"), stores, seeds, strict=True)
        )
        for party, other in ((self.east, self.west), (self.west, self.east)):
            party.register(other.name, other.identity(), order=order, form=form, timeout=timeout)
        self.east_app, self.west_app = (
            self._app(self.east, callbacks),
            self._app(self.west, callbacks),
        )
        self.relay = Relay([(self.east, self.west)], clock=self.time.wall_ms, sleep=self.time.sleep)

    def _app(self, party: Party, callbacks: Literal["stop", "park"]) -> Module:
        app = party.module("app")

        def receive(tx: Transaction, data: bytes) -> bytes:
            self.told.append(("received", party.name, tx.index, data))
            count = int(tx.get(b"count") or b"0") + 1
            tx.set(b"count", b"%d" % count)
            return b"done " + data

        def commit(tx: Transaction, data: bytes, result: bytes) -> None:
            self._callback(tx)
            self.told.append(("committed", party.name, tx.index, data, result))

        def roll_back(tx: Transaction, data: bytes, code: int, _: bytes) -> None:
            self._callback(tx)
            self.told.append(("rolled back", party.name, tx.index, data, code))

        app.handle(
            "note",
            on_receive=receive,
            on_commit=commit,
            on_rollback=roll_back,
            on_callback_error=callbacks,
        )
        return app

    def _callback(self, tx: Transaction) -> None:
        tx.set(b"called", b"back")
        if self.broken:
            raise ValueError("the callback is broken")

    def _clock_of(self, name: str) -> Callable[[], int]:
        return lambda: self.time.wall_ms() + (self._west_ms if name == "west" else 0)

    def west_steps(self, ms: int) -> None:
        """Somebody sets the clock of the west."""
        self._west_ms = ms

    # What a relay does.

    def brought(
        self,
        source: Party,
        target: Party,
        kind: ItemKind,
        key: QueueKey,
        *,
        value: bytes | None = None,
        index: int = 0,
        height: int | None = None,
        trusts: bool = True,
        flip: int | None = None,
    ) -> CallOutcome:
        """Submit one item of the source with its proof and its header, and say what came of it."""
        at = source.merkle.latest.height if height is None else height
        source.view.refresh()
        shown = source.view.get(key, at)
        proof = source.view.prove([key], at)
        given = (shown or b"") if value is None else value
        if flip is not None:
            given = bytes([given[0] ^ flip]) + given[1:]
        form = kind is ItemKind.RECEIVE and given[:1] == b"\2"
        if form:
            given = source.view.body(key.connection, key.index or 0)
        item = Item(kind, key.encode(), given, is_hashed=form, index=index)
        headers = (source.view.header(at),) if trusts else ()
        return target.submit(Submission(source.name, headers, at, proof, (item,))).items[0]

    def receive(self, index: int, **more: object) -> CallOutcome:
        """A message of the east comes to the west."""
        key = QueueKey("west", "send", "entry", index)
        return self.brought(self.east, self.west, ItemKind.RECEIVE, key, **more)  # type: ignore[arg-type]

    def receipt(self, index: int, part: Part = "entry", **more: object) -> CallOutcome:
        """Its receipt comes to the east."""
        key = QueueKey("east", "receipt", part, index)
        return self.brought(self.west, self.east, ItemKind.RECEIPT, key, **more)  # type: ignore[arg-type]

    def timed_out(self, index: int, **more: object) -> CallOutcome:
        """That the west hasn't received it comes to the east, for an ordered connection."""
        key = QueueKey("east", "receipt", "tail")
        return self.brought(
            self.west,
            self.east,
            ItemKind.TIMEOUT,
            key,
            index=index,
            **more,  # type: ignore[arg-type]
        )

    def cleaned(self, **more: object) -> CallOutcome:
        """What the east has settled comes to the west."""
        key = QueueKey("west", "send", "head")
        return self.brought(self.east, self.west, ItemKind.CLEANUP, key, **more)  # type: ignore[arg-type]

    def counters(self, party: Party, connection: str, queue: QueueKind) -> tuple[int, int]:
        """Head and tail."""
        party.view.refresh()
        found = party.view.counters(connection, queue, party.view.height)
        return found.head, found.tail

    def send(self, data: bytes = b"hi", **limits: float) -> int:
        """From the east to the west."""
        return self.east_app.send("west", "note", data, **limits)  # type: ignore[arg-type]

    def status(self) -> PathStatus:
        """Of the path."""
        return Path(PartyEnd(self.east), PartyEnd(self.west), None, self.relay.options).status(
            self.time.ms
        )
