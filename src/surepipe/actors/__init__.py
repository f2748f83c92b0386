"""The pykka runtime that hosts machines: pipes and their ends, routes, timers, supervision."""

from __future__ import annotations

from surepipe.actors.books import AsyncBook, ServedBook
from surepipe.actors.channels.channel import (
    AsyncChannel,
    Channel,
    ChannelFace,
    ChannelSettings,
    Reply,
)
from surepipe.actors.channels.listener import Listener
from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.consuming.lanes import LaneWork
from surepipe.actors.ends.pipe import AsyncPipe, Pipe
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.remote import (
    AsyncReceiver,
    AsyncSender,
    AsyncStreamReceiver,
    PipeReceiver,
    PipeSender,
    StreamReceiver,
    StreamSender,
)
from surepipe.actors.ends.sender import SenderEnd
from surepipe.actors.host import EndOptions
from surepipe.actors.letters import DeadLetters
from surepipe.actors.links import LinkLimits, MutualTls, OneMachine, SharedKey, TcpRoute
from surepipe.actors.notices import PipeNotice
from surepipe.actors.replaying import Replayed
from surepipe.actors.routes import FaultyRoute, LocalRoute, Route, RouteSide
from surepipe.actors.steps import StepRuntime
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import ThreadRuntime

__all__ = [
    "AsyncBook",
    "AsyncChannel",
    "AsyncPipe",
    "AsyncReceiver",
    "AsyncSender",
    "AsyncStreamReceiver",
    "Channel",
    "ChannelFace",
    "ChannelSettings",
    "Codec",
    "DeadLetters",
    "EndOptions",
    "FaultyRoute",
    "LaneWork",
    "LinkLimits",
    "Listener",
    "LocalRoute",
    "MutualTls",
    "OneMachine",
    "Pipe",
    "PipeNotice",
    "PipeReceiver",
    "PipeSender",
    "ReceiverEnd",
    "Replayed",
    "Reply",
    "RestartPolicy",
    "Route",
    "RouteSide",
    "SenderEnd",
    "ServedBook",
    "SharedKey",
    "StepRuntime",
    "StreamReceiver",
    "StreamSender",
    "TcpRoute",
    "ThreadRuntime",
    "Undecodable",
]
