"""Serves what the pipes of a program do, for ``surepipe top`` and for whoever else asks for the status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from surepipe.observe.serving import DEFAULT_PORT, LOCAL, Answer, PageServer
from surepipe.observe.watch import Watch


def status_pages(watch: Watch) -> Mapping[str, Callable[[], Answer]]:
    """The status at ``/status.json``, and one word of it at ``/health``."""

    def status() -> Answer:
        return Answer("application/json", watch.status().model_dump_json(by_alias=True))

    return {
        "/health": lambda: Answer("text/plain", f"{watch.state}\n"),
        "/status.json": status,
    }


class StatusServer:
    """Serves the status of a watch while it is open, and takes a sample of it each second, so that it has a past.

    Port 0 takes any that is free. Raises ConfigurationError when the port can't be had.
    """

    def __init__(self, watch: Watch, *, port: int = DEFAULT_PORT, address: str = LOCAL) -> None:
        self._server = PageServer(
            status_pages(watch), port=port, address=address, what="the status"
        )
        self._stop_looking = watch.keep_looking()
        self.port: int = self._server.port
        self.url = f"{self._server.url}status.json"

    def close(self) -> None:
        """Stop serving. A repeat does nothing."""
        self._server.close()
        self._stop_looking()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
