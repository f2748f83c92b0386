"""What must hold of the parts of a stack between any two events, whatever came before.

A stack asserts it at the end of each step when its ``asserts`` is set: in simulations always, elsewhere by choice.
What fails here is a defect of ours and no fault of anybody else, so it is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from surepipe.pipes.layers import SenderLayer
from surepipe.pipes.reorder import ReorderBuffer
from surepipe.pipes.stream_sender import Sender as StreamSender
from surepipe.pipes.window import WindowSender


def assert_layers(layers: Iterable[object]) -> None:
    """Assert what holds of each layer: of senders with a window or a store, of receivers with a reorder buffer."""
    for layer in layers:
        if isinstance(layer, WindowSender):
            _assert_window(layer)
        elif isinstance(layer, StreamSender):
            _assert_appending(layer)
        elif isinstance(buffer := getattr(layer, "buffer", None), ReorderBuffer):
            _assert_buffer(buffer)


def backlog_of(layer: SenderLayer) -> int:
    """Messages that wait in a layer to be transmitted."""
    if isinstance(layer, WindowSender):
        return len(layer.backlog)
    return layer.gauges().get("backlog", 0)


def assert_balance(counters: Mapping[str, int], *, loaded: int, waiting: int) -> None:
    """Assert that every message that a sender took is waiting, confirmed or given up, and none twice."""
    taken = loaded + counters["accepted"]
    gone = counters["confirmed"] + counters["given_up"]
    assert taken == waiting + gone, (
        f"{taken} messages were taken, but {waiting} wait and {gone} are confirmed or given up"
    )


def assert_deadline(effects: int) -> None:
    """Assert that a step has set its one deadline at most once."""
    assert effects <= 1, f"a step set {effects} deadlines; a machine has one"


def _assert_window(layer: WindowSender) -> None:
    base, following = layer.base, layer.next
    assert base <= following, f"base {base} is above next {following}"
    assert following - base <= layer.span, (
        f"{base}..{following - 1} are more than the window of {layer.span}"
    )
    if layer.done:
        assert base not in layer.done, f"{base} is done, so the window should begin above it"
        assert layer.done.highest() < following, (
            f"{layer.done} is done, but only {following - 1} was sent"
        )
    assert layer.backlog.size_bytes >= 0, f"a backlog of {layer.backlog.size_bytes} bytes"
    runs = layer.flights.runs
    if runs:
        assert base <= runs[0].first <= runs[-1].last < following, (
            f"{runs[0].first}..{runs[-1].last} are on the way, outside of {base}..{following - 1}"
        )
    if layer.in_flight:
        assert runs, f"{layer.in_flight} messages are on the way, and nothing would send them again"


def _assert_appending(layer: StreamSender) -> None:
    first, base, following = layer.first, layer.base, layer.next
    assert first <= base <= following, f"base {base} is not within {first}..{following}"
    assert first <= layer.next_append <= following, (
        f"{layer.next_append} is to be appended next, and {first}..{following - 1} are here"
    )


def _assert_buffer(buffer: ReorderBuffer) -> None:
    held, in_work = buffer.held_count if buffer.held else 0, buffer.in_work
    assert in_work >= 0, f"{in_work} messages are in work"
    assert held + in_work <= buffer.held_max, (
        f"{held} held and {in_work} in work are more than held_max {buffer.held_max}"
    )
    if not buffer.expected:
        return
    if held:
        assert buffer.expected not in buffer.held, (
            f"{buffer.expected} is held, and it is the one to hand up next"
        )
    if buffer.settled_above:
        assert buffer.settled + 1 not in buffer.settled_above, (
            f"{buffer.settled + 1} is settled, so the settled prefix should reach beyond it"
        )
