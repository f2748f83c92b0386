"""The causal log by hand: what is taken in, who is blamed, what a node that comes back may say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest

from surepipe.core.effects import Addressed, Call, NoticeKind, Transmit
from surepipe.core.store_requests import AppendRun, Stored, Unavailable
from surepipe.queues.rmq.catchain import (
    LogMachine,
    LogOptions,
    Voice,
)
from surepipe.queues.rmq.encoding import decode, encode, signed_bytes
from surepipe.queues.rmq.entries import EntryReference, ForkProof, LogEntry, Member
from surepipe.queues.rmq.stored_log import Release, StoredLog
from surepipe.storage import MemoryStore
from tests.queues.rmq.log_network import (
    MS,
    SECOND,
    SESSION,
    Guard,
    KeyedHash,
    Network,
    check_always,
    check_end,
    check_proofs,
    speaking,
)

NAMES = ("n1", "n2", "n3", "n4")
MEMBERS = [Member(name, KeyedHash(name).public) for name in NAMES]


def entry_of(
    author: str, before: LogEntry | None, *cites: LogEntry, say: str = "x", **changed: object
) -> LogEntry:
    """A signed entry of an author behind ``before``."""
    entry = LogEntry(
        SESSION,
        author,
        before.height + 1 if before else 1,
        before.digest if before else SESSION,
        tuple(EntryReference(each.author, each.height, each.digest) for each in cites),
        encode((("say", say),)) if say else encode(()),
    )
    entry = replace(entry, **changed)  # type: ignore[arg-type]
    return entry.with_signature(KeyedHash(author).sign(entry.signed))


def observer(**options: int) -> LogMachine:
    """A member that only listens."""
    machine = LogMachine(
        SESSION,
        "n1",
        MEMBERS,
        quorum=3,
        keys=KeyedHash("n1"),
        rng=Random(1),
        stored=StoredLog("log", "n1", 1),
        guarded=None,
        options=LogOptions(**options),  # type: ignore[arg-type]
    )
    machine.wake(0)
    return machine


def give(machine: LogMachine, *entries: LogEntry, peer: str = "n2", now: int = 0) -> list[LogEntry]:
    """Let entries come; what was delivered because of them."""
    frame = encode(("entries", SESSION, tuple(each.encode() for each in entries)))
    machine.frame(Addressed(peer, frame), now)
    return machine.take_delivered()


A1 = entry_of("n2", None)
A2 = entry_of("n2", A1)
B1 = entry_of("n3", None, A1)

BAD = [
    ("foreign", entry_of("n2", None, session=bytes(32), previous=bytes(32))),
    ("unknown_author", entry_of("n9", None)),
    ("bad_height", entry_of("n2", None, previous=bytes(32))),
    ("bad_height", entry_of("n2", A1, previous=SESSION)),
    ("bad_height", entry_of("n2", None, height=0)),
    ("bad_height", entry_of("n2", None, height=50_001, previous=bytes(32))),
    ("bad_dependencies", entry_of("n3", None, A1, A2)),
    ("bad_dependencies", entry_of("n2", A2, A1)),
    ("bad_dependencies", entry_of("n2", None, entry_of("n9", None))),
    ("empty", entry_of("n2", None, say="")),
    ("bad_signature", A1.with_signature(bytes(64))),
    ("bad_signature", replace(A1, records=encode((("say", "forged"),)))),
    ("malformed", entry_of("n2", None, records=encode("no tuple"))),
    ("malformed", entry_of("n2", None, records=b"junk")),
    ("too_large", entry_of("n2", None, say="x" * 70_000)),
]


@pytest.mark.parametrize(("counter", "entry"), BAD)
def test_an_entry_that_fails_a_check_is_counted_and_changes_nothing(
    counter: str, entry: LogEntry
) -> None:
    """rmq CC-4, RT-19: under the name of the first check that it fails."""
    machine = observer()
    before = machine.export()
    assert give(machine, entry) == []
    assert machine.counters() == {counter: 1}
    assert machine.export() == before
    assert give(machine, A1) == [A1]


def test_any_bytes_give_a_defined_result() -> None:
    """rmq CC-4: a frame cut at each length, each of its bytes changed, and frames of no kind."""
    frame = encode(("entries", SESSION, (A1.encode(), B1.encode())))
    machine = observer()
    for at in range(0, len(frame), 3):
        machine.frame(Addressed("n2", frame[:at]), 0)
        machine.frame(Addressed("n2", frame[:at] + bytes((frame[at] ^ 5,)) + frame[at + 1 :]), 0)
    for other in (b"", "text", None, encode(("entries",)), encode(("heads", SESSION, 1))):
        machine.frame(Addressed("n2", other), 0)
        machine.frame(other, 0)
    assert sum(machine.counters().values()) > 100
    assert {each.digest for each in machine.take_delivered()} <= {A1.digest, B1.digest}
    assert not machine.blamed


def test_an_entry_waits_for_what_it_cites_and_asks_for_it_by_digest() -> None:
    """rmq CC-5, CC-6, RT-18: first who cited it is asked, then the others; it is delivered once."""
    machine = observer()
    assert give(machine, B1, peer="n3") == []
    asked: list[str] = []
    for second in range(0, 9, 2):
        for effect in machine.wake(second * SECOND + 50 * MS):
            match effect:
                case Transmit(Addressed(peer, bytes() as data)) if b"pull" in data[:20]:
                    assert decode(data) == ("pull", SESSION, (A1.digest,))
                    asked.append(peer)
                case _:
                    pass
    assert asked[0] == "n3"
    assert set(asked) == {"n2", "n3", "n4"}
    assert give(machine, A1, A1, B1) == [A1, B1]
    assert machine.counters() == {"duplicate": 2}


def test_who_is_asked_for_an_entry_and_has_not_got_it_costs_little() -> None:
    """rmq CC-6: 1. A liar cites an entry of his other side. 2. He is asked for it first, and says nothing. 3. The
    others are asked before a slot is over, not after two seconds each."""
    machine = observer()
    assert give(machine, B1, peer="n3") == []
    asked: set[str] = set()
    for tick in range(1, 11):
        for effect in machine.wake(tick * 50 * MS):
            match effect:
                case Transmit(Addressed(peer, bytes() as data)) if b"pull" in data[:20]:
                    asked.add(peer)
                case _:
                    pass
    assert asked == {"n2", "n3", "n4"}


UNSOUND = {
    "false_reference": [entry_of("n3", None, A1, cites=(EntryReference("n4", 1, A1.digest),))],
    "stale_dependency": [B1, entry_of("n3", B1, A1)],
}


@pytest.mark.parametrize("why", UNSOUND)
def test_an_unsound_entry_stops_its_author_and_nobody_is_blamed(why: str) -> None:
    """rmq CC-5, CC-12: only its causal past shows it, so every node comes to the same verdict."""
    machine = observer()
    give(machine, A1)
    *sound, bad = UNSOUND[why]
    assert give(machine, *sound, bad) == sound
    assert machine.counters() == {why: 1}
    assert machine.stopped == {"n3"}
    assert not machine.blamed
    assert give(machine, entry_of("n3", bad)) == []
    assert give(machine, A2) == [A2]


def test_two_entries_for_one_height_are_a_proof() -> None:
    """rmq CC-12, CC-13: it convinces a third party; a forged one convinces nobody."""
    other = entry_of("n2", None, say="other")
    proof = ForkProof.between(A1, other)
    key = KeyedHash("n2")
    assert proof == ForkProof.between(other, A1)
    assert proof.holds(SESSION, key.public, key)
    forged = replace(proof, second_signature=bytes(64))
    twice = replace(proof, second=proof.first, second_signature=proof.first_signature)
    for wrong in (forged, twice, replace(proof, height=2)):
        assert not wrong.holds(SESSION, key.public, key)
        machine = observer()
        machine.frame(Addressed("n4", encode(("proofs", SESSION, (wrong.fields,)))), 0)
        assert machine.counters() == {"bad_proof": 1}
        assert not machine.blamed
    machine = observer()
    machine.frame(Addressed("n4", encode(("proofs", SESSION, (proof.fields,)))), 0)
    assert machine.blamed == {"n2": proof}


def test_what_an_unblamed_author_cites_of_a_blamed_one_is_delivered() -> None:
    """rmq CC-14: on either side of the fork; what nobody cites is not taken in."""
    machine = observer()
    other = entry_of("n2", None, say="other")
    behind = entry_of("n2", other)
    assert give(machine, A1, other) == [A1]
    assert set(machine.blamed) == {"n2"}
    assert machine.counters() == {"blamed_author": 1}
    citing = entry_of("n3", None, behind)
    assert give(machine, citing, peer="n3") == []
    assert give(machine, behind, other) == [other, behind, citing]


def test_an_entry_that_cites_whom_its_author_had_proven_a_liar_is_refused() -> None:
    """rmq CC-5: the proof lies in the causal past of its predecessor."""
    other = entry_of("n2", None, say="other")
    proof = ForkProof.between(A1, other)
    first = entry_of("n3", None, records=encode((("fork", *proof.fields),)))
    machine = observer()
    assert give(machine, first) == [first]
    assert set(machine.blamed) == {"n2"}
    assert give(machine, A1) == []
    assert machine.counters() == {"blamed_author": 1}
    assert give(machine, entry_of("n3", first, A1), A1) == [A1]
    assert machine.counters() == {"blamed_author": 1, "cites_blamed": 1}
    citing = entry_of("n4", None, A1)
    assert give(machine, citing) == [citing]


def test_waiting_entries_are_bounded_for_each_author() -> None:
    """rmq CL-10: one who writes without end fills his own share only."""
    machine = observer(waiting_max=5)
    chain = [A1]
    for _ in range(20):
        chain.append(entry_of("n2", chain[-1]))
    assert give(machine, *chain[1:]) == []
    assert machine.gauges()["waiting"] == 5
    assert machine.counters() == {"over_limit": 15}
    assert give(machine, *chain) == chain
    assert machine.gauges()["waiting"] == machine.gauges()["waiting_bytes"] == 0


# Every arrival order.

FORKED = entry_of("n2", None, say="other")
TAIL = entry_of("n2", FORKED)
SMALL = [A1, A2, B1, FORKED, entry_of("n4", None, FORKED), entry_of("n3", B1, A2)]


@pytest.mark.parametrize("entries", [SMALL, [*SMALL[1:], TAIL]])
def test_what_is_delivered_does_not_depend_on_the_order_of_arrival(
    entries: Sequence[LogEntry],
) -> None:
    """rmq CC-7, CL-8: three authors, two heights, one of them a fork: all orders, with what is lost come again."""
    ends = set[tuple[frozenset[bytes], frozenset[str], frozenset[str]]]()
    for order in permutations(entries):
        machine = observer()
        log = [each for entry in order for each in give(machine, entry)]
        for _ in range(3):
            log += give(machine, *entries, A1)
        places = {each.digest: at for at, each in enumerate(log)}
        assert all(places[c] < places[each.digest] for each in log for c in each.references)
        clean = frozenset(each.digest for each in log if each.author not in machine.blamed)
        ends.add((clean, frozenset(machine.blamed), frozenset(machine.stopped)))
    all_clean = frozenset(each.digest for each in entries if each.author != "n2")
    assert ends == {(all_clean, frozenset({"n2"}), frozenset())}


# Nodes on the wire.


def network(n: int = 4, **options: int) -> Network:
    """All of them speak."""
    net = Network(n, 1, options=LogOptions(**options))  # type: ignore[arg-type]
    net.start()
    net.run(SECOND)
    assert speaking(net) == net.names
    return net


def test_what_is_said_comes_to_all_and_then_the_log_falls_silent() -> None:
    """rmq CC-1, CC-2, CL-9: without news no entry is made, and only heads are sent."""
    net = network()
    for at in range(5):
        for node in net.nodes:
            assert node.say(f"{node.name} {at}")
        net.run(60 * MS)
    net.run(3 * SECOND, lambda: check_always(net))
    check_end(net)
    said = {item[1] for each in net.nodes[0].logs[-1] for item in each.items}
    assert said == {f"n{node} {at}" for node in range(1, 5) for at in range(5)}
    before = [len(each.logs[-1]) for each in net.nodes]
    net.is_quiet = True
    net.run(60 * SECOND)
    assert net.is_quiet
    assert [len(each.logs[-1]) for each in net.nodes] == before


def test_an_entry_is_stored_then_signed_then_sent() -> None:
    """rmq CC-3, CL-5: while the store doesn't answer, the same bytes are tried again and nothing else is."""
    net = network()
    machine = net.nodes[0].machine
    assert machine is not None
    net.nodes[0].machine = None  # by hand from here on
    machine.append(("say", "this"), net.now, is_urgent=True)
    appends: list[AppendRun] = []
    now = net.now
    for _ in range(4):
        now += 3 * SECOND
        effects = machine.wake(now)
        (call,) = [each for each in effects if isinstance(each, Call)]
        assert isinstance(call.request, AppendRun)
        assert not any(b"entries" in str(each).encode() for each in effects)
        appends.append(call.request)
        machine.append(("say", "that"), now, is_urgent=True)
        machine.answer(call.ticket, Unavailable(), now)
    assert len(set(map(str, appends))) == 1
    (call,) = [each for each in machine.wake(now + 9 * SECOND) if isinstance(each, Call)]
    effects = machine.answer(call.ticket, Stored(1, 1, 1), now)
    (call,) = [each for each in effects if isinstance(each, Call)]
    assert isinstance(call.request, Release)
    assert machine.take_delivered() == []
    released = Guard().release(call.request, KeyedHash("n1"))
    sent = machine.answer(call.ticket, released, now)
    assert len([each for each in sent if isinstance(each, Transmit)]) == 3
    assert [each.author for each in machine.take_delivered()] == ["n1"]


def test_a_crash_between_store_and_wire_makes_no_fork() -> None:
    """rmq CC-3, RT-16: after each microsecond of making an entry; the last stored one is signed and sent again."""
    for crash_after in range(0, 12 * MS, 400):
        net = Network(4, 7)
        net.start()
        net.run(SECOND)
        node = net.nodes[0]
        node.say("once", is_urgent=True)
        net.run(crash_after)
        node.crash()
        net.run(50 * MS)
        node.start()
        net.run(SECOND)
        node.say("again", is_urgent=True)
        net.run(4 * SECOND)
        check_always(net)
        check_end(net)
        assert len(speaking(net)) == 4
        said = [item[1] for each in net.nodes[1].logs[-1] for item in each.items]
        assert said in (["once", "again"], ["again"])


def test_a_fork_told_to_two_halves_is_proven_everywhere() -> None:
    """rmq RT-17, CC-13: two sync rounds later all blame its author; all else goes on."""
    net = Network(4, 3, twins=["n4"])
    net.sides = {("n4", "n1"): 1, ("n4", "n2"): 0, ("n4", "n3"): 0}
    net.start()
    net.run(SECOND)
    for node in net.nodes[3:]:
        node.say(node.address, is_urgent=True)
    net.run(4 * SECOND)
    for node in net.correct:
        node.say(f"{node.name} goes on")
    net.run(4 * SECOND)
    check_always(net)
    check_end(net)
    check_proofs(net)
    for node in net.correct:
        assert node.machine is not None
        assert set(node.machine.blamed) == {"n4"}
        assert [each.kind for each in node.notices] == [NoticeKind.FORKED]
        said = {item[1] for each in node.logs[-1] for item in each.items if item[0] == "say"}
        assert said >= {f"n{at} goes on" for at in (1, 2, 3)}
    before = [each.machine and set(each.machine.blamed) for each in net.correct]
    for node in net.correct:
        node.crash()
        node.start()
    assert [each.machine and set(each.machine.blamed) for each in net.correct] == before


def test_a_node_that_was_away_gets_all_that_it_lacks() -> None:
    """rmq CC-9 to CC-11, RQ-64: though every push to it was lost, in three rounds and one for each hundred."""
    net = network(sync_cap=20)
    net.groups = [{"n1", "n2", "n3"}, {"n4"}]
    for at in range(60):
        for node in net.nodes[:3]:
            node.say(f"{node.name} {at}")
        net.run(40 * MS)
    net.run(SECOND)
    lacks = len(net.nodes[0].logs[-1]) - len(net.nodes[3].logs[-1])
    assert lacks > 100
    net.groups = []
    rounds = 3 + lacks // 20 + 1
    net.run(rounds * 3 * 600 * MS)
    check_always(net)
    check_end(net)


def test_a_node_that_lost_its_store_writes_again_when_it_has_seen_its_own_entries() -> None:
    """rmq CC-16, RQ-67, RT-40: the guard knows how far it was; it goes on behind that, without a fork."""
    net = network()
    node = net.nodes[3]
    for at in range(5):
        node.say(f"before {at}", is_urgent=True)
        net.run(100 * MS)
    net.run(SECOND)
    height = max(node.sent_own)
    node.crash()
    node.store = MemoryStore()
    node.start()
    assert node.machine is not None
    node.say("after", is_urgent=True)
    assert node.machine.height == 0
    net.run(5 * SECOND)
    check_always(net)
    check_end(net)
    assert node.machine.voice is Voice.SPEAKING
    assert max(node.sent_own) > height
    assert "after" in {item[1] for each in net.nodes[0].logs[-1] for item in each.items}


def test_a_node_whose_store_and_guard_both_went_back_finds_its_height() -> None:
    """rmq RQ-68, RT-40: it asks a quorum what it had said before it says more."""
    net = network()
    node = net.nodes[3]
    kept, guarded = node.store.snapshot(), dict(node.guard.last) if node.guard else {}
    for at in range(5):
        node.say(f"before {at}", is_urgent=True)
        net.run(100 * MS)
    net.run(SECOND)
    node.crash()
    node.store.roll_back(kept)
    assert node.guard is not None
    node.guard.last = guarded
    node.start()
    node.say("after", is_urgent=True)
    net.run(5 * SECOND)
    check_always(net)
    check_end(net)
    assert speaking(net) == net.names
    assert len(node.sent_own) >= 6


def test_an_answer_that_somebody_else_wrote_makes_no_node_speak() -> None:
    """rmq RQ-68: one liar can't pretend to be a quorum towards a node that may have forgotten something."""
    net = Network(4, 1)
    net.groups = [{name} for name in net.names]
    net.start()
    node = net.nodes[0]
    for peer in net.names[1:]:
        text = signed_bytes("answer", (SESSION, peer, "n1", 1, 0))
        for key, height in ((("n4"), 0), (peer, 5)):
            forged = KeyedHash(key).sign(text)
            frame = encode(("heads", SESSION, 0, 1, height, (), (), forged))
            node.step(lambda machine, f=frame, p=peer: machine.frame(Addressed(p, f), net.now))  # type: ignore[misc]
    assert node.machine is not None
    assert node.machine.voice is Voice.ASKING
    assert node.machine.counters() == {"bad_answer": 5}
    net.groups = []
    net.run(2 * SECOND)
    assert speaking(net) == net.names


def test_a_node_without_guard_only_listens() -> None:
    """rmq RQ-66, CC-16: it can't know what it signed; it delivers, and serves others."""
    net = network()
    node = net.nodes[3]
    node.crash()
    node.guard = None
    node.start()
    assert not node.say("anything")
    net.nodes[0].say("go on", is_urgent=True)
    net.run(3 * SECOND)
    check_always(net)
    check_end(net)
    assert not node.sent_own


def test_a_signed_entry_that_nobody_has_any_more_keeps_its_author_silent() -> None:
    """rmq RQ-66: the store went back behind it and no push of it arrived; this is told once."""
    net = network()
    node = net.nodes[3]
    net.groups = [{"n1", "n2", "n3"}, {"n4"}]
    kept = node.store.snapshot()
    node.say("nobody hears this", is_urgent=True)
    net.run(SECOND)
    node.crash()
    node.store.roll_back(kept)
    node.start()
    net.groups = []
    net.run(5 * SECOND)
    assert node.machine is not None
    assert node.machine.voice is Voice.ASKING
    assert len(node.told(NoticeKind.STATE_LOST)) == 1
    check_always(net)


def test_an_own_entry_that_it_does_not_know_makes_a_node_silent() -> None:
    """rmq CC-16, RT-19: somebody else writes under its name, or it forgot; it delivers on."""
    net = network()
    node = net.nodes[3]
    foreign = entry_of("n4", None, say="not mine")
    frame = encode(("entries", SESSION, (foreign.encode(),)))
    node.step(lambda machine: machine.frame(Addressed("n1", frame), net.now))
    assert node.machine is not None
    assert node.machine.voice is Voice.SILENT
    assert len(node.told(NoticeKind.STATE_LOST)) == 1
    assert not node.say("anything")
    net.nodes[0].say("go on", is_urgent=True)
    net.run(2 * SECOND)
    assert ("say", "go on") in [item for each in node.logs[-1] for item in each.items]
    assert node.sent_own in ({}, {1: {foreign.digest}}), "it serves what it has, and writes nothing"


def test_a_later_process_of_a_node_ends_the_one_before() -> None:
    """rmq CC-15, RQ-62: by the store, at its next write; nothing of the former one is sent after that."""
    net = network()
    node = net.nodes[3]
    former = node.machine
    assert former is not None
    node.start()
    former.append(("say", "late"), net.now, is_urgent=True)
    (call,) = [each for each in former.wake(net.now) if isinstance(each, Call)]
    assert isinstance(call.request, AppendRun)
    effects = former.answer(call.ticket, node.store.ask(call.request), net.now)
    assert former.voice is Voice.ENDED
    assert not any(isinstance(each, Transmit | Call) for each in effects)
    net.run(3 * SECOND)
    check_always(net)


def test_a_log_that_is_full_takes_no_bulk_and_can_still_be_ended() -> None:
    """rmq CC-4: the last heights are for what ends a session."""
    net = network(height_max=12, height_reserve=5)
    node = net.nodes[0]
    for at in range(30):
        node.say(f"{at}", is_urgent=True, kind="external")
        net.run(30 * MS)
    assert node.machine is not None
    full = node.machine.height
    assert 7 <= full < 12
    assert not node.machine.append(("external", "no room"), net.now)
    assert node.say("the end", is_urgent=True)
    net.run(2 * SECOND)
    check_end(net)
    bulky = entry_of("n2", None, height=9, previous=bytes(32), records=encode((("external", "x"),)))
    machine = observer(height_max=12, height_reserve=5)
    assert give(machine, bulky) == []
    assert machine.counters() == {"bad_height": 1}


@pytest.mark.parametrize("twins", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_logs_agree_after_any_troubles(seed: int, twins: int) -> None:
    """rmq CL-1 to CL-8: loss, repeats, partitions, silent stores, crashes, lost and rolled-back stores, twins."""
    run_log(seed, twins)


def run_log(seed: int, twins: int) -> Network:
    """One run; everything is checked on the way and at its end."""
    draw = Random(seed)
    n = 7 if twins == 2 else 4
    net = Network(n, seed, twins=[f"n{n - at}" for at in range(twins)])
    net.loss, net.repeats = draw.choice((0, 0.1, 0.4)), draw.choice((0, 0.2))
    net.silence = draw.choice((0, 0.1))
    net.start()
    net.run(1500 * MS)
    for at in range(15):
        for node in net.nodes:
            if draw.random() < 0.5:
                node.say(f"{node.name} {at}", is_urgent=draw.random() < 0.3)
        net.run(draw.randint(1, 300) * MS)
        check_always(net)
        _trouble(net, draw)
    net.groups, net.loss, net.silence = [], 0, 0
    net.run(SECOND)
    for node in net.correct:
        if node.machine is None:
            node.start()
    for _ in range(5):
        net.redraw()
        net.run(3 * SECOND)
    check_always(net)
    check_end(net)
    check_proofs(net)
    return net


def _trouble(net: Network, draw: Random) -> None:
    node, cut = draw.choice(net.correct), draw.randint(1, len(net.names) - 1)
    match draw.choice(("crash", "crash", "lose", "back", "part", "heal", "heal", "redraw", "", "")):
        case "crash":
            node.crash()
            net.after(draw.randint(0, 800) * MS, node.start_if_down)
        case "lose":
            node.crash()
            node.store = MemoryStore()
            node.start()
        case "back":
            kept = node.store.snapshot()
            net.run(200 * MS)
            node.crash()
            node.store.roll_back(kept)
            node.start()
        case "part":
            net.groups = [set(net.names[:cut]), set(net.names[cut:])]
        case "heal":
            net.groups = []
        case "redraw":
            net.redraw()
        case _:
            pass
