"""Nine runs in which something goes wrong, each with the nearest one in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind
from surepipe.simulation.results import Counterexample, RunResult
from tools.counterexample_rows import Run, confirmed

TO_STORE, FROM_STORE = "sender>store", "store>sender"
READS, READ = "receiver>store", "store>receiver"


def _found(
    title: str,
    run: Run,
    violation: Violation,
    nearest: RunResult,
    *,
    guarantee: str,
    before: int,
    advice: str = "",
    covered: bool = False,
) -> Counterexample:
    return Counterexample(
        title=title,
        violation=violation,
        result=run.result(violation),
        decisions_before=before,
        guarantee=guarantee,
        covered=covered,
        advice=advice,
        replay=f"surepipe simulate orders.yaml --replay 4711-{violation.property}.json",
        nearest=nearest,
        without=str(run.decisions[-1]),
    )


def lost_backlog() -> Counterexample:
    """A sender that waits for a confirm holds the next message in memory only."""

    def told(*, crash: bool) -> Run:
        run = Run("resend")
        run.submit(1)
        first = run.send(1)
        run.submit(2)
        if crash:
            run.crash("sender", "F8")
        run.phase("heal")
        if crash:
            run.start("sender")
        run.phase("drain")
        run.arrive(first)
        run.deliver(1)
        if crash:
            run.arrive(run.send(1, link="receiver>sender", kind="confirm"))
        else:
            confirmed(run, [1])
            second = run.send(2)
            run.arrive(second)
            run.deliver(2)
            confirmed(run, [2])
        run.end()
        return run

    run = told(crash=True)
    broken = run.broken("P2", "no loss", "Message #2 was accepted and never came out.", 2)
    return _found(
        "orders / intake",
        run,
        broken,
        told(crash=False).result(),
        guarantee="at-least-once, tolerates route loss and receiver crash.",
        before=214,
        advice="journal: main",
    )


def lost_confirm() -> Counterexample:
    """A sender that hears nothing sends again, and the receiver has no memory of what it has seen."""

    def told(*, loss: bool) -> Run:
        run = Run("resend", messages=1)
        run.submit(1)
        first = run.send(1)
        run.arrive(first)
        run.deliver(1)
        if not loss:
            confirmed(run, [1])
            run.phase("heal")
            run.end()
            return run
        run.lose(run.send(1, link="receiver>sender", kind="confirm"), "F2")
        run.wake()
        run.arrive(run.send(1, attempt=2))
        run.does(Kind.DELIVERED, "receiver", 1)
        return run

    run = told(loss=True)
    broken = run.broken("P3", "no duplicates", "Message #1 came out twice.", 1)
    return _found(
        "orders / intake",
        run,
        broken,
        told(loss=False).result(),
        guarantee="at-least-once, tolerates route loss.",
        before=88,
        advice="dedupe over resend",
    )


def overtaken() -> Counterexample:
    """Two messages on the way at once, and the later one is faster."""

    def told(*, overtaking: bool) -> Run:
        run = Run("multi-unconfirmed")
        run.submit(1)
        first = run.send(1)
        run.submit(2)
        second = run.send(2)
        if overtaking:
            run.decide("orders/0 data e1 1+1 a1", "overtaken", "F4")
            run.arrive(second)
            run.deliver(2)
            run.send(2, link="receiver>sender", kind="confirm")
            run.arrive(first)
            run.does(Kind.DELIVERED, "receiver", 1)
            return run
        run.arrive(first)
        run.deliver(1)
        run.arrive(second)
        run.deliver(2)
        confirmed(run, [1, 2])
        run.phase("heal")
        run.end()
        return run

    run = told(overtaking=True)
    broken = run.broken("P4", "monotonic", "Message #1 came out after message #2.", 1)
    return _found(
        "orders / intake",
        run,
        broken,
        told(overtaking=False).result(),
        guarantee="at-least-once, in no order.",
        before=61,
        advice="continuous-index over multi-unconfirmed",
    )


def copied() -> Counterexample:
    """The network makes a second copy, and the receiver has no memory of what it has seen."""

    def told(*, copy: bool) -> Run:
        run = Run("multi-unconfirmed", messages=1)
        run.submit(1)
        sent = run.send(1)
        if copy:
            run.copy(sent)
        run.arrive(sent)
        run.deliver(1)
        if copy:
            run.arrive(sent, copy=1)
            run.does(Kind.DELIVERED, "receiver", 1)
            return run
        confirmed(run, [1])
        run.phase("heal")
        run.end()
        return run

    run = told(copy=True)
    broken = run.broken("P3", "no duplicates", "Message #1 came out twice.", 1)
    return _found(
        "orders / intake",
        run,
        broken,
        told(copy=False).result(),
        guarantee="at-least-once, tolerates route loss.",
        before=35,
        advice="dedupe over multi-unconfirmed",
    )


def partition() -> Counterexample:
    """A pipe without a deadline of its own sends once; what a cut eats is gone for good."""

    def told(*, cut: bool) -> Run:
        run = Run("sequential-confirm, carrier confirms")
        run.submit(1)
        run.arrive(run.send(1))
        run.deliver(1)
        confirmed(run, [1])
        links = ["sender>receiver", "receiver>sender"]
        if cut:
            run.fault("network", "the link is cut", "F6", verb="cut", links=links)
        run.submit(2)
        second = run.send(2)
        if cut:
            run.lose(second, "F6", why="cut")
            run.phase("heal")
            run.fault("network", "the link is whole", "", verb="heal", links=links)
        else:
            run.arrive(second)
            run.deliver(2)
            confirmed(run, [2])
            run.phase("heal")
        run.end()
        return run

    run = told(cut=True)
    broken = run.broken("P2", "no loss", "Message #2 was accepted and never came out.", 2)
    return _found(
        "orders / intake",
        run,
        broken,
        told(cut=False).result(),
        guarantee="at-most-once over this route, in order.",
        before=40,
        advice="retry: own",
    )


def store_rollback() -> Counterexample:
    """A store confirms what is not yet on its disk."""

    def told(*, rollback: bool) -> Run:
        run = Run("stream")
        for message in (1, 2):
            run.submit(message)
            run.arrive(run.send(message, link=TO_STORE))
            run.does(Kind.APPENDED, "store", message, detail=f'{{"index": {message}}}')
            run.arrive(run.send(message, link=FROM_STORE, kind="confirm"))
            run.does(Kind.CONFIRMED, "sender", message)
        if rollback:
            run.fault("store", "crash, the last write is lost", "F14", verb="rollback")
            run.rows[-1].pipe, run.rows[-1].epoch = run.rows[1].pipe, 1
            run.rows[-1].seq, run.rows[-1].count = 2, 1
        run.phase("heal")
        kept = (1,) if rollback else (1, 2)
        run.wake("receiver")
        run.arrive(run.send(link=READS, kind="read"))
        run.arrive(run.send(*kept, link=READ))
        run.deliver(*kept)
        run.end()
        return run

    run = told(rollback=True)
    broken = run.broken("P2", "no loss", "Message #2 was accepted and never came out.", 2)
    return _found(
        "orders / log",
        run,
        broken,
        told(rollback=False).result(),
        guarantee="at-least-once, tolerates store outage; the store may lose its last second.",
        before=133,
        advice="durability: always",
    )


def zombie() -> Counterexample:
    """A receiver that was replaced wakes up and goes on with what it had begun."""

    def told(*, pause: bool) -> Run:
        run = Run("stream, index not fenced", messages=1)
        run.submit(1)
        run.arrive(run.send(1, link=TO_STORE))
        run.does(Kind.APPENDED, "store", 1, detail='{"index": 1}')
        run.arrive(run.send(1, link=FROM_STORE, kind="confirm"))
        run.does(Kind.CONFIRMED, "sender", 1)
        run.arrive(run.send(1, link=READ))
        if not pause:
            run.deliver(1)
            run.phase("heal")
            run.end()
            return run
        run.pause("receiver", "F28")
        run.start("receiver 2")
        run.arrive(run.send(link="receiver 2>store", kind="read"))
        run.arrive(run.send(1, link="store>receiver 2", attempt=2))
        run.deliver(1, node="receiver 2")
        run.resume("receiver")
        run.does(Kind.DELIVERED, "receiver", 1)
        return run

    run = told(pause=True)
    broken = run.broken("P3", "no duplicates", "Message #1 came out twice.", 1)
    return _found(
        "orders / log",
        run,
        broken,
        told(pause=False).result(),
        guarantee="exactly-once, tolerates receiver crash.",
        before=97,
        advice="fence the index: one reader name for both incarnations",
    )


def commit_before_effect() -> Counterexample:
    """A receiver writes down that it is done, and then does it."""

    def told(*, crash: bool) -> Run:
        run = Run("stream, commits first", messages=1)
        run.submit(1)
        run.arrive(run.send(1, link=TO_STORE))
        run.does(Kind.APPENDED, "store", 1, detail='{"index": 1}')
        run.arrive(run.send(1, link=FROM_STORE, kind="confirm"))
        run.does(Kind.CONFIRMED, "sender", 1)
        run.arrive(run.send(1, link=READ))
        run.does(Kind.COMMITTED, "receiver", 1, detail='{"next": 2}')
        if crash:
            run.crash("receiver", "F10")
            run.phase("heal")
            run.start("receiver")
            run.arrive(run.send(link=READS, kind="read"))
        else:
            run.deliver(1)
            run.phase("heal")
        run.end()
        return run

    run = told(crash=True)
    broken = run.broken("P2", "no loss", "Message #1 was accepted and never came out.", 1)
    return _found(
        "orders / log",
        run,
        broken,
        told(crash=False).result(),
        guarantee="at-least-once, tolerates receiver crash.",
        before=52,
        covered=True,
    )


def poison() -> Counterexample:
    """A message whose handler always raises, and no limit to how often it is tried."""

    def told(*, bad: bool) -> Run:
        run = Run("sequential-confirm, no limit of retries")
        run.submit(1, 2)
        run.arrive(run.send(1, 2))
        if bad:
            run.decide("handler: #1", "raise always", "F20")
            for attempt in range(3):
                if attempt:
                    run.wake("receiver")
                run.does(Kind.CALLED, "receiver", 1)
                fault = '{"fault": "F20"}' if not attempt else ""
                run.does(Kind.RAISED, "receiver", 1, detail=fault)
            run.end()
            return run
        run.deliver(1, 2)
        confirmed(run, [1, 2])
        run.phase("heal")
        run.end()
        return run

    run = told(bad=True)
    sentence = "Message #2 waits for ever behind message #1, whose handler always raises."
    broken = run.broken("P14", "poison isolation", sentence, 2)
    return _found(
        "orders / price",
        run,
        broken,
        told(bad=False).result(),
        guarantee="at-least-once, in order.",
        before=17,
        advice="retries: 5, dead_letter: main/orders.dead",
    )


CASES: Mapping[str, Callable[[], Counterexample]] = {
    "lost-backlog": lost_backlog,
    "lost-confirm": lost_confirm,
    "overtaken": overtaken,
    "copied": copied,
    "partition": partition,
    "store-rollback": store_rollback,
    "zombie": zombie,
    "commit-before-effect": commit_before_effect,
    "poison": poison,
}
"""By the name of their pictures."""
