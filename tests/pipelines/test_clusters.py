"""The file of a replicated queue, and what is said of one that can't be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.clusters import ClusterFile, accept
from surepipe.queues.rmq import QueueSettings

ADDRESSES = {"n1": "127.0.0.1:7101", "n2": "127.0.0.1:7102"}


def _file(folder: Path) -> Path:
    settings = QueueSettings(slot_timeout_us=250_000, is_trusting=True)
    made = ClusterFile.new(
        folder / "cluster.yaml", "orders", ADDRESSES, process="shop:price", settings=settings
    )
    return made.path


def test_a_file_is_written_once_and_says_what_it_was_made_with(tmp_path: Path) -> None:
    """rmq RQ-95: over nothing that exists; keys and secret are its owner's alone."""
    found = ClusterFile.read(_file(tmp_path))
    assert found.foundation.settings == QueueSettings(slot_timeout_us=250_000, is_trusting=True)
    assert (found.addresses, found.process) == (ADDRESSES, "shop:price")
    for private in ("n1.key", "n2.key", "link.secret"):
        assert (tmp_path / private).stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigurationError, match=r"cluster\.yaml is there already"):
        _file(tmp_path)
    found.path.unlink()
    with pytest.raises(ConfigurationError, match=r"link\.secret is there already"):
        _file(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("kind: rmq", "kind: rmqq", "kind is 'rmqq'"),
        ("faults: byzantine", "fault: crash", "'fault' is no key of the file of a cluster"),
        ("faults: byzantine", "faults: some", "known are byzantine, crash"),
        ("slot_timeout_s: 0.25", "slot_timeouts: 1", "did you mean 'slot_timeout_s'?"),
        ("slot_timeout_s: 0.25", "slot_timeout_s: -1", "a number above 0"),
        ("validate: trust", "validate: never", "recompute or trust"),
        ("validate: trust", "batch_max: 0.5", "a whole number above 0"),
        ("validate: trust", "batch_max: 5000", "a full batch doesn't fit into an entry"),
        ("127.0.0.1:7102", "127.0.0.1:7101", "n1 and n2 have one address"),
        ("127.0.0.1:7102", "127.0.0.1", "host:port"),
        ('key: "', 'key: "zz', "a public key has 64 digits"),
        ("shop:price", "shop.py", "a function is written 'module:function'"),
        ('"n1"', '"n 1"', "letters, digits"),
        ("nodes:", "notes:", "needs 'nodes'"),
    ],
)
def test_typos_are_refused_with_their_line(
    tmp_path: Path, before: str, after: str, said: str
) -> None:
    """rmq RQ-96."""
    file = _file(tmp_path)
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    with pytest.raises(ConfigurationError) as refused:
        ClusterFile.read(file)
    told = str(refused.value)
    assert said in told
    assert told.startswith(f"{file}:")


def test_a_node_needs_its_own_key(tmp_path: Path) -> None:
    """rmq RQ-96: an unknown name, a key that isn't there or is another one's, no secret."""
    found = ClusterFile.read(_file(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no node 'n3': .*n1"):
        found.open("n3", process=accept)
    (tmp_path / "n1.key").write_bytes(bytes(32))
    with pytest.raises(ConfigurationError, match="another key than the one of n1"):
        found.open("n1", process=accept)
    (tmp_path / "n1.key").unlink()
    with pytest.raises(ConfigurationError, match=r"n1\.key isn't there"):
        found.open("n1", process=accept)
    (tmp_path / "link.secret").unlink()
    with pytest.raises(ConfigurationError, match="the secret of the links"):
        found.connect()
