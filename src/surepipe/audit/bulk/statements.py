"""The judgement as SQL, one text for DuckDB and for Spark: what came out, against the order of acceptance.

Positions are those of ``audit/predicates.py``: 1, 2, 3 ... per channel in the order of acceptance. Rows speak of
runs of messages and stay runs all the way. The work is one sort of what came out, by channel and place, for the
running maximum ``before``: the highest position that came out earlier. A row that begins just above it is in
order, and nobody needs it any more. What is left (``trouble``) is swept once by position:

* a row that begins higher opens a *gap*: the positions that it passes over;
* the part of a row that is not above ``before`` came out *again*: in a gap it is late, or a repeat of something
  late; elsewhere it is a repeat.

So what no row ever filled of a gap is missing, and no sort of everything by position, no distinct and no join of
the two logs is needed. A sent log with many holes takes ``NUMBERED_ONE_BY_ONE``, the plan of sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from surepipe.audit.properties.coverage import Positions
from surepipe.audit.settings import facts_of, number
from surepipe.audit.trace import Kind, Row
from surepipe.core.ranges import RangeSet

ACCEPTED = """
SELECT pipe AS channel, epoch, seq AS low, seq + count - 1 AS high, node FROM told
WHERE kind = 'accepted' AND layer = '' AND count > 0
"""

SENT_BY_TRACES = f"SELECT DISTINCT channel FROM ({ACCEPTED}) sent ORDER BY channel"

ACCEPTED_IN_STREAM_AND_PIPES = f"""
SELECT channel, epoch, low, high, node FROM accepted_in_stream
UNION ALL SELECT a.channel, a.epoch, a.low, a.high, a.node FROM ({ACCEPTED}) a
  JOIN sent_by_traces s ON a.channel = s.channel
"""

ACCEPTED_BEFORE_STREAM = f"""
SELECT a.channel, a.epoch, a.low,
  CASE WHEN a.epoch = f.epoch THEN least(a.high, f.low - 1) ELSE a.high END AS high, a.node
FROM ({ACCEPTED}) a JOIN first_in_stream f ON a.channel = f.channel
WHERE a.epoch < f.epoch OR (a.epoch = f.epoch AND a.low < f.low)
"""
"""What traces tell of that a stream has no more."""

SETTLED = """
SELECT pipe AS channel, epoch, seq AS low, seq + count - 1 AS high, time_us, incarnation AS life, step,
  'settled' AS role
FROM told WHERE kind = 'settled' AND layer = '' AND count > 0
"""

SETTLED_AND_DEAD = f"""{SETTLED} UNION ALL
SELECT channel, epoch, low, high, time_us, life, step, role FROM (
  SELECT t.pipe AS channel, t.epoch, t.seq AS low, t.seq + t.count - 1 AS high, t.time_us,
    t.incarnation AS life, t.step, CASE WHEN s.node IS NOT NULL THEN 'given'
      WHEN t.detail LIKE '%"settled":true%' THEN 'letter' ELSE 'dead' END AS role,
    row_number() OVER (PARTITION BY t.pipe, t.epoch, t.seq ORDER BY t.time_us, t.step) AS nth
  FROM told t LEFT JOIN senders s ON t.pipe = s.channel AND t.node = s.node
  WHERE t.kind = 'dead' AND t.layer = '' AND t.count > 0
) letters WHERE nth = 1
"""
"""A letter that is put again is the same letter. One that the sender writes (given) did not come out; one of a
message that was settled before it was handled is only a letter, and its row ``settled`` stands for itself."""

STARTS = """
SELECT channel, epoch, low, before FROM (
  SELECT channel, epoch, low, lag(high) OVER (PARTITION BY channel, epoch ORDER BY low, high) AS before
  FROM accepted
) runs WHERE before IS NULL OR low <> before + 1 ORDER BY channel, epoch, low
"""
"""As ``BREAKS`` for a log in which nothing overlaps, at half of the cost; where something does, a row shows it."""

BREAKS = """
SELECT channel, epoch, low, before FROM (
  SELECT channel, epoch, low, max(high) OVER (
    PARTITION BY channel, epoch ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS before FROM accepted
) runs WHERE before IS NULL OR low > before + 1 ORDER BY channel, epoch, low
"""
"""Where a continuous piece of the sent log begins; ``before`` is the last number of the piece before it."""

FRESH = """
SELECT pipe, epoch, min(seq), max(time_us) FROM told
WHERE kind = 'accepted' AND layer = '' AND count > 0 AND detail NOT LIKE '%"loaded":true%'
GROUP BY pipe, epoch ORDER BY pipe, epoch
"""
"""The lowest number that a sender gave while it told of it, and when it gave the last."""

HANDED = """
SELECT channel, epoch, kind, min(low), max(high) FROM (
  SELECT *, sum(CASE WHEN before IS NULL OR low > before + 1 THEN 1 ELSE 0 END) OVER (
    PARTITION BY channel, epoch, kind ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS piece FROM (
    SELECT pipe AS channel, epoch, kind, seq AS low, seq + count - 1 AS high, max(seq + count - 1) OVER (
      PARTITION BY pipe, epoch, kind ORDER BY seq, count ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM told WHERE kind IN ('delivered', 'settled') AND layer = '' AND count > 0
  ) runs
) pieces GROUP BY channel, epoch, kind, piece ORDER BY kind, channel, epoch, 4
"""
"""What was handed over, and what came out, as the longest runs."""

KEYED = """
SELECT run, node, incarnation, step, time_us, kind, pipe, epoch, seq, count, detail FROM told
WHERE kind IN ('delivered', 'settled') AND layer = '' AND count > 0
  AND pipe IN (SELECT pipe FROM told WHERE kind = 'delivered' AND detail LIKE '%"key":%')
ORDER BY kind, time_us, run, incarnation, step
"""
"""Of pipes that tell keys: what was handed over, and then what came out."""

ENDS = """
SELECT channel, epoch, node, max(high) FROM accepted GROUP BY channel, epoch, node ORDER BY channel, epoch, node
"""
"""Who accepted, and the last number of each epoch."""

NUMBERED = """
SELECT s.number, s.base + greatest(o.low, s.low) - s.low AS low, s.base + least(o.high, s.high) - s.low AS high,
  greatest(o.low, s.low) AS seq, o.time_us, o.life, o.step, o.role
FROM came_out o JOIN spans s
  ON o.channel = s.channel AND o.epoch = s.epoch AND o.high >= s.low AND o.low <= s.high
"""

NUMBERED_ONE_BY_ONE = """
SELECT f.number, s.base + f.seq - s.low AS low, s.base + f.seq - s.low AS high,
  f.seq, f.time_us, f.life, f.step, f.role
FROM (
  SELECT number, epoch, seq, time_us, life, step, role, max(start) OVER (
    PARTITION BY number, epoch ORDER BY seq, place ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS start FROM (
    SELECT c.number, o.epoch, {each} AS seq, o.time_us, o.life, o.step, o.role,
      1 AS place, CAST(NULL AS BIGINT) AS start
    FROM came_out o JOIN channels c ON o.channel = c.channel
    UNION ALL
    SELECT number, epoch, low, 0, 0, 0, '', 0, low FROM spans
  ) both_logs
) f JOIN spans s ON f.number = s.number AND f.epoch = s.epoch AND f.start = s.low
WHERE f.seq <= s.high AND f.role <> ''
"""
"""The same where the sent log has so many pieces that a join of ranges would not end: message by message."""

PLACED = """
SELECT number, low, high, seq, time_us, coalesce(max(high) OVER (
  PARTITION BY number ORDER BY time_us, life, step, seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
), 0) AS before FROM numbered WHERE role NOT IN ('given', 'letter')
"""

TROUBLE = "SELECT * FROM placed WHERE low <= before OR low > before + 1"

TOTALS = """
SELECT number, sum(high - low + 1) AS numbered,
  max(CASE WHEN role IN ('given', 'letter') THEN 0 ELSE high END) AS highest,
  sum(CASE WHEN role = 'settled' THEN 0 ELSE high - low + 1 END) AS letters,
  sum(CASE WHEN role = 'given' THEN 1 ELSE 0 END) AS given
FROM numbered GROUP BY number ORDER BY number
"""

CAME = """
SELECT channel, sum(high - low + 1), min(time_us), max(time_us) FROM came_out GROUP BY channel ORDER BY channel
"""
"""All that came out of a channel: what has no number was never accepted."""

BEYOND = """
SELECT o.channel, sum(o.high - greatest(o.low, coalesce(e.high, 0) + 1) + 1) FROM came_out o LEFT JOIN ends e
  ON o.channel = e.channel AND o.epoch = e.epoch
WHERE o.high > coalesce(e.high, 0) GROUP BY o.channel ORDER BY o.channel
"""
"""What came out behind the last number of its epoch in the sent log."""

DISORDER = """
SELECT number, sum(CASE WHEN low < before THEN least(high, before - 1) - low + 1 ELSE 0 END) AS below,
  sum(CASE WHEN low > before + 1 THEN 1 ELSE 0 END) AS gaps,
  sum(CASE WHEN low > before + 1 THEN low - before - 1 ELSE 0 END) AS passed_over,
  max(CASE WHEN low > before + 1 THEN low - before - 1 ELSE 0 END) AS widest
FROM trouble GROUP BY number ORDER BY number
"""

ACROSS = """
SELECT channel, sum(least(high, before - 1) - low + 1), min(epoch), min(seq) FROM (
  SELECT *, coalesce(max(high) OVER (
    PARTITION BY reader ORDER BY time_us, life, step, seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), 0) AS before FROM (
    SELECT o.channel, split_part(o.channel, '@', 1) AS reader, o.epoch, greatest(o.low, s.low) AS seq,
      s.place + greatest(o.low, s.low) - s.low AS low, s.place + least(o.high, s.high) - s.low AS high,
      o.time_us, o.life, o.step
    FROM came_out o JOIN accepted_in_stream s
      ON o.channel = s.channel AND o.epoch = s.epoch AND o.high >= s.low AND o.low <= s.high
    WHERE o.role NOT IN ('given', 'letter')
  ) by_index
) placed WHERE low < before GROUP BY channel ORDER BY channel
"""
"""What came out of a stream behind something that has a higher index in it, of whatever producer."""

INDEXED = """
SELECT channel, epoch, low, high, place FROM accepted_in_stream
WHERE channel IN (SELECT pipe FROM told WHERE kind = 'delivered' AND detail LIKE '%"key":%')
ORDER BY channel, epoch, low
"""
"""Where the messages of channels that tell keys are in their stream."""

PIECES = """
SELECT number, low, high, gaps, again, given FROM (
  SELECT number, edge AS low, lead(edge) OVER (PARTITION BY number ORDER BY edge) - 1 AS high,
    sum(gap) OVER (PARTITION BY number ORDER BY edge ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS gaps,
    sum(again) OVER (PARTITION BY number ORDER BY edge ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS again,
    sum(given) OVER (PARTITION BY number ORDER BY edge ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS given
  FROM (
    SELECT number, edge, sum(gap) AS gap, sum(again) AS again, sum(given) AS given FROM (
      SELECT number, before + 1 AS edge, 1 AS gap, 0 AS again, 0 AS given FROM trouble WHERE low > before + 1
      UNION ALL SELECT number, low, -1, 0, 0 FROM trouble WHERE low > before + 1
      UNION ALL SELECT number, low, 0, 1, 0 FROM trouble WHERE low <= before
      UNION ALL SELECT number, least(high, before) + 1, 0, -1, 0 FROM trouble WHERE low <= before
      UNION ALL SELECT number, low, 1, 0, 0 FROM tails
      UNION ALL SELECT number, high + 1, -1, 0, 0 FROM tails
      UNION ALL SELECT number, low, 0, 0, 1 FROM numbered WHERE role = 'given'
      UNION ALL SELECT number, high + 1, 0, 0, -1 FROM numbered WHERE role = 'given'
    ) steps GROUP BY number, edge HAVING sum(gap) <> 0 OR sum(again) <> 0 OR sum(given) <> 0
  ) ends
) swept WHERE high IS NOT NULL AND (gaps > 0 OR again > 0)
"""
"""Longest runs of positions of which the same is true: in a gap, so often not above ``before``, given up."""

PIECES_WITHOUT_GIVEN = PIECES.replace(
    """
      UNION ALL SELECT number, low, 0, 0, 1 FROM numbered WHERE role = 'given'
      UNION ALL SELECT number, high + 1, 0, 0, -1 FROM numbered WHERE role = 'given'""",
    "",
)
"""Where no letter was given up, everything that came out need not be read again for it."""

SWEPT = """
SELECT number,
  sum(CASE WHEN again > 0 THEN (high - low + 1) * (again - CASE WHEN gaps > 0 THEN 1 ELSE 0 END) ELSE 0 END),
  sum(CASE WHEN gaps > 0 AND again > 0 THEN high - low + 1 ELSE 0 END),
  sum(CASE WHEN gaps > 0 AND again = 0 AND given = 0 THEN high - low + 1 ELSE 0 END),
  max(CASE WHEN gaps > 0 AND again = 0 AND given = 0 THEN high ELSE 0 END)
FROM pieces GROUP BY number ORDER BY number
"""
"""Of each channel: repeated, late, missing, and the last that is missing."""

LETTERS = """
SELECT number, sum(greatest(0, high - greatest(low - 1, reach))) FROM (
  SELECT number, low, high, coalesce(max(high) OVER (
    PARTITION BY number ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), 0) AS reach FROM numbered WHERE role <> 'settled'
) letters GROUP BY number ORDER BY number
"""
"""How many different messages ended as dead letters, or wait in a book for a person;"""

PARKED = """
SELECT pipe, count(*) FROM (
  SELECT DISTINCT pipe, epoch, seq FROM told
  WHERE kind = 'dead' AND layer = '' AND detail LIKE '%"kept":true%'
) parked GROUP BY pipe ORDER BY pipe
"""
"""and how many of them wait."""

EXAMPLES = """
SELECT what, number, low, high, time_us FROM (
  SELECT *, row_number() OVER (PARTITION BY what, number ORDER BY weight DESC, low, time_us) AS nth FROM (
    SELECT 'lost' AS what, number, low, high, CAST(0 AS BIGINT) AS time_us, high - low AS weight FROM pieces
      WHERE gaps > 0 AND again = 0 AND given = 0
    UNION ALL SELECT 'repeated', number, low, high, 0, 0 FROM pieces
      WHERE again > CASE WHEN gaps > 0 THEN 1 ELSE 0 END
    UNION ALL SELECT 'late', number, low, high, 0, 0 FROM pieces WHERE gaps > 0 AND again > 0
    UNION ALL SELECT 'gap', number, before + 1, low - 1, time_us, low - before FROM trouble
      WHERE low > before + 1
  ) found WHERE number IN ({numbers})
) ranked WHERE nth <= {most} ORDER BY what, number, nth
"""

LIVES = """
SELECT run, node, incarnation, count(*), min(step), max(step), sum(step),
  sum(CASE WHEN kind = 'dead' THEN 1 ELSE 0 END)
FROM told GROUP BY run, node, incarnation ORDER BY run, node, incarnation
"""
"""Steps are 0, 1, 2 ... in each life, or rows are missing. And whether there are letters at all."""

SPEAKERS = "SELECT DISTINCT run, node, pipe FROM told"

TOLD_BY_READER = """
SELECT t.run, p.own_node AS node, t.incarnation, t.step, t.time_us, t.kind, p.own_pipe AS pipe, t.epoch, t.seq,
  t.count, t.layer, t.detail
FROM told t JOIN placed_by_reader p ON t.run = p.run AND t.node = p.node AND t.pipe = p.pipe
"""
"""Rows of streams as often as these have readers."""

FIRST_DELIVERED = """
SELECT pipe, epoch, min(seq) FROM told WHERE kind = 'delivered' AND layer = '' AND count > 0
GROUP BY pipe, epoch ORDER BY pipe, epoch
"""
"""What was handed over first of each channel, by its epochs."""

FACTS = """
SELECT run, node, incarnation, step, time_us, kind, pipe, epoch, seq, count, detail FROM told
WHERE kind IN ('run', 'start', 'crash', 'end', 'renumbered', 'unknown', 'passed', 'made', 'opened')
ORDER BY time_us, run, incarnation, step
"""

UNCERTAIN = """
SELECT o.channel, o.epoch, o.low, o.high FROM came_out o JOIN unknown u
  ON o.channel = u.channel AND o.epoch = u.epoch AND o.high >= u.low AND o.low <= u.high
ORDER BY o.channel, o.epoch, o.low
"""
"""What came out among submits whose outcome nobody knew."""

IN_WORK = """
SELECT DISTINCT t.run, t.node, t.incarnation, t.step, t.time_us, t.kind, t.pipe, t.epoch,
  greatest(t.seq, s.low, p.low - s.base + s.low) AS seq,
  least(t.seq + t.count - 1, s.high, p.high - s.base + s.low) AS high
FROM told t JOIN spans s ON t.pipe = s.channel AND t.epoch = s.epoch
  JOIN pieces p ON p.number = s.number AND p.gaps > 0 AND p.again = 0 AND p.given = 0
WHERE t.kind IN ('delivered', 'confirmed') AND t.layer = '' AND t.count > 0
  AND greatest(t.seq, s.low, p.low - s.base + s.low) <= least(t.seq + t.count - 1, s.high, p.high - s.base + s.low)
ORDER BY t.time_us, t.run, t.incarnation, t.step, seq
"""
"""Of messages that are missing: the rows that tell that they were handed over or confirmed, cut to them."""

REACHED = """
SELECT pipe, epoch, max(seq + count - 1) FROM told
WHERE kind IN ('delivered', 'settled') AND layer = '' AND count > 0
GROUP BY pipe, epoch ORDER BY pipe, epoch
"""
"""How far each epoch was handed over."""

HANDED_TO_LIVES = """
SELECT run, node, incarnation, 0 AS step, min(time_us), side, pipe, epoch, min(low), max(high) FROM (
  SELECT *, sum(CASE WHEN before IS NULL OR low > before + 1 THEN 1 ELSE 0 END) OVER (
    PARTITION BY run, node, incarnation, pipe, epoch, side ORDER BY low, high
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  ) AS piece FROM (
    SELECT *, max(high) OVER (
      PARTITION BY run, node, incarnation, pipe, epoch, side ORDER BY low, high
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before FROM (
      SELECT t.run, t.node, t.incarnation, t.time_us, t.pipe, t.epoch, t.seq AS low, t.seq + t.count - 1 AS high,
        CASE WHEN t.kind = 'delivered' THEN 'delivered' ELSE 'settled' END AS side
      FROM told t JOIN followed f ON t.run = f.run AND t.node = f.node AND t.incarnation = f.incarnation
      WHERE t.kind IN ('delivered', 'settled', 'dead') AND t.layer = '' AND t.count > 0
    ) sides
  ) runs
) pieces GROUP BY run, node, incarnation, pipe, epoch, side, piece ORDER BY run, node, incarnation
"""
"""What was handed over to these lives, and what they settled, as the longest runs."""

COVERED = """
SELECT DISTINCT o.channel, o.epoch, o.low, o.high, o.time_us, o.life, o.step, o.role FROM came_out o JOIN passed p
  ON o.channel = p.channel AND o.time_us > p.time_us
  AND ((o.epoch = p.epoch AND o.low >= p.low AND o.high <= p.high) OR (p.low = 0 AND o.epoch < p.epoch))
WHERE o.role IN ('settled', 'dead') LIMIT {most}
"""
"""Rows of messages that a stored position was behind before the row was told."""

TOLD_OF_COVERED = """
SELECT DISTINCT o.channel, o.epoch, o.low, o.high, o.time_us, o.life, o.step, o.role FROM came_out o JOIN covered c
  ON o.channel = c.channel AND o.epoch = c.epoch AND o.high >= c.low AND o.low <= c.high
WHERE o.role IN ('settled', 'dead')
"""
"""All that was told of these messages."""

WITHOUT_LATE = """
SELECT o.* FROM ({came_out}) o LEFT JOIN late l ON o.channel = l.channel AND o.epoch = l.epoch
  AND o.low = l.low AND o.high = l.high AND o.time_us = l.time_us AND o.life = l.life AND o.step = l.step
WHERE l.channel IS NULL UNION ALL SELECT * FROM late_in_place
"""

TIMELINE = """
SELECT CAST(floor((time_us - {since}) / {width}) AS BIGINT) AS bucket, sum(high - low + 1) FROM came_out
GROUP BY 1 ORDER BY 1
"""

TROUBLE_IN_TIME = """
SELECT CAST(floor((time_us - {since}) / {width}) AS BIGINT) AS bucket,
  sum(CASE WHEN low > before + 1 THEN low - before - 1 ELSE 0 END),
  sum(CASE WHEN low <= before THEN least(high, before) - low + 1 ELSE 0 END)
FROM trouble GROUP BY 1 ORDER BY 1
"""

ACCEPTED_PAYLOADS = """
SELECT channel, CAST(0 AS BIGINT) AS epoch, min(place) AS low, max(place) AS high, '' AS node
FROM sent_payloads GROUP BY channel
"""
"""The messages of a stream are told by their indexes, which have no holes."""

MATCHED_PAYLOADS = """
SELECT coalesce(s.channel, o.channel) AS channel, CAST(0 AS BIGINT) AS epoch, coalesce(s.place, 0) AS low,
  coalesce(s.place, 0) AS high, o.place AS time_us, CAST(0 AS BIGINT) AS life, o.place AS step, 'settled' AS role
FROM (
  SELECT channel, place, digest, row_number() OVER (PARTITION BY digest ORDER BY place) AS nth FROM out_payloads
) o LEFT JOIN (
  SELECT digest, count(*) AS times FROM sent_payloads GROUP BY digest
) c ON o.digest = c.digest LEFT JOIN (
  SELECT channel, place, digest, row_number() OVER (PARTITION BY digest ORDER BY channel, place) AS nth
  FROM sent_payloads
) s ON o.digest = s.digest AND s.nth = least(o.nth, c.times)
"""
"""The n-th message with a content is the n-th one sent with it; beyond the last it is a repeat of that."""


# Which position each message has: pieces of the sent log, numbered in the order of acceptance.
#
# Within an epoch numbers follow acceptance, and a later life has a higher epoch; so positions follow (epoch,
# seq). What was renumbered keeps its position under its new identity. A submit whose outcome nobody knew has a
# position if it came out.


SPANS_MAX = 4_096
"""With more pieces than this, messages are looked up one by one."""


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive messages at consecutive positions: (epoch, low) stands at ``base``."""

    channel: str
    number: int
    epoch: int
    low: int
    high: int
    base: int


@dataclass
class SentLog:
    """What was accepted, by channel and epoch."""

    accepted: dict[str, dict[int, RangeSet]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(RangeSet))
    )
    unknown: dict[str, dict[int, RangeSet]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(RangeSet))
    )
    moves: list[Row] = field(default_factory=list[Row])

    def take_breaks(
        self,
        breaks: Iterable[tuple[str, int, int, int | None]],
        ends: Mapping[tuple[str, int], int],
    ) -> None:
        """Pieces, from where each begins and where the one before it ended (None for the first of its epoch)."""
        open_at: dict[tuple[str, int], int] = {}
        for channel, epoch, low, before in breaks:
            if before is not None:
                self.accepted[channel][epoch].add(open_at[channel, epoch], before)
            open_at[channel, epoch] = low
        for (channel, epoch), low in open_at.items():
            self.accepted[channel][epoch].add(low, ends[channel, epoch])

    def take_facts(self, rows: Sequence[Row]) -> None:
        """Submits without a known outcome, and what was renumbered."""
        self.moves = [row for row in rows if row.kind == Kind.RENUMBERED and not row.layer]
        for row in rows:
            if row.kind == Kind.UNKNOWN and row.epoch:
                self.unknown[row.pipe][row.epoch].add(row.seq, row.last)
        for channel, epochs in self.unknown.items():
            for epoch, ranges in epochs.items():
                for low, high in list(self.accepted[channel][epoch]):
                    ranges.discard(low, high)

    def came_out_after_all(self, runs: Iterable[tuple[str, int, int, int]]) -> None:
        """These came out, and among them may be submits whose outcome was unknown."""
        for channel, epoch, low, high in runs:
            ranges = self.unknown[channel][epoch]
            for first, last in ranges.within(low, high):
                self.accepted[channel][epoch].add(first, last)
                ranges.discard(first, last)

    def open_submits(self, channel: str) -> int:
        """How many submits of a channel have no known outcome and did not come out."""
        return sum(ranges.count() for ranges in self.unknown.get(channel, {}).values())


@dataclass(frozen=True)
class NumberedChannels:
    """All channels by number, how many messages each was sent, and the spans of all."""

    channels: tuple[str, ...]
    sent: tuple[int, ...]
    spans: tuple[Span, ...]

    @cached_property
    def _epochs(self) -> Mapping[int, Mapping[int, Sequence[Span]]]:
        """The spans of each channel, by epoch: whoever asks does so for many channels."""
        found: dict[int, dict[int, list[Span]]] = {}
        for span in self.spans:
            found.setdefault(span.number, {}).setdefault(span.epoch, []).append(span)
        return found

    def position(self, channel: int, epoch: int, seq: int) -> int:
        """Where this message stands; 0 for one that was never accepted."""
        for span in self._epochs.get(channel, {}).get(epoch, ()):
            if span.low <= seq <= span.high:
                return span.base + seq - span.low
        return 0

    def identity(self, channel: int, position: int) -> tuple[int, int]:
        """(epoch, seq) of the message at this position."""
        for spans in self._epochs.get(channel, {}).values():
            for span in spans:
                if span.base <= position <= span.base + span.high - span.low:
                    return span.epoch, span.low + position - span.base
        return 0, 0


def numbered(log: SentLog, came_out: Iterable[str] = ()) -> NumberedChannels:
    """Positions for everything in the log; channels that only came out have a number, too."""
    channels = sorted({name for name, epochs in log.accepted.items() if epochs} | set(came_out))
    spans: list[Span] = []
    sent: list[int] = []
    moves: dict[str, list[Row]] = {}
    for row in log.moves:
        moves.setdefault(row.pipe, []).append(row)
    for at, channel in enumerate(channels):
        positions, pieces = _positions(log.accepted[channel], moves.get(channel, ()))
        sent.append(positions.count)
        for epoch in sorted(pieces):
            for low, high in pieces[epoch]:
                spans += [
                    Span(channel, at, epoch, seq, seq + count - 1, position)
                    for seq, position, count in positions.find(epoch, low, high - low + 1)
                    if position
                ]
    return NumberedChannels(tuple(channels), tuple(sent), tuple(spans))


def _positions(
    accepted: Mapping[int, RangeSet], moves: Sequence[Row]
) -> tuple[Positions, dict[int, RangeSet]]:
    """Messages go to higher epochs only, so what comes into an epoch has its positions when its turn comes."""
    pieces = defaultdict(RangeSet, {epoch: RangeSet(ranges) for epoch, ranges in accepted.items()})
    moved: dict[int, list[tuple[Row, int]]] = defaultdict(list)
    for row in moves:
        epoch, seq = _target(row)
        moved[epoch].append((row, seq))
        pieces[epoch].add(seq, seq + row.count - 1)
    positions = Positions()
    for epoch in sorted(pieces):
        for row, seq in moved[epoch]:
            positions.move(row.epoch, row.seq, row.count, epoch, seq)
        for low, high in accepted.get(epoch, ()):
            positions.add(epoch, low, high - low + 1)
    return positions, pieces


def _target(row: Row) -> tuple[int, int]:
    facts = facts_of(row)
    return number(facts.get("epoch")) or 0, number(facts.get("seq")) or 0
