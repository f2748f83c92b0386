"""Queues between parties that don't trust each other: what one side says, the other can verify.

What exists are trees, proofs of what is in them, the verifier, the Merkle store, headers and queues; docs/ibc.md
says what does not yet.
"""

from __future__ import annotations

from surepipe.queues.ibc.headers import (
    Client,
    ClientStatus,
    Header,
    HeaderError,
    HeaderOutcome,
    Misbehaviour,
    SignedHeader,
    TrustedHeader,
    TrustRoot,
    ValidatorSet,
    public_key,
    sign,
    update_to,
)
from surepipe.queues.ibc.iavl import IavlTree
from surepipe.queues.ibc.ics23 import (
    STORE_SPECS,
    calculate_root,
    compress,
    decompress,
    verify_chained,
    verify_items,
    verify_membership,
    verify_non_membership,
)
from surepipe.queues.ibc.keys import QueueKey, Receipt, SendValue, UndecodableValue, parse_key
from surepipe.queues.ibc.merkle_store import (
    BlockRecord,
    IbcRefused,
    MerkleStore,
    Operation,
    QueueAppend,
    Savepoint,
    Version,
    Working,
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
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root, simple_root
from surepipe.queues.ibc.wire import decode_chain, decode_proof, encode_chain, encode_proof

__all__ = [
    "IAVL_SPEC", "PROOF_LIMITS", "SMT_SPEC", "STORE_SPECS", "TENDERMINT_SPEC", "BatchProof",
    "BlockRecord", "Client", "ClientStatus", "CompressedBatchProof", "ExistenceProof", "HashOp",
    "Header", "HeaderError", "HeaderOutcome", "IavlTree", "IbcRefused", "InnerOp", "InnerSpec",
    "LeafOp", "LengthOp", "MerkleStore", "Misbehaviour", "NonExistenceProof", "Operation",
    "ProofError", "ProofLimits", "ProofSpec", "ProvableQueue", "QueueAppend", "QueueKey",
    "Receipt", "Savepoint", "SendValue", "SignedHeader", "TrustRoot", "TrustedHeader",
    "UndecodableValue", "ValidatorSet", "Version", "Working", "calculate_root", "compress",
    "decode_chain", "decode_proof", "decompress", "encode_chain", "encode_proof", "parse_key",
    "prove_in_map", "public_key", "sign", "simple_map_root", "simple_root", "update_to",
    "verify_chained", "verify_items", "verify_membership", "verify_non_membership",
]  # fmt: skip
