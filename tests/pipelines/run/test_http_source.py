"""The http source before clients that behave, that stall, that lie about lengths, and that come all at once."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.sources.checking import fitting
from surepipe.pipelines.sources.http import Certificate, HttpLimits, Posts
from surepipe.testing.certificates import Authority


class Order(BaseModel):
    """What the source demands."""

    n: int


Serve = Callable[..., Posts]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Servers that end with the test."""
    with ExitStack() as servers:

        def make(**options: object) -> Posts:
            limits = options.pop("limits", HttpLimits(stop_s=1.0))
            posts = Posts(
                "127.0.0.1",
                0,
                "/in",
                check=fitting(Order, "test:Order"),
                limits=limits,  # type: ignore[arg-type]
                **options,  # type: ignore[arg-type]
            )
            posts.begin("")
            servers.callback(posts.close)
            return posts

        yield make
    for client in Client.all:
        client.socket.close()
    Client.all.clear()


class Client:
    """A connection that sends what it is told to, byte by byte."""

    all: ClassVar[list[Client]] = []

    def __init__(self, posts: Posts, *sent: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", posts.port), timeout=30)
        self.all.append(self)
        self.send(*sent)

    def send(self, *sent: bytes) -> None:
        """Send these bytes."""
        for piece in sent:
            self.socket.sendall(piece)

    def answer(self) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of the next answer."""
        with self.socket.makefile("rb") as lines:
            first = lines.readline().split()
            headers: dict[str, str] = {}
            while line := lines.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            return (
                int(first[1]),
                headers,
                lines.read(int(headers.get("content-length", "0"))).decode().strip(),
            )

    def is_gone(self) -> bool:
        """True when the server has closed the connection; waits for that."""
        try:
            return self.socket.recv(1) == b""
        except OSError:
            return True


def request(body: bytes, path: str = "/in", headers: str = "", method: str = "POST") -> bytes:
    """A request whose length is right."""
    head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def headed(length: str) -> bytes:
    """A head that says this of the length."""
    return f"POST /in HTTP/1.1\r\nHost: h\r\n{length}\r\n\r\n".encode()


def take(posts: Posts, count: int) -> list[SourceRow]:
    """Read so many messages and say that they are accepted."""
    rows: list[SourceRow] = []
    while len(rows) < count:
        found = posts.read(count - len(rows)) or ()
        posts.taken(found)
        rows += found
    return rows


def read(posts: Posts) -> Sequence[SourceRow]:
    """Read one message, and say nothing."""
    while not (rows := posts.read(1)):
        assert rows is not None
    return rows


def test_a_post_is_answered_when_its_message_is_accepted(serve: Serve) -> None:
    """Not when it is read; and the connection is kept for the next one."""
    posts = serve()
    client = Client(posts, request(b'{"n": 1}'))
    rows = read(posts)
    assert [row.message for row in rows] == [{"n": 1}]
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(1)
    client.socket.settimeout(30)
    posts.taken(rows)
    assert client.answer()[::2] == (200, "accepted")
    client.send(request(b'{"n": 2}'))
    take(posts, 1)
    assert client.answer()[0] == 200


CHUNKED = headed("Transfer-Encoding: chunked")
REFUSED: Mapping[str, tuple[bytes, int]] = {
    "no JSON": (request(b"{"), 400),
    "nothing": (request(b""), 400),
    "no number": (request(b'{"n": NaN}'), 400),
    "a number too large": (request(b'{"n": 1e999}'), 400),
    "digits without end": (request(b'{"n": ' + b"9" * 5000 + b"}"), 400),
    "half a surrogate pair": (request(b'{"n": "\\ud800"}'), 400),
    "brackets without end": (request(b"[" * 100_000), 400),
    "another model": (request(b'{"n": "x"}'), 422),
    "another path": (request(b"{}", "/other"), 404),
    "another method": (request(b"", method="GET"), 405),
    "a length below nothing": (headed("Content-Length: -1") + b'{"n": 1}', 400),
    "a length that is none": (headed("Content-Length: 0x8") + b'{"n": 1}', 400),
    "two lengths": (headed("Content-Length: 8\r\nContent-Length: 9") + b'{"n": 1}', 400),
    "a length with a sign": (headed("Content-Length: +8") + b'{"n": 1}', 400),
    "more than a message has": (headed(f"Content-Length: {1 << 40}"), 413),
    "more digits than a number": (headed(f"Content-Length: {'9' * 100}"), 400),
    "a chunk that is none": (CHUNKED + b'zz\r\n{"n": 1}\r\n0\r\n\r\n', 400),
    "a length beside chunks": (
        headed("Transfer-Encoding: chunked\r\nContent-Length: 8") + b'8\r\n{"n": 1}\r\n0\r\n\r\n',
        400,
    ),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_makes_no_message_is_answered_and_the_next_client_is_served(
    serve: Serve, title: str
) -> None:
    """With a status, never with a traceback or with nothing."""
    sent, status = REFUSED[title]
    posts = serve()
    assert Client(posts, sent).answer()[0] == status
    good = Client(posts, request(b'{"n": 1}'))
    take(posts, 1)
    assert good.answer()[0] == 200


def test_a_message_above_what_a_pipe_takes_is_answered_and_ends_no_run(serve: Serve) -> None:
    """One byte says how it is written, so 14 bytes of JSON are a message of 15."""
    posts = serve(limits=HttpLimits(message_bytes=15, stop_s=1.0))
    assert Client(posts, request(b'{"n":123456789}')).answer()[0] == 413
    fits = Client(posts, request(b'{"n":12345678}'))
    assert [row.message for row in take(posts, 1)] == [{"n": 12345678}]
    assert fits.answer()[0] == 200


def test_a_body_may_come_in_chunks(serve: Serve) -> None:
    """Its length is not known beforehand."""
    posts = serve()
    client = Client(posts, CHUNKED, b'4\r\n{"n"\r\n', b"3\r\n:7}\r\n", b"0\r\n\r\n")
    assert [row.message for row in take(posts, 1)] == [{"n": 7}]
    assert client.answer()[0] == 200


def test_chunks_without_end_are_not_more_than_a_body_may_be(serve: Serve) -> None:
    """They are counted as they come, and the connection ends."""
    posts = serve(limits=HttpLimits(body_bytes=100_000, stop_s=1.0))
    client = Client(posts, CHUNKED)
    for _ in range(4):
        client.send(b"7530\r\n" + b" " * 0x7530 + b"\r\n")
    assert client.answer()[0] == 413
    assert client.is_gone()


def test_two_hundred_clients_that_stall_cost_no_thread(serve: Serve) -> None:
    """Half a head, or half a body; who sends a whole message is answered meanwhile."""
    posts = serve()
    good = Client(posts, request(b'{"n": 0}'))
    take(posts, 1)
    assert good.answer()[0] == 200
    before = threading.active_count()
    stalled = [
        Client(posts, b"POST /in HT" if n % 2 else headed("Content-Length: 9") + b"{")
        for n in range(200)
    ]
    good.send(request(b'{"n": 1}'))
    take(posts, 1)
    assert good.answer()[0] == 200
    assert threading.active_count() == before
    assert len(stalled) == 200


def test_one_hundred_and_twenty_eight_clients_at_once_are_all_answered(serve: Serve) -> None:
    """Each has sent its message before the first one is read."""
    posts = serve()
    clients = [Client(posts, request(b'{"n": %d}' % n)) for n in range(128)]
    rows = take(posts, 128)
    assert sorted(str(row.message) for row in rows) == sorted(str({"n": n}) for n in range(128))
    assert [client.answer()[0] for client in clients] == [200] * 128


@pytest.mark.parametrize("sent", [b"", b"POST /in HT"], ids=["nothing", "half a head"])
def test_a_head_that_does_not_come_ends_its_connection(serve: Serve, sent: bytes) -> None:
    """Of a new connection, and of one that was served before."""
    posts = serve(limits=HttpLimits(head_s=0.05, stop_s=1.0))
    assert Client(posts, sent).is_gone()
    second = Client(posts, request(b'{"n": 1}'))
    take(posts, 1)
    assert second.answer()[0] == 200
    try:
        second.send(sent)
    except ConnectionError:
        return
    assert second.is_gone()


def test_a_body_that_does_not_come_is_answered(serve: Serve) -> None:
    """Nothing was accepted."""
    posts = serve(limits=HttpLimits(body_s=0.05, stop_s=1.0))
    client = Client(posts, headed("Content-Length: 9") + b"{")
    assert client.answer()[0] == 408
    assert client.is_gone()


def test_more_connections_than_fit_end_the_one_that_was_idle_for_longest(serve: Serve) -> None:
    """One that waits for its answer stays."""
    posts = serve(limits=HttpLimits(connections=3, stop_s=1.0))
    working = Client(posts, request(b'{"n": 1}'))
    rows = read(posts)
    idle = [Client(posts, b"P") for _ in range(3)]
    assert idle[0].is_gone()
    posts.taken(rows)
    assert working.answer()[0] == 200


def test_what_finds_no_room_is_to_be_sent_again(serve: Serve) -> None:
    """503 with Retry-After, at once; and the one before it is accepted."""
    posts = serve(limits=HttpLimits(waiting=1, stop_s=1.0))
    first = Client(posts, request(b'{"n": 1}'))
    second = Client(posts, request(b'{"n": 2}'))
    ready, _, _ = select.select([first.socket, second.socket], [], [], 30)
    refused = next(client for client in (first, second) if client.socket in ready)
    status, headers, text = refused.answer()
    assert (status, headers["retry-after"]) == (503, "1")
    assert "nothing was accepted" in text
    take(posts, 1)


def test_more_bytes_than_fit_are_to_be_sent_again(serve: Serve) -> None:
    """The bound is on all messages together."""
    posts = serve(limits=HttpLimits(held_bytes=50, stop_s=1.0))
    first = Client(posts, request(b'{"n": 1}' + b" " * 40))
    rows = read(posts)
    assert Client(posts, request(b'{"n": 2}' + b" " * 40)).answer()[0] == 503
    posts.taken(rows)
    assert first.answer()[0] == 200
    again = Client(posts, request(b'{"n": 2}' + b" " * 40))
    take(posts, 1)
    assert again.answer()[0] == 200


@pytest.mark.parametrize(("is_read", "said"), [(False, "nothing was accepted"), (True, "twice")])
def test_who_waits_too_long_is_told_what_is_known(serve: Serve, is_read: bool, said: str) -> None:
    """A message that nobody has read is taken back, and not read later."""
    posts = serve(limits=HttpLimits(answer_s=0.5 if is_read else 0.05, stop_s=1.0))
    client = Client(posts, request(b'{"n": 1}'))
    rows = read(posts) if is_read else ()
    status, headers, text = client.answer()
    assert (status, headers["retry-after"]) == (503, "1")
    assert said in text
    assert posts.read(9) == []
    posts.taken(rows)


def test_the_end_answers_what_was_accepted_and_refuses_the_rest(serve: Serve) -> None:
    """Accepted: 200. Read, and not known: it may come twice. Not read: nothing was accepted. Stalled: gone."""
    posts = serve()
    stalled = Client(posts, b"POST /in HT")
    half = Client(posts, headed("Content-Length: 9") + b"{")
    accepted, read_only, waiting = Client(posts), Client(posts), Client(posts)
    accepted.send(request(b'{"n": 1}'))
    take(posts, 1)
    read_only.send(request(b'{"n": 2}'))
    read(posts)
    waiting.send(request(b'{"n": 3}'))
    while not posts._waiting:  # pyright: ignore[reportPrivateUsage] - that it has come shows nowhere else
        threading.Event().wait(0.001)
    posts.refuse()
    assert waiting.answer()[::2] == (503, "stopping; nothing was accepted: send it again")
    assert half.answer()[0] == 503
    assert stalled.is_gone()
    posts.close()
    assert accepted.answer()[0] == 200
    assert "twice" in read_only.answer()[2]
    posts.close()


def test_the_end_leaves_no_thread_and_a_free_port(serve: Serve) -> None:
    """Closed with a client that stalls."""
    before = set(threading.enumerate())
    posts = serve()
    port = posts.port
    client = Client(posts, request(b'{"n": 1}'))
    take(posts, 1)
    assert client.answer()[0] == 200
    with pytest.raises(ConfigurationError, match="can't listen on"):
        Posts("127.0.0.1", port, "/").begin("")
    posts.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
    socket.create_server(("127.0.0.1", port)).close()


def test_over_tls_it_is_the_same_and_a_client_without_certificate_is_refused(
    serve: Serve, tmp_path: Path
) -> None:
    """``ca`` says who may send."""
    authority = Authority(tmp_path, "shop")
    files, own = authority.sign("server"), authority.sign("client")
    posts = serve(certificate=Certificate(str(files.cert), str(files.key), str(authority.ca)))
    for has_own in (True, False):
        context = ssl.create_default_context(cafile=authority.ca)
        if has_own:
            context.load_cert_chain(own.cert, own.key)
        client = Client(posts)
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        if has_own:
            client.send(request(b'{"n": 1}'))
            take(posts, 1)
            assert client.answer()[0] == 200
        else:
            assert client.is_gone()  # with an alert, or without one
    assert posts.read(9) == []


def test_a_certificate_that_can_not_be_used_is_one_clear_line(tmp_path: Path) -> None:
    """Before anything listens."""
    posts = Posts("127.0.0.1", 0, "/", certificate=Certificate(str(tmp_path / "no"), "no"))
    with pytest.raises(ConfigurationError, match="the certificate of an http source can't be used"):
        posts.begin("")


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the source is made: before anything runs."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigurationError, match=r"needs uvicorn: pip install 'surepipe\[http\]'"):
        Posts("127.0.0.1", 0, "/")
