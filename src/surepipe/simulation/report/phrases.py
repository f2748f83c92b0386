"""What a node did, as a short sentence without its subject: ``accepts #1, transmits it``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from surepipe.simulation.report.frames import Frames
from surepipe.simulation.report.numbers import Numbers
from surepipe.simulation.report.words import brief, fact, facts, fault_in, fault_of, fault_words
from surepipe.simulation.trace import Kind, Row


@dataclass(frozen=True, slots=True)
class _Sort:
    """Rows of one event that are told in one breath."""

    kind: str
    rows: list[Row]
    label: str
    word: str
    """what sort of frame they speak of"""


def phrase(
    rows: Sequence[Row],
    numbers: Numbers,
    frames: Frames,
    places: Mapping[str, str] | None = None,
) -> str:
    """Everything that one event of a node was and caused. ``places``: where stages are written."""
    parts: list[str] = []
    before = ""
    raises = any(row.kind == Kind.RAISED for row in rows)
    heard = [row for row in rows if not (raises and row.kind == Kind.CALLED) or fact(row, "stage")]
    for sort in _sorts(heard, numbers, frames):
        text = _TOLD[sort.kind](sort) if sort.kind in _TOLD else ""
        if stage := fact(sort.rows[0], "stage"):
            text = _of_stage(sort, stage, (places or {}).get(stage, ""), text)
        if text and sort.label and sort.label == before:
            text = text.replace(sort.label, "it" if _is_one(sort.label) else "them")
        before = sort.label or before
        if text and text not in parts:
            parts.append(text)
    if len(parts) > 1:
        parts = [part for part in parts if part not in (_HANDED, _RETURNED)]
    told = [*parts, *_silence(rows, frames, len(parts))]
    return ", ".join(told) or _PLAIN.get(rows[0].kind, f"{rows[0].kind}")


def _of_stage(sort: _Sort, stage: str, place: str, text: str) -> str:
    """What a function of the user does."""
    row = sort.rows[0]
    if sort.kind == Kind.CALLED:
        return f"calls {stage}{f' ({place})' if place else ''} with {sort.label}"
    if sort.kind == Kind.RETURNED:
        answer = fact(row, "answer")
        return f"{stage} gives {brief(answer)}"
    if sort.kind == Kind.RAISED:
        return f"{stage} raises {fact(row, 'text')}"
    return text


def _silence(rows: Sequence[Row], frames: Frames, parts: int) -> list[str]:
    """What did not happen, where one would expect it."""
    taken = sum(row.count for row in rows if row.kind == Kind.ACCEPTED)
    if taken and not _went_out(rows):
        return ["keeps it" if taken == 1 else "keeps them"]
    if rows[0].kind == Kind.ARRIVED and parts == 1 and frames.carries(rows[0]):
        return ["delivers nothing"]
    return []


def _is_one(label: str) -> bool:
    return " " not in label and "-" not in label


def _went_out(rows: Sequence[Row]) -> bool:
    return any(row.kind in (Kind.TRANSMIT, Kind.PERSISTED) for row in rows)


def _sorts(rows: Sequence[Row], numbers: Numbers, frames: Frames) -> list[_Sort]:
    """Neighbours of one sort together; frames with messages and frames about messages are two sorts."""
    gathered: list[tuple[str, str, list[Row]]] = []
    for row in rows:
        word = frames.word(row) if row.kind in _FRAMES else ""
        kind = f"{row.kind} control" if word and not frames.carries(row) else str(row.kind)
        if gathered and gathered[-1][:2] == (kind, word):
            gathered[-1][2].append(row)
        else:
            gathered.append((kind, word, [row]))
    return [_Sort(kind, some, _label(some, numbers), word) for kind, word, some in gathered]


def _label(rows: Sequence[Row], numbers: Numbers) -> str:
    labels = dict.fromkeys(filter(None, (numbers.label(row) for row in rows)))
    return " ".join(labels)


def _verb(word: str) -> Callable[[_Sort], str]:
    return lambda sort: f"{word} {sort.label}".strip()


def _fixed(words: str) -> Callable[[_Sort], str]:
    return lambda _sort: words


def _transmits(sort: _Sort) -> str:
    if all(row.attempt > 1 for row in sort.rows):
        return f"transmits {sort.label} again"
    return f"transmits {sort.label}"


def _says(sort: _Sort) -> str:
    verb = "confirms" if sort.word == "confirm" else f"says {sort.word}"
    return f"{verb} {sort.label}".strip()


def _hears(sort: _Sort) -> str:
    if sort.word == "confirm":
        return f"hears: {sort.label} confirmed" if sort.label else "hears a confirm"
    return f"hears {sort.word} {sort.label}".strip()


def _writes(sort: _Sort) -> str:
    """State and other things that are no messages go unsaid."""
    return f"writes {sort.label} to disk" if sort.label else ""


def _loses(sort: _Sort) -> str:
    reason = fact(sort.rows[0], "reason") or fact(sort.rows[0], "text")
    return f"loses {sort.label}{'' if not reason or fault_in(reason) else f': {reason}'}"


def _about(verb: str) -> Callable[[_Sort], str]:
    return lambda sort: f"{verb} the {sort.word} of {sort.label}".removesuffix(" of ")


def _rejects(sort: _Sort) -> str:
    reason = fact(sort.rows[0], "reason") or fact(sort.rows[0], "text")
    return f"refuses a message{': ' + reason if reason else ''}"


_CRASHES: Mapping[str, str] = {
    "": "crash, memory lost",
    "crash": "crash, memory lost",
    "power": "power cut, memory lost",
    "mailbox": "stops, its mailbox is lost",
}


def _crashes(sort: _Sort) -> str:
    text = fact(sort.rows[0], "text")
    if text in _CRASHES or fault_in(text):
        return _CRASHES.get(text, _CRASHES[""])
    return f"crash, {text}"


def _starts(sort: _Sort) -> str:
    return "starts" if sort.rows[0].incarnation <= 1 else "starts anew"


def _commits(sort: _Sort) -> str:
    told = facts(sort.rows[-1])
    place = told.get("next", told.get("index"))
    return f"commits index {place}" if place is not None else f"commits {sort.label}".strip()


def _fault(sort: _Sort) -> str:
    row = sort.rows[0]
    words = fault_words(fault_of(row))
    verb = fact(row, "verb")
    return fact(row, "text") or ", ".join(filter(None, (words, verb if verb not in words else "")))


_FRAMES = frozenset({Kind.TRANSMIT, Kind.ARRIVED, Kind.LOST, Kind.COPIED})
_PLAIN: Mapping[str, str] = {Kind.PERSISTED: "writes its state to disk"}
_HANDED = "is handed a message"
_RETURNED = "the handler returns"
_TOLD: Mapping[str, Callable[[_Sort], str]] = {
    Kind.SUBMIT: _fixed(_HANDED),
    Kind.ACCEPTED: _verb("accepts"),
    Kind.REJECTED: _rejects,
    Kind.UNKNOWN: _verb("does not learn the fate of"),
    Kind.DELIVERED: _verb("delivers"),
    Kind.SETTLED: _verb("settles"),
    Kind.CONFIRMED: _verb("forgets"),
    Kind.DEAD: _verb("sets aside as dead letter"),
    Kind.TRIMMED: _verb("trims"),
    Kind.CRASH: _crashes,
    Kind.START: _starts,
    Kind.END: _fixed("the run ends"),
    Kind.TRANSMIT: _transmits,
    f"{Kind.TRANSMIT} control": _says,
    Kind.LOST: _loses,
    f"{Kind.LOST} control": _about("loses"),
    Kind.COPIED: _verb("copies"),
    f"{Kind.COPIED} control": _about("copies"),
    Kind.ARRIVED: _verb("receives"),
    f"{Kind.ARRIVED} control": _hears,
    Kind.APPENDED: _verb("appends"),
    Kind.FETCHED: _verb("reads"),
    Kind.COMMITTED: _commits,
    Kind.PERSISTED: _writes,
    Kind.WAKE: _fixed("time runs out"),
    Kind.CALLED: _verb("calls the handler with"),
    Kind.RETURNED: _fixed(_RETURNED),
    Kind.RAISED: _verb("the handler raises for"),
    Kind.FAULT: _fault,
    Kind.REFUSED: _fixed("does not take what was done"),
    Kind.PAUSE: _fixed("stands still"),
    Kind.RESUME: _fixed("goes on"),
    Kind.RENUMBERED: _fixed("numbers anew what is left"),
    "effect": lambda sort: "; ".join(fact(row, "text") for row in sort.rows[:3]),
}
