"""Have our proofs and our verdicts judged by the npm package ``@confio/ics23``: what ``make ics23`` runs (IB-26).

    python -m tests.ics23.run --cases 10000

Half of the cases are honest proofs, which both must accept; half are damaged ones, some of them mere noise, on
which both must agree (IT-75). Three rules of ours it doesn't have (decision 0051): bytes, tables, and what an IAVL
step begins with. A case that we alone refuse is judged again with these rules lifted, one after the other, until
we accept it, too: so the rules that are named are the whole difference (ibc IB-126).
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
    CommitmentProof,
    CompressedAbsence,
    CompressedBatchProof,
    CompressedExistence,
    ExistenceProof,
    ProofError,
    Rules,
)
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from tests.kit.proofs import Case, changed_step, damaged, honest_cases, stored_cases

PACKAGE = "@confio/ics23@0.6.8"
HERE = Path(__file__).parent
SPECS = ((IAVL_SPEC, "iavl"), (TENDERMINT_SPEC, "tendermint"), (SMT_SPEC, "smt"))
WITHOUT_RULES = replace(IAVL_SPEC)
object.__setattr__(WITHOUT_RULES, "rules", Rules.NONE)
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


def judged(cases: Sequence[Case]) -> list[list[bytes] | None]:
    """What the package says of each case: None, or the proof as it writes it after it has read and accepted it. It
    may have read several alternatives, where there must be one."""
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
    verdicts = done.stdout.splitlines()
    assert len(verdicts) == len(cases), (
        f"{len(verdicts)} verdicts on {len(cases)} cases: {done.stderr}"
    )
    return [
        None if each == "false" else [bytes.fromhex(one) for one in each.split()[1:]]
        for each in verdicts
    ]


def ours(case: Case) -> bool:
    """What we say of it."""
    if case.value is None:
        return verify_non_membership(case.spec, case.root, case.proof, case.key)
    return verify_membership(case.spec, case.root, case.proof, case.key, case.value)


def stricter_rules(case: Case, rewritten: Sequence[bytes]) -> list[str]:
    """Which rules make us refuse what the package accepts; empty when these rules don't explain it."""
    try:
        return _stricter(case, decode_proof(case.proof))
    except ProofError:
        found = [_stricter(case, decode_proof(each), "bytes") for each in rewritten]
        return next((rules for rules in found if rules), list[str]())


def _stricter(case: Case, proof: CommitmentProof, *before: str) -> list[str]:
    rules = list(before)
    if isinstance(proof, CompressedBatchProof) and not ours(_of(case, proof)):
        size = len(proof.lookup)
        kept = [each for each in proof.entries if all(0 <= place < size for place in _places(each))]
        if len(kept) < len(proof.entries):
            rules.append("table")
            proof = replace(proof, entries=tuple(kept))
    case = _of(case, proof)
    if not ours(case) and case.spec is IAVL_SPEC:
        rules.append("steps")
        case = replace(case, spec=WITHOUT_RULES)
    return rules if ours(case) else []


def _of(case: Case, proof: CommitmentProof) -> Case:
    return replace(case, proof=encode_proof(proof))


def _places(entry: CompressedExistence | CompressedAbsence) -> list[int]:
    sides = [entry] if isinstance(entry, CompressedExistence) else [entry.left, entry.right]
    return [place for side in sides if side for place in side.path]


def honest(random: Random) -> Iterator[Case]:
    """Honest proofs without end."""
    while True:
        yield from honest_cases(random, random.choice((1, 5, 20, 60)))
        yield from stored_cases(random, random.choice((1, 5, 20)))


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
    for place in range(0, len(bad), 20):
        noise = random.randbytes(random.randrange(200))
        bad[place] = replace(bad[place], proof=noise)
    cases = [*good, *bad]
    wrong, agreed, stricter = list[str](), Counter[str](), Counter[str]()
    for number, (case, rewritten) in enumerate(zip(cases, judged(cases), strict=True)):
        mine, theirs = ours(case), rewritten is not None
        if number < half and not mine:
            wrong.append(f"we refuse an honest proof: {case}")
        if mine == theirs:
            agreed["accepted" if mine else "refused"] += 1
        elif mine:
            wrong.append(f"accepted by us and refused by {PACKAGE}: {case}")
        elif rewritten and (rules := stricter_rules(case, rewritten)):
            stricter[" and ".join(rules)] += 1
        else:
            wrong.append(
                f"refused by us and accepted by {PACKAGE}, by no rule that is known: {case}"
            )
    alone = ", ".join(f"{count} by the rule of {why}" for why, count in sorted(stricter.items()))
    said = (
        f"ics23: {len(cases)} cases (seed {options.seed}) in {time.monotonic() - start:.0f} s: both accept "
        f"{agreed['accepted']}, both refuse {agreed['refused']}; both agree when we lift a rule: "
        f"{alone or 'none'}; no agreement on {len(wrong)}"
    )
    sys.stdout.write("\n".join([said, *wrong[:10], ""]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
