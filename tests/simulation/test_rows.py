"""The rows of a run are kept without names; whoever reads them by name, or bit by bit, reads the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from surepipe.audit.properties.base import Property
from surepipe.audit.properties.judge import Judge, judge
from surepipe.audit.properties.ledger import Look
from surepipe.audit.trace import COLUMNS, Kind, RollingDigest, Row, Rows, cells_of
from surepipe.simulation import HopSubject, Options
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.hop import play
from surepipe.simulation.world import digest_of_rows

RELIABLE = HopSubject({"reliable": {"run_max": 4, "window": 16}})
LOSSY = Options(seed=3, loss_ppm=200_000, confirm_loss_ppm=200_000, copy_ppm=100_000)


def played(options: Options = LOSSY) -> Rows:
    """The rows of one run."""
    return play(RELIABLE, options, SeededChooser(options)).rows


def test_rows_have_the_same_columns_with_names_and_without() -> None:
    """One by one, as a slice, from the end, and when made of rows again (X-30)."""
    rows = played()
    named = list(rows)
    assert [cells_of(row) for row in named] == rows.cells
    assert [getattr(named[7], name) for name in COLUMNS] == list(rows.cells[7])
    assert (rows[7], rows[-1], rows[2:5]) == (named[7], named[-1], named[2:5])
    assert [row.step for row in rows] == list(range(len(rows)))
    assert Rows(named) == rows
    assert Rows(named[1:]) != rows


def test_what_is_added_to_rows_is_read_after_an_earlier_reading() -> None:
    """A new row, and a last row that says more than it did."""
    rows = Rows([Row("r", "sender", 1, 0, "", 0, Kind.START)])
    assert [row.kind for row in rows] == ["start"]
    rows.append(Row("r", "sender", 1, 1, "", 5, Kind.WAKE))
    assert [row.kind for row in rows] == ["start", "wake"]
    rows.amend(-1, '{"gauges":{}}', "f" * 32)
    assert (rows[1].detail, rows[1].state, rows[1].time_us) == ('{"gauges":{}}', "f" * 32, 5)
    assert rows[0].detail == ""


def test_the_digest_does_not_depend_on_how_rows_are_given() -> None:
    """At once, one by one, and as rows with names (X-32)."""
    rows, rolling = played(), RollingDigest()
    for row in rows:
        rolling.add(row)
    assert rolling.hex() == digest_of_rows(rows) == digest_of_rows(list(rows))
    changed = Rows(rows)
    changed.amend(-1, "{}", "")
    assert digest_of_rows(changed) != rolling.hex()


def test_the_judge_says_the_same_of_rows_with_names() -> None:
    """Also where it has much to say: every second message is taken out of what was settled (X-1)."""
    rows = played()
    torn = Rows(row for row in rows if row.kind != Kind.SETTLED or row.step % 2)
    assert judge(rows) == judge(list(rows)) == ()
    assert judge(torn) == judge(list(torn)) != ()


class Sent(Property):
    """A property of a user's own, which counts the frames that it is shown."""

    id: ClassVar[str] = "user"
    name: ClassVar[str] = "sent"
    seen: ClassVar[Counter[str]] = Counter()

    def looks(self) -> Mapping[str, Look]:
        """Whatever is transmitted and arrives."""
        return dict.fromkeys((Kind.TRANSMIT, Kind.ARRIVED), self._look)

    def _look(self, row: Row) -> None:
        self.seen[f"{row.kind} {row.detail}"] += 1


def test_a_property_of_ones_own_is_shown_every_frame_that_speaks_of_messages() -> None:
    """Those with messages and those that confirm some, however the judge sorts them for its own (X-26)."""
    rows = played()
    Sent.seen.clear()
    judging = Judge(None, rows[0], more=[Sent])
    for row in rows:
        judging.see(row)
    assert judging.finish() == ()
    kinds = (Kind.TRANSMIT, Kind.ARRIVED)
    told = Counter(f"{row.kind} {row.detail}" for row in rows if row.kind in kinds and row.count)
    assert Sent.seen == told
    assert {one.partition(" ")[2] for one in told} == {'{"frame":"data"}', '{"frame":"confirm"}'}
