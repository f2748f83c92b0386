"""Each kind declares, in one row for each way to set it up, what it needs and what it makes of its carrier."""

from __future__ import annotations

import pytest

from surepipe.core.claims import ROUTE, Atom, Fault, Faults, Guarantee
from surepipe.pipes.catalogue import DECLARATIONS, KINDS, LayerText, declaration_of, parse_layers
from surepipe.pipes.declaration import Reverse

N: Faults = frozenset({Fault.ROUTE_LOSS, Fault.ROUTE_DELAY, Fault.ROUTE_DUPLICATION})
M: Faults = frozenset({Fault.ROUTE_OUTAGE})
G: Faults = frozenset({Fault.ROUTE_DELAY, Fault.ROUTE_OUTAGE})
CARRIER = Guarantee(no_loss=N, no_duplicate=ROUTE, monotonic=M, gap_free=G)
BOTH = N & G


def made_of(carrier: Guarantee, layer: LayerText) -> Guarantee:
    """What a layer makes of a carrier."""
    (options,) = parse_layers(layer)
    return declaration_of(options).apply(carrier)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("resend", Guarantee(ROUTE, None, None, ROUTE)),
        ({"resend": {"run_max": 1}}, Guarantee(ROUTE, None, M, ROUTE)),
        ("multi-unconfirmed", Guarantee(ROUTE, None, None, BOTH)),
        ("sequential-confirm", Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)),
        ({"sequential-confirm": {"retry": "carrier"}}, Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)),
        ({"sequential-confirm": {"repeats": "forward"}}, Guarantee(ROUTE, None, M, ROUTE)),
        (
            {"sequential-confirm": {"repeats": "forward", "run_max": 2, "retry": "carrier"}},
            Guarantee(ROUTE, None, None, ROUTE),
        ),
        ("strict-monotonic", Guarantee(BOTH, ROUTE, ROUTE, G)),
        ({"strict-monotonic": {"relaxed": True}}, Guarantee(BOTH, None, ROUTE, G)),
        ("continuous-index", Guarantee(N, ROUTE, ROUTE, ROUTE)),
        ({"continuous-index": {"repeats": "last"}}, Guarantee(N, None, ROUTE, ROUTE)),
        ({"continuous-index": {"repeats": "all"}}, Guarantee(N, None, None, ROUTE)),
        ("dedupe", Guarantee(N, ROUTE, G, G)),
        ("reliable", Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)),
        ({"stream": {"start": 1}}, Guarantee(ROUTE, ROUTE, ROUTE, ROUTE)),
    ],
    ids=str,
)
def test_a_layer_maps_the_route_part_of_its_carrier(layer: LayerText, expected: Guarantee) -> None:
    """Every cell of the table of G-3, over a carrier whose four atoms are all different."""
    assert made_of(CARRIER, layer) == expected


@pytest.mark.parametrize(
    ("monotonic", "gap_free", "expected"),
    [(None, G, G), (M, None, M), (M, G, G), (G, M, G), (M, N, M), (None, None, None)],
)
def test_dedupe_keeps_the_larger_of_monotonic_and_gap_free(
    monotonic: Faults | None, gap_free: Faults | None, expected: Faults | None
) -> None:
    """Monotonic when neither contains the other (G-3)."""
    carrier = Guarantee(N, None, monotonic, gap_free)
    assert made_of(carrier, "dedupe").monotonic == expected


def test_what_a_carrier_does_not_provide_is_not_made_up() -> None:
    """A layer that passes an atom on passes its absence on (G-3)."""
    assert made_of(Guarantee(no_loss=N), "multi-unconfirmed") == Guarantee(ROUTE)
    assert made_of(Guarantee(no_loss=N), "strict-monotonic") == Guarantee(None, ROUTE, ROUTE)


@pytest.mark.parametrize(
    ("layer", "reverse", "at_least_once"),
    [
        ("resend", Reverse.FAIR, False),
        ("multi-unconfirmed", Reverse.FAIR, False),
        ("stream", Reverse.FAIR, False),
        ("sequential-confirm", Reverse.FAIR, False),
        ({"sequential-confirm": {"retry": "carrier"}}, Reverse.AT_LEAST_ONCE, True),
        ("strict-monotonic", Reverse.NONE, False),
        ("continuous-index", Reverse.NONE, True),
        ("dedupe", Reverse.NONE, False),
        ("reliable", Reverse.FAIR, False),
    ],
    ids=str,
)
def test_a_layer_states_what_it_requires(
    layer: LayerText, reverse: Reverse, at_least_once: bool
) -> None:
    """What each kind requires: pipes 8.1 to 8.8, G-4."""
    (options,) = parse_layers(layer)
    declared = declaration_of(options)
    assert (declared.reverse, declared.at_least_once_carrier) == (reverse, at_least_once)


def test_every_kind_is_declared_and_every_row_can_be_printed() -> None:
    """patterns.md is printed from these rows (G-10)."""
    assert {row.kind for row in DECLARATIONS} == set(KINDS)
    rows = [row.row() for row in DECLARATIONS]
    assert len(set(rows)) == len(rows)
    assert rows[0] == (
        "resend",
        "run_max: 1",
        "a reverse path, fair",
        "ROUTE",
        "–",
        "m",
        "ROUTE",
    )
    assert (
        "dedupe",
        "",
        "nothing",
        "n within dedupe_window",
        "ROUTE",
        "the larger of m and g",
        "g",
    ) in rows


def test_every_provision_says_why() -> None:
    """A clause that follows the name of a layer: no capital, no full stop."""
    for row in DECLARATIONS:
        assert list(row.provides) == list(Atom)
        for provision in row.provides.values():
            assert provision.because[0].islower()
            assert not provision.because.endswith(".")
