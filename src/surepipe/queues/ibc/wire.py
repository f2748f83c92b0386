"""The bytes of proofs and of what parties exchange: protobuf messages, whose fields stand in one table here.

The library of protobuf reads and writes them, with descriptors that are built from the table in a pool of their
own, so a user's messages of the same names don't clash with them. What it reads and would write the same again is
taken. Other bytes, such as those with fields of a later version, go to a walker, which alone says what is read of
them and what is malformed (ibc IB-23): the library is lenient where two readers could differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, cast

from surepipe.errors import ConfigurationError
from surepipe.queues.ibc.proof import (
    PROOF_LIMITS,
    BatchProof,
    CommitmentProof,
    CompressedAbsence,
    CompressedBatchProof,
    CompressedExistence,
    ExistenceProof,
    InnerOp,
    LeafOp,
    MerkleProof,
    NonExistenceProof,
    ProofError,
    ProofLimits,
    read_uvarint,
    uvarint,
)

Values: TypeAlias = dict[str, Any]
"""A message: its fields by name. One that is missing is missing, or empty if it is repeated."""


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field of a message. ``kind`` is bytes, string, int32, uint64, bool or the name of a message."""

    number: int
    name: str
    kind: str
    is_repeated: bool = False
    is_one_of: bool = False
    """Whether it is one of the alternatives of its message."""


def _many(number: int, name: str, kind: str) -> MessageField:
    return MessageField(number, name, kind, is_repeated=True)


def _either(number: int, name: str, kind: str) -> MessageField:
    return MessageField(number, name, kind, is_one_of=True)


_EXISTENCE = (
    MessageField(1, "key", "bytes"),
    MessageField(2, "value", "bytes"),
    MessageField(3, "leaf", "LeafOp"),
)

MESSAGES: Final[Mapping[str, tuple[MessageField, ...]]] = {
    "LeafOp": (
        MessageField(1, "hash", "int32"),
        MessageField(2, "prehash_key", "int32"),
        MessageField(3, "prehash_value", "int32"),
        MessageField(4, "length", "int32"),
        MessageField(5, "prefix", "bytes"),
    ),
    "InnerOp": (
        MessageField(1, "hash", "int32"),
        MessageField(2, "prefix", "bytes"),
        MessageField(3, "suffix", "bytes"),
    ),
    "ExistenceProof": (*_EXISTENCE, _many(4, "path", "InnerOp")),
    "NonExistenceProof": (
        MessageField(1, "key", "bytes"),
        MessageField(2, "left", "ExistenceProof"),
        MessageField(3, "right", "ExistenceProof"),
    ),
    "BatchEntry": (
        _either(1, "exist", "ExistenceProof"),
        _either(2, "nonexist", "NonExistenceProof"),
    ),
    "BatchProof": (_many(1, "entries", "BatchEntry"),),
    "CompressedExistenceProof": (*_EXISTENCE, _many(4, "path", "int32")),
    "CompressedNonExistenceProof": (
        MessageField(1, "key", "bytes"),
        MessageField(2, "left", "CompressedExistenceProof"),
        MessageField(3, "right", "CompressedExistenceProof"),
    ),
    "CompressedBatchEntry": (
        _either(1, "exist", "CompressedExistenceProof"),
        _either(2, "nonexist", "CompressedNonExistenceProof"),
    ),
    "CompressedBatchProof": (
        _many(1, "entries", "CompressedBatchEntry"),
        _many(2, "lookup_inners", "InnerOp"),
    ),
    "CommitmentProof": (
        _either(1, "exist", "ExistenceProof"),
        _either(2, "nonexist", "NonExistenceProof"),
        _either(3, "batch", "BatchProof"),
        _either(4, "compressed", "CompressedBatchProof"),
    ),
    "MerkleProof": (_many(1, "proofs", "CommitmentProof"),),
    "Signature": (MessageField(1, "key", "bytes"), MessageField(2, "signature", "bytes")),
    "SignedHeader": (
        MessageField(1, "header", "bytes"),
        _many(2, "signatures", "Signature"),
        MessageField(3, "validators", "bytes"),
        MessageField(4, "next_validators", "bytes"),
    ),
    "TrustRoot": (
        MessageField(1, "signed", "bytes"),
        MessageField(2, "trusting_period_ms", "uint64"),
        MessageField(3, "level_above", "uint64"),
        MessageField(4, "level_below", "uint64"),
    ),
    "Misbehaviour": (MessageField(1, "first", "bytes"), MessageField(2, "second", "bytes")),
    "ClientState": (
        MessageField(1, "floor", "uint64"),
        MessageField(2, "is_closed", "bool"),
        MessageField(3, "is_frozen", "bool"),
        _many(4, "steps", "uint64"),
    ),
    "Operation": (
        MessageField(1, "space", "string"),
        MessageField(2, "key", "bytes"),
        MessageField(3, "value", "bytes"),
        MessageField(4, "delete", "bool"),
    ),
    "Append": (
        MessageField(1, "queue", "string"),
        MessageField(2, "first", "uint64"),
        _many(3, "items", "bytes"),
        _many(4, "operations", "uint64"),
        MessageField(5, "producer", "string"),
    ),
    "BlockRecord": (
        MessageField(1, "height", "uint64"),
        MessageField(2, "time_ms", "uint64"),
        _many(3, "operations", "Operation"),
        _many(4, "appends", "Append"),
        MessageField(6, "root", "bytes"),
    ),
    "Item": (
        MessageField(1, "kind", "int32"),
        MessageField(2, "key", "bytes"),
        MessageField(3, "value", "bytes"),
        MessageField(4, "form", "int32"),
        MessageField(5, "index", "uint64"),
        MessageField(6, "record", "bytes"),
    ),
    "Submission": (
        MessageField(1, "connection", "string"),
        _many(2, "headers", "bytes"),
        MessageField(3, "height", "uint64"),
        MessageField(4, "proof", "bytes"),
        _many(5, "items", "Item"),
        MessageField(6, "relayer", "bytes"),
    ),
}
"""Every message, with the names of ICS-23 where it has them."""

# Through the library.


@cache
def _classes() -> Mapping[str, Any]:
    """The message classes, made when they are first needed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415
    except ImportError as missing:
        raise ConfigurationError(
            "IBC queues need the library protobuf: install surepipe[ibc]"
        ) from missing
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "bytes": kinds.TYPE_BYTES,
        "string": kinds.TYPE_STRING,
        "int32": kinds.TYPE_INT32,
        "uint64": kinds.TYPE_UINT64,
        "bool": kinds.TYPE_BOOL,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="surepipe/ibc.proto", package="surepipe.ibc", syntax="proto3"
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(field.is_one_of for field in fields):
            message.oneof_decl.add(name="which")
        for field in fields:
            told = message.field.add(
                name=field.name,
                number=field.number,
                label=kinds.LABEL_REPEATED if field.is_repeated else kinds.LABEL_OPTIONAL,
                type=scalars.get(field.kind, kinds.TYPE_MESSAGE),
            )
            if field.kind in MESSAGES:
                told.type_name = f".surepipe.ibc.{field.kind}"
            if field.is_one_of:
                told.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"surepipe.ibc.{name}"))
        for name in MESSAGES
    }


def encode(name: str, values: Mapping[str, Any]) -> bytes:
    """A message as bytes. Numbers that are 0 and bytes that are empty take none."""
    return cast("bytes", _filled(name, values).SerializeToString(deterministic=True))


def _filled(name: str, values: Mapping[str, Any]) -> Any:
    message = _classes()[name]()
    for field in MESSAGES[name]:
        value = values.get(field.name)
        if value is None:
            continue
        if field.kind in MESSAGES:
            several = value if field.is_repeated else (value,)
            parts = [_filled(field.kind, each) for each in several]
            if field.is_repeated:
                getattr(message, field.name).extend(parts)
            else:
                getattr(message, field.name).CopyFrom(parts[0])
        elif field.is_repeated:
            getattr(message, field.name).extend(value)
        else:
            setattr(message, field.name, value)
    return message


def decode(name: str, data: bytes, limits: ProofLimits = PROOF_LIMITS) -> Values:
    """The fields of a message. Raises ProofError for bytes that are none, or are beyond the limits."""
    message = _parsed(name, data, limits)
    if message is None:
        return walk(name, data, limits)
    return _taken(name, message, _Counter(limits.fields_max))


def _message(name: str, data: bytes, limits: ProofLimits) -> Any:
    """The same as the library holds it."""
    message = _parsed(name, data, limits)
    return _filled(name, walk(name, data, limits)) if message is None else message


def _parsed(name: str, data: bytes, limits: ProofLimits) -> Any:
    """What the library reads, if it would write the same; else None."""
    if len(data) > limits.bytes_max:
        raise ProofError(f"{len(data)} bytes are more than the {limits.bytes_max} of a proof")
    classes = _classes()
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - see _classes

    message = classes[name]()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    message.DiscardUnknownFields()
    return message if message.SerializeToString(deterministic=True) == data else None


class _Counter:
    """Counts fields of a whole message, and of those in it."""

    def __init__(self, fields_max: int) -> None:
        self._left = fields_max

    def __call__(self, fields: int = 1) -> None:
        self._left -= fields
        if self._left < 0:
            raise ProofError("a message has too many fields")


def _taken(name: str, message: Any, counted: _Counter) -> Values:
    values: Values = {}
    fields = MESSAGES[name]
    counted(len(fields))
    for field in fields:
        if field.is_repeated:
            several = getattr(message, field.name)
            counted(len(several))
            if field.kind in MESSAGES:
                values[field.name] = [_taken(field.kind, each, counted) for each in several]
            else:
                values[field.name] = list(several)
        elif field.kind in MESSAGES:
            if message.HasField(field.name):
                values[field.name] = _taken(field.kind, getattr(message, field.name), counted)
        else:
            values[field.name] = getattr(message, field.name)
    return values


# By hand.

_EMPTY: Final[Mapping[str, Any]] = {
    "bytes": b"",
    "string": "",
    "int32": 0,
    "uint64": 0,
    "bool": False,
}
_VARINT, _BYTES = 0, 2


def walk(name: str, data: bytes, limits: ProofLimits = PROOF_LIMITS) -> Values:
    """The fields of bytes that the library would write otherwise. The last of a repeated scalar counts; a message
    that comes twice, two alternatives, or a known field of another type are malformed."""
    return _walk(name, data, _Counter(limits.fields_max))


def _walk(name: str, data: bytes, counted: _Counter) -> Values:
    fields = {field.number: field for field in MESSAGES[name]}
    values: Values = {field.name: [] for field in MESSAGES[name] if field.is_repeated}
    alternatives = 0
    for number, wire_type, payload in _fields_of(data, counted):
        field = fields.get(number)
        if field is None:
            continue
        if field.is_repeated:
            values[field.name].extend(_elements(field, wire_type, payload, counted))
            continue
        if field.kind in MESSAGES and field.name in values:
            raise ProofError(f"{name} has {field.name} twice")
        alternatives += field.is_one_of
        (values[field.name],) = _elements(field, wire_type, payload, counted)
    if alternatives > 1:
        raise ProofError(f"{name} has more than one of its alternatives")
    for field in MESSAGES[name]:
        if field.kind in _EMPTY:
            values.setdefault(field.name, _EMPTY[field.kind])
    return values


def _fields_of(data: bytes, counted: _Counter) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, wire type and payload of each field."""
    at = 0
    while at < len(data):
        counted()
        tag, at = read_uvarint(data, at)
        number, wire_type = tag >> 3, tag & 7
        if number == 0 or number >> 29:
            raise ProofError(f"a field has the number {number}")
        if wire_type == _VARINT:
            value, at = read_uvarint(data, at)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            length, at = read_uvarint(data, at)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            raise ProofError(f"field {number} has the wire type {wire_type}, which is not taken")
        if length > len(data) - at:
            raise ProofError(f"field {number} is cut off at the end of the bytes")
        yield number, wire_type, data[at : at + length]
        at += length


def _elements(
    field: MessageField, wire_type: int, payload: int | bytes, counted: _Counter
) -> list[Any]:
    """What one field on the wire holds: one element, or several numbers that are packed."""
    if isinstance(payload, int):
        if wire_type == _VARINT and field.kind in ("int32", "uint64", "bool"):
            return [_number(field, payload)]
    elif wire_type == _BYTES:
        if field.kind in MESSAGES:
            return [_walk(field.kind, payload, counted)]
        if field.kind == "bytes":
            return [payload]
        if field.kind == "string":
            try:
                return [payload.decode()]
            except UnicodeDecodeError as error:
                raise ProofError(f"{field.name} is not UTF-8") from error
        if field.is_repeated:
            found: list[Any] = []
            at = 0
            while at < len(payload):
                counted()
                number, at = read_uvarint(payload, at)
                found.append(_number(field, number))
            return found
    raise ProofError(f"{field.name} has the wire type {wire_type}, not its own")


def _number(field: MessageField, number: int) -> int:
    if field.kind == "int32":
        low = number & 0xFFFF_FFFF
        return low - (1 << 32) if low >> 31 else low
    return bool(number) if field.kind == "bool" else number


# Proofs.

_PROOF_TAG: Final = b"\x0a"


def encode_proof(proof: CommitmentProof) -> bytes:
    """A proof as ICS-23 writes it."""
    return encode("CommitmentProof", _proof_values(proof))


def encode_chain(proofs: MerkleProof) -> bytes:
    """A chain of proofs, the innermost first."""
    return encode("MerkleProof", {"proofs": [_proof_values(proof) for proof in proofs]})


def decode_proof(data: bytes, limits: ProofLimits = PROOF_LIMITS) -> CommitmentProof:
    """The proof. Raises ProofError."""
    message = _message("CommitmentProof", data, limits)
    return _proof(message, _Counter(limits.fields_max))


def parts_of_chain(data: bytes, limits: ProofLimits = PROOF_LIMITS) -> tuple[bytes, ...] | None:
    """The proofs of a chain, each as its bytes, where these are written as stores write them; else None. Whether
    they are proofs isn't looked at, which saves most of what decoding takes."""
    if len(data) > limits.bytes_max:
        return None
    parts, at = list[bytes](), 0
    try:
        while at < len(data):
            size, begin = read_uvarint(data, at + 1)
            if data[at:begin] != _PROOF_TAG + uvarint(size) or size > len(data) - begin:
                return None
            at = begin + size
            parts.append(data[begin:at])
    except ProofError:
        return None
    return tuple(parts)


def decode_chain(data: bytes, limits: ProofLimits = PROOF_LIMITS) -> MerkleProof:
    """The chain of proofs, the innermost first. Raises ProofError."""
    message, counted = _message("MerkleProof", data, limits), _Counter(limits.fields_max)
    return tuple([_proof(each, counted) for each in message.proofs])


def _proof_values(proof: CommitmentProof) -> Values:
    match proof:
        case ExistenceProof():
            return {"exist": _existence_values(proof)}
        case NonExistenceProof():
            return {"nonexist": _absence_values(proof)}
        case BatchProof(entries):
            return {"batch": {"entries": [_entry_values(entry) for entry in entries]}}
        case CompressedBatchProof(entries, lookup):
            return {
                "compressed": {
                    "entries": [_entry_values(entry) for entry in entries],
                    "lookup_inners": [_step_values(op) for op in lookup],
                }
            }


def _entry_values(
    entry: ExistenceProof | NonExistenceProof | CompressedExistence | CompressedAbsence,
) -> Values:
    if isinstance(entry, NonExistenceProof | CompressedAbsence):
        return {"nonexist": _absence_values(entry)}
    return {"exist": _existence_values(entry)}


def _absence_values(proof: NonExistenceProof | CompressedAbsence) -> Values:
    return {
        "key": proof.key,
        "left": proof.left and _existence_values(proof.left),
        "right": proof.right and _existence_values(proof.right),
    }


def _existence_values(proof: ExistenceProof | CompressedExistence) -> Values:
    values: Values = {"key": proof.key, "value": proof.value}
    if proof.leaf is not None:
        op = proof.leaf
        values["leaf"] = {
            "hash": op.hash,
            "prehash_key": op.prehash_key,
            "prehash_value": op.prehash_value,
            "length": op.length,
            "prefix": op.prefix,
        }
    if isinstance(proof, CompressedExistence):
        values["path"] = proof.path
    else:
        values["path"] = [_step_values(op) for op in proof.path]
    return values


def _step_values(op: InnerOp) -> Values:
    return {"hash": op.hash, "prefix": op.prefix, "suffix": op.suffix}


# Read from the library's messages, whose fields have Python's values and no types.


def _proof(message: Any, counted: _Counter) -> CommitmentProof:
    counted(4)
    match message.WhichOneof("which"):
        case "exist":
            return _existence(message.exist, counted)
        case "nonexist":
            return _absence(message.nonexist, counted)
        case "batch":
            return BatchProof(tuple([_entry(each, counted) for each in message.batch.entries]))
        case "compressed":
            small = message.compressed
            steps = _steps(small.lookup_inners, counted)
            return CompressedBatchProof(
                tuple([_compressed(each, counted) for each in small.entries]), steps
            )
        case _:
            raise ProofError("a proof has none of its alternatives")


def _entry(message: Any, counted: _Counter) -> ExistenceProof | NonExistenceProof:
    match message.WhichOneof("which"):
        case "exist":
            return _existence(message.exist, counted)
        case "nonexist":
            return _absence(message.nonexist, counted)
        case _:
            raise ProofError("an entry of a batch has none of its alternatives")


def _existence(message: Any, counted: _Counter) -> ExistenceProof:
    leaf, path = _leaf(message, counted), _steps(message.path, counted)
    return ExistenceProof(message.key, message.value, leaf, path)


def _absence(message: Any, counted: _Counter) -> NonExistenceProof:
    left = _existence(message.left, counted) if message.HasField("left") else None
    right = _existence(message.right, counted) if message.HasField("right") else None
    return NonExistenceProof(message.key, left, right)


def _compressed(message: Any, counted: _Counter) -> CompressedExistence | CompressedAbsence:
    match message.WhichOneof("which"):
        case "exist":
            return _compressed_existence(message.exist, counted)
        case "nonexist":
            found = message.nonexist
            left, right = (
                _compressed_existence(getattr(found, side), counted)
                if found.HasField(side)
                else None
                for side in ("left", "right")
            )
            return CompressedAbsence(found.key, left, right)
        case _:
            raise ProofError("an entry of a batch has none of its alternatives")


def _compressed_existence(message: Any, counted: _Counter) -> CompressedExistence:
    counted(len(message.path))
    leaf, path = _leaf(message, counted), tuple(message.path)
    return CompressedExistence(message.key, message.value, leaf, path)


def _leaf(message: Any, counted: _Counter) -> LeafOp | None:
    counted(9)
    if not message.HasField("leaf"):
        return None
    op = message.leaf
    return LeafOp(op.hash, op.prehash_key, op.prehash_value, op.length, op.prefix)


def _steps(messages: Any, counted: _Counter) -> tuple[InnerOp, ...]:
    counted(4 * len(messages))
    return tuple([InnerOp(op.hash, op.prefix, op.suffix) for op in messages])
