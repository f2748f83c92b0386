"""The harness of the real-process stages: it is loud, it counts, and its judge bites."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from surepipe.core.store_requests import KEEP_ALL
from surepipe.storage import SqliteStore
from tests.real.history import AT_LEAST_ONCE, Anomaly, History, Message
from tests.real.run import (
    CANNOT_RUN,
    FAILED,
    PASSED,
    WAIVED,
    Result,
    alone,
    chosen,
    closing_block,
    known_names,
    main,
    run_stage,
)
from tests.real.stage import Stage, Tally
from tests.real.stages import STAGES
from tests.real.waivers import Waiver, read_waivers
from tests.real.workers import Worker, WorkerFailed


def two_things(rng: Random, tally: Tally) -> None:
    """A stage that does two things."""
    del rng
    with tally.timed("both"):
        tally.add("things", 2)


def stage(least: int = 2, missing: str = "") -> Stage:
    """One that does two things."""
    return Stage("cuts", "power", two_things, {"things": least}, lambda: missing, omits="others")


# Loud, never silent.


def test_a_stage_ends_with_one_line() -> None:
    """X-73: what ran, how much, what was not exercised, the slowest, and the seed."""
    result = run_stage(stage(), 7)
    assert result.status == PASSED
    for part in (
        "cuts: 2 things",
        "slowest: both 0.00 s",
        "not exercised: others",
        " MB",
        "seed 7",
    ):
        assert part in result.text
    assert "\n" not in result.text


def test_a_count_below_the_minimum_is_a_failure() -> None:
    """X-67: it ran without an error, and did too little."""
    result = run_stage(stage(least=3), 7)
    assert result.status == FAILED
    assert "below the minimum: things: 2 of 3" in result.text


def test_a_stage_that_breaks_fails_with_its_seed() -> None:
    """X-65: whatever is raised, the text has what repeats the schedule."""

    def breaks(rng: Random, tally: Tally) -> None:
        del rng
        tally.add("things")
        raise Anomaly("message #3 is lost")

    result = run_stage(Stage("cuts", "power", breaks, {}, str), 7)
    assert result.status == FAILED
    for part in ("with seed 7", "so far 1 things", "message #3 is lost"):
        assert part in result.text


HANGS = """
import threading
from tests.real.run import run_watched
from tests.real.stage import Stage

def waits_for_ever(rng, tally):
    threading.Event().wait()

run_watched(Stage("cuts", "power", waits_for_ever, {}, str), 7, within_s=0.1)
"""


def test_a_stage_that_hangs_says_where_and_fails() -> None:
    """It waits for something that never comes; in a process of its own, as it is ended (X-65, X-73)."""
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, check=False
    )
    assert done.returncode == FAILED
    assert "Timeout" in done.stdout
    assert "in waits_for_ever" in done.stdout


@pytest.mark.parametrize(
    ("in_ci", "waived", "is_well"),
    [(True, "", False), (True, "cuts", True), (True, "power", True), (False, "", True)],
)
def test_a_stage_that_can_not_run_fails_in_ci_unless_it_is_waived(
    in_ci: bool, waived: str, is_well: bool
) -> None:
    """X-67, XT-11: by its own name or its group's; on a laptop it is passed over. Told in each case."""
    result = run_stage(stage(missing="no /dev/fuse"), 7)
    assert (result.status, result.text) == (CANNOT_RUN, "CANNOT RUN cuts: no /dev/fuse")
    day = datetime.date(2026, 3, 1)
    waivers = [Waiver(waived, day, "no device in the runners")] if waived else []
    text, verdict = closing_block([result], waivers, in_ci=in_ci)
    assert verdict is is_well
    assert "CANNOT RUN cuts: no /dev/fuse" in text
    assert not waived or f"waived: {waived} (since 2026-03-01): no device in the runners" in text


def test_a_waiver_forgives_no_failure() -> None:
    """X-67: it is for stages that can't run; one that ran and broke stays broken."""
    failed = Result(stage(), FAILED, "FAILED cuts")
    waiver = Waiver("cuts", datetime.date(2026, 3, 1), "because")
    assert closing_block([failed], [waiver], in_ci=True)[1] is False


def test_when_all_ran_and_nothing_is_waived_nothing_is_said() -> None:
    """No block without a reason."""
    assert closing_block([run_stage(stage(), 7)], [], in_ci=True) == ("", True)


def test_waivers_are_read_with_date_and_reason(tmp_path: Path) -> None:
    """X-67: comments and empty lines are passed over; no file is no waiver."""
    path = tmp_path / "waived"
    assert read_waivers(path, known_names()) == []
    path.write_text("# none yet\n\npower 2026-03-01 no device  # in the runners\n")
    (waiver,) = read_waivers(path, known_names())
    assert waiver == Waiver("power", datetime.date(2026, 3, 1), "no device")


@pytest.mark.parametrize(
    ("line", "says"),
    [("power", "a date"), ("power 2026-03-01", "a reason"), ("pwoer 2026-03-01 x", "no stage"),
     ("power yesterday x", "yesterday")],
)  # fmt: skip
def test_a_waiver_that_nobody_can_judge_is_refused(line: str, says: str, tmp_path: Path) -> None:
    """X-67: without a date, without a reason, for a stage that is not there."""
    path = tmp_path / "waived"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=says):
        read_waivers(path, known_names())


def test_the_waivers_of_this_repository_can_be_read() -> None:
    """X-67: whatever stands there."""
    assert isinstance(read_waivers(WAIVED, known_names()), list)


def test_stages_are_chosen_by_name_and_by_group() -> None:
    """In their own order; nothing chosen is all; a name that is neither is told with those that are."""
    assert [one.name for one in chosen(["threads", "power"])] == ["cuts", "full", "threads"]
    assert chosen([]) == list(STAGES)
    with pytest.raises(
        ValueError, match="there are cut-nodes, cuts, drivers, executors, full, kills"
    ):
        chosen(["pwoer"])


def test_a_stage_called_as_its_group_is_run_alone() -> None:
    """Each runs in a process of its own, which is told nothing but its name; ``netns`` is a group of two, too."""
    assert [alone(one.name) for one in STAGES] == list(STAGES)


def test_every_stage_has_a_minimum() -> None:
    """X-67: a stage that may do nothing proves nothing."""
    assert all(one.minimum and min(one.minimum.values()) > 0 for one in STAGES)


def test_a_stage_run_by_the_command_ends_with_its_status(capfd: pytest.CaptureFixture[str]) -> None:
    """The shortest real one, in a process of its own."""
    assert main(["full"]) in (PASSED, CANNOT_RUN)
    assert capfd.readouterr().out.startswith(("full: 10 full under sqlite", "CANNOT RUN full"))


# The judge.


def history_of(*lives: tuple[int, int]) -> History:
    """Lives with so many accepted messages each."""
    history = History("test", "real")
    for life, count in lives:
        for say in ("offering", "accepted"):
            history.hear({"say": say, "life": life, "first": 1, "count": count})
    return history


GOOD: list[Message] = [(1, 1), (1, 2), (2, 1)]


def test_a_history_that_kept_its_promises_is_accepted() -> None:
    """X-65: two lives, every message once, in order."""
    history = history_of((1, 2), (2, 1))
    history.settled(GOOD)
    history.check()


@pytest.mark.parametrize(
    ("effects", "says"),
    [
        ([(1, 1), (2, 1)], "P2"),
        ([(1, 1), (1, 2), (1, 2), (2, 1)], "P3"),
        ([(1, 1), (2, 1), (1, 2)], "P4"),
        ([(1, 2), (1, 1), (2, 1)], "P6g"),
        ([*GOOD, (2, 2)], "P1"),
    ],
)
def test_a_planted_fault_of_each_kind_is_seen(effects: list[Message], says: str) -> None:
    """X-65: a loss, a repeat, a swap of lives, a swap, and a message that nobody sent."""
    history = history_of((1, 2), (2, 1))
    history.settled(effects)
    with pytest.raises(Anomaly, match=says):
        history.check()


def test_a_repeat_is_fine_where_only_loss_is_excluded() -> None:
    """X-65: judged by what is claimed."""
    history = history_of((1, 2), (2, 1))
    history.settled([*GOOD, (1, 2)])
    history.check(AT_LEAST_ONCE)


@pytest.mark.parametrize("reached", [0, 1, 3])
def test_what_was_offered_when_the_sender_died_may_come_or_not(reached: int) -> None:
    """X-33: none, some or all of a batch of unknown fate; the next life follows."""
    history = history_of((1, 2))
    history.hear({"say": "offering", "life": 1, "first": 3, "count": 3})
    history.crashed("sender", 1)
    for say in ("offering", "accepted"):
        history.hear({"say": say, "life": 2, "first": 1, "count": 1})
    effects = [(1, number) for number in range(1, 3 + reached)]
    history.settled([*effects, (2, 1)])
    history.check()


def test_a_hole_in_what_was_offered_is_seen() -> None:
    """X-33: unknown is no excuse for the middle of a batch."""
    history = history_of((1, 2))
    history.hear({"say": "offering", "life": 1, "first": 3, "count": 3})
    history.crashed("sender", 1)
    history.settled([(1, 1), (1, 2), (1, 5)])
    with pytest.raises(Anomaly, match="P6g"):
        history.check()


def test_a_zombies_last_words_may_be_heard_late() -> None:
    """X-65: what it was told before it stood still belongs before the next life."""
    history = History("test", "real")
    history.hear({"say": "offering", "life": 1, "first": 1, "count": 2})
    for say in ("offering", "accepted"):
        history.hear({"say": say, "life": 2, "first": 1, "count": 1})
    history.hear({"say": "accepted", "life": 1, "first": 1, "count": 2})
    history.settled(GOOD)
    history.check()


# Workers.


def test_a_worker_plays_dies_and_plays_again(tmp_path: Path) -> None:
    """X-65: SIGKILL takes the child only; the next part begins in the same worker."""
    with Worker("writer") as worker:
        for name in ("first.db", "second.db"):
            with SqliteStore(tmp_path / name) as store:
                store.create("s", 1, KEEP_ALL)
            worker.play("append", where=str(tmp_path / name), level="PROCESS", seed=1)
            worker.wait_for("stored", 2)
            worker.kill()
        assert worker.incarnation == 2


def test_a_worker_that_fails_says_why() -> None:
    """X-65: the traceback of the child, not a silence."""
    with Worker("writer") as worker:
        worker.play("append", where="/no/such/folder/x.db", level="PROCESS", seed=1)
        with pytest.raises(WorkerFailed, match=r"no/such/folder"):
            worker.wait_for("stored")
