"""What once went wrong with links over TCP, reduced to what matters."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Container
from contextlib import ExitStack
from pathlib import Path
from random import Random

from surepipe.actors.ends.remote import PipeSender
from surepipe.actors.links import LinkLimits, MutualTls, TcpRoute
from surepipe.actors.threads import THREADS
from surepipe.testing.certificates import Authority
from tests.actors.links.kit import HERE, KEY, QUICK, WITHIN_S, Got, receiver, sender, to


def test_link_whose_only_place_for_strangers_is_free_lets_in_one_with_a_certificate(
    tmp_path: Path,
) -> None:
    """link: strangers: TLS was done, and he was refused because somebody stood in the doorway: he himself.

    With 64 places the 64th of those who connect at one time was turned away for it.
    """
    authority = Authority(tmp_path, "us")
    one, other = authority.sign("one"), authority.sign("other")
    got = Got()
    limits = LinkLimits(strangers_max=1)
    with ExitStack() as stack:
        listening = TcpRoute.listen(
            HERE, security=MutualTls(one.cert, one.key, authority.ca), limits=limits
        )
        receiver(stack, listening, got)
        theirs = MutualTls(other.cert, other.key, authority.ca)
        sender(stack, TcpRoute.connect(to(listening), security=theirs)).send("in")
        got.wait(1)
    assert "strangers_refused" not in listening.counters()


def test_link_that_is_closed_at_any_moment_of_connecting_ends_at_once() -> None:
    """link: close: the word to end came in the very turn in which a connection was made, and was swallowed.

    Two hundred links to somebody who has another security, closed at moments drawn from a seed: about one in
    forty then dialed on for ever, and ``close`` waited ten seconds and raised TimeoutError.
    """
    moment, draw = threading.Event(), Random(1)
    listening = TcpRoute.listen(HERE, security=KEY)
    with ExitStack() as stack:
        receiver(stack, listening, Got())
        for _ in range(200):
            side = TcpRoute.connect(to(listening)).sender
            side.open(_Nobody(), THREADS)
            moment.wait(draw.random() * 0.002)
            side.close()


class _Nobody:
    """Takes nothing."""

    room = 0

    def put(self, frame: object) -> None:
        raise AssertionError(f"nobody sent {frame!r}")

    def wake(self) -> None:
        """Nothing waits."""

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """Nothing waits."""


def test_link_of_a_forked_child_is_its_own_and_it_keeps_none_of_its_parents() -> None:
    """link: fork: the child had the parent's sockets, and a network without its thread.

    1. the child makes a link of its own and sends: that waited ten seconds and failed;
    2. the parent closes while the child lives: whoever is connected with it must notice;
    3. the parent listens anew on its port: that failed, because the child kept the old socket open.
    """
    got = Got()
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE, security=KEY)
        first = stack.enter_context(ExitStack())
        receiver(first, listening, got)
        receiver(first, listening, got, "child")
        away = TcpRoute.connect(to(listening), security=KEY)
        end = sender(stack, away)
        end.send("of the parent")
        end.flush(WITHIN_S)
        child = _Child(lambda: _send_once(to(listening)))
        stack.callback(child.end)
        got.wait(2)
        assert set(map(str, got.messages)) == {"of the parent", "of the child"}
        first.close()
        assert away.wait_disconnected(WITHIN_S)
        again = Got()
        receiver(stack, listening, again)
        assert away.wait_connected(WITHIN_S)
        end.send("once more")
        end.flush(WITHIN_S)
        assert again.messages == ["once more"]
        child.end()


def _send_once(address: str) -> None:
    with PipeSender("child", QUICK, route=TcpRoute.connect(address, security=KEY)) as end:
        end.send("of the child")


class _Child:
    """A fork of this process that does one thing and then waits to be ended."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._pid = os.fork()
        if not self._pid:
            try:
                act()
                signal.pause()
            finally:
                os._exit(1)

    def end(self) -> None:
        """A second call does nothing."""
        pid, self._pid = self._pid, 0
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
