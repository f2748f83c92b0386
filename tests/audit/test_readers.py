"""A stream with several readers: each is a channel of its own, by what it promises itself, for both judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surepipe import StreamReceiver, StreamSender
from surepipe.audit.bulk import BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.settings import EndClaims
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import PER_KEY, Audit, Judged, Standing, audit
from surepipe.audit.trace_file import TraceFile, TraceRecorder, write_trace
from surepipe.core.claims import Atom
from surepipe.core.store_requests import KEEP_ALL, Created, Stored
from surepipe.pipelines import loads
from surepipe.storage import MemoryStore, Retention, SqliteStore
from tests.audit import shapes
from tests.audit.judges import assert_as_row_by_row
from tests.audit.planted import AT_REST, Told

COUNT = 40
KEEP = Retention(max_bytes=3000, force=True)


def rest_of_four(message: int) -> int:
    """The key of a message."""
    return message % 4


def read_all(message: object) -> None:
    """A handler."""


class Posts:
    """A stream, what its readers got, and a trace of each end in a folder."""

    def __init__(self, folder: Path, retention: Retention = KEEP_ALL) -> None:
        self.folder = folder / "traces"
        self.folder.mkdir()
        self.store: MemoryStore | SqliteStore = MemoryStore()
        self.retention = retention

    def trace(self, name: str) -> TraceRecorder:
        """The trace of one end."""
        return TraceRecorder(self.folder / f"{name}.jsonl")

    def send(self, *messages: object, pipe: str = "posts") -> None:
        """As one life of a sender."""
        layer = {"stream": {"stream": "posts"}}
        with (
            self.trace(f"sender-{pipe}") as trace,
            StreamSender(
                pipe, layer, store=self.store, trace=trace, retention=self.retention
            ) as sender,
        ):
            for message in messages:
                sender.send(message)
                sender.flush()

    def read(
        self,
        reader: str,
        handler: Callable[[object], object] = read_all,
        *,
        pipe: str = "posts",
        start: str | int = "earliest",
        **options: Any,
    ) -> None:
        """As one life of a reader, up to the end of the stream."""
        options_of_layer = {"stream": "posts", "start": start, "on_trimmed": "skip"}
        layer = {"stream": options_of_layer | ({"reader": reader} if reader != pipe else {})}
        with (
            self.trace(f"reader-{reader}") as trace,
            StreamReceiver(
                pipe,
                layer,
                store=self.store,
                trace=trace,
                retention=self.retention,
                **options,
            ) as receiver,
        ):
            receiver.receive(handler)
            assert receiver.catch_up(20)

    @property
    def traces(self) -> list[TraceFile]:
        """Of all ends."""
        return [TraceFile(file) for file in sorted(self.folder.iterdir())]

    def judged(self) -> tuple[Audit, BulkAudit]:
        """By both judges, who agree."""
        place = place_of(str(self.folder))
        in_bulk = judge(DuckEngine(), Question(place, place))
        exact = audit(*self.traces)
        rows = sorted((row for file in self.traces for row in file), key=lambda row: row.time_us)
        assert_as_row_by_row(in_bulk, rows)
        return exact, in_bulk


@pytest.fixture
def posts(tmp_path: Path) -> Posts:
    """Nothing is in it."""
    return Posts(tmp_path)


def sums(found: Audit) -> dict[str, str]:
    """What became of the messages of each channel."""
    return {one.pipe: one.sum for one in found.pipes}


def no_loss(judged: Iterator[Judged], part: str) -> Judged:
    """What is said of it."""
    return next(one for one in judged if (one.part, one.promise) == (part, "no-loss"))


ALL = f"{COUNT} sent = {COUNT} settled + 0 dead letters + 0 in flight"


def test_two_readers_that_get_all_repeat_nothing(posts: Posts) -> None:
    """Each has its own numbers, under the name that metrics have for it."""
    posts.send(*range(COUNT))
    posts.read("mail")
    posts.read("stats")
    exact, in_bulk = posts.judged()
    assert sums(exact) == {"posts/mail@posts": ALL, "posts/stats@posts": ALL}
    assert exact.held
    assert in_bulk.is_held


def test_what_one_reader_loses_is_not_made_up_for_by_another(tmp_path: Path) -> None:
    """A part was trimmed away before the second one had read it."""
    posts = Posts(tmp_path, KEEP)
    for half in (range(COUNT // 2), range(COUNT // 2, COUNT)):
        posts.send(*("x" * 100 + str(number) for number in half))
        posts.read("mail", start=1)
    posts.read("stats", start=1)
    exact, in_bulk = posts.judged()
    assert exact.pipe("posts/mail@posts").lost == 0
    lost = exact.pipe("posts/stats@posts").lost
    assert 0 < lost < COUNT
    for judged in (exact.judged, in_bulk.judged):
        assert no_loss(judged(), "posts/mail@posts").standing is Standing.HELD
        assert no_loss(judged(), "posts/stats@posts").standing is Standing.BROKEN


def test_pipes_of_other_names_read_the_same_stream(posts: Posts) -> None:
    """What the sender tells is of the stream, and belongs to each of them."""
    posts.send(*range(COUNT))
    posts.read("billing", pipe="billing")
    posts.read("mail", pipe="mail")
    exact, _ = posts.judged()
    assert sums(exact) == {"billing@posts": ALL, "mail@posts": ALL}
    assert exact.held


def test_a_dead_letter_is_that_of_the_reader_who_failed(posts: Posts) -> None:
    """The other one has handled the message."""

    def fussy(message: object) -> None:
        if message == 7:
            raise ValueError("not this one")

    posts.send(*range(COUNT))
    posts.read("mail", fussy, retries=1, retry_min_s=0.001, dead_letter=MemoryStore())
    posts.read("stats")
    exact, _ = posts.judged()
    assert {one.pipe: one.dead for one in exact.pipes} == {
        "posts/mail@posts": 1,
        "posts/stats@posts": 0,
    }


def test_a_reader_with_lanes_and_one_without_promise_each_their_own(posts: Posts) -> None:
    """Across keys there is no order with lanes, whatever the sender takes its readers for."""
    posts.send(*range(COUNT))
    posts.read("mail", key=rest_of_four, lanes=4)
    posts.read("stats")
    exact, in_bulk = posts.judged()
    told = {one.pipe: {"P4", "P6g"} & one.promised for one in exact.pipes}
    assert told == {"posts/mail@posts": set(), "posts/stats@posts": {"P4", "P6g"}}
    for judged in (exact.judged, in_bulk.judged):
        assert [str(one) for one in judged() if one.promise == "order per key"] == [
            "posts/mail@posts: order per key held"
        ]


def test_the_order_of_a_stream_read_in_lanes_is_not_promised(posts: Posts) -> None:
    """One message of a lane is held up until those of the others are through."""
    posts.send(*range(8))
    posts.read("posts", key=rest_of_four, lanes=2)
    rows = [row for file in posts.traces for row in file]
    came = [row for row in rows if row.kind == Kind.SETTLED]
    assert all(row.count == 1 for row in came)
    odd = iter(sorted(came, key=lambda row: (row.seq % 4, row.seq)))
    found = audit([replace(row, seq=next(odd).seq) if row in came else row for row in rows])
    assert found.pipe("posts@posts").finding("P4").outcome is PropertyOutcome.VIOLATED
    assert not {"P4", "P6g"} & found.pipe("posts@posts").promised
    assert found.held


def claim_row(node: str, claim: dict[str, list[str]]) -> Row:
    """A row ``start`` of an end of ``posts``."""
    return Row("r", node, 1, 0, "", 0, "start", "posts", detail=json.dumps({"claim": claim}))


def test_of_two_ends_the_weaker_promise_counts_and_each_speaks_for_its_own_faults() -> None:
    """The journal of a sender outlives its crash, of which the receiver knows nothing; and the other way round."""
    ends = EndClaims()
    assert ends.on("posts@posts") is None
    ends.see(claim_row("posts/sender", {"no-loss": ["sender-crash"], "monotonic": []}))
    assert ends.on("posts@posts") == {"no-loss": ("sender-crash",), "monotonic": ()}
    ends.see(claim_row("posts/receiver", {"no-loss": ["receiver-crash", "store-trim"]}))
    assert ends.on("posts@posts") == {"no-loss": ("receiver-crash", "sender-crash")}
    ends.see(claim_row("posts/receiver", {"no-loss": []}))
    assert ends.on("posts@posts") == {"no-loss": ("sender-crash",)}


def test_a_trace_without_the_word_reader_is_of_one(posts: Posts) -> None:
    """As older versions wrote it."""
    posts.send(*range(COUNT))
    posts.read("mail")
    rows = [row for file in posts.traces for row in file]
    assert any('"reader":"mail"' in row.detail for row in rows)
    old = [replace(row, detail=row.detail.replace('"reader":', '"was":')) for row in rows]
    found = audit(sorted(old, key=lambda row: row.time_us))
    assert sums(found) == {"posts@posts": ALL}
    assert found.held


def test_lives_of_an_older_version_are_those_of_the_one_reader_that_has_a_name(
    posts: Posts,
) -> None:
    """A trace that was begun before the version was changed."""
    posts.send(*range(10))
    posts.read("mail")
    posts.send(*range(10, COUNT))
    posts.read("mail")
    rows = [row for file in posts.traces for row in file]
    first = next(row.run for row in rows if row.kind == Kind.DELIVERED)
    old = [
        replace(row, detail=row.detail.replace('"reader":', '"was":')) if row.run == first else row
        for row in rows
    ]
    found = audit(old)
    assert sums(found) == {"posts/mail@posts": ALL}
    assert found.held


def test_a_reader_is_judged_from_where_it_began(posts: Posts) -> None:
    """It reads from the latest on: what was there before is not lost to it, from whomever it came."""
    posts.send(*range(10))
    posts.send("of one who is never heard again", pipe="gone")
    posts.read("mail")
    posts.read("stats", start="latest")
    posts.send(*range(10, COUNT))
    posts.read("mail")
    posts.read("stats", start="latest")
    exact, in_bulk = posts.judged()
    assert sums(exact)["posts/mail@posts"] == ALL
    assert sums(exact)["posts/stats@posts"] == "30 sent = 30 settled + 0 dead letters + 0 in flight"
    assert exact.held
    assert in_bulk.is_held


def test_a_reader_that_begins_at_an_index_is_owed_what_is_behind_it(posts: Posts) -> None:
    """The first message that it meets of each producer tells where that is."""
    posts.send(*range(10))
    posts.read("stats", start=5)
    exact, in_bulk = posts.judged()
    assert sums(exact) == {"posts/stats@posts": "6 sent = 6 settled + 0 dead letters + 0 in flight"}
    assert exact.held
    assert in_bulk.is_held


def test_what_a_stream_let_go_before_a_reader_began_is_lost_to_it(tmp_path: Path) -> None:
    """It reads from the earliest on. A forced retention promises none of it, and what a reader from index 1 on
    finds trimmed away is lost to it, too."""
    posts = Posts(tmp_path, KEEP)
    posts.send("of one who is never heard again", pipe="gone")
    posts.send(*("x" * 100 + str(number) for number in range(COUNT)))
    posts.read("mail@home")
    posts.read("stats", start=1)
    exact, in_bulk = posts.judged()
    lost = exact.pipe("posts/stats@posts").lost
    assert 0 < lost < COUNT
    one = exact.pipe("posts/mail%40home@posts")
    assert (one.sent, one.lost, one.unknown) == (COUNT, lost, 0)
    assert (
        f"the stream's retention let {lost} go before reader posts/mail%40home"
        in one.finding("P2").why
    )
    for judged in (exact.judged, in_bulk.judged):
        told = [each.promise for each in judged() if each.part == one.pipe]
        assert not {"no-loss", "gap-free"} & {*told}
        assert "no-duplicate" in told
        assert no_loss(judged(), "posts/mail%40home@gone").standing is Standing.UNJUDGED
        assert no_loss(judged(), "posts/stats@posts").standing is Standing.BROKEN


def begins_late(tolerates: list[str], *, before: str = "", **reader: object) -> list[Row]:
    """Ten messages, and a reader that tells that it begins behind the sixth, as ``reader`` says. ``before``: the
    name of one that began, and had all of them, before it."""
    told, run = Told(), (1, 1, 10)
    facts = {"claim": dict.fromkeys(map(str, Atom), tolerates), "confirms": "stored"}
    told.tell("posts/sender", Kind.START, "posts@posts", detail=json.dumps(facts))
    told.tell("posts/sender", Kind.ACCEPTED, "posts@posts", run)
    told.tell("posts/sender", Kind.END, "posts@posts", detail=AT_REST)
    if before:
        other = json.dumps(facts | {"reader": before, "start": "earliest"})
        told.tell("other/receiver", Kind.START, "posts", detail=other)
        told.tell("other/receiver", Kind.SETTLED, "posts@posts", run)
        told.tell("other/receiver", Kind.END, "posts", detail=AT_REST)
    told.tell("posts/receiver", Kind.START, "posts", detail=json.dumps(facts | reader))
    began = '{"began":true}'
    told.tell("posts/receiver", Kind.PASSED, "posts@posts", (1, 6, 5), detail=began)
    told.tell("posts/receiver", Kind.SETTLED, "posts@posts", (1, 7, 10))
    told.tell("posts/receiver", Kind.END, "posts", detail=AT_REST)
    return told.rows


LATE: dict[str, tuple[list[Row], tuple[int, int], Standing | None]] = {
    "nobody had read them": (
        begins_late(["store-trim"], reader="posts", start="earliest"),
        (10, 6),
        Standing.BROKEN,
    ),
    "the retention is forced": (begins_late([], reader="posts", start="earliest"), (10, 6), None),
    "another one had read them": (
        begins_late(["store-trim"], before="mail", reader="posts", start="earliest"),
        (10, 6),
        None,
    ),
    "it reads from the latest on": (
        begins_late(["store-trim"], reader="posts", start="latest"),
        (4, 0),
        Standing.HELD,
    ),
    "an older trace has no start": (
        begins_late(["store-trim"], reader="posts"),
        (4, 0),
        Standing.UNJUDGED,
    ),
    "an older trace has no reader": (begins_late(["store-trim"]), (4, 0), Standing.UNJUDGED),
}


@pytest.mark.parametrize("case", LATE)
def test_what_was_before_a_reader_is_left_out_only_where_it_was_to_be(
    case: str, tmp_path: Path
) -> None:
    """Sent and lost, and what is said of no-loss: None where nobody promised it. Never fewer in silence."""
    rows, numbers, standing = LATE[case]
    write_trace(rows, file := tmp_path / "trace.jsonl")
    place = place_of(str(file))
    in_bulk, exact = judge(DuckEngine(), Question(place, place)), audit(rows)
    assert_as_row_by_row(in_bulk, rows)
    one = next(pipe for pipe in exact.pipes if "mail" not in pipe.pipe)
    assert (one.sent, one.lost) == numbers
    for judged in (exact.judged, in_bulk.judged):
        told = {each.promise: each for each in judged() if each.part == one.pipe}
        assert told["no-duplicate"].standing is Standing.HELD
        assert (told["no-loss"].standing if "no-loss" in told else None) is standing
    lines = "\n".join([*exact.lines(), *in_bulk.lines()])
    words = "let 6 go before reader posts began, which reads from the earliest on"
    assert lines.count(words) == (2 if one.lost else 0)


def test_a_trimmed_stream_beside_its_traces_is_judged_by_what_they_say_was_accepted(
    tmp_path: Path,
) -> None:
    """The stream has no more what it let go; the trace of the sender tells of it."""
    path = tmp_path / "posts.db"
    posts = Posts(tmp_path, KEEP)
    posts.store = store = SqliteStore(path)
    posts.send("of one who is never heard again", pipe="gone")
    posts.send(*("x" * 100 + str(number) for number in range(COUNT)))
    posts.read("posts")
    store.close()
    question = Question(place_of(f"{path}#posts"), place_of(str(posts.folder)), at_rest=True)
    found = judge(DuckEngine(), question)
    exact = audit(*posts.traces)
    assert (one := found.channel("posts@posts")).lost > 0
    assert one.sum == exact.pipe("posts@posts").sum
    assert Atom.NO_LOSS not in one.promised
    assert found.channel("posts@gone").sent == 1
    assert no_loss(found.judged(), "posts@gone").standing is Standing.UNJUDGED


def test_a_producer_who_comes_later_owes_all_to_a_reader(posts: Posts) -> None:
    """Its first message was accepted, and is not in the stream: it was not there before the reader began."""
    posts.send(0, 1)
    posts.read("stats", start=2)
    posts.send(*range(3), pipe="new")
    posts.read("stats", start=2)
    rows = [row for file in posts.traces for row in file]
    told = [row.pipe for row in rows if row.kind == Kind.PASSED and '"began":true' in row.detail]
    assert told == ["posts@posts"]  # by the life that began
    exact, _ = posts.judged()
    assert sums(exact)["posts/stats@new"] == "3 sent = 3 settled + 0 dead letters + 0 in flight"
    assert sums(exact)["posts/stats@posts"] == "1 sent = 1 settled + 0 dead letters + 0 in flight"
    assert exact.held


def test_what_a_reader_loses_behind_its_beginning_is_lost(posts: Posts) -> None:
    """The first that was sent after it had begun never comes."""
    posts.send(*range(10))
    posts.read("stats", start="latest")
    posts.send(10)
    posts.read("stats", start="latest")
    posts.send(*range(11, COUNT))
    posts.read("stats", start="latest")
    posts.read("mail")
    rows = sorted((row for file in posts.traces for row in file), key=lambda row: row.time_us)
    reads = next(row.run for row in rows if row.kind == Kind.DELIVERED)
    gone = [replace(row, kind="was") if _is_first_of(row, reads) else row for row in rows]
    one = audit(gone).pipe("posts/stats@posts")
    assert (one.sent, one.lost, one.unknown) == (30, 1, 10)
    assert no_loss(audit(gone).judged(), one.pipe).standing is Standing.BROKEN


def _is_first_of(row: Row, run: str) -> bool:
    return row.run == run and row.kind in (Kind.DELIVERED, Kind.SETTLED)


def test_where_nobody_tells_the_beginning_loss_is_not_judged(posts: Posts) -> None:
    """The trace of its first life is not among those that are read."""
    posts.send(*range(10))
    posts.read("stats", start=5)
    posts.send(*range(10, COUNT))
    (posts.folder / "reader-stats.jsonl").unlink()
    posts.read("stats", start=5)
    exact, in_bulk = posts.judged()
    for judged in (exact.judged, in_bulk.judged):
        told = no_loss(judged(), "posts/stats@posts")
        assert told.standing is Standing.UNJUDGED
        assert "reader posts/stats began at 5, and no trace tells whether the 10 before" in told.why


def test_a_stream_in_a_store_beside_the_traces_of_its_readers(tmp_path: Path) -> None:
    """Each against all that is in it."""
    path = tmp_path / "posts.db"
    posts = Posts(tmp_path)
    posts.store = store = SqliteStore(path)
    posts.send(*range(COUNT))
    posts.read("mail")
    posts.read("stats")
    store.close()
    for file in posts.folder.glob("sender*"):
        file.unlink()
    found = judge(DuckEngine(), Question(place_of(f"{path}#posts"), place_of(str(posts.folder))))
    assert {one.channel: one.sum for one in found.channels} == {
        "posts/mail@posts": ALL,
        "posts/stats@posts": ALL,
    }
    assert {atom for one in found.channels for atom in one.violated} == set[Atom]()


@pytest.mark.parametrize("is_swapped", [False, True])
def test_order_per_key_is_judged_of_a_stream_in_a_store_too(
    tmp_path: Path, *, is_swapped: bool
) -> None:
    """Keys are told by the trace of the reader, whatever tells what was sent."""
    path = tmp_path / "posts.db"
    posts = Posts(tmp_path)
    posts.store = store = SqliteStore(path)
    posts.send(*range(8))
    posts.read("posts", key=rest_of_four, lanes=2)
    store.close()
    file = posts.folder / "reader-posts.jsonl"
    if is_swapped:
        lines = file.read_text().splitlines()
        file.write_text("".join(map(_with_first_and_fifth_swapped, lines)))
    question = Question(place_of(f"{path}#posts"), place_of(str(file)))
    told = {str(one) for one in judge(DuckEngine(), question).judged()}
    late = "posts@posts: order per key broken: 1 came out after a later one of their key"
    held = "posts@posts: order per key held"
    assert told & {late, held} == {late if is_swapped else held}, told


@pytest.mark.parametrize("is_swapped", [False, True])
@pytest.mark.parametrize("lanes", [None, 2])
def test_the_order_of_a_stream_is_one_over_all_of_its_producers(
    tmp_path: Path, lanes: int | None, *, is_swapped: bool
) -> None:
    """What transactions put into it has a producer for each message, and each is in order by itself: a reader owes
    the order of the stream, and one with lanes that of each key."""
    posts = Posts(tmp_path)
    posts.store = store = SqliteStore(tmp_path / "posts.db")
    assert isinstance(store.create("posts", 1, KEEP_ALL), Created)
    for number in range(8):
        stored = store.append("posts", f"post/{number}", 1, 1, [b"%d" % number])
        assert isinstance(stored, Stored)
    options: dict[str, Any] = {"lanes": lanes, "key": rest_of_four} if lanes else {}
    posts.read("posts", codec="json", **options)
    store.close()
    file = posts.folder / "reader-posts.jsonl"
    if is_swapped:
        names = {"posts@post/1": "posts@post/5", "posts@post/5": "posts@post/1"}
        rows = map(json.loads, file.read_text().splitlines())
        told = [
            {**row, "pipe": names.get(row.get("pipe", ""), row.get("pipe", ""))} for row in rows
        ]
        file.write_text("".join(json.dumps(row) + "\n" for row in told))
    question = Question(place_of(f"{store.path}#posts"), place_of(str(file)))
    judged = [*judge(DuckEngine(), question).judged()]
    broken = {(one.part, one.promise) for one in judged if one.standing is Standing.BROKEN}
    late = ["posts@post/1"] if lanes else [f"posts@post/{number}" for number in range(1, 5)]
    promise = PER_KEY if lanes else str(Atom.MONOTONIC)
    assert broken == ({(part, promise) for part in late} if is_swapped else set())
    assert {one.standing for one in judged} <= {Standing.HELD, Standing.BROKEN}
    assert promise in {one.promise for one in judged}


def _with_first_and_fifth_swapped(line: str) -> str:
    row = json.loads(line)
    if row["kind"] in ("delivered", "settled"):
        row["seq"] = {1: 5, 5: 1}.get(row["seq"], row["seq"])
    return json.dumps(row) + "\n"


OF_A_STREAM = json.dumps({"claim": {atom: [] for atom in Atom}, "confirms": "stored"})
OF_A_READER = json.dumps({**json.loads(OF_A_STREAM), "reader": "posts"})


def stream_read(*events: str, folder: Path) -> Judged:
    """What both judges say of no-loss after these: two ends, what was sent, handed over and settled."""
    told = Told()
    for event in events:
        kind, _, numbers = event.partition(" ")
        node = "posts/sender" if kind in ("opens", "accepted", "closes") else "posts/receiver"
        pipe = "posts@posts" if numbers else "posts"
        low, _, high = numbers.partition("-")
        run = (1, int(low), int(high or low)) if numbers else (0, 0, -1)
        detail = {"opens": OF_A_STREAM, "begins": OF_A_READER, "closes": AT_REST, "ends": AT_REST}
        kinds = {"opens": "start", "begins": "start", "closes": "end", "ends": "end"}
        told.tell(node, kinds.get(kind, kind), pipe, run, detail=detail.get(kind, ""))
    path = folder / "told.jsonl"
    write_trace(told.rows, path)
    place = place_of(str(path))
    found = judge(DuckEngine(), Question(place, place))
    assert_as_row_by_row(found, told.rows)
    assert found.at_rest == audit(told.rows).ended
    return no_loss(found.judged(), "posts@posts")


@pytest.mark.parametrize(
    ("events", "standing"),
    [
        # The reader looks whether it is at rest, the sender sends on, the reader tells of its end.
        (("delivered 1-5", "settled 1-5", "accepted 6-9", "ends", "closes"), "not judged"),
        (("delivered 1-5", "settled 1-5", "ends", "accepted 6-9", "closes"), "not judged"),
        (("ends", "closes"), "not judged"),
        (("delivered 1-5", "settled 1-3", "settled 5", "accepted 6", "ends"), "not judged"),
        # It was behind what is missing, whatever came later.
        (("delivered 1-5", "settled 1-4", "ends", "closes"), "broken"),
        (("delivered 1-5", "settled 1-3", "settled 5", "ends", "closes"), "broken"),
        (("delivered 1-5", "settled 1-5", "ends", "closes"), "held"),
    ],
)
def test_a_reader_that_ended_in_order_may_come_again_and_read_on(
    events: tuple[str, ...], standing: str, tmp_path: Path
) -> None:
    """Its end tells nothing of what is in the stream behind the last that it was handed, and all of the rest."""
    told = stream_read("opens", "begins", "accepted 1-5", *events, folder=tmp_path)
    assert str(told.standing) == standing


def test_a_reader_that_began_when_all_was_sent_and_ended_at_rest_had_all_before_it(
    tmp_path: Path,
) -> None:
    """It came to the end of the stream, so the last one is lost."""
    events = ("accepted 1-5", "closes", "begins", "delivered 1-4", "settled 1-4", "ends")
    told = stream_read("opens", *events, folder=tmp_path)
    assert told.standing is Standing.BROKEN


def test_what_a_store_got_behind_the_orderly_end_of_a_reader_is_lost_only_at_rest(
    tmp_path: Path,
) -> None:
    """Somebody has to say that nothing more will come."""
    posts = Posts(tmp_path)
    posts.store = store = SqliteStore(tmp_path / "posts.db")
    posts.send(*range(5))
    posts.read("posts")
    posts.send(*range(5, 10))
    store.close()
    question = Question(
        place_of(f"{tmp_path}/posts.db#posts"), place_of(str(posts.folder / "reader-posts.jsonl"))
    )
    said = [
        judge(DuckEngine(), replace(question, at_rest=at_rest)).channel("posts@posts")
        for at_rest in (None, True)
    ]
    assert [(one.waiting, one.lost) for one in said] == [(5, 0), (0, 5)]
    assert [no_loss(one.judged(), one.channel).standing for one in said] == [
        Standing.UNJUDGED,
        Standing.BROKEN,
    ]


SHARED = """
version: 1
name: shop
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources: {numbers: {kind: jsonl, path: in0.jsonl}}
pipes:
  one: {from: numbers, journal: main, route: {kind: sqlite, store: main}, layers: [ONE]}
  two: {from: numbers, journal: main, route: {kind: sqlite, store: main}, layers: [TWO]}
sinks:
  out1: {from: one, kind: jsonl, path: out1.jsonl}
  out2: {from: two, kind: jsonl, path: out2.jsonl}
"""


def test_pipes_of_a_plan_with_readers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a channel of its name, and the accounts know which pipe it is."""
    monkeypatch.chdir(tmp_path)
    text = SHARED
    for word, reader in (("ONE", "mail"), ("TWO", "stats")):
        text = text.replace(f"[{word}]", f"[{{stream: {{start: earliest, reader: {reader}}}}}]")
    Path("plan.yaml").write_text(text, encoding="utf-8")
    Path("in0.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)), encoding="utf-8")
    shapes.live()
    plan, rows = loads(text), list(TraceFile("trace.jsonl"))
    exact, by_rows = shapes.by_rows(rows, plan, Path("told.jsonl"))
    _, in_bulk = shapes.in_bulk(rows, plan, Path("told.jsonl"))
    channels = ["shop/one/mail@shop/one", "shop/two/stats@shop/two"]
    assert [one.pipe for one in exact.pipes] == channels
    for judged in (by_rows, in_bulk):
        assert [str(one) for one in judged if one.standing is not Standing.HELD] == []
