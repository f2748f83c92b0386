"""A checkpoint folder that is somebody else's, or damaged: one clear error, nothing changed (spark SP-2, sp4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.spark.running.layout import SparkLayout, lay_out
from surepipe.spark.running.run import NOTE, prepare
from tests.spark.running.kit import Folder
from tests.spark.running.test_runs import SHOP


def layout(folder: Path, text: str = SHOP) -> SparkLayout:
    """The layout of a pipeline."""
    return lay_out(Folder(folder, text).plan)


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_a_new_folder_is_marked_and_known_again(tmp_path: Path) -> None:
    """A repeat changes nothing."""
    prepare(tmp_path / "points", layout(tmp_path))
    before = files(tmp_path / "points")
    prepare(tmp_path / "points", layout(tmp_path))
    assert files(tmp_path / "points") == before
    assert NOTE in next(iter(before))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHOP.replace("name: shop", "name: other"), "is the checkpoint of pipeline shop, and this one is other"),
        (SHOP.replace("priced:", "costed:").replace("from: priced", "from: costed"), "when it read other streams"),
    ],
)  # fmt: skip
def test_the_checkpoint_of_another_pipeline_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    """By its name, or by the streams that its offsets are of."""
    prepare(tmp_path / "points", layout(tmp_path))
    before = files(tmp_path)
    with pytest.raises(ConfigurationError, match=said):
        prepare(tmp_path / "points", layout(tmp_path, text))
    assert files(tmp_path) == before


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    """Photographs are no checkpoint."""
    (tmp_path / "photo").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="is no checkpoint of surepipe, and not empty"):
        prepare(tmp_path, layout(tmp_path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (NOTE, b"\xff\x00"),
        ("offsets/3", b"\xff\x00"),
        ("offsets/3", b'v1\n{"batchWatermarkMs":0}\n{"in/0":{"ne'),
        ("commits/2", b""),
        ("metadata", b'{"id":'),
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    """The file, and that moving the folder away repeats nothing."""
    prepare(tmp_path, layout(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ConfigurationError, match=f"can't be read: .*{name}.*nothing is written twice"
    ):
        prepare(tmp_path, layout(tmp_path))


def test_what_spark_wrote_is_no_damage(tmp_path: Path) -> None:
    """A source of which nothing was read has a line that is no JSON."""
    prepare(tmp_path, layout(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"1"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n-\n{"in/0":{"next":1}}')
    prepare(tmp_path, layout(tmp_path))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """spark SP-2: as the checkpoint, and above it."""
    (tmp_path / "file").write_bytes(b"x")
    for place in (tmp_path / "file", tmp_path / "file" / "points"):
        with pytest.raises(ConfigurationError, match=r"the checkpoint folder .* can't be"):
            prepare(place, layout(tmp_path))
    assert (tmp_path / "file").read_bytes() == b"x"
