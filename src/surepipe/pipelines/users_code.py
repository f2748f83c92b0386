"""The user's own code: its functions by their paths, and where in it something went wrong."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar, cast

from surepipe.core.callables import is_users
from surepipe.errors import ConfigurationError, words_of
from surepipe.pipelines.problems import nearest

T = TypeVar("T")


FUNCTION_KEYS = ("call", "map", "filter", "flat_map", "key_by", "key", "payload", "model", "cost")
"""The keys under which a part may name a function or a class of the user's."""


def functions_in(parts: Iterable[T]) -> Iterator[tuple[T, str, str]]:
    """Each 'module:name' that parts of a plan have, with the part and the key that it stands under."""
    for part in parts:
        for owner in (part, getattr(part, "route", None)):
            for key in FUNCTION_KEYS:
                path = getattr(owner, key, None)
                if isinstance(path, str) and ":" in path:
                    yield part, key, path


_added: list[str] = []
"""The places that are among Python's for the plan before, and would not be there without it."""


def look_first_in(folder: Path | None) -> list[str]:
    """From now on modules are found in this folder (that of a plan's file), then where this runs, then where
    Python looks, and no more where the plan before had them. Gives these places, in that order."""
    first = [] if folder is None else [str(folder)]
    others = [place for place in sys.path if place not in _added]
    here = [] if "" in others else [str(Path.cwd())]
    _added[:] = [place for place in (*first, *here) if place not in others]
    here = [place for place in here if place not in (*first, *others)]
    sys.path[:] = [*first, *here, *(place for place in others if place not in first)]
    return sys.path


def imported(path: str, folder: Path | None = None) -> Callable[..., object]:
    """Import what 'module:name' names, which is that of this folder where it has one. Raises ConfigurationError
    that says what is wrong, and where."""
    module_name, _, name = path.partition(":")
    require_own(path, folder)
    found: object = _module(path, module_name)
    for step in name.split("."):
        if not hasattr(found, step):
            raise ConfigurationError(
                f"{path}: {module_name} has no {name!r}: {nearest(step, _functions(found))}"
            )
        found = getattr(found, step)
    if not callable(found):
        raise ConfigurationError(f"{path} is not a function")
    return found


def _module(path: str, name: str) -> ModuleType:
    try:
        with _outlived():
            return import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module raises: a slip of syntax, an exit
        raise ConfigurationError(
            f"{path}: {name} can't be imported from {Path.cwd()}: {_why(error, name)}"
        ) from error


class ProcessEnds(BaseException):
    """A module ends its process while it is imported: that would end the command without a word, and with the code
    that the module chose."""


@contextmanager
def _outlived() -> Generator[None]:
    """While this lasts, what ends this process at once, or replaces it, raises ProcessEnds. Calls of other
    threads, and of children that are forked meanwhile, do what they say."""
    names = ("_exit", "abort", "execv", "execve")  # the other exec... call these two
    here = os.getpid(), threading.get_ident()
    reals = {name: getattr(os, name) for name in names}

    def guarded(name: str) -> Callable[..., object]:
        def guard(*args: object) -> object:
            if getattr(os, name) is not guard:  # a module keeps it by name, and calls it later
                return getattr(os, name)(*args)
            if (os.getpid(), threading.get_ident()) != here:
                return reals[name](*args)
            raise ProcessEnds(f"os.{name} would end the command")

        return guard

    for name in names:
        setattr(os, name, guarded(name))
    try:
        yield
    finally:
        for name, real in reals.items():
            setattr(os, name, real)


def require_own(path: str, folder: Path | None) -> None:
    """Raises ConfigurationError where another module of the name has been loaded, for another plan, say: that one
    would be taken for the one in this folder."""
    steps = path.partition(":")[0].split(".")
    for count in range(1, len(steps) + 1):
        loaded = getattr(sys.modules.get(".".join(steps[:count])), "__file__", None)
        own = None if folder is None else _file_in(folder, steps[:count])
        if own is not None and isinstance(loaded, str) and not _is_same(own, Path(loaded)):
            raise ConfigurationError(
                f"{path}: the plan means {own}, and this process has loaded {loaded} under that name: give one of "
                "them another name, or use each plan in a process of its own"
            )


def _file_in(folder: Path, steps: Sequence[str]) -> Path | None:
    place = folder.joinpath(*steps)
    found = (place / "__init__.py", place.parent / f"{place.name}.py")
    return next((file for file in found if file.is_file()), None)


def _is_same(own: Path, loaded: Path) -> bool:
    """One file, or a copy of a module: of packages that begin alike the rest may differ."""
    if not loaded.is_file():
        return False
    is_package = own.name == "__init__.py"
    return own.samefile(loaded) or (not is_package and own.read_bytes() == loaded.read_bytes())


def _why(error: BaseException, module: str) -> str:
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"{error}: is its folder the one that this runs in?"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    file, line = _last_place(error)
    return f"{file}:{line}: {told}" if (told := _told(error)) and file else told


def _told(error: BaseException) -> str:
    words = words_of(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _functions(where: object) -> list[str]:
    """What the user wrote there, without what is imported into it."""
    home = getattr(where, "__name__", "")
    found = {name: one for name, one in vars(where).items() if not name.startswith("_")}
    return [
        name
        for name, one in found.items()
        if callable(one) and getattr(one, "__module__", "") == home
    ]


_MAKE_NAMES = {"globals", "vars", "setattr", "exec", "__getattr__"}
"""What may give a module names that its text does not show."""


def names_in(file: Path) -> Collection[str] | None:
    """The names at the top of a module, read from its text, so that nothing of it runs; None where that does not
    tell them all. Raises SyntaxError, ValueError for what is no text, and OSError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for who runs it
        tree = ast.parse(file.read_bytes(), str(file))
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    found = {name for node in _at_top(tree) for name in _named_by(node)}
    found |= {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    return None if (used | found) & {*_MAKE_NAMES, "*"} else found


def _at_top(node: ast.AST) -> Iterator[ast.AST]:
    """All that is not within a function or a class."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(
            child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
        ):
            yield from _at_top(child)


def _named_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case _:
            pass


def place_of(error: BaseException) -> str:
    """File and line of the user's code that an exception went through last; empty when there is none. Of the file
    the name alone: a trace is the same wherever its project lies."""
    file, line = _last_place(error)
    return f"{os.path.basename(file)}:{line}" if file else ""


def _last_place(error: BaseException) -> tuple[str, int]:
    found = ("", 0)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_users(frame.f_code.co_filename):
            found = frame.f_code.co_filename, line
    return found


def place_of_function(function: Callable[..., object]) -> str:
    """The file and line at which it is written; empty for what has no code of its own."""
    body: object = inspect.unwrap(function)
    if not inspect.isroutine(body):
        owner: type = body if inspect.isclass(body) else type(body)
        body = vars(owner).get("__call__", body)  # what a call of its instance runs
    code = getattr(inspect.unwrap(cast("Callable[..., object]", body)), "__code__", None)
    return place_of_code(code) if code else ""


def place_of_code(code: CodeType) -> str:
    """The file and line at which it begins."""
    return f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
