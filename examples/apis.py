"""Calls to the APIs of tenants: the functions of ``tenants.yaml``."""

from __future__ import annotations

from collections.abc import Mapping

from surepipe.queues.book import Later, Rejected

Request = Mapping[str, object]
RESTING = {"dan": 1}
"""Tenants whose API asks for a pause, and how often it does."""


def cost(request: Request) -> int:
    """Units of the rate limit: one, and one more for each thousand bytes that are sent."""
    return 1 + len(str(request.get("body", ""))) // 1_000


def call(request: Request) -> Mapping[str, object] | Later | Rejected:
    """The call itself would be here. 429 would be ``Later``, so others go on and no attempt is counted."""
    tenant, path = str(request["tenant"]), str(request.get("path", ""))
    if not path.startswith("/"):
        return Rejected("BAD_FORMAT")
    if RESTING.get(tenant):
        RESTING[tenant] -= 1
        return Later(after_s=0.05)
    return {"tenant": tenant, "number": request["number"], "answer": f"200 {path}"}
