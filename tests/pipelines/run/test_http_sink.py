"""The http sink before servers that answer as servers do, and as they must not. Rules of RFC 9110 and 9112."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipelines.sinks.others import PATIENCE_MAX_S, Posted
from surepipe.pipelines.stages import About
from surepipe.testing.certificates import Authority
from tests.pipelines.run.kit import plan_of, run, write_lines

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
MOVED = b"HTTP/1.1 %d Moved\r\nLocation: http://u:hunter2@elsewhere/x\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers each request with the next of these bytes, and keeps what it got.

    ``ends``: it closes behind each answer.
    """

    def __init__(
        self,
        answers: Sequence[bytes] = (),
        *,
        ends: bool = False,
        context: ssl.SSLContext | None = None,
        endless: bytes = b"",
    ) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.accepted = 0
        self.closing = threading.Event()
        self._answers = iter(answers)
        self._ends = ends
        self._context = context
        self._endless = endless
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}/orders"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._converse, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _converse(self, connection: socket.socket) -> None:
        try:
            with connection:
                side = (
                    self._context.wrap_socket(connection, server_side=True)
                    if self._context
                    else connection
                )
                with side, side.makefile("rb") as lines:
                    while self._answer(side, lines):
                        pass
        except OSError:
            return

    def _answer(self, connection: socket.socket, lines: object) -> bool:
        readline: Callable[[], bytes] = getattr(lines, "readline")  # noqa: B009 - a file of a socket
        read: Callable[[int], bytes] = getattr(lines, "read")  # noqa: B009
        first = readline()
        if not first:
            return False
        headers: dict[str, str] = {}
        while (line := readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = read(int(headers.get("content-length", "0")))
        self.requests.append((first.decode().split()[0], headers, body))
        connection.sendall(next(self._answers, OK))
        while self._endless and not self.closing.is_set():
            connection.sendall(self._endless)
        return not self._ends

    def close(self) -> None:
        """Listen no more, and wait for what it began."""
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def served() -> Iterator[Callable[..., Server]]:
    """Servers that end with the test."""
    servers: list[Server] = []

    def make(*answers: bytes, **options: object) -> Server:
        servers.append(Server(answers, **options))  # type: ignore[arg-type]
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def about(seq: int) -> About:
    """A message of the pipe intake."""
    return About("shop/intake", 1, seq)


Served = Callable[..., Server]


def test_messages_go_over_one_connection_each_with_its_identity(served: Served) -> None:
    """Twenty POSTs and one accept; answers without a body don't end it."""
    server = served(*[b"HTTP/1.1 204 No Content\r\n\r\n", OK] * 10)
    with closing(Posted(server.url, {"X-Key": "k"})) as sink:
        for seq in range(1, 21):
            sink.put({"n": seq}, about(seq), None)
    assert server.accepted == 1
    assert [headers["idempotency-key"] for _, headers, _ in server.requests] == [
        f"shop/intake/1/{seq}" for seq in range(1, 21)
    ]
    assert {(method, headers["x-key"]) for method, headers, _ in server.requests} == {("POST", "k")}


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_that_names_where_it_led(served: Served, status: int) -> None:
    """Followed with GET, as browsers do for 301 to 303, it would lose the body and count as taken."""
    server = served(MOVED % status)
    with (
        closing(Posted(server.url, {})) as sink,
        pytest.raises(OSError, match=f"answered {status} and named 'http://u:") as caught,
    ):
        sink.put({"n": 1}, about(1), None)
    assert "hunter2" not in str(caught.value)
    assert [method for method, _, _ in server.requests] == ["POST"]


@pytest.mark.usefixtures("folder")
def test_all_twenty_are_dead_letters_where_every_answer_is_a_redirect(
    served: Served,
) -> None:
    """A whole run: none is counted as taken."""
    server = served(*[MOVED % 302] * 40)
    write_lines("in.jsonl", range(20))
    plan = plan_of(
        "sources: {a: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {p: {from: a, journal: main, state: main, boundary: processed}}\n"
        f"sinks: {{out: {{kind: http, from: p, url: '{server.url}', retries: 1, dead_letter: main/dead}}}}\n"
    )
    counters = run(plan)
    assert counters["p"]["dead_lettered"] == 20
    assert counters.get("out", {}).get("taken", 0) == 0


BROKEN: Mapping[str, tuple[bytes, str]] = {
    "closed half way": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "could not be asked"),
    "closed within the head": (b"HTTP/1.1 200 OK\r\nContent-", "may not be whole"),
    "closed behind the first line": (b"HTTP/1.1 200 OK\r\n", "may not be whole"),
    "closed before any answer": (b"", "could not be asked"),
    "no answer of HTTP": (b"hello\r\n\r\n", "could not be asked"),
    "a length below nothing": (
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "'-1' as its length",
    ),
    "a length that is none": (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "'x' as its length"),
    "half of its pieces": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        "could not be asked",
    ),
    "an interim answer only": (b"HTTP/1.1 103 Early Hints\r\n\r\n", "answered 103"),
}


@pytest.mark.parametrize("title", BROKEN)
def test_an_answer_that_is_not_whole_is_a_failure(served: Served, title: str) -> None:
    """The message comes again, with the same identity, over another connection."""
    data, said = BROKEN[title]
    server = served(data, ends=True)
    with closing(Posted(server.url, {})) as sink:
        with pytest.raises(OSError, match=said):
            sink.put(1, about(1), None)
        sink.put(1, about(1), None)
    assert [headers["idempotency-key"] for _, headers, _ in server.requests] == [
        "shop/intake/1/1"
    ] * 2


EXCESS: Mapping[str, bytes] = {
    "a second answer behind the first": OK + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "an answer longer than its length": OK + b"more",
    "an interim answer and the real one": b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK,
}


@pytest.mark.parametrize("title", EXCESS)
def test_what_comes_behind_an_answer_is_no_answer_to_the_next_message(
    served: Served, title: str
) -> None:
    """Else a message that the server refused would count as taken."""
    server = served(EXCESS[title], b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
    with closing(Posted(server.url, {})) as sink:
        with nullcontext() if "interim" not in title else pytest.raises(OSError, match="103"):
            sink.put(1, about(1), None)
        with pytest.raises(OSError, match="answered 500"):
            sink.put(2, about(2), None)
    assert len(server.requests) == 2


def test_an_interim_100_is_passed_over(served: Served) -> None:
    """The answer is the one behind it."""
    server = served(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    with closing(Posted(server.url, {})) as sink:
        sink.put(1, about(1), None)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["until it is closed", "chunked"],
)
def test_an_answer_that_never_ends_is_a_failure(served: Served, head: bytes) -> None:
    """It is read up to a bound."""
    server = served(head, endless=b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
    with (
        closing(Posted(server.url, {})) as sink,
        pytest.raises(OSError, match="its answer does not end"),
    ):
        sink.put(1, about(1), None)


def test_an_answer_that_is_late_is_a_failure() -> None:
    """The server takes the connection and says nothing; time_limit_s says for how long that is borne."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with (
            closing(Posted(url, {}, answer_s=0.05)) as sink,
            pytest.raises(OSError, match=r"no whole answer in 0\.05 s"),
        ):
            sink.put(1, about(1), None)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_patience_gets_it(served: Served, status: int) -> None:
    """It is no attempt of a message that counts, and until then nothing is sent."""
    answer = b"HTTP/1.1 %d No\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n" % status
    server = served(answer)
    with closing(Posted(server.url, {})) as sink:
        with pytest.raises(StoreUnavailable, match=f"answered {status}: again in 3600 s"):
            sink.put(1, about(1), None)
        with pytest.raises(StoreUnavailable, match="left alone"):
            sink.put(2, about(2), None)
    assert len(server.requests) == 1


def _in(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    "said", ["", "soon", "0", "-1", _in(-99), "9" * 400], ids=lambda said: said[:9] or "nothing"
)
def test_patience_that_makes_no_sense_is_none_or_bounded(served: Served, said: str) -> None:
    """A date that is over, a word, more digits than a number has."""
    answer = f"HTTP/1.1 503 No\r\nRetry-After: {said}\r\nContent-Length: 0\r\n\r\n".encode()
    server = served(answer)
    with closing(Posted(server.url, {})) as sink:
        if said.startswith("9"):
            with pytest.raises(StoreUnavailable, match=f"again in {PATIENCE_MAX_S:g} s"):
                sink.put(1, about(1), None)
            return
        with pytest.raises(OSError, match="the server answered 503"):
            sink.put(1, about(1), None)
        sink.put(1, about(1), None)


def test_a_date_says_how_long_too(served: Served) -> None:
    """As HTTP writes it."""
    server = served(
        f"HTTP/1.1 503 No\r\nRetry-After: {_in(600)}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    with (
        closing(Posted(server.url, {})) as sink,
        pytest.raises(StoreUnavailable, match=r"again in (59\d|600)"),
    ):
        sink.put(1, about(1), None)


def test_a_server_whose_certificate_has_another_name_gets_nothing(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that nobody vouches for."""
    authority = Authority(tmp_path, "shop")
    files = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    server = served(context=context)
    for trusted, host in ((False, "127.0.0.1"), (True, "localhost")):
        if trusted:
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        with (
            closing(Posted(server.url.replace("127.0.0.1", host), {})) as sink,
            pytest.raises(OSError, match="could not be asked"),
        ):
            sink.put(1, about(1), None)
    assert server.requests == []
    with closing(Posted(server.url, {})) as sink:
        sink.put(1, about(1), None)
    assert len(server.requests) == 1


def test_a_proxy_of_the_environment_is_used(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its name and password; not for addresses that are excepted."""
    proxy = served()
    monkeypatch.setenv("http_proxy", f"http://u:p@127.0.0.1:{proxy.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    with closing(Posted("http://shop.example/in", {})) as sink:
        sink.put(1, about(1), None)
    ((_, headers, _),) = proxy.requests
    assert headers["host"] == "shop.example"
    assert headers["proxy-authorization"] == "Basic dTpw"
    server = served()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with closing(Posted(server.url, {})) as sink:
        sink.put(1, about(1), None)
    assert (len(server.requests), len(proxy.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("url", "headers", "said"),
    [
        ("http://u:hunter2@h/", {}, "has a name and a password"),
        ("http://h/", {"idempotency-key": "hunter2"}, "idempotency-key of an http sink is set"),
        ("http://h/", {"Content-Length": "3"}, "Content-Length of an http sink is set"),
        ("http://h/", {"X": "hunter2\u20ac"}, "X of an http sink has"),
    ],
)
def test_what_would_break_a_request_is_refused_at_the_start(
    url: str, headers: Mapping[str, str], said: str
) -> None:
    """One key for all messages, for one, would make a server take the first only."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        Posted(url, headers)
    assert "hunter2" not in str(caught.value)


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the sink is opened: before anything runs."""
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(ConfigurationError, match=r"needs urllib3: pip install 'surepipe\[http\]'"):
        Posted("http://127.0.0.1:1/", {})
