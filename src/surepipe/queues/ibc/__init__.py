"""Queues between parties that don't trust each other: what one side says, the other can verify.

From the top down: ``Party`` with its modules, ``Relay``, headers and those who believe them, provable queues, the
Merkle store, trees and proofs.
"""

from __future__ import annotations

from surepipe.queues.ibc.calls import CallOutcome, Item, ItemKind, Submission, SubmissionOutcome
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
from surepipe.queues.ibc.ledger import Ledger
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
from surepipe.queues.ibc.module import DEFER, Fail, Transaction
from surepipe.queues.ibc.party import Module, Party, Sending, load_trust, save_trust
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
from surepipe.queues.ibc.relay import Path, PathStatus, Relay, RelayEnd, RelayOptions
from surepipe.queues.ibc.signer import Signer
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root, simple_root
from surepipe.queues.ibc.transitions import Connection, ConnectionState, PartyLimits
from surepipe.queues.ibc.wire import decode_chain, decode_proof, encode_chain, encode_proof

__all__ = [
    "DEFER", "IAVL_SPEC", "PROOF_LIMITS", "SMT_SPEC", "STORE_SPECS", "TENDERMINT_SPEC",
    "BatchProof", "BlockRecord", "CallOutcome", "Client", "ClientStatus", "CompressedBatchProof",
    "Connection", "ConnectionState", "ExistenceProof", "Fail", "HashOp", "Header", "HeaderError",
    "HeaderOutcome", "IavlTree", "IbcRefused", "InnerOp", "InnerSpec", "Item", "ItemKind",
    "LeafOp", "Ledger", "LengthOp", "MerkleStore", "Misbehaviour", "Module", "NonExistenceProof",
    "Operation", "Party", "PartyLimits", "Path", "PathStatus", "ProofError", "ProofLimits",
    "ProofSpec", "ProvableQueue", "QueueAppend", "QueueKey", "Receipt", "Relay", "RelayEnd",
    "RelayOptions", "Savepoint", "SendValue", "Sending", "SignedHeader", "Signer", "Submission",
    "SubmissionOutcome", "Transaction", "TrustRoot", "TrustedHeader", "UndecodableValue",
    "ValidatorSet", "Version", "Working", "calculate_root", "compress", "decode_chain",
    "decode_proof", "decompress", "encode_chain", "encode_proof", "load_trust", "parse_key",
    "prove_in_map", "public_key", "save_trust", "sign", "simple_map_root", "simple_root",
    "update_to", "verify_chained", "verify_items", "verify_membership", "verify_non_membership",
]  # fmt: skip
