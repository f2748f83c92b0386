"""Writes the rows of a run by hand, in the words of a trace: who sends, loses, delivers, crashes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from surepipe.audit.findings import Violation
from surepipe.audit.trace import FORMAT, Kind, RollingDigest, Row
from surepipe.simulation.chance.script import Decision, Script
from surepipe.simulation.results import RunResult

PIPE = "orders"
MS = 1_000


@dataclass
class Run:
    """A run that is being written. Messages are numbers from 1; each verb returns the row that it wrote."""

    subject: str
    messages: int = 2
    rows: list[Row] = field(default_factory=list[Row])
    decisions: list[Decision] = field(default_factory=list[Decision])

    def __post_init__(self) -> None:
        self._now = 0
        self._lives: dict[str, int] = {}
        self._cause = ""
        detail = {"format": FORMAT, "clock": "virtual", "subject": self.subject, "seed": 4711}
        self._row(Kind.RUN, "world", detail=json.dumps(detail, sort_keys=True))

    # --- events, each at a time of its own

    def submit(self, *messages: int, node: str = "sender") -> None:
        """The application hands messages over, and they are accepted."""
        self._event(Kind.SUBMIT, node, count=len(messages))
        for message in messages:
            self._row(Kind.ACCEPTED, node, seq=message, count=1)

    def arrive(self, sent: Row, copy: int = 0) -> None:
        """A frame reaches the other end."""
        target = sent.link.partition(">")[2]
        self._about(Kind.ARRIVED, target, sent, sent.detail, copy)

    def lose(self, sent: Row, fault: str, *, why: str = "") -> None:
        """The network loses a frame."""
        self._about(Kind.LOST, sent.node, sent, why or fault)
        if not why:
            self.decide(f"{_name(sent)}", "lose", fault)

    def copy(self, sent: Row) -> None:
        """The network makes a second one."""
        self._about(Kind.COPIED, sent.node, sent, "F3", 1)
        self.decide(_name(sent), "copy", "F3")

    def wake(self, node: str = "sender") -> None:
        """A deadline passes."""
        self._event(Kind.WAKE, node)

    def crash(self, node: str, fault: str, during: str = "between two events") -> None:
        """A process ends."""
        self._event(Kind.CRASH, node, detail="crash")
        self.decide(f"{node}: {during}", "crash", fault)

    def start(self, node: str) -> None:
        """The next life."""
        self._lives[node] = self._life(node) + 1
        self._event(Kind.START, node)

    def pause(self, node: str, fault: str) -> None:
        """A node stands still."""
        self._event(Kind.PAUSE, node, detail="zombie")
        self.decide(f"{node}: arrive", "zombie", fault)

    def resume(self, node: str) -> None:
        """It goes on."""
        self._event(Kind.RESUME, node)

    def fault(self, node: str, text: str, fault: str, **told: object) -> None:
        """Something else goes wrong."""
        detail = json.dumps({"fault": fault, "text": text, **told}, sort_keys=True)
        self._event(Kind.FAULT, node, detail=detail)
        if told.get("verb") != "heal":
            self.decide(f"{node}: {text}", str(told.get("verb", "fault")), fault)

    def phase(self, name: str) -> None:
        """The next part of the run."""
        self._event(Kind.PHASE, "world", detail=json.dumps({"phase": name}))

    def end(self) -> None:
        """Nothing is left to happen."""
        self._event(Kind.END, "world", detail='{"quiescent": true}')

    # --- what an event causes

    def send(
        self,
        *messages: int,
        link: str = "sender>receiver",
        kind: str = "data",
        attempt: int = 1,
        life: int = 0,
    ) -> Row:
        """A frame leaves its node."""
        return self._row(
            Kind.TRANSMIT,
            link.partition(">")[0],
            seq=messages[0] if messages else 0,
            count=len(messages),
            link=link,
            attempt=attempt,
            detail=kind,
            incarnation=life,
        )

    def does(self, kind: Kind, node: str, *messages: int, detail: str = "", life: int = 0) -> None:
        """Deliver, settle, confirm, persist, append, commit: one row for consecutive messages."""
        first = messages[0] if messages else 0
        self._row(kind, node, seq=first, count=len(messages), detail=detail, incarnation=life)

    def deliver(self, *messages: int, node: str = "receiver", life: int = 0) -> None:
        """Handed over and settled at once."""
        self.does(Kind.DELIVERED, node, *messages, life=life)
        self.does(Kind.SETTLED, node, *messages, life=life)

    def decide(self, at: str, verb: str, fault: str) -> None:
        """A decision of the script."""
        self.decisions.append(Decision("faults", at, verb, (), fault))

    # --- the run

    def broken(self, property_id: str, name: str, sentence: str, message: int) -> Violation:
        """The property is first false at the row that was written last."""
        return Violation(property_id, name, self.rows[-1].step, sentence, PIPE, 1, message, message)

    def result(self, *violations: Violation) -> RunResult:
        """The finished run."""
        digest = RollingDigest()
        for row in self.rows:
            digest.add(row)
        options: dict[str, int | str] = {"messages": self.messages, "order": "fifo"}
        script = Script(self.subject, options, tuple(self.decisions), 4711)
        return RunResult(script, self.rows, violations, digest.hex(), len(self.rows))

    # --- rows

    def _life(self, node: str) -> int:
        return self._lives.get(node, 1)

    def _event(
        self, kind: Kind, node: str, *, count: int = 0, detail: str = "", cause: str = ""
    ) -> Row:
        self._now += MS
        row = self._row(kind, node, count=count, detail=detail, cause=cause or None)
        self._cause = f"{row.node}/{row.incarnation}/{row.step}"
        return row

    def _about(self, kind: Kind, node: str, sent: Row, detail: str, copy: int = 0) -> None:
        self._now += MS
        cause = f"{sent.node}/{sent.incarnation}/{sent.step}"
        row = self._row(
            kind,
            node,
            seq=sent.seq,
            count=sent.count,
            link=sent.link,
            attempt=sent.attempt,
            copy=copy,
            detail=detail,
            cause=cause,
        )
        self._cause = f"{row.node}/{row.incarnation}/{row.step}"

    def _row(
        self,
        kind: Kind,
        node: str,
        *,
        seq: int = 0,
        count: int = 0,
        link: str = "",
        attempt: int = 0,
        copy: int = 0,
        detail: str = "",
        cause: str | None = None,
        incarnation: int = 0,
    ) -> Row:
        row = Row(
            run="example",
            node=node,
            incarnation=incarnation or self._life(node),
            step=len(self.rows),
            cause=self._cause if cause is None else cause,
            time_us=self._now,
            kind=kind,
            pipe=PIPE if count else "",
            epoch=1 if count else 0,
            seq=seq,
            count=count,
            link=link,
            attempt=attempt,
            copy=copy,
            detail=detail,
        )
        self.rows.append(row)
        return row


def _name(sent: Row) -> str:
    return f"{PIPE}/0 {sent.detail} e1 {sent.seq}+{sent.count} a{sent.attempt}"


def confirmed(run: Run, sent: Sequence[int], *, attempt: int = 1) -> None:
    """The receiver confirms, and the sender hears it."""
    said = run.send(*sent, link="receiver>sender", kind="confirm", attempt=attempt)
    run.arrive(said)
    run.does(Kind.CONFIRMED, "sender", *sent)
