"""Broken pipeline files, each with every problem that is to be found in it: place and text."""

# ruff: noqa: E501 - each problem is one line, as people read it

from __future__ import annotations

from tests.pipelines.files import pipe, pipeline, stage

EVENTS = "route: {kind: sqlite, store: main}, layers: [{stream: {stream: events}}]"
BROKEN: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "an empty file": (
        "",
        ("1:1: the file is empty: `surepipe init` writes a small pipeline to begin with",),
    ),
    "a file of comments": (
        "# nothing yet\n",
        ("1:1: the file is empty: `surepipe init` writes a small pipeline to begin with",),
    ),
    "a list": (
        "- version: 1\n",
        ("1:1: the file holds a list: a pipeline is a mapping, which begins with 'version: 1'",),
    ),
    "one word": (
        "pipeline\n",
        ("1:1: the file holds one value: a pipeline is a mapping, which begins with 'version: 1'",),
    ),
    "no UTF-8": (
        b"version: 1\nname: \xff\xfe\n",
        ("1:1: the file is no UTF-8 text: byte 17 is 0xff",),
    ),
    "bytes of a program": (
        b"\x7fELF\x00\x01",
        ("1:1: the file is no text: character 0 is U+007F",),
    ),
    "a small store": (
        b"SQLite format 3\0" + bytes(4080),
        (
            "1:1: the file is a SQLite database, perhaps a store: give the pipeline's file, which names its stores",
        ),
    ),
    "a large store": (
        b"SQLite format 3\0" + bytes(512 * 1024),
        (
            "1:1: the file is a SQLite database, perhaps a store: give the pipeline's file, which names its stores",
        ),
    ),
    "more than a quarter of a megabyte": (
        "# " + "x" * (256 * 1024),
        ("1:1: the file has more than 262144 bytes, which no pipeline needs",),
    ),
    "a tab as indentation": (
        "version: 1\nstores:\n\tmain: {kind: memory}\n",
        ("3:1: a tab stands here: indent with spaces",),
    ),
    "a second colon": (
        pipeline(name="name: shop: orders"),
        ("2:11: a second ':' stands here: put the value in quotes",),
    ),
    "a key without a value": (
        pipeline("expect"),
        ("9:1: a ':' and a value are missing after this key",),
    ),
    "a quote that is not closed": (
        pipeline(name="name: 'shop"),
        ("2:7: a quote is opened and not closed",),
    ),
    "a bracket that is not closed": (
        pipeline(pipes="pipes: {intake: {from: [lines}}"),
        ("5:30: a ',' or a ']' is missing before this",),
    ),
    "an end of line that nobody sees": (
        "# a note\u2028stores: {}\n",
        ("1:1: the file is no text: character 8 is U+2028",),
    ),
    "a policy of a book that there is not": (
        pipeline(pipes=pipe("route: {kind: book, store: main, policy: fair}")),
        ("5:72: policy is 'fair': known are drr, rotate",),
    ),
    "a book whose budget fits no message": (
        pipeline(
            pipes=pipe("key: k, route: {kind: book, store: main, budget: {units: 3}, cost: 5}")
        ),
        (
            "5:39: the route of pipe intake: each message costs 5 units, and budget has 3: none would ever be served; raise it, or lower cost",
        ),
    ),
    "layers and a journal beside a book": (
        pipeline(
            pipes=pipe(
                "key: k, layers: [reliable], journal: main, route: {kind: book, store: main}"
            )
        ),
        (
            "5:47: a book keeps, numbers and orders its messages by itself: leave layers out",
            "5:68: what a book has accepted is stored already: leave journal out",
        ),
    ),
    "a book that is to commit": (
        pipeline(pipes=pipe("key: k, boundary: committed, route: {kind: book, store: main}")),
        (
            "5:49: a book settles a message when what follows has processed it, and boundary is committed: leave it out; for effects that happen once, let a stream sink or a pipe take them, and commit behind that",
        ),
    ),
    "a book whose messages name no queue": (
        pipeline(pipes=pipe("route: {kind: book, store: main}")),
        (
            "5:31: a book needs a key, which names the queue, and messages of lines have none: write key",
        ),
    ),
    "a book without a store": (
        pipeline(pipes=pipe("key: k, route: {kind: book}")),
        ("5:39: the route of pipe intake needs 'store'",),
    ),
    "a budget that bounds nothing": (
        pipeline(pipes=pipe("key: k, route: {kind: book, store: main, budget: {}}")),
        (
            "5:72: the budget of pipe intake: bounds nothing: write one of messages, bytes, units, seconds",
        ),
    ),
    "a cut-off of a book above its budget": (
        pipeline(
            pipes=pipe(
                "key: k, route: {kind: book, store: main, budget: {units: 3}, max_message_cost: {units: 9}}"
            )
        ),
        (
            "5:39: the route of pipe intake: max_message_cost allows units=9, with overheads 9, and the larger budget has 3: such a message could wait for ever; lower max_message_cost or raise the budget",
        ),
    ),
    "a dimension of a budget that there is not": (
        pipeline(pipes=pipe("key: k, route: {kind: book, store: main, budget: {unit: 3}}")),
        ("5:81: 'unit' is no key of the budget of pipe intake: did you mean 'units'?",),
    ),
    "a path with a zero byte": (
        pipeline(sources='sources: {lines: {kind: jsonl, path: "a\\0b"}}'),
        ("4:38: U+0000 stands in this text: no name or path has it",),
    ),
    "an address without a port": (
        pipeline(pipes=pipe("route: {kind: tcp, address: localhost}")),
        ("5:59: address is 'localhost': an address is written host:port, with a port below 65536",),
    ),
    "an address with a port that is none": (
        pipeline(sources="sources: {lines: {kind: http, listen: 'localhost:99999'}}"),
        (
            "4:39: listen is 'localhost:99999': an address is written host:port, with a port below 65536",
        ),
    ),
    "a database of Redis that is no number": (
        pipeline(stores="stores: {main: {kind: redis, url: 'redis://localhost:6379/zero'}}"),
        (
            "3:35: url is 'redis://localhost:6379/zero': a server's address is written such as redis://localhost:6379/0",
        ),
    ),
    "an address of Redis with a port that is none": (
        pipeline(stores="stores: {main: {kind: redis, url: 'redis://localhost:many'}}"),
        (
            "3:35: url is 'redis://localhost:many': a server's address is written such as redis://localhost:6379/0",
        ),
    ),
    "two sinks that write one file": (
        pipeline(
            sinks="sinks: {out: {from: price, kind: jsonl, path: o}, o2: {from: price, kind: csv, path: ./o}}"
        ),
        ("7:86: this is the file of sink out too: name another one",),
    ),
    "a sink that writes the file of its source": (
        pipeline(sinks="sinks: {out: {from: price, kind: jsonl, path: x/../a.jsonl}}"),
        ("7:47: this is the file of source lines too: name another one",),
    ),
    "a sink that writes into the file of a store": (
        pipeline(sinks="sinks: {out: {from: price, kind: jsonl, path: shop.db}}"),
        ("7:47: this is the file of store main too: name another one",),
    ),
    "dead letters in the stream of a pipe": (
        pipeline(
            pipes=pipe("route: {kind: sqlite, store: main}"),
            stages=stage("retries: 3, dead_letter: main/shop/intake"),
        ),
        ("6:77: shop/intake belongs to pipe intake: name another stream",),
    ),
    "a sink that writes what a pipe keeps": (
        pipeline(
            pipes=pipe("journal: main"),
            sinks="sinks: {out: {from: price, kind: stream, store: main, stream: shop/intake/journal}}",
        ),
        ("7:63: shop/intake/journal belongs to pipe intake: name another stream",),
    ),
    "a sink that writes the stream that a layer names": (
        pipeline(
            pipes=pipe(EVENTS),
            sinks="sinks: {out: {from: price, kind: stream, store: main, stream: events}}",
        ),
        ("7:63: events belongs to pipe intake: name another stream",),
    ),
    "two pipes in one stream": (
        pipeline(
            pipes=f"pipes: {{intake: {{from: lines, {EVENTS}}}, other: {{from: lines, {EVENTS}}}}}",
            sinks="sinks: {out: {from: price, kind: stdout}, more: {from: other, kind: stdout}}",
        ),
        ("5:171: events belongs to pipe intake: name another stream",),
    ),
    "a brace that is not closed": (
        pipeline(sinks="sinks: {out: {from: price, kind: stdout}"),
        ("8:1: a ',' or a '}' is missing before this",),
    ),
    "a value that begins with an at": (
        pipeline(name="name: @shop"),
        ("2:7: '@' can't begin a value: put it in quotes",),
    ),
    "indentation that fits nothing": (
        "version: 1\nsources:\n    lines: {kind: stdin}\n  more: {kind: stdin}\n",
        ("4:3: this does not stand under what is above it: look at the indentation",),
    ),
    "a second document": (
        pipeline("---", "version: 1"),
        ("8:1: a second document begins here: a file holds one pipeline",),
    ),
    "an anchor": (
        pipeline(stores="stores: {main: &m {kind: memory}}"),
        ("3:16: '&m' is an anchor: write each value where it is used",),
    ),
    "an alias": (
        pipeline(stores="stores: {main: *m}"),
        ("3:16: '*m' is an alias: write out what it stands for",),
    ),
    "a merge": (
        pipeline(stores="stores: {main: {<<: {kind: memory}}}"),
        ("3:17: '<<' merges nothing here: write the keys out",),
    ),
    "a billion laughs": (
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
        ("1:4: '&a' is an anchor: write each value where it is used",),
    ),
    "a tag that would build an object": (
        "version: !!python/object/apply:os.system ['true']\n",
        ("1:10: '!!python/object/apply:os.system' is a tag: write the value without it",),
    ),
    "a tag of YAML": (
        pipeline(version="version: !!int 1"),
        ("1:10: '!!int' is a tag: write the value without it",),
    ),
    "a tag of one's own": (
        pipeline(stores="stores: !stores {}"),
        ("3:9: '!stores' is a tag: write the value without it",),
    ),
    "a key that stands twice": (
        pipeline("name: again"),
        ("8:1: 'name' stands here a second time, and first in line 2",),
    ),
    "a part that stands twice": (
        pipeline(stores="stores: {main: {kind: memory}, main: {kind: memory}}"),
        ("3:32: 'main' stands here a second time, and first in line 3",),
    ),
    "a mapping as a key": ("? {a: b}\n: c\n", ("1:3: a key must be a word",)),
    "nesting without end": ("version: " + "[" * 500, ("1:49: this is nested deeper than 40",)),
    "a number of a thousand digits": (
        pipeline(version="version: " + "1" * 1000),
        ("1:10: a number of 1000 digits is none that is meant here",),
    ),
    "no version": (pipeline(version=""), ("1:1: the pipeline needs 'version'",)),
    "a version as text": (pipeline(version="version: '1'"), ("1:10: version is '1': write 1",)),
    "a version of the future": (
        pipeline(version="version: 2", sources="sauces: {}"),
        ("1:10: version is 2, and this surepipe reads version 1: take a newer surepipe",),
    ),
    "a version that is true": (
        pipeline(version="version: true"),
        ("1:10: version is true: write 1",),
    ),
    "no name": (pipeline(name=""), ("1:1: the pipeline needs 'name'",)),
    "a name with a space": (
        pipeline(name="name: my shop"),
        (
            "2:7: name is 'my shop': a name begins with a letter and has letters, digits, '_', '.' and '-'",
        ),
    ),
    "a name that is a number": (pipeline(name="name: 7"), ("2:7: name is 7: it must be a word",)),
    "a section with a slip": (
        pipeline(stores="store: {}"),
        ("3:1: 'store' is no key of a pipeline: did you mean 'stores'?",),
    ),
    "a section that is nothing like any": (
        pipeline(stores="zzz: {}"),
        (
            "3:1: 'zzz' is no key of a pipeline: known are version, name, description, expect, engine, simulate, stores, sources, pipes, stages, sinks",
        ),
    ),
    "no sources": (
        pipeline(sources=""),
        (
            "1:1: the pipeline has no sources: write one at least",
            "4:24: pipe intake is fed from 'lines', which is unknown: known are price",
        ),
    ),
    "a section that is a list": (
        pipeline(sources="sources: [lines]"),
        (
            "4:10: sources is a list: write a mapping of names to sources",
            "5:24: pipe intake is fed from 'lines', which is unknown: known are price",
        ),
    ),
    "an empty section that is needed": (
        pipeline(pipes="pipes:", stages="", sinks="sinks: {}"),
        (
            "4:11: nothing takes the messages of source lines: name it in a `from`, or take it out",
            "5:1: the pipeline has no pipes: write one at least",
        ),
    ),
    "a part that is a word": (
        pipeline(sources="sources: {lines: a.jsonl}"),
        ("4:18: source lines is 'a.jsonl': it must be a mapping",),
    ),
    "a part whose name is none": (
        pipeline(stores="stores: {9lives: {kind: memory}}"),
        (
            "3:10: '9lives' is no name of a store: a name begins with a letter and has letters, digits, '_', '.' and '-', 64 at the most",
        ),
    ),
    "a part that names itself": (
        pipeline(stores="stores: {main: {kind: memory, name: main}}"),
        ("3:31: store main has its name above it already: drop 'name'",),
    ),
    "no kind": (
        pipeline(sources="sources: {lines: {path: a.jsonl}}"),
        (
            "4:11: source lines needs 'kind', one of jsonl, csv, parquet, redis-stream, stream, stdin, python, http",
        ),
    ),
    "a store without a kind": (
        pipeline(stores="stores: {main: {path: a}}"),
        ("3:10: store main needs 'kind', one of sqlite, memory, redis",),
    ),
    "a kind with a slip": (
        pipeline(sources="sources: {lines: {kind: jsnol, path: a.jsonl}}"),
        ("4:25: kind 'jsnol' of source lines is unknown: did you mean 'jsonl'?",),
    ),
    "a kind like no other": (
        pipeline(sinks="sinks: {out: {from: price, kind: kafka}}"),
        (
            (
                "7:34: kind 'kafka' of sink out is unknown: "
                "known are jsonl, csv, parquet, stdout, python, http, stream, rmq"
            ),
        ),
    ),
    "a replicated queue as a source": (
        pipeline(sources="sources: {lines: {kind: rmq, cluster: q/cluster.yaml}}"),
        (
            (
                "4:25: kind 'rmq' of source lines is unknown: what a replicated queue decided is a stream: "
                "write kind: stream, with stream: decided of a node's store"
            ),
        ),
    ),
    "a key of a source with a slip": (
        pipeline(sources="sources: {lines: {kind: jsonl, pth: a.jsonl}}"),
        (
            "4:11: source lines needs 'path'",
            "4:32: 'pth' is no key of source lines: did you mean 'path'?",
        ),
    ),
    "a key of another kind": (
        pipeline(sources="sources: {lines: {kind: stdin, follow: true}}"),
        (
            (
                "4:32: 'follow' is no key of source lines: known are key, node, model, "
                "dead_letter, kind, format"
            ),
        ),
    ),
    "a path that is a number": (
        pipeline(sources="sources: {lines: {kind: jsonl, path: 5}}"),
        ("4:38: path is 5: it must be a text",),
    ),
    "an empty path": (
        pipeline(sources="sources: {lines: {kind: jsonl, path: ''}}"),
        ("4:38: path is empty",),
    ),
    "a dollar that begins nothing": (
        pipeline(sources="sources: {lines: {kind: jsonl, path: $HOME/a}}"),
        (
            "4:38: path has a '$' that begins no variable: write ${NAME}, ${NAME:-default}, or $$ for a dollar sign",
        ),
    ),
    "a variable where none is read": (
        pipeline(sources="sources: {lines: {kind: jsonl, path: a, key: '${KEY}'}}"),
        (
            "4:46: key is '${KEY}': no environment variable is read here, and ${KEY} looks like one; addresses, paths and headers may have them",
        ),
    ),
    "yes for true": (
        pipeline(sources="sources: {lines: {kind: jsonl, path: a, follow: yes}}"),
        ("4:49: follow is 'yes': it must be true or false",),
    ),
    "a delimiter of two signs": (
        pipeline(sources="sources: {lines: {kind: csv, path: a, delimiter: '||'}}"),
        ("4:50: delimiter is '||': it must be a text of at most 1",),
    ),
    "a start that is none": (
        pipeline(sources="sources: {lines: {kind: stream, store: main, stream: s, start: begin}}"),
        ("4:64: start is 'begin': known are earliest, latest, or a number",),
    ),
    "a durability that SQLite has not": (
        pipeline(stores="stores: {main: {kind: sqlite, path: a, durability: none}}"),
        ("3:52: durability is 'none': known are process, power",),
    ),
    "a password in an address, beside a slip": (
        pipeline(stores="stores: {main: {kind: redis, url: 'redis://u:hunter2@h', replica: 1}}"),
        ("3:58: 'replica' is no key of store main: did you mean 'replicas'?",),
    ),
    "a layer with a slip": (
        pipeline(pipes=pipe("layers: [reliabel]")),
        ("5:40: layer 0 of pipe intake is 'reliabel', which is no pipe: did you mean 'reliable'?",),
    ),
    "a layer like no other": (
        pipeline(pipes=pipe("layers: [tcp]")),
        (
            "5:40: layer 0 of pipe intake is 'tcp', which is no pipe: known are continuous-index, dedupe, multi-unconfirmed, reliable, resend, sequential-confirm, stream, strict-monotonic",
        ),
    ),
    "no layer": (
        pipeline(pipes=pipe("layers: []")),
        ("5:39: layers of pipe intake are empty: write one, such as reliable",),
    ),
    "a layer that is a number": (
        pipeline(pipes=pipe("layers: [5]")),
        (
            "5:40: layer 0 of pipe intake is 5: write its name, or one mapping of its name to its options",
        ),
    ),
    "two layers in one": (
        pipeline(pipes=pipe("layers: [{resend: {}, dedupe: {}}]")),
        (
            "5:40: layer 0 of pipe intake is a mapping: write its name, or one mapping of its name to its options",
        ),
    ),
    "an option of a layer with a slip": (
        pipeline(pipes=pipe("layers: [{reliable: {windw: 5}}]")),
        ("5:52: 'windw' is no key of layer 0 of pipe intake (reliable): did you mean 'window'?",),
    ),
    "a window as text": (
        pipeline(pipes=pipe("layers: [{reliable: {window: '512'}}]")),
        ("5:60: window is '512': it must be a whole number, without quotes",),
    ),
    "a window of zero": (
        pipeline(pipes=pipe("layers: [dedupe, {resend: {window: 0}}]")),
        ("5:66: window is 0: it must be at least 1",),
    ),
    "a window that is half": (
        pipeline(pipes=pipe("layers: {reliable: {window: 0.5}}")),
        ("5:59: window is 0.5: it must be a whole number",),
    ),
    "timers out of order": (
        pipeline(pipes=pipe("layers: {reliable: {rto_min_s: 9, rto_max_s: 1}}")),
        (
            "5:50: layer 0 of pipe intake (reliable): rto_min_s (9.0) is above rto_max_s (1.0); raise rto_max_s",
        ),
    ),
    "a commit that is none": (
        pipeline(
            pipes=pipe(
                "layers: [{stream: {start: earliest, commit: never}}], route: {kind: sqlite, store: main}"
            )
        ),
        ("5:75: commit is 'never': known are batch, message, or a number",),
    ),
    "options that are a list": (
        pipeline(pipes=pipe("layers: [{reliable: [512]}]")),
        ("5:51: options of layer 0 of pipe intake (reliable) are a list: write a mapping",),
    ),
    "a stream layer without a store": (
        pipeline(pipes=pipe("layers: [stream]")),
        (
            "5:39: a stream layer keeps its messages in a store: write route: {kind: sqlite, store: NAME}",
        ),
    ),
    "a route through a store without a stream layer": (
        pipeline(pipes=pipe("layers: reliable, route: {kind: sqlite, store: main}")),
        (
            (
                "5:39: a route through a sqlite store needs a stream layer, which keeps the messages there: write "
                "[{stream: {start: earliest}}], or drop layers; other layers go over tcp"
            ),
        ),
    ),
    "a route with a slip": (
        pipeline(pipes=pipe("route: {kind: tpc}")),
        ("5:45: kind 'tpc' of the route of pipe intake is unknown: did you mean 'tcp'?",),
    ),
    "a route that is a word": (
        pipeline(pipes=pipe("route: tcp")),
        ("5:38: route is 'tcp': it must be a mapping",),
    ),
    "a route without its address": (
        pipeline(pipes=pipe("route: {kind: tcp}")),
        ("5:31: the route of pipe intake needs 'address'",),
    ),
    "a route through another kind of store": (
        pipeline(pipes=pipe("route: {kind: redis, store: main}")),
        ("5:59: the route's store must be a store of kind redis, and main is sqlite",),
    ),
    "a route through no store": (
        pipeline(pipes=pipe("route: {kind: sqlite, store: mian}")),
        ("5:60: the route's store 'mian' is no store: did you mean 'main'?",),
    ),
    "a retention that is none": (
        pipeline(pipes=pipe("route: {kind: sqlite, store: main, retention: {max_byte: 5}}")),
        ("5:78: 'max_byte' is no key of the retention of pipe intake: did you mean 'max_bytes'?",),
    ),
    "a journal in no store": (
        pipeline(pipes=pipe("journal: mane")),
        ("5:40: journal 'mane' is no store: did you mean 'main'?",),
    ),
    "a journal where no stores are": (
        pipeline(stores="", pipes=pipe("journal: main")),
        ("4:40: journal 'main' is no store: there are no stores: write some",),
    ),
    "a boundary with a slip": (
        pipeline(pipes=pipe("boundary: comitted")),
        ("5:41: boundary is 'comitted': did you mean 'committed'?",),
    ),
    "lanes without a key": (
        pipeline(pipes=pipe("lanes: 4")),
        ("5:38: lanes need a key, and messages of lines have none: write key",),
    ),
    "lanes that get a key on one way only": (
        pipeline(
            sources="sources: {lines: {kind: stdin, key: a}, more: {kind: stdin}}",
            pipes="pipes: {intake: {from: [lines, more], lanes: 4}}",
        ),
        ("5:46: lanes need a key, and messages of more have none: write key",),
    ),
    "an open address without a secret": (
        pipeline(pipes=pipe("route: {kind: tcp, address: '0.0.0.0:7400'}")),
        ("5:59: 0.0.0.0:7400 may be reached from other machines: write secret: ${NAME}, or tls",),
    ),
    "a secret in the file": (
        pipeline(pipes=pipe("route: {kind: tcp, address: 'h:1', secret: hunter2}")),
        (
            "5:74: secret stands in the file: put it into an environment variable, and write ${NAME}",
        ),
    ),
    "a secret with a default": (
        pipeline(pipes=pipe("route: {kind: tcp, address: 'h:1', secret: '${KEY:-hunter2}'}")),
        (
            "5:74: secret stands in the file: put it into an environment variable, and write ${NAME}",
        ),
    ),
    "a secret and certificates": (
        pipeline(
            pipes=pipe(
                "route: {kind: tcp, address: 'h:1', secret: '${KEY}', tls: {cert: a, key: b, ca: c}}"
            )
        ),
        ("5:31: the route of pipe intake has secret and tls: write one of them",),
    ),
    "certificates without an authority": (
        pipeline(pipes=pipe("route: {kind: tcp, address: 'h:1', tls: {cert: a, key: b}}")),
        ("5:66: the tls of pipe intake needs 'ca'",),
    ),
    "a local route between two nodes": (
        pipeline(pipes=pipe("node: other")),
        (
            "5:37: pipe intake goes from node main to node other, and its route is within one process: use tcp, redis or sqlite",
        ),
    ),
    "a stage that is fed on two nodes": (
        pipeline(
            sources="sources: {lines: {kind: stdin}, far: {kind: stdin, node: b}}",
            pipes="pipes: {intake: {from: lines}, other: {from: far}}",
            stages="stages: {price: {from: [intake, other], call: 'm:f'}}",
        ),
        (
            "6:24: stage price is fed on the nodes main and b: bring it all to one, each by a pipe of its own",
        ),
    ),
    "lanes of zero": (
        pipeline(pipes=pipe("lanes: 0")),
        ("5:38: lanes is 0: it must be at least 1",),
    ),
    "an expectation with a slip": (
        pipeline(pipes=pipe("expect: {delivery: exactly-one}")),
        ("5:50: delivery is 'exactly-one': did you mean 'exactly-once'?",),
    ),
    "an unknown fault": (
        pipeline(pipes=pipe("expect: {tolerates: [route-los]}")),
        ("5:52: tolerates: 'route-los' is no fault: did you mean 'route-loss'?",),
    ),
    "an order that is a delivery": (
        pipeline("expect: {order: exactly-once}"),
        (
            "8:17: order is 'exactly-once': known are none, monotonic, strict, gap-free, continuous, absolute",
        ),
    ),
    "a pipe without from": (
        pipeline(pipes="pipes: {intake: {layers: reliable}}"),
        ("5:9: pipe intake needs 'from'",),
    ),
    "fed from nowhere": (
        pipeline(pipes="pipes: {intake: {from: line}}"),
        ("5:24: pipe intake is fed from 'line', which is unknown: did you mean 'lines'?",),
    ),
    "fed from itself": (
        pipeline(pipes="pipes: {intake: {from: [lines, intake]}}"),
        (
            "5:24: messages would go round for ever: intake -> intake; feed one of them from somewhere else",
        ),
    ),
    "fed in a circle": (
        pipeline(
            stages="stages: {a: {from: [intake, b], call: 'm:f'}, b: {from: a, call: 'm:f'}}",
            sinks="sinks: {out: {from: b, kind: stdout}}",
        ),
        (
            "6:20: messages would go round for ever: b -> a -> b; feed one of them from somewhere else",
        ),
    ),
    "fed from a sink": (
        pipeline(
            "",
            stages='stages: {price: {from: intake, call: "s:p"}, more: {from: out, call: "s:p"}}',
        ),
        ("6:59: stage more is fed from sink out, and a sink feeds nothing",),
    ),
    "fed from a store": (
        pipeline(pipes="pipes: {intake: {from: [lines, main]}}"),
        (
            "5:32: pipe intake is fed from 'main', which is a store, and a source of kind stream reads one",
        ),
    ),
    "fed twice from one": (
        pipeline(pipes="pipes: {intake: {from: [lines, lines]}}"),
        ("5:32: lines feeds pipe intake twice: write it once",),
    ),
    "fed from nothing at all": (
        pipeline(pipes="pipes: {intake: {from: []}}"),
        ("5:24: from is an empty list: it must be a list with something in it",),
    ),
    "a source that nothing takes": (
        pipeline(sources="sources: {lines: {kind: stdin}, more: {kind: stdin}}"),
        ("4:33: nothing takes the messages of source more: name it in a `from`, or take it out",),
    ),
    "a pipe that nothing takes": (
        pipeline(stages="", sinks=""),
        ("5:9: nothing takes the messages of pipe intake: name it in a `from`, or take it out",),
    ),
    "a map that nothing takes": (
        pipeline(
            stages="stages: {up: {from: intake, map: 'm:f'}}",
            sinks="sinks: {out: {from: intake, kind: stdout}}",
        ),
        ("6:10: nothing takes the messages of stage up: name it in a `from`, or take it out",),
    ),
    "a sink without a pipe before it": (
        pipeline(sinks="sinks: {out: {from: [price, lines], kind: stdout}}"),
        (
            "7:21: lines reaches sink out through no pipe, so nothing delivers it: put a pipe between",
        ),
    ),
    "a stage with the name of a pipe": (
        pipeline(stages='stages: {intake: {from: lines, call: "m:f"}}', sinks=""),
        (
            "6:10: stage intake has the name of a pipe: `from` could mean either",
            "6:25: lines reaches stage intake through no pipe, so nothing delivers it: put a pipe between",
        ),
    ),
    "a stage that does nothing": (
        pipeline(stages="stages: {price: {from: intake}}"),
        (
            "6:10: stage price does nothing: write exactly one of call, map, filter, flat-map, key-by, batch",
        ),
    ),
    "a stage with the kind that others have": (
        pipeline(stages=stage("kind: flatmap")),
        (
            (
                "6:52: 'kind' is no key of stage price: a stage says by one of call, map, filter, flat-map, key-by, "
                "batch what it does: leave kind out, and write flat-map: module:function"
            ),
        ),
    ),
    "a pipe with the kind of its route": (
        pipeline(pipes=pipe("kind: tcp")),
        (
            (
                "5:31: 'kind' is no key of pipe intake: what carries a pipe is its route, which has a kind: write "
                "route: {kind: ...}"
            ),
        ),
    ),
    "a name that is none, of what nothing takes": (
        pipeline(sources="sources: {lines: {kind: stdin}, '': {kind: stdin}}"),
        (
            (
                "4:33: '' is no name of a source: a name begins with a letter and has letters, digits, '_', '.' and "
                "'-', 64 at the most"
            ),
        ),
    ),
    "a stage that does two things": (
        pipeline(stages=stage("filter: 'm:f'")),
        (
            "6:10: stage price has call and filter: write exactly one of call, map, filter, flat-map, key-by, batch",
        ),
    ),
    "a function with a dot for a colon": (
        pipeline(stages="stages: {price: {from: intake, call: shop.orders.price}}"),
        (
            "6:38: call is 'shop.orders.price': a function is written 'module:function', did you mean 'shop.orders:price'?",
        ),
    ),
    "a function as a file": (
        pipeline(stages="stages: {price: {from: intake, call: shop/orders.py}}"),
        (
            "6:38: call is 'shop/orders.py': a function is written 'module:function', and this is the path of a file: write the module's name",
        ),
    ),
    "a function with a space": (
        pipeline(stages="stages: {price: {from: intake, call: 'shop: price'}}"),
        (
            "6:38: call is 'shop: price': a function is written 'module:function', such as 'shop.orders:price'",
        ),
    ),
    "no retries": (
        pipeline(stages=stage("retries: 0")),
        ("6:61: retries is 0: it must be at least 1",),
    ),
    "waits out of order": (
        pipeline(stages=stage("retry_min_s: 60")),
        ("6:10: stage price: retry_min_s (60.0) is above retry_max_s (30.0): raise retry_max_s",),
    ),
    "a time limit below zero": (
        pipeline(stages=stage("time_limit_s: -1")),
        ("6:66: time_limit_s is -1: it must be more than 0.0",),
    ),
    "a time limit of what calls nothing": (
        pipeline(
            stages="stages: {price: {from: intake, key-by: id, time_limit_s: 5}}",
            sinks="sinks: {out: {from: price, kind: jsonl, path: out.jsonl, time_limit_s: 5}}",
        ),
        (
            "6:10: stage price: time_limit_s ends a call, and key-by makes none: leave it out",
            "7:9: sink out: time_limit_s ends a call or a request, and a jsonl sink makes neither: leave it out",
        ),
    ),
    "a time limit without end": (
        pipeline(stages=stage("time_limit_s: .inf")),
        ("6:66: time_limit_s is '.inf': it must be a number",),
    ),
    "dead letters without a stream": (
        pipeline(stages=stage("retries: 3, dead_letter: main")),
        (
            "6:77: dead_letter is 'main': a stream is written 'store/stream', such as 'main/orders.dead'",
        ),
    ),
    "dead letters in no store": (
        pipeline(stages=stage("retries: 3, dead_letter: man/dead")),
        ("6:77: dead_letter 'man' is no store: did you mean 'main'?",),
    ),
    "a batch without a size": (
        pipeline(stages="stages: {price: {from: intake, batch: {wait_s: 1}}}"),
        ("6:32: the batch of stage price needs 'max'",),
    ),
    "an unknown engine": (
        pipeline("engine: flink"),
        ("8:9: engine is 'flink': write actors or spark",),
    ),
    "an engine with a slip": (
        pipeline("engine: {kind: spark, mastr: x}"),
        ("8:23: 'mastr' is no key of engine: did you mean 'master'?",),
    ),
    "a double that is no function": (
        pipeline("simulate: {replace: {'shop:charge': doubles}}"),
        (
            "8:37: shop:charge is 'doubles': a function is written 'module:function', such as 'shop.orders:price'",
        ),
    ),
    "samples for no source": (
        pipeline("simulate: {sample: {line: [1, 2]}}"),
        ("8:21: sample has messages for 'line', which is no source: did you mean 'lines'?",),
    ),
    "everything at once": (
        pipeline(
            name="name: 7",
            stores="stores: {main: {kind: sqlit}}",
            sources="sources: {lines: {kind: jsonl}}",
            pipes=pipe("layer: reliable, boundary: commited"),
            stages=stage("retries: x"),
            sinks="sinks: {out: {from: pric, kind: stdout}}",
        ),
        (
            "2:7: name is 7: it must be a word",
            "3:23: kind 'sqlit' of store main is unknown: did you mean 'sqlite'?",
            "4:11: source lines needs 'path'",
            "5:31: 'layer' is no key of pipe intake: did you mean 'layers'?",
            "5:58: boundary is 'commited': did you mean 'committed'?",
            "6:61: retries is 'x': it must be a whole number",
            "7:21: sink out is fed from 'pric', which is unknown: did you mean 'price'?",
        ),
    ),
    "stores that parts name which are wrong elsewhere": (
        pipeline(
            pipes=pipe("boundary: commited, journal: mian"),
            stages=stage("retries: x, dead_letter: mian/dead"),
        ),
        (
            "5:41: boundary is 'commited': did you mean 'committed'?",
            "5:60: journal 'mian' is no store: did you mean 'main'?",
            "6:61: retries is 'x': it must be a whole number",
            "6:77: dead_letter 'mian' is no store: did you mean 'main'?",
        ),
    ),
    "a key of another sort of part": (
        pipeline(
            sources="sources: {lines: {kind: jsonl, path: a.jsonl, retries: 3, columns: [a]}}",
            pipes=pipe("dead_letter: main/dead"),
        ),
        (
            "4:47: 'retries' is no key of source lines: it belongs to a stage or a sink",
            "4:59: 'columns' is no key of source lines: it belongs to a sink",
            "5:31: 'dead_letter' is no key of pipe intake: it belongs to a source, a stage or a sink",
        ),
    ),
    "lanes that have no key and can't be": (
        pipeline(pipes=pipe("boundary: committed, state: main, lanes: 4")),
        (
            "5:31: boundary: pipe intake: lanes settle messages in any order, and with boundary committed a store makes one transaction after the other, and each of them holds how far the receiver is as one position. Drop lanes, or use boundary processed.",
            "5:31: split-store: pipe intake: boundary committed writes effect and cursor in one transaction, and the receiver state is in store main while the sink is in no store of ours. Keep both in one store (one SQLite file, one Redis slot), or use boundary processed.",
            "5:72: lanes need a key, and messages of lines have none: write key",
        ),
    ),
}
