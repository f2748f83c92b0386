"""Several requests as one: the rules that every store keeps (S-15, S-16).

A store brings its own way to do one request, and to take back what was done when not all of it can be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import cast

from surepipe.core.store_requests import (
    KEY_MAX_BYTES,
    KEYS_MAX,
    VALUE_MAX_BYTES,
    AllDone,
    AppendRun,
    Changed,
    CommitPosition,
    Committed,
    DropValues,
    Failed,
    JoinedOutcome,
    JoinedRequest,
    KeyedRequest,
    LoadTable,
    NoneDone,
    PutValues,
    ReadKeys,
    Stored,
    Together,
    Untouched,
)

_UNGUARDED = (
    "values and marks are written together with an append that decides, or with the commit of a position: alone, "
    "a late repeat of them would undo what was written since"
)


def why_not(request: KeyedRequest) -> Failed | None:
    """Why no store does this; the text says what to change."""
    match request:
        case ReadKeys(_, keys):
            reason = _wrong_keys(keys)
        case LoadTable(_, _, limit):
            reason = "" if limit > 0 else f"a limit of {limit} rows loads nothing: give 1 or more"
        case Together():
            reason = _why_not_together(request)
        case _:
            reason = ""
    return Failed(reason) if reason else None


def _why_not_together(request: Together) -> str:
    parts = request.requests
    if request.is_decided and not (parts and isinstance(parts[0], AppendRun) and parts[0].payloads):
        return (
            "the first of several requests decides when it appends something: put that append first"
        )
    is_guarded = request.is_decided or any(isinstance(part, CommitPosition) for part in parts)
    if not is_guarded and not all(isinstance(part, AppendRun) for part in parts):
        return _UNGUARDED
    return next((why for part in parts if (why := _why_not_part(part))), "")


def _why_not_part(part: JoinedRequest) -> str:
    match part:
        case PutValues(_, pairs):
            return _wrong_keys(pairs) or _wrong_values(pairs.values())
        case DropValues(_, keys):
            return _wrong_keys(keys)
        case _:
            return ""


def _wrong_keys(keys: Collection[bytes]) -> str:
    if len(keys) > KEYS_MAX:
        return f"{len(keys)} keys are more than the {KEYS_MAX} of one request: make several of it"
    for key in keys:
        if not isinstance(cast("object", key), bytes) or not 0 < len(key) <= KEY_MAX_BYTES:
            return f"a key is {_short(key)}: give 1 to {KEY_MAX_BYTES} bytes"
    return ""


def _wrong_values(values: Iterable[bytes]) -> str:
    for value in values:
        if not isinstance(cast("object", value), bytes):
            return f"a value is {_short(value)}: give bytes"
        if len(value) > VALUE_MAX_BYTES:
            return f"a value of {len(value)} bytes is above {VALUE_MAX_BYTES}: put it into a stream"
    return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}... ({type(value).__name__})"


def perform_together(
    request: Together, do: Callable[[JoinedRequest], JoinedOutcome]
) -> AllDone | NoneDone:
    """Do one request after the other. After NoneDone the store takes back what was done of it."""
    outcomes: list[JoinedOutcome] = []
    for number, part in enumerate(request.requests):
        outcome = do(part)
        if request.is_decided and isinstance(part, AppendRun):
            outcome = as_decided(part, outcome) if number else as_deciding(part, outcome)
        outcomes.append(outcome)
        if request.is_decided and not number and not is_new(outcome):
            return answer_of_decision(request, outcome)
    done = all(isinstance(outcome, Stored | Committed | Changed) for outcome in outcomes)
    return AllDone(tuple(outcomes)) if done else NoneDone(tuple(outcomes))


def answer_of_decision(request: Together, outcome: JoinedOutcome) -> AllDone | NoneDone:
    """The append that decides was refused, or was there."""
    outcomes = (outcome, *(Untouched() for _ in request.requests[1:]))
    return AllDone(outcomes) if isinstance(outcome, Stored) else NoneDone(outcomes)


def is_new(outcome: JoinedOutcome) -> bool:
    """Whether an append has stored something."""
    return isinstance(outcome, Stored) and outcome.new > 0


def was_done_before(request: Together, outcome: object) -> bool:
    """Whether the append that decides was there already: then what goes with it was done, and is not repeated."""
    return request.is_decided and isinstance(outcome, AllDone) and not is_new(outcome.outcomes[0])


def as_deciding(run: AppendRun, outcome: JoinedOutcome) -> JoinedOutcome:
    """What an append decides that turns out to be stored in part: nobody says what went with that part."""
    if isinstance(outcome, Stored) and 0 < outcome.new < len(run.payloads):
        return in_part(run, outcome.last - outcome.new)
    return outcome


def in_part(run: AppendRun, last: int) -> Failed:
    """A deciding run whose beginning was stored by another one."""
    return Failed(
        f"messages {run.first}..{last} of {run.producer!r} in {run.stream!r} are stored and the rest of the run "
        "that decides is not: another run decided about them; repeat that one"
    )


def as_decided(run: AppendRun, outcome: JoinedOutcome) -> JoinedOutcome:
    """An append beside one that is new has to be new as well."""
    if isinstance(outcome, Stored) and outcome.new < len(run.payloads):
        return not_new(run)
    return outcome


def not_new(run: AppendRun) -> Failed:
    """Part of a run is stored although what it belongs to is not."""
    return Failed(
        f"messages of {run.first}..{run.last} of {run.producer!r} in {run.stream!r} are stored already, and the "
        "append that they belong to is not: somebody else wrote under this identity, or the store lost a part"
    )
