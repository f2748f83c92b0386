"""Two parties that don't trust each other, and a relay that neither of them has to trust: in one process."""

from surepipe.queues.ibc import Fail, Party, Relay, Transaction

with Party("east") as east, Party("west") as west:  # stores in memory, fresh keys
    greeter, host, answers = east.module("app"), west.module("app"), list[object]()

    def greeted(_: Transaction, name: bytes) -> bytes | Fail:
        return Fail(100) if name == b"Eve" else b"hello " + name

    host.handle("greet", on_receive=greeted)
    greeter.handle(
        "greet",
        on_commit=lambda _, name, result: answers.append(result or name),  # a list for brevity:
        on_rollback=lambda _, name, code, __: answers.append((name, code)),  # state belongs in _
    )
    east.register("west", west.identity())  # identity(): between organisations a human compares it
    west.register("east", east.identity())
    with Relay([(east, west)]) as relay:
        for name in (b"Ann", b"Eve", b"Bob"):
            greeter.send("west", "greet", name, timeout_after_s=60)
        relay.settle(timeout_s=5)  # until nothing waits, or an error that lists what does
    assert answers == [b"hello Ann", (b"Eve", 100), b"hello Bob"]
    print(answers)
