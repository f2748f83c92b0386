"""Directed links between nodes: what they do to frames is asked of the chooser, frame by frame.

A frame gets its name when it is transmitted, and stays in flight when its sender ends. Frames of a link in order
``fifo`` keep their order, except those that are said to be overtaken; copies come later and hold nobody up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from heapq import heapify
from operator import attrgetter
from typing import Protocol, TypeAlias, cast

from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import (
    Confirm,
    Data,
    Introduction,
    Nack,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    Unknown,
)
from surepipe.simulation.chance.chooser import PLAIN_FATE, Fate, LinkCut
from surepipe.simulation.events import EventTarget, FrameFlight, Happening
from surepipe.simulation.options import Tie
from surepipe.simulation.timeline import Timeline, as_detail

# What a frame is, in the terms of a trace: its kind, layer, epoch, the run of messages that it carries.
#
# Links, incarnations, credit and stamps are left out: they are random, or hints, and a frame keeps its name
# without.


Description: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
"""kind, layer, epoch, first, count, content of a control frame."""


class _Details(dict[str, str]):
    def __missing__(self, kind: str) -> str:
        return self.setdefault(kind, f'{{"frame":"{kind}"}}')


DETAILS: Mapping[str, str] = _Details()
"""The detail of a row about a frame, by the kind of the frame, whatever it is."""


def _run(frame: Data | Numbered) -> Description:
    return ("data", frame.layer, frame.epoch, frame.first, len(frame.payloads), ())


def _confirm(frame: Confirm) -> Description:
    """The run that a confirm speaks of is the longest one that it declares settled."""
    if frame.cum or not frame.done:
        return ("confirm", frame.layer, frame.epoch, 1, frame.cum, (frame.done, frame.held))
    first, last = max(frame.done, key=lambda run: run[1] - run[0])
    about = (frame.done, frame.held)
    return ("confirm", frame.layer, frame.epoch, first, last - first + 1, about)


def _nack(frame: Nack) -> Description:
    return ("nack", frame.layer, frame.epoch, 0, 0, (frame.missing,))


def _probe(frame: Probe) -> Description:
    return ("probe", frame.layer, frame.epoch, 0, 0, (frame.base, frame.next))


def _open(frame: Open) -> Description:
    return ("open", frame.layer, frame.epoch, 0, 0, (frame.life, frame.base))


def _opened(frame: Opened) -> Description:
    return ("opened", frame.layer, frame.epoch, 0, 0, (frame.expected, frame.cum, frame.closed))


def _unknown(frame: Unknown) -> Description:
    return ("unknown", frame.layer, 0, 0, 0, ())


def _refused(frame: Refused) -> Description:
    return ("refused", frame.layer, frame.epoch, 0, 0, (frame.reason.name.lower(), frame.known))


def _introduction(frame: Introduction) -> Description:
    return ("introduction", frame.layer, 0, 0, 0, (frame.stack, frame.payloads))


_KNOWN: dict[type, Callable[..., Description]] = {
    Data: _run,
    Numbered: _run,
    Confirm: _confirm,
    Nack: _nack,
    Probe: _probe,
    Open: _open,
    Opened: _opened,
    Unknown: _unknown,
    Refused: _refused,
    Introduction: _introduction,
}


def describe(frame: object) -> Description:
    """What any frame is; also one of a machine that brings records of its own."""
    known = _KNOWN.get(type(frame))
    if known is None:
        known = _KNOWN[type(frame)] = _reader_of(frame)
    return known(frame)


def carried(frame: object) -> list[tuple[int, int, int]]:
    """The messages of the pipe (epoch, first, count) that a frame of an inner layer brings, run by run."""
    if not isinstance(frame, Data | Numbered):
        return []
    if frame.layer == 0:
        return [(frame.epoch, frame.first, len(frame.payloads))]
    return [run for payload in frame.payloads for run in carried(codec.decode(payload))]


class Carrier(Protocol):
    """A record that carries messages."""

    payloads: Sequence[bytes]


_PLACES = ("first", "seq", "number")
_LEFT_OUT = frozenset({"layer", "epoch", "pipe", "link", "incarnation", "stamp", "echo", *_PLACES})


def _reader_of(frame: object) -> Callable[..., Description]:
    """How to read frames of a type that no product machine sends.

    A record with ``payloads`` carries messages from its ``first``, ``seq`` or ``number`` on; another one with such
    an attribute speaks of that message; whatever else a record holds is its content.
    """
    if not is_dataclass(frame):
        return _opaque
    names = [field.name for field in fields(frame)]
    place = next((name for name in _PLACES if name in names), None)
    rest = tuple(name for name in names if name not in _LEFT_OUT)
    where = _where(("layer", "epoch", place or ""), names)
    kind, one = type(frame).__name__.lower(), 1 if place else 0

    def read_data(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return ("data", layer, epoch, first, len(cast("Carrier", frame).payloads), ())

    def read_bare(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return (kind, layer, epoch, first, one, ())

    def read(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return (kind, layer, epoch, first, one, tuple(getattr(frame, name) for name in rest))

    if "payloads" in rest:
        return read_data
    return read if rest else read_bare


def _opaque(frame: object) -> Description:
    content = frame if isinstance(frame, bytes) else repr(frame).encode()
    return ("bytes", 0, 0, 0, 0, (blake2b(content, digest_size=8).hexdigest(),))


def _where(wanted: Sequence[str], names: Sequence[str]) -> Callable[[object], tuple[int, int, int]]:
    """How to read three numbers of a record; those that it has not are 0."""
    known = [name in names for name in wanted]
    if all(known):
        return attrgetter(*wanted)
    if known == [False, True, True]:
        get = attrgetter(*wanted[1:])
        return lambda frame: (0, *get(frame))
    return lambda frame: cast("tuple[int, int, int]", tuple(getattr(frame, n, 0) for n in wanted))


class Link:
    """One direction between two nodes, ``sender>receiver``."""

    def __init__(self, world: Timeline, source: str, target: EventTarget, pipe: str) -> None:
        self.name = f"{source}>{target.name}"
        self.source = source
        self.target = target
        self.pipe = pipe
        self.world = world
        self.fate_of = world.chooser.fate
        self.delay_us = world.options.delay_us
        self.keeps_order = world.options.order == "fifo"
        self.apart_us = 1 if world.chooser.has_ties or world.options.tie != Tie.FIFO else 0
        """What keeps its order must not arrive at the same moment where chance orders what is simultaneous."""
        self.capacity = world.options.capacity
        self.cut_by: list[LinkCut] = []
        self.latest = 0
        self.in_flight: list[int] = []
        self.seen: dict[object, int] = {}

    def transmit(self, frame: object, incarnation: int, cause: str) -> None:
        """The frame leaves; the chooser says what becomes of it."""
        world = self.world
        kind, layer, epoch, first, count, about = described = describe(frame)
        attempt = self.seen.get(described, 0) + 1
        self.seen[described] = attempt
        place, detail = str(layer) if layer else "0", DETAILS[kind]
        told = (self.pipe, epoch, first, count, place, self.name, attempt, 0, "", detail, "")
        step = len(world.cells)
        spoken = (world.run_name, self.source, incarnation, step, cause, world.now, "transmit")
        world.cells.append(spoken + told)
        flight = FrameFlight(
            self.name, frame, kind, about, f"{self.source}/{incarnation}/{step}", told
        )
        if self.cut_by:
            cut = self.cut_by[-1]
            self.lost(flight, fault=cut.fault, reason=cut.name)
            return
        fate = self.fate_of(flight)
        if fate is PLAIN_FATE and not self.capacity:
            at = world.now + self.delay_us
            if self.keeps_order:
                if at < (least := self.latest + self.apart_us):
                    at = least
                self.latest = at
            world.at(at, self.target, flight)
        else:
            self._send(flight, fate)

    def _send(self, flight: FrameFlight, fate: Fate) -> None:
        if fate.is_lost:
            self.lost(flight, fault="F1" if flight.kind == "data" else "F2")
            return
        if self.capacity and self._is_full():
            self.lost(flight, fault="F1", reason="the link is full")
            return
        if fate.corrupt_bit >= 0 and not self._corrupt(flight, fate.corrupt_bit):
            self.lost(flight, fault="F25")
            return
        at = self.world.now + self.delay_us + fate.extra_us
        if self.keeps_order:
            at = self.latest = max(at, self.latest + self.apart_us)
        at += fate.overtaken_us
        self.in_flight.append(at)
        self.world.at(at, self.target, flight)
        for copy, later in enumerate(fate.copies_us, 1):
            self.world.at(at + later, self.target, self.copied(flight, copy, fate.copied_as))

    def _is_full(self) -> bool:
        self.in_flight = [at for at in self.in_flight if at > self.world.now]
        return len(self.in_flight) >= self.capacity

    def _corrupt(self, flight: FrameFlight, bit: int) -> bool:
        """Flip one bit of its bytes; False for a frame that has no bytes."""
        frame = flight.frame
        if not isinstance(frame, bytes):
            try:
                frame = codec.encode(frame)  # type: ignore[arg-type]
            except (AttributeError, KeyError, TypeError):
                return False
        place = bit % (len(frame) * 8)
        broken = bytearray(frame)
        broken[place // 8] ^= 1 << place % 8
        flight.frame = bytes(broken)
        self._row("fault", flight, {"fault": "F25", "text": f"bit {place} is flipped"})
        return True

    def copied(self, flight: FrameFlight, copy: int, fault: str) -> FrameFlight:
        """One more of the same transmission."""
        told = (*flight.told[:7], copy, *flight.told[8:])
        twin = FrameFlight(flight.link, flight.frame, flight.kind, flight.about, flight.cause, told)
        facts: dict[str, object] = {"fault": fault, "frame": flight.kind}
        if flight.told[4] != "0":  # of an inner layer
            facts["carries"] = carried(flight.frame)
        self._row("copied", twin, facts)
        return twin

    def lost(self, flight: FrameFlight, **why: str) -> None:
        """The frame never arrives."""
        self._row("lost", flight, {"frame": flight.kind, **why})

    def _row(self, kind: str, flight: FrameFlight, facts: Mapping[str, object]) -> None:
        incarnation = int(flight.cause.rsplit("/", 2)[1])
        self.world.tell_frame(self.source, incarnation, kind, flight, facts)


class Network:
    """All links of a world, and the partitions that cut them."""

    def __init__(self, world: Timeline) -> None:
        self.world = world
        self.links: dict[str, Link] = {}
        self.name = "network"

    def link(self, source: str, target: EventTarget, pipe: str) -> Link:
        """A new link."""
        link = Link(self.world, source, target, pipe)
        self.links[link.name] = link
        return link

    def take(self, event: object) -> None:
        """A partition begins or ends."""
        assert isinstance(event, Happening)
        event.act()

    def heal(self) -> None:
        """All cuts end, but for those that are for good."""
        for link in self.links.values():
            link.cut_by = [cut for cut in link.cut_by if not cut.for_us]

    def drop_in_flight(self, target: EventTarget, fault: str) -> None:
        """Whatever is on its way to the target is lost."""
        heap = self.world.heap
        for entry in sorted(heap, key=lambda entry: entry[:3]):
            if entry[3] is target and isinstance(entry[4], FrameFlight):
                self.links[entry[4].link].lost(entry[4], fault=fault)
        heap[:] = [e for e in heap if not (e[3] is target and isinstance(e[4], FrameFlight))]
        heapify(heap)

    def plan(self, chaos_us: int) -> None:
        """Ask for the partitions of this run and arrange for them."""
        for cut in self.world.chooser.cuts(list(self.links), chaos_us):
            self._arrange(cut)

    def _arrange(self, cut: LinkCut) -> None:
        links = [self.links[name] for name in cut.links if name in self.links]

        def begin() -> None:
            for link in links:
                link.cut_by.append(cut)
            self._tell(cut, "cut")

        def end() -> None:
            for link in links:
                if cut in link.cut_by:
                    link.cut_by.remove(cut)
            self._tell(cut, "heal")

        self.world.at(cut.at_us, self, Happening(f"{cut.name} begins", begin))
        if cut.for_us:
            self.world.at(cut.at_us + cut.for_us, self, Happening(f"{cut.name} ends", end))

    def _tell(self, cut: LinkCut, what: str) -> None:
        is_cut = what != "heal"
        text = cut.name if is_cut else f"{cut.name} is over"
        facts = {
            "fault": cut.fault if is_cut else "",
            "verb": what,
            "links": list(cut.links),
            "text": text,
        }
        self.world.note("network", 0, "fault", detail=as_detail(facts))
