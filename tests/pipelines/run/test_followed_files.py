"""What happens to files that are followed: rows are given once each, or it is said why not. Step by step."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import NOTHING, SourceRow
from surepipe.pipelines.sources.checking import Check, as_it_is
from surepipe.pipelines.sources.files import CsvFile, JsonlFile, TextFile


@dataclass
class Log:
    """A file that a program writes, and a source that follows it."""

    kind: str
    path: Path
    sources: list[TextFile] = field(default_factory=list[TextFile])
    rows: list[SourceRow] = field(default_factory=list[SourceRow])

    def source(self, after: str = "", check: Check = as_it_is) -> TextFile:
        """A source that begins behind a place."""
        made: TextFile
        if self.kind == "jsonl":
            made = JsonlFile(self.path, follow=True, check=check)
        else:
            made = CsvFile(self.path, check=check, follow=True)
        self.sources.append(made)
        made.begin(after)
        return made

    def text(self, *numbers: int) -> str:
        """These rows, as they stand in the file."""
        sign = '{"n": "%d"}\n' if self.kind == "jsonl" else "%d\n"
        return "".join(sign % number for number in numbers)

    @property
    def head(self) -> str:
        """What a new file begins with."""
        return "" if self.kind == "jsonl" else "n\n"

    def write(self, *numbers: int, path: Path | None = None) -> None:
        """Add rows, to a file that may be new."""
        target = path or self.path
        is_new = not target.exists() or not target.stat().st_size
        with target.open("a") as file:
            file.write((self.head if is_new else "") + self.text(*numbers))

    def beside(self, suffix: str) -> Path:
        """Another name in the same folder."""
        return self.path.with_name(self.path.name + suffix)

    def read(self, source: TextFile, rows_max: int = 99) -> list[int]:
        """What the source gives now, until it gives nothing."""
        found: list[SourceRow] = []
        while len(found) < rows_max and (rows := source.read(rows_max)):
            found += rows
        self.rows += found
        return numbers(found)


def numbers(rows: Sequence[SourceRow]) -> list[int]:
    """The numbers of rows, without those that only move the place."""
    messages = [row.message for row in rows if row.message is not NOTHING]
    return [int(cast("dict[str, str]", message)["n"]) for message in messages]


@pytest.fixture(params=["jsonl", "csv"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Log]:
    """Of each kind; nothing is left open."""
    before = len(os.listdir("/proc/self/fd"))
    made = Log(request.param, tmp_path / "rows.log")
    made.write(1, 2, 3, 4, 5)
    yield made
    for source in made.sources:
        source.close()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("added", [(6,), tuple(range(6, 30))], ids=["shorter", "longer again"])
def test_what_was_not_read_of_a_file_that_was_copied_and_cut_is_read_in_its_copy(
    log: Log, added: tuple[int, ...]
) -> None:
    """Also where the file has grown beyond the place before anybody looked."""
    source = log.source()
    assert log.read(source, 2) == [1, 2]
    shutil.copy(log.path, log.beside(".1"))
    os.truncate(log.path, 0)
    log.write(*added)
    assert log.read(source) == [3, 4, 5, *added]
    log.write(99)
    assert log.read(source) == [99]


def test_a_file_that_was_cut_without_a_copy_is_an_error_when_rows_are_missing(log: Log) -> None:
    """It names the byte, and says what to do."""
    source = log.source()
    assert log.read(source, 2) == [1, 2]
    at = int(log.rows[-1].after.split()[0])
    os.truncate(log.path, 0)
    log.write(6)
    with pytest.raises(
        ConfigurationError, match=f"when {at} of at least .* no copy of it is beside"
    ):
        source.read(9)


def test_a_file_that_was_cut_when_all_was_read_is_told_of_and_goes_on(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can know what stood there for a moment."""
    source = log.source()
    assert log.read(source) == [1, 2, 3, 4, 5]
    size = log.path.stat().st_size
    os.truncate(log.path, 0)
    assert log.read(source) == []
    log.write(6, 7)
    assert log.read(source) == [6, 7]
    log.write(8)
    assert log.read(source) == [8]
    assert f"all {size} that were seen had been read" in caplog.text
    assert "has grown" not in caplog.text


@pytest.mark.parametrize("lag", [2, 99], ids=["behind", "at its end"])
def test_a_file_that_is_moved_away_is_read_to_its_end_and_the_new_one_from_its_beginning(
    log: Log, lag: int
) -> None:
    """Whoever still writes into the old one is read too, until the new one has something."""
    source = log.source()
    first = log.read(source, lag)
    log.path.rename(log.beside(".1"))
    log.path.touch()
    log.write(6, path=log.beside(".1"))
    assert [*first, *log.read(source)] == [1, 2, 3, 4, 5, 6]
    log.write(7, path=log.beside(".1"))
    log.write(8)
    assert log.read(source) == [7, 8]


def test_what_is_added_to_a_file_after_another_took_its_name_is_told_of(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not read, and its bytes are named."""
    source = log.source()
    log.read(source)
    log.path.rename(log.beside(".1"))
    log.write(6)
    assert log.read(source) == [6]
    log.write(7, path=log.beside(".1"))
    assert log.read(source) == []
    assert "after another one had taken its name: what was added to it is not read" in caplog.text


def test_a_file_that_is_deleted_is_waited_for(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """What is left of it is read; then another one of its name."""
    source = log.source()
    assert log.read(source, 2) == [1, 2]
    log.path.unlink()
    assert log.read(source) == [3, 4, 5]
    assert "was moved away at byte" in caplog.text
    log.write(6)
    assert log.read(source) == [6]


def test_a_file_that_is_replaced_by_a_shorter_one_is_read_to_its_end_first(log: Log) -> None:
    """Between two looks, in one step."""
    source = log.source()
    assert log.read(source, 3) == [1, 2, 3]
    log.write(6, path=log.beside(".new"))
    log.beside(".new").replace(log.path)
    assert log.read(source) == [4, 5, 6]


def test_half_a_line_waits_for_its_other_half(log: Log) -> None:
    """It is not given, and not lost; the file may be cut behind it."""
    source = log.source()
    log.read(source)
    whole = log.text(66)
    with log.path.open("a") as file:
        file.write(whole[:1])
        file.flush()
        assert log.read(source) == []
        file.write(whole[1:])
    assert log.read(source) == [66]


def test_lines_of_a_file_that_is_cut_while_it_is_read_are_not_mixed(log: Log) -> None:
    """The check of the second row cuts it, and writes others: nothing of that look is given."""

    def cutting(message: object) -> object:
        if cast("dict[str, str]", message)["n"] == "2" and not log.beside(".1").exists():
            shutil.copy(log.path, log.beside(".1"))
            os.truncate(log.path, 0)
            log.write(*range(60, 99))
        return message

    source = log.source()
    assert log.read(source, 1) == [1]
    again = log.source(log.rows[-1].after, check=cutting)
    assert log.read(again) == [*range(2, 6), *range(60, 99)]


@pytest.mark.parametrize("way", ["renamed", "copied and cut", "deleted at its end"])
def test_a_restart_goes_on_behind_every_place(log: Log, way: str) -> None:
    """Before what happened to the file, and behind it."""
    source = log.source()
    seen = log.read(source, 3)
    if way == "renamed":
        log.path.rename(log.beside(".1"))
    elif way == "copied and cut":
        shutil.copy(log.path, log.beside(".1"))
        os.truncate(log.path, 0)
    else:
        seen += log.read(source)
        log.path.unlink()
    log.write(6, 7, 8)
    seen += log.read(source)
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8]
    for at, row in enumerate(given := list(log.rows)):
        if way == "deleted at its end" and at < 5:
            with pytest.raises(ConfigurationError, match="it is another file, or was cut"):
                log.source(row.after)
            continue
        assert numbers(given[: at + 1]) + log.read(log.source(row.after)) == seen


def test_a_file_that_was_moved_twice_since_is_not_guessed_at(log: Log) -> None:
    """The one between would be passed over."""
    source = log.source()
    log.read(source, 2)
    log.path.rename(log.beside(".2"))
    os.utime(log.beside(".2"), (1, 1))
    log.write(6, path=log.beside(".1"))
    log.write(7)
    with pytest.raises(ConfigurationError, match=r"of what is .*\.2 now, and .*\.1 came since"):
        log.source(log.rows[-1].after)


def aged(path: Path, second: int) -> None:
    """Last written in this second: files that are made within one tick of the clock look equally old."""
    os.utime(path, (second, second))


@pytest.mark.parametrize("way", ["copied and cut", "renamed"])
def test_a_file_that_was_moved_twice_while_nobody_looked_stops_the_run(log: Log, way: str) -> None:
    """The one between has lost its name before it was read: its file is named, and no row behind it is given."""
    source = log.source()
    read = log.read(source, 2)
    for number, name in enumerate((".2", ".1"), 1):
        if way == "renamed":
            log.path.rename(log.beside(name))
        else:
            shutil.copy(log.path, log.beside(name))
            os.truncate(log.path, 0)
        aged(log.beside(name), number)
        log.write(10 * number)
        if number == 1:
            read += log.read(source, 1)  # it has begun with what is left of the first
    while len(read) < 5:
        read += log.read(source, 1)
    assert read == [1, 2, 3, 4, 5]
    with pytest.raises(ConfigurationError, match=r"of the one before, and .*\.1 came since"):
        log.read(source)


def test_a_file_that_was_moved_before_anything_of_it_was_read_is_found(log: Log) -> None:
    """A place may be the very beginning of a file: it is known by its inode."""
    source = log.source()
    log.read(source)
    log.path.rename(log.beside(".1"))
    log.write(6)
    place = source.read(9)
    assert place is not None
    log.path.rename(log.beside(".2"))
    log.write(7)
    aged(log.beside(".1"), 1)
    aged(log.beside(".2"), 2)
    assert log.read(log.source(place[-1].after)) == [6, 7]


@pytest.mark.parametrize(
    "other", ["a backup of the old one", "a backup of the new one", "a copy being compressed"]
)
def test_what_stands_beside_and_is_no_file_between_stops_nobody(log: Log, other: str) -> None:
    """Its lines are in one of the two that are read, or in a file that was there before."""
    source = log.source()
    log.path.rename(log.beside(".1"))
    aged(log.beside(".1"), 1)
    log.write(6)
    match other:
        case "a backup of the old one":
            log.beside(".bak").write_bytes(log.beside(".1").read_bytes())
        case "a backup of the new one":
            log.beside("~").write_bytes(log.path.read_bytes())
        case _:
            log.beside(".1.gz").write_bytes(b"half a")
    assert log.read(source) == [1, 2, 3, 4, 5, 6]


def test_a_place_of_an_earlier_version_is_understood(log: Log) -> None:
    """A byte of lines, a number of rows of a table."""
    after = str(len(log.text(1, 2))) if log.kind == "jsonl" else "2"
    assert log.read(log.source(after)) == [3, 4, 5]


def test_a_quoted_field_may_have_ends_of_lines_and_bytes_beyond_ascii(tmp_path: Path) -> None:
    """And every place goes on behind its row."""
    path = tmp_path / "a.csv"
    rows = [{"a": "x\ny", "b": "é"}, {"a": '"', "b": "\r\n"}, {"a": "", "b": "z"}]
    path.write_bytes('\ufeffa,b\r\n"x\ny",é\n\n"""","\r\n"\n,z'.encode())
    source = CsvFile(path)
    source.begin("")
    found = source.read(9) or []
    assert [row.message for row in found] == rows
    for at, row in enumerate(found, 1):
        source.begin(row.after)
        assert [one.message for one in source.read(9) or []] == rows[at:]
    source.close()


def test_a_table_whose_lines_end_with_cr_alone_is_read(tmp_path: Path) -> None:
    """As old programs write it."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"n\r1\r2\r")
    source = CsvFile(path)
    source.begin("")
    assert numbers(source.read(9) or []) == [1, 2]
    source.close()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_file_that_has_an_end_says_how_much_of_it_is_read(kind: str, tmp_path: Path) -> None:
    """In bytes, for those who wait for it; one that is followed has no end, and one that is gone says nothing."""
    path = tmp_path / "rows"
    path.write_text("n\n1\n2\n3\n" if kind == "csv" else "1\n2\n3\n")
    source = CsvFile(path) if kind == "csv" else JsonlFile(path)
    followed = CsvFile(path, follow=True) if kind == "csv" else JsonlFile(path, follow=True)
    source.begin("")
    assert source.read(2)
    size = path.stat().st_size
    assert (source.progress(), followed.progress()) == ((size - 2, size), None)
    path.unlink()
    assert source.progress() is None
    source.close()
