"""The examples run and say what they should."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from surepipe.queues.ibc import Party, Transaction
from surepipe.testing.parties import UnfairRelay

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_two_parties_greet_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Run as a program, its output read; its parties take twenty lines."""
    runpy.run_path(str(EXAMPLES / "ibc_greeting.py"), run_name="__main__")
    assert capsys.readouterr().out == "[b'hello Ann', (b'Eve', 100), b'hello Bob']\n"


def test_two_banks_lose_and_make_no_money(capsys: pytest.CaptureFixture[str]) -> None:
    """IT-17, I-17: what it asserts after each transfer holds."""
    runpy.run_path(str(EXAMPLES / "ibc_bank.py"), run_name="__main__")
    assert capsys.readouterr().out.startswith("east: 2500 tokens")


class Shop:
    """Counts what it was given: a module with a promise, which a relay of no good will may not break."""

    def __init__(self, party: Party) -> None:
        self.module = party.module("shop")
        self.module.handle("sale", on_receive=self._sold, on_commit=self._paid)

    def _sold(self, tx: Transaction, data: bytes) -> bytes:
        tx.set(b"sold", (tx.get(b"sold") or b"") + data)
        return data

    def _paid(self, tx: Transaction, data: bytes, result: bytes) -> None:
        assert data == result
        tx.set(b"paid", (tx.get(b"paid") or b"") + data)


def test_an_unfair_relay_breaks_nothing(unfair_relay: UnfairRelay) -> None:
    """IT-43, I-3, I-4: by the fixture that users have."""
    with Party("east") as east, Party("west") as west:
        here, there = Shop(east), Shop(west)
        east.register("west", west.identity())
        west.register("east", east.identity())
        for number in range(9):
            here.module.send("west", "sale", b"%d" % number)
        unfair_relay(east, west).settle(60)
        assert there.module.get(b"sold") == here.module.get(b"paid") == b"012345678"
