"""Machines know nothing of the world around them (pipes P-1), and hosts nothing of the protocol (pipes H-1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import surepipe

SOURCE = Path(surepipe.__file__).parent
WORLD = {
    *("time", "datetime", "random", "secrets", "uuid", "os", "threading", "asyncio", "queue"),
    *("socket", "select", "logging", "sqlite3", "redis", "pykka", "subprocess", "multiprocessing"),
}
PROTOCOL = {"Data", "Numbered", "Confirm", "Nack", "Probe", "Opened", "Unknown", "Refused"}
HOSTS = (
    "host.py",
    "consuming/consumer.py",
    "ends/sender.py",
    "ends/receiver.py",
    "ends/receiver_host.py",
    "ends/machine.py",
    "channels/end.py",
)


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Each (module, name) that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", sorted((SOURCE / "pipes").rglob("*.py")), ids=lambda p: p.stem)
def test_a_machine_reads_no_clock_chance_queue_logger_or_store(path: Path) -> None:
    """P-1: by what its module imports."""
    roots = {module.partition(".")[0] for module, _ in imported(path)}
    assert not roots & WORLD
    assert not any(module.startswith("surepipe.storage") for module, _ in imported(path))


def test_sender_and_receiver_never_import_each_other() -> None:
    """P-1: where the two halves of a pipe have files of their own."""
    halves = {"sender.py": "receiver", "receiver.py": "sender"}
    found = [path for path in (SOURCE / "pipes").rglob("*.py") if path.name in halves]
    assert found
    for path in found:
        other = ".".join(("surepipe", *path.parent.relative_to(SOURCE).parts, halves[path.name]))
        assert other not in {module for module, _ in imported(path)}


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_knows_no_frame_and_so_decides_nothing_about_the_protocol(name: str) -> None:
    """H-1: what a frame says is read by machines only."""
    assert not {what for _, what in imported(SOURCE / "actors" / name)} & PROTOCOL
