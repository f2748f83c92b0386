"""Dead letters on the terminal: what their messages look like, and how they are put in again."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, cast

import typer

from surepipe.actors.codecs import unmarked
from surepipe.cli.output import Exit, complain
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run import PlanEngine, RealEnvironment
from surepipe.pipelines.run.pipes import pipe_name
from surepipe.pipelines.run.running import letters_in
from surepipe.storage.letters import DeadLetterStream, Fates, StoredLetter

LOOK_S = 0.05


def replayed(
    plan: Plan, name: str, letters: DeadLetterStream, limit: int | None, index: int | None
) -> tuple[str, int]:
    """Replay all that waits, or one letter, wait until all is through; say how it went, and how many failed again.

    The node is run that fills the pipe; the letters may be in a store that this node itself does not use.
    """
    fates = letters.fates()
    if index is not None:
        refuse_unsendable(name, fates, index, letters.show(index) is not None)
    waiting = [
        stored
        for stored in letters.all()
        if not fates.is_sent(stored.index) and stored.index not in fates.deleted
    ]
    chosen = [stored for stored in waiting if index in (None, stored.index)]
    if not chosen:
        return f"no letter in {name} is waiting", 0
    pipe = _pipe_of(plan, name, chosen)
    failures: list[BaseException] = []
    engine = PlanEngine(
        plan,
        plan.places[pipe].sender,
        RealEnvironment(plan, stopped=failures.append),
        once=True,
        until_idle=True,
        with_sources=False,
    )
    engine.start()
    parked_before = _parked(engine, pipe)
    try:
        is_beside = name.partition("/")[0] in engine.stores
        source = letters_in(engine.stores, name) if is_beside else letters
        result = engine.replay(pipe, source, limit, index)
        while not engine.look():
            if failures:
                raise failures[0]
            engine.wait(LOOK_S)
    finally:
        engine.close()
    again = sum(engine.buried.values()) + max(0, _parked(engine, pipe) - parked_before)
    return f"{result}{f'; {again} failed again' if again else ''}", again


def _parked(engine: PlanEngine, pipe: str) -> int:
    """What waits for a person in the book of this pipe, if it goes through one."""
    return engine.counters()[pipe].get("parked", 0)


def refuse_unsendable(name: str, fates: Fates, index: int, is_there: bool) -> None:
    """Say why this letter is not sent, when it is not."""
    why = (
        f"{name} has no letter {index}: see surepipe dlq list"
        if not is_there
        else f"letter {index} of {name} was deleted, and is not sent any more"
        if index in fates.deleted
        else f"letter {index} of {name} was sent again before: surepipe dlq show says when"
        if fates.is_sent(index)
        else ""
    )
    if why:
        complain(why)
        raise typer.Exit(Exit.UNUSABLE)


def _pipe_of(plan: Plan, name: str, chosen: Sequence[StoredLetter]) -> str:
    """The pipe of the plan that all these letters came from."""
    known = {pipe_name(plan, pipe): pipe.name for pipe in plan.pipes}
    if why := next(_refusals(plan, name, chosen, known), ""):
        complain(why)
        raise typer.Exit(Exit.UNUSABLE)
    return known[_pipe_in(chosen[0])]


def _pipe_in(stored: StoredLetter) -> str:
    return stored.letter.pipe.partition("@")[0]


def _refusals(
    plan: Plan, name: str, chosen: Sequence[StoredLetter], known: Container[str]
) -> Iterator[str]:
    """Why these letters can't be sent into one pipe of the plan, and what to do."""
    sources = {f"{plan.name}/{source.name}": source.name for source in plan.sources}
    came_from = {_pipe_in(stored) for stored in chosen}
    for stored in chosen:
        if stored.letter.pipe in sources:
            yield (
                f"letter {stored.index} of {name} came from source {sources[stored.letter.pipe]}, before any "
                "pipe, so it can't be replayed: save it with surepipe dlq show --raw, mend it, give it to the "
                "source again, and then delete it with surepipe dlq delete"
            )
    for stored in chosen:
        if _pipe_in(stored) not in known:
            has_ours = any(one in known for one in came_from)
            others = f"; send those of {plan.name} one by one, by number, or delete it"
            yield (
                f"letter {stored.index} of {name} is of pipe {_pipe_in(stored)}, which {plan.name} doesn't have: "
                "replay it in the program that has it, with pipe.replay(DeadLetterStream(store, "
                f'"{name.partition("/")[2]}"), index={stored.index}) (docs/storage.md, "Dead letters")'
                f"{others if has_ours else ''}"
            )
    if len(came_from) > 1:
        yield (
            f"the letters of {name} come from {', '.join(sorted(came_from))}: a replay needs all of them from one "
            "pipe; send them one by one, by number"
        )


# Payloads of dead letters as people and programs read them: JSON, text, or bytes in hexadecimal.
#
# What a terminal would obey rather than show (escape sequences, marks that turn the direction of writing) never
# reaches it: JSON escapes it, and a text that has it is shown as bytes.


SHOWN_MAX = 4096
"""Bytes that are shown in hexadecimal; --raw gives all."""
SPARE_LEVELS = 20
"""By how much deeper than a payload what it is written in may be nested, and the code that writes it."""
ROW = 16
_MARK = b"\x1e"
"""Stands before JSON where the codec is auto, and before bytes that happen to begin with it."""
_BREAKS = str.maketrans("", "", "\n\t")
Kind: TypeAlias = Literal["json", "text", "bytes"]


class Read(NamedTuple):
    """What a payload is, as far as its bytes tell."""

    kind: Kind
    value: object


def read_payload(payload: bytes) -> Read:
    """The message of a payload: a JSON value, a text, or bytes."""
    content, _ = unmarked(payload)
    if content.startswith(_MARK * 2):
        return Read("bytes", content[1:])
    content = content.removeprefix(_MARK)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Read("bytes", content)
    try:
        return Read("json", _parsed(text))
    except (ValueError, RecursionError):
        text = text.replace("\r\n", "\n")
        return Read("text", text) if _is_plain(text) else Read("bytes", content)


def _parsed(text: str) -> object:
    """A value of JSON. Raises ValueError for what only Python takes for one, RecursionError where it is too deep.

    Reading may go deeper than writing (from Python 3.12 on), so it is written once, to be sure that it can be.
    """
    value = cast(
        "object", json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    )
    deeper = value
    for _ in range(SPARE_LEVELS):
        deeper = [deeper]
    json.dumps(deeper, indent=2)
    return value


def _refuse_constant(name: str) -> object:
    """Raises ValueError: NaN and Infinity are no JSON."""
    raise ValueError(f"{name} is no JSON")


def _is_plain(text: str) -> bool:
    """Whether a terminal shows all of it, and obeys nothing."""
    return text.translate(_BREAKS).isprintable()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object. Raises ValueError for a key that stands twice: one of its values would not be shown."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def payload_facts(payload: bytes) -> dict[str, object]:
    """For machines: the value itself, with bytes in hexadecimal, and which of the three it is."""
    kind, value = read_payload(payload)
    shown = value.hex() if isinstance(value, bytes) else value
    return {"payload_is": kind, "payload": shown}


def payload_lines(payload: bytes) -> Iterator[str]:
    """For people: how long it is and what it is, then the payload."""
    kind, value = read_payload(payload)
    yield f"{len(payload)} bytes, {_KINDS[kind]}:"
    if isinstance(value, bytes):
        yield from _hexadecimal(value)
    elif kind == "text":
        yield from str(value).split("\n")
    else:
        yield from _written(value).split("\n")


_KINDS: dict[Kind, str] = {"json": "JSON", "text": "text", "bytes": "neither JSON nor text"}


def _written(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if _is_plain(text) else json.dumps(value, indent=2)


def _hexadecimal(value: bytes) -> Iterator[str]:
    """Where a row begins, its bytes, and those of them that are letters."""
    for start in range(0, min(len(value), SHOWN_MAX), ROW):
        row = value[start : start + ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:04x}  {row.hex(' ').ljust(3 * ROW - 1)}  {letters}"
    if len(value) > SHOWN_MAX:
        yield f"and {len(value) - SHOWN_MAX} bytes more: --raw gives all of them"
