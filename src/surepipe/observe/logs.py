"""Log records as lines of JSON, with the identity of the message that they concern."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from surepipe.actors.notices import PipeNotice
from surepipe.actors.tracing import Columns

logger = logging.getLogger("surepipe")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a trace, as text and as the words of a line."""

    columns: Columns

    def __str__(self) -> str:
        words = self.words()
        first, count = int(self.columns.get("seq", 0)), int(self.columns.get("count", 0))
        span = f"message {first}" if count == 1 else f"messages {first} to {first + count - 1}"
        which = f", {span}" if count else ""
        return f"pipe {words['pipe']}: {words['kind']}, epoch {words['epoch']}{which} {words['detail']}"

    def words(self) -> dict[str, object]:
        first, count = int(self.columns.get("seq", 0)), int(self.columns.get("count", 0))
        return {
            "pipe": self.columns["pipe"],
            "end": self.columns["node"],
            "kind": self.columns["kind"],
            "epoch": self.columns.get("epoch", 0),
            "ranges": [[first, first + count - 1]] if count else [],
            "detail": self.columns.get("detail", ""),
        }


class LoggedRows:
    """Logs what an operator wants to know of a trace, with the identities of the messages: those that became dead
    letters or were rejected, and crashes."""

    with_digests = False

    def write(self, columns: Columns) -> None:
        """Take a row of the trace."""
        if columns["kind"] in ("dead", "rejected", "crash"):
            logger.warning("%s", _Row(columns))


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, text; of messages also pipe, end, kind, epoch, ranges, detail,
    of a notice the producer, too."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "text": record.getMessage(),
        }
        arguments = record.args if isinstance(record.args, tuple) else ()
        for argument in arguments:
            if isinstance(argument, PipeNotice):
                line |= {
                    "pipe": argument.pipe,
                    "end": argument.end,
                    "kind": str(argument.kind),
                    "producer": argument.producer,
                    "epoch": argument.epoch,
                    "ranges": [list(span) for span in argument.ranges],
                    "detail": argument.detail,
                }
            elif isinstance(argument, _Row):
                line |= argument.words()
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as_json(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Write what surepipe logs as lines of JSON, to stderr unless told otherwise.

    Gives the handler, so that it can be removed.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
