"""``surepipe init``: a small pipeline that works, with a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from surepipe.cli.output import Exit, complain, line, show


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write it; made when it is not there.")
    ] = Path(),
) -> None:
    """Write a small pipeline to begin with: the file, a stage, some data, a test, and the schema for editors.

    Writes over nothing: when one of the files is there already, none is written.
    """

    if folder.suffix in (".yaml", ".yml"):
        complain(
            f"init writes a folder of files, pipeline.yaml among them: name it {folder.with_suffix('')}"
        )
        raise typer.Exit(Exit.UNUSABLE)
    files = starter_files(_name_of(folder))
    there = [path for path in files if (folder / path).exists()]
    if there:
        complain(
            f"{folder / there[0]} is there already, and nothing was written: name another folder"
        )
        raise typer.Exit(Exit.UNUSABLE)
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"{error.filename} can't be written: {(error.strerror or '').lower()}")
        raise typer.Exit(Exit.UNUSABLE) from None
    _tell(folder, list(files))


def _name_of(folder: Path) -> str:
    """The folder's name, as far as a pipeline may have it."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-_")
    return name[:40] if name[:1].isalpha() else "orders"


def _tell(folder: Path, files: list[str]) -> None:
    enter = "" if folder == Path() else f"cd {folder} && "
    show(
        [
            *(line(f"wrote {folder / path}") for path in files),
            line(""),
            line(("next  ", "dim"), f"{enter}surepipe check pipeline.yaml"),
            line(("      ", "dim"), "surepipe run pipeline.yaml"),
            line(("      ", "dim"), "surepipe graph pipeline.yaml -o pipeline.svg"),
            line(("      ", "dim"), "python -m pytest"),
            line(("      ", "dim"), "surepipe simulate pipeline.yaml"),
        ]
    )


# The files of a first pipeline, which `surepipe init` writes. They check, and their test passes, as they are.


PIPELINE = """\
# yaml-language-server: $schema=surepipe.schema.json
# A pipeline: sources feed pipes, pipes feed stages and sinks.
#   surepipe check pipeline.yaml      what it guarantees, and why
#   surepipe simulate pipeline.yaml   whether your stages break it; stages.py has an error to try that with
#   surepipe graph pipeline.yaml -o pipeline.svg
# Paths are those of the folder that the command runs in.
version: 1
name: {name}

# What must hold from each source to each sink. A pipeline that can't is refused before it starts.
expect:
  delivery: exactly-once
  order: absolute
  tolerates: [network, process-crash, bad-stage, store-outage, host-power-loss]

stores:
  main: {{kind: sqlite, path: .surepipe/{name}.db}}

sources:
  orders: {{kind: jsonl, path: data/orders.jsonl, key: customer}}

pipes:
  intake:
    from: orders
    layers: [reliable]
    journal: main         # what was accepted survives a crash of the sender
    state: main           # how far the receiver is survives one of the receiver
    boundary: committed   # effect and place in one transaction: once, whatever dies

stages:
  price:
    from: intake
    call: stages:price    # a function: module:function
    retries: 5            # then it goes to the dead letters, and the others go on
    dead_letter: main/orders.dead

sinks:
  out: {{from: price, kind: jsonl, path: out/orders.jsonl}}
"""

STAGES = '''\
"""The stages of the pipeline: functions of a message."""

from __future__ import annotations

from typing import Any

PRICES = {"bread": 320, "milk": 140, "tea": 510}
sold: list[str] = []


def price(order: dict[str, Any]) -> dict[str, Any]:
    """The order with what it costs, in cents. An article without a price raises, and is tried again."""
    # An error to find: take the '#' from the next line, and run `surepipe simulate pipeline.yaml`.
    # sold.append(order["article"]); order = {**order, "number": len(sold)}
    return {**order, "cents": PRICES[order["article"]] * order["count"]}
'''

TEST = '''\
"""What must stay true of the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from stages import price

from surepipe.pipelines import assess, load
from surepipe.pytest_plugin import Simulate

PIPELINE = Path(__file__).with_name("pipeline.yaml")


def test_the_pipeline_guarantees_what_it_expects() -> None:
    """Computed from the layers and the stores; nothing is started."""
    assert assess(load(PIPELINE)).held


def test_the_pipeline_survives_what_it_says(simulate: Simulate) -> None:
    """Crashes, losses, outages and processes that come back, in virtual time: nothing is opened or written."""
    simulate(PIPELINE, seeds=20)


def test_an_order_gets_its_price() -> None:
    """A stage is a function: call it."""
    assert price({"article": "tea", "count": 2})["cents"] == 1020


def test_an_article_without_a_price_fails() -> None:
    """So that it becomes a dead letter, and is not sold for nothing."""
    with pytest.raises(KeyError):
        price({"article": "gold", "count": 1})
'''

ORDERS = """\
{"order": 1, "customer": "ada", "article": "bread", "count": 2}
{"order": 2, "customer": "bo", "article": "tea", "count": 1}
{"order": 3, "customer": "ada", "article": "milk", "count": 3}
"""

IGNORED = ".surepipe/\nout/\n"


def starter_files(name: str) -> dict[str, str]:
    """The files, by their path in the new folder."""
    from surepipe.pipelines.schema import schema_text

    return {
        "pipeline.yaml": PIPELINE.format(name=name),
        "stages.py": STAGES,
        "test_pipeline.py": TEST,
        "data/orders.jsonl": ORDERS,
        "surepipe.schema.json": schema_text(),
        ".gitignore": IGNORED,
    }
