"""The replicated queue as its example has it: processes over TCP, of which one is killed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import examples.replicated_queue
from surepipe.cli.app import run
from tests.real.nodes import Nodes, free_port

WAIT_S = 120.0


def test_the_commands_of_the_example_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """rmq RQ-95, RT-52: typed as they stand in it; one of the three is killed, and nothing happens."""
    monkeypatch.chdir(tmp_path)
    page = examples.replicated_queue.__doc__ or ""
    commands = [
        shlex.split(each, comments=True)[1:]
        for each in re.findall(r"^    (surepipe .*)$", page, re.MULTILINE)
    ]
    words = [each[0] if each[0] != "node" else f"node {each[1]}" for each in commands]
    assert words == ["node new", "node prices/cluster.yaml", "submit", "watch"]
    new, _, submit, watch = commands
    assert run([*new, "--port", str(free_port(3))]) == 0
    nodes = Nodes(tmp_path / "prices" / "cluster.yaml")
    watching: subprocess.Popen[str] | None = None
    try:
        for name in ("n1", "n2", "n3"):
            nodes.start(name)
        for name in ("n1", "n2", "n3"):
            nodes.wait(name)
        capsys.readouterr()
        watching = subprocess.Popen(
            [sys.executable, "-m", "surepipe", *watch, "--count", "3"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert run([*submit, "--timeout-s", str(WAIT_S)]) == 1  # nobody knows what beer costs
        told = capsys.readouterr().out
        assert "tea: finalized 4.20" in told
        assert "beer: refused n1: unknown item; n2: unknown item; n3: unknown item" in told
        nodes.end("n2", signal.SIGKILL)
        assert run([*submit[:2], "milk", "--timeout-s", str(WAIT_S)]) == 0
        assert "milk: finalized 1.10" in capsys.readouterr().out
        assert run([*submit[:2], "tea", "--no-wait", "--timeout-s", str(WAIT_S)]) == 0
        # It looks when a node has it, which may be when all is over.
        assert re.search("tea: (placed|finalized)", capsys.readouterr().out)
        while watching.poll() is None:  # it may have begun to watch after all of these were told
            assert run([*submit[:2], "tea", "--timeout-s", str(WAIT_S)]) == 0
        seen, _ = watching.communicate(timeout=WAIT_S)
        assert len(re.findall(r" s  n[123] +\w+ +[0-9a-f]{8}", seen)) == 3
    finally:
        nodes.end_all()
        if watching is not None:
            watching.kill()
            watching.communicate()
