"""The changes that can be made to a source file: one operator, number, condition, call or order at a time.

Changes are made to what functions do. Module-level values, defaults, decorators, assertions (in sound code a
weaker one changes nothing) and the texts of messages stay as they are.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType
from typing import cast

BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
LARGE = 1_000
"""From here on a number is a unit or a capacity: one more or less is no error of counting."""
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

Edit = tuple[object, str | int, object]
"""A node and the name of its field, or a list and a place in it; and what is put there."""


@dataclass(frozen=True)
class Change:
    """One change. ``number`` is its place among the changes of its file; the words name it across versions."""

    file: str
    number: int
    kind: str
    function: str
    block: str
    """the run of statements that it is in: who never goes there can't notice"""
    line: int
    before: str
    after: str
    nth: int
    """of the changes of its function that have the same words"""

    @property
    def name(self) -> str:
        """What stays the same when lines move."""
        which = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.file} {self.function}: {self.before} => {self.after}{which}"

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line} {self.function}: {self.kind}: {self.before} => {self.after}"
        )


@dataclass
class Source:
    """A file, and what it becomes by a change. Each call reads the text anew: trees are edited in place."""

    file: str
    path: str
    text: str

    def changes(self) -> list[Change]:
        """All of them, in the order of the file."""
        return [change for change, _ in self._walked()[0].changes]

    def code(self) -> CodeType:
        """The file as it stands."""
        return self._compiled(ast.parse(self.text))

    def changed(self, number: int) -> CodeType:
        """The file with one change."""
        walk, tree = self._walked()
        _put(walk.changes[number][1])
        return self._compiled(tree)

    def watched(self, watcher: str) -> CodeType:
        """The file with a call of ``watcher`` at the start of each block, which tells its name."""
        walk, tree = self._walked()
        for name, statements in walk.blocks:
            call = ast.Call(ast.Name(watcher, ast.Load()), [ast.Constant(name)], [])
            statements.insert(0, ast.copy_location(ast.Expr(call), statements[0]))
        return self._compiled(tree)

    def _walked(self) -> tuple[Walk, ast.Module]:
        tree = ast.parse(self.text)
        walk = Walk(self.file)
        walk.definitions(tree.body)
        return walk, tree

    def _compiled(self, tree: ast.Module) -> CodeType:
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


@dataclass
class Walk:
    """Goes over a file once, and notes each change with the edits that make it."""

    file: str
    changes: list[tuple[Change, list[Edit]]] = field(
        default_factory=list[tuple[Change, list[Edit]]]
    )
    blocks: list[tuple[str, list[ast.stmt]]] = field(
        default_factory=list[tuple[str, list[ast.stmt]]]
    )
    _path: list[str] = field(default_factory=list[str])
    _open: list[str] = field(default_factory=list[str])
    _counts: Counter[str] = field(default_factory=Counter[str])
    _worded: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])

    def definitions(self, body: Sequence[ast.stmt]) -> None:
        """Of a module or class: only what its functions do counts."""
        for statement in body:
            match statement:
                case ast.ClassDef():
                    self._path.append(statement.name)
                    self.definitions(statement.body)
                    self._path.pop()
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._function(statement)
                case _:
                    pass

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._path.append(node.name)
        self._block(node.body)
        self._path.pop()

    def _block(self, body: list[ast.stmt]) -> None:
        if not body:
            return
        function = f"{self.file} {'.'.join(self._path)}"
        self._counts[function] += 1
        name = f"{function}#{self._counts[function]}"
        self.blocks.append((name, body))
        self._open.append(name)
        for at, statement in enumerate(body):
            if _is_call(statement):
                unreached = ast.copy_location(
                    ast.If(ast.Constant(False), [statement], []), statement
                )
                self._note("call removed", statement, [(body, at, unreached)], after="pass")
            self._statement(statement)
        for at, (one, two) in enumerate(pairwise(body)):
            if _is_call(one) and _is_call(two):
                self._swap("effects swapped", one, body, at)
        self._open.pop()

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assert() | ast.Import() | ast.ImportFrom():
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
                return
            case ast.ClassDef():
                self._path.append(node.name)
                self.definitions(node.body)
                self._path.pop()
                return
            case ast.If() | ast.While():
                self._negate(node, node, "test", node.test)
            case _:
                pass
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody"):
                self._block(cast("list[ast.stmt]", value))
            elif name != "annotation":
                parts = cast("list[object]", value if isinstance(value, list) else [value])
                for part in parts:
                    self._part(node, part)

    def _part(self, statement: ast.stmt, node: object) -> None:
        """An expression, or what else a statement is made of."""
        if isinstance(node, ast.ExceptHandler | ast.match_case):
            self._block(node.body)
            for child in ast.iter_child_nodes(node):
                if not isinstance(child, ast.stmt):
                    self._part(statement, child)
            return
        if isinstance(node, ast.JoinedStr) or not isinstance(node, ast.AST):
            return
        self._expression(statement, node)
        for child in ast.iter_child_nodes(node):
            self._part(statement, child)

    def _expression(self, statement: ast.stmt, node: ast.AST) -> None:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for at, op in enumerate(node.ops):
                    if isinstance(op, ORDERED) and any(map(_is_number, sides[at : at + 2])):
                        continue  # to change the number by one, up and down, is the same and more
                    self._note("comparison", statement, [(node.ops, at, BOUNDARY[type(op)]())])
            case ast.Constant(value=int(value)) if _is_number(node) and value < LARGE:
                self._note("off by one", statement, [(node, "value", value + 1)])
                self._note("off by one", statement, [(node, "value", value - 1)])
            case ast.IfExp():
                self._negate(statement, node, "test", node.test)
            case ast.comprehension():
                for at, test in enumerate(node.ifs):
                    self._negate(statement, node.ifs, at, test)
            case ast.List():
                for at, (one, two) in enumerate(pairwise(node.elts)):
                    if isinstance(one, ast.Call) and isinstance(two, ast.Call):
                        self._swap("effects swapped", statement, node.elts, at)
            case _:
                pass

    def _negate(self, statement: ast.stmt, owner: object, place: str | int, test: ast.expr) -> None:
        ops = test.ops if isinstance(test, ast.Compare) else ()
        if len(ops) == 1 and not isinstance(ops[0], ORDERED):
            return  # to change the comparison is the same
        opposite = (
            test.operand
            if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            else ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        )
        self._note("condition negated", statement, [(owner, place, opposite)])

    def _swap(
        self, kind: str, statement: ast.stmt, items: list[ast.stmt] | list[ast.expr], at: int
    ) -> None:
        one, two = items[at], items[at + 1]
        words = f"{_head(one)}; {_head(two)}", f"{_head(two)}; {_head(one)}"
        self._note(kind, statement, [(items, at, two), (items, at + 1, one)], *words)

    def _note(
        self, kind: str, statement: ast.stmt, edits: list[Edit], before: str = "", after: str = ""
    ) -> None:
        before = before or _head(statement)
        if not after:
            undo = _put(edits)
            after = _head(statement)
            _put(undo)
        function = ".".join(self._path)
        self._worded[function, before, after] += 1
        change = Change(
            self.file,
            len(self.changes),
            kind,
            function,
            self._open[-1],
            statement.lineno,
            before,
            after,
            self._worded[function, before, after],
        )
        self.changes.append((change, edits))


def _put(edits: Sequence[Edit]) -> list[Edit]:
    """Make the edits; what takes them back."""
    undo: list[Edit] = []
    for owner, place, new in edits:
        if isinstance(place, int):
            items = cast("list[object]", owner)
            undo.append((items, place, items[place]))
            items[place] = new
        else:
            undo.append((owner, place, getattr(owner, place)))
            setattr(owner, place, new)
    return undo


def _head(node: ast.AST) -> str:
    """The node in one line: of a statement with blocks, what stands before the colon."""
    return ast.unparse(node).split("\n", 1)[0]


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_call(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
