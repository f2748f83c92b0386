"""Pages are given to this machine only, can change nothing, and leave nothing behind."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from surepipe.errors import ConfigurationError
from surepipe.observe.metrics import MetricsServer
from surepipe.observe.serving import CONNECTIONS_MAX, Answer, ListenAddress, PageServer


def broken() -> Answer:
    """A page that can't be made."""
    raise KeyError("nobody")


@pytest.fixture
def server() -> Iterator[PageServer]:
    """A page that is fine, and one that is broken."""
    pages = {"/": lambda: Answer("text/html", "<p>hé"), "/broken": broken}
    with PageServer(pages, port=0) as found:
        yield found


def ask(
    server: PageServer | MetricsServer,
    path: str = "/",
    method: str = "GET",
    host: str = "localhost",
) -> http.client.HTTPResponse:
    """The answer: its status and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_a_page_is_given_with_headers_that_let_a_browser_do_nothing_else(
    server: PageServer,
) -> None:
    """Content policy, no framing, no sniffing, no store."""
    answer = ask(server, "/?again")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert int(answer.headers["Content-Length"]) == len("<p>hé".encode())


@pytest.mark.parametrize(
    ("path", "method", "host", "status"),
    [
        ("/", "HEAD", "127.0.0.1:80", 200),
        ("/", "GET", "[::1]:80", 200),
        ("/", "POST", "localhost", 501),
        ("/../etc/passwd", "GET", "localhost", 404),
        ("/", "GET", "shop.example", 421),
        ("/", "GET", "shop.example:8470", 421),
        ("/", "GET", "", 421),
        ("/broken", "GET", "localhost", 500),
    ],
)
def test_only_this_machine_may_look_and_only_look(
    server: PageServer, path: str, method: str, host: str, status: int
) -> None:
    """A foreign name is what a page of another site has after pointing its name here."""
    assert ask(server, path, method, host).status == status


def test_a_page_that_can_not_be_made_is_logged(
    server: PageServer, caplog: pytest.LogCaptureFixture
) -> None:
    """With its path, and the next one is given."""
    with caplog.at_level(logging.ERROR, logger="surepipe"):
        ask(server, "/broken")
    assert "the page /broken could not be made" in caplog.text
    assert ask(server).status == 200


def test_the_end_leaves_no_thread_and_a_free_port() -> None:
    """Closed twice."""
    before = threading.active_count()
    with PageServer({}, port=0) as server:
        port = server.port
        with pytest.raises(ConfigurationError, match=f"127.0.0.1:{port}: address already in use"):
            PageServer({}, port=port)
    server.close()
    assert threading.active_count() == before
    with PageServer({}, port=port):
        pass


def test_a_port_that_does_not_exist_is_refused() -> None:
    """Before anything is started."""
    with pytest.raises(ConfigurationError, match="give another place"):
        PageServer({}, port=70_000)


@pytest.mark.parametrize(
    ("text", "place", "url"),
    [
        ("0", ("127.0.0.1", 0), "http://127.0.0.1:0"),
        ("0.0.0.0:9400", ("0.0.0.0", 9400), "http://0.0.0.0:9400"),
        ("[::1]:80", ("::1", 80), "http://[::1]:80"),
        ("shop.example:8470", ("shop.example", 8470), "http://shop.example:8470"),
    ],
)
def test_a_port_alone_is_one_of_this_machine(text: str, place: tuple[str, int], url: str) -> None:
    """Only who writes a host lets others look."""
    assert ListenAddress.read(text) == place
    assert ListenAddress.read(text).url == url


@pytest.mark.parametrize("text", ["", ":", "nowhere", ":80", "host:", "host:x", "1:99999", "-1"])
def test_what_is_no_place_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(ConfigurationError, match=r"write a port, or host:port, such as 0\.0\.0\.0"):
        ListenAddress.read(text)


@pytest.fixture(params=["page", "metrics"])
def served(request: pytest.FixtureRequest) -> Iterator[PageServer | MetricsServer]:
    """Each server of this package."""
    made = PageServer({"/metrics": lambda: Answer("text/plain", "")}, port=0)
    with made if request.param == "page" else MetricsServer([], port=0) as found:
        yield found
    made.close()


def test_clients_that_say_nothing_take_no_more_than_their_bound(
    served: PageServer | MetricsServer,
) -> None:
    """Four hundred of them: so many threads at the most, and who asks is answered."""
    before = set(threading.enumerate())
    with ExitStack() as clients:
        for _ in range(400):
            clients.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        assert ask(served, "/metrics").status == 200
        threads = set(threading.enumerate()) - before
        assert len(threads) <= CONNECTIONS_MAX + 2  # two that have answered may be on their way out
        served.close()
        for thread in threads:
            thread.join(10)
        assert not [thread for thread in threads if thread.is_alive()]


def test_a_client_that_sends_its_request_by_the_byte_makes_room(
    served: PageServer | MetricsServer,
) -> None:
    """It has sent half a line, and the bound is reached: it goes first."""
    with ExitStack() as clients:
        first = clients.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        first.sendall(b"GET /met")
        for _ in range(CONNECTIONS_MAX):
            clients.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        assert ask(served, "/metrics").status == 200
        first.settimeout(10)
        assert first.recv(1) == b""


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("shop.example", 421)])
def test_metrics_are_given_to_this_machine_only(host: str, status: int) -> None:
    """Another name is what a page of another site has after pointing its name here."""
    with MetricsServer([], port=0) as server:
        assert ask(server, "/metrics", host=host).status == status
        assert ask(server, "/other", host=host).status == (404 if status == 200 else 421)
