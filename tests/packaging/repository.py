"""The repository as its readers get it: every file that .gitignore lets through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

ROOT = Path(__file__).resolve().parents[2]
ROOT_LINKS = ("pipes", "actors", "storage")


def published_files(root: Path = ROOT) -> list[Path]:
    """Every file of the tree that is neither ignored, nor behind a link, nor git's own."""
    ignored = GitIgnoreSpec.from_lines((root / ".gitignore").read_text().splitlines())
    return sorted(_walk(root, root, ignored))


def _walk(folder: Path, root: Path, ignored: GitIgnoreSpec) -> Iterator[Path]:
    for entry in folder.iterdir():
        name = entry.relative_to(root).as_posix()
        if entry.is_symlink() or entry.name == ".git":
            continue
        if entry.is_dir():
            if not ignored.match_file(name + "/"):
                yield from _walk(entry, root, ignored)
        elif not ignored.match_file(name):
            yield entry
