"""What came of a run, as a user's check sees it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.actors.coroutines import TurnCoroutines, finish
from surepipe.simulation.actor_world import ActorWorld
from surepipe.simulation.findings import Violation
from surepipe.simulation.outside import Outside
from surepipe.simulation.world import as_detail


@dataclass(frozen=True)
class Outcome:
    """One finished run. ``delivered``: what each sink has, in its order. ``dead``: how many dead letters there
    are. ``calls``: how often each stage was entered."""

    delivered: Mapping[str, Sequence[object]] = field(default_factory=dict[str, Sequence[object]])
    dead: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    outsides: tuple[Outside, ...] = ()

    def checked(self, world: ActorWorld, check: Callable[[object], object]) -> Sequence[Violation]:
        """What a user's check says: nothing, or one violation of the property ``user``."""
        try:
            said = finish(check(self), TurnCoroutines(lambda: 0, _never).wait)
        except AssertionError as error:
            why = str(error) or "its assertion failed"
        except Exception as error:  # noqa: BLE001 - a check that can't be made is no check that holds
            why = f"it raised {type(error).__name__}: {error}"
        else:
            if said is None or bool(said):
                return ()
            why = "it said no"
        return (self._violation(world, check, why),)

    def _violation(
        self, world: ActorWorld, check: Callable[[object], object], why: str
    ) -> Violation:
        repeated = [text for outside in self.outsides for text in outside.repeated()]
        step = _step_of_repeat(world) if repeated else len(world.rows) - 1
        name = getattr(check, "__name__", "check")
        called = "your check" if name == "<lambda>" else f"check {name}"
        told = f"{'; '.join(repeated[:3])}: " if repeated else ""
        return Violation("user", called, step, f"{told}{called} does not hold ({why}).")


def _never(us: int | None) -> None:
    raise RuntimeError(f"a check looks at what has happened, and this one waits ({us})")


def _step_of_repeat(world: ActorWorld) -> int:
    """The first effect that happened before."""
    for row in world.rows:
        if row.kind == "effect" and "for the second time" in row.detail:
            return row.step
    return len(world.rows) - 1


def canonical(message: object) -> str:
    """A message as text that is the same for equal messages."""
    try:
        return json.dumps(message, sort_keys=True, separators=(",", ":"), default=str)
    except (TypeError, ValueError):
        return repr(message)


def detail(facts: Mapping[str, object]) -> str:
    """Facts as rows carry them."""
    return as_detail(facts)
