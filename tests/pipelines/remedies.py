"""Follows remedies as a person would: each phrase that `check` writes is done to the file."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any, TypeAlias

File: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[File, str, re.Match[str], list[Any]], None]
_HOME = "main"
_WORD = r"[\w.-]+"
_ABOVE = rf"layer \d+ \({_WORD}\) stands above it, and order pipes go outside of retry pipes: "
_IN_ONE_STORE = ", with the state of one and the journal of the other in one store"
_HAND_OVER = rf"hand over from (?P<a>{_WORD}) to (?P<b>{_WORD}) (?P<how>committed|processed)(?:{_IN_ONE_STORE})?"
_RAISED = (
    "set synchronous to FULL|use SQLite|set appendonly yes and appendfsync always, or use SQLite"
)


def followed(file: File, pipe: str, remedy: str, stack: list[Any]) -> File:
    """The file with a remedy done to it. ``stack``: the layers of the pipe, also where it writes none.

    Raises AssertionError for words that nobody could follow.
    """
    changed = copy.deepcopy(file)
    text, names = remedy[:1].lower() + remedy[1:], [pipe]
    while text:
        if where := re.match(r"in pipes? ([\w.-]+(?: and [\w.-]+)*), ", text):
            names = where.group(1).split(" and ")
            text = text[where.end() :]
        fitting = ((re.match(pattern, text), act) for pattern, act in _PHRASES)
        found, act = next(((match, act) for match, act in fitting if match), (None, _nothing))
        assert found is not None, f"nobody can follow {text!r} of {remedy!r}"
        for name in names:
            act(changed, name, found, stack)
        text = re.sub(r"^ and ", "", text[found.end() :])
    return changed


def _nothing(*_: object) -> None:
    """No phrase."""


def _set(**values: object) -> Act:
    def act(file: File, pipe: str, *_: object) -> None:
        file["pipes"][pipe].update(values)

    return act


def _drop(key: str) -> Act:
    def act(file: File, pipe: str, *_: object) -> None:
        file["pipes"][pipe].pop(key, None)

    return act


def _home(file: File, pipe: str) -> str:
    """The store that a person would take: the one of the stream, or of the state, else another one."""
    part = file["pipes"][pipe]
    return str(_streamed(part) or part.get("state") or _HOME)


def _streamed(part: File) -> str:
    """The store of its stream; '' where the route is through none."""
    route: File = part.get("route", {})
    return str(route.get("store", ""))


def _commit(file: File, pipe: str, *_: object) -> None:
    home = _home(file, pipe)
    if file["stores"][home]["kind"] == "memory":
        home = _HOME
    file["pipes"][pipe].update(boundary="committed", state=home)
    _sinks_in(file, pipe, home)


def _sinks_in(file: File, pipe: str, home: str) -> None:
    """Sinks behind a pipe that take part in its transaction; a pipe behind it keeps its journal there."""
    behind = [pipe]
    for section in ("stages", "pipes", "sinks"):
        for name, part in file.get(section, {}).items():
            if part["from"] not in behind:
                continue
            if section == "stages":
                behind.append(name)
            elif section == "pipes":
                if name != pipe and not _streamed(part):
                    part["journal"] = home
            else:
                extra = {k: part[k] for k in ("retries", "dead_letter") if k in part}
                file["sinks"][name] = {
                    "from": part["from"],
                    "kind": "stream",
                    "store": home,
                    "stream": f"{name}.out",
                } | extra


def _layers(change: Callable[[list[Any], re.Match[str]], list[Any]]) -> Act:
    def act(file: File, pipe: str, found: re.Match[str], stack: list[Any]) -> None:
        file["pipes"][pipe]["layers"] = change(copy.deepcopy(stack), found)

    return act


def _put(layers: list[Any], found: re.Match[str]) -> list[Any]:
    at = int(found["n"]) + (found["side"] == "below")
    return [*layers[:at], found["kind"], *layers[at:]]


def _swap(layers: list[Any], found: re.Match[str]) -> list[Any]:
    a, b = int(found["a"]), int(found["b"])
    layers[a], layers[b] = layers[b], layers[a]
    return layers


def _replace(layers: list[Any], found: re.Match[str]) -> list[Any]:
    layers[int(found["n"])] = found["kind"]
    return layers


def _kind(layer: str | File) -> str:
    return layer if isinstance(layer, str) else next(iter(layer))


def _with(layer: str | File, name: str, value: object) -> File:
    options: File = {} if isinstance(layer, str) else layer[_kind(layer)]
    kept: File = {**options, name: value}
    return {_kind(layer): {key: one for key, one in kept.items() if one is not None}}


def _option(layers: list[Any], name: str, value: object, kind: str) -> list[Any]:
    at = next(at for at, layer in enumerate(layers) if _kind(layer) == kind)
    return [*layers[:at], _with(layers[at], name, value), *layers[at + 1 :]]


def _retry_own(layers: list[Any], _: object) -> list[Any]:
    return _option(layers, "retry", "own", "sequential-confirm")


def _bound(layers: list[Any], found: re.Match[str]) -> list[Any]:
    kind = "dedupe" if found["name"] == "dedupe_window" else "multi-unconfirmed"
    return _option(layers, found["name"], int(found["n"]), kind)


def _window(layers: list[Any], found: re.Match[str]) -> list[Any]:
    at, most = int(found["at"]), int(found["n"])
    name = "window" if _kind(layers[at]) in ("multi-unconfirmed", "reliable") else "run_max"
    return [*layers[:at], _with(layers[at], name, most), *layers[at + 1 :]]


def _no_giving_up(layers: list[Any], found: re.Match[str]) -> list[Any]:
    at = int(found["at"] or 0)
    return [*layers[:at], _with(layers[at], "give_up_after_s", None), *layers[at + 1 :]]


def _give_up_outermost(layers: list[Any], _: object) -> list[Any]:
    bare = [_with(layer, "give_up_after_s", None) for layer in layers]
    return [_with(bare[0], "give_up_after_s", 5), *bare[1:]]


def _store_power(file: File, _pipe: str, found: re.Match[str], _: object) -> None:
    name = found["store"] or _HOME
    if file["stores"][name]["kind"] == "redis":
        file["stores"][name]["durability"] = "power"
    else:
        file["stores"][name] = {"kind": "sqlite", "path": f"{name}.db", "durability": "power"}
        for part in file["pipes"].values():
            if isinstance(part.get("route"), dict) and part["route"].get("store") == name:
                part["route"]["kind"] = "sqlite"


def _hand_over(file: File, _pipe: str, found: re.Match[str], _: object) -> None:
    first, after = found["a"], found["b"]
    part = file["pipes"][first]
    if found["how"] == "processed":
        part["boundary"] = "processed"
        return
    part.update(boundary="committed", state=_home(file, first))
    if stream := _streamed(file["pipes"][after]):
        part["state"] = stream
    else:
        file["pipes"][after]["journal"] = part["state"]


def _letter(file: File, pipe: str, found: re.Match[str], _: object) -> None:
    section, name = pipe.split("/")
    file[section][name]["dead_letter"] = found["where"]


def _no_retries(file: File, pipe: str, *_: object) -> None:
    section, name = pipe.split("/")
    file[section][name].pop("retries")


_PHRASES: tuple[tuple[str, Act], ...] = (
    (r"name a journal", lambda f, p, _m, _l: f["pipes"][p].update(journal=_home(f, p))),
    (
        r"name a store for the receiver state",
        lambda f, p, _m, _l: f["pipes"][p].update(state=_HOME),
    ),
    (r"name one store for the receiver state and the sink", _commit),
    (r"use boundary processed", _set(boundary="processed")),
    (r"hand over committed, processed or handed", _set(boundary="processed")),
    (r"drop lanes", _drop("lanes")),
    (
        r"use boundary before with a store for the receiver state",
        lambda f, p, _m, _l: f["pipes"][p].update(boundary="before", state=_home(f, p)),
    ),
    (r"use boundary committed with receiver state and sink in one store", _commit),
    (r"keep both in one store \(one SQLite file, one Redis slot\)", _commit),
    (
        r"keep the (?P<what>journal|receiver state) in SQLite or another store that outlives the process",
        lambda f, p, m, _: f["pipes"][p].update({m["what"].removeprefix("receiver "): _HOME}),
    ),
    (rf"for (?:the new store|store (?P<store>{_WORD})), (?:{_RAISED})", _store_power),
    (
        r"drop retention.force",
        lambda f, p, _m, _l: f["pipes"][p]["route"]["retention"].pop("force"),
    ),
    (rf"put (?P<kind>{_WORD}) (?P<side>above|below) layer (?P<n>\d+)", _layers(_put)),
    (
        r"put an index pipe \(such as continuous-index\) outermost",
        _layers(lambda rows, _: ["continuous-index", *rows]),
    ),
    (rf"replace layer (?P<n>\d+) by (?P<kind>{_WORD})", _layers(_replace)),
    (rf"(?:{_ABOVE})?swap layers (?P<a>\d+) and (?P<b>\d+)", _layers(_swap)),
    (r"use reliable", _layers(lambda _r, _m: ["reliable"])),
    (r"use strict-monotonic \(at-most-once\)", _layers(lambda _r, _m: ["strict-monotonic"])),
    (
        r"drop layer (?P<n>\d+)(?:, since the stream below repeats by itself)?",
        _layers(lambda rows, m: [*rows[: int(m["n"])], *rows[int(m["n"]) + 1 :]]),
    ),
    (r"drop what is below layer (?P<n>\d+)", _layers(lambda rows, m: rows[: int(m["n"]) + 1])),
    (r"set retry: own", _layers(_retry_own)),
    (
        r"set start to earliest, latest or an index",
        _layers(lambda rows, _: _option(rows, "start", "earliest", "stream")),
    ),
    (r"raise (?P<name>dedupe_window|receive_window_bytes) to (?P<n>\d+)", _layers(_bound)),
    (r"lower (?P<name>window_bytes) to (?P<n>\d+)", _layers(_bound)),
    (rf"lower the window of layer (?P<at>\d+) \({_WORD}\) to (?P<n>\d+)", _layers(_window)),
    (rf"move give_up_after_s to layer 0 \({_WORD}\)", _layers(_give_up_outermost)),
    (r"drop give_up_after_s(?: of layer (?P<at>\d+))?", _layers(_no_giving_up)),
    (_HAND_OVER, _hand_over),
    (r"write dead_letter: (?P<where>[\w./-]+)", _letter),
    (r"drop retries", _no_retries),
)
