"""Pipes over real sockets on this machine: security, reconnection, strangers, bounds, and a clean end."""

from __future__ import annotations

import queue
import secrets
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from surepipe import Channel, ChannelFace, Listener
from surepipe.actors.channels.channel import Reply
from surepipe.actors.ends.remote import PipeReceiver, PipeSender
from surepipe.actors.links import LinkLimits, MutualTls, OneMachine, SharedKey, TcpRoute
from surepipe.actors.links.network import NETWORK
from surepipe.actors.links.security import Security
from surepipe.actors.threads import THREADS
from surepipe.core.effects import NoticeKind
from surepipe.errors import ConfigurationError, MisuseError, NotConfirmed, PipeStopped
from surepipe.testing.certificates import Authority
from surepipe.testing.proxy import FaultProxy, Weather
from tests.actors.kit import await_that
from tests.actors.links.kit import HERE, KEY, QUICK, WITHIN_S, Got, receiver, sender, to


def tls(authority: Authority, name: str, *, expired: bool = False) -> MutualTls:
    """What one process needs."""
    files = authority.sign(name, expired=expired)
    return MutualTls(files.cert, files.key, authority.ca)


@pytest.mark.parametrize("security", ["key", "tls", "none"])
@pytest.mark.parametrize("listens", ["receiver", "sender"])
def test_messages_arrive_once_and_in_order_whoever_listens(
    security: str, listens: str, tmp_path: Path
) -> None:
    """1,000 messages each way of connecting and of protecting."""
    authority = Authority(tmp_path, "us")
    pairs: dict[str, tuple[Security, Security]] = {
        "key": (KEY, KEY),
        "tls": (tls(authority, "one"), tls(authority, "other")),
        "none": (OneMachine(), OneMachine()),
    }
    mine, theirs = pairs[security]
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=mine)
        if listens == "receiver":
            receiver(stack, listening, got)
            end = sender(stack, TcpRoute.connect(to(listening), security=theirs))
        else:
            end = sender(stack, listening)
            receiver(stack, TcpRoute.connect(to(listening), security=theirs), got)
        assert end.send_many(range(1000)) == 1000
        end.flush(WITHIN_S)
        assert got.messages == list(range(1000))
    assert listening.counters().get("strangers", 0) == 0


def test_of_two_ends_that_wait_for_their_start_none_takes_anything_when_the_second_port_is_taken() -> (
    None
):
    """What comes to the first meanwhile waits in its inbox, and is unconfirmed when the program ends. One that
    is started again on a free port takes it, once."""
    got = Got()
    with ExitStack() as stack, closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = TcpRoute.listen(HERE, security=KEY)
        one = PipeReceiver("orders", QUICK, route=first, boundary="handed", start=False)
        one.receive(got)
        end = sender(stack, TcpRoute.connect(to(first), security=KEY))
        end.send(1)
        inbox = one.receiver.around.frames
        await_that(THREADS, lambda: len(inbox) > 0, "a frame came")
        second = TcpRoute.listen(f"127.0.0.1:{taken.getsockname()[1]}", security=KEY)
        with pytest.raises(ConfigurationError, match="can't listen on"):
            PipeReceiver("letters", route=second, boundary="handed", start=False)
        assert not one.is_started
        port = first.port
        one.abort()
        assert got.messages == []
        assert [last for _, _, last in end.sender.unconfirmed()] == [1]
        again = TcpRoute.listen(f"127.0.0.1:{port}", security=KEY)
        receiver(stack, again, got)
        end.flush(WITHIN_S)
    assert got.messages == [1]


def test_one_link_carries_many_pipes_and_several_processes_connect_to_one() -> None:
    """Two routes connect; each carries two pipes, and each frame finds its pipe."""
    got = {name: Got() for name in ("a", "b", "c", "d")}
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        for name, one in got.items():
            receiver(stack, listening, one, name)
        for names in (("a", "b"), ("c", "d")):
            link = TcpRoute.connect(to(listening), security=KEY)
            for name in names:
                sender(stack, link, name).send(f"to {name}")
        for name, one in got.items():
            one.wait(1)
            assert one.messages == [f"to {name}"]
        assert listening.counters()["connections"] == 2


def test_two_ends_of_one_pipe_on_one_route_are_refused() -> None:
    """They could not be told apart."""
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        receiver(stack, listening, Got())
        with pytest.raises(MisuseError, match="orders"):
            PipeReceiver("orders", QUICK, route=listening)


def test_a_broken_connection_is_made_again_and_nothing_is_lost_or_repeated() -> None:
    """Cut five times while messages flow, by reset."""
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        receiver(stack, listening, got)
        proxy = stack.enter_context(FaultProxy(("127.0.0.1", listening.port), seed=1))
        host, port = proxy.address
        link = TcpRoute.connect(f"{host}:{port}", security=KEY)
        end = sender(stack, link)
        for cut in range(5):
            end.send_many(range(cut * 100, cut * 100 + 100))
            got.wait(cut * 100 + 50)
            proxy.reset()
        end.flush(WITHIN_S)
        assert got.messages == list(range(500))
        assert link.counters()["connections"] >= 5


def test_a_silent_connection_is_given_up_and_made_again() -> None:
    """A black hole tells nobody anything; the heartbeat notices it."""
    got = Got()
    limits = LinkLimits(heartbeat_s=0.1)
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY, limits=limits)
        receiver(stack, listening, got)
        proxy = stack.enter_context(FaultProxy(("127.0.0.1", listening.port), seed=1))
        host, port = proxy.address
        link = TcpRoute.connect(f"{host}:{port}", security=KEY, limits=limits)
        end = sender(stack, link)
        end.send(1)
        got.wait(1)
        hole = Weather(black_hole=True)
        proxy.weather(to_server=hole, to_client=hole)
        end.send(2)
        assert not link.wait_disconnected(0.0)
        assert link.wait_disconnected(WITHIN_S)
        proxy.weather(to_server=Weather(), to_client=Weather())
        end.flush(WITHIN_S)
        assert got.messages == [1, 2]
        # Whoever notices first ends the connection, and the other one sees that instead.
        assert sum(side.counters().get("silences", 0) for side in (link, listening)) >= 1


def test_what_was_sent_before_the_listener_was_there_arrives() -> None:
    """The connecting side keeps trying."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    got = Got()
    with ExitStack() as stack:
        late = stack.enter_context(ExitStack())
        end = sender(stack, TcpRoute.connect(f"127.0.0.1:{port}", security=KEY))
        end.send("early")
        receiver(late, TcpRoute.listen(f"127.0.0.1:{port}", security=KEY), got)
        end.flush(WITHIN_S)
        assert got.messages == ["early"]
        end.close()


@pytest.mark.parametrize(
    "case", ["another key", "no key", "expired", "another authority", "no tls"]
)
def test_a_stranger_is_counted_and_gets_nothing_through(case: str, tmp_path: Path) -> None:
    """He is dropped before anything of his is kept; whoever knows the key works on."""
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    right: Security = (
        tls(ours, "right") if case in ("expired", "another authority", "no tls") else KEY
    )
    wrongs: dict[str, Security] = {
        "another key": SharedKey(secrets.token_hex(32)),
        "no key": OneMachine(),
        "expired": tls(ours, "old", expired=True),
        "another authority": tls(theirs, "foreign"),
        "no tls": KEY,
    }
    wrong = wrongs[case]
    got = Got()
    with ExitStack() as stack:
        limits = LinkLimits(greeting_s=0.3)
        listening = TcpRoute.listen(HERE, security=right, limits=limits)
        receiver(stack, listening, got)
        stranger = PipeSender(
            "orders", QUICK, route=TcpRoute.connect(to(listening), security=wrong, limits=limits)
        )
        stranger.send("let me in")
        with pytest.raises(NotConfirmed):
            stranger.close(1.0)
        assert listening.counters()["strangers"] >= 1
        assert listening.counters().get("connections", 0) == 0
        end = sender(stack, TcpRoute.connect(to(listening), security=right))
        end.send("it is me")
        end.flush(WITHIN_S)
        assert got.messages == ["it is me"]


def test_many_who_say_nothing_take_no_more_than_their_places_and_only_for_a_while() -> None:
    """30 connections that never greet: 10 places, the others are turned away at once; then the places are free."""
    limits = LinkLimits(greeting_s=0.3, strangers_max=10)
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY, limits=limits)
        receiver(stack, listening, got)
        mute = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", listening.port))))
            for _ in range(30)
        ]
        for one in mute:
            one.settimeout(WITHIN_S)
            while _read(one):
                pass  # until the other side has ended it
        counted = listening.counters()
        assert counted["strangers_refused"] + counted["strangers"] == 30
        assert counted["strangers_refused"] >= 10
        end = sender(stack, TcpRoute.connect(to(listening), security=KEY))
        end.send("through")
        end.flush(WITHIN_S)


def test_bytes_that_a_stranger_repeats_open_no_connection() -> None:
    """Everything that a good connection said, sent again."""
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        receiver(stack, listening, got)
        tap = stack.enter_context(_Tap(listening.port))
        end = sender(stack, TcpRoute.connect(f"127.0.0.1:{tap.port}", security=KEY))
        end.send("once")
        end.flush(WITHIN_S)
        before = listening.counters().get("strangers", 0)
        with closing(socket.create_connection(("127.0.0.1", listening.port))) as replay:
            replay.settimeout(WITHIN_S)
            replay.sendall(tap.said)
            while _read(replay):
                pass
        assert listening.counters()["strangers"] == before + 1
        assert got.messages == ["once"]


def test_a_frame_that_exceeds_the_bound_of_the_link_is_told_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It can never pass; others do."""
    limits = LinkLimits(frame_max_bytes=10_000)
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY, limits=limits)
        receiver(stack, listening, got)
        receiver(stack, listening, Got(), "big")
        link = TcpRoute.connect(to(listening), security=KEY, limits=limits)
        big = PipeSender("big", QUICK, route=link)
        big.send(b"x" * 20_000)
        with pytest.raises(NotConfirmed):
            big.close(0.5)
        assert link.counters()["frames_too_large"] >= 1
        assert "raise it on both sides" in caplog.text
        end = sender(stack, link)
        end.send("small")
        end.flush(WITHIN_S)
        assert got.messages == ["small"]


def test_channels_and_a_listener_work_over_the_same_kind_of_route() -> None:
    """Two callers ask, the listening ends answer."""

    def answer(message: object, reply: Reply) -> None:
        reply(["got", message])

    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        stack.enter_context(
            Listener(
                listening, names=["one", "two"], accept=lambda channel: channel.receive(answer)
            )
        )
        for name in ("one", "two"):
            answers = Got()
            link = TcpRoute.connect(to(listening), security=KEY)
            caller = stack.enter_context(Channel(name, route=link))
            caller.receive(answers)
            caller.send(name)
            answers.wait(1)
            assert answers.messages == [["got", name]]


def test_an_idle_caller_joins_a_listener_that_was_started_again() -> None:
    """It has nothing to send, and so has a listener that doesn't know it: the link that is back brings them
    together. What the new listener sends to its end of the channel arrives."""
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        came: queue.Queue[ChannelFace] = queue.Queue()
        first = stack.enter_context(Listener(listening, names=["one"], accept=came.put))
        port = listening.port
        answers = Got()
        link = TcpRoute.connect(f"127.0.0.1:{port}", security=KEY)
        caller = stack.enter_context(Channel("one", route=link))
        caller.receive(answers)
        came.get(timeout=WITHIN_S).send("first")
        answers.wait(1)
        first.close(1.0)
        again = TcpRoute.listen(f"127.0.0.1:{port}", security=KEY)
        stack.enter_context(Listener(again, names=["one"], accept=came.put))
        came.get(timeout=WITHIN_S).send("second")
        answers.wait(2)
    assert answers.messages == ["first", "second"]


def test_a_caller_that_begins_beside_an_older_one_takes_over_its_name() -> None:
    """Each has a connection, and what the listener asks first goes to that of the older, which is idle. The older
    hears without a word of its own that it is replaced; the listener's end is the same, and reaches the newer."""
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        came: queue.Queue[ChannelFace] = queue.Queue()
        stack.enter_context(Listener(listening, names=["one"], accept=came.put))
        fenced = threading.Event()
        older = Channel(
            "one",
            route=TcpRoute.connect(to(listening), security=KEY),
            notices=lambda notice: fenced.set() if notice.kind is NoticeKind.FENCED else None,
        )
        stack.callback(older.abort)
        there = came.get(timeout=WITHIN_S)
        got, answers = Got(), Got()
        there.receive(got)
        older.send("older")
        older.flush(WITHIN_S)
        newer = stack.enter_context(
            Channel("one", route=TcpRoute.connect(to(listening), security=KEY))
        )
        newer.receive(answers)
        newer.send("newer")
        newer.flush(WITHIN_S)
        assert fenced.wait(WITHIN_S)
        there.send("answer")
        there.flush(WITHIN_S)
        assert (got.messages, answers.messages) == (["older", "newer"], ["answer"])
        with pytest.raises(PipeStopped, match="serves life"):
            older.send("too late")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TcpRoute.listen("0.0.0.0:7400"), "without a key would let anybody send"),
        (lambda: TcpRoute.connect("orders.internal:7400"), "without a key"),
        (lambda: TcpRoute.listen("7400", security=KEY), "is no address: write host:port"),
        (lambda: TcpRoute.listen("127.0.0.1:x", security=KEY), "is no address"),
        (lambda: TcpRoute.connect("127.0.0.1:0"), "nobody listens on port 0"),
        (lambda: TcpRoute.listen("127.0.0.1:70000", security=KEY), "is no address"),
        (lambda: SharedKey("short"), "a shared key of 5 bytes is too short: it needs 32"),
        (lambda: SharedKey.read("/nowhere/key"), "can't be read"),
        (lambda: TcpRoute.listen(HERE, security="key"), "give SharedKey"),  # type: ignore[arg-type]
        (
            lambda: TcpRoute.listen(HERE, security=MutualTls("a", "b", "c")),
            "TLS with certificate a",
        ),
    ],
)
def test_what_can_not_be_meant_is_refused_at_once(make: object, says: str) -> None:
    """One clear error each, before anything is opened."""
    assert callable(make)
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_an_address_that_is_taken_is_refused_when_the_end_opens() -> None:
    """And nothing stays behind."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="can't listen on"):
            PipeReceiver("orders", QUICK, route=TcpRoute.listen(address, security=KEY))


def test_a_key_is_never_printed() -> None:
    """Neither by repr nor by str."""
    secret = "x" * 40
    assert secret not in f"{SharedKey(secret)!r} {SharedKey(secret)}"


def test_the_network_thread_ends_with_its_last_user() -> None:
    """And starts again for the next."""
    loop = NETWORK.enter()
    assert NETWORK.enter() is loop
    NETWORK.leave()
    assert loop.is_running()
    NETWORK.leave()
    assert not loop.is_running()


def _read(peer: socket.socket) -> bytes:
    try:
        return peer.recv(1 << 16)
    except ConnectionResetError:
        return b""


class _Tap:
    """Carries one connection and remembers what the client said."""

    def __init__(self, port: int) -> None:
        self.said = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._there = port
        self._threads = [threading.Thread(target=self._serve, daemon=True)]

    def __enter__(self) -> _Tap:
        self._threads[0].start()
        return self

    def __exit__(self, *why: object) -> None:
        self._server.close()
        for thread in self._threads:
            thread.join(WITHIN_S)

    def _serve(self) -> None:
        client, _ = self._server.accept()
        with (
            closing(client),
            closing(socket.create_connection(("127.0.0.1", self._there))) as there,
        ):
            back = threading.Thread(target=self._carry, args=(there, client))
            self._threads.append(back)
            back.start()
            while data := _read(client):
                self.said += data
                there.sendall(data)
            there.shutdown(socket.SHUT_RDWR)
            back.join(WITHIN_S)

    def _carry(self, there: socket.socket, client: socket.socket) -> None:
        while data := _read(there):
            client.sendall(data)
