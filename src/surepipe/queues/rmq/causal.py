"""The entries of a log at one node: delivered ones with their causal past, and those waiting for what they
cite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from surepipe.queues.rmq.entries import ForkProof, LogEntry


@dataclass(slots=True)
class Known:
    """An entry that was taken in, with what follows from its causal past when it is delivered."""

    entry: LogEntry
    size: int
    missing: int = 0
    order: int = 0
    """The how-many-th that was delivered here; 0 before."""
    vector: tuple[int, ...] = ()
    convicted: int = 0
    """One bit for each member whose fork proof lies in its causal past, or in itself."""


class Causality:
    """The entries of one session at one member. It believes every entry: who signed it was looked at before."""

    def __init__(self, members: Sequence[str]) -> None:
        self.members = tuple(members)
        self.places = {each: place for place, each in enumerate(self.members)}
        self.known: dict[bytes, Known] = {}
        self.at: dict[tuple[str, int], list[bytes]] = {}
        self.chains: dict[str, list[bytes]] = {each: [] for each in self.members}
        """Delivered digests of each author, heights from 1; of a blamed one the branch that came first."""
        self.last_said = dict.fromkeys(self.members, 0)
        """The highest delivered height of each author that has records."""
        self.waiting: dict[str, dict[bytes, int]] = {each: {} for each in self.members}
        self.waiting_bytes = dict.fromkeys(self.members, 0)
        self.blamed: dict[str, ForkProof] = {}
        self.delivered = 0
        self._needed_by: dict[bytes, list[bytes]] = {}

    # Looking.

    def is_delivered(self, digest: bytes) -> bool:
        known = self.known.get(digest)
        return known is not None and known.order > 0

    def head(self, author: str) -> Known | None:
        """The newest delivered entry of an author."""
        chain = self.chains.get(author)
        return self.known[chain[-1]] if chain else None

    def heights(self) -> Mapping[str, int]:
        """How far the chain of each author is delivered."""
        return {author: len(chain) for author, chain in self.chains.items()}

    def highest(self, author: str) -> int:
        """The height of the highest entry of an author that is here, delivered or not."""
        waiting = [self.known[each].entry.height for each in self.waiting.get(author, ())]
        return max([len(self.chains.get(author, ())), *waiting])

    def above(self, author: str, height: int) -> Iterator[Known]:
        """The delivered chain of an author above a height, in order."""
        chain = self.chains[author]
        return (self.known[chain[at]] for at in range(height, len(chain)))

    def vector(self, digest: bytes) -> Mapping[str, int]:
        """The highest height of each author in the causal past of a delivered entry, itself included."""
        return dict(zip(self.members, self.known[digest].vector, strict=True))

    def is_past(self, one: bytes, other: bytes) -> bool:
        """Whether ``one``, a delivered entry of somebody unblamed, is ``other`` or in its causal past."""
        past = self.known[one].entry
        return self.known[other].vector[self.places[past.author]] >= past.height

    def is_needed(self, digest: bytes) -> bool:
        """Whether an entry of somebody unblamed waits for this one, directly or by others that wait for it."""
        to_see, seen = [digest], {digest}
        while to_see:
            for each in self._needed_by.get(to_see.pop(), ()):
                known = self.known.get(each)
                if known is None or each in seen:
                    continue
                if known.entry.author not in self.blamed:
                    return True
                seen.add(each)
                to_see.append(each)
        return False

    # Taking in.

    def admit(self, known: Known) -> list[bytes]:
        """Take an entry in. What it cites and isn't delivered; nothing: ``deliver`` it."""
        entry = known.entry
        self.known[entry.digest] = known
        self.at.setdefault((entry.author, entry.height), []).append(entry.digest)
        missing = [each for each in entry.references if not self.is_delivered(each)]
        for each in missing:
            self._needed_by.setdefault(each, []).append(entry.digest)
        known.missing = len(missing)
        if missing:
            self.waiting[entry.author][entry.digest] = known.size
            self.waiting_bytes[entry.author] += known.size
        return missing

    def deliver(self, first: Known) -> Iterator[tuple[Known, str]]:
        """Deliver an entry that waits for nothing, then those that waited for it alone; each before those that
        cite it.

        With each comes why nobody delivers it, empty for one that is delivered.
        """
        ready = [first]
        while ready:
            known = ready.pop()
            why = self._why_refused(known)
            if not why:
                self._count_in(known)
            yield (
                known,
                why,
            )  # somebody may be blamed here: what is ready isn't dropped with what he waits for
            for each in () if why else self._needed_by.pop(known.entry.digest, ()):
                waiting = self.known.get(each)
                if waiting is not None:
                    waiting.missing -= 1
                    if not waiting.missing:
                        self._leave_waiting(waiting.entry)
                        ready.append(waiting)

    def drop_unneeded(self) -> list[bytes]:
        """Forget waiting entries of the blamed that nobody else needs; what only they had wanted."""
        unwanted: list[bytes] = []
        while unneeded := [
            each for name in self.blamed for each in self.waiting[name] if not self.is_needed(each)
        ]:
            for each in unneeded:
                unwanted += self._drop(each)
        return unwanted

    def _leave_waiting(self, entry: LogEntry) -> None:
        self.waiting_bytes[entry.author] -= self.waiting[entry.author].pop(entry.digest, 0)

    def _count_in(self, known: Known) -> None:
        entry = known.entry
        self.delivered += 1
        known.order = self.delivered
        chain = self.chains[entry.author]
        if len(chain) == entry.height - 1 and (not chain or chain[-1] == entry.previous):
            chain.append(entry.digest)
        if entry.items:
            self.last_said[entry.author] = max(self.last_said[entry.author], entry.height)

    def _why_refused(self, known: Known) -> str:
        """What an entry breaks that only its causal past shows. Everybody who has that past says the same."""
        entry, vector, convicted = known.entry, [0] * len(self.members), 0
        if entry.height > 1:
            before = self.known[entry.previous]
            if before.entry.author != entry.author or before.entry.height != entry.height - 1:
                return "false_reference"
            vector, convicted = list(before.vector), before.convicted
        base, guilty = tuple(vector), convicted
        for each in entry.cites:
            cited = self.known[each.digest]
            place = self.places[each.author]
            if cited.entry.author != each.author or cited.entry.height != each.height:
                return "false_reference"
            if each.height <= base[place]:
                return "stale_dependency"
            if guilty >> place & 1:
                return "cites_blamed"
            vector = [max(pair) for pair in zip(vector, cited.vector, strict=True)]
            convicted |= cited.convicted
        own = self.places[entry.author]
        vector[own] = max(vector[own], entry.height)
        known.vector, known.convicted = tuple(vector), convicted
        return ""

    def _drop(self, digest: bytes) -> list[bytes]:
        entry = self.known.pop(digest).entry
        self._leave_waiting(entry)
        self.at[entry.author, entry.height].remove(digest)
        unwanted: list[bytes] = []
        for each in entry.references:
            dependents = self._needed_by.get(each)
            if dependents is not None and digest in dependents:
                dependents.remove(digest)
                if not dependents:
                    del self._needed_by[each]
                    unwanted.append(each)
        return unwanted
