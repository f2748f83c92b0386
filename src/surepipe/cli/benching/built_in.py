"""The pipelines that are measured when no file is given: the usual choices, from the quickest to the safest."""

from __future__ import annotations

from surepipe.pipelines import Plan, loads

_PIPES = {
    "memory": "layers: [reliable]",
    "ordered": "layers: [continuous-index, {multi-unconfirmed: {window: 512}}]",
    "tcp": 'node: other, route: {kind: tcp, address: "127.0.0.1:1", secret: "${BENCH_KEY}"}',
    "sqlite-stream": "route: {kind: sqlite, store: file}, state: file",
    "sqlite-committed": "journal: file, state: file, boundary: committed",
}
_OVER_REDIS = {
    "redis-stream": "route: {kind: redis, store: server}, state: server",
    "redis-committed": "journal: server, state: server, boundary: committed",
}
_FILE = "{kind: sqlite, path: surepipe-bench.db}"


def built_in(redis_url: str | None) -> list[Plan]:
    """The plans; those over a Redis where one is named. Their SQLite files lie in the current folder."""
    pipes = _PIPES | (_OVER_REDIS if redis_url is not None else {})
    return [_plan(name, said, redis_url) for name, said in pipes.items()]


def _plan(name: str, said: str, redis_url: str | None) -> Plan:
    stores: dict[str, str] = {}
    if "file" in said:
        stores["file"] = _FILE
    if "server" in said and redis_url is not None:
        url = redis_url.replace("$", "$$").replace("'", "''")
        stores["server"] = f"{{kind: redis, url: '{url}'}}"
    written = "".join(f"  {store}: {text}\n" for store, text in stores.items())
    return loads(
        f"version: 1\nname: {name}\n"
        + (f"stores:\n{written}" if written else "")
        + "sources: {rows: {kind: stdin}}\n"
        f"pipes: {{{name}: {{from: rows, {said}}}}}\n"
        f"sinks: {{out: {{from: {name}, kind: stdout}}}}\n",
        f"built-in {name}",
    )
