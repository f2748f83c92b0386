"""Checks messages of a source, and settles what becomes of those before a bad one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from pydantic import BaseModel, ValidationError

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import SourceRow
from surepipe.pipelines.calling import failing_only, told_of

Check: TypeAlias = Callable[[object], object]
"""Gives the message as it goes on. Raises Unfit."""


class Unfit(Exception):
    """A message that the source's model does not take."""


def as_it_is(message: object) -> object:
    """Without a model everything is taken."""
    return message


def as_json(found: BaseModel) -> object:
    """What a model has made of a message, as stages get it."""
    return found.model_dump(mode="json")


def fitting(model: object, path: str, dumped: Callable[[BaseModel], object] = as_json) -> Check:
    """A check by a model. Raises ConfigurationError when it is none."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigurationError(
            f"{path} is no pydantic model: a source's model is a class of its own fields"
        )

    def check(message: object) -> object:
        try:
            with failing_only("it"):
                return dumped(model.model_validate(message))
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'message'}: {one['msg']}"
                for one in error.errors(include_input=False, include_url=False)
            )
            raise Unfit(f"no {model.__name__}: {problems}") from None
        except Exception as error:
            raise Unfit(f"{path} failed: {told_of(error)}") from error

    return check


def refused(message: object, after: str, wrong: str, keeps: bool) -> SourceRow:
    """A row that stands for a bad message, for a source that keeps those. Else raises ConfigurationError."""
    if not keeps:
        raise ConfigurationError(wrong)
    if not isinstance(message, bytes):
        message = json.dumps(message, default=repr).encode()
    return SourceRow(message, after, wrong)


class Readable:
    """Rows that are taken a few at a time. What is wrong with one is raised when those before it were given."""

    def __init__(self, rows: Iterable[SourceRow] = ()) -> None:
        self._rows = iter(rows)
        self._wrong: ConfigurationError | None = None

    def take(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next rows; None when there are no more. Raises ConfigurationError."""
        if self._wrong is not None:
            raise self._wrong
        found: list[SourceRow] = []
        try:
            for row in islice(self._rows, rows_max):
                found.append(row)  # noqa: PERF402 - those before a wrong one are kept
        except ConfigurationError as error:
            if not found:
                raise
            self._wrong = error
        return found or None
