"""The colours and fonts of every page and picture, for light and for dark.

Rules name colours as ``var(--ink)``. A page keeps the names. A picture may be opened by a program that knows no
variables, so in pictures each name is replaced by its colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

FONT = '"DejaVu Sans",Verdana,"Segoe UI",sans-serif'
MONO = '"DejaVu Sans Mono",Consolas,monospace'

COLOURS: Mapping[str, tuple[str, str]] = {
    "page": ("#ffffff", "#0d1117"),
    "pane": ("#f6f8fa", "#161b22"),
    "line": ("#d0d7de", "#3d444d"),
    "ink": ("#1f2328", "#f0f6fc"),
    "soft": ("#57606a", "#9198a1"),
    "grey": ("#8c959f", "#767e88"),
    "strong": ("#b3005e", "#ff8ac4"),
    "blue": ("#0969da", "#4493f8"),
    "bluepane": ("#ddf4ff", "#0c1d36"),
    "bar": ("#54aeff", "#1f6feb"),
    "good": ("#116329", "#56d364"),
    "goodpane": ("#dafbe1", "#12261e"),
    "warn": ("#8a5a00", "#e3b341"),
    "warnpane": ("#fff8c5", "#272115"),
    "bad": ("#a40e26", "#ff7b72"),
    "badpane": ("#ffebe9", "#2d1214"),
    "violet": ("#8250df", "#ab7df8"),
    "violetpane": ("#fbefff", "#271052"),
    "orange": ("#d4922a", "#d4922a"),
    "marked": ("#f5c84240", "#f5c84240"),
}
"""Each colour on light and on dark ground. Words in any of them can be read on the page and on their own pane."""

_NAMED = re.compile(r"var\(--(\w+)\)")
_RULE = re.compile(r"\s*([^{}]+?)\s*\{([^{}]*)\}")


def variables() -> str:
    """The colours as variables of a page, which follow what the reader's system prefers."""
    light, dark = (
        ";".join(f"--{name}:{pair[side]}" for name, pair in COLOURS.items()) for side in (0, 1)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
    )


def resolved(rules: str, scope: str = "") -> str:
    """The rules with their colours, and once more in dark what has any.

    With ``scope``, they hold within the element of this id alone: a page may show several pictures.
    """
    light = _written(rules, scope, 0)
    dark = _written(rules, scope, 1)
    return "\n".join((*light, "@media (prefers-color-scheme: dark){", *dark, "}"))


def _written(rules: str, scope: str, side: int) -> Iterator[str]:
    for selectors, body in _RULE.findall(rules):
        kept = [part for part in body.split(";") if side == 0 or _NAMED.search(part)]
        if kept:
            within = f"#{scope} " if scope else ""
            where = ",".join(f"{within}{one.strip()}" for one in selectors.split(","))
            told = _NAMED.sub(lambda found: COLOURS[found[1]][side], ";".join(kept))
            yield f"{where}{{{told}}}"
