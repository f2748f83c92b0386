"""The methods of a store as requests: for a store that is asked by requests, so that it can be called too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from surepipe.store_api import (
    AppendOutcome,
    AppendRun,
    ClaimOutcome,
    ClaimReader,
    CommitOutcome,
    CommitPosition,
    CreateOutcome,
    CreateStream,
    DescribeStream,
    Failed,
    GetOutcome,
    GetPosition,
    Hint,
    IdentifyEntry,
    IdentifyOutcome,
    InfoOutcome,
    OpenOutcome,
    OpenProducer,
    ReadFrom,
    ReadOutcome,
    Retention,
    StoreOutcome,
    StoreRequest,
    TrimBefore,
    TrimOutcome,
    Unavailable,
    WaitForMore,
)


class StoreVerbs(ABC):
    """Each method of ``StreamStore`` and ``IndexStore`` asks ``_do``, which gives an outcome of that request."""

    @abstractmethod
    def _do(self, request: StoreRequest) -> StoreOutcome:
        """The outcome of a request."""

    def create(self, stream: str, partitions: int, retention: Retention) -> CreateOutcome:
        """See ``StreamStore.create``."""
        return cast("CreateOutcome", self._do(CreateStream(stream, partitions, retention)))

    def open_producer(self, stream: str, producer: str, epoch: int, base: int) -> OpenOutcome:
        """See ``StreamStore.open_producer``."""
        return cast("OpenOutcome", self._do(OpenProducer(stream, producer, epoch, base)))

    def append(
        self, stream: str, producer: str, epoch: int, first: int, payloads: Sequence[bytes]
    ) -> AppendOutcome:
        """See ``StreamStore.append``."""
        run = AppendRun(stream, producer, epoch, first, payloads)
        return cast("AppendOutcome", self._do(run))

    def read(
        self,
        stream: str,
        index: int,
        max_messages: int,
        max_bytes: int,
        incarnation: int | None = None,
    ) -> ReadOutcome:
        """See ``StreamStore.read``."""
        request = ReadFrom(stream, index, max_messages, max_bytes, incarnation)
        return cast("ReadOutcome", self._do(request))

    def identify(self, stream: str, index: int) -> IdentifyOutcome:
        """See ``StreamStore.identify``."""
        return cast("IdentifyOutcome", self._do(IdentifyEntry(stream, index)))

    def trim(self, stream: str, before: int) -> TrimOutcome:
        """See ``StreamStore.trim``."""
        return cast("TrimOutcome", self._do(TrimBefore(stream, before)))

    def wait(self, stream: str, index: int, timeout_us: int) -> Hint | Failed | Unavailable:
        """See ``StreamStore.wait``."""
        request = WaitForMore(stream, index, timeout_us)
        return cast("Hint | Failed | Unavailable", self._do(request))

    def info(self, stream: str) -> InfoOutcome:
        """See ``StreamStore.info``."""
        return cast("InfoOutcome", self._do(DescribeStream(stream)))

    def claim(self, stream: str, reader: str, claimant: int) -> ClaimOutcome:
        """See ``IndexStore.claim``."""
        return cast("ClaimOutcome", self._do(ClaimReader(stream, reader, claimant)))

    def get(self, stream: str, reader: str) -> GetOutcome:
        """See ``IndexStore.get``."""
        return cast("GetOutcome", self._do(GetPosition(stream, reader)))

    def commit(self, request: CommitPosition) -> CommitOutcome:
        """See ``IndexStore.commit``."""
        return cast("CommitOutcome", self._do(request))
