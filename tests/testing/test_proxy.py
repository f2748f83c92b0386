"""The proxy between a client and a server: each of its faults, and that nothing else is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from surepipe.errors import ConfigurationError
from surepipe.testing.faults import GustKind, draw_gusts
from surepipe.testing.proxy import CLEAR, FaultProxy, ProxyCounts, Toward, Weather
from tests.testing.echo import Client, CountingServer, command


@pytest.fixture
def server() -> Iterator[CountingServer]:
    """Behind the proxy."""
    with CountingServer() as running:
        yield running


@pytest.fixture
def proxy(server: CountingServer) -> Iterator[FaultProxy]:
    """In between, in fair weather."""
    with FaultProxy(server.url, seed=1) as running:
        yield running


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    """Connected before anything goes wrong."""
    connected = Client(proxy.address)
    assert connected.ask("first") == b":1\r\n"
    yield connected
    connected.close()


def test_in_fair_weather_nothing_is_changed(proxy: FaultProxy, client: Client) -> None:
    """A pipeline of commands, all answers in order."""
    client.send("a", "b", "c")
    assert client.read(12) == b":2\r\n:3\r\n:4\r\n"
    assert (proxy.counts.connections, proxy.counts.resets) == (1, 0)


def test_the_url_leads_to_the_proxy_and_keeps_the_rest(proxy: FaultProxy) -> None:
    """User, password and database stay."""
    assert proxy.url == f"redis://user:pass@127.0.0.1:{proxy.port}/3"


def test_a_lost_reply_was_executed(
    server: CountingServer, proxy: FaultProxy, client: Client
) -> None:
    """X-65: the server has the command, the client gets a reset in place of the answer."""
    proxy.lose_reply(to=b"WRITE", after=1)
    assert client.ask("WRITE one") == b":2\r\n"
    assert client.ask("read") == b":3\r\n"
    assert client.ask("WRITE two") == b"RESET"
    assert server.commands[-1] == command("WRITE two")
    assert (proxy.counts.lost_replies, proxy.counts.lost_executed) == (1, 1)


def test_a_lost_error_counts_as_not_executed(proxy: FaultProxy, client: Client) -> None:
    """X-65: what the server refused was not done, so it proves nothing."""
    proxy.lose_reply(to=b"BAD")
    assert client.ask("BAD") == b"RESET"
    assert (proxy.counts.lost_replies, proxy.counts.lost_executed) == (1, 0)


def test_an_answer_of_ours_comes_in_its_turn_and_the_server_knows_nothing(
    server: CountingServer, proxy: FaultProxy, client: Client
) -> None:
    """X-65: one command of a pipeline is answered by the proxy; the answers before and after are the server's."""
    proxy.answer(b"-LOADING wait", times=2)
    client.send("a", "b", "c")
    assert client.read(34) == b"-LOADING wait\r\n-LOADING wait\r\n:2\r\n"
    assert server.commands == [command("first"), command("c")]
    assert proxy.counts.answered == 2


def test_a_cut_comes_after_exactly_so_many_bytes(proxy: FaultProxy, client: Client) -> None:
    """X-65: in the middle of a reply; bytes before the cut was asked for do not count."""
    proxy.cut_after(6, Toward.CLIENT)
    client.send("a", "b")
    assert client.read(8).removesuffix(b"RESET") == b":2\r\n:3"[:6]
    assert proxy.counts.cuts == 1


def test_a_cut_toward_the_server_tears_the_command(
    server: CountingServer, proxy: FaultProxy, client: Client
) -> None:
    """The server never gets the whole of it."""
    proxy.cut_after(3, Toward.SERVER)
    assert client.ask("torn") in (b"", b"RESET")
    assert server.commands == [command("first")]


def test_a_reset_ends_the_connections_that_stand(proxy: FaultProxy, client: Client) -> None:
    """And a new one is welcome."""
    proxy.reset()
    assert client.read(1) == b"RESET"
    again = Client(proxy.address)
    assert again.ask("x") == b":1\r\n"
    again.close()


def test_a_refused_connection_ends_at_once_and_the_old_ones_stay(
    proxy: FaultProxy, client: Client
) -> None:
    """Until the weather clears."""
    proxy.refuse()
    turned_away = Client(proxy.address)
    assert turned_away.read(1) in (b"", b"RESET")
    assert client.ask("x") == b":2\r\n"
    proxy.clear()
    welcome = Client(proxy.address)
    assert welcome.ask("x") == b":1\r\n"
    for one in (turned_away, welcome):
        one.close()


def test_a_black_hole_swallows_and_tells_nobody(proxy: FaultProxy, client: Client) -> None:
    """What went in while it was open never comes; the connection stands, and goes on afterwards."""
    proxy.weather(to_client=Weather(black_hole=True))
    client.send("lost")
    while proxy.counts.swallowed_bytes < 4:
        continue
    proxy.weather(to_client=CLEAR)
    assert client.ask("found") == b":3\r\n"


@pytest.mark.parametrize(
    "weather",
    [
        Weather(slice_max=2),
        Weather(delay_s=0.001, jitter_s=0.001),
        Weather(bytes_per_s=1_000_000, slice_max=3),
    ],
)
def test_slow_weather_brings_the_same_bytes(
    weather: Weather, proxy: FaultProxy, client: Client
) -> None:
    """In slices, later, slower; in both directions; never others."""
    proxy.weather(to_server=weather, to_client=weather)
    client.send("a", "b", "c")
    assert client.read(12) == b":2\r\n:3\r\n:4\r\n"


def test_clear_disarms_what_was_armed(proxy: FaultProxy, client: Client) -> None:
    """Cuts, losses and answers that were not met."""
    proxy.cut_after(1, Toward.CLIENT)
    proxy.lose_reply()
    proxy.answer(b"-ERR ours")
    proxy.clear()
    assert client.ask("x") == b":2\r\n"
    assert proxy.counts == replace(
        ProxyCounts(), connections=1, carried_bytes=proxy.counts.carried_bytes
    )


def test_without_a_server_a_connection_ends_at_once() -> None:
    """As one to a port that nobody listens on."""
    with CountingServer() as server:
        port = server.port
    with FaultProxy(("127.0.0.1", port)) as proxy:
        client = Client(proxy.address)
        assert client.read(1) in (b"", b"RESET")
        client.close()


def test_an_address_makes_a_proxy_that_knows_no_protocol(server: CountingServer) -> None:
    """It carries anything, and can't answer in the server's place."""
    with FaultProxy(("127.0.0.1", server.port)) as proxy:
        client = Client(proxy.address)
        assert client.ask("x") == b":1\r\n"
        client.close()
        with pytest.raises(ConfigurationError, match="only for Redis"):
            proxy.answer(b"-ERR")
        with pytest.raises(ConfigurationError, match="use `address`"):
            _ = proxy.url


def test_it_may_be_closed_twice_and_refuses_work_before_the_start(server: CountingServer) -> None:
    """A second close does nothing; a reset before start is told."""
    proxy = FaultProxy(server.url)
    with pytest.raises(ConfigurationError, match="not started"):
        proxy.reset()
    proxy.start()
    proxy.close()
    proxy.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Weather(delay_s=-1),
        lambda: Weather(slice_max=0),
        lambda: Weather(bytes_per_s=0),
        lambda: FaultProxy("redis://nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object) -> None:
    """Before anything is started."""
    assert callable(make)
    with pytest.raises(ConfigurationError):
        make()


def test_gusts_are_drawn_by_their_seed() -> None:
    """X-65: the seed repeats the schedule; over some seeds every kind occurs."""
    assert draw_gusts(7, 5) == draw_gusts(7, 5)
    assert draw_gusts(7, 5) != draw_gusts(8, 5)
    drawn = {gust.kind for seed in range(50) for gust in draw_gusts(seed, 5)}
    assert drawn == set(GustKind) - {GustKind.CALM}


@pytest.mark.parametrize("kind", list(GustKind))
def test_after_every_gust_and_fair_weather_the_proxy_carries_again(
    kind: GustKind, proxy: FaultProxy
) -> None:
    """Each kind, whatever it did to a connection; a new one is fine."""
    (gust,) = draw_gusts(3, 1, (kind,))
    gust.blow(proxy)
    proxy.clear()
    client = Client(proxy.address)
    assert client.ask("x") == b":1\r\n"
    assert str(gust).startswith(str(kind))
    client.close()
