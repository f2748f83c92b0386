"""``surepipe dlq`` deletes letters, sends one of them, and says what became of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.actors import StreamSender
from surepipe.actors.codecs import AutoCodec
from surepipe.cli.output import Exit
from surepipe.core.effects import Letter
from surepipe.core.store_requests import StreamInfo
from surepipe.storage import DeadLetterStream, Retention, SqliteStore
from tests.cli.kit import Command

FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: in.jsonl, dead_letter: main/dead}}
pipes: {intake: {from: lines, journal: main}}
stages: {price: {from: intake, call: "priced:price", retries: 1, dead_letter: main/dead}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
"""
LETTERS = [AutoCodec().encode({"n": number}) for number in range(1, 5)]


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline in the current folder, with four dead letters."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    Path("priced.py").write_text("def price(message):\n    return message\n")
    with SqliteStore("shop.db") as store:
        for seq, payload in enumerate(LETTERS, 1):
            bury(store, seq, payload, "shop/intake")


def bury(store: SqliteStore, seq: int, payload: bytes, pipe: str) -> None:
    """Store a letter."""
    DeadLetterStream(store, "dead")(
        Letter(pipe, 0, 5, seq, payload, 1, 0, 1_000_000, "NoPrice", "?")
    )


def sent() -> list[str]:
    """What went through the pipeline."""
    return Path("out.jsonl").read_text().splitlines() if Path("out.jsonl").exists() else []


def test_one_letter_is_sent_and_the_rest_later_each_once(surepipe: Command) -> None:
    """Out of its turn, said when and as which number; all of them pass it over, and one that was deleted."""
    one = surepipe("dlq", "replay", "shop.yaml", 3)
    assert (one.code, one.out) == (0, "1 letter replayed, exactly once\n")
    assert sent() == ['{"n": 3}']
    shown = surepipe("dlq", "show", "shop.yaml", 3)
    assert "  sent again at 20" in shown.out
    assert " as epoch " in shown.out
    as_number = surepipe("dlq", "show", "shop.yaml", "main/dead", 3, "--json").json["sent_as"]
    assert as_number["seq"] == 1
    again = surepipe("dlq", "replay", "shop.yaml", 3)
    assert again.code == Exit.UNUSABLE
    assert "was sent again before" in again.err
    assert surepipe("dlq", "delete", "shop.yaml", 2).code == 0
    refused = surepipe("dlq", "replay", "shop.yaml", "main/dead", 2)
    assert (refused.code, "was deleted" in refused.err) == (Exit.UNUSABLE, True)
    assert surepipe("dlq", "replay", "shop.yaml").out == "2 letters replayed, exactly once\n"
    assert sent() == ['{"n": 3}', '{"n": 1}', '{"n": 4}']
    assert surepipe("dlq", "replay", "shop.yaml").out == "no letter in main/dead is waiting\n"
    listed = surepipe("dlq", "list", "shop.yaml", "--deleted", "--json").json["main/dead"]
    assert [(letter["sent_again"], letter["deleted"]) for letter in listed] == [
        (True, False),
        (False, True),
        (True, False),
        (True, False),
    ]


def test_deleted_letters_are_hidden_for_good_and_a_repeat_changes_nothing(
    surepipe: Command,
) -> None:
    """The list says how many there are; the number of none deletes none at all."""
    deleted = surepipe("dlq", "delete", "shop.yaml", 2, 4)
    assert deleted.out == (
        "2 letters of main/dead deleted; the store keeps the bytes until its stream is trimmed\n"
    )
    assert surepipe("dlq", "delete", "shop.yaml", 2).out == (
        "no letter of main/dead deleted (1 before)\n"
    )
    head, *rest = surepipe("dlq", "list", "shop.yaml").out.splitlines()
    assert head == "main/dead  2 letters, 2 deleted (--deleted shows them)"
    assert [text.strip()[:2] for text in rest] == ["1:", "3:"]
    assert "deleted at 20" in surepipe("dlq", "show", "shop.yaml", 4).out
    absent = surepipe("dlq", "delete", "shop.yaml", 1, 9)
    assert absent.code == Exit.UNUSABLE
    assert "has no letter 9, so nothing was deleted" in absent.err
    every = surepipe("dlq", "delete", "shop.yaml", "--all", "--json").json
    assert (every["deleted"], every["deleted_before"]) == ([1, 3], 2)
    assert surepipe("dlq", "replay", "shop.yaml").out == "no letter in main/dead is waiting\n"
    assert sent() == []


def test_what_was_sent_before_it_was_deleted_still_says_so(surepipe: Command) -> None:
    """And a letter that came later is sent by the next replay, past those that were deleted."""
    surepipe("dlq", "replay", "shop.yaml", "--limit", 1)
    surepipe("dlq", "delete", "shop.yaml", "--all")
    with SqliteStore("shop.db") as store:
        bury(store, 5, AutoCodec().encode({"n": 5}), "shop/intake")
    assert surepipe("dlq", "replay", "shop.yaml").out == "1 letter replayed, exactly once\n"
    assert sent() == ['{"n": 1}', '{"n": 5}']
    listed = surepipe("dlq", "list", "shop.yaml", "--deleted", "--json").json["main/dead"]
    assert [letter["sent_again"] for letter in listed] == [True, False, False, False, True]


def test_a_letter_of_a_source_is_refused_with_what_to_do_and_deleting_it_frees_the_rest(
    surepipe: Command,
) -> None:
    """It never was a message of a pipe: a run met a line that can't be read."""
    Path("in.jsonl").write_text("no json\n")
    assert surepipe("run", "shop.yaml", "--once").code == Exit.HELD
    for chosen in ((), (5,)):
        refused = surepipe("dlq", "replay", "shop.yaml", *chosen)
        assert refused.code == Exit.UNUSABLE
        assert "letter 5 of main/dead came from source lines" in refused.err
        assert "surepipe dlq delete" in refused.err
    surepipe("dlq", "delete", "shop.yaml", 5)
    assert surepipe("dlq", "replay", "shop.yaml").out == "4 letters replayed, exactly once\n"


def test_a_letter_of_a_pipe_that_the_plan_has_not_is_refused_with_who_can_replay_it(
    surepipe: Command,
) -> None:
    """A Python program has put it there: what is done with a letter, but to send it, is done here as well."""
    with SqliteStore("shop.db") as store:
        bury(store, 7, AutoCodec().encode("seven"), "events")
    refused = surepipe("dlq", "replay", "shop.yaml", 5)
    assert refused.code == Exit.UNUSABLE
    assert refused.err == (
        "surepipe: letter 5 of main/dead is of pipe events, which shop doesn't have: replay it in the program "
        'that has it, with pipe.replay(DeadLetterStream(store, "dead"), index=5) (docs/storage.md, '
        '"Dead letters")\n'
    )
    mixed = surepipe("dlq", "replay", "shop.yaml")
    assert mixed.code == Exit.UNUSABLE
    assert "letter 5 of main/dead is of pipe events" in mixed.err
    assert "send those of shop one by one, by number, or delete it" in mixed.err
    assert surepipe("dlq", "replay", "shop.yaml", 2).out == "1 letter replayed, exactly once\n"
    assert "1 letter of main/dead deleted" in surepipe("dlq", "delete", "shop.yaml", 5).out
    assert surepipe("dlq", "replay", "shop.yaml").out == "3 letters replayed, exactly once\n"


def test_letters_of_a_python_program_are_reached_by_their_store(surepipe: Command) -> None:
    """Listed, shown and deleted without a plan, also with a bound of their own; who can replay them is said."""
    bounded = Retention(max_bytes=100_000)
    with SqliteStore("shop.db") as store:
        DeadLetterStream(store, "mail/dead", retention=bounded)(
            Letter("mail", 0, 5, 1, LETTERS[0], 1, 0, 1_000_000, "NoPrice", "?")
        )
    assert surepipe("dlq", "list", "shop.db#mail/dead").out.startswith(
        "shop.db#mail/dead  1 letter\n"
    )
    assert surepipe("dlq", "show", "shop.db#dead", 2, "--json").json["payload"] == {"n": 2}
    refused = surepipe("dlq", "replay", "shop.db#mail/dead")
    assert refused.code == Exit.UNUSABLE
    assert 'with pipe.replay(DeadLetterStream(store, "mail/dead"))' in refused.err
    assert (
        "1 letter of shop.db#mail/dead deleted"
        in surepipe("dlq", "delete", "shop.db#mail/dead", 1).out
    )
    assert "no letter, 1 deleted" in surepipe("dlq", "list", "shop.db#mail/dead").out


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("none.db#dead", "none.db can't be read: no such file"),
        ("shop.db#other", "shop.db#other: there is no stream 'other'"),
        ("shop.db#events", "entry 1 of 'events' is no letter"),
        ("redis://127.0.0.1:1/0#dead", "names no stream: write redis://"),
    ],
)
def test_a_place_without_letters_is_refused(place: str, says: str, surepipe: Command) -> None:
    """And nothing is made there."""
    with SqliteStore("shop.db") as store, StreamSender("events", store=store) as sender:
        sender.send(1)
        sender.flush()
    for verb in (("list", place), ("show", place, 1), ("delete", place, "--all")):
        refused = surepipe("dlq", *verb)
        assert (refused.code, says in refused.err) == (Exit.UNUSABLE, True)
    assert not Path("none.db").exists()


def test_a_look_from_another_folder_makes_no_store_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, surepipe: Command
) -> None:
    """It said that there is no letter, and left an empty store in the folder."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(elsewhere)
    for asked in (["list"], ["delete", "--all"], ["show", "1"], ["replay"]):
        command, *more = asked
        done = surepipe("dlq", command, "../shop.yaml", *more)
        assert done.code == Exit.UNUSABLE, asked
        assert "shop.db can't be read: no such file" in done.err
        assert f"or it runs in another folder than {elsewhere}" in " ".join(done.err.split())
    assert not list(elsewhere.iterdir())


def test_letters_in_memory_and_words_that_are_no_numbers_are_refused(surepipe: Command) -> None:
    """In one sentence, with code 2."""
    for command in (("delete", "shop.yaml"), ("delete", "shop.yaml", 1, "--all")):
        assert "or --all" in surepipe("dlq", *command).err
    assert "no number of a letter" in surepipe("dlq", "delete", "shop.yaml", 1, "two").err
    assert "no number of a letter" in surepipe("dlq", "show", "shop.yaml", 0).err
    Path("shop.yaml").write_text(FILE.replace("{kind: sqlite, path: shop.db}", "{kind: memory}"))
    for verb in ("list", "replay"):
        refused = surepipe("dlq", verb, "shop.yaml")
        assert (refused.code, "is in memory" in refused.err) == (Exit.UNUSABLE, True)


TWO_NODES = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}, beside: {kind: sqlite, path: beside.db}}
sources: {lines: {kind: jsonl, path: in.jsonl, node: till}}
pipes: {intake: {from: lines, node: depot, layers: [stream], route: {kind: sqlite, store: main}}}
stages: {price: {from: intake, call: "priced:price", retries: 1, dead_letter: beside/dead}}
sinks: {out: {from: price, kind: jsonl, path: out.jsonl}}
"""


def test_a_replay_runs_the_node_that_fills_the_pipe_wherever_its_letters_are(
    surepipe: Command,
) -> None:
    """The stages, and the store of their letters, belong to another node than the source does."""
    Path("shop.yaml").write_text(TWO_NODES)
    with SqliteStore("beside.db") as store:
        bury(store, 1, LETTERS[0], "shop/intake")
    replayed = surepipe("dlq", "replay", "shop.yaml")
    assert (replayed.code, replayed.err) == (0, "")
    assert replayed.out.startswith("1 letter replayed")
    with SqliteStore("shop.db") as store:
        info = store.info("shop/intake")
        assert isinstance(info, StreamInfo)
        assert info.next == 2
