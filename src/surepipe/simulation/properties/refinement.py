"""P16: what comes out is what the pattern's reference model allows for what went in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from surepipe.simulation.properties.base import Property, Report
from surepipe.simulation.properties.books import IS_SETTLED, Books, SwiftLook, frame_kind_in
from surepipe.simulation.reference import Model, model_of
from surepipe.simulation.trace import DETAIL, KIND, NODE, Cells, Kind


class Refinement(Property):
    """P16, for pipes whose pattern the row ``run`` names (``patterns``): each message that comes out must be one
    that the model would give for the frames that have arrived so far; at rest, in a run without faults, none may
    be missing.
    """

    id: ClassVar[str] = "P16"

    def __init__(self, books: Books, report: Report) -> None:
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
