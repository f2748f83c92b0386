"""Scripts in files."""

from __future__ import annotations

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
        ('{"format": 1, "subject": "x"}', "damaged"),
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
