"""A book as a plain program: lists, one message after the other, no pages, no commits, no rounds saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from surepipe.queues.book import BookConfig

PARK, YIELD, FAIL, OK = "park", "yield", "fail", "ok"


@dataclass
class ModelQueue:
    """What waits, and what stands aside."""

    waiting: list[bytes] = field(default_factory=list[bytes])
    parked: list[bytes] = field(default_factory=list[bytes])
    paused: bool = False
    blocked: bool = False
    weight: int = 1
    deficit: int = 0
    is_open: bool = False
    attempts: int = 0
    is_late: bool = False
    """It waits for its next attempt."""


class BookModel:
    """The rules of the service, read aloud."""

    def __init__(self, config: BookConfig, cost: Callable[[bytes], int]) -> None:
        self.config = config
        self.cost = cost
        self.queues: dict[str, ModelQueue] = {}
        self.ring: list[str] = []
        self.ran: list[tuple[str, bytes]] = []
        self.used = 0
        self.limit: int | None = None
        self.messages: int | None = None
        self.count = 0
        self.has_run = False

    def enqueue(self, origin: str, payloads: list[bytes]) -> None:
        """Messages come."""
        queue = self.queues.setdefault(origin, ModelQueue())
        queue.waiting += payloads
        if payloads and origin not in self.ring:
            self.ring.append(origin)

    def outcome(self, origin: str, payload: bytes) -> str:
        """What the handler of the test does."""
        self.ran.append((origin, payload))
        if payload.endswith(b"yield"):
            return YIELD
        if payload.endswith(b"raise"):
            return FAIL
        if b">" in payload:
            self.enqueue(payload.split(b">")[1].decode(), [b"child"])
        return OK

    def take(self, units: int, messages: int = 0) -> bool:
        """Charge, if it fits."""
        if self.limit is not None and self.used + units > self.limit:
            return False
        if self.messages is not None and self.count + messages > self.messages:
            return False
        self.used += units
        self.count += messages
        return True

    @property
    def is_used_up(self) -> bool:
        """No unit or no message is left."""
        return (self.limit is not None and self.used >= self.limit) or (
            self.messages is not None and self.count >= self.messages
        )

    def leave(self, origin: str) -> None:
        """An emptied queue leaves the ring."""
        queue = self.queues[origin]
        queue.deficit, queue.is_open, queue.attempts, queue.is_late = 0, False, 0, False
        queue.blocked = False
        self.ring.remove(origin)

    def service(self, limit: int | None) -> int:
        """One call; returns what it consumed."""
        over, is_drr = self.config.overheads, self.config.policy == "drr"
        waiting = sum(len(queue.waiting) for queue in self.queues.values())
        self.limit, self.used, self.count = limit, 0, 0
        self.messages = waiting if limit is None else None
        if limit is not None and limit < over.of_one:
            return 0
        if not self.ring:
            return 0
        self.take(over.bump)
        at = self.ring[0]
        if not is_drr:
            self.ring.append(self.ring.pop(0))
        quiet, ended = 0, set[str]()
        self.has_run = False
        left = ""
        short = dict[str, bool]()
        while self.ring:
            if at not in self.ring:
                at = self.ring[0]
            if not self.take(over.queue + over.unknit):
                break
            end, moved = self.visit(at, ended)
            quiet = 0 if moved or end == "EMPTY" else quiet + 1
            if quiet == 0:
                short.clear()
            short.pop(at, None)
            if end == "DEFICIT":
                short[at] = self.has_run or self.fits(at)
            following = self.ring[(self.ring.index(at) + 1) % len(self.ring)]
            if end == "EMPTY":
                self.leave(at)
            elif end in ("DEFICIT", "LATER", "BLOCKED") and is_drr:
                self.queues[at].is_open = False
                if end != "DEFICIT":
                    self.queues[at].deficit = 0
                self.ring.remove(at)
                self.ring.append(at)
            if end in ("LATER", "BLOCKED"):
                ended.add(at)
            if end == "BUDGET":
                left = left or at
                if self.has_run if is_drr else self.is_used_up:
                    break
            if is_drr and self.has_run and self.is_used_up:
                break
            if quiet >= len(self.ring):
                if not any(short.values()):
                    break
                quiet = 0
            at = following
        if is_drr and left in self.ring:
            place = self.ring.index(left)
            self.ring = self.ring[place:] + self.ring[:place]
        return self.used

    def fits(self, origin: str) -> bool:
        """Whether the next message of a queue fits into what is left."""
        cost = self.cost(self.queues[origin].waiting[0]) + self.config.overheads.item
        return (self.limit is None or self.used + cost <= self.limit) and not (
            self.messages is not None and self.count >= self.messages
        )

    def visit(  # noqa: PLR0911 - each end of a visit
        self, origin: str, ended: set[str]
    ) -> tuple[str, bool]:
        """One look at a queue: how it ended, and whether a message was run."""
        queue, over = self.queues[origin], self.config.overheads
        if queue.paused or queue.blocked or queue.is_late or origin in ended:
            return "PASSED", False
        if self.config.policy == "drr" and not queue.is_open:
            queue.deficit += self.config.quantum * queue.weight
            queue.is_open = True
        cut_off = 100 - over.of_one
        moved = False
        while queue.waiting:
            payload = queue.waiting[0]
            cost = self.cost(payload)
            if self.limit is not None and self.used + over.item > self.limit:
                return "BUDGET", moved
            if cost > cut_off:
                if not self.take(over.item, 1):
                    return "BUDGET", moved
                if self.config.on_overweight == "block":
                    queue.blocked = True
                    return "BLOCKED", moved
                queue.parked.append(queue.waiting.pop(0))
                queue.attempts = 0
                moved = True
                continue
            if self.config.policy == "drr" and cost > queue.deficit:
                return "DEFICIT", moved
            if not self.take(over.item + cost, 1):
                return "BUDGET", moved
            outcome = self.outcome(origin, payload)
            if outcome == YIELD:
                self.used, self.count = self.used - cost, self.count - 1
                return "LATER", moved
            queue.deficit -= cost if self.config.policy == "drr" else 0
            moved = self.has_run = True
            if outcome == FAIL:
                queue.attempts += 1
                if queue.attempts < self.config.retries:
                    queue.is_late = True
                    return "LATER", moved
                queue.parked.append(queue.waiting.pop(0))
            else:
                queue.waiting.pop(0)
            queue.attempts = 0
        return "EMPTY", moved
