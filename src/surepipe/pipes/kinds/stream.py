"""stream: sender and receiver need not be alive together, a stream store is in between.

The sender appends runs under their identity (producer, epoch, seq) until the store has them, so a repeated append
is stored once and ``Confirmed`` means stored. The receiver reads by index and commits the next index to read, so
after a crash it goes on where its last commit was. Assumes a way to the store on which calls get lost, are
repeated and answered late, as long as some get through. Gives exactly-once in absolute order under all of that;
what of it survives a crash of the store is the store's level. It does not survive a store that goes back to an
older state: it tells (``StoreRollback``, ``Diverged``, ``Reset``, ``Trimmed``), and then stops or does what its
options say.

Durable state over a stream: the cursors of all layers are the ``state`` of the reader's committed position, one
record. The receiver restores them when it finds its position, so a stack over a stream is built without ``state``.
Where the host stores states itself, ``commit_of`` turns a state into the commit of that record.

Several producers may write into one stream. The order of all is the order of the stream. A message is handed up,
and answered, under its producer's name, epoch and seq: producers count for themselves, and whoever forwards each
message under a name of its own writes nothing but first messages of first epochs.

Ranges in the notices of the receiver are indexes of the stream, with epoch 0.
"""

from __future__ import annotations

from surepipe.pipes.declaration import ALL, PipeKind, Provision, Reverse, row
from surepipe.pipes.stream.options import Stream
from surepipe.pipes.stream.position import commit_of
from surepipe.pipes.stream.receiver import Receiver
from surepipe.pipes.stream.sender import Sender

_READS = Provision(ALL, "reads the store in the order of its indexes")

PIPE = PipeKind(
    *(Stream, Sender, Receiver),
    declares=(
        row(
            Stream,
            (
                Provision(ALL, "appends again until the store has the message"),
                Provision(ALL, "appends by identity, so that a repeat is stored once"),
                _READS,
                _READS,
            ),
            reverse=Reverse.FAIR,
        ),
    ),
)

__all__ = ["PIPE", "Receiver", "Sender", "Stream", "commit_of"]
