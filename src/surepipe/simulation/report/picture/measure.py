"""How wide text is, at the most: the widest common sans-serif fonts decide, so that nothing overlaps in any."""

from __future__ import annotations

_SHARES = {
    **dict.fromkeys("ijlI|.,:;' ", 0.6),
    **dict.fromkeys('frt()[]{}/\\-"*!`', 0.78),
    **dict.fromkeys("mwMW@—→", 1.6),
    **dict.fromkeys("#=<>+&~^", 1.32),
    "%": 1.8,
}
"""How wide a letter is beside an ordinary one, in the wider of DejaVu Sans and Verdana."""
_CAPITAL, _FOREIGN = 1.25, 1.7
_PLAIN, _BOLD = 0.64, 0.72
"""How wide an ordinary letter is beside the size of the font."""


def width_of(text: str, size: int, *, bold: bool = False) -> float:
    """An upper bound in pixels."""
    return sum(_share(letter, bold=bold) for letter in text) * size


def _share(letter: str, *, bold: bool) -> float:
    ordinary = _BOLD if bold else _PLAIN
    if letter in _SHARES:
        return ordinary * _SHARES[letter]
    if not letter.isascii():
        return ordinary * _FOREIGN
    return ordinary * (_CAPITAL if letter.isupper() else 1.0)


def wrapped(text: str, pixels: float, size: int, *, bold: bool = False) -> list[str]:
    """Lines that are no wider; a single word that is, is cut."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if width_of(longer, size, bold=bold) <= pixels:
            line = longer
            continue
        if line:
            lines.append(line)
        line = _cut(word, pixels, size, bold=bold)
    return [*lines, line] if line else lines


def _cut(word: str, pixels: float, size: int, *, bold: bool) -> str:
    if width_of(word, size, bold=bold) <= pixels:
        return word
    kept = word
    while kept and width_of(f"{kept}…", size, bold=bold) > pixels:
        kept = kept[:-1]
    return f"{kept}…"
