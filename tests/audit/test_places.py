"""Where logs are, as it is written; and one clear error for each thing that is none (spark SP-18)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surepipe.audit.bulk import DuckEngine, Question, StoredStream, Traces, judge, place_of
from surepipe.audit.trace_file import write_trace
from surepipe.errors import ConfigurationError
from tests.audit.planted import Planted, Told, write_narrow


def test_streams_are_named_behind_a_sign(tmp_path: Path) -> None:
    """A SQLite file, one partition, a Redis server whose password is never shown."""
    store = tmp_path / "orders.db"
    store.touch()
    assert place_of(f"{store}#orders") == StoredStream(str(store), "orders")
    assert place_of(f"{store}#orders#3") == StoredStream(str(store), "orders#3")
    place = place_of("redis://:secret@host:6379/1?pipeline=shop&protocol=3#orders")
    assert place == StoredStream("redis://:secret@host:6379/1?protocol=3", "orders", "shop")
    assert str(place) == "redis://host:6379/1?protocol=3#orders"
    assert "secret" not in repr(place)


def test_files_and_folders_are_traces(tmp_path: Path) -> None:
    """A file with the sign in its name is a file."""
    for name in ("b.jsonl", "a.parquet", "notes.txt", "odd#name.jsonl"):
        (tmp_path / name).touch()
    assert place_of(str(tmp_path)) == Traces(
        tuple(tmp_path / name for name in ("a.parquet", "b.jsonl", "odd#name.jsonl"))
    )
    odd = tmp_path / "odd#name.jsonl"
    assert place_of(str(odd)) == Traces((odd,))
    odd.write_text("{}")  # the others are of processes that ended before their first pipe began
    assert place_of(str(tmp_path)) == Traces((odd,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("none.jsonl", "none.jsonl can't be read: no such file or folder"),
        ("none.db#orders", "none.db can't be read: no such file"),
        ("redis://host/0#orders", r"redis://host/0#orders names no stream: write redis://HOST"),
        ("redis://u:secret@host/0?pipeline=a", r"redis://host/0\?pipeline=a names no stream"),
    ],
)
def test_places_that_name_nothing_are_refused(text: str, words: str) -> None:
    """With what to write."""
    with pytest.raises(ConfigurationError, match=words):
        place_of(text)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    """It says which endings count."""
    with pytest.raises(ConfigurationError, match=r"holds no trace: no file in it ends in .parquet"):
        place_of(str(tmp_path))


def refusal(path: Path) -> str:
    """What an audit of this file is refused with."""
    place = place_of(str(path))
    with pytest.raises(ConfigurationError) as caught:
        judge(DuckEngine(), Question(place, place))
    return str(caught.value)


def test_files_that_hold_no_trace_are_refused_each_in_its_own_words(tmp_path: Path) -> None:
    """Empty, not Parquet, cut Parquet, no rows, a missing column, no row 'run', another version."""
    empty, false, cut = (
        tmp_path / "empty.jsonl",
        tmp_path / "false.parquet",
        tmp_path / "cut.parquet",
    )
    empty.touch()
    false.write_text("channel,seq\n")
    cut.write_bytes(b"PAR1 and no more")
    assert refusal(empty).startswith(f"{empty} is empty: a trace begins with a row 'run', which a ")
    assert refusal(false) == f"{false} is not Parquet, whatever its name says"
    assert refusal(cut) == f"{cut} is cut off: the end of a Parquet file is missing"
    cut.write_bytes(b"PAR1, and the same at its end PAR1")
    assert refusal(cut).startswith(f"{cut} can't be read: ")
    words, narrow = tmp_path / "words.jsonl", tmp_path / "narrow.parquet"
    words.write_text("no JSON at all\n")
    assert refusal(words) == f"{words} is no trace: no line of it is a row"
    write_narrow(narrow)
    assert "narrow.parquet is no trace: column count, epoch, incarnation, kind" in refusal(narrow)
    told = Told()
    told.channel(Planted("orders", [(1, 1, 3)], [(1, 1, 3)]))
    headless, newer = tmp_path / "headless.parquet", tmp_path / "newer.parquet"
    write_trace(told.rows[1:], headless)
    assert refusal(headless) == f"there is no row 'run' in {headless}: this is no trace of surepipe"
    told.rows[0].detail = json.dumps({"clock": "wall", "format": 2})
    write_trace(told.rows, newer)
    assert "has trace format 2 and this version of surepipe reads 1: update surepipe" in refusal(
        newer
    )


def test_several_simulated_runs_are_not_mixed(tmp_path: Path) -> None:
    """Each is a trace of its own."""
    path = tmp_path / "two.parquet"
    first, second = Told("a"), Told("b")
    for told in (first, second):
        told.rows[0].detail = json.dumps({"clock": "virtual", "format": 1})
    write_trace([*first.rows, *second.rows], path)
    assert refusal(path).startswith("these are 2 runs, and simulated ones are traces of their own")
