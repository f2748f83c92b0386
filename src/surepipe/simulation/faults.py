"""The catalogue of faults, as data: its name, which claim covers it, and between which bounds it is drawn.

A fault is injected by options (rates and numbers) that authorities of a run draw under. Claim mode draws only
what the claim tolerates, all of it together; break mode adds at least one beyond; ``none`` draws nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

from surepipe.core.claims import FAULTS_OF, NO_FAULTS, WORDS, Atom, Fault
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.simulation.chance.randomness import Draws, draws
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.options import DRAINS, Options, Tie
from surepipe.simulation.promises import Promise

ALWAYS = "always"
"""Every claim covers the fault."""
NEVER = "never"
"""No claim covers it; safety must hold all the same."""
ASKED = "asked"
"""In place of a store: it befalls only subjects that ask for it."""


@dataclass(frozen=True, slots=True)
class OptionRange:
    """Between which values an option is drawn; ``unit`` multiplies them: 1, or the subject's timeout."""

    option: str
    low: int
    high: int
    in_timeouts: bool = False

    @property
    def most(self) -> int:
        """The highest value of a rate or a count."""
        return self.high // 10

    def draw(self, source: Draws, timer_us: int) -> int:
        """A value; small ones are as likely as large ones."""
        unit = timer_us if self.in_timeouts else 1
        return source.spread(max(1, self.low * unit // 10), self.high * unit // 10)

    def moderate(self, timer_us: int) -> int:
        """The value for runs in which everything goes wrong a little."""
        unit = timer_us if self.in_timeouts else 1
        low, high = self.low * unit // 10, self.high * unit // 10
        return max(1, low, low + (high - low) // 8)


def rate(option: str, high_percent: int) -> OptionRange:
    """A rate up to so many percent."""
    return OptionRange(option, 10, high_percent * 10_000 * 10)


def timeouts(option: str, low_tenths: int, high_tenths: int) -> OptionRange:
    """A time in tenths of the subject's first timeout."""
    return OptionRange(option, low_tenths, high_tenths, in_timeouts=True)


def number(option: str, low: int, high: int) -> OptionRange:
    """A count."""
    return OptionRange(option, low * 10, high * 10)


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One row of the catalogue.

    ``names`` are those of a claim that it belongs to, or ``always``, or ``never``. ``authority`` injects it.
    ``switch`` is the option that is above 0 where it may occur, empty for one that other kinds bring about.
    ``needs`` is the store without which it can't occur, or ``asked``.
    """

    id: str
    kind: str
    names: tuple[str, ...]
    authority: str
    switch: str
    ranges: tuple[OptionRange, ...] = ()
    needs: str = ""

    def is_on(self, options: Options) -> bool:
        """Whether these options let it happen."""
        return bool(self.switch) and bool(getattr(options, self.switch))


_RESTART = timeouts("restart_us", 0, 100)
_WITHIN = number("crash_within", 3, 60)
_PAUSE = timeouts("pause_us", 10, 500)

CATALOGUE: tuple[FaultKind, ...] = (
    FaultKind(
        "F1",
        "data-loss",
        ("route-loss",),
        "network",
        "loss_ppm",
        (rate("loss_ppm", 50), number("loss_burst", 1, 20)),
    ),
    FaultKind(
        "F2",
        "confirm-loss",
        ("route-loss",),
        "network",
        "confirm_loss_ppm",
        (rate("confirm_loss_ppm", 50),),
    ),
    FaultKind(
        "F3",
        "copy",
        ("route-duplication",),
        "network",
        "copy_ppm",
        (
            rate("copy_ppm", 30),
            number("copies_max", 1, 3),
            timeouts("copy_delay_us", 0, 50),
        ),
    ),
    FaultKind(
        "F4",
        "overtake",
        ("route-reordering",),
        "network",
        "overtake_ppm",
        (rate("overtake_ppm", 30), timeouts("overtake_us", 0, 20)),
    ),
    FaultKind(
        "F5",
        "delay",
        ("route-delay",),
        "network",
        "spike_ppm",
        (rate("spike_ppm", 30), timeouts("spike_us", 1, 50)),
    ),
    FaultKind(
        "F6",
        "partition",
        ("route-outage",),
        "network",
        "cuts",
        (number("cuts", 1, 3), timeouts("cut_us", 5, 100)),
    ),
    FaultKind("F7", "one-way", (NEVER,), "network", "one_way_for_good"),
    FaultKind(
        "F8",
        "sender-crash",
        ("sender-crash",),
        "faults",
        "sender_crashes",
        (
            number("sender_crashes", 1, 3),
            _WITHIN,
            _RESTART,
            rate("crash_again_ppm", 30),
        ),
    ),
    FaultKind(
        "F9", "sender-crash-journaled", ("sender-crash",), "faults", "sender_crashes", (), "journal"
    ),
    FaultKind(
        "F10",
        "receiver-crash",
        ("receiver-crash", "relay-crash"),
        "faults",
        "receiver_crashes",
        (
            number("receiver_crashes", 1, 3),
            _WITHIN,
            _RESTART,
            rate("crash_again_ppm", 30),
        ),
    ),
    FaultKind(
        "F11",
        "receiver-crash-settled",
        ("receiver-crash", "relay-crash"),
        "faults",
        "receiver_crashes",
    ),
    FaultKind("F12", "receiver-crash-unsettled", (NEVER,), "faults", ""),
    FaultKind(
        "F13",
        "store-crash",
        ("store-crash",),
        "disk",
        "store_crashes",
        (number("store_crashes", 1, 2), timeouts("store_outage_us", 1, 50)),
        "any",
    ),
    FaultKind(
        "F14",
        "store-loses-writes",
        ("store-rollback",),
        "disk",
        "store_rollbacks",
        (number("store_rollbacks", 1, 2), number("store_rollback_writes", 1, 5)),
        "any",
    ),
    FaultKind("F15", "lying-store", ("store-crash",), "disk", "lying", (), "any"),
    FaultKind(
        "F16",
        "store-emptied",
        ("store-rollback",),
        "disk",
        "store_losses",
        (number("store_losses", 1, 1),),
        "any",
    ),
    FaultKind(
        "F17",
        "store-rolled-back",
        ("store-rollback",),
        "disk",
        "store_rollbacks",
        (number("store_rollbacks", 1, 2), number("store_rollback_writes", 1, 5)),
        "any",
    ),
    FaultKind(
        "F18",
        "store-outage",
        ("store-outage",),
        "disk",
        "store_outages",
        (
            number("store_outages", 1, 3),
            timeouts("store_outage_us", 1, 200),
            rate("store_slow_ppm", 20),
            timeouts("store_slow_us", 1, 50),
            rate("store_unknown_ppm", 20),
            rate("store_lost_ppm", 20),
        ),
        "any",
    ),
    FaultKind(
        "F18l",
        "late-answer",
        ("store-outage",),
        "disk",
        "store_late_ppm",
        (rate("store_late_ppm", 40), timeouts("store_slow_us", 1, 50)),
        ASKED,
    ),
    FaultKind(
        "F19",
        "clock-step",
        ("clock-step",),
        "clock",
        "wall_steps",
        (number("wall_steps", 1, 5), number("wall_step_us", 1_000_000, 86_400_000_000)),
    ),
    FaultKind(
        "F20",
        "poison",
        ("handler-failure",),
        "stage",
        "fail_ppm",
        (rate("fail_ppm", 40), number("fail_max", 1, 4)),
    ),
    FaultKind(
        "F21",
        "slow-handler",
        (ALWAYS,),
        "stage",
        "slow_ppm",
        (rate("slow_ppm", 50), timeouts("slow_us", 1, 100)),
    ),
    FaultKind("F22", "overflow", (ALWAYS,), "workload", "flood", (number("flood", 8, 64),)),
    FaultKind("F23", "collision", (ALWAYS,), "network", ""),
    FaultKind("F24", "too-large", (ALWAYS,), "workload", "too_large", (number("too_large", 1, 3),)),
    FaultKind(
        "F25",
        "corruption",
        ("route-corruption",),
        "network",
        "corrupt_ppm",
        (rate("corrupt_ppm", 20),),
    ),
    FaultKind(
        "F25r",
        "corruption-at-rest",
        (NEVER,),
        "disk",
        "store_damages",
        (number("store_damages", 1, 2), timeouts("store_outage_us", 1, 100)),
        "restarted stream",
    ),
    FaultKind(
        "F26",
        "mailbox-loss",
        ("sender-crash", "receiver-crash"),
        "faults",
        "mailbox_losses",
        (number("mailbox_losses", 1, 2), _RESTART),
    ),
    FaultKind("F27", "stale", (ALWAYS,), "network", "stale_ppm", (rate("stale_ppm", 20),)),
    FaultKind(
        "F28s",
        "sender-zombie",
        ("sender-zombie",),
        "faults",
        "sender_zombies",
        (number("sender_zombies", 1, 2), _PAUSE),
    ),
    FaultKind(
        "F28r",
        "receiver-zombie",
        ("receiver-zombie",),
        "faults",
        "receiver_zombies",
        (number("receiver_zombies", 1, 2), _PAUSE),
    ),
    FaultKind(
        "F28",
        "pause",
        (ALWAYS,),
        "faults",
        "pauses",
        (number("pauses", 1, 3), _PAUSE),
    ),
    FaultKind(
        "F29",
        "trim",
        ("store-trim",),
        "disk",
        "store_trims",
        (number("store_trims", 1, 2),),
        "stream",
    ),
    FaultKind(
        "F29r",
        "removal",
        ("store-trim",),
        "disk",
        "store_removals",
        (number("store_removals", 1, 3),),
        ASKED,
    ),
    FaultKind(
        "F30",
        "store-refuses",
        ("store-outage",),
        "disk",
        "store_refuse_ppm",
        (rate("store_refuse_ppm", 20),),
        "any",
    ),
    FaultKind(
        "F31",
        "power-cut",
        ("power-loss",),
        "faults",
        "power_cuts",
        (number("power_cuts", 1, 2), _RESTART),
    ),
)

BY_ID: Mapping[str, FaultKind] = {kind.id: kind for kind in CATALOGUE}
BY_KIND: Mapping[str, FaultKind] = {kind.kind: kind for kind in CATALOGUE}


class Mode(StrEnum):
    """Which faults a campaign draws."""

    CLAIM = "claim"
    BREAK = "break"
    NONE = "none"


def names_of(options: Options, ids: Iterable[str] = ()) -> tuple[str, ...]:
    """The names (of claims) of the faults that these options, or these decisions, may bring."""
    found = {name for kind in CATALOGUE if kind.is_on(options) for name in kind.names}
    for id_ in ids:
        found.update(BY_ID[id_].names if id_ in BY_ID else ())
    if options.order == "any" and options.jitter_us:
        found.add(Fault.ROUTE_REORDERING)
    return tuple(fault.value for fault in Fault if fault.value in found)


_WITHOUT_A_WORD = [
    kind.kind
    for kind in CATALOGUE
    if kind.ranges and not any(members.intersection(kind.names) for members in WORDS.values())
]
"""Kinds that are drawn and that no word of ``expect`` means: each is asked for as itself."""


def words_of_faults(given: object) -> tuple[str, ...]:
    """The words in what a caller says of faults: one text with commas, or a list, a tuple or a set of words.
    Raises MisuseError for anything else, and where there is no word."""
    is_many = isinstance(given, list | tuple | set | frozenset)
    parts = cast("Collection[object]", given) if is_many else str(given).split(",")
    words = [part.strip() for part in parts if isinstance(part, str)]
    is_clear = (is_many or isinstance(given, str)) and len(words) == len(parts) > 0
    if not is_clear or not all(words) or any("," in word for word in words):
        raise MisuseError(
            "faults are words with commas between them, or a list, a tuple or a set of words, and this is "
            f"{given!r}"
        )
    return tuple(words if isinstance(parts, list | tuple) else sorted(words))


def chosen(words: Sequence[str]) -> tuple[FaultKind, ...]:
    """Kinds by the words that `expect` knows, by kind or by id. Raises ConfigurationError for any other."""
    found: dict[str, FaultKind] = {}
    for word in words:
        names = FAULTS_OF.get(word, NO_FAULTS)
        fitting = [k for k in CATALOGUE if word in (k.id, k.kind) or names.intersection(k.names)]
        if not fitting:
            kinds = [kind.kind for kind in CATALOGUE if kind.kind not in FAULTS_OF]
            known_words = [*WORDS, *_WITHOUT_A_WORD]
            parts = [known for known in known_words if word and word in known.split("-")]
            close = parts or difflib.get_close_matches(word, [*FAULTS_OF, *kinds], n=1)
            meant = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
            raise ConfigurationError(
                f"{word!r} is no fault: {meant}{'K' if meant else 'k'}nown are {', '.join(known_words)}"
            )
        found |= {kind.id: kind for kind in fitting}
    return tuple(found.values())


def kind_of(decision: Decision) -> str:
    """The kind of the catalogue that a decision is: of zombies, and of lost writes, there are two."""
    if decision.verb == "rollback" and decision.authority == "disk/index":
        return "F17"
    if decision.verb != "zombie":
        return decision.fault
    return "F28s" if decision.authority.startswith("faults/sender") else "F28r"


def kinds_at(
    decision: Decision, *, sends: bool, receives: bool, relays: bool = False
) -> tuple[str, ...]:
    """The kinds that a decision is, at a process with these ends of pipes: its end is one for each of them. The
    crash of a relay is that of a receiver."""
    if relays and decision.verb == "crash":
        return ("F10",)
    if decision.verb not in ("crash", "zombie") or not decision.authority.startswith("faults/"):
        return (decision.fault,) if decision.fault else ()
    of_sender, of_receiver = ("F8", "F10") if decision.verb == "crash" else ("F28s", "F28r")
    return (of_sender,) * sends + (of_receiver,) * receives


# From a seed to the complete options of a run: which faults, how much of each, which workload, which drain.


def draw_options(
    seed: int,
    promise: Promise,
    *,
    mode: str = Mode.CLAIM,
    kinds: Sequence[FaultKind] = (),
    messages: int = 40,
    base: Options | None = None,
) -> Options:
    """The complete options of a seed: its faults, their rates, the workload and the way it is drained."""
    source = draws(seed, "options")
    allowed = list(kinds) or _with_asked(_allowed(source, promise, mode), promise, mode)
    allowed = [kind for kind in allowed if can_occur(kind, promise)]
    start = _world(
        seed, source, promise, replace(base or Options(), mode=str(mode), messages=messages)
    )
    if mode != Mode.NONE and source.below(10) == 0 and not kinds:
        return start
    values: dict[str, int] = {}
    if source.getrandbits(1):
        for kind in source.some(allowed, 500_000) or allowed[:1]:
            values |= {r.option: r.draw(source, promise.timer_us) for r in kind.ranges}
    else:
        for kind in allowed:
            values |= {r.option: r.moderate(promise.timer_us) for r in kind.ranges}
    options = replace(start, **values)  # type: ignore[arg-type]
    return _frozen(source, options) if values else options


def _allowed(source: Draws, promise: Promise, mode: str) -> list[FaultKind]:
    """Claim: what one of the promised atoms tolerates. Break: that, and something that no atom does."""
    if mode == Mode.NONE:
        return []
    promised = [atom.value for atom in Atom if promise.tolerates(atom.value) is not None]
    tolerated = promise.tolerates(source.pick(promised)) if promised else None
    covered = (tolerated or frozenset()) | {ALWAYS}
    inside = [kind for kind in CATALOGUE if covered.issuperset(_in_a_hop(kind))]
    if mode == Mode.CLAIM:
        return inside
    outside = [
        kind
        for kind in CATALOGUE
        if kind not in inside and kind.ranges and can_occur(kind, promise)
    ]
    return [*inside, source.pick(outside)] if outside else inside


def _with_asked(kinds: list[FaultKind], promise: Promise, mode: str) -> list[FaultKind]:
    """These, and what the subject asks for, whatever its atoms tolerate."""
    asked = [BY_ID[id_] for id_ in promise.asks if mode != Mode.NONE]
    return [*kinds, *(kind for kind in asked if kind not in kinds)]


def _in_a_hop(kind: FaultKind) -> set[str]:
    """The names that a kind has in a single hop, which has no relay."""
    return set(kind.names) - {Fault.RELAY_CRASH.value}


def can_occur(kind: FaultKind, promise: Promise) -> bool:
    """Whether a campaign may draw it for a subject that promises this."""
    if not kind.ranges:
        return False
    if kind.needs == ASKED:
        return kind.id in promise.asks
    return not kind.needs or (
        bool(promise.stores) if kind.needs == "any" else kind.needs in promise.stores
    )


def _world(seed: int, source: Draws, promise: Promise, base: Options) -> Options:
    timer = promise.timer_us
    gap = source.pick((0, timer // 20, timer // 4))
    return replace(
        base,
        seed=seed,
        timer_us=timer,
        tie=source.pick(tuple(Tie)),
        changes=source.between(1, 3),
        shape=source.pick(("bursts", "trickle", "batches", "at-once")),
        gap_us=gap,
        batch_max=source.pick((1, 4, 16)),
        drain=source.pick(DRAINS),
        delay_us=max(1, timer // source.pick((1000, 100, 10, 3))),
        jitter_us=source.pick((0, timer // 100, timer // 10)),
        chaos_us=timer * source.between(4, 20),
        handler_us=source.pick((0, 0, timer // 10, timer // 2)),
        part_ppm=source.pick((0, 250_000)),
        store_us=source.pick((0, timer // 100)),
        drift_ppm=source.below(200),
        perturb=bool(source.getrandbits(1)),
    )


def _frozen(source: Draws, options: Options) -> Options:
    """In half of the runs one fault of the network stays on."""
    on = [id_ for id_ in ("F1", "F2", "F3", "F4", "F5") if BY_ID[id_].is_on(options)]
    return replace(options, frozen=source.pick(on)) if on and source.getrandbits(1) else options
