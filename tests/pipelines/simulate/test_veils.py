"""What of messages is left aside so that runs without faults can be compared (simulation X-20)."""

from __future__ import annotations

import json

import pytest

from surepipe.pipelines.simulate.veils import ANY, Veil, veil_over


def rows(*pairs: tuple[str, int]) -> list[str]:
    """Messages with an id, what belongs to it, and a number that it got as it came."""
    return [json.dumps({"id": id_, "of": f"{id_}-1", "number": number}) for id_, number in pairs]


def test_a_number_that_messages_get_as_they_come_is_left_aside_and_nothing_else() -> None:
    """The numbers are the same in both runs, each beside another id: by the ids it is seen what was lost."""
    runs = [rows(("a", 1), ("b", 2), ("c", 3)), rows(("b", 1), ("a", 2), ("c", 3))]
    veil = veil_over(runs)
    assert veil is not None
    assert veil.places == {("number",)}
    assert veil.differ(runs[0], rows(("a", 1), ("a", 2), ("c", 3)))


def test_two_such_numbers_are_left_aside() -> None:
    """They go together, and the rest does without them."""
    one, other = (
        [
            json.dumps({"id": id_, "of": f"{id_}-1", "by": f"{id_}!", "number": n, "page": n // 2})
            for n, id_ in enumerate(ids)
        ]
        for ids in ("abcd", "cbda")
    )
    assert veil_over([one, other]) == Veil(frozenset({("number",), ("page",)}))


def test_an_id_is_compared_where_something_that_messages_share_follows_from_the_order() -> None:
    """Either would make the runs alike; the id is of one message, and the answer of several."""
    runs = [
        [json.dumps({"id": id_, "is": answer}) for id_, answer in zip("abcd", answers, strict=True)]
        for answers in ("yyyn", "yyny")
    ]
    assert veil_over(runs) == Veil(frozenset({("is",)}))


@pytest.mark.parametrize(
    "names", [("id", "number"), ("id",)], ids=["either would do", "nothing is left"]
)
def test_where_it_is_not_clear_what_belongs_to_the_message_only_the_number_of_messages_is_compared(
    names: tuple[str, ...],
) -> None:
    """Nobody says which of two is the message's own."""
    runs = [
        [json.dumps({name: pair[at] for at, name in enumerate(names)}) for pair in pairs]
        for pairs in ([("a", 1), ("b", 2)], [("a", 2), ("b", 1)], [("a", 1), ("b", 2)])
    ]
    expected = ANY if len(names) > 1 else Veil(frozenset())
    assert veil_over(runs) == expected
