"""``surepipe plan``: who serves a replicated queue, and what its nodes agree upon, from the next epoch on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import Exit, complain, epilog, line, show

if TYPE_CHECKING:
    from surepipe.pipelines.clusters import ClusterFile
    from surepipe.queues.rmq.epochs import Operation

plan = typer.Typer(
    help="Changes of a replicated queue, signed with admin.key beside its file and decided by the queue itself, "
    "which follows them from the next epoch on.",
    no_args_is_help=True,
)
File = Annotated[
    Path, typer.Argument(help="The file of the queue, cluster.yaml.", show_default=False)
]
Part = Annotated[
    str,
    typer.Option(help="The part of the keys: the point at which it begins, as 16 digits 0 to f."),
]
FIRST = "0" * 16
CODES = epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE, Exit.NOT_EXERCISED)
TIMEOUT_S, WAIT_MORE_S = 60.0, 5.0


@plan.command("add", epilog=CODES)
def add(
    file: File,
    name: Annotated[str, typer.Argument(help="Of the new node.", show_default=False)],
    address: Annotated[
        str, typer.Argument(help="HOST:PORT at which it listens.", show_default=False)
    ],
) -> None:
    """Add a node. Its key is made beside FILE: give it to its machine with FILE and the secret.

    It serves nothing before surepipe plan members names it.
    """
    from surepipe.actors.clusters.guard import keys_of
    from surepipe.errors import ConfigurationError
    from surepipe.pipelines.clusters import ClusterFile, is_place

    try:
        is_place(address)
    except ValueError as error:
        raise ConfigurationError(f"{address!r}: {error}") from None
    found = ClusterFile.read(file)
    key = keys_of(file.parent, name).public
    _submit(found, ("add_node", name, key, address))
    show(
        [
            line("run it where it is to be, and then name the members:"),
            line(f"surepipe node {file} --name {name} --listen {address}", indent=2),
            line(f"surepipe plan members {file} {' '.join((*found.addresses, name))}", indent=2),
        ]
    )


@plan.command("remove", epilog=CODES)
def remove(
    file: File,
    name: Annotated[str, typer.Argument(help="Of a node that serves nothing.")],
) -> None:
    """Remove a node. It has to serve nothing any more: name other members first."""
    from surepipe.pipelines.clusters import ClusterFile

    _submit(ClusterFile.read(file), ("remove_node", name))


@plan.command("members", epilog=CODES)
def members(
    file: File,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False)],
    *,
    part: Part = FIRST,
) -> None:
    """Say who serves a part of the keys."""
    from surepipe.pipelines.clusters import ClusterFile

    _submit(ClusterFile.read(file), ("members", _point(part), tuple(names)))


@plan.command("split", epilog=CODES)
def split(
    file: File,
    *,
    part: Part = FIRST,
    at: Annotated[str, typer.Option(help="Where; in the middle when not given.")] = "",
) -> None:
    """Make two parts of one, each with turns of its own."""
    from surepipe.pipelines.clusters import ClusterFile

    where = (_point(at),) if at else ()
    _submit(ClusterFile.read(file), ("split", _point(part), *where))


@plan.command("merge", epilog=CODES)
def merge(file: File, *, part: Part = FIRST) -> None:
    """Make one part of this one and the next."""
    from surepipe.pipelines.clusters import ClusterFile

    _submit(ClusterFile.read(file), ("merge", _point(part)))


@plan.command("set", epilog=CODES)
def set_(
    file: File,
    name: Annotated[str, typer.Argument(help="As in the file's settings, such as batch_max.")],
    value: Annotated[str, typer.Argument(show_default=False)],
) -> None:
    """Give a setting another value."""
    from surepipe.errors import ConfigurationError
    from surepipe.pipelines.clusters import ClusterFile, setting_of

    try:
        number: object = int(value) if value.isdecimal() else float(value)
    except ValueError:
        number = value
    try:
        field, given = setting_of(name, number)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    _submit(ClusterFile.read(file), ("config", field, int(given)))


def _point(text: str) -> bytes:
    from surepipe.errors import ConfigurationError

    if len(text) != len(FIRST) or set(text) - set("0123456789abcdef"):
        raise ConfigurationError(f"{text!r} is no point of the keys: write 16 digits 0 to f")
    return bytes.fromhex(text)


def _submit(file: ClusterFile, operation: Operation) -> None:
    """Submit a plan, and say what became of it."""
    from surepipe.cli.commands.node import submitter_name, without_links
    from surepipe.pipelines.clusters import admin_of

    admin = admin_of(file)
    with without_links(file) as cluster:
        ticket = cluster.client(submitter_name()).plan((operation,), admin, ttl_s=TIMEOUT_S)
        ticket.wait(TIMEOUT_S + WAIT_MORE_S, more_than=1 << 30)
        outcome = ticket.outcome
    if outcome is None:
        complain(f"it can't be said yet whether that is followed: {ticket.unknown()}")
        raise typer.Exit(Exit.NOT_EXERCISED)
    if outcome.kind != "finalized":
        # With a node down not all can refuse it: it expires, and those that are up have said why.
        told = {each.receipt.detail for each in ticket.history() if each.receipt.kind == "refusal"}
        said = "; ".join(sorted(each.decode(errors="replace") for each in told))
        complain(f"{outcome.kind}: {outcome.reason or said or 'nobody decided it in time'}")
        raise typer.Exit(Exit.VIOLATED)
    show([line(("decided", "good"), f" in epoch {outcome.epoch}: it holds from the next one on")])
