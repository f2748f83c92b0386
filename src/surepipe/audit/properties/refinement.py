"""P16: what comes out is what the pattern's reference model allows for what went in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from surepipe.audit.properties.base import Property, Report
from surepipe.audit.properties.ledger import IS_SETTLED, PipeHistories, SwiftLook, frame_kind_in
from surepipe.audit.trace import DETAIL, KIND, NODE, Cells, Kind
from surepipe.errors import ConfigurationError

# What each pattern would give, in a few lines each: models that share no code with the machines.
#
# A model is told which messages arrived at the receiver (by position) and says whether one may come out now. It
# may come out later than the model would give it, as handlers take their time, and a receiver that is full may
# ignore what arrives. After a crash a receiver without memory may begin anywhere: what that breaks is for the
# other properties to say.


class Model:
    """Resend, multi-unconfirmed: each copy that arrives may come out, once."""

    pattern: ClassVar[str] = "multi-unconfirmed"

    def __init__(self) -> None:
        self.copies: Counter[int] = Counter()
        self.given: Counter[int] = Counter()
        self.highest = 0
        """The highest that was given."""

    def arrived(self, first: int, last: int) -> None:
        """A frame with these messages has arrived."""
        for position in range(first, last + 1):
            self.copies[position] += 1

    def allows(self, position: int) -> bool:
        """Whether this message may come out now."""
        return self.given[position] < self.copies[position]

    def came_out(self, position: int) -> None:
        self.given[position] += 1
        self.highest = max(self.highest, position)

    def forget(self) -> None:
        """Nothing is known of what was given."""
        self.given.clear()
        self.highest = 0

    def crashed(self) -> None:
        """The receiver has lost its memory."""

    def owed(self) -> int:
        """The first message that should have come out by now; 0 for none."""
        return next((one for one in sorted(self.copies) if not self.given[one]), 0)


class ResendModel(Model):
    """One at a time: nothing is passed over."""

    pattern: ClassVar[str] = "resend"

    def allows(self, position: int) -> bool:
        """A copy, and not beyond the next."""
        return super().allows(position) and position <= self.highest + 1


class DedupeModel(Model):
    """The first copy of each, in whatever order."""

    pattern: ClassVar[str] = "dedupe"

    def allows(self, position: int) -> bool:
        """Not given before."""
        return self.copies[position] > 0 and not self.given[position]

    def crashed(self) -> None:
        """It may give again what it gave."""
        self.forget()


class StrictModel(Model):
    """Whatever is above all that was given."""

    pattern: ClassVar[str] = "strict-monotonic"

    def allows(self, position: int) -> bool:
        """Arrived, and above the cursor."""
        return self.copies[position] > 0 and position > self.highest

    def crashed(self) -> None:
        """The cursor is gone."""
        self.forget()

    def owed(self) -> int:
        """The highest that arrived."""
        highest = max(self.copies, default=0)
        return 0 if highest <= self.highest else highest


class ContinuousModel(Model):
    """The next one, and only the next one."""

    pattern: ClassVar[str] = "continuous-index"

    def __init__(self) -> None:
        super().__init__()
        self.next: int | None = 1

    def allows(self, position: int) -> bool:
        """Arrived, and the next."""
        return self.copies[position] > 0 and self.next in (None, position)

    def came_out(self, position: int) -> None:
        """The cursor moves."""
        super().came_out(position)
        self.next = position + 1

    def crashed(self) -> None:
        """The cursor is gone; the sender tells where to begin."""
        self.next = None

    def owed(self) -> int:
        """The next, if it has arrived."""
        return self.next if self.next is not None and self.copies[self.next] else 0


_MODELS: dict[str, type[Model]] = {
    "resend": ResendModel,
    "multi-unconfirmed": Model,
    "sequential-confirm": ContinuousModel,
    "strict-monotonic": StrictModel,
    "continuous-index": ContinuousModel,
    "reliable": ContinuousModel,
    "dedupe": DedupeModel,
}
PATTERNS: tuple[str, ...] = tuple(_MODELS)
"""The patterns that have a model. A stream hands out its log as it is: that is P10."""


def model_of(pattern: str) -> Model:
    """The model of a pattern. Raises ConfigurationError for one that has none."""
    if pattern not in _MODELS:
        known = ", ".join(_MODELS)
        raise ConfigurationError(f"there is no reference model of {pattern!r}, only of {known}")
    return _MODELS[pattern]()


class Refinement(Property):
    """P16, for pipes whose pattern the row ``run`` names (``patterns``): each message that comes out must be one
    that the model would give for the frames that have arrived so far; at rest, in a run without faults, none may
    be missing.
    """

    id: ClassVar[str] = "P16"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._models: dict[str, Model | None] = {}
        self._receivers: dict[str, str] = {}

    def swift_looks(self) -> Mapping[str, SwiftLook]:
        """What goes into a receiver, and what comes out."""
        if not self.books.settings.patterns:
            return {}
        return {
            Kind.ARRIVED: self._arrived,
            Kind.SETTLED: self._came_out,
            Kind.DEAD: self._came_out,
            Kind.CRASH: self._crashed,
        }

    def _model(self) -> Model | None:
        book = self.books.book
        if book.key not in self._models:
            pattern = self.books.settings.patterns.get(book.key)
            self._models[book.key] = model_of(pattern) if pattern else None
        return self._models[book.key]

    def _arrived(self, row: Cells) -> None:
        model = self._model() if frame_kind_in(row[DETAIL]) == "data" else None
        if model is not None:
            self._receivers[row[NODE]] = self.books.book.key
            for _, position, count in self.books.parts:
                if position:
                    model.arrived(position, position + count - 1)

    def _came_out(self, row: Cells) -> None:
        model = self._model()
        if model is None or row[NODE] == self.books.book.sender:
            return
        if row[KIND] == Kind.DEAD and IS_SETTLED in row[DETAIL]:
            return  # its row ``settled`` has come before
        for _, position, count in self.books.parts:
            if not model.copies:
                continue  # the frames of the outermost layer arrive within others, which are not told of
            for one in range(position, position + count if position else position):
                if not model.allows(one):
                    self.fail(
                        f"Message #{one} came out where the model of {model.pattern} would not give it.",
                        row,
                        position=one,
                    )
                model.came_out(one)

    def _crashed(self, row: Cells) -> None:
        key = self._receivers.get(row[NODE])
        model = self._models.get(key) if key is not None else None
        if model is not None:
            model.crashed()

    def end(self) -> None:
        """Without faults the model's outputs are all there."""
        end = self.books.end
        if end is None or not end.quiescent or not self.books.settings.fault_free:
            return
        for key, model in self._models.items():
            owed = model.owed() if model is not None else 0
            if owed:
                assert model is not None
                text = f"The model of {model.pattern} gives message #{owed}, and it never came out."
                self.fail(text, book=self.books.pipes[key], position=owed)
