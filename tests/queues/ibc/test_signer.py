"""Who signs: a height once, also after crashes; a store that lost what it had stops the party."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from surepipe.core.store_requests import (
    AppendRun,
    Store,
    StoreOutcome,
    StoreRequest,
    Together,
    Unavailable,
)
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.queues.ibc import Header, IbcRefused, Party, Signer, load_trust, save_trust
from surepipe.storage import SqliteStore
from surepipe.storage.memory import MemoryStore
from tests.queues.ibc.party_pair import Time


class Silent(MemoryStore):
    """Does what it is asked, and doesn't say so; headers it doesn't store either."""

    silent_to: type | None = None

    def ask(self, request: StoreRequest) -> StoreOutcome:
        is_silent = self.silent_to is not None and isinstance(request, self.silent_to)
        if is_silent and isinstance(request, AppendRun):
            return Unavailable("not done")
        answer = super().ask(request)
        return Unavailable("no answer") if is_silent else answer


def party_of(store: Store, keys: Path | list[bytes], *, adopt: bool = False) -> Party:
    """East, with a module."""
    time = Time()
    party = Party("east", store=store, keys=keys, adopt=adopt, clock=time.wall_ms)
    party.module("app")
    return party


def write(party: Party, value: bytes = b"v") -> None:
    """One block."""
    party.module("app").execute(lambda tx: tx.set(b"key", value))


def test_a_run_of_headers_is_remembered_at_once_and_before_it_is_signed(tmp_path: Path) -> None:
    """IB-111: a later process refuses another header of each of them."""
    signer = Signer.of_file(tmp_path / "keys")
    own = signer.validators.hash
    run = [Header("east", height, height, bytes(32), own, own) for height in range(1, 200)]
    assert [each.header for each in signer.sign(run)] == run
    later = Signer.of_file(tmp_path / "keys")
    for header in (run[0], run[100], run[-1]):
        with pytest.raises(IbcRefused, match="signer-guard"):
            later.sign([replace(header, root=bytes([1]) * 32)])
    assert [each.header for each in later.sign(run)] == run


def test_a_height_is_signed_once(tmp_path: Path) -> None:
    """I-14: again the same bytes, never others, also by a process that was started later."""
    signer = Signer.of_file(tmp_path / "keys")
    own = signer.validators.hash
    first, other = (Header("east", 1, ms, bytes(32), own, own) for ms in (1, 2))
    signed = signer.sign([first])
    later = Signer.of_file(tmp_path / "keys")
    assert later.sign([first]) == signed
    with pytest.raises(IbcRefused, match="signer-guard"):
        later.sign([other])
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0


def test_a_file_that_is_none_of_keys_is_told(tmp_path: Path) -> None:
    """IB-20: and a store that outlives the party needs one."""
    (tmp_path / "keys").write_text("hello\n")
    with pytest.raises(ConfigurationError, match="no file of keys"):
        Signer.of_file(tmp_path / "keys")
    with (
        SqliteStore(tmp_path / "east.db") as store,
        pytest.raises(ConfigurationError, match="keys=PATH"),
    ):
        Party("east", store=store)


def test_blocks_that_were_stored_and_not_signed_are_signed_at_the_next_start(
    tmp_path: Path,
) -> None:
    """IB-3: the store was silent between a block and its header. The call was done; the header comes later."""
    store = Silent()
    party = party_of(store, tmp_path / "keys")
    height = party.merkle.latest.height
    store.silent_to = AppendRun
    write(party)
    write(party, b"w")
    store.silent_to = None
    party.view.refresh()
    assert (party.merkle.latest.height, party.view.height) == (height + 2, height)
    again = party_of(store, tmp_path / "keys")
    again.view.refresh()
    assert again.view.height == height + 2
    root = again.merkle.version(height + 1).root
    assert again.view.header(height + 1).header.root == root


@pytest.mark.parametrize("lost", ["store", "guard", "both"])
def test_a_store_or_a_guard_that_is_lost_stops_the_party(tmp_path: Path, lost: str) -> None:
    """IT-32, IT-70, IB-116: both lost is a new party; one alone is told, and never signed over."""
    keys, guard = tmp_path / "keys", tmp_path / "keys.guard"
    with SqliteStore(tmp_path / "east.db") as store:
        write(party_of(store, keys))
    if lost in ("store", "both"):
        (tmp_path / "east.db").unlink()
    if lost in ("guard", "both"):
        guard.unlink()
    with SqliteStore(tmp_path / "east.db") as store:
        if lost == "both":
            write(party_of(store, keys))
            return
        with pytest.raises(IbcRefused, match="signer-guard"):
            party_of(store, keys)
        if lost == "guard":
            write(party_of(store, keys, adopt=True), b"w")


def test_a_store_that_went_back_stops_the_party(tmp_path: Path) -> None:
    """IT-32: behind a height that was signed."""
    store = MemoryStore()
    party = party_of(store, tmp_path / "keys")
    write(party)
    before = store.snapshot()
    write(party, b"w")
    store.roll_back(before)
    with pytest.raises(IbcRefused, match="signer-guard"):
        party_of(store, tmp_path / "keys")


def test_the_older_of_two_processes_is_fenced(tmp_path: Path) -> None:
    """IB-6, IT-61: it neither executes nor signs again."""
    store = MemoryStore()
    older = party_of(store, tmp_path / "keys")
    newer = party_of(store, tmp_path / "keys")
    write(newer)
    with pytest.raises(Fenced):
        write(older)
    write(newer, b"w")


def test_a_store_of_another_party_is_told() -> None:
    """IB-100."""
    store = MemoryStore()
    party_of(store, [bytes(32)])
    with pytest.raises(IbcRefused, match="wrong-party"):
        Party("west", store=store, keys=[bytes(32)])


def test_a_root_of_trust_goes_through_a_file(tmp_path: Path) -> None:
    """IB-14."""
    trust = party_of(MemoryStore(), [bytes(32)]).identity()
    save_trust(tmp_path / "east.trust", trust)
    assert load_trust(tmp_path / "east.trust") == trust


@pytest.mark.parametrize("content", [b"", b"hello", b"deadbeef\n", b"\xff\xfe", None])
def test_files_that_are_not_what_they_should_be_are_told(
    content: bytes | None, tmp_path: Path
) -> None:
    """IB-14, IB-20: of trust, of keys, and the guard; each says what to do, and none is overwritten."""
    for name in ("trust", "keys"):
        if content is None:
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match="surepipe relay trust"):
        load_trust(tmp_path / "trust")
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        Party("east", store=MemoryStore(), keys=tmp_path / "keys")
    if content is not None:
        assert (tmp_path / "keys").read_bytes() == content
        party_of(MemoryStore(), tmp_path / "good")
        (tmp_path / "good.guard").write_bytes(content)
        with pytest.raises(ConfigurationError, match="bring it back from a copy"):
            party_of(MemoryStore(), tmp_path / "good")


def test_a_call_without_an_answer_is_found_out_by_the_next(tmp_path: Path) -> None:
    """IB-101: it was stored, once."""
    store = Silent()
    party = party_of(store, tmp_path / "keys")
    height = party.merkle.latest.height
    store.silent_to = Together
    with pytest.raises(StoreUnavailable):
        write(party)
    store.silent_to = None
    write(party, b"w")
    assert party.merkle.latest.height == height + 2
    assert party.module("app").get(b"key") == b"w"
