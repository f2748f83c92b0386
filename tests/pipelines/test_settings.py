from __future__ import annotations

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines import Setting


@pytest.mark.parametrize(
    ("written", "environment", "value"),
    [
        ("data/a.jsonl", {}, "data/a.jsonl"),
        ("${A}", {"A": "x"}, "x"),
        ("redis://:${PW}@${HOST:-localhost}/0", {"PW": "s"}, "redis://:s@localhost/0"),
        ("${A:-}b", {}, "b"),
        ("${A:-c}", {"A": "a"}, "a"),
        ("$$HOME costs $$5", {"HOME": "x"}, "$HOME costs $5"),
        ("${A}", {"A": "${B}", "B": "no"}, "${B}"),
    ],
)
def test_a_setting_is_revealed_with_the_values_of_its_variables(
    written: str, environment: dict[str, str], value: str
) -> None:
    """Defaults, dollars, and values that themselves look like variables and are not."""
    assert Setting(written).reveal(environment) == value


def test_an_empty_variable_is_empty_and_not_its_default() -> None:
    """A variable that is set counts, whatever it is set to."""
    assert Setting("${A:-c}").reveal({"A": ""}) == ""


def test_revealing_names_every_variable_that_is_not_set() -> None:
    """All of them in one error, without those that have a default."""
    setting = Setting("${USER_NAME}:${PASSWORD}@${HOST:-h}")
    assert setting.missing({}) == ("USER_NAME", "PASSWORD")
    with pytest.raises(ConfigurationError, match="USER_NAME and PASSWORD, which is not set"):
        setting.reveal({})


@pytest.mark.parametrize("written", ["", "$HOME", "${", "${}", "${A", "a$", "${A-b}", "${1A}"])
def test_a_dollar_that_begins_nothing_is_refused(written: str) -> None:
    """So that a slip is not taken for a text."""
    with pytest.raises(ConfigurationError):
        Setting(written)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("redis://u:hunter2@h:1/0", "redis://u:***@h:1/0"),
        ("redis://:hunter2@h", "redis://:***@h"),
        ("redis://:${PW}@h", "redis://:${PW}@h"),
        ("redis://:${PW:-hunter2}@h", "redis://:***@h"),
        ("https://h/?token=hunter2&a=b", "https://h/?token=***&a=b"),
    ],
)
def test_a_setting_shows_its_variables_and_no_password(written: str, shown: str) -> None:
    """In str and in repr."""
    setting = Setting(written)
    assert str(setting) == shown
    assert repr(setting) == f"Setting({shown!r})"
    assert f"{setting}" == shown
