"""The examples of whole pipelines run as they stand, and print what they promise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from surepipe.core.store_requests import StreamInfo
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import NONE_FOUND, redis_servers

LIMIT_S = 300
"""Only a defect takes so long."""
EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "fan_out_in.py": "320 lines: each payment booked once and judged once, each customer in order",
    "webhook.py": "50 orders posted, each in the file once and in order",
    "outbox_to_redis.py": "400 orders booked, each once and in order",
    "from_consumer_group.py": (
        "100 entries handled, 30 by the group and the others by the pipeline, each once"
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_of_a_pipeline_runs_and_prints_what_it_promises(name: str) -> None:
    """As a program of its own, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout.splitlines()


def test_three_pipes_over_one_bad_route_keep_what_each_has_said() -> None:
    """A small run; it exits with 0 only when each pipe kept its word."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "three_pipes.py"), "--messages", "300", "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 repeated, in order" in done.stdout


def test_tenants_are_served_within_their_rate_and_the_giant_waits_for_a_person(
    tmp_path: Path,
) -> None:
    """The file as it stands, by the command, from the folder of the repository."""

    def surepipe(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "surepipe", *words],
            cwd=EXAMPLES.parent,
            env={**os.environ, "CALLS": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    file = "examples/tenants.yaml"
    assert "held: 1 expectation" in surepipe("check", file)
    assert "94 accepted, 93 settled, 1 dead-lettered, 1 parked" in surepipe("run", file, "--once")
    assert "giant  overweight, 21 units" in surepipe("book", "list", file)
    assert "eve" in surepipe("dlq", "list", file)


def test_two_organisations_exchange_what_they_are_trusted_with_and_then_orders(
    tmp_path: Path,
) -> None:
    """IB-34: a process each, over Redis, by the commands that the errors name; and both are judged afterwards."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    if not (sources := redis_servers()):
        pytest.fail(NONE_FOUND)
    server = sources[0].server()
    url = server.start().url.removesuffix("/0")
    environment = {**os.environ, "SHOP_REDIS": f"{url}/1", "BAKERY_REDIS": f"{url}/2"}
    stores = {"shop": f"{url}/1?pipeline=parties", "bakery": f"{url}/2?pipeline=parties"}

    def begun(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "surepipe", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(process: subprocess.Popen[str], code: int) -> str:
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, out + err
        return out if code == 0 else err

    run = ("run", "examples/parties.yaml", "--node")
    try:
        for party in stores:
            said = ended(begun(*run, party), 2)
            assert (
                f"surepipe relay trust 'redis://HOST:PORT/DB?pipeline=parties' > {party}.trust"
                in said
            )
        for party, store in stores.items():
            (tmp_path / f"{party}.trust").write_text(ended(begun("relay", "trust", store), 0))
        with begun(*run, "bakery", "--trace", "bakery.trace") as bakery:
            shop = begun(*run, "shop", "--once", "--trace", "shop.trace")
            assert "94 accepted, 94 confirmed" in ended(shop, 0)
            with RedisStore.from_url(environment["BAKERY_REDIS"], pipeline="parties") as done:
                while not (isinstance(seen := done.info("done"), StreamInfo) and seen.next > 94):
                    done.wait("done", 94, 1_000_000)
            bakery.send_signal(signal.SIGTERM)
            out, err = bakery.communicate(timeout=LIMIT_S)
            assert "94 taken" in out, out + err
        assert "94 settled" in ended(begun("audit", "shop.trace", "bakery.trace"), 0)
        assert "94 are valid, 0 were refused" in ended(
            begun("audit", "--proofs", *stores.values()), 0
        )
    finally:
        server.close()
