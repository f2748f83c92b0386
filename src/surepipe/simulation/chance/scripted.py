"""A chooser that does what a script says, and the plain thing where the script is silent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surepipe.simulation.chance.chooser import (
    PLAIN_FATE,
    PLAIN_STORE_FATE,
    Fate,
    LinkCut,
    Mishap,
    Roles,
    StoreFate,
    Trouble,
)
from surepipe.simulation.chance.randomness import Draws, draws
from surepipe.simulation.chance.script import Decision, Plain, Script
from surepipe.simulation.events import Event, FrameFlight
from surepipe.simulation.options import Options


class ScriptChooser:
    """Looks each question up by authority, name and verb. Uses a decision for every time its name comes up."""

    def __init__(self, script: Script | Iterable[Decision], *, seed: int | None = None) -> None:
        """``seed`` gives the machines their random numbers; a script brings its own."""
        if isinstance(script, Script):
            seed = script.seed if seed is None else seed
            script = script.decisions
        self._seed = seed or 0
        self._given = tuple(script)
        self._by_authority: dict[str, dict[str, dict[str, Decision]]] = {}
        for decision in self._given:
            about = self._by_authority.setdefault(decision.authority, {})
            about.setdefault(decision.at, {})[decision.verb] = decision
        self._used: dict[Decision, None] = {}
        self._options = Options()

    def given(self) -> Sequence[Decision]:
        """Its script."""
        return self._given

    def begin(self, options: Options) -> None:
        """A run starts: nothing was used yet."""
        self._options = options
        self._used = {}

    def plan(self, nodes: Sequence[Roles], beside: Sequence[Roles] = ()) -> None:
        """A script says itself what befalls them."""

    def end_chaos(self) -> None:
        """A script says itself when its faults end."""

    # Looking things up.

    def _all(self, authority: str, at: str) -> dict[str, Decision]:
        return self._by_authority.get(authority, {}).get(at, {})

    def _use(self, decision: Decision) -> tuple[Plain, ...]:
        self._used[decision] = None
        return decision.value

    def _number(self, decision: Decision | None, plain: int) -> int:
        if decision is None:
            return plain
        value = self._use(decision)
        return int(value[0]) if value else plain

    def _asked(self, authority: str, at: str, verb: str, plain: int) -> int:
        return self._number(self._all(authority, at).get(verb), plain)

    # Answers.

    @property
    def has_ties(self) -> bool:
        """Whether the script orders what is simultaneous."""
        return "schedule" in self._by_authority

    def tie(self, target: str, event: Event) -> int:
        """As the script says."""
        return self._asked("schedule", f"{target}: {event.what}", "tie", 0)

    def fate(self, flight: FrameFlight) -> Fate:
        """As the script says."""
        if not self._by_authority:
            return PLAIN_FATE
        about = self._by_authority.get(f"network/{flight.link}")
        found = about.get(flight.name) if about else None
        if not found:
            return PLAIN_FATE
        fate = Fate()
        for verb, decision in found.items():
            value = [int(item) for item in self._use(decision)]
            if verb == "lose":
                fate.is_lost = True
            elif verb == "copy":
                fate.copies_us, fate.copied_as = value, decision.fault or "F3"
            elif verb == "delay":
                fate.extra_us = value[0]
            elif verb == "overtake":
                fate.overtaken_us = value[0]
            elif verb == "corrupt":
                fate.corrupt_bit = value[0]
        return fate

    def may_ever_trouble(self, node: str) -> bool:
        """Whether the script has anything for this node."""
        return f"faults/{node}" in self._by_authority

    def may_trouble(self, node: str) -> bool:
        """Whether the script has anything for this node."""
        return f"faults/{node}" in self._by_authority

    def trouble(self, node: str, event: Event, points: int) -> Trouble | None:
        """As the script says; a point beyond the last one is the last one."""
        found = self._all(f"faults/{node}", f"{node}: {event.what}")
        for verb, decision in found.items():
            if decision not in self._used:
                point, for_us = (int(item) for item in self._use(decision))
                return Trouble(verb, min(point, points), for_us)
        return None  # each befalls it once: a name may come up again in a later life

    def poisoned(self, payloads: Sequence[bytes]) -> frozenset[bytes]:
        """As the script says."""
        named = {f"message {payload.decode(errors='replace')}": payload for payload in payloads}
        found: list[bytes] = []
        for at, verbs in self._by_authority.get("stage/handler", {}).items():
            if "poison" in verbs and at in named:
                self._use(verbs["poison"])
                found.append(named[at])
        return frozenset(found)

    def submit(self, offer: str, left: int) -> tuple[int, int]:
        """As the script says, else one message at once."""
        found = self._all("workload", offer)
        after = self._number(found.get("after"), self._options.gap_us)
        return after, max(1, min(left, self._number(found.get("count"), 1)))

    def cuts(self, links: Sequence[str], chaos_us: int) -> Sequence[LinkCut]:
        """As the script says."""
        del links, chaos_us
        found: list[LinkCut] = []
        for at, verbs in self._by_authority.get("faults", {}).items():
            for verb, decision in verbs.items():
                if verb.startswith("cut "):
                    at_us, for_us, *links_cut = self._use(decision)
                    names = tuple(str(link) for link in links_cut)
                    # One that heals is never made so short that it would stand for one that does not.
                    lasts = max(1, int(for_us)) if decision.fault == "F6" else int(for_us)
                    found.append(LinkCut(at, verb.removeprefix("cut "), names, int(at_us), lasts))
        return found

    def mishaps(self, stores: Sequence[str], chaos_us: int) -> Sequence[Mishap]:
        """As the script says."""
        del chaos_us
        found: list[Mishap] = []
        for store in stores:
            for at, verbs in self._by_authority.get(f"disk/{store}", {}).items():
                for verb, decision in verbs.items():
                    if at.startswith("mishap "):
                        at_us, amount, for_us = (int(item) for item in self._use(decision))
                        found.append(Mishap(at, store, verb, at_us, amount, for_us))
        return found

    def handling(self, call: Event, epoch: int, first: int, count: int) -> tuple[int, int]:
        """As the script says."""
        del epoch, first, count
        if "stage/handler" not in self._by_authority:
            return self._options.handler_us, 0
        found = self._all("stage/handler", call.what)
        took = self._options.handler_us + self._number(found.get("slow"), 0)
        return took, self._number(found.get("raise"), 0)

    def part(self, event: Event, count: int) -> int:
        """As the script says."""
        return min(count, self._asked("stage/handler", event.what, "part", count))

    def store(self, store: str, call: str, *, is_write: bool) -> StoreFate:
        """As the script says."""
        del is_write
        for verb, decision in self._all(f"disk/{store}", call).items():
            value = self._use(decision)
            if verb == "refuse":
                return StoreFate(verb, self._options.store_us, str(value[0]))
            return StoreFate(verb, int(value[0]))
        return StoreFate("", self._options.store_us) if self._options.store_us else PLAIN_STORE_FATE

    def wall_step(self, node: str, life: int) -> int:
        """As the script says."""
        return self._asked(f"clock/{node}", f"life {life}", "step", 0)

    def perturb(self, name: str, where: str) -> bool:
        """As the script says."""
        found = self._all(f"perturb/{name}", where).get("fire")
        return found is not None and found not in self._used and bool(self._use(found))

    def source(self, label: str) -> Draws:
        """By the seed of the script."""
        return draws(self._seed, label)

    # What was done.

    def decisions(self) -> tuple[Decision, ...]:
        """Those of the script that found something to act on, in the script's order."""
        return tuple(decision for decision in self._given if decision in self._used)

    @property
    def stale(self) -> str | None:
        """The first that found nothing to act on."""
        unused = next((one for one in self._given if one not in self._used), None)
        return str(unused) if unused else None
