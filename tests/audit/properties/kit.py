"""Histories written by hand: a line of words for each row, such as ``accept 1-3`` or ``crash sender``.

Messages are those of epoch 1 unless ``e2`` stands behind them; their payloads are made from their identity, and
``=x`` gives another one. ``late accept 1``: by the life before. ``t5`` is the time in seconds from that line on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from surepipe.audit.findings import Violation
from surepipe.audit.predicates import payload_digest
from surepipe.audit.properties import Judge
from surepipe.audit.trace import Kind, Row
from surepipe.core.claims import Atom

PIPE = "orders"
EVERYTHING: Mapping[str, list[str]] = {atom: [] for atom in Atom}
"""The claim of a pipe that promises all four atoms when nothing goes wrong."""


def run_row(**facts: object) -> Row:
    """The first row of a simulated trace; by default everything is claimed."""
    told: dict[str, object] = {"format": 1, "clock": "virtual", "claim": EVERYTHING, "faults": []}
    told |= facts
    return Row("r", "world", 1, 0, "", 0, Kind.RUN, detail=json.dumps(told, sort_keys=True))


@dataclass
class Writer:
    """Turns lines into rows."""

    rows: list[Row]
    pipe: str = PIPE
    time_us: int = 0
    lives: dict[str, int] = field(default_factory=dict[str, int])
    is_late: bool = False
    """What is written is of the life before: one that was replaced, and goes on."""

    def row(self, node: str, kind: str, text: str = "", detail: str = "", **more: str) -> Row:
        """Add a row that speaks of the messages in ``text``: ``2-4 e2 =x``."""
        epoch, first, last, payload = messages_of(text)
        count = max(0, last - first + 1) if first else 0
        row = Row(
            "r",
            node,
            self.lives.get(node, 1) - self.is_late,
            len(self.rows),
            more.get("cause", ""),
            self.time_us,
            kind,
            self.pipe,
            epoch if count else 0,
            first,
            count,
            link=more.get("link", ""),
            digests="".join(digest(epoch, seq, payload) for seq in range(first, last + 1))
            if kind in _DIGESTED and count
            else "",
            detail=detail,
        )
        self.rows.append(row)
        return row


_DIGESTED = (Kind.ACCEPTED, Kind.DELIVERED, Kind.SETTLED, Kind.DEAD, Kind.APPENDED)


@cache
def digest(epoch: int, seq: int, payload: str = "") -> str:
    """The digits for a message's payload."""
    return payload_digest((payload or f"{epoch}/{seq}").encode())


def messages_of(text: str) -> tuple[int, int, int, str]:
    """(epoch, first, last, payload) of ``2-4 e2 =x``."""
    epoch, first, last, payload = 1, 0, -1, ""
    for word in text.split():
        if word[0] == "e" and word[1:].isdigit():
            epoch = int(word[1:])
        elif word[0] == "=":
            payload = word[1:]
        elif word[0].isdigit():
            low, _, high = word.partition("-")
            first, last = int(low), int(high or low)
    return epoch, first, last, payload


def _simple(kind: str, node: str, detail: str = "") -> Callable[[Writer, str], object]:
    return lambda writer, text: writer.row(node, kind, text, detail)


def _frame(kind: str, frame: str, node: str) -> Callable[[Writer, str], object]:
    return _simple(kind, node, json.dumps({"frame": frame}, separators=(",", ":")))


def _wake(writer: Writer, text: str) -> None:
    writer.row(text, Kind.WAKE)


def _crash(writer: Writer, text: str) -> None:
    node, _, why = text.partition(" ")
    writer.row(node, Kind.CRASH, detail=json.dumps({"exception": why}) if why else "")


def _stop(writer: Writer, text: str) -> None:
    node, _, why = text.partition(" ")
    detail = json.dumps({"text": f"stops: {why}", "fault": "stop"})
    writer.row(node, Kind.CRASH, detail=detail)


def _told(writer: Writer, text: str) -> None:
    node, _, told = text.partition(" ")
    writer.row(node, "notice", detail=json.dumps({"notice": "Poison", "text": told}))


def _start(writer: Writer, text: str) -> None:
    writer.lives[text] = writer.lives.get(text, 0) + 1
    writer.row(text, Kind.START)


def _rejected(writer: Writer, text: str) -> None:
    row = writer.row("sender", Kind.REJECTED, text)
    epoch, first, last, payload = messages_of(text)
    row.digests = "".join(digest(epoch, seq, payload) for seq in range(first, last + 1))
    row.epoch = row.seq = 0


def _unknown(writer: Writer, text: str) -> None:
    """``unknown 2`` has its number, ``unknown 2 nameless`` only its payload."""
    row = writer.row("sender", Kind.UNKNOWN, text)
    epoch, first, last, payload = messages_of(text)
    row.digests = "".join(digest(epoch, seq, payload) for seq in range(first, last + 1))
    if "nameless" in text:
        row.epoch = row.seq = 0


def _loaded(writer: Writer, text: str) -> None:
    writer.row("sender", Kind.ACCEPTED, text, '{"loaded":true}')


def _carry(writer: Writer, text: str) -> None:
    """A copy of a frame of an inner layer, which brings these messages."""
    epoch, first, last, _ = messages_of(text)
    facts = {"frame": "data", "carries": [[epoch, first, last - first + 1]]}
    writer.row("network", Kind.COPIED, "7", json.dumps(facts)).layer = "1"


def _land(writer: Writer, text: str) -> None:
    """A frame of an inner layer arrives."""
    writer.row("receiver", Kind.ARRIVED, text, json.dumps({"frame": "data"})).layer = "1"


def _renumber(writer: Writer, text: str) -> None:
    """``renumber 2-3 to e2 1``."""
    old, _, new = text.partition(" to ")
    epoch, seq, _, _ = messages_of(new)
    writer.row("sender", Kind.RENUMBERED, old, json.dumps({"epoch": epoch, "seq": seq}))


def _append(writer: Writer, text: str) -> None:
    """``append 1-2 at 1``: messages and the index of the first."""
    what, _, index = text.partition(" at ")
    writer.row("store", Kind.APPENDED, what, json.dumps({"index": int(index), "stream": "log"}))


def _commit(writer: Writer, text: str) -> None:
    facts = {"next": int(text), "reader": "desk", "stream": "log"}
    writer.row("store", Kind.COMMITTED, detail=json.dumps(facts))


def _fault(writer: Writer, text: str) -> None:
    """``fault F29 gone 2-3``: indexes that are; ``fault F14 end 2``: the stream ends before that index."""
    fault, _, more = text.partition(" ")
    facts: dict[str, object] = {"fault": fault}
    if more.startswith("gone "):
        facts["gone"] = {"log": _range(more.removeprefix("gone "))}
    elif more.startswith("end "):
        facts["ends"] = {"log": int(more.removeprefix("end "))}
    writer.row("store", Kind.FAULT, detail=json.dumps(facts))


def _range(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return [int(first), int(last or first)]


def _tell(writer: Writer, text: str) -> None:
    """``tell receiver Trimmed 2-3``: a notice with indexes; of a sender they are messages of epoch 1."""
    node, notice, which = text.split()
    facts = {"notice": notice, "ranges": [_range(which)]}
    writer.row(node, "notice", "1" if node == "sender" else "", detail=json.dumps(facts))


def _phase(writer: Writer, text: str) -> None:
    """``phase drain slow load``."""
    words = text.split()
    facts: dict[str, object] = {"phase": words[0]}
    if words[0] == "drain":
        facts |= {"network": "slow" if "slow" in words else "fast", "load": "load" in words}
    writer.row("world", Kind.PHASE, detail=json.dumps(facts))


def _submit(writer: Writer, text: str) -> None:
    row = writer.row("sender", Kind.SUBMIT)
    row.count = int(text)


def _gauges(writer: Writer, text: str) -> None:
    """``gauges in_flight=3 +accepted=2``: a counter has a plus."""
    node, *told = text.split()
    pairs = [word.partition("=")[::2] for word in told]
    gauges = {name: int(value) for name, value in pairs if name[0] != "+"}
    counters = {name[1:]: int(value) for name, value in pairs if name[0] == "+"}
    writer.row(node, Kind.WAKE, detail=json.dumps({"counters": counters, "gauges": gauges}))


def _resend_by_wake(writer: Writer, text: str) -> None:
    """A wake of the sender, and the transmission that it causes."""
    wake = writer.row("sender", Kind.WAKE)
    cause = f"sender/{wake.incarnation}/{wake.step}"
    writer.row("sender", Kind.TRANSMIT, text, '{"frame":"data"}', cause=cause)


def _end(writer: Writer, text: str) -> None:
    """``end``, ``end early``, ``end limit``, ``end sender armed``, ``end receiver held=2`` ..."""
    words = text.split()
    facts: dict[str, object] = {"quiescent": not words or words[0] not in ("early", "limit")}
    facts["limit"] = "events" if words[:1] == ["limit"] else ""
    node: dict[str, object] = {"deadline": None, "idle": False, "gauges": {}}
    gauges = {
        name: int(value) for name, value in (word.split("=") for word in words if "=" in word)
    }
    waiting = gauges.pop("waiting", 0)
    node |= {"gauges": gauges, "waiting": waiting}
    if "armed" in words:
        node["deadline"] = 5
    if "idle" in words:
        node["idle"] = True
    nodes: dict[str, object] = {}
    if words and words[0] in ("sender", "receiver"):
        nodes[words[0]] = node
    if words[:1] == ["next"]:
        for name, place in zip(("sender", "receiver"), words[1:], strict=True):
            nodes[name] = node | {"gauges": {}, "next": {PIPE: [1, int(place)]}}
    writer.row("world", Kind.END, detail=json.dumps(facts | {"nodes": nodes}))


VERBS: Mapping[str, Callable[[Writer, str], object]] = {
    "accept": _simple(Kind.ACCEPTED, "sender"),
    "load": _loaded,
    "find": _simple(Kind.ACCEPTED, "sender", '{"found":true,"loaded":true}'),
    "huge": _simple(Kind.ACCEPTED, "sender", '{"bytes":1025}'),
    "pause": lambda writer, text: writer.row(text, Kind.PAUSE),
    "warn": lambda writer, text: writer.row(text, "notice", detail='{"notice":"Stalled"}'),
    "reject": _rejected,
    "refuse": lambda writer, _: writer.row("store", Kind.REFUSED),
    "unknown": _unknown,
    "submit": _submit,
    "send": _frame(Kind.TRANSMIT, "data", "sender"),
    "resend": _resend_by_wake,
    "say": _frame(Kind.TRANSMIT, "confirm", "receiver"),
    "copy": _frame(Kind.COPIED, "data", "network"),
    "carry": _carry,
    "echo": _frame(Kind.COPIED, "confirm", "network"),
    "arrive": _frame(Kind.ARRIVED, "data", "receiver"),
    "land": _land,
    "nack": _frame(Kind.ARRIVED, "nack", "sender"),
    "deliver": _simple(Kind.DELIVERED, "receiver"),
    "call": _simple(Kind.CALLED, "receiver", '{"stage":"price"}'),
    "raise": _simple(Kind.RAISED, "receiver"),
    "raise-in-price": _simple(Kind.RAISED, "receiver", '{"stage":"price"}'),
    "fail": _simple(Kind.FAILED, "receiver"),
    "settle": _simple(Kind.SETTLED, "receiver"),
    "dead": _simple(Kind.DEAD, "receiver", "ValueError: no"),
    "bury": _simple(Kind.DEAD, "receiver"),
    "give-up": _simple(Kind.DEAD, "sender", "Undeliverable"),
    "confirm": _simple(Kind.CONFIRMED, "sender"),
    "renumber": _renumber,
    "wake": _wake,
    "crash": _crash,
    "stop": _stop,
    "told": _told,
    "start": _start,
    "append": _append,
    "commit": _commit,
    "fault": _fault,
    "tell": _tell,
    "phase": _phase,
    "gauges": _gauges,
    "end": _end,
}


def history(text: str, **facts: object) -> list[Row]:
    """The rows of a history; its lines are separated by semicolons."""
    writer = Writer([run_row(**facts)])
    for line in filter(None, (one.strip() for one in text.split(";"))):
        writer.is_late = line.startswith("late ")
        verb, _, rest = line.removeprefix("late ").partition(" ")
        if verb[0] == "t" and verb[1:].isdigit():
            writer.time_us = int(verb[1:]) * 1_000_000
        else:
            VERBS[verb](writer, rest)
    return writer.rows


def judged(rows: list[Row], *properties: str) -> tuple[Violation, ...]:
    """What these properties (none: those that the claim asks for) say of a history."""
    judge = Judge(properties or None, rows[0])
    for row in rows:
        judge.see(row)
    return judge.finish()


def whole(accepted: int, trace: tuple[int, ...]) -> list[Row]:
    """A history in which so many were accepted and these positions came out, one by one."""
    digits = "".join(digest(1, seq) for seq in range(1, accepted + 1))
    rows = [
        _RUN,
        Row("r", "sender", 1, 1, "", 0, Kind.ACCEPTED, PIPE, 1, 1, accepted, digests=digits),
    ]
    for one in trace:
        rows.append(
            Row(
                "r",
                "receiver",
                1,
                len(rows),
                "",
                0,
                Kind.SETTLED,
                PIPE,
                1,
                one,
                1,
                digests=digest(1, one),
            )
        )
    rows.append(Row("r", "world", 1, len(rows), "", 0, Kind.END, detail=_AT_REST))
    return rows


_RUN = run_row()
_AT_REST = json.dumps({"limit": "", "nodes": {}, "quiescent": True})
