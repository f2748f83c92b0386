"""Orders to be replayed, and the functions that they go through."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import Stored
from surepipe.spark.stores import StorePlace
from tests.spark.streams import Streams

FUNCTIONS = """
def even(order):
    return order if order["n"] % 2 == 0 else None

def small(order):
    if order["n"] > 5:
        raise ValueError(f"{order['n']} is too much")
    return order
"""


def shop_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Ten orders in shop.db, in a folder that is the current one and has functions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "replayed_by", raising=False)
    (tmp_path / "replayed_by.py").write_text(FUNCTIONS)
    streams = Streams(StorePlace(str(tmp_path / "shop.db"), level="process")).create("orders")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, 11)]
    assert isinstance(streams.store.append("orders", "shop", 1, 1, payloads), Stored)
    return streams.create("parted", partitions=2).create("empty")


EVEN = ["--through", "replayed_by:even"]
OUT = ["--into", "out.db#even"]
