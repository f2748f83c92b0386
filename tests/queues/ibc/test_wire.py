"""The bytes of messages: what is read of them, whoever reads, and what is malformed."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from random import Random

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from surepipe.queues.ibc import wire
from surepipe.queues.ibc.proof import (
    CompressedBatchProof,
    CompressedExistence,
    ExistenceProof,
    InnerOp,
    LeafOp,
    ProofError,
    ProofLimits,
    read_uvarint,
    uvarint,
)
from surepipe.queues.ibc.wire import decode_chain, decode_proof, encode_chain, encode_proof
from tests.kit.proofs import damaged, honest_cases

KNOWN = (
    "0a6b0a01621201321a0b0801180120012a03000202222b08011204020402201a21202de087ae4493e1758ed8d20422e2dc08a8b97beaa2"
    "250c130381350ef62e65d822290801122504060220bbe33cd0a785b97b9fb1f964aa71159dacd9e0ade84df7403dc0f9dc2481840420"
)
"""Of key b in a tree of a, b and c."""


def field(number: int, payload: bytes) -> bytes:
    """A field of bytes, or a message, by hand."""
    return uvarint(number << 3 | 2) + uvarint(len(payload)) + payload


def number_field(number: int, value: int) -> bytes:
    """A field of a number, by hand."""
    return uvarint(number << 3) + uvarint(value)


STEP = number_field(1, 1) + field(2, b"\x02\x02\x02 ")
PROOF = field(1, field(1, b"k") + field(2, b"v") + field(4, STEP))


def test_a_known_proof_has_known_bytes() -> None:
    """IT-33: both ways."""
    proof = decode_proof(bytes.fromhex(KNOWN))
    assert isinstance(proof, ExistenceProof)
    assert (proof.key, proof.value, len(proof.path)) == (b"b", b"2", 2)
    assert encode_proof(proof).hex() == KNOWN
    assert decode_chain(encode_chain((proof, proof))) == (proof, proof)


@given(st.integers(0, 2**32))
def test_the_walker_reads_what_the_library_reads(seed: int) -> None:
    """IB-125: of honest proofs both read the same; of damaged ones the library is heard only when it is exact."""
    random = Random(seed)
    for case in random.sample(list(honest_cases(random, 6)), 3):
        walked = wire.walk("CommitmentProof", case.proof)
        assert walked == wire.decode("CommitmentProof", case.proof)
        forged = damaged(random, case).proof
        try:
            read = wire.decode("CommitmentProof", forged)
        except ProofError:
            continue
        assert read == wire.walk("CommitmentProof", forged)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    """IB-22: nothing else is raised; what is read can be written and is then the same."""
    with suppress(ProofError):
        proof = decode_proof(data)
        assert decode_proof(encode_proof(proof)) == proof
    with suppress(ProofError):
        chain = decode_chain(data)
        assert decode_chain(encode_chain(chain)) == chain


SAME = {
    "a field of a later version": field(99, b"x") + PROOF,
    "a later number": number_field(99, 5) + PROOF,
    "four and eight bytes of a later version": b"\x9d\x06abcd\x99\x06abcdefgh" + PROOF,
    "a field that comes again": field(1, field(1, b"other") + PROOF[2:]),
    "a number with zeros behind": field(1, PROOF[2:-10] + field(4, b"\x08\x81\x80\x00" + STEP[2:])),
    "a number of 33 bits": field(
        1, PROOF[2:-10] + field(4, number_field(1, (7 << 32) + 1) + STEP[2:])
    ),
}


@pytest.mark.parametrize("data", SAME.values(), ids=SAME)
def test_bytes_that_the_library_would_write_otherwise_are_walked(data: bytes) -> None:
    """IB-23: unknown fields are passed over, the last of a scalar counts, integers are the low bits."""
    assert wire.decode("CommitmentProof", data) == wire.decode("CommitmentProof", PROOF)


def test_numbers_in_a_row_are_read_packed_or_not() -> None:
    """IB-23: as the path of a compressed proof; a negative place is one of ten bytes."""
    places = (1, 300, -2)
    packed = b"".join(uvarint(place % (1 << 64)) for place in places)
    loose = b"".join(number_field(4, place % (1 << 64)) for place in places)
    for path in (field(4, packed), loose, field(4, packed[:1]) + loose[2:]):
        entry = field(1, field(1, field(1, b"k") + field(2, b"v") + path))
        proof = decode_proof(field(4, entry))
        assert isinstance(proof, CompressedBatchProof)
        (found,) = proof.entries
        assert found == CompressedExistence(b"k", b"v", None, places)


MALFORMED = {
    "nothing": b"",
    "two alternatives": PROOF + field(2, field(1, b"k")),
    "a message twice": PROOF + PROOF,
    "a leaf twice": field(1, field(3, b"") + field(3, b"")),
    "a number where bytes belong": field(1, number_field(1, 5)),
    "bytes where a number belongs": field(1, field(3, field(1, b"\x01"))),
    "a group": b"\x0b\x0c",
    "field 0": b"\x02\x00" + PROOF,
    "cut off": PROOF[:-1],
    "a length beyond the end": b"\x0a\xff\x01",
    "a number of eleven bytes": PROOF + b"\x98\x06" + b"\x80" * 10 + b"\x01",
    "a number of 65 bits": PROOF + b"\x98\x06" + b"\xff" * 9 + b"\x7f",
    "an empty entry": field(3, field(1, b"")),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed(data: bytes) -> None:
    """IB-23: where two readers could differ, nothing is read."""
    with pytest.raises(ProofError):
        decode_proof(data)


def test_fields_are_counted() -> None:
    """IB-24: those of a compressed path, too, and of whoever reads."""
    limits = ProofLimits(fields_max=1000)
    row = b"\x01" * 2000
    for path in (field(4, row), field(4, row) + field(9, b"later")):
        with pytest.raises(ProofError, match="too many fields"):
            decode_proof(field(4, field(1, field(1, field(1, b"k") + path))), limits)


@given(st.integers(0, (1 << 64) - 1))
def test_a_number_is_read_as_it_was_written(number: int) -> None:
    """IB-23: up to 64 bits."""
    assert read_uvarint(b"x" + uvarint(number) + b"y", 1) == (number, 1 + len(uvarint(number)))


def test_messages_of_the_same_names_can_be_registered_by_users() -> None:
    """IT-76: the descriptors here are in a pool of their own."""
    assert decode_proof(PROOF) == decode_proof(PROOF)
    file = descriptor_pb2.FileDescriptorProto(
        name="surepipe/ibc.proto", package="surepipe.ibc", syntax="proto3"
    )
    message = file.message_type.add(name="LeafOp")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="mine", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    mine = message_factory.GetMessageClass(pool.FindMessageTypeByName("surepipe.ibc.LeafOp"))(
        mine="x"
    )
    assert mine.SerializeToString() == field(1, b"x")
    ours = ExistenceProof(b"k", b"v", LeafOp(1), (InnerOp(1),))
    assert decode_proof(encode_proof(ours)) == ours


def test_protobuf_is_loaded_when_it_is_needed_and_named_when_it_is_missing() -> None:
    """IB-125: in a process of its own."""
    program = (
        "import sys, surepipe, surepipe.queues.ibc.wire as wire\n"
        "assert not any(name.startswith('google.protobuf') for name in sys.modules)\n"
        "sys.modules['google.protobuf'] = None\n"
        "from surepipe.errors import ConfigurationError\n"
        "try: wire.decode_proof(b'')\n"
        "except ConfigurationError as error: assert 'surepipe[ibc]' in str(error)\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
