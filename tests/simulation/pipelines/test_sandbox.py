"""What stages may use under simulation: virtual clocks and chance; and what is refused."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pytest

from surepipe.pipelines.simulated.builders import handler_subject
from surepipe.pipelines.simulated.campaign import CannotSimulate, run_one
from surepipe.pipelines.simulated.simulate import NotDeterministic, simulation_of
from surepipe.pipelines.stages import Context
from surepipe.simulation.options import Options

Handler = Callable[..., object]


def _seen(use: Callable[[], object]) -> list[object]:
    """What a handler sees of this in one run of three messages."""
    seen: list[object] = []

    def handle(message: object) -> None:
        del message
        seen.append(use())

    run_one(handler_subject(lambda: handle, [1, 2, 3]), Options(messages=3))
    return seen


@pytest.mark.parametrize(
    "use",
    [
        lambda: time.time_ns() + 0,
        lambda: monotonic() + 0,
        lambda: datetime.now(UTC).isoformat(),
        lambda: random.random() + 0,
        lambda: str(uuid.uuid4()),
    ],
)
def test_clocks_and_chance_are_virtual(use: Callable[[], object]) -> None:
    """Two runs see the same, also by a name that was imported from its module (simulation X-25, XT-2)."""
    assert _seen(use) == _seen(use)
    assert len(_seen(use)) == 3


def test_outside_of_stages_the_clock_is_the_real_one() -> None:
    """After a run everything is as it was."""
    before = time.time, random.random, uuid.uuid4, time.sleep
    _seen(time.time)
    assert (time.time, random.random, uuid.uuid4, time.sleep) == before


def test_sleeping_costs_virtual_time_only() -> None:
    """A minute by ``time.sleep``, by the context and by asyncio (simulation X-24)."""

    async def handle(message: object, context: Context) -> None:
        del message
        begun = monotonic()
        time.sleep(20)
        context.sleep(20)
        await asyncio.sleep(20)
        assert monotonic() - begun >= 60

    result, outcome = run_one(handler_subject(lambda: handle, [1]), Options(messages=1))
    assert outcome.dead == 0
    assert result.violations == ()


def _writes(folder: Path) -> Handler:
    def write(message: object) -> object:
        return (folder / "out.txt").write_text(str(message))

    return write


def _opens_a_socket(message: object) -> object:
    del message
    return socket.socket()


def _starts_a_thread(message: object) -> object:
    thread = threading.Thread(target=print)
    thread.start()
    return message


def _fine(run: object) -> bool:
    del run
    return True


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (_opens_a_socket, "opens a socket"),
        (_starts_a_thread, "starts a thread"),
    ],
)
def test_what_can_not_be_simulated_is_refused_with_its_place(use: Handler, said: str) -> None:
    """File and line of the stage are in the text (simulation X-25, XT-4)."""
    with pytest.raises(CannotSimulate, match=said) as refused:
        run_one(handler_subject(lambda: use, [1]), Options(messages=1))
    assert f"{Path(__file__).name}:" in str(refused.value)


def test_writing_to_a_file_is_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(CannotSimulate, match=r"out\.txt"):
        run_one(handler_subject(lambda: _writes(tmp_path), [1]), Options(messages=1))
    assert list(tmp_path.iterdir()) == []


def test_a_private_source_of_chance_shows_when_a_seed_is_run_twice() -> None:
    """The stage draws from a generator that nobody can replace (simulation X-25, XT-3)."""
    own = random.Random(7)

    def handle(message: object) -> object:
        del message
        return own.random()

    with pytest.raises(NotDeterministic, match="went two ways"):
        simulation_of(lambda: (handle, _fine), messages=[1, 2]).run(range(2))
