"""What a power cut leaves of files."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.testing.forgetful import ForgetfulDisk


def test_what_was_not_synced_is_gone() -> None:
    """X-66: the bytes before the sync stay, those after it go."""
    disk = ForgetfulDisk()
    disk.create("/log", 0o600)
    disk.write("/log", b"kept", 0)
    disk.sync("/log")
    disk.write("/log", b" and lost", 4)
    assert disk.cut() == 9
    assert disk.read("/log", 99, 0) == b"kept"


def test_bytes_that_were_overwritten_come_back() -> None:
    """Inside the file, shorter and longer."""
    disk = ForgetfulDisk()
    disk.create("/log", 0o600)
    disk.write("/log", b"abcdef", 0)
    disk.sync("/log")
    disk.write("/log", b"XY", 2)
    disk.truncate("/log", 3)
    disk.cut()
    assert disk.read("/log", 99, 0) == b"abcdef"


def test_by_chance_the_beginning_of_what_changed_got_through() -> None:
    """F31: a torn tail."""
    disk = ForgetfulDisk()
    disk.create("/log", 0o600)
    disk.write("/log", b"abc", 0)
    disk.sync("/log")
    disk.write("/log", b"defgh", 3)
    assert disk.cut(keep=2) == 3
    assert disk.read("/log", 99, 0) == b"abcde"


def test_a_name_is_durable_once_anything_was_synced_after_it() -> None:
    """A file that was made, one that was moved and one that was removed; before a sync none of it counts."""
    disk = ForgetfulDisk()
    for name in ("/a", "/b", "/other"):
        disk.create(name, 0o600)
    disk.sync("/other")
    disk.create("/new", 0o600)
    disk.rename("/a", "/moved")
    disk.remove("/b")
    disk.cut()
    assert sorted(disk.list("/")) == ["a", "b", "other"]
    disk.rename("/a", "/moved")
    disk.sync("/other")
    disk.cut()
    assert sorted(disk.list("/")) == ["b", "moved", "other"]


def test_a_name_may_be_durable_before_the_bytes_are() -> None:
    """The file is there and empty: why a journal syncs the file before it renames."""
    disk = ForgetfulDisk()
    disk.create("/new", 0o600)
    disk.write("/new", b"content", 0)
    disk.sync("/")
    disk.cut()
    assert disk.read("/new", 99, 0) == b""


def test_a_disk_that_lies_keeps_nothing() -> None:
    """X-65: sync answers, and the cut takes it all."""
    disk = ForgetfulDisk()
    disk.create("/log", 0o600)
    disk.settle()
    disk.lies = True
    disk.write("/log", b"trusted", 0)
    disk.sync("/log")
    assert (disk.syncs, disk.cut()) == (1, 7)
    assert disk.read("/log", 99, 0) == b""


def test_folders_move_with_what_they_hold() -> None:
    """A file inside, and a name that only begins alike."""
    disk = ForgetfulDisk()
    disk.make_folder("/in", 0o700)
    disk.create("/in/file", 0o600)
    disk.create("/into", 0o600)
    disk.rename("/in", "/out")
    assert sorted(disk.list("/")) == ["into", "out"]
    assert disk.list("/out") == ["file"]


Act = Callable[[ForgetfulDisk], object]
REFUSED: list[tuple[Act, int]] = [
    (lambda disk: disk.read("/none", 1, 0), errno.ENOENT),
    (lambda disk: disk.create("/none/file", 0o600), errno.ENOENT),
    (lambda disk: disk.write("/full", b"x", 0), errno.EISDIR),
    (lambda disk: disk.remove("/full"), errno.ENOTEMPTY),
    (lambda disk: disk.make_folder("/full", 0o700), errno.EEXIST),
    (lambda disk: disk.list("/full/file"), errno.ENOTDIR),
]


@pytest.mark.parametrize(("act", "number"), REFUSED)
def test_what_can_not_be_done_is_refused_as_a_system_would(act: Act, number: int) -> None:
    """The error number of the system call."""
    disk = ForgetfulDisk()
    disk.make_folder("/full", 0o700)
    disk.create("/full/file", 0o600)
    with pytest.raises(OSError, match=r".") as refused:
        act(disk)
    assert refused.value.errno == number


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 30), st.binary(min_size=1, max_size=9)),
        st.tuples(st.just("truncate"), st.integers(0, 30), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=25,
)


@given(STEPS)
def test_a_cut_leaves_the_file_as_it_was_at_its_last_sync(
    steps: list[tuple[str, int, bytes]],
) -> None:
    """Any writes, cuts to length and syncs, against a plain copy."""
    disk, at_last_sync = ForgetfulDisk(), b""
    disk.create("/f", 0o600)
    disk.sync("/f")
    for verb, offset, data in steps:
        if verb == "write":
            disk.write("/f", data, offset)
        elif verb == "truncate":
            disk.truncate("/f", offset)
        else:
            disk.sync("/f")
            at_last_sync = disk.read("/f", 999, 0)
    disk.cut()
    assert disk.read("/f", 999, 0) == at_last_sync
