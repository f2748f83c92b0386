"""Faults of a world's stores between two calls: crashes, outages, lost writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from surepipe.core.store_requests import StreamInfo, Trimmed
from surepipe.simulation.chance.chooser import Mishap
from surepipe.simulation.events import Event, Happening
from surepipe.simulation.stores.store import SimulatedStore, unread_of
from surepipe.simulation.timeline import Timeline, as_detail
from surepipe.storage.memory import MemoryState

FAULTS: Mapping[str, str] = {
    "crash": "F13",
    "down": "F18",
    "rollback": "F14",
    "empty": "F16",
    "trim": "F29",
    "damage": "F25r",
    "remove": "F29r",
}
_GO_BACK = ("crash", "rollback", "empty")
_TAKE_OUT = ("trim", "remove")


class Mishaps:
    """Plans what befalls the stores, and does it when due. ``wake`` is told when a store may answer again."""

    name = "disk"

    def __init__(
        self,
        world: Timeline,
        pipe: str,
        stores: Mapping[str, SimulatedStore],
        wake: Callable[[], None],
        streams: Mapping[str, None] | None = None,
    ) -> None:
        """``streams``: those that carry messages, in any of the stores; None: that of ``pipe``, and of others that
        are added to ``pipes``, in the store ``stream``."""
        self.streams = streams
        self.world = world
        self.pipes: dict[str, None] = {pipe: None}
        self.stores = stores
        self.wake = wake
        self._damages: dict[tuple[str, str, int], None] = {}

    def take(self, event: Event) -> None:
        """It is due."""
        assert isinstance(event, Happening)
        event.act()

    def plan(self, chaos_us: int) -> None:
        """Ask what will befall them, and arrange for it."""
        for mishap in self.world.chooser.mishaps(list(self.stores), chaos_us):
            happening = Happening(mishap.name, partial(self._befall, mishap))
            self.world.at(mishap.at_us, self, happening)

    def _befall(self, mishap: Mishap) -> None:
        store, lost = self.stores[mishap.store], 0
        gone: dict[str, tuple[int, int]] = {}
        match mishap.verb:
            case "crash":
                lost = store.crash(mishap.amount)
                self._down(store, mishap.for_us)
            case "down":
                self._down(store, mishap.for_us)
            case "rollback":
                lost = store.lose_last(mishap.amount)
            case "empty":
                store.roll_back(MemoryState())
            case "damage":
                self._damage(store, mishap)
            case "remove":
                gone = self._remove(store, mishap.amount)
            case _:
                gone = self._trim(store)
        facts: dict[str, object] = {
            "fault": FAULTS[mishap.verb],
            "verb": mishap.verb,
            "lost": lost,
        }
        if mishap.verb == "empty" and self.streams:
            facts["also"] = FAULTS[
                "rollback"
            ]  # streams may lie beside the positions of their readers
        if gone:
            facts["gone"] = gone
        if self.world.options.gauges and mishap.verb in _GO_BACK:
            facts["ends"] = {stream: store.end_of(stream) for stream in self._streams_of(store)}
        self.world.note(mishap.store, 1, "fault", detail=as_detail(facts))
        self.wake()

    def _trim(self, store: SimulatedStore) -> dict[str, tuple[int, int]]:
        """Retention takes what it may. A reader that nobody has registered has nothing to protect it.

        Gives the indexes that are gone, where some reader had not read them.
        """
        gone: dict[str, tuple[int, int]] = {}
        for stream in self._streams_of(store):
            found = store.info(stream)
            if isinstance(found, StreamInfo) and found.readers:
                left = store.trim_unread(stream)
                if isinstance(left, Trimmed) and left.earliest > unread_of(found):
                    gone[stream] = (found.earliest, left.earliest - 1)
        return gone

    def _remove(self, store: SimulatedStore, amount: int) -> dict[str, tuple[int, int]]:
        """Somebody else takes entries out: at one of four places that are unread, a few or all that follow."""
        gone: dict[str, tuple[int, int]] = {}
        for stream in self._streams_of(store):
            found = store.info(stream)
            if not isinstance(found, StreamInfo):
                continue
            first = max(found.earliest, unread_of(found)) + amount % 4
            many = amount // 4
            last = found.next - 1 if many == 3 else min(found.next - 1, first + many)
            if first <= last:
                store.remove(stream, first, last)
                gone[stream] = (first, last)
        return gone

    def _damage(self, store: SimulatedStore, mishap: Mishap) -> None:
        """An entry that the slowest reader has still to read, or that is still to come; later it is restored."""
        for stream in self._streams_of(store):
            found = store.info(stream)
            readers = found.readers if isinstance(found, StreamInfo) else ()
            index = min((reader.next for reader in readers), default=1) + mishap.amount
            place = store.name, stream, index
            if place in self._damages:
                continue
            store.corrupt(stream, index)
            self._damages[place] = None
            back = Happening(
                f"entry {index} of {stream} is restored", partial(self._restore, *place)
            )
            self.world.at(self.world.now + mishap.for_us, self, back)

    def _restore(self, name: str, stream: str, index: int) -> None:
        place = name, stream, index
        if place not in self._damages:
            return
        del self._damages[place]
        refused = self.stores[name].restore(stream, index)
        facts = {"fault": FAULTS["damage"], "verb": "restore", "refused": refused}
        self.world.note(name, 1, "fault", detail=as_detail(facts))
        self.wake()

    def _streams_of(self, store: SimulatedStore) -> Iterable[str]:
        """Those that carry messages and may be in this store."""
        own = self.pipes if store.name == "stream" else {}
        return own if self.streams is None else self.streams

    def _down(self, store: SimulatedStore, for_us: int) -> None:
        store.is_down = True

        def back() -> None:
            store.is_down = False
            self.wake()

        self.world.at(self.world.now + for_us, self, Happening(f"{store.name} is back", back))

    def cut_power(self, lost: int) -> None:
        """All stores lose what they had not made safe."""
        for store in self.stores.values():
            store.power_cut(lost)

    def heal(self) -> None:
        """Nothing is down any more."""
        for store in self.stores.values():
            store.is_down = False
        for place in list(self._damages):
            self._restore(*place)
        self.wake()
