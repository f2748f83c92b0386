"""The options of a run: everything that chance does not decide, and how often chance may strike.

Printed, the record is the threat model of the run: what may happen, how often, how long. The record alone, with
the subject, repeats the run. All rates are in millionths, all times in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum

from surepipe.errors import ConfigurationError
from surepipe.simulation.chance.script import Plain

MS = 1_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND


class Tie(StrEnum):
    """Decides the order of events that are due at the same microsecond."""

    FIFO = "fifo"
    RANDOM = "random"
    PRIORITY = "priority"


class Drain(StrEnum):
    """How a run is brought to its end: over which network, and whether new messages keep coming."""

    FAST_QUIET = "fast-quiet"
    FAST_LOAD = "fast-load"
    SLOW_QUIET = "slow-quiet"
    SLOW_LOAD = "slow-load"

    @property
    def is_slow(self) -> bool:
        """Answers take longer than the first timeout."""
        return self in (Drain.SLOW_QUIET, Drain.SLOW_LOAD)

    @property
    def has_load(self) -> bool:
        """New messages keep coming."""
        return self in (Drain.FAST_LOAD, Drain.SLOW_LOAD)


DRAINS: tuple[Drain, ...] = tuple(Drain)


def _require_one_of(option: str, word: str, words: type[StrEnum]) -> None:
    if word not in list(words):
        raise ConfigurationError(f"{option} is {word!r}: known are {', '.join(words)}")


@dataclass(frozen=True, slots=True)
class Options:
    """One run. Without a change: no faults, every frame takes ``delay_us``, all messages are offered at once."""

    # What the run is.
    seed: int = 0
    mode: str = "none"
    tie: str = Tie.FIFO
    changes: int = 0
    """how often a node's priority changes, with ties by priority"""
    events_max: int = 200_000
    time_max_us: int = HOUR
    drain: str = Drain.FAST_QUIET
    timer_us: int = SECOND
    """the first timeout of the subject: what is slow is slow against this"""

    # What is offered.
    messages: int = 40
    shape: str = "at-once"
    """how messages come: at-once, bursts, trickle, batches"""
    gap_us: int = 0
    batch_max: int = 1
    payload_bytes: int = 0
    """messages are filled up to this length"""
    flood: int = 0
    """messages offered at once on top of the others"""
    too_large: int = 0
    """offers of a message above the largest that is allowed"""
    unreadable: int = 0
    """rows that can't be read, of each source that has dead letters for them"""
    load_messages: int = 8
    """new messages in a drain with load"""
    chaos_us: int = 0
    """chaos lasts at least this long, and until everything was offered"""

    # The network.
    delay_us: int = MS
    jitter_us: int = 0
    order: str = "fifo"
    """fifo: frames of a link keep their order; any: those with a shorter delay overtake"""
    capacity: int = 0
    """frames that a link holds; what comes more is lost (0: no bound)"""
    loss_ppm: int = 0
    confirm_loss_ppm: int = 0
    loss_burst: int = 1
    """frames lost in a row"""
    copy_ppm: int = 0
    copies_max: int = 1
    copy_delay_us: int = 0
    overtake_ppm: int = 0
    overtake_us: int = 0
    """how long an overtaken frame is held back"""
    spike_ppm: int = 0
    spike_us: int = 0
    corrupt_ppm: int = 0
    cuts: int = 0
    """partitions during chaos"""
    cut_us: int = 0
    one_way_for_good: str = ""
    """the link that is cut and never heals"""
    stale_ppm: int = 0
    """control frames of long ago that come once more"""

    # The nodes.
    sender_crashes: int = 0
    receiver_crashes: int = 0
    power_cuts: int = 0
    crash_within: int = 40
    """a crash comes within so many events of its node since the last"""
    whole_run: bool = False
    """what befalls a node may come at any of its events, late ones too, where somebody has counted these"""
    crash_again_ppm: int = 0
    """a crash is followed by another at the first event of the next life"""
    restart_us: int = 0
    """the longest time until a crashed node is back"""
    sender_zombies: int = 0
    receiver_zombies: int = 0
    pauses: int = 0
    pause_us: int = 0
    mailbox_losses: int = 0
    drift_ppm: int = 0
    wall_steps: int = 0
    wall_step_us: int = 0

    # The handler.
    handler_us: int = 0
    slow_ppm: int = 0
    slow_us: int = 0
    fail_ppm: int = 0
    fail_max: int = 3
    """times in a row that one message fails at the most"""
    poison: int = 0
    """messages that always fail"""
    part_ppm: int = 0
    """deliveries that the handler settles in two parts"""

    # The stores.
    store_us: int = 0
    store_slow_ppm: int = 0
    store_slow_us: int = 0
    store_refuse_ppm: int = 0
    store_unknown_ppm: int = 0
    """writes that are done, and nobody hears of it"""
    store_lost_ppm: int = 0
    """calls that never reach the store"""
    store_late_ppm: int = 0
    """calls that are done at once and answered up to ``store_slow_us`` later"""
    store_outages: int = 0
    store_outage_us: int = 0
    store_crashes: int = 0
    store_losses: int = 0
    """times that a store comes back empty"""
    store_rollbacks: int = 0
    store_rollback_writes: int = 0
    store_trims: int = 0
    store_removals: int = 0
    """times that somebody else takes entries out of a stream"""
    store_damages: int = 0
    """entries that can't be read until they are restored from a copy"""
    lying: int = 0

    # After chaos.
    frozen: str = ""
    """the fault that stays after the others have ended"""
    frozen_ppm: int = 200_000

    # What is written down.
    gauges: bool = False
    states: bool = False
    perturb: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant. Raises ConfigurationError."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and field.name != "seed" and value < 0:
                raise ConfigurationError(f"{field.name} is {value}: it can't be below 0")
            if field.name.endswith("_ppm") and value > 1_000_000:
                raise ConfigurationError(f"{field.name} is {value}: a rate is at most a million")
        _require_one_of("tie", self.tie, Tie)
        _require_one_of("drain", self.drain, Drain)

    def plain(self) -> dict[str, Plain]:
        """What differs from the defaults, as a script keeps it."""
        return {
            name: int(value) if isinstance(value, bool) else value
            for name, plain in _PLAIN
            if (value := getattr(self, name)) != plain
        }

    @classmethod
    def of(cls, plain: Mapping[str, Plain]) -> Options:
        """The options that ``plain`` gave. Raises ConfigurationError for a name that is no option, or a value that
        none has."""
        unknown = sorted(set(plain) - set(_DEFAULTS))
        if unknown:
            raise ConfigurationError(f"{unknown[0]!r} is no option of a simulated run")
        given = {name: _option(name, value) for name, value in plain.items()}
        return cls(**given)  # type: ignore[arg-type]

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self.plain().items()]
        return "\n".join(lines) or "no faults"


_DEFAULTS: Mapping[str, int | str] = asdict(Options())
_PLAIN: tuple[tuple[str, int | str], ...] = tuple(_DEFAULTS.items())


def _option(name: str, value: Plain) -> Plain:
    kind = type(_DEFAULTS[name])
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} is {value!r}, which no simulated run can have") from None
