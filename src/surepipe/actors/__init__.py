"""The pykka runtime that hosts machines: pipes and their ends, routes, timers, supervision."""

from surepipe.actors.async_face import (
    AsyncChannel,
    AsyncPipe,
    AsyncReceiver,
    AsyncSender,
    AsyncStreamReceiver,
)
from surepipe.actors.channel import Channel, ChannelFace, ChannelSettings, Reply
from surepipe.actors.codecs import Codec, Undecodable
from surepipe.actors.end import EndOptions
from surepipe.actors.faulty import FaultyRoute
from surepipe.actors.lanes import Lease
from surepipe.actors.letters import DeadLetters
from surepipe.actors.links import Limits, MutualTls, OneMachine, SharedKey, TcpRoute
from surepipe.actors.listener import Listener
from surepipe.actors.notices import PipeNotice
from surepipe.actors.pipe import Pipe
from surepipe.actors.receiver_end import ReceiverEnd
from surepipe.actors.remote_ends import PipeReceiver, PipeSender
from surepipe.actors.replaying import Replayed
from surepipe.actors.routes import LocalRoute, Route, RouteSide
from surepipe.actors.sender_end import SenderEnd
from surepipe.actors.steps import StepRuntime
from surepipe.actors.stream_ends import StreamReceiver, StreamSender
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import ThreadRuntime

__all__ = [
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
    "Lease",
    "Limits",
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
    "SharedKey",
    "StepRuntime",
    "StreamReceiver",
    "StreamSender",
    "TcpRoute",
    "ThreadRuntime",
    "Undecodable",
]
