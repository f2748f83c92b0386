"""A chooser that draws, each authority from a generator of its own, and writes down what it drew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.simulation.chance.chooser import (
    LATE_ANSWER,
    PLAIN_FATE,
    PLAIN_STORE_FATE,
    REMOVALS,
    Fate,
    LinkCut,
    Mishap,
    Roles,
    StoreFate,
    Trouble,
    fault_of,
)
from surepipe.simulation.chance.randomness import MILLION, Draws, draws
from surepipe.simulation.chance.script import Decision, Plain
from surepipe.simulation.events import Event, FrameFlight, Submit, Touch
from surepipe.simulation.options import Options, Tie

# What chance does to the frames of one link, as numbers that are worked out once.


class LinkChance:
    """What chance does to the frames of one link. One draw decides which fault befalls a frame, if any."""

    def __init__(self, options: Options, source: Draws, *, calm: bool = False) -> None:
        self.source = source
        self.getrandbits = source.getrandbits
        """for the draw of each frame, which is ``below(1_000_000)`` of the source"""
        self.jitter_us = options.jitter_us
        self.is_any = options.order == "any"
        lost, copied = options.loss_ppm, options.copy_ppm
        overtaken, spiked, corrupt = options.overtake_ppm, options.spike_ppm, options.corrupt_ppm
        stale = options.stale_ppm
        lost_back = options.confirm_loss_ppm
        if calm:
            frozen, rate = options.frozen, options.frozen_ppm
            lost = rate if frozen == "F1" else 0
            lost_back = rate if frozen == "F2" else 0
            copied = rate if frozen == "F3" else 0
            overtaken = rate if frozen == "F4" else 0
            spiked = rate if frozen == "F5" else 0
            corrupt = stale = 0
            self.is_any = self.is_any and frozen == "F4"
            self.jitter_us = self.jitter_us if self.is_any else 0
        self.options = options
        self.bounds = (copied, overtaken, spiked, corrupt, stale)
        self.lost, self.lost_back = lost, lost_back
        self.total = sum(self.bounds)
        self.burst_max = 1 if calm else options.loss_burst
        """What stays on after the faults keeps losing at its rate, so that a bound on the time can be told."""
        self.burst_left = 0
        self.is_calm = not (lost or lost_back or self.total or self.jitter_us)


# Which links a partition cuts, and when: both ways, one way, again and again, one after the other.


MODES = ("both", "one-way", "isolate", "flapping", "swizzle")


def cut_links(
    source: Draws, name: str, links: Sequence[str], chaos_us: int, options: Options
) -> list[LinkCut]:
    """The cuts that make one partition. Half of them last at least three timeouts, so that they matter."""
    mode = source.pick(MODES)
    start = source.below(max(1, chaos_us))
    longest = max(1, options.cut_us)
    least = min(longest, 3 * options.timer_us) if source.getrandbits(1) else 1
    length = source.between(least, longest)
    if mode == "one-way":
        return [LinkCut(name, mode, (source.pick(links),), start, length)]
    if mode == "flapping":
        part = max(1, length // 5)
        return [
            LinkCut(f"{name}.{turn}", mode, tuple(links), start + 2 * turn * part, part)
            for turn in range(3)
        ]
    if mode == "swizzle":
        return _swizzle(source, name, links, start, length)
    return [LinkCut(name, mode, tuple(links), start, length)]


def _swizzle(
    source: Draws, name: str, links: Sequence[str], start: int, length: int
) -> list[LinkCut]:
    """Links go one by one in one order and come back in another."""
    part = max(1, length // (2 * len(links)))
    heal = {link: place for place, link in enumerate(source.shuffled(links))}
    return [
        LinkCut(
            f"{name}.{place}",
            "swizzle",
            (link,),
            start + place * part,
            (len(links) - place + heal[link] + 1) * part,
        )
        for place, link in enumerate(source.shuffled(links))
    ]


REFUSALS = ("busy", "disk-full", "io", "loading", "moved", "out-of-memory")
"""Those that end by themselves. What a store refuses for good (no rights) stops a pipe, and is told."""


_STORE_VERBS = ("slow", "lost", "unknown", "refuse", LATE_ANSWER)


def _planned(options: Options, node: Roles) -> list[str]:
    """Crashes and zombies of a node. One with both ends of pipes has only those that may befall either, but for a
    relay, whose crash is that of a receiver."""
    crashes = (
        options.receiver_crashes
        if node.relays
        else _both(options.sender_crashes, options.receiver_crashes, node)
    )
    zombies = _both(options.sender_zombies, options.receiver_zombies, node)
    return ["crash"] * crashes + ["zombie"] * zombies


def _both(of_sender: int, of_receiver: int, node: Roles) -> int:
    if node.sends and node.receives:
        return max(of_sender, of_receiver) if of_sender and of_receiver else 0
    return of_sender if node.sends else of_receiver


@dataclass
class Places:
    """At which events of a node, counted from the first, something may befall it during chaos."""

    many: int = 0
    within_calls: list[int] = field(default_factory=list[int])
    """those at which user's code acts outside: what it has done there has no other note than its own"""

    def draw(self, source: Draws) -> int:
        """Any of them; but one within a call half of the time, where there are such, as they are few."""
        if source.getrandbits(1) and self.within_calls:
            return source.pick(self.within_calls)
        return source.between(1, max(1, self.many))


class SeededChooser:
    """Everything by chance, under the rates of the options. The decisions it drew are a script.

    ``places``: those of each node, of which ``whole_run`` speaks, if somebody has counted them (``Rehearsal``).
    """

    def __init__(self, options: Options, places: Mapping[str, Places] | None = None) -> None:
        self.options = options
        self._places: Mapping[str, Places] = (places or {}) if options.whole_run else {}
        self._reset()

    def _reset(self) -> None:
        self._notes: list[tuple[str, str | Event, str, tuple[Plain, ...], str]] = []
        self._sources: dict[str, Draws] = {}
        self._links: dict[str, LinkChance] = {}
        self._is_calm = False
        self._burst = 0
        self._perturbed: dict[str, bool] = {}
        self._asked_perturbs: set[str] = set()
        self._to_come: dict[str, list[str]] = {}
        self._countdown: dict[str, int] = {}
        self._gaps: dict[str, list[int]] = {}
        options = self.options
        self._handler_is_calm = not (options.slow_ppm or options.fail_ppm)
        self._failures: dict[tuple[int, int], int] = {}
        self._senders: set[str] = set()
        self._priorities: dict[str, int] = {}
        self._ties: dict[str, int] = {}

    def given(self) -> Sequence[Decision]:
        """Nothing: it will be drawn."""
        return ()

    def begin(self, options: Options) -> None:
        """A run starts. Raises nothing; the options are those that the chooser was built with."""
        assert options == self.options, "a seeded chooser answers for its own options only"
        self._reset()

    def end_chaos(self) -> None:
        """What is temporary ends."""
        self._is_calm = True
        self._handler_is_calm = True
        self._countdown = {}
        for name, chance in self._links.items():
            self._links[name] = LinkChance(self.options, chance.source, calm=True)

    def source(self, label: str) -> Draws:
        """The generator of an authority; the same one each time."""
        found = self._sources.get(label)
        if found is None:
            found = self._sources[label] = draws(self.options.seed, label)
        return found

    def _note(
        self, authority: str, at: str | Event, verb: str, value: tuple[Plain, ...], fault: str = ""
    ) -> None:
        self._notes.append((authority, at, verb, value, fault))

    # Order.

    @property
    def has_ties(self) -> bool:
        """Whether simultaneous events are ordered by chance."""
        return self.options.tie != Tie.FIFO

    def tie(self, target: str, event: Event) -> int:
        """By lot, or by the priority that the target has now. What comes up again keeps its place."""
        if isinstance(event, Submit):
            return 0  # the application offers one after the other
        name = f"{target}: {event.what}"
        known = self._ties.get(name)
        if known is not None:
            return known
        source = self.source("schedule")
        if self.options.tie == Tie.RANDOM:
            drawn = max(0, source.getrandbits(3) - 4)
        else:
            drawn = self._priority(target, source)
        if drawn:
            self._note("schedule", name, "tie", (drawn,))
        self._ties[name] = drawn
        return drawn

    def _priority(self, target: str, source: Draws) -> int:
        """Random priorities that are drawn anew at a few points, so that rare orders of several steps occur."""
        if target not in self._priorities:
            self._priorities[target] = source.below(8)
        changes = self.options.changes
        if changes and source.below(self.options.messages * 4 // changes + 1) == 0:
            self._priorities[target] = source.below(8)
        return self._priorities[target]

    # The network.

    def fate(self, flight: FrameFlight) -> Fate:
        """One draw for the fault, one for the delay."""
        chance = self._links.get(flight.link)
        if chance is None:
            source = self.source(f"network/{flight.link}")
            chance = LinkChance(self.options, source, calm=self._is_calm)
            self._links[flight.link] = chance
        if chance.is_calm:
            return PLAIN_FATE
        fate = PLAIN_FATE
        lost = chance.lost if flight.kind == "data" else chance.lost_back
        if lost or chance.total:
            while (drawn := chance.getrandbits(20)) >= MILLION:
                pass
            if drawn < lost or (chance.burst_left and lost):
                return self._lose(chance, flight)
            if drawn - lost < chance.total:
                fate = self._fault(chance, flight, drawn - lost)
        if chance.jitter_us and not fate.extra_us:
            extra = chance.source.below(chance.jitter_us + 1)
            if extra:
                fate = Fate(
                    False,
                    extra,
                    fate.overtaken_us,
                    fate.corrupt_bit,
                    fate.copies_us,
                    fate.copied_as,
                )
                fault = "F4" if chance.is_any else ""
                self._note(f"network/{flight.link}", flight, "delay", (extra,), fault)
        return fate

    def _lose(self, chance: LinkChance, flight: FrameFlight) -> Fate:
        if chance.burst_left:
            chance.burst_left -= 1
        elif chance.burst_max > 1:
            chance.burst_left = chance.source.below(chance.burst_max)
        fault = "F1" if flight.kind == "data" else "F2"
        self._note(f"network/{flight.link}", flight, "lose", (), fault)
        return Fate(is_lost=True)

    def _fault(self, chance: LinkChance, flight: FrameFlight, drawn: int) -> Fate:
        options, source = self.options, chance.source
        authority = f"network/{flight.link}"
        copied, overtaken, spiked, corrupt, _ = chance.bounds
        if drawn < copied:
            many = source.between(1, options.copies_max)
            times = tuple(source.below(options.copy_delay_us + 1) for _ in range(many))
            self._note(authority, flight, "copy", times, "F3")
            return Fate(copies_us=times)
        if (drawn := drawn - copied) < overtaken:
            held = source.between(1, max(1, options.overtake_us))
            self._note(authority, flight, "overtake", (held,), "F4")
            return Fate(overtaken_us=held)
        if (drawn := drawn - overtaken) < spiked:
            extra = source.spread(options.delay_us, max(options.delay_us, options.spike_us))
            self._note(authority, flight, "delay", (extra,), "F5")
            return Fate(extra_us=extra)
        if drawn - spiked < corrupt:
            bit = source.getrandbits(16)
            self._note(authority, flight, "corrupt", (bit,), "F25")
            return Fate(corrupt_bit=bit)
        if flight.kind == "data":
            return PLAIN_FATE
        later = (source.between(options.timer_us, 5 * options.timer_us),)
        self._note(authority, flight, "copy", later, "F27")
        return Fate(copies_us=later, copied_as="F27")

    def cuts(self, links: Sequence[str], chaos_us: int) -> Sequence[LinkCut]:
        """Partitions at drawn times, of drawn shapes; none where there is nothing to cut."""
        if not links:
            return ()
        found: list[LinkCut] = []
        source = self.source("faults")
        for number in range(1, self.options.cuts + 1):
            found += cut_links(source, f"partition {number}", links, chaos_us, self.options)
        if self.options.one_way_for_good:
            at = source.below(max(1, chaos_us // 2))
            found.append(LinkCut("one way", "one-way", (self.options.one_way_for_good,), at, 0))
        for cut in found:
            value: tuple[Plain, ...] = (cut.at_us, cut.for_us, *cut.links)
            self._note("faults", cut.name, f"cut {cut.mode}", value, cut.fault)
        return found

    def mishaps(self, stores: Sequence[str], chaos_us: int) -> Sequence[Mishap]:
        """Each at a drawn time, to a drawn store."""
        options, source = self.options, self.source("disk")
        wanted = {
            "crash": (options.store_crashes, "F13"),
            "down": (options.store_outages, "F18"),
            "rollback": (options.store_rollbacks, "F14"),
            "empty": (options.store_losses, "F16"),
            "trim": (options.store_trims, "F29"),
            "damage": (options.store_damages, "F25r"),
            "remove": (options.store_removals, "F29r"),
        }
        found: list[Mishap] = []
        for verb, (many, fault) in wanted.items():
            for number in range(1, many + 1 if stores else 1):
                mishap = Mishap(
                    f"mishap {verb} {number}",
                    source.pick(stores),
                    verb,
                    source.below(max(1, chaos_us // 8 if verb == "damage" else chaos_us)),
                    source.below(REMOVALS)
                    if verb == "remove"
                    else source.between(0, max(1, options.store_rollback_writes)),
                    source.below(options.store_outage_us + 1),
                )
                found.append(mishap)
                value = (mishap.at_us, mishap.amount, mishap.for_us)
                self._note(f"disk/{mishap.store}", mishap.name, verb, value, fault)
        return found

    # The nodes.

    def plan(self, nodes: Sequence[Roles], beside: Sequence[Roles] = ()) -> None:
        """Draw what will befall each node."""
        options, source = self.options, self.source("faults")
        self._senders = {
            node.name for node in (*nodes, *beside) if node.sends and not node.receives
        }
        plans = {node.name: _planned(options, node) for node in nodes}
        shared = ["power"] * options.power_cuts + ["pause"] * options.pauses
        for trouble in [*shared, *["mailbox"] * options.mailbox_losses]:
            plans[source.pick(list(plans))].append(trouble)
        for name, plan in plans.items():
            self._expect(name, source.shuffled(plan), source)
        for node in beside:
            own = self.source(f"faults/{node.name}")
            mixed = own.shuffled([*_planned(options, node), *["pause"] * options.pauses])
            self._expect(node.name, mixed, own)

    def _expect(self, node: str, troubles: list[str], source: Draws) -> None:
        self._to_come[node] = troubles
        if node in self._places:
            own = self.source(f"places/{node}")
            drawn = sorted(self._places[node].draw(own) for _ in troubles)
            gaps = [max(1, at - before) for before, at in zip([0, *drawn], drawn, strict=False)]
            self._gaps[node] = gaps[::-1]
        self._count_down(node, source)

    def _count_down(self, node: str, source: Draws) -> None:
        """``source`` is drawn from in any case, so that all else that it decides stays as it is."""
        if self._to_come[node]:
            soon, gaps = source.spread(1, self.options.crash_within), self._gaps.get(node)
            self._countdown[node] = gaps.pop() if gaps else soon

    def may_ever_trouble(self, node: str) -> bool:
        """Whether anything is planned for the node."""
        return node in self._countdown or bool(self._to_come.get(node))

    def may_trouble(self, node: str) -> bool:
        """Counts the events of the node."""
        left = self._countdown.get(node)
        if left is None:
            return False
        self._countdown[node] = left - 1
        return left <= 1

    def trouble(self, node: str, event: Event, points: int) -> Trouble | None:
        """The next of what was planned for the node, at a drawn point of this event."""
        options, source = self.options, self.source("faults")
        verb = self._to_come[node].pop()
        del self._countdown[node]
        again = verb == "crash" and source.happens(options.crash_again_ppm)
        if again:
            self._to_come[node].append("crash")
            self._countdown[node] = 1
        else:
            self._count_down(node, source)
        point = source.between(-1, points)
        longest = options.pause_us if verb in ("pause", "zombie") else options.restart_us
        trouble = Trouble(verb, point, source.below(longest + 1))
        self._note(
            f"faults/{node}",
            f"{node}: {event.what}",
            verb,
            (trouble.point, trouble.for_us),
            fault_of(verb, is_sender=node in self._senders),
        )
        return trouble

    def wall_step(self, node: str, life: int) -> int:
        """So far as the options allow, forwards or back."""
        if self._is_calm or life > self.options.wall_steps:
            return 0
        reach = self.options.wall_step_us
        step = self.source(f"clock/{node}").between(-min(reach, 3_600_000_000), reach)
        self._note(f"clock/{node}", f"life {life}", "step", (step,), "F19")
        return step

    # The application.

    def poisoned(self, payloads: Sequence[bytes]) -> frozenset[bytes]:
        """So many of the messages."""
        chosen = self.source("stage/handler").shuffled(payloads)[: self.options.poison]
        for payload in chosen if self.options.poison else ():
            name = f"message {payload.decode(errors='replace')}"
            self._note("stage/handler", name, "poison", (), "F20")
        return frozenset(chosen)

    def submit(self, offer: str, left: int) -> tuple[int, int]:
        """By the shape of the workload."""
        options = self.options
        if options.shape == "at-once":
            return options.gap_us, 1
        source = self.source("workload")
        after, count = options.gap_us, 1
        if options.shape == "bursts":
            if self._burst:
                self._burst -= 1
                after = 0
            else:
                self._burst = source.between(1, 12)
                after = source.below(12 * options.gap_us + 1)
        elif options.shape == "trickle":
            after = source.below(2 * options.gap_us + 1)
        else:
            count = source.spread(1, options.batch_max)
            after = source.below(4 * options.gap_us + 1)
        count = min(left, count)
        if after != options.gap_us:
            self._note("workload", offer, "after", (after,))
        if count != 1:
            self._note("workload", offer, "count", (count,))
        return after, count

    def handling(self, call: Event, epoch: int, first: int, count: int) -> tuple[int, int]:
        """Slow now and then, and raising for one message of a delivery."""
        took, seq = self.options.handler_us, 0
        if self._handler_is_calm:
            return took, seq
        source = self.source("stage/handler")
        if source.happens(self.options.slow_ppm):
            slow = source.spread(1, self.options.slow_us)
            took += slow
            self._note("stage/handler", call, "slow", (slow,), "F21")
        if source.happens(self.options.fail_ppm):
            chosen = first + source.below(count)
            failed = self._failures.get((epoch, chosen), 0)
            if failed < self.options.fail_max:
                self._failures[epoch, chosen] = failed + 1
                seq = chosen
                self._note("stage/handler", call, "raise", (seq,), "F20")
        return took, seq

    def part(self, event: Event, count: int) -> int:
        """Now and then only the first few."""
        if count < 2 or not self.options.part_ppm:
            return count
        source = self.source("stage/handler")
        if not source.happens(self.options.part_ppm):
            return count
        part = source.between(1, count - 1)
        self._note("stage/handler", event.what, "part", (part,))
        return part

    # The stores.

    def store(self, store: str, call: str, *, is_write: bool) -> StoreFate:
        """Slow, refused, lost, or done without an answer."""
        options = self.options
        rates = (
            options.store_slow_ppm,
            options.store_lost_ppm,
            options.store_unknown_ppm,
            options.store_refuse_ppm,
            options.store_late_ppm,
        )
        if self._is_calm or not any(rates):
            plain = options.store_us
            return StoreFate("", plain) if plain else PLAIN_STORE_FATE
        source = self.source(f"disk/{store}")
        drawn = source.below(MILLION)
        for verb, rate in zip(_STORE_VERBS, rates, strict=True):
            if drawn < rate:
                return self._store_fault(store, call, verb, source, is_write=is_write)
            drawn -= rate
        return StoreFate("", options.store_us)

    def _store_fault(
        self, store: str, call: str, verb: str, source: Draws, *, is_write: bool
    ) -> StoreFate:
        delay = source.spread(1, max(1, self.options.store_slow_us))
        if verb == "unknown" and not is_write:
            verb = "lost"
        if verb == "refuse":
            reason = source.pick(REFUSALS)
            self._note(f"disk/{store}", call, verb, (reason,), "F30")
            return StoreFate(verb, self.options.store_us, reason)
        self._note(f"disk/{store}", call, verb, (delay,), "F18l" if verb == LATE_ANSWER else "F18")
        return StoreFate(verb, delay)

    def perturb(self, name: str, where: str) -> bool:
        """Each name is enabled in a quarter of the runs and fires then a quarter of the times."""
        if not self.options.perturb or self._is_calm:
            return False
        if where in self._asked_perturbs:
            return False  # each place is asked about once, so that its name means one answer
        self._asked_perturbs.add(where)
        source = self.source(f"perturb/{name}")
        if name not in self._perturbed:
            self._perturbed[name] = source.getrandbits(2) == 0
        if not self._perturbed[name] or source.getrandbits(2):
            return False
        self._note(f"perturb/{name}", where, "fire", (1,))
        return True

    # What was drawn.

    def decisions(self) -> tuple[Decision, ...]:
        """Everything that was drawn and was not plain."""
        return tuple(
            Decision(
                authority,
                at if isinstance(at, str) else at.name if isinstance(at, FrameFlight) else at.what,
                verb,
                value,
                fault,
            )
            for authority, at, verb, value, fault in self._notes
        )

    @property
    def stale(self) -> str | None:
        """Nothing that is drawn can be stale."""
        return None


class Rehearsal(SeededChooser):
    """Draws the same, but for what befalls nodes: the places for that are counted, and nothing does.

    Up to the first of them the run is the one that will be played.
    """

    def _reset(self) -> None:
        super()._reset()
        self.places: dict[str, Places] = {}

    def may_ever_trouble(self, node: str) -> bool:
        """It is asked about each node."""
        del node
        return True

    def may_trouble(self, node: str) -> bool:
        """It is asked about each event of chaos."""
        if self._is_calm:
            return False
        self.places.setdefault(node, Places()).many += 1
        return True

    def trouble(self, node: str, event: Event, points: int) -> None:
        """Nothing befalls it."""
        del points
        place = self.places[node]
        if isinstance(event, Touch) and event.is_within_call:
            place.within_calls.append(place.many)
