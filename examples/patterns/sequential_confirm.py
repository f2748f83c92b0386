"""sequential-confirm: one message at a time; lost frames and lost confirms leave no trace at the receiver."""

from surepipe import FaultyRoute, LocalRoute, Pipe

steps = ["open valve", "start pump", "wait for pressure", "close valve", "stop pump"]
done: list[object] = []

lossy = FaultyRoute(LocalRoute(), loss=0.25, seed=4)
in_turn = {"sequential-confirm": {"rto_initial_s": 0.02, "rto_min_s": 0.02, "rto_max_s": 0.05}}

with Pipe("plant", [in_turn], route=lossy) as pipe:
    pipe.receive(done.append)
    for step in steps:
        pipe.send(step, until="confirmed", timeout=30)  # returns when the step was done

for number, name in enumerate(done, 1):
    print(number, name)
print("frames lost on the way:", lossy.sender.lost + lossy.receiver.lost > 0)
