"""One run of machines on the nodes of a world, and what is between them: chaos, healing, drain, quiescence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from surepipe.audit.findings import Violation
from surepipe.audit.properties import judge
from surepipe.audit.settings import Settings, claimed, facts_of
from surepipe.audit.trace import Row
from surepipe.core.claims import Fault
from surepipe.core.store_requests import KEEP_ALL, Level, Retention
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.chance.chooser import Chooser
from surepipe.simulation.chance.script import Script
from surepipe.simulation.chance.scripted import ScriptChooser
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.events import Submit
from surepipe.simulation.nodes import MachineNode
from surepipe.simulation.options import Drain, Options
from surepipe.simulation.processes import EndOfNode
from surepipe.simulation.promises import chain_claim, claim_in, promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.contents import WorldKeeper
from surepipe.simulation.subjects import Layout, PipeBetween, Subject
from surepipe.simulation.timeline import as_detail, collector_at_rest
from surepipe.simulation.world import (
    Deployment,
    JudgeRows,
    World,
    judge_rows,
    options_of,
    result_of,
)
from surepipe.simulation.world import play as play_world

_LIVES = frozenset(
    {"sender-crash", "receiver-crash", "sender-zombie", "receiver-zombie", "power-loss"}
)
"""With these a reference model of one life of each end has nothing to say."""

_HEADER_BYTES = 64
"""at most, of what a layer puts before a message"""

Simulated: TypeAlias = Subject | Layout
"""What can be run: a pair of machines, or a layout of several pairs."""


def layout_of(subject: Subject) -> Layout:
    """A pair is a layout of ``sender`` and ``receiver``; those beside it have numbers: ``sender 2``."""
    pipes = [PipeBetween(subject, "sender", "receiver")]
    for number, hop in enumerate(getattr(subject, "beside", ()), 2):
        receiver = "receiver" if hop.only_sends else f"receiver {number}"
        pipes.append(PipeBetween(hop, f"sender {number}", receiver))
    return Layout(subject.name, pipes)


class Machines:
    """Machines to be run, for each run alike: a pair, or a layout of pairs."""

    def __init__(self, subject: Simulated) -> None:
        self.is_pair = not isinstance(subject, Layout)
        self.layout = subject if isinstance(subject, Layout) else layout_of(subject)
        self.name = subject.name
        self.promise = promise_of(subject)

    def facts(self) -> Mapping[str, object]:
        """What depends on the run is told by its deployment."""
        return {}

    def deployment(self) -> MachineDeployment:
        """For one run."""
        return MachineDeployment(self)


class MachineDeployment(Deployment):
    """The pipes of a layout in one run, and the applications that offer messages to them."""

    can_be_loaded = True
    keeper: WorldKeeper
    sender: EndOfNode
    receiver: EndOfNode

    def __init__(self, of: Machines) -> None:
        self.of = of
        self.layout = of.layout
        self.is_pair = of.is_pair
        self.promise = of.promise
        self.subject = of.layout.pipes[0].subject
        self._offers: list[tuple[int, Submit]] = []

    def begin(self, world: World) -> None:
        """Stores, ends and links of each pipe, and what is offered to the first."""
        self.world, self.options, self.chooser = world, world.options, world.chooser
        first, *others = self.layout.pipes
        self.keeper = self._keeper_of(first.subject)
        self.sender, self.receiver = self._join(first, self.keeper)
        for pipe in others:
            self._join(pipe, self._keeper_of(pipe.subject, self.keeper))
        self._relay()
        world.stores, world.mishaps = self.keeper.stores, self.keeper.mishaps
        world.beside = frozenset(list(world.nodes)[2:]) if self.is_pair else frozenset()
        world.plan_troubles()
        self._offers = self._plan_offers()
        payloads = [payload for _, offer in self._offers for payload in offer.payloads]
        self.receiver.poison = self.chooser.poisoned(payloads)
        world.chaos_us = max(world.chaos_us, *(at for at, _ in self._offers), 0)

    def _keeper_of(self, subject: Subject, beside: WorldKeeper | None = None) -> WorldKeeper:
        return WorldKeeper(
            self.world,
            getattr(subject, "pipe", "pipe"),
            journaled=subject.journaled,
            durable=subject.durable or subject.boundary is Boundary.COMMITTED,
            streamed=bool(getattr(subject, "streamed", False)),
            level=getattr(subject, "level", Level.POWER),
            depth=len(getattr(subject, "parsed", ())),
            stream=getattr(subject, "stream", ""),
            told_pipe=getattr(subject, "told_pipe", ""),
            reader=getattr(subject, "reader", ""),
            retention=getattr(subject, "retention", KEEP_ALL),
            one_store=bool(getattr(subject, "one_store", False)),
            beside=beside,
            letters=bool(getattr(getattr(subject, "options", None), "dead_letters", False)),
        )

    @property
    def ends(self) -> list[EndOfNode]:
        """Those of all nodes."""
        nodes = self.world.nodes.values()
        return [end for node in nodes if isinstance(node, MachineNode) for end in node.ends]

    def _join(self, pipe: PipeBetween, keeper: WorldKeeper) -> tuple[EndOfNode, EndOfNode]:
        """The two ends of a pipe, with a link each way. Of one that only sends the first receiver is the other."""
        sender = self._end(pipe, pipe.sender, keeper.told_pipe, keeper)
        if getattr(pipe.subject, "only_sends", False):
            receiver = self.receiver
        else:
            receiver = self._end(pipe, pipe.receiver, keeper.pipe, keeper)
        sender.out = self.world.network.link(sender.name, receiver, keeper.told_pipe)
        back = self.world.network.link(receiver.name, sender, keeper.told_pipe)
        sender.heard = back
        if not hasattr(receiver, "out"):
            receiver.out, receiver.heard = back, sender.out
        return sender, receiver

    def _end(self, pipe: PipeBetween, name: str, told: str, keeper: WorldKeeper) -> EndOfNode:
        """An end bears the name of its node, and that of its pipe too where the node has several."""
        places = [place for one in self.layout.pipes for place in (one.sender, one.receiver)]
        is_alone = self.is_pair or places.count(name) == 1
        node, is_sender = self.world.machine_node(name), name == pipe.sender
        end = name if is_alone else f"{name}/{pipe.pipe}"
        return node.add_end(pipe.subject, told, keeper, is_sender=is_sender, name=end)

    def _relay(self) -> None:
        by_pipe = {(end.keeper.pipe, end.is_sender): end for end in self.ends}
        for fed_by, pipe in self.layout.relays.items():
            receiver, sender = by_pipe[fed_by, False], by_pipe[pipe, True]
            receiver.onward, sender.is_fed = sender, True
            sender.keeps_accepted |= self.layout.hand_over is Boundary.HANDED

    # What the judge is told.

    def longest_us(self, options: Options) -> int:
        """A trip there and back, or an answer of a handler."""
        there_and_back = 2 * (options.delay_us + options.jitter_us) + options.handler_us
        return max(self._trip_us(options), there_and_back)

    def _trip_us(self, options: Options) -> int:
        is_slow = Drain(options.drain).is_slow
        slow = options.timer_us if is_slow else options.delay_us
        return 2 * slow + 2 * (options.timer_us if is_slow else options.store_us)

    def facts(self, world: World) -> Mapping[str, object]:
        """Bounds and times of these machines."""
        promise, options, faults = self.promise, self.options, world.faults
        if self._may_pass and Fault.STORE_TRIM not in faults:
            faults = tuple(one.value for one in Fault if one.value in (*faults, Fault.STORE_TRIM))
        return {
            "faults": list(faults),
            "bounds": dict(promise.bounds),
            "bound_us": promise.bound_us(
                self._offered(),
                self._trip_us(options),
                options.handler_us,
                frozen=bool(options.frozen),
                each_bytes=options.payload_bytes + _HEADER_BYTES,
            ),
            **self._kept_facts(),
            **({"claims": self._claims_beside()} if len(self.layout.pipes) > 1 else {}),
            **({"patience": promise.patience} if promise.patience else {}),
            **({"alarm_us": promise.alarm_us} if promise.alarm_us else {}),
            "patterns": {} if _LIVES & frozenset(faults) else dict(promise.patterns),
        }

    def _kept_facts(self) -> dict[str, object]:
        """Which senders have a journal, and where positions are stored before messages come out."""
        subjects = [(one.pipe, one.subject) for one in self.layout.pipes]
        if self.is_pair:
            is_before = self.subject.boundary is Boundary.BEFORE
            facts: dict[str, object] = {"boundary": "before"} if is_before else {}
            return {"journaled": self.subject.journaled, **facts}
        return {
            "journaled": False,
            "journals": [pipe for pipe, subject in subjects if subject.journaled],
            "before": [pipe for pipe, one in subjects if one.boundary is Boundary.BEFORE],
        }

    @property
    def _may_pass(self) -> bool:
        """Whether a stream has a bound at which entries go before they are read: no fault needs to befall it."""
        retention: Retention = getattr(self.subject, "retention", KEEP_ALL)
        return retention.force and retention.max_bytes is not None

    def _claims_beside(self) -> dict[str, object]:
        """Those of the other pipes; of a layout that is no pair, of all of them."""
        keepers = self.keeper.keepers[1:] if self.is_pair else self.keeper.keepers
        pipes = self.layout.pipes[1:] if self.is_pair else self.layout.pipes
        return {
            keeper.told_pipe: {
                atom: list(names) for atom, names in claim_in(self.layout, pipe).items()
            }
            for keeper, pipe in zip(keepers, pipes, strict=True)
        }

    # The workload.

    def _plan_offers(self) -> list[tuple[int, Submit]]:
        """What the application offers, and when."""
        offers: list[tuple[int, Submit]] = []
        at = made = 0
        while made < self.options.messages:
            number = len(offers) + 1
            after, count = self.chooser.submit(f"submit {number}", self.options.messages - made)
            at += after
            payloads = [self._payload(made + place) for place in range(1, count + 1)]
            made += count
            offers.append((at, Submit(number, payloads)))
        return offers + [(at // 2, offer) for offer in self._extremes()]

    def offer(self, world: World) -> None:
        """What applications offer; those of other pipes as much, in payloads of their own."""
        for at, offer in self._offers:
            world.at(at, self.sender, offer)
        for end in self.ends:
            at = made = number = 0
            is_offered = end.is_sender and not end.is_fed and end is not self.sender
            while is_offered and made < self.options.messages:
                number += 1
                left = self.options.messages - made
                after, count = self.chooser.submit(f"submit {number} of {end.name}", left)
                at += after
                payloads = [
                    f"{end.name} {made + place}".encode().ljust(self.options.payload_bytes, b".")
                    for place in range(1, count + 1)
                ]
                made += count
                world.at(at, end, Submit(number, payloads))

    def _offered(self) -> int:
        """How many messages there may be at once, those of the load included."""
        options = self.options
        several = options.messages * len(self.layout.pipes)
        return several + options.flood + options.too_large + options.load_messages

    def _extremes(self) -> Iterator[Submit]:
        """Offers that are too many, or too large."""
        options = self.options
        if options.flood:
            yield Submit(2000, [f"flood{n}".encode() for n in range(1, options.flood + 1)])
        for number in range(1, options.too_large + 1):
            large = f"large{number}".encode().ljust(self.promise.message_max_bytes + 1, b".")
            yield Submit(2000 + number, [large, f"small{number}".encode()])

    def _payload(self, number: int) -> bytes:
        return f"m{number}".encode().ljust(self.options.payload_bytes, b".")

    def drain(self, world: World) -> None:
        """Stores are as slow as links, and new messages may come."""
        drain = Drain(self.options.drain)
        if drain.is_slow:
            for keeper in self.keeper.keepers:
                keeper.latency_us = self.options.timer_us
        gap = self.options.timer_us // 2
        for number in range(1, self.options.load_messages + 1 if drain.has_load else 1):
            payload = f"load{number}".encode().ljust(self.options.payload_bytes, b".")
            world.at(world.now + number * gap, self.sender, Submit(3000 + number, [payload]))

    def end(self, world: World) -> Sequence[Violation]:
        """Judge each chain of pipes, from where messages were offered to where they came out.

        How often a message was sent again is for the single pipes to answer; here it is what came out, and in
        which order.
        """
        found: list[Violation] = []
        for chain in self.layout.chains:
            if len(chain) > 1:
                rows = rows_through(world.rows, chain, chain_claim(self.layout, chain))
                settings = Settings.read(rows[0])
                found += judge(rows, {"P1", *claimed(settings.claim, settings.faults)})
        return found


def play(subject: Simulated, options: Options, chooser: Chooser) -> World:
    """Run a pair, or a layout, to its end and return the world as it then is, with its rows."""
    return play_world(Machines(subject), options, chooser)


def run_hop(
    subject: Simulated,
    options: Options | None = None,
    chooser: Chooser | None = None,
    *,
    judge: JudgeRows | None = judge_rows,
) -> RunResult:
    """One run, judged. Without a chooser chance decides, under the seed of the options.

    The result's script repeats it. ``judge`` sees the rows when the run has ended; None: nobody judges.
    """
    options = options or Options()
    with collector_at_rest():
        return result_of(play(subject, options, chooser or SeededChooser(options)), judge)


def rows_through(
    rows: Sequence[Row], chain: Sequence[PipeBetween], claim: Mapping[str, Sequence[str]]
) -> list[Row]:
    """The rows of a chain as those of one pipe: accepted where its messages were offered, delivered and settled
    where they came out, under the identity that they had at first. Messages are known by their payloads."""
    first, last = chain[0].pipe, chain[-1].pipe
    name = f"{first} to {last}"
    known: dict[str, tuple[int, int]] = {}
    facts: dict[str, object] = {
        "claim": claim,
        "faults": facts_of(rows[0])["faults"],
        "journals": [name],
    }
    found = [replace(rows[0], detail=as_detail(facts))]
    for row in rows[1:]:
        if row.kind in ("phase", "end"):
            found.append(row)
        is_accepted = row.kind == "accepted" and row.pipe == first
        if not is_accepted and not (row.kind in ("delivered", "settled") and row.pipe == last):
            continue
        each = [row.digests[at : at + 16] for at in range(0, len(row.digests), 16)]
        for seq, digest in enumerate(each, row.seq):
            if is_accepted:
                if digest in known:
                    continue
                known[digest] = (row.epoch, seq)
            epoch, number = known.get(digest, (row.epoch, seq))
            found.append(
                replace(row, pipe=name, epoch=epoch, seq=number, count=1, digests=digest, detail="")
            )
    return found


def replay(
    subject: Simulated, script: Script, *, judge: JudgeRows | None = judge_rows
) -> RunResult:
    """Repeat the run that a script tells of; a decision that finds nothing to act on makes the result stale."""
    return run_hop(subject, options_of(script), ScriptChooser(script), judge=judge)
