"""A message whose handler always fails becomes a dead letter; what follows it goes on."""

from surepipe import DeadLetters, Pipe

letters = DeadLetters()
handled: list[object] = []


def handle(order: object) -> None:
    """Can't cope with order 3."""
    if order == 3:
        raise ValueError("no such article")
    handled.append(order)


with Pipe("orders", retries=3, retry_min_s=0.01, dead_letter=letters) as pipe:
    pipe.receive(handle)
    pipe.send_many([1, 2, 3, 4, 5])
    pipe.flush(timeout=10)

print("handled:", handled)
for letter in letters:
    print(
        f"dead letter: message {letter.seq} after {letter.attempts} attempts: {letter.error_text}"
    )
