"""A running pipeline, to look at: as one JSON value, as a picture, and as a page in a browser."""

from __future__ import annotations

from surepipe.pipelines.live.observing import Looks, Observing, parts_of, serve, watch
from surepipe.pipelines.live.page import live_page

__all__ = ["Looks", "Observing", "live_page", "parts_of", "serve", "watch"]
