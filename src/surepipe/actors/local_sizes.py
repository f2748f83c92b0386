"""Larger runs for a pipe within one process: frames there are objects, and cost nothing per byte.

Every step of a machine and every change from one thread to another is paid per run, so longer runs are faster. The
bounds in bytes stay those of the options; only their number of messages grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.pipes.options import LayerOptions, StreamOptions

DELIVER_MAX = 4096
"""Messages in one delivery at the most, where runs are this long."""

SIZES = {
    "run_max": 4096,
    "frame_max_bytes": 1024 * 1024,
    "window": 8192,
    "receive_window": 8192,
    "backlog": 16_384,
}


def with_long_runs(layers: Sequence[LayerOptions]) -> tuple[LayerOptions, ...]:
    """The same layers with the sizes above, where nobody has given any of them.

    Only for a single layer: in a stack the frames of one are messages of the next, which are bounded in bytes.
    """
    return tuple(map(_with_long_runs, layers)) if len(layers) == 1 else tuple(layers)


def _with_long_runs(layer: LayerOptions) -> LayerOptions:
    options = type(layer).model_fields
    sends_singly = options["run_max"].default == 1
    if isinstance(layer, StreamOptions) or sends_singly or layer.model_fields_set & SIZES.keys():
        return layer
    return layer.model_copy(update={name: size for name, size in SIZES.items() if name in options})
