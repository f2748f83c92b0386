"""``surepipe check``: what a pipeline guarantees, why, what it does not survive, and what to add."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from surepipe.cli.engines import known_engine
from surepipe.cli.output import Exit, complain_about_file, show, show_json

if TYPE_CHECKING:
    from surepipe.core.claims import Claim
    from surepipe.core.store_requests import Level
    from surepipe.pipelines.assessing import Assessment
    from surepipe.pipelines.loading import Document
    from surepipe.pipelines.plan import Plan


NamesOf: TypeAlias = Callable[[Path], Collection[str] | None]
"""Tells which names a file of code has."""


def check(
    file: Annotated[Path, typer.Argument(help="The pipeline, a YAML file.", show_default=False)],
    *,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            "-r",
            metavar="CLAIM",
            help="What must hold from each source to each sink, such as 'exactly-once, absolute; "
            "tolerates network, process-crash'. May be given several times.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Judge for this engine, actors or spark, in place of the file's."),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Ask the Redis servers what they keep. Without it, nothing is opened."
        ),
    ] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Give the reason for each of the four atoms too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document, for machines.")
    ] = False,
) -> None:
    """Say what a pipeline guarantees, before it runs.

    Pipe by pipe and end to end: how often and in which order messages are delivered, through which faults, which
    faults it does not survive and why, and what to add. Reads the file, and looks whether the modules that it
    names are there; imports none.
    """
    from surepipe.cli.verdicts import errors_as_json
    from surepipe.pipelines import PipelineErrors, read

    claims = _claims(require or [])
    known_engine(engine)
    try:
        document = read(file)
    except PipelineErrors as error:
        if not as_json:
            raise
        show_json(errors_as_json(error))
        raise typer.Exit(Exit.UNUSABLE) from None
    _judge(document, claims, engine, _levels(document) if probe else {}, why=why, as_json=as_json)


def _judge(
    document: Document,
    claims: list[Claim],
    engine: str | None,
    levels: dict[str, Level],
    *,
    why: bool,
    as_json: bool,
) -> None:
    from surepipe.cli.verdicts import as_document, as_lines, as_problems
    from surepipe.pipelines import assess

    assessment = assess(document.plan, require=claims, engine=engine, levels=levels)
    notes = (*assessment.notes, *_not_found(document.plan))
    assessment = replace(assessment, notes=notes)
    code = _code(assessment)
    if as_json:
        show_json(as_document(assessment, document, code))
    else:
        show(as_lines(assessment, document.text.name, why=why))
        for problem in as_problems(assessment, document):
            complain_about_file(problem)
    if code is not Exit.HELD:
        raise typer.Exit(code)


def _not_found(plan: Plan) -> Iterator[str]:
    """What `run` would end at: functions that are nowhere where it looks. Imports nothing."""
    from surepipe.pipelines.users_code import functions_in, look_first_in, names_in

    names_of = cache(names_in)  # several functions stand in one file
    places = look_first_in(plan.folder)
    own = [*dict.fromkeys(place for place in (plan.folder, Path.cwd()) if place is not None)]
    for part, key, path in functions_in(plan.parts):
        why = _why_not_there(path, places, own, names_of)
        if why:
            yield f"{part.word} {part.name}: {key.replace('_', '-')} is {path}, and {why}: run would end at it"


def _why_not_there(path: str, places: Sequence[str], own: Sequence[Path], names_of: NamesOf) -> str:
    from surepipe.core.callables import is_users

    module, _, name = path.partition(":")
    found = _found(module, places)
    if found is None:
        return f"there is no module {module} in {' or '.join(map(str, own))}, or among what is installed"
    has_text = found.suffix == ".py" and is_users(str(found))
    return _why_not_in(found, name.partition(".")[0], names_of) if has_text else ""


def _why_not_in(file: Path, name: str, names_of: NamesOf) -> str:
    from surepipe.pipelines.problems import nearest

    try:
        names = names_of(file)
    except SyntaxError as error:
        return f"{file}:{error.lineno} is no Python: {error.msg}"
    except ValueError as error:
        return f"{file} is no Python: {error}"
    except OSError as error:
        return f"{file} can't be read: {error.strerror}"
    is_package = file.name == "__init__.py"
    if names is None or name in names or (is_package and _found(name, [str(file.parent)])):
        return ""
    return f"{file} has no {name!r}: {nearest(name, sorted(names))}"


def _found(module: str, places: Sequence[str] | None) -> Path | None:
    """The file of a module, or a place that is none for one without a file of its own; None where none is."""
    steps = module.split(".")
    missing = _NO_FILE if module in sys.modules else None  # os.path, for one, is found by no path
    origin = None
    if steps[0] in sys.builtin_module_names:
        return _NO_FILE
    for end in range(1, len(steps) + 1):
        spec = PathFinder.find_spec(".".join(steps[:end]), places)
        if spec is None:
            return missing
        places, origin = spec.submodule_search_locations, spec.origin
        if places is None and end < len(steps):
            return missing  # below what is no package there is none
    return Path(origin) if origin else _NO_FILE


_NO_FILE = Path()


def _code(assessment: Assessment) -> Exit:
    if not assessment.usable:
        return Exit.UNUSABLE
    return Exit.HELD if assessment.held else Exit.VIOLATED


def _claims(texts: list[str]) -> list[Claim]:
    from surepipe.core.claims import Claim

    return [Claim.parse(text) for text in texts]


def _levels(document: Document) -> dict[str, Level]:
    """What the Redis servers say that they keep. Raises StoreUnavailable, ConfigurationError."""
    from surepipe.cli.engines import probed_levels

    return probed_levels(document.plan, doubting=True)
