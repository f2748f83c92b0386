"""Every exception that surepipe raises: one root, children named by whose fault it is.

Loss, repetition and timeouts are not errors, they are inputs of a machine and never appear here. A message
says what was attempted, what stood in the way, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast


class SurepipeError(Exception):
    """Root of all errors of this package."""


class ConfigurationError(SurepipeError):
    """Something that was written down (a layer, an option, a file) does not add up."""


class CompositionError(ConfigurationError):
    """A stack, chain or expectation is refused; ``findings`` lists every reason."""

    def __init__(self, findings: Sequence[object]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


class MisuseError(SurepipeError):
    """The caller broke a rule of the interface; nothing was changed."""


class ContractViolation(MisuseError):
    """A precondition of a checked interface does not hold; nothing was changed."""


class TransactionEnded(MisuseError):
    """What a handler did ended the transaction that it was lent: nothing that was done in it is left. Or it came
    when the transaction had ended: then that alone was not done."""


class PipeClosed(MisuseError):
    """The pipe was closed (or never opened) and takes no more messages."""


class PayloadTooLarge(MisuseError):
    """A payload exceeds ``message_max_bytes``; nothing of the call was accepted."""


class PipeFull(SurepipeError):
    """The sender's backlog has no room now; the message was not accepted. Try again, or use ``send``."""


class NotConfirmed(SurepipeError):
    """A wait for confirmation ended early; ``ranges`` names what is still unconfirmed.

    Until it ends, the messages stay with the pipe: after this error it goes on to do for them what can be done.
    """

    def __init__(self, message: str, ranges: Sequence[tuple[int, int, int]] = ()) -> None:
        self.ranges = tuple(ranges)
        super().__init__(message)


class PipeStopped(SurepipeError):
    """The pipe stopped for good: it was fenced, gave up, or failed to restart."""


class StacksDiffer(PipeStopped, ConfigurationError):
    """The two ends of a pipe are configured differently, so both stopped; or an end found what others had stored.
    The text says which two stacks or codecs met, and what to do."""


class Fenced(SurepipeError):
    """A newer owner has taken over; nothing was changed and nothing ever will be by this owner."""


class StoreUnavailable(SurepipeError):
    """A store did not answer in time. The operation was done, or it was not: repeat it."""


class StoreReset(SurepipeError):
    """A store lost or replaced what it had acknowledged (another incarnation, or an older state)."""


class ContractBroken(AssertionError):
    """An implementation broke a checked contract: a defect of the implementation, not of its caller."""


WORDS_MAX = 8
"""So many of the exceptions of a group are told."""


def words_of(error: BaseException) -> str:
    """The text of an exception with its notes, and of a group with the texts of what is in it. Works also for a
    foreign exception whose own ``str`` fails."""
    try:
        text = _sentences([str(error), *map(str, getattr(error, "__notes__", ()))])
        if isinstance(error, BaseExceptionGroup):
            text += f": {_words_within(cast('BaseExceptionGroup[BaseException]', error))}"
        return text
    except Exception as failure:  # noqa: BLE001 - whatever it raises, that must not count as ours
        return f"(its text can't be told: that raises {type(failure).__name__})"


def _sentences(texts: list[str]) -> str:
    """One behind the other; what is followed by another ends as a sentence does."""
    *before, last = texts
    return " ".join(
        [*(text if text.endswith(tuple(".:;!?")) else f"{text}." for text in before if text), last]
    )


def named(kind: str, text: str) -> str:
    """An exception by its type and what it says, if it says anything."""
    return f"{kind}: {text}" if text else kind


def described(error: BaseException) -> str:
    """An exception by its type and all that it says, in one line."""
    return named(type(error).__name__, words_of(error))


def so_often(count: int) -> str:
    """Once, or so many times."""
    return "once" if count == 1 else f"{count} times"


def a_or_an(word: str) -> str:
    """The word with its article."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def _words_within(group: BaseExceptionGroup[BaseException]) -> str:
    parts = [named(type(one).__name__, words_of(one)) for one in group.exceptions[:WORDS_MAX]]
    return "; ".join([*parts, "..."] if len(group.exceptions) > WORDS_MAX else parts)
