"""Readers of one stream, judged by Spark as by this process (spark SP-18)."""

from __future__ import annotations

from pathlib import Path

from surepipe.audit.bulk import DuckEngine, Question, judge, place_of
from surepipe.spark.audit import SparkEngine
from tests.audit.test_readers import Posts


def test_each_reader_of_a_stream_is_a_channel_of_its_own(
    engine: SparkEngine, tmp_path: Path
) -> None:
    """One that reads all, and one that begins at the latest; in a folder of any name."""
    folder = tmp_path / "my traces [1] {a} %20 *?#"
    folder.mkdir()
    posts = Posts(folder)
    posts.send(*range(10))
    posts.read("stats", start="latest")
    posts.send(*range(10, 40))
    posts.read("mail")
    posts.read("stats", start="latest")
    place = place_of(str(posts.folder))
    question = Question(place, place)
    found = judge(engine, question)
    assert found.channels == judge(DuckEngine(), question).channels
    assert [(one.channel, one.sent) for one in found.channels] == [
        ("posts/mail@posts", 40),
        ("posts/stats@posts", 30),
    ]
    assert found.is_held
