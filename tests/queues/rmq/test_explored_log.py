"""Every order in which frames can come to three honest members of a log beside a liar who says two things.

Explored is the whole space of a small scope over the real machines: two members say something at any moment, the
liar's entries of two heights come to whom they come, and every frame arrives at any moment or not yet. The store
and the guard answer at once, and time stands still: so what a member lacks is pulled, and nothing is repeated. A
state is what each member has and what is on its way; it counts what was delivered, not in which order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import pytest

from surepipe.core.effects import Addressed, Call, Effect, Transmit
from surepipe.core.store_requests import AppendRun, Stored
from surepipe.queues.rmq.catchain import LogMachine, LogOptions, Voice
from surepipe.queues.rmq.encoding import encode
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.stored_log import Release, Released, StoredLog
from tests.queues.rmq.log_network import SESSION, KeyedHash
from tests.queues.rmq.test_log import MEMBERS, entry_of

NOW = 1_000_000
HONEST = ("n1", "n2", "n3")
Frame: TypeAlias = tuple[str, str, bytes]
"""From, to, and what."""
X = entry_of("n4", None, say="x")
Y = entry_of("n4", None, say="y")
X2 = entry_of("n4", X, say="x2")


class Zero(Random):
    """Chance that always draws the same."""

    def getrandbits(self, k: int, /) -> int:
        del k
        return 0

    def random(self) -> float:
        return 0.0


ZERO = Zero(1)


@dataclass
class Member:
    """A machine, and what it has done."""

    machine: LogMachine
    delivered: frozenset[bytes] = frozenset()
    own: tuple[bytes, ...] = ()
    has_said: bool = False

    def key(self) -> object:
        """All that decides what it does next."""
        pulls = tuple(sorted(self.machine._pulls))  # pyright: ignore[reportPrivateUsage] - it is looked into
        stopped = tuple(sorted(self.machine.stopped))
        return self.machine.export(), self.delivered, self.own, self.has_said, pulls, stopped


def first(name: str) -> Member:
    """One that may write."""
    machine = LogMachine(
        SESSION,
        name,
        MEMBERS,
        quorum=3,
        keys=KeyedHash(name),
        rng=ZERO,
        stored=StoredLog("log", name, 1),
        guarded=(0, b""),
        options=LogOptions(entry_delay_us=0),
    )
    machine.wake(NOW)
    machine.voice = Voice.SPEAKING
    return Member(machine)


def copied(member: Member) -> Member:
    """As deep as it changes: entries, options and chance don't."""
    known = member.machine.causality.known.values()
    shared = (ZERO, member.machine.options, *(each.entry for each in known))
    return deepcopy(member, {id(each): each for each in shared})


def acted(member: Member, act: Callable[[LogMachine], list[Effect]]) -> tuple[Member, list[Frame]]:
    """A copy of it after an event, and what it sends to honest members."""
    after = copied(member)
    machine, frames = after.machine, list[Frame]()
    effects = deque(act(machine))
    while effects:
        match effects.popleft():
            case Transmit(Addressed(peer, bytes() as data)):
                frames.append((machine.name, peer, data))
            case Call(ticket, AppendRun() as run):
                effects.extend(machine.answer(ticket, Stored(run.last, len(run.payloads), 1), NOW))
            case Call(ticket, Release() as asked):
                signed = Released(KeyedHash(machine.name).sign(asked.signed))
                effects.extend(machine.answer(ticket, signed, NOW))
            case _:
                pass
    delivered = {entry.digest for entry in machine.take_delivered()}
    assert not delivered & after.delivered, "delivered twice"
    after.delivered |= delivered
    after.own = tuple(machine.causality.chains[machine.name])
    check(after, member)
    return after, [each for each in frames if each[1] in HONEST]


def check(member: Member, before: Member) -> None:
    """What holds at a member after every step."""
    machine = member.machine
    assert not set(machine.blamed) & set(HONEST), "CL-1: an honest member is blamed"
    assert member.own[: len(before.own)] == before.own, "CL-5: an own entry was taken back"
    for digest in member.delivered:
        entry = machine.causality.known[digest].entry
        assert all(each in member.delivered for each in entry.references), "CL-2"
    if {X.digest, Y.digest} <= member.delivered:
        assert "n4" in machine.blamed, "CL-1: both are here, and nobody is blamed"
    proven = False
    for digest in member.own:
        entry = machine.causality.known[digest].entry
        assert not proven or "n4" not in {each.author for each in entry.cites}, "CL-4"
        proven = proven or any(item[0] == "fork" for item in entry.items)


class LogSpace:
    """Members and frames by number, so that each event is given to each state of a member once."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.frames: list[Frame] = []
        self._numbers: dict[object, int] = {}
        self._bits: dict[Frame, int] = {}
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def number(self, member: Member) -> int:
        found = self._numbers.setdefault((member.machine.name, member.key()), len(self.members))
        if found == len(self.members):
            self.members.append(member)
        return found

    def bits(self, frames: Iterable[Frame]) -> int:
        """Frames as a set: each has a bit."""
        found = 0
        for each in frames:
            if each not in self._bits:
                self._bits[each] = 1 << len(self.frames)
                self.frames.append(each)
            found |= self._bits[each]
        return found

    def react(self, at: int, frame: int) -> tuple[int, int]:
        """The state after a frame has come, or ``SAY``, and what is sent."""
        known = self._known.get((at, frame))
        if known is None:
            after, frames = acted(self.members[at], self._event(frame))
            after.has_said = after.has_said or frame == SAY
            known = self._known[at, frame] = self.number(after), self.bits(frames)
        return known

    def _event(self, frame: int) -> Callable[[LogMachine], list[Effect]]:
        def say(machine: LogMachine) -> list[Effect]:
            machine.append(("say", machine.name), NOW, is_urgent=True)
            return machine.wake(NOW)

        def hear(machine: LogMachine) -> list[Effect]:
            peer, _, data = self.frames[frame]
            return machine.frame(Addressed(peer, data), NOW)

        return say if frame == SAY else hear


SAY = -1
State: TypeAlias = tuple[int, int, int, int]
"""The members, and the frames that are on their way."""


def steps(space: LogSpace, state: State, sayers: tuple[str, ...]) -> Iterator[State]:
    """All that may happen next."""
    for place, name in enumerate(HONEST):
        if name in sayers and not space.members[state[place]].has_said:
            yield happened(state, place, space.react(state[place], SAY))
    left = state[3]
    while left:
        bit = left & -left
        left ^= bit
        frame = bit.bit_length() - 1
        place = HONEST.index(space.frames[frame][1])
        yield happened(state, place, space.react(state[place], frame), bit)


def happened(state: State, place: int, reaction: tuple[int, int], taken: int = 0) -> State:
    """The state after an event at one member."""
    after, sent = reaction
    one, two, three, frames = state
    on_way = frames & ~taken | sent
    if place == 0:
        return after, two, three, on_way
    return (one, after, three, on_way) if place == 1 else (one, two, after, on_way)


def explored(lies: list[Frame], sayers: tuple[str, ...]) -> tuple[int, int, set[object]]:
    """How many states there are, how many of them end, and what members have come to in these."""
    space = LogSpace()
    one, two, three = (space.number(first(name)) for name in HONEST)
    begin: State = (one, two, three, space.bits(lies))
    seen, to_see, ends = {begin}, [begin], 0
    came_to: set[object] = set()
    while to_see:
        state = to_see.pop()
        following = list(steps(space, state, sayers))
        if not following:
            ends += 1
            found = [space.members[each] for each in state[:3]]
            check_end(found)
            came_to.add(tuple(tuple(sorted(each.machine.blamed)) for each in found))
        for each in following:
            if each not in seen:
                seen.add(each)
                to_see.append(each)
    return len(seen), ends, came_to


def check_end(members: list[Member]) -> None:
    """When all has arrived, all have the same of honest authors."""
    has: list[set[bytes]] = []
    for each in members:
        known = each.machine.causality.known
        has.append({d for d in each.delivered if known[d].entry.author in HONEST})
    assert all(each == has[0] for each in has), "CL-8"


def lie(*entries: LogEntry, to: str) -> Frame:
    """A frame of the liar."""
    return "n4", to, encode(("entries", SESSION, tuple(each.encode() for each in entries)))


LIES = [lie(X, to="n1"), lie(X2, to="n1"), lie(Y, to="n2"), lie(Y, to="n3")]


def test_no_order_of_arrival_breaks_the_log() -> None:
    """rmq RQ-91, CL-1, CL-2, CL-4, CL-5, CL-8: n1 gets two heights of one side of the liar, the others the other
    side. The counts are golden: they change with the machine, and for a reason."""
    states, ends, came_to = explored(LIES, ("n1", "n2"))
    assert (states, ends) == (212_944, 682)
    assert came_to == {((), (), ()), (("n4",), ("n4",), ("n4",))}, (
        "all blame him, or none has seen both"
    )


def test_the_exploration_sees_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """rmq RQ-91: members who look for no forks are found out."""

    def overlooked(*_: object) -> None:
        pass

    monkeypatch.setattr(LogMachine, "_look_for_fork", overlooked)
    with pytest.raises(AssertionError, match="nobody is blamed"):
        explored(LIES, ("n1",))
