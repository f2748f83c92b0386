"""A pipe whose receiver has lanes, on the fake wire: handlers run side by side, by hand or by seed.

A payload is ``key:text``. One in ``poison`` fails as often as its count says, -1 always. ``per_life`` is
``settled`` cut by the incarnations of the receiver.
"""

from __future__ import annotations

import random
from dataclasses import replace

from surepipe.audit.predicates import OrderJudge
from surepipe.core.effects import Deliver, Key
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.lanes import KeyOf
from tests.kit.wire import Faults, Wire

LANES = BoundaryOptions(lanes=3, retry_min_s=0.1, retry_max_s=1.0)
LETTERS = BoundaryOptions(lanes=3, retries=2, dead_letters=True, retry_min_s=0.1)
ERROR = ("ValueError", "boom")


def key_of(payload: bytes) -> Key:
    """What stands before the colon. Raises ValueError where there is none."""
    key, colon, _ = payload.partition(b":")
    if not colon:
        raise ValueError("no colon")
    return key.decode()


class LaneWire(Wire):
    """Both ends on a fake wire; deliveries are answered by ``work``, ``work_all``, or by seed in ``torture``."""

    keys: KeyOf = staticmethod(key_of)

    def __init__(
        self, layers: object = "reliable", boundary: BoundaryOptions = LANES, **more: object
    ):
        self.poison: dict[bytes, int] = {}
        self.per_life: list[list[int]] = [[]]
        super().__init__(
            layers,  # type: ignore[arg-type]  # whatever parse_layers takes
            boundary=boundary,
            **{"auto_settle": False, **more},  # type: ignore[arg-type]
        )
        self.exchange()

    def _new_receiver(self) -> ReceiverStack:
        return ReceiverStack(
            self.pipe,
            parse_layers(self.layers),
            rng=random.Random(self.rng.getrandbits(64)),
            boundary=self.boundary,
            state=self.saved_state if self.boundary.durable else None,
            key_of=self.keys,
        )

    def crash_receiver(self) -> None:
        """As of every wire; what handlers were at is gone with the process."""
        self.per_life.append([])
        super().crash_receiver()

    def say(self, *texts: str) -> None:
        """Send these payloads and let them arrive."""
        self.send(*(text.encode() for text in texts))
        self.exchange()

    # Handlers.

    def open_keys(self) -> list[Key]:
        """The keys that are in work, oldest delivery first."""
        return [delivery.key for delivery in self.open.values()]

    def delivery_of(self, key: Key) -> Deliver:
        """The open delivery of a key."""
        (found,) = [delivery for delivery in self.open.values() if delivery.key == key]
        return found

    def work(self, key: Key, count: int | None = None) -> None:
        """The handler returns for the next ``count`` messages of a key, or for all it has; poison raises."""
        delivery = self.delivery_of(key)
        count = len(delivery.payloads) if count is None else count
        for _ in range(count):
            if not self.handle_next(delivery.ticket):
                return

    def handle_next(self, ticket: int) -> bool:
        """One message more of a delivery; False when it failed."""
        delivery = self.open.pop(ticket)
        seq, payload = delivery.seqs[0], delivery.payloads[0]
        left = self.poison.get(payload, 0)
        if left:
            self.poison[payload] = left - 1
            self._step("receiver", lambda: self.receiver.failed(ticket, seq, ERROR, self.now))
            return False
        position = self.positions[delivery.epoch, seq]
        assert self.accepted[position - 1] == payload, "V-2"
        self.settled.append(position)
        self.per_life[-1].append(position)
        if len(delivery.seqs) > 1:
            self.open[ticket] = replace(
                delivery, seqs=delivery.seqs[1:], payloads=delivery.payloads[1:]
            )
        self._step("receiver", lambda: self.receiver.settled(ticket, ((seq, seq),), self.now))
        return True

    def fail_at(self, key: Key, seq: int) -> None:
        """The handler of a key raises for this message, with no word about those before it."""
        ticket = self.open.pop(self.delivery_of(key).ticket).ticket
        self._step("receiver", lambda: self.receiver.failed(ticket, seq, ERROR, self.now))

    def settle_at_once(self, key: Key) -> None:
        """The handler of a key says in one word that it is done with all it has."""
        delivery = self.open.pop(self.delivery_of(key).ticket)
        done = tuple((seq, seq) for seq in delivery.seqs)
        self._step("receiver", lambda: self.receiver.settled(delivery.ticket, done, self.now))

    def fail_for_good(self, key: Key) -> None:
        """The first message that a key has in work can't be handled, now or ever."""
        delivery = self.open.pop(self.delivery_of(key).ticket)
        ticket, seq = delivery.ticket, delivery.seqs[0]
        self._step(
            "receiver", lambda: self.receiver.failed(ticket, seq, ERROR, self.now, final=True)
        )

    def refuse_part(self, key: Key, first: int, last: int) -> None:
        """The host gives these messages of a key back."""
        ticket = self.open.pop(self.delivery_of(key).ticket).ticket
        self._step("receiver", lambda: self.receiver.refused(ticket, ((first, last),), self.now))

    def settle_each(self, *keys: Key) -> None:
        """All that these keys have in work is settled in one step."""
        deliveries = [self.open.pop(self.delivery_of(key).ticket) for key in keys]
        answers = [(each.ticket, ((each.seqs[0], each.seqs[-1]),)) for each in deliveries]
        self._step("receiver", lambda: self.receiver.settled_each(answers, self.now))

    def work_all(self, *keys: str) -> None:
        """Handlers return, in these keys only if any are given, until nothing of them is in work."""
        while found := [d for d in self.open.values() if not keys or d.key in keys]:
            self.handle_next(found[0].ticket)
            self.exchange()

    def torture(self, seed: int, faults: Faults, *, crashes: int = 0) -> None:
        """Handlers end in an order drawn from the seed, between the frames of a route with faults."""
        rng = random.Random(seed)
        left = {"crashes": crashes}

        def something() -> None:
            if left["crashes"] and rng.random() < 0.01:
                left["crashes"] -= 1
                self.crash_receiver()
            for ticket in rng.sample(sorted(self.open), min(len(self.open), rng.randint(0, 2))):
                if ticket in self.open:
                    self.handle_next(ticket)

        for _ in range(10_000):
            self.run(faults, each_step=something)
            if not self.open:
                return
            self.handle_next(rng.choice(sorted(self.open)))
        raise AssertionError("handlers never came to an end")

    # What to assert on.

    def texts(self, positions: list[int] | None = None) -> list[str]:
        """What crossed the boundary, in order."""
        return [self.accepted[at - 1].decode() for at in (positions or self.settled)]

    def judged(self, key: str, positions: list[int]) -> OrderJudge:
        """The messages of one key, numbered among themselves, judged as a pipe of their own."""
        own = [
            at for at, text in enumerate(self.accepted, 1) if text.startswith(f"{key}:".encode())
        ]
        judge, number = OrderJudge(), {at: count for count, at in enumerate(own, 1)}
        seen: set[int] = set()
        for at in positions:
            if at in number:
                judge.step(number[at], repeated=at in seen)
                seen.add(at)
        return judge

    def all_keys(self) -> list[str]:
        """Every key that was sent, in order of its first message."""
        return list(dict.fromkeys(text.partition(b":")[0].decode() for text in self.accepted))
