"""What messages that must stay in order have in common: a key, told by a function or by the place it stands at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, cast
from uuid import UUID

from surepipe.actors.codecs import Codec
from surepipe.actors.coroutines import require_plain
from surepipe.effects import Key
from surepipe.errors import ConfigurationError
from surepipe.pipes.boundary import LANES_MAX

# Any: whoever writes the function knows what the messages of this pipe are.
KeyChoice: TypeAlias = str | Callable[[Any], object]
"""A function of the message, the name of an attribute or item, or a path of them such as ``order.customer``."""

DEFAULT_LANES = 4


class NoKey(Exception):
    """The key of a message can't be told. It goes to the dead letters; its neighbours take no notice."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """How many messages are handled at once, and what keeps those of one key in order."""

    key: KeyChoice
    count: int = DEFAULT_LANES


def chosen_lanes(pipe: str, key: KeyChoice | None, lanes: int | None) -> Lanes | None:
    """What was asked for; None for one message after the other. Raises ConfigurationError."""
    if key is None:
        if lanes is not None:
            raise ConfigurationError(
                f"pipe {pipe}: lanes is {lanes!r}, and nothing says which messages must stay in order; "
                "give a key: a function of the message, or the name of what tells it"
            )
        return None
    if not _is_choice(key):
        raise ConfigurationError(
            f"pipe {pipe}: key is {key!r}: give a function of the message, or a name such as "
            "'customer' or 'order.customer'"
        )
    require_plain(
        f"the key of pipe {pipe}", key, "it is asked for each message; give a plain function"
    )
    count: object = DEFAULT_LANES if lanes is None else lanes
    if type(count) is not int or not 1 <= count <= LANES_MAX:
        raise ConfigurationError(
            f"pipe {pipe}: lanes is {lanes!r}: it must be a whole number from 1 to {LANES_MAX}"
        )
    return Lanes(key, count)


def _is_choice(key: object) -> bool:
    return callable(key) or (isinstance(key, str) and all(key.split(".")))


def key_reader(choice: KeyChoice, codec: Codec) -> Callable[[bytes], Key]:
    """What tells the key of a payload. It raises Undecodable, NoKey, or what the user's function raises."""
    tell = _at_path(choice.split(".")) if isinstance(choice, str) else choice
    return lambda payload: plain_key(tell(codec.decode(payload)))


def plain_key(value: object) -> Key:
    """The key as a plain value: equal keys stay equal. Raises NoKey for what has no plain value."""
    match value:
        case None | bool() | bytes():
            plain: Key = value
        case Enum():
            plain = plain_key(cast("object", value.value))
        case int():
            plain = int(value)
        case str() | UUID():
            plain = str(value)
        case float():
            plain = int(value) if value.is_integer() else repr(value)
        case list() | tuple():
            plain = tuple(plain_key(item) for item in cast("Sequence[object]", value))
        case _:
            kind = type(value).__name__
            raise NoKey(f"a {kind} is no key: give text, a number, bytes, or a tuple of them")
    return plain


def _at_path(names: Sequence[str]) -> Callable[[object], object]:
    def tell(message: object) -> object:
        found = message
        for name in names:
            found = _inside(found, name)
        return found

    return tell


def _inside(value: object, name: str) -> object:
    whole = value  # as it came: of no known kind
    try:
        if isinstance(value, Mapping):
            return cast("Mapping[str, object]", value)[name]
        if isinstance(value, list | tuple):
            return cast("Sequence[object]", value)[int(name)]
        found: object = getattr(whole, name)
        return found
    except (LookupError, ValueError, AttributeError):
        raise NoKey(f"a {type(whole).__name__} has no {name!r}") from None
