"""Reads the file of ``surepipe relay``: the parties, their stores, and the paths to carry."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import BeforeValidator, Field, ValidationError

from surepipe.actors.parties import StoreEnd
from surepipe.core.store_requests import Store
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.common import PartModel, Text, row_of
from surepipe.pipelines.problems import nearest
from surepipe.pipelines.reading import read_file
from surepipe.queues.ibc import Ledger, Relay, RelayOptions, TrustRoot
from surepipe.queues.ibc.ledger import inbox_of
from surepipe.queues.ibc.relay import Ends
from surepipe.storage import open_store
from surepipe.storage.redis.rights import acl_line


class PathPart(PartModel):
    """A connection between two parties."""

    word: ClassVar[str] = "path"
    ends: Annotated[tuple[str, str], BeforeValidator(row_of)]
    names: Annotated[tuple[str, str] | None, BeforeValidator(row_of)] = None
    priority: int = Field(default=0, ge=0)
    deny: Annotated[tuple[str, ...], BeforeValidator(row_of)] = ()
    skip: Annotated[tuple[int, ...], BeforeValidator(row_of)] = ()
    size_max: int | None = Field(default=None, ge=1)


class RelayPart(PartModel):
    """How it carries."""

    word: ClassVar[str] = "relay"
    name: str = "relay"
    poll_ms: int = Field(default=500, ge=1)
    batch_items_max: int = Field(default=100, ge=1, le=1000)
    cleanup_every: int = Field(default=256, ge=1)
    clear_interval_s: float = Field(default=60.0, gt=0)
    clear_share: float = Field(default=0.5, ge=0, le=1)
    resubmit_after_s: float = Field(default=5.0, gt=0)
    stagger_s: float = Field(default=2.0, ge=0)
    metrics_port: int | None = Field(default=None, ge=0, le=65_535)


class RelayModel(PartModel):
    """The whole file."""

    word: ClassVar[str] = "relay file"
    version: Literal[1]
    parties: Mapping[str, Text]
    """Addresses, in which environment variables may stand."""
    paths: Annotated[tuple[PathPart, ...], BeforeValidator(row_of)] = Field(min_length=1)
    relay: RelayPart = RelayPart()


@dataclass
class RelayFile:
    """A relay as its file has it; on leaving, its stores are closed."""

    relay: Relay
    stack: ExitStack
    metrics_port: int | None = None

    @staticmethod
    def read(path: Path, *, carries: bool = True) -> RelayFile:
        """``carries=False``: only to look, beside a relay of this file that runs. Raises ConfigurationError, which
        says what to write."""
        model = _model_of(path)
        stack = ExitStack()
        try:
            ends = {
                name: _end(stack, name, address, model.relay.name, carries=carries)
                for name, address in _used(model, path)
            }
            paths: list[Ends] = []
            for part in model.paths:
                one, other = (ends[name] for name in part.ends)
                paths.append((one, other, *part.names) if part.names else (one, other))
            options = [_options(model.relay, part) for part in model.paths]
            relay = Relay(paths, options=options[0])
            for carried, each, part in zip(relay.paths, options, model.paths, strict=True):
                carried.options, carried.name = each, "-".join(part.ends)
        except BaseException:
            stack.close()
            raise
        return RelayFile(relay, stack, model.relay.metrics_port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stack.close()


def _model_of(path: Path) -> RelayModel:
    _, root = read_file(path)
    try:
        return RelayModel.model_validate(root.data())
    except ValidationError as error:
        lines = [
            f"{path}: {'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}"
            for each in error.errors(include_url=False)
        ]
        raise ConfigurationError("\n".join(lines)) from None


def _used(model: RelayModel, path: Path) -> list[tuple[str, str]]:
    """The parties of all paths, with their stores."""
    found = list(dict.fromkeys(name for part in model.paths for name in part.ends))
    for name in found:
        if name not in model.parties:
            near = nearest(name, tuple(model.parties))
            hint = near or "write it there with its store"
            raise ConfigurationError(
                f"{path}: a path ends at {name!r}, which isn't among parties: {hint}"
            )
    addresses = {name: model.parties[name].reveal() for name in found}
    if len(set(addresses.values())) < len(found) and all(
        address.startswith("sqlite") for address in addresses.values()
    ):
        raise ConfigurationError(
            f"{path}: two parties have one store; give each a store of its own"
        )
    return list(addresses.items())


def _end(stack: ExitStack, name: str, address: str, relayer: str, *, carries: bool) -> StoreEnd:
    end = StoreEnd(_store_at(address, name, stack), relayer, carries=carries)
    stack.callback(end.close)
    return end


def _options(relay: RelayPart, part: PathPart) -> RelayOptions:
    return RelayOptions(
        batch_items_max=relay.batch_items_max,
        cleanup_every=relay.cleanup_every,
        clear_interval_s=relay.clear_interval_s,
        clear_share=relay.clear_share,
        resubmit_after_s=relay.resubmit_after_s,
        poll_s=relay.poll_ms / 1000,
        stagger_s=relay.stagger_s,
        priority=part.priority,
        deny=part.deny,
        skip=frozenset(part.skip),
        size_max=part.size_max,
        relayer=relay.name.encode()[:64],
    )


def _store_at(address: str, name: str, stack: ExitStack) -> Store:
    """``redis://HOST/0?pipeline=NAME`` says whose keys; without it they are those of this name."""
    where, _, given = address.partition("?pipeline=")
    store = open_store(where, given or name)
    close = getattr(store, "close", None)
    if callable(close):
        stack.callback(close)
    return store


def rights_of(path: Path) -> list[str]:
    """What the operators of the stores have to let this relay do, and no more: a line that makes its account on
    each Redis, and words about files. Raises ConfigurationError."""
    model = _model_of(path)
    found: list[str] = []
    by_server: dict[str, list[str]] = {}
    for name, address in _used(model, path):
        where, _, given = address.partition("?pipeline=")
        if address.startswith("sqlite"):
            found.append(
                f"# {name}, {address}: a file has no rights of its own for a part. Who may write it can change "
                f"all that {name} believes: run this relay as the user who owns it"
            )
        else:
            by_server.setdefault(where, []).append(given or name)
    for where, pipelines in by_server.items():
        user, server = _user_of(where)
        inboxes = [f"{pipeline}/{inbox_of(model.relay.name)}" for pipeline in pipelines]
        found.append(
            f"# {server} (Redis 7 or newer): it reads {', '.join(pipelines)}, and writes its inboxes"
        )
        found.append(acl_line(user, reads=pipelines, writes=inboxes))
    return found


def _user_of(address: str) -> tuple[str, str]:
    """The user in the address of a server, and the address without its password."""
    parts = urlsplit(address)
    server = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    return parts.username or "surepipe-relay", server


def ledger_at(address: str, stack: ExitStack) -> Ledger:
    """The ledger of the party in a store; ``redis://HOST/0?pipeline=NAME`` says whose keys. Raises
    ConfigurationError."""
    file = address.removeprefix("sqlite:///")
    if file != address and not Path(file).is_file():
        raise ConfigurationError(f"{address} has no party: there is no file {file}")
    ledger = Ledger(_store_at(address, "ibc", stack))
    ledger.refresh()
    if not ledger.height:
        raise ConfigurationError(
            f"{address} has no party (of Redis, say whose keys: ?pipeline=NAME, which is the name of the pipeline "
            "that made it, or of its store's `keys`)"
        )
    return ledger


def trust_of(address: str, trusting_days: float) -> str:
    """What another party begins to trust the one in this store with, as text. Raises ConfigurationError."""
    with ExitStack() as stack:
        ledger = ledger_at(address, stack)
        header = ledger.header(ledger.height)
    period_ms = round(trusting_days * 24 * 3_600_000)
    return TrustRoot(header, period_ms).encode().hex()
