"""One seeded schedule for real things: connections, stores, processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from surepipe.core.store_requests import KEEP_ALL, Created, Exists, Failed, Unavailable
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.pytest_plugin import Faults
from surepipe.storage import MemoryStore
from surepipe.testing.faults import STORMY, GustKind, RealFaults
from tests.testing.echo import PATIENCE_S, Client, CountingServer

WAITS = "import signal\nprint('up', flush=True)\nsignal.pause()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """One that waits."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        yield running
        running.kill()


def outcomes(seed: int, *, routes_before: int = 0) -> list[object]:
    """What two hundred calls to a wrapped store answer."""
    with CountingServer() as server, RealFaults(seed) as faults:
        wrapped = faults.wrap(MemoryStore())
        for _ in range(routes_before):
            faults.route(server.url)
        return [type(wrapped.create(f"s{n}", 1, KEEP_ALL)) for n in range(200)]


def test_the_seed_decides_what_a_store_suffers() -> None:
    """X-65: the same for the same seed, whatever else suffers beside it; another for another."""
    assert outcomes(7) == outcomes(7, routes_before=2)
    assert outcomes(7) != outcomes(8)
    assert {kind for seed in range(4) for kind in outcomes(seed)} >= {Created, Unavailable}


def test_a_healed_store_answers_every_call() -> None:
    """After ``heal``; what was done and not answered is there."""
    with RealFaults(3) as faults:
        wrapped = faults.wrap(MemoryStore())
        for n in range(100):
            wrapped.create(f"s{n}", 1, KEEP_ALL)
        faults.heal()
        again = [wrapped.create(f"s{n}", 1, KEEP_ALL) for n in range(5, 100)]
    assert not [one for one in again if isinstance(one, Failed)]
    assert {type(one) for one in again[10:]} <= {Created, Exists}


def test_a_route_has_weather_until_it_is_healed() -> None:
    """Only resets are drawn: sooner or later the connection ends; a healed route carries again."""
    with CountingServer() as server, RealFaults(1, (GustKind.RESET,)) as faults:
        proxy = faults.route(server.url)
        client = Client(proxy.address)
        assert client.read(1) == b"RESET"
        client.close()
        faults.heal()
        again = Client(proxy.address)
        assert again.ask("x") == b":1\r\n"
        again.close()


def test_a_crash_comes_after_a_while(process: subprocess.Popen[str]) -> None:
    """SIGKILL, from outside."""
    with RealFaults(1) as faults:
        faults.crash(process)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_healed_schedule_lets_the_living_live(process: subprocess.Popen[str]) -> None:
    """No crash that was planned comes any more, and who stood still goes on and can end by itself."""
    with RealFaults(1) as faults:
        faults.pause(process)
        faults.crash(process)
        faults.heal()
        process.terminate()
        assert process.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_process_that_was_not_started_is_refused() -> None:
    """There is nothing to hit."""

    class Unborn:
        pid = None

    with RealFaults(1) as faults, pytest.raises(MisuseError, match="not started"):
        faults.crash(Unborn())


def test_a_test_that_fails_tells_its_seed() -> None:
    """X-67: the seed stands in the notes of the error, which pytest prints."""
    with pytest.raises(AssertionError) as failure, RealFaults(4711):
        raise AssertionError("lost")
    assert failure.value.__notes__ == ["faults of seed 4711"]


def test_the_fixture_takes_kinds_after_commas_or_as_a_list_a_tuple_or_a_set(faults: Faults) -> None:
    """And refuses the rest with what may be given."""
    given: tuple[str | Collection[str], ...] = (
        "delay, cut",
        ["delay", "cut"],
        ("delay", "cut"),
        {"cut", "delay"},
    )
    for kinds in given:
        assert {*faults(7, kinds).kinds} == {GustKind.DELAY, GustKind.CUT}
    assert faults(7, ["claim"]).kinds == STORMY
    with pytest.raises(MisuseError, match="faults are words"):
        faults(7, 12)  # type: ignore[arg-type]


def test_the_fixture_says_which_kinds_there_are(faults: Faults) -> None:
    """For a slip, for a word of a simulation, and for one that means nothing: each kind is named."""
    known = "nown are claim (all of them), " + ", ".join(GustKind)
    said = {
        "black-hol": "did you mean 'black-hole'? K" + known,
        "store-outage": ".wrap(store), .crash(process) and .pause(process); k" + known,
        "typo": "suffers: k" + known,
    }
    for word, text in said.items():
        for kinds in (word, [word], f"delay,{word}"):
            with pytest.raises(ConfigurationError, match=re.escape(text)):
                faults(7, kinds)


def test_the_page_names_each_kind() -> None:
    """docs/testing.md: a reader finds the words without an error."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
    assert all(f"| `{kind}` |" in page for kind in STORMY)
