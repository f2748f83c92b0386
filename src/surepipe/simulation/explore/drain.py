"""Whether a run can still end well: all faults end, and everything that is left is submitted and delivered.

The fast drain delivers what is on the way before any deadline passes. In the slow one every answer takes longer
than the timers: each round, all deadlines pass first, and then arrives what was on the way before. A drain is a
function of the state, so one that meets a state known to end well ends well too.

The fair drain draws the order of what happens in a round, and leaves nothing out of a round.
"""

from __future__ import annotations

from typing import cast

from surepipe.core.machine import SenderMachine
from surepipe.simulation.chance.randomness import draws
from surepipe.simulation.explore.history import AT_END, Broken, Histories
from surepipe.simulation.explore.transitions import SENDER, ExploredStep, Space, State


class DrainStates:
    """One way to drain, and the states from which it is known to end well."""

    def __init__(self, space: Space, *, slow: bool) -> None:
        self._space = space
        self._wanted = tuple(name for name in space.scope.properties if name in AT_END)
        self._advance = self._slow_round if slow else self._fast_step
        self._good: set[State] = set()
        self._is_met_for_good = "P11" not in self._wanted

    def failure(self, state: State) -> Broken | None:
        """The property that can't be met any more from here, None when it ends well."""
        if not self._wanted:
            return None
        current = self._begin(state)
        path: dict[State, None] = {}
        steps_max = self._space.scope.drain_steps_max
        while current not in self._good and not self._is_met(current):
            following, steps = self._advance(current)
            path[current] = None
            if not steps or following == current:
                failure = self._ended(current, moving=bool(steps))
            elif following in path or len(path) > steps_max:
                failure = self._ended(following, moving=True)
            else:
                current = following
                continue
            if failure is not None:
                return failure
            break
        self._good.update(path)
        return None

    def path(self, state: State) -> tuple[list[tuple[State, ExploredStep]], State]:
        """The drain step by step, each with the state it starts in; and where it ends."""
        current = self._begin(state)
        seen: dict[State, None] = {}
        taken: list[tuple[State, ExploredStep]] = []
        while current not in seen and len(seen) <= self._space.scope.drain_steps_max:
            seen[current] = None
            start = current
            following, steps = self._advance(current)
            if following == current:
                break
            for step in steps:
                taken.append((start, step))
                start, _ = self._space.taken(start, step)
            current = following
        return taken, current

    def _begin(self, state: State) -> State:
        return self._space.healed(state)

    # Ways to go on.

    def _fast_step(self, state: State) -> tuple[State, list[ExploredStep]]:
        for link, frames in enumerate(state[1]):
            if frames:
                return self._take(state, [self._arrival(link, frames[0])])
        return self._quiet(state)

    def _slow_round(self, state: State) -> tuple[State, list[ExploredStep]]:
        on_the_way = [(link, frame) for link, frames in enumerate(state[1]) for frame in frames]
        if not on_the_way:
            return self._quiet(state)
        current, steps = self._take(state, self._answers(state) + self._submit(state))
        passing = self._still_armed(current, self._wakes(state))
        woken = {
            step.place: self._space.due(step.place, current[0][step.place]) for step in passing
        }
        arrivals = [self._arrival(link, frame) for link, frame in on_the_way]
        current, more = self._take(current, passing + arrivals)
        return self._space.passed(current, woken), steps + more

    def _still_armed(self, state: State, wakes: list[ExploredStep]) -> list[ExploredStep]:
        """An answer may have taken away the deadline."""
        nodes = state[0]
        return [
            step for step in wakes if self._space.due(step.place, nodes[step.place]) is not None
        ]

    def _arrival(self, link: int, frame: int) -> ExploredStep:
        return ExploredStep("arrive", self._space.links[link][1], link, frame, ("arrive", frame))

    def _quiet(self, state: State) -> tuple[State, list[ExploredStep]]:
        """Nothing is on the way: answers come, then what is left is submitted, then all deadlines pass."""
        answers = self._answers(state)
        if answers:
            return self._take(state, answers)
        return self._take(state, self._submit(state) or self._wakes(state))

    def _submit(self, state: State) -> list[ExploredStep]:
        event = self._space.submit_event(state)
        return [] if event is None else [ExploredStep("submit", SENDER, event=event)]

    def _answers(self, state: State) -> list[ExploredStep]:
        """Everything that waits comes, the oldest first."""
        steps: list[ExploredStep] = []
        for place, number in enumerate(state[0]):
            waiting = self._space.nodes[place].state(number).waiting
            steps.extend(ExploredStep("answer", place, event=("answer", 0)) for _ in waiting)
        return steps

    def _wakes(self, state: State) -> list[ExploredStep]:
        return [
            ExploredStep("wake", place, event=("wake",))
            for place, number in enumerate(state[0])
            if self._space.due(place, number) is not None
        ]

    def _take(self, state: State, steps: list[ExploredStep]) -> tuple[State, list[ExploredStep]]:
        for step in steps:
            state, _ = self._space.taken(state, step)
        return state, steps

    # The end.

    def _is_met(self, state: State) -> bool:
        """True when all is submitted and nothing is missing: what is settled or confirmed once stays so."""
        is_over = self._is_met_for_good and state[2] == self._space.scope.messages
        return is_over and self._ended(state, moving=False) is None

    def _ended(self, state: State, *, moving: bool) -> Broken | None:
        """What is not as it should be when nothing happens any more (or for ever the same)."""
        histories: Histories = self._space.histories
        history = histories[state[5]]
        for wanted in self._wanted:
            missing = history.missing_from(history.since if self._space.scope.after_crash else 0)
            if wanted == "P2" and missing:
                return wanted, missing
            if wanted == "P12" and history.unconfirmed:
                return wanted, history.unconfirmed
            if wanted == "P11" and (history.unconfirmed or self._is_busy(state, moving=moving)):
                return wanted, history.unconfirmed
        return None

    def _is_busy(self, state: State, *, moving: bool) -> bool:
        """Whether something stays behind: frames for ever on the way, or a sender that is not idle."""
        sender = cast("SenderMachine", self._space.nodes[SENDER].machine(state[0][SENDER]))
        return (moving and any(state[1])) or not sender.idle


class FairDrain(DrainStates):
    """One round after the other: in an order that is drawn, everything happens that can happen when it begins.

    The draws follow from the state in which the drain begins. One that comes back to where it was goes on another
    way, so only standing still, or too many rounds, are an end. Links keep their order, as no fault is left.
    """

    def __init__(self, space: Space) -> None:
        super().__init__(space, slow=False)
        self._advance = self._fair_round

    def failure(self, state: State) -> Broken | None:
        """The property that isn't met at the end, None when all are."""
        current = self._begin(state)
        path: dict[State, None] = {}
        for _ in range(self._space.scope.drain_steps_max):
            if current in self._good or self._is_met(current):
                self._good.update(path)
                return None
            path[current] = None
            current, steps = self._advance(current)
            if not steps:
                break
        return self._ended(current, moving=True)

    def _begin(self, state: State) -> State:
        begun = super()._begin(state)
        self._draws = draws(0, f"drain {begun}")
        return begun

    def _is_met(self, state: State) -> bool:
        """True when all is submitted and, at this moment, nothing is missing and nothing on the way."""
        return state[2] == self._space.scope.messages and self._ended(state, moving=True) is None

    def _fair_round(self, state: State) -> tuple[State, list[ExploredStep]]:
        possible = [("arrive", link) for link, frames in enumerate(state[1]) for _ in frames]
        possible += [
            (step.verb, step.place) for step in (*self._answers(state), *self._wakes(state))
        ]
        possible.append(("submit", SENDER))
        taken: list[ExploredStep] = []
        for verb, where in self._draws.shuffled(possible):
            steps = self._possible_now(state, verb, where)
            state, _ = self._take(state, steps[:1])
            taken += steps[:1]
        return state, taken

    def _possible_now(self, state: State, verb: str, where: int) -> list[ExploredStep]:
        """What a step earlier in the round may have taken away."""
        if verb == "arrive":
            return [self._arrival(where, frame) for frame in state[1][where]]
        if verb == "submit":
            return self._submit(state)
        steps = self._answers(state) if verb == "answer" else self._wakes(state)
        return [step for step in steps if step.place == where]
