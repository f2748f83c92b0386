"""The ready ring: a cycle of names with a head, where every change takes constant time (B-16 to B-19)."""

from __future__ import annotations

from collections.abc import Iterator


class Ring:
    """Names in a cycle. The tail is the place just before the head."""

    __slots__ = ("_next", "_previous", "changed", "head")

    def __init__(self) -> None:
        self.head: str | None = None
        self._next: dict[str, str] = {}
        self._previous: dict[str, str] = {}
        self.changed: set[str] = set()
        """Names whose successor has changed, for whoever stores the ring."""

    def __len__(self) -> int:
        return len(self._next)

    def __contains__(self, origin: str) -> bool:
        return origin in self._next

    def _link(self, one: str, other: str) -> None:
        self._next[one] = other
        self._previous[other] = one
        self.changed.add(one)

    def knit(self, origin: str) -> None:
        """Put a name at the tail; one that is there stays where it is."""
        if origin in self._next:
            return
        if self.head is None:
            self.head = origin
            self._link(origin, origin)
        else:
            tail = self._previous[self.head]
            self._link(tail, origin)
            self._link(origin, self.head)

    def unknit(self, origin: str) -> None:
        """Take a name out; a head moves to its successor."""
        if origin not in self._next:
            return
        following, previous = self._next.pop(origin), self._previous.pop(origin)
        self.changed.add(origin)
        if following == origin:
            self.head = None
            return
        self._link(previous, following)
        if self.head == origin:
            self.head = following

    def bump(self) -> str | None:
        """The head; the head moves on to its successor."""
        head = self.head
        if head is not None:
            self.head = self._next[head]
        return head

    def force(self, origin: str) -> bool:
        """Let the head be this name; False and no change when it is not in the ring."""
        if origin not in self._next:
            return False
        self.head = origin
        return True

    def to_tail(self, origin: str) -> None:
        """Move a name to the tail. For the head that turns the ring and moves nobody."""
        if origin == self.head:
            self.head = self._next[origin]
        elif origin in self._next:
            self.unknit(origin)
            self.knit(origin)

    def after(self, origin: str) -> str | None:
        """The successor; None for a name that is not in the ring."""
        return self._next.get(origin)

    def before(self, origin: str) -> str | None:
        """The predecessor; None for a name that is not in the ring."""
        return self._previous.get(origin)

    def walk(self, start: str | None = None) -> Iterator[str]:
        """Each name once, from ``start`` (else the head) on."""
        at = start if start is not None and start in self._next else self.head
        for _ in range(len(self._next)):
            assert at is not None, "a ring with names has a head"
            yield at
            at = self._next[at]

    def order(self) -> list[str]:
        """The names, the head first."""
        return list(self.walk())

    def restore(self, following: dict[str, str], head: str | None) -> None:
        """Be the ring with these successors."""
        self._next = dict(following)
        self._previous = {other: one for one, other in following.items()}
        self.head = head
