"""Scripts in files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.simulation.chance.script import Script, dump, load, parse, save
from surepipe.simulation.options import Options
from tests.simulation.kit import COUNTING, crash, lose, told


def test_a_script_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    """simulation X-34: saved and loaded, with decisions of each form."""
    lost = lose("pipe/0 data e1 1+1 a1")
    script = Script(
        COUNTING.name,
        Options(messages=3, loss_ppm=5).plain(),
        (lost, crash("sender", "submit 2", 1, 500)),
        seed=9,
    )
    save(script, tmp_path / "script.json")
    assert load(tmp_path / "script.json") == script
    assert parse(dump(Script("x", {}))) == Script("x", {})


def test_a_script_has_a_line_for_each_decision() -> None:
    """So that people can read it and take lines out."""
    result = told(lose("pipe/0 data e1 1+1 a1"), lose("pipe/0 data e1 2+1 a1"))
    lines = dump(result.script).splitlines()
    assert sum("lose" in line for line in lines) == 2


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("no json", "no script"),
        ("[]", "no JSON object"),
        ('{"format": 99}', "reads up to 1"),
        ('{"subject": "x"}', "format None"),
        ('{"orders": 3}', "no script"),
        pytest.param("[" * 100_000, "no script", id="nested too deeply"),
        ('{"format": 1, "subject": "x", "options": 3, "seed": 1, "decisions": []}', "damaged"),
        ('{"format": 1, "subject": "x", "options": {}, "seed": "a", "decisions": []}', "damaged"),
        ('{"format": 1, "subject": "x"}', "damaged"),
        ('{"format": 1, "subject": "x", "options": [], "seed": 1, "decisions": []}', "damaged"),
        ('{"format": 1, "subject": "x", "options": {}, "seed": 1, "decisions": {}}', "damaged"),
        (
            '{"format": 1, "subject": "x", "options": {}, "seed": 1, "decisions": [[1]]}',
            "damaged",
        ),
    ],
)
def test_a_file_that_is_no_script_is_refused_in_one_line(text: str, match: str) -> None:
    """simulation X-31: a newer format too."""
    with pytest.raises(ConfigurationError, match=match) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nowhere.json", "nowhere.json: can't be read: no such file or directory"),
        ("folder", "folder: can't be read: is a directory"),
        ("bytes.json", "bytes.json: this is no script of a simulated run: it is no text"),
        ("rows.json", "rows.json: this is no script of a simulated run: it is no JSON object"),
    ],
)
def test_a_file_that_cannot_be_read_as_a_script_is_named(
    tmp_path: Path, name: str, match: str
) -> None:
    """simulation X-31: whatever the path leads to."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "rows.json").write_text("[1]")
    with pytest.raises(ConfigurationError, match=re.escape(match)):
        load(tmp_path / name)


def test_an_option_with_a_value_that_none_has_is_refused() -> None:
    """simulation X-31: a script that was written by hand."""
    with pytest.raises(ConfigurationError, match="messages is 'many', which no simulated run"):
        Options.of({"messages": "many"})
