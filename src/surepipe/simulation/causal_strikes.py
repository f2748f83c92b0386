"""What could have struck a run: for each kind of fault the decisions against events that were seen to happen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from surepipe.simulation.findings import RunResult
from surepipe.simulation.nodes import OFFER_TO_ZOMBIE
from surepipe.simulation.options import Options
from surepipe.simulation.script import Decision
from surepipe.simulation.trace import Kind, Row

POINTS = (-1, 0, 1, 2, 3)
"""How much of an event is done before its process ends."""
AWAY = (0, 30)
"""How long an ended process is away. All times here are in tenths of the first timeout."""
ASLEEP = (1, 10, 40, 120, 1000)
"""The last of them is longer than a run: what is over then never wakes."""
LATER = (5, 30, 120)
WRITES_LOST = (1, 2, 3, 5)
STORES = ("journal", "state", "stream", "index")

_LOSSES = {"F1": "data", "F2": "confirm"}
_JOURNAL = ("append-rows", "note-transmitted", "open-life", "forget-rows", "renumber")
_INDEX = ("claim", "get", "commit")
_STREAM = ("append", "open", "read", "info", "identify")
_WRITES = (*_JOURNAL, "claim", "commit", "append", "open", "save-state")
_DONE = (
    *(Kind.SETTLED, Kind.CONFIRMED, Kind.TRANSMIT),
    *("persisted", "appended", "committed", "answer"),
)
"""After rows of these kinds a store has something new, or somebody relies on it."""


Strike: TypeAlias = tuple[Decision, ...]
"""Decisions that strike together, most of them alone."""
Strikes: TypeAlias = Iterator[Decision]


@dataclass(frozen=True)
class Seen:
    """What is to be seen in a run: events as (node, name), the times at which something was done, its stores."""

    timer_us: int
    events: Sequence[tuple[str, str]]
    moments: Sequence[int]
    stores: Sequence[str]

    @classmethod
    def of(cls, result: RunResult) -> Seen:
        """Of a run that knows the names of its events: one by a script."""
        names = (name.partition(": ") for name in dict.fromkeys(result.asked))
        done = dict.fromkeys(row.time_us for row in result.rows if row.kind in _DONE)
        return cls(
            Options.of(result.script.options).timer_us,
            [(node, event) for node, _, event in names],
            list(done),
            [store for store in STORES if any(_speaks_of(store, row) for row in result.rows)],
        )

    def strikes(
        self, ids: Collection[str], known: Sequence[Decision] = ()
    ) -> Mapping[str, Sequence[Strike]]:
        """What could strike, by what it is, of these kinds; nothing that would take a known decision's place."""
        taken = set(map(_place, known))
        found = {
            id_: _STRIKES[id_](self, len(known) + 1) for id_ in sorted(set(ids) & set(_STRIKES))
        }
        alone = {id_: [(one,) for one in made] for id_, made in found.items()}
        together = {
            f"{id_} of a life": list(_of_a_life(id_, self)) for id_ in _LOSSES if id_ in found
        }
        free = {
            name: [strike for strike in made if taken.isdisjoint(map(_place, strike))]
            for name, made in (alone | together).items()
        }
        return {name: made for name, made in free.items() if made}

    def tenths(self, count: int) -> int:
        """A time in microseconds."""
        return count * self.timer_us // 10


def _place(decision: Decision) -> tuple[str, str, str]:
    return decision.authority, decision.at, decision.verb


def _speaks_of(store: str, row: Row) -> bool:
    if row.kind == "appended":
        return store in ("stream", "index")
    return f'"store":"{store}"' in row.detail


# Frames.


def _frames(seen: Seen) -> Iterator[tuple[str, str, bool]]:
    """Of each first copy that has arrived: who decides about it, its name, and whether it carried messages."""
    for node, event in seen.events:
        verb, _, name = event.partition(" ")
        if verb == "arrive" and not name.rpartition(" ")[2].startswith("c"):
            other = "sender" if node == "receiver" else "receiver"
            yield f"network/{other}>{node}", name, name.split(" ")[1] == "data"


def _lost(id_: str, seen: Seen, _number: int) -> Strikes:
    for authority, name, is_data in _frames(seen):
        if is_data == (id_ == "F1"):
            yield Decision(authority, name, "lose", (), id_)


def _of_a_life(id_: str, seen: Seen) -> Iterator[Strike]:
    """A sender's life that nobody hears, or that hears no confirm: all such frames of an epoch are lost."""
    epochs: dict[str, list[Decision]] = {}
    for authority, name, _ in _frames(seen):
        kind, epoch = name.split(" ")[1:3]
        if kind == _LOSSES[id_]:
            epochs.setdefault(epoch, []).append(Decision(authority, name, "lose", (), id_))
    yield from map(tuple, epochs.values())


def _moved(id_: str, verb: str, values: Sequence[int], seen: Seen, _number: int) -> Strikes:
    for authority, name, is_data in _frames(seen):
        for value in values:
            if not (is_data and id_ == "F27"):
                yield Decision(authority, name, verb, (seen.tenths(value),), id_)


def _corrupt(seen: Seen, _number: int) -> Strikes:
    for authority, name, _ in _frames(seen):
        yield Decision(authority, name, "corrupt", (7,), "F25")


def _cut(seen: Seen, number: int) -> Strikes:
    """One direction, from just before something was done: whatever is sent in the meantime is lost."""
    for moment in seen.moments:
        for link in ("sender>receiver", "receiver>sender"):
            for lasts in LATER:
                value = (moment, seen.tenths(lasts), link)
                yield Decision("faults", f"partition {number}", "cut one-way", value, "F6")


# Processes.


def _ended(verb: str, id_: str, node: str, seen: Seen, _number: int) -> Strikes:
    """``node`` is empty for either."""
    for at, event in seen.events:
        for point in POINTS if node in ("", at) else ():
            for away in AWAY:
                value = (point, seen.tenths(away))
                yield Decision(f"faults/{at}", f"{at}: {event}", verb, value, id_)


def _asleep(verb: str, node: str, seen: Seen, _number: int) -> Strikes:
    for at, event in seen.events:
        for away in ASLEEP if node in ("", at) else ():
            yield Decision(f"faults/{at}", f"{at}: {event}", verb, (0, seen.tenths(away)), "F28")


def _offered(seen: Seen, _number: int) -> Strikes:
    """No fault of its own: what a zombie that is asked again may be asked."""
    for node, event in seen.events:
        if node == "sender" and event.startswith("submit "):
            yield Decision(f"perturb/{OFFER_TO_ZOMBIE}", event, "fire", (1,))


def _stepped(_seen: Seen, _number: int) -> Strikes:
    for node in ("sender", "receiver"):
        for life in (1, 2):
            for step in (-3_600_000_000, 3_600_000_000):
                yield Decision(f"clock/{node}", f"life {life}", "step", (step,), "F19")


# Stores.


def _mishap(verb: str, id_: str, amounts: Sequence[int], seen: Seen, number: int) -> Strikes:
    """Just when something was done, just after it, and when all that follows is over."""
    for store in seen.stores:
        for moment in seen.moments:
            for later in (0, 1, seen.timer_us):
                for amount in amounts:
                    value = (moment + later, amount, 0)
                    yield Decision(f"disk/{store}", f"mishap {verb} {number}", verb, value, id_)


def _unheard(seen: Seen, _number: int) -> Strikes:
    for store, call, is_write in _calls(seen):
        for verb in ("lost", "slow", "unknown") if is_write else ("lost", "slow"):
            value = (seen.tenths(30) if verb == "slow" else 0,)
            yield Decision(f"disk/{store}", call, verb, value, "F18")


def _calls(seen: Seen) -> Iterator[tuple[str, str, bool]]:
    for _, event in seen.events:
        call = event.removeprefix("answer ")
        verb = call.split(" ")[1] if call != event else ""
        store = store_of(verb, seen.stores)
        if store:
            yield store, call, verb in _WRITES


def store_of(verb: str, stores: Collection[str]) -> str:
    """Which of these stores a call is for; empty for none."""
    if verb == "save-state":
        return "state" if "state" in stores else "index"
    for store, verbs in (("journal", _JOURNAL), ("index", _INDEX), ("stream", _STREAM)):
        if verb in verbs:
            return store
    return ""


# Handlers.


def _handled(seen: Seen) -> Iterator[tuple[str, int, int]]:
    for _, event in seen.events:
        run, _, call = event.removeprefix("settled ").partition(" of ")
        first, _, last = run.partition("..")
        if call and last.isdigit():
            yield call, int(first), int(last)


def _slow(seen: Seen, _number: int) -> Strikes:
    for call, _, _ in _handled(seen):
        for value in LATER:
            yield Decision("stage/handler", call, "slow", (seen.tenths(value),), "F21")


def _raising(seen: Seen, _number: int) -> Strikes:
    for call, first, last in _handled(seen):
        for seq in dict.fromkeys((first, last)):
            yield Decision("stage/handler", call, "raise", (seq,), "F20")


_STRIKES: Mapping[str, Callable[[Seen, int], Strikes]] = {
    "F1": partial(_lost, "F1"),
    "F2": partial(_lost, "F2"),
    "F3": partial(_moved, "F3", "copy", LATER),
    "F4": partial(_moved, "F4", "overtake", (5, 20)),
    "F5": partial(_moved, "F5", "delay", LATER),
    "F6": _cut,
    "F8": partial(_ended, "crash", "F8", "sender"),
    "F10": partial(_ended, "crash", "F10", "receiver"),
    "F13": partial(_mishap, "crash", "F13", (0, *WRITES_LOST)),
    "F14": partial(_mishap, "rollback", "F14", WRITES_LOST),
    "F16": partial(_mishap, "empty", "F16", (0,)),
    "F18": _unheard,
    "F19": _stepped,
    "F20": _raising,
    "F21": _slow,
    "F25": _corrupt,
    "F27": partial(_moved, "F27", "copy", (10, 50)),
    "F28": partial(_asleep, "pause", ""),
    "F28r": partial(_asleep, "zombie", "receiver"),
    "F28s": partial(_asleep, "zombie", "sender"),
    OFFER_TO_ZOMBIE: _offered,
    "F31": partial(_ended, "power", "F31", ""),
}
