"""Scripts that strike exactly what one delivery depends on: its frames, its writes, the steps of its processes.

From a run in which nothing went wrong the path of one message is read off: the frames that carried it and its
confirm, the events that took it further, the writes that were waited for. Then each is lost, or crashes its
process, alone and in pairs. That breaks a wrong pipe sooner than chance does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import TypeAlias

from surepipe.audit.trace import Kind, Row
from surepipe.simulation.chance.chooser import fault_of
from surepipe.simulation.chance.randomness import draws
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.processes import OFFER_TO_ZOMBIE
from surepipe.simulation.promises import promise_of
from surepipe.simulation.results import Replayer, RunResult
from surepipe.simulation.subjects import Subject

# What could have struck a run: for each kind of fault the decisions against events that were seen to happen.


STRIKE_POINTS = (-1, 0, 1, 2, 3)
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


def _struck_frames(seen: Seen) -> Iterator[tuple[str, str, bool]]:
    """Of each first copy that has arrived: who decides about it, its name, and whether it carried messages."""
    for node, event in seen.events:
        verb, _, name = event.partition(" ")
        if verb == "arrive" and not name.rpartition(" ")[2].startswith("c"):
            other = "sender" if node == "receiver" else "receiver"
            yield f"network/{other}>{node}", name, name.split(" ")[1] == "data"


def _lost(id_: str, seen: Seen, _number: int) -> Strikes:
    for authority, name, is_data in _struck_frames(seen):
        if is_data == (id_ == "F1"):
            yield Decision(authority, name, "lose", (), id_)


def _of_a_life(id_: str, seen: Seen) -> Iterator[Strike]:
    """A sender's life that nobody hears, or that hears no confirm: all such frames of an epoch are lost."""
    epochs: dict[str, list[Decision]] = {}
    for authority, name, _ in _struck_frames(seen):
        kind, epoch = name.split(" ")[1:3]
        if kind == _LOSSES[id_]:
            epochs.setdefault(epoch, []).append(Decision(authority, name, "lose", (), id_))
    yield from map(tuple, epochs.values())


def _moved(id_: str, verb: str, values: Sequence[int], seen: Seen, _number: int) -> Strikes:
    for authority, name, is_data in _struck_frames(seen):
        for value in values:
            if not (is_data and id_ == "F27"):
                yield Decision(authority, name, verb, (seen.tenths(value),), id_)


def _corrupt(seen: Seen, _number: int) -> Strikes:
    for authority, name, _ in _struck_frames(seen):
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
        for point in STRIKE_POINTS if node in ("", at) else ():
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


# Scripts that grow: each decision strikes something that was seen to happen in the run of those before it.
#
# A schedule that breaks a pipe often needs what only happens because something went wrong already: a frame that
# was sent again, the first step of a second life, a write that is done twice. So a run is repeated with one
# more decision against one of its own events, and that run with one more, and so on. Chance picks which run
# grows and what strikes it, under a seed, so a search can be repeated.


GROWN_MESSAGES = 5
CROWD = 24
"""More than a window takes at once."""
CHAOS_TIMERS = 40
"""For so long things may happen before a run heals, in timeouts of the subject."""
EVENTS_MAX = 4_000
POWER_TAKES = 3
"""Writes that a cut of the power takes, where the store lets any go."""


@dataclass(frozen=True)
class Growth:
    """What may strike: the kinds ``must``, which are looked for, and the kinds ``may`` beside them, by their ids.

    At most ``runs`` runs, by scripts of at most ``strikes_max`` strikes.
    """

    must: Collection[str]
    may: Collection[str] = ()
    runs: int = 2_000
    strikes_max: int = 4
    seed: int = 0


def calm_worlds(subject: Subject) -> Iterator[Options]:
    """Worlds without a fault that differ in what takes its time: handlers, stores, frames, the application."""
    timer = promise_of(subject).timer_us
    plain = Options(
        messages=GROWN_MESSAGES,
        timer_us=timer,
        delay_us=max(1, timer // 100),
        chaos_us=CHAOS_TIMERS * timer,
        events_max=EVENTS_MAX,
        store_rollback_writes=POWER_TAKES,
        perturb=True,
    )
    yield plain
    yield replace(plain, handler_us=timer // 2, gap_us=timer // 20)
    yield replace(plain, gap_us=timer * 2)
    yield replace(plain, store_us=timer // 20, gap_us=timer // 20, handler_us=timer // 10)
    yield replace(plain, handler_us=timer * 3)
    yield replace(plain, delay_us=timer // 3, gap_us=timer // 4)
    yield replace(plain, delay_us=timer // 3, messages=CROWD)


def grown_runs(subject: Subject, replay: Replayer, growth: Growth) -> Iterator[RunResult]:
    """Every run by a grown script in which something was found, until ``growth.runs`` are used up.

    ``replay`` runs a script and judges it. Whoever has what he looks for takes no more.
    """
    return _Search(replay, growth).runs(subject)


@dataclass(frozen=True)
class _Grown:
    """A script of so many strikes, and what was seen in its run."""

    script: Script
    strikes: int
    seen: Seen

    def with_(self, strike: Strike) -> Script:
        """The script with one strike more."""
        return replace(self.script, decisions=(*self.script.decisions, *strike))


class _Search:
    """All runs so far, by the number of their strikes: any of them may grow."""

    def __init__(self, replay: Replayer, growth: Growth) -> None:
        self.replay = replay
        self.growth = growth
        self.source = draws(growth.seed, "growth")
        self.left = growth.runs
        self.levels: list[list[_Grown]] = [[] for _ in range(growth.strikes_max)]

    def runs(self, subject: Subject) -> Iterator[RunResult]:
        """Those in which something was found."""
        for strikes, script in self._scripts(subject):
            self.left -= 1
            result = self.replay(script)
            if result.stale is not None:
                continue
            if strikes < self.growth.strikes_max:
                self.levels[strikes].append(_Grown(script, strikes, Seen.of(result)))
            if result.violations:
                yield result

    def _scripts(self, subject: Subject) -> Iterator[tuple[int, Script]]:
        """Half of the runs for single strikes in each of the calm worlds; after them whatever grows."""
        for options in calm_worlds(subject):
            yield 0, Script(subject.name, options.plain())
        for script in self.source.shuffled(self._singles())[: self.growth.runs // 2]:
            yield 1, script
        while self.left > 0 and any(self.levels):
            yield from self._grown()

    def _singles(self) -> list[Script]:
        return [
            calm.with_(strike)
            for calm in self.levels[0]
            for strikes in calm.seen.strikes(self.growth.must).values()
            for strike in strikes
        ]

    def _grown(self) -> Iterator[tuple[int, Script]]:
        levels = [number for number, runs in enumerate(self.levels) if runs]
        parent = self.source.pick(self.levels[self.source.pick(levels)])
        strikes = self._strikes(parent)
        if strikes:
            yield parent.strikes + 1, parent.with_(self.source.pick(strikes))
        else:
            self.left -= 1

    def _strikes(self, parent: _Grown) -> Sequence[Strike]:
        """Kinds are as likely as each other, however many events each could strike."""
        is_other = bool(self.growth.may) and self.source.getrandbits(1)
        ids = self.growth.may if is_other else self.growth.must
        found = parent.seen.strikes(ids, parent.script.decisions)
        return self.source.pick(list(found.values())) if found else ()


# What led to what in a run: every row names the row that caused it, and so every output has a path.


OUTPUTS: frozenset[str] = frozenset((Kind.DELIVERED, Kind.SETTLED, Kind.CONFIRMED, Kind.DEAD))
"""What a pipe is there for: messages come out, and their sender hears of it."""


def cause_of(row: Row) -> int:
    """The step of the row that caused this one; -1 for one that nothing in the run has caused."""
    return int(row.cause.rpartition("/")[2]) if row.cause else -1


def path_to(rows: Sequence[Row], step: int) -> Iterator[Row]:
    """A row, its cause, the cause of that, and so on."""
    while step >= 0:
        yield rows[step]
        step = cause_of(rows[step])


def steps_towards(rows: Sequence[Row], kinds: Iterable[str] = OUTPUTS) -> bytearray:
    """For each step 1 when it is on the path of an output, else 0."""
    wanted = frozenset(kinds)
    towards = bytearray(len(rows))
    for row in rows:
        step = row.step
        if row.kind in wanted:
            while step >= 0 and not towards[step]:
                towards[step] = 1
                step = cause_of(rows[step])
    return towards


POINTS = (0, 1, 2, 3)
"""Effects of an event that are done before its process ends."""
PAIRS_MAX = 48
MESSAGES = 3
_ASKING = ("read", "wait", "letter")


def plain_run(subject: Subject, *, messages: int = MESSAGES) -> RunResult:
    """A run of few messages in which nothing goes wrong, with the names of its events; nobody judges it."""
    promise = promise_of(subject)
    timer = promise.timer_us
    options = Options(
        messages=messages, timer_us=timer, delay_us=max(1, timer // 1000), chaos_us=8 * timer
    )
    return run_hop(subject, options, ScriptChooser(()), judge=None)


def causal_scripts(
    result: RunResult, *, message: int = 0, pairs_max: int = PAIRS_MAX
) -> tuple[Script, ...]:
    """Scripts against one delivery of a fault-free run: each single decision first, then pairs of them.

    ``result`` is a run by a script without faults (``plain_run``). ``message`` is the how-many-th delivery, from
    1; 0 takes the one in the middle. Of the pairs at most ``pairs_max`` are built, evenly spread over all of them.
    """
    singles = [(one,) for one in causal_decisions(result, message=message)]
    pairs = [
        (one, other)
        for (one,), (other,) in combinations(singles, 2)
        if (one.authority, one.at) != (other.authority, other.at)
    ]
    step = max(1, -(-len(pairs) // pairs_max)) if pairs_max else len(pairs) + 1
    chosen = [*singles, *(pairs[::step] if pairs_max else ())]
    return tuple(replace(result.script, decisions=decisions) for decisions in chosen)


def causal_decisions(result: RunResult, *, message: int = 0) -> tuple[Decision, ...]:
    """Everything on the path of one delivery that may be lost or end its process, in the order of its events."""
    rows = result.rows
    settled = [row for row in rows if row.kind == Kind.SETTLED]
    if not settled:
        return ()
    chosen = settled[(message - 1) if message else len(settled) // 2]
    steps = sorted({row.step for end in _ends(rows, chosen) for row in path_to(rows, end.step)})
    names = _names(result)
    found = [
        *_frames(rows, steps, names),
        *_crashes(rows, steps, names),
        *_lost_writes(rows, chosen, Seen.of(result).stores),
    ]
    return tuple(dict.fromkeys(found))


def _ends(rows: Sequence[Row], settled: Row) -> Iterator[Row]:
    """Where the path of a message ends: it came out, and its sender heard of it."""
    yield settled
    for row in rows:
        is_it = row.epoch == settled.epoch and row.seq <= settled.seq <= row.last
        if is_it and row.kind in (Kind.CONFIRMED, Kind.ACCEPTED):
            yield row


def _names(result: RunResult) -> dict[int, str]:
    """How the events are called that the rows begin with, by their steps."""
    begins = {
        "arrive": Kind.ARRIVED,
        "submit": Kind.SUBMIT,
        "settled": Kind.SETTLED,
        "wake": Kind.WAKE,
        "answer": "answer",
    }
    found: dict[int, str] = {}
    for word, kind in begins.items():
        asked = [name for name in result.asked if name.partition(": ")[2].startswith(word)]
        steps = [row.step for row in result.rows if row.kind == kind]
        found |= dict(zip(steps, asked, strict=False))
    return found


def _frames(rows: Sequence[Row], steps: Sequence[int], names: dict[int, str]) -> Iterator[Decision]:
    for step in steps:
        row = rows[step]
        if row.kind == Kind.ARRIVED and step in names:
            fault = "F1" if '"data"' in row.detail else "F2"
            frame = names[step].partition(": arrive ")[2]
            yield Decision(f"network/{row.link}", frame, "lose", (), fault)


def _crashes(
    rows: Sequence[Row], steps: Sequence[int], names: dict[int, str]
) -> Iterator[Decision]:
    for step in steps:
        if step in names:
            node = rows[step].node
            for point in POINTS:
                yield Decision(
                    f"faults/{node}",
                    names[step],
                    "crash",
                    (point, 0),
                    fault_of("crash", is_sender=node == "sender"),
                )


def _lost_writes(rows: Sequence[Row], settled: Row, stores: Sequence[str]) -> Iterator[Decision]:
    """Writes that were answered after the message was offered: done without an answer, or never done."""
    for row in rows:
        if row.kind != "answer":
            continue
        call = row.detail.partition('"call":"')[2].partition('"')[0]
        verb = call.split(" ")[1] if " " in call else ""
        speaks_of = f"e{settled.epoch} {settled.seq}+" in call or verb in ("save-state", "commit")
        if speaks_of and not verb.startswith(_ASKING):
            for how in ("unknown", "lost"):
                yield Decision(f"disk/{store_of(verb, stores)}", call, how, (0,), "F18")
