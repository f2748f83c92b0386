"""The pykka runtime that hosts machines: pipes and their ends, routes, timers, supervision."""

from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.end import EndOptions
from surepipe.actors.ends import ReceiverEnd, SenderEnd
from surepipe.actors.faulty import FaultyRoute
from surepipe.actors.letters import DeadLetters
from surepipe.actors.notices import PipeNotice
from surepipe.actors.pipe import Pipe
from surepipe.actors.routes import LocalRoute, Route, RouteSide
from surepipe.actors.steps import StepRuntime
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import ThreadRuntime

__all__ = [
    "Codec",
    "DeadLetters",
    "EndOptions",
    "FaultyRoute",
    "LocalRoute",
    "Pipe",
    "PipeNotice",
    "ReceiverEnd",
    "RestartPolicy",
    "Route",
    "RouteSide",
    "SenderEnd",
    "StepRuntime",
    "ThreadRuntime",
    "Undecodable",
]
