"""Worlds of more than two nodes: a relay, two senders with one receiver, and what befalls each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from surepipe.audit.properties import judge
from surepipe.audit.trace import Row
from surepipe.errors import ConfigurationError
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation import (
    HopSubject,
    Layout,
    Options,
    PipeBetween,
    promise_of,
    replay,
    run_hop,
)
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.hop import rows_through
from surepipe.simulation.results import RunResult
from tests.simulation.kit import COUNTING, RETRY, of_kind

SEEDS = 16
FEW = Options(messages=3)


def pipe(name: str, sender: str, receiver: str, *, journaled: bool = False) -> PipeBetween:
    """One that sends again."""
    subject = HopSubject({"reliable": RETRY}, pipe=name, name=name, journaled=journaled)
    return PipeBetween(subject, sender, receiver)


RELAY = Layout(
    "relay",
    [pipe("first", "alice", "relay"), pipe("second", "relay", "bob")],
    relays={"first": "second"},
)
HASTY = replace(RELAY, name="hasty relay", hand_over=Boundary.HANDED)
KEPT = Layout(
    "relay with a journal",
    [pipe("first", "alice", "relay"), pipe("second", "relay", "bob", journaled=True)],
    relays={"first": "second"},
)
FAN_IN = Layout("fan-in", [pipe("one", "alice", "carol"), pipe("two", "bob", "carol")])


def told(layout: Layout, *decisions: Decision, options: Options = FEW) -> RunResult:
    """A run by decisions, all of which found something to act on."""
    result = run_hop(layout, options, ScriptChooser(decisions, seed=1))
    assert result.stale is None, result.stale
    return result


def name_of(value: object) -> str:
    """Of a parameter, for the name of its test."""
    return value.name if isinstance(value, Layout) else str(value)


def crash(node: str, event: str, point: int = -1, for_us: int = 1_000) -> Decision:
    """The node ends at this event of one of its ends."""
    return Decision(f"faults/{node}", f"{node}: {event}", "crash", (point, for_us), "F10")


def came_out(rows: Sequence[Row], name: str) -> Counter[tuple[int, int]]:
    """The messages that were settled in a pipe, by identity."""
    return Counter((row.epoch, row.seq) for row in of_kind(rows, "settled") if row.pipe == name)


@pytest.mark.parametrize("layout", [RELAY, KEPT, FAN_IN], ids=name_of)
def test_a_layout_keeps_its_claim_while_each_of_its_nodes_crashes(layout: Layout) -> None:
    """simulation X-18, X-34: drawn faults that the claim covers, on links and nodes; each run repeats."""
    crashed: Counter[str] = Counter()
    for seed in range(SEEDS):
        options = draw_options(seed, promise_of(layout), mode=Mode.CLAIM, messages=6)
        result = run_hop(layout, options)
        assert result.violations == (), f"seed {seed}: {result.violations[0]}"
        crashed.update(row.node.partition("/")[0] for row in of_kind(result.rows, "crash"))
        if seed % 4 == 0:
            again = replay(layout, result.script)
            assert (again.digest, again.stale) == (result.digest, None)
    assert crashed.keys() == {name for one in layout.pipes for name in (one.sender, one.receiver)}


def test_a_message_goes_from_the_first_node_to_the_last() -> None:
    """The rows of a chain are those of one pipe, under the identities of the first."""
    rows = told(RELAY).rows
    assert came_out(rows, "second") == Counter({(1, 1): 1, (1, 2): 1, (1, 3): 1})
    through = rows_through(rows, RELAY.chains[0], {"no-loss": []})
    kinds = Counter(row.kind for row in through if row.pipe == "first to second")
    assert kinds == Counter({"accepted": 3, "delivered": 3, "settled": 3})


def test_the_ends_of_a_node_crash_and_start_together() -> None:
    """A relay ends when its handler has called: both its ends begin a second life, and nothing is lost."""
    result = told(RELAY, crash("relay", "relay/first settled 1..1 of handle e1 1+1 a1"))
    lives = [(row.node, row.incarnation) for row in of_kind(result.rows, "start")]
    assert lives.count(("relay/first", 2)) == lives.count(("relay/second", 2)) == 1
    assert ("alice", 2) not in lives
    assert not result.violations


def test_what_one_link_does_leaves_the_other_pipe_alone() -> None:
    """A fan-in: a lost frame of one sender is sent again, and none of the other."""
    lost = Decision("network/alice>carol/one", "one/0 data e1 1+1 a1", "lose", (), "F1")
    result = told(FAN_IN, lost)
    again = {
        row.pipe
        for row in of_kind(result.rows, "transmit")
        if row.layer == "0" and row.count and row.attempt > 1
    }
    assert again == {"one"}
    assert not result.violations


LOST_BEHIND = Decision("network/relay/second>bob", "second/0 data e1 1+1 a1", "lose", (), "F1")
SETTLED = "relay/first settled 2..3 of handle e1 2+2 a1"


@pytest.mark.parametrize(
    ("layout", "keeps"), [(HASTY, False), (RELAY, True), (KEPT, True)], ids=name_of
)
def test_a_relay_that_hands_over_too_early_loses_and_the_judge_says_so(
    layout: Layout, keeps: bool
) -> None:
    """A planted error: the relay confirms what only its memory has, the frame behind it is lost, and it crashes.

    Held to what a careful relay claims, no loss is broken; what the hasty one claims says so.
    """
    rows = told(layout, LOST_BEHIND, crash("relay", SETTLED, 9)).rows
    careful = promise_of(RELAY).claim
    found = judge(rows_through(rows, layout.chains[0], careful), ["P2"])
    assert [violation.property for violation in found] == ([] if keeps else ["P2"])
    assert ("relay-crash" in promise_of(layout).claim["no-loss"]) is keeps
    assert "relay-crash" in careful["no-loss"]


def test_a_relay_sends_on_what_stands_before_a_message_that_its_handler_raises_for() -> None:
    """Three in one delivery, and it raises for the last: the two before it are settled, and must have gone on."""
    layout = replace(
        RELAY,
        pipes=[PipeBetween(HopSubject("reliable", pipe="first"), "alice", "relay"), RELAY.pipes[1]],
    )
    call = "relay/first handle e1 1+3 a1"
    rows = told(
        layout,
        Decision("stage/handler", call, "raise", (3,), "F20"),
        options=replace(FEW, shape="at-once"),
    ).rows
    assert came_out(rows, "second") == Counter({(1, 1): 1, (1, 2): 1, (1, 3): 1})


@pytest.mark.parametrize(
    ("pipes", "relays", "said"),
    [
        ((), {}, "at least one"),
        ((pipe("one", "a", "b"), pipe("one", "b", "c")), {}, "a name of its own"),
        ((pipe("one", "a", "b"), pipe("two", "c", "d")), {"one": "two"}, "where the first ends"),
        ((pipe("one", "a", "b"),), {"one": "two"}, "both must be its pipes"),
        (
            (pipe("one", "a", "b"), pipe("two", "c", "b"), pipe("three", "b", "d")),
            {"one": "three", "two": "three"},
            "fed by one other pipe",
        ),
        ((pipe("one", "a", "b"), pipe("two", "b", "a")), {"one": "two", "two": "one"}, "circle"),
    ],
)
def test_a_layout_that_can_not_be_is_refused(
    pipes: Sequence[PipeBetween], relays: dict[str, str], said: str
) -> None:
    """With what is wrong."""
    with pytest.raises(ConfigurationError, match=said):
        Layout("wrong", pipes, relays=relays)


def test_the_example_of_the_documents_runs() -> None:
    """The block of docs/simulation.md, as it stands there."""
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text()
    [code] = [
        block.partition("```")[0] for block in text.split("```python\n")[1:] if "Layout(" in block
    ]
    exec(code, {})


def test_machines_of_ones_own_are_laid_out_too() -> None:
    """X-3: any pair of machines can be between two nodes; here those that the simulator is tested with."""
    layout = Layout("counting", [PipeBetween(COUNTING, "left", "right")])
    assert run_hop(layout, FEW, judge=None).limit == ""
