"""Have our proofs and our verdicts judged by the npm package ``@confio/ics23``: what ``make ics23`` runs.

    python -m tests.ics23.run --cases 10000

Half of the cases are honest proofs, which both must accept; half are damaged ones, on which both must agree. What
we refuse it may accept for a reason that has a name, and only where we are stricter on purpose: it is lenient
about bytes and tables, and it doesn't look at what an IAVL step begins with (ibc IB-126).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from surepipe.queues.ibc.ics23 import calculate_root, verify_membership, verify_non_membership
from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    SMT_SPEC,
    TENDERMINT_SPEC,
    ExistenceProof,
    ProofError,
)
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from tests.kit.proofs import Case, changed_step, damaged, honest_cases

PACKAGE = "@confio/ics23@0.6.8"
HERE = Path(__file__).parent
SPECS = ((IAVL_SPEC, "iavl"), (TENDERMINT_SPEC, "tendermint"), (SMT_SPEC, "smt"))
INSTALL_S, JUDGE_S = 180, 1200


def installed() -> Path:
    """The folder with the package, installed when it isn't there. Raises SystemExit where it can't be."""
    folder = Path(sys.prefix) / "ics23"
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise SystemExit("ics23: CANNOT RUN: node and npm are needed (.ci/prepare installs them)")
    if not (folder / "node_modules" / "@confio" / "ics23").exists():
        folder.mkdir(exist_ok=True)
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(folder),
            PACKAGE,
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(
                f"ics23: CANNOT RUN: npm didn't install {PACKAGE} in {INSTALL_S} s"
            ) from None
        if done.returncode:
            raise SystemExit(f"ics23: CANNOT RUN: npm could not install {PACKAGE}:\n{done.stderr}")
    return folder


def judged(cases: Sequence[Case]) -> list[bool]:
    """What the package says of each case."""
    names = {id(spec): name for spec, name in SPECS}
    lines = [
        json.dumps(
            {
                "spec": names[id(case.spec)],
                "root": case.root.hex(),
                "proof": case.proof.hex(),
                "key": case.key.hex(),
                "value": None if case.value is None else case.value.hex(),
            }
        )
        for case in cases
    ]
    folder = installed()
    done = subprocess.run(
        ["node", str(HERE / "judge.js")],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=JUDGE_S,
        check=True,
        env={
            "NODE_PATH": str(folder / "node_modules"),
            "PATH": str(Path(shutil.which("node") or "").parent),
        },
    )
    verdicts = done.stdout.split()
    assert len(verdicts) == len(cases), (
        f"{len(verdicts)} verdicts on {len(cases)} cases: {done.stderr}"
    )
    return [verdict == "true" for verdict in verdicts]


def ours(case: Case) -> bool:
    """What we say of it."""
    if case.value is None:
        return verify_non_membership(case.spec, case.root, case.proof, case.key)
    return verify_membership(case.spec, case.root, case.proof, case.key, case.value)


def reason(case: Case) -> str:
    """Why we refuse what another verifier may accept; empty when there is no such reason."""
    try:
        proof = decode_proof(case.proof)
    except ProofError:
        return "wire rule"
    try:
        root = calculate_root(proof)
    except ProofError:
        return "table rule"  # a step that isn't in the table spoils the whole batch, not its own entry alone
    is_forged = isinstance(proof, ExistenceProof) and case.spec is IAVL_SPEC and root == case.root
    return "prefix rule" if is_forged else ""


def honest(random: Random) -> Iterator[Case]:
    """Honest proofs without end."""
    while True:
        yield from honest_cases(random, random.choice((1, 5, 20, 60)))


def forged(random: Random, case: Case) -> Case:
    """An existence proof with the beginning of one step changed, under the root that this leads to: what somebody
    could make who builds a tree of his own."""
    proof = decode_proof(case.proof)
    if not isinstance(proof, ExistenceProof) or not proof.path or case.spec is not IAVL_SPEC:
        return damaged(random, case)
    layer = random.randint(1, len(proof.path))
    other = changed_step(
        proof,
        layer,
        lambda op: replace(op, prefix=random.randbytes(random.randint(1, 4)) + op.prefix[1:]),
    )
    return replace(case, root=calculate_root(other), proof=encode_proof(other))


def main(arguments: Sequence[str]) -> int:
    """The exit code is 1 when the two disagree without a reason."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    random, start = Random(options.seed), time.monotonic()
    half = options.cases // 2
    source = honest(random)
    good = [next(source) for _ in range(half)]
    bad = [damaged(random, case) for case in good[: half - half // 10]]
    bad += [forged(random, case) for case in good[half - half // 10 :]]
    cases = [*good, *bad]
    wrong, agreed, reasons = list[str](), Counter[str](), Counter[str]()
    for number, (case, theirs) in enumerate(zip(cases, judged(cases), strict=True)):
        mine = ours(case)
        if number < half and not mine:
            wrong.append(f"we refuse an honest proof: {case}")
        if mine == theirs:
            agreed["accepted" if mine else "refused"] += 1
        elif mine:
            wrong.append(f"accepted by us and refused by {PACKAGE}: {case}")
        elif why := reason(case):
            reasons[why] += 1
        else:
            wrong.append(f"refused by us and accepted by {PACKAGE}, for no known reason: {case}")
    alone = ", ".join(f"{count} by the {why}" for why, count in sorted(reasons.items()))
    said = (
        f"ics23: {len(cases)} cases (seed {options.seed}) in {time.monotonic() - start:.0f} s: both accept "
        f"{agreed['accepted']}, both refuse {agreed['refused']}; we alone refuse {alone or 'none'}"
    )
    sys.stdout.write("\n".join([said, *wrong[:10], ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
