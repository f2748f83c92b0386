"""The picture of a stack: the same layers at both ends, and what passes between them."""

from __future__ import annotations

from tools.svg import box, cross, document, line, triangle, words

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
    return document("stack", TITLE, DESCRIPTION, height=344, body=body)


def _panel(floor: int, name: str, sending: str, receiving: str) -> list[str]:
    parts: list[str] = []
    y = TOP + floor * FLOOR
    for x, duty in ((LEFT, sending), (RIGHT, receiving)):
        parts.append(box((x - 110, y), 220, TALL))
        parts.append(words((x, y + (19 if duty else 28)), name, "lane", "middle"))
        if duty:
            parts.append(words((x, y + 38), duty, "back", "middle"))
    return parts


def _between(floor: int, down: str, up: str) -> list[str]:
    """What the sending end passes down from a floor, and the receiving end up to it."""
    top = TOP + floor * FLOOR + TALL
    bottom = top + FLOOR - TALL
    outcome = "delivered" if floor == 0 else "sent"
    return [
        line((LEFT, top), (LEFT, bottom - 8), "sent"),
        triangle([(LEFT, bottom), (LEFT - 6, bottom - 12), (LEFT + 6, bottom - 12)], "sent"),
        words((LEFT + 14, (top + bottom) / 2 + 5), down, "sent"),
        line((RIGHT, bottom), (RIGHT, top + 8), outcome),
        triangle([(RIGHT, top), (RIGHT - 6, top + 12), (RIGHT + 6, top + 12)], outcome),
        words((RIGHT + 14, (top + bottom) / 2 + 5), up, outcome),
    ]


def _route(into: str, loss: str, out: str) -> list[str]:
    top = TOP + 2 * FLOOR + TALL
    bottom, middle = top + 32, (LEFT + RIGHT) / 2
    return [
        line((LEFT, top), (LEFT, bottom), "sent"),
        line((LEFT, bottom), (RIGHT, bottom), "sent"),
        line((RIGHT, bottom), (RIGHT, top + 8), "sent"),
        triangle([(RIGHT, top), (RIGHT - 6, top + 12), (RIGHT + 6, top + 12)], "sent"),
        words((LEFT + 14, bottom - 10), into, "sent"),
        *cross((middle, bottom)),
        words((middle, bottom + 28), loss, "lost", "middle"),
        words((RIGHT - 14, bottom - 10), out, "sent", "end"),
    ]
