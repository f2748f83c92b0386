"""A lint for code whose runs must repeat exactly: what it may not import, call, or iterate over."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BANNED_MODULES = frozenset(
    {"time", "random", "uuid", "secrets", "threading", "asyncio", "multiprocessing", "socket"}
)
BANNED_CALLS = frozenset({"id", "hash"})
BANNED_ATTRIBUTES = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "os.urandom"}
)
SET_TYPES = frozenset({"set", "frozenset", "AbstractSet", "MutableSet"})
IN_ORDER = frozenset({"list", "tuple", "enumerate", "iter", "map", "zip", "join", "next", "deque"})


@dataclass(frozen=True)
class Slip:
    """A line that may make two runs of one seed differ."""

    line: int
    what: str


def slips(source: str) -> list[Slip]:
    """Everything in a module that is not allowed, in the order of its lines."""
    tree = ast.parse(source)
    found = [*_imports(tree), *_calls(tree), *_set_loops(tree)]
    return sorted(found, key=lambda slip: (slip.line, slip.what))


def slips_in(path: Path) -> list[Slip]:
    """The same for a file."""
    return slips(path.read_text())


def _imports(tree: ast.Module) -> Iterator[Slip]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.partition(".")[0] in BANNED_MODULES:
                yield Slip(node.lineno, f"imports {name}")


def _calls(tree: ast.Module) -> Iterator[Slip]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in BANNED_CALLS:
            yield Slip(node.lineno, f"calls {called.id}()")
        if isinstance(called, ast.Attribute) and ast.unparse(called) in BANNED_ATTRIBUTES:
            yield Slip(node.lineno, f"calls {ast.unparse(called)}()")


def _set_loops(tree: ast.Module) -> Iterator[Slip]:
    """Loops over sets: by what is looped over, or by how a name of this module was made or annotated."""
    names = frozenset(_names_of_sets(tree))
    for node in ast.walk(tree):
        for looped in _looped(node):
            if _is_set(looped, names):
                yield Slip(looped.lineno, f"iterates over the set {ast.unparse(looped)}")


def _looped(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.DictComp):
        yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.List | ast.Tuple):
        yield from (part.value for part in node.elts if isinstance(part, ast.Starred))
    elif isinstance(node, ast.Call):
        yield from (part.value for part in node.args if isinstance(part, ast.Starred))
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name in IN_ORDER:
            for argument in node.args:
                yield argument
                if isinstance(argument, ast.GeneratorExp):
                    yield from (generator.iter for generator in argument.generators)


def _is_set(node: ast.expr, names: frozenset[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp):
        is_union = isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor)
        return is_union and (_is_set(node.left, names) or _is_set(node.right, names))
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names


def _names_of_sets(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.arg) and node.annotation and _is_set_type(node.annotation):
            yield node.arg
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset()):
            yield from (ast.unparse(target) for target in node.targets)


def _is_set_type(annotation: ast.expr) -> bool:
    made = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(made, ast.Name) and made.id in SET_TYPES
