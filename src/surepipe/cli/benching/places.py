"""Where a bench keeps what it writes while it runs; all of it is removed at the end."""

from __future__ import annotations

import secrets
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from surepipe.cli.benching.counting import StoreCount, remove_keys
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.pipes import TcpRoute, Tls
from surepipe.pipelines.models.stores import RedisStorePart
from surepipe.pipelines.settings import SecretSetting, Setting
from surepipe.testing.certificates import Authority
from surepipe.testing.servers import free_port

PREFIX = ".surepipe-bench-"


class Places:
    """Temporary places: the same one for the same original. Use it as a context."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._folders: dict[Path, Path] = {}
        self._files: dict[Path, Setting] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._ports: dict[str, int] = {}
        self._tls: Tls | None = None
        self._counts: dict[str, StoreCount] = {}
        self._run = secrets.token_hex(4)
        self._secret = secrets.token_hex(32)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()

    def count_of(self, store: str) -> StoreCount:
        """What a store is asked, by the store's name."""
        return self._counts.setdefault(store, StoreCount())

    def sqlite(self, path: str) -> Setting:
        """A file in a folder beside the original, so on the same disk."""
        original = Path(path).absolute()
        if original not in self._files:
            folder = self._folder_beside(original)
            self._files[original] = _literal(str(folder / f"{len(self._files)}.db"))
        return self._files[original]

    def _folder_beside(self, original: Path) -> Path:
        near = next(folder for folder in original.parents if folder.is_dir())
        if near not in self._folders:
            try:
                made = tempfile.TemporaryDirectory(prefix=PREFIX, dir=near)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise ConfigurationError(
                    f"a bench of {original} needs a folder beside it, and {near} takes none: {reason}"
                ) from None
            self._folders[near] = Path(self._held.enter_context(made))
        return self._folders[near]

    def redis_keys(self, part: RedisStorePart, pipeline: str) -> str:
        """A name that no key on the server has. What is written under it is removed at the end."""
        url, written = part.url.reveal(), part.keys or pipeline
        self._held.callback(remove_keys, url, self.count_of(part.name))
        name = f"surepipe-bench-{self._run}-{len(self._keys)}"
        return self._keys.setdefault((url, written), name)

    def link(self, route: TcpRoute) -> TcpRoute:
        """The same link on this machine, with a key or certificates made for it."""
        port = self._ports.setdefault(route.address.written, 0) or free_port()
        self._ports[route.address.written] = port
        changed: dict[str, object] = {"address": Setting(f"127.0.0.1:{port}")}
        if route.secret is not None:
            changed["secret"] = SecretSetting(self._secret)
        if route.tls is not None:
            changed["tls"] = self._certificates()
        return route.model_copy(update=changed)

    def _certificates(self) -> Tls:
        if self._tls is None:
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
            authority = Authority(folder, "bench")
            files = authority.sign("bench-node")
            cert, key, ca = map(_literal, map(str, (files.cert, files.key, authority.ca)))
            self._tls = Tls(cert=cert, key=key, ca=ca)
        return self._tls


def _literal(text: str) -> Setting:
    return Setting(text.replace("$", "$$"))
