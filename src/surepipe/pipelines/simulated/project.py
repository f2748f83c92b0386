"""The modules of a user's project that stages are made of: their own, and those of it that these import."""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

_LIBRARIES = tuple(
    Path(path).resolve()
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
_SUREPIPE = Path(__file__).resolve().parents[2]
_INSTALLED = frozenset({"site-packages", "dist-packages"})


def project_modules(
    modules: Iterable[ModuleType], folder: Path | None = None, without: Iterable[ModuleType] = ()
) -> tuple[ModuleType, ...]:
    """These, and whatever they import, directly or not, of the same project: from this folder, or from beside one
    of them (of a package: from anywhere in it). What is installed is no part of a project.

    Those in ``without`` are left out, with what nobody else imports.
    """
    found = dict.fromkeys(one for one in modules if one.__name__ not in sys.stdlib_module_names)
    roots = [folder.resolve()] if folder is not None else []
    roots += [root for module in found for root in _root_of(module)]
    barred = {module.__name__ for module in without}
    pending = list(found)
    while pending:
        for name in _imported_by(pending.pop(), roots):
            module = sys.modules.get(name)
            if module is None or module in found or name in barred:
                continue
            if _is_of_project(module, roots):
                found[module] = None
                pending.append(module)
    return tuple(found)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _root_of(module: ModuleType) -> Iterator[Path]:
    """Its folder; of a package the outermost one."""
    file = _file_of(module)
    if file is not None and not _is_installed(file):
        depth = module.__name__.count(".") - (file.name != "__init__.py")
        yield file.parents[max(0, depth)]


def _is_installed(file: Path) -> bool:
    if not _INSTALLED.isdisjoint(file.parts):
        return True
    return any(file.is_relative_to(place) for place in (*_LIBRARIES, _SUREPIPE))


def _is_of_project(module: ModuleType, roots: Sequence[Path]) -> bool:
    file = _file_of(module)
    if file is None or _is_installed(file):
        return False
    return any(file.is_relative_to(root) for root in roots)


def _imported_by(module: ModuleType, roots: Sequence[Path]) -> Iterator[str]:
    """The names of modules that its text imports; what else it imports by name is not among the modules loaded.

    What only a function imports is loaded now: else the first process to call it would load it for all.
    """
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # it has no source
        return
    for name in _names(module, ast.walk(tree)):
        yield name
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))
    for name in _names(module, (inner for one in functions for inner in ast.walk(one))):
        if name not in sys.modules and _may_be_in(name, roots):
            with suppress(Exception):  # the function will say what is wrong with it
                import_module(name)
            yield name


def _names(module: ModuleType, nodes: Iterable[ast.AST]) -> Iterator[str]:
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the outermost package
                base = resolve_name("." * node.level + (node.module or ""), package)
                yield from _with_parents(base)
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_parents(name: str) -> Iterator[str]:
    """A module is loaded after the packages around it."""
    parts = name.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _may_be_in(name: str, roots: Sequence[Path]) -> bool:
    path = Path(*name.split("."))
    places = [place for root in roots for place in (root / path, root.parent / path)]
    return any(place.with_suffix(".py").is_file() or place.is_dir() for place in places)
