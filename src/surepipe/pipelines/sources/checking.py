"""What a source may demand of its messages: that a pydantic model takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic import BaseModel, ValidationError

from surepipe.errors import ConfigurationError

Check: TypeAlias = Callable[[object], object]
"""Gives the message as it goes on. Raises Unfit."""


class Unfit(Exception):
    """A message that the source's model does not take."""


def as_it_is(message: object) -> object:
    """Without a model everything is taken."""
    return message


def fitting(model: object, path: str) -> Check:
    """A check by a model. Raises ConfigurationError when it is none."""
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigurationError(
            f"{path} is no pydantic model: a source's model is a class of its own fields"
        )

    def check(message: object) -> object:
        try:
            return model.model_validate(message).model_dump(mode="json")
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'message'}: {one['msg']}"
                for one in error.errors(include_input=False, include_url=False)
            )
            raise Unfit(f"no {model.__name__}: {problems}") from None

    return check
