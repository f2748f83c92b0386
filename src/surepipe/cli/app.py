"""The command's frame: which commands there are, and what happens to errors.

A command is a function in a module of its own in this folder; it is entered in ``COMMANDS``. Its module imports
only ``typer`` and ``output`` when it is loaded, and the rest in the function: so
``surepipe --help`` is quick. It ends by returning (0) or by ``raise typer.Exit(Exit...)``; every SurepipeError
that it lets pass becomes one clear line and exit code 2.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import typer
from typer.core import TyperCommand

from surepipe.cli import end_at_once
from surepipe.cli.commands.audit import audit
from surepipe.cli.commands.bench import bench
from surepipe.cli.commands.book import book
from surepipe.cli.commands.check import check
from surepipe.cli.commands.dlq import dlq
from surepipe.cli.commands.graph import graph
from surepipe.cli.commands.init import init
from surepipe.cli.commands.node import node, submit, watch
from surepipe.cli.commands.plan import plan
from surepipe.cli.commands.readers import readers
from surepipe.cli.commands.relay import EPILOG as RELAY_CODES
from surepipe.cli.commands.relay import relay
from surepipe.cli.commands.replay import replay
from surepipe.cli.commands.run import run as run_pipeline
from surepipe.cli.commands.schema import schema
from surepipe.cli.commands.simulate import simulate
from surepipe.cli.commands.top import top
from surepipe.cli.output import Exit, complain, complain_about_file, epilog
from surepipe.errors import SurepipeError

COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "init": (init, epilog(Exit.HELD, Exit.UNUSABLE)),
    "check": (check, epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE)),
    "run": (
        run_pipeline,
        epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE, Exit.REPLACED, Exit.INTERRUPTED),
    ),
    "audit": (
        audit,
        epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE, Exit.NOT_EXERCISED),
    ),
    "readers": (readers, epilog(Exit.HELD, Exit.UNUSABLE)),
    "replay": (replay, epilog(Exit.HELD, Exit.UNUSABLE, Exit.INTERRUPTED)),
    "relay": (relay, RELAY_CODES),
    "submit": (
        submit,
        epilog(Exit.HELD, Exit.VIOLATED, Exit.UNUSABLE, Exit.NOT_EXERCISED, Exit.INTERRUPTED),
    ),
    "watch": (watch, epilog(Exit.HELD, Exit.UNUSABLE)),
    "graph": (graph, epilog(Exit.HELD, Exit.UNUSABLE)),
    "schema": (schema, epilog(Exit.HELD)),
    "simulate": (
        simulate,
        epilog(
            Exit.HELD,
            Exit.VIOLATED,
            Exit.UNUSABLE,
            Exit.NOT_EXERCISED,
            Exit.NOT_DETERMINISTIC,
            Exit.INTERRUPTED,
        ),
    ),
    "bench": (
        bench,
        epilog(Exit.HELD, Exit.UNUSABLE, Exit.NOT_EXERCISED, Exit.INTERRUPTED),
    ),
    "top": (top, epilog(Exit.HELD, Exit.UNUSABLE)),
}

GROUPS: dict[str, typer.Typer] = {"dlq": dlq, "book": book, "node": node, "plan": plan}
"""Commands that have commands of their own."""


MAY_BE_EMPTY = frozenset({"bodies", "key", "dedupe", "note", "value"})
"""Messages, keys and remarks: texts that mean something when they are empty. Nothing else does."""
WHOLE_MAX, SECONDS_MAX = 2**63 - 1, 1_000_000_000
"""Larger ones are of no use to anybody, and no clock of the system waits that long."""


class _Command(TyperCommand):
    """A command whose values are none by accident: ``--out "$DIR"`` with an unset DIR is told, and not taken for
    the folder that this runs in; and so is a number below 0, one without end, and ``nan``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        params: list[Any] = list(self.params)
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        for param in params:
            if param.name not in MAY_BE_EMPTY and "" in _all_of(given.get(param.name)):
                raise typer.BadParameter("it is empty: leave it out, or give a value", ctx, param)
        rest = super().parse_args(ctx, args)
        for param in params:
            for value in _all_of(ctx.params.get(param.name)):
                if why := _no_number(value):
                    raise typer.BadParameter(why, ctx, param)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Whatever it is at: Ctrl-C is told, which typer would leave without a word."""
        if signal.getsignal(signal.SIGINT) is end_at_once:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return super().invoke(ctx)
        except BaseException as error:
            if not is_interrupt(error):
                raise
        complain(f"{ctx.info_name} was interrupted, and says nothing")
        exec(
            ""
        )  # else Python remembers a text that was interrupted, and ends by the signal after all
        raise typer.Exit(Exit.INTERRUPTED)


def is_interrupt(error: BaseException) -> bool:
    """Also one of which pydantic made an error of its own, while a model was loaded."""
    is_wrapped = type(error).__module__.startswith("pydantic") and "KeyboardInterrupt" in str(error)
    return is_wrapped or isinstance(error, KeyboardInterrupt)


def _all_of(value: object) -> Iterable[object]:
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else (value,)


def _no_number(value: object) -> str:
    """Why no option takes this number; empty for one that may be taken, and for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    most = WHOLE_MAX if isinstance(value, int) else SECONDS_MAX
    return "" if 0 <= value <= most else f"{value} is not from 0 to {most:,}"  # nan is neither


def _paragraphs(text: str) -> str:
    """A docstring without the line breaks that only the source needs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


app = typer.Typer(
    name="surepipe",
    help="Pipelines whose guarantees are computed: write one file, and see what it delivers before it runs.\n\n"
    "Begin with `surepipe init`, then `surepipe check pipeline.yaml`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, (_function, _epilog) in COMMANDS.items():
    _help = _paragraphs(_function.__doc__ or "")
    app.command(_name, cls=_Command, help=_help, epilog=_epilog)(_function)
for _name, _group in GROUPS.items():
    for _one in _group.registered_commands:
        _one.cls = _Command
    app.add_typer(_group, name=_name)


def _show_version(wanted: bool) -> None:
    if wanted:
        from surepipe import __version__

        typer.echo(f"surepipe {__version__}")
        raise typer.Exit(Exit.HELD)


@app.callback()
def frame(
    version: bool = typer.Option(
        False, "--version", help="Show the version.", callback=_show_version, is_eager=True
    ),
) -> None:
    """What stands before any command; its help is that of the app."""


def main() -> None:
    """Run the command of the command line; ends the process with one of the codes of ``Exit``."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """The same without ending the process; ``arguments`` in place of those of the command line."""
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else Exit.UNUSABLE
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.HELD
    except SurepipeError as error:
        _explain(error)
        return Exit.UNUSABLE
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"{error.filename}: {(error.strerror or str(error)).lower()}")
        return Exit.UNUSABLE
    return Exit.HELD


def _explain(error: SurepipeError) -> None:
    from surepipe.pipelines.problems import PipelineErrors

    if isinstance(error, PipelineErrors):
        complain_about_file(str(error))
    else:
        complain(str(error))
