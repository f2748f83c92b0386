"""What is shown of a running pipeline: its parts, their numbers, and what they guarantee."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from surepipe.actors.notices import PipeNotice
from surepipe.core.effects import NoticeKind
from surepipe.drawing.flow import svg_of
from surepipe.observe.status import LetterSeen, Part, PipeFlow, StoreSeen, is_worrying
from surepipe.observe.watch import RunFacts
from surepipe.pipelines.diagram import diagram_of
from surepipe.pipelines.live import live_page
from surepipe.pipelines.live.page import live_diagram
from tests.pipelines.live.plans import Shop


def picture(shop: Shop) -> str:
    """The picture of now."""
    return svg_of(live_diagram(diagram_of(shop.plan, shop.assessment), shop.watch.status()))


def test_the_status_has_every_part_with_what_feeds_it_and_what_it_guarantees() -> None:
    """As the plan and its check say; keys as a reader of the JSON finds them."""
    shop = Shop()
    shop.run(10)
    status = shop.watch.status().model_dump(mode="json", by_alias=True)
    parts = {part["name"]: part for part in status["parts"]}
    assert list(parts) == [part.name for part in shop.plan.order]
    assert parts["intake"]["from"] == ["web", "app"]
    assert parts["intake"]["guarantee"] == "exactly-once, absolute"
    assert "route-loss" in parts["intake"]["tolerates"]
    assert (parts["out"]["node"], parts["out"]["here"]) == ("books", False)
    assert parts["second"]["flow"]["settled"] is None


def test_latencies_are_found_under_the_name_that_the_pipe_has_in_traces() -> None:
    """The engine names its pipes after pipeline and part."""
    shop = Shop()
    where: dict[str, str | int] = {"pipe": "shop/intake", "epoch": 1, "seq": 1, "count": 5}
    shop.latencies.write({**where, "kind": "accepted", "time_us": 0})
    shop.latencies.write({**where, "kind": "settled", "time_us": 900})
    shop.run(5)
    flow = shop.watch.status().pipes[0].flow
    assert flow is not None
    assert flow.settling is not None
    assert (flow.settling.count, flow.settling.p99_ms) == (5, 1.0)


def test_arrows_carry_what_their_end_takes_and_with_several_feeders_what_each_gives() -> None:
    """80 messages in 2 seconds; app gave none, and what runs elsewhere is not known here."""
    shop = Shop()
    shop.run(80, seconds=2.0)
    diagram = live_diagram(diagram_of(shop.plan, shop.assessment), shop.watch.status())
    labels = {(arrow.start, arrow.end): arrow.label for arrow in diagram.arrows}
    assert labels == {
        ("web", "intake"): "40/s",
        ("app", "intake"): "",
        ("intake", "price"): "40/s",
        ("price", "second"): "40/s",
        ("price", "log"): "40/s",
        ("second", "large"): "",
        ("large", "out"): "",
    }


def test_nothing_moves_in_the_picture_when_numbers_change() -> None:
    """Boxes of nothing, of small numbers and of the largest."""
    shop = Shop()
    found: set[tuple[str, ...]] = set()
    for messages in (0, 7, 9_999, 10**15):
        shop.run(messages, retransmitted=messages, dead_lettered=messages, backlog=messages)
        boxes = re.findall(r'<rect class="box"[^>]*>', picture(shop))
        assert len(boxes) == len(shop.plan.parts)
        found.add(tuple(boxes))
    assert len(found) == 1


def test_the_picture_is_whole_xml_and_marks_what_needs_a_look() -> None:
    """A pipe with dead letters, and parts of another node."""
    shop = Shop()
    shop.run(10, dead_lettered=2)
    groups = [
        group.get("class")
        for group in ElementTree.fromstring(picture(shop)).iter("{http://www.w3.org/2000/svg}g")
    ]
    assert groups.count("pipe warn") == 1
    assert groups.count("stage away") == groups.count("sink away") == 1


@pytest.mark.parametrize(
    ("flow", "worries"),
    [
        (PipeFlow(), False),
        (PipeFlow(unconfirmed=500, oldest_unconfirmed_s=9.0, retransmitted=9), False),
        (PipeFlow(oldest_unconfirmed_s=11.0), True),
        (PipeFlow(dead_letters=1), True),
        (PipeFlow(given_up=1), True),
    ],
)
def test_a_pipe_worries_when_it_is_stuck_or_has_given_something_up(
    flow: PipeFlow, worries: bool
) -> None:
    """Sending again does not: that is what pipes are for."""
    assert is_worrying(Part(name="p", role="pipe", flow=flow)) is worries


def test_the_page_tells_everything_and_nothing_in_it_is_markup_of_others() -> None:
    """A notice with tags in it."""
    shop = Shop()
    shop.run(12_345, dead_lettered=3)
    shop.watch.notice(
        PipeNotice(
            "intake", "sender", NoticeKind.UNANSWERED, 7, ((3, 5),), "<script>alert(1)</script>"
        )
    )
    page = live_page(diagram_of(shop.plan, shop.assessment), shop.watch.status())
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "Unanswered, epoch 7, messages 3 to 5" in page
    assert "12.3k" in page
    assert "<b>exactly-once, absolute</b> through network" in page
    assert "on node books" in page


def test_the_page_names_a_silent_store_the_last_dead_letters_and_what_is_left_to_read() -> None:
    """What does not answer is not shown as nought, and not in the colour of what goes well."""
    shop = Shop()
    shop.run(100)
    shop.watch.beside = RunFacts(
        stores=lambda: (StoreSeen(name="main", silent_s=22.0, says="connection refused"),),
        letters=lambda: (
            LetterSeen(
                stream="main/dead",
                pipe="shop/intake",
                epoch=7,
                seq=3,
                error="ValueError",
                text="no price for <b>",
            ),
        ),
        progress=lambda: {"web": (1, 4, 1)},
    )
    for _ in range(3):
        shop.run(200)
        shop.watch.sample()
    page = live_page(diagram_of(shop.plan, shop.assessment), shop.watch.status())
    assert "store main has not answered for 22 s" in page
    assert '<span class="state silentstore">running' in page
    assert "<b>ValueError</b>: no price for &lt;b&gt;" in page
    assert "message 3, in main/dead" in page
    assert "25 % read" in page
    assert "<dt>waiting</dt><dd>–</dd>" in page
    assert page.count("<polyline") == 2
