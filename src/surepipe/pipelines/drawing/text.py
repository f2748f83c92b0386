"""A diagram as text for other tools: DOT for Graphviz, Mermaid for pages that draw it."""

from __future__ import annotations

from surepipe.pipelines.drawing.diagram import Arrow, Box, Diagram

_DOT_SHAPES = {
    "source": "oval",
    "pipe": "box",
    "stage": "component",
    "sink": "oval",
    "store": "cylinder",
}
_MERMAID = {
    "source": ("([", "])"),
    "pipe": ("[", "]"),
    "stage": ("[[", "]]"),
    "sink": ("([", "])"),
    "store": ("[(", ")]"),
}
_DOT_LINES = {"flow": "", "uses": "style=dotted, arrowhead=none", "dead": "style=dashed, color=red"}


def dot_of(diagram: Diagram) -> str:
    """Graphviz."""
    lines = [f"digraph {_quoted(diagram.title)} {{", "  rankdir=LR;"]
    lines += [
        f"  {_quoted(box.name)} [shape={_DOT_SHAPES[box.role]}, label={_dot_label(box)}];"
        for box in diagram.boxes
    ]
    lines += [
        f"  {_quoted(arrow.start)} -> {_quoted(arrow.end)}{_dot_line(arrow)};"
        for arrow in diagram.arrows
    ]
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_of(diagram: Diagram) -> str:
    """Mermaid. Parts are numbered, since its names may not have every sign."""
    numbers = {box.name: f"p{number}" for number, box in enumerate(diagram.boxes)}
    lines = ["flowchart LR"]
    for box in diagram.boxes:
        opening, closing = _MERMAID[box.role]
        lines.append(f'  {numbers[box.name]}{opening}"{_mermaid_label(box)}"{closing}')
    lines += [
        f"  {numbers[arrow.start]} {_mermaid_line(arrow)} {numbers[arrow.end]}"
        for arrow in diagram.arrows
    ]
    return "\n".join(lines) + "\n"


def _words(box: Box) -> tuple[str, ...]:
    return (box.name.removeprefix("store:"), *box.lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _dot_label(box: Box) -> str:
    return _quoted("\n".join(_words(box))).replace("\n", "\\n")


def _dot_line(arrow: Arrow) -> str:
    label = f"label={_quoted(arrow.label)}" if arrow.label else ""
    said = ", ".join(word for word in (_DOT_LINES[arrow.kind], label) if word)
    return f" [{said}]" if said else ""


def _mermaid_label(box: Box) -> str:
    words = (
        word.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
        for word in _words(box)
    )
    return "<br>".join(words)


def _mermaid_line(arrow: Arrow) -> str:
    label = f"|{arrow.label}|" if arrow.label else ""
    return {"flow": "-->", "uses": "-.-", "dead": "-.->"}[arrow.kind] + label
