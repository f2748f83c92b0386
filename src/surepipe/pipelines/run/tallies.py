"""Counters of a node's parts, and how often each part failed at which message."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from surepipe.actors.consuming.consumer import GiveUp
from surepipe.core.effects import Letter
from surepipe.core.store_requests import Store
from surepipe.errors import StoreUnavailable
from surepipe.pipelines.models.stages import Trying
from surepipe.storage.letters import DeadLetterStream


class Tallies:
    """Counts of the parts that are no pipes. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, part: str, what: str, count: int = 1) -> None:
        one = (part, what)
        with self._lock:
            self._counts[one] = self._counts.get(one, 0) + count

    def add_all(self, counted: dict[tuple[str, str], int]) -> None:
        """Add counts that were kept elsewhere, by part and name."""
        if not counted:
            return
        with self._lock:
            for one, count in counted.items():
                self._counts[one] = self._counts.get(one, 0) + count
        counted.clear()

    def all(self) -> Mapping[str, Mapping[str, int]]:
        found: dict[str, dict[str, int]] = {}
        with self._lock:
            for (part, what), count in self._counts.items():
                found.setdefault(part, {})[what] = count
        return found

    def clear(self) -> None:
        """Begin to count anew: what was counted is told elsewhere."""
        with self._lock:
            self._counts.clear()


# What is remembered of messages that failed, while the process lives: who has them already, and how often they
# were tried where. It is forgotten when the message goes through, or to the dead letters.


TRIALS_MAX = 100_000
"""More messages than this are never in work at once; what is beyond belongs to lives that are over."""


@dataclass(slots=True)
class Trial:
    """One message that failed: the branches that have it, and the failures of each part."""

    done: set[Hashable] = field(default_factory=set[Hashable])
    failures: dict[str, int] = field(default_factory=dict[str, int])


Identity = tuple[str, int, int]
"""Producer, epoch, seq."""


class Trials:
    """The messages of one pipe that failed. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.known: dict[Identity, Trial] = {}
        """To be changed by the methods only."""

    def of(self, identity: Identity) -> Trial | None:
        """What is known of a message; None when it did not fail."""
        return self.known.get(identity) if self.known else None

    def failed(self, identity: Identity, trial: Trial, part: Trying, error: BaseException) -> None:
        """Count a failure at this part. Raises GiveUp when it was the part's last attempt."""
        if isinstance(error, StoreUnavailable):
            self.keep(identity, trial)
            return
        count = trial.failures[part.name] = trial.failures.get(part.name, 0) + 1
        if part.retries is None or count < part.retries:
            self.keep(identity, trial)
            return
        with self._lock:
            self.known.pop(identity, None)
        raise GiveUp(error, part.dead_letter or "") from error

    def keep(self, identity: Identity, trial: Trial) -> None:
        """Remember what is known of a message that will be tried again."""
        with self._lock:
            self.known[identity] = trial
            while len(self.known) > TRIALS_MAX:
                del self.known[next(iter(self.known))]

    def passed(self, identity: Identity) -> None:
        if self.known:
            with self._lock:
                self.known.pop(identity, None)


class LetterBox:
    """Where a pipe's dead letters go: into the stream of the part that gave the message up."""

    def __init__(self, streams: dict[str, DeadLetterStream]) -> None:
        """``streams``: by 'store/stream'; the first one takes what no part gave up (what can't be decoded)."""
        self._streams = streams
        self.stored: Counter[str] = Counter()
        self.last: deque[tuple[str, Letter]] = deque(maxlen=5)
        """For those who look, without the payload."""

    @property
    def stores(self) -> list[Store]:
        """Where letters may go: what a pipe promises rests on the weakest of them."""
        return [stream.store for stream in self._streams.values()]

    def __call__(self, letter: Letter) -> None:
        """Store a letter. Raises what a ``DeadLetterStream`` raises."""
        chosen = letter.place if letter.place in self._streams else next(iter(self._streams))
        self._streams[chosen](letter)
        self.stored[chosen] += 1
        self.last.append((chosen, replace(letter, payload=b"")))
