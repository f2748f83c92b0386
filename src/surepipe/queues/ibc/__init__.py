"""Queues between parties that don't trust each other: what one side says, the other can verify.

What exists are trees, proofs of what is in them, and the verifier; docs/ibc.md says what does not exist yet.
"""

from __future__ import annotations

from surepipe.queues.ibc.iavl import IavlTree
from surepipe.queues.ibc.ics23 import (
    calculate_root,
    compress,
    decompress,
    verify_chained,
    verify_items,
    verify_membership,
    verify_non_membership,
)
from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    PROOF_LIMITS,
    SMT_SPEC,
    TENDERMINT_SPEC,
    BatchProof,
    CompressedBatchProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    InnerSpec,
    LeafOp,
    LengthOp,
    NonExistenceProof,
    ProofError,
    ProofLimits,
    ProofSpec,
)
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root, simple_root
from surepipe.queues.ibc.wire import decode_chain, decode_proof, encode_chain, encode_proof

__all__ = [
    "IAVL_SPEC", "PROOF_LIMITS", "SMT_SPEC", "TENDERMINT_SPEC", "BatchProof", "CompressedBatchProof",
    "ExistenceProof", "HashOp", "IavlTree", "InnerOp", "InnerSpec", "LeafOp", "LengthOp",
    "NonExistenceProof", "ProofError", "ProofLimits", "ProofSpec", "calculate_root", "compress",
    "decode_chain", "decode_proof", "decompress", "encode_chain", "encode_proof", "prove_in_map",
    "simple_map_root", "simple_root", "verify_chained", "verify_items", "verify_membership",
    "verify_non_membership",
]  # fmt: skip
