"""Settings that may name environment variables: ``${NAME}``, or ``${NAME:-what else}``; ``$$`` is a dollar sign.

A plan holds them as they are written. The values are looked up when the thing is opened, so neither a check, a
picture, an error nor a trace can show a secret, and a file can be checked where its secrets are not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surepipe.errors import ConfigurationError
from surepipe.pipelines.problems import mask

_PART = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(:-(?P<default>[^}]*))?\}|\$")


@dataclass(frozen=True, slots=True, repr=False)
class Setting:
    """A text in which environment variables may stand. ``str`` gives it as written, without a password.

    Raises ConfigurationError for a ``$`` that begins nothing.
    """

    written: str

    def __post_init__(self) -> None:
        if not self.written:
            raise ConfigurationError("is empty")
        for part in _PART.finditer(self.written):
            if part[0] == "$":
                raise ConfigurationError(
                    "has a '$' that begins no variable: write ${NAME}, ${NAME:-default}, or $$ for a dollar sign"
                )

    def __str__(self) -> str:
        return mask(self.written)

    def __repr__(self) -> str:
        return f"Setting({mask(self.written)!r})"

    @property
    def is_variables(self) -> bool:
        """True when it holds nothing but variables, without a default."""
        return not _PART.sub("", self.written).strip() and ":-" not in self.written

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it needs, those with a default left out."""
        return tuple(dict.fromkeys(self._needed()))

    def missing(self, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """The variables that it needs and that are not set."""
        known = os.environ if environment is None else environment
        return tuple(name for name in self.variables if name not in known)

    def reveal(self, environment: Mapping[str, str] | None = None) -> str:
        """The text with the values. Raises ConfigurationError that names the variables that are not set."""
        known = os.environ if environment is None else environment
        if missing := self.missing(known):
            names = " and ".join(missing)
            raise ConfigurationError(
                f"{self} needs {names}, which is not set: set it and try again"
            )

        def value(part: re.Match[str]) -> str:
            if part[0] == "$$":
                return "$"
            return known.get(part["name"], part["default"] or "")

        return _PART.sub(value, self.written)

    def _needed(self) -> Iterator[str]:
        for part in _PART.finditer(self.written):
            if part["name"] and part["default"] is None:
                yield part["name"]


class SecretSetting(Setting):
    """A setting that is a secret: what of it is not a variable is never shown."""

    __slots__ = ()

    def __str__(self) -> str:
        return self.written if self.is_variables else "***"

    def __repr__(self) -> str:
        return f"SecretSetting({str(self)!r})"
