"""What a book may spend and how it behaves: costs, budgets, the meter of a call, the settings (B-20 to B-23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Literal, TypeAlias, cast

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.queues.book.page import HEADER_BYTES

DIMENSIONS = ("messages", "bytes", "units", "seconds")
Vector: TypeAlias = tuple[int, int, int, int]
"""A cost in whole numbers, in the order of ``DIMENSIONS``; the seconds are microseconds."""
MESSAGES, BYTES, UNITS, MICROS = range(4)
NOTHING: Vector = (0, 0, 0, 0)


def micros(seconds: float) -> int:
    """Whole microseconds, rounded up."""
    whole = int(seconds * 1_000_000)
    return whole + (whole < seconds * 1_000_000)


def _refuse(owner: str, name: str, value: object, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{name} of {owner} is {value!r}: give {wanted}")


def _check_whole(owner: str, name: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise _refuse(owner, name, value, "a whole number from 0 on")


def _check_seconds(owner: str, name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and isfinite(cast("float", value)) and cast("float", value) >= 0):
        raise _refuse(owner, name, value, "seconds, from 0 on")


@dataclass(frozen=True, slots=True)
class Cost:
    """What handling one message takes, as its processor declares it. The book adds one message and its bytes."""

    units: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        _check_whole("a Cost", "units", self.units)
        _check_seconds("a Cost", "seconds", self.seconds)

    def vector(self, size: int) -> Vector:
        """With the message itself, which has so many bytes."""
        return (1, size, self.units, micros(self.seconds))


CostOf: TypeAlias = Cost | Callable[[bytes], Cost]


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so much; a dimension that is None has no bound."""

    messages: int | None = None
    bytes: int | None = None
    units: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in DIMENSIONS[:3]:
            if getattr(self, name) is not None:
                _check_whole("a Budget", name, getattr(self, name))
        if self.seconds is not None:
            _check_seconds("a Budget", "seconds", self.seconds)

    def limits(self) -> tuple[int | None, ...]:
        """The bounds in whole numbers."""
        seconds = None if self.seconds is None else micros(self.seconds)
        return (self.messages, self.bytes, self.units, seconds)

    def covers(self, cost: Vector) -> bool:
        """Whether a cost is within every bound."""
        return all(
            limit is None or part <= limit for part, limit in zip(cost, self.limits(), strict=True)
        )

    def __str__(self) -> str:
        bounds = [
            f"{name}={getattr(self, name)}"
            for name in DIMENSIONS
            if getattr(self, name) is not None
        ]
        return ", ".join(bounds) or "no bound"


@dataclass(frozen=True, slots=True)
class Overheads:
    """What the book's own work takes of a budget, in units."""

    bump: int = 0
    queue: int = 0
    page_done: int = 0
    page_left: int = 0
    item: int = 0
    unknit: int = 0

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_whole("Overheads", one.name, getattr(self, one.name))

    @property
    def visit(self) -> int:
        """Of one visit."""
        return self.queue + self.unknit

    @property
    def page(self) -> int:
        """Of one page of a visit."""
        return max(self.page_done, self.page_left)

    @property
    def of_one(self) -> int:
        """Of a call that serves a single message."""
        return self.bump + self.visit + self.page + self.item


class Meter:
    """What one call has taken and may still take (B-21)."""

    __slots__ = ("bounds", "limits", "ran", "used")

    def __init__(self, limits: tuple[int | None, ...]) -> None:
        self.limits = limits
        self.bounds = [
            (place, limit)
            for place in (MESSAGES, UNITS, MICROS)
            if (limit := limits[place]) is not None
        ]
        """The dimensions, bytes aside, that have a limit: looked at for each visit."""
        self.used = [0, 0, 0, 0]
        self.ran = False
        """Whether a message has run, after which declared seconds must fit like everything else."""

    def fits(self, cost: Vector) -> bool:
        """Whether the cost may be taken, in all dimensions."""
        for part, used, limit in zip(cost[:MICROS], self.used, self.limits, strict=False):
            if limit is not None and used + part > limit:
                return False
        limit = self.limits[MICROS]
        if limit is None:
            return True
        left = limit - self.used[MICROS]
        return cost[MICROS] <= left or (not self.ran and left > 0)

    def take(self, cost: Vector, times: int = 1) -> None:
        """Charge it; a negative ``times`` gives it back."""
        used = self.used
        for place, part in enumerate(cost):
            used[place] += part * times

    def take_units(self, units: int) -> bool:
        """Charge an overhead if it fits."""
        limit = self.limits[UNITS]
        if units and limit is not None and self.used[UNITS] + units > limit:
            return False
        self.used[UNITS] += units
        return True

    def left(self, place: int) -> int | None:
        """What is left in one dimension; None: no bound."""
        limit = self.limits[place]
        return None if limit is None else limit - self.used[place]

    def is_out_of(self, constant: Cost | None) -> bool:
        """Whether nothing can run any more, whatever comes; ``constant``: the cost of every message."""
        for place, limit in self.bounds:
            left = limit - self.used[place]
            if left > 0 or (left == 0 and place == MICROS):
                continue
            if place != UNITS or (constant is not None and constant.units > 0):
                return True
        return False

    @property
    def is_used_up(self) -> bool:
        """Whether messages, units or seconds stand at zero."""
        used = self.used
        for place, limit in self.bounds:  # noqa: SIM110 - a generator takes twice as long
            if limit <= used[place]:
                return True
        return False


Dropping: TypeAlias = Literal["dead_letter", "park", "drop"]
Standing: TypeAlias = Literal["park", "block", "dead_letter"]
_CHOICES = {
    "policy": ("drr", "rotate"),
    "fair_by": ("units", "messages", "bytes"),
    "on_overweight": ("park", "block", "dead_letter"),
    "on_poison": ("park", "block", "dead_letter"),
    "on_rejected": ("dead_letter", "park", "drop"),
    "on_reap": ("dead_letter", "drop"),
}
_RANGES = {
    "page_bytes": (16, 1 << 20),
    "max_stale_pages": (0, 65_535),
    "quantum": (1, 1 << 53),
    "retries": (1, 1 << 31),
    "max_origins": (1, 1 << 31),
    "max_batch_bytes": (1, 1 << 31),
    "commit_messages": (1, 1 << 20),
    "checkpoint_bytes": (1 << 10, 1 << 31),
}
LEASE_LEAST_S = 0.05
_SECONDS = (
    "period_s",
    "retry_min_s",
    "retry_max_s",
    "lease_s",
    "idle_ttl_s",
)


@dataclass(frozen=True, slots=True)
class BookConfig:
    """The settings of a book, checked when they are built."""

    page_bytes: int = 65_536
    max_stale_pages: int = 48
    policy: Literal["drr", "rotate"] = "drr"
    quantum: int = 100
    period_s: float = 1.0
    fair_by: Literal["units", "messages", "bytes"] = "units"
    period_budget: Budget | None = field(
        default_factory=lambda: Budget(messages=10_000, seconds=0.5)
    )
    idle_budget: Budget | None = field(default_factory=lambda: Budget(messages=10_000, seconds=0.5))
    max_message_cost: Budget | None = None
    overheads: Overheads = Overheads()
    on_overweight: Standing = "park"
    on_poison: Standing = "park"
    on_rejected: Dropping = "dead_letter"
    on_reap: Literal["dead_letter", "drop"] = "dead_letter"
    retries: int = 5
    retry_min_s: float = 0.1
    retry_max_s: float = 30.0
    suspend_pages: int | None = 32
    resume_pages: int | None = 8
    refuse_pages: int | None = 48
    max_origins: int = 65_536
    max_batch_bytes: int = 1 << 20
    lease_s: float = 30.0
    commit_messages: int = 100
    commit_s: float | None = None
    """What was handled waits no longer for its commit, nor a claimed queue for a handler to begin; None: a second,
    or less where ``lease_s`` is short."""
    checkpoint_bytes: int = 1 << 20
    """After so many bytes of changes, what they came to is written and they are removed; of changes to many
    queues, after so many for each 256 of them, up to 64 times as many."""
    idle_ttl_s: float = 3_600.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _refuse("a BookConfig", name, getattr(self, name), " or ".join(choices))
        for name, (least, most) in _RANGES.items():
            value: object = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise _refuse("a BookConfig", name, value, f"a whole number from {least} to {most}")
        for name in _SECONDS:
            _check_seconds("a BookConfig", name, getattr(self, name))
        for problem in (*self._thresholds(), *self._waits(), *self._budgets()):
            raise ConfigurationError(problem)

    def _thresholds(self) -> Iterator[str]:
        resume, suspend, refuse = self.resume_pages, self.suspend_pages, self.refuse_pages
        for name, value in (
            ("resume_pages", resume),
            ("suspend_pages", suspend),
            ("refuse_pages", refuse),
        ):
            if value is not None and (type(value) is not int or value < 1):
                yield f"{name} is {value!r}: give a whole number above 0, or None for no such threshold"
                return
        if (resume is None) != (suspend is None):
            yield f"suspend_pages={suspend} and resume_pages={resume}: give both, or None for both"
        elif resume is not None and suspend is not None and resume >= suspend:
            yield f"resume_pages={resume} is not below suspend_pages={suspend}: intake would never go on"
        if suspend is not None and refuse is not None and suspend > refuse:
            yield f"suspend_pages={suspend} is above refuse_pages={refuse}: nobody would be told in time"

    def _waits(self) -> Iterator[str]:
        if not self.period_s:
            yield "period_s is 0: give the seconds after which the budget of a period is there again"
        if self.retry_min_s > self.retry_max_s:
            yield f"retry_min_s={self.retry_min_s} is above retry_max_s={self.retry_max_s}"
        if self.max_batch_bytes < self.max_message:
            yield (
                f"max_batch_bytes={self.max_batch_bytes} is below the longest message, page_bytes - 5 = "
                f"{self.max_message}"
            )
        if self.lease_s < LEASE_LEAST_S:
            yield (
                f"lease_s={self.lease_s} is below {LEASE_LEAST_S}: others would take a process for dead that only "
                "waits for its store"
            )
        if self.commit_s is None:
            return
        _check_seconds("a BookConfig", "commit_s", self.commit_s)
        if self.commit_s >= self.lease_s / 3:
            yield (
                f"commit_s={self.commit_s} is not below a third of lease_s={self.lease_s}: a process would be "
                "taken for dead before it commits"
            )

    def _budgets(self) -> Iterator[str]:
        period, idle, over = self.period_budget, self.idle_budget, self.overheads.of_one
        for name, budget in (("period_budget", period), ("idle_budget", idle)):
            if budget is not None and budget.units is not None and budget.units < over:
                yield (
                    f"{name} has units={budget.units}, and the overheads of a single message take {over}: "
                    "no message would ever run; raise the budget or lower the overheads"
                )
        if period is not None and idle is not None and larger(period, idle) is None:
            yield (
                f"period_budget ({period}) and idle_budget ({idle}): one of them must be at least the other in "
                "every dimension, as the larger one says which message is too heavy"
            )
        biggest = self.bounding
        if self.max_message_cost is not None and biggest is not None:
            most, limits = self.max_message_cost.limits(), biggest.limits()
            extra = (0, 0, over, 0)
            for name, cost, more, limit in zip(DIMENSIONS, most, extra, limits, strict=True):
                if limit is not None and cost is not None and cost + more > limit:
                    yield (
                        f"max_message_cost allows {name}={cost}, with overheads {cost + more}, and the larger "
                        f"budget has {limit}: such a message could wait for ever; lower max_message_cost or "
                        "raise the budget"
                    )

    @property
    def max_message(self) -> int:
        """The longest payload."""
        return self.page_bytes - HEADER_BYTES

    @property
    def commit_us(self) -> int:
        """How long what was handled may wait for its commit."""
        return micros(min(1.0, self.lease_s / 4) if self.commit_s is None else self.commit_s)

    @property
    def rate(self) -> Budget | None:
        """The budget of all processes together for one period; None where budgets bound single calls."""
        return self.period_budget if self.idle_budget is None else None

    @property
    def bounding(self) -> Budget | None:
        """The larger of the two budgets; None when there is none."""
        if self.period_budget is None or self.idle_budget is None:
            return self.period_budget or self.idle_budget
        return larger(self.period_budget, self.idle_budget)

    def cut_off(self, limits: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Above this, in any dimension, a message is overweight in a call with these limits (B-23)."""
        if self.max_message_cost is not None:
            return self.max_message_cost.limits()
        if self.bounding is not None:
            limits = self.bounding.limits()
        units = limits[UNITS]
        return (
            limits[MESSAGES],
            limits[BYTES],
            None if units is None else max(0, units - self.overheads.of_one),
            None,
        )


def larger(one: Budget, other: Budget) -> Budget | None:
    """The budget that is at least the other in every dimension; None when neither is."""
    for big, small in ((one, other), (other, one)):
        pairs = zip(big.limits(), small.limits(), strict=True)
        if all(most is None or (least is not None and most >= least) for most, least in pairs):
            return big
    return None


def cost_of(declared: object, payload: bytes) -> Vector:
    """Ask the processor's cost function; raises ``MisuseError`` when what it gives is no Cost."""
    cost = declared(payload) if callable(declared) else declared
    if not isinstance(cost, Cost):
        close = getattr(cost, "close", None)
        if callable(close):
            close()  # of a coroutine or a generator, which nobody will run
        name = getattr(declared, "__qualname__", repr(declared))
        raise MisuseError(
            f"cost function {name} gave {type(cost).__name__} {cost!r}; it must return a Cost"
        )
    return cost.vector(len(payload))
