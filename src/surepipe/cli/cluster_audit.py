"""``surepipe audit cluster.yaml``: what the stores of a replicated queue's nodes show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from surepipe.audit.replicated import NodeRows, QueueAudit
    from surepipe.pipelines.clusters import ClusterFile


def is_cluster_file(place: str) -> bool:
    """Whether this is the file of a replicated queue, and no trace or stream."""
    path = Path(place)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    heads = [each.partition("#")[0].split() for each in lines if each.startswith("kind:")]
    return heads == [["kind:", "rmq"]]


def audit_cluster(places: Sequence[str], *, at_rest: bool) -> QueueAudit:
    """Judge the nodes of a file. Each further place is NAME=STORE, where a node's store is not beside the file.

    Raises ConfigurationError.
    """
    from surepipe.audit.replicated import judge_queue
    from surepipe.pipelines.clusters import ClusterFile
    from surepipe.queues.rmq.encoding import Ed25519Keys

    file = ClusterFile.read(places[0])
    named = dict(_pair(each) for each in places[1:])
    with ExitStack() as stack:
        nodes = [
            found
            for name in dict.fromkeys((*file.addresses, *named))
            if (found := _rows(file, name, named.get(name), stack)) is not None
        ]
        if not nodes:
            raise ConfigurationError(
                f"no store of a node is beside {places[0]}: say where they are, as NAME=/copy/of/NAME.db or "
                "NAME=redis://HOST/0"
            )
        return judge_queue(file.foundation, nodes, Ed25519Keys(bytes(32)), at_rest=at_rest)


def _pair(written: str) -> tuple[str, str]:
    name, _, place = written.partition("=")
    if not name or not place:
        raise ConfigurationError(f"{written!r}: write NAME=STORE, the place of a node's store")
    return name, place


def _rows(file: ClusterFile, name: str, place: str | None, stack: ExitStack) -> NodeRows | None:
    """What a node has stored; None where the file beside isn't there, or is empty."""
    from surepipe.audit.replicated import read_node
    from surepipe.storage import open_store

    path = file.path.parent / f"{name}.db" if place is None else Path(place)
    if place is None or "://" not in place:
        if not path.exists():
            if place is None:
                return None
            raise ConfigurationError(f"{path}, the store of {name}, isn't there")
        place = f"sqlite:///{path}"
    store = open_store(place, f"{file.foundation.queue}.{name}")
    close = getattr(store, "close", None)
    if callable(close):
        stack.callback(close)
    return read_node(store, file.foundation.queue, name)
