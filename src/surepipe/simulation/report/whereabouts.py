"""Follows one message through the rows of a run: where it exists, and what each row did to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind, Row
from surepipe.simulation.report.story import Numbers
from surepipe.simulation.report.words import (
    IDEMPOTENCY_KEY,
    brief,
    brief_apart,
    differ,
    fact,
    facts,
    fault_in,
    place_of,
)

# Which rows speak of the same frame: its transmission, its copies, its loss, its arrival.


CONTROL = frozenset(
    {
        "confirm",
        "nack",
        "probe",
        "open",
        "opened",
        "unknown",
        "refused",
        "ack",
        "answer",
        "read",
        "fetch",
    }
)
"""Frames that only speak of messages; all others that count any carry them."""

_ENDS = (Kind.LOST, Kind.ARRIVED)


def row_id(row: Row) -> str:
    """How other rows name this one as their cause."""
    return f"{row.node}/{row.incarnation}/{row.step}"


@dataclass(slots=True)
class Frame:
    """One frame on its way; of a copy that the network made, ``begun`` is the row that says so."""

    begun: Row
    original: Row
    ended: Row | None = None


class Frames:
    """All frames of a run, in the order in which they leave."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.all: list[Frame] = []
        self._by_cause: dict[tuple[str, int], Frame] = {}
        self._of_row: dict[int, Frame] = {}
        for row in rows:
            if row.kind == Kind.TRANSMIT:
                self._begin(row, row, row_id(row), 0)
            elif row.kind == Kind.COPIED:
                before = self._find(row, copy=0)
                self._begin(row, before.original if before else row, row.cause, row.copy or 1)
                self._by_cause[row_id(row), 0] = self.all[-1]
            elif row.kind in _ENDS and (frame := self._find(row, row.copy)):
                frame.ended = row
                self._of_row[row.step] = frame

    def _begin(self, row: Row, original: Row, cause: str, copy: int) -> None:
        frame = Frame(row, original)
        self.all.append(frame)
        self._by_cause[cause, copy] = frame
        self._of_row[row.step] = frame

    def _find(self, row: Row, copy: int) -> Frame | None:
        """By its cause; else the first frame still on its way that holds the same."""
        frame = self._by_cause.get((row.cause, copy))
        if frame is not None:
            return frame
        return next((f for f in self.all if f.ended is None and _alike(f.original, row)), None)

    def of(self, row: Row) -> Frame | None:
        """The frame that a row speaks of."""
        return self._of_row.get(row.step)

    def word(self, row: Row) -> str:
        """What sort of frame it is: ``data``, ``confirm``."""
        frame = self.of(row)
        return frame_word(frame.original if frame else row)

    def carries(self, row: Row) -> bool:
        """Whether it holds the messages themselves."""
        return row.count > 0 and self.word(row) not in CONTROL


def frame_word(row: Row) -> str:
    """The sort of a frame, from the row that transmits it."""
    word = fact(row, "frame") or fact(row, "text").partition(" ")[0].lower()
    return "data" if not word or fault_in(word) else word


def _alike(left: Row, right: Row) -> bool:
    same = (left.pipe, left.epoch, left.seq, left.count) == (
        right.pipe,
        right.epoch,
        right.seq,
        right.count,
    )
    return same and (right.kind != Kind.ARRIVED or left.node != right.node)


def ends(frame: Frame) -> tuple[str, str]:
    """From where to where it goes: by the name of its link, else by the nodes of its rows."""
    link = frame.original.link or (frame.ended.link if frame.ended else "")
    source, _, target = link.partition(">")
    arrived = frame.ended.node if frame.ended and frame.ended.kind == Kind.ARRIVED else ""
    return source.strip(" -") or frame.original.node, target.strip(" -") or arrived


_BROKEN_AT = {
    "P2": "never came out at",
    "P3": "came out wrongly at",
    "P4": "came too late to",
    "": "is not as it should be at",
}
_HELD_AT = {
    "P2": "came out at",
    "P3": "came out as it should at",
    "P4": "came in its turn to",
    "": "is as it should be at",
}


@dataclass(frozen=True, slots=True)
class Usual:
    """What each stage answers for which piece of the message when nothing goes wrong, and which answer otherwise
    in each run."""

    answers: Mapping[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    varying: Collection[str] = ()

    def is_other(self, stage: str, answer: str, than: str) -> bool:
        """Whether the two are to be told apart."""
        return differ(answer, than, varies=stage in self.varying)


class Stages:
    """The calls of users' functions with one message, and the call that decided the finding."""

    def __init__(
        self,
        about: Violation | None,
        usual: Usual,
        places: Mapping[str, str],
        *,
        holds: bool = False,
    ) -> None:
        self.about = about
        self.holds = holds
        """in this run it does not come to what it is about: the one to compare with"""
        self.name = f"#{about.position}" if about else ""
        self.is_open = False
        """some function was done with it, and that is not settled"""
        self.settled = 0
        self.is_over = False
        """the run was seen to its end"""
        self._usual = usual
        self._places = places
        self._answers: dict[tuple[str, str], str] = {}
        self._latest = ""
        self._odd: list[tuple[int, str]] = []
        self._anew: list[tuple[int, str]] = []
        self._failed: list[tuple[int, str]] = []
        self._why_failed = ""
        self._dead: list[tuple[int, str]] = []
        self._again: list[tuple[int, str]] = []
        self._through: dict[str, int] = {}
        """Of each stage: where it returned for the last time."""
        self._settled: list[tuple[int, str]] = []
        self._handed: list[tuple[int, str]] = []

    def called(self, row: Row) -> str:
        """A function is entered with it."""
        self._latest = fact(row, "stage") or self._latest
        return f"{self._latest} has {self.name}"

    def returned(self, row: Row) -> str:
        """A function answers; what it says beside what it said before, or says without faults."""
        stage, answer = fact(row, "stage") or self._latest, fact(row, "answer")
        part = fact(row, "part")
        times = (stage, part) in self._answers
        before = self._answers.setdefault((stage, part), answer)
        self.is_open = True
        self._through[stage] = row.step
        who, usual = self._who(stage), self._usual.answers.get((stage, part), answer)
        if self._usual.is_other(stage, answer, before):
            now, then = brief_apart(answer, before)
            self._odd.append(
                (row.step, f"{who} gives {now} for {self.name}, and gave {then} before.")
            )
            return f"{stage} gave {then} for {self.name} before"
        if self._usual.is_other(stage, answer, usual):
            now, then = brief_apart(answer, usual)
            self._odd.append(
                (row.step, f"{who} gives {now} for {self.name}; without faults {then}.")
            )
            return f"without faults {stage} gives {then} for {self.name}"
        if before != answer:  # as it draws, or looks at the clock
            now, then = brief_apart(answer, before)
            self._anew.append(
                (row.step, f"{who} gives {now} for {self.name}, and gave {then} before.")
            )
        if times:
            self._again.append((row.step, f"{who} is called again for {self.name}."))
            return f"{stage} is done with {self.name} again"
        return f"{stage} is done with {self.name}"

    def raised(self, row: Row) -> str:
        """A function fails."""
        stage = fact(row, "stage") or self._latest
        self._why_failed = f"{stage} {fact(row, 'text')}"
        if not fact(row, "fault"):
            place = fact(row, "place") or self._places.get(stage, "")
            who = f"{stage} ({place})" if place else stage
            self._failed.append(
                (row.step, f"{who} raises {brief(fact(row, 'text'))} for {self.name}.")
            )
        return f"{self.name} fails in {stage}" if stage else f"{self.name} fails"

    def dies(self, row: Row) -> str:
        """It was tried as often as may be, or can't be handled."""
        why = f": {brief(self._why_failed)}" if self._why_failed else ""
        said = f"{self.name} is a dead letter{why}"
        self._dead.append((row.step, f"{said}. So nothing of it comes out from here on."))
        return said

    def handed(self, row: Row, times: int) -> str:
        """A pipe hands it over, for the n-th time."""
        self._handed.append((row.step, f"{self.name} is handed over here."))
        return f"{self.name} is handed over{' again' if times > 1 else ''}"

    def settles(self, row: Row) -> str:
        """It is not handed over any more."""
        self.is_open = False
        self.settled += 1
        self._settled.append(
            (row.step, f"{self.name} counts as done here, and is not tried again.")
        )
        return f"{self.name} is settled"

    def refused(self) -> str:
        """A store did not take what was done."""
        return (
            f"what was done for {self.name} is taken back, it is tried again"
            if self.is_open
            else ""
        )

    def ends(self) -> str:
        """What the end of the run shows."""
        self.is_over = True
        about = self.about
        if about is None or not about.end:
            return ""
        said = _HELD_AT if self.holds else _BROKEN_AT
        name = self.name if about.position else "a message"  # that no pipe has accepted as it is
        return f"{name} {said.get(about.property, said[''])} {about.end}"

    def decisive(self, violation: Violation) -> tuple[int, str]:
        """The row that decides, and why: a stage that has left out what a check misses, an odd answer, a failure,
        a dead letter, a second call, or the last that befell it."""
        if violation.name == IDEMPOTENCY_KEY:
            return (
                violation.step,
                f"{self._who(self._latest)} gives this effect its key for {self.name}.",
            )
        if violation.why:
            return violation.step, violation.why
        doer = violation.content.partition(" (")[0]
        if violation.property == "user" and doer in self._through:
            who = self._who(doer)
            return self._through[doer], f"{who} is through with {self.name} and has not done that."
        if not self.is_over:
            return violation.step, f"{self._who(self._latest)} does it again for {self.name}."
        again = self._again if violation.property != "P2" else []
        anew = self._anew if violation.property == "user" else []
        dead = self._dead if violation.property in ("user", "P2") else []
        late = self._handed[:1] if violation.property == "P4" else self._settled[-1:]
        for found in (
            self._odd[:1],
            self._failed[:1],
            dead[:1],
            anew[:1],
            again[:1],
            late,
            self._handed[-1:],
        ):
            if found:
                return found[0]
        return violation.step, ""

    def _who(self, stage: str) -> str:
        place = self._places.get(stage, "")
        return f"{stage} ({place})" if place else stage


class Whereabouts:
    """The copies of one message: in memories, on disks, in stores, on the way."""

    def __init__(self, pipe: str, place: int, numbers: Numbers, frames: Frames) -> None:
        self.name = f"#{place}"
        self.delivered = 0
        self.accepted = False
        self.stages: Stages | None = None
        """of a run with functions of users"""
        self._pipe = pipe
        self._place = place
        self._numbers = numbers
        self._frames = frames
        self._memories: dict[str, None] = {}
        self._disks: dict[str, None] = {}
        self._flights: dict[int, None] = {}
        self._receivers: dict[str, None] = {}
        self._latest = 0
        self._delivered_places: set[int] = set()
        self._settlements = 0
        self._appended_since = 0
        self._tells: Mapping[str, Callable[[Row], str]] = {
            Kind.ACCEPTED: self._accept,
            Kind.PERSISTED: self._persist,
            Kind.TRANSMIT: self._transmit,
            Kind.COPIED: self._copy,
            Kind.LOST: self._lose,
            Kind.ARRIVED: self._arrive,
            Kind.APPENDED: self._append,
            Kind.DELIVERED: self._deliver,
            Kind.SETTLED: self._settle,
            Kind.CONFIRMED: self._confirm,
            Kind.DEAD: self._die,
            Kind.CALLED: self._call,
            Kind.RETURNED: self._return,
            Kind.RAISED: self._raise,
            Kind.REFUSED: self._refuse,
            Kind.TRIMMED: self._trim,
            Kind.COMMITTED: self._commit,
            Kind.CRASH: self._crash,
            Kind.START: self._start,
            Kind.FAULT: self._fault,
            Kind.END: self._end,
        }

    def concerns(self, row: Row) -> bool:
        """Whether the row speaks of the message."""
        return (
            self._place > 0 and row.pipe == self._pipe and self._place in self._numbers.places(row)
        )

    def holders(self) -> tuple[str, ...]:
        """The nodes that have the message now, in memory or on disk."""
        places = {**self._memories, **self._receivers, **self._disks}
        return tuple(places) if self._place else ()

    def see(self, row: Row) -> str:
        """Take the next row; what it did to the message, in a few words, empty for nothing."""
        tells = self._tells.get(row.kind)
        if tells is None:
            return ""
        if row.kind in _ABOUT_NODES or self.concerns(row):
            return tells(row)
        if row.kind in (Kind.DELIVERED, Kind.SETTLED):
            self._note_delivery(row)
        if row.kind == Kind.APPENDED:
            self._appended_since += row.count
        return ""

    # --- what rows of each kind do

    def _accept(self, row: Row) -> str:
        self.accepted = True
        self._memories[row.node] = None
        if self.stages is not None:
            return f"{self.name} is accepted"
        return f"{self.name} exists only in this memory"

    def _persist(self, row: Row) -> str:
        self._disks[row.node] = None
        return f"{self.name} is on disk"

    def _transmit(self, row: Row) -> str:
        if not self._frames.carries(row):
            return ""
        again = row.attempt > 1 or bool(self._delivered_places & {self._place})
        self._flights[row.step] = None
        return f"{self.name} is on its way{' again' if again else ''}"

    def _copy(self, row: Row) -> str:
        if not self._frames.carries(row):
            return ""
        self._flights[row.step] = None
        return f"a second {self.name} is on its way"

    def _lose(self, row: Row) -> str:
        if not self._frames.carries(row):
            return f"nobody hears that {self.name} was taken"
        self._landed(row)
        return f"{self.name} is lost on the way{self._left()}"

    def _arrive(self, row: Row) -> str:
        if not self._frames.carries(row):
            return ""
        self._landed(row)
        self._receivers[row.node] = None
        if self._place in self._delivered_places:
            return f"{self.name} is there already"
        return f"{self.name} is held here"

    def _append(self, row: Row) -> str:
        self._receivers.pop(row.node, None)
        self._disks[row.node] = None
        self._appended_since = row.count - 1
        return f"{self.name} is in the store"

    def _deliver(self, row: Row) -> str:
        self.delivered += 1
        self._receivers.pop(row.node, None)
        if self.stages is not None:
            self._note_delivery(row)
            return self.stages.handed(row, self.delivered)
        missed = [place for place in range(1, self._place) if place not in self._delivered_places]
        later, self._latest = self._latest, max(self._latest, *self._numbers.places(row))
        self._note_delivery(row)
        if self.delivered > 1:
            return f"{self.name} is delivered {_times(self.delivered)}"
        if later > self._place:
            return f"{self.name} comes out after #{later}"
        if missed and missed[-1] < min(self._numbers.places(row)):
            return f"{self.name} comes out before #{missed[0]}"
        return f"{self.name} is delivered"

    def _note_delivery(self, row: Row) -> None:
        if row.pipe == self._pipe:
            places = self._numbers.places(row)
            self._delivered_places.update(places)
            self._latest = max(self._latest, *places, 0)

    def _settle(self, row: Row) -> str:
        """Where handing over and settling are one, as in an explored run, only the latter has a row."""
        self._settlements += 1
        if self.stages is not None:
            return self.stages.settles(row)
        if self._settlements > self.delivered:
            return self._deliver(row)
        return f"{self.name} is settled"

    def _confirm(self, row: Row) -> str:
        self._memories.pop(row.node, None)
        if not self._settlements and not self.delivered and not self._disks:
            return f"{self.name} is forgotten, never delivered"
        return f"{self.name} is confirmed"

    def _die(self, row: Row) -> str:
        self._receivers.pop(row.node, None)
        return self.stages.dies(row) if self.stages else f"{self.name} is a dead letter"

    def _call(self, row: Row) -> str:
        return self.stages.called(row) if self.stages else ""

    def _return(self, row: Row) -> str:
        return self.stages.returned(row) if self.stages else ""

    def _refuse(self, _row: Row) -> str:
        return self.stages.refused() if self.stages else ""

    def _raise(self, row: Row) -> str:
        if self.stages is not None:
            return self.stages.raised(row)
        return f"{self.name} fails in the handler"

    def _trim(self, row: Row) -> str:
        self._disks.pop(row.node, None)
        return self._gone() or f"{self.name} is trimmed away"

    def _commit(self, _row: Row) -> str:
        return "" if self.delivered else f"{self.name} counts as done, and is not"

    def _crash(self, row: Row) -> str:
        had = self._had(row.node)
        self._memories.pop(row.node, None)
        self._receivers.pop(row.node, None)
        return (self._gone() or f"{self.name} leaves this memory{self._left()}") if had else ""

    def _start(self, row: Row) -> str:
        if row.node in self._disks and self.accepted and not self._settlements:
            self._memories[row.node] = None
            return f"{self.name} is read back from disk"
        return ""

    def _fault(self, row: Row) -> str:
        """A store that lost its last writes: the message, if it was among them."""
        node = place_of(row)
        lost = facts(row).get("lost")
        among = (
            self.concerns(row)
            if row.count
            else isinstance(lost, int) and lost > self._appended_since
        )
        if node not in self._disks or not among:
            return ""
        self._disks.pop(node)
        return self._gone() or f"{self.name} leaves this store{self._left()}"

    def _end(self, _row: Row) -> str:
        if self.stages is not None:
            return self.stages.ends()
        if self.accepted and not self.delivered:
            return f"{self.name} is missing"
        return f"{self.name} was delivered {_count(self.delivered)}" if self.accepted else ""

    def _landed(self, row: Row) -> None:
        if frame := self._frames.of(row):
            self._flights.pop(frame.begun.step, None)

    # --- what is left

    def _had(self, node: str) -> bool:
        return node in self._memories or node in self._receivers

    def _gone(self) -> str:
        left = self._memories or self._disks or self._flights or self._receivers
        return "" if left or self.delivered else f"{self.name} is gone"

    def _left(self) -> str:
        if self._memories:
            return f", {next(iter(self._memories))} has it"
        if self._disks:
            return f", {next(iter(self._disks))} has it"
        return ", a copy is on its way" if self._flights else ""


def _times(count: int) -> str:
    return "again" if count == 2 else f"for the {count}th time" if count > 3 else "a third time"


def _count(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


_ABOUT_NODES = frozenset({Kind.CRASH, Kind.START, Kind.FAULT, Kind.END, Kind.REFUSED})
