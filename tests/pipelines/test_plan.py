from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surepipe.errors import ConfigurationError
from surepipe.pipelines import PipelineErrors, Plan, Setting, load, loads
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import JsonlSource
from surepipe.pipelines.models.stages import StagePart, StdoutSink
from surepipe.pipelines.models.stores import SqliteStorePart
from surepipe.pipelines.structure import in_flow
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.kinds.continuous_index import ContinuousIndex
from tests.pipelines.files import pipe, pipeline

NAMES = st.sampled_from("abcdefgh")
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"
LINES = JsonlSource(name="lines", path=Setting("a.jsonl"))
INTAKE = PipePart(name="intake", from_=("lines",), layers=parse_layers("reliable"))
OUT = StdoutSink(name="out", from_=("intake",))


def made_in_python(**changes: object) -> Plan:
    """The same as the sound file without its stage, with changes."""
    parts: dict[str, object] = {"sources": (LINES,), "pipes": (INTAKE,), "sinks": (OUT,)}
    return Plan(name="shop", **{**parts, **changes})  # type: ignore[arg-type]


def test_a_plan_of_a_file_equals_the_one_made_in_python() -> None:
    """The file is one way to write it."""
    text = pipeline(stores="", stages="", sinks="sinks: {out: {from: intake, kind: stdout}}")
    explicit = text.replace("{from: lines}", "{from: lines, layers: reliable}")
    assert loads(explicit) == made_in_python()


def test_the_same_file_gives_an_equal_plan_each_time() -> None:
    """No identity, time or environment is in it."""
    assert load(EXAMPLE) == load(str(EXAMPLE))


def test_a_plan_can_not_be_changed() -> None:
    """Neither the plan nor its parts, nor the mappings in them."""
    plan = load(EXAMPLE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.name = "other"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        plan.pipes[0].lanes = 3
    with pytest.raises(TypeError):
        plan.simulate.replace["a:b"] = "c:d"  # type: ignore[index]


def test_a_pipe_without_layers_is_reliable_and_over_a_store_a_stream() -> None:
    """The defaults, where nothing is written."""
    local = loads(pipeline()).pipe("intake")
    stored = loads(pipeline(pipes=pipe("route: {kind: sqlite, store: main}"))).pipe("intake")
    assert [layer.kind for layer in local.stack] == ["reliable"]
    assert [str(layer) for layer in stored.stack] == ["stream(start=earliest)"]


def test_layers_stand_in_the_order_of_the_file_with_their_options() -> None:
    """Outermost first."""
    plan = load(EXAMPLE)
    first, second = plan.pipe("intake").stack
    assert isinstance(first, ContinuousIndex)
    assert str(second) == "multi-unconfirmed(window=512)"


def test_every_way_from_a_source_to_an_end_is_told() -> None:
    """Both ends of the example."""
    assert [str(way) for way in load(EXAMPLE).ways()] == [
        "lines -> intake -> price -> large -> accounting",
        "lines -> intake -> price -> out",
    ]


def test_nodes_are_ordered_after_what_feeds_them() -> None:
    """Also where the file has them the other way round."""
    text = pipeline(
        stages='stages: {b: {from: a, call: "m:f"}, a: {from: intake, call: "m:f"}}',
        sinks="sinks: {out: {from: b, kind: stdout}}",
    )
    assert [part.name for part in loads(text).order] == ["lines", "intake", "a", "b", "out"]


def test_a_pipe_reaches_as_far_as_the_next_pipes() -> None:
    """What belongs to its receiver: stages, sinks, and the pipes that must accept what it hands over."""
    text = pipeline(
        pipes="pipes: {intake: {from: lines}, next: {from: price}}",
        sinks="sinks: {out: {from: next, kind: stdout}, log: {from: price, kind: stdout}}",
    )
    plan = loads(text)
    assert [part.name for part in plan.reach("intake")] == ["price", "next", "log"]
    assert [part.name for part in plan.reach("next")] == ["out"]


def test_a_stage_with_an_effect_may_be_the_end() -> None:
    """A call that nothing follows."""
    plan = loads(pipeline(sinks=""))
    assert [part.name for part in plan.ends] == ["price"]


def test_a_plan_made_in_python_is_checked_as_a_file_is() -> None:
    """All that does not add up, each in a line that begins with the plan's name."""
    stage = StagePart(name="price", from_=("intak",), call="m:f")
    with pytest.raises(ConfigurationError) as caught:
        made_in_python(stages=(stage,), stores=(SqliteStorePart(name="a", path=Setting("b")),) * 2)
    assert str(caught.value).splitlines() == [
        "shop: there are two stores a: give one another name",
        "shop: stage price is fed from 'intak', which is unknown: did you mean 'intake'?",
    ]


def test_names_of_parts_that_are_not_there_are_key_errors() -> None:
    """For programs that ask for them."""
    plan = made_in_python()
    with pytest.raises(KeyError):
        plan.part("inta")
    with pytest.raises(KeyError):
        plan.store("main")


def test_a_file_that_is_not_there_is_one_line() -> None:
    """So is a folder."""
    for path in (Path("nowhere.yaml"), Path(__file__).parent):
        with pytest.raises(PipelineErrors) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}:1:1: can't be read: ")
        assert len(str(caught.value).splitlines()) == 1


def test_words_of_yaml_1_1_are_words() -> None:
    """No, off and a time of day are texts, as editors show them."""
    text = pipeline(
        "simulate: {sample: {lines: [no, off, 12:30, 0o17, 1e3, 2024-01-01, ~, 0x1F, +1, '5', -.5]}}"
    )
    assert loads(text).simulate.sample["lines"] == [
        *("no", "off", "12:30", 15, 1000.0, "2024-01-01", None, 31, 1, "5", -0.5)
    ]


def test_parts_run_where_they_are_fed_and_pipes_bring_it_elsewhere() -> None:
    """The source says where it reads, a pipe where its receiver runs; everything else follows."""
    text = pipeline(
        sources="sources: {lines: {kind: stdin, node: shop}}",
        pipes="pipes: {intake: {from: lines}, far: {from: price, node: store, "
        "route: {kind: tcp, address: 'h:1', secret: '${KEY}'}}}",
        sinks="sinks: {out: {from: far, kind: stdout}}",
    )
    plan = loads(text)
    assert plan.nodes == ("shop", "store")
    assert {name: place.node for name, place in plan.places.items()} == {
        "lines": "shop",
        "intake": "shop",
        "price": "shop",
        "far": "store",
        "out": "store",
    }
    assert plan.places["far"].sender == "shop"
    assert loads(pipeline()).nodes == ("main",)


def test_a_plan_can_be_sent_to_another_process() -> None:
    """Pickled and back, it is equal: Spark's tasks get it that way."""
    plan = load(EXAMPLE)
    assert pickle.loads(pickle.dumps(plan)) == plan


@given(st.dictionaries(NAMES, st.lists(NAMES, unique=True, max_size=3), max_size=6))
def test_parts_in_flow_come_after_their_feeders_and_circles_are_left_out(
    feeders: dict[str, list[str]],
) -> None:
    """Against the definition: what can be placed is placed, and nothing before what feeds it."""
    ordered = in_flow(feeders)
    for position, name in enumerate(ordered):
        known = [feeder for feeder in feeders[name] if feeder in feeders]
        assert all(feeder in ordered[:position] for feeder in known)
    for name in feeders.keys() - set(ordered):
        assert any(f in feeders and f not in ordered for f in feeders[name])
