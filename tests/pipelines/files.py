"""Small pipeline files for tests: a sound one, and the same with some of its lines replaced."""

from __future__ import annotations

SOUND = {
    "version": "version: 1",
    "name": "name: shop",
    "stores": "stores: {main: {kind: sqlite, path: shop.db}}",
    "sources": "sources: {lines: {kind: jsonl, path: a.jsonl}}",
    "pipes": "pipes: {intake: {from: lines}}",
    "stages": 'stages: {price: {from: intake, call: "shop:price"}}',
    "sinks": "sinks: {out: {from: price, kind: stdout}}",
}


def pipeline(*more: str, **lines: str) -> str:
    """The sound file with these of its lines replaced ('' takes one out), and lines added at the end."""
    text = [line for line in {**SOUND, **lines}.values() if line]
    return "\n".join([*text, *more]) + "\n"


def pipe(options: str) -> str:
    """The pipes of the sound file, with options of its one pipe."""
    return f"pipes: {{intake: {{from: lines, {options}}}}}"


def stage(options: str) -> str:
    """The stages of the sound file, with options of the one that is there."""
    return f'stages: {{price: {{from: intake, call: "shop:price", {options}}}}}'
