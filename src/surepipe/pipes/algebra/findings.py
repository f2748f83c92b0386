"""What is wrong with a composition, in words: one finding for one reason, each with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from surepipe.pipes.algebra.guarantees import Atom, Fault


class Code(StrEnum):
    """Why a composition or an expectation is refused; the last three are warnings."""

    UNMET_CARRIER = "unmet-carrier"
    ONE_WAY = "one-way"
    UNPROTECTED_CONFIRMS = "unprotected-confirms"
    EXPECTATION = "expectation"
    BOUNDARY = "boundary"
    SPLIT_STORE = "split-store"
    VOLATILE_STORE = "volatile-store"
    NO_DEAD_LETTER = "no-dead-letter"
    NO_START_POLICY = "no-start-policy"
    BOUNDS = "bounds"
    STACK_MISMATCH = "stack-mismatch"
    REDUNDANT = "redundant"
    WEAKENED = "weakened"
    SMALL_BUFFER = "small-buffer"

    @property
    def is_warning(self) -> bool:
        """True for what is legal and probably not meant."""
        return self in (Code.REDUNDANT, Code.WEAKENED, Code.SMALL_BUFFER)


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason. ``why`` is a sentence; ``remedies`` are alternatives, each of which is enough.

    ``part``: the section and name of another part than the pipe, where that is what has to change.
    """

    code: Code
    pipe: str
    why: str
    remedies: tuple[str, ...] = ()
    layer: int | None = None
    kind: str = ""
    atoms: tuple[Atom, ...] = ()
    faults: tuple[Fault, ...] = ()
    part: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = f"pipe {self.pipe}"
        if self.part is not None:
            where = f"{self.part[0].removesuffix('s')} {self.part[1]}"
        text = f"{self.code}: {where}: {self.why}."
        if not self.remedies:
            return text
        remedy = ", or ".join(self.remedies)
        return f"{text} {remedy[0].upper()}{remedy[1:]}."


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something does not hold: where, and a clause that names the cause."""

    pipe: str
    text: str
    layer: int | None = None
    kind: str = ""
    of_route: bool = True
