"""``surepipe node``, ``submit`` and ``watch``: a replicated queue in terminals."""

from __future__ import annotations

import getpass
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from surepipe.cli.commands.run import END_S, Stopping, few_collections
from surepipe.cli.output import Exit, Line, complain, epilog, line, show, show_json

if TYPE_CHECKING:
    from surepipe.actors.clusters import Cluster, Function, NodeSeen, Ticket
    from surepipe.pipelines.clusters import ClusterFile
    from surepipe.queues.rmq.client import Outcome, SignedReceipt


def without_links(
    found: ClusterFile,
    *nodes: str,
    process: Function | None = None,
    store: str | None = None,
    joining: Mapping[str, str] | None = None,
) -> Cluster:
    """The queue of a file. What the log says of links is not shown: who is connected is told by the state."""

    def is_of_else(record: logging.LogRecord) -> bool:
        return record.module != "tcp" or record.levelno >= logging.ERROR

    logging.getLogger("surepipe").addFilter(is_of_else)
    return found.open(*nodes, process=process, store=store, joining=joining)


class _RunWhenUnnamed(TyperGroup):
    """``node FILE --name A`` is ``node run FILE --name A``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and (Path(args[0]).exists() or len(args) > 1):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


node = typer.Typer(
    cls=_RunWhenUnnamed,
    help="Nodes of a replicated queue, which survives them: write the file of a queue, and run its nodes. "
    "`surepipe node FILE --name A` runs one.",
    no_args_is_help=True,
)
PROGRESS_S, LOOK_S, STUCK_S = 10.0, 0.2, 5.0
NODES_PORT = 7101
File = Annotated[
    Path, typer.Argument(help="The file of the queue, cluster.yaml.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON documents, for machines.")]


@node.command("new", epilog=epilog(Exit.HELD, Exit.UNUSABLE))
def new(
    queue: Annotated[
        str, typer.Argument(help="The name of the queue, and of its folder.", show_default=False)
    ],
    *,
    nodes: Annotated[int, typer.Option(help="How many nodes: n1, n2 and so on.", min=1)] = 4,
    process: Annotated[
        str | None,
        typer.Option(
            help="What each node runs on each message, 'module:function'; without it each message is done.",
            show_default=False,
        ),
    ] = None,
    faults: Annotated[
        str, typer.Option(help="byzantine: some nodes may lie. crash: they may only fail.")
    ] = "byzantine",
    address: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=HOST:PORT of a node; for each one, in place of --nodes.", show_default=False
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            help="The port of n1 on this machine; n2 has the next one.", min=1, max=65_535
        ),
    ] = NODES_PORT,
    decided: Annotated[
        bool,
        typer.Option(
            "--decided", help="Each node keeps what is decided in a stream, for pipelines to read."
        ),
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="In place of the queue's name.", show_default=False)
    ] = None,
) -> None:
    """Write the file of a queue, a key for each node, and the secret of the links; and say what to type next.

    A machine gets the file, the secret, and the key of its own node.
    """
    from surepipe.pipelines.clusters import FILE, ClusterFile

    addresses = {f"n{at + 1}": f"127.0.0.1:{port + at}" for at in range(nodes)}
    if address:
        addresses = dict(_pair(each) for each in address)
        if len(addresses) < len(address):
            complain("two --address name one node: each node has a name of its own")
            raise typer.Exit(Exit.UNUSABLE)
    made = ClusterFile.new(
        (folder or Path(queue)) / FILE,
        queue,
        addresses,
        process=process,
        faults=faults,
        decided=decided,
    )
    said = [line(("wrote ", "good"), f"{made.path}: {_quorum(made)}"), line("run each node:")]
    said += [line(f"surepipe node {made.path} --name {name}", indent=2) for name in addresses]
    said += [line("and submit:"), line(f"surepipe submit {made.path} hello", indent=2)]
    show(said)


def _pair(written: str) -> tuple[str, str]:
    name, _, address = written.partition("=")
    if not name or not address:
        complain(f"--address is {written!r}: write NAME=HOST:PORT")
        raise typer.Exit(Exit.UNUSABLE)
    return name, address


def _quorum(file: ClusterFile) -> str:
    found = file.foundation.quorum
    liars = f"{found.may_lie} may lie, " if file.foundation.faults == "byzantine" else ""
    return (
        f"{len(file.addresses)} nodes, {found.size} decide; {liars}{found.may_be_down} may be down"
    )


@node.command("run", epilog=epilog(Exit.HELD, Exit.UNUSABLE, Exit.REPLACED, Exit.INTERRUPTED))
def run(
    file: File,
    *,
    name: Annotated[
        str | None, typer.Option(help="The node to run here.", show_default=False)
    ] = None,
    run_all: Annotated[
        bool, typer.Option("--all", help="All nodes in this process, to try things out.")
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT, for a node that came later than FILE: surepipe plan add.",
            show_default=False,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where it keeps its log: redis://HOST/0; a SQLite file beside FILE when not given.",
            show_default=False,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve what it counts to Prometheus, at this port.",
            min=1,
            max=65_535,
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a node until it is stopped (Ctrl-C), or killed: it goes on where it was when it is run again.

    Says what changes: who is connected, whether it takes part, and how far the queue is.
    """
    from surepipe.errors import ConfigurationError
    from surepipe.pipelines.clusters import ClusterFile, accept
    from surepipe.pipelines.run.real import function_at

    found = ClusterFile.read(file)
    if (name is None) != run_all:
        known = ", ".join(found.addresses)
        raise ConfigurationError(
            f"which node runs here? write --name with one of {known}, or --all"
        )
    if listen is not None and (name is None or name in found.addresses):
        raise ConfigurationError(
            "--listen is for one node that FILE doesn't name; others listen where it says"
        )
    names = tuple(found.addresses) if name is None else (name,)
    joining = {name: listen} if name is not None and listen is not None else {}
    process = accept if found.process is None else function_at(found.process, file.parent.resolve())
    stopping = Stopping(END_S)
    with (
        stopping.heard(lambda: complain("stopped at once")),
        without_links(
            found, *names, process=cast("Function", process), store=store, joining=joining
        ) as cluster,
        few_collections(),
    ):
        show(_began(found, each, {**found.addresses, **joining}[each]) for each in names)
        with ExitStack() as stack:
            if metrics_port is not None:
                from surepipe.observe.metrics import ClusterCollector, MetricsServer

                shown = MetricsServer([], port=metrics_port, more=[ClusterCollector(cluster)])
                typer.echo(f"metrics at {stack.enter_context(shown).url}", err=True)
            why = _watched(cluster, names, stopping)
    if why:
        complain(why)
        raise typer.Exit(Exit.REPLACED)


def _began(file: ClusterFile, name: str, address: str) -> Line:
    said = f" of {file.foundation.queue} listens at {address}: {_quorum(file)}"
    return line((name, "head"), f"{said} (pid {os.getpid()})")


def _watched(cluster: Cluster, names: Sequence[str], stopping: Stopping) -> str:
    """Say what changes until somebody stops this; or why a node takes part no more."""
    watches = [_Watch(cluster, name) for name in names]
    while not stopping.is_asked:
        for each in watches:
            if why := cluster.failure(each.name):
                return f"{each.name} ends: {why}"
            show(each.look(time.monotonic()))
        time.sleep(LOOK_S)
    return ""


class _Watch:
    """What was said last of a node: only what is new is said."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name, self._cluster = name, cluster
        self._said: dict[str, str] = {}
        self._position: int = 0
        self._told_position: int = 0
        self._moved_at, self._told_at = 0.0, 0.0
        self._is_stuck = False

    def look(self, now: float) -> list[Line]:
        """Lines about what has changed since."""
        try:
            seen = self._cluster.seen(self.name)
        except LookupError:
            return []
        out: list[Line] = []
        for subject, said in self._state(seen).items():
            if self._said.get(subject, "") != said:
                self._said[subject] = said
                out.append(line((self.name, "head"), f" {said or f'{subject}: nobody any more'}"))
        if seen.position != self._position or not seen.undecided:
            if self._is_stuck:
                out.append(line((self.name, "head"), " goes on"))
            self._position, self._moved_at, self._is_stuck = seen.position, now, False
        if now - self._moved_at > STUCK_S and not self._is_stuck:
            self._is_stuck = True
            out.append(self._stuck(seen, now - self._moved_at))
        if now - self._told_at > PROGRESS_S and seen.position != self._told_position:
            self._told_at, self._told_position = now, seen.position
            said = f" block {seen.position}, {seen.undecided} messages wait"
            out.append(line((self.name, "head"), said))
        return out

    def _state(self, seen: NodeSeen) -> dict[str, str]:
        voices = {
            "asking": "asks the others what it said before",
            "speaking": f"takes part in epoch {seen.epoch}",
            "silent": "has lost what it signed: it listens, and takes part again once it has learned it",
            "ended": "is run by another process",
        }
        reading = "reads what it knew before"
        said = {"voice": reading if seen.is_reading else voices[seen.voice.value]}
        silent = [each for each in seen.nodes if each not in (*seen.peers, self.name)]
        peers = f"is connected with {', '.join(seen.peers) or 'nobody'}"
        said["peers"] = f"{peers}; silent: {', '.join(silent)}" if silent else peers
        for name, why in seen.strangers:
            said[f"file of {name}"] = f"can't hear {name}, which has another file: {why}"
        if seen.blamed:
            liars = ", ".join(seen.blamed)
            said["blamed"] = (
                f"waits no more for {liars}: signed two things. Replace it, or give it another key (surepipe plan)"
            )
        return said

    def _stuck(self, seen: NodeSeen, seconds: float) -> Line:
        silent = [each for each in seen.group if each not in (*seen.peers, self.name)]
        there, nodes = len(seen.group) - len(silent), len(seen.group)
        said = f" no block for {seconds:.0f} s: {there} of {nodes} answer, {seen.quorum} are needed"
        return line(
            (self.name, "head"),
            (said + (f"; silent: {', '.join(silent)}" if silent else ""), "warn"),
        )


def submit(
    file: File,
    bodies: Annotated[
        list[str],
        typer.Argument(
            metavar="BODY...",
            help="Messages; - for each line of standard input.",
            show_default=False,
        ),
    ],
    *,
    key: Annotated[str, typer.Option(help="Of all of them.")] = "",
    dedupe: Annotated[
        str,
        typer.Option(help="Two messages of equal --key and --dedupe are the same work, done once."),
    ] = "",
    ttl_s: Annotated[
        float, typer.Option(help="What isn't done after so many seconds never is.")
    ] = 60.0,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            help="Wait so long for outcomes; without it, ttl_s and 10 s.", show_default=False
        ),
    ] = None,
    as_name: Annotated[
        str | None,
        typer.Option("--as", help="The submitter's name; else a new one.", show_default=False),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="End as soon as enough nodes keep it.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Outcomes only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Submit messages to a replicated queue, show each receipt as it arrives, and how each message ended.

    Ends with 0 when all are done, 1 when one was refused or has expired, 3 when one can't be said yet: it may
    still come, and submitting it again with the same --dedupe does no harm.
    """
    from surepipe.pipelines.clusters import ClusterFile

    found = ClusterFile.read(file)
    given = [text.rstrip("\n").encode() for text in sys.stdin] if bodies == ["-"] else None
    given = [each.encode() for each in bodies] if given is None else given
    if dedupe and len(given) > 1:
        complain("--dedupe says that two messages are the same work: give one message with it")
        raise typer.Exit(Exit.UNUSABLE)
    began = time.monotonic()
    until = began + (ttl_s + 10 if timeout_s is None else timeout_s)
    with without_links(found) as cluster:
        name = as_name or submitter_name()
        client = cluster.client(name, is_detailed=not (quiet or as_json or no_wait))
        tickets: list[Ticket] = []
        for body in given:
            ticket = client.submit(body, key=key.encode(), dedupe=dedupe.encode(), ttl_s=ttl_s)
            tickets.append(ticket)
            if not quiet and not as_json:
                show([line((ticket.id.hex(), "head"), f"  {_shown(body)}")])
        kinds = [
            _followed(ticket, body, began, until, no_wait=no_wait, quiet=quiet, as_json=as_json)
            for body, ticket in zip(given, tickets, strict=True)
        ]
    if "unknown" in kinds:
        raise typer.Exit(Exit.NOT_EXERCISED)
    if {"refused", "expired"} & set(kinds):
        raise typer.Exit(Exit.VIOLATED)


def submitter_name() -> str:
    """A new one, for who doesn't say."""
    return f"{_user()}-{os.urandom(4).hex()}"


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "cli"
    return "".join(each for each in name if each.isascii() and each.isalnum())[:32] or "cli"


def _followed(
    ticket: Ticket,
    body: bytes,
    began: float,
    until: float,
    *,
    no_wait: bool,
    quiet: bool,
    as_json: bool,
) -> str:
    """Show what comes of a message until its end is believed; the kind of that, or unknown."""
    shown = 0
    while True:
        is_over = ticket.is_placed if no_wait else ticket.outcome is not None
        fresh = ticket.history()[shown:]
        shown += len(fresh)
        if not quiet and not as_json:
            show(_receipt(each, began) for each in fresh)
        if is_over:
            break
        left = until - time.monotonic()
        if left <= 0 or not ticket.wait(left, more_than=shown):
            break
    outcome = ticket.outcome
    seconds = time.monotonic() - began
    if as_json:
        show_json(_outcome_facts(ticket, outcome, seconds))
    elif outcome is not None:
        show([_outcome_line(ticket, body, outcome, seconds)])
    elif no_wait and ticket.is_placed:
        nodes = ", ".join(dict.fromkeys(each.node for each in ticket.history()))
        show([line(_shown(body), ": ", ("placed", "good"), f" at {nodes} ({seconds:.1f} s)")])
    else:
        show([line(_shown(body), ": ", ("can't be said yet", "warn"), f": {ticket.unknown()}")])
    if outcome is not None:
        return outcome.kind
    return "placed" if no_wait and ticket.is_placed else "unknown"


def _outcome_line(ticket: Ticket, body: bytes, outcome: Outcome, seconds: float) -> Line:
    style = "good" if outcome.kind in ("finalized", "duplicate") else "bad"
    value = _shown(outcome.value) if outcome.value else outcome.reason
    said = f" {value}" if value else ""
    tail = f" (block {outcome.position}, told by {len(ticket.tellers)} of {ticket.nodes}, {seconds:.1f} s)"
    return line(_shown(body), ": ", (outcome.kind, style), said + tail)


def _outcome_facts(ticket: Ticket, outcome: Outcome | None, seconds: float) -> dict[str, object]:
    facts: dict[str, object] = {"id": ticket.id.hex(), "seconds": round(seconds, 3)}
    facts["placed_at"] = list(dict.fromkeys(each.node for each in ticket.history()))
    if outcome is None:
        return facts | {"kind": "unknown", "why": ticket.unknown()}
    return facts | {
        "kind": outcome.kind,
        "epoch": outcome.epoch,
        "position": outcome.position,
        "value": outcome.value.decode(errors="replace"),
        "reason": outcome.reason,
    }


def _receipt(told: SignedReceipt, began: float) -> Line:
    receipt = told.receipt
    styles = {"finalized": "good", "refused": "bad", "expired": "bad", "refusal": "warn"}
    return line(
        (f"{time.monotonic() - began:7.2f} s  ", "dim"),
        f"{told.node:<4} ",
        (f"{receipt.kind:<10}", styles.get(receipt.kind, "")),
        f" {receipt.id.hex()[:8]}{_detail(told)}",
    )


def _detail(told: SignedReceipt) -> str:
    receipt = told.receipt
    where = f"  slot {receipt.slot}" if receipt.slot else ""
    if receipt.kind == "refusal":
        return f"{where}  {receipt.detail.decode(errors='replace')}"
    return where


def watch(
    file: File,
    *,
    name: Annotated[
        str,
        typer.Option("--of", help="A submitter: all that it was told, too. Else all, from now on."),
    ] = "",
    count: Annotated[
        int | None, typer.Option(help="End after so many receipts.", min=1, show_default=False)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on each line.")
    ] = False,
) -> None:
    """Show receipts as they arrive, of all who submit, until it is stopped (Ctrl-C)."""
    import json

    from surepipe.pipelines.clusters import ClusterFile

    found = ClusterFile.read(file)
    stopping, began, seen = Stopping(END_S), time.monotonic(), 0
    with stopping.heard(lambda: complain("stopped at once")), without_links(found) as cluster:
        client = cluster.watch(name)
        while not stopping.is_asked and (count is None or seen < count):
            news = client.told(LOOK_S)
            news = news if count is None else news[: count - seen]
            seen += len(news)
            if as_json:
                for each in news:
                    typer.echo(json.dumps(_receipt_facts(each)))
            else:
                show(_receipt(each, began) for each in news)


def _receipt_facts(told: SignedReceipt) -> dict[str, object]:
    receipt = told.receipt
    return {
        "node": told.node,
        "kind": receipt.kind,
        "id": receipt.id.hex(),
        "number": receipt.number,
        "epoch": receipt.epoch,
        "slot": receipt.slot,
        "time_ms": receipt.time_ms,
        "detail": receipt.detail.decode(errors="replace") if receipt.kind == "refusal" else "",
    }


def _shown(body: bytes) -> str:
    """A body without what a terminal obeys."""
    text = body[:200].decode(errors="replace")
    return text if text.isprintable() else repr(text)[1:-1]
