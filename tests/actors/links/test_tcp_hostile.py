"""Links among those who mean no good, and among mistakes: storms, trickles, forks, wrong keys, lost ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import cast

import pytest

from surepipe import PipeStopped
from surepipe.actors.ends.remote import PipeReceiver, PipeSender
from surepipe.actors.links import LinkLimits, MutualTls, SharedKey, TcpRoute
from surepipe.actors.links.connection import WRITE_MAX, Connection, What, sealed_record
from surepipe.actors.links.greeting import FIRST, NoSeal, WelcomingGreeting
from surepipe.actors.links.security import PlainWire, Security
from surepipe.actors.links.tcp import WAIT_MAX_S, WAIT_MIN_S, next_wait
from surepipe.actors.notices import PipeNotice
from surepipe.core.effects import NoticeKind
from surepipe.errors import ConfigurationError, NotConfirmed
from surepipe.testing.certificates import Authority
from surepipe.testing.proxy import FaultProxy, Weather
from tests.actors.links.kit import HERE, KEY, QUICK, WITHIN_S, Got, receiver, sender, to

PATIENT = {"reliable": {"rto_initial_s": 60.0, "rto_min_s": 60.0, "rto_max_s": 60.0}}
HOLE = Weather(black_hole=True)


# Who gets in.


@pytest.mark.parametrize("security", ["key", "tls"])
def test_a_greeting_that_trickles_in_is_ended_and_nobody_waits_for_it(
    security: str, tmp_path: Path
) -> None:
    """A byte now and then keeps no place: the whole greeting has its time, and not each byte of it."""
    authority = Authority(tmp_path, "us")
    files = authority.sign("one")
    mine = KEY if security == "key" else MutualTls(files.cert, files.key, authority.ca)
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=mine, limits=LinkLimits(greeting_s=0.3))
        receiver(stack, listening, got)
        slow = stack.enter_context(closing(socket.create_connection(("127.0.0.1", listening.port))))
        sender(stack, TcpRoute.connect(to(listening), security=mine)).send("quick")
        _trickle(slow, b"\x16" + bytes(10_000))
        got.wait(1)
        _until(lambda: listening.counters().get("strangers", 0) >= 1)


def test_a_record_that_trickles_in_holds_up_nobody_else() -> None:
    """Somebody who is let in announces a large record and sends a byte of it now and then."""
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE)
        receiver(stack, listening, got)
        slow = stack.enter_context(closing(socket.create_connection(("127.0.0.1", listening.port))))
        slow.sendall((4 << 20).to_bytes(4, "big") + b"\x01")
        end = sender(stack, TcpRoute.connect(to(listening)))
        for number in range(20):
            slow.sendall(b"x")
            end.send(number)
        end.flush(WITHIN_S)
        assert got.messages == list(range(20))


@pytest.mark.parametrize("security", ["key", "tls"])
def test_a_wrong_key_or_certificate_is_told_once_on_both_sides_and_is_no_connection(
    security: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One clear warning each, though it is tried again and again, and no try passes for a connection.

    TLS 1.3 lets the connecting side finish before its certificate was looked at: it took itself for connected,
    so that it neither warned nor waited longer each time.
    """
    caplog.set_level(logging.WARNING, "surepipe")
    pairs: dict[str, tuple[Security, Security]] = {
        "key": (KEY, SharedKey("y" * 40)),
        "tls": _half_strangers(tmp_path),
    }
    right, wrong = pairs[security]
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=right)
        receiver(stack, listening, Got())
        link = TcpRoute.connect(to(listening), security=wrong)
        end = PipeSender("orders", QUICK, route=link)
        end.send("let me in")
        _until(lambda: listening.counters().get("strangers", 0) >= 3)
        assert end.counters()["link_strangers"] >= 2
        with pytest.raises(NotConfirmed):
            end.close(0.5)
        assert "connections" not in link.counters()
    told = [each.getMessage() for each in caplog.records if "dropped" in each.getMessage()]
    assert [text.split(":")[0] for text in sorted(told)] == [
        "tcp listening on 127.0.0.1",
        "tcp to 127.0.0.1",
    ]
    assert all("do both processes have the same security?" in text for text in told)
    proof, other = ("key", "certificate") if security == "key" else ("certificate", "key")
    assert all(proof in text and other not in text for text in told)


def _half_strangers(folder: Path) -> tuple[MutualTls, MutualTls]:
    """A listener that the other side trusts, and the other side, whose own certificate nobody has signed."""
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    one, other = ours.sign("one"), theirs.sign("other")
    return MutualTls(one.cert, one.key, ours.ca), MutualTls(other.cert, other.key, ours.ca)


def test_only_a_connection_that_lasts_makes_the_next_dial_come_soon() -> None:
    """Whoever is let in and dropped at once, for ever, waits longer each time, as if nobody were there."""
    wait = WAIT_MIN_S
    for lived_s in (None, 0.001, 0.01, None, 0.1, 0.2, 0.3, 0.4):
        longer = next_wait(wait, lived_s)
        assert longer == min(2 * wait, WAIT_MAX_S)
        wait = longer
    assert next_wait(wait, wait) == WAIT_MIN_S


@pytest.mark.parametrize("security", ["key", "tls"])
def test_a_crowd_of_strangers_keeps_nobody_out_who_has_the_key(
    security: str, tmp_path: Path
) -> None:
    """Those who say nothing have all places, for a minute: the oldest goes, and the peer is in."""
    authority = Authority(tmp_path, "us")
    files = authority.sign("one")
    mine = KEY if security == "key" else MutualTls(files.cert, files.key, authority.ca)
    with ExitStack() as stack:
        got = Got()
        limits = LinkLimits(greeting_s=60, strangers_max=10)
        listening = TcpRoute.listen(HERE, security=mine, limits=limits)
        receiver(stack, listening, got)
        idle = [_stranger(stack, listening) for _ in range(10)]
        sender(stack, TcpRoute.connect(to(listening), security=mine)).send("through")
        got.wait(1)
        assert listening.counters()["strangers_refused"] == 1
        assert _is_ended(idle[0])


def test_a_crowd_of_one_address_pushes_out_its_own_and_nobody_elses() -> None:
    """One of an address stands there, then many of another: each new one takes the place of their oldest."""
    with ExitStack() as stack:
        limits = LinkLimits(greeting_s=60, strangers_max=10)
        listening = TcpRoute.listen(HERE, security=KEY, limits=limits)
        receiver(stack, listening, Got())
        alone = _stranger(stack, listening, "127.0.0.3")
        crowd = [_stranger(stack, listening, "127.0.0.2") for _ in range(20)]
        _until(lambda: listening.counters().get("strangers_refused") == 11)
        assert all(_is_ended(one) for one in crowd[:11])
        for one in (alone, crowd[-1]):
            assert len(one.recv(FIRST, socket.MSG_WAITALL)) == FIRST
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)


def _stranger(stack: ExitStack, listening: TcpRoute, host: str = "127.0.0.1") -> socket.socket:
    """Connects, hears what is said to everybody, and says nothing."""
    made = stack.enter_context(
        closing(socket.create_connection(("127.0.0.1", listening.port), source_address=(host, 0)))
    )
    made.settimeout(WITHIN_S)
    return made


def _is_ended(one: socket.socket) -> bool:
    try:
        while one.recv(4096):
            continue
    except ConnectionResetError:
        return True
    return True


def test_an_address_where_nobody_listens_is_told_once_until_somebody_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Later attempts say nothing; the next outage is told again."""
    caplog.set_level(logging.WARNING, "surepipe")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    link = TcpRoute.connect(f"127.0.0.1:{port}", security=KEY)
    got = Got()
    with PipeSender("orders", QUICK, route=link) as end:
        for number in (1, 2):
            _until(partial(_has_failed, link, 3 * number))
            with PipeReceiver(
                "orders", QUICK, route=TcpRoute.listen(f"127.0.0.1:{port}", security=KEY)
            ) as there:
                there.receive(got)
                end.send(number)
                end.flush(WITHIN_S)
            assert link.wait_disconnected(WITHIN_S)
    told = [
        each.getMessage() for each in caplog.records if "no connection yet" in each.getMessage()
    ]
    assert 2 <= len(told) <= 3
    assert got.messages == [1, 2]


def _has_failed(link: TcpRoute, times: int) -> bool:
    return link.counters().get("dials_failed", 0) >= times


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LinkLimits(heartbeat_s=0), "heartbeat_s is 0"),
        (lambda: LinkLimits(heartbeat_s=nan), "heartbeat_s is nan"),
        (lambda: LinkLimits(greeting_s=inf), "greeting_s is inf"),
        (lambda: LinkLimits(strangers_max=0), "strangers_max is 0: it must be at least 1"),
        (lambda: LinkLimits(frame_max_bytes=1 << 32, queue_max_bytes=1 << 33), "at the most"),
        (lambda: LinkLimits(queue_max_bytes=1 << 20), "the largest frame could never be sent"),
        (lambda: TcpRoute.connect("a..b:7400", security=KEY), "is no address"),
        (lambda: TcpRoute.listen("127.0.0.1:²", security=KEY), "is no address"),
    ],
)
def test_limits_and_addresses_that_can_not_work_are_refused(
    make: Callable[[], object], says: str
) -> None:
    """Before anything is opened: later they would lose every frame, or raise on another thread."""
    with pytest.raises(ConfigurationError, match=says):
        make()


# Connections that break.


def test_what_waits_is_sent_as_soon_as_the_connection_is_back() -> None:
    """pipes T-3: a wait of a minute is cut short. The frame went into a black hole, so the link holds none."""
    got = Got()
    limits = LinkLimits(heartbeat_s=0.1)
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY, limits=limits)
        there = stack.enter_context(PipeReceiver("orders", PATIENT, route=listening))
        there.receive(got)
        proxy = stack.enter_context(FaultProxy(("127.0.0.1", listening.port), seed=1))
        host, port = proxy.address
        link = TcpRoute.connect(f"{host}:{port}", security=KEY, limits=limits)
        end = stack.enter_context(PipeSender("orders", PATIENT, route=link))
        end.send(1)
        end.flush(WITHIN_S)
        proxy.weather(to_server=HOLE, to_client=HOLE)
        end.send(2)
        assert link.wait_disconnected(WITHIN_S)
        proxy.weather(to_server=Weather(), to_client=Weather())
        end.flush(WITHIN_S)
        assert got.messages == [1, 2]


def test_when_all_connections_break_at_once_all_come_back() -> None:
    """Twenty processes' worth of links, reset together three times while they send."""
    names = [f"pipe {number}" for number in range(20)]
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY, limits=LinkLimits(strangers_max=8))
        got = {name: Got() for name in names}
        for name, one in got.items():
            receiver(stack, listening, one, name)
        proxy = stack.enter_context(FaultProxy(("127.0.0.1", listening.port), seed=2))
        host, port = proxy.address
        ends = [
            sender(stack, TcpRoute.connect(f"{host}:{port}", security=KEY), name) for name in names
        ]
        for storm in range(3):
            for end in ends:
                end.send_many(range(storm * 20, storm * 20 + 20))
            got[names[-1]].wait(storm * 20 + 1)
            proxy.reset()
        for end in ends:
            end.flush(WITHIN_S)
        assert all(one.messages == list(range(60)) for one in got.values())


def test_a_listener_that_starts_again_on_its_port_is_found_and_loses_nothing() -> None:
    """Four listeners, one after the other, closed while messages come in; what one had in hand may come again."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    lives: list[list[object]] = []
    with PipeSender("orders", QUICK, route=TcpRoute.connect(address, security=KEY)) as end:
        for life in range(4):
            got = Got()
            with PipeReceiver(
                "orders", QUICK, route=TcpRoute.listen(address, security=KEY)
            ) as there:
                there.receive(got)
                end.send_many(range(life * 200, life * 200 + 200))
                got.wait(20)
                if life == 3:
                    end.flush(WITHIN_S)
            lives.append(got.messages)
    assert set().union(*lives) == set(range(800))
    for messages in lives:
        numbers = cast("list[int]", messages)
        assert numbers == sorted(numbers)


def test_large_messages_pass_in_both_directions_of_a_link() -> None:
    """Eight of 3 MB each way, so that records span many reads and the socket is full now and then."""
    large = [bytes([number]) * 3_000_000 for number in range(8)]
    there, here = Got(), Got()
    layers = {"reliable": {"message_max_bytes": 3_500_000, "frame_max_bytes": 3_600_000}}
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        stack.enter_context(PipeReceiver("to", layers, route=listening)).receive(there)
        away = stack.enter_context(PipeSender("fro", layers, route=listening))
        link = TcpRoute.connect(to(listening), security=KEY)
        stack.enter_context(PipeReceiver("fro", layers, route=link)).receive(here)
        end = stack.enter_context(PipeSender("to", layers, route=link))
        end.send_many(large)
        away.send_many(large)
        end.flush(WITHIN_S)
        away.flush(WITHIN_S)
        assert there.messages == large
        assert here.messages == large


# Two that claim one pipe.


def test_of_two_processes_that_send_as_one_pipe_the_older_is_told_to_stop() -> None:
    """The older hears of it by a notice and an error that names what it did not deliver; the newer goes on."""
    got = Got()
    notices: list[PipeNotice] = []
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        receiver(stack, listening, got)
        older = PipeSender(
            "orders",
            QUICK,
            route=TcpRoute.connect(to(listening), security=KEY),
            notices=notices.append,
        )
        older.send("of the older")
        older.flush(WITHIN_S)
        newer = sender(stack, TcpRoute.connect(to(listening), security=KEY))
        newer.send("of the newer")
        newer.flush(WITHIN_S)
        older.send("too late")
        with pytest.raises(PipeStopped, match="the receiver serves life"):
            older.close(WITHIN_S)
        newer.send("goes on")
        newer.flush(WITHIN_S)
        assert got.messages == ["of the older", "of the newer", "goes on"]
        assert NoticeKind.FENCED in [each.kind for each in notices]


# A peer that reads nothing.


class _Stalled(asyncio.Transport):
    """A socket that takes no more."""

    def __init__(self, there: socket.socket) -> None:
        super().__init__({"socket": there, "peername": "somebody"})
        self.written: list[bytes] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As told."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keeps what it is given, as a socket's buffer would."""
        self.written.append(bytes(data))

    def abort(self) -> None:
        """Nobody is there."""


class _Owner:
    """Lets everybody in, and says so."""

    def met(self, connection: Connection) -> bool:
        return connection.peer == "somebody"

    def trusted(self, connection: Connection) -> None:
        assert connection.is_trusted

    def arrived(self, connection: Connection, frame: bytes) -> None:
        raise AssertionError(f"{connection} brought {frame!r}")

    def ended(self, connection: Connection) -> None:
        assert connection.is_trusted

    def count(self, name: str, by: int = 1) -> None:
        raise AssertionError(f"{by} {name}")

    def broke_rules(self, connection: Connection, why: str, detail: str = "") -> None:
        raise AssertionError(f"{connection}: {why} {detail}")


@asynccontextmanager
async def _stalled() -> AsyncGenerator[tuple[Connection, _Stalled]]:
    here, there = socket.socketpair()
    with closing(here), closing(there):
        transport = _Stalled(here)
        connection = Connection(_Owner(), PlainWire(), WelcomingGreeting(), LinkLimits())
        connection.connection_made(transport)
        transport.written.clear()  # its word of welcome
        yield connection, transport
        connection.connection_lost(None)


def test_questions_of_somebody_who_reads_nothing_are_not_answered_without_bound() -> None:
    """Answers would gather in memory: while the socket takes nothing there are none; then there are again."""

    async def flood() -> None:
        ping = sealed_record(NoSeal(), What.PING)
        async with _stalled() as (connection, transport):
            connection.data_received(ping)
            assert len(transport.written) == 1
            connection.pause_writing()
            connection.data_received(ping * 1000)
            assert len(transport.written) == 1
            connection.resume_writing()
            connection.data_received(ping)
            assert transport.written == [sealed_record(NoSeal(), What.PONG)] * 2

    asyncio.run(flood())


def test_one_batch_leaves_in_each_turn_so_that_others_get_theirs() -> None:
    """Four batches are queued: between them the loop does what else there is."""

    async def queue() -> None:
        frame = bytes(WRITE_MAX // 2)
        sizes: list[int] = []
        async with _stalled() as (connection, transport):
            for _ in range(8):
                assert connection.post(frame)
            for _ in range(8):
                await asyncio.sleep(0)
                sizes.append(sum(map(len, transport.written)) // len(frame))
        assert sizes == [2, 4, 6, 8, 8, 8, 8, 8]

    asyncio.run(queue())


def _trickle(there: socket.socket, data: bytes) -> None:
    """Byte by byte until the other side has had enough."""
    there.settimeout(0.05)
    for byte in data:
        try:
            there.sendall(bytes((byte,)))
            if not there.recv(1 << 16):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    raise AssertionError("it would listen for ever")


def _until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread does, a turn of its loop at a time."""
    turn = threading.Event()
    for _ in range(2_000):
        if holds():
            return
        turn.wait(0.01)
    raise AssertionError("it never came")
