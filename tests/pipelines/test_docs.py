"""What is written about pipelines is true: examples load, hold and run; tables name what there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from examples.orders import CENTS, Order, adds_up, is_large, price
from surepipe.cli.app import COMMANDS, GROUPS
from surepipe.cli.output import Exit
from surepipe.drawing.flow import svg_of
from surepipe.pipelines import assess, load, loads
from surepipe.pipelines.diagram import diagram_of
from surepipe.pipelines.loading import SECTIONS
from surepipe.pipelines.simulate.ends import RunOutcome
from surepipe.pipelines.wording import keys_of

ROOT = Path(__file__).parents[2]
PIPELINES = (ROOT / "docs" / "pipelines.md").read_text()
COMMAND = (ROOT / "docs" / "command.md").read_text()
EXAMPLE = ROOT / "examples" / "orders.yaml"


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_pipeline_of_the_page_holds_what_it_expects() -> None:
    """The first YAML block."""
    text = blocks(PIPELINES, "yaml")[0]
    assert assess(loads(text)).held


def test_the_python_of_the_page_runs() -> None:
    """All blocks, in a process of their own, in the folder of the repository."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(blocks(PIPELINES, "python"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "exactly-once, absolute" in done.stdout


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.key)
def test_the_page_names_every_kind(section: object) -> None:
    """In the row of its section; of pipes and stages, which have no kinds, the keys."""
    for one in SECTIONS:
        if one is section:
            (row,) = re.findall(rf"^\| `{one.key}` \|.*$", PIPELINES, re.MULTILINE)
            if one.has_kinds:
                kinds = [model.model_fields["kind"].default for model in one.models]
                assert [kind for kind in kinds if f"`{kind}`" not in row] == []
            elif one.key == "pipes":
                keys = [key for key in keys_of(one.models[0]) if key != "from"]
                assert [key for key in keys if f"`{key}`" not in row] == []


def test_the_page_of_the_command_names_every_command_and_exit_code() -> None:
    """And no other."""
    named = re.findall(r"^\| `surepipe ([a-z]+)", COMMAND, re.MULTILINE)
    assert sorted(named) == sorted([*COMMANDS, *GROUPS])
    codes = re.findall(r"^\| (\d+) \|", COMMAND, re.MULTILINE)
    assert [int(code) for code in codes] == [code.value for code in Exit]


def test_the_picture_of_the_page_is_the_one_that_is_drawn_today() -> None:
    """`surepipe graph examples/orders.yaml -o docs/pictures/orders-pipeline.svg` renews it."""
    picture = (ROOT / "docs" / "pictures" / "orders-pipeline.svg").read_text()
    assert picture == svg_of(diagram_of(load(EXAMPLE)))


def test_every_function_that_the_example_names_is_there() -> None:
    """`check` imports nothing, so somebody has to look."""
    plan = load(EXAMPLE)
    paths = [path for stage in plan.stages for path in (stage.call, stage.filter) if path]
    paths += [source.model for source in plan.sources if source.model]
    paths += [plan.simulate.check] if plan.simulate.check else []
    assert len(paths) == 4
    for path in paths:
        module, _, name = path.partition(":")
        assert callable(getattr(import_module(module), name))


def test_the_example_has_orders_with_a_price_and_one_without() -> None:
    """Forty rows that fit the model; one of them becomes a dead letter."""
    (source,) = load(EXAMPLE).sources
    rows = (ROOT / str(getattr(source, "path", ""))).read_text().splitlines()
    orders = [Order.model_validate(json.loads(row)).model_dump() for row in rows]
    assert [order["order"] for order in orders] == list(range(1, 41))
    priced = [price(order) for order in orders if order["article"] in CENTS]
    assert len(priced) == 39
    assert 0 < sum(map(is_large, priced)) < 39
    assert adds_up(RunOutcome({"out": priced}))
    assert not adds_up(RunOutcome({"out": [*priced, priced[0]]}))


def test_the_stages_of_the_example_run_without_a_pipe() -> None:
    """As a program: each order priced, and the one that can't be."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    printed = done.stdout.splitlines()
    assert len(printed) == 40
    assert printed[22] == "no price for saffron: this becomes a dead letter"
