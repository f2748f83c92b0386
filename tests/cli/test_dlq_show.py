"""``surepipe dlq show`` gives a payload as one can read it, and with ``--raw`` byte for byte."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.actors.codecs import choose_codec, marked
from surepipe.cli.letters import payload_facts, payload_lines
from surepipe.cli.output import Exit
from surepipe.core.effects import Letter
from surepipe.storage import DeadLetterStream, SqliteStore
from surepipe.storage.letters import Replay
from tests.cli.kit import Command

FILE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: stdin}}
pipes: {intake: {from: lines, journal: main}}
stages: {price: {from: intake, call: "shop:price", retries: 1, dead_letter: main/dead}}
"""
ORDER = {"order": 7, "article": "Käse", "note": "two\\nlines"}
PLACE = ("shop.yaml", "main/dead", 1)


@pytest.fixture
def bury(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts a letter with this payload where the pipeline of the current folder has its dead letters."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)

    def put(payload: bytes) -> None:
        with SqliteStore("shop.db") as store:
            DeadLetterStream(store, "dead")(
                Letter("shop/intake", 0, 5, 23, payload, 2, 0, 1_000_000, "NoPrice", "saffron")
            )

    return put


@pytest.mark.parametrize("codec", ["auto", "json"])
def test_json_is_shown_as_json_one_value_on_each_line(
    surepipe: Command, bury: Callable[[bytes], None], codec: str
) -> None:
    """Without the sign that the codec puts before it."""
    bury(choose_codec(codec).encode(ORDER) if codec == "auto" else json.dumps(ORDER).encode())
    lines = surepipe("dlq", "show", *PLACE).out.splitlines()
    assert lines[0] == "1: shop/intake epoch 5 seq 23, 2 attempts: NoPrice: saffron"
    assert lines[2].endswith(" bytes, JSON:")
    assert json.loads("\n".join(lines[3:])) == ORDER
    assert '    "article": "Käse",' in lines
    document = surepipe("dlq", "show", *PLACE, "--json").json
    assert (document["payload_is"], document["payload"]) == ("json", ORDER)


def test_text_is_shown_as_text(surepipe: Command, bury: Callable[[bytes], None]) -> None:
    """Line by line."""
    bury("Käse,\n2 kg".encode())
    assert surepipe("dlq", "show", *PLACE).out.splitlines()[2:] == [
        "  11 bytes, text:",
        "  Käse,",
        "  2 kg",
    ]


def test_other_bytes_are_shown_in_hexadecimal_with_their_length(
    surepipe: Command, bury: Callable[[bytes], None]
) -> None:
    """Rows of sixteen, the letters among them beside them."""
    bury(bytes(range(0xF0, 0x100)) + b"ab\x00")
    assert surepipe("dlq", "show", *PLACE).out.splitlines()[2:] == [
        "  19 bytes, neither JSON nor text:",
        "  0000  f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 fa fb fc fd fe ff  ................",
        "  0010  61 62 00                                         ab.",
    ]
    assert surepipe("dlq", "show", *PLACE, "--json").json["payload"].endswith("ff616200")


def test_json_that_can_not_be_written_as_text_is_escaped(
    surepipe: Command, bury: Callable[[bytes], None]
) -> None:
    """Half of a pair of surrogates, for people and for machines."""
    bury(b'{"half": "\\ud800"}')
    assert '    "half": "\\ud800"' in surepipe("dlq", "show", *PLACE).out.splitlines()
    answer = surepipe("dlq", "show", *PLACE, "--json")
    assert '"half": "\\ud800"' in answer.out
    assert answer.json["payload"] == {"half": "\ud800"}


def test_what_python_takes_for_json_and_json_does_not_know_stays_text() -> None:
    """However deep it stands; and what is nested as deep as can be read can be written too."""
    assert payload_facts(b'{"a": [Infinity]}') == {
        "payload_is": "text",
        "payload": '{"a": [Infinity]}',
    }
    for depth in range(700, 1_000, 50):
        payload = b"[" * depth + b"]" * depth
        assert list(payload_lines(payload))
        assert json.dumps([payload_facts(payload)], indent=2)


def test_raw_gives_the_bytes_and_nothing_else(
    surepipe: Command, bury: Callable[[bytes], None]
) -> None:
    """As a program of its own, since standard output is what is looked at; not together with --json."""
    payload = b"\x1e\xff\r\n\x00"
    bury(payload)
    done = subprocess.run(
        [sys.executable, "-m", "surepipe", "dlq", "show", *map(str, PLACE), "--raw"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == payload
    assert surepipe("dlq", "show", *PLACE, "--raw", "--json").code == Exit.UNUSABLE


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"\x1b[2Jgone", "bytes"),
        ("\u202eesrever".encode(), "bytes"),
        (b'{"a": 1, "a": 2}', "text"),
        (b"[" * 100_000, "text"),
        (b"\x1e\x1e{}", "bytes"),
        (marked(b"plain", 3), "text"),
        (b"", "text"),
        (b"NaN", "text"),
        (b"two\r\nlines", "text"),
        (b"over\rwritten", "bytes"),
    ],
    ids=[
        *("escape", "backwards", "twice", "deep", "mark", "replayed", "empty"),
        *("constant", "windows", "return"),
    ],
)
def test_what_would_mislead_a_reader_is_not_taken_at_its_word(payload: bytes, kind: str) -> None:
    """Orders to the terminal, keys that stand twice, nesting without an end, marks of codecs."""
    assert payload_facts(payload)["payload_is"] == kind


@given(
    st.binary(max_size=60)
    | st.text(max_size=30).map(str.encode)
    | st.text().map(json.dumps).map(str.encode)
)
def test_no_payload_writes_anything_but_signs_that_are_shown(payload: bytes) -> None:
    """Whatever it is, each line can be printed, and the facts are JSON."""
    assert all(text.replace("\t", " ").isprintable() for text in payload_lines(payload))
    json.dumps(payload_facts(payload))


def test_a_long_payload_of_bytes_says_how_much_is_not_shown() -> None:
    """The first 4096."""
    lines = list(payload_lines(b"\xff" * 5000))
    assert len(lines) == 2 + 4096 // 16
    assert lines[-1] == "and 904 bytes more: --raw gives all of them"


def test_the_list_says_which_letters_were_sent_again(
    surepipe: Command, bury: Callable[[bytes], None]
) -> None:
    """They stay in the list, and a second replay would pass them over."""
    bury(b"one")
    with SqliteStore("shop.db") as store:
        letters = DeadLetterStream(store, "dead")
        letters(Letter("shop/intake", 0, 5, 24, b"two", 2, 0, 1_000_000, "NoPrice", "gold"))
        replay = Replay(letters, store)
        replay.begin()
        replay.done(replay.waiting(1)[0])
    first, second = surepipe("dlq", "list", "shop.yaml").out.splitlines()[1:]
    assert first.endswith("NoPrice: saffron  sent again")
    assert second.endswith("NoPrice: gold")
    listed = surepipe("dlq", "list", "shop.yaml", "--json").json["main/dead"]
    assert [one["sent_again"] for one in listed] == [True, False]


def test_a_letter_shows_where_its_stage_raised(
    surepipe: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the line of the user's code; the list stays one line for each letter."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("traced_shop.py").write_text("def price(order):\n    return order / 0\n")
    text = FILE.replace("shop:price", "traced_shop:price").replace(
        "{kind: stdin}", "{kind: jsonl, path: in.jsonl}"
    )
    Path("shop.yaml").write_text(f"{text}sinks: {{out: {{kind: stdout, from: price}}}}\n")
    Path("in.jsonl").write_text("7\n")
    surepipe("run", "shop.yaml")
    shown = surepipe("dlq", "show", *PLACE)
    assert shown.code == Exit.HELD
    assert 'traced_shop.py", line 2, in price\n' in shown.out
    assert shown.out.count('    File "') == 1
    assert "ZeroDivisionError: division by zero\n" in shown.out
    assert "traced_shop.py" in surepipe("dlq", "show", *PLACE, "--json").json["traceback"]
    assert len(surepipe("dlq", "list", "shop.yaml").out.splitlines()) == 2


def test_a_traceback_can_not_clear_the_terminal(
    surepipe: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that quotes its message may have escape sequences in its text."""
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(FILE)
    letter = Letter("shop/intake", 0, 5, 23, b"7", 2, 0, 1_000_000, "NoPrice", "saffron")
    with SqliteStore("shop.db") as store:
        DeadLetterStream(store, "dead")(replace(letter, traceback="Traceback\nNoPrice: \x1b[2J"))
    shown = surepipe("dlq", "show", *PLACE).out
    assert "\x1b" not in shown
    assert "  NoPrice: \\x1b[2J\n" in shown


def test_a_letter_says_whose_message_it_was_where_the_number_alone_does_not(
    surepipe: Command, bury: Callable[[bytes], None]
) -> None:
    """What was forwarded into a stream is all number 1 of epoch 1. Of a sender with the stream's name, of
    a source's row and of a message of a book, pipe, epoch and number say enough."""
    bury(b"one")
    rest = (b"two", 2, 0, 1_000_000, "NoPrice", "gold")
    with SqliteStore("shop.db") as store:
        letters = DeadLetterStream(store, "dead")
        letters(Letter("out", 0, 1, 1, *rest, producer="out/7\x1b"))
        letters(Letter("out", 0, 1, 1, *rest, producer="out"))
        letters(Letter("shop/lines", 0, 5, 3, *rest, producer="12 0123456789abcdef"))
        letters(Letter("book@web", 0, 5, 3, *rest, producer="6fTk"))
    lines = surepipe("dlq", "list", "shop.yaml").out.splitlines()[1:]
    assert [line.strip().partition(",")[0] for line in lines] == [
        "1: shop/intake epoch 5 seq 23",
        "2: out producer 'out/7\\x1b' epoch 1 seq 1",
        "3: out epoch 1 seq 1",
        "4: shop/lines epoch 5 seq 3",
        "5: book@web epoch 5 seq 3",
    ]
    listed = surepipe("dlq", "list", "shop.yaml", "--json").json["main/dead"]
    assert [one["producer"] for one in listed[:3]] == ["", "out/7\x1b", "out"]
    assert surepipe("dlq", "show", "shop.yaml", "main/dead", 2, "--json").json["producer"]
