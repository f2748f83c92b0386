"""``surepipe relay``: carry proofs between parties that don't trust each other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surepipe.cli.output import Exit

if TYPE_CHECKING:
    from surepipe.cli.relaying import RelayFile
    from surepipe.queues.ibc import PathStatus, Relay

TRUST_LOST = 3
"""The exit code that says: a party is not believed any more."""
EPILOG = (
    "Exit codes: 0 held: nothing waits · 1 something waits, or is put aside · 2 the file can't be used as it is · "
    "3 a party is frozen or expired at another one"
)


def relay(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A relay.yaml; or the word trust with the address of a store; or the word acl with a relay.yaml.",
        ),
    ],
    store: Annotated[
        str,
        typer.Argument(
            metavar="[STORE]",
            help="After trust: sqlite:///FILE or redis://HOST/0?pipeline=NAME; after acl: a relay.yaml.",
        ),
    ] = "",
    *,
    trusting_days: Annotated[
        float, typer.Option(help="After trust: for how long a header is worth anything.")
    ] = 14.0,
    once: Annotated[
        bool, typer.Option("--once", help="Carry until nothing waits, and end.")
    ] = False,
    timeout_s: Annotated[float, typer.Option(help="With --once: for so long at the most.")] = 60.0,
    status: Annotated[bool, typer.Option("--status", help="Show what waits, and end.")] = False,
    clear: Annotated[
        str | None,
        typer.Option(
            metavar="PATH[:INDEX]",
            help="Carry one path alone until nothing waits there, or one message of PARTY/CONNECTION until it is "
            "answered, and end.",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY/CONNECTION:INDEX",
            help="Leave this message to others. An ordered connection stops there. May be given again.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be submitted now, and end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Show it as one JSON document.")] = False,
) -> None:
    """Carry messages, receipts and headers between parties; neither has to trust this process.

    It may be killed and started anywhere, and run as often as one likes. `surepipe relay trust STORE` writes what
    another party begins to trust this one with: a human compares it. `surepipe relay acl FILE` writes the account
    that each Redis should have for this relay: it reads the parties' keys, and can change nothing of them.
    """
    from surepipe.cli.relaying import RelayFile, rights_of, trust_of
    from surepipe.errors import ConfigurationError, NotConfirmed

    if file == "trust":
        typer.echo(trust_of(store, trusting_days))
        return
    if file == "acl":
        for each in rights_of(Path(store)):
            typer.echo(each)
        return
    is_look = dry_run or (status and clear is None)
    with RelayFile.read(Path(file), carries=not is_look) as relays:
        for each in skip or ():
            sender, index = _message(each)
            if index is None:
                raise ConfigurationError(f"--skip {each}: write PARTY/CONNECTION:INDEX")
            relays.relay.skip(sender, index)
        if dry_run:
            _plan(relays.relay, as_json=as_json)
            return
        if clear is not None:
            with suppress(NotConfirmed):
                relays.relay.clear(*_message(clear), timeout_s)
            _end(relays.relay, as_json=as_json)
        if status:
            _end(relays.relay, as_json=as_json)
        if once:
            with suppress(NotConfirmed):
                relays.relay.settle(timeout_s)
            _end(relays.relay, as_json=as_json)
        _serve(relays)


def _message(written: str) -> tuple[str, int | None]:
    """A path, and the index of a message behind it, if one is written."""
    name, _, index = written.rpartition(":")
    return (name, int(index)) if name and index.isdigit() else (written, None)


def _plan(relay: Relay, *, as_json: bool) -> None:
    """Show what each party would be brought now."""
    from surepipe.cli.output import line, show, show_json
    from surepipe.queues.ibc.keys import parse_key

    found: list[dict[str, object]] = []
    for path, party, submission in relay.planned():
        kinds: dict[str, list[int]] = {}
        for item in submission.items:
            key = parse_key(item.key)
            index = item.index if key is None or key.index is None else key.index
            kinds.setdefault(item.kind.name.lower().replace("_", "-"), []).append(index)
        heights = [each.header.height for each in submission.headers]
        found.append({"path": path, "to": party, "headers": heights, "items": kinds})
        parts = [f"header {height}" for height in heights]
        parts += [f"{kind} of {', '.join(map(str, indexes))}" for kind, indexes in kinds.items()]
        if not as_json:
            show([line((path, "head"), f": to {party}: {'; '.join(parts) or 'a tick'}")])
    if as_json:
        show_json(found)
    elif not found:
        show([line("nothing would be submitted now")])


def _serve(relays: RelayFile) -> None:
    """Until somebody stops it; the round that runs is ended first."""
    from contextlib import ExitStack

    from surepipe.actors.parties import ServedRelay
    from surepipe.cli.commands.run import few_collections

    served = ServedRelay(relays.relay)
    with few_collections(), ExitStack() as stack:
        stack.callback(served.close)
        if relays.metrics_port is not None:
            from surepipe.observe.metrics import MetricsServer, RelayCollector

            metrics = stack.enter_context(
                MetricsServer([], port=relays.metrics_port, more=[RelayCollector(served.figures)])
            )
            typer.echo(f"metrics at {metrics.url}", err=True)
        served.wait()
    if served.failure is not None:
        raise served.failure


def _end(relay: Relay, *, as_json: bool) -> None:
    """Show what waits, and end with 0 when nothing does, 1 when something does, 3 when trust is gone."""
    from surepipe.cli.output import line, show, show_json

    found = relay.status()
    if as_json:
        show_json([_told(each) for each in found])
    else:
        for each in found:
            style = "good" if each.is_idle and each.state == "live" else "warn"
            waits = ", ".join(
                f"{count} to {stage}" for stage, count in each.pending.items() if count
            )
            show(
                [
                    line(
                        (each.path, "head"),
                        ": ",
                        (each.state, style),
                        f": {each.why}" if each.why else f", {waits or 'nothing waits'}",
                    )
                ]
            )
            for stage, (party, index, age) in each.oldest.items():
                show(
                    [
                        line(
                            f"oldest to {stage}: message {index} of {party}, for {age:.1f} s",
                            indent=2,
                        )
                    ]
                )
            if each.held:
                show([line(f"held back: {each.held}", indent=2)])
            if not each.why:
                show([line(f"trust left: {each.trust_left_s / 3600:.1f} h", indent=2)])
    states = {each.state for each in found}
    if states & {"frozen", "expired"}:
        raise typer.Exit(TRUST_LOST)
    if any(not each.is_idle or each.parked for each in found) or states - {"live"}:
        raise typer.Exit(Exit.VIOLATED)
    raise typer.Exit(Exit.HELD)


def _told(found: PathStatus) -> dict[str, object]:
    return {
        "path": found.path,
        "state": found.state,
        "pending": dict(found.pending),
        "oldest": {
            stage: {"party": party, "index": index, "age_s": age}
            for stage, (party, index, age) in found.oldest.items()
        },
        "trust_left_s": found.trust_left_s,
        "parked": list(found.parked),
        "held": found.held,
        "why": found.why,
    }
