"""The picture of a stack: the same layers at both ends, and what passes between them."""

from __future__ import annotations

from collections.abc import Iterator

from surepipe.drawing.svg import Area, PathShape, Rectangle, Shape, Words, cross
from tools.space_time import scene_picture

TITLE = "a stack: order outside, retry inside"
DESCRIPTION = (
    "The application gives 1 2 3 to continuous-index, which numbers them and hands them to "
    "multi-unconfirmed, which sends them over a route. The route loses 2, and multi-unconfirmed "
    "sends it again, so that on the far side 1 3 2 come out of it. There continuous-index holds 3 "
    "until 2 has come, and the application gets 1 2 3."
)

LEFT, RIGHT = 150.0, 610.0
TOP, FLOOR, TALL = 62.0, 76.0, 46.0


def draw() -> str:
    """The picture as an SVG document."""
    body = [
        *_panel(0, "application", "", ""),
        *_panel(1, "continuous-index", "numbers", "holds 3, waits for 2"),
        *_panel(2, "multi-unconfirmed", "sends 2 again", "passes on what comes"),
        *_between(0, "1 2 3", "1 2 3"),
        *_between(1, "1 2 3", "1 3 2"),
        *_route("1 2 3, then 2 again", "route: loses 2", "1 3 2"),
    ]
    return scene_picture("stack", TITLE, DESCRIPTION, 344, body)


def _panel(floor: int, name: str, sending: str, receiving: str) -> Iterator[Shape | Words]:
    y = TOP + floor * FLOOR
    for x, duty in ((LEFT, sending), (RIGHT, receiving)):
        yield Area(Rectangle(x - 110, y, x + 110, y + TALL), "box", 5)
        yield Words((x, y + (19 if duty else 28)), name, "lane", "middle")
        if duty:
            yield Words((x, y + 38), duty, "back", "middle")


def _between(floor: int, down: str, up: str) -> Iterator[Shape | Words]:
    """What the sending end passes down from a floor, and the receiving end up to it."""
    top = TOP + floor * FLOOR + TALL
    bottom = top + FLOOR - TALL
    outcome = "delivered" if floor == 0 else "sent"
    yield PathShape(((LEFT, top), (LEFT, bottom)), "sent", head=True)
    yield Words((LEFT + 14, (top + bottom) / 2 + 5), down, "sent")
    yield PathShape(((RIGHT, bottom), (RIGHT, top)), outcome, head=True)
    yield Words((RIGHT + 14, (top + bottom) / 2 + 5), up, outcome)


def _route(into: str, loss: str, out: str) -> Iterator[Shape | Words]:
    top = TOP + 2 * FLOOR + TALL
    bottom, middle = top + 32, (LEFT + RIGHT) / 2
    yield PathShape(((LEFT, top), (LEFT, bottom), (RIGHT, bottom), (RIGHT, top)), "sent", head=True)
    yield Words((LEFT + 14, bottom - 10), into, "sent")
    yield from cross((middle, bottom), reach=8)
    yield Words((middle, bottom + 28), loss, "lost", "middle")
    yield Words((RIGHT - 14, bottom - 10), out, "sent", "end")
