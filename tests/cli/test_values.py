"""Values of the command line that nobody means: empty texts, negative numbers, and what is no number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer

from surepipe.cli.app import MAY_BE_EMPTY, app
from surepipe.cli.output import Exit
from tests.cli.kit import Command


def _commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from _commands(one, *words, name)
        else:
            yield (*words, name), one


def _kinds_of(command: Any) -> Mapping[str, set[object]]:
    """Of each parameter the types that it may have."""
    found: dict[str, set[object]] = {}
    for name, hint in get_type_hints(command.callback).items():
        found[name] = {hint, *get_args(hint)}
    return found


def _options(*kinds: object) -> Iterator[Any]:
    """Each option of each command that takes a value of these kinds: the command line before it, and its name."""
    for words, command in _commands(typer.main.get_command(app)):
        before = [*words]
        for one in command.params:
            if one.required:
                before += ["x"] if not one.opts[0].startswith("-") else [one.opts[0], "x"]
        kinds_of = _kinds_of(command)
        for one in command.params:
            option = max(one.opts, key=len)
            if option.startswith("-") and kinds_of.get(one.name, set()) & set(kinds):
                yield pytest.param(before, option, id=" ".join((*words, option)))


def _said(surepipe: Command, before: list[str], option: str, value: str) -> str:
    done = surepipe(*before, option, value)
    assert done.code == Exit.UNUSABLE, done
    assert done.out == ""
    return " ".join(done.err.replace("│", " ").split())


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e30", str(2**70)])
@pytest.mark.parametrize(("before", "option"), list(_options(int, float)))
def test_no_option_takes_a_number_that_counts_nothing(
    surepipe: Command, before: list[str], option: str, value: str
) -> None:
    """Not a seed, not a port, not seconds: the option is named."""
    assert f"Invalid value for '{option}'" in _said(surepipe, before, option, value)


@pytest.mark.parametrize(("before", "option"), list(_options(str, Path, list[str])))
def test_no_option_takes_an_empty_text_for_its_value(
    surepipe: Command, before: list[str], option: str
) -> None:
    """An unset variable in a script is told: a path would be this folder, a list of faults the default one."""
    if option.removeprefix("--") in MAY_BE_EMPTY:
        return
    assert "it is empty: leave it out, or give a value" in _said(surepipe, before, option, "")


@pytest.mark.parametrize("command", ["check", "run", "simulate", "graph", "audit", "top"])
def test_no_argument_is_empty_either(surepipe: Command, command: str) -> None:
    """A pipeline's file by an unset variable."""
    done = surepipe(command, "")
    assert done.code == Exit.UNUSABLE
    assert "it is empty" in done.err
