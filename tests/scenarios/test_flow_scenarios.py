"""Named scenarios of what follows a pipe: stages and sinks. Title: area: fault: detail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pipelines.run.kit import plan_of, run


def test_flow_stage_fails_beside_a_file_that_had_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flow: handler failure: a branch whose line was taken back is not passed over.

    1. Message 3 goes through the first branch; its line waits for the seal of the file.
    2. The second branch raises. The line is taken back with the turn.
    3. The next turn takes the message for done in the first branch, where its line no longer is: lost.
    """
    monkeypatch.chdir(tmp_path)
    Path("lines.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(1, 6)), "utf-8")
    failures: list[int] = []

    def same(message: object) -> object:
        return message

    def fails_once(message: dict[str, int]) -> object:
        if message["n"] == 3 and not failures:
            failures.append(3)
            raise ValueError("once")
        return message

    plan = plan_of(
        "sources: {lines: {kind: jsonl, path: lines.jsonl}}\n"
        "pipes: {p: {from: lines}}\n"
        "stages:\n"
        "  first: {from: p, map: 'test:same'}\n"
        "  second: {from: p, call: 'test:fails_once', retry_min_s: 0.01}\n"
        "sinks: {a: {from: first, kind: jsonl, path: a.jsonl}, b: {from: second, kind: jsonl, path: b.jsonl}}\n"
    )
    run(plan, same=same, fails_once=fails_once)
    for name in ("a", "b"):
        lines = Path(f"{name}.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line)["n"] for line in lines] == [1, 2, 3, 4, 5]
