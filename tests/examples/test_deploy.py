"""The files of examples/deploy fit together, and their commands run a pipeline of two nodes as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any, cast
from urllib.request import Request, urlopen

import pytest
import yaml

from surepipe.actors.codecs import choose_codec
from surepipe.cli.output import Exit
from surepipe.pipelines import assess, load
from surepipe.pipelines.sources.streams import StreamRows
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import NONE_FOUND, RedisServer, free_port, local_servers

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
UNIT = DEPLOY / "surepipe@.service"
DEADLINE_S = 60.0


def compose() -> dict[str, Any]:
    """The compose file."""
    return cast("dict[str, Any]", yaml.safe_load((DEPLOY / "compose.yaml").read_text()))


def unit() -> Mapping[str, str]:
    """The settings of the unit; of those that stand twice the last."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))


def variables(text: str) -> set[str]:
    """Those that a text has to be given."""
    return set(re.findall(r"\$\{([A-Z_]+)\}", text))


def arguments_in_compose(node: str) -> list[str]:
    """What follows the program's name in a container of this node."""
    command: list[str] = compose()["services"][node]["command"]
    return command


def arguments_in_unit(node: str) -> list[str]:
    """The same of the unit of this node, on ports that are free."""
    line = unit()["ExecStart"].replace("%i", node)
    program, *arguments = shlex.split(re.sub(r"\$\{[A-Z]+_PORT\}", "0", line))
    assert program.endswith("/surepipe")
    return arguments


@pytest.mark.parametrize("node", ["shop", "warehouse"])
def test_a_container_is_given_every_variable_that_its_node_needs(node: str) -> None:
    """Those of the pipeline; the command names the node, and files of certificates are secrets of the service."""
    service = compose()["services"][node]
    needed = variables((DEPLOY / "pipeline.yaml").read_text())
    given = service["environment"]
    assert needed <= set(given)
    arguments = arguments_in_compose(node)
    assert arguments[arguments.index("--node") + 1] == node
    secrets = {f"/run/secrets/{name}" for name in service["secrets"]}
    assert {given["TLS_CERT"], given["TLS_KEY"], given["TLS_CA"]} == secrets
    assert set(service["secrets"]) <= set(compose()["secrets"])


def test_stopping_a_container_or_a_unit_waits_longer_than_a_drain_takes() -> None:
    """Else what is being finished would be killed; and 130 after SIGTERM counts as a success."""
    for node in ("shop", "warehouse"):
        arguments = arguments_in_compose(node)
        drain_s = float(arguments[arguments.index("--drain") + 1])
        assert float(compose()["services"][node]["stop_grace_period"].removesuffix("s")) > drain_s
        assert compose()["services"][node]["restart"] == "unless-stopped"
    settings = unit()
    arguments = arguments_in_unit("shop")
    assert float(settings["TimeoutStopSec"]) > float(arguments[arguments.index("--drain") + 1])
    assert settings["SuccessExitStatus"] == str(int(Exit.INTERRUPTED))
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("on-failure", "0")


def test_the_image_is_made_of_files_that_are_there() -> None:
    """Each that is copied, seen from the folder that compose builds in; the stages are among them."""
    service = compose()["services"]["shop"]["build"]
    context = (DEPLOY / service["context"]).resolve()
    assert context == ROOT
    text = (context / service["dockerfile"]).read_text()
    copied = [
        word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()
    ]
    assert [name for name in copied if not (context / name).exists()] == []
    assert {"examples/deploy/pipeline.yaml", "examples/deploy/warehouse.py"} <= set(copied)


def test_the_example_of_variables_has_all_that_the_unit_and_the_pipeline_need() -> None:
    """Ports, and what is not the shop's alone."""
    given = set(re.findall(r"^([A-Z_]+)=", (DEPLOY / "node.env.example").read_text(), re.MULTILINE))
    assert variables(UNIT.read_text()) | variables((DEPLOY / "pipeline.yaml").read_text()) == given


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """Where systemd is; with programs and a user that this machine has."""
    judge = shutil.which("systemd-analyze")
    settings = unit()
    assert set(settings) >= {"ExecStart", "User", "Restart", "WorkingDirectory", "EnvironmentFile"}
    if judge is None:
        return  # the settings are there; what they mean is for systemd to say
    text = UNIT.read_text().replace("/opt/surepipe/bin/surepipe", sys.executable)
    (tmp_path / UNIT.name).write_text(text.replace("User=surepipe", "User=root"))
    done = subprocess.run(
        [judge, "verify", "--man=no", f"{tmp_path}/surepipe@shop.service"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert "surepipe@" not in done.stderr, done.stderr


# The commands, run.


class Node:
    """A process of one node, once it serves its page."""

    def __init__(self, arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "surepipe", *arguments, "--web-port", "0", "--metrics", "0"],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        told = [self._process.stderr.readline() for _ in range(2)]
        assert told[0].startswith("page"), [*told, self._process.communicate()[1]]
        self.page, self.metrics = (line.split()[1] for line in told)
        self.said = ""

    def end(self, number: signal.Signals) -> int:
        """Send a signal, and give the code with which the process ends. Then ``said`` is what it wrote."""
        if self._process.poll() is None:
            self._process.send_signal(number)
            self.said = self._process.communicate(timeout=DEADLINE_S)[1]
        return self._process.returncode


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """With the settings that the compose file gives to its server."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    command = shlex.split(compose()["services"]["redis"]["command"])
    settings = {
        name.removeprefix("--"): value
        for name, value in zip(command[1::2], command[2::2], strict=True)
    }
    assert "REDIS_PASSWORD" in settings.pop("requirepass")
    with found[0].server(**settings) as running:
        yield running


def environment_of(
    server: RedisServer, certificates: Path, node: str, link: int, web: int
) -> dict[str, str]:
    """What the container's environment is on one machine."""
    local = {
        "REDIS_URL": server.url,
        "SHOP_LISTEN": f"127.0.0.1:{web}",
        "ORDERS_ADDRESS": f"127.0.0.1:{link}",
        "TLS_CERT": str(certificates / f"{node}.pem"),
        "TLS_KEY": str(certificates / f"{node}.key"),
        "TLS_CA": str(certificates / "ca.pem"),
    }
    given: dict[str, str] = compose()["services"][node]["environment"]
    assert set(given) <= set(local)
    return {name: local[name] for name in given}


def asked(url: str, order: object = None) -> str:
    """The answer of a server; with an order, to its POST."""
    data = None if order is None else json.dumps(order).encode()
    with urlopen(Request(url, data), timeout=DEADLINE_S) as answer:
        text: bytes = answer.read()
    return text.decode()


def test_the_commands_of_the_files_run_both_nodes_through_a_kill_and_stop_gracefully(
    server: RedisServer, tmp_path: Path
) -> None:
    """The shop as in compose; the warehouse as in its unit, killed and started again by the same line.

    Between them is TLS with certificates on both sides, as the file of the pipeline says. The shop is stopped
    while nobody can confirm: it does not wait, says where its messages are, and goes on with them once it is
    started again.
    """
    certificates = tmp_path / "certs"
    subprocess.run([sys.executable, DEPLOY / "certificates.py", certificates], check=True)
    link, web = free_port(), free_port()
    environments = {
        node: environment_of(server, certificates, node, link, web)
        for node in ("shop", "warehouse")
    }
    arguments = {"shop": arguments_in_compose("shop"), "warehouse": arguments_in_unit("warehouse")}
    with ExitStack() as running:

        def start(*nodes: str) -> list[Node]:
            started = [Node(arguments[node], DEPLOY, environments[node]) for node in nodes]
            for node in started:
                running.callback(node.end, signal.SIGKILL)
                until_running(node)  # its page is there before its pipeline is
            return started

        shop, warehouse = start("shop", "warehouse")
        assert is_listening(web)
        assert is_listening(link)
        assert_refused_without_a_certificate(link, certificates / "ca.pem")
        for number in range(20):
            assert asked(f"http://127.0.0.1:{web}/orders", {"number": number}) == "accepted\n"
        assert warehouse.end(signal.SIGKILL) == -signal.SIGKILL
        for number in range(20, 30):
            assert asked(f"http://127.0.0.1:{web}/orders", {"number": number}) == "accepted\n"
        assert 'surepipe_accepted_total{pipe="shop/orders"} 30.0' in asked(shop.metrics)
        assert shop.end(signal.SIGTERM) == Exit.INTERRUPTED
        left = re.search(r"orders: (\d+) messages accepted and not confirmed; (.*)", shop.said)
        assert left is not None, shop.said
        assert 10 <= int(left[1]) <= 30
        assert left[2] == "safe in the journal, store main"
        shop, warehouse = start("shop", "warehouse")
        until_booked(server, 30)
        assert shop.end(signal.SIGTERM) == Exit.INTERRUPTED
        assert warehouse.end(signal.SIGTERM) == Exit.INTERRUPTED
    assert booked(server) == [{"number": number, "booked": True} for number in range(30)]


def until_running(node: Node) -> None:
    """Wait until the node says that it runs."""
    deadline, pause = time.monotonic() + DEADLINE_S, Event()
    while (said := asked(f"{node.page}health")) != "running\n":
        assert said == "starting\n"
        assert time.monotonic() < deadline
        pause.wait(0.02)


def until_booked(server: RedisServer, count: int) -> None:
    """Wait until so many rows are in the stream of the sink."""
    deadline, pause = time.monotonic() + DEADLINE_S, Event()
    while len(booked(server)) < count:
        assert time.monotonic() < deadline
        pause.wait(0.05)


def is_listening(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def assert_refused_without_a_certificate(port: int, ca: Path) -> None:
    """A stranger finds the warehouse under its name, by TLS 1.3, and is shown out without a word."""
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="warehouse") as secured,
        suppress(ssl.SSLError, ConnectionError),  # whether TLS is told why is a matter of timing
    ):
        assert secured.recv(1) == b""


def booked(server: RedisServer) -> list[object]:
    """What is in the stream of the sink."""
    store = RedisStore.from_url(server.url, pipeline="shop")
    rows = StreamRows(store, "booked", choose_codec("auto"), reader="test")
    rows.begin("")
    found = [row.message for row in rows.read(1_000) or ()]
    store.close()
    return found


def test_the_pipeline_keeps_what_it_expects_and_holds_no_secret() -> None:
    """Checked where none of its variables is known."""
    plan = load(DEPLOY / "pipeline.yaml")
    assert assess(plan).held
    assert plan.nodes == ("shop", "warehouse")
    assert "change-me" not in (DEPLOY / "pipeline.yaml").read_text()
