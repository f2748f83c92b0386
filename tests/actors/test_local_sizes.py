"""Longer runs where frames are objects: in the outermost layer, and where nobody has said otherwise."""

from __future__ import annotations

import pytest

from surepipe import Pipe
from surepipe.actors.ends.assembly import IN_STACK_BYTES, SIZES, with_long_runs
from surepipe.actors.routes import LocalRoute
from surepipe.pipes.catalogue import KINDS, LayerText, parse_layers
from surepipe.pipes.options import RetryOptions
from tests.actors.kit import PATIENCE_S


@pytest.mark.parametrize("kind", ["reliable", "multi-unconfirmed", "resend"])
def test_a_single_layer_gets_longer_runs_and_keeps_its_bounds_in_bytes(kind: str) -> None:
    """The numbers of messages grow, those of bytes don't (pipes P-9)."""
    given = parse_layers(kind)
    [layer] = with_long_runs(given)
    assert isinstance(layer, RetryOptions)
    assert (layer.run_max, layer.window, layer.backlog) == (4096, 8192, 16_384)
    plain = given[0]
    assert isinstance(plain, RetryOptions)
    assert layer.window_bytes == plain.window_bytes
    assert layer.backlog_bytes == plain.backlog_bytes
    assert layer.held_max_bytes == plain.held_max_bytes
    assert layer.frame_max_bytes <= layer.window_bytes


@pytest.mark.parametrize(
    "layers",
    [
        {"reliable": {"window": 64}},
        {"reliable": {"backlog": 100}},
        {"strict-monotonic": {"receive_window": 16}},
        "sequential-confirm",
        "stream",
        ["sequential-confirm", "resend"],
        ["continuous-index", {"multi-unconfirmed": {"window": 64}}],
        ["continuous-index", {"multi-unconfirmed": {"window_bytes": 65_536}}],
        [{"strict-monotonic": {"message_max_bytes": 2 << 20}}, "resend"],
    ],
)
def test_what_somebody_has_set_stays(layers: LayerText | list[LayerText]) -> None:
    """A size that is given, in a stack also of an inner layer or in bytes; what sends singly; a stream."""
    given = parse_layers(layers)
    assert with_long_runs(given) == given


@pytest.mark.parametrize(
    "layers",
    [
        ["continuous-index", "multi-unconfirmed"],
        ["dedupe", {"multi-unconfirmed": {"rto_min_s": 0.2}}],
        ["strict-monotonic", "resend"],
        ["reliable", "dedupe", "resend"],
    ],
)
def test_in_a_stack_the_outermost_layer_gets_longer_runs(layers: list[LayerText]) -> None:
    """Its frames are messages of the next layer, which may be of 1 MiB; the inner layers stay (pipes P-9)."""
    first, *inner = given = parse_layers(layers)
    long, *same = with_long_runs(given)
    assert same == inner
    assert long.run_max == 4096
    assert first.frame_max_bytes < long.frame_max_bytes == IN_STACK_BYTES
    assert long.frame_max_bytes + 8 * long.run_max < inner[0].message_max_bytes
    assert long.message_max_bytes == first.message_max_bytes


def test_every_size_is_one_of_some_layer() -> None:
    """A name that no layer has would change nothing, in silence."""
    known = {name for model in KINDS.values() for name in model.model_fields}
    assert set(SIZES) <= known


def test_a_pipe_still_prints_as_it_was_written() -> None:
    """The sizes are not part of the composition (pipes K-9)."""
    with Pipe("p", "reliable", route=LocalRoute()) as pipe:
        assert str(pipe) == "p: reliable / local"


@pytest.mark.parametrize(
    "layers",
    ["reliable", ["continuous-index", "multi-unconfirmed"], ["strict-monotonic", "resend"]],
)
def test_messages_of_every_length_pass_in_order_in_long_runs(
    layers: LayerText | list[LayerText],
) -> None:
    """Short and long ones in one ``send_many``, those above one credit, and single ones in between."""
    sizes = [1, 5000, 100, 0, 70_000, 3, 3] * 60
    messages = [bytes(size) for size in sizes]
    came: list[object] = []
    with Pipe("p", layers) as pipe:
        pipe.receive(came.append)
        pipe.send_many(messages)
        pipe.send(b"single")
        pipe.send_many(messages)
        pipe.flush(PATIENCE_S)
    assert came == [*messages, b"single", *messages]
