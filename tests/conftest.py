"""Settings of every test run: how hypothesis draws, and that CI accepts no skipped test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from surepipe.testing.servers import NONE_FOUND, redis_servers, why_no_docker

# The speed of the machine decides `too_slow`; no verdict here may depend on that.
_SUPPRESSED = [HealthCheck.too_slow]

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=_SUPPRESSED,
)
# For an interpreter that is not the default one: the same examples, fewer of them.
settings.register_profile("brief", settings.get_profile("ci"), max_examples=20)
settings.register_profile(
    "deep",
    max_examples=5_000,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=_SUPPRESSED,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure() -> None:
    """Hear Ctrl-C, and let the processes that tests start hear it.

    A shell without job control has what it puts into the background ignore it, and so all that this starts:
    a test that interrupts a process would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """All modules are loaded: the collector, which runs thousands of times, need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_module_of_a_test_outlives_it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The stages of the next test have the same name, and stand in another folder."""
    before = set(sys.modules)
    yield
    folder = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]
    sys.path[:] = [place for place in sys.path if not place.startswith(folder)]


def pytest_report_header() -> list[str]:
    """Which Redis servers this run has, and so which versions the Redis store is shown with."""
    found = [f"redis: {source.name}" for source in redis_servers()] or [f"redis: {NONE_FOUND}"]
    return [*found, f"redis: not from Docker: {why_no_docker()}"] if why_no_docker() else found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a green run with skipped tests red where CI=true: a missing server is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None:
        return
    skipped = len(reporter.stats.get("skipped", []))
    if skipped and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\nCI accepts no skipped test, and {skipped} were skipped", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
