"""Layers as people write them: what is read, what is refused, and in which words."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from pydantic import ValidationError

from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.kinds.continuous_index import ContinuousIndex
from surepipe.pipes.kinds.multi_unconfirmed import MultiUnconfirmed
from surepipe.pipes.kinds.reliable import Reliable
from surepipe.pipes.kinds.sequential_confirm import SequentialConfirm
from surepipe.pipes.options import LayerOptions


def test_layers_are_read_from_names_mappings_and_models() -> None:
    """Outermost first, defaults filled in."""
    layers = parse_layers(["continuous-index", {"multi-unconfirmed": {"window": 512}}])
    assert layers == (ContinuousIndex(), MultiUnconfirmed(window=512))
    assert parse_layers("reliable") == (Reliable(),)
    assert parse_layers(Reliable(window=3)) == (Reliable(window=3),)
    assert parse_layers({"resend": None})[0].kind == "resend"


def test_the_receive_window_follows_the_window() -> None:
    """receive_window is as window unless it is given."""
    assert Reliable(window=7).held_max == 7
    assert Reliable(window=7, receive_window=3).held_max == 3
    assert Reliable(window_bytes=70).held_max_bytes == 70


def test_sequential_confirm_has_runs_of_one() -> None:
    """run_max is 1 there and 512 elsewhere."""
    assert SequentialConfirm().run_max == 1
    assert Reliable().run_max == 512


@pytest.mark.parametrize(
    ("unit", "bound"),
    [("run_max", "receive_window"), ("frame_max_bytes", "receive_window_bytes")],
)
def test_a_unit_that_only_the_carrier_repeats_fits_the_receivers_window(
    unit: str, bound: str
) -> None:
    """pipes K-2: one that fills the window is fine, one more is refused; a layer that sends again may have it."""
    layers = {
        retry: {"sequential-confirm": {"retry": retry, unit: 101, bound: 100}}
        for retry in ("own", "carrier")
    }
    layers["carrier"]["sequential-confirm"][bound] = 101
    for layer in layers.values():
        assert parse_layers(layer)
    layers["carrier"]["sequential-confirm"][bound] = 100
    with pytest.raises(ConfigurationError, match=f"{bound} of 100, .* lower {unit}"):
        parse_layers(layers["carrier"])


def test_a_layer_prints_as_it_was_written() -> None:
    """pipes K-9: only the options that were given."""
    assert str(MultiUnconfirmed(window=512)) == "multi-unconfirmed(window=512)"
    assert str(Reliable()) == "reliable"


WRONG: list[tuple[object, str]] = [
    ([], "layers is empty: a pipe needs one at least, such as 'reliable'"),
    (["relable"], "layer 0 is 'relable', which is no pipe: did you mean 'reliable'?"),
    (
        ["reliable", "zzz"],
        (
            "layer 1 is 'zzz', which is no pipe: known are continuous-index, dedupe, "
            "multi-unconfirmed, reliable, resend, sequential-confirm, stream, strict-monotonic"
        ),
    ),
    (
        [{"reliable": {"windw": 5}}],
        "layer 0 (reliable): option 'windw' is unknown: did you mean 'window'?",
    ),
    (
        [{"reliable": {"run_max": 0}}],
        "layer 0 (reliable): option 'run_max' is 0: it must be greater than or equal to 1",
    ),
    (
        [{"reliable": {"window": "many"}}],
        "layer 0 (reliable): option 'window' is 'many': it must be a valid integer",
    ),
    (
        [{"reliable": {"window": True}}],
        "layer 0 (reliable): option 'window' is True: it must be a valid integer",
    ),
    (
        [{"reliable": {"rto_max_s": float("inf")}}],
        "layer 0 (reliable): option 'rto_max_s' is inf: it must be a finite number",
    ),
    (
        [{"reliable": {"rto_min_s": 40.0}}],
        "layer 0 (reliable): rto_min_s (40.0) is above rto_max_s (30.0); raise rto_max_s",
    ),
    (
        [{"sequential-confirm": {"retry": "mine"}}],
        "layer 0 (sequential-confirm): option 'retry' is 'mine': it must be 'own' or 'carrier'",
    ),
    (
        [17],
        (
            "layer 0 is 17: write its name, or one mapping of its name to its options, such as "
            "{'multi-unconfirmed': {'window': 512}}"
        ),
    ),
    (
        [{"reliable": {}, "resend": {}}],
        (
            "layer 0 is {'reliable': {}, 'resend': {}}: write its name, or one mapping of its name "
            "to its options, such as {'multi-unconfirmed': {'window': 512}}"
        ),
    ),
]


@pytest.mark.parametrize(("written", "message"), WRONG)
def test_what_is_wrong_is_refused_with_the_value_and_the_fix(written: Any, message: str) -> None:
    """One clear error each; nothing is half-built because options are values."""
    with pytest.raises(ConfigurationError) as refusal:
        parse_layers(written)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (MultiUnconfirmed, {"window": "x"}, "option 'window' is 'x': it must be a valid integer"),
        (MultiUnconfirmed, {"windo": 8}, "option 'windo' is unknown: did you mean 'window'?"),
        (MultiUnconfirmed, {"rto_min_s": 9.0, "rto_max_s": 3.0}, "rto_min_s (9.0) is above"),
        (Reliable, {"window": 0, "run_max": 0}, "'run_max' is 0: it must be greater than or equal"),
    ],
)
def test_a_value_that_a_program_writes_wrong_is_refused_in_the_same_words(
    kind: type[LayerOptions], options: dict[str, Any], message: str
) -> None:
    """Whoever builds a layer gets the error, and the words, that a mapping of the same gets."""
    with pytest.raises(ConfigurationError, match=re.escape(message)) as built:
        kind(**options)
    with pytest.raises(ConfigurationError) as read:
        parse_layers({kind.kind: options})
    assert str(built.value) == str(read.value).replace("layer 0", "layer")
    assert not isinstance(built.value.__cause__, ValidationError)


def test_a_layer_may_be_copied_and_pickled() -> None:
    """Its refusals are met when it is built, and only then."""
    layer = MultiUnconfirmed(window=5)
    assert copy.copy(layer) == pickle.loads(pickle.dumps(layer)) == layer
