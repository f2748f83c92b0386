"""The vocabulary between machines and hosts: effects that go out, outcomes that come back.

A machine returns a list of effects for each input and the host performs them in that order. A host answers
every ``Persist``, ``Call`` and ``DeadLetter`` with an outcome under the same ticket, and every ``Deliver`` with
``settled``, ``failed`` or ``refused``. Nothing here has behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TypeAlias

from surepipe.core.records import record

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive, disjoint, increasing ranges of sequence numbers."""

Speaker: TypeAlias = tuple[str, int]
"""Who numbered messages: their producer, where they come straight out of a stream (else ""), and the epoch."""

NOBODY: Speaker = ("", 0)

Key: TypeAlias = "bool | int | str | bytes | tuple[Key, ...] | None"
"""What messages that must stay in order have in common, where a receiver has lanes: a plain, hashable value."""


class RejectReason(StrEnum):
    """Why messages were not accepted."""

    FULL = "full"
    TOO_LARGE = "too-large"
    CLOSED = "closed"
    STOPPED = "stopped"
    JOURNAL = "journal"


class NoticeKind(StrEnum):
    """The kinds of notices that a machine gives to the people who run it."""

    UNANSWERED = "Unanswered"
    SILENT = "Silent"
    RECOVERED = "Recovered"
    UNDELIVERABLE = "Undeliverable"
    STALLED = "Stalled"
    POISON = "Poison"
    FENCED = "Fenced"
    ORPHANS = "Orphans"
    JOURNAL_ROLLBACK = "JournalRollback"
    STATE_ROLLBACK = "StateRollback"
    STORE_ROLLBACK = "StoreRollback"
    TRIMMED = "Trimmed"
    RESET = "Reset"
    DIVERGED = "Diverged"
    UP = "Up"
    DOWN = "Down"
    MISMATCH = "Mismatch"
    FORKED = "Forked"
    STOPPED = "Stopped"
    STATE_LOST = "StateLost"
    DECLINED = "Declined"
    SEALED = "Sealed"
    MISSED = "Missed"


NOTICE_MEANING: Mapping[NoticeKind, str] = {
    NoticeKind.UNANSWERED: "sent `warn_after` times without an answer (told of the first such messages, and not "
    "of each that follows while nobody answers), or a store refuses to answer, or a stream is full",
    NoticeKind.SILENT: "a store has not answered for two seconds, or for longer when the end next looks: what "
    "needs it waits",
    NoticeKind.RECOVERED: "the receiver, or the store that was silent, answers again, or effects of a handler "
    "found room in a stream that was full",
    NoticeKind.UNDELIVERABLE: "given up after `give_up_after_s`; a pipe that keeps the order stops",
    NoticeKind.STALLED: "a hole older than `gap_alarm_s`: what is behind it waits",
    NoticeKind.POISON: "the handler has failed on this message `warn_after` times, or the message is in the dead "
    "letters now: the detail says which",
    NoticeKind.FENCED: "this end was replaced and stops; the ranges are those it can't confirm",
    NoticeKind.ORPHANS: "stored messages that a later life had closed off; sent under new numbers",
    NoticeKind.JOURNAL_ROLLBACK: "the journal went back: it is older than what the receiver has settled, or it "
    "lost messages that this sender still had and stored again",
    NoticeKind.STATE_ROLLBACK: "the receiver's state went back: it is older than what the sender has confirmed, "
    "or than what this receiver had stored",
    NoticeKind.STORE_ROLLBACK: "the stream lacks messages that it had acknowledged: it went back, or somebody "
    "removed them",
    NoticeKind.TRIMMED: "entries were removed (by retention with `force`, or by somebody else) before this reader "
    "had read them, or (by any retention) before it began for the first time, with `start: earliest`",
    NoticeKind.RESET: "the stream was deleted and made anew",
    NoticeKind.DIVERGED: "the stream holds other entries than those that were read",
    NoticeKind.UP: "both directions of a channel are linked",
    NoticeKind.DOWN: "a channel was silent for too long; its volatile state was freed",
    NoticeKind.MISMATCH: "the two ends are configured differently: both stop, and the detail says which two "
    "stacks met",
    NoticeKind.FORKED: "a member of a log signed two entries for one height: nobody relies on it any more",
    NoticeKind.STOPPED: "a member of a log wrote an entry that nobody takes: what is behind it doesn't count",
    NoticeKind.DECLINED: "a block that a node of a replicated queue proposed doesn't pass the checks of this node",
    NoticeKind.SEALED: "a session of a replicated queue has ended: the next one goes on with what it left",
    NoticeKind.MISSED: "this node was away for longer than others keep what was decided: it goes on without that",
    NoticeKind.STATE_LOST: "this node may have forgotten what it signed: it only listens in this session",
}
"""What each notice tells, in one line."""


@record
class Transmit:
    """Put this frame on the route."""

    frame: object


@record
class Addressed:
    """A frame and the name of its route, where a machine has several: the one it goes to, or came by.

    It stands in the place of the frame, in ``Transmit`` and as what ``Machine.frame`` is given.
    """

    route: str
    frame: object


@record
class Accepted:
    """Messages ``first .. first + count - 1`` of this epoch were taken (with a journal: and stored)."""

    epoch: int
    first: int
    count: int


@record
class Reject:
    """The last ``count`` messages offered were not taken and left no trace. ``detail``: what a store said."""

    reason: RejectReason
    count: int
    detail: str = ""


@record
class Confirmed:
    """The sender knows that these messages are settled."""

    epoch: int
    ranges: Ranges


@record
class Renumbered:
    """Messages that were never delivered under their old identity have a new one, in the same order."""

    epoch: int
    first: int
    count: int
    new_epoch: int
    new_first: int


@record
class Deliver:
    """Hand these consecutive messages to the boundary; answer with settled, failed or refused.

    ``attempt`` is that of the first message; those behind it run for the first time. ``producer`` is the name
    of the writer where the messages come straight out of a stream, which several may write into: there, and
    only there, the identity of a message is (producer, epoch, seq).

    With lanes the messages are of one ``key`` and follow each other in its order, so they are not consecutive:
    ``seqs`` are their numbers. Several such deliveries are open at once, each of another key; each is answered by
    itself, and a range that is answered means those of its numbers that belong to the ticket.
    """

    ticket: int
    epoch: int
    first: int
    payloads: Sequence[bytes]
    attempt: int
    producer: str = ""
    key: Key = None
    seqs: Sequence[int] = ()


@record
class Persist:
    """Store this write and answer the ticket with ``Stored``, ``Failed`` or ``Unavailable``."""

    ticket: int
    write: Write


@record
class Call:
    """Make this store call and answer the ticket with its outcome."""

    ticket: int
    request: object


Cause: TypeAlias = tuple[str, str] | tuple[str, str, str, str]
"""Why a handler failed: type and text of the error. Where they are known, too: which of several places a letter is
for, and the traceback (a simulation has none, because its text depends on the machine that it runs on)."""


@record
class Letter:
    """A message that could not be settled, with everything needed to understand and replay it.

    Machines write their own monotonic time; the host that passes the letter on makes it wall-clock time, and
    fills in ``replays``: how often the message had been replayed out of the dead letters before it failed again.
    ``traceback`` is that of the last failure. ``place`` says where the letter goes if there are several places;
    it is not written down with it.
    """

    pipe: str
    layer: int
    epoch: int
    seq: int
    payload: bytes
    attempts: int
    first_failure_us: int
    last_failure_us: int
    error_type: str
    error_text: str
    producer: str = ""
    replays: int = 0
    traceback: str = field(default="", repr=False)
    place: str = ""

    @property
    def speaker(self) -> Speaker:
        """Who numbered its message."""
        return self.producer, self.epoch


@record
class DeadLetter:
    """Put this letter in the dead-letter store and answer the ticket."""

    ticket: int
    letter: Letter


@record
class WakeAt:
    """Arm the one deadline of the machine (absolute microseconds), or disarm it."""

    deadline: int | None


@record
class Notice:
    """Something a person should know, with the exact range it concerns. Never a payload. ``producer`` as in
    ``Deliver``: without it epoch and range name no message of a stream that several write into."""

    kind: NoticeKind
    epoch: int
    ranges: Ranges = ()
    detail: str = ""
    producer: str = ""


Effect: TypeAlias = (
    Transmit
    | Accepted
    | Reject
    | Confirmed
    | Renumbered
    | Deliver
    | Persist
    | Call
    | DeadLetter
    | WakeAt
    | Notice
)


# What a Persist may ask for. A journal is one stream with the pipe as its only producer, plus one position.


@record
class OpenLife:
    """Take this life number for the journal: writes of any lower life are refused from now on.

    Answered ``WriteStored``; or with ``JournalContents`` as they are under the new life, which replace those the
    sender was built with. A host that read them before should do so: a former life may have written until then.
    """

    life: int


@record
class AppendRows:
    """Add messages to the journal. Safe to repeat: the identity (epoch, first) says what is there."""

    epoch: int
    first: int
    payloads: Sequence[bytes]


@record
class NoteTransmitted:
    """Note that messages of this epoch may have been on the wire: they can't be renumbered any more."""

    epoch: int


@record
class ForgetRows:
    """Every message of this epoch up to ``through`` is confirmed; earlier epochs are confirmed whole."""

    epoch: int
    through: int


@record
class Renumber:
    """Take life ``epoch`` and store these messages as its rows from 1, in place of the rows of the
    epochs ``replaces``: one atomic write.

    ``by`` is the life that asks (0: not told). The new number is higher than any, so only ``by`` can show that the
    asker was replaced: when the journal has opened a life above it (other than ``epoch`` by a former try of this
    write), the answer is ``WriteFenced``. Otherwise a replaced sender would take the journal back.

    ``moved`` says which messages these were. It is kept with them: this life may end before it can tell.
    """

    epoch: int
    payloads: Sequence[bytes]
    replaces: tuple[int, ...]
    by: int = 0
    moved: tuple[Renumbered, ...] = ()


@record
class SaveState:
    """Store the receiver's state (the cursors of all layers) in place of the former one."""

    state: bytes


Write: TypeAlias = OpenLife | AppendRows | NoteTransmitted | ForgetRows | Renumber | SaveState


@record
class JournalRows:
    """Messages of one epoch as a journal holds them, consecutive from ``first``."""

    epoch: int
    first: int
    payloads: Sequence[bytes]


@record
class JournalContents:
    """What a journal held when the sender started. ``rows`` are unconfirmed, oldest epoch first.

    ``last_life`` is 0 for a new journal. ``transmitted`` is the highest epoch noted by
    ``NoteTransmitted`` (0 for none). ``confirmed`` is the last ``ForgetRows`` as (epoch, through). ``renumbered``
    tells where rows come from that an earlier life has numbered again, as long as the first of them is there.
    """

    last_life: int = 0
    rows: Sequence[JournalRows] = ()
    transmitted: int = 0
    confirmed: tuple[int, int] = (0, 0)
    renumbered: tuple[Renumbered, ...] = ()


# Answers to Persist and DeadLetter. Store calls of the stream pipe are answered with store outcomes.


@record
class WriteStored:
    """Done, and kept as the store's declared level says. ``again``: messages of the write's epoch that its store
    had lost, and got once more with it."""

    again: Ranges = ()


@record
class WriteFailed:
    """Definitely not done, and a repeat would not help. ``closed``: nor would any later write, as its store is
    closed."""

    reason: str
    closed: bool = False


@record
class WriteFenced:
    """Not done: a newer life (or owner) has taken over."""

    by: int


@record
class WriteUnknown:
    """Done, or not done: nobody knows. Safe to ask again."""


WriteOutcome: TypeAlias = WriteStored | JournalContents | WriteFailed | WriteFenced | WriteUnknown
"""``JournalContents`` answers an ``OpenLife`` that is stored, when an older life has written since the load."""
