"""Two network namespaces with a cable between them, and packets that are dropped on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.real.ground import a_server, no_redis, redis_effects
from tests.real.history import History
from tests.real.kills import ENDLESS
from tests.real.stage import Stage, Tally
from tests.real.workers import Worker

EACH = 8
_ANSWER_S = 0.3
_BATCH = 20


@dataclass(frozen=True)
class Cable:
    """Names and addresses of the two sides. They hold our process id, so that two runs do not meet."""

    near: str
    far: str
    subnet: str

    @property
    def far_address(self) -> str:
        """Where the server is."""
        return f"{self.subnet}.2"


@contextmanager
def cable() -> Generator[Cable]:
    """Two namespaces for the block."""
    number = os.getpid()
    made = Cable(f"spn{number}", f"spf{number}", f"10.{number >> 8 & 255}.{number & 255}")
    try:
        for name in (made.near, made.far):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("link", "add", "near", "netns", made.near, "type", "veth", "peer", "name", "far",
            "netns", made.far)  # fmt: skip
        for name, link, last in ((made.near, "near", 1), (made.far, "far", 2)):
            _ip("-n", name, "addr", "add", f"{made.subnet}.{last}/24", "dev", link)
            _ip("-n", name, "link", "set", link, "up")
        yield made
    finally:
        for name in (made.near, made.far):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


DROPS: dict[str, str] = {
    "one way, to the server": "add rule inet real out drop",
    "one way, from the server": "add rule inet real in drop",
    "20 % of packets": "add rule inet real in numgen random mod 100 < 20 drop\n"
    "add rule inet real out numgen random mod 100 < 20 drop",
    "partition": "add rule inet real in drop\nadd rule inet real out drop",
}
_CHAINS = (
    "add table inet real\n"
    "add chain inet real in { type filter hook input priority 0; }\n"
    "add chain inet real out { type filter hook output priority 0; }\n"
)


def _nft(space: str, rules: str) -> None:
    """Load rules in a namespace, all at once."""
    subprocess.run(
        ["ip", "netns", "exec", space, "nft", "-f", "-"],
        input=rules.encode(),
        check=True,
        capture_output=True,
    )


def load_chains(line: Cable) -> None:
    """So that something may be dropped."""
    _nft(line.near, _CHAINS)


def drop_all(line: Cable) -> None:
    """Nothing passes the cable; what stays on its side does."""
    _nft(
        line.near,
        "add rule inet real in iifname near drop\nadd rule inet real out oifname near drop",
    )


def heal(line: Cable) -> None:
    """Everything passes again."""
    _nft(line.near, "flush table inet real")


def run(rng: Random, tally: Tally) -> None:
    """The workers on one side, the server on the other; each kind of trouble again and again, and healed."""
    history = History("netns", "real")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surepipe-netns-")))
        line = stack.enter_context(cable())
        within = ("ip", "netns", "exec", line.near)
        server = a_server().server(
            appendonly="yes",
            appendfsync="no",
            bind=line.far_address,
            protected_mode="no",
            unixsocket=str(folder / "redis.sock"),
        )
        server.within = ("ip", "netns", "exec", line.far)
        stack.enter_context(server)
        url = f"redis://{line.far_address}:{server.port}"
        sender = stack.enter_context(Worker("sender", history.hear, within=within))
        receiver = stack.enter_context(Worker("receiver", within=within))
        receiver.play("receive", where=url, answer_s=_ANSWER_S)
        sender.play("send", where=url, life=1, batch=_BATCH, most=ENDLESS, answer_s=_ANSWER_S)
        receiver.wait_for("ready")
        load_chains(line)
        for kind, number in _drawn(rng):
            with tally.timed(f"{kind} {number}"):
                _trouble(line, DROPS[kind], rng, lambda: sender.wait_for_new("accepted", 3))
            tally.add(kind)
        sender.stop()
        receiver.kill()
        receiver.play("catch_up", where=url)
        receiver.wait_for("done")
        history.settled(redis_effects(f"unix://{folder / 'redis.sock'}"))
    history.check()
    tally.add("messages", history.accepted)


def _drawn(rng: Random) -> Sequence[tuple[str, int]]:
    drawn = [(kind, number) for kind in DROPS for number in range(EACH)]
    rng.shuffle(drawn)
    return drawn


def _trouble(line: Cable, rules: str, rng: Random, await_progress: Callable[[], object]) -> None:
    """Drop for a drawn while, shorter and longer than clients wait; heal; it must go on."""
    await_progress()
    _nft(line.near, rules)
    time.sleep(rng.uniform(0.05, 2 * _ANSWER_S))  # the drawn length of the trouble
    heal(line)
    await_progress()


def needs() -> str:
    """Root, ip, nft, and a kernel that makes namespaces."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    for tool, package in (("ip", "iproute2"), ("nft", "nftables")):
        if shutil.which(tool) is None:
            return f"no {tool} (apt-get install {package})"
    return _no_cable() or no_redis()


def _no_cable() -> str:
    try:
        with cable() as line:
            _nft(line.near, _CHAINS + DROPS["20 % of packets"] + "\n")
    except subprocess.CalledProcessError as error:
        return (
            f"this system makes no namespaces, cables or filters: {error.stderr.decode().strip()}"
        )
    return ""


STAGE = Stage("netns", "netns", run, dict.fromkeys(DROPS, EACH), needs, omits="TCP pipes, IPv6")
