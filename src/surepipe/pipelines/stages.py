"""Stages: how a user's functions are called, and the context that they may ask for.

    def price(order): ...                     # the message
    def price(order, context): ...            # and what is to be known of it
    class Totals: def __call__(self, order): ...    # with memory: one instance for each run of the process

A stage is a function of message, context and its own memory. The context is the same object in real runs and in
simulations; only its clock differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from surepipe.core.store_requests import LATE
from surepipe.errors import MisuseError, TransactionEnded

if TYPE_CHECKING:
    from surepipe.core.store_requests import Transaction


class TimeLimit(Exception):
    """An attempt took longer than ``time_limit_s``. It may have had its effect."""


class Clock(Protocol):
    """Time as stages see it: real, or virtual."""

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment, never going back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Context:
    """What a stage may know and use beside its message.

    ``id`` names the message and stays the same on a repeat: use ``id.key`` as an idempotency key. ``attempt``
    counts from 1. ``random`` draws the same numbers on every attempt; it is not for secrets.
    """

    def __init__(
        self,
        id: About,
        stage: str,
        attempt: int,
        clock: Clock,
        transaction: Transaction | None = None,
    ) -> None:
        self.id = id
        self.stage = stage
        self.attempt = attempt
        self._clock = clock
        self._transaction = transaction
        self._random: Random | None = None
        self._is_over = False
        self.has_lent = False
        """Whether somebody has asked for the transaction."""

    @property
    def random(self) -> Random:
        """A generator seeded from the message's identity and the stage's name."""
        if self._random is None:
            self._random = Random(f"{self.id.key}/{self.stage}")
        return self._random

    @property
    def transaction(self) -> Transaction:
        """With boundary ``committed``: the transaction that stores the effects of this message.

        Raises MisuseError elsewhere, and when the attempt is over.
        """
        if self._is_over:
            raise TransactionEnded(
                f"the attempt of {self.stage} is over, and its transaction with it: {LATE}"
            )
        if self._transaction is None:
            raise MisuseError(
                f"{self.stage} asks for a transaction, which only boundary: committed has: write it on the pipe"
            )
        self.has_lent = True
        return self._transaction

    if not TYPE_CHECKING:  # a checker says so by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(_no_transaction(self.stage, name, self._transaction is not None))

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait so long. Messages behind this one wait too."""
        self._clock.sleep(seconds)

    def close(self) -> None:
        """The attempt is over: from now on there is no transaction."""
        self._is_over = True


def _no_transaction(stage: str, name: str, has_one: bool) -> str:
    """Handlers of a ``Pipe`` that commits get a transaction in the place of a context."""
    return f"the second argument of {stage} is its context, which has no {name!r}: " + (
        "the transaction is context.transaction"
        if has_one
        else "a transaction is there behind a pipe with boundary: committed, as context.transaction. A handler "
        "alone has no store in a simulation: write a plan with such a pipe, and simulate that (docs/testing.md)"
    )


@dataclass(slots=True)  # made for each message: frozen ones take three times as long
class StageCall:
    """One call of a user's function, all but the message. ``limit_s``: how long it may take.

    ``about`` and ``attempt`` tell which call it is, also where the function asks for no context. ``awaits``: the
    function gives a coroutine.
    """

    function: Callable[..., object]
    context: Context | None
    limit_s: float | None = None
    about: About | None = None
    attempt: int = 1
    awaits: bool = False

    def __call__(self, message: object) -> object:
        """Enter the user's code. An async function gives its coroutine."""
        return (
            self.function(message) if self.context is None else self.function(message, self.context)
        )

    def with_all_it_gives(self) -> StageCall:
        """The call of a flat-map: where that is a generator, its body is run within the call."""

        def function(*given: object) -> object:
            result = self.function(*given)
            return (
                list(cast("Iterator[object]", result)) if isinstance(result, Iterator) else result
            )

        return replace(self, function=function)


def wants_context(function: Callable[..., object]) -> bool:
    """True when a function takes a context: a second parameter without default, or one named ``context``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return False
    positional = [
        one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        return False
    return positional[1].default is inspect.Parameter.empty or positional[1].name == "context"


def made(function: Callable[..., object]) -> Callable[..., object]:
    """A class becomes its instance: the stage's memory of this run."""
    if not inspect.isclass(function):
        return function
    instance: object = function()
    if not callable(instance):
        raise MisuseError(
            f"{function.__name__} is a class whose instances can't be called: write __call__(self, message)"
        )
    return instance


@dataclass(
    slots=True, unsafe_hash=True
)  # made for each message: frozen ones take three times as long
class About:
    """Which message this is, for stages and sinks; on a repeat it is the same. Nobody changes one.

    ``part`` counts what came of one message where a stage gave several, and ``branch`` names the way that it took
    where several ways come together again. ``attempt`` is no part of the identity: of a message that is given to a
    sink it says how often that has been tried, this time included. Nor is ``company``: of a batch, which has the
    identity of its first message, all that are in it.
    """

    pipe: str
    epoch: int
    seq: int
    producer: str = ""
    part: int = 0
    branch: str = ""
    attempt: int = field(default=1, compare=False)
    company: tuple[About, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> str:
        """One text of it, for idempotency keys."""
        producer = f"{self.producer}/" if self.producer else ""
        part = f"/{self.part}" if self.part else ""
        return f"{self.pipe}/{producer}{self.epoch}/{self.seq}{part}{self.branch}"

    @property
    def whole(self) -> About:
        """The message that its pipe handed over, of which this was made."""
        return replace(self, part=0, branch="") if self.part or self.branch else self

    @property
    def piece(self) -> str:
        """Tells the results of one message apart; empty for the message itself."""
        return f"{self.part or ''}{self.branch}"
