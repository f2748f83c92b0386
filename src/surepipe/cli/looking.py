"""Asking a running pipeline for its status, and showing it as a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from pydantic import ValidationError

from surepipe.errors import ConfigurationError
from surepipe.observe.status import (
    Part,
    PipeFlow,
    Status,
    compact,
    is_worrying,
    milliseconds,
    printable,
    progress_of,
    said_of_book,
    said_of_path,
    said_of_queue,
    seconds,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


ANSWER_S = 5.0
WIDE = 200
GAP = 2
LEAST_FIRST = (
    "guarantee",
    "lanes",
    "accepted",
    "p50",
    "oldest",
    "sent again",
    "p99",
    "unconfirmed",
)
"""Which columns are left out first."""
_NONE = compact(None)


class Silent(Exception):
    """Nobody answers there, or it is no pipeline."""


def address_of(where: str) -> str:
    """The address of the status: of a port, of host:port, or of a page. Raises ConfigurationError."""
    if where.isdecimal():
        where = f"127.0.0.1:{where}"
    url = where if "://" in where else f"http://{where}"
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            parts.hostname.encode("idna")
            return f"{parts.scheme}://{parts.netloc}/status.json"
    except ValueError:  # half a bracket, a port that is no number, a name that is too long
        url = where
    raise ConfigurationError(
        f"{where!r} is no place of a pipeline: give a port, host:port, or a URL that begins with http"
    )


def look(address: str) -> Status:
    """The status now. Raises Silent."""
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=ANSWER_S) as answer:
            text: bytes = answer.read()
        return Status.model_validate_json(text)
    except ValidationError:
        raise Silent(f"what answers at {address} is no pipeline, or a much newer one") from None
    except (URLError, HTTPException, OSError) as error:
        why = getattr(error, "reason", None) or error
        raise Silent(
            f"no pipeline answers at {address}: {_reason(why)}; start one with surepipe run FILE --web"
        ) from None


def _reason(why: object) -> str:
    return str(getattr(why, "strerror", None) or why).lower()


def show_once(status: Status) -> None:
    """The table, once; away from a terminal it is plain, and no line of it is broken."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if is_terminal else WIDE, highlight=False)
    console.print(picture(status, console.width))


def show_renewed(status: Status, address: str, every_s: float) -> None:
    """The table, renewed until Ctrl-C or until nobody answers any more."""
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False)
    try:
        with Live(picture(status, console.width), console=console, auto_refresh=False) as live:
            while status.state != "ended":
                time.sleep(every_s)
                status = look(address)
                live.update(picture(status, console.width), refresh=True)
    except KeyboardInterrupt:
        return
    except Silent:
        _say(console, f"{status.name} does not answer any more; this is what was seen last")


def _say(console: Console, text: str) -> None:
    console.print(text, style="dim")


def picture(status: Status, width: int) -> RenderableType:
    """A line about the whole, a table of the pipes, a line for every other part that counts something.

    Where not all columns have room, the least important ones are left out.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = [dict(_columns(part, part.flow or PipeFlow())) for part in status.pipes]
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="dim")
    shown = _fitting(rows, width)
    for name in shown:
        is_text = name in ("pipe", "guarantee")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for part, cells in zip(status.pipes, rows, strict=True):
        style = "dim" if not part.here else "yellow" if is_worrying(part) else ""
        table.add_row(*(Text(cells[name]) for name in shown), style=style)
    head = Text.assemble((status.name, "bold"), "  ", (status.state, _STYLES[status.state]))
    head.append(
        f"  up {seconds(status.uptime_s)}" + (f"  node {status.node}" if status.node else "")
    )
    head.append(f"  in {compact(status.in_per_s)}/s  out {compact(status.out_per_s)}/s")
    silent = [
        f"store {store.name} has not answered for {seconds(store.silent_s)}"
        for store in status.silent
    ]
    dead = [
        f"dead letter: pipe {letter.pipe}, message {letter.message}: {letter.error}: {letter.text}"
        for letter in status.letters[:3]
    ]
    told = [f"{told.time[11:19]}  {told.text}" for told in status.notices[-3:]]
    last = [Text(line, style="yellow") for line in (*silent, *dead, *told)]
    books = [Text(line) for line in (*_books(status), *_paths(status))]
    return Group(head, table, *books, *(Text(line, style="dim") for line in _others(status)), *last)


def _fitting(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    names = list(rows[0]) if rows else []
    if "lanes" in names and all(row["lanes"] == _NONE for row in rows):
        names.remove("lanes")
    for unimportant in (name for name in LEAST_FIRST if name in names):
        needed = sum(max(len(name), *(len(row[name]) for row in rows)) + GAP for name in names)
        if needed <= width:
            break
        names.remove(unimportant)
    return names


_STYLES = {"starting": "yellow", "running": "green", "stopping": "yellow", "ended": "dim"}


def _columns(part: Part, flow: PipeFlow) -> Iterator[tuple[str, str]]:
    yield "pipe", part.name
    yield "guarantee", part.guarantee
    yield "settled/s", compact(flow.settled_per_s)
    yield "accepted", compact(flow.accepted)
    yield "settled", compact(flow.settled)
    yield "unconfirmed", compact(flow.unconfirmed)
    yield "oldest", seconds(flow.oldest_unconfirmed_s)
    yield "waiting", compact(flow.waiting)
    yield "sent again", compact(flow.retransmitted)
    yield "dead letters", compact(flow.dead_letters)
    yield "lanes", _NONE if flow.lanes is None else f"{flow.lanes_busy} of {flow.lanes}"
    yield "p50", milliseconds(flow.settling.p50_ms) if flow.settling else _NONE
    yield "p99", milliseconds(flow.settling.p99_ms) if flow.settling else _NONE


def _books(status: Status) -> Iterator[str]:
    """The ring of each book, its head first."""
    for part in status.parts:
        if part.book is None:
            continue
        yield f"{part.name}: {said_of_book(part.book)}"
        width = max((len(printable(one.key)) for one in part.book.queues), default=0)
        for one in part.book.queues:
            yield f"  {printable(one.key).ljust(width)}  {said_of_queue(one)}"
        if part.book.ready > len(part.book.queues):
            yield f"  and {part.book.ready - len(part.book.queues)} more"


def _paths(status: Status) -> Iterator[str]:
    """What relays of this process carry between parties."""
    for part in status.parts:
        if part.between is not None:
            yield f"{part.name}: {said_of_path(part.between)}"


def _others(status: Status) -> Iterator[str]:
    for part in status.parts:
        if part.flow is None and part.counts:
            counted = [f"{name} {compact(count)}" for name, count in part.counts.items()]
            yield f"{part.role} {part.name}: {', '.join([*counted, *progress_of(part)])}"
