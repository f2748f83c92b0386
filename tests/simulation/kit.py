"""Subjects and short ways to write a run down, for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from surepipe.audit.trace import Row
from surepipe.core.effects import (
    Accepted,
    Cause,
    Confirmed,
    Deliver,
    Effect,
    Ranges,
    Transmit,
    WakeAt,
)
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.errors import SurepipeError
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.actors.lives import ActorNode, Life
from surepipe.simulation.chance.script import Decision, Plain
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import MS, Options
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject, Subject

FORWARD = "network/sender>receiver"
BACK = "network/receiver>sender"
TIMER_US = 1_000_000
RETRY = {"run_max": 1, "window": 8}
RELIABLE = HopSubject({"reliable": RETRY}, name="reliable")
RESEND = HopSubject({"resend": {"run_max": 1}}, name="resend")


@dataclass(frozen=True, slots=True)
class Shot:
    """The one frame of the counting machines, in either direction."""

    epoch: int
    number: int
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """The answer to it."""

    epoch: int
    number: int


class Quiet:
    """What the counting machines don't do."""

    idle = True

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is asked."""
        return []

    def close(self, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is kept."""
        return []

    def counters(self) -> Mapping[str, int]:
        """Nothing is counted."""
        return {}

    def gauges(self) -> Mapping[str, int]:
        """Nothing stands."""
        return {}

    def export(self) -> object:
        """The attributes."""
        return [list(pair) for pair in vars(self).items()]

    def wake(self, now: int) -> list[Effect]:  # noqa: ARG002
        """Nothing is waited for."""
        return []


class Shooter(Quiet):
    """Sends each message once, at once, and again after a random while if it was not heard."""

    def __init__(self, life: int, rng: Randomness) -> None:
        self.life, self.rng = life, rng
        self.next = 1
        self.open: dict[int, bytes] = {}
        self.room = self.room_bytes = 1 << 30

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """One frame for each."""
        effects: list[Effect] = []
        for payload in payloads:
            self.open[self.next] = payload
            effects.append(Accepted(self.life, self.next, 1))
            effects.append(Transmit(Shot(self.life, self.next, (payload,))))
            self.next += 1
        return [*effects, WakeAt(self._later(now))]

    def wake(self, now: int) -> list[Effect]:
        """Whatever was not heard, again."""
        if not self.open:
            return []
        again = [Transmit(Shot(self.life, n, (p,))) for n, p in self.open.items()]
        return [*again, WakeAt(self._later(now))]

    def _later(self, now: int) -> int:
        return now + TIMER_US + self.rng.getrandbits(16)

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """It was heard."""
        if not isinstance(frame, Heard) or frame.epoch != self.life:
            return []
        if self.open.pop(frame.number, None) is None:
            return []
        confirmed = Confirmed(self.life, ((frame.number, frame.number),))
        return [confirmed, *([] if self.open else [WakeAt(None)])]

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What is open."""
        return [(self.life, ((number, number),)) for number in self.open]


class Target(Quiet):
    """Delivers whatever comes, and says so."""

    def __init__(self) -> None:
        self.tickets = 0
        self.open: dict[int, Shot] = {}

    def frame(self, frame: object, now: int) -> list[Effect]:  # noqa: ARG002
        """Deliver."""
        if not isinstance(frame, Shot):
            return []
        self.tickets += 1
        self.open[self.tickets] = frame
        return [Deliver(self.tickets, frame.epoch, frame.number, frame.payloads, 1)]

    def settled(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:  # noqa: ARG002
        """Confirm."""
        shot = self.open.pop(ticket)
        return [Transmit(Heard(shot.epoch, shot.number))]

    def failed(
        self,
        ticket: int,
        seq: int,  # noqa: ARG002
        error: Cause,  # noqa: ARG002
        now: int,  # noqa: ARG002
        *,
        final: bool = False,  # noqa: ARG002
    ) -> list[Effect]:
        """It comes again."""
        del self.open[ticket]
        return []

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:  # noqa: ARG002
        """It comes again."""
        del self.open[ticket]
        return []

    def state_after(self, ticket: int, through: int) -> bytes:  # noqa: ARG002
        """Nothing is kept."""
        return b""


@dataclass(frozen=True)
class Counting:
    """The simplest subject: it changes only when the simulator does, so its digests may be pinned."""

    name: str = "counting"
    pipe: str = "pipe"
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False

    def sender(self, *, life_hint: int, rng: Randomness, journal: object) -> SenderMachine:  # noqa: ARG002
        """A new life."""
        return Shooter(life_hint, rng)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:  # noqa: ARG002
        """A new incarnation."""
        return Target()


COUNTING = Counting()


def decide(authority: str, at: str, verb: str, *value: Plain, fault: str = "") -> Decision:
    """One decision."""
    return Decision(authority, at, verb, value, fault)


def lose(frame: str, link: str = FORWARD) -> Decision:
    """This frame is lost."""
    fault = "F1" if link == FORWARD else "F2"
    return decide(link, frame, "lose", fault=fault)


def crash(node: str, event: str, point: int = 0, away_us: int = 0) -> Decision:
    """The node ends at this event, with so much of it done."""
    fault = "F8" if node == "sender" else "F10"
    return decide(f"faults/{node}", f"{node}: {event}", "crash", point, away_us, fault=fault)


def told(
    *decisions: Decision, subject: Subject = COUNTING, options: Options | None = None
) -> RunResult:
    """A run that a script tells of. Every decision must find something to act on."""
    result = run_hop(subject, options or Options(messages=3), ScriptChooser(decisions, seed=1))
    assert result.stale is None, result.stale
    return result


def of_kind(rows: Iterable[Row], kind: str, node: str = "") -> list[Row]:
    """The rows of one kind (and node)."""
    return [row for row in rows if row.kind == kind and node in ("", row.node)]


def delivered(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """(epoch, seq) of each settled message, in order."""
    settled = of_kind(rows, "settled")
    return [(row.epoch, seq) for row in settled for seq in range(row.seq, row.last + 1)]


def frames(rows: Iterable[Row], kind: str, frame: str = "data") -> list[int]:
    """The first message of each data frame that was transmitted, lost, copied or has arrived."""
    return [row.seq for row in of_kind(rows, kind) if f'"frame":"{frame}"' in row.detail]


def with_options(options: Options, **changes: int | str | bool) -> Options:
    """The same with changes."""
    return replace(options, **changes)  # type: ignore[arg-type]


def supervised(life: Life, program: Callable[[Life], None]) -> None:
    """What a supervisor does: a process that can't go on is started again after a while."""
    try:
        program(life)
    except SurepipeError as error:
        node: ActorNode = life.node
        is_current = node.current is life
        node.end(life, type(error).__name__)
        if is_current:
            node.start_after(200 * MS)
