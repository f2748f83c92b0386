"""A stream says how it is written, also where a pipeline writes it: who would read it in another way stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from surepipe import StacksDiffer, StreamReceiver, StreamSender
from surepipe.actors.codecs import CodecChoice, choose_codec
from surepipe.actors.threads import THREADS
from surepipe.core.store_requests import KEEP_ALL, GetPosition, Store, StoreOutcome, StoreRequest
from surepipe.pipelines.run.writers import IntoStream
from surepipe.pipelines.stages import About
from surepipe.pipes.catalogue import LayerText
from surepipe.storage.memory import MemoryStore
from surepipe.storage.redis.store import RedisStore
from surepipe.storage.sqlite.store import SqliteStore
from surepipe.testing.servers import RedisServer
from tests.pipelines.run.kit import plan_of, read_lines, run, write_lines

ALL_OF_IT: LayerText = {"stream": {"start": "earliest"}}
WITHIN_S = 30.0


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, Store]]:
    """A store as a plan names it, and as a program opens it."""
    if request.param == "sqlite":
        with SqliteStore(folder / "main.db") as store:
            yield "{kind: sqlite, path: main.db}", store
        return
    server = cast("RedisServer", request.getfixturevalue("durable_redis"))
    with closing(RedisStore.from_url(server.url, pipeline="shop")) as store:
        yield f"{{kind: redis, url: '{server.url}', keys: shop}}", store


def writes_to(store: str, boundary: str = "processed") -> str:
    """A plan whose sink writes two lines into the stream out."""
    write_lines("a.jsonl", [{"k": 1}, {"k": 2}])
    return (
        f"stores: {{main: {store}}}\nsources: {{a: {{kind: jsonl, path: a.jsonl}}}}\n"
        f"pipes: {{p: {{from: a, journal: main, state: main, boundary: {boundary}}}}}\n"
        "sinks: {o: {from: p, kind: stream, store: main, stream: out}}\n"
    )


def reads_from(store: str) -> str:
    """A plan whose source reads the stream in."""
    return (
        f"stores: {{main: {store}}}\nsources: {{a: {{kind: stream, store: main, stream: in}}}}\n"
        "pipes: {p: {from: a}}\nsinks: {o: {from: p, kind: jsonl, path: o.jsonl}}\n"
    )


def all_of(store: Store, codec: CodecChoice, *above: LayerText) -> list[object]:
    """What a reader with this codec and these layers gets."""
    got: list[object] = []
    layers = [*above, ALL_OF_IT]
    with StreamReceiver("out", layers, store=store, codec=codec) as reader:
        reader.receive(got.append)
        assert reader.catch_up(WITHIN_S)
    return got


@pytest.mark.parametrize("boundary", ["processed", "committed"])
def test_a_reader_with_another_codec_or_layers_than_a_sink_stops_before_the_first_message(
    place: tuple[str, Store], boundary: str
) -> None:
    """Whether the sink takes part in a transaction or not; the right one reads."""
    written, store = place
    run(plan_of(writes_to(written, boundary), stores=""))
    for codec, above in (("json", ()), ("auto", ("strict-monotonic",))):
        with pytest.raises(StacksDiffer, match="payloads auto"):
            all_of(store, codec, *above)
    assert all_of(store, "auto") == [{"k": 1}, {"k": 2}]


def test_a_sink_does_not_write_behind_what_is_unread_and_written_in_another_way(
    place: tuple[str, Store],
) -> None:
    """As a sender does not; when that is read, it writes."""
    written, store = place
    with StreamSender("out", store=store, codec="json") as sender:
        sender.send({"k": 0})
        sender.flush(WITHIN_S)
    plan = plan_of(writes_to(written), stores="")
    with pytest.raises(StacksDiffer, match="not all of that is read"):
        run(plan)
    assert all_of(store, "json") == [{"k": 0}]
    run(plan)
    assert all_of(store, "auto") == [{"k": 1}, {"k": 2}]


@pytest.mark.parametrize(("codec", "above"), [("json", ()), ("auto", ("strict-monotonic",))])
def test_a_source_stops_before_what_is_written_in_another_way(
    place: tuple[str, Store], codec: CodecChoice, above: tuple[LayerText, ...]
) -> None:
    """By a program with another codec, or with layers above the stream."""
    written, store = place
    with StreamSender("in", [*above, "stream"], store=store, codec=codec) as sender:
        sender.send({"k": 1})
        sender.flush(WITHIN_S)
    with pytest.raises(StacksDiffer, match="configured differently"):
        run(plan_of(reads_from(written), stores=""))
    assert not Path("o.jsonl").exists() or not read_lines("o.jsonl")


def test_a_source_reads_what_fits_and_what_nobody_has_noted(place: tuple[str, Store]) -> None:
    """By a sender, by one without a codec of surepipe's, and by an older version or a program of its own."""
    written, store = place
    auto = choose_codec("auto")
    store.create("in", 1, KEEP_ALL)
    store.append("in", "older", 1, 1, [auto.encode({"k": 1})])
    with StreamSender("in", store=store) as sender:
        sender.send({"k": 2})
        sender.flush(WITHIN_S)
    run(plan_of(reads_from(written), stores=""))
    assert read_lines("o.jsonl") == [{"k": 1}, {"k": 2}]


@pytest.mark.parametrize(
    ("codec", "message", "came"),
    [("json", {"k": 1}, {"k": 1}), ("json", [1, "two"], [1, "two"]), ("bytes", b"{}", [123, 125])],
)
def test_a_source_reads_what_a_program_writes_as_the_plan_says(
    place: tuple[str, Store], codec: CodecChoice, message: object, came: object
) -> None:
    """The codec of the source is that of its writer."""
    written, store = place
    with StreamSender("in", store=store, codec=codec) as sender:
        sender.send(message)
        sender.flush(WITHIN_S)
    text = reads_from(written).replace("stream: in}", f"stream: in, codec: {codec}}}")
    text = text.replace("from: p,", "from: shown,") + "stages: {shown: {from: p, map: 'x:shown'}}\n"

    def shown(message: object) -> object:
        return list(message) if isinstance(message, bytes) else message

    run(plan_of(text, stores=""), shown=shown)
    assert read_lines("o.jsonl") == [came]


def test_an_entry_that_its_codec_can_not_read_is_put_aside_by_its_source(folder: Path) -> None:
    """As any other message that a source can't give."""
    del folder
    with SqliteStore("main.db") as store:
        store.create("in", 1, KEEP_ALL)
        store.append("in", "gateway", 1, 1, [b"{half", b'{"k": 2}'])
    text = reads_from("{kind: sqlite, path: main.db}")
    text = text.replace("stream: in}", "stream: in, codec: json, dead_letter: main/in.dead}")
    run(plan_of(text, stores=""))
    assert read_lines("o.jsonl") == [{"k": 2}]


class Counting(MemoryStore):
    """A store that counts how often somebody asks how a stream is written."""

    asked = 0

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As ever."""
        self.asked += isinstance(request, GetPosition) and "/stacks" in request.stream
        return super().ask(request)


def test_a_reader_looks_once_how_a_sink_writes() -> None:
    """Without a transaction each of its messages is a producer by itself, with no record of its own."""
    store = Counting()
    sink = IntoStream(store, "out", "shop/o", choose_codec("auto"), noted_by=THREADS)
    for seq in range(1, 101):
        sink.put(seq, About("shop/p", 1, seq), None)
    store.asked = 0
    assert all_of(store, "auto") == [*range(1, 101)]
    assert store.asked < 10
