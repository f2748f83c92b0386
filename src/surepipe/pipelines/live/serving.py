"""Serves a running pipeline on this machine: the page, and the status as JSON."""

from __future__ import annotations

import base64
import hashlib

from surepipe.observe.serving import DEFAULT_PORT, LOCAL, Answer, PageServer
from surepipe.observe.watch import Watch
from surepipe.pipelines.assessing import Assessment
from surepipe.pipelines.drawing.diagram import diagram_of
from surepipe.pipelines.drawing.svg import STYLE
from surepipe.pipelines.live.looks import PAGE_SCRIPT, PAGE_STYLE
from surepipe.pipelines.live.page import live_page

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    f"form-action 'none'; style-src 'self' 'sha256-{_STYLE_HASH}'"
)
"""Nothing but what this server gives; the one style inside the page is that of the picture."""


def serve(
    assessment: Assessment, watch: Watch, *, port: int = DEFAULT_PORT, address: str = LOCAL
) -> PageServer:
    """Serve the page at ``/``, the status at ``/status.json``, and one word of it at ``/health``.

    Raises ConfigurationError for a port in use.
    """
    diagram = diagram_of(assessment.plan, assessment)

    def page() -> Answer:
        return Answer("text/html", live_page(diagram, watch.status()), POLICY)

    def status() -> Answer:
        return Answer("application/json", watch.status().model_dump_json(by_alias=True))

    def health() -> Answer:
        return Answer("text/plain", f"{watch.state}\n")

    return PageServer(
        {
            "/health": health,
            "/": page,
            "/status.json": status,
            "/page.css": lambda: Answer("text/css", PAGE_STYLE),
            "/page.js": lambda: Answer("text/javascript", PAGE_SCRIPT),
        },
        port=port,
        address=address,
    )
