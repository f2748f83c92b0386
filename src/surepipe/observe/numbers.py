"""Numbers for people who look at them while they change: short, so that what stands beside them stays there."""

from __future__ import annotations

UNKNOWN = "\u2013"


def compact(number: float | None) -> str:
    """At most five signs: 7, 9,999, 12.3k, 456k, 7.89M. A dash where nothing is known."""
    if number is None:
        return UNKNOWN
    if number < 9_999.5:
        return f"{number:,.1f}" if 0 < number < 9.95 and number != int(number) else f"{number:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        shown = number / size
        if shown < 999.5:
            return f"{shown:.{0 if shown >= 99.95 else 1}f}{unit}"
    return "many"


def seconds(number: float | None) -> str:
    """A time: 0.4 s, 12 s, 3 min, 5 h."""
    if number is None:
        return UNKNOWN
    for limit, size, unit in (
        (9.95, 1, "s"),
        (99.5, 1, "s"),
        (5_970, 60, "min"),
        (172_800, 3_600, "h"),
    ):
        if number < limit:
            return f"{number / size:.{1 if limit < 10 else 0}f} {unit}"
    return f"{number / 86_400:.0f} days"


def milliseconds(number: float) -> str:
    """A short time: 0.5 ms, 20 ms, 5.0 s."""
    if number >= 1000:
        return seconds(number / 1000)
    return f"{number:g} ms"
