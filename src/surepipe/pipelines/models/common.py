"""What the models of all parts share: how strict they are, and the kinds of words that occur in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
)

from surepipe.errors import ConfigurationError
from surepipe.pipelines.problems import nearest
from surepipe.pipelines.settings import SecretSetting, Setting

# A mapping that stays as it was made; unlike the standard library's proxy it can be copied and sent.


K = TypeVar("K")
V = TypeVar("V")


class FrozenMapping(Mapping[K, V]):
    """Equal to any mapping with the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


PART_NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$"
CALLABLE_PATH = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
_VARIABLE = re.compile(r"\$\{\w*")


class PartModel(BaseModel):
    """Frozen; unknown keys are refused; nothing is converted: ``"5"`` is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)
    word: ClassVar[str] = "part"


class NamedPart(PartModel):
    """A part that others name: in YAML its name is the key above it."""

    name: Annotated[str, Field(exclude=True)] = ""


def _no_variable(value: str) -> str:
    if found := _VARIABLE.search(value):
        raise ValueError(
            f"no environment variable is read here, and {found[0]}}} looks like one; "
            "addresses, paths and headers may have them"
        )
    return value


def _callable_path(value: str) -> str:
    if re.fullmatch(CALLABLE_PATH, value):
        return value
    if value.endswith(".py") or "/" in value:
        hint = "and this is the path of a file: write the module's name"
    elif ":" not in value and "." in value:
        module, _, name = value.rpartition(".")
        hint = f"did you mean {f'{module}:{name}'!r}?"
    else:
        hint = "such as 'shop.orders:price'"
    raise ValueError(f"a function is written 'module:function', {hint}")


def _setting(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return Setting(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _secret(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return SecretSetting(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _only_variables(value: Setting) -> Setting:
    if not value.is_variables:
        raise ValueError(
            "stands in the file: put it into an environment variable, and write ${NAME}"
        )
    return value


def _host_and_port(value: Setting) -> Setting:
    host, _, port = value.written.rpartition(":")
    is_told = "$" not in value.written  # else it is known when it is opened
    if is_told and not (host and port.isdecimal() and int(port) < 1 << 16):
        raise ValueError("an address is written host:port, with a port below 65536")
    return value


def _of_redis(value: Setting) -> Setting:
    if "$" not in value.written and not _is_of_redis(value.written):
        raise ValueError("a server's address is written such as redis://localhost:6379/0")
    return value


def _is_of_redis(url: str) -> bool:
    """The client would take another path than a number for database 0."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    if parts.scheme == "unix":
        return True
    is_database = not parts.path.strip("/") or parts.path[1:].isdecimal()
    return parts.scheme in ("redis", "rediss") and has_port and is_database


def _in_store(value: str) -> str:
    store, slash, stream = value.partition("/")
    if not (store and slash and stream):
        raise ValueError("a stream is written 'store/stream', such as 'main/orders.dead'")
    return value


def row_of(value: object) -> object:
    """One word stands for a list of one; a list of YAML becomes a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _frozen(value: Mapping[str, object]) -> Mapping[str, object]:
    return FrozenMapping(value)


Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_no_variable)]
PartName: TypeAlias = Annotated[str, Field(pattern=PART_NAME)]
CallablePath: TypeAlias = Annotated[
    str,
    AfterValidator(_callable_path),
    WithJsonSchema({"type": "string", "pattern": CALLABLE_PATH}),
]
InStore: TypeAlias = Annotated[
    str, AfterValidator(_in_store), WithJsonSchema({"type": "string", "pattern": "^[^/]+/.+$"})
]
Text: TypeAlias = Annotated[
    InstanceOf[Setting],
    BeforeValidator(_setting),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
"""A setting in which environment variables may stand."""
Address: TypeAlias = Annotated[Text, AfterValidator(_host_and_port)]
"""Host and port."""
RedisUrl: TypeAlias = Annotated[Text, AfterValidator(_of_redis)]
Hidden: TypeAlias = Annotated[
    InstanceOf[SecretSetting],
    BeforeValidator(_secret),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
"""The same, of which only the variables are ever shown."""
Secret: TypeAlias = Annotated[
    InstanceOf[SecretSetting],
    BeforeValidator(_secret),
    AfterValidator(_only_variables),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": r"^(\$\{[A-Za-z_][A-Za-z0-9_]*\}\s*)+$"}),
]
"""A secret, which a file must not hold."""
_ROW_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ]
}
Names: TypeAlias = Annotated[
    tuple[Word, ...],
    BeforeValidator(row_of),
    Field(min_length=1),
    WithJsonSchema(_ROW_SCHEMA),
]
Words: TypeAlias = Annotated[tuple[Word, ...], BeforeValidator(row_of), WithJsonSchema(_ROW_SCHEMA)]
Frozen = AfterValidator(_frozen)
Count: TypeAlias = Annotated[int, Field(ge=1, le=2**31)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86_400 * 365, allow_inf_nan=False)]


def one_of(word: str, what: str, known: tuple[str, ...]) -> str:
    """The word, if it is known. Raises ValueError that names the nearest."""
    if word not in known:
        raise ValueError(f"{word!r} is no {what}: {nearest(word, known)}")
    return word
