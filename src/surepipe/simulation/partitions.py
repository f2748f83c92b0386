"""Which links a partition cuts, and when: both ways, one way, again and again, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.simulation.chooser import Cut
from surepipe.simulation.options import Options
from surepipe.simulation.randomness import Draws

MODES = ("both", "one-way", "isolate", "flapping", "swizzle")


def cut_links(
    source: Draws, name: str, links: Sequence[str], chaos_us: int, options: Options
) -> list[Cut]:
    """The cuts that make one partition. Half of them last at least three timeouts, so that they matter."""
    mode = source.pick(MODES)
    start = source.below(max(1, chaos_us))
    longest = max(1, options.cut_us)
    least = min(longest, 3 * options.timer_us) if source.getrandbits(1) else 1
    length = source.between(least, longest)
    if mode == "one-way":
        return [Cut(name, mode, (source.pick(links),), start, length)]
    if mode == "flapping":
        part = max(1, length // 5)
        return [
            Cut(f"{name}.{turn}", mode, tuple(links), start + 2 * turn * part, part)
            for turn in range(3)
        ]
    if mode == "swizzle":
        return _swizzle(source, name, links, start, length)
    return [Cut(name, mode, tuple(links), start, length)]


def _swizzle(source: Draws, name: str, links: Sequence[str], start: int, length: int) -> list[Cut]:
    """Links go one by one in one order and come back in another."""
    part = max(1, length // (2 * len(links)))
    heal = {link: place for place, link in enumerate(source.shuffled(links))}
    return [
        Cut(
            f"{name}.{place}",
            "swizzle",
            (link,),
            start + place * part,
            (len(links) - place + heal[link] + 1) * part,
        )
        for place, link in enumerate(source.shuffled(links))
    ]
