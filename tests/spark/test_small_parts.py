from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

import surepipe
from surepipe.core.store_requests import Unavailable
from surepipe.errors import ConfigurationError, MisuseError, StoreReset, StoreUnavailable
from surepipe.pipelines import loads
from surepipe.spark.running.layout import stream_of
from surepipe.spark.session import SparkOptions, open_session
from surepipe.spark.shipping import archives_of, failure_of
from surepipe.spark.source_options import WantedEntries, wanted_of
from surepipe.spark.stores import StorePlace, asked

INDEX, STREAM, PARTITION = ("index",), ("stream",), ("partition",)


def test_conditions_on_stream_partition_and_index_are_taken_over_and_others_left() -> None:
    """All at once; the narrowest bound wins; spark SP-8."""
    taken: list[Filter] = [
        IsNotNull(INDEX),
        GreaterThan(INDEX, 9),
        GreaterThanOrEqual(INDEX, 3),
        LessThan(INDEX, 50),
        LessThanOrEqual(INDEX, 80),
        In(STREAM, ("a", "b")),
        EqualTo(STREAM, "b"),
        EqualTo(PARTITION, 2),
        In(PARTITION, (1, 2)),
    ]
    left: list[Filter] = [EqualTo(("producer",), "p"), Not(EqualTo(INDEX, 20)), IsNotNull(("key",))]
    wanted, rest = wanted_of([*left, *taken])
    assert (wanted.first, wanted.last) == (10, 49)
    assert [wanted.has(*where) for where in (("b", 2), ("a", 2), ("b", 1))] == [True, False, False]
    assert rest == left
    assert wanted_of([EqualTo(INDEX, 7)])[0] == WantedEntries(7, 7)


def test_a_place_travels_and_is_opened_once(tmp_path: Path) -> None:
    """Through pickle and through options; equal places have one store in a process."""
    place = StorePlace(str(tmp_path / "a.db"), level="process")
    assert pickle.loads(pickle.dumps(place)).store() is place.store()
    assert StorePlace.of_options(place.options()) == place
    place.store().close()
    assert not place.store().closed
    redis = StorePlace("rediss://me:secret@host:1/0", "p", "stream", "power", 2, 1.5)
    assert StorePlace.of_options(redis.options()) == redis


def test_a_place_never_shows_its_password() -> None:
    """In its text, its name and its repr."""
    place = StorePlace("redis://me:secret@host:1/0", pipeline="p")
    assert "secret" not in f"{place} {place!r} {place.name}"
    assert str(place) == "redis://host:1/0 (p)"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"where": ""}, "place is empty"),
        ({"where": "redis://h"}, "needs the pipeline's name"),
        ({"where": "a.db", "level": "disk"}, "level is 'disk': write one of none, interval"),
        ({"where": "a.db", "spread": "all"}, "spread is 'all': write pipeline or stream"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(fields: dict[str, str], message: str) -> None:
    """Each with what to write."""
    with pytest.raises(ConfigurationError, match=message):
        StorePlace(**fields)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_an_unavailable_store_is_asked_again_and_given_up_after_a_while(tmp_path: Path) -> None:
    """Two failures and an answer; then failures only, which end in an error."""
    place = StorePlace(str(tmp_path / "a.db"))
    answers: list[int | Unavailable] = [Unavailable("down"), Unavailable("down"), 5]
    assert asked(lambda: answers.pop(0), "asking", place) == 5
    with pytest.raises(StoreUnavailable, match=r"asking in .*: down; start the store again"):
        asked(lambda: Unavailable("down"), "asking", place)


def test_an_error_of_an_executor_comes_back_as_what_it_was() -> None:
    """Spark carries a text with the trace; the last error in it counts, and an unimportable module; sp11."""
    text = "Trace\nsurepipe.errors.Fenced: a\nTrace\n  x\nsurepipe.errors.StoreReset: gone: 1\n\nat org"
    found = failure_of(RuntimeError(text))
    assert isinstance(found, StoreReset)
    assert str(found) == "gone: 1"
    missing = failure_of(RuntimeError("ModuleNotFoundError: No module named 'shop.prices'"))
    assert isinstance(missing, ConfigurationError)
    assert "can't import 'shop.prices': ship it with the query (ship: [shop]" in str(missing)
    assert failure_of(RuntimeError("something else")) is None


def test_what_is_shipped_is_the_package_and_what_was_named(tmp_path: Path) -> None:
    """Our code with its scripts, a module by its path, a package by its name, a zip as it is; spark SP-12."""
    (tmp_path / "prices.py").write_text("RATE = 2\n")
    ready = tmp_path / "ready.zip"
    with zipfile.ZipFile(ready, "w") as archive:
        archive.writestr("other.py", "")
    found = archives_of([tmp_path / "prices.py", "hypothesis", ready])
    assert found[0] == ready
    with zipfile.ZipFile(found[1]) as archive:
        names = archive.namelist()
    assert {"surepipe/__init__.py", "surepipe/storage/redis/lua/read.lua", "prices.py"} <= {*names}
    assert "hypothesis/__init__.py" in names
    assert not [name for name in names if "__pycache__" in name]
    with pytest.raises(ConfigurationError, match="nowhere can't be shipped"):
        archives_of(["nowhere"])


def test_an_archive_is_named_by_what_is_in_it(tmp_path: Path) -> None:
    """spark SP-12: Spark refuses a second file of a known name, so another archive has another one, and a repeat
    the same, which is then not sent again."""
    (tmp_path / "prices.py").write_text("A = 1\n")
    first, again = archives_of([tmp_path / "prices.py"]), archives_of([tmp_path / "prices.py"])
    assert first[0].name == again[0].name
    assert first[0].name != archives_of([])[0].name


def test_the_shipped_archive_runs_without_an_installed_surepipe(tmp_path: Path) -> None:
    """Python sees the zip and third-party packages only, and reads a stream; spark SP-12."""
    archive = archives_of([])[0]
    program = (
        "import surepipe, sys; from surepipe.spark.stores import StorePlace;"
        f"from surepipe.storage.redis.scripts import script; script('read');"
        f"store = StorePlace({str(tmp_path / 'a.db')!r}).store();"
        "from surepipe.core.store_requests import KEEP_ALL;"
        "store.create('a', 1, KEEP_ALL); print(surepipe.__file__)"
    )
    third_party = Path(pytest.__file__).parents[1]
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": f"{archive}:{third_party}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith(str(archive))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SparkOptions(memory="lots"), "memory is 'lots': write it as 2g or 1500m"),
        (SparkOptions(memory="100m"), "does not start with less than 512m"),
        (SparkOptions(master="spark://127.0.0.1:1"), "no master of Spark answers at spark://127"),
        (SparkOptions(master="spark://nonsense"), "no master of Spark answers at spark://nonsense"),
    ],
)
def test_a_session_that_can_not_start_says_so_before_a_jvm_is_started(
    options: SparkOptions, message: str
) -> None:
    """Memory that is no size, too little of it, and a master that nobody runs."""
    with pytest.raises((ConfigurationError, MisuseError), match=message):
        open_session(options)


def test_without_the_extra_the_error_says_what_to_install() -> None:
    """A Python without site-packages."""
    program = (
        "from surepipe.spark.session import open_session\n"
        "try:\n    open_session()\nexcept Exception as error:\n    print(error)\n"
    )
    source = str(Path(surepipe.__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "needs pyspark, pyarrow, pandas: pip install 'surepipe[spark]'" in told.stdout


def test_a_pipe_goes_through_the_stream_that_its_layer_names() -> None:
    """As its ends on actors have it."""
    plan = loads(
        "version: 1\nname: shop\n"
        "stores: {main: {kind: sqlite, path: shop.db}}\n"
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes:\n"
        "  intake:\n"
        "    from: lines\n"
        "    route: {kind: sqlite, store: main}\n"
        "    layers: [{stream: {stream: events, start: earliest}}]\n"
        "sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}\n"
    )
    assert stream_of(plan, plan.pipe("intake")).name == "events"
