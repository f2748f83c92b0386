"""Mistakes that are easily made in a replicated queue, each planted, and found by a seed of the troubled runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from surepipe.queues.rmq.catchain import LogMachine, Voice
from surepipe.queues.rmq.chain import VoteChain
from surepipe.queues.rmq.epochs import SealProof
from surepipe.queues.rmq.node import NodeMachine
from surepipe.queues.rmq.session import SessionMachine
from surepipe.queues.rmq.stored_log import Release, Released
from tests.queues.rmq.log_network import Guard, KeyedHash
from tests.queues.rmq.test_epochs import (
    test_a_record_that_nobody_sealed_is_not_believed as only_sealed_records,
)
from tests.queues.rmq.test_epochs import (
    test_an_idle_queue_has_one_seal_an_epoch as one_seal_an_epoch,
)
from tests.queues.rmq.test_epochs import (
    test_what_a_seal_leaves_is_decided_in_the_next_epoch as what_is_left_is_decided,
)
from tests.queues.rmq.test_epochs import (
    test_work_of_the_epoch_before_is_not_done_again as work_is_not_done_again,
)
from tests.queues.rmq.test_log import test_logs_agree_after_any_troubles as run_log
from tests.queues.rmq.test_session import run_troubled

_begin_chain, _replay = VoteChain.__init__, SessionMachine._replay  # pyright: ignore[reportPrivateUsage] - planted changes


def _one_vote_less(
    chain: VoteChain, session: bytes, voters: object, quorum: int, keys: object
) -> None:
    _begin_chain(chain, session, voters, quorum - 1, keys)  # type: ignore[arg-type]


def _votes_are_forgotten(session: SessionMachine) -> None:
    _replay(session)
    session._voted.clear()  # pyright: ignore[reportPrivateUsage] - planted


def _signs_anything(guard: Guard, request: Release, keys: KeyedHash) -> Released:
    del guard
    return Released(keys.sign(request.signed))


def _speaks_at_once(machine: LogMachine, now: int) -> None:
    del now
    machine.voice = Voice.SPEAKING


def _nobody_is_blamed(machine: LogMachine, entry: object, now: int) -> None:
    del machine, entry, now


def queue_with_liar(seed: int) -> None:
    """A queue of four, one of them a twin."""
    run_troubled(seed, 1)


def log_without_liar(seed: int) -> None:
    """A log of four honest members, whose stores go back."""
    run_log(seed, 0)


def log_with_liar(seed: int) -> None:
    """A log of four, one of them a twin."""
    run_log(seed, 1)


@pytest.mark.parametrize(
    ("changes", "run", "seed"),
    [
        ([(VoteChain, "__init__", _one_vote_less)], queue_with_liar, 36),
        ([(SessionMachine, "_replay", _votes_are_forgotten)], queue_with_liar, 3),
        (
            [(Guard, "release", _signs_anything), (LogMachine, "_try_voice", _speaks_at_once)],
            log_without_liar,
            0,
        ),
        ([(LogMachine, "_look_for_fork", _nobody_is_blamed)], log_with_liar, 0),
    ],
    ids=["a-vote-less", "votes-forgotten", "guard-ignored", "forks-overlooked"],
)
def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch,
    changes: list[tuple[type, str, object]],
    run: Callable[[int], None],
    seed: int,
) -> None:
    """rmq CL-1, CL-5, RQ-25, RQ-66, RQ-94: by what must hold always; without the mistake the same seed is fine."""
    run(seed)
    for where, name, change in changes:
        monkeypatch.setattr(where, name, change)
    with pytest.raises(AssertionError):
        run(seed)


def _always(answer: object) -> Callable[..., object]:
    def planted(*_: object) -> object:
        return answer

    return planted


@pytest.mark.parametrize(
    ("where", "name", "change", "run"),
    [
        (SessionMachine, "_memory_behind", _always([]), work_is_not_done_again),
        (NodeMachine, "_hand_one", _always(0), what_is_left_is_decided),
        (SessionMachine, "_seal_due", _always(1), one_seal_an_epoch),
        (SealProof, "holds", _always(True), only_sealed_records),
    ],
    ids=["nothing-remembered", "nothing-handed-over", "sealed-at-any-time", "proofs-not-checked"],
)
def test_a_planted_mistake_between_epochs_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    change: Callable[..., object],
    run: Callable[[], None],
) -> None:
    """rmq RQ-8, RQ-10, RQ-13, RQ-34: by the test of what it breaks."""
    monkeypatch.setattr(where, name, change)
    with pytest.raises(AssertionError):
        run()
