"""The exit codes of every command: one table."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What a command's exit code says."""

    HELD = 0
    """All went well; all that is claimed holds."""
    VIOLATED = 1
    """Something that is claimed or expected does not hold."""
    UNUSABLE = 2
    """The file, a stage or the command line can't be used as it is."""
    NOT_EXERCISED = 3
    """Nothing was violated, but too little happened to say that it holds."""
    NOT_DETERMINISTIC = 4
    """The same run twice went two ways, so neither says anything."""
    REPLACED = 5
    """Another process of the same node began later and has taken over: do not start this one again."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C (128 and the number of the signal)."""

    @property
    def meaning(self) -> str:
        """The meaning in a few words, for help texts."""
        return _MEANING[self]


_MEANING = {
    Exit.HELD: "held",
    Exit.VIOLATED: "something claimed or expected does not hold",
    Exit.UNUSABLE: "the file, a stage or the command line can't be used",
    Exit.NOT_EXERCISED: "not exercised: too little happened to say that it holds",
    Exit.NOT_DETERMINISTIC: "not deterministic",
    Exit.REPLACED: "replaced by a process that began later: not to be started again",
    Exit.INTERRUPTED: "interrupted",
}


def epilog(*codes: Exit) -> str:
    """The line at the end of a command's help."""
    return "Exit codes: " + " · ".join(f"{code.value} {code.meaning}" for code in codes)
