"""A sound plan of every shape: together they write every section, and every kind of what stands in one."""

from __future__ import annotations

from typing import Any, TypeAlias

import yaml

Tree: TypeAlias = Any
"""What a YAML text says: mappings, lists and values."""

STORES = "{main: {kind: sqlite, path: a.db}, far: {kind: redis, url: 'redis://h:1/0'}}"


def _plan(
    source: str = "{kind: jsonl, path: a.jsonl, key: k}",
    *,
    pipe: str = "{from: a}",
    stage: str = "{from: p, call: 'os.path:join'}",
    sink: str = "{from: s, kind: stdout}",
    more: str = "",
    stores: str = STORES,
) -> Tree:
    text = (
        f"version: 1\nname: plan\nstores: {stores}\nsources: {{a: {source}}}\npipes: {{p: {pipe}}}\n"
        f"stages: {{s: {stage}}}\nsinks: {{o: {sink}}}\n{more}"
    )
    return yaml.safe_load(text)


_PARTIES = f"""{{version: 1, name: parties, stores: {STORES}, sources: {{a: {{kind: jsonl, path: a, node: east}}}},
  pipes: {{way: {{from: a, node: west, journal: main, boundary: committed, route: {{kind: ibc, relay: none,
  order: unordered, trusting_days: 3, relayers: [one], timeout_s: 60, dead_letter: main/back,
  sends: {{party: east, store: main, keys: e.keys, trust: w.trust}},
  receives: {{party: west, store: far, keys: w.keys, trust: e.trust}}}}}}}},
  sinks: {{o: {{from: way, kind: stream, store: far, stream: done}}}}}}"""
_BOOK = """{from: a, lanes: 3, route: {kind: book, store: main, budget: {messages: 9, bytes: 9000, units: 50,
  seconds: 2}, period_s: 1, cost: 1, max_message_cost: {units: 5}, policy: drr, quantum: 2, fair_by: units,
  on_overweight: park, on_poison: park, on_rejected: drop, retries: 3, retry_min_s: 1, retry_max_s: 2,
  lease_s: 9, commit_messages: 9, max_origins: 9, refuse_pages: 9, page_bytes: 64}}"""
_MORE = """description: text
expect: {delivery: at-least-once, order: none, tolerates: [network], per: pipe}
engine: {kind: spark, master: 'local[2]', trigger_s: 1, checkpoint: c, memory: 1g, ship: [os], python: p}
simulate: {replace: {'os:a': 'os:b'}, check: 'os:c', sample: {a: [{k: 1}]}, messages: 5, may_be_empty: [o]}
"""

SOUND_PLANS: dict[str, Tree] = {
    "a file, and everything of the head": _plan(
        "{kind: jsonl, path: a, key: k, node: main, model: 'os:M', dead_letter: main/d, follow: false}",
        more=_MORE,
    ),
    "csv, a memory store, and dedupe": _plan(
        "{kind: csv, path: a.csv, delimiter: ';', follow: true}",
        pipe="{from: a, layers: [dedupe, {resend: {window: 5}}]}",
        stage="{from: p, map: 'os:f', retries: 2, retry_min_s: 1, retry_max_s: 2, time_limit_s: 3, "
        "dead_letter: main/d}",
        sink="{from: s, kind: csv, path: o.csv, columns: [k]}",
        stores="{main: {kind: sqlite, path: a.db, durability: power}, mem: {kind: memory}}",
    ),
    "parquet, and a filter": _plan(
        "{kind: parquet, path: a.parquet}",
        stage="{from: p, filter: 'os:f'}",
        sink="{from: s, kind: parquet, path: o, rows_per_file: 5}",
    ),
    "a foreign stream, and a flat-map": _plan(
        "{kind: redis-stream, store: far, stream: s, start: latest}",
        stage="{from: p, flat-map: 'os:f'}",
        sink="{from: s, kind: python, call: 'os:f', idempotent: true}",
        stores="{far: {kind: redis, url: 'redis://h', durability: power, keys: k, spread: stream, "
        "replicas: 1, answer_within_s: 2}}",
    ),
    "a stream, through a store": _plan(
        "{kind: stream, store: main, stream: in, start: 5, reader: me, codec: json}",
        pipe="{from: a, route: {kind: sqlite, store: main, retention: {max_bytes: 9, max_age_s: 9, force: true}}, "
        "layers: [{stream: {start: earliest, commit: message}}], node: other}",
        stage="{from: p, key-by: k}",
        sink="{from: s, kind: stream, store: main, stream: out}",
    ),
    "standard input, and a batch": _plan(
        "{kind: stdin, format: text}",
        pipe="{from: a, journal: main, state: main, boundary: committed, key: k, payload: json, "
        "expect: {delivery: at-least-once, order: none, tolerates: bad-stage, per: key}}",
        stage="{from: p, batch: {max: 5, wait_s: 1}}",
        sink="{from: s, kind: stdout, format: text}",
    ),
    "a function, tcp with a secret, and http": _plan(
        "{kind: python, call: 'os:f', arguments: {n: 5}, repeatable: true}",
        pipe="{from: a, node: b, route: {kind: tcp, address: 'h:7', listens: sender, secret: '${K}'}}",
        sink="{from: s, kind: http, url: 'http://h', headers: {X: y}, idempotent: true}",
    ),
    "http, tcp with certificates, and a replicated queue": _plan(
        "{kind: http, listen: '127.0.0.1:80', path: /a, tls: {cert: c, key: k, ca: a}}",
        pipe="{from: a, node: b, route: {kind: tcp, address: 'h:7', tls: {cert: c, key: k, ca: a, name: n}}}",
        sink="{from: s, kind: rmq, cluster: c.yaml, until: placed, ttl_s: 9, retries: 3, dead_letter: main/d}",
    ),
    "a local route, lanes, and options of layers": _plan(
        pipe="{from: [a], route: {kind: local}, lanes: 4, layers: [{reliable: {window: 9, message_max_bytes: 9, "
        "frame_max_bytes: 999, run_max: 5, gap_alarm_s: 3}}]}"
    ),
    "a book": _plan(pipe=_BOOK),
    "two parties": yaml.safe_load(_PARTIES),
    "several of each": yaml.safe_load(
        "version: 1\nname: several\nengine: actors\nsources: {a: {kind: stdin}, b: {kind: jsonl, path: b}}\n"
        "pipes: {p: {from: [a, b]}, q: {from: [p, s]}}\nstages: {s: {from: p, map: 'os:f'}}\n"
        "sinks: {o: {from: q, kind: stdout}, l: {from: [p, s], kind: jsonl, path: l}}\n"
    ),
}
