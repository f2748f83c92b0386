"""Rows become a story: steps, frames, and what each step did to one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind
from surepipe.simulation.report.story import DRAIN, OTHERS, FrameEnd, Step, Story, fold
from surepipe.simulation.report.telling import tell
from surepipe.simulation.report.whereabouts import Stages, Usual
from surepipe.simulation.results import RunResult
from tools.counterexample_rows import PIPE, Run, confirmed


def about(message: int, step: int = -1) -> Violation:
    """A violation that is about this message."""
    return Violation("P2", "no loss", step, "It broke.", PIPE, 1, message, message)


def story(run: Run, message: int = 1) -> Story:
    """The story of a whole run, about one message."""
    return tell(run.result(), None, focus=about(message))


def told(step: Step) -> tuple[str, str, str]:
    """What readers see of a step."""
    return step.node, step.does, step.effect


def test_one_event_with_all_that_it_caused_is_one_step() -> None:
    """Accept and transmit, receive and deliver and confirm: as sentences, with pronouns."""
    run = Run("any")
    run.submit(1)
    run.arrive(run.send(1))
    run.deliver(1)
    confirmed(run, [1])
    assert [told(step) for step in story(run).steps] == [
        ("sender", "accepts #1, transmits it", "#1 is on its way"),
        ("receiver", "receives #1, delivers it, settles it, confirms it", "#1 is delivered"),
        ("sender", "hears: #1 confirmed, forgets it", "#1 is confirmed"),
    ]


def _backlog(run: Run) -> None:
    run.submit(1)
    run.crash("sender", "F8")


def _journal(run: Run) -> None:
    run.submit(1)
    run.does(Kind.PERSISTED, "sender", 1)
    run.crash("sender", "F9")
    run.start("sender")


def _flying(run: Run) -> None:
    run.submit(1)
    run.send(1)
    run.crash("sender", "F8")


def _lost(run: Run) -> None:
    run.submit(1)
    run.lose(run.send(1), "F1")


def _unheard(run: Run) -> None:
    run.submit(1)
    run.arrive(run.send(1))
    run.deliver(1)
    run.lose(run.send(1, link="receiver>sender", kind="confirm"), "F2")


def _twice(run: Run) -> None:
    run.submit(1)
    sent = run.send(1)
    run.copy(sent)
    run.arrive(sent)
    run.deliver(1)
    run.arrive(sent, copy=1)
    run.does(Kind.DELIVERED, "receiver", 1)


def _ignored(run: Run) -> None:
    run.submit(1)
    sent = run.send(1)
    run.copy(sent)
    run.arrive(sent)
    run.deliver(1)
    run.arrive(sent, copy=1)


def _late(run: Run) -> None:
    run.submit(1, 2)
    first, second = run.send(1), run.send(2)
    run.arrive(second)
    run.deliver(2)
    run.arrive(first)
    run.deliver(1)


def _early(run: Run) -> None:
    run.submit(2)
    run.submit(1)
    run.arrive(run.send(1))
    run.deliver(1)


def _wrongly_confirmed(run: Run) -> None:
    run.submit(1)
    run.lose(run.send(1), "F1")
    run.arrive(run.send(1, link="receiver>sender", kind="confirm"))
    run.does(Kind.CONFIRMED, "sender", 1)


def _dead(run: Run) -> None:
    run.submit(1)
    run.arrive(run.send(1))
    run.does(Kind.DEAD, "receiver", 1, detail='{"cause": "ValueError"}')


def _trimmed(run: Run) -> None:
    run.submit(1)
    run.arrive(run.send(1, link="sender>store"))
    run.does(Kind.APPENDED, "store", 1)
    run.arrive(run.send(1, link="store>sender", kind="confirm"))
    run.does(Kind.CONFIRMED, "sender", 1)
    run.does(Kind.TRIMMED, "store", 1)


def _committed(run: Run) -> None:
    run.submit(1)
    run.arrive(run.send(1))
    run.does(Kind.COMMITTED, "receiver", 1)


EFFECTS: dict[str, Callable[[Run], None]] = {
    "#1 is gone": _backlog,
    "#1 is read back from disk": _journal,
    "#1 leaves this memory, a copy is on its way": _flying,
    "#1 is lost on the way, sender has it": _lost,
    "nobody hears that #1 was taken": _unheard,
    "#1 is delivered again": _twice,
    "#1 is there already": _ignored,
    "#1 comes out after #2": _late,
    "#2 comes out before #1": _early,
    "#1 is forgotten, never delivered": _wrongly_confirmed,
    "#1 is a dead letter": _dead,
    "#1 counts as done, and is not": _committed,
}


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_last_step_says_what_it_did_to_the_message(effect: str) -> None:
    """X-56: short histories by hand; what counts is where copies of the message are left."""
    run = Run("any")
    EFFECTS[effect](run)
    assert story(run, int(effect[effect.index("#") + 1])).steps[-1].effect == effect


def test_what_a_store_trims_before_anybody_read_it_is_gone() -> None:
    """The sender has forgotten it, nothing is on its way, and the store was the last that had it."""
    run = Run("any")
    _trimmed(run)
    assert story(run).steps[-1].effect == "#1 is gone"


@pytest.mark.parametrize(("lost", "effect"), [(1, ""), (2, "#1 is gone")])
def test_a_store_that_loses_its_last_writes_loses_the_messages_among_them(
    lost: int, effect: str
) -> None:
    """F14: of two appended messages, the first is lost with the last two writes, not with the last."""
    run = Run("any")
    run.submit(1, 2)
    run.arrive(run.send(1, 2, link="sender>store"))
    run.does(Kind.APPENDED, "store", 1)
    run.does(Kind.APPENDED, "store", 2)
    run.arrive(run.send(1, 2, link="store>sender", kind="confirm"))
    run.does(Kind.CONFIRMED, "sender", 1, 2)
    run.fault("stream", "last writes lost", "F14", verb="rollback", lost=lost)
    (step,) = (step for step in story(run).steps if step.fault)
    assert (step.node, step.effect) == ("store", effect)


def test_a_message_is_held_from_its_acceptance_to_its_confirm() -> None:
    """The stretches that the picture draws along the lines of the nodes."""
    run = Run("any")
    run.submit(1)
    run.arrive(run.send(1))
    run.deliver(1)
    confirmed(run, [1])
    (held,) = story(run).held
    assert (held.node, held.begin, held.end, held.stays) == ("sender", 0, 2, False)


def test_frames_are_matched_by_what_they_hold_when_no_cause_names_them() -> None:
    """An explored run names the row before as the cause: the first frame of the same content it is."""
    run = Run("any")
    _twice(run)
    for row in run.rows:
        row.cause = ""
    fates = [(arrow.text, arrow.fate) for arrow in story(run).arrows]
    assert fates == [("#1", FrameEnd.ARRIVED), ("#1, copy", FrameEnd.ARRIVED)]


def test_a_message_keeps_its_number_when_a_new_life_counts_anew() -> None:
    """X-30: a row `renumbered` gives message 2 of the first life the first number of the second."""
    run = Run("any")
    run.submit(1, 2)
    run.does(Kind.RENUMBERED, "sender", 2, detail='{"epoch": 2, "seq": 1}')
    run.deliver(1)
    run.rows[-1].epoch = run.rows[-2].epoch = 2
    assert story(run, 2).steps[-1].effect == "#2 comes out before #1"


def test_crashes_take_the_names_of_their_faults_from_the_script() -> None:
    """A crash row names its node only; two decisions at that node are told of in their order."""
    run = Run("any")
    run.submit(1)
    run.crash("sender", "F9")
    run.start("sender")
    run.crash("sender", "F8")
    assert [step.fault for step in story(run).steps] == ["", "F9", "", "F8"]


def test_a_story_ends_with_the_violating_step() -> None:
    """What happens after the step at which the property is first false is not told."""
    run = Run("any")
    run.submit(1)
    sent = run.send(1)
    run.arrive(sent)
    run.deliver(1)
    broken = replace(about(1), step=sent.step)
    ended = tell(run.result(broken), broken)
    assert [(step.does, step.violates) for step in ended.steps] == [
        ("accepts #1, transmits it", True)
    ]


def long_run(messages: int) -> RunResult:
    """Many messages; the one in the middle is lost."""
    run = Run("any", messages=messages)
    for message in range(1, messages + 1):
        run.submit(message)
        sent = run.send(message)
        if message == messages // 2:
            run.lose(sent, "F1")
        else:
            run.arrive(sent)
            run.deliver(message)
            confirmed(run, [message])
    run.end()
    return run.result()


@pytest.mark.parametrize("rows_max", [3, 6, 15, 40])
def test_a_long_story_is_folded_to_what_concerns_the_message(rows_max: int) -> None:
    """X-58: 60 messages, one of them lost: its steps and the fault stay, the others are counted."""
    whole = tell(long_run(60), None, focus=about(30))
    folded = fold(whole, rows_max)
    assert len(folded.steps) <= rows_max
    assert "F1" in [step.fault for step in folded.steps]
    hidden = sum(step.folded for step in folded.steps)
    assert hidden + sum(not step.folded for step in folded.steps) == len(whole.steps)
    assert {step.node for step in folded.steps if step.folded} == {OTHERS}


def test_calls_of_stages_are_not_hidden_where_no_message_can_be_named() -> None:
    """X-56: what decides is one of them; frames around them are counted."""
    run = Run("any", messages=30)
    for message in range(1, 31):
        run.submit(message)
        run.arrive(run.send(message))
        confirmed(run, [message])
        if message == 15:
            run.does(Kind.CALLED, "receiver", message, detail='{"stage":"price"}')
    run.end()
    folded = fold(tell(run.result(), None), 6).steps
    assert [step.does for step in folded if step.kind == Kind.CALLED] == ["calls price with #15"]
    assert len(folded) <= 6


def test_the_drain_is_one_row_unless_it_touches_the_message() -> None:
    """X-56: what happens after healing is counted; the deliveries of the message in it are told."""
    run = Run("any")
    run.submit(1, 2)
    first, second = run.send(1), run.send(2)
    run.phase("heal")
    run.arrive(second)
    run.deliver(2)
    run.wake("receiver")
    run.arrive(first)
    run.deliver(1)
    run.end()
    folded = fold(story(run), 40).steps
    assert [step.node for step in folded] == ["sender", DRAIN, "receiver", "end"]
    assert folded[1].does == "healed; 1 wake, 1 frame, 1 delivered"


def test_the_nearest_schedule_that_holds_does_not_end_as_the_one_that_breaks() -> None:
    """X-56: both stories are about one message at one sink; where it holds, the message came out."""
    run = Run("any")
    run.submit(1)
    run.arrive(run.send(1))
    run.does(Kind.CALLED, "receiver", 1, detail='{"stage":"price"}')
    run.end()
    result = run.result()
    lost = replace(about(1, result.rows[-1].step), end="out")
    assert tell(result, lost).steps[-1].effect == "#1 never came out at out"
    assert tell(result, None, focus=lost).steps[-1].effect == "#1 came out at out"


def test_what_comes_out_of_no_accepted_message_has_no_number() -> None:
    """A picture that names #0 sends its reader looking for a message that is not there."""
    found = [
        Stages(Violation(known, "", 9, "", position=place, end="out"), Usual(), {}).ends()
        for known, place in (("P3", 0), ("user", 0), ("P3", 2))
    ]
    assert found == [
        "a message came out wrongly at out",
        "a message is not as it should be at out",
        "#2 came out wrongly at out",
    ]
