"""Surepipe beside six task queues and a hand-written loop: speed, and what a killed worker leaves.

    make peers                                    both tables, about a quarter of an hour
    python -m benchmarks.peers.run --only celery,huey --seconds 1 --rounds 1

Prints the tables, and writes them with all figures to benchmarks/results/. README.md says how each is set up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from benchmarks.peers import kills, speed
from benchmarks.peers.catalogue import SYSTEMS, YARDSTICK, System
from benchmarks.peers.environment import ROOT, prepare, versions
from benchmarks.peers.kills import MOMENTS, Kill
from benchmarks.peers.speed import Speed
from surepipe.testing.servers import redis_servers

RESULTS = ROOT / "benchmarks" / "results"


def speed_table(found: Sequence[Speed], installed: dict[str, str]) -> str:
    """As Markdown."""
    lines = [
        "| system | messages/s | slowest – fastest | of the hand-written loop | commands per message |",
        "|:--|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {_titled(one.system, installed)} | {one.rate:,.0f} | {one.slowest:,.0f} – {one.fastest:,.0f}"
        f" | {one.ratio:.3g} | {one.commands_per_message:.3g} |"
        for one in found
    ]
    return "\n".join(lines)


def kill_table(found: Sequence[Kill], installed: dict[str, str]) -> str:
    """As Markdown: lost / repeated / reordered at each moment."""
    lines = [
        f"| system | acknowledges | notices a dead worker after | {' | '.join(MOMENTS)} |",
        "|:--|:--|:--|" + "--:|" * len(MOMENTS),
    ]
    for system in SYSTEMS:
        cells = [
            f"{one.lost} / {one.repeated} / {one.reordered}"
            for one in found
            if one.system == system.name
        ]
        if cells:
            titled = _titled(system.name, installed)
            cells = [titled, system.acknowledges, system.notices_after, *cells]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _titled(name: str, installed: dict[str, str]) -> str:
    head, comma, rest = name.partition(",")
    return name if name == YARDSTICK else f"{head} {installed[name]}{comma}{rest}"


def chosen(names: str) -> list[System]:
    """The named systems, with the yardstick; all without a name."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {name for system in SYSTEMS for name in (system.name, system.package)}
    if unknown:
        raise SystemExit(f"no such system: {', '.join(sorted(unknown))}")
    return [
        system
        for system in SYSTEMS
        if not wanted or {system.name, system.package} & wanted or system.name == YARDSTICK
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measured series")
    parser.add_argument("--rounds", type=int, default=3, help="of the speed table")
    parser.add_argument("--no-speed", action="store_true", help="only the kill table")
    parser.add_argument("--no-kills", action="store_true", help="only the speed table")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    systems = chosen(asked.only)
    prepare()
    installed = versions(system.package for system in systems)
    by_name = {system.name: installed[system.package] for system in systems}
    sources = redis_servers()
    if not sources:
        raise SystemExit("no Redis server found: install redis-server, or set SUREPIPE_REDIS_URL")
    source = sources[0]
    report = [conditions(source.name)]
    print(report[0], flush=True)
    speeds: list[Speed] = []
    killed: list[Kill] = []
    with closing(source.server()) as server:
        server.start()
        if not asked.no_speed:
            speeds = speed.measure(systems, f"{server.url}/0", asked.seconds, asked.rounds)
            report.append(speed_table(speeds, by_name))
        if not asked.no_kills:
            urls = [f"{server.url}/{number}" for number in range(1, len(MOMENTS) + 1)]
            killed = kills.table(systems, urls)
            report.append(
                "Lost / repeated / reordered, of "
                f"{kills.MESSAGES:,} messages, killed at number {kills.KILLED_AT}"
            )
            report.append(kill_table(killed, by_name))
    text = "\n\n".join(report)
    print(f"\n{text}")
    write(RESULTS, text, {"conditions": report[0]}, speeds, killed)


def conditions(server: str) -> str:
    """Where this was measured, with what; the load says whether anything else ran."""
    libraries = versions(("redis", "hiredis", "kombu", "taskiq-redis"))
    return "; ".join(
        (
            server,
            f"Python {platform.python_version()}",
            *(f"{name} {version}" for name, version in libraries.items()),
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before",
        )
    )


def write(
    folder: Path,
    text: str,
    about: dict[str, str],
    speeds: Sequence[Speed],
    killed: Sequence[Kill],
) -> None:
    """Keep the tables, and the figures for programs."""
    folder.mkdir(exist_ok=True)
    (folder / "peers.md").write_text(text + "\n")
    found = {"speed": [asdict(one) for one in speeds], "kills": [asdict(one) for one in killed]}
    figures = {**about, **found}
    (folder / "peers.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
