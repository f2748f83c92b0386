"""Proofs judged from their bytes: no other verdict than the decoder's, which proofs of stores don't need."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.queues.ibc.canonical import top_of_bytes
from surepipe.queues.ibc.iavl import IavlTree
from surepipe.queues.ibc.ics23 import calculate_root, verify_membership
from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    TENDERMINT_SPEC,
    BatchProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    ProofError,
    ProofLimits,
    ProofSpec,
    uvarint,
)
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from tests.kit.proofs import damaged, honest_cases, random_tree

OTHER_LIMITS = ProofLimits(entries_max=1023)
"""What is verified within other limits than the usual ones is decoded."""


def by_the_decoder(spec: ProofSpec, root: bytes, data: bytes, key: bytes, value: bytes) -> bool:
    """The verdict on what the decoder reads."""
    try:
        return verify_membership(spec, root, decode_proof(data), key, value)
    except ProofError:
        return False


@given(st.integers(0, 2**32))
def test_bytes_get_the_verdict_that_they_get_decoded(seed: int) -> None:
    """IB-22, IB-125: honest and damaged ones; what is shown from bytes is the root that the decoder computes."""
    random = Random(seed)
    for honest in honest_cases(random, 8):
        for case in (honest, *(damaged(random, honest) for _ in range(6))):
            if case.value is None:
                continue
            told = (case.spec, case.root, case.proof, case.key, case.value)
            assert verify_membership(*told) == by_the_decoder(*told)
            top = top_of_bytes(case.spec, case.proof, case.key, case.value)
            assert top is None or top == calculate_root(case.proof)


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_each_byte_matters_to_both(seed: int, keys: int) -> None:
    """IB-22: with any byte of an honest proof changed, removed or doubled both readers agree."""
    random = Random(seed)
    tree, model = random_tree(random, keys)
    if not model:
        return
    key = random.choice(sorted(model))
    proof = tree.prove(key)
    assert proof is not None
    data, root = encode_proof(proof), tree.root_hash
    for at in random.sample(range(len(data)), min(40, len(data))):
        changed = bytes((data[at] ^ 1 << random.randrange(8),))
        for put in (changed, b"", data[at : at + 1] * 2):
            forged = data[:at] + put + data[at + 1 :]
            told = (IAVL_SPEC, root, forged, key, model[key])
            assert verify_membership(*told) == by_the_decoder(*told)


@pytest.mark.parametrize("length", [1, 127, 128, 20_000])
def test_what_stores_write_is_never_decoded(length: int) -> None:
    """IB-124: of any tree and any size of value up to what takes three bytes of length, so its speed holds."""
    tree = IavlTree()
    for number in range(500):
        tree.set(b"%04d" % number, b"v" * length)
        if number % 7 == 0:
            tree.commit()
    tree.commit()
    for number in range(0, 500, 11):
        proof = tree.prove(b"%04d" % number)
        assert proof is not None
        found = top_of_bytes(IAVL_SPEC, encode_proof(proof), proof.key, proof.value)
        assert found == (tree.root_hash if length < 16_000 else None)
    spaces = {bytes([97 + number]) * 5: bytes([number]) * 32 for number in range(9)}
    for name, root in spaces.items():
        data = encode_proof(prove_in_map(spaces, name))
        assert top_of_bytes(TENDERMINT_SPEC, data, name, root) == simple_map_root(spaces)


def long_path(steps: int) -> ExistenceProof:
    """Of the simple tree, whose steps may stand at any height."""
    leaf = prove_in_map({b"k": b"v"}, b"k")
    op = InnerOp(HashOp.SHA256, b"\1", bytes(32))
    return replace(leaf, path=(op,) * steps)


def test_a_path_from_bytes_has_the_depth_of_its_kind() -> None:
    """IB-24: 128 steps, or what the specification says, at the least and at the most."""
    for steps, spec, holds in (
        (128, TENDERMINT_SPEC, True),
        (129, TENDERMINT_SPEC, False),
        (3, replace(TENDERMINT_SPEC, max_depth=3), True),
        (4, replace(TENDERMINT_SPEC, max_depth=3), False),
        (2, replace(TENDERMINT_SPEC, min_depth=3), False),
        (3, replace(TENDERMINT_SPEC, min_depth=3), True),
        (257, replace(TENDERMINT_SPEC, max_depth=1_000), False),
    ):
        proof = long_path(steps)
        data, root = encode_proof(proof), calculate_root(proof, ProofLimits(depth_max=300))
        for _ in range(2):
            assert verify_membership(spec, root, data, b"k", b"v") == holds
            assert (top_of_bytes(spec, data, b"k", b"v") == root) == holds


def test_a_step_that_was_seen_low_may_not_stand_high() -> None:
    """IB-124: what is remembered of a step includes how high it may stand."""
    tree = IavlTree()
    for key in (b"a", b"b"):
        tree.set(key, key)
    tree.commit()
    proof = tree.prove(b"a")
    assert proof is not None
    twice = replace(proof, path=proof.path * 2)
    for given_proof, holds in ((proof, True), (twice, False), (proof, True)):
        root, data = calculate_root(given_proof), encode_proof(given_proof)
        assert verify_membership(IAVL_SPEC, root, data, b"a", b"a") == holds
        assert by_the_decoder(IAVL_SPEC, root, data, b"a", b"a") == holds


def test_a_number_in_more_bytes_than_it_needs_is_read_by_the_decoder() -> None:
    """IB-125: lengths of two bytes for small numbers say the same, and only the decoder may say so."""
    proof = long_path(1)
    data = encode_proof(proof)
    body = data[2:]
    padded = b"\x0a" + bytes((len(body) | 0x80, 0)) + body
    assert data == b"\x0a" + uvarint(len(body)) + body
    assert top_of_bytes(TENDERMINT_SPEC, padded, b"k", b"v") is None
    told = (TENDERMINT_SPEC, calculate_root(proof), padded, b"k", b"v")
    assert verify_membership(*told) == by_the_decoder(*told)
    assert verify_membership(*told, limits=OTHER_LIMITS) == verify_membership(*told)


@pytest.mark.parametrize("key", [b"", b"k" * 128, "k", None, 7, [], {}])
def test_any_key_gets_a_verdict(key: object) -> None:
    """IB-22: what is no key, too."""
    proof = long_path(1)
    for data in (encode_proof(proof), encode_proof(BatchProof((proof,)))):
        for value in cast("list[object]", [b"v", b"", "v", 3, []]):
            assert not verify_membership(TENDERMINT_SPEC, bytes(32), data, key, value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
