"""Rewrites the findings of pydantic into words that say what to write instead. Values are quoted as they stand
in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel

from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import AnySource
from surepipe.pipelines.models.stages import STAGE_KINDS, AnySink, StagePart
from surepipe.pipelines.problems import mask, nearest
from surepipe.pipelines.reading import Mapping as MappingNode
from surepipe.pipelines.reading import Node, Scalar, YamlList, value_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


QUOTED_MAX = 60
_PARTS: Mapping[str, tuple[type[BaseModel], ...]] = {
    "a source": get_args(AnySource),
    "a pipe": (PipePart,),
    "a stage": (StagePart,),
    "a sink": get_args(AnySink),
}
_NUMBERS = frozenset(
    {"int_type", "float_type", "greater_than", "greater_than_equal", "less_than_equal"}
)
_SAY = ("has ", "is ", "does ", "stands ")


def said_of(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    """One error in our words. ``node``: what it is about; ``model``: the part's; ``what``: its name."""
    rule = _RULES.get(error["type"])
    if rule is not None:
        return rule(error, node, model, what)
    return f"{_key(error)} is {quoted(node)}: {lower_first(error['msg'])}"


def joined(errors: Sequence[ErrorDetails]) -> ErrorDetails:
    """Errors about one value as one: a closed set of words goes first, and says if a number would do too."""
    words = [error for error in errors if error["type"] == "literal_error"]
    chosen = words[0] if words else errors[0]
    if words and any(error["type"] in _NUMBERS for error in errors):
        chosen["ctx"] = {**chosen.get("ctx", {}), "or": ", or a number"}
    return chosen


def quoted(node: Node) -> str:
    """A value as it stands in the file, without passwords and not too long."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, YamlList):
        return "a list" if node.items else "an empty list"
    if node.value is None:
        return "empty"
    text = mask(node.written)
    text = text if len(text) <= QUOTED_MAX else f"{text[: QUOTED_MAX - 3]}..."
    return repr(text) if isinstance(node.value, str) else text


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a part may have in a file."""
    fields = model.model_fields.items()
    return tuple(
        str(field.validation_alias or name)
        for name, field in fields
        if name != "name" or not field.exclude
    )


def words_of(model: type[BaseModel], key: str) -> tuple[str, ...]:
    """The words that a key may have as its value, where they are a closed set."""
    for name, field in model.model_fields.items():
        if key in (name, field.validation_alias):
            return tuple(_literals(field.annotation))
    return ()


def lower_first(text: str) -> str:
    """A message of pydantic as the second half of ours."""
    text = text.removeprefix("Value error, ").removeprefix("Input ")
    return text[:1].lower() + text[1:]


def _literals(annotation: object) -> list[str]:
    if get_origin(annotation) is None:
        return []
    found: list[str] = []
    for argument in get_args(annotation):
        found += [argument] if isinstance(argument, str) else _literals(argument)
    return found


def _key(error: ErrorDetails) -> str:
    """The key that an error is about; of a list, the key that holds it."""
    names = [step for step in error["loc"] if isinstance(step, str)]
    return str(names[-1]) if names else "this"


def _unknown(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    key = _key(error)
    if key == "kind" and (instead := _instead_of_kind(node, model)):
        return f"{key!r} is no key of {what}: {instead}"
    meant = nearest(key, keys_of(model))
    elsewhere = "" if meant.startswith("did you mean") else _others_with(key, model)
    return f"{key!r} is no key of {what}: {elsewhere or meant}"


def _instead_of_kind(node: Node, model: type[BaseModel]) -> str:
    """What says in a part without a kind what its kind would."""
    word = node.written if isinstance(node, Scalar) else ""
    if model is StagePart:
        kind = (get_close_matches(word[:QUOTED_MAX], STAGE_KINDS, n=1) or STAGE_KINDS)[0]
        does = {"key-by": "field", "batch": "{max: 100}"}.get(kind, "module:function")
        known = ", ".join(STAGE_KINDS)
        return (
            f"a stage says by one of {known} what it does: leave kind out, and write {kind}: {does}"
        )
    if model is PipePart:
        return "what carries a pipe is its route, which has a kind: write route: {kind: ...}"
    return ""


def _others_with(key: str, model: type[BaseModel]) -> str:
    """Where a key belongs that stands at a part of another sort; '' when nowhere, or when that is no part."""
    having = {role: any(key in keys_of(kind) for kind in kinds) for role, kinds in _PARTS.items()}
    own = next((role for role, kinds in _PARTS.items() if model in kinds), None)
    if own is None or having[own] or not any(having.values()):
        return ""
    *first, last = (role for role, has in having.items() if has)
    return f"it belongs to {' or '.join(filter(None, (', '.join(first), last)))}"


def _missing(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del node, model
    return f"{what} needs {_key(error)!r}"


def _no_kind(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del node, model
    return f"{what} needs 'kind', one of {_context(error, 'kinds', '')}"


def _wrong_kind(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del model
    known = tuple(_tags(_context(error, "expected_tags", "")).split(", "))
    kind = node.values.get("kind", node) if isinstance(node, MappingNode) else node
    word = str(kind.value) if isinstance(kind, Scalar) else ""
    if word == "rmq" and what.startswith("source "):
        hint = "write kind: stream, with stream: decided of a node's store"
        return (
            f"kind 'rmq' of {what} is unknown: what a replicated queue decided is a stream: {hint}"
        )
    return f"kind {quoted(kind)} of {what} is unknown: {nearest(word, known)}"


def _tags(text: str) -> str:
    return text.replace("'", "")


def _wrong_word(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del what
    key = _key(error)
    known = words_of(model, key)
    if not known:
        expected = _context(error, "expected", "").replace("'", "")
        return f"{key} is {quoted(node)}: write {expected}"
    word = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
    hint = nearest(word, known) if word else f"write one of {', '.join(known)}"
    return f"{key} is {quoted(node)}: {hint}{_context(error, 'or', '')}"


def _wrong_type(wanted: str) -> Callable[[ErrorDetails, Node, type[BaseModel], str], str]:
    def rule(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
        del model, what
        text = f"{_key(error)} is {quoted(node)}: it must be {wanted}"
        return f"{text}, without quotes" if _is_quoted_number(node) else text

    return rule


def _is_quoted_number(node: Node) -> bool:
    return (
        isinstance(node, Scalar)
        and not node.plain
        and isinstance(value_of(node.written), int | float)
    )


def _bound(words: str, name: str) -> Callable[[ErrorDetails, Node, type[BaseModel], str], str]:
    def rule(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
        del model, what
        return f"{_key(error)} is {quoted(node)}: it must be {words} {_context(error, name, '')}"

    return rule


def _rule_of_ours(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del model
    said = error["msg"].removeprefix("Value error, ")
    if not error["loc"] or isinstance(node, MappingNode):
        return f"{what}{'' if said.startswith(_SAY) else ':'} {said}"
    if said.startswith("'"):
        return f"{_key(error)}: {said}"
    joint = " " if said.startswith(_SAY) else f" is {quoted(node)}: "
    return f"{_key(error)}{joint}{said}"


def _name(error: ErrorDetails, node: Node, model: type[BaseModel], what: str) -> str:
    del model, what
    key = _key(error)
    if key == "party":
        signs = "letters, digits and '_', '.', '+', '#', '[', ']', '<', '>', '-'"
        return f"{key} is {quoted(node)}: the name of a party has 2 to 64 {signs}"
    return f"{key} is {quoted(node)}: a name begins with a letter and has letters, digits, '_', '.' and '-'"


def _context(error: ErrorDetails, name: str, default: str) -> str:
    context: Mapping[str, Any] = error.get("ctx", {})
    return str(context.get(name, default))


_RULES: Mapping[str, Callable[[ErrorDetails, Node, type[BaseModel], str], str]] = {
    "extra_forbidden": _unknown,
    "missing": _missing,
    "union_tag_not_found": _no_kind,
    "union_tag_invalid": _wrong_kind,
    "literal_error": _wrong_word,
    "enum": _wrong_word,
    "int_type": _wrong_type("a whole number"),
    "int_from_float": _wrong_type("a whole number"),
    "float_type": _wrong_type("a number"),
    "finite_number": _wrong_type("a number"),
    "bool_type": _wrong_type("true or false"),
    "string_type": _wrong_type("a word"),
    "dict_type": _wrong_type("a mapping"),
    "model_type": _wrong_type("a mapping"),
    "model_attributes_type": _wrong_type("a mapping"),
    "list_type": _wrong_type("a list"),
    "tuple_type": _wrong_type("a word or a list of words"),
    "is_instance_of": _wrong_type("a text"),
    "string_too_short": _wrong_type("a word"),
    "string_too_long": _bound("a text of at most", "max_length"),
    "too_short": _wrong_type("a list with something in it"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "greater_than": _bound("more than", "gt"),
    "less_than": _bound("less than", "lt"),
    "string_pattern_mismatch": _name,
    "value_error": _rule_of_ours,
}
