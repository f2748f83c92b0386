"""The pictures of patterns.md: ``python -m tools.draw_patterns`` writes docs/pictures/*.svg.

Each scene shows one loss and its repair, or what the pattern does instead of repairing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools import towers
from tools.space_time import Frame, Note, Scene, Span, Tone, draw

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"


def _sent(at: float, text: str, **how: float) -> Frame:
    return Frame(at, text, 0, 1, Tone.SENT, takes=how.get("takes", 1.6))


def _again(at: float, text: str) -> Frame:
    return Frame(at, text, 0, 1, Tone.AGAIN)


def _lost(at: float, text: str) -> Frame:
    return Frame(at, text, 0, 1, Tone.SENT, lost=True)


def _back(at: float, text: str) -> Frame:
    return Frame(at, text, 1, 0, Tone.BACK)


def _back_lost(at: float, text: str) -> Frame:
    return Frame(at, text, 1, 0, Tone.BACK, lost=True)


def _delivered(at: float, *numbers: str, text: str = "delivered") -> Note:
    return Note(at, 1, text, Tone.DELIVERED, numbers)


def _held(at: float, *numbers: str, text: str = "held") -> Note:
    return Note(at, 1, text, Tone.HELD, numbers)


def _dropped(at: float, number: str, text: str) -> Note:
    return Note(at, 1, text, Tone.DROPPED, (number,))


RESEND = Scene(
    "resend",
    "resend: wait for the confirm, else send again",
    "The sender sends message 1 and waits for its confirm. It sends message 2, which is lost. No "
    "confirm comes in time, so it sends 2 again, and 2 is delivered. This time the confirm is "
    "lost. The sender can't know, sends 2 once more, and 2 is delivered a second time. Only now "
    "message 3 is sent.",
    "Delivered: 1 2 2 3. Nothing is lost; 2 came twice, because a confirm was lost.",
    (
        _sent(0, "1"),
        _delivered(1.6, "1"),
        _back(1.9, "confirm 1"),
        _lost(4, "2"),
        Span(4, 7, 0, "no confirm:\ntime runs out"),
        _again(7, "2 again"),
        _delivered(8.6, "2"),
        _back_lost(8.9, "confirm 2"),
        Span(7.4, 11.6, 0, "no confirm:\ntime runs out"),
        _again(11.6, "2 again"),
        _delivered(13.2, "2", text="delivered again"),
        _back(13.5, "confirm 2"),
        _sent(15.4, "3"),
        _delivered(17, "3"),
    ),
)

MULTI_UNCONFIRMED = Scene(
    "multi-unconfirmed",
    "multi-unconfirmed: many on the way, each confirmed by itself",
    "The sender sends messages 1 to 5 without waiting. Message 2 is lost. The receiver delivers "
    "1, 3, 4 and 5 as they arrive. After three later messages it says that 2 is missing. The "
    "sender sends 2 again at once, and the receiver delivers it last and confirms all five.",
    "Delivered: 1 3 4 5 2. Nothing is lost and nothing waits; the order is gone.",
    (
        _sent(0, "1"),
        _lost(1, "2"),
        _sent(2, "3"),
        _sent(3, "4"),
        _sent(4, "5"),
        _delivered(1.6, "1"),
        _delivered(3.6, "3"),
        _delivered(4.6, "4"),
        _delivered(5.6, "5"),
        Note(0, 0, "sends up to a window"),
        _back(5.9, "2 is missing"),
        Note(7.5, 0, "at once, no timeout"),
        _again(7.8, "2 again"),
        _delivered(9.4, "2", text="delivered late"),
        _back(9.7, "confirm 1 to 5"),
    ),
)

SEQUENTIAL_CONFIRM = Scene(
    "sequential-confirm",
    "sequential-confirm: one message at a time, repeats are dropped",
    "The sender sends message 1 and gets its confirm. Message 2 is lost, so after a while it is "
    "sent again, delivered and confirmed, but the confirm is lost. The sender sends 2 once more. "
    "The receiver knows it has passed 2 on, drops the copy and confirms again. Then message 3 is "
    "sent.",
    "Delivered: 1 2 3. Each once, in order, at one message for each round trip.",
    (
        _sent(0, "1"),
        _delivered(1.6, "1"),
        _back(1.9, "confirm 1"),
        _lost(4, "2"),
        Span(4, 7, 0, "2 waits for its\nconfirm, 3 for 2"),
        _again(7, "2 again"),
        _delivered(8.6, "2"),
        _back_lost(8.9, "confirm 2"),
        Span(7.4, 11.6, 0, "no confirm:\ntime runs out"),
        _again(11.6, "2 again"),
        _dropped(13.2, "2", "a repeat: dropped"),
        _back(13.5, "confirm 2"),
        _sent(15.4, "3"),
        _delivered(17, "3"),
    ),
)

STRICT_MONOTONIC = Scene(
    "strict-monotonic",
    "strict-monotonic: never back, never twice, nothing repaired",
    "No confirms travel back. Message 1 is delivered. Message 2 is slow, and 3 overtakes it: 3 is "
    "delivered, and 2, which comes later, is dropped because it would go back. Message 4 is lost "
    "and nobody sends it again. Message 5 is delivered, and a second copy of 5 is dropped.",
    "Delivered: 1 3 5. In order and without repeats; 2 and 4 are gone, and counted.",
    (
        _sent(0, "1"),
        _delivered(1.6, "1"),
        _sent(1.2, "2", takes=5),
        _sent(3.4, "3", takes=1.2),
        _delivered(4.6, "3"),
        _dropped(6.2, "2", "too late: dropped"),
        _lost(6.6, "4"),
        Note(6.6, 0, "never sent again"),
        _sent(8.6, "5"),
        _delivered(10.2, "5"),
        Frame(9.6, "a copy of 5", 0, 1, Tone.SENT, takes=2.4, begins=0.3),
        _dropped(12, "5", "a repeat: dropped"),
    ),
)

CONTINUOUS_INDEX = Scene(
    "continuous-index",
    "continuous-index: hold what comes early, pass on in turn",
    "The carrier below loses nothing in the end, but lets messages pass each other. Message 1 is "
    "delivered. The frame of 2 is lost on the route. Messages 3 and 4 arrive and are held. The "
    "carrier sends 2 again; now 2, 3 and 4 are delivered together. A late copy of 3 is dropped.",
    "Delivered: 1 2 3 4. The carrier repairs the loss, this pipe repairs the order.",
    (
        _sent(0, "1"),
        _delivered(1.6, "1"),
        _lost(1, "2"),
        _sent(2.2, "3"),
        _held(3.8, "3", text="held: 2 is missing"),
        _sent(3.2, "4"),
        _held(4.8, "3", "4"),
        Span(1, 5.4, 0, "the carrier waits\nfor a confirm of 2"),
        Note(6.3, 0, "the carrier repeats it"),
        _again(6, "2 again"),
        _delivered(7.6, "2", "3", "4"),
        Frame(7.8, "a copy of 3", 0, 1, Tone.SENT),
        _dropped(9.4, "3", "a repeat: dropped"),
    ),
    lanes=("sender and carrier", "receiver"),
)

DEDUPE = Scene(
    "dedupe",
    "dedupe: each message once, in the order of arrival",
    "The carrier below sends again. Message 1 is delivered, but its confirm is lost, so the "
    "carrier sends 1 again: it was seen before and is dropped. Message 2 is lost. Message 3 is "
    "delivered at once, without waiting for 2. The carrier sends 2 again, and as it is new, it is "
    "delivered.",
    "Delivered: 1 3 2. Each once; nothing waits for an earlier message.",
    (
        _sent(0, "1"),
        _delivered(1.6, "1"),
        _back_lost(1.9, "confirm 1"),
        Span(0.3, 4.6, 0, "no confirm:\ntime runs out"),
        _again(4.6, "1 again"),
        _dropped(6.2, "1", "seen: dropped"),
        _back(6.5, "confirm 1"),
        _lost(8.4, "2"),
        _sent(9.4, "3"),
        _delivered(11, "3"),
        _back(11.3, "2 is missing"),
        _again(13.2, "2 again"),
        _delivered(14.8, "2"),
        _back(15.1, "confirm 2, 3"),
    ),
    lanes=("sender and carrier", "receiver"),
)

RELIABLE = Scene(
    "reliable",
    "reliable: a window, repairs, and order, in one pipe",
    "First the two ends link: the sender opens, the receiver answers what it expects next. "
    "Messages 1 to 5 are sent without waiting. Message 2 is lost. The receiver delivers 1 and "
    "holds 3, 4 and 5. It says that 2 is missing, the sender sends 2 again at once, and 2, 3, 4 "
    "and 5 are delivered and confirmed.",
    "Delivered: 1 2 3 4 5. Each once, in order, with many on the way at a time.",
    (
        Frame(0, "open", 0, 1, Tone.BACK, takes=1.4),
        Note(1.4, 1, "expects 1"),
        Frame(1.6, "opened", 1, 0, Tone.BACK, takes=1.4),
        _sent(3.4, "1"),
        _delivered(5, "1"),
        _lost(4.4, "2"),
        _sent(5.4, "3"),
        _held(7, "3"),
        _sent(6.4, "4"),
        _held(8, "3", "4"),
        _sent(7.4, "5"),
        _held(9, "3", "4", "5"),
        _back(9.3, "2 is missing"),
        Note(10.9, 0, "at once, no timeout"),
        _again(11.2, "2 again"),
        _delivered(12.8, "2", "3", "4", "5", text=""),
        Note(13.6, 1, "delivered in turn", Tone.DELIVERED),
        _back(13.1, "confirm 1 to 5"),
    ),
)

STREAM = Scene(
    "stream",
    "stream: a store in between, so that the ends need not meet",
    "The receiver is not there at first. The sender appends message 1 and the store keeps it at "
    "index 1, but the answer is lost. The sender appends 1 again; the store knows it by its "
    "identity, stores nothing new and answers. Message 2 is stored at index 2. Later the receiver "
    "starts, finds that it has no position and reads from the start, as it was told to. It "
    "delivers 1 and 2 and commits 3 as the next index to read.",
    "Stored and delivered: 1 2. The sender may be gone before the receiver starts.",
    (
        Frame(0, "append 1", 0, 1),
        Note(1.6, 1, "at index 1", Tone.DELIVERED, ("1",)),
        Frame(2, "stored", 1, 0, Tone.BACK, lost=True),
        Span(0.4, 4.6, 0, "no answer"),
        Frame(4.6, "again: 1", 0, 1, Tone.AGAIN),
        Note(6.2, 1, "is there", Tone.DROPPED, ("1",)),
        Frame(6.5, "stored", 1, 0, Tone.BACK),
        Frame(8.3, "append 2", 0, 1),
        Note(9.9, 1, "at index 2", Tone.DELIVERED, ("2",)),
        Frame(10.2, "stored", 1, 0, Tone.BACK),
        Span(-0.5, 11.4, 2, "not there", absent=True),
        Frame(12, "where was I?", 2, 1, Tone.BACK),
        Frame(13.8, "no position", 1, 2, Tone.BACK),
        Note(15.4, 2, "start: earliest"),
        Frame(15.6, "read from 1", 2, 1, Tone.BACK),
        Frame(17.4, "1, 2", 1, 2),
        Note(19, 2, "delivered", Tone.DELIVERED, ("1", "2")),
        Frame(19.4, "next is 3", 2, 1, Tone.BACK),
    ),
    lanes=("sender", "stream store", "receiver"),
    xs=(110, 340, 570),
)

IBC = Scene(
    "ibc",
    "IBC queues: what one side says, the other can verify",
    "The shop commits message 0 to its tree and signs the root of height 7. A relay reads both, and gives the "
    "bakery header 7, the message and its proof. A forger gives it another message with the same proof, which "
    "is refused. The bakery executes message 0, commits the receipt and signs height 4. The relay's first "
    "submission of the receipt is lost; it looks at both ledgers, sees the receipt still unsettled, and brings "
    "it again with header 4. The shop verifies it and commits. A second relay brings it once more, which is "
    "redundant and changes nothing.",
    "Executed once, settled once. A relay has no rights: it can be late, never wrong.",
    (
        Note(0, 0, "in the tree", Tone.DELIVERED, ("0",)),
        Note(1.2, 0, "height 7 signed"),
        Frame(2.2, "header, proof", 0, 1),
        Frame(4.2, "7, proof, 0", 1, 2),
        Note(5.9, 2, "proven, done", Tone.DELIVERED, ("0",)),
        Frame(6.6, "forged 0", 1, 2, Tone.AGAIN),
        Note(8.3, 2, "invalid-proof", Tone.DROPPED, ("0",)),
        Note(9.4, 2, "height 4 signed"),
        Frame(10.2, "receipt, proof", 2, 1, Tone.BACK),
        Frame(12.2, "4, receipt 0", 1, 0, Tone.BACK, lost=True),
        Span(12.4, 15.6, 1, "still unsettled"),
        Frame(15.8, "4, receipt 0", 1, 0, Tone.AGAIN),
        Note(17.5, 0, "committed", Tone.DELIVERED, ("0",)),
        Frame(18.2, "receipt 0", 1, 0, Tone.AGAIN),
        Note(19.9, 0, "redundant", Tone.DROPPED, ("0",)),
    ),
    lanes=("shop", "relays", "bakery"),
    xs=(170, 360, 550),
)

RMQ = Scene(
    "rmq",
    "replicated queue: the nodes decide together",
    "The client submits message 1 to node n1, which stores it, tells so, and tells the others. It is n2's "
    "turn: n2 runs the function, proposes a block with message 1, and is killed. The others have the proposal: "
    "n1 and n3 run the function too, get the same result, and approve. Two of three are enough, so the block is "
    "final at both, and they tell the client. n2 starts again, is shown what it missed, and has the same.",
    "Decided once, in one block, at all nodes, also at the one that was away.",
    (
        Frame(0, "submit 1", 0, 1),
        Note(1.6, 1, "stored", Tone.DELIVERED, ("1",)),
        Frame(2, "placed", 1, 0, Tone.BACK),
        Frame(2.6, "1", 1, 2),
        Frame(2.6, "1", 1, 3),
        Note(4.8, 2, "n2's turn"),
        Frame(5.2, "block: 1", 2, 1),
        Frame(5.2, "block: 1", 2, 3),
        Span(6.4, 17.4, 2, "killed", absent=True),
        Note(7.4, 1, "same result", Tone.DELIVERED, ("1",)),
        Note(7.4, 3, "same result", Tone.DELIVERED, ("1",)),
        Frame(8.6, "approve", 1, 3),
        Frame(9, "approve", 3, 1, Tone.BACK),
        Note(13, 1, "final"),
        Note(13, 3, "final"),
        Frame(14, "finalized", 1, 0, Tone.BACK),
        Frame(17.8, "what is new?", 2, 1, Tone.BACK),
        Frame(19.4, "the block", 1, 2),
        Note(21, 2, "final"),
    ),
    lanes=("client", "n1", "n2", "n3"),
    xs=(90, 260, 430, 600),
)

BOOK = Scene(
    "book",
    "book: many queues in one store, served in turn within a budget",
    "Two callers enqueue: the loud one messages 1 to 4, the quiet one message 5; the book stores "
    "each in the queue of its caller. A worker asks for messages and gets 1 and 2, two of the "
    "loud queue, then 5 of the quiet one, though it came last. The end of each message, and what "
    "its handler has staged, are stored in one step with the next claim. The worker dies in the "
    "handler of 3. Another worker waits until its claim is over, and gets 3 and 4.",
    "Handled: 1 2 5 3 3 4. Staged effects: 1 2 5 3 4, each once.",
    (
        Frame(0, "loud: 1 2 3 4", 0, 1),
        Frame(1.4, "quiet: 5", 0, 1),
        Note(3, 1, "stored", Tone.DELIVERED, ("1", "2", "3", "4", "5")),
        Frame(3.4, "what is next?", 2, 1, Tone.BACK),
        Frame(5.2, "loud: 1 2, quiet: 5", 1, 2),
        Note(6.8, 2, "handled", Tone.DELIVERED, ("1", "2", "5")),
        Frame(7.2, "1 2 5 done", 2, 1, Tone.BACK),
        Note(8.8, 1, "with what they staged"),
        Frame(9.2, "loud: 3 4", 1, 2),
        Note(10.8, 2, "dies in 3", Tone.DROPPED, ("3",)),
        Span(9.2, 13.6, 1, "no sign of life"),
        Frame(14, "what is next?", 2, 1, Tone.BACK),
        Frame(15.8, "loud: 3 4", 1, 2, Tone.AGAIN),
        Note(17.4, 2, "handled", Tone.DELIVERED, ("3", "4")),
        Frame(17.8, "3 4 done", 2, 1, Tone.BACK),
    ),
    lanes=("callers", "book", "workers"),
    xs=(110, 340, 570),
)

TRANSPORT = Scene(
    "transport",
    "transport: a queue, one timer, cumulative confirms",
    "The sender puts messages 1, 2 and 3 into its queue and transmits each once. Message 1 is "
    "lost. The receiver drops 2 and 3, which are ahead, without an answer. After a period the "
    "timer sends the least message again. The receiver delivers 1 and confirms it, and the sender "
    "deletes it from the queue. Each further period brings one more message.",
    "Delivered: 1, then 2 and 3, each a period later. Only the queue holds anything.",
    (
        _lost(0, "1"),
        _sent(1, "2"),
        _dropped(2.6, "2", "ahead"),
        _sent(2, "3"),
        _dropped(3.6, "3", "ahead"),
        Span(0.4, 5, 0, "a period"),
        _again(5, "1 again"),
        _delivered(6.6, "1"),
        _back(7, "confirm 1"),
        Span(5.4, 10, 0, "a period"),
        _again(10, "2 again"),
        _delivered(11.6, "2"),
        _back(12, "confirm 2"),
    ),
)

SCENES: Mapping[str, Scene] = {
    scene.name: scene
    for scene in (
        RESEND,
        MULTI_UNCONFIRMED,
        STREAM,
        SEQUENTIAL_CONFIRM,
        STRICT_MONOTONIC,
        CONTINUOUS_INDEX,
        DEDUPE,
        RELIABLE,
        IBC,
        RMQ,
        BOOK,
        TRANSPORT,
    )
}


DESCRIPTIONS: Mapping[str, str] = {
    **{name: scene.description for name, scene in SCENES.items()},
    "stack": towers.DESCRIPTION,
}
"""What each picture shows, in words: its description, and its alternative text on the page."""


def pictures() -> dict[str, str]:
    """The text of every picture by its file name."""
    drawn = {f"{scene.name}.svg": draw(scene) for scene in SCENES.values()}
    return {**drawn, "stack.svg": towers.draw()}


def main() -> None:
    """Write the pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (PICTURES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
