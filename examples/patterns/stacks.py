"""Stacks: the same two pipes, in the wrong order and in the right one."""

from surepipe import CompositionError, FaultyRoute, LocalRoute, Pipe


def lossy() -> FaultyRoute:
    """A route that loses frames and lets later ones pass."""
    return FaultyRoute(LocalRoute(), loss=0.1, reorder=0.1)


try:
    Pipe("orders", ["multi-unconfirmed", "continuous-index"], route=lossy())
except CompositionError as refused:
    print(refused)

with Pipe("orders", ["continuous-index", "multi-unconfirmed"], route=lossy()) as pipe:
    print(pipe)
    print("promises", pipe.guarantee.headline.delivery, "and", pipe.guarantee.headline.order)
