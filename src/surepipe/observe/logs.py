"""Log records as lines of JSON, with the identity of the message that they concern."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

from surepipe.actors.notices import PipeNotice


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, text; for notices also pipe, end, kind, epoch and ranges."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
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
                    "epoch": argument.epoch,
                    "ranges": [list(span) for span in argument.ranges],
                }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as_json(stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Write what surepipe logs as lines of JSON, to stderr unless told otherwise.

    Gives the handler, so that it can be removed.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("surepipe")
    logger.addHandler(handler)
    logger.setLevel(level)
    return handler
