"""What an exploration found, for people and for the report: steps in words, and rows of a trace."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from surepipe.audit.findings import Violation
from surepipe.audit.predicates import payload_digest
from surepipe.audit.trace import FORMAT, Kind, RollingDigest, Row
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.explore.history import NAMES, History
from surepipe.simulation.explore.nodes import Out
from surepipe.simulation.explore.numbers import payload_of
from surepipe.simulation.explore.parts import carries_messages
from surepipe.simulation.explore.scope import WAKE
from surepipe.simulation.explore.search import FoundViolation, Searched
from surepipe.simulation.explore.transitions import ExploredStep, Links, Space, State
from surepipe.simulation.results import RunResult

# Which arrivals overtake: where links don't keep the order, a state doesn't say what was sent first.


class Queues:
    """What is on the way on each link, the oldest first, along one schedule."""

    def __init__(self, links: Links) -> None:
        self._queues = [list(frames) for frames in links]

    def overtakes(self, step: ExploredStep) -> bool:
        """Whether a frame arrives in this step before another one that was sent earlier on its link."""
        if step.event is None or step.event[0] != "arrive":
            return False
        return self._queues[step.link][0] != step.frame

    def follow(self, links: Links) -> None:
        """A step was taken, and this is on the way now."""
        for queue, frames in zip(self._queues, links, strict=True):
            now, before = Counter(frames), Counter(queue)
            for frame in (before - now).elements():
                queue.remove(frame)
            queue.extend((now - before).elements())


class Explored(StrEnum):
    """What an exploration can say; that it ``FOUND`` something only when it is reduced."""

    HOLDS = "holds"
    VIOLATED = "violated"
    FOUND = "violated: search again unreduced for the shortest schedule"
    BOUNDED = "bounded, not exhausted"


DRAIN_SHOWN = 20
"""Steps of a drain that are printed."""


@dataclass(frozen=True, slots=True)
class Shortest:
    """A shortest schedule that breaks a property.

    ``length`` counts the steps to the state in which the property is false, or from which it can't be met any
    more; the steps of the drain that shows so are in ``drain`` and don't count. ``run`` holds the rows, as a run
    of the simulator does.
    """

    property: str
    length: int
    steps: tuple[str, ...]
    drain: tuple[str, ...]
    violation: Violation
    run: RunResult

    def __str__(self) -> str:
        lines = [f"{self.property} {NAMES[self.property]} VIOLATED in {self.length} steps"]
        lines += [f"{number:3}  {text}" for number, text in enumerate(self.steps, 1)]
        lines += [f"  .  {text}" for text in _shown(self.drain)]
        return "\n".join(lines)


def _shown(drain: Sequence[str]) -> Sequence[str]:
    """Its beginning and its end: a pipe that stands still may be asked a thousand times."""
    left_out = len(drain) - DRAIN_SHOWN
    if left_out <= 1:
        return drain
    half = DRAIN_SHOWN // 2
    return [*drain[:half], f"... {left_out} more steps like these ...", *drain[-half:]]


@dataclass(frozen=True, slots=True)
class Exploration:
    """The outcome: what is known, how much was seen, and the shortest counterexample if there is one.

    A ``reduced`` search measures no lengths: it has no counterexample, and its ``depth`` is 0.
    """

    verdict: Explored
    states: int
    transitions: int
    depth: int
    counterexample: Shortest | None = None
    reduced: bool = False

    @property
    def holds(self) -> bool:
        """True when everything within the scope was tried and nothing broke."""
        return self.verdict is Explored.HOLDS


def result_of(space: Space, searched: Searched) -> Exploration:
    """The outcome of a search."""
    reduced, found = space.scope.reduced, searched.found
    seen = (searched.states, searched.transitions, 0 if reduced else searched.depth)
    if found is not None and not reduced:
        return Exploration(Explored.VIOLATED, *seen, shortest(space, found))
    verdict = Explored.HOLDS if searched.is_complete else Explored.BOUNDED
    return Exploration(Explored.FOUND if found else verdict, *seen, reduced=reduced)


def shortest(space: Space, found: FoundViolation) -> Shortest:
    """The counterexample, told step by step."""
    telling = ScheduleTelling(space)
    telling.begin()
    steps = telling.tell(found.steps)
    drained, last = ([], found.last) if found.drain is None else found.drain.path(found.last)
    if drained:
        telling.phase("drain")
    drain = telling.tell(drained)
    wanted, position = found.broken
    history = space.histories[last[5]]
    violation = telling.end(wanted, position, history, at_end=found.drain is not None)
    return Shortest(wanted, len(steps), steps, drain, violation, telling.run(violation))


@dataclass
class ScheduleTelling:
    """Writes the steps of one schedule: a sentence and rows for each."""

    space: Space
    rows: list[Row] = field(default_factory=list[Row])
    decisions: list[Decision] = field(default_factory=list[Decision])

    def __post_init__(self) -> None:
        self._lives = [1] * (2 * len(self.space.nodes))
        self._queues = Queues(self.space.first()[1])
        self._is_draining = False

    # The parts of a run.

    def begin(self) -> None:
        """The first rows: what is explored, and that every part has started."""
        scope = self.space.scope
        settings = {
            "format": FORMAT,
            "clock": "steps",
            "subject": self.space.arrangement.name,
            "options": {
                "messages": scope.messages,
                "order": "fifo" if scope.keeps_order else "any",
            },
            "faults": sorted(name for name, times in scope.faults.items() if times),
            "seed": 0,
        }
        self._row(Kind.RUN, "world", 1, detail=_text(settings))
        for place, node in enumerate(self.space.nodes):
            self._row(Kind.START, node.name, 1)
            self._outs(place, node.begin().outs)

    def phase(self, name: str) -> None:
        """The row that says which part of the run begins. In a drain nothing is a fault any more."""
        self._is_draining = name == "drain"
        self._row(Kind.PHASE, "world", 1, detail=_text({"phase": name}))

    def tell(self, steps: Iterable[tuple[State, ExploredStep]]) -> tuple[str, ...]:
        """Write rows for these steps; returns a sentence for each."""
        return tuple(self._step_in_order(state, step) for state, step in steps)

    def end(self, wanted: str, position: int, history: History, *, at_end: bool) -> Violation:
        """The last row, and the violation as a finding."""
        told = (row.step for row in reversed(self.rows) if row.kind in _JUDGED)
        step = next(told, len(self.rows) - 1)
        nodes: dict[str, object] = {}
        detail = {"quiescent": at_end, "limit": "", "nodes": nodes}
        self._row(Kind.END, "world", 1, detail=_text(detail))
        if at_end:
            step = len(self.rows) - 1
        epoch = seq = number = 0
        if 0 < position <= len(history.accepted):
            message = history.accepted[position - 1]
            epoch, seq, number = message.epoch, message.seq, message.number
        sentence = _SENTENCES[wanted].format(number=number)
        return Violation(wanted, NAMES[wanted], step, sentence, _PIPE, epoch, seq, position)

    def run(self, violation: Violation) -> RunResult:
        """Everything as a run."""
        digest = RollingDigest()
        for row in self.rows:
            digest.add(row)
        options = {"messages": self.space.scope.messages}
        script = Script(self.space.arrangement.name, options, tuple(self.decisions))
        events = sum(row.kind in _EVENTS for row in self.rows)
        return RunResult(script, self.rows, (violation,), digest.hex(), events)

    # One step.

    def _step_in_order(self, state: State, step: ExploredStep) -> str:
        overtakes = not self._is_draining and self._queues.overtakes(step)
        text = self._step(state, step, overtakes=overtakes)
        self._queues.follow(self.space.taken(state, step)[0][1])
        return text

    def _step(self, state: State, step: ExploredStep, *, overtakes: bool) -> str:
        text = self._sentence(state, step) + (_mark("F4", "overtaking, ") if overtakes else "")
        if overtakes:
            self.decisions.append(Decision("faults", text, "overtake", (), "F4"))
        if not overtakes or step.fault:
            self.decisions.append(
                Decision(_authority(step), text, step.verb, (), step.fault.removeprefix(WAKE))
            )
        if step.verb in ("lose", "copy"):
            self._frame_row(Kind.LOST if step.verb == "lose" else Kind.COPIED, step, step.fault)
            return text
        if step.verb in ("cut", "heal"):
            self._row(Kind.FAULT, "world", 1, detail=f"{step.verb} {step.fault}".strip())
            return text
        if step.verb == "empty":
            self._row(Kind.FAULT, self._name(step.place), 1, detail=f"mailbox lost {step.fault}")
            return text
        name, life = self.space.node_at(step.place).name, self._lives[step.place]
        self._event_row(step, name, life, overtakes=overtakes)
        if step.verb == "replace":
            self._lives[step.place + len(self.space.nodes)] = self._lives[step.place]
        self._outs(step.place, self.space.reaction(state, step).outs)
        return text

    def _event_row(self, step: ExploredStep, name: str, life: int, *, overtakes: bool) -> None:
        event = step.event[0] if step.event else ""
        if step.frame >= 0:
            frame = frame_words(self.space.frames[step.frame])
            self._frame_row(Kind.ARRIVED, step, f"{frame}, overtaking, F4" if overtakes else "")
        elif event == "submit":
            self._row(Kind.SUBMIT, name, life, detail=_numbers(step))
        elif event == "wake":
            self._row(Kind.WAKE, name, life, detail="early" if step.fault == "F5" else "")
        elif event == "answer":
            self._row(Kind.RETURNED, name, life)

    def _outs(self, place: int, outs: Sequence[Out]) -> None:
        name = self.space.node_at(place).name
        for out in outs:
            life = self._lives[place]
            match out:
                case ("send", int(frame)):
                    self._frame(Kind.TRANSMIT, name, life, frame)
                case ("crash", str(fault)):
                    self._row(Kind.CRASH, name, life, detail=fault)
                    self._lives[place] += 1
                    self._row(Kind.START, name, life + 1)
                case (str(kind), int(epoch), int(seq), int(number)) if kind in _WITH_DIGEST:
                    digest = payload_digest(payload_of(number))
                    self._row(kind, name, life, epoch=epoch, seq=seq, count=1, digests=digest)
                case ("confirmed", int(epoch), int(seq)):
                    self._row(Kind.CONFIRMED, name, life, epoch=epoch, seq=seq, count=1)
                case ("renumbered", int(epoch), int(seq), int(new), int(new_seq)):
                    moved = _text({"epoch": new, "seq": new_seq})
                    self._row(
                        Kind.RENUMBERED, name, life, epoch=epoch, seq=seq, count=1, detail=moved
                    )
                case ("rejected", str(reason), *_):
                    self._row(Kind.REJECTED, name, life, detail=reason)
                case _:
                    self._row(Kind.MARK, name, life, detail=" ".join(map(str, out)))

    def _frame_row(self, kind: Kind, step: ExploredStep, fault: str) -> None:
        place = step.place if kind is Kind.ARRIVED else self.space.links[step.link][0]
        link = self._link(step.link)
        name = self.space.node_at(place).name
        self._frame(kind, name, self._lives[place], step.frame, detail=fault, link=link)

    def _frame(
        self, kind: Kind, name: str, life: int, frame: int, *, detail: str = "", link: str = ""
    ) -> None:
        value = self.space.frames[frame]
        payloads = cast("Sequence[bytes]", getattr(value, "payloads", ()))
        self._row(
            kind,
            name,
            life,
            epoch=cast("int", getattr(value, "epoch", 0)),
            seq=cast("int", getattr(value, "first", 0)),
            count=len(payloads),
            link=link,
            detail=detail or frame_words(value),
        )

    def _row(self, kind: str, node: str, life: int, **columns: int | str) -> None:
        step = len(self.rows)
        cause = f"{self.rows[-1].node}/{self.rows[-1].incarnation}/{step - 1}" if step else ""
        row = Row("explored", node, life, step, cause, step, str(kind), _PIPE)
        for name, value in columns.items():
            setattr(row, name, value)
        self.rows.append(row)

    # Words.

    def _name(self, place: int) -> str:
        is_old = place >= len(self.space.nodes)
        return f"{'old ' if is_old else ''}{self.space.node_at(place).name}"

    def _link(self, number: int) -> str:
        source, target = self.space.links[number]
        return f"{self.space.nodes[source].name}->{self.space.nodes[target].name}"

    def _sentence(self, state: State, step: ExploredStep) -> str:
        if step.verb in ("cut", "heal"):
            return f"the links are {'cut' if step.verb == 'cut' else 'healed'}{_mark(step.fault)}"
        name = self._name(step.place)
        if step.verb == "empty":
            return f"everything that waits for the {name} is lost{_mark(step.fault)}"
        if step.verb == "replace":
            return f"{name} is replaced, and goes on beside the new one{_mark(step.fault)}"
        frame = frame_words(self.space.frames[step.frame]) if step.frame >= 0 else ""
        if step.verb in ("lose", "copy"):
            what = "is lost" if step.verb == "lose" else "is copied"
            return f"{frame} {what} on its way to the {name}{_mark(step.fault)}"
        return f"{name} {self._deed(state, step, frame)}"

    def _deed(self, state: State, step: ExploredStep, frame: str) -> str:
        event = str(step.event[0]) if step.event else ""
        if event == "submit":
            deed = f"is given {_numbers(step)}"
        elif event == "arrive":
            deed = f"gets {frame}"
        elif event == "wake":
            deed = "wakes" + (_mark(step.fault, "early, ") if step.verb == "wake" else "")
        else:
            deed = "gets an answer" if event else ""
        if step.verb != "crash":
            return deed + self._outcome(state, step)
        done = self._outcome(state, step)
        crash = f"crashes{_mark(step.fault)}"
        return f"{deed}{done}, {crash}" if deed else crash

    def _outcome(self, state: State, step: ExploredStep) -> str:
        settled = [
            f"#{out[3]}" for out in self.space.reaction(state, step).outs if out[0] == "settled"
        ]
        return f" and delivers {', '.join(settled)}" if settled else ""


_PIPE = "pipe"
_JUDGED = (Kind.SETTLED, Kind.CONFIRMED, Kind.DEAD)
_WITH_DIGEST = (Kind.ACCEPTED, Kind.SETTLED, Kind.DEAD)
_EVENTS = (Kind.SUBMIT, Kind.ARRIVED, Kind.WAKE, Kind.RETURNED, Kind.CRASH)
_SENTENCES = {
    "P1": "Message #{number} came out that was not accepted as it is.",
    "P2": "Message #{number} was accepted and never came out.",
    "P3": "Message #{number} came out twice.",
    "P4": "Message #{number} came out after a later one.",
    "P5": "Message #{number} came out again, or after a later one.",
    "P6g": "Message #{number} came out before one that was accepted earlier.",
    "P6": "Message #{number} came out at the wrong place.",
    "P7": "Message #{number} came out at the wrong place, or twice.",
    "P8": "Message #{number} was confirmed and had not come out.",
    "P11": "Something stays behind for ever (message #{number}).",
    "P12": "Message #{number} is never confirmed.",
}


def frame_words(frame: object) -> str:
    """A frame in a few words: its kind, and the messages that it speaks of."""
    kind = type(frame).__name__
    parts = [kind]
    if carries_messages(frame):
        payloads = cast("Sequence[bytes]", getattr(frame, "payloads", ()))
        parts += [f"#{item.decode()}" for item in payloads if item.isdigit()]
    for name in ("number", "epoch", "first", "cum"):
        value = getattr(frame, name, None)
        if isinstance(value, int):
            parts.append(f"{name} {value}")
    return " ".join(parts)


def _numbers(step: ExploredStep) -> str:
    assert step.event is not None
    return ", ".join(f"#{number}" for number in cast("tuple[int, ...]", step.event[1]))


def _mark(fault: str, before: str = "") -> str:
    return f" *** {before}{fault}" if fault not in ("", WAKE) else ""


def _authority(step: ExploredStep) -> str:
    return "schedule" if step.fault in ("", WAKE) else "faults"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
