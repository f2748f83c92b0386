"""Whatever somebody gets wrong in a plan, and wherever: ``surepipe check`` tells it, and ends in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast, get_args

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from surepipe.cli.commands.check import check
from surepipe.errors import SurepipeError
from surepipe.pipelines import loads
from surepipe.pipelines.models.file import PipelineFile
from surepipe.pipelines.wording import keys_of
from tests.pipelines.sound_plans import SOUND_PLANS, Tree

Steps: TypeAlias = tuple[str | int, ...]
Spoiled: TypeAlias = tuple[str, Tree]
"""What was done, and the tree of the plan after it."""


class Raw(str):
    """A piece of YAML that stands in the text as it is."""


class Twice:
    """A value that stands under its key, and once more."""

    def __init__(self, value: Tree) -> None:
        self.value = value


def entries(tree: Tree) -> list[tuple[Any, Tree]]:
    """What stands in a mapping or a list, with its key or number; nothing in a value."""
    if isinstance(tree, dict):
        return [*tree.items()]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType]
    return [*enumerate(tree)] if isinstance(tree, list) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def as_yaml(tree: Tree) -> str:
    """A tree as YAML in flow style."""
    if isinstance(tree, Raw):
        return tree
    if isinstance(tree, dict):
        return "{" + ", ".join(one for entry in entries(tree) for one in _written(*entry)) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(as_yaml(one) for _, one in entries(tree)) + "]"
    return json.dumps(tree)


def _written(key: str, value: Tree) -> list[str]:
    if isinstance(value, Twice):
        return _written(key, value.value) * 2
    return [f"{as_yaml(key)}: {as_yaml(value)}"]


LONG = "x" * 5000
OTHER_VALUES: tuple[Tree, ...] = (
    None,
    [],
    {},
    [None],
    [[{}]],
    {"kind": "map"},
    {"kind": ["a"]},
    {"x": {"y": 1}},
    -1,
    5,
    10**17,
    1.5,
    Raw(".nan"),
    True,
    "",
    "word",
    "main/x",
    "a:b",
    "${NAME}",
    "${",
    "\u00e9\t\"'\\",
    LONG,
    [LONG] * 3,
)
YAML_ONLY = (Raw("&a x"), Raw("*a"), Raw("!!python/object:os.system x"), Raw("{<<: {a: 1}}"))
ODD_KEYS: tuple[str, ...] = (
    Raw("1"),
    Raw("null"),
    Raw("true"),
    Raw("1.5"),
    Raw("[a]"),
    Raw("? {a: b}\n"),
    Raw("<<"),
    Raw("&anchor k"),
    Raw("*anchor"),
    "",
    " ",
    "name",
    "do",
    "kind ",
    LONG,
)


def models_below(annotation: object) -> Iterator[type[BaseModel]]:
    """Every model that a value of this type may have in it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_below(field.annotation)
    for argument in get_args(annotation):
        yield from models_below(argument)


def mappings_in(tree: Tree) -> Iterator[dict[str, Tree]]:
    """Every mapping of a tree."""
    if isinstance(tree, dict):
        yield tree
    for _, inner in entries(tree):
        yield from mappings_in(inner)


KEYS: Mapping[str, Tree] = {
    **dict.fromkeys((key for model in models_below(PipelineFile) for key in keys_of(model)), "x"),
    **{
        key: one
        for plan in SOUND_PLANS.values()
        for of in mappings_in(plan)
        for key, one in of.items()
    },
}
"""Every key that is known anywhere, with a value that it may have there."""


def places(tree: Tree, path: Steps = ()) -> Iterator[Steps]:
    """The paths of all values of a tree, itself first."""
    yield path
    for step, inner in entries(tree):
        yield from places(inner, (*path, step))


def at(tree: Tree, path: Steps) -> Tree:
    """The value at a path."""
    for step in path:
        tree = tree[step]
    return tree


def changed(tree: Tree, path: Steps, value: Tree) -> Tree:
    """The tree with another value at a path."""
    if not path:
        return value
    whole = deepcopy(tree)
    at(whole, path[:-1])[path[-1]] = value
    return whole


def without(tree: Tree, path: Steps) -> Tree:
    """The tree without what stands at a path."""
    whole = deepcopy(tree)
    del at(whole, path[:-1])[path[-1]]
    return whole


def spoiled_at(tree: Tree, path: Steps) -> Iterator[Spoiled]:
    """Everything that is done to a tree at one place."""
    value = at(tree, path)
    for other in (*OTHER_VALUES, *YAML_ONLY):
        yield f"{other!r:.40} at {path}", changed(tree, path, other)
    if path:
        yield f"no {path}", without(tree, path)
    if path and isinstance(path[-1], str):
        yield f"twice {path}", changed(tree, path, Twice(value))
    if isinstance(value, dict):
        for keys in foreign_keys(cast("dict[str, Tree]", value)):
            yield f"{[*keys]} in {path}", changed(tree, path, {**value, **keys})
    elif isinstance(value, list):
        for other in OTHER_VALUES:
            yield f"{other!r:.40} more at {path}", changed(tree, path, [*value, other])


def foreign_keys(mapping: Mapping[str, Tree]) -> Iterator[Mapping[str, Tree]]:
    """Keys that are known elsewhere, or nowhere. Each is refused by itself, so many stand in one file; ``kind``
    says what the whole is, and YAML ends at some of the odd ones: these are alone."""
    for odd in (*ODD_KEYS, "kind"):
        yield {odd: KEYS.get(odd, "x")}
    more = [key for key in KEYS if key not in mapping and key != "kind"]
    for first in range(0, len(more), AT_ONCE):
        yield {key: KEYS[key] for key in more[first : first + AT_ONCE]}


AT_ONCE = 16


def check_ends_in_order(file: Path, what: str, tree: Tree) -> None:
    """Whatever the plan is now, it is judged or refused; another exception is what nobody has told."""
    file.write_text(as_yaml(tree), encoding="utf-8")
    try:
        check(file, why=True)
    except (SurepipeError, typer.Exit):
        return
    except Exception as error:
        error.add_note(f"{what}:\n{as_yaml(tree)[:3000]}")
        raise


def test_the_plans_write_every_key_that_there_is() -> None:
    """A key of a new kind gets its plan, so that it is spoiled too."""
    written = {key for plan in SOUND_PLANS.values() for of in mappings_in(plan) for key in of}
    assert {key for model in models_below(PipelineFile) for key in keys_of(model)} <= written


@pytest.mark.parametrize("title", SOUND_PLANS)
def test_the_plans_are_sound(title: str) -> None:
    """What is refused below is refused for what was done to them."""
    assert loads(as_yaml(SOUND_PLANS[title])).pipes


def new_places(title: str) -> Iterator[Steps]:
    """The places of a plan that no plan before it has: what holds the same under the same keys."""
    seen: set[tuple[Steps, str]] = set()
    for other, plan in SOUND_PLANS.items():
        here = {path: (path, as_yaml(at(plan, path))) for path in places(plan)}
        if other == title:
            yield from (path for path, one in here.items() if one not in seen)
            return
        seen.update(here.values())


EVERY = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 5
"""Of what is done at the places, one after the other, each so many-th is."""


@pytest.mark.parametrize("title", SOUND_PLANS)
def test_what_is_wrong_at_one_place_is_told(title: str, tmp_path: Path) -> None:
    """Each key that is known anywhere at each place, none, twice, and each value as one of another sort."""
    plan = SOUND_PLANS[title]
    spoiled = (one for path in new_places(title) for one in spoiled_at(plan, path))
    for what, tree in islice(spoiled, 0, None, EVERY):
        check_ends_in_order(tmp_path / "plan.yaml", what, tree)


@pytest.mark.parametrize("title", SOUND_PLANS)
def test_a_kind_is_told_wherever_it_stands(title: str, tmp_path: Path) -> None:
    """It says what the whole is, also where a part has no kind: each of the words that it may be, and none."""
    plan = SOUND_PLANS[title]
    for path in new_places(title):
        if isinstance(value := at(plan, path), dict):
            for kind in ("map", "stream", "x", None):
                spoiled = changed(plan, path, {**value, "kind": kind})
                check_ends_in_order(tmp_path / "plan.yaml", f"kind {kind} in {path}", spoiled)


@given(st.data())
def test_what_is_wrong_at_several_places_is_told(data: st.DataObject) -> None:
    """Two or three at once: what is understood is judged beside what is not."""
    tree = SOUND_PLANS[data.draw(st.sampled_from([*SOUND_PLANS]))]
    done: list[str] = []
    for _ in range(data.draw(st.integers(2, 3))):
        path = data.draw(st.sampled_from([*places(tree)]))
        what, tree = data.draw(st.sampled_from([*spoiled_at(tree, path)]))
        done.append(what)
    with TemporaryDirectory() as folder:
        check_ends_in_order(Path(folder, "plan.yaml"), "; ".join(done), tree)
