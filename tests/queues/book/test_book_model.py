"""A book against a plain program: the same orders, whatever is done to both, invariants after each step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from surepipe.queues.book import BookMessage, Budget, Context, Overheads
from surepipe.storage import MemoryStore
from tests.kit.book import BookUnderTest, changed_config, cost
from tests.kit.book_model import BookModel

ORIGINS = st.sampled_from("ABC")
WORDS = st.sampled_from(
    [
        *(b"", b"m", b"mm", b"weight=3", b"weight=20", b"weight=90", b"weight=500"),
        *(
            b"weight=3yield",
            b"yield",
            b"raise",
            b"m>A",
            b"m>B",
            b"weight=7>C",
            b"corrupt",
            b"x" * 30,
        ),
    ]
)
BUDGETS = st.one_of(st.none(), st.integers(0, 40), st.sampled_from([60, 100]))


def units(payload: bytes) -> int:
    """What a message costs."""
    return cost(payload).units


class Books(RuleBasedStateMachine):
    """Every operation, on the book and on the model."""

    @initialize(
        policy=st.sampled_from(["drr", "rotate"]),
        quantum=st.sampled_from([1, 2, 10, 100]),
        commit=st.sampled_from([1, 3, 100]),
        overweight=st.sampled_from(["park", "block"]),
        over=st.sampled_from(
            [Overheads(), Overheads(1, 1, 1, 1, 1, 1), Overheads(item=2), Overheads(queue=3)]
        ),
        page_bytes=st.sampled_from([40, 64]),
        listen=st.booleans(),
        every=st.sampled_from([1 << 10, 1 << 20]),
    )
    def open(  # noqa: PLR0917 - what hypothesis draws
        self,
        policy: str,
        quantum: int,
        commit: int,
        overweight: str,
        over: Overheads,
        page_bytes: int,
        listen: bool,
        every: int,
    ) -> None:
        """A book with these settings. No overhead of pages: the model has none."""
        # Under deficits the model goes through rounds that the book saves, so there they must cost nothing.
        visits = policy == "rotate"
        over = Overheads(over.bump, over.queue * visits, 0, 0, over.item, over.unknit * visits)
        config = changed_config(
            policy=policy, quantum=quantum, commit_messages=commit, on_overweight=overweight, overheads=over,
            page_bytes=page_bytes, retries=2, refuse_pages=None, suspend_pages=None, resume_pages=None,
            on_rejected="drop", retry_min_s=1.0, checkpoint_bytes=every,
        )  # fmt: skip
        self.config, self.listen, self.opened = config, listen, 0
        self.under = BookUnderTest(MemoryStore(), config, listen=listen)
        self.model = BookModel(config, units)
        self.under.always = self.handle

    def handle(self, message: BookMessage, context: Context) -> object:
        """What the model's handler does."""
        if message.payload.endswith(b"raise"):
            raise ValueError("no")
        if b">" in message.payload:
            context.enqueue(message.payload.split(b">")[1].decode(), b"child")
        return self.under.outcomes.get(message.payload) or next(
            (out for end, out in self.under.outcomes.items() if message.payload.endswith(end)), None
        )

    @rule()
    def reopen(self) -> None:
        """Another process goes on with the book, from its last checkpoint and the log behind it."""
        self.opened += 1
        before = self.under
        self.under = BookUnderTest(
            before.store,
            self.config,
            worker=f"w{self.opened}",
            clocks=before.clocks,
            listen=self.listen,
        )
        self.under.ran, self.under.always = before.ran, self.handle
        assert self.under.book.parked() == before.book.parked()
        assert self.under.book.totals() == before.book.totals()
        self.same()

    @rule(origin=ORIGINS, words=st.lists(WORDS, max_size=8))
    def enqueue(self, origin: str, words: list[bytes]) -> None:
        """Messages come."""
        self.under.book.enqueue_many(origin, words)
        self.model.enqueue(origin, words)
        self.same()

    @rule(budget=BUDGETS)
    def service(self, budget: int | None) -> None:
        """The same runs, in the same order, for the same units."""
        served = self.under.book.service(None if budget is None else Budget(units=budget))
        used = self.model.service(budget)
        assert self.under.ran == self.model.ran
        assert served.consumed[2] == used
        assert budget is None or used <= budget
        self.same()

    @rule(origin=ORIGINS, paused=st.booleans())
    def pause(self, origin: str, paused: bool) -> None:
        """It is paused, or released."""
        (self.under.book.pause if paused else self.under.book.unpause)(origin)
        queue = self.model.queues.get(origin)
        if queue is None:
            self.model.enqueue(origin, [])
            queue = self.model.queues[origin]
        queue.paused = paused
        self.same()

    @rule(origin=ORIGINS, weight=st.integers(1, 4))
    def weigh(self, origin: str, weight: int) -> None:
        """It has another share."""
        self.under.book.set_weight(origin, weight)
        self.model.enqueue(origin, [])
        self.model.queues[origin].weight = weight
        self.same()

    @rule(origin=ORIGINS)
    def force(self, origin: str) -> None:
        """It is the head, if it is ready."""
        done = self.under.book.force_head(origin)
        assert done == (origin in self.model.ring)
        if done:
            place = self.model.ring.index(origin)
            self.model.ring = self.model.ring[place:] + self.model.ring[:place]
        self.same()

    @rule(origin=ORIGINS)
    def sweep(self, origin: str) -> None:
        """All of it is aside."""
        self.under.book.sweep(origin)
        if origin in self.model.ring:
            queue = self.model.queues[origin]
            queue.parked += queue.waiting
            queue.waiting = []
            self.model.leave(origin)
        self.same()

    @rule()
    def wait(self) -> None:
        """All waits are over."""
        self.under.clocks.advance(1_000)
        for queue in self.model.queues.values():
            queue.is_late = False
        self.same()

    @rule(
        pick=st.integers(0, 30), verb=st.sampled_from(["execute", "discard", "requeue"]), to=ORIGINS
    )
    def by_hand(self, pick: int, verb: str, to: str) -> None:
        """Somebody deals with one parked message."""
        listed = self.under.book.parked()
        if not listed:
            return
        one = listed[pick % len(listed)]
        payload = self.under.book.payload(one.address)
        assert payload is not None
        queue = self.model.queues[one.origin]
        if verb == "requeue":
            answer = self.under.book.requeue(one.address, to)
            self.model.enqueue(to, [payload])
        elif verb == "discard":
            answer = self.under.book.discard(one.address, "no")
        else:
            answer = self.under.book.execute(one.address)
            if not queue.paused:
                self.model.outcome(one.origin, payload)
                stays = payload.endswith((b"yield", b"raise"))
                assert answer.ok != stays
        if answer.ok:
            if one.reason.value == "overweight" and queue.blocked and queue.waiting[0] == payload:
                queue.waiting.pop(0)
                queue.blocked, queue.attempts = False, 0
                if not queue.waiting:
                    self.model.leave(one.origin)
            else:
                queue.parked.remove(payload)
            assert self.under.book.payload(one.address) is None
        self.same()

    def same(self) -> None:
        """Both hold the same, and all invariants hold."""
        self.under.check()
        ledger = self.under.book.ledger
        assert ledger.ring.order() == self.model.ring
        for origin, queue in self.model.queues.items():
            foot = ledger.footprint(origin)
            blocked = 0
            assert foot.messages == len(queue.waiting) + len(queue.parked), origin
            assert foot.parked - blocked == len(queue.parked), origin
            if origin in ledger.books:
                book = ledger.books[origin]
                assert (book.deficit, book.turn_open) == (queue.deficit, queue.is_open), origin
                assert book.attempts == (queue.attempts if not queue.blocked else book.attempts)


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
