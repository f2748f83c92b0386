"""A checkpoint folder that is somebody else's, or damaged: one clear error, nothing changed (spark SP-2, sp4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.spark.running.checkpoint import NOTE, prepare
from surepipe.spark.running.layout import Layout, lay_out
from tests.spark.running.kit import Folder
from tests.spark.running.test_runs import SHOP


def layout(folder: Path, text: str = SHOP) -> Layout:
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


@pytest.mark.parametrize("name", [NOTE, "offsets/3", "commits/2"])
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str) -> None:
    """The file, and that moving the folder away repeats nothing."""
    prepare(tmp_path, layout(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xff\x00")
    with pytest.raises(
        ConfigurationError, match=f"can't be read: .*{name}.*nothing is written twice"
    ):
        prepare(tmp_path, layout(tmp_path))
