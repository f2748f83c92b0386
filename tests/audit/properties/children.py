"""Programs that the tests of traces start as processes of their own, and kill."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection

from surepipe import Pipe, StreamSender
from surepipe.actors.runtime import Runtime
from surepipe.audit.trace_file import TraceRecorder
from surepipe.storage import SqliteStore
from surepipe.storage.letters import DeadLetterStream
from surepipe.testing.crash_points import CrashingRuntime, CrashPoints

PATIENCE_S = 20.0


def send_into_stream(store_path: str, trace_path: str, reports: Connection) -> None:
    """Send messages without end, and report each that the store has, until killed."""
    with (
        closing(SqliteStore(store_path)) as store,
        TraceRecorder(trace_path) as trace,
        StreamSender("orders", store=store, trace=trace) as sender,
    ):
        number = 0
        while True:
            sender.send(number, until="confirmed")
            reports.send(number)
            number += 1


def handle_some(trace_path: str, handled: int, reports: Connection) -> None:
    """A pipe whose handler stands still after so many messages; more are sent than that."""

    def handle(message: object) -> None:
        if message == handled:
            reports.send("standing")
            signal.pause()

    with TraceRecorder(trace_path) as trace, Pipe("orders", trace=trace) as pipe:
        pipe.receive(handle)
        pipe.send_many(list(range(3 * handled)))
        signal.pause()


def no_threes(message: object) -> None:
    """A handler that fails at one message."""
    if message == 3:
        raise ValueError("no threes")


@contextmanager
def orders_kept(
    store_path: str, trace_path: str, runtime: Runtime | None = None
) -> Generator[Pipe]:
    """The pipe with a journal and letters, as each of its lives opens it."""
    with (
        closing(SqliteStore(store_path)) as store,
        TraceRecorder(trace_path) as trace,
        Pipe(
            "orders",
            journal=store,
            state=store,
            retries=1,
            dead_letter=DeadLetterStream(store, "dead"),
            runtime=runtime,
            trace=trace,
        ) as pipe,
    ):
        yield pipe


def die_at(point: str, count: int, store_path: str, trace_path: str, *, receives: bool) -> None:
    """A pipe with a journal: it sends so many messages, and ends itself at this point."""
    runtime = CrashingRuntime(CrashPoints(point))
    with orders_kept(store_path, trace_path, runtime) as pipe:
        if receives:
            pipe.receive(no_threes)
        pipe.send_many(list(range(count)))
        pipe.flush(PATIENCE_S)
