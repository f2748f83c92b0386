"""Checks the graph of a pipeline: names exist, nothing goes in a circle or leads nowhere.

It looks at links (a part, what feeds it, which stores it uses), so that a file with faulty parts is still
looked at as a whole. Each issue has the path of the word it is about.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from os.path import normpath

from surepipe.pipelines.problems import nearest

# Parts in the order of their flow: each after what feeds it, otherwise as they are written.


def in_flow(feeders: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names in that order; those in a circle, and what is fed from it, are left out.

    Feeders that are no names of the mapping don't count.
    """
    number = {name: n for n, name in enumerate(feeders)}
    waits = {name: len({f for f in fed if f in number}) for name, fed in feeders.items()}
    takers: dict[str, list[str]] = {name: [] for name in feeders}
    for name, fed in feeders.items():
        for feeder in dict.fromkeys(fed):
            if feeder in takers:
                takers[feeder].append(name)
    ready = [(number[name], name) for name, count in waits.items() if count == 0]
    ordered: list[str] = []
    while ready:
        _, name = heappop(ready)
        ordered.append(name)
        for taker in takers[name]:
            waits[taker] -= 1
            if waits[taker] == 0:
                heappush(ready, (number[taker], taker))
    return tuple(ordered)


# Where parts run: sources say it, pipes may bring it elsewhere, and stages and sinks run where they are fed.


MAIN_NODE = "main"
"""The process of everything that says nothing else."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    """``node``: where a part runs (of a pipe: its receiver). ``fed_on``: where that is which feeds it."""

    node: str
    fed_on: tuple[str, ...]

    @property
    def sender(self) -> str:
        return self.fed_on[0] if self.fed_on else self.node


def places_of(parts: Sequence[tuple[str, str, tuple[str, ...], bool]]) -> dict[str, PartPlace]:
    """The place of each part: its name, the node that it names or '', what feeds it, whether it is a pipe.

    There must be no cycle, and no unknown feeder.
    """
    known = {name: (node, feeders, is_pipe) for name, node, feeders, is_pipe in parts}
    places: dict[str, PartPlace] = {}
    for name in in_flow({name: feeders for name, _, feeders, _ in parts}):
        node, feeders, is_pipe = known[name]
        fed_on = tuple(dict.fromkeys(places[feeder].node for feeder in feeders)) or (node,)
        places[name] = PartPlace(node if node and (is_pipe or not feeders) else fed_on[0], fed_on)
    return places


Path = tuple[str | int, ...]
SECTION = {
    "source": "sources",
    "pipe": "pipes",
    "stage": "stages",
    "sink": "sinks",
    "store": "stores",
}


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A place where a part names a store. ``kinds``: those that fit; () for any."""

    path: Path
    store: str
    kinds: tuple[str, ...] = ()
    what: str = "store"
    stream: str = ""
    """The stream there that is written."""


@dataclass(frozen=True, slots=True)
class PlanLink:
    """A part: ``role`` is source, pipe, stage, sink or store. ``known`` is False where it could not be read."""

    role: str
    name: str
    kind: str = ""
    feeders: tuple[str, ...] = ()
    stores: tuple[StoreUse, ...] = ()
    may_end: bool = False
    known: bool = True
    node: str = ""
    """Of a source: the process it runs in. Of a pipe: that of its receiver, '' for its sender's."""
    crosses: bool = False
    """Of a pipe: its route may join two processes."""
    has_key: bool = False
    needs_key: bool = False
    file: str = ""
    """The file that it reads or writes."""
    says: tuple[tuple[Path, str], ...] = ()
    """What is wrong with the part by itself."""

    @property
    def section(self) -> str:
        """The section of the file that it stands in."""
        return SECTION[self.role]


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that does not add up. ``path`` leads to the word in the file."""

    path: Path
    text: str


def issues(links: Sequence[PlanLink], pipeline: str = "") -> Iterator[Issue]:
    """Everything that does not add up in the parts of the pipeline of this name, found as it is asked for."""
    nodes = {link.name: link for link in links if link.role != "store"}
    stores = {link.name: link for link in links if link.role == "store"}
    yield from _own(links)
    yield from _names(links)
    yield from _feeders(nodes, stores)
    yield from _stores(links, stores)
    yield from _own_streams(links, pipeline)
    yield from _cycles(nodes)
    yield from _dead_ends(nodes)
    yield from _without_pipe(nodes)
    yield from _without_key(nodes)
    yield from _places(nodes, tuple(stores.values()))


def _own(links: Sequence[PlanLink]) -> Iterator[Issue]:
    for link in links:
        for path, text in link.says:
            yield Issue((link.section, link.name, *path), text)


def _names(links: Sequence[PlanLink]) -> Iterator[Issue]:
    names = Counter(link.name for link in links if link.role == "store")
    for name in (name for name, count in names.items() if count > 1):
        yield Issue(("stores", name), f"there are two stores {name}: give one another name")
    seen: dict[str, PlanLink] = {}
    for link in (link for link in links if link.role != "store"):
        first = seen.setdefault(link.name, link)
        if first is not link:
            path = (link.section, link.name)
            yield Issue(
                path,
                f"{link.role} {link.name} has the name of a {first.role}: `from` could mean either",
            )


def _feeders(nodes: Mapping[str, PlanLink], stores: Mapping[str, PlanLink]) -> Iterator[Issue]:
    fitting = [name for name, link in nodes.items() if link.role != "sink"]
    for link in nodes.values():
        before: set[str] = set()
        for number, feeder in enumerate(link.feeders):
            path = (link.section, link.name, "from", number)
            is_repeated = feeder in before
            before.add(feeder)
            if is_repeated:
                yield Issue(path, f"{feeder} feeds {link.role} {link.name} twice: write it once")
            elif feeder not in nodes:
                what = "a store, and a source of kind stream reads one" if feeder in stores else ""
                others = [name for name in fitting if name != link.name]
                hint = what or f"unknown: {nearest(feeder, others)}"
                yield Issue(
                    path, f"{link.role} {link.name} is fed from {feeder!r}, which is {hint}"
                )
            elif nodes[feeder].role == "sink":
                yield Issue(
                    path,
                    f"{link.role} {link.name} is fed from sink {feeder}, and a sink feeds nothing",
                )


def _stores(links: Sequence[PlanLink], stores: Mapping[str, PlanLink]) -> Iterator[Issue]:
    for link in links:
        for use in link.stores:
            path = (link.section, link.name, *use.path)
            store = stores.get(use.store)
            if store is None:
                hint = (
                    nearest(use.store, tuple(stores))
                    if stores
                    else "there are no stores: write some"
                )
                yield Issue(path, f"{use.what} {use.store!r} is no store: {hint}")
            elif use.kinds and store.known and store.kind not in use.kinds:
                wanted = " or ".join(use.kinds)
                yield Issue(
                    path,
                    f"{use.what} must be a store of kind {wanted}, and {use.store} is {store.kind}",
                )


def _own_streams(links: Sequence[PlanLink], pipeline: str) -> Iterator[Issue]:
    """Streams of the pipeline's own pipes are written by nobody else: what is put there comes back, or harms."""
    pipes = [link for link in links if link.role == "pipe"]
    stores_of = {link.name: {use.store for use in link.stores} for link in pipes}
    named = {
        (use.store, use.stream): link.name
        for link in reversed(pipes)
        for use in link.stores
        if use.stream and use.what != "dead_letter"
    }
    for link in links:
        for use in (use for use in link.stores if use.stream):
            pipe = named.get((use.store, use.stream), "")
            if not pipe and use.stream.startswith(f"{pipeline}/"):
                own = re.split("[/>]", use.stream.removeprefix(f"{pipeline}/"), maxsplit=1)[0]
                pipe = own if use.store in stores_of.get(own, ()) else ""
            if pipe and pipe != link.name:
                yield Issue(
                    (link.section, link.name, _stream_word(link, use)),
                    f"{use.stream} belongs to pipe {pipe}: name another stream",
                )


def _stream_word(link: PlanLink, use: StoreUse) -> str:
    if use.what == "dead_letter":
        return "dead_letter"
    return "layers" if link.role == "pipe" else "stream"


def _cycles(nodes: Mapping[str, PlanLink]) -> Iterator[Issue]:
    """One issue for each cycle, at the first of its nodes in the file."""
    flowing = set(in_flow({name: link.feeders for name, link in nodes.items()}))
    takers: dict[str, list[str]] = {name: [] for name in nodes if name not in flowing}
    for name in takers:
        for feeder in nodes[name].feeders:
            if feeder in takers:
                takers[feeder].append(name)
    flowing.update(in_flow(takers))  # fed from a cycle, and on none
    done: set[str] = set()
    for start in (name for name in nodes if name not in flowing):
        cycle = [] if start in done else _cycle_from(start, nodes)
        if cycle and not done.intersection(cycle):
            done.update(cycle)
            way = " -> ".join([*reversed(cycle), cycle[-1]])
            yield Issue(
                (nodes[start].section, start, "from"),
                f"messages would go round for ever: {way}; feed one of them from somewhere else",
            )


def _cycle_from(start: str, nodes: Mapping[str, PlanLink]) -> list[str]:
    """The names of a cycle through ``start``, against the flow; empty when there is none."""
    pending, came_by = [start], {start: ""}
    while pending:
        name = pending.pop()
        for feeder in nodes[name].feeders:
            if feeder == start:
                return _way_to(name, came_by)
            if feeder in nodes and feeder not in came_by:
                came_by[feeder] = name
                pending.append(feeder)
    return []


def _way_to(name: str, came_by: Mapping[str, str]) -> list[str]:
    """The names from where a walk began to this one."""
    names = [name]
    while came_by[names[-1]]:
        names.append(came_by[names[-1]])
    return names[::-1]


def _all_known(nodes: Mapping[str, PlanLink]) -> bool:
    """True when every part could be read, and every `from` names one."""
    return all(link.known and all(f in nodes for f in link.feeders) for link in nodes.values())


def _dead_ends(nodes: Mapping[str, PlanLink]) -> Iterator[Issue]:
    """Messages that would go nowhere. Not asked while a part is not known: it may be what takes them."""
    if not _all_known(nodes):
        return
    fed = {feeder for link in nodes.values() for feeder in link.feeders}
    for link in nodes.values():
        if link.name in fed or link.role == "sink" or (link.role == "stage" and link.may_end):
            continue
        yield Issue(
            (link.section, link.name),
            f"nothing takes the messages of {link.role} {link.name}: name it in a `from`, or take it out",
        )


def _without_pipe(nodes: Mapping[str, PlanLink]) -> Iterator[Issue]:
    """Ends that are reached from a source with no pipe between."""
    if not _all_known(nodes):
        return
    fed = {feeder for link in nodes.values() for feeder in link.feeders}
    behind_pipes: set[str] = set()
    for link in nodes.values():
        if link.role in ("source", "pipe") or link.name in fed:
            continue
        if way := _bare_way(link.name, nodes, behind_pipes):
            yield Issue(
                (link.section, link.name, "from"),
                f"{way[-1]} reaches {link.role} {link.name} through no pipe, so nothing delivers it: "
                "put a pipe between",
            )


def _bare_way(end: str, nodes: Mapping[str, PlanLink], behind_pipes: set[str]) -> list[str]:
    """The names from an end back to a source, without a pipe among them.

    ``behind_pipes``: parts that have no such way; those on this walk are added when it finds none.
    """
    pending, came_by = [end], {end: ""}
    while pending:
        name = pending.pop()
        if nodes[name].role == "source":
            return _way_to(name, came_by)
        for feeder in nodes[name].feeders:
            is_new = feeder in nodes and feeder not in came_by and feeder not in behind_pipes
            if is_new and nodes[feeder].role != "pipe":
                came_by[feeder] = name
                pending.append(feeder)
    behind_pipes.update(came_by)
    return []


def _without_key(nodes: Mapping[str, PlanLink]) -> Iterator[Issue]:
    """Lanes whose messages have no key on some way."""
    for link in nodes.values():
        if link.needs_key and not link.has_key and (without := _keyless(link, nodes)):
            what, word = (
                ("a book needs a key, which names the queue", "route")
                if link.kind == "book"
                else ("lanes need a key", "lanes")
            )
            yield Issue(
                (link.section, link.name, word),
                f"{what}, and messages of {without} have none: write key",
            )


def _keyless(link: PlanLink, nodes: Mapping[str, PlanLink]) -> str:
    """A source from which a way leads to the link that sets no key; '' when there is none."""
    pending, seen = list(link.feeders), set[str]()
    while pending:
        name = pending.pop()
        feeder = nodes.get(name)
        if feeder is None or feeder.has_key or not feeder.known or name in seen:
            continue
        if feeder.role == "source":
            return name
        seen.add(name)
        pending += feeder.feeders
    return ""


def _places(nodes: Mapping[str, PlanLink], stores: Sequence[PlanLink]) -> Iterator[Issue]:
    ordered = in_flow({name: link.feeders for name, link in nodes.items()})
    if not _all_known(nodes) or len(ordered) < len(nodes):
        return
    places = places_of(
        [(link.name, link.node, link.feeders, link.role == "pipe") for link in nodes.values()]
    )
    for link in nodes.values():
        path = (link.section, link.name, "from")
        around = places[link.name]
        if len(around.fed_on) > 1:
            names = " and ".join(around.fed_on)
            yield Issue(
                path,
                f"{link.role} {link.name} is fed on the nodes {names}: bring it all to one, each by a pipe "
                "of its own",
            )
        elif link.role == "pipe" and around.sender != around.node and not link.crosses:
            yield Issue(
                (link.section, link.name, "node"),
                f"pipe {link.name} goes from node {around.sender} to node {around.node}, and its route is "
                "within one process: use tcp, redis or sqlite",
            )
    yield from _shared_files(nodes, stores, {name: place.node for name, place in places.items()})


def _shared_files(
    nodes: Mapping[str, PlanLink], stores: Sequence[PlanLink], node_of: Mapping[str, str]
) -> Iterator[Issue]:
    """A file that a sink writes has no other part on that node: each would undo what the other did."""
    owners: dict[str, list[PlanLink]] = {}
    for link in (*stores, *(link for link in nodes.values() if link.role == "source")):
        if link.file:
            owners.setdefault(normpath(link.file), []).append(link)
    for sink in (link for link in nodes.values() if link.role == "sink" and link.file):
        same = owners.setdefault(normpath(sink.file), [])
        for owner in same:
            if owner.role == "store" or node_of[owner.name] == node_of[sink.name]:
                yield Issue(
                    (sink.section, sink.name, "path"),
                    f"this is the file of {owner.role} {owner.name} too: name another one",
                )
        same.append(sink)
