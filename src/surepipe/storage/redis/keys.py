"""The names of all keys that a pipeline has on a Redis server.

| key                     | type   | holds                                                     |
| ----------------------- | ------ | --------------------------------------------------------- |
| ``sp:{tag}:layout``     | string | version of this layout                                    |
| ``sp:{tag}:s:<stream>`` | stream | pages; the entry id is the index of a page's first message |
| ``sp:{tag}:h:<stream>`` | hash   | head: incarnation, next, earliest, retention, readers     |
| ``sp:{tag}:p:<stream>`` | hash   | producer to epoch and last seq                            |
| ``sp:{tag}:i``          | hash   | reader to position and owner                              |
| ``sp:{tag}:k:<table>``  | hash   | a table: key to value                                     |
| ``sp:{tag}:m:<mark>``   | stream | a mark: one entry, whose id is how often it was raised     |
| ``sp:{tag}:u:<name>``   | any    | the caller's own, for transactions                        |

The braces make a Redis Cluster hash the tag only, so all keys of one tag live on one node and one script can
change them together. The tag is the pipeline's name; with ``spread="stream"`` each stream (with its partitions)
has a tag of its own, and then no transaction spans two streams. Tables and marks are tagged by their names as
streams are: of one name with a stream they can be written with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from surepipe.errors import ConfigurationError

LAYOUT_VERSION = "2"
Spread = Literal["pipeline", "stream"]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one pipeline."""

    pipeline: str
    spread: Spread = "pipeline"

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.pipeline), str):
            raise ConfigurationError(f"the name of a pipeline is {self.pipeline!r}: write a text")
        if not self.pipeline or set(self.pipeline) & set("{}"):
            raise ConfigurationError(
                f"a pipeline on Redis can't be called {self.pipeline!r}: the name stands between braces in each"
                " key, so it must not be empty and must not hold a brace"
            )

    def tag(self, stream: str) -> str:
        """What the cluster hashes for this stream's keys. All partitions of a stream have the same tag."""
        if self.spread == "pipeline":
            return self.pipeline
        base, sign, number = stream.rpartition("#")
        return f"{self.pipeline}/{base if sign and number.isdecimal() else stream}"

    def layout(self, tag: str) -> str:
        """The layout version."""
        return f"sp:{{{tag}}}:layout"

    def positions(self, tag: str) -> str:
        """The positions of all readers."""
        return f"sp:{{{tag}}}:i"

    def pages(self, stream: str) -> str:
        """The pages of a stream."""
        return f"sp:{{{self.tag(stream)}}}:s:{stream}"

    def head(self, stream: str) -> str:
        """The head of a stream."""
        return f"sp:{{{self.tag(stream)}}}:h:{stream}"

    def producers(self, stream: str) -> str:
        """The producers of a stream."""
        return f"sp:{{{self.tag(stream)}}}:p:{stream}"

    def of_stream(self, stream: str) -> list[str]:
        """Head, pages and producers, in the order in which scripts take them."""
        return [self.head(stream), self.pages(stream), self.producers(stream)]

    def table(self, name: str) -> str:
        """The keys and values of a table."""
        return f"sp:{{{self.tag(name)}}}:k:{name}"

    def mark(self, name: str) -> str:
        """Where a mark stands."""
        return f"sp:{{{self.tag(name)}}}:m:{name}"

    def own(self, name: str) -> str:
        """A key for the caller's own use, on the node where the pipeline is."""
        return f"sp:{{{self.pipeline}}}:u:{name}"


TYPES = {
    "layout": "string",
    "s": "stream",
    "h": "hash",
    "p": "hash",
    "i": "hash",
    "k": "hash",
    "m": "stream",
}


def type_of(key: str) -> str | None:
    """The type that a key of ours must have; None for a key of the caller's own."""
    kind = key.rpartition("}:")[2].partition(":")[0] if "}:" in key else ""
    return TYPES.get(kind)


def prefix_of(stream: str) -> str:
    """What the fields of a stream's readers in the positions begin with. The length keeps names apart."""
    return f"{len(stream.encode())}:{stream}:"


def field_of(stream: str, reader: str) -> str:
    """The field of one reader of one stream in the positions."""
    return prefix_of(stream) + reader
