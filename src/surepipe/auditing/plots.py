"""The plots of an audit, as SVG within the page: whole numbers of units, no library, no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from surepipe.auditing.verdict import BulkAudit, Channel, Moment

WIDTH = 1120
_NAME_WIDTH = 250
_ROW = 26
_NAME_MAX = 30
_LEAST = 3
"""A bar that stands for anything at all is so wide."""


def balance(found: BulkAudit) -> str:
    """One bar: what was sent, by what became of it."""
    parts = [
        (words, kind, found.total(name))
        for words, kind, name in (
            *(("settled", "flow", "settled"), ("dead letters", "dead", "dead")),
            *(("in flight", "wait", "waiting"), ("lost", "lost", "lost")),
        )
        if found.total(name)
    ]
    sent = found.total("sent")
    body = list(_pieces([(kind, number) for _, kind, number in parts], WIDTH, y=6, height=30))
    left = 0
    for words, kind, number in parts:
        share = 100 * number / sent if sent else 0
        told = f"{words} {number:,} ({_percent(share)})"
        body.append(f'<rect class="{kind}" x="{left}" y="50" width="12" height="12"/>')
        body.append(f'<text x="{left + 18}" y="61">{told}</text>')
        left += 40 + 8 * len(told)
    text = f"Of {sent:,} sent: " + ", ".join(f"{number:,} {words}" for words, _, number in parts)
    return _svg(WIDTH, 72, text, body)


def _percent(share: float) -> str:
    return (
        f"{share:.0f} %"
        if share in (0, 100)
        else "< 0.1 %"
        if share < 0.1
        else f"{min(share, 99.9):.1f} %"
    )


def _pieces(
    parts: Sequence[tuple[str, int]], width: int, *, y: int, height: int, x: int = 0
) -> Iterator[str]:
    whole = sum(number for _, number in parts)
    shown = [(kind, max(_LEAST, round(width * number / whole))) for kind, number in parts if number]
    over = sum(size for _, size in shown) - width
    if shown and over > 0:
        at = max(range(len(shown)), key=lambda place: shown[place][1])
        shown[at] = (shown[at][0], shown[at][1] - over)
    for kind, size in shown:
        yield f'<rect class="{kind}" x="{x}" y="{y}" width="{size}" height="{height}"/>'
        x += size


def over_time(moments: Sequence[Moment]) -> str:
    """Bars of what came out above the line; what was passed over, and what came late or again, below it."""
    since, until = moments[0].since_us, moments[-1].until_us
    high, low = 110, 50
    most = max(moment.came for moment in moments)
    worst = max(max(m.passed_over, m.again) for m in moments)
    body: list[str] = []
    for moment in moments:
        x = 2 + round((WIDTH - 4) * (moment.since_us - since) / (until - since))
        width = max(
            2, round((WIDTH - 4) * (moment.until_us - moment.since_us) / (until - since)) - 2
        )
        size = round(high * moment.came / most)
        body.append(
            f'<rect class="flow" x="{x}" y="{24 + high - size}" width="{width}" height="{size}"/>'
        )
        half = max(1, width // 2)
        for kind, number, at in (
            ("lost", moment.passed_over, x),
            ("again", moment.again, x + half),
        ):
            if number:
                size = max(_LEAST, round(low * number / worst))
                body.append(
                    f'<rect class="{kind}" x="{at}" y="{26 + high}" width="{half}" height="{size}"/>'
                )
    line = 25 + high
    body.append(f'<line class="axis" x1="0" x2="{WIDTH}" y1="{line}" y2="{line}"/>')
    body.append(
        f'<text class="soft" x="0" y="14">at most {most:,} came out in {_duration(moments[0])}</text>'
    )
    foot = line + low + 22
    body.append(f'<text class="soft" x="0" y="{foot}">0 s</text>')
    whole = _seconds(until - since)
    body.append(f'<text class="soft" x="{WIDTH - 4}" y="{foot}" text-anchor="end">{whole}</text>')
    if worst:
        body.append(f'<rect class="lost" x="330" y="{foot - 11}" width="12" height="12"/>')
        body.append(f'<text x="348" y="{foot}">passed over</text>')
        body.append(f'<rect class="again" x="480" y="{foot - 11}" width="12" height="12"/>')
        body.append(f'<text x="498" y="{foot}">late or again, at most {worst:,}</text>')
    else:
        body.append(f'<text x="330" y="{foot}">nothing passed over, late or again</text>')
    return _svg(
        WIDTH, foot + 8, "What came out over time, and below the line what went wrong", body
    )


def _duration(moment: Moment) -> str:
    return _seconds(moment.until_us - moment.since_us)


def _seconds(time_us: int) -> str:
    for size, unit in (
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ):
        if time_us >= size:
            return f"{time_us / size:.1f} {unit}"
    return f"{time_us} us"


def channels_by_trouble(channels: Sequence[Channel]) -> str:
    """A bar for each channel: what is missing, came again, came late, or was never accepted."""
    most = max(1, *(sum(number for _, _, number in _troubles(one)) for one in channels))
    room = WIDTH - _NAME_WIDTH - 400
    body: list[str] = []
    for at, one in enumerate(channels):
        y = 4 + at * _ROW
        told = _troubles(one)
        size = max(_LEAST * len(told), round(room * sum(number for _, _, number in told) / most))
        words = ", ".join(f"{number:,} {what}" for _, what, number in told)
        body.append(
            f'<text x="{_NAME_WIDTH - 10}" y="{y + 16}" text-anchor="end">{_name(one)}</text>'
        )
        parts = [(kind, number) for kind, _, number in told]
        body += _pieces(parts, size, y=y + 3, height=_ROW - 8, x=_NAME_WIDTH)
        body.append(f'<text class="soft" x="{_NAME_WIDTH + size + 10}" y="{y + 16}">{words}</text>')
    return _svg(WIDTH, 8 + len(channels) * _ROW, "The channels in which most went wrong", body)


def _troubles(one: Channel) -> list[tuple[str, str, int]]:
    """Colour, words and number of each kind of trouble that there is."""
    told = (
        ("lost", "lost", one.lost),
        ("wait", "in flight", one.waiting),
        ("again", "again", one.repeated),
        ("late", "out of order", one.out_of_order),
        ("dead", "never accepted", one.foreign),
    )
    return [part for part in told if part[-1]]


def _name(one: Channel) -> str:
    name = one.channel
    return escape(name if len(name) <= _NAME_MAX else f"{name[: _NAME_MAX - 1]}…")


def _svg(width: int, height: int, says: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(says)}">'
        f"<title>{escape(says)}</title>{''.join(body)}</svg>"
    )
