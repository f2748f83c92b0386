"""The file of a replicated queue: its nodes, what they agree upon, and the function that they run.

    kind: rmq
    queue: orders
    process: shop:price
    secret: link.secret
    settings: {slot_timeout_s: 0.5}
    nodes:
      n1: {address: 10.0.0.1:7101, key: 8f2c...}

Every process of the queue reads the same file. Beside it each machine has the key of its own node, and the secret
of the links; neither is ever in the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from surepipe.actors.clusters import Cluster, Function
from surepipe.actors.clusters.guard import keys_of, write_private
from surepipe.actors.links.security import SharedKey
from surepipe.core.records import record
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.common import CallablePath, PartModel, Word, row_of
from surepipe.pipelines.problems import PipelineErrors, Problem, nearest
from surepipe.pipelines.reading import Mapping as MappingNode
from surepipe.pipelines.reading import find, key_place, read_file
from surepipe.pipelines.settings import Setting
from surepipe.pipelines.wording import said_of
from surepipe.queues.rmq import Done, Job, QueueSettings
from surepipe.queues.rmq.encoding import MemberKeys
from surepipe.queues.rmq.entries import Member
from surepipe.queues.rmq.epochs import Foundation

FILE = "cluster.yaml"
SECRET = "link.secret"
ADMIN = "admin"
"""Beside the file, ``admin.key`` signs plans."""
_TIMES = {"_us": 1_000_000, "_ms": 1_000}


def _written_names() -> dict[str, tuple[str, int]]:
    """Of each setting of a file: the field, and how many of its units are one (0: it is no number)."""
    found: dict[str, tuple[str, int]] = {}
    for each in fields(QueueSettings):
        if each.name == "is_trusting":
            found["validate"] = each.name, 0
        elif each.name[-3:] in _TIMES:
            found[f"{each.name[:-3]}_s"] = each.name, _TIMES[each.name[-3:]]
        else:
            found[each.name] = each.name, 1
    return found


_SETTINGS = _written_names()
_VALIDATE = ("recompute", "trust")


def setting_of(word: str, value: object) -> tuple[str, int]:
    """A setting of a file as its field. Raises ValueError."""
    if word not in _SETTINGS:
        raise ValueError(f"{word!r} is no setting: {nearest(word, tuple(_SETTINGS))}")
    name, units = _SETTINGS[word]
    if not units:
        if value not in _VALIDATE:
            raise ValueError(f"{word} is {value!r}: write recompute or trust")
        return name, value == "trust"
    kinds = (int,) if units == 1 else (int, float)
    if type(value) not in kinds or not cast("float", value) > 0:
        raise ValueError(
            f"{word} is {value!r}: write a {'' if units > 1 else 'whole '}number above 0"
        )
    return name, round(cast("float", value) * units)


def _written(settings: QueueSettings) -> dict[str, object]:
    """Settings as a file has them; those that are as without it are left out."""
    found: dict[str, object] = {}
    for word, (name, units) in _SETTINGS.items():
        value = getattr(settings, name)
        if value != getattr(QueueSettings(), name):
            found[word] = _VALIDATE[value] if not units else value / units if units > 1 else value
    return found


def public_key(written: str) -> str:
    """Raises ValueError for a text that is none."""
    if len(written) != 64 or set(written) - set("0123456789abcdef"):
        raise ValueError("a public key has 64 digits 0 to f, as surepipe node new writes them")
    return written


def is_place(written: str) -> str:
    """Raises ValueError for a text that is no address."""
    host, _, port = written.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError("an address is written host:port, with a port from 1 to 65535")
    return written


class NodePart(PartModel):
    """A node: where it listens, and its public key."""

    word: ClassVar[str] = "node"
    address: str
    key: str

    @field_validator("address")
    @classmethod
    def _is_place(cls, written: str) -> str:
        return is_place(written)

    @field_validator("key")
    @classmethod
    def _is_key(cls, written: str) -> str:
        return public_key(written)


class ClusterModel(PartModel):
    """The whole file."""

    word: ClassVar[str] = "file of a cluster"
    kind: Literal["rmq"]
    queue: Word
    process: CallablePath | None = None
    faults: Literal["byzantine", "crash"] = "byzantine"
    secret: Word | None = None
    decided: bool = False
    admins: Annotated[tuple[str, ...], BeforeValidator(row_of)] = ()
    settings: Mapping[str, object] = Field(default_factory=dict[str, object])
    nodes: Annotated[Mapping[str, NodePart], Field(min_length=1)]

    @field_validator("settings")
    @classmethod
    def _known(cls, written: Mapping[str, object]) -> Mapping[str, object]:
        for word, value in written.items():
            setting_of(word, value)
        return written

    @field_validator("admins")
    @classmethod
    def _are_keys(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(public_key, written))

    @field_validator("nodes")
    @classmethod
    def _differ(cls, nodes: Mapping[str, NodePart]) -> Mapping[str, NodePart]:
        for word in ("address", "key"):
            seen: dict[str, str] = {}
            for name, node in nodes.items():
                other = seen.setdefault(getattr(node, word), name)
                if other != name:
                    raise ValueError(f"{other} and {name} have one {word}: each node has its own")
        return nodes


@record
class ClusterFile:
    """A file, read."""

    path: Path
    foundation: Foundation
    addresses: Mapping[str, str]
    process: str | None
    """'module:function', as the file has it."""
    secret: Path | None
    decided: bool = False
    """Whether each node keeps what is decided in a stream, in NAME-decided.db beside the file."""

    @staticmethod
    def new(
        path: str | os.PathLike[str],
        queue: str,
        addresses: Mapping[str, str],
        *,
        process: str | None = None,
        settings: QueueSettings | None = None,
        faults: str = "byzantine",
        decided: bool = False,
    ) -> ClusterFile:
        """Write the file of a queue, and beside it a key for each node and the secret of the links.

        ``addresses``: where each node listens, by its name. Each machine needs the file, the secret, and the key
        of its own node only. Raises ConfigurationError, also where one of these is there already.
        """
        file = Path(path)
        settings = settings or QueueSettings()
        private = [file.parent / f"{name}.key" for name in (*addresses, ADMIN)]
        for each in (file, file.parent / SECRET, *private):
            if each.exists():
                raise ConfigurationError(
                    f"{each} is there already, and nodes go on with what is there: take another folder"
                )
        unkeyed = tuple(Member(name, bytes(32)) for name in addresses)
        Foundation(queue, unkeyed, settings, faults).check()
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = ["kind: rmq", f'queue: "{queue}"']
        lines += [f"process: {json.dumps(process)}"] if process is not None else []
        lines += [f"faults: {faults}", f"secret: {SECRET}"]
        lines += ["decided: true"] if decided else []
        lines.append(f'admins: ["{keys_of(file.parent, ADMIN).public.hex()}"]')
        if written := _written(settings):
            lines += ["settings:", *(f"  {word}: {value}" for word, value in written.items())]
        lines.append("nodes:")
        for name, address in addresses.items():
            key = keys_of(file.parent, name).public.hex()
            lines.append(f'  "{name}": {{address: {json.dumps(address)}, key: "{key}"}}')
        write_private(file.parent / SECRET, f"{os.urandom(32).hex()}\n".encode())
        file.write_text("\n".join(lines) + "\n")
        return ClusterFile.read(file)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> ClusterFile:
        """Raises ConfigurationError, which says what to write, and where."""
        file = Path(path)
        text, root = read_file(file)
        try:
            model = ClusterModel.model_validate(root.data())
        except ValidationError as error:
            raise PipelineErrors(text, [_problem(each, root) for each in error.errors()]) from None
        named = dict(setting_of(word, value) for word, value in model.settings.items())
        members = tuple(Member(name, bytes.fromhex(n.key)) for name, n in model.nodes.items())
        try:
            settings = QueueSettings(**named)  # type: ignore[arg-type]
            admins = tuple(map(bytes.fromhex, model.admins))
            foundation = Foundation(model.queue, members, settings, model.faults, admins)
            foundation.check()
        except ConfigurationError as error:
            raise PipelineErrors(text, [Problem(root.keys["nodes"], str(error))]) from None
        addresses = {name: node.address for name, node in model.nodes.items()}
        secret = None if model.secret is None else file.parent / model.secret
        return ClusterFile(file, foundation, addresses, model.process, secret, model.decided)

    def connect(self) -> Cluster:
        """For clients in this process; its nodes run elsewhere. Raises ConfigurationError."""
        return self.open()

    def open(
        self,
        *nodes: str,
        process: Function | None = None,
        store: str | None = None,
        joining: Mapping[str, str] | None = None,
    ) -> Cluster:
        """Run some of its nodes here, linked with the others over TCP. What they store is beside the file, or in
        the store at an address; guards and keys are files in any case. ``joining``: where those of them listen
        that the file doesn't name, as a plan has added them.

        Raises ConfigurationError, and MisuseError when another process runs one of them.
        """
        addresses = {**self.addresses, **(joining or {})}
        for name in nodes:
            if name not in addresses:
                hint = nearest(name, tuple(self.addresses))
                raise ConfigurationError(f"{self.path} has no node {name!r}: {hint}")
            if not (self.path.parent / f"{name}.key").exists():
                raise ConfigurationError(
                    f"{self.path.parent / name}.key isn't there: whoever made {self.path} has it, beside it"
                )
        cluster = Cluster.linked(
            self.foundation,
            self.path.parent,
            addresses,
            self._security(),
            process=process,
            store=store,
            decided=self.decided,
        )
        cluster.joining = frozenset(joining or ())
        cluster.start_all(nodes)
        return cluster

    def _security(self) -> SharedKey | None:
        if self.secret is None:
            return None
        try:
            key = self.secret.read_text().strip()
        except OSError as error:
            raise ConfigurationError(
                f"{self.secret} can't be read ({(error.strerror or '').lower()}): it is the secret of the links, "
                "and the same on all machines"
            ) from None
        return SharedKey(key)


def admin_of(file: ClusterFile) -> MemberKeys:
    """What signs plans. Raises ConfigurationError where it isn't."""
    path = file.path.parent / f"{ADMIN}.key"
    if not path.exists():
        raise ConfigurationError(
            f"{path} isn't there: whoever made {file.path} has it, and signs what is to change"
        )
    return keys_of(file.path.parent, ADMIN)


def accept(message: Job, context: object) -> Done:
    """What a queue without a function of its own does: every message is done."""
    del message, context
    return Done()


def _problem(error: Any, root: MappingNode) -> Problem:
    steps: Sequence[str | int] = error["loc"]
    is_of_node = len(steps) > 1 and steps[0] == "nodes"
    model = NodePart if is_of_node else ClusterModel
    what = f"node {steps[1]}" if is_of_node else "the file of a cluster"
    is_key = error["type"] in ("extra_forbidden", "missing")
    path = tuple(steps[:-1] if error["type"] == "missing" else steps)
    place = key_place(root, path) if is_key or len(path) < 2 else find(root, path).place
    return Problem(place, said_of(error, find(root, path), model, what))


def rests_on(cluster: Setting, until: str) -> str:
    """Say what keeps a message of this queue safe, for people."""
    end = (
        "a message that it refuses fails here"
        if until == "decided"
        else "what it refuses, or what expires there, is told to nobody here"
    )
    # Of a name that is too long for a file, Path.exists raises.
    if cluster.variables or not os.path.exists(cluster.written):
        return f"the nodes of {cluster}, which isn't there yet: surepipe node new writes it; {end}"
    found = ClusterFile.read(cluster.written).foundation
    quorum, skew_s = found.quorum, found.settings.clock_skew_ms / 1000
    lying = f"at most {quorum.may_lie} of {len(found.nodes)} nodes lie"
    honest = lying if found.faults == "byzantine" else "no node lies"
    return (
        f"{honest}, for each message being decided once, also one that comes again; {quorum.size} of "
        f"{len(found.nodes)} that don't lie are up, their clocks within {skew_s:g} s, for going on; {end}"
    )
