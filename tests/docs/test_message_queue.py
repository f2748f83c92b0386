"""The page about the message queue: its programs run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.queues.message_queue import Message, OrderedQueue, StreamQueue
from surepipe.storage import SqliteStore
from tests.docs.kit import programs_in

PAGE = (Path(__file__).parents[2] / "docs" / "message-queue.md").read_text()
BLOCKS = programs_in(PAGE)


def test_a_queue_in_memory_says_when_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """message-queue Q-2: the first program."""
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out == "wait: FULL\n"


def test_a_queue_in_a_store_has_what_the_program_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """message-queue Q-9, Q-15: the second program, and another life behind it."""
    monkeypatch.chdir(tmp_path)
    exec(BLOCKS[1], {})
    with SqliteStore("shop.db") as store:
        queue = StreamQueue(store, "to the warehouse")
        assert queue.pick_many(9) == [Message(1, b"bread"), Message(2, b"butter")]


def test_a_transport_written_out_is_ten_lines_and_delivers_all_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """message-queue Q-27, Q-28: the third program, without its imports and the line that prints."""
    exec(BLOCKS[2], {})
    assert capsys.readouterr().out == "True 38\n"
    body = BLOCKS[2].split("Message\n", 1)[1].split("print", 1)[0]
    assert len([line for line in body.splitlines() if line]) == 10


def test_a_transport_out_of_a_queue_delivers_all_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """message-queue Q-27, Q-28: the fourth program."""
    exec(BLOCKS[3], {})
    assert capsys.readouterr().out == "True ()\n"


def test_the_rules_hold_a_queue_of_somebody_elses() -> None:
    """message-queue Q-20, Q-21: the fifth program, with a queue that is right."""
    names: dict[str, object] = {"MyQueue": OrderedQueue}
    exec(BLOCKS[4], names)
    test = names["test_every_state"]
    assert callable(test)
    test()
    case = names["TestMyQueue"]
    assert isinstance(case, type)
    case("runTest").runTest()
