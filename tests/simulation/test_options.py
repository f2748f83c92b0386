"""The options of a run: a record that says everything."""

from __future__ import annotations

import pytest

from surepipe.errors import ConfigurationError
from surepipe.simulation.faults import Mode, draw_options
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from tests.simulation.kit import RELIABLE


def test_the_plain_form_of_options_gives_the_options_back() -> None:
    """simulation X-9: through plain values, for drawn options too."""
    for seed in range(20):
        options = draw_options(seed, promise_of(RELIABLE), mode=Mode.BREAK)
        assert Options.of(options.plain()) == options
    assert Options.of({}) == Options()


def test_options_print_what_may_happen_and_nothing_else() -> None:
    """simulation X-2: they read as a threat model."""
    assert str(Options()) == "no faults"
    text = str(Options(loss_ppm=100_000, sender_crashes=2))
    assert text == "loss_ppm: 100000\nsender_crashes: 2"


@pytest.mark.parametrize(
    "given",
    [{"loss_ppm": -1}, {"copy_ppm": 1_000_001}, {"messages": -1}],
    ids=lambda given: next(iter(given)),
)
def test_options_that_mean_nothing_are_refused(given: dict[str, int]) -> None:
    """The error names the option."""
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        Options(**given)  # type: ignore[arg-type]


def test_an_option_that_does_not_exist_is_refused_by_name() -> None:
    """When a script of another version is read."""
    with pytest.raises(ConfigurationError, match="'lossy' is no option"):
        Options.of({"lossy": 1})
