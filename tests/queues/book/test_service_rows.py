"""How a book is served: the rows of its table, each on every kind of store."""

from __future__ import annotations

from typing import Literal

import pytest

from benchmarks.fairness import Bench
from surepipe.errors import ConfigurationError
from surepipe.queues.book import (
    BookConfig,
    BookMessage,
    Budget,
    Context,
    Cost,
    Later,
    Overheads,
    Reentrant,
    Stopped,
    TooHeavy,
)
from surepipe.queues.book.events import Failed, PageReaped, Parked, Signal
from tests.kit.book import SMALL, BookUnderTest, changed_config
from tests.queues.book.conftest import Make


def test_each_message_is_told_and_pages_hold_six(make: Make) -> None:
    """BQ-2, B-13: eighteen messages of one byte, singly."""
    book = make()
    for number in range(1, 19):
        book.put(A="x")
        assert book.changed() == [("A", number, number)]
    assert book.feet("A") == (3, 3, 18, 18)


def test_a_page_goes_with_its_last_message(make: Make) -> None:
    """BQ-4, B-4: three messages, two units a call."""
    book = make()
    book.put(A="a b c")
    assert [book.svc(2), book.svc(2), book.svc(2)] == [2, 1, 0]
    assert book.took() == "a b c"
    assert book.feet("A") == (0, 0, 0, 0)


def test_queues_take_turns_from_call_to_call(make: Make) -> None:
    """BQ-5, B-28, B-35: the head moves on by one with each call."""
    book = make()
    book.put(A="a ab abc", B="x xy xyz")
    book.changed()
    took: list[str] = []
    for units in (1, 1, 2, None):
        book.svc(units)
        took.append(book.took())
    assert took == ["a", "x", "ab abc", "xy xyz"]
    assert book.changed() == [("A", 2, 5), ("B", 2, 5), ("A", 0, 0), ("B", 0, 0)]


def test_an_emptied_queue_loses_its_place(make: Make) -> None:
    """BQ-6, B-17: B gets a message after it was emptied, and comes behind C."""
    book = make()
    book.put(A="a", B="b", C="c")
    book.svc(2)
    book.put(B="d")
    book.svc(2)
    assert book.took() == "a b c d"


def test_rejections_end_a_message_and_yield_keeps_it(make: Make) -> None:
    """BQ-7, B-33: two units a call, one of them for the item."""
    book = make(overheads=Overheads(item=1))
    book.put(A="badformat corrupt unsupported stacklimitreached yield")
    assert [book.svc(2) for _ in range(4)] == [2, 2, 2, 2]
    told = [str(event.reason) for event in book.told(Failed) if isinstance(event, Failed)]
    assert told == ["bad-format", "corrupt", "unsupported", "depth"]
    assert book.feet("A") == (1, 1, 1, 5)
    assert list(book.book.ledger.books["A"].pages) == [2]


def test_a_paused_queue_is_passed(make: Make) -> None:
    """BQ-8, B-18, B-48: A, then B, is paused and released again."""
    book = make()
    book.put(A="a1 a2 a3", B="b1 b2 b3")
    book.book.pause("A")
    book.svc(1)
    book.book.unpause("A")
    book.svc(1)
    book.svc(1)
    book.book.pause("B")
    book.svc(1)
    book.book.unpause("B")
    assert book.origins() == "BBAA"
    book.svc(2)
    assert book.origins() == "AB"


def test_a_paused_queue_stays_in_the_ring(make: Make) -> None:
    """BQ-9: it costs nothing while it is paused."""
    book = make()
    book.book.pause("A")
    book.put(A="weight=5")
    assert book.svc() == 0
    assert book.ring() == "A"
    book.book.unpause("A")
    assert book.svc() == 5


def test_overheads_are_part_of_what_is_too_heavy(make: Make) -> None:
    """BQ-10, B-22, B-23: with overheads that take all of the budget a message is parked, and not tried again."""
    book = make(overheads=Overheads(20, 20, 20, 20, 20, 20))
    book.put(A="weight=100")
    served = book.served(100)
    assert (served.consumed[2], served.parked) == (100, 1)
    assert [each.address for each in book.book.parked()] == [book.book.address("A", 0, 0)]
    assert book.svc(100) == 0
    assert book.took() == ""


def test_too_heavy_for_what_it_asked_for_is_a_failure(make: Make) -> None:
    """B-33, B-38: it runs once more with the cost that it told; who says it then fails, and is parked at last."""
    book = make(retries=3)
    book.put(A="a b", B="x")
    book.acts[b"a"] = lambda _message, _context: TooHeavy(Cost(units=50))
    for _ in range(8):
        book.svc(100)
        book.clocks.advance(60)
    assert sorted(book.took().split()) == ["a", "a", "a", "a", "b", "x"]
    told = [one for one in book.told(Failed) if isinstance(one, Failed)]
    assert [(str(one.reason), one.attempt) for one in told] == [
        ("error", 1),
        ("error", 2),
        ("error", 3),
    ]
    assert "TooHeavy: it was given the 50 units and 0 s that it asked for" in told[0].detail
    (parked,) = book.book.parked()
    assert (str(parked.reason), parked.attempts) == ("poison", 3)


def test_too_heavy_for_more_each_time_is_no_failure(make: Make) -> None:
    """B-33: what it tells grows until it is overweight."""
    book = make(retries=1)
    book.put(A="a")
    costs = iter((20, 40, 80, 160))
    book.acts[b"a"] = lambda _message, _context: TooHeavy(Cost(units=next(costs)))
    for _ in range(5):
        book.svc(100)
    assert book.took() == "a a a a"
    (parked,) = book.book.parked()
    assert (str(parked.reason), parked.attempts) == ("overweight", 0)


def test_a_budget_below_the_overheads_is_refused() -> None:
    """BQ-11: the error names both figures."""
    with pytest.raises(ConfigurationError, match=r"units=100.*505"):
        changed_config(overheads=Overheads(101, 101, 101, 101, 101, 101))


def test_without_units_nothing_moves(make: Make) -> None:
    """BQ-12: nothing runs, nothing is parked."""
    book = make()
    book.put(B="x")
    served = book.served(0)
    assert (served.ran, served.parked, book.feet("B")) == (0, 0, (1, 1, 1, 1))


def test_a_parked_message_is_executed_once(make: Make) -> None:
    """BQ-13, B-42, B-43: too small a budget, enough, and once more."""
    book = make(overheads=Overheads(bump=1, queue=1, page_done=1))
    book.put(A="weight=200")
    assert book.svc(4) == 3
    assert book.execute("A", 0, 0, 5) == "OVER_BUDGET"
    token = book.book.address("A", 0, 0)
    book.changed()
    assert book.book.execute(token, Budget(units=200)).cost[2] == 200
    assert book.changed() == [("A", 0, 0)]
    assert book.feet("A") == (0, 0, 0, 0)
    assert book.book.execute(token, Budget(units=200)).why.name == "NOT_FOUND"
    assert book.ring() == ""


def test_footprints_follow_parked_messages(make: Make) -> None:
    """BQ-14, B-48: they stay counted until they are executed."""
    book = make()
    book.put(A="weight=200 weight=300")
    assert book.feet("A") == (1, 1, 2, 20)
    assert book.svc(1) == 0
    assert book.feet("A") == (1, 0, 2, 20)
    assert book.execute("A", 0, 1) == "DONE"
    assert book.feet("A") == (1, 0, 1, 10)
    assert book.execute("A", 0, 0) == "DONE"
    assert book.feet("A") == (0, 0, 0, 0)


def test_only_passed_messages_are_executed(make: Make) -> None:
    """BQ-15, B-42: one that is processed, one parked, one that waits, and none."""
    book = make(page_bytes=64)
    book.put(A="a weight=200 b c")
    book.svc(1)
    found = [book.execute("A", 0, slot) for slot in (0, 1, 2, 9)]
    assert found == ["ALREADY_PROCESSED", "DONE", "STILL_QUEUED", "NOT_FOUND"]


def test_a_paused_queue_is_not_executed(make: Make) -> None:
    """BQ-16: the same address works after it was released."""
    book = make()
    book.put(A="weight=200")
    book.svc(1)
    token = book.book.address("A", 0, 0)
    book.book.pause("A")
    assert book.book.execute(token).why.name == "PAUSED"
    book.book.unpause("A")
    answer = book.book.execute(token)
    assert (answer.why.name, answer.address) == ("DONE", token)


def test_stale_pages_are_reaped_oldest_first(make: Make) -> None:
    """BQ-17, B-46: twelve pages of one parked message each; nine may go."""
    book = make()
    for _ in range(12):
        book.put(A="weight=999" + "x" * 13)
    book.svc(1)
    assert book.feet("A") == (12, 0, 12, 276)
    gone: list[int] = []
    while done := book.book.reap("A"):
        gone += [each.page for each in done]
        assert book.feet("A")[2:] == (12 - len(gone), 23 * (12 - len(gone)))
        book.check()
    assert gone == list(range(9))
    assert [event.page for event in book.told(PageReaped) if isinstance(event, PageReaped)] == gone


def test_swept_queues_leave_the_ring_and_stay_executable(make: Make) -> None:
    """BQ-18, B-47: A, C and B are swept; nobody is notified."""
    book = make()
    book.put(A="a", B="b", C="c")
    book.changed()
    rings: list[str] = []
    for origin in "ACB":
        book.book.sweep(origin)
        book.check()
        rings.append(book.ring())
    assert rings == ["BC", "B", ""]
    assert book.changed() == []
    assert {each.reason.value for each in book.book.parked()} == {"swept"}
    assert [book.execute(origin, 0, 0) for origin in "ABC"] == ["DONE"] * 3


def test_parked_and_paused_queues_end_a_call(make: Make) -> None:
    """BQ-19, B-27: with a budget, and without one."""
    for units in (100, None):
        book = make(name=f"b{units}", overheads=Overheads(queue=1))
        book.put(A="weight=200", B="b")
        book.book.pause("B")
        assert book.served(units).visits == 2


@pytest.mark.parametrize("before", ["fresh", "ready", "drained"])
def test_no_messages_change_nothing(make: Make, before: str) -> None:
    """BQ-20, B-12, B-73: no book, no notification, no place in the ring."""
    book = make()
    if before != "fresh":
        book.put(A="a")
    if before == "drained":
        book.svc()
    book.events.clear()
    ring, feet, index = book.ring(), book.feet("A"), book.book.ledger.index
    assert book.book.enqueue_many("A", []) == book.book.enqueue_batch([])
    assert (book.ring(), book.feet("A"), book.book.ledger.index) == (ring, feet, index)
    assert book.events == []
    assert ("A" in book.book.origins()) == (before != "fresh")


def test_an_empty_message_is_a_message(make: Make) -> None:
    """BQ-21, B-73: it is counted, ready, and processed."""
    book = make()
    book.book.enqueue("A", b"")
    assert (book.feet("A"), book.ring()) == ((1, 1, 1, 0), "A")
    assert book.svc(1) == 1
    assert book.feet("A") == (0, 0, 0, 0)


def test_what_a_handler_enqueues_by_hand_is_served_next(make: Make) -> None:
    """BQ-22, B-43: to the same queue and to another."""
    book = make()
    book.put(A="weight=200")
    book.svc(1)

    def two(_message: BookMessage, context: Context) -> None:
        context.enqueue("A", b"a")
        context.enqueue("B", b"b")

    book.acts[b"weight=200"] = two
    assert book.execute("A", 0, 0) == "DONE"
    assert (book.feet("A")[1:], book.feet("B")[1:]) == ((1, 1, 1), (1, 1, 1))
    book.took()
    book.svc()
    assert book.took() == "a b"


def test_a_handler_can_not_call_its_own_book(make: Make) -> None:
    """BQ-23, B-37, B-66, B-73: each call raises and changes nothing; the guard is free afterwards."""
    book = make()
    book.put(A="weight=200 a", B="b")
    book.svc(1)
    raised: list[str] = []

    def calls(_message: BookMessage, _context: Context) -> Later:
        inner = book.book
        for call in (
            inner.service,
            lambda: inner.sweep("B"),
            lambda: inner.force_head("B"),
            lambda: inner.reap("A"),
            lambda: inner.pause("B"),
            lambda: inner.set_weight("B", 2),
            lambda: inner.enqueue("B", b"x"),
            lambda: inner.execute(inner.address("A", 0, 0)),
            lambda: inner.discard(inner.address("A", 0, 0), "no"),
            lambda: inner.requeue(inner.address("A", 0, 0)),
        ):
            try:
                call()
            except Reentrant as error:
                raised.append(str(error).split(" ")[0])
        assert inner.footprint("B").messages == 1
        return Later()

    book.always = calls
    index = book.book.ledger.index
    book.svc(1)
    book.always = None
    assert raised[:10] == [
        *(
            "service",
            "sweep",
            "force",
            "reap",
            "pause",
            "weight",
            "enqueue",
            "execute",
            "discard",
            "requeue",
        ),
    ]
    assert book.book.ledger.index <= index + 3
    book.book.pause("B")
    book.check()


@pytest.mark.parametrize(
    ("word", "messages", "value"),
    [("corrupt", 0, None), ("raise", 0, None), ("failed", 1, b"1"), ("ok", 1, b"1")],
)
def test_what_was_staged_counts_with_its_message(
    make: Make, word: str, messages: int, value: bytes | None
) -> None:
    """BQ-24: a rejected or failed handler leaves nothing, an unsuccessful one what it staged."""
    from surepipe.queues.book import Done  # noqa: PLC0415 - beside its use

    book = make()
    book.put(A=word)

    def stage(message: BookMessage, context: Context) -> object:
        context.put("key", b"1")
        assert context.get("key") == b"1"
        context.enqueue("B", b"b")
        if message.payload == b"raise":
            raise ValueError("no")
        return (
            Done(success=False)
            if message.payload == b"failed"
            else book.outcomes.get(message.payload)
        )

    book.acts[word.encode()] = stage
    book.svc(1)
    assert book.feet("B")[2] == messages
    assert book.book.value("key") == value


def test_a_child_is_served_in_a_later_call(make: Make) -> None:
    """BQ-25: the parent first."""
    book = make()
    book.put(A="parent")
    book.acts[b"parent"] = lambda _, context: context.enqueue("B", b"child")
    book.svc(1)
    book.svc(1)
    assert book.took() == "parent child"


def test_a_call_without_budget_ends(make: Make) -> None:
    """BQ-26, B-26: each of ten messages enqueues one more; exactly ten run."""
    book = make()
    book.put(A="m m m m m m m m m m")
    book.always = lambda _, context: context.enqueue("A", b"m")
    assert book.served().ran == 10
    assert book.feet("A")[2] == 10


def test_a_forced_head_is_served_first(make: Make) -> None:
    """BQ-27, B-19: although C was due."""
    book = make()
    book.put(A="a1 a2", B="b1 b2", C="c1 c2")
    book.svc(4)
    book.put(A="new")
    book.took()
    assert book.book.force_head("A")
    assert not book.book.force_head("Z")
    book.svc(1)
    assert book.took() == "new"


def test_overweight_parks_or_blocks(make: Make) -> None:
    """BQ-28, B-39, B-44: parked, the small one runs; blocked, neither does, others go on, and there is one
    event."""
    book = make()
    book.put(A="weight=200 small")
    book.svc(10)
    assert book.took() == "small"
    book = make(name="block", on_overweight="block")
    book.put(A="weight=200 small", B="b c")
    book.svc(1)
    book.svc(1)
    book.svc(10)
    assert book.took() == "b c"
    assert len(book.told(Parked)) == 1
    assert [each.reason.value for each in book.book.parked()] == ["overweight"]
    assert book.execute("A", 0, 0) == "DONE"
    book.svc(10)
    assert book.took() == "weight=200 small"


def test_thresholds_signal_and_refuse(make: Make) -> None:
    """BQ-29, B-49, B-50: pages of one message; 32 suspend, 48 refuse, 8 resume."""
    book = make()
    accepted = 0
    suspended_at = 0
    while book.book.enqueue("A", b"x" * 35, refused="return").__class__.__name__ == "Accepted":
        accepted += 1
        if book.told(Signal):
            suspended_at = accepted
    assert (suspended_at, accepted) == (32, 48)
    served = 0
    while not book.told(Signal):
        served += book.svc(1)
    assert served == 40
    book.check()


DRR = changed_config(policy="drr", quantum=2)


def test_deficit_round_robin_does_not_depend_on_how_it_is_cut(make: Make) -> None:
    """BQ-30, B-29, B-31: five units four times; one unit eighteen times; no budget."""
    orders: list[str] = []
    for name, calls in (("five", [5] * 4), ("one", [1] * 18), ("all", [None])):
        book = make(DRR, name=name)
        book.put(A="a a a a a a", B="b b b b b b", C="c c c c c c")
        parts: list[str] = []
        for units in calls:
            book.svc(units)
            parts.append(book.origins())
        if name == "five":
            assert parts == ["AABBC", "CAABB", "CCAAB", "BCC"]
        orders.append("".join(parts))
    assert orders == ["AABBCCAABBCCAABBCC"] * 3


def test_quanta_are_saved_in_few_visits(make: Make) -> None:
    """BQ-31, B-30: messages of fifty units, a quantum of one."""
    book = make(DRR, quantum=1)
    words = "weight=50 weight=50 weight=50"
    book.put(A=words, B=words, C=words)
    parts: list[str] = []
    while book.ring():
        assert book.served(100).visits <= 6
        parts.append(book.origins())
    assert parts == ["AB", "CA", "BC", "AB", "C"]


def test_rotation_gives_a_call_to_one_queue(make: Make) -> None:
    """BQ-33, B-28: ten of A, of B, of C, of A."""
    book = make()
    for origin in "ABC":
        book.book.enqueue_many(origin, [b"m"] * 30)
    parts: list[str] = []
    for _ in range(4):
        book.svc(10)
        parts.append(book.origins())
    assert parts == ["A" * 10, "B" * 10, "C" * 10, "A" * 10]


def test_saved_quanta_are_gone_when_a_handler_yields(make: Make) -> None:
    """BQ-43: two handler calls, few visits, no deficit left."""
    book = make(DRR, quantum=5)
    book.put(A="weight=60", B="weight=25")

    def later(_message: BookMessage, _context: Context) -> Later:
        return Later()

    book.always = later
    served = book.served(100)
    assert book.origins() == "BA"
    assert served.visits <= 6
    assert [each.deficit for each in book.book.ledger.books.values()] == [0, 0]


def test_a_refilled_queue_is_behind_those_that_wait(make: Make) -> None:
    """BQ-45: A and B are served; B has one more and keeps its place."""
    book = make()
    book.put(A="a", B="b", C="c")
    assert book.ring() == "ABC"
    book.put(B="d")
    book.svc(2)
    assert (book.took(), book.ring()) == ("a b", "BC")
    book.svc(2)
    assert book.took() == "d c"


def test_queues_that_yield_do_not_hold_up_others(make: Make) -> None:
    """BQ-46, B-32, B-34: A and C yield, then only C, then none."""
    book = make()
    book.put(A="a a a", B="b b b", C="c c c")
    assert book.svc(1) == 1
    yielding = {"A", "C"}
    book.always = lambda message, _: Later() if message.origin in yielding else None
    assert [book.svc(1), book.svc(2), book.svc(), book.svc()] == [1, 2, 0, 0]
    yielding.discard("A")
    assert [book.svc(), book.svc()] == [2, 0]
    yielding.clear()
    assert book.svc() == 3


def test_a_call_runs_exactly_what_fits(make_in_memory: Make) -> None:
    """BQ-47, B-21, B-24, BI-12: a full page of 3,640 messages, two units for the page and four for each
    message."""
    book = make_in_memory(
        page_bytes=32_768,
        max_message_cost=Budget(units=90),
        overheads=Overheads(page_done=2, item=3),
    )
    book.book.enqueue_many("A", [b"%04d" % number for number in range(3_640)])
    assert book.feet("A") == (1, 1, 3_640, 14_560)
    left, size = 3_640, 1
    while left:
        count = min(left, size)
        served = book.book.service(Budget(units=2 + 4 * count))
        assert served.ran == count
        left, size = left - count, size * 3 % 97 + 1
    book.check()
    assert book.feet("A") == (0, 0, 0, 0)


def test_handlers_that_enqueue_are_served_one_unit_at_a_time(make: Make) -> None:
    """BQ-48: 402 messages come out of one."""
    book = make()

    def spread(message: BookMessage, context: Context) -> None:
        match message.payload:
            case b"0":
                context.enqueue("A", b"1")
            case b"1":
                for number in range(100):
                    context.enqueue("A", b"2")
                    context.enqueue(f"o{number}", b"3")
            case b"2" | b"3":
                context.enqueue(message.origin, b"4")
            case _:
                pass

    book.always = spread
    book.book.enqueue("A", b"0")
    for _ in range(402):
        assert book.book.service(Budget(units=1)).consumed[2] == 1
    book.check()
    assert book.svc() == 0
    assert book.book.totals()["done"] == 402


def test_a_limit_below_the_overheads_changes_nothing(make: Make) -> None:
    """B-25: TOO_SMALL, and nothing is consumed."""
    book = make(overheads=Overheads(queue=5))
    book.put(A="weight=200")
    index = book.book.ledger.index
    served = book.served(4)
    assert (served.stopped, served.consumed, book.book.ledger.index) == (
        Stopped.TOO_SMALL,
        (0, 0, 0, 0),
        index,
    )


def test_the_defaults_serve(make: Make) -> None:
    """With the settings that nobody gave."""
    book = make(BookConfig())
    book.put(A="a b", B="c")
    assert book.svc() == 3
    assert book.took() == "a b c"
    assert SMALL.policy == "rotate"
    assert isinstance(book, BookUnderTest)


@pytest.mark.parametrize(
    ("policy", "processes"), [("drr", 1), ("rotate", 1), ("drr", 2), ("drr", 4)]
)
def test_nobody_waits_longer_behind_a_flood_than_the_policy_says(
    policy: Literal["drr", "rotate"], processes: int
) -> None:
    """BQ-71, B-103: a thousand origins, one of which has ten thousand messages; as in docs/book.md, in small. Each
    further process may have claimed a slice, so it adds one to the bound."""
    found = Bench("small", policy, processes=processes).run(flood=10_000, seconds=2)
    assert len(found.waits) > 1_000
    assert found.later == 0


def test_in_one_queue_for_all_they_would() -> None:
    """The same without queues of their own: the bound can be missed."""
    found = Bench("small", "drr", is_one_queue=True).run(flood=10_000, seconds=1)
    assert found.later > 0
