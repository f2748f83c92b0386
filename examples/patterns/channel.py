"""channel: requests there, answers back, over a route that loses frames in both directions."""

from surepipe import Channel, ChannelFace, FaultyRoute, Listener, LocalRoute
from surepipe.actors import Reply

lossy = FaultyRoute(LocalRoute(), loss=0.1, reorder=0.1, reorder_s=0.01, delay=0.002, seed=3)
layers = [{"reliable": {"run_max": 10, "rto_initial_s": 0.1}}]
answers: list[object] = []


def square(number: object, reply: Reply) -> None:
    """Answers through the channel that the number came through."""
    assert isinstance(number, int)
    reply(number * number)


def accept(channel: ChannelFace) -> None:
    """Says what happens with the messages of an end that has just come into being."""
    print("here is", channel.address, "and there", channel.peer_address)
    channel.receive(square)


with (
    Listener(lossy, names=["squares"], accept=accept, layers=layers) as listener,
    Channel("squares", layers, route=lossy) as channel,
):
    channel.receive(answers.append)
    channel.send_many(range(100))
    channel.flush(timeout=30)  # every number was handled, so every answer is under way
    listener.at("squares/caller").flush(timeout=30)  # and now every answer was handled, too

print("each way:", channel.guarantee.headline.delivery, "and", channel.guarantee.headline.order)
print("all answers, in order:", answers == [number * number for number in range(100)])
