"""The whole file, and what is not about a part: engine and simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from surepipe.pipelines.models.common import (
    CallablePath,
    Count,
    Frozen,
    FrozenMapping,
    PartModel,
    PartName,
    Seconds,
    Text,
    Words,
)
from surepipe.pipelines.models.pipes import Expect, PipePart
from surepipe.pipelines.models.sources import SourcePart
from surepipe.pipelines.models.stages import SinkPart, StagePart
from surepipe.pipelines.models.stores import StorePart


class Engine(PartModel):
    """What runs the pipeline."""

    word: ClassVar[str] = "engine"
    kind: Literal["actors", "spark"] = Field(
        default="actors", description="actors: one machine. spark: more than one"
    )
    master: Text | None = Field(
        default=None, description="Spark's master; local[*] when not given", examples=["local[4]"]
    )
    trigger_s: Seconds | None = Field(default=None, description="seconds between two micro-batches")
    checkpoint: Text | None = Field(default=None, description="folder of Spark's checkpoints")
    memory: Text | None = Field(
        default=None, description="heap of Spark's driver; 1g when not given", examples=["2g"]
    )
    ship: Words = Field(
        default=(),
        description="modules, packages and files that executors need besides those of the functions",
        examples=[["shop_helpers"]],
    )
    python: Text | None = Field(
        default=None,
        description="the Python of the executors; the path of this one when not given",
        examples=["/opt/shop/bin/python"],
    )


class SimulateSection(PartModel):
    """What `surepipe simulate` needs to know."""

    word: ClassVar[str] = "simulate"
    replace: Annotated[Mapping[CallablePath, CallablePath], Frozen] = Field(
        default_factory=FrozenMapping,
        description="functions that touch the outside world, each with its double",
        examples=[{"shop:charge": "doubles:charge"}],
    )
    check: CallablePath | None = Field(
        default=None,
        description="a function over the result of a run that says whether it is right",
    )
    sample: Annotated[Mapping[str, list[Any]], Frozen] = Field(
        default_factory=FrozenMapping,
        description="for sources that can't be read in a simulation: their messages",
    )
    messages: Count | None = Field(default=None, description="messages of a run")
    may_be_empty: Words = Field(
        default=(),
        description="sinks that need not get a message in a simulation; sources of which nothing need come out",
        examples=[["alarms"]],
    )


def _whole(value: object) -> object:
    """``true`` and 1.0 equal 1, and are no version."""
    return value if type(value) is int else None


def _engine(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


EnginePart: TypeAlias = Annotated[Engine, BeforeValidator(_engine)]
"""Its kind alone may stand for it."""


class Head(PartModel):
    """Everything of a file but its parts."""

    word: ClassVar[str] = "pipeline"
    version: Annotated[Literal[1], BeforeValidator(_whole)] = Field(
        description="version of this format"
    )
    name: PartName = Field(description="name of the pipeline; its stores and traces carry it")
    description: str = Field(default="", description="what it is for, for people")
    expect: Expect | None = Field(
        default=None, description="what must hold from each source to each sink"
    )
    engine: EnginePart = Field(default_factory=Engine, description="what runs it")
    simulate: SimulateSection = Field(
        default_factory=SimulateSection, description="how it is simulated"
    )


class PipelineFile(Head):
    """A pipeline: sources feed pipes, pipes feed stages and sinks."""

    stores: dict[PartName, StorePart] = Field(
        default_factory=dict,
        description="where messages, journals, states and dead letters are kept",
    )
    sources: dict[PartName, SourcePart] = Field(description="where messages come from")
    pipes: dict[PartName, PipePart] = Field(description="how they get on")
    stages: dict[PartName, StagePart] = Field(
        default_factory=dict, description="what is done with them"
    )
    sinks: dict[PartName, SinkPart] = Field(default_factory=dict, description="where they go")
