"""``surepipe relay``: two parties in SQLite files, and a relay that has nothing but a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from surepipe.actors.parties import ServedParty
from surepipe.cli.app import run
from surepipe.cli.relaying import RelayFile
from surepipe.core.store_requests import KEEP_ALL
from surepipe.errors import Fenced
from surepipe.queues.ibc import Transaction, TrustRoot, load_trust
from surepipe.queues.ibc.keys import QueueKey, Receipt
from surepipe.storage import SqliteStore


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[dict[str, ServedParty]]:
    """East and west, which take what the relay brings."""
    with ExitStack() as stack:
        found: dict[str, ServedParty] = {}
        for name in ("east", "west"):
            store = stack.enter_context(SqliteStore(tmp_path / f"{name}.db"))
            party = ServedParty(name, store=store, keys=tmp_path / f"{name}.keys")
            found[name] = stack.enter_context(party)
            party.module("app").handle("note", on_receive=_greet)
        yield found


def _greet(_: Transaction, data: bytes) -> bytes:
    return b"hello " + data


def _serve(parties: dict[str, ServedParty]) -> None:
    """Each knows the other, and both serve."""
    for name, other in (("east", "west"), ("west", "east")):
        parties[name].register(other, parties[other].identity())
        parties[name].serve()


def _file(folder: Path, more: str = "", east: str = "east") -> str:
    path = folder / "relay.yaml"
    path.write_text(
        f"""version: 1
parties:
  east: sqlite:///{folder}/east.db
  west: sqlite:///{folder}/west.db
paths: [{{ends: [{east}, west]{more}}}]
relay: {{poll_ms: 10}}
"""
    )
    return str(path)


def test_trust_goes_by_files_and_the_relay_carries_until_nothing_waits(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-34: the operators write and compare roots of trust; a status without work ends with 0."""
    for name, other in (("east", "west"), ("west", "east")):
        assert run(["relay", "trust", f"sqlite:///{tmp_path}/{other}.db"]) == 0
        (tmp_path / "trust").write_text(capsys.readouterr().out)
        trust = load_trust(tmp_path / "trust")
        assert isinstance(trust, TrustRoot)
        parties[name].register(other, trust)
    for party in parties.values():
        party.serve()
    index = parties["east"].module("app").send("west", "note", b"Ann")
    assert run(["relay", _file(tmp_path), "--status", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["pending"]["deliver"] == 1
    assert found["oldest"]["deliver"]["index"] == index
    assert run(["relay", _file(tmp_path), "--once", "--timeout-s", "60"]) == 0
    assert "nothing waits" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["an empty store", "another store's streams"])
def test_a_store_without_a_party_is_told_as_such(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-34: whoever names the wrong store hears that there is no party, not that headers can't be read."""
    with SqliteStore(tmp_path / "east.db") as store:
        if what != "an empty store":
            store.create("orders", 1, KEEP_ALL)
    assert run(["relay", "trust", f"sqlite:///{tmp_path}/east.db"]) == 2
    assert "has no party" in capsys.readouterr().err


def test_what_is_only_read_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """IB-34: whoever writes the name of a file wrongly has no new file of that name afterwards."""
    address = f"sqlite:///{tmp_path}/eats.db"
    for words in (["relay", "trust", address], ["audit", "--proofs", address, address]):
        assert run(words) == 2
        assert "there is no file" in capsys.readouterr().err
    assert not (tmp_path / "eats.db").exists()


def test_a_path_whose_store_has_no_party_says_which_it_is(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-122: under the names of the file, as nothing else is known."""
    del parties
    file = Path(_file(tmp_path))
    file.write_text(file.read_text().replace("west.db", "empty.db"))
    assert run(["relay", str(file), "--status"]) == 1
    said = capsys.readouterr().out
    assert "east-west: stalled: " in said
    assert "has no party yet" in said


@pytest.mark.long
def test_a_second_relay_of_one_name_ends_the_first_and_says_so(
    tmp_path: Path, parties: dict[str, ServedParty]
) -> None:
    """IB-120: each has its own inbox; the words say how to have two."""
    _serve(parties)
    send = parties["east"].module("app").send
    with RelayFile.read(Path(_file(tmp_path))) as first:
        send("west", "note", b"Ann")
        first.relay.settle(60)
        with RelayFile.read(Path(_file(tmp_path))) as second:
            send("west", "note", b"Bob")
            second.relay.settle(60)
            send("west", "note", b"Eve")
            with pytest.raises(Fenced, match="give each relay a name of its own"):
                first.relay.settle(60)
            second.relay.settle(60)


def test_who_only_looks_ends_no_relay_that_runs(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-120: `--status` and `--dry-run` of a file beside the relay of that file: it was ended by them."""
    _serve(parties)
    send = parties["east"].module("app").send
    with RelayFile.read(Path(_file(tmp_path))) as running:
        send("west", "note", b"Ann")
        running.relay.settle(60)
        assert run(["relay", _file(tmp_path), "--status"]) == 0
        assert run(["relay", _file(tmp_path), "--dry-run"]) == 0
        send("west", "note", b"Bob")
        running.relay.settle(60)
    assert "nothing waits" in capsys.readouterr().out


def test_ledgers_are_judged_by_what_they_show(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-131: both logs are replayed, and each kept proof is verified again; what was tampered with is found."""
    _serve(parties)
    parties["east"].module("app").send("west", "note", b"Ann")
    assert run(["relay", _file(tmp_path), "--once"]) == 0
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("east", "west")]
    capsys.readouterr()
    assert run(["audit", "--proofs", *stores, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["told"]
    assert (
        "west: of proofs by east, 1 are valid, 0 were refused rightly, 0 can't be judged any more"
        in told
    )
    block = parties["west"].merkle.begin()
    block.set("ibc", QueueKey("east", "receipt", "entry", 7).encode(), Receipt(0).encode())
    parties["west"].merkle.commit(block, parties["west"].merkle.latest.time_ms + 1)
    parties["west"].sign()
    assert run(["audit", "--proofs", *stores]) == 1
    assert "message 7 was answered and never sent" in capsys.readouterr().out


def test_what_is_held_back_is_shown(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-36."""
    for name, other in (("east", "west"), ("west", "east")):
        parties[name].register(other, parties[other].identity())
    parties["east"].module("app").send("west", "note", b"Ann")
    file = _file(tmp_path, ", deny: note")
    assert run(["relay", file, "--once", "--timeout-s", "0"]) == 1
    assert "held back: message 0 is of type 'note'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "east", "said"),
    [(", prioritty: 1", "east", "prioritty"), ("", "eats", "did you mean 'east'?")],
)
def test_a_file_that_can_not_be_used_says_what_to_write(
    tmp_path: Path, more: str, east: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key and a party that aren't there."""
    assert run(["relay", _file(tmp_path, more, east)]) == 2
    assert said in capsys.readouterr().err


def test_a_relay_says_what_it_would_do_and_carries_one_message_or_all_but_one(
    tmp_path: Path, parties: dict[str, ServedParty], capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-33, IB-36: of an unordered connection one message alone is carried, then what isn't to be skipped, then
    all. A dry run changes nothing."""
    for name, other in (("east", "west"), ("west", "east")):
        parties[name].register(other, parties[other].identity(), order="unordered")
        parties[name].serve()
    for data in (b"Ann", b"Bob", b"Eve"):
        parties["east"].module("app").send("west", "note", data)
    file = _file(tmp_path)

    def left() -> int:
        capsys.readouterr()
        run(["relay", file, "--status", "--json"])
        (found,) = json.loads(capsys.readouterr().out)
        return int(found["pending"]["deliver"])

    assert run(["relay", file, "--dry-run"]) == 0
    assert "to west: header" in (said := capsys.readouterr().out)
    assert "receive of 0, 1, 2" in said
    assert left() == 3
    assert run(["relay", file, "--clear", "east/west:1", "--timeout-s", "60"]) == 1
    assert left() == 2
    assert run(["relay", file, "--once", "--skip", "east/west:2", "--timeout-s", "0.5"]) == 1
    assert left() >= 1
    assert run(["relay", file, "--clear", "east/west", "--timeout-s", "60"]) == 0
    assert run(["relay", file, "--dry-run", "--json"]) == 0
    assert run(["relay", file, "--clear", "north/west"]) == 2
    assert "there are east/west-west/east" in capsys.readouterr().err


def test_an_address_comes_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """IB-34: as in the file of a pipeline, so that no password stands in a file; what isn't set is named."""
    file = tmp_path / "relay.yaml"
    file.write_text(
        """version: 1
parties: {east: "${EAST_REDIS}", west: "redis://two/0"}
paths: [{ends: [east, west]}]
"""
    )
    monkeypatch.delenv("EAST_REDIS", raising=False)
    assert run(["relay", "acl", str(file)]) == 2
    assert "EAST_REDIS, which is not set" in capsys.readouterr().err
    monkeypatch.setenv("EAST_REDIS", "redis://carrier:hidden@one/0")
    assert run(["relay", "acl", str(file)]) == 0
    said = capsys.readouterr().out
    assert "SETUSER carrier on" in said
    assert "hidden" not in said


def test_the_account_of_a_relay_is_printed_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """IB-120: one line for each server: reads the parties, writes the inboxes of this relay; of files it is told
    that there is no such right."""
    file = tmp_path / "relay.yaml"
    file.write_text(
        f"""version: 1
parties:
  east: redis://carrier:hidden@one/0
  north: redis://carrier:hidden@one/0?pipeline=shop
  west: sqlite:///{tmp_path}/west.db
paths: [{{ends: [east, west]}}, {{ends: [north, west]}}]
relay: {{name: second}}
"""
    )
    assert run(["relay", "acl", str(file)]) == 0
    said = capsys.readouterr().out
    assert "hidden" not in said
    (line,) = (each for each in said.splitlines() if each.startswith("ACL SETUSER carrier on "))
    assert [word for word in line.split() if "~" in word] == [
        "%R~sp:{east}:*",
        "%R~sp:{shop}:*",
        "~sp:{east/ibc/inbox/second}:*",
        "~sp:{shop/ibc/inbox/second}:*",
    ]
    assert "# west, sqlite:///" in said
    assert not (tmp_path / "west.db").exists()
