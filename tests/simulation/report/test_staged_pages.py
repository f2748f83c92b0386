"""Pages of pipelines with stages: the message that is lost, the step that decides, and whose line it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from surepipe.pipelines.simulate.breaking import broken_by
from surepipe.pipelines.simulate.simulating import Simulation, SimulationFailed, simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from tests.kit.browser import OUTSIDE, OVERLAPS, chromium

PIPELINE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, journal: main, state: main, boundary: committed}}
stages: {once: {from: intake, call: "NAME:once"}}
sinks: {out: {from: once, kind: jsonl, path: out.jsonl}}
"""
STREAM = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes: {intake: {from: lines, route: {kind: sqlite, store: main}, journal: main}}
stages: {once: {from: intake, call: "NAME:once"}}
sinks: {out: {from: once, kind: jsonl, path: out.jsonl}}
"""
DEDUPE = """\
SEEN = set()
def once(row):
    if row["n"] in SEEN:
        return None
    SEEN.add(row["n"])
    return row
"""
COUNTER = """\
import itertools
numbers = itertools.count(1)
def once(row):
    return {**row, "number": next(numbers)}
"""
RAISING = """\
def once(row):
    if row["n"] == 1:
        raise KeyError("customer")
    return row
"""
CHARGED = """\
from surepipe.simulation import Outside
bank = Outside("bank")
def once(row):
    bank.do("charge", row["n"])
    return row
def check(run):
    return set(bank.count("charge").values()) <= {1}
"""
CHECKED = 'simulate: {check: "NAME:check"}\n'


class Defect(NamedTuple):
    """A stage with an error, and what is said of the step that decides."""

    code: str
    tail: str
    says: str


DEFECTS = {
    "dedupe": Defect(DEDUPE, "", r"once \(\w+\.py:2\) gives None for (#\d+), and gave \{'n'"),
    "counter": Defect(COUNTER, "", r"once \(\w+\.py:3\) gives .* for (#\d+)[;,]"),
    "raising": Defect(RAISING, "", r"once \(\w+\.py:3\) raises KeyError: 'customer' for (#2)\."),
    "charged": Defect(CHARGED, CHECKED, r"once \(\w+\.py:3\) does it again for (#\d+)\."),
}


@pytest.fixture(scope="module", params=DEFECTS)
def failed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Defect, SimulationFailed]:
    """The report of a run that shows the defect."""
    defect = DEFECTS[str(request.param)]
    folder = tmp_path_factory.mktemp(str(request.param))
    name = f"staged_{request.param}"
    (folder / f"{name}.py").write_text(defect.code)
    (folder / "shop.yaml").write_text((PIPELINE + defect.tail).replace("NAME", name))
    simulation = simulation_of(
        folder / "shop.yaml",
        messages={"lines": [{"n": number} for number in range(6)]},
        reports=folder / "reports",
    )
    with pytest.raises(SimulationFailed) as caught:
        simulation.run(range(80, 120))
    return defect, caught.value


def test_the_deciding_step_names_the_stage_its_line_and_the_message(
    failed: tuple[Defect, SimulationFailed],
) -> None:
    """The same sentence and number in text and page; the step is boxed, and its message has the strong colour."""
    defect, error = failed
    text = " ".join(str(error).split())
    found = re.search(rf"Step (\d+) decides: {defect.says}", text)
    assert found, text
    number, message = found.group(1), found.group(2)
    page = error.page.read_text() if error.page else ""
    assert f"Step {number} decides: " in page
    assert re.search(rf'class="breaks[^"]*"><td><a [^>]*>{number}</a>', page)
    assert f"what that did to {message}<" in page
    assert re.search(rf'class="effect"[^>]*>[^<]*{message}', page)


def test_a_stage_that_keeps_all_waiting_is_named_in_the_first_line(
    failed: tuple[Defect, SimulationFailed],
) -> None:
    """simulation X-34: not that a run reached its limit; that is said behind it."""
    defect, error = failed
    if defect.code != RAISING:
        return
    page = error.page.read_text() if error.page else ""
    assert re.search(r"<h1>Nothing gets past this: once \(\w+\.py:3\) raises KeyError: ", page)
    assert "never came to rest" in page[page.index("</h1>") :]
    assert str(error).splitlines()[1].startswith("Nothing gets past this: once (")
    assert "never came to rest" in " ".join(str(error).split())


def test_what_came_out_in_place_of_a_message_is_told_with_it(
    failed: tuple[Defect, SimulationFailed],
) -> None:
    """simulation X-34: a number that differs is no message that vanished."""
    defect, error = failed
    if defect.code != COUNTER:
        return
    said = " ".join(str(error).split())
    assert re.search(r"never came out.*; \{.*\} came out, which nothing that went in gives", said)


def test_a_decision_has_one_row_and_faults_are_words(
    failed: tuple[Defect, SimulationFailed],
) -> None:
    """Numbers of the catalogue stand in the listing of the script alone."""
    _, error = failed
    page = error.page.read_text() if error.page else ""
    told, _, listing = page.partition("<h2>Script</h2>")
    assert not re.search(r"\(F\d", told)
    assert not re.search(r"\(F\d", str(error))
    decisions = len(listing.partition("<pre>")[2].partition("</pre>")[0].splitlines())
    struck = re.findall(r'<tr id="step-\d+" class="[^"]*fault', told)
    # A power cut ends both ends of a pipe; a process that is replaced has a row more, for what it still sends.
    assert len(struck) <= 3 * decisions


def test_the_deciding_step_is_on_the_first_screen_and_no_labels_overlap(
    failed: tuple[Defect, SimulationFailed],
) -> None:
    """At 1400 x 1000, by the boxes that a browser drew."""
    path = failed[1].page
    assert isinstance(path, Path)
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(path.as_uri())
        box = page.locator("#broken rect.boxed:not(.sample)").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 1000
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(OUTSIDE) == []


class Unexcused(PlanSubject):
    """A pipeline that is held to its claims whatever strikes."""

    def facts(self) -> Mapping[str, object]:
        """No fault excuses anything."""
        return {**super().facts(), "faults": []}


@pytest.fixture
def simple(tmp_path: Path) -> Simulation:
    """A pipeline whose pipe is a stream, and whose stages are in order."""
    name = "staged_simple"
    (tmp_path / f"{name}.py").write_text("def once(row):\n    return row\n")
    (tmp_path / "shop.yaml").write_text(STREAM.replace("NAME", name))
    rows = {"lines": [{"n": number} for number in range(3)]}
    return simulation_of(tmp_path / "shop.yaml", messages=rows, reports=tmp_path / "reports")


def test_a_fault_that_is_not_survived_is_told_in_words_with_what_went_before(
    simple: Simulation,
) -> None:
    """What broke, then what struck, by the name of the end; no line of a script, which names causes by number."""
    broken = broken_by(simple, "process-crash", range(584, 585))
    assert broken is not None
    said, *struck = broken.lines
    assert said.startswith("P3 no duplicates: Message #")
    assert struck
    for line in struck:
        assert re.match(r"intake/(receiver|sender) .*memory lost, after: ", line)


def test_a_store_that_was_emptied_is_told_with_why_nothing_goes_on(simple: Simulation) -> None:
    """Why the process stops at each start is in the first sentence, and has a few rows, not hundreds."""
    plan = simple.subject
    simple.subject = Unexcused(**{name: getattr(plan, name) for name in plan.__dataclass_fields__})
    simple.faults = "store-rollback"
    found = simple.campaign([85])
    error = simple.failed(found.failures["P12"])
    text = " ".join(str(error).split())
    assert re.search(
        r"never came to rest. shop/intake/receiver stops: stream 'shop/intake' .* times\)", text
    )
    assert "store empty, all that it had is lost" in text
    assert "does not cover what happened here" in text
    assert "defect of surepipe" not in text
    page = error.page.read_text() if error.page else ""
    assert 1 <= page.count(">stops: stream") <= 12
